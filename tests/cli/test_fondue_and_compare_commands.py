"""zscope fondue and zscope compare, as a user meets them."""

import importlib
import json
import pkgutil
import re
import shutil
import sys

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import experiments
from zscope.assays import cka
from zscope.assays.dimension.fondue import Use
from zscope.cli import main
from zscope.errors import ConfigError, RunError
from zscope.experiments import compare, correlations_over_training, fondue
from zscope.experiments.comparison import untrained_copy
from zscope.experiments.fondue_training import Trials
from zscope.experiments.sweeps.request import Measured
from zscope.kept import read_scores


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path):
    """Run a command in this process: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zscope", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        return end.value.code or 0, output.out, output.err

    return run


def plane(samples: int = 2000) -> np.ndarray:
    """Rows of six numbers that hold two: what a VAE can use is two latents."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(samples, 2)) * [1.5, 1.0]
    return (flat @ rng.normal(size=(2, 6))).astype(np.float32)


# The threshold is strict (every latent active), so that few steps tell 2 from 3.
SMALL = {"steps": 150, "rate": 6e-2, "options": {"backbone": "linear"}, "samples": 500,
         "threshold": 0.5, "seeds": 1}  # fmt: skip
ONE = Use(1, 0, 0, used=1, kl=2.0)


# FONDUE


def test_a_plane_needs_two_latents():
    # By the criterion "trace" in the test of a search that goes on where it was.
    result = fondue(plane(), criterion="sampled", **SMALL)
    assert (result.latents, result.status) == (2, "found")
    assert fondue(plane(), search="binary", limit=6, **SMALL).latents == 2


def test_bisection_tries_the_largest_size_that_is_allowed(monkeypatch):
    monkeypatch.setattr(Trials, "_train", lambda self, n, steps, beta: n)
    monkeypatch.setattr(Trials, "_measure", lambda self, n: (0.0, ONE))
    for limit, answer in ((1, 1), (6, 6), (512, 199)):
        result = fondue(plane(100), search="binary", limit=limit)
        assert (result.latents, result.status) == (answer, "limit")


def test_longer_training_until_the_answer_repeats_and_counting_types(monkeypatch):
    # The linear oracle instead of training: three latents are of use from 200 steps on.
    monkeypatch.setattr(Trials, "_train", lambda self, n, steps, beta: (n, steps))
    monkeypatch.setattr(
        Trials,
        "_measure",
        lambda self, model: (float(model[0] > (3 if model[1] >= 200 else 2)) * 2, ONE),
    )
    for steps, answer in ((50, (2, 50)), (100, (3, 200))):
        result = fondue(plane(200), steps=steps, stable=True, start=2)
        assert [(s.latents, s.steps) for s in result.searches.values()] == 3 * [answer]
        assert (result.mean, result.sd, result.stable) == (answer[0], 0, True)
    with pytest.raises(
        ConfigError, match="no search is called 'golden'. Known: beta, binary, fondue"
    ):
        fondue(plane(200), search="golden")


def test_settings_that_contradict_each_other_are_refused():
    for more in ({"search": "binary"}, {"threshold": 1.0}):
        with pytest.raises(ConfigError, match="nothing to bisect and no threshold"):
            fondue(plane(100), criterion="types", **more)
    for more in ({"criterion": "types"}, {"options": {"beta": 2}}):
        with pytest.raises(ConfigError, match="a β that is not fixed"):
            fondue(plane(100), search="beta", latents=2, **more)
    for more in ({"bandwidth": "median"}, {"criterion": "information", "bandwidth": "scott"}):
        with pytest.raises(ConfigError, match="bandwidth is silverman or median"):
            fondue(plane(100), **more)
    with pytest.raises(ConfigError, match="seeds=0"):
        fondue(plane(100), seeds=0)
    for key in ("latents", "seed"):
        with pytest.raises(ConfigError, match=f"the model option {key} cannot be set here"):
            fondue(plane(100), options={key: 3})


def test_a_saturated_kernel_is_said_and_remembered(tmp_path):
    # 256 pixels of noise: any two are told apart, so the information is always the ceiling.
    noise = np.random.default_rng(0).random((1200, 256)).astype(np.float32)
    options = {"criterion": "information", "options": {"backbone": "linear"}, "out": tmp_path}
    for _ in ("trained", "remembered"):
        result = fondue(noise, steps=3, start=2, limit=2, seeds=1, **options)
        assert any("separates every two observations" in flag for flag in result.flags)
    median = {**options, "bandwidth": "median", "out": None}
    assert fondue(noise, steps=3, start=2, limit=2, seeds=1, **median).flags == []
    trained = {"steps": 60, "rate": 3e-2, "start": 1, "limit": 1, "options": {"backbone": "linear"}}
    clear = fondue(plane(), seeds=1, **trained)
    assert clear.flags == []


def faint(samples: int = 1000) -> np.ndarray:
    """Noise that is too small to be worth a nat: the best posterior is the prior."""
    return np.random.default_rng(0).normal(scale=0.1, size=(samples, 6)).astype(np.float32)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"search": "binary", "limit": 3},
        {"criterion": "sampled"},
        {"criterion": "dimension"},
        {"criterion": "information", "bandwidth": "median"},
        {"criterion": "types"},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())) or "trace",
)
def test_a_collapsed_model_is_no_answer_of_any_search(settings):
    few = {"steps": 60, "rate": 3e-2, "options": {"backbone": "linear"}, "seeds": 1, "samples": 100}
    few |= {} if "search" in settings else {"start": 2, "limit": 4}
    result = fondue(faint(), **few, **settings)
    assert (result.status, result.mean) == ("collapsed", 0)
    (search,) = result.searches.values()
    for trial in search.trials:
        assert trial.use.used == 0
        assert trial.use.kl < 0.1 * trial.use.passive + 0.1


def test_a_search_has_the_learning_rate_of_train():
    from inspect import signature

    from zscope.cli.fondue import fondue as fondue_command
    from zscope.cli.train import train as train_command
    from zscope.training.ensemble import train_ensemble

    def rates(*functions):
        return {signature(function).parameters["rate"].default for function in functions}

    assert rates(fondue, Trials, fondue_command) == {1e-4}
    # None is the rate of the preset, and without one that of all training.
    assert rates(zs.train, train_ensemble, train_command) == {None}
    model = zs.models.build("vae", shape=(6,), latents=2, backbone="linear")
    assert zs.train(model, plane(100), steps=1).config["rate"] == 1e-4


def test_every_draw_of_a_trial_is_that_of_the_runner():
    trials = Trials(plane(), criterion="sampled", options={"backbone": "linear"}, seed=5)
    model = zs.models.build("vae", shape=(6,), latents=2, backbone="linear")
    recording = zs.record(model, trials.held_out, seed=5)
    value, use = trials._measure(model)
    options = {"trace-gap": {"sampled": True}}
    report = zs.assay(recording, names="trace-gap", options=options)
    assert value == report.results["trace-gap"].score
    divergence = zs.assays.latent_divergence(recording)
    assert use.kl == pytest.approx(divergence.rate)
    assert use.used == int((divergence.per_latent > 0.1).sum())
    trials.criterion = "dimension"
    assert trials._measure(model)[0] == zs.assays.dimension_gap(recording).score


def test_an_interrupted_search_says_how_to_go_on_with_the_search(tmp_path, monkeypatch):
    def interrupted(*given, **more):
        raise KeyboardInterrupt("train: go on with zscope train --resume")

    # Not by its dotted name: that is the function, which has the name of its module.
    monkeypatch.setattr(sys.modules[Trials.__module__], "train", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"2 latents.*run the same command again"):
        fondue(plane(100), steps=5, start=2, out=tmp_path)


def test_the_types_of_a_trained_model_are_counted():
    family = Trials(plane(), criterion="types", options={"backbone": "linear"}, rate=3e-2)
    passive, use = family.measure(3, steps=30)
    assert use.active + use.mixed + use.passive == 3
    assert passive == use.passive
    limited = fondue(plane(), criterion="types", limit=2, **{**SMALL, "threshold": None})
    assert (limited.latents, limited.status) == (2, "limit")


def test_the_search_over_beta_trains_with_that_beta(monkeypatch):
    family = Trials(plane(), model="beta-vae", options={"backbone": "linear"}, rate=3e-2)
    model = family._train(2, 5, 3.5)
    assert model.recipe["options"]["beta"] == 3.5
    # Linear theory with γ = 1/2: the gap is sum_j min(1, β / 2 / λ_j).
    monkeypatch.setattr(Trials, "_train", lambda self, n, steps, beta: beta)
    monkeypatch.setattr(Trials, "_measure", lambda self, beta: (beta / 2 * (1 / 9 + 1 / 4), ONE))
    assert fondue(plane(), search="beta", latents=2).beta == pytest.approx(
        2 / (1 / 9 + 1 / 4), rel=0.05
    )


def test_a_search_goes_on_where_it_was(tmp_path):
    trained = []

    def watch(report):
        if report.value is not None and not report.remembered:
            trained.append(report.latents)

    first = fondue(plane(), out=tmp_path, progress=watch, criterion="trace", **SMALL)
    assert (first.latents, first.status) == (2, "found")
    assert trained == [trial.latents for trial in first.searches[0].trials]
    # One trial is forgotten, as if the search had been stopped before its end was written.
    file = tmp_path / "seed-0" / "trials.json"
    content = json.loads(file.read_text())
    content["trials"].pop(f"{trained[-1]} steps 150")
    del content["sha256"]
    file.write_text(json.dumps(content))
    again = []
    watch_again = fondue(
        plane(), out=tmp_path, progress=lambda r: again.append((r.latents, r.remembered)), **SMALL
    )
    # To the last bit: the run itself was kept.
    assert watch_again.searches[0].trials == first.searches[0].trials
    assert {size for size, kept in again if not kept} == {trained[-1]}
    with pytest.raises(ConfigError, match=r"rate=0\.06, now rate=0\.1"):
        fondue(plane(), out=tmp_path, **{**SMALL, "rate": 0.1})
    with pytest.raises(ConfigError, match="contents="):  # other numbers, also named "array"
        fondue(2 * plane(), out=tmp_path, **SMALL)


def test_every_criterion_measures_the_trained_model():
    for criterion in ("dimension", "information"):
        family = Trials(plane(), criterion=criterion, options={"backbone": "linear"}, rate=1e-2)
        value, use = family.measure(3, steps=50)
        assert np.isfinite(value)
        assert family.measure(3, steps=50) == (value, use)
    with pytest.raises(ConfigError, match="Did you mean trace"):
        Trials(plane(), criterion="traces")
    with pytest.raises(ConfigError, match="deterministic"):
        Trials(plane(), model="ae")


def test_the_fondue_command_traces_keeps_and_draws(zscope, tmp_path):
    np.save(tmp_path / "plane.npy", plane())
    words = ("fondue", "plane.npy", "--steps", 150, "--rate", 0.06, "--set", "backbone=linear",
             "--threshold", 0.5, "--samples", 500, "--out", "sized", "--seeds", 2, "--jobs", 1,
             "--data-option", "standardise=false")  # fmt: skip
    code, out, err = zscope(*words)
    assert code == 0, err
    assert out.startswith("2 ± 0 latents (2 seeds: 2, 2)\n")
    assert err.startswith(
        "gap: sum of the mean posterior variances, about 1 for each unused latent"
    )
    assert "2 latents: gap" in err
    assert re.search(r"too many .*2 active, 0 mixed, 1 passive, KL \d\.\d\d nats", err)
    assert "seed 1" in err
    assert (tmp_path / "sized" / "fondue.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = zscope(*words, "--json")
    summary = json.loads(out)
    assert (code, summary["latents"], summary["mean"], summary["status"]) == (0, 2, 2, "found")
    trials = [trial for each in summary["searches"].values() for trial in each["trials"]]
    assert {trial["latents"] for trial in trials} >= {2, 3}
    assert all(trial["kl"] > 1 and trial["used"] == 2 for trial in trials if trial["latents"] == 2)
    code, out, err = zscope(*words)
    assert err.count("cached") == len(trials)


def test_the_search_over_beta_asks_for_the_size(zscope, tmp_path):
    np.save(tmp_path / "plane.npy", plane(100))
    code, _, err = zscope("fondue", "plane.npy", "--search", "beta")
    assert code == 1
    assert "--latents 6" in err
    code, _, err = zscope("fondue", "plane.npy", "--latents", 3)
    assert (code, "--search beta" in err) == (1, True)


def test_the_search_over_beta_keeps_the_model_and_draws(zscope, tmp_path, monkeypatch):
    np.save(tmp_path / "plane.npy", plane(100))
    models = []

    def trained(self, n, steps, beta):
        models.append(self.model)
        return beta

    monkeypatch.setattr(Trials, "_train", trained)
    monkeypatch.setattr(Trials, "_measure", lambda self, beta: (beta / 4, ONE))
    for given_, used in (((), "beta-vae"), (("--model", "beta-tcvae"), "beta-tcvae")):
        words = ("fondue", "plane.npy", "--search", "beta", "--latents", 2, "--out", used,
                 "--jobs", 1)  # fmt: skip
        code, out, err = zscope(*words, *given_)
        assert code == 0, err
        assert out.startswith("β = 4 ± 0 (3 seeds: 4, 4, 4)")
        assert "too strong" in err
        assert set(models[-3:]) == {used}
        assert (tmp_path / used / "fondue.png").read_bytes().startswith(b"\x89PNG")


def test_a_search_that_settles_on_nothing_says_so(zscope, tmp_path, monkeypatch):
    np.save(tmp_path / "plane.npy", plane(100))
    monkeypatch.setattr(Trials, "_train", lambda self, n, steps, beta: n)
    monkeypatch.setattr(Trials, "_measure", lambda self, n: (1.05, ONE))
    code, out, err = zscope("fondue", "plane.npy", "--stable", "--out", "none", "--jobs", 1)
    assert code == 1, err
    assert out.startswith("no answer (collapsed): no model uses its latents and has an acceptable")


def test_a_collapsed_model_is_called_so(zscope, tmp_path):
    np.save(tmp_path / "faint.npy", faint())
    code, out, err = zscope("fondue", "faint.npy", "--steps", 60, "--rate", 0.03, "--set",
                            "backbone=linear", "--start", 1, "--seeds", 1,
                            "--data-option", "standardise=false")  # fmt: skip
    assert (code, out.startswith("no answer (collapsed): no model uses")) == (1, True), err
    assert re.search(r"1 latent: gap 0\.\d+ ≤ 1 +collapsed +0 active, .*KL 0\.0\d nats", err)


# Compare


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder, helix = tmp_path_factory.mktemp("runs"), zs.data.load("helix")
    for seed in (0, 1):
        model = zs.models.build("vae", shape=(3,), latents=2, hidden=(16,), seed=seed)
        zs.train(model, helix, steps=60, rate=1e-2, seed=seed, out=folder / f"run{seed}",
                 snapshots=[20])  # fmt: skip
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run0", tmp_path / "run1"


def test_two_runs_are_compared_layer_by_layer(zscope, runs, tmp_path):
    code, out, err = zscope("compare", *runs, "--samples", 300, "--figure", "heat.png")
    assert code == 0, err
    lines = out.splitlines()
    columns = ["layer", "CKA", "Procrustes", "smaller of both", "untrained", "shuffled"]
    assert re.split(" {2,}", lines[0]) == columns
    assert any(line.startswith("mean ") for line in lines)
    assert "procrustes" in out
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = zscope("compare", *runs, "--samples", 300, "--json")
    heat = json.loads(out)["heatmap"]
    row, column = heat["rows"].index("mean"), heat["columns"].index("mean")
    recorded = [zs.record(zs.load(run), zs.data.load("helix"), samples=300).codes for run in runs]
    assert heat["matrix"][row][column] == pytest.approx(cka(*recorded).score, abs=1e-5)
    assert abs(heat["null"][row][column]) < 0.1


def test_two_runs_have_the_layer_maps_of_many(runs):
    two = compare(*runs, samples=100, extractor=None)
    (many,) = zs.compare_runs(runs, samples=100).maps
    assert two.layers.pairs == many.pairs == [("run0", "run1")]
    for measure in ("cka", "procrustes", "smaller"):
        for part in ("means", "untrained", "shuffled"):
            assert getattr(two.layers, part)[measure].equal(getattr(many, part)[measure])
    assert repr(many).split("\n", 1)[1] in repr(two)
    figure = two.plot()
    texts = {text.get_text() for ax in figure.axes for text in ax.texts}
    texts |= {text.get_text() for text in figure.texts}
    assert {"layers of run0", "layers of run1", "encoder", "latents", "decoder"} <= texts
    titles = [ax.get_title("left") for ax in figure.axes[:3]]
    assert titles == ["CKA", "Procrustes", "smaller of both"]
    with pytest.raises(ConfigError, match=r"similarity-heatmap\.null cannot be set.*--no-control"):
        compare(*runs, options={"similarity-heatmap": {"null": True}})


def test_samples_of_both_models_are_judged_by_the_same_features(zscope, runs):
    helix = zs.data.load("helix")
    result = compare(*runs, helix, samples=300, control=False)
    first, second = result.quality["first"], result.quality["second"]
    assert first.extractor == second.extractor == "64 features of a random network"
    assert first.floor == second.floor  # of the same observations
    assert first.distances != second.distances
    recorded = zs.record(zs.load(runs[1]), helix, samples=300)
    assert second.distances == zs.assays.sample_quality(recorded).distances
    words = ("compare", *runs, "--samples", 300, "--no-control")
    code, out, err = zscope(*words, "--extractor", runs[0])
    assert code == 0, err
    assert re.search(r"Fréchet distance to the data +first +second\n", out)
    assert "by last hidden layer of vae, 150 samples each" in out
    code, out, err = zscope(*words, "--extractor", "none", "--json")
    assert (code, json.loads(out)["quality"]) == (0, {}), err


def test_an_assay_takes_a_run_as_its_extractor(zscope, runs):
    words = ("assay", runs[1], "sample-quality", "--samples", 100, "--json")
    values = []
    for extractor in (runs[0], runs[1]):
        code, out, err = zscope(*words, "--set", f"sample-quality.extractor=@{extractor}")
        assert code == 0, err
        values.append(json.loads(out)["assays"]["sample-quality"]["result"]["distances"])
    recorded = zs.record(zs.load(runs[1]), zs.data.load("helix"), samples=100)
    expected = zs.assays.sample_quality(recorded, extractor=zs.load(runs[0])).distances
    assert values[0] == pytest.approx(expected, rel=1e-5)
    assert values[0] != values[1]
    # Both are among the scores of the run, and a sweep that asks for one of them finds it.
    kept = {entry["options"] for entry in read_scores(runs[1])}
    own = {"sample-quality": {"extractor": f"@{runs[0]}"}}
    asked = Measured(["sample-quality"], options=own).requests["sample-quality"]["options"]
    assert len(kept) == 2
    assert asked in kept
    assert asked != Measured(["sample-quality"]).requests["sample-quality"]["options"]
    code, _, err = zscope(*words, "--set", "sample-quality.extractor=@nowhere")
    assert (code, "there is no run at nowhere" in err) == (1, True)


def test_one_run_is_compared_with_its_own_past(zscope, runs):
    code, out, err = zscope("compare", runs[0], "--samples", 300)
    assert code == 0, err
    assert out.splitlines()[0].split()[:4] == ["layer", "step", "0", "step"]
    last = [float(line.split()[-1]) for line in out.splitlines()[1:] if line.startswith("mean ")]
    assert 0 < last[0] <= 1


def test_a_run_without_checkpoints_says_how_to_keep_some(zscope, runs):
    for file in (runs[0] / "checkpoints").glob("*"):
        file.unlink()
    code, _, err = zscope("compare", runs[0])
    assert code == 1
    assert "--snapshot" in err
    with pytest.raises(RunError, match="--snapshot"):
        correlations_over_training(runs[0], zs.data.load("helix"))


def test_correlations_are_followed_over_the_checkpoints_of_a_run(runs):
    helix = zs.data.load("helix")
    followed = correlations_over_training(runs[0], helix, samples=200)
    assert followed.snapshots == 2  # step 20 and the end
    codes = zs.record(zs.load(runs[0]), helix, samples=200).codes
    expected = np.corrcoef(codes.numpy().T)[0, 1]
    assert followed.series(0, 1)[-1] == pytest.approx(expected, abs=1e-5)


def test_a_checkpoint_is_compared_with_the_end_of_its_run(zscope, runs):
    (early,) = (runs[0] / "checkpoints").glob("step-000000020*")
    code, out, err = zscope("compare", early, runs[0], "--samples", 200, "--no-control")
    assert code == 0, err
    assert out.splitlines()[1].split()[:2] == ["input", "1.000"]


def test_the_control_has_weights_that_neither_run_began_with(runs):
    """With the seed of a run it would be that run's own beginning, which it resembles."""
    helix = zs.data.load("helix")
    for run in runs:
        model = zs.load(run)
        raw = untrained_copy(model)
        begun = zs.models.from_recipe(model.recipe)
        assert raw.recipe["options"]["seed"] not in (0, 1)
        for name, weight in raw.state_dict().items():
            assert not torch.equal(weight, begun.state_dict()[name])
    first, second = map(zs.load, runs)
    assert compare(first, second, helix, samples=100).flags == []
    other = zs.models.build("beta-vae", shape=(3,), latents=2, hidden=(16,), seed=0)
    (flag,) = compare(first, other, helix, samples=100).flags
    assert "Both models started from the weights of seed 0" in flag


def test_what_cannot_be_compared_is_refused(zscope, runs, tmp_path):
    digits = zs.data.load("digits")
    model = zs.models.build_for("vae", digits, latents=2, backbone="mlp", hidden=(8,))
    zs.train(model, digits, steps=2, out=tmp_path / "pictures")
    for words, message in (
        ((runs[0], "pictures"), "second model takes observations of shape (1, 8, 8)"),
        ((runs[0], runs[1], "--samples", -5), "samples=-5"),
        (("nowhere", runs[0]), "there is no run at nowhere"),
        (("nowhere", *runs), "there is no run at nowhere"),
        ((runs[0], "--no-control"), "--no-control has no effect on the checkpoints of one run"),
        ((runs[0], "--checkpoints", "--plain"), "--plain has no effect"),
        ((runs[0], "--extractor", "inception"), "--extractor has no effect"),
        ((*runs, "--data-option", "noise=3"), "--data-option noise=3 needs --data"),
        ((*runs, runs[0], "--data-option", "noise=3"), "--data-option noise=3 needs --data"),
        ((runs[0], "--checkpoints", "--data-option", "noise=3"), "noise=3 needs --data"),
    ):
        code, _, err = zscope("compare", *words)
        assert (code, message in err) == (1, True), err


def test_a_classifier_is_compared_by_its_encoder(zscope, tmp_path):
    digits = zs.data.load("digits")
    for name, latents in (("classifier", 10), ("vae", 3)):
        model = zs.models.build_for(name, digits, latents=latents, backbone="mlp", hidden=(8,),
                                    seed=latents)  # fmt: skip
        zs.train(model, digits, steps=2, batch=16, out=tmp_path / name)
    for words in (("classifier", "vae"), ("vae", "classifier")):
        code, out, err = zscope("compare", *words, "--samples", 100)
        assert code == 0, err
        assert "The encoders alone are compared: no decoder in classifier." in out
        assert "mean" in out
        assert "decoder" not in out.replace("no decoder in", "")
        place = "first" if words[0] == "vae" else "second"  # of the model that decodes
        assert re.search(rf"Fréchet distance to the data +{place}\n", out)
    both = compare(tmp_path / "vae", tmp_path / "vae", samples=100)
    assert any("decoder" in name for name in both.heatmap.rows)  # where both have one
    assert not any("encoders alone" in flag for flag in both.flags)


def test_models_that_are_told_factors_are_compared_too():
    digits = zs.data.load("digits")
    built = [
        zs.models.build_for("ivae", digits, latents=2, backbone="mlp", hidden=(8,), seed=seed)
        for seed in (0, 1)
    ]
    result = compare(*built, digits, samples=100)
    recorded = [zs.record(model, digits, samples=100).codes for model in built]
    heat = result.heatmap
    value = heat.matrix[heat.rows.index("mean"), heat.columns.index("mean")].item()
    assert value == pytest.approx(cka(*recorded).score, abs=1e-5)


def test_a_foreign_model_is_its_own_untrained_control():
    layer = torch.nn.utils.skip_init(torch.nn.Linear, 3, 2)
    back = torch.nn.utils.skip_init(torch.nn.Linear, 2, 3)
    generator = torch.Generator().manual_seed(0)
    for module in (layer, back):
        module.weight.data = torch.randn(module.weight.shape, generator=generator)
        module.bias.data.zero_()
    model = zs.wrap(layer, back, example=torch.zeros(2, 3))
    raw = untrained_copy(model)
    assert not torch.equal(raw.encoder.weight, layer.weight)
    assert torch.equal(untrained_copy(model).encoder.weight, raw.encoder.weight)  # repeatable
    data = zs.data.load("helix")
    same = compare(model, model, data, samples=200)
    assert same.latents["procrustes"].score == pytest.approx(1)
    assert dict(same.heatmap.summary())["encoder"] == "1.000"


def test_runs_are_compared_by_their_paths_on_their_own_data(zscope, runs):
    result = compare(*runs, samples=300)
    _, out, _ = zscope("compare", *runs, "--samples", 300)
    assert out.strip() == repr(result)
    assert set(result.latents) == {"cka", "procrustes", "svcca", "pwcca", "udr"}
    # By their variances, which compare passes on: without them all latents would count.
    assert any("no informative latent" in flag for flag in result.latents["udr"].flags)
    assert result.latents["procrustes"].angle > 0
    assert dict(result.summary())["samples"] == "300"
    frame = result.to_frame()
    assert set(frame["assay"]) == set(result.latents)
    first = frame.groupby("assay")["value"].first()
    assert all(first[name] == each.score for name, each in result.latents.items())
    assert frame["value"].tolist() == [measure.value for measure in result.measures()]
    assert {measure.name.split(",")[0] for measure in result.measures()} == set(result.latents)
    plain = compare(*runs, samples=300, debiased=False)
    assert not plain.latents["cka"].debiased
    with pytest.raises(ConfigError, match="does not say which data"):
        compare(zs.load(runs[0]), runs[1])
    with pytest.raises(ConfigError, match="got a single tuple.*second model"):
        compare((lambda x: x, lambda z: z), data=zs.data.load("helix"))


def test_a_similarity_without_an_answer_says_why():
    flat = zs.wrap(lambda x: 0 * x, lambda z: z, example=torch.zeros(2, 3))
    full = zs.wrap(lambda x: x, lambda z: z, example=torch.zeros(2, 3))
    result = compare(full, flat, zs.data.load("helix"), samples=100)
    assert set(result.latents) <= {"udr"}
    assert "same for all 100 samples" in result.missing["procrustes"]
    assert "pwcca         not measured: A representation" in repr(result)


def test_the_functions_are_not_hidden_by_their_modules():
    for module in pkgutil.walk_packages(experiments.__path__, "zscope.experiments."):
        importlib.import_module(module.name)
    for name in experiments.__all__:
        assert callable(getattr(experiments, name)), name

"""Searches that train many models: FONDUE with several seeds at once, elbow curves, β."""

import inspect
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import zscope as zs
from zscope.cli import main
from zscope.errors import ConfigError, DataError, RunError
from zscope.experiments import elbow_curve, fondue, search_beta
from zscope.experiments.fondue_training import Pace, Progress, Search, Trials, _sendable
from zscope.experiments.sweeps.names import data_text, parse_name
from zscope.experiments.trials import size_of

QUICK = {"steps": 20, "rate": 3e-2, "options": {"backbone": "linear"}, "samples": 100,
         "start": 1, "limit": 2}  # fmt: skip
LINEAR = {"steps": 150, "rate": 6e-2, "batch": 250, "options": {"backbone": "linear"},
          "jobs": 1, "progress": False}  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A file with rows of six numbers whose covariance has the eigenvalues 9, 4, 1 and 0."""
    return write(tmp_path_factory.mktemp("data") / "rows.npy", [3, 2, 1])


def write(file, deviations):
    """Rows of six numbers that hold three, with these standard deviations."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(1000, 3))
    flat -= flat.mean(0)
    flat = flat @ np.linalg.inv(np.linalg.cholesky(np.cov(flat.T, bias=True))).T  # exactly white
    basis = np.linalg.qr(rng.normal(size=(6, 3)))[0]
    np.save(file, (flat * deviations @ basis.T).astype(np.float32))
    return f"{file}?standardise=false"


def loaded(text):
    name, options = parse_name(text)
    return zs.data.load(name, **options)


# FONDUE


def test_searches_at_the_same_time_have_the_answers_of_one_after_the_other(rows, tmp_path):
    data, reports = loaded(rows), []
    one = fondue(data, seeds=2, out=tmp_path / "one", **QUICK)
    with ThreadPoolExecutor(2) as pool:
        both = fondue(
            data, seeds=2, out=tmp_path / "both", executor=pool, progress=reports.append, **QUICK
        )
    assert both.to_dict() == one.to_dict()
    for seed in (0, 1):
        trials = {trial.latents for trial in one.searches[seed].trials}
        assert {each.latents for each in reports if each.seed == seed} == trials
    assert all(each.value is not None and not each.remembered for each in reports)
    assert any(each.left is not None and each.left >= 0 for each in reports)
    reports.clear()
    with ThreadPoolExecutor(2) as pool:
        fondue(
            data, seeds=2, out=tmp_path / "both", executor=pool, progress=reports.append, **QUICK
        )
    assert reports
    assert all(each.remembered and each.left is None for each in reports)


@pytest.mark.slow
def test_two_processes_give_the_same_bits(rows, tmp_path):
    data = loaded(rows)
    one = fondue(data, seeds=2, out=tmp_path / "one", **QUICK)
    two = fondue(data, seeds=2, out=tmp_path / "two", jobs=2, **QUICK)
    array = fondue(data.images, seeds=2, jobs=2, **QUICK)  # nothing to load, nothing is stored
    assert two.to_dict() == one.to_dict() == array.to_dict()
    for file in (tmp_path / "one").rglob("model.safetensors"):
        other = tmp_path / "two" / file.relative_to(tmp_path / "one")
        assert file.read_bytes() == other.read_bytes()


def test_a_search_that_fails_lets_the_others_be_saved(rows, tmp_path, monkeypatch):
    train = Trials._train

    def fail(self, latents, steps, beta):
        if self.seed == 0:
            raise DataError("fondue: the disk is gone. Plug it in.")
        return train(self, latents, steps, beta)

    monkeypatch.setattr(Trials, "_train", fail)
    with ThreadPoolExecutor(2) as pool, pytest.raises(RunError) as caught:
        fondue(loaded(rows), seeds=2, out=tmp_path, executor=pool, **QUICK)
    assert "1 of 2 searches failed; the one with seed 0: fondue: the disk is gone." in str(
        caught.value
    )
    assert (tmp_path / "seed-1" / "trials.json").is_file()
    assert not (tmp_path / "seed-0" / "trials.json").exists()


def test_what_is_wrong_is_refused_before_a_worker_starts(rows, tmp_path):
    class NoWorkers(ThreadPoolExecutor):
        def submit(self, *given, **more):
            raise AssertionError("a worker was asked")

    with NoWorkers(1) as pool:
        with pytest.raises(ConfigError, match="Did you mean trace"):
            fondue(loaded(rows), criterion="traces", executor=pool)
        with pytest.raises(ConfigError, match="ae is deterministic"):
            fondue(loaded(rows), model="ae", executor=pool)
        for more, text in (
            ({"limit": 0}, "limit=0"),
            ({"steps": 0}, "steps=0"),
            ({"threshold": float("nan")}, "threshold=nan"),
            ({"start": 0}, "start=0; expected 1 to 512"),
            ({"start": 600}, "start=600; expected 1 to 512"),
            ({"start": 2, "search": "binary"}, "start=2 has no effect with the search binary"),
            ({"samples": 2}, "samples=2; .* at least 10"),
            ({"rate": -1}, "^fondue: rate"),
            ({"options": {"bta": 3}}, "^fondue: .*no option 'bta'"),
            ({"options": {"shape": 3}}, "shape is not an option of a model"),
            ({"search": "beta", "latents": 0}, "latents=0"),
            ({"search": "beta", "latents": 2, "model": "vae"}, "^fondue: .*no option 'beta'"),
        ):
            with pytest.raises(ConfigError, match=text):
                fondue(loaded(rows), executor=pool, out=tmp_path / "none", **more)
            with pytest.raises(ConfigError, match=text):
                fondue(loaded(rows), out=tmp_path / "none", **more)
        assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match="jobs=0"):
        fondue(loaded(rows), jobs=0)


def search_of(data, out=None, steps=100, seed=0):
    settings = {"seed": seed, "model": "vae"}
    return Search(data, settings, out, "fondue", None, None, 9, steps, stable=False)


def test_workers_load_the_same_data_by_name_or_refuse(rows, tmp_path):
    sent = _sendable(search_of(loaded(rows)))
    assert isinstance(sent.data, dict)
    assert len(sent.trials().held_out) == 100
    array = _sendable(search_of(zs.data.from_arrays(np.zeros((20, 3), np.float32))))
    assert isinstance(array.data, zs.Dataset)
    other = {**sent.data, "contents": "0" * 16}
    with pytest.raises(DataError, match="rows.npy as a worker loads it"):
        search_of(other).trials()


def test_the_time_left_is_that_of_the_steps_to_come():
    now = [0.0]
    pace = Pace([search_of({}, seed=seed) for seed in (0, 1)], clock=lambda: now[0])
    trial = Progress(0, 2, None, 100, 1.0, None, 1.0, remembered=False)
    assert pace.left() is None
    now[0] = 10.0
    pace.note(trial)
    assert pace.left() == pytest.approx(90)  # five trials are expected of each: 4 + 5, 10 s each
    assert pace.left(under_way=100) == pytest.approx(40)  # two at once: 5 s each, one half done
    pace.note(trial._replace(remembered=True))
    pace.finish(0)
    assert pace.left() == pytest.approx(20)  # the other one will have two as well
    pace.finish(1)
    assert pace.left() == 0
    assert size_of("3 beta 1.5 steps 40") == (3, 1.5, 40)
    assert size_of("3 steps 40") == (3, None, 40)


# How a plan names data


@pytest.mark.parametrize(
    "options",
    [{}, {"resolution": 32}, {"share": 0.1, "names": ["a b", "c&d"], "on": True, "off": None},
     {"word": "32", "other": "x=1?&y", "kind": "null", "list": [1, 2.5]}],
)  # fmt: skip
def test_a_recipe_as_a_text_reads_back_as_itself(options):
    assert parse_name(data_text({"name": "sprites", "options": options})) == ("sprites", options)


def test_what_no_text_can_say_is_refused(rows):
    part = loaded(rows).split((0.5, 0.5))[0]
    with pytest.raises(ConfigError, match="a part of .*save the part as a file"):
        data_text(part.recipe)
    with pytest.raises(ConfigError, match="question mark"):
        data_text({"name": "/a?b.npy", "options": {}})
    with pytest.raises(ConfigError, match="option fill of the data is a object"):
        data_text({"name": "helix", "options": {"fill": object()}})


# Elbows


def test_the_elbow_of_linear_data_is_at_their_dimension(tmp_path):
    rows = write(tmp_path / "round.npy", [2, 2, 2])
    found = elbow_curve(
        loaded(rows),
        [1, 2, 3, 4],
        score="reconstruction",
        seeds=2,
        out=tmp_path / "out",
        **LINEAR,
    )
    assert found.knee == 3
    assert {each.knee for each in found.seeds.values()} == {3}
    assert found.column == "history.reconstruction"
    # Of each eigenvalue, 4, a latent leaves γ = 1/2.
    assert found.mean == pytest.approx([8.5, 5, 1.5, 1.5], rel=0.25)
    assert all(low <= mean <= high for low, mean, high in
               zip(found.low, found.mean, found.high, strict=True))  # fmt: skip
    assert "knee" in repr(found)
    assert "reconstruction, 1 latent " in repr(found)
    axes = found.plot()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("latents", "reconstruction")
    rows_of = {(row["latents"], row["seed"]): row for row in zs.runs(tmp_path / "out").rows}
    assert len(rows_of) == 8
    assert found.mean[2] == pytest.approx(
        np.mean([rows_of[3, seed]["history.reconstruction"] for seed in (0, 1)])
    )
    short = elbow_curve(
        rows, [1, 2, 3], score="reconstruction", seeds=2, out=tmp_path / "out", **LINEAR
    )
    assert len(list((tmp_path / "out" / "runs").glob("vae-*"))) == 8
    assert short.mean == found.mean[:3]
    assert short.within == 3
    assert "Try larger sizes" in short.flags[0]
    assert repr(short).count("Try larger sizes") == 1


def test_an_assay_knows_which_of_its_scores_are_good(tmp_path):
    quick = LINEAR | {"steps": 5, "seeds": 1, "samples": 100, "out": tmp_path}
    known = elbow_curve("digits", [1, 2, 4], score="mig", **quick)
    said = elbow_curve("digits", [1, 2, 4], score="mig", better="lower", **quick)
    assert (known.better, said.better) == ("higher", "lower")
    best = known.sizes[int(np.argmax(known.mean))]
    worst = said.sizes[int(np.argmin(said.mean))]
    assert (known.within <= best, said.within <= worst) == (True, True)
    assert known.within != said.within


def test_elbows_that_cannot_be_are_refused(rows, tmp_path):
    array, digits = np.zeros((20, 3), np.float32), "digits"
    for data, sizes, more, text in (
        (rows, [2, 2, 4], {}, "at least three different"),
        (rows, [0, 2, 4], {}, r"sizes\[0\]=0"),
        (array, [1, 2, 3], {}, "a ndarray that cannot be loaded again"),
        (rows, [1, 2, 3], {"model": "vea"}, "^elbow: .*Did you mean vae"),
        (rows, [1, 2, 3], {"options": {"bta": 1}}, "^elbow: .*bta"),
        (rows, [1, 2, 3], {"options": {"latents": 1}}, "^elbow: .*latents is not an option"),
        (rows, [1, 2, 3], {"score": "los"}, "^elbow: no score is called 'los'. Did you mean loss"),
        (rows, [1, 2, 3], {"score": "passive"}, "^elbow: 'passive' was not measured"),
        (rows, [1, 2, 3], {"score": "effective-rank"}, "^elbow: models cannot be ranked by"),
        (
            digits,
            [1, 2, 3],
            {"score": "dci"},
            "^elbow: dci is no score of these models and data: two factors",
        ),
        (digits, [1, 2, 3], {"score": "mig.gap"}, "no score is called 'mig.gap'. Did you mean mig"),
    ):
        with pytest.raises(ConfigError, match=text):
            inspect.unwrap(elbow_curve)(data, sizes, out=tmp_path / "none", **more)
    assert not (tmp_path / "none").exists()


# β


def test_the_onset_is_where_linear_theory_prunes_the_weakest_latent(rows, tmp_path):
    # A latent of eigenvalue λ has the variance β / (2 λ) and is pruned at β = 2 λ: 2, 8 and 18.
    found = search_beta(
        rows, [0.5, 1, 1.4, 2.5, 4], latents=3, seeds=2, out=tmp_path, samples=500, **LINEAR
    )
    assert (found.onset, found.onset_range) == (2.5, (2.5, 2.5))
    assert (found.chosen, found.chosen_range) == (1.4, (1.4, 1.4))
    for each in found.seeds.values():
        assert each.counts == [3, 3, 3, 2, 2]
        expected = [1.4 / 2 / eigenvalue for eigenvalue in (9, 4, 1)]
        np.testing.assert_allclose(np.sort(each.variances[2].numpy()), expected, rtol=0.25)
    assert found.flags == []
    assert "chosen β" in repr(found)
    axes = found.plot()
    assert axes.get_xlabel() == "β"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.5", "1", "1.4", "2.5", "4"]
    assert "chosen β = 1.4" in [text.get_text() for text in axes.texts]
    assert all(float(tick).is_integer() for tick in axes.get_yticks())
    together = {tuple(run.environment["ensemble"]) for run in zs.runs(tmp_path)}
    assert len(together) == 1  # five β and two seeds in one ensemble
    assert len(next(iter(together))) == 10
    small = search_beta(
        rows, [0.5, 1], latents=3, seeds=2, out=tmp_path, samples=500, **LINEAR
    )  # of the same runs
    assert (small.onset, small.chosen) == (None, 1)
    assert "no onset of the polarised regime" in small.flags[0]
    assert repr(small).count("no onset of the polarised regime") == 1


def test_searches_for_beta_that_cannot_be_are_refused(rows, tmp_path):
    for betas, more, text in (
        ([1, 1], {}, "at least two different positive"),
        ([0, 1], {}, "at least two different positive"),
        ([1, 2], {"model": "ae"}, "ae is deterministic"),
        ([1, 2], {"model": "vae"}, "^beta: .*beta"),
        ([1, 2], {"options": {"beta": 2}}, "is what is searched for"),
        ([1, 2], {"score": "loss"}, "^beta: models cannot be ranked by loss"),
        ([1, 2], {"options": {"shape": 2}}, "^beta: .*shape is not an option of a model"),
        ([1, 2], {"score": "nosuch"}, "^beta: no score is called 'nosuch'. Known: loss, "),
        ([1, 2], {"needed": 3}, "^beta: needed=3, but the model has 2 latents"),
        ([1, 2], {"threshold": 2}, "^beta: threshold=2"),
    ):
        with pytest.raises(ConfigError, match=text):
            search_beta(rows, betas, latents=2, out=tmp_path / "none", **more)
    assert not (tmp_path / "none").exists()


# Commands


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zscope", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        return end.value.code or 0, output.out, output.err

    return run


def test_both_commands_train_print_and_draw(zscope, rows, tmp_path):
    name = rows.partition("?")[0]
    shared = (name, "--steps", 5, "--seeds", 1, "--jobs", 1, "--set", "backbone=linear",
              "--data-option", "standardise=false", "--samples", 50)  # fmt: skip
    code, out, err = zscope("elbow", *shared, "--sizes", "1,2,3", "--figure", "elbow.png")
    assert code == 0, err
    assert "knee" in out
    assert "Runs: zscope table runs/elbow-vae-rows" in out
    assert (tmp_path / "elbow.png").read_bytes().startswith(b"\x89PNG")
    words = ("beta", *shared, "--betas", "0.5,1", "--latents", 2, "--json")
    code, out, err = zscope(*words, "--figure", "beta.png")
    assert code == 0, err
    assert json.loads(out)["betas"] == [0.5, 1]
    assert json.loads(out)["figure"] == "beta.png"
    assert (tmp_path / "runs" / "beta-beta-vae-rows" / "sweep.json").is_file()
    code, _, err = zscope("beta", name, "--betas", "a,b", "--latents", 2)
    assert (code, err.count("\n")) == (1, 1)
    assert "not a list of numbers" in err
    code, _, err = zscope("elbow", name, "--sizes", "1,2,3", "--jobs", 2, "--cluster", "slurm")
    assert (code, "leave one of them out" in err) == (1, True)

"""Models of known quality are put in the right order."""

import gc
import json
import weakref

import numpy as np
import pytest
import torch
from worlds import World, random_rotation

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.errors import ConfigError, RunError, Undefined
from zscope.experiments import selection

SCALES = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)
FEW = {"samples": 600, "scores": ["mig"]}


def world(rotation: torch.Tensor, noise: float = 0.05) -> World:
    """Codes of unit variance, rotated; the decoder stretches the factors' own axes."""
    return World(
        lambda z: z @ rotation.to(z) * SCALES.to(z),
        lambda x: x / SCALES.to(x) @ rotation.T.to(x),
        3,
        std=torch.full((3,), noise, dtype=torch.float64),
    )


def aligned(seed: int) -> World:
    """Latents in another order, some of them flipped."""
    rng = np.random.default_rng(seed)
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], 3))
    return world(torch.eye(3, dtype=torch.float64)[rng.permutation(3)] * signs)


def rotated(seed: int) -> World:
    return world(random_rotation(3, 40 + seed))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 8, (800, 3))
    codes = (factors - 3.5) / factors.std(0) + 0.01 * rng.normal(size=(800, 3))
    x = (codes * SCALES.numpy()).astype(np.float32)
    return zs.data.from_arrays(x, factors)


def test_aligned_models_win_by_every_criterion(data):
    models = {
        "rotated": [rotated(seed) for seed in range(3)],
        "aligned": [aligned(seed) for seed in range(3)],
    }
    scores = ["mig", "alignment-gap"]  # of the one the largest is best, of the other the smallest
    result = zs.select_models(models, data, samples=600, scores=scores)
    assert (result.ranked_by, [row["rank"] for row in result.table[:3]]) == ("udr", [1, 1, 1])
    assert [row["group"] for row in result.table] == 3 * ["aligned"] + 3 * ["rotated"]
    for row in result.table[:3]:
        assert row["udr"] == pytest.approx(0.9, abs=0.02)  # the best of Lasso
        assert row["distance-to-orthogonality"] == pytest.approx(0, abs=1e-3)
        assert row["mig"] > 0.8
    for row in result.table[3:]:
        assert row["udr"] < 0.8
        assert row["distance-to-orthogonality"] > 0.3  # chance is 1
        assert row["mig"] < 0.75
    for criterion in ("udr", "distance-to-orthogonality"):  # of which the smallest is best
        for score in scores:
            assert result.correlation(criterion, score) > 0.7, (criterion, score)
    # The same number as of the codes at hand.
    codes = [zs.record(model, data, samples=600).codes for model in models["rotated"]]
    direct = zs.assays.udr(codes, variances=[torch.full_like(each, 0.05**2) for each in codes])
    own = {row["run"]: row["udr"] for row in result.table}
    assert [own[f"rotated {k}"] for k in range(3)] == pytest.approx(direct.scores)
    by_distance = zs.select_models(models, data, rank="distance-to-orthogonality", **FEW)
    assert by_distance.table[0]["group"] == "aligned"
    assert (
        by_distance.table[0]["distance-to-orthogonality"]
        <= by_distance.table[-1]["distance-to-orthogonality"]
    )


def test_models_are_ranked_by_distances_the_other_way_round(data):
    def shrinking(share):  # the more it shrinks what it decodes, the further from the data
        return World(lambda z: z * share, lambda x: x, 3, std=torch.full((3,), 0.05))

    models = {"worst": [shrinking(0.2)], "best": [shrinking(1)], "second": [shrinking(0.6)]}
    name = "sample-quality.Fréchet-distance-reconstructions"
    result = zs.select_models(
        models, data, rank="sample-quality", samples=100, scores=["sample-quality"]
    )
    assert (result.ranked_by, result.best) == (name, "best 0")
    assert f"the smallest is best: distance-to-orthogonality, {name}" in repr(result)
    distances = [row[name] for row in result.table]
    assert distances == sorted(distances)
    assert [row["rank"] for row in result.table] == [1, 2, 3]


def test_every_score_of_disentanglement_says_which_way_is_better():
    entries = [each for each in CATALOGUE.values() if each.group == "disentanglement"]
    assert {each.better for each in entries} == {"higher"}
    assert {each.better for each in CATALOGUE.values()} == {"higher", "lower", ""}


def test_groups_of_equal_quality_are_not_told_apart(data):
    groups = {
        "a": [rotated(seed) for seed in range(3)],
        "b": [rotated(seed + 7) for seed in range(3)],
    }
    result = zs.select_models(groups, data, **FEW)
    means = [np.mean([r["udr"] for r in result.table if r["group"] == g]) for g in groups]
    assert means[0] == pytest.approx(means[1], abs=0.15)
    assert max(row["udr"] for row in result.table) < 0.8


def test_one_seed_has_no_udr_which_is_said(data):
    result = zs.select_models({"only": [aligned(0)], "pair": [rotated(0), rotated(1)]}, data, **FEW)
    assert result.table[-1]["run"] == "only 0"
    assert (result.table[-1]["udr"], result.table[-1]["rank"]) == (None, None)
    assert "only has one run" in result.missing["udr of only 0"]
    assert "Train at least two seeds" in repr(result)
    single = zs.select_models({"a": [aligned(0)], "b": [rotated(0)]}, data, **FEW)
    assert (single.ranked_by, single.best) == ("distance-to-orthogonality", "a 0")
    assert "needs 3 models" in single.missing["distance-to-orthogonality with mig"]


def test_collapsed_models_that_are_ranked_first_are_flagged(data):
    silent = [world(torch.eye(3, dtype=torch.float64) * 0.2, noise=0.99) for _ in range(2)]
    result = zs.select_models({"collapsed": silent, "good": [rotated(0), rotated(1)]}, data, **FEW)
    assert {row["group"]: row["used"] for row in result.table} == {"collapsed": 0, "good": 3}
    assert result.table[0]["group"] == "collapsed"  # identical, so their UDR is the largest
    assert any("is ranked first and uses no latents" in flag for flag in result.flags)
    assert "in units of chance" in repr(result)
    fine = zs.select_models({"good": [rotated(0), rotated(1)]}, data, **FEW)
    assert not any("ranked first" in flag for flag in fine.flags)


def test_correlations_that_are_missing_are_hatched(data):
    models = {"only": [aligned(0)], "also": [rotated(1)], "pair": [rotated(0), rotated(2)]}
    result = zs.select_models(models, data, **FEW)
    ax = result.plot()  # of distances alone, because two models have a UDR
    criteria = ["UDR", "Distance to orthogonality"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == criteria
    assert ax.get_xlabel().startswith("4 models")
    assert len(ax.patches) == 1


def test_why_there_is_no_correlation_to_draw_is_said_as_it_is(data):
    bare = zs.data.from_arrays(data.batch(slice(None)).numpy())
    for observed, models, scores, reason in (
        (bare, [aligned(0)], ["mig"], "factors"),
        (data, [aligned(0)], [], "No scores were asked for"),
        (data, 3 * [aligned(0)], ["mig"], "all with the same distance-to-orthogonality and mig"),
    ):
        groups = {str(k): [model] for k, model in enumerate(models)}  # without UDR
        result = zs.select_models(groups, observed, samples=100, scores=scores)
        with pytest.raises(Undefined, match=f"no rank correlation to draw. .*{reason}"):
            result.plot()


def test_scores_that_are_criteria_are_measured_once(data):
    models = {"a": [aligned(0)], "b": [rotated(0)]}
    result = zs.select_models(models, data, samples=100, scores=["udr", "mig", *selection.CRITERIA])
    assert result.scores == ["mig"]
    assert "Not applicable" not in repr(result)


def test_without_factors_there_are_criteria_alone(data):
    bare = zs.data.from_arrays(data.batch(slice(None)).numpy())
    result = zs.select_models({"a": [aligned(0), aligned(1)]}, bare, **FEW)
    assert (result.scores, result.agreement) == ([], [])
    assert result.table[0]["rank"] == result.table[1]["rank"] == 1  # equal, so they share it
    assert "factors" in result.missing["mig of a 0"]


def test_models_do_not_add_up_in_memory(trained_family, monkeypatch):
    alive, most = weakref.WeakSet(), []
    original = selection.load

    def tracked(target):
        gc.collect()  # a model without latents in use leaves an error that refers to itself
        most.append(len(alive) + 1)
        model = original(target)
        alive.add(model)
        return model

    monkeypatch.setattr(selection, "load", tracked)
    runs = [trained_family / name for name in ("b0.01-s0", "b4-s0", "b4-s1")]
    assert len(zs.select_models(runs, samples=100, scores=["sap"]).table) == 3
    assert max(most) == 1


def test_runs_are_grouped_by_everything_but_the_seed(trained_family):
    seen = []
    result = zs.select_models(trained_family, samples=100, scores=["mig"], progress=seen.append)
    assert {row["group"] for row in result.table} == {"beta 0.01", "beta 4"}
    assert [each.total for each in seen] == 5 * [5]
    assert len(result.to_frame()) == 5
    udr = [row["udr"] for row in result.table]
    assert udr == sorted(udr, reverse=True)


def test_runs_of_different_data_are_not_ranked_together(family, zscope):
    noisy = zs.data.load("helix", noise=0.5)
    for seed in range(2):
        model = zs.models.build("beta-vae", shape=(3,), latents=3, hidden=(16,), seed=seed)
        zs.train(model, noisy, steps=5, seed=seed, progress=False, out=family / f"noisy-s{seed}")
    message = r"2 datasets.*: helix, helix\?noise=0.5\. Select one.*--where 'data=helix'"
    with pytest.raises(ConfigError, match=message):
        zs.select_models(family, samples=100, scores=["mig"])
    words = ("select", family, "--samples", 50, "--scores", "mig", "--json")
    code, out, err = zscope(*words, "--where", "data=helix?noise=0.5")
    assert code == 0, err
    assert {row["run"] for row in json.loads(out)["table"]} == {"noisy-s0", "noisy-s1"}
    code, _, err = zscope(*words, "--where", "data=rooms")
    assert (code, "no run has data=rooms. Values of data: helix" in err) == (1, True)
    # Measured on the same data, they can be compared.
    both = [family / "noisy-s0", family / "b0.01-s0"]
    assert len(zs.select_models(both, noisy, samples=50, scores=["mig"]).table) == 2


def test_damaged_models_are_left_out_which_is_said(family):
    three = [family / name for name in ("b4-s0", "b4-s1", "b0.01-s0")]
    weights = three[0] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    result = zs.select_models(three, samples=50, scores=["mig"])
    assert {row["run"] for row in result.table} == {"b4-s1", "b0.01-s0"}
    assert any(flag.startswith("b4-s0 is left out: ") for flag in result.flags)
    assert "beta 4 has one run" in result.missing["udr of b4-s1"]
    with pytest.raises(RunError, match="no model can be used. b4-s0 is left out"):
        zs.select_models(three[0], samples=50, scores=["mig"])


def test_the_table_is_printed_also_if_there_is_no_figure(zscope, trained_family, tmp_path):
    words = ("select", trained_family / "b0.01-s0", "--samples", 50, "--scores", "mig")
    code, out, err = zscope(*words, "--figure", "none.png")
    assert (code, out.split()[:2]) == (1, ["rank", "run"])
    assert "no rank correlation to draw" in err
    assert "1 model has both" in err
    code, out, err = zscope(*words, "--figure", "none.png", "--csv")
    assert (code, out.split(",")[:2]) == (1, ["rank", "run"])
    assert not (tmp_path / "none.png").exists()


def test_what_cannot_be_selected_is_refused(data, tmp_path):
    models = {"a": [aligned(0), aligned(1)]}
    for more, message in (
        ({"rank": "mgi"}, "no model has a value of 'mgi'"),
        ({"scores": ["mgi"]}, "no assay is called 'mgi'. Did you mean"),
        ({"scores": ["response"]}, "cannot be ranked by response.*Choose from .*mig"),
        ({"options": {"dci": {"flavour": "dlib"}}}, "dci has options, but is not measured"),
    ):
        with pytest.raises(ConfigError, match=message):
            zs.select_models(models, data, **{**FEW, **more})
    with pytest.raises(ConfigError, match="got no models"):
        zs.select_models({}, data)
    with pytest.raises(RunError, match="no run in"):
        zs.select_models(tmp_path)


def test_the_command_prints_a_table(zscope, trained_family):
    two = [trained_family / name for name in ("b0.01-s0", "b0.01-s1")]
    words = ("select", *two, "--samples", 100, "--scores", "mig,sap")
    code, out, err = zscope(*words)
    assert code == 0, err
    expected = ["rank", "run", "seed", "used", "udr", "distance-to-orthogonality"]
    assert out.split()[:6] == expected
    code, out, err = zscope(*words, "--csv", "--rank", "mig")
    assert code == 0, err
    header = out.splitlines()[0].split(",")
    column = header.index("mig")
    values = [float(line.split(",")[column]) for line in out.splitlines()[1:]]
    assert values == sorted(values, reverse=True)
    code, out, err = zscope(*words, "--json")
    assert (code, len(json.loads(out)["table"])) == (0, 2), err
    code, out, err = zscope("select", "nowhere")
    assert (code, "there is no folder nowhere" in err) == (1, True)

"""The studies of changed data: versions, published digits, and verdicts on made-up measurements."""

import numpy as np
import pytest

from zscope import data as datasets
from zscope.assays.alignment.dataset_alignment import dataset_alignment
from zscope.data.perturbed import change_size
from zscope.experiments import studies
from zscope.experiments.studies.grids.perturbed import FILES, make_perturbed, version_of
from zscope.experiments.studies.shared.perturbed import SCORES, published
from zscope.experiments.studies.study import Results
from zscope.report.studies import judge

SPRITES = (
    "sprites?resolution=16&antialias=true&shape=ellipse&scale=1,3,5&orientation=[0]"
    "&position_x=0..30:6&position_y=8..22:6"
)


def test_published_digits_are_those_of_the_tables():
    assert published("mig", "sprites")["beta-vae"]["changed"] == (0.07, 0.09)
    assert published("mig", "rooms")["gan"]["noise"] == (0.77, 0.13)
    assert published("sap", "rooms")["pcl"] == dict.fromkeys(
        ("original", "changed", "noise"), (0.07, 0.01)
    )
    assert [len(published(key, "rooms")) for key in SCORES] == [7, 5, 5, 5]


def test_controls_have_the_variance_of_the_change_and_the_factors_of_the_data(tmp_path):
    settings = {
        "data": SPRITES, "epsilon": 0.1, "latents": 3, "restarts": 2, "steps": 2, "rate": 1e-3,
        "batch": 32, "rounds": 2, "modifier_rate": 1e-3,
        "options": {"backbone": "mlp", "hidden": [8], "beta": 2.0},
    }  # fmt: skip
    make_perturbed(tmp_path, settings, None)
    name, _, _ = SPRITES.partition("?")
    versions = {version: datasets.load(tmp_path / file) for version, file in FILES.items()}
    original = datasets.load(
        name, resolution=16, antialias=True, shape="ellipse", scale="1,3,5", orientation=[0],
        position_x="0..30:6", position_y="8..22:6",
    )  # fmt: skip
    wanted = change_size(original, versions["changed"])
    assert wanted.largest <= 0.1
    for version in ("equal-noise", "untrained", "aligned"):
        size = change_size(original, versions[version])
        assert size.variance == pytest.approx(wanted.variance, rel=0.1)
        np.testing.assert_array_equal(versions[version].factors, original.factors)
    # A background that follows one factor is brighter for larger sprites only by that factor.
    level = versions["aligned"].images[:, 0, 0, 0]
    scale = original.factors[:, original.factor_names.index("scale")]
    assert all(len(np.unique(level[scale == value])) == 1 for value in np.unique(scale))
    before, after = (
        dataset_alignment(each.images, each.factors_with_kinds).distance
        for each in (original, versions["aligned"])
    )
    assert after < before + 0.1


def make_results(name, levels, **fields):
    """Measurements of every planned run: the score of a version is `levels[version]`."""
    study = studies.load(name)
    random = np.random.default_rng(0)
    runs, values = [], {}
    for number, (group, run) in enumerate(study.plan("small")):
        short = {key.removeprefix("options."): value for key, value in run.items()}
        row = {"run": f"run-{number}", "group": group, **short}
        runs.append(row)
        score = levels(row, version_of(row["data"])) + 0.02 * random.standard_normal()
        values[row["run"]] = {
            **dict.fromkeys(SCORES, score), "own_mig": score, "active": 3, "reconstruction": 50.0,
            "mig_of": {"scale": score, "wall_hue": score + 0.1},
        }  # fmt: skip
    return study, Results(name, "small", runs, {"measure_scores": values, **fields})


def verdicts(study, results):
    return {(claim.row, claim.name): claim for claim in judge(study, results)}


FALLEN = {"changed": 0.1, "turned": 0.1}


def fall(row, version):
    return 0.4 if row["model"] in ("pcl", "ae") else FALLEN.get(version, 0.4)


def test_a_fall_on_changed_data_alone_passes_every_control():
    claims = verdicts(*make_results("pca-perturbed-rooms", fall))
    for score in SCORES.values():
        for name in ("P2", "P3", "P3, ε", "P4", "P5", "P6", "P7", "P8"):
            assert claims[score.row, name].verdict == "holds", (score.row, name)
    assert claims["C-F4.9", "c1"].verdict == "holds"
    assert "0.60±0.31 (original) to 0.09±0.14 (changed)" in claims["C-T4.2", "P2"].published
    assert claims["C-T4.2", "P4"].ours
    assert claims["C-F4.3", "P0"].verdict_text == "undecided (both parts are undecided)"


def test_a_background_that_turns_nothing_and_does_the_same_is_no_evidence():
    claims = verdicts(
        *make_results("pca-perturbed", lambda row, v: 0.0 if v == "aligned" else fall(row, v))
    )
    assert claims["C-T4.2", "P2"].verdict == "holds"
    assert claims["C-T4.2", "P4"].verdict == "does not hold"
    assert "no evidence for turned directions" in claims["C-T4.2", "P4"].sentence


def test_pairs_with_unused_latents_are_left_out():
    study, results = make_results("pca-perturbed-rooms", fall)
    for row in results.rows("versions", model="beta-vae"):
        if version_of(row["data"]) == "changed" and row["seed"] < 24:
            results.values["measure_scores"][row["run"]]["active"] = 2
    claim = verdicts(study, results)["C-T4.2", "P3"]
    assert claim.verdict_text == "undecided (2 seeds; at least 4 are needed)"
    assert "4 of 6 pairs have a run with unused latents, and are left out" in claim.statistic


def test_a_score_that_could_not_fall_by_the_margin_is_not_called_unchanged():
    claims = verdicts(*make_results(
        "pca-perturbed-rooms", lambda row, v: 0.05 if row["model"] == "ae" else fall(row, v)
    ))  # fmt: skip
    pcl, ae = claims["C-T4.2", "P7"].parts
    assert pcl.verdict == "holds"
    assert ae.verdict_text == (
        "undecided (control failed; expected: the score on original data is above 0.1, so that it "
        "could fall by more)"
    )


def test_where_latents_are_unused_the_weaker_beta_is_judged_instead():
    study, results = make_results(
        "pca-perturbed", lambda row, v: 0.4 if row["group"] == "versions" else fall(row, v)
    )
    for row in results.rows("versions", model="beta-vae"):
        results.values["measure_scores"][row["run"]]["active"] = 2
    claims = verdicts(study, results)
    assert claims["C-T4.2", "P3"].verdict_text == "undecided (not measured)"
    for name in ("P2, weaker β", "P3, weaker β", "P3, ε, weaker β"):
        claim = claims["C-T4.2", name]
        assert (claim.verdict, claim.ours, claim.published) == ("holds", True, "not published")
    assert "(with β 0.5)" in claims["C-T4.2", "P3, weaker β"].sentence
    lines = [line for line in next(iter(study.tables(results))).cells if "β 0.5" in line[0]]
    assert [line[1] for line in lines] == ["original", "changed", "noise", "equal noise"]


def test_a_weaker_beta_that_falls_with_noise_as_well_is_no_evidence():
    claims = verdicts(*make_results(
        "pca-perturbed", lambda row, v: 0.4 if v == "original" else 0.1
    ))  # fmt: skip
    assert claims["C-T4.2", "P2, weaker β"].verdict == "holds"
    assert claims["C-T4.2", "P3, weaker β"].verdict == "undecided"


@pytest.mark.parametrize(("gap", "verdict"), [(-3.0, "holds"), (2.0, "does not hold")])
def test_the_game_is_judged_by_its_gap_and_by_the_same_game_without_a_change(gap, verdict):
    facts = {
        "game": {
            "gap": [4.0, gap], "gap_without_change": 3.0, "verdict": "", "worked": gap < 0,
            "mig": {}, "scores": [0.1], "active": [3], "rounds": 9, "flags": [],
            "intervals": {"gap": [gap, gap - 1, gap + 1],
                          "difference": [gap - 3, gap - 4, gap - 2]},
        },
        "alignment": {key: {"distance": d, "gap": 0.1, "chance": 0.98, "samples": 84, "checked": 0}
                      for key, d in {"original": 0.1, "changed": 0.4, "turned": 0.3}.items()},
        "noise_draws": [{"distance": 0.1 + 0.001 * k} for k in range(8)],
    }  # fmt: skip
    study, results = make_results("pca-perturbed-rooms", fall, describe_versions={"": facts})
    claims = verdicts(study, results)
    assert claims["C-F4.3", "P0"].verdict == verdict
    assert claims["C-F4.3", "P1"].verdict == "holds"
    assert [table.name for table in study.tables(results)][-2:] == ["versions", "game"]


def test_strengths_are_compared_with_the_original_at_strength_one():
    study, results = make_results("pca-perturbed-sweep", fall)
    claims = verdicts(study, results)
    whole = claims["C-F4.4", "c1"]
    assert whole.verdict == "holds"
    assert [part.name for part in whole.parts][:2] == ["β-VAE × 0.75", "β-VAE × 1"]
    assert len(whole.parts) == 5 + 3 * 3
    assert claims["C-F4.4", "c2"].verdict == "undecided"  # no run is over-pruned
    assert "0 of 30 runs are over-pruned" in claims["C-F4.4", "c2"].parts[0].reason


def test_recovery_with_over_pruning_is_seen_and_such_runs_are_left_out():
    study, results = make_results(
        "pca-perturbed-sweep",
        lambda row, v: 0.6 if v == "changed" and _strong(row) else fall(row, v),
    )
    for row in results.rows("sweep"):
        if version_of(row["data"]) == "changed" and _strong(row):
            results.values["measure_scores"][row["run"]]["active"] = 2
    claims = verdicts(study, results)
    assert claims["C-F4.5", "c2"].verdict == "holds"
    kept = claims["C-F4.5", "c1"]
    assert not [part.name for part in kept.parts if "× 2" in part.name]
    assert kept.verdict == "holds"
    assert "left out: β-VAE × 2" in kept.statistic


def test_a_model_that_falls_on_the_original_data_too_is_no_evidence():
    def equal(row, version):
        strong = _strong(row) and row["model"] == "beta-vae"
        return 0.05 if strong else fall(row, version)

    claims = verdicts(*make_results("pca-perturbed-sweep", equal))
    part = next(p for p in claims["C-F4.4", "c1"].parts if p.name == "β-VAE × 2")
    assert part.verdict == "undecided"
    assert "lower than on original data at the same strength" in part.reason


def _strong(row):
    return row.get("alpha") == 14.0 or (
        row["model"] != "factor-vae" and row.get("beta") == 2 * (32.0 if row["beta"] > 2 else 1.0)
    )

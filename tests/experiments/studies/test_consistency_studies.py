"""The studies of interventional consistency, judged on measurements whose verdicts are known."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import control_fails

from zscope.experiments.studies import (
    consistency,
    consistency_families,
    consistency_masks,
)
from zscope.experiments.studies.judging import FAILS, HOLDS, UNDECIDED, Claim, Interval
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.shared.consistency_scores import collapse_control
from zscope.experiments.studies.study import Results

SEEDS = range(20, 26)
STUDIES = [consistency, consistency_families, consistency_masks]
MORE = "no more units collapse in the {} than in the {}"


def results_of(models: dict[tuple[str, float | None], dict[str, float]], **more: Any) -> Results:
    """Runs of these models (name, weight) with these mean scores, which vary a little by seed."""
    runs, values = [], {}
    for (model, weight), scores in models.items():
        for seed in SEEDS:
            name = f"{model}-{weight}-{seed}"
            row = {"run": name, "group": "autoencoders", "model": model, "seed": seed, "latents": 6}
            runs.append(row | ({} if weight is None else {"consistency_weight": weight}))
            noise = 0.001 * (seed - 22)
            values[name] = {key: value + noise for key, value in scores.items()} | more
    return Results("consistency", "small", runs, {"measure_scores": values})


def scores(level: float, collapsed: float = 0.0) -> dict[str, float]:
    keys = ("invariance", "equivariance", "posterior", "hybrid", "uniform")
    trained = dict.fromkeys(keys, level)
    lower = {f"{kind} {key}": 0.1 for kind in ("untrained", "chance") for key in keys}
    return {**trained, **lower, "collapsed": collapsed, "error": 0.02}


def judged(study: Any, results: Results) -> dict[tuple[str, str], Claim]:
    return {(claim.row, claim.name): claim for claim in study.claims(results)}


@pytest.mark.parametrize("study", STUDIES)
def test_nothing_measured_leaves_every_claim_undecided(study):
    claims = judged(study, Results("any", "small", []))
    assert claims
    assert {claim.verdict for claim in claims.values()} == {UNDECIDED}
    assert all(table.cells for table in study.tables(Results("any", "small", [])))


@pytest.mark.parametrize(("penalised", "verdict"), [(0.9, HOLDS), (0.5, FAILS)])
def test_a_rise_of_self_consistency_is_judged_seed_by_seed(penalised, verdict):
    models = {("ae", None): scores(0.7), ("xae", None): scores(0.7)}
    models |= {("xcae-i", 1.0): scores(penalised), ("xcae-i", 4.0): scores(0.7)}
    claims = judged(consistency, results_of(models))
    assert claims["B-T2", "c1, weight 1"].verdict == verdict
    assert claims["B-F3", "c1, weight 1"].verdict == verdict
    # The other weight is judged by its own runs, and those of no run at all not.
    assert claims["B-T2", "c1, weight 4"].verdict != HOLDS
    assert claims["B-T2", "c3, weight 1"].reason == "not measured"


def test_a_rise_that_comes_with_collapse_does_not_hold():
    models = {("xae", None): scores(0.7), ("xcae-i", 1.0): scores(0.9, collapsed=1.0)}
    claim = judged(consistency, results_of(models))["B-T2", "c1, weight 1"]
    assert claim.interval.low > 0
    assert claim.verdict_text == control_fails(MORE.format("XCAE-I", "XAE"))


@pytest.mark.parametrize(
    ("study", "row", "pairs"),
    [
        (consistency, "B-T2", {("XAE", "AE"), ("XCAE-I", "XAE"), ("CAE-I", "AE")}),
        (consistency, "B-F3", {("XCAE-I", "XAE"), ("XCAE-E", "XAE"), ("CAE-I", "AE")}),
        (consistency_families, "B-F5b", {("XCAE-I", "XAE"), ("XCSAE-I", "XSAE")}),
        (consistency_families, "B-F28", {("AVAE", "VAE")}),
    ],
)
def test_the_control_of_collapse_names_the_models_whose_units_it_counts(study, row, pairs):
    names = ("ae", "xae", "cae-i", "xcae-i", "xsae-6", "xcsae-6-i", "vae", "avae")
    claims = study.claims(results_of({(name, None): scores(0.7) for name in names}))
    parts = [part for claim in claims if claim.row == row for part in claim.parts or [claim]]
    sentences = {part.controls[-1].sentence for part in parts if part.controls}
    assert sentences == {MORE.format(*pair) for pair in pairs}


@pytest.mark.parametrize(("seeds", "passed"), [(range(20, 26), True), (range(20, 24), False)])
def test_collapsed_units_are_counted_in_the_same_seeds(seeds, passed):
    def rows(seeds, collapsed):
        return Rows({"seed": seed, "collapsed": collapsed(seed)} for seed in seeds)

    # Only the last two seeds of the second model collapse, and often.
    treated = rows(seeds, lambda seed: 1)
    plain = rows(range(20, 26), lambda seed: 5 if seed > 23 else 0)
    control = collapse_control(treated, plain, ("XVAE", "VAE"))
    assert control.sentence == MORE.format("XVAE", "VAE")
    assert control.passed is passed
    assert control.measured == f"{len(seeds)} and {10 * passed} in the same {len(seeds)} seeds"
    assert collapse_control(treated, plain, ("XVAE", "VAE"), equal=True).passed is False
    assert collapse_control(treated, treated, ("XVAE", "XVAE"), equal=True).passed is True
    assert collapse_control(treated, rows([30], lambda seed: 0), ("XVAE", "VAE")).passed is None


def test_controls_say_which_score_of_which_model_they_are_about():
    claims = judged(consistency, results_of({("xae", None): scores(0.7)}))
    for key, words in (
        (("B-T2", "c1, weight 1"), "the self-consistency (hybrid) of the XCAE-I is above that of "),
        (("B-F3", "c1, weight 4"), "the invariance of the XCAE-I is above that of "),
    ):
        sentences = [control.sentence for control in claims[key].controls]
        assert sentences[:2] == [f"{words}the untrained model, if that has one",
                                 f"{words}responses of other codes"]  # fmt: skip


def test_a_rise_that_untrained_models_reach_does_not_hold():
    high = scores(0.9) | {"untrained hybrid": 0.95}
    models = {("xae", None): scores(0.7), ("xcae-i", 1.0): high}
    claim = judged(consistency, results_of(models))["B-T2", "c1, weight 1"]
    assert claim.verdict == UNDECIDED
    assert "untrained" in claim.reason


@pytest.mark.parametrize(("error", "verdict"), [(0.0205, HOLDS), (0.03, FAILS)])
def test_reconstructions_may_be_a_tenth_worse_and_no_more(error, verdict):
    models = {("ae", None): {}, ("xae", None): {}, ("cae-i", 1.0): {}, ("xcae-i", 1.0): {}}
    results = results_of(models)
    for name, values in results.values["measure_scores"].items():
        values["error"] = error if "cae" in name else 0.02
    assert judged(consistency, results)["B-S5", "c1, weight 1"].verdict == verdict


def test_the_weight_of_the_penalty_is_that_of_the_run_or_the_published_one():
    from zscope.experiments.studies.shared.consistency_scores import label

    assert label({"model": "xae"}) == "XAE"
    assert label({"model": "xcae-i", "consistency_weight": 1.0}) == "XCAE-I λ=1"
    assert label({"model": "xcae-i", "preset": "consistency-2021-s"}) == "XCAE-I λ=4"
    assert label({"model": "xcsae-6-i", "consistency_weight": 1.0}) == "XCSAE-I λ=1"


def masks(levels: dict[int, float], noise: float) -> Results:
    """Masks whose gates are at a level for each size of unit, and differ by seed."""
    runs, values = [], {}
    for size, level in levels.items():
        for seed in SEEDS:
            name = f"xae-{size}-{seed}"
            runs.append({"run": name, "group": "masks", "model": "xae", "seed": seed, "latents": 6,
                         "unit": size})  # fmt: skip
            shift = noise * (seed - 22.5)
            gates = np.triu(np.full((6, 6), level + shift), 1)
            values[name] = {"probabilities": gates.tolist(), "start": 0.73, "kept": 15,
                            "possible": 15, "needed": 3}  # fmt: skip
    return Results("consistency-masks", "small", runs, {"measure_masks": values})


@pytest.mark.parametrize(("levels", "noise", "sign"), [
    ({1: 0.9, 4: 0.2}, 0.01, -1),  # the size of units decides
    ({1: 0.5, 4: 0.5}, 0.1, 0),  # seeds decide, the size does not
])  # fmt: skip
def test_masks_are_compared_within_and_between_sizes_of_units(levels, noise, sign):
    claim = judged(consistency_masks, masks(levels, noise))["B-F30", "c1"]
    assert claim.interval is not None
    if sign:
        assert claim.interval.value == pytest.approx(-0.7, abs=0.05)
        # On data with a known structure blocks do not find it, so masks are no structure.
        assert claim.verdict == UNDECIDED
        assert "sparse dependence" in claim.reason
    else:
        assert abs(claim.interval.value) < 0.1
        assert claim.verdict != HOLDS


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Interval(0.9, 0.7, 1.0, 6), HOLDS),
        (Interval(0.3, -0.1, 0.7, 6), UNDECIDED),
        (Interval(0.0, -0.29, 0.29, 6), UNDECIDED),
    ],
)
def test_masks_are_structure_only_if_blocks_find_known_edges(monkeypatch, found, verdict):
    monkeypatch.setattr(consistency_masks, "EDGES_FOUND", found)
    claim = judged(consistency_masks, masks({1: 0.9, 4: 0.2}, 0.01))["B-F30", "c1"]
    assert claim.verdict == verdict
    assert claim.controls[-1].measured.endswith(str(found))


def test_known_edges_were_found_as_the_decision_says():
    (page,) = (Path(__file__).parents[3] / "docs" / "decisions").glob("0008-*.md")
    (line,) = (each for each in page.read_text().splitlines() if "| chosen | network |" in each)
    numbers = re.findall(r"-?\.\d+", line.split("|")[5].replace("−", "-"))
    found = consistency_masks.EDGES_FOUND
    assert list(map(float, numbers)) == [found.value, found.low, found.high]


@pytest.mark.parametrize(("closed", "verdict"), [(0.5, HOLDS), (0.6, UNDECIDED)])
def test_hybrids_of_causes_are_worse_only_if_closed_edges_make_them_equal(closed, verdict):
    confidence = {"noises": 0.9, "causes": 0.8}
    results = results_of({("xcae-i", 1.0): confidence})
    for number, values in enumerate(results.values["measure_scores"].values()):
        values |= {"closed noises": 0.5, "closed causes": closed, "causes": 0.8 + number / 1000}
    assert judged(consistency_masks, results)["B-F35", "c1, XCAE-I"].verdict == verdict


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_the_study_of_masks_trains_only_what_it_measures_or_needs(scale):
    models = {run["model"] for _, run in consistency_masks.STUDY.plan(scale)}
    assert models <= {"ae", "classifier", *consistency_masks.BLOCKS}
    more = {run["model"] for _, run in consistency_families.STUDY.plan(scale)}
    large = consistency_families.LARGE_SAE if scale == "paper" else ()
    missing = {"xcsae-6-e"} if scale == "small" else set()
    families = {model for each in consistency_families.FAMILIES.values() for model in each}
    assert more == {"classifier", "avae", *families, *large} - missing

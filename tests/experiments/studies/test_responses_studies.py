"""Studies of responses: the rules that choose and judge, where the answer is known."""

import numpy as np
import pytest

from zscope.errors import Undefined
from zscope.experiments.studies import responses_disentanglement as disentanglement
from zscope.experiments.studies import responses_maps as maps
from zscope.experiments.studies import responses_structure as structure
from zscope.experiments.studies.judging import FAILS, HOLDS
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.study import Results

SEEDS = (20, 21, 22, 23)


@pytest.mark.parametrize(
    ("diagonal", "expected"),
    [
        ([0.02, 0.05, 0.9, 1.0], 0.85 - 0.1),  # two classes
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], 0.0),  # even
        ([0.6, 0.7, 1.0], -0.3),  # one class
        ([0.0, 0.01, 0.3], -0.29),
    ],
)
def test_a_diagonal_is_categorical_if_its_largest_gap_contains_one_half(diagonal, expected):
    assert disentanglement.separation(diagonal) == pytest.approx(expected)


def test_a_factor_has_a_plane_only_if_two_causal_latents_share_it():
    rows = np.array([[5.0, 4.0, 0.5, 0.5], [9.0, 0.5, 0.3, 0.2]])
    best, pair, found = maps.choose_pair(rows, [0, 1, 2])
    assert (best, pair, found["qualifies"], found["factors"]) == (0, [0, 1], True, 1)
    # One latent holds nearly all of the second factor: its partner is anyone.
    best, _, found = maps.choose_pair(rows[1:], [0, 1, 2])
    assert not found["qualifies"]
    # Latent 1 is not causal: what it holds is no response.
    assert not maps.choose_pair(rows[:1], [0, 2, 3])[2]["qualifies"]
    with pytest.raises(Undefined, match="1 causal latents"):
        maps.choose_pair(rows, [0])


def row(seed, **values):
    return {"run": f"r{seed}", "group": "rooms", "seed": seed, "latents": 12, **values}


def test_scores_of_one_run_are_compared_and_not_means_over_different_runs():
    # CDS is undefined at β 8, where DCI is high: the runs that have both decide.
    rows = Rows([row(20, beta=1, cds=0.5, dci=0.4), row(20, beta=8, cds=None, dci=0.9)])
    assert disentanglement._same_run(rows, "cds", "dci") == {20: pytest.approx(0.1)}


def controls(**values):
    rows = Rows(row(seed, beta=1, **{k: v + seed / 1e4 for k, v in values.items()})
                for seed in SEEDS)  # fmt: skip
    return [control.passed for control in disentanglement._controls(rows, "cds", "CDS")]


def test_a_score_must_exceed_that_of_untrained_models_and_chance():
    assert controls(cds=0.5, untrained_cds=0.1, cds_chance=0.2) == [True, True]
    assert controls(cds=0.5, untrained_cds=0.6, cds_chance=0.2) == [False, True]
    assert controls(cds=0.5, untrained_cds=0.1, cds_chance=0.7) == [True, False]
    # Without two causal latents an untrained model has no score to pass on.
    assert controls(cds=0.5, cds_chance=0.1, untrained_causal=0) == [True, True]
    assert controls(cds=0.5, cds_chance=0.1, untrained_causal=5) == [None, True]


@pytest.mark.parametrize(("mean", "verdict"), [(2.0, HOLDS), (-0.5, FAILS)])
def test_a_score_that_falls_does_not_rise_faster(mean, verdict):
    """By sampled responses it falls steeply: a slower fall by means is no rise."""
    values, runs = {}, []
    for seed in SEEDS:
        for collapsed in (0, 4, 8):
            name = f"{seed}-{collapsed}"
            runs.append({"run": name, "group": "rooms", "seed": seed, "latents": 12, "beta": 1,
                         "data": "rooms"})  # fmt: skip
            values[name] = {"collapsed": collapsed, "mean": (mean + seed / 200) * collapsed,
                            "sampled": -3.0 * collapsed, "untrained": 9.0}  # fmt: skip
    measured = {"measure": values, "measure_identity": {"": {"score": 0.1, "error": 0.2}}}
    results = Results("responses-structure", "small", runs, measured)
    found = {(c.row, c.name): c for c in structure.claims(results)}["A-T3", "c1"]
    parts = {part.name: part.verdict for part in found.parts}
    assert parts == {"rises": verdict, "faster": HOLDS}
    assert found.verdict == verdict

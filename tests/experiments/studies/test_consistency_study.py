"""The study of consistency training: its claims can fail, and (slow) they hold."""

import json
from dataclasses import replace

import pytest
import torch

import zscope as zs
from zscope.experiments import studies
from zscope.experiments.studies import consistency as study
from zscope.experiments.studies.consistency import Scores

PLAIN = Scores(invariance=0.90, posterior=0.96, hybrid=0.75, uniform=0.66, error=0.03, collapsed=0)
BETTER = Scores(
    invariance=0.95, posterior=0.95, hybrid=0.88, uniform=0.80, error=0.031, collapsed=0
)
FOUND = {"ae": [PLAIN] * 2, "cae-i": [BETTER] * 2, "xae": [PLAIN] * 2, "xcae-i": [BETTER] * 2}


NAMES = [f"{letter}{number}" for letter in "KX" for number in range(1, 6)]


def holding(found):
    return {claim.name for claim in study.claims_of(found) if claim.holds}


def test_the_study_is_listed_and_says_what_it_is():
    assert studies.load("consistency") is study
    assert study.NAME == "consistency"
    assert study.SUMMARY.endswith(".")


def test_the_published_numbers_hold():
    assert holding(FOUND) == set(NAMES)


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"invariance": 0.905}, "1"),
        ({"hybrid": 0.75}, "2"),
        ({"uniform": 0.5}, "3"),
        ({"uniform": float("nan")}, "3"),
        ({"error": 0.034}, "4"),
        ({"posterior": 0.9}, "5"),
        ({"collapsed": 1}, "5"),
    ],
)
@pytest.mark.parametrize("name", ["cae-i", "xcae-i"])
def test_one_seed_of_one_model_is_enough_to_break_a_claim(change, broken, name):
    found = {**FOUND, name: [BETTER, replace(BETTER, **change)]}
    letter = "X" if name.startswith("x") else "K"
    assert holding(found) == set(NAMES) - {letter + broken}


def test_an_identity_is_consistent_and_loses_nothing():
    x = torch.randn(400, 6, generator=torch.Generator().manual_seed(0))
    found = study.scores(zs.wrap(lambda x: x, lambda z: z), zs.data.from_arrays(x.numpy()))
    for score in (found.invariance, found.posterior, found.hybrid, found.uniform):
        assert score == pytest.approx(1, abs=1e-6)
    assert (found.error, found.collapsed) == (0, 0)


def test_a_model_that_answers_nothing_has_collapsed_and_scores_nothing():
    x = torch.randn(400, 6, generator=torch.Generator().manual_seed(0))
    found = study.scores(zs.wrap(lambda x: x, lambda z: 0 * z), zs.data.from_arrays(x.numpy()))
    assert found.collapsed == 6
    assert (found.invariance, found.hybrid) == (0, 0)


def test_without_training_no_claim_of_a_rise_holds(tmp_path, monkeypatch):
    """The whole way through, on other digits."""
    digits = zs.data.load("digits").subset(range(600))
    monkeypatch.setattr(zs.data, "load", lambda name, **options: digits)
    monkeypatch.setitem(study.STEPS, "small", 1)
    monkeypatch.setattr(study, "SEEDS", (0,))
    said = []
    claims = study.run(tmp_path, progress=said.append)
    assert [claim.name for claim in claims] == NAMES
    assert not any(claim.holds for claim in claims if claim.name[1] in "123")
    assert len(said) == 4
    kept = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert [claim["holds"] for claim in kept] == [claim.holds for claim in claims]

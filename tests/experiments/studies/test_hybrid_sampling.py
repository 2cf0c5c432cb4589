"""The study of hybrid sampling: its distances are right, its claims can fail, and (slow)
they hold."""

import json
from dataclasses import replace

import pytest
import torch

import zscope as zs
from zscope.autoencoder import Posterior
from zscope.experiments import studies
from zscope.experiments.studies import hybrid_sampling as study
from zscope.experiments.studies.hybrid_sampling import Quality

GOOD = Quality(
    distance={"prior": 30.0, "hybrid": 14.0, "uniform": 60.0, "reconstructed": 2.0},
    precision={"prior": 0.85, "hybrid": 0.82},
    recall={"prior": 0.70, "hybrid": 0.74},
    extractor="last hidden layer of classifier",
)
NAMES = {"H1", "H2"}


def holding(*qualities, right=0.95):
    return {claim.name for claim in study.claims_of({"vae": [*qualities]}, right) if claim.holds}


def test_the_study_is_listed_and_says_what_it_is():
    assert studies.load("hybrid-sampling") is study
    assert study.NAME == "hybrid-sampling"
    assert study.SUMMARY.endswith(".")


def test_the_claims_hold_where_hybrids_are_nearer():
    assert holding(GOOD, GOOD) == NAMES
    first = study.claims_of({"vae": [GOOD]}, 0.95)[0]
    assert "hybrid 14.00, prior 30.00" in first.measured
    assert "last hidden layer of classifier" in first.measured  # never without its extractor


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"distance": {**GOOD.distance, "hybrid": 32.0}}, "H1"),
        ({"distance": {**GOOD.distance, "reconstructed": 15.0}}, "H2"),
        ({"distance": {**GOOD.distance, "reconstructed": 40.0}}, "H2"),
    ],
)
def test_one_model_is_enough_to_break_a_claim(change, broken):
    assert holding(GOOD, replace(GOOD, **change)) == NAMES - {broken}


def test_a_little_worse_is_no_worse_and_a_blind_classifier_tells_nothing():
    near = replace(GOOD, distance={**GOOD.distance, "hybrid": 31.0})
    assert holding(near) == NAMES
    assert holding(GOOD, right=0.5) == NAMES - {"H1"}


def test_distances_of_gaussians_are_those_of_the_closed_form():
    """Codes N(3, 1) of each latent: hybrids keep the marginals, the prior is 3 away in each."""
    generator = torch.Generator().manual_seed(0)
    data = zs.data.from_arrays((3 + torch.randn(4000, 2, generator=generator)).numpy())
    identity = zs.wrap(
        lambda x: Posterior(x, torch.full_like(x, 1e-6)), lambda z: z, prior="normal"
    )
    found = study.quality(identity, zs.record(identity, data, samples=4000), data, identity)
    assert found.distance["prior"] == pytest.approx(2 * 3**2, rel=0.05)
    assert found.distance["hybrid"] < 0.05
    assert found.distance["reconstructed"] < 1e-6
    assert found.distance["uniform"] > 1
    assert found.recall["hybrid"] > found.recall["prior"] + 0.3


def test_codes_that_depend_on_each_other_make_bad_hybrids():
    """x twice, in two latents: hybrids lose the correlation, prior draws had none to lose."""
    x = torch.randn(4000, 1, generator=torch.Generator().manual_seed(0)).expand(-1, 2)
    data = zs.data.from_arrays(x.numpy())
    identity = zs.wrap(
        lambda x: Posterior(x, torch.full_like(x, 1e-6)), lambda z: z, prior="normal"
    )
    found = study.quality(identity, zs.record(identity, data, samples=4000), data, identity)
    # Between covariances [[1, 1], [1, 1]] and I: 2 + 2 - 2 tr([[1, 1], [1, 1]]^(1/2)) = 4 - 2√2.
    for kind in ("hybrid", "prior"):
        assert found.distance[kind] == pytest.approx(4 - 2 * 2**0.5, rel=0.1)


def test_without_training_the_claims_do_not_all_hold(tmp_path, monkeypatch):
    """The whole way through, on other digits, with a classifier that has learned nothing."""
    digits = zs.data.load("digits").subset(range(600))
    monkeypatch.setattr(zs.data, "load", lambda name, **options: digits)
    monkeypatch.setitem(study.STEPS, "small", 1)
    monkeypatch.setattr(study, "SEEDS", (0,))
    plain = study.classifier
    monkeypatch.setattr(study, "classifier", lambda data: plain(data, steps=1))
    said = []
    claims = study.run(tmp_path, progress=said.append)
    assert [claim.name for claim in claims] == ["H1", "H2"]
    assert not claims[0].holds
    assert len(said) == 4
    kept = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert [claim["holds"] for claim in kept] == [claim.holds for claim in claims]

"""The study of the polarised regime: its data, its claims, and that they can fail."""

import json

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.errors import ConfigError
from zscope.experiments import studies
from zscope.experiments.studies import Claim
from zscope.experiments.studies import polarised_regime as study


def test_the_study_is_listed_and_says_what_it_is():
    assert "polarised-regime" in studies.names()
    module = studies.load("polarised-regime")
    assert module.NAME == "polarised-regime"
    assert len(module.SUMMARY) > 20
    with pytest.raises(ConfigError, match="Did you mean polarised-regime"):
        studies.load("polarized-regime")


def test_a_claim_reads_as_a_line_and_is_kept(tmp_path):
    claim = Claim("C1", "two and two are four", "4", "5", False)
    assert "DOES NOT HOLD: two and two are four" in str(claim)
    studies.save_claims(tmp_path, [claim])
    kept = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert kept == [
        {"name": "C1", "claim": "two and two are four", "published": "4", "measured": "5",
         "holds": False}
    ]  # fmt: skip
    studies.save_claims(None, [claim])


def test_the_sprites_are_where_their_factors_say():
    train, held_out = study.lattice_sprites()
    assert (len(train), len(held_out), train.shape) == (8000, 4000, (1, 16, 16))
    assert train.factor_sizes == (2, 4, 8, 8)
    grey = train.batch(slice(0, 500))[:, 0].numpy()
    factors = train.factors[:500]
    place = np.arange(16) + 0.5
    x = (grey.sum(1) * place).sum(1) / grey.sum((1, 2))
    y = (grey.sum(2) * place).sum(1) / grey.sum((1, 2))
    np.testing.assert_allclose(x, 4.5 + factors[:, 2], atol=0.05)
    np.testing.assert_allclose(y, 4.5 + factors[:, 3], atol=0.05)
    area = grey.sum((1, 2))
    assert all(np.diff([area[factors[:, 1] == k].mean() for k in range(4)]) > 0)


def test_the_continuous_sprites_are_stretched_as_asked():
    one = np.ones(1)
    wide, round_ = (
        study.draw_sprites(one, 3 * one, 8 * one, 8 * one, aspect)[0, 0].astype(float)
        for aspect in (1.5, 1.0)
    )
    assert (wide.sum(0) > 0).sum() > (wide.sum(1) > 0).sum()
    assert wide.sum() == pytest.approx(round_.sum(), rel=0.05)


def test_the_expected_loss_is_the_mean_of_the_sampled_one():
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = zs.models.build(
        "beta-vae", shape=(3,), latents=2, beta=2.0, backbone="linear", likelihood="mse"
    ).double()
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        many = x.repeat(10, 1)
        drawn = torch.stack([model.losses(many, generator).total for _ in range(200)])
        expected = study.expected_loss(model, x, 2.0).item()
    error = drawn.std().item() / len(drawn) ** 0.5
    assert drawn.mean().item() == pytest.approx(expected, abs=4 * error)
    assert error < 0.02


@pytest.mark.slow
def test_linear_models_reach_their_closed_form_to_three_decimals():
    (claim,) = study.linear(lambda line: None)
    assert claim.holds, str(claim)
    assert "β=8: 0.4" in claim.measured


@pytest.mark.slow
def test_without_training_most_claims_do_not_hold_and_the_study_says_so(tmp_path, monkeypatch):
    """The whole way through, and the proof that the claims can fail."""
    really = study.train_models
    monkeypatch.setattr(
        study, "train_models", lambda data, steps, **model: really(data, 2, **model)
    )
    monkeypatch.setattr(study, "linear", lambda progress: [Claim("C13", "", "", "", True)])
    said = []
    claims = study.run(tmp_path, progress=said.append)
    assert [claim.name for claim in claims] == [f"C{k}" for k in range(1, 14)]
    broken = {claim.name for claim in claims if not claim.holds}
    assert {"C3", "C6", "C7", "C8", "C9"} <= broken
    assert len(json.loads((tmp_path / "claims.json").read_text())["claims"]) == 13
    assert any("FONDUE" in line for line in said)

"""DIP-VAE: penalties that are zero exactly when the moments are right."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds import seeded

import zscope as zs
from zscope.autoencoder import Posterior
from zscope.models.dip_vae import aggregate_covariance, covariance, covariance_penalty


def white(count, latents, seed=0):
    """Rows with mean 0 and covariance I, exactly."""
    rows = torch.randn(count, latents, generator=seeded(seed), dtype=torch.float64)
    rows = rows - rows.mean(0)
    return rows @ torch.linalg.inv(torch.linalg.cholesky(rows.T @ rows / count)).T


@given(seed=st.integers(0, 1000))
def test_the_covariance_is_that_of_numpy_divided_by_the_count(seed):
    codes = torch.randn(9, 3, generator=seeded(seed), dtype=torch.float64)
    assert np.allclose(covariance(codes), np.cov(codes.numpy(), rowvar=False, bias=True))


def test_the_penalty_is_zero_exactly_when_the_moments_are_right():
    mean = white(50, 3)
    assert covariance_penalty(covariance(mean), 7.0, 3.0).item() == pytest.approx(0, abs=1e-20)
    # DIP-II: the spread of the posterior counts as well.
    spread = torch.tensor([0.9, 0.5, 0.1]).double()
    inside = Posterior(mean * (1 - spread).sqrt(), spread.sqrt().expand(50, 3))
    found = covariance_penalty(aggregate_covariance(inside), 7.0, 3.0)
    assert found.item() == pytest.approx(0, abs=1e-20)
    assert covariance_penalty(covariance(inside.mean), 7.0, 3.0).item() > 1
    assert covariance_penalty(aggregate_covariance(Posterior(mean, inside.std)), 7.0, 3.0) > 1


def test_the_penalty_by_hand():
    spread = torch.tensor([[1.5, 0.2], [0.2, 0.9]]).double()
    # off-diagonal 2 · .2² = .08, diagonal .5² + .1² = .26
    assert covariance_penalty(spread, 10.0, 0.0).item() == pytest.approx(0.8)
    assert covariance_penalty(spread, 0.0, 100.0).item() == pytest.approx(26)
    assert covariance_penalty(spread, 10.0, 100.0).item() == pytest.approx(26.8)


def test_passive_latents_are_right_for_the_second_kind_and_wrong_for_the_first():
    """At the optimum of a collapsed VAE, mean 0 and variance 1 for everything, the second
    penalty is 0 (other programs add a number to the whole covariance there) and the first
    is λ_d for each latent."""
    collapsed = Posterior(torch.zeros(32, 4).double(), torch.ones(32, 4).double())
    assert covariance_penalty(aggregate_covariance(collapsed), 10.0, 10.0).item() == 0
    assert covariance_penalty(covariance(collapsed.mean), 10.0, 100.0).item() == 400


@pytest.mark.parametrize(("name", "kind"), [("dip-vae-i", covariance), ("dip-vae-ii", None)])
def test_the_losses_are_those_of_a_vae_and_the_penalty(name, kind):
    x = torch.rand(8, 5, generator=seeded(0))
    model = zs.models.build(name, shape=(5,), latents=3, offdiagonal=2, diagonal=5)
    vae = zs.models.build("vae", shape=(5,), latents=3)
    losses, plain = model.losses(x, seeded(1)), vae.losses(x, seeded(1))
    posterior = model.encode(x)
    spread = covariance(posterior.mean) if kind else aggregate_covariance(posterior)
    penalty = covariance_penalty(spread, 2, 5).item()
    assert losses.terms["penalty"].item() == pytest.approx(penalty, rel=1e-5)
    assert losses.total.item() == pytest.approx(plain.total.item() + penalty, rel=1e-5)


def test_the_published_ratio_of_the_weights_is_the_default():
    first, second = (zs.models.entry(f"dip-vae-{n}").options for n in ("i", "ii"))
    assert first["diagonal"].default == 10 * first["offdiagonal"].default
    assert second["diagonal"].default == second["offdiagonal"].default


@pytest.mark.parametrize("name", ["dip-vae-i", "dip-vae-ii"])
def test_training_brings_the_moments_to_the_identity(name):
    """Strongly correlated rows: the penalty alone, descended, ends at 0."""
    generator = seeded(0)
    rows = torch.randn(200, 2, generator=generator) @ torch.tensor([[1.0, 0.9], [0.0, 0.4]])
    model = zs.models.build(name, shape=(2,), latents=2, backbone="linear")
    optimiser = torch.optim.LBFGS(
        model.encoder.parameters(), max_iter=100, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        penalty = model.losses(rows, generator).terms["penalty"]
        penalty.backward()
        return penalty

    assert closure().item() > 1
    optimiser.step(closure)
    assert closure().item() < 1e-6
    posterior = model.encode(rows)
    spread = posterior.mean.T.cov(correction=0)
    if name == "dip-vae-ii":
        spread = spread + posterior.variance.mean(0).diag()
    assert torch.allclose(spread, torch.eye(2), atol=1e-3)

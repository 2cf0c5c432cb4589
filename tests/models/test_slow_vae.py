"""SlowVAE: the divergence from a Laplace density, and what a pair loses."""

import math

import pytest
import torch
from scipy import integrate, optimize, stats
from worlds import seeded

import zscope as zs
from zscope.autoencoder import Posterior
from zscope.errors import InterfaceError
from zscope.models.slow_vae import kl_to_laplace


def divergence(mean, std, centre, rate):
    posterior = Posterior(torch.tensor([[mean]]).double(), torch.tensor([[std]]).double())
    return kl_to_laplace(posterior, torch.tensor([[centre]]).double(), rate).item()


@pytest.mark.parametrize("mean", [0.0, 0.3, -2.0])
@pytest.mark.parametrize("std", [0.1, 1.0])
@pytest.mark.parametrize("rate", [1.0, 6.0])
def test_the_divergence_is_the_integral(mean, std, rate):
    normal, laplace = stats.norm(mean, std), stats.laplace(0.5, 1 / rate)

    def integrand(z):
        return normal.pdf(z) * (normal.logpdf(z) - laplace.logpdf(z))

    low, high = mean - 9 * std, mean + 9 * std
    expected, _ = integrate.quad(integrand, low, high, points=[0.5] if low < 0.5 < high else None)
    assert divergence(mean, std, 0.5, rate) == pytest.approx(expected, abs=1e-7)


def test_the_best_spread_around_the_partner_is_known():
    """At distance 0 the derivative r sqrt(2/π) - 1/σ vanishes at σ = sqrt(π/2) / r."""
    found = optimize.minimize_scalar(lambda s: divergence(0.0, s, 0.0, 6.0), bounds=(0.01, 1))
    assert found.x == pytest.approx(math.sqrt(math.pi / 2) / 6, abs=1e-5)
    assert divergence(0.0, found.x, 0.0, 6.0) > 0


def test_it_grows_with_the_distance_at_the_rate():
    near, far = divergence(0.0, 0.01, 1.0, 6.0), divergence(0.0, 0.01, 2.0, 6.0)
    assert far - near == pytest.approx(6, rel=1e-6)


def test_the_loss_of_a_pair_written_out():
    model = zs.models.build(
        "slow-vae", shape=(5,), latents=3, beta=2, slowness=7, laplace_rate=4
    ).double()
    x, y = torch.rand(2, 6, 5, generator=seeded(0), dtype=torch.float64)
    losses = model.losses(x, seeded(1), partner=y)
    first, second = model.encode(x), model.encode(y)
    noise = torch.randn(12, 3, generator=seeded(1), dtype=torch.float64)
    reconstruction = sum(
        model.likelihood.nll(model.output(q.mean + q.std * e), target).mean()
        for q, e, target in ((first, noise[:6], x), (second, noise[6:], y))
    )
    prior = (first.kl().sum(1).mean() + second.kl().sum(1).mean()) / 2
    change = (
        kl_to_laplace(first, second.mean, 4.0).mean()
        + kl_to_laplace(second, first.mean, 4.0).mean()
    )
    assert losses.terms["reconstruction"].item() == pytest.approx(reconstruction.item())
    assert losses.terms["divergence"].item() == pytest.approx(prior.item())
    assert losses.terms["change"].item() == pytest.approx(change.item())
    expected = reconstruction + 2 * prior + 7 * change
    assert losses.total.item() == pytest.approx(expected.item())
    swapped = model.losses(y, None, partner=x)
    assert swapped.terms["change"].item() == pytest.approx(change.item())


def test_a_latent_that_moves_costs_more_than_one_that_stays():
    model = zs.models.build("slow-vae", shape=(5,), latents=3)
    x, y = torch.rand(2, 6, 5, generator=seeded(0))
    still = model.losses(x, seeded(1), partner=x).terms["change"]
    assert still < model.losses(x, seeded(1), partner=y).terms["change"]


def test_without_partners_it_says_what_is_missing():
    model = zs.models.build("slow-vae", shape=(5,), latents=3)
    with pytest.raises(InterfaceError, match="slow-vae: the loss is defined for pairs.*partner="):
        model.losses(torch.rand(4, 5, generator=seeded(0)))

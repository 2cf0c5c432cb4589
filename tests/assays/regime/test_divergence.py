"""Divergence of each latent from its prior."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from zscope.assays.regime.divergence import gaussian_kl, latent_divergence
from zscope.assays.regime.rate_distortion import log_density_ratios
from zscope.autoencoder import Posterior
from zscope.errors import Undefined


def test_known_values():
    two = gaussian_kl(torch.tensor([[2.0, -1.0]]), torch.zeros(1, 2))
    assert two.sum().item() == pytest.approx(2.5)
    half = gaussian_kl(torch.zeros(1, 1), torch.tensor([[0.5]]).log())
    assert half.item() == pytest.approx(0.0965736, abs=1e-6)
    other = gaussian_kl(
        torch.ones(1, 1),
        torch.tensor([[2.0]]).log(),
        torch.zeros(1, 1),
        torch.tensor([[4.0]]).log(),
    )
    assert other.item() == pytest.approx(0.2215736, abs=1e-6)


@given(seed=st.integers(0, 10_000))
def test_agrees_with_torch_distributions(seed):
    draw = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    m0, l0, m1, l1 = draw
    expected = kl_divergence(Normal(m0, (l0 / 2).exp()), Normal(m1, (l1 / 2).exp()))
    torch.testing.assert_close(gaussian_kl(m0, l0, m1, l1), expected)


def test_shift_and_scale_of_both_change_nothing_but_of_one_do():
    m, log_v, log_9 = torch.tensor([[0.3]]), torch.tensor([[-1.0]]), torch.tensor([[9.0]]).log()
    plain = gaussian_kl(m, log_v)
    moved = gaussian_kl(3 * m + 5, log_v + log_9, torch.tensor([[5.0]]), log_9)
    torch.testing.assert_close(moved, plain, rtol=1e-6, atol=1e-6)
    assert gaussian_kl(m + 1, log_v).item() != pytest.approx(plain.item(), abs=0.1)


def test_tiny_differences_from_the_prior_are_not_lost_to_rounding():
    # KL ~ l^2 / 4 for a log-variance l near 0.
    kl = gaussian_kl(torch.zeros(1, 1), torch.tensor([[1e-6]], dtype=torch.float64))
    assert kl.item() == pytest.approx(2.5e-13, rel=1e-3)


def test_the_rate_is_the_sum_over_latents_of_the_mean():
    posterior = Posterior(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.ones(2, 2))
    result = latent_divergence(posterior)
    assert result.per_latent.tolist() == [1.0, 0.0]
    assert result.score == result.rate == 1.0
    assert result.to_dict()["samples"] == 2


def test_shapes_that_do_not_fit_and_deterministic_encoders_are_refused():
    with pytest.raises(Undefined, match="must agree"):
        gaussian_kl(torch.zeros(3, 2), torch.zeros(3, 1))
    with pytest.raises(Undefined, match="deterministic"):
        latent_divergence(Posterior(torch.zeros(3, 2)))


@pytest.mark.parametrize(("scale", "std"), [(0.01, 1.0), (1.0, 0.3), (5.0, 2e-3), (100.0, 1e-6)])
def test_log_density_ratios_equal_those_from_differences(scale, std):
    """Also for sharp posteriors, whose squares cancel when they are multiplied out."""
    source = torch.Generator().manual_seed(0)
    mean = 3 + scale * torch.randn(60, 4, generator=source, dtype=torch.float64)
    mean[1::2] = mean[::2] + std  # neighbours that overlap, so that more than one term counts
    spread = std * (0.5 + torch.rand(60, 4, generator=source, dtype=torch.float64))
    posterior = Posterior(mean, spread)
    z = posterior.sample(torch.Generator().manual_seed(1))
    logs = Normal(mean, spread).log_prob(z[:, None]).sum(2)
    expected = logs.diagonal() - torch.logsumexp(logs, 1) + math.log(60)
    ratios = log_density_ratios(posterior, torch.Generator().manual_seed(1))
    torch.testing.assert_close(ratios, expected, rtol=0, atol=1e-9)

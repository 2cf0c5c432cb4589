"""Rate and distortion, polarisation, tracking, the probe, and the decoder's Jacobian."""

import math

import pytest
import torch
from torch import nn

import zscope as zs
from zscope.assays.regime.approximation import polarisation, settled_fraction
from zscope.assays.regime.predicted_variance import predicted_variance
from zscope.assays.regime.probe import type_probe
from zscope.assays.regime.rate_distortion import (
    carried_information,
    negative_log_likelihood,
    rate_distortion,
)
from zscope.assays.regime.tracking import correlation_tracking
from zscope.autoencoder import Posterior
from zscope.errors import Undefined
from zscope.wrapping import wrap


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Rate and distortion


def test_rate_and_distortion_of_a_fixed_model():
    half = wrap(
        lambda x: (torch.full((len(x), 2), 2.0), torch.zeros(len(x), 2)),
        lambda z: torch.full((len(z), 3), 0.5),
    )
    result = rate_distortion(half, torch.ones(10, 3))
    assert result.distortion == pytest.approx(3 * math.log(2))
    assert result.rate == pytest.approx(4.0)
    assert result.elbo == pytest.approx(-4 - 3 * math.log(2))
    assert result.information == pytest.approx(0, abs=1e-9)  # all posteriors are the same
    assert result.likelihood == "bernoulli"
    assert rate_distortion(half, torch.ones(10, 3), samples=4).samples == 4
    gaussian = rate_distortion(half, torch.full((10, 3), 2.5))
    assert (gaussian.likelihood, gaussian.distortion) == ("gaussian", pytest.approx(12.0))


def test_the_rate_bounds_the_information_and_samples_far_apart_carry_all_of_it():
    mean = 100.0 * torch.arange(32.0)[:, None]
    apart = Posterior(mean, torch.ones(32, 1))
    assert carried_information(apart) == pytest.approx(math.log(32))
    posterior = Posterior(1.5 * normal(2000, 2, seed=9), 0.3 * torch.ones(2000, 2).double())
    assert 0 < carried_information(posterior) < posterior.kl().sum(1).mean().item()
    # Gaussian channel: I = 1/2 log(1 + 2.25 / 0.09) for each latent.
    assert carried_information(posterior) == pytest.approx(math.log(1 + 2.25 / 0.09), rel=0.02)


def test_bernoulli_distortion_agrees_with_torch():
    x, logits = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)), normal(4, 6)
    expected = nn.functional.binary_cross_entropy_with_logits(
        logits, x.double(), reduction="none"
    ).sum(1)
    ours = negative_log_likelihood(logits.sigmoid(), x, "bernoulli")
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    ("likelihood", "options"), [("bernoulli", {}), ("gaussian", {"gamma": 0.2})]
)
def test_a_model_of_zscope_pays_what_its_own_loss_says(likelihood, options):
    model = zs.models.build(
        "vae", shape=(5,), latents=2, hidden=(8,), likelihood=likelihood, **options
    )
    x = torch.rand(200, 5, generator=torch.Generator().manual_seed(0))
    result = rate_distortion(model, x, generator=torch.Generator().manual_seed(1), batch=200)
    with torch.no_grad():
        losses = model.losses(x, torch.Generator().manual_seed(1))
    assert result.likelihood.lower() == likelihood
    assert result.distortion == pytest.approx(losses.terms["reconstruction"].item(), rel=1e-5)
    assert -result.elbo == pytest.approx(losses.total.item(), rel=1e-5)


def test_logits_are_refused_as_probabilities():
    logits = wrap(lambda x: (x, x), lambda z: 5 * z)
    with pytest.raises(Undefined, match=r"not probabilities.*logits"):
        rate_distortion(logits, torch.ones(3, 2), likelihood="bernoulli")


# Polarisation


def test_the_gap_is_half_the_active_variance_and_the_passive_divergence():
    mean = torch.stack([normal(400), 0.1 * normal(400, seed=1)], 1)
    variance = torch.tensor([[0.04, 0.9]], dtype=torch.float64).expand(400, 2)
    posterior = Posterior(mean, variance.sqrt())
    result = polarisation(posterior)
    assert (result.active, result.passive) == ([0], [1])
    passive_kl = posterior.kl()[:, 1].mean().item()
    expected = (0.5 * 0.04 + passive_kl) / posterior.kl().sum(1).mean().item()
    assert result.gap == pytest.approx(expected)
    assert result.over_pruned(2)
    assert not result.over_pruned(1)
    assert polarisation(posterior, rule="variance").active == [0]


def test_the_two_rules_differ_where_means_move_little():
    posterior = Posterior(0.2 * normal(100, 1), torch.full((100, 1), 0.5).double())
    assert polarisation(posterior).active == []
    assert polarisation(posterior, rule="variance").active == [0]


def test_a_collapsed_model_has_no_relative_gap():
    with pytest.raises(Undefined, match="collapsed"):
        polarisation(Posterior(torch.zeros(5, 2), torch.ones(5, 2)))


def test_the_settled_fraction_counts_from_the_last_crossing():
    assert settled_fraction([0.5, 0.02, 0.04, 0.01, 0.01]) == pytest.approx(0.4)
    assert settled_fraction([0.01, 0.02]) == 1
    assert settled_fraction([0.01, 0.03]) == 0
    with pytest.raises(Undefined, match="no gaps"):
        settled_fraction([])


# Tracking


def test_counts_are_of_snapshots_with_some_correlation_over_the_threshold():
    a, b, c = normal(500), normal(500, seed=1), normal(500, seed=2)
    apart, tied = torch.stack([a, b, c], 1), torch.stack([a, b + a, c], 1)
    still = torch.stack([a, b + a, torch.ones(500)], 1)
    result = correlation_tracking([apart, tied, still])
    assert result.counts == [2, 2, 0]
    assert result.series(0, 1)[1] == pytest.approx(2**-0.5, abs=0.05)
    assert result.series(0, 2)[2] == 0  # a latent that stands still correlates with nothing
    assert result.fluctuation[0] > result.fluctuation[2]
    scaled = correlation_tracking([apart * 7 + 1, tied * 0.01, still])
    assert scaled.counts == result.counts


def test_snapshots_of_different_models_are_refused():
    with pytest.raises(Undefined, match="3 latents, the first 2"):
        correlation_tracking([normal(9, 2), normal(9, 3)])
    with pytest.raises(Undefined, match="no snapshots"):
        correlation_tracking([])


# Probe


def test_passive_means_inform_though_passive_samples_do_not():
    n = 1200
    label = torch.arange(n) % 3
    centre = torch.tensor([-2.0, 0.0, 2.0], dtype=torch.float64)[label]
    mean = torch.stack([centre + 0.1 * normal(n), 1e-3 * (centre + 0.3 * normal(n, seed=3))], 1)
    std = torch.tensor([[0.1, 1.0]], dtype=torch.float64).expand(n, 2)
    factors = torch.stack([label.double(), normal(n, seed=4)], 1)
    result = type_probe(Posterior(mean, std), factors, penalties=3, folds=3)
    assert result.probed == [0]  # the continuous factor has no classes
    assert result.chance == pytest.approx(1 / 3)
    assert result.accuracy["mean"]["active"] > 0.97
    assert result.accuracy["sampled"]["active"] > 0.97
    assert result.accuracy["mean"]["passive"] > 0.9
    assert result.accuracy["sampled"]["passive"] == pytest.approx(1 / 3, abs=0.08)
    assert (result.train, result.test) == (800, 400)


def test_subsets_of_the_same_latents_have_the_same_accuracy():
    """Without mixed latents, "active" and "active+mixed" are the same; noise leaves no doubt."""
    label = torch.arange(300) % 3
    mean = torch.stack([label + 2 * normal(300), 1e-3 * normal(300, seed=1)], 1)
    std = torch.tensor([[0.1, 1.0]], dtype=torch.float64).expand(300, 2)
    for row in type_probe(Posterior(mean, std), label[:, None]).accuracy.values():
        assert row["active"] == row["active+mixed"]
        assert row["full"] == row["active+passive"]


def test_factors_that_do_not_vary_are_refused():
    posterior = Posterior(normal(30, 2), torch.ones(30, 2).double())
    with pytest.raises(Undefined, match=r"1 factors have \[1\] values.*do not vary"):
        type_probe(posterior, torch.zeros(30, 1))
    with pytest.raises(Undefined, match="30 posteriors but 29"):
        type_probe(posterior, torch.zeros(29, 1))


# Jacobian


def linear_decoder(W: torch.Tensor) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, W.shape[1], W.shape[0], dtype=W.dtype)
    layer.weight.data, layer.bias.data = W.clone(), torch.ones(len(W), dtype=W.dtype)
    return layer


def test_the_variance_of_a_linear_decoder_is_the_closed_form():
    W = normal(6, 3)
    model = wrap(lambda x: x[:, :3], linear_decoder(W))
    codes, gamma = normal(5, 3, seed=2), 0.7
    expected = torch.linalg.inv(torch.eye(3) + W.T @ W / gamma).diagonal().expand(5, 3)
    result = predicted_variance(model, codes, gamma=gamma)
    torch.testing.assert_close(result.variance, expected)
    diagonal = predicted_variance(model, codes, gamma=gamma, diagonal=True)
    torch.testing.assert_close(
        diagonal.variance, (1 / (1 + W.square().sum(0) / gamma)).expand(5, 3)
    )
    assert (diagonal.variance < result.variance).all()


def test_a_latent_the_decoder_ignores_keeps_the_prior():
    W = normal(4, 2)
    W[:, 1] = 0
    model = wrap(lambda x: x[:, :2], nn.Sequential(linear_decoder(W), nn.Tanh()))
    variance = predicted_variance(model, normal(7, 2)).variance
    torch.testing.assert_close(variance[:, 1], torch.ones(7).double())
    assert (variance[:, 0] < 1).all()
    with pytest.raises(Undefined, match="gamma=0"):
        predicted_variance(model, normal(1, 2), gamma=0.0)

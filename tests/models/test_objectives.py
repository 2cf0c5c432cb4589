"""Likelihoods and divergences at points where the truth is known."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributions

from zscope.autoencoder import Losses, Posterior
from zscope.errors import ConfigError, DataError, Undefined
from zscope.models.objectives import (
    LIKELIHOODS,
    Bernoulli,
    Gaussian,
    Likelihood,
    MeanSquare,
    bernoulli_nll,
    check_observations,
    gaussian_nll,
    gaussian_posterior,
    kl_to_standard_normal,
    squared_error,
)

seeds = st.integers(0, 10_000)


def drawn(seed, *shape, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def pictures(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The divergence.


@pytest.mark.parametrize(
    ("mean", "variance", "expected"),
    [((2.0, -1.0), (1.0, 1.0), 2.5), ((0.0,), (0.5,), 0.0965736), ((0.0, 0.0), (1.0, 1.0), 0.0)],
)
def test_divergence_at_known_points(mean, variance, expected):
    std = torch.tensor([variance]).sqrt()
    divergence = kl_to_standard_normal(Posterior(torch.tensor([mean]), std))
    assert divergence.tolist() == pytest.approx([expected], abs=1e-6)


@given(seed=seeds)
def test_divergence_agrees_with_torch_distributions(seed):
    mean, std = drawn(seed, 5, 3), drawn(seed + 1, 5, 3).exp()
    expected = distributions.kl_divergence(
        distributions.Normal(mean, std), distributions.Normal(0.0, 1.0)
    ).sum(1)
    assert torch.allclose(kl_to_standard_normal(Posterior(mean, std)), expected)


def test_divergence_of_a_deterministic_encoder_is_refused():
    with pytest.raises(Undefined, match="deterministic"):
        kl_to_standard_normal(Posterior(torch.zeros(3, 2)))


def test_an_encoder_gives_means_first_then_log_variances():
    output = torch.tensor([[1.0, 2.0, math.log(4.0), math.log(0.25)]])
    posterior = gaussian_posterior(output, torch.zeros(1, 7))
    assert posterior.mean.tolist() == [[1.0, 2.0]]
    assert posterior.std.tolist() == [pytest.approx([2.0, 0.5])]


def test_half_precision_ends_before_the_divergence():
    output = torch.tensor([[0.0, 0.001]], dtype=torch.bfloat16)
    posterior = gaussian_posterior(output, torch.zeros(1, 7))
    assert posterior.mean.dtype == torch.float32
    exact = 0.5 * (math.expm1(output[0, 1].item()) - output[0, 1].item())
    assert posterior.kl().item() == pytest.approx(exact, abs=1e-7)
    assert bernoulli_nll(output, torch.zeros(1, 2)).dtype == torch.float32


@pytest.mark.parametrize("log_variance", [-60.0, -20.0, 0.0, 20.0, 60.0])
def test_divergence_stays_finite_for_extreme_spreads_in_single_precision(log_variance):
    posterior = gaussian_posterior(torch.tensor([[0.0, log_variance]]), torch.zeros(1, 1))
    expected = 0.5 * (math.exp(log_variance) - 1 - log_variance)
    assert kl_to_standard_normal(posterior).item() == pytest.approx(expected, rel=1e-5)


# The likelihoods.


@pytest.mark.parametrize("shape", [(784,), (1, 28, 28), (3, 8, 9)])
def test_ignorance_of_a_bernoulli_pixel_costs_log_two(shape):
    x = pictures(0, 4, *shape)
    expected = math.prod(shape) * math.log(2)
    assert torch.allclose(
        bernoulli_nll(torch.zeros_like(x), x), torch.full((4,), expected).double()
    )


@given(seed=seeds)
def test_bernoulli_agrees_with_torch_distributions_on_binary_pixels(seed):
    logits, x = drawn(seed, 4, 3, 5, 6, scale=3.0), pictures(seed, 4, 3, 5, 6).round()
    expected = -distributions.Bernoulli(logits=logits).log_prob(x).sum((1, 2, 3))
    assert torch.allclose(bernoulli_nll(logits, x), expected)


@given(seed=seeds)
def test_bernoulli_of_grey_pixels_is_softplus_minus_product(seed):
    logits, x = drawn(seed, 4, 12, scale=3.0), pictures(seed, 4, 12)
    expected = (torch.log1p(logits.exp()) - x * logits).sum(1)
    assert torch.allclose(bernoulli_nll(logits, x), expected)


@pytest.mark.parametrize("logit", [21.0, 25.0, 30.0])
def test_what_a_confident_pixel_still_costs_is_not_rounded_away(logit):
    """log(1 + e^-a), which torch's own softplus leaves out above 20."""
    a = torch.tensor([[logit]], dtype=torch.float64)
    excess = bernoulli_nll(a, torch.zeros_like(a)).item() - logit
    assert excess == pytest.approx(math.log1p(math.exp(-logit)), abs=4e-15)
    assert abs(excess) > 0


def test_bernoulli_refuses_logits_of_another_shape():
    with pytest.raises(DataError, match=r"\(4, 1\) for observations of shape \(4, 7\)"):
        bernoulli_nll(torch.zeros(4, 1), torch.zeros(4, 7))


def test_bernoulli_is_exact_where_probabilities_round_to_one():
    logits = torch.tensor([[200.0, -200.0]])
    assert bernoulli_nll(logits, torch.tensor([[0.0, 1.0]])).item() == 400
    assert bernoulli_nll(logits, torch.tensor([[1.0, 0.0]])).item() == 0


@given(seed=seeds, gamma=st.floats(0.01, 100))
def test_gaussian_agrees_with_torch_distributions(seed, gamma):
    mean, x = drawn(seed, 4, 2, 3), drawn(seed + 1, 4, 2, 3)
    expected = -distributions.Normal(mean, math.sqrt(gamma)).log_prob(x).sum((1, 2))
    assert torch.allclose(gaussian_nll(mean, x, gamma), expected)
    assert torch.allclose(gaussian_nll(mean, x, torch.tensor(gamma).double()), expected)


@given(seed=seeds)
def test_squared_error_is_a_gaussian_of_variance_one_half_up_to_its_constant(seed):
    mean, x = drawn(seed, 4, 7), drawn(seed + 1, 4, 7)
    constant = 3.5 * math.log(math.pi)
    assert torch.allclose(squared_error(mean, x) + constant, gaussian_nll(mean, x, 0.5))
    assert not torch.allclose(squared_error(mean, x) + constant, gaussian_nll(mean, x, 1.0))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods_sum_over_pixels_and_treat_samples_apart(name):
    likelihood = LIKELIHOODS[name]()
    assert isinstance(likelihood, Likelihood)
    output, x = drawn(0, 5, 1, 4, 4), pictures(1, 5, 1, 4, 4)
    once = likelihood.nll(output, x)
    assert once.shape == (5,)
    # The same pixels twice: twice the price. A mean over pixels would leave it unchanged.
    twice = likelihood.nll(output.repeat(1, 2, 1, 1), x.repeat(1, 2, 1, 1))
    assert torch.allclose(twice, 2 * once)
    alone = torch.cat([likelihood.nll(output[i : i + 1], x[i : i + 1]) for i in range(5)])
    assert torch.allclose(alone, once)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_no_output_beats_the_observation_itself(name):
    """The mean of p(x | z) that costs least is x: a sign error would fail here."""
    likelihood, x = LIKELIHOODS[name](), 0.05 + 0.9 * pictures(1, 3, 6)
    best = torch.logit(x) if name == "bernoulli" else x
    assert torch.allclose(likelihood.mean(best), x)
    for seed in range(5):
        worse = best + 0.1 * drawn(seed, 3, 6)
        assert (likelihood.nll(worse, x) > likelihood.nll(best, x)).all()


@pytest.mark.parametrize("shape", [(3, 5), (2, 1, 2, 3)])
def test_gradients_of_every_likelihood_agree_with_finite_differences(shape):
    output, x = drawn(0, *shape).requires_grad_(), pictures(1, *shape)
    log_gamma = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: bernoulli_nll(a, x), output)
    assert torch.autograd.gradcheck(lambda a: squared_error(a, x), output)
    assert torch.autograd.gradcheck(lambda a, g: gaussian_nll(a, x, g.exp()), (output, log_gamma))


def test_the_gradient_of_the_divergence_agrees_with_finite_differences():
    output = drawn(0, 3, 4).requires_grad_()
    x = torch.zeros(3, 1).double()
    assert torch.autograd.gradcheck(
        lambda given: kl_to_standard_normal(gaussian_posterior(given, x)), output
    )


def test_a_learned_gamma_is_a_weight_and_a_given_one_is_not():
    learned, given_ = Gaussian("learned"), Gaussian(0.3)
    assert [name for name, _ in learned.named_parameters()] == ["log_gamma"]
    assert learned.gamma.item() == 1
    assert list(given_.parameters()) == []
    assert given_.gamma == 0.3


# What is refused.


def test_bernoulli_refuses_what_is_not_between_zero_and_one():
    x = torch.linspace(0, 255, 12).reshape(2, 1, 2, 3)
    with pytest.raises(
        DataError, match=r"from 0 to 255.*by 255, turn standardising off.*build.*mse"
    ):
        check_observations(x, (1, 2, 3), Bernoulli())
    with pytest.raises(DataError, match=r"from -1 to 1"):
        check_observations(2 * (x / 255) - 1, (1, 2, 3), Bernoulli())
    check_observations(x / 255, (1, 2, 3), Bernoulli())
    check_observations(x, (1, 2, 3), MeanSquare())
    check_observations(-x, (1, 2, 3), Gaussian())


def test_missing_numbers_are_counted_and_refused():
    x = torch.zeros(5, 3)
    x[1, 2], x[4, 0] = math.nan, math.inf
    with pytest.raises(DataError, match="2 of 5 observations contain NaN"):
        check_observations(x, (3,), MeanSquare())


def test_observations_of_another_shape_are_refused():
    with pytest.raises(ConfigError, match=r"\(28, 28, 1\).*\(1, 28, 28\).*shape=data.shape"):
        check_observations(torch.zeros(2, 28, 28, 1), (1, 28, 28), Bernoulli())


def test_losses_are_frozen_and_hold_their_terms():
    total = torch.tensor(3.0)
    losses = Losses(total, {"reconstruction": torch.tensor(1.0)})
    assert losses.posterior is None
    with pytest.raises(AttributeError):
        losses.total = torch.tensor(0.0)

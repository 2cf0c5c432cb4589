"""Linear VAEs in closed form, against other routes to the same numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import zscope as zs
from zscope import theory
from zscope.assays import variable_types
from zscope.assays.dimension.gaps import trace_gap
from zscope.errors import Undefined

seeds = st.integers(0, 10_000)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal_columns(features: int, squares: list[float]) -> torch.Tensor:
    basis = torch.linalg.qr(normal(features, len(squares))).Q
    return basis * torch.tensor(squares, dtype=torch.float64).sqrt()


@pytest.mark.parametrize(("gamma", "expected"), [(0.1, (0.0244, 0.0909)), (100, (0.9615, 0.9901))])
def test_known_posterior_variances(gamma, expected):
    model = theory.linear_vae(orthogonal_columns(5, [4.0, 1.0]), gamma=gamma)
    assert model.variance.tolist() == pytest.approx(expected, abs=5e-5)


@given(seed=seeds)
def test_with_the_full_covariance_the_elbo_is_the_log_likelihood(seed):
    W, bias, x = normal(5, 3, seed=seed), normal(5, seed=seed + 1), normal(4, 5, seed=seed + 2)
    full = zs.theory.linear_vae(W, gamma=0.3, bias=bias, diagonal=False)
    torch.testing.assert_close(full.elbo(x), full.log_likelihood(x), rtol=1e-12, atol=1e-11)
    diagonal = theory.linear_vae(W, gamma=0.3, bias=bias)
    assert (diagonal.elbo(x) < full.elbo(x) + 1e-12).all()
    torch.testing.assert_close(diagonal.mean(x), full.mean(x))


@given(seed=seeds)
def test_the_diagonal_elbo_has_its_closed_form(seed):
    W, x, gamma = normal(5, 3, seed=seed), normal(4, 5, seed=seed + 2), 0.3
    model = theory.linear_vae(W, gamma=gamma)
    C = W @ W.T + gamma * torch.eye(5)
    quadratic = (x @ torch.linalg.inv(C) * x).sum(1)
    inside = torch.log(W.square().sum(0) / gamma + 1).sum()
    expected = -0.5 * (5 * math.log(2 * math.pi) + inside + 5 * math.log(gamma) + quadratic)
    torch.testing.assert_close(model.elbo(x), expected)


def test_turning_latents_costs_and_permuting_or_flipping_them_does_not():
    W, x = orthogonal_columns(6, [4.0, 2.0, 0.5]), normal(10, 6, seed=3)
    plain = theory.linear_vae(W, gamma=0.2).elbo(x)
    flipped = theory.linear_vae(W[:, [2, 0, 1]] * torch.tensor([1.0, -1, 1]), gamma=0.2)
    torch.testing.assert_close(flipped.elbo(x), plain)
    turn = torch.linalg.qr(normal(3, 3, seed=4)).Q
    turned = theory.linear_vae(W @ turn, gamma=0.2)
    assert (turned.elbo(x) < plain - 1e-3).all()
    full = theory.linear_vae(W @ turn, gamma=0.2, diagonal=False)
    torch.testing.assert_close(full.elbo(x), plain)  # equality holds for orthogonal columns


@pytest.mark.parametrize("latents", [3, 9])
def test_the_mean_is_the_best_mean_and_the_variance_the_best_variance(latents):
    # The objective of any other posterior, written out, is lower.
    W, x, gamma, beta = normal(6, latents), normal(5, 6, seed=1), 0.4, 3.0
    model = theory.linear_vae(W, gamma=gamma, beta=beta)
    mean = model.mean(x).requires_grad_()
    log_s = model.variance.log().clone().requires_grad_()
    error = (x - mean @ W.T).square().sum(1) + (W.square() * log_s.exp()).sum()
    kl = 0.5 * (mean.square() + log_s.exp() - 1 - log_s).sum(1)
    objective = (-0.5 / gamma * error - beta * kl).sum()
    slopes = torch.autograd.grad(objective, [mean, log_s])
    assert max(slope.abs().max().item() for slope in slopes) < 1e-9


@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_the_optimum_is_where_gradient_training_ends(beta):
    # Claim C13: sigma_j = min(1, βγ / λ_j).
    eigenvalues, gamma = torch.tensor([9.0, 4, 2, 1, 0.5, 0.2], dtype=torch.float64), 0.3
    basis = torch.linalg.qr(normal(8, 6)).Q
    C = basis @ torch.diag(eigenvalues) @ basis.T
    W = (0.5 * normal(8, 4, seed=2)).requires_grad_()
    V = (0.1 * normal(4, 8, seed=3)).requires_grad_()
    log_s = torch.full((4,), -1.0, dtype=torch.float64).requires_grad_()
    optimiser = torch.optim.LBFGS([W, V, log_s], max_iter=2000, tolerance_grad=1e-10,
                                  tolerance_change=0, line_search_fn="strong_wolfe")  # fmt: skip

    def closure():
        optimiser.zero_grad()
        rest = torch.eye(8, dtype=torch.float64) - W @ V
        error = torch.trace(rest @ C @ rest.T) + (W.square() * log_s.exp()).sum()
        kl = 0.5 * ((V @ C * V).sum() + (log_s.exp() - 1 - log_s).sum())
        loss = 0.5 / gamma * error + beta * kl
        loss.backward()
        return loss

    optimiser.step(closure)
    expected = theory.linear_vae_optimum(eigenvalues, gamma=gamma, beta=beta, latents=4)
    found = log_s.detach().exp().sort().values
    assert found.tolist() == pytest.approx(expected.variance.sort().values.tolist(), abs=1e-3)
    lengths = W.detach().square().sum(0).sort(descending=True).values
    assert lengths.tolist() == pytest.approx(expected.squared_weights.tolist(), abs=2e-3)


def test_the_optimum_agrees_with_the_model_fitted_to_data():
    x = normal(2000, 6) * torch.tensor([3.0, 2, 1.4, 1, 0.4, 0.1])
    x -= x.mean(0)
    eigenvalues = torch.linalg.eigvalsh(x.T @ x / len(x)).flip(0)
    optimum = theory.linear_vae_optimum(eigenvalues, gamma=0.5, beta=2, latents=6)
    model = theory.fit_linear_vae(x, latents=6, gamma=0.5, beta=2)
    torch.testing.assert_close(model.variance, optimum.variance)
    posterior = zs.record(model.autoencoder(), x.float()).posterior
    types = variable_types(posterior.variance)
    assert set(types.passive) == set(optimum.passive) == {3, 4, 5}
    assert trace_gap(posterior).score == pytest.approx(optimum.trace_gap)
    var_of_means = posterior.mean.var(0, correction=0).tolist()
    assert var_of_means == pytest.approx(optimum.variance_of_means.tolist(), abs=1e-4)
    assert posterior.kl().mean(0).tolist() == pytest.approx(optimum.kl.tolist(), abs=1e-4)
    assert posterior.mean[:, optimum.passive].abs().max() < 1e-12


def test_the_linear_autoencoder_decodes_what_it_encodes():
    W = orthogonal_columns(5, [4.0, 1.0])
    model = theory.linear_vae(W, gamma=1e-9, bias=torch.ones(5, dtype=torch.float64))
    z = normal(7, 2)
    autoencoder = model.autoencoder()
    torch.testing.assert_close(autoencoder.encode(autoencoder.decode(z)).mean, z)
    full = theory.linear_vae(W, gamma=0.1, diagonal=False).autoencoder().encode(normal(3, 5))
    assert full.scale_tril.shape == (3, 2, 2)


# iVAE


def test_the_variance_of_an_ivae_with_fixed_prior_mean():
    found = theory.ivae_variance(2, gamma=0.5, squared_mean=3)
    assert found == pytest.approx(0.2320508, abs=5e-8)
    assert found == pytest.approx(1 / (2 / 0.5 + 1 / (found + 3)))
    assert theory.ivae_variance(2, gamma=1e-9, squared_mean=3) == pytest.approx(5e-10)


def test_with_a_learned_prior_the_variance_runs_to_zero():
    path = theory.ivae_variance_path(2, gamma=0.5, steps=100)
    assert path[100] == pytest.approx(0.00249377, abs=5e-9)
    assert path[7] == pytest.approx(1 / (1 + 7 * 4))
    assert theory.ivae_variance_path(0, gamma=0.5, steps=9)[-1] == 1  # an unused latent stays


def test_the_posterior_of_an_ivae_is_the_vae_s_under_a_standard_prior():
    W, x = normal(5, 2), normal(6, 5, seed=1)
    zeros, ones = torch.zeros(6, 2).double(), torch.ones(6, 2).double()
    ours = theory.linear_ivae_posterior(x, W, gamma=0.3, prior_mean=zeros, prior_variance=ones)
    plain = theory.linear_vae(W, gamma=0.3, diagonal=False).posterior(x)
    torch.testing.assert_close(ours.mean, plain.mean)
    torch.testing.assert_close(ours.scale_tril, plain.scale_tril)
    # A sure prior wins over the data.
    sure = theory.linear_ivae_posterior(
        x, W, gamma=0.3, prior_mean=ones, prior_variance=1e-12 * ones
    )
    torch.testing.assert_close(sure.mean, ones, atol=1e-9, rtol=0)


def test_the_best_prior_of_an_ivae_is_the_moment_of_its_group():
    mean = torch.tensor([[1.0], [3.0], [5.0]]).double()
    posterior = zs.Posterior(mean, torch.full((3, 1), 0.5).double())
    groups = torch.tensor([7, 7, 2])
    prior_mean, prior_variance = theory.ivae_prior(posterior, groups, learn_mean=True)
    assert prior_mean.flatten().tolist() == [2, 2, 5]
    assert prior_variance.flatten().tolist() == [1.25, 1.25, 0.25]
    _, fixed = theory.ivae_prior(posterior, groups, learn_mean=False)
    assert fixed.flatten().tolist() == [5.25, 5.25, 25.25]


def test_a_mixed_latent():
    mixed = theory.mixed_latent(0.5, mean=1, variance=0.25)
    assert (mixed.variance_of_means, mixed.variance_of_samples, mixed.gap) == (0.375, 0.875, 0.5)
    # and by drawing one
    rng = np.random.default_rng(0)
    active = rng.random(200_000) < 0.5
    means = np.where(active, rng.normal(1, 0.5, 200_000), 0)
    samples = means + np.where(active, 0, rng.normal(size=200_000))
    assert means.var() == pytest.approx(0.375, rel=0.02)
    assert samples.var() == pytest.approx(0.875, rel=0.02)


def test_impossible_settings_are_refused():
    with pytest.raises(Undefined, match=r"linear_vae: gamma=0\.0; expected a number above 0"):
        theory.linear_vae(normal(3, 2), gamma=0.0)
    with pytest.raises(Undefined, match="share=2"):
        theory.mixed_latent(2, mean=0, variance=1)

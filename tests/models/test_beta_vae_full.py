"""β-VAE with full covariance: its divergence, and its indifference to rotations."""

import math

import pytest
import torch
from test_linear_vae import converged, expected_loss, linear, sprung
from torch import distributions
from worlds import random_rotation, seeded

import zscope as zs
from zscope.models.objectives import full_latents, full_posterior


def test_the_encoder_gives_means_then_log_diagonals_then_what_is_below():
    output = torch.tensor([[1.0, 2, 3, math.log(2), math.log(3), math.log(4), 5, 6, 7]])
    posterior = full_posterior(output, torch.zeros(1, 1))
    assert posterior.mean.tolist() == [[1, 2, 3]]
    expected = torch.tensor([[2.0, 0, 0], [5, 3, 0], [6, 7, 4]])
    assert torch.allclose(posterior.scale_tril[0], expected)


@pytest.mark.parametrize("latents", [1, 2, 5, 10, 32])
def test_the_number_of_outputs_tells_the_number_of_latents(latents):
    outputs = latents + latents * (latents + 1) // 2
    assert full_latents(outputs) == latents
    model = zs.models.build("beta-vae-full", shape=(3,), latents=latents, hidden=(4,))
    assert model.encoder.head.out_features == outputs
    assert model.encode(torch.zeros(2, 3)).scale_tril.shape == (2, latents, latents)


def test_the_divergence_agrees_with_torch_distributions():
    model = zs.models.build("beta-vae-full", shape=(5,), latents=4, hidden=(8,), beta=3).double()
    x = 3 * torch.rand(7, 5, generator=seeded(0), dtype=torch.float64)
    losses, posterior = model.losses(x, seeded(1)), model.encode(x)
    normal = distributions.MultivariateNormal(posterior.mean, scale_tril=posterior.scale_tril)
    standard = distributions.MultivariateNormal(torch.zeros(4).double(), torch.eye(4).double())
    expected = distributions.kl_divergence(normal, standard).mean().item()
    assert losses.terms["divergence"].item() == pytest.approx(expected)
    total = losses.terms["reconstruction"].item() + 3 * expected
    assert losses.total.item() == pytest.approx(total)


def test_draws_have_the_covariance_of_the_posterior():
    lower = torch.tensor([[0.5, 0.0], [0.4, 0.3]]).double()
    posterior = zs.Posterior(torch.zeros(40_000, 2).double(), scale_tril=lower.expand(40_000, 2, 2))
    found = posterior.sample(seeded(0)).T.cov()
    assert torch.allclose(found, lower @ lower.T, atol=0.01)


def turned(model, turn):
    """The same model with its latents rotated: μ → Uμ, L → chol(U L Lᵀ Uᵀ), W → W Uᵀ."""
    with torch.no_grad():
        posterior = model.encode(torch.zeros(1, model.encoder.shape[0]).double())
        lower = posterior.scale_tril[0]
        new = torch.linalg.cholesky(turn @ lower @ lower.T @ turn.T)
        n = model.latents
        head, last = model.encoder.head, model.decoder.layers[0]
        head.weight[:n], head.bias[:n] = turn @ head.weight[:n], turn @ head.bias[:n]
        head.weight[n:] = 0
        head.bias[n : 2 * n] = new.diagonal().log()
        rows, columns = torch.tril_indices(n, n, -1)
        head.bias[2 * n :] = new[rows, columns]
        last.weight.copy_(last.weight @ turn.T)
    return model


def test_at_its_optimum_rotating_the_latents_changes_nothing():
    """The minimum is that of the diagonal model, and any rotation of it is another one; for
    the diagonal model only the principal directions are."""
    eigenvalues, gamma = [9.0, 4.0, 0.5, 0.2], 0.3
    x, _, _ = sprung(eigenvalues)
    full = linear("beta-vae-full", (4,), 2, beta=1, likelihood="gaussian", gamma=gamma)
    plain = linear("beta-vae", (4,), 2, beta=1, likelihood="gaussian", gamma=gamma)
    best, same = converged(full, x), converged(plain, x)
    used = sum(gamma * (1 + math.log(value / gamma)) for value in eigenvalues[:2])
    expected = (used + 0.7) / (2 * gamma) + 2 * math.log(2 * math.pi * gamma)
    assert best == pytest.approx(expected, abs=1e-6)
    assert same == pytest.approx(expected, abs=1e-6)
    again = expected_loss(turned(full, random_rotation(2, seed=3)), x).item()
    assert again == pytest.approx(best, abs=1e-6)
    with torch.no_grad():
        turn = torch.tensor([[1.0, -1.0], [1.0, 1.0]]).double() / math.sqrt(2)
        head, last = plain.encoder.head, plain.decoder.layers[0]
        head.weight[:2], head.bias[:2] = turn @ head.weight[:2], turn @ head.bias[:2]
        last.weight.copy_(last.weight @ turn.T)
    assert expected_loss(plain, x).item() > same + 0.05


def test_a_vae_may_have_a_full_covariance_too():
    model = zs.models.build("vae", shape=(5,), latents=3, posterior="full")
    assert model.encode(torch.zeros(2, 5)).scale_tril is not None
    full = zs.models.build("beta-vae-full", shape=(5,), latents=3, posterior="gaussian")
    assert full.encode(torch.zeros(2, 5)).std is not None

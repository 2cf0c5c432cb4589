"""What is known without running anything: lemmas behind alignment, and what a score carries."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, gaussian_codes, linear, random_rotation, seeded

import zscope as zs
from zscope.assays import (
    alignment_gap,
    cartesian_or_polar,
    column_product,
    distance_to_orthogonality,
    loss_decomposition,
    optimal_noise,
    polarisation,
)

seeds = st.integers(0, 10_000)
M1 = torch.tensor([[4.0, 1], [-3, 1], [5, -1]], dtype=torch.float64)


def curved(seed=0, latents=3):
    """A smooth decoder whose Jacobian differs from code to code."""
    W = torch.randn(latents, 6, generator=seeded(seed), dtype=torch.float64)
    return World(lambda z: torch.tanh(z @ W.to(z)) + 0.3 * z.sum(1, keepdim=True), None, latents)


def posterior_of(samples, latents, seed=0):
    """Codes with a noise of their own at every code."""
    std = 0.05 + torch.rand(samples, latents, generator=seeded(seed), dtype=torch.float64)
    return zs.Posterior(gaussian_codes(samples, latents, seed), std)


# The linear VAE of the square (Zietlow 2022, section 5.2)


@pytest.mark.parametrize(
    ("beta", "variances", "loss"),
    [
        (1e-4, (1.5e-4, 6e-4), 9.11e-4),
        (0.01, (0.015, 0.06), 0.045066),
        (0.1, (0.15, 0.6), 0.220397),
    ],
)
def test_the_square_at_its_optimum_is_polarised_as_the_closed_form_says(beta, variances, loss):
    eigenvalues = torch.tensor([1 / 3, 1 / 12], dtype=torch.float64)
    optimum = zs.theory.linear_vae_optimum(eigenvalues, gamma=0.5, beta=beta)
    assert optimum.variance.tolist() == pytest.approx(variances)
    # Codes with exactly the variances of the means that the optimum asks for.
    signs = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]]).double()
    means = signs * optimum.variance_of_means.sqrt()
    found = polarisation(zs.Posterior(means, optimum.variance.sqrt().expand(4, 2)))
    error = float(optimum.squared_weights @ optimum.variance) + float(
        (eigenvalues * (1 - optimum.variance_of_means).square()).sum()
    )
    assert error + beta * found.divergence == pytest.approx(loss, rel=1e-3)
    rate = 0.5 * sum(math.log(1 / v) for v in variances)
    assert found.divergence == pytest.approx(rate)
    assert found.gap == pytest.approx(0.5 * sum(variances) / rate)
    if beta == 1e-4:
        assert found.gap == pytest.approx(4.6e-5, abs=5e-7)


# An autoencoder has no reason to align


@settings(max_examples=8)
@given(seed=seeds)
def test_an_autoencoder_reconstructs_alike_whatever_its_latents_are(seed):
    """Y = P Σ Q and its pseudo-inverse project onto the same plane for every Q and Σ."""
    P = torch.linalg.qr(torch.randn(5, 2, generator=seeded(3), dtype=torch.float64)).Q
    x = gaussian_codes(20, 5, seed)
    lengths = torch.diag(torch.tensor([3.0, 1.0]).double())
    Y = P @ lengths @ random_rotation(2, seed)
    other = P @ (2 * lengths) @ random_rotation(2, seed + 1)
    models = [
        zs.wrap(lambda x, Y=each: x @ torch.linalg.pinv(Y).T, lambda z, Y=each: z @ Y.T, latents=2)
        for each in (Y, other)
    ]
    first, second = (model.decode(model.encode(x).mean) for model in models)
    torch.testing.assert_close(first, x @ P @ P.T)
    torch.testing.assert_close(second, first)
    distances = [distance_to_orthogonality(m, gaussian_codes(2, 2)).distance for m in models]
    assert abs(distances[0] - distances[1]) > 1e-6


# Lemmas


@given(seed=seeds, factor=st.sampled_from([0.8, 0.95, 1.05, 2.0, 5.0]))
def test_scaled_to_unit_mean_square_the_codes_cost_least(seed, factor):
    """Lemma 7: c² = n / Σ x² minimises Σ (c² x² - log c² y²). The text prints its inverse."""
    any_ = posterior_of(50, 3, seed)
    scale = (1 / any_.mean.square().mean()).sqrt()

    def cost(c):
        found = polarisation(zs.Posterior(c * any_.mean, c * any_.std))
        assert found.active == [0, 1, 2]
        return found.approximation

    assert (scale * any_.mean).square().mean() == pytest.approx(1)
    assert cost(factor * scale) > cost(scale)


@settings(max_examples=8)
@given(seed=seeds)
def test_noise_never_costs_less_than_the_volume_it_fills(seed):
    """trace M >= n det(M)^(1/n) for M = S JᵀJ S: misspent and misaligned are never negative."""
    found = optimal_noise(curved(seed), posterior_of(6, 3, seed), active="all")
    assert (found.per_sample["misspent"] >= -1e-12).all()
    assert (found.per_sample["misaligned"] >= -1e-12).all()
    J = zs.assays.decoder_jacobian(curved(seed), posterior_of(6, 3, seed).mean)
    M = J * posterior_of(6, 3, seed).std[:, None]
    trace = M.square().sum((1, 2))
    least = 3 * torch.linalg.det(M.mT @ M) ** (1 / 3)
    paid = (found.per_sample["misspent"] + found.per_sample["misaligned"]).exp()
    torch.testing.assert_close(trace / least, paid, rtol=1e-6, atol=0)


@settings(max_examples=8)
@given(seed=seeds)
def test_all_codes_together_cost_the_sum_over_codes_and_the_budget_may_move_between_them(seed):
    """Eq. 5.11: the least sum of log costs is N log d - C/d + 2/d Σ log det†, C over all codes."""
    posterior = posterior_of(5, 3, seed)
    found = optimal_noise(curved(seed), posterior, active="all")
    J = zs.assays.decoder_jacobian(curved(seed), posterior.mean)
    costs = (J.square().sum(1) * posterior.variance).sum(1).log().sum()
    volumes = torch.linalg.svdvals(J).log().sum()
    budget = -posterior.variance.log().sum()
    least = 5 * math.log(3) - budget / 3 + 2 / 3 * volumes
    above = 5 * (found.misspent + found.misaligned)
    assert float(costs - least) == pytest.approx(above, rel=1e-6, abs=1e-9)
    # One code twice as noisy, another half as much: the same total budget, the same excess.
    moved = posterior.std * torch.tensor([2.0, 0.5, 1, 1, 1])[:, None]
    again = optimal_noise(curved(seed), zs.Posterior(posterior.mean, moved), active="all")
    assert again.misspent == pytest.approx(found.misspent)


def test_orthogonal_columns_are_at_rest_under_every_small_rotation():
    """A product of a matrix with zero diagonal and a diagonal one has zero diagonal."""
    aligned = random_rotation(5, 1)[:, :3] * torch.tensor([3.0, 2, 1]).double()
    leaning = aligned + 0.3 * random_rotation(5, 2)[:, :3]

    def slope(J, A, step=1e-4):
        ends = [column_product(J @ torch.matrix_exp(s * A)).log_columns for s in (step, -step)]
        return (ends[0] - ends[1]) / (2 * step)

    steep = []
    for seed in range(5):
        A = torch.randn(3, 3, generator=seeded(seed), dtype=torch.float64)
        A = A - A.T
        assert slope(aligned, A) == pytest.approx(0, abs=1e-7)
        steep.append(abs(slope(leaning, A)))
    assert min(steep) > 1e-3


def test_moving_noise_from_where_it_costs_more_to_where_it_costs_less_helps():
    """No spurious minima over σ: (a, b) -> (a / (1 + δ), b (1 + δ)) for costs a > b."""
    posterior = zs.Posterior(gaussian_codes(9, 2), torch.tensor([0.3, 0.2]).double().expand(9, 2))
    moved = posterior.std * torch.tensor([1 / 1.1, 1.1]).double()  # 50 · .09 > 3 · .04
    before = optimal_noise(linear(M1.T.contiguous()), posterior, active="all")
    after = optimal_noise(
        linear(M1.T.contiguous()), zs.Posterior(posterior.mean, moved), active="all"
    )
    assert after.budget == pytest.approx(before.budget)
    assert after.misspent < before.misspent - 0.01


# What leaves the answers unchanged


@settings(max_examples=8)
@given(seed=seeds)
def test_permuting_and_flipping_latents_or_scaling_pixels_leaves_the_noise_as_good(seed):
    posterior, model = posterior_of(8, 3, seed), curved(seed)
    before = optimal_noise(model, posterior, active="all")
    order, signs = [2, 0, 1], torch.tensor([1.0, -1, -1]).double()
    back = [1, 2, 0]
    other = World(lambda z: 7 * model.decoder((z * signs)[:, back]), None, 3)
    moved = zs.Posterior(posterior.mean[:, order] * signs, posterior.std[:, order])
    after = optimal_noise(other, moved, active="all")
    assert after.misspent == pytest.approx(before.misspent, abs=1e-9)
    assert after.misaligned == pytest.approx(before.misaligned, abs=1e-9)
    assert after.slope == pytest.approx(before.slope)
    # Rotating the latents is not among them.
    turned = zs.rotate_latents(model, random_rotation(3, seed))
    codes = zs.Posterior(posterior.mean @ random_rotation(3, seed).T, posterior.std)
    assert optimal_noise(turned, codes, active="all").misspent != pytest.approx(before.misspent)


def test_rotating_and_shifting_observations_leaves_the_parts_of_the_loss():
    model, posterior = curved(), posterior_of(10, 3)
    x = gaussian_codes(10, 6, 4)
    Q, shift = random_rotation(6, 5), gaussian_codes(1, 6, 6)
    moved = World(lambda z: model.decoder(z) @ Q.T.to(z) + shift.to(z), None, 3)
    before = loss_decomposition(model, x, posterior=posterior, draws=8)
    after = loss_decomposition(moved, x @ Q.T + shift, posterior=posterior, draws=8)
    for part in ("reconstruction", "deterministic", "stochastic", "cross", "linearised"):
        assert getattr(after, part) == pytest.approx(getattr(before, part), rel=1e-6), part
    stretched = World(lambda z: 2 * model.decoder(z), None, 3)
    twice = loss_decomposition(stretched, 2 * x, posterior=posterior, draws=8)
    assert twice.stochastic == pytest.approx(4 * before.stochastic, rel=1e-6)


def test_relabelling_factor_values_leaves_the_charts():
    random = np.random.default_rng(0)
    factors = random.integers(0, 6, (3000, 2))
    codes = factors + random.uniform(-0.3, 0.3, (3000, 2))
    names = random.permutation(6)
    before = cartesian_or_polar(codes, factors).pairs[0]
    after = cartesian_or_polar(codes, names[factors]).pairs[0]
    assert after.cartesian == pytest.approx(before.cartesian)
    assert after.verdict == before.verdict == "cartesian"


# What a score carries


def test_chance_of_the_gap_is_known_for_two_latents():
    """The mean of log(a cos² + b sin²) over angles is 2 log((√a + √b) / 2)."""
    for ratio in (1.0, 3.0, 10.0):
        J = torch.diag(torch.tensor([ratio, 1.0]).double())
        found = alignment_gap(linear(J), gaussian_codes(4, 2))
        expected = 2 * math.log((ratio + 1) / 2) - math.log(ratio)
        assert found.chance == pytest.approx(expected, abs=0.03)
        assert found.gap == pytest.approx(0, abs=1e-9)
    turned = [column_product(J @ random_rotation(2, k)).gap for k in range(2000)]
    assert np.mean(turned) == pytest.approx(expected, abs=0.06)


def test_chance_of_the_noise_is_that_of_equal_noise():
    posterior = posterior_of(30, 3)
    found = optimal_noise(curved(), posterior, active="all")
    equal = zs.Posterior(posterior.mean, torch.full_like(posterior.std, 0.2))
    blind = optimal_noise(curved(), equal, active="all")
    assert found.chance == pytest.approx(blind.efficiency)
    assert found.chance != pytest.approx(found.efficiency)
    low, high = found.interval
    assert low < found.efficiency < high <= 1
    assert blind.samples == 30
    spread = float(found.per_sample["misspent"].std()) / math.sqrt(30)
    assert math.log(high / low) == pytest.approx(2 * 1.96 * spread, rel=1e-6)


def test_the_error_of_the_polarisation_is_that_of_a_jackknife():
    posterior = posterior_of(200, 3)
    found = polarisation(posterior)
    kept = [[k for k in range(200) if k != left] for left in range(200)]
    without = np.array([polarisation(posterior[rows]).gap for rows in kept])
    jackknife = math.sqrt(199 / 200 * ((without - without.mean()) ** 2).sum())
    assert found.standard_error == pytest.approx(jackknife, rel=0.05)
    assert found.samples == 200


def test_every_score_of_alignment_says_on_how_many_samples_it_rests():
    posterior, model = posterior_of(40, 3), curved()
    x = model.decode(posterior.mean)
    results = {
        "polarisation": polarisation(posterior),
        "distance": distance_to_orthogonality(model, posterior, samples=30),
        "gap": alignment_gap(model, posterior, samples=20),
        "noise": optimal_noise(model, posterior, active="all", samples=10),
        "loss": loss_decomposition(model, x, posterior=posterior, samples=5),
    }
    counted = {name: result.samples for name, result in results.items()}
    assert counted == {"polarisation": 40, "distance": 30, "gap": 20, "noise": 10, "loss": 5}
    for name in ("polarisation", "distance", "gap"):
        assert results[name].standard_error > 0, name
    low, high = results["noise"].interval
    assert low < results["noise"].score < high
    for name in ("distance", "gap", "noise"):
        assert results[name].chance > 0, name

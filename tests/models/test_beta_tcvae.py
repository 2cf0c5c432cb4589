"""β-TCVAE: weights, densities and total correlation at points where the truth is known."""

import math
from itertools import combinations

import pytest
import torch
from torch import distributions
from worlds import seeded

import zscope as zs
from zscope.autoencoder import Posterior
from zscope.errors import ConfigError
from zscope.models.beta_tcvae import log_densities, stratified_weights, total_correlation

ESTIMATORS = ["weighted", "stratified"]


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


@pytest.mark.parametrize(("batch", "samples"), [(2, 2), (3, 5), (64, 737_280)])
def test_every_row_of_weights_adds_up_to_one_with_its_own_share_on_the_diagonal(batch, samples):
    weights = stratified_weights(batch, samples)
    assert torch.allclose(weights.sum(1), torch.ones(batch).double())
    assert torch.allclose(weights.diagonal(), torch.full((batch,), 1 / samples).double())
    assert (weights > 0).all()


def test_over_all_minibatches_the_stratified_density_is_the_exact_mixture():
    """N = 5, B = 3: the mean of the estimate of q(z_i), over every batch that holds x_i."""
    mean, std = normals(5, 2), normals(5, 2, seed=1).exp()
    z = mean + std * normals(5, 2, seed=2)
    exact = log_densities(z, Posterior(mean, std)).sum(2).exp().mean(1)
    sums, counts = torch.zeros(5).double(), torch.zeros(5).double()
    for chosen in combinations(range(5), 3):
        rows = list(chosen)
        part = Posterior(mean[rows], std[rows])
        densities = log_densities(z[rows], part).sum(2).exp()
        sums[rows] += (densities * stratified_weights(3, 5)).sum(1)
        counts[rows] += 1
    assert torch.allclose(sums / counts, exact, rtol=1e-12)


def test_the_weights_of_other_programs_are_not_unbiased():
    """Negative control: 1/N in the first column instead of the diagonal misses the mixture."""
    mean, std = normals(5, 2), normals(5, 2, seed=1).exp()
    z = mean + std * normals(5, 2, seed=2)
    densities = log_densities(z, Posterior(mean, std)).sum(2).exp()
    exact = densities.mean(1)
    batch, samples = 3, 5
    wrong = torch.full((3, 3), 1 / (batch - 1)).double()
    wrong.view(-1)[::batch] = 1 / samples
    wrong.view(-1)[1::batch] = (samples - batch + 1) / (samples * (batch - 1))
    sums, counts = torch.zeros(5).double(), torch.zeros(5).double()
    for chosen in combinations(range(5), 3):
        rows = list(chosen)
        sums[rows] += (densities[rows][:, rows] * wrong).sum(1)
        counts[rows] += 1
    assert (sums / counts / exact - 1).abs().max() > 0.05


def test_densities_agree_with_torch_distributions():
    mean, std, z = normals(4, 3), normals(4, 3, seed=1).exp(), normals(6, 3, seed=2)
    found = log_densities(z, Posterior(mean, std))
    expected = distributions.Normal(mean, std).log_prob(z.unsqueeze(1))
    assert torch.allclose(found, expected)


def test_total_correlation_by_hand():
    """Two posteriors at ±(1, 1) with σ = 1; every density is one of two numbers."""
    posterior = Posterior(
        torch.tensor([[1.0, 1.0], [-1.0, -1.0]]).double(), torch.ones(2, 2).double()
    )
    z = torch.tensor([[1.0, 1.0], [-1.0, 1.0]]).double()
    near, far = 1 / math.sqrt(2 * math.pi), math.exp(-2) / math.sqrt(2 * math.pi)
    first = math.log((near**2 + far**2) / 2) - 2 * math.log((near + far) / 2)
    second = math.log((near * far + far * near) / 2) - 2 * math.log((near + far) / 2)
    assert total_correlation(z, posterior).item() == pytest.approx((first + second) / 2)
    # Stratified with N = 10: 1/10 for the own posterior, 9/10 for the other.
    first = math.log(0.1 * near**2 + 0.9 * far**2) - 2 * math.log(0.1 * near + 0.9 * far)
    second = (
        math.log(near * far) - math.log(0.1 * far + 0.9 * near) - math.log(0.1 * near + 0.9 * far)
    )
    found = total_correlation(z, posterior, estimator="stratified", samples=10)
    assert found.item() == pytest.approx((first + second) / 2)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_identical_posteriors_have_no_total_correlation(estimator):
    """The constant is the true one: other programs log (n - 1) log N or -(n - 1) log M here."""
    posterior = Posterior(torch.full((16, 5), 0.3).double(), torch.full((16, 5), 0.7).double())
    z = normals(16, 5)
    found = total_correlation(z, posterior, estimator=estimator, samples=1000)
    assert found.item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_many_latents_do_not_underflow_in_single_precision(estimator):
    """The density of 200 latents is about e^-284, which is 0 in float32; its logarithm is not."""
    posterior = Posterior(torch.zeros(8, 200), torch.ones(8, 200))
    z = posterior.sample(seeded(0))
    assert log_densities(z, posterior).sum(2).exp().max() == 0
    found = total_correlation(z, posterior, estimator=estimator, samples=1000)
    assert found.item() == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_total_correlation_of_a_gaussian_is_recovered(estimator, correlation):
    """Codes N(0, C) with correlation ρ, posteriors of standard deviation .6 inside them."""
    std, count = 0.6, 1024
    covariance = torch.tensor([[1.0, correlation], [correlation, 1.0]]).double()
    inner = torch.linalg.cholesky(covariance - std**2 * torch.eye(2).double() * (1 - correlation))
    # The posterior noise takes its share of the variance of both latents alike.
    mean = normals(count, 2) @ inner.T
    spread = std * math.sqrt(1 - correlation)
    posterior = Posterior(mean, torch.full_like(mean, spread))
    z = posterior.sample(seeded(1))
    expected = -0.5 * math.log(1 - correlation**2)
    found = total_correlation(z, posterior, estimator=estimator, samples=count)
    assert found.item() == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_descending_it_takes_from_a_latent_what_another_knows(estimator):
    """The known minimum: b = .8 a + .6 e shares nothing with a once .8 a is taken off."""
    a, e = normals(400, 2).T
    weight = torch.zeros(()).double().requires_grad_()
    optimiser = torch.optim.Adam([weight], lr=0.05)
    noise = 0.6 * torch.randn(400, 2, generator=seeded(2)).double()

    def lost():
        left = 0.8 * a + 0.6 * e - weight * a
        mean = torch.stack([a, left / left.detach().std()], 1)
        posterior = Posterior(mean, torch.full_like(mean, 0.6))
        return total_correlation(mean + noise, posterior, estimator=estimator, samples=400)

    before = lost().item()
    for _ in range(50):
        optimiser.zero_grad()
        lost().backward()
        optimiser.step()
    assert before > 0.1
    assert lost().item() == pytest.approx(0, abs=0.03)
    assert weight.item() == pytest.approx(0.8, abs=0.1)


def test_precise_posteriors_bias_the_estimate_as_the_docstring_warns():
    """64 independent codes in 10 dimensions with σ = .01: TC is 0, the estimate is not."""
    posterior = Posterior(normals(64, 10), torch.full((64, 10), 0.01).double())
    z = posterior.sample(seeded(1))
    assert total_correlation(z, posterior).item() > 9 * math.log(64) * 0.5


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_beta_one_is_the_vae(estimator):
    x = torch.rand(8, 5, generator=seeded(0))
    one = zs.models.build("beta-tcvae", shape=(5,), latents=3, beta=1, estimator=estimator)
    vae = zs.models.build("vae", shape=(5,), latents=3)
    losses = one.losses(x, seeded(1), samples=100)
    assert losses.total.item() == pytest.approx(vae.losses(x, seeded(1)).total.item(), rel=1e-6)
    six = zs.models.build("beta-tcvae", shape=(5,), latents=3, estimator=estimator)
    again = six.losses(x, seeded(1), samples=100)
    dependence = again.terms["total_correlation"].item()
    assert dependence == losses.terms["total_correlation"].item()
    assert (again.total - losses.total).item() == pytest.approx(5 * dependence, abs=1e-6)


def test_the_stratified_estimator_asks_for_the_size_of_the_data():
    model = zs.models.build("beta-tcvae", shape=(5,), latents=3, estimator="stratified")
    with pytest.raises(ConfigError, match="needs samples="):
        model.losses(torch.rand(8, 5, generator=seeded(0)))
    with pytest.raises(ConfigError, match="the batch has 8 of 4 observations"):
        stratified_weights(8, 4)

"""The functionals behind alignment: closed forms of the worked example and of linear VAEs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds import World, gaussian_codes, linear, random_rotation, seeded

import zscope as zs
from zscope.assays import (
    alignment_gap,
    column_product,
    distance_to_orthogonality,
    loss_decomposition,
    optimal_noise,
    predicted_variance,
    rotation_excess,
)
from zscope.errors import ConfigError, Undefined

seeds = st.integers(0, 10_000)
M1 = torch.tensor([[4.0, 1], [-3, 1], [5, -1]], dtype=torch.float64)
M2 = M1 @ torch.tensor([[1.0, 1], [-1, 1]], dtype=torch.float64) / math.sqrt(2)


def decoder(J, **options):
    """x = J z, encoded exactly."""
    return linear(J.T.contiguous(), **options)


def noisy(J, variances, samples=40):
    """A linear decoder with constant noise, and the posterior of some codes."""
    latents = J.shape[1]
    codes = gaussian_codes(samples, latents)
    std = torch.as_tensor(variances, dtype=torch.float64).sqrt().expand(samples, latents)
    return decoder(J, prior="normal"), zs.Posterior(codes, std)


# Column product and alignment gap


def test_the_worked_example():
    first, second = column_product(M1), column_product(M2)
    assert first.lengths.square().tolist() == pytest.approx([50, 3])
    assert second.lengths.square().tolist() == pytest.approx([30.5, 22.5])
    assert 2 * math.exp(first.log_columns) == pytest.approx(24.49, abs=0.005)
    assert 2 * math.exp(second.log_columns) == pytest.approx(52.39, abs=0.005)
    for product in (first, second):  # the volume does not depend on the rotation
        assert 2 * math.exp(product.log_volume) == pytest.approx(2 * math.sqrt(134))
    assert first.gap == pytest.approx(0.0564, abs=5e-5)
    assert second.gap == pytest.approx(0.8167, abs=5e-5)


@given(seed=seeds)
def test_the_gap_is_that_of_hadamard_and_never_negative(seed):
    J = torch.randn(6, 3, generator=seeded(seed), dtype=torch.float64)
    expected = J.norm(dim=0).log().sum() - 0.5 * torch.logdet(J.T @ J)
    assert column_product(J).gap == pytest.approx(float(expected), abs=1e-9)
    assert column_product(J).gap >= 0
    scaled = random_rotation(6, seed) @ J[:, [2, 0, 1]] * torch.tensor([5.0, -0.1, 1.0])
    assert column_product(scaled).gap == pytest.approx(column_product(J).gap, abs=1e-9)


def test_orthogonal_columns_have_no_gap_though_their_directions_are_arbitrary():
    Q = random_rotation(4, 3)[:, :3]
    assert column_product(Q).gap == pytest.approx(0, abs=1e-12)
    assert distance_to_orthogonality(decoder(Q), gaussian_codes(2, 3)).degenerate == 2
    # Distinct lengths: orthogonal columns if and only if |V| is a permutation.
    stretched = Q * torch.tensor([1.0, 2, 3])
    assert distance_to_orthogonality(decoder(stretched), gaussian_codes(2, 3)).distance < 1e-6


def test_the_gap_of_a_decoder_is_that_of_its_jacobians():
    found = alignment_gap(decoder(M2), gaussian_codes(5, 2))
    assert found.gap == found.score == pytest.approx(column_product(M2).gap)
    assert found.per_latent == pytest.approx(found.gap / 2)
    cosine = float((M2[:, 0] @ M2[:, 1]).abs() / (M2[:, 0].norm() * M2[:, 1].norm()))
    assert found.cosines[0].tolist() == pytest.approx([1, cosine])
    assert found.plot().get_ylabel() == "latent"
    assert found.to_dict()["gap"] == found.gap


def test_dependent_columns_have_no_volume():
    J = torch.tensor([[1.0, 2], [1, 2], [0, 0]], dtype=torch.float64)
    with pytest.raises(Undefined, match="linearly dependent.*Two latents have the same effect"):
        alignment_gap(decoder(J), gaussian_codes(3, 2))
    with pytest.raises(Undefined, match="1 columns of zeros"):
        column_product(torch.tensor([[1.0, 0], [0, 0]]))
    silent = zs.Posterior(0.01 * gaussian_codes(9, 2), torch.ones(9, 2).double())
    with pytest.raises(Undefined, match="0 of 2 latents are active"):
        alignment_gap(decoder(M1, prior="normal"), silent)
    # Dependent at some codes only: these are left out, and it is said.
    half = World(lambda z: torch.stack([z[:, 0], z[:, 1].clamp(min=0), z[:, 0]], 1), lambda x: x, 2)
    codes = torch.tensor([[1.0, 1], [2, 2], [3, -1]]).double()
    found = alignment_gap(half, codes)
    assert len(found.per_sample) == 2
    assert "Left out 1 of 3 codes" in found.flags[0]


# The price of rotation, exactly


def best_linear_loss(W, covariance, beta):
    """E|x - x̂|² + β KL of a linear decoder with its best diagonal encoder, found numerically."""
    W = W.numpy()
    d = W.shape[1]
    tau = beta / 2
    encoder = np.linalg.solve(W.T @ W + tau * np.eye(d), W.T)
    variance = tau / ((W**2).sum(0) + tau)
    rest = np.eye(len(W)) - W @ encoder
    error = np.trace(rest @ covariance @ rest.T) + (variance * (W**2).sum(0)).sum()
    spread = np.diag(encoder @ covariance @ encoder.T)
    return error + beta / 2 * (spread + variance - np.log(variance) - 1).sum()


@given(seed=seeds, beta=st.sampled_from([1e-4, 0.01, 0.3, 2.0]))
def test_the_excess_is_the_difference_of_the_losses(seed, beta):
    W = torch.randn(4, 3, generator=seeded(seed), dtype=torch.float64)
    root = np.random.default_rng(seed).standard_normal((4, 4))
    _, _, V = torch.linalg.svd(W, full_matrices=False)
    aligned = W @ V.T
    paid = best_linear_loss(W, root @ root.T, beta) - best_linear_loss(aligned, root @ root.T, beta)
    assert rotation_excess(W, beta=beta) == pytest.approx(paid, rel=1e-6, abs=1e-10)
    assert rotation_excess(aligned, beta=beta) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("degrees", "expected"), [(0, 0), (10, 0.0637), (20, 0.2090), (45, 0.4463)]
)
@pytest.mark.parametrize("beta", [1e-3, 0.1])
def test_the_excess_of_a_turned_linear_vae_does_not_depend_on_beta(degrees, expected, beta):
    eigenvalues = torch.tensor([1 / 3, 1 / 12], dtype=torch.float64)
    optimum = zs.theory.linear_vae_optimum(eigenvalues, gamma=0.5, beta=beta)
    turn = math.radians(degrees)
    V = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]).double()
    W = torch.diag(optimum.squared_weights.sqrt()) @ V.T
    assert rotation_excess(W, beta=beta) / (beta / 2) == pytest.approx(expected, abs=5e-5)


def test_for_small_beta_the_excess_is_beta_times_the_gap():
    assert rotation_excess(M2, beta=1e-6) / 1e-6 == pytest.approx(column_product(M2).gap, abs=1e-6)
    with pytest.raises(ConfigError, match="all rotations are equal"):
        rotation_excess(M1, beta=0)


# Optimal noise


def test_the_best_noise_is_inverse_to_the_columns():
    model, posterior = noisy(M1, [0.03 / 50, 0.03 / 3])
    found = optimal_noise(model, posterior)
    assert found.misspent == pytest.approx(0, abs=1e-9)
    assert found.efficiency == found.score == pytest.approx(1)
    assert found.slope == pytest.approx(1)
    assert found.misaligned == pytest.approx(column_product(M1).gap)  # 2/d a(J), d = 2
    assert (found.best[:, 0] / found.best[:, 1]).tolist() == pytest.approx([3 / 50] * 40)
    torch.testing.assert_close(found.best, found.actual)


@given(seed=seeds)
def test_no_noise_of_the_same_budget_costs_less(seed):
    J = torch.randn(5, 3, generator=seeded(seed), dtype=torch.float64)
    variances = torch.rand(3, generator=seeded(seed), dtype=torch.float64) + 0.01
    found = optimal_noise(*noisy(J, variances, samples=3), active="all")
    squares = J.square().sum(0)
    budget = -variances.log().sum()
    least = 3 * (squares.log().sum() / 3 - budget / 3).exp()
    assert float((squares * found.best[0]).sum()) == pytest.approx(float(least))
    assert float(-found.best[0].log().sum()) == pytest.approx(float(budget))
    paid = float((squares * variances).sum())
    assert found.misspent == pytest.approx(math.log(paid / float(least)), abs=1e-9)
    # With the best rotation too: d (det†)^(2/d) e^(-C/d).
    lowest = 3 * (torch.linalg.svdvals(J).log().sum() * 2 / 3 - budget / 3).exp()
    total = found.misspent + found.misaligned
    assert total == pytest.approx(math.log(paid / float(lowest)), abs=1e-9)
    # Moving precision from one latent to another never helps.
    for step in (-0.1, 0.1):
        moved = found.best[0] * torch.tensor([math.exp(step), math.exp(-step), 1])
        assert float((squares * moved).sum()) > float(least)


@given(seed=seeds)
def test_there_are_no_spurious_minima_over_rotations(seed):
    """A small turn of two columns that are not orthogonal, in the right direction, helps."""
    J = torch.randn(5, 3, generator=seeded(seed), dtype=torch.float64)
    before = column_product(J).log_columns
    turned = []
    for angle in (-1e-3, 1e-3):
        V = torch.eye(3, dtype=torch.float64)
        V[:2, :2] = torch.tensor([[1, -angle], [angle, 1]]) / math.sqrt(1 + angle**2)
        turned.append(column_product(J @ V.T).log_columns)
    assert min(turned) < before


def test_noise_in_the_wrong_places_is_seen():
    model, posterior = noisy(M1, [0.01, 0.01])
    found = optimal_noise(model, posterior)
    assert found.slope == pytest.approx(0, abs=1e-9)
    expected = math.log((50 + 3) / 2 / math.sqrt(150))
    assert found.misspent == pytest.approx(expected)
    assert found.budget == pytest.approx(2 * math.log(100))
    assert found.plot().get_ylabel().startswith("log")
    assert optimal_noise(*noisy(torch.eye(2).double(), [0.1, 0.2])).slope is None
    with pytest.raises(Undefined, match="no independent noise"):
        optimal_noise(model, zs.Posterior(posterior.mean))
    with pytest.raises(Undefined, match="ignores an active latent"):
        optimal_noise(*noisy(torch.diag(torch.tensor([1.0, 0]).double()), [0.1, 0.1]))


def test_with_fixed_distinct_noise_no_rotation_beats_the_principal_directions():
    """Theorem 2: reconstructions and noise fixed, the cheapest V is a signed permutation."""
    X = gaussian_codes(400, 4, scale=[3.0, 2.0, 1.0, 0.1]) @ random_rotation(4, 2)
    directions, values, _ = torch.linalg.svd((X - X.mean(0)).T, full_matrices=False)
    W = directions[:, :3] * values[:3] / math.sqrt(400)  # unit-variance codes
    noise = torch.tensor([0.1, 0.3, 0.6]).double()

    def cost(V, variances):
        return float(((W @ V.T).square().sum(0) * variances).sum())

    least = cost(torch.eye(3).double(), noise)  # largest direction, smallest noise
    budget = float(-noise.log().sum())

    def budgeted(V):
        squares = (W @ V.T).square().sum(0)
        return float(3 * ((squares.log().sum() - budget) / 3).exp())

    aligned = budgeted(torch.eye(3).double())
    for seed in range(300):
        V = random_rotation(3, seed)
        assert cost(V, noise) > least
        assert budgeted(V) > aligned
    # And the noise that goes with it has a std inverse to the singular values.
    scaled = noise / noise.log().mean().exp()
    best = 1 / W.square().sum(0)
    assert cost(torch.eye(3).double(), best / best.log().mean().exp()) < cost(
        torch.eye(3).double(), scaled
    )


# Loss decomposition


def test_a_linear_decoder_pays_column_by_column_and_has_no_cross_term():
    model, posterior = noisy(M1, [0.01, 0.2], samples=30)
    x = model.decode(posterior.mean) + 0.3
    found = loss_decomposition(model, x, posterior=posterior, draws=400)
    expected = 50 * 0.01 + 3 * 0.2
    assert found.linearised == pytest.approx(expected, rel=1e-9)
    # 200 independent draws of 30 posteriors: the error of a mean of chi-squares.
    assert found.stochastic == pytest.approx(expected, rel=5 * math.sqrt(2 / 6000))
    assert found.deterministic == pytest.approx(3 * 0.09)
    assert found.cross == pytest.approx(0, abs=1e-9)
    assert found.reconstruction == pytest.approx(found.deterministic + found.stochastic)
    assert found.score == pytest.approx(found.stochastic / found.reconstruction)


def test_the_parts_add_up_and_the_cross_term_is_that_of_a_curved_decoder():
    # x = z²: E x = mean² + σ², so that cross = 2 (mean² - truth) σ²; E (x - mean²)² known.
    square = World(lambda z: z.square(), lambda x: x, 1, std=0.5)
    mean = torch.tensor([[1.0], [2.0], [-1.5]]).double()
    posterior = zs.Posterior(mean, torch.full_like(mean, 0.5))
    truth = mean.square() + torch.tensor([[1.0], [-2.0], [0.5]]).double()
    found = loss_decomposition(square, truth, posterior=posterior, draws=20_000)
    variance = 0.25
    cross = 2 * (mean.square() - truth).flatten() * variance
    stochastic = (4 * mean.square() * variance + 3 * variance**2).flatten()
    torch.testing.assert_close(found.per_sample["cross"], cross, atol=0.05, rtol=0.05)
    torch.testing.assert_close(found.per_sample["stochastic"], stochastic, atol=0, rtol=0.05)
    linearised = (2 * mean).square().flatten() * variance
    torch.testing.assert_close(found.per_sample["linearised"], linearised)
    parts = found.per_sample
    total = parts["deterministic"] + parts["stochastic"] + parts["cross"]
    torch.testing.assert_close(parts["reconstruction"], total)
    direct = torch.stack([
        (posterior.sample(seeded(k)).square() - truth).square().sum(1) for k in range(4000)
    ]).mean(0)  # fmt: skip
    torch.testing.assert_close(parts["reconstruction"], direct, atol=0, rtol=0.08)


def test_full_covariances_pay_for_their_directions():
    L = torch.tensor([[0.3, 0], [0.2, 0.1]]).double()
    mean = gaussian_codes(20, 2)
    posterior = zs.Posterior(mean, scale_tril=L.expand(20, 2, 2).clone())
    model = decoder(M1)
    found = loss_decomposition(model, model.decode(mean), posterior=posterior, draws=200)
    assert found.linearised == pytest.approx(float(torch.trace(M1 @ L @ L.T @ M1.T)))
    assert found.stochastic == pytest.approx(found.linearised, rel=0.15)


def test_what_cannot_be_decomposed_is_refused():
    model, posterior = noisy(M1, [0.1, 0.1])
    x = model.decode(posterior.mean)
    with pytest.raises(ConfigError, match="draws=3; an even number"):
        loss_decomposition(model, x, posterior=posterior, draws=3)
    with pytest.raises(ConfigError, match="39 observations and 40 posteriors"):
        loss_decomposition(model, x[:39], posterior=posterior)
    with pytest.raises(Undefined, match="no noise to measure"):
        loss_decomposition(model, x, posterior=zs.Posterior(posterior.mean))
    with pytest.raises(ConfigError, match="decoded to 3 numbers"):
        loss_decomposition(model, x[:, :2], posterior=posterior)


# Predicted variance


def test_a_linear_vae_has_the_variance_its_decoder_calls_for():
    x = gaussian_codes(300, 4, scale=[2.0, 1.5, 1.0, 0.1]) @ random_rotation(4)
    linear_vae = zs.theory.fit_linear_vae(x, latents=4, gamma=0.5, beta=0.4)
    model, posterior = linear_vae.autoencoder(), linear_vae.posterior(x)
    found = predicted_variance(model, posterior, gamma=0.5 * 0.4, samples=50)
    torch.testing.assert_close(found.ratio, torch.ones(4).double(), rtol=1e-8, atol=0)
    assert found.correlation == pytest.approx(1)
    assert len(found.variance) == 50
    assert found.plot().get_ylabel() == "mean variance"
    # An encoder that is twice as sure as its decoder warrants is found out.
    sure = zs.Posterior(posterior.mean, posterior.std / 2)
    twice = predicted_variance(model, sure, gamma=0.2)
    assert twice.ratio.tolist() == pytest.approx([0.25] * 4)
    assert predicted_variance(model, posterior.mean, gamma=0.2).ratio is None


@pytest.mark.parametrize("diagonal", [True, False])
def test_beta_and_the_form_of_the_covariance_come_from_the_model(diagonal):
    """The best encoder of a linear decoder, whose columns are not orthogonal."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    linear = zs.theory.linear_vae(weights, gamma=0.3, beta=2.5, diagonal=diagonal)
    posterior = linear.posterior(torch.randn(40, 6, generator=generator, dtype=torch.float64))
    found = predicted_variance(linear.autoencoder(), posterior)
    assert (found.beta, found.gamma, found.diagonal) == (2.5, pytest.approx(0.75), diagonal)
    assert found.ratio.tolist() == pytest.approx([1, 1, 1])
    assert found.flags == []
    # With the wrong β, or the other form, the prediction misses.
    wrong = predicted_variance(linear.autoencoder(), posterior, gamma=0.3)
    other = predicted_variance(linear.autoencoder(), posterior, diagonal=not diagonal)
    assert (wrong.ratio - 1).abs().max() > 0.1
    assert (other.ratio - 1).abs().max() > 0.05


def test_a_stored_run_knows_its_beta(tmp_path):
    helix = zs.data.load("helix")
    model = zs.models.build(
        "beta-vae", shape=(3,), latents=2, hidden=(4,), beta=3.0, likelihood="mse"
    )
    zs.train(model, helix, steps=2, out=tmp_path / "run", progress=False)
    found = predicted_variance(zs.record(zs.load(tmp_path / "run"), helix, samples=20))
    assert (found.beta, found.gamma, found.diagonal) == (3, 1.5, True)


def test_the_likelihood_is_read_off_the_model_or_off_what_it_decodes():
    W = torch.tensor([[1.0, -2, 0.5, 2], [0.3, 1, 4, 0]]).double()
    pictures = World(lambda z: torch.sigmoid(z @ W.to(z)).unflatten(1, (1, 2, 2)), lambda x: x, 2)
    codes = gaussian_codes(6, 2)
    p = pictures.decode(codes).flatten(1)
    fisher = torch.einsum("ip,np,jp->nij", W, p * (1 - p), W)
    found = predicted_variance(pictures, codes, diagonal=True)
    assert (found.likelihood, found.gamma) == ("bernoulli", 1.0)
    torch.testing.assert_close(found.variance, 1 / (1 + fisher.diagonal(dim1=1, dim2=2)))
    rows = predicted_variance(decoder(M1), codes)
    assert (rows.likelihood, rows.gamma) == ("gaussian", 0.5)
    assert predicted_variance(pictures, codes, gamma=0.5).likelihood == "gaussian"
    pictures.likelihood_name = "gaussian"
    assert predicted_variance(pictures, codes).likelihood == "gaussian"
    built = zs.models.build("vae", shape=(1, 8, 8), latents=2)
    assert predicted_variance(built, codes.float()).likelihood == "bernoulli"


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_the_weight_of_the_divergence_and_the_diagonal_are_those_of_the_model(beta):
    # With an oblique decoder a diagonal posterior is narrower than the full one would be.
    W = torch.tensor([[2.0, 0, 0], [1.5, 1, 0]]).double()
    model = decoder(W.T)
    model.divergence_weight, model.likelihood_name = beta, "gaussian"
    mean = gaussian_codes(50, 2)
    best = 1 / (1 + W.square().sum(1) / (0.5 * beta))
    posterior = zs.Posterior(mean, best.sqrt().expand(50, 2))
    found = predicted_variance(model, posterior)
    torch.testing.assert_close(found.ratio, torch.ones(2).double())
    assert (found.beta, found.gamma, found.diagonal) == (beta, 0.5 * beta, True)
    assert "encoder / predicted  1.00 (median; 1.00 to 1.00 for 2 used latents)" in " ".join(
        str(found).split("\n")
    )
    assert not any("β" in flag for flag in found.flags)
    # Without both, the encoder looks wrong.
    full = predicted_variance(model, posterior, diagonal=False)
    assert full.ratio.max() < 0.8
    model.divergence_weight = None
    unknown = predicted_variance(model, posterior)
    assert any("β of the divergence is not known" in flag for flag in unknown.flags)
    assert (unknown.ratio.log() * torch.tensor(beta).log() > 0).all()
    # A full covariance is compared with the full prediction.
    sigma = torch.linalg.inv(torch.eye(2).double() + W @ W.T / 0.5)
    covariance = zs.Posterior(mean, scale_tril=torch.linalg.cholesky(sigma).expand(50, 2, 2))
    whole = predicted_variance(model, covariance)
    assert not whole.diagonal
    torch.testing.assert_close(whole.ratio, torch.ones(2).double())


def test_a_trained_linear_vae_is_as_precise_as_predicted():
    # Eigenvalues 16, 4 and 0.25: only two are encoded, with variances β γ / λ.
    beta, eigenvalues = 2.0, torch.tensor([16.0, 4.0, 0.25])
    x = gaussian_codes(2000, 3)
    x = torch.linalg.qr(x - x.mean(0)).Q * (2000 * eigenvalues).sqrt() @ random_rotation(3, 3)
    model = zs.models.build("beta-vae", shape=(3,), latents=3, beta=beta, backbone="linear")
    # Steps that shrink: a constant rate leaves the weights moving around the optimum.
    steps = {"steps": 700, "rate": 0.05, "schedule": "cosine", "batch": 256}
    run = zs.train(model, x.float(), progress=False, **steps)
    recording = zs.record(run.model, x.float())
    found = predicted_variance(recording)
    exact = zs.theory.linear_vae_optimum(eigenvalues, gamma=0.5, beta=beta)
    means = found.actual.mean(0).sort().values
    torch.testing.assert_close(means, exact.variance, rtol=0.1, atol=0)
    assert (found.beta, found.gamma, found.diagonal) == (beta, 0.5 * beta, True)
    assert found.used == recording.used
    assert len(found.used) == 2
    assert found.ratio[found.used].tolist() == pytest.approx([1, 1], abs=0.08)
    assert "for 2 used latents" in str(found)
    # Without β the encoder would look too uncertain.
    assert predicted_variance(recording, gamma=0.5).ratio[found.used].min() > 1.5


@pytest.mark.parametrize("diagonal", [True, False])
def test_pruned_and_rotated_models_keep_the_likelihood_and_the_weight_of_the_divergence(diagonal):
    W = torch.diag(torch.tensor([2.0, 1.5, 0.5])).double() @ random_rotation(3, 5)[:, :2]
    model = zs.theory.linear_vae(W, gamma=0.1, beta=3, diagonal=diagonal).autoencoder()
    models = [model, zs.prune(model, [1, 0])]
    if not diagonal:  # a diagonal posterior is not the best one along other axes
        models.append(zs.rotate_latents(model, random_rotation(2, 1)))
    for each in models:
        found = predicted_variance(each, each.encode(gaussian_codes(50, 3)))
        assert (found.gamma, found.flags) == (pytest.approx(0.3), [])
        torch.testing.assert_close(found.ratio, torch.ones(2).double())


def test_models_of_the_catalogue_state_the_weight_of_their_divergence():
    def weight(name, **options):
        return zs.models.build(name, shape=(4,), latents=2, **options).divergence_weight

    assert weight("vae") == 1
    assert weight("beta-vae", beta=2.5) == 2.5
    assert weight("beta-vae-full", beta=3) == 3
    assert weight("beta-tcvae", beta=6) is None  # weights only the total correlation
    assert weight("ae") is None
    gaussian = zs.models.build("vae", shape=(4,), latents=2, likelihood="gaussian", gamma=0.1)
    assert gaussian.likelihood_variance == pytest.approx(0.1)
    assert predicted_variance(gaussian, gaussian_codes(6, 2).float()).gamma == pytest.approx(0.1)
    learned = zs.models.build("vae", shape=(4,), latents=2, likelihood="gaussian", gamma="learned")
    assert learned.likelihood_variance == 1
    assert zs.models.build("vae", shape=(4,), latents=2).likelihood_variance is None


def test_alignment_assays_name_their_metric():
    W = torch.tensor([[1.0, -2, 0.5, 2], [0.3, 1, 4, 0]]).double()
    pictures = World(lambda z: torch.sigmoid(z @ W.to(z)).unflatten(1, (1, 2, 2)), lambda x: x, 2)
    mean = gaussian_codes(20, 2)
    posterior = zs.Posterior(mean, torch.full_like(mean, 0.3))
    loss = loss_decomposition(pictures, pictures.decode(mean) * 0.9, posterior=posterior)
    assert loss.metric == "pixels"
    assert any("decomposes squared error" in flag and "Bernoulli" in flag for flag in loss.flags)
    assert alignment_gap(pictures, posterior).metric == "pixels"
    fisher = alignment_gap(pictures, posterior, likelihood="bernoulli")
    assert fisher.metric == "Fisher information of pixels"
    noise, distance = (
        optimal_noise(pictures, posterior),
        distance_to_orthogonality(pictures, posterior),
    )
    assert "Fisher information of pixels" in str(noise)
    assert "pixels" in str(distance)
    # Rows have no Bernoulli likelihood, so the squared error is that of the loss.
    rows = decoder(M1)
    plain = loss_decomposition(rows, rows.decode(mean) + 0.1, posterior=posterior)
    assert not any("Bernoulli" in flag for flag in plain.flags)

"""Linear VAEs trained to convergence: the optimum is known in closed form.

With λ_1 >= λ_2 >= ... the variances of the data along their principal directions and γ
the variance of the decoder (1/2 for `mse`), at the optimum of a linear β-VAE

    σ_j² = min(1, βγ/λ_j),   ||w_j||² = max(λ_j - βγ, 0),   Var(mean_j) = 1 - σ_j²

and w_j points along principal direction j.
"""

import math

import pytest
import torch

import zscope as zs
from zscope.randomness import Tape


def sprung(eigenvalues, seed=0):
    """Rows whose covariance has exactly these eigenvalues, their mean, and the directions."""
    variances = torch.tensor(eigenvalues, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    size = len(variances)
    noise = torch.randn(size, size, generator=generator, dtype=torch.float64)
    directions = torch.linalg.qr(noise).Q
    spokes = torch.diag((variances * size).sqrt()) @ directions.T
    middle = torch.randn(size, generator=generator, dtype=torch.float64)
    return torch.cat([spokes, -spokes]) + middle, middle, directions


def square_linear(rho=2.0):
    """(ρ w_1, w_2, 0) turned by 45° about (1, -1, 1), w uniform on the unit square.

    The two-point Gauss rule has the mean and variance of U[0, 1] exactly, so four rows
    stand for the whole square.
    """
    node = 1 / (2 * math.sqrt(3))
    corners = [[0.5 + a, 0.5 + b] for a in (-node, node) for b in (-node, node)]
    w = torch.tensor(corners, dtype=torch.float64)
    axis = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64) / math.sqrt(3)
    cross = torch.linalg.cross(axis.expand(3, 3), torch.eye(3).double(), dim=1).T
    angle = math.pi / 4
    turn = torch.eye(3).double() + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross
    flat = torch.stack([rho * w[:, 0], w[:, 1], torch.zeros(4).double()], dim=1)
    return flat @ turn.T, turn


def crossed(x, latents):
    """Each row once for each of 2 x latents noises that have the moments of N(0, I).

    The loss of a linear decoder is quadratic in the noise, so the mean over these is its
    expectation, exactly, through the model's own code.
    """
    arms = math.sqrt(latents) * torch.eye(latents, dtype=torch.float64)
    noises = torch.cat([arms, -arms])
    return x.repeat_interleave(2 * latents, dim=0), noises.repeat(len(x), 1)


def expected_loss(model, x):
    xs, noise = crossed(x, model.latents)
    return model.losses(xs, Tape([noise])).total


def by_hand(model, x, beta, gamma, constant):
    """The expected loss, written out: no step in common with the model's own."""
    head, last = model.encoder.head, model.decoder.layers[0]
    n = model.latents
    mean = x @ head.weight[:n].T + head.bias[:n]
    variance = torch.exp(x @ head.weight[n:].T + head.bias[n:])
    residual = x - mean @ last.weight.T - last.bias
    squares = residual.square().sum(1) + variance @ last.weight.square().sum(0)
    divergence = 0.5 * (mean.square() + variance - 1 - variance.log()).sum(1)
    return (squares / (2 * gamma) + constant + beta * divergence).mean()


def converged(model, x, rounds=30):
    """Full-batch L-BFGS on the expected loss until nothing changes."""
    optimiser = torch.optim.LBFGS(
        model.parameters(),
        max_iter=100,
        history_size=50,
        tolerance_grad=1e-10,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        loss = expected_loss(model, x)
        loss.backward()
        return loss

    before = math.inf
    for _ in range(rounds):
        now = optimiser.step(closure).item()
        if before - now < 1e-10:
            break
        before = now
    return expected_loss(model, x).item()


def linear(name, shape, latents, **options):
    model = zs.models.build(name, shape=shape, latents=latents, backbone="linear", **options)
    return model.double()


def ranked(model, x):
    """Posterior variances, decoder columns and means, most precise latent first."""
    posterior = model.encode(x)
    order = posterior.variance.mean(0).argsort()
    columns = model.decoder.layers[0].weight.detach()
    return posterior.variance[:, order].detach(), columns[:, order], posterior.mean[:, order]


@pytest.mark.parametrize(
    ("beta", "loss", "variances"),
    [(0.01, 0.045066, (0.015, 0.06)), (0.1, 0.220397, (0.15, 0.6))],
)
def test_the_square_reaches_the_known_minimum(beta, loss, variances):
    x, turn = square_linear()
    model = linear("beta-vae", (3,), 2, beta=beta, seed=1)  # mse is the default for rows
    assert converged(model, x) == pytest.approx(loss, abs=1e-6)
    variance, columns, mean = ranked(model, x)
    expected = torch.tensor(variances, dtype=torch.float64)
    assert torch.allclose(variance, expected.expand(4, 2), rtol=1e-3)
    assert torch.allclose(mean.var(0, correction=0), 1 - expected, atol=1e-3)
    eigenvalues = torch.tensor([1 / 3, 1 / 12], dtype=torch.float64)
    assert torch.allclose(columns.square().sum(0), eigenvalues - beta / 2, rtol=1e-3)
    cosines = (turn[:, :2].T @ (columns / columns.norm(dim=0))).abs()
    assert torch.allclose(cosines, torch.eye(2).double(), atol=2e-3)


@pytest.mark.parametrize(("beta", "active"), [(0.15, 2), (0.18, 1), (0.64, 1), (0.70, 0)])
def test_latents_of_the_square_collapse_at_one_sixth_and_two_thirds(beta, active):
    x, _ = square_linear()
    model = linear("beta-vae", (3,), 2, beta=beta, likelihood="mse")
    minimum = converged(model, x)
    tau, used, unused = beta / 2, [1 / 3, 1 / 12][:active], [1 / 3, 1 / 12][active:]
    expected = sum(tau * (1 + math.log(v / tau)) for v in used) + sum(unused)
    assert minimum == pytest.approx(expected, abs=1e-7)
    assert int((ranked(model, x)[0].mean(0) < 0.99).sum()) == active


def test_the_square_at_beta_one_prunes_everything():
    x, _ = square_linear()
    model = linear("vae", (3,), 2)
    assert converged(model, x) == pytest.approx(5 / 12, abs=1e-8)
    assert torch.allclose(model.encode(x).kl(), torch.zeros(4, 2).double(), atol=1e-6)


@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_posterior_variances_are_beta_gamma_over_the_eigenvalues(beta):
    eigenvalues, gamma, latents = [9.0, 4.0, 0.5, 0.2], 0.3, 3
    x, middle, directions = sprung(eigenvalues)
    model = linear("beta-vae", (4,), latents, likelihood="gaussian", gamma=gamma, beta=beta)
    minimum = converged(model, x)

    price = beta * gamma
    used = [v for v in eigenvalues[:latents] if v > price]
    unused = sum(eigenvalues[len(used) :])
    squares = sum(price * (1 + math.log(v / price)) for v in used) + unused
    constant = 2 * math.log(2 * math.pi * gamma)
    assert minimum == pytest.approx(squares / (2 * gamma) + constant, abs=1e-8)

    variance, columns, mean = ranked(model, x)
    expected = torch.tensor([min(1, price / v) for v in eigenvalues[:latents]]).double()
    assert torch.allclose(variance, expected.expand(8, 3), atol=1e-4)
    assert torch.allclose(mean.var(0, correction=0), 1 - expected, atol=1e-4)
    divergence = model.encode(x).kl().mean(0).sort(descending=True).values
    assert torch.allclose(divergence, -0.5 * expected.log(), atol=1e-4)
    active = columns[:, : len(used)]
    cosines = (directions[:, : len(used)].T @ (active / active.norm(dim=0))).abs()
    assert torch.allclose(cosines, torch.eye(len(used)).double(), atol=1e-3)
    assert columns[:, len(used) :].norm().item() < 1e-2
    assert torch.allclose(model.decode(torch.zeros(1, 3).double())[0], middle, atol=1e-4)


def test_squared_error_is_not_a_gaussian_of_variance_one():
    """Negative control for the missing half: gamma = 1 doubles every posterior variance."""
    x, _ = square_linear()
    half = linear("beta-vae", (3,), 2, beta=0.05, likelihood="gaussian", gamma=0.5)
    one = linear("beta-vae", (3,), 2, beta=0.05, likelihood="gaussian", gamma=1.0)
    plain = linear("beta-vae", (3,), 2, beta=0.05, likelihood="mse")
    losses = [converged(model, x) for model in (half, one, plain)]
    assert losses[0] == pytest.approx(losses[2] + 1.5 * math.log(math.pi), abs=1e-9)
    sure = [ranked(model, x)[0].mean(0) for model in (half, one, plain)]
    assert torch.allclose(sure[0], sure[2], rtol=1e-3)
    assert torch.allclose(sure[1], 2 * sure[2], rtol=1e-3)


def test_a_learned_gamma_is_the_variance_left_over():
    """Probabilistic PCA: γ is the mean of the eigenvalues that no latent explains, and at
    β = 1 the loss is its negative log-likelihood (Tipping & Bishop, 1999, eq. 8)."""
    x, _, _ = sprung([9.0, 4.0, 0.7, 0.3, 0.2])
    model = linear("vae", (5,), 2, likelihood="gaussian", gamma="learned")
    minimum = converged(model, x)
    left = (0.7 + 0.3 + 0.2) / 3
    assert model.likelihood.gamma.item() == pytest.approx(left, rel=1e-4)
    log_determinant = math.log(9) + math.log(4) + 3 * math.log(left)
    expected = 0.5 * (5 * math.log(2 * math.pi) + log_determinant + 5)
    assert minimum == pytest.approx(expected, abs=1e-7)


def test_a_linear_autoencoder_leaves_the_smallest_eigenvalues_and_no_basis():
    x, _, directions = sprung([9.0, 4.0, 0.7, 0.3])
    model = linear("ae", (4,), 2)
    assert converged(model, x) == pytest.approx(1.0, abs=1e-8)
    columns = torch.linalg.qr(model.decoder.layers[0].weight.detach()).Q
    spanned = torch.linalg.svdvals(directions[:, :2].T @ columns)
    assert torch.allclose(spanned, torch.ones(2).double(), atol=1e-4)
    cosines = (directions[:, :2].T @ columns).abs()
    assert cosines.max().item() < 0.999  # the subspace, not the directions


@pytest.mark.parametrize(("likelihood", "gamma"), [("mse", None), ("gaussian", 0.3)])
def test_sampled_losses_agree_with_the_expected_loss(likelihood, gamma):
    x, _, _ = sprung([2.0, 1.0, 0.5, 0.2])
    options = {} if gamma is None else {"gamma": gamma}
    model = linear("beta-vae", (4,), 3, beta=2.0, likelihood=likelihood, seed=3, **options)
    variance = gamma or 0.5
    constant = 0 if gamma is None else 2 * math.log(2 * math.pi * variance)
    exact = by_hand(model, x, 2.0, variance, constant)
    assert expected_loss(model, x).item() == pytest.approx(exact.item(), rel=1e-12)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([model.losses(x.repeat(200, 1), generator).total for _ in range(100)])
    error = draws.std().item() / math.sqrt(len(draws))
    assert abs(draws.mean().item() - exact.item()) < 4 * error
    assert error < 0.01 * exact.item()
    without_noise = model.losses(x, Tape([torch.zeros(8, 3).double()])).total.item()
    assert abs(without_noise - exact.item()) > 20 * error  # the noise matters, and is there

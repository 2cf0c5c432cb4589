"""Likelihood, regularised likelihood and best ELBO over the precision of a decoder."""

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy import optimize
from worlds import World, gaussian_codes, random_rotation

import zscope as zs
from zscope.assays import CATALOGUE, alignment_gap, ima_curve
from zscope.assays.choosing import choose
from zscope.assays.run import passes
from zscope.errors import ConfigError, Undefined

M1 = torch.tensor([[4.0, 1], [-3, 1], [5, -1]], dtype=torch.float64)
POINTS = gaussian_codes(6, 2)


def turn(degrees):
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def sheared(z):
    """Bent, with columns that are not orthogonal."""
    a, b = z[:, 0], z[:, 1]
    return torch.stack([a + 0.5 * b + 0.2 * a.sin(), b + 0.1 * a * a], 1)


def conformal(z):
    """exp of complex numbers: bent, and all columns are orthogonal and equally long."""
    return torch.view_as_real((0.3 * torch.complex(z[:, 0], z[:, 1])).exp() * 3)


# Linear decoders, exactly

GAPS = [0.00052, 0.01036, 0.04084, 0.05436, 0.05619, 0.05640]


def test_the_gaps_of_the_worked_example():
    result = ima_curve(M1, POINTS, precisions=[0.01, 0.1, 1, 10, 100, 1e8])
    assert result.exact
    assert result.gap.tolist() == pytest.approx(GAPS, abs=5e-6)
    assert result.contrast == pytest.approx(0.05640, abs=5e-6)
    assert result.score == pytest.approx(result.contrast, abs=1e-7)
    turned = ima_curve(M1 @ turn(45).T, POINTS, precisions=[1e8])  # M2
    assert turned.contrast == pytest.approx(0.8167, abs=1e-4)
    assert turned.score == pytest.approx(0.8167, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_likelihood_and_elbo_are_those_of_the_linear_vae(seed):
    W = gaussian_codes(5, 3, seed)
    points, x = gaussian_codes(7, 3, seed + 9), gaussian_codes(7, 5, seed + 5)
    result = ima_curve(W, points, precisions=[0.3, 4, 50], observations=x)
    for k, precision in enumerate(result.precisions):
        vae = zs.theory.linear_vae(W, gamma=1 / precision)
        expected = vae.log_likelihood(x)
        torch.testing.assert_close(result.per_sample["log likelihood"][k], expected)
        torch.testing.assert_close(result.per_sample["elbo"][k], vae.elbo(x))
    gram = W.T @ W
    columns = (1 + 4 * gram.diagonal()).log().sum()
    whole = torch.logdet(torch.eye(3).double() + 4 * gram)
    assert result.gap[1] == pytest.approx(float(columns - whole) / 2)


def test_orthogonal_columns_have_no_gap_at_any_precision_and_rotated_ones_do():
    W = random_rotation(4)[:, :2] * torch.tensor([3.0, 1.0])
    levels = [0.01, 1, 100, 1e4]
    assert ima_curve(W, POINTS, precisions=levels).gap.tolist() == pytest.approx([0] * 4, abs=1e-9)
    before = ima_curve(W, POINTS, precisions=levels)
    rotated = ima_curve(W @ turn(30), POINTS @ turn(30), precisions=levels)
    torch.testing.assert_close(rotated.log_likelihood, before.log_likelihood)
    assert (rotated.gap > 1e-4).all()
    flipped = ima_curve(W.flip(1) * torch.tensor([-1, 1]), POINTS, precisions=levels)
    torch.testing.assert_close(flipped.gap, before.gap)


def test_an_affine_model_is_recognised_and_a_slightly_bent_one_is_not():
    def bent(amount):
        return lambda z: z @ M1.T + 1 + amount * z[:, :1] ** 2

    assert ima_curve(bent(0), POINTS, precisions=[1]).exact
    assert not ima_curve(bent(1e-3), POINTS, precisions=[1]).exact
    model = zs.wrap(lambda x: x[:, :2], lambda z: z @ M1.T.float() + 1, latents=2)
    result = ima_curve(model, POINTS.float(),
                       precisions=[0.01, 0.1, 1, 10, 100, 1e5], active="all")  # fmt: skip
    assert result.exact
    assert result.gap.tolist() == pytest.approx(GAPS, abs=1e-5)


# Other decoders, by sampling


def test_sampling_is_exact_for_a_decoder_that_is_nearly_linear():
    result = ima_curve(lambda z: z @ M1.T + 1e-6 * z[:, :1] ** 2, POINTS, precisions=[0.1, 1, 10])
    assert not result.exact
    assert result.gap.tolist() == pytest.approx(GAPS[1:4], abs=1e-4)
    assert result.effective.min() > 999


def quadrature(precision, x):
    """log p and ELBO* by sums over a grid and a general optimiser: another route to both."""
    side = np.linspace(-6, 6, 1201)
    a, b = np.meshgrid(side, side, indexing="ij")
    z = torch.from_numpy(np.stack([a.ravel(), b.ravel()], 1))
    rest = (sheared(z) - x).square().sum(1)
    log_joint = -0.5 * precision * rest - 0.5 * z.square().sum(1)
    constant = math.log(precision / (2 * math.pi)) - math.log(2 * math.pi)
    log_p = float(log_joint.logsumexp(0)) + 2 * math.log(side[1] - side[0]) + constant

    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    e = torch.from_numpy(np.stack([each.ravel() for each in np.meshgrid(nodes, nodes)], 1))
    w = torch.from_numpy(np.outer(weights, weights).ravel() / weights.sum() ** 2)

    def negative(parameters):
        mean, log = torch.from_numpy(parameters[:2]), torch.from_numpy(parameters[2:])
        error = (w * (sheared(mean + log.exp() * e) - x).square().sum(1)).sum()
        kl = 0.5 * (mean.square() + (2 * log).exp() - 1).sum() - log.sum()
        return float(0.5 * precision * error - math.log(precision / (2 * math.pi)) + kl)

    best = optimize.minimize(negative, np.array([0, 0, -1, -1.0]), method="Nelder-Mead",
                             options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4000})  # fmt: skip
    return log_p, -best.fun


@pytest.mark.parametrize("precision", [1.0, 30.0])
def test_a_bent_decoder_agrees_with_quadrature(precision):
    point = torch.tensor([[0.6, -0.4]], dtype=torch.float64)
    result = ima_curve(sheared, point, precisions=[precision], draws=4000, noise=256)
    log_p, elbo = quadrature(precision, sheared(point)[0])
    assert result.log_likelihood[0] == pytest.approx(log_p, abs=0.01)
    assert result.elbo[0] == pytest.approx(elbo, abs=0.003)
    assert result.elbo[0] < log_p


def test_the_gap_tends_to_the_contrast_and_vanishes_for_a_conformal_decoder():
    points = 0.7 * gaussian_codes(12, 2)
    result = ima_curve(sheared, points, precisions=[1, 10, 100, 10_000])
    rest = (result.elbo - result.regularised).abs()
    assert (rest[1:] < rest[:-1]).all()
    assert result.gap[-1] == pytest.approx(result.contrast, rel=0.02)
    assert result.gap[0] < 0.5 * result.contrast
    model = World(sheared, lambda x: x, 2, prior="normal", std=0.1)
    expected = alignment_gap(model, points, active="all", samples=12).gap
    assert result.contrast == pytest.approx(expected)
    control = ima_curve(conformal, points, precisions=[10, 10_000])
    assert control.contrast == pytest.approx(0, abs=1e-9)
    assert control.gap[-1] == pytest.approx(0, abs=2e-3)


def test_latents_that_are_not_active_stay_as_they_are():
    def three(z):
        return torch.cat([sheared(z[:, :2]), z[:, 2:]], 1)

    points = gaussian_codes(5, 3)
    result = ima_curve(three, points, precisions=[100], active=[0, 1], draws=200)
    alone = ima_curve(sheared, points[:, :2], precisions=[100], draws=200)
    assert result.passive == [2]
    assert result.gap.tolist() == pytest.approx(alone.gap.tolist(), abs=1e-3)


# Refusals, figure, catalogue


def test_too_few_effective_samples_are_refused_with_a_way_forward():
    def folded(z):
        """Thousands of codes explain an observation equally well: no Gaussian is near them."""
        return torch.stack([(40 * z[:, 0]).sin(), (40 * z[:, 1]).sin()], 1)

    with pytest.raises(Undefined, match=r"fewer than 50 of 200 .* are effective .*more draws"):
        ima_curve(folded, POINTS, precisions=[3.0], draws=200)


def test_what_has_no_curve_is_refused():
    with pytest.raises(ConfigError, match=r"precisions=\[0\.0\].*above 0"):
        ima_curve(M1, POINTS, precisions=[0.0])
    with pytest.raises(ConfigError, match="draws=1"):
        ima_curve(M1, POINTS, draws=1)
    with pytest.raises(Undefined, match=r"weights of shape \(2, 3\).*Transpose"):
        ima_curve(M1.T, POINTS)
    with pytest.raises(Undefined, match="linearly dependent, so c is infinite"):
        ima_curve(torch.ones(3, 2), POINTS)
    with pytest.raises(Undefined, match="6 points and observations of shape"):
        ima_curve(M1, POINTS, observations=torch.ones(5, 3))
    with pytest.raises(Undefined, match="1 of 2 latents are active"):
        ima_curve(M1, POINTS, active=[0])


def test_the_figure_has_three_curves_and_the_gap():
    result = ima_curve(M1, POINTS)
    figure = result.plot()
    assert isinstance(figure, Figure)
    assert [len(ax.lines) for ax in figure.axes] == [3, 2]
    assert {ax.get_xscale() for ax in figure.axes} == {"log"}
    assert result.plot(ax=figure.axes[0]) is figure.axes[0]


def test_it_is_measured_only_if_it_is_named_and_costs_what_it_states():
    class Counting(World):
        decodings = 0

        def decode(self, z):
            derivatives = torch._C._functorch.maybe_current_level() is not None
            self.decodings += len(z) * (2 if derivatives else 1)
            return self.decoder(z)

    entry = CATALOGUE["ima-curve"]
    assert entry not in choose(None)
    assert entry not in choose(["alignment"])
    assert choose(["ima-curve"]) == [entry]
    assert "only if it is named" in entry.cost_text
    world = Counting(sheared, lambda x: x, 2, prior="normal", std=0.1)
    recording = zs.record(world, gaussian_codes(300, 2).float())
    stated = passes(entry, recording, {})
    world.decodings = 0
    result = ima_curve(recording)
    assert result.samples == 32
    assert 0.5 * stated < world.decodings < 1.5 * stated
    report = zs.assay(recording, names=["ima-curve"])
    assert report.results["ima-curve"].gap.tolist() == result.gap.tolist()

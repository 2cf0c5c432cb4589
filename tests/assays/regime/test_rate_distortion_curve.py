"""Curves of rate against distortion: closed forms, what breaks them, and the area between two."""

import math

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import theory
from zscope.errors import ConfigError, Undefined

EIGENVALUES = torch.tensor([9.0, 4, 2, 1, 0.5, 0.2, 0.1, 0.05], dtype=torch.float64)
GAMMA = 0.3
BETAS = [1, 2, 4, 8]
RATES = [4.8017, 3.1600, 1.8649, 0.9163]
DISTORTIONS = [5.6190, 7.9523, 11.6190, 16.9523]


def closed_form(beta: float) -> tuple[float, float]:
    """Rate and distortion of the best linear model."""
    used = EIGENVALUES.gt(beta * GAMMA)
    active = EIGENVALUES[used]
    passive = EIGENVALUES[~used]
    rate = 0.5 * float((active / (beta * GAMMA)).log().sum())
    constant = 0.5 * len(EIGENVALUES) * math.log(2 * math.pi * GAMMA)
    lost = float(passive.sum()) + len(active) * beta * GAMMA
    return rate, constant + lost / (2 * GAMMA)


def exact_data(samples: int = 400) -> torch.Tensor:
    """Rows whose covariance has exactly these eigenvalues."""
    x = torch.randn(samples, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left, _, right = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    return left @ right * math.sqrt(samples) * EIGENVALUES.sqrt()


def test_linear_models_have_the_rates_and_distortions_of_the_closed_form():
    x = exact_data()
    for beta, rate, distortion in zip(BETAS, RATES, DISTORTIONS, strict=True):
        model = theory.fit_linear_vae(x, latents=8, gamma=GAMMA, beta=beta)
        assert closed_form(beta) == (
            pytest.approx(rate, abs=5e-5),
            pytest.approx(distortion, abs=5e-5),
        )
        assert float(model.posterior(x).kl().sum(1).mean()) == pytest.approx(rate, abs=5e-5)
        assert -float(model.reconstruction(x).mean()) == pytest.approx(distortion, abs=5e-5)
        measured = zs.assays.rate_distortion(model.autoencoder(), x.repeat(3, 1), samples=1200)
        assert measured.rate == pytest.approx(rate, abs=5e-5)
        error = 4 * measured.standard_errors["distortion"]
        assert measured.distortion == pytest.approx(distortion, abs=error)


def test_the_slopes_of_the_best_models_lie_between_their_betas_and_tend_to_beta():
    curve = zs.assays.rate_distortion_curve(BETAS, RATES, DISTORTIONS)
    assert curve.violations == []
    for slope in curve.slopes:
        assert slope.low < slope.slope < slope.high
    near = [3.0, 3.0001]
    points = np.array([closed_form(beta) for beta in near])
    fine = zs.assays.rate_distortion_curve(near, *points.T)
    assert fine.slopes[0].slope == pytest.approx(3, abs=1e-3)
    assert fine.violations == []


@pytest.mark.parametrize(
    ("beta", "worse_by", "violated", "excess"),
    [
        (2, 0.5, [], 0.0),  # still below what its neighbours reach at its β
        (2, 1.5, [(1.0, 2.0), (2.0, 4.0)], 1.5),
        (8, 3.0, [(4.0, 8.0)], 3.0),
    ],
)
def test_a_model_that_is_not_at_its_optimum_is_named(beta, worse_by, violated, excess):
    distortions = np.array(DISTORTIONS)
    distortions[BETAS.index(beta)] += worse_by
    curve = zs.assays.rate_distortion_curve(BETAS, RATES, distortions)
    assert [(slope.low, slope.high) for slope in curve.violations] == violated
    assert all(slope.worse == beta for slope in curve.violations)
    # The loss of the neighbour at this β, from the closed forms.
    at = BETAS.index(beta)
    own = distortions[at] + beta * RATES[at]
    for slope in curve.violations:
        other = BETAS.index(slope.low if slope.high == beta else slope.high)
        assert slope.excess == pytest.approx(own - DISTORTIONS[other] - beta * RATES[other])
        assert 0 < slope.excess < excess
    lenient = zs.assays.rate_distortion_curve(BETAS, RATES, distortions, tolerance=worse_by)
    assert lenient.violations == []


def test_rates_in_the_wrong_order_and_equal_rates_are_judged_by_the_losses():
    swapped = zs.assays.rate_distortion_curve([1, 2], RATES[1::-1], DISTORTIONS[1::-1])
    assert swapped.violations  # although the slope is the same, between 1 and 2
    assert 1 < swapped.slopes[0].slope < 2
    collapsed = zs.assays.rate_distortion_curve([4, 8], [0, 0], [3.0, 3.0])
    assert (collapsed.slopes[0].slope, collapsed.violations) == (None, [])
    worse = zs.assays.rate_distortion_curve([4, 8], [0, 0], [3.0, 3.5])
    assert (worse.violations[0].worse, worse.violations[0].excess) == (8, 0.5)
    assert "equal rates" in repr(worse)


def test_slopes_are_taken_within_a_seed():
    shifted = [d + 100 for d in DISTORTIONS]
    curve = zs.assays.rate_distortion_curve(
        BETAS * 2, RATES * 2, DISTORTIONS + shifted, seeds=[0] * 4 + [7] * 4
    )
    assert len(curve.slopes) == 6
    assert curve.violations == []
    assert curve.seeds == [0, 7]
    assert curve.means[0] == (1, pytest.approx(RATES[0]), pytest.approx(DISTORTIONS[0] + 50))
    rows = curve.records()
    assert len(rows) == 8
    assert rows[0]["elbo"] == pytest.approx(-RATES[0] - DISTORTIONS[0])
    assert rows[3]["slope"] is None


def test_the_area_between_parallel_curves_is_their_distance_times_the_common_rates():
    first = zs.assays.rate_distortion_curve(BETAS, RATES, DISTORTIONS, name="wide")
    above = zs.assays.rate_distortion_curve(BETAS, RATES, np.add(DISTORTIONS, 0.7), name="narrow")
    area = zs.assays.area_between(first, above)
    assert area.difference == pytest.approx(0.7)
    assert area.area == pytest.approx(0.7 * (RATES[0] - RATES[-1]))
    assert area.seeds == {0: pytest.approx(0.7)}
    assert zs.assays.area_between(above, first).area == pytest.approx(-area.area)
    assert zs.assays.area_between(first, first).area == 0
    assert "distortion of narrow beyond wide" in repr(area)
    # Other points of the same line change nothing.
    line = zs.assays.rate_distortion_curve([1, 2], [4, 0], [0, 8])
    finer = zs.assays.rate_distortion_curve([1, 1.5, 2], [3, 2, 1], [2, 4, 6])
    assert zs.assays.area_between(line, finer).area == pytest.approx(0)
    assert zs.assays.area_between(line, finer).rates == (1, 3)


def test_curves_without_a_common_rate_and_impossible_numbers_are_refused():
    low = zs.assays.rate_distortion_curve([1, 2], [2, 1], [1, 2])
    high = zs.assays.rate_distortion_curve([1, 2], [9, 8], [1, 2])
    with pytest.raises(Undefined, match="no range is common to both.*more values of β"):
        zs.assays.area_between(low, high)
    with pytest.raises(Undefined, match="never negative"):
        zs.assays.rate_distortion_curve([1, 2], [-1, 0], [1, 2])
    with pytest.raises(ConfigError, match="2 betas.*3 rates"):
        zs.assays.rate_distortion_curve([1, 2], [1, 2, 3], [1, 2])
    with pytest.raises(ConfigError, match="two models have β = 1 and seed 0.*another setting"):
        zs.assays.rate_distortion_curve([1, 1], [1, 2], [1, 2])


def test_the_figure_has_lines_of_equal_elbo():
    import matplotlib.pyplot as plt

    curve = zs.assays.rate_distortion_curve(BETAS, RATES, DISTORTIONS)
    ax = curve.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("rate, nats", "distortion, nats")
    dotted = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
    assert len(dotted) >= 3
    for line in dotted:
        assert np.ptp(line.get_xdata() + line.get_ydata()) == pytest.approx(0, abs=1e-9)
    texts = [text.get_text() for text in ax.texts]
    best = RATES[0] + DISTORTIONS[0]
    assert f"ELBO {-best:.4g}" in texts
    assert "β = 8" in texts
    plt.close("all")

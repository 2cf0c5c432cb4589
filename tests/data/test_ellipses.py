"""Ellipses with continuous factors: area, place and aspect in closed form."""

import math
import pickle

import numpy as np
import pytest

import zscope as zs
from zscope.data import options_in_force
from zscope.data.ellipses import area_of_disc, coverage
from zscope.errors import ConfigError

AREA = math.pi * 11.6 * 7.35 / 64**2  # of the ellipse of scale 1, the side being 1


def moments(images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Area, centre (x, y) and variance (x, y) of pictures from 0 to 1; the side is 1."""
    side = images.shape[-1]
    place = (np.arange(side) + 0.5) / side
    total = images.sum((1, 2))
    along = [images.sum(1) / total[:, None], images.sum(2) / total[:, None]]
    centre = np.stack([each @ place for each in along], 1)
    square = np.stack([each @ place**2 for each in along], 1)
    return total / side**2, centre, square - centre**2 - 1 / 12 / side**2


def test_the_area_of_the_disc_is_that_of_another_integral():
    x, y = np.random.default_rng(0).uniform(-1.3, 1.3, (2, 50))
    t = -1 + (np.arange(40_000) + 0.5) / 20_000
    half = np.sqrt(1 - t**2)
    lengths = np.clip(y[:, None], -half, half) + half
    expected = (lengths * (t < x[:, None])).sum(1) / 20_000
    assert area_of_disc(x, y) == pytest.approx(expected, abs=2e-4)
    assert area_of_disc(np.array([2.0, 0, 0]), np.array([2.0, 2, 0])) == pytest.approx(
        [math.pi, math.pi / 2, math.pi / 4], abs=1e-12
    )


def test_a_pixel_is_the_covered_fraction_of_its_area():
    x, y, width, height = (np.array([v]) for v in (0.41, 0.53, 0.2, 0.11))
    fine = (np.arange(8 * 200) + 0.5) / (8 * 200)
    inside = ((fine - x) / width) ** 2 + ((fine[:, None] - y) / height) ** 2 < 1
    counted = inside.reshape(8, 200, 8, 200).mean((1, 3))
    assert coverage(x, y, width, height, 8)[0] == pytest.approx(counted, abs=5e-3)


@pytest.mark.parametrize("resolution", [16, 64])
def test_area_place_and_aspect_are_the_factors(resolution):
    data = zs.data.load("sprites", resolution=resolution, continuous=300)
    assert data.factor_names == ("scale", "position_x", "position_y", "aspect")
    assert data.factor_kinds == ("continuous",) * 4
    assert data.factor_sizes == (0,) * 4
    assert data.images.dtype == np.uint8
    scale, x, y, aspect = data.factors.T
    # whole pixels sample the moments: half axes may be as short as 1.2 pixels
    area, centre, variance = moments(np.asarray(data.images)[:, 0] / 255)
    assert area == pytest.approx(AREA * scale**2, rel=0.01)
    assert centre == pytest.approx((16.5 + 31 * np.stack([x, y], 1)) / 64, abs=0.06 / resolution)
    # an ellipse has the variance of a quarter of each squared half axis
    half = np.sqrt(AREA / math.pi) * scale
    axes = np.stack([half * np.sqrt(aspect), half / np.sqrt(aspect)], 1)
    assert variance == pytest.approx(axes**2 / 4, abs=0.1 / resolution**2)
    if resolution == 64:
        ratio = np.sqrt(variance[:, 0] / variance[:, 1])
        assert ratio == pytest.approx(aspect, rel=0.01)


def test_factors_fill_their_ranges_independently_and_none_is_cut_off():
    data = zs.data.load("sprites", resolution=16, continuous=4000)
    scale, x, y, aspect = data.factors.T
    unit = np.stack([2 * scale - 1, x, y, (np.log2(aspect) + 1) / 2], 1)
    assert unit.min() >= 0
    assert unit.max() <= 1
    for column in unit.T:  # Kolmogorov-Smirnov distance to uniform, far beyond the 1 % point
        assert np.abs(np.sort(column) - np.arange(4000) / 4000).max() < 2 / math.sqrt(4000)
    assert np.abs(np.corrcoef(unit.T) - np.eye(4)).max() < 4 / math.sqrt(4000)
    images = np.asarray(data.images)[:, 0]
    border = np.concatenate([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], 1)
    assert border.max() == 0
    assert len(np.unique(images.reshape(4000, -1), axis=0)) == 4000


def test_a_row_depends_on_the_seed_and_its_number_only():
    few, many, other = (
        zs.data.load("sprites", resolution=16, continuous=count, subset_seed=seed)
        for count, seed in ((50, 0), (80, 0), (50, 1))
    )
    assert (few.factors == many.factors[:50]).all()
    assert (few.images[:] == many.images[:50]).all()
    assert (many.images[[7]] == many.images[7]).all()
    assert not np.isclose(few.factors, other.factors).any(1).all()
    again = zs.data.from_recipe(few.recipe)
    assert (again.images[:] == few.images[:]).all()
    assert (pickle.loads(pickle.dumps(few.images))[3:5] == few.images[3:5]).all()


def test_choices_of_the_grid_are_refused_and_without_the_option_nothing_changes():
    with pytest.raises(ConfigError, match="shape='ellipse' has no effect"):
        zs.data.load("sprites", continuous=10, shape="ellipse")
    with pytest.raises(ConfigError, match="continuous=0; expected a number of pictures"):
        zs.data.load("sprites", continuous=0)
    with pytest.raises(ConfigError, match="sprites-color has no option 'continuous'"):
        zs.data.load("sprites-color", continuous=10)
    assert options_in_force("sprites", {"continuous": None}) == {}

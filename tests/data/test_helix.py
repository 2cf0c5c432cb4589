"""The double helix: points where the formula says, noise of the size that is asked for."""

import numpy as np
import pytest

import zscope as zs
from zscope.data.helix import strand
from zscope.errors import ConfigError


def test_the_default_is_that_of_the_paper():
    data = zs.data.load("helix")
    assert len(data) == 1024
    assert data.shape == (3,)
    assert data.images.dtype == np.float32
    assert data.factor_names == ("t", "strand")
    assert data.factor_kinds == ("continuous", "categorical")
    assert data.factor_sizes == (0, 2)


def test_without_noise_every_point_lies_on_its_strand():
    data = zs.data.load("helix", noise=0, amplitude=(1, 2, 3), frequency=1.5)
    t, n = data.factors.T
    expected = np.stack(
        [np.cos(np.pi * (1.5 * t + n)), 2 * np.sin(np.pi * (1.5 * t + n)), 3 * t], axis=1
    )
    assert data.images == pytest.approx(expected, abs=1e-6)


def test_the_strands_are_half_a_turn_apart():
    t = np.linspace(-1, 1, 21)
    assert strand(t, 1) == pytest.approx(strand(t, 0) * [-1, -1, 1])
    assert strand(0.0, 0) == pytest.approx([1, 0, 0])
    assert strand(0.5, 0) == pytest.approx([0, 1, 0.5])


def test_the_noise_has_the_given_standard_deviation_in_every_direction():
    data = zs.data.load("helix", samples=40_000, noise=0.2)
    residual = data.images - strand(data.factors[:, 0], data.factors[:, 1])
    assert np.cov(residual.T) == pytest.approx(0.04 * np.eye(3), abs=0.002)


def test_factors_are_uniform_and_fair():
    t, n = zs.data.load("helix", samples=40_000).factors.T
    assert np.abs(t).max() <= 1
    assert t.var() == pytest.approx(1 / 3, abs=0.01)
    assert n.mean() == pytest.approx(0.5, abs=0.01)
    assert set(np.unique(n)) == {0, 1}


def test_a_seed_repeats_the_points_and_another_does_not():
    one, again, other = (zs.data.load("helix", seed=seed).images for seed in (1, 1, 2))
    assert (one == again).all()
    assert not np.isclose(one, other).any(axis=1).all()


def test_impossible_options_are_refused_with_an_example():
    for options in ({"noise": -1.0}, {"amplitude": (1, 2)}):
        with pytest.raises(ConfigError, match="amplitude=1,1,2"):
            zs.data.load("helix", **options)

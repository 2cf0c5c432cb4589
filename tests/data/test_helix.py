"""The double helix: points where the formula says, noise of the size that is asked for."""

import numpy as np
import pytest

import zscope as zs
from zscope.data.helix import follow_strands, strand
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


def test_a_path_along_a_strand_stays_on_it():
    t = np.linspace(-0.8, 0.7, 101)
    path = follow_strands(np.stack([strand(t, 0), strand(t, 1)]))
    assert path.changes.tolist() == [0, 0]
    assert path.share_changed == 0
    assert path.nearest[1].tolist() == [1] * 101
    assert path.farthest == pytest.approx([0, 0], abs=3e-5)
    twisted = strand(t, 1, amplitude=(1, 2, 3), frequency=1.5)
    along = follow_strands(twisted, amplitude=(1, 2, 3), frequency=1.5)
    assert along.farthest == pytest.approx(0, abs=1e-4)
    assert follow_strands(twisted).farthest > 0.5  # of a helix of another shape


def test_a_straight_line_through_the_axis_changes_strand_where_it_crosses():
    """From (1, 0, 0) to (-1, 0, 0), where t = 0 on both strands: half of it on each."""
    line = np.linspace(strand(0.0, 0), strand(0.0, 1), 101)[None]
    crossing = follow_strands(line)
    assert crossing.changes.tolist() == [1]
    assert crossing.share_changed == 1
    assert crossing.nearest[0, :50].tolist() == [0] * 50
    assert crossing.nearest[0, 51:].tolist() == [1] * 50
    # Its end is on the other strand. By hand: how far is that from the strand it should follow?
    t = np.linspace(-1, 1, 200_001)
    by_hand = np.linalg.norm(strand(t, 0) - strand(0.0, 1), axis=1).min()
    assert crossing.distance[0, -1] == pytest.approx(by_hand, abs=3e-5)
    assert follow_strands(line, 1).distance[0, -1] == pytest.approx(0, abs=3e-5)


def test_a_shift_across_the_strand_is_its_distance():
    """Along the radius, which is at right angles to the strand."""
    t = np.linspace(-0.5, 0.5, 11)
    outside = strand(t, 0) * [1.2, 1.2, 1]
    assert follow_strands(outside).distance == pytest.approx(0.2, abs=1e-4)


def test_codes_in_place_of_decoded_points_are_refused():
    with pytest.raises(ConfigError, match=r"shape \(101, 2\).*Decode them first"):
        follow_strands(np.zeros((101, 2)))

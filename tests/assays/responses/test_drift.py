"""Drift: iterated responses with known fixed points, rates, basins and cycles."""

import json
import math

import numpy as np
import pytest
import torch
from worlds import curved, gaussian_codes, identity, linear, permuted, responding, seeded, turning

from zscope.assays.responses.drift import drift
from zscope.assays.responses.maps import response_map
from zscope.errors import ConfigError

ZERO = torch.zeros(2, dtype=torch.float64)


def wells(strength=0.5):
    """R moves z_0 towards the nearest of -1 and 1, and z_1 towards 0.

    x -> x + s (x - x^3) / 2 rests at -1, 0 and 1, with derivatives 1 - s, 1 + s/2, 1 - s.
    """

    def response(z):
        x = z[:, :1]
        return torch.cat([x + strength * (x - x**3) / 2, 0.25 * z[:, 1:]], 1)

    return responding(response, 2)


def test_two_wells_are_two_fixed_points_with_the_rates_of_their_derivatives():
    codes = torch.rand(400, 2, generator=seeded(0), dtype=torch.float64) * 3 - 1.5
    found = drift(wells(), codes)
    assert not found.unconverged
    assert sorted(found.fixed_points[:, 0].tolist()) == pytest.approx([-1, 1], abs=1e-3)
    assert np.allclose(found.fixed_points[:, 1], 0, atol=1e-3)
    assert found.rates.tolist() == pytest.approx([0.5, 0.5], abs=1e-3)
    right = found.fixed_points[found.basin][:, 0] > 0
    assert torch.equal(right, codes[:, 0] > 0)
    assert found.share.sum() == pytest.approx(1)
    assert found.share[0] >= found.share[1]


def test_a_code_that_starts_on_a_saddle_stays_and_the_saddle_does_not_attract():
    found = drift(wells(), torch.tensor([[0.0, 0.0], [0.5, 0.3]], dtype=torch.float64))
    saddle = int(found.basin[0])
    assert np.allclose(found.fixed_points[saddle], 0, atol=1e-6)
    assert found.rates[saddle] == pytest.approx(1.25, abs=1e-3)
    assert dict(found.summary())["fixed points"] == "2 (1 attracting)"


def test_the_basins_of_a_map_are_its_half_planes():
    plane = response_map(wells(), ZERO, grid=10, extent=(-1.5, 1.5, -1, 1))
    found = drift(plane, grid=12)
    assert found.basins.shape == (12, 12)
    ends = found.fixed_points[found.basins][..., 0]
    assert np.allclose(ends.sign(), found.axes[0].sign()[:, None].expand(12, 12))


def test_the_trajectory_of_a_linear_response_is_its_powers():
    matrix = torch.tensor([[0.5, 0.2], [0.0, -0.3]], dtype=torch.float64)
    start = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    found = drift(responding(lambda z: z @ matrix.T, 2), start)
    for step in range(6):
        expected = torch.linalg.matrix_power(matrix, step) @ start[0]
        assert np.allclose(found.trajectories[0, step], expected, atol=1e-12)
    assert np.allclose(found.limits, 0, atol=1e-3)
    assert found.rates.tolist() == pytest.approx([0.5], abs=1e-6)


def test_the_rate_is_the_ratio_of_the_last_steps():
    """Another route to the rate: how the orbit itself shrinks."""
    found = drift(curved(3, seed=1), gaussian_codes(1, 3), steps=500, tolerance=1e-6)
    assert not found.unconverged
    way = found.trajectories[0, : int(found.passes[0]) + 1]
    steps = (way[1:] - way[:-1]).norm(dim=1)
    usable = steps[steps > 1e-9]
    shrink = (usable[-1] / usable[-11]) ** 0.1
    assert found.rates[0] == pytest.approx(shrink.item(), rel=0.05)


def test_slow_codes_are_not_taken_for_arrived_ones():
    """At rate 0.98 a step is within the tolerance when the limit is still 50 steps away."""
    slow = responding(lambda z: 0.98 * z, 2)
    codes = gaussian_codes(50, 2)
    few = drift(slow, codes, steps=200)
    assert len(few.unconverged) == 50
    assert (0.02 * few.limits.norm(dim=1) < few.tolerance).all()
    assert len(few.fixed_points) == 0
    many = drift(slow, codes, steps=800)
    assert not many.unconverged
    assert len(many.fixed_points) == 1
    assert many.limits.norm(dim=1).max() <= 1.01 * many.tolerance


def test_a_projection_stops_after_one_pass_on_a_line_of_fixed_points():
    world = linear(torch.tensor([[1.0], [2.0]], dtype=torch.float64))
    codes = gaussian_codes(2000, 2)
    found = drift(world, codes)
    expected = world.encode(world.decode(codes)).mean
    assert np.allclose(found.limits, expected, atol=1e-9)
    assert found.passes.max() <= 3
    assert found.rates[0] == pytest.approx(1, abs=1e-6)  # nothing contracts along the line
    assert found.spread[0] > 100 * found.tolerance


def test_every_code_of_an_identity_autoencoder_is_a_fixed_point():
    codes = gaussian_codes(30, 2)
    found = drift(identity(2), codes)
    assert not found.unconverged
    assert torch.equal(found.limits, codes)
    assert len(found.fixed_points) == 30
    assert np.allclose(found.rates, 1)
    assert np.allclose(found.spread, 0)


def test_cycles_are_reported_as_not_converged():
    angle = 2 * math.pi / 5
    rotation = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]],
        dtype=torch.float64,
    )
    codes = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    found = drift(turning(rotation), codes)
    assert found.unconverged == [0]
    assert found.basin.tolist() == [-1, 0]
    assert found.passes[0] == 200


def test_nothing_converged_is_an_answer_too():
    found = drift(responding(lambda z: 2 * z, 2), gaussian_codes(4, 2), steps=10)
    assert found.unconverged == [0, 1, 2, 3]
    assert found.fixed_points.shape == (0, 2)
    json.dumps(found.to_dict())
    assert dict(found.summary())["not converged"] == "4 of 4 codes"


def test_permuting_latents_and_codes_permutes_the_answer():
    world, codes, order = curved(3, seed=1), gaussian_codes(20, 3), [2, 0, 1]
    one = drift(world, codes, steps=500)
    other = drift(permuted(world, order), codes[:, order].flip(0), steps=500)
    assert np.allclose(one.limits[:, order], other.limits.flip(0), atol=1e-9)
    assert sorted(one.rates.tolist()) == pytest.approx(sorted(other.rates.tolist()), abs=1e-4)


def test_the_ways_of_evenly_chosen_codes_are_kept():
    found = drift(wells(), gaussian_codes(101, 2) * 0.5, trajectories=3)
    assert found.followed == [0, 50, 100]
    assert torch.equal(found.trajectories[:, -1], found.limits[[0, 50, 100]])


def test_basins_need_a_map():
    found = drift(wells(), ZERO[None])
    with pytest.raises(ConfigError, match="not taken from a map"):
        _ = found.basins


def test_codes_or_a_map_are_asked_for():
    with pytest.raises(ConfigError, match="no codes to follow"):
        drift(wells())
    plane = response_map(wells(), ZERO, grid=3, extent=(-1, 1))
    with pytest.raises(ConfigError, match="both a map and codes"):
        drift(plane, ZERO[None])
    with pytest.raises(ConfigError, match="at least one pass"):
        drift(wells(), ZERO[None], steps=0)


def test_codes_that_run_away_leave_the_others_their_answer():
    """z -> z^3 pulls |z| < 1 to 0 and drives the rest beyond what single precision can hold."""
    codes = torch.tensor([[0.5, -0.3], [1.5, 0.2], [0.2, -3.0]])
    found = drift(responding(lambda z: z**3, 2), codes)
    assert found.unconverged == [1, 2]
    assert np.allclose(found.fixed_points, [[0, 0]], atol=1e-6)
    assert found.limits.isfinite().all()
    doubled = drift(responding(lambda z: 2 * z, 2), codes)
    assert doubled.unconverged == [0, 1, 2]
    assert (doubled.passes < 30).all()


def test_a_leap_beside_a_point_that_repels_is_no_arrival():
    """4 z (1 - z) sends 1 - 1e-9 to within 4e-9 of 0, from where it grows fourfold a pass."""
    chaotic = responding(lambda z: 4 * z * (1 - z), 1)
    codes = torch.tensor([[0.3], [1 - 1e-9], [0.7]], dtype=torch.float64)
    assert drift(chaotic, codes).unconverged == [0, 1, 2]


def test_a_line_of_fixed_points_does_not_attract_along_itself():
    codes = gaussian_codes(200, 2).float() + 3
    line = responding(lambda z: z * torch.tensor([0.0, 1.0]), 2)
    assert "(0 attracting)" in dict(drift(line, codes).summary())["fixed points"]


@pytest.mark.parametrize("options", [{"trajectories": -1}, {"steps": -3}, {"grid": 0}])
def test_numbers_that_cannot_be_meant_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        drift(identity(2), gaussian_codes(5, 2), **options)

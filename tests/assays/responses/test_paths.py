"""Manifold paths: against light rays, rings with known costs, and the double helix."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import nn
from worlds import World, curved, gaussian_codes, identity, permuted, responding, seeded

import zscope as zs
from zscope.assays.responses.chains import resample
from zscope.assays.responses.maps import response_map
from zscope.assays.responses.paths import manifold_path
from zscope.errors import ConfigError, InterfaceError

ZERO = torch.zeros(2, dtype=torch.float64)
K = 0.8


def point(*values):
    return torch.tensor(values, dtype=torch.float64)


def rings(latents=2):
    """The manifold is the circles of radius 1, 2, … around the origin of two latents.

    r -> r - K sin(2 pi r) / (2 pi) moves along the radius only, so |F| is known; latents
    beyond the first two are sent to 0.
    """

    def response(z):
        plane = z[:, :2]
        radius = plane.norm(dim=1, keepdim=True).clamp_min(1e-12)
        moved = radius - K * torch.sin(2 * math.pi * radius) / (2 * math.pi)
        return torch.cat([plane * moved / radius, 0.2 * z[:, 2:]], 1)

    return responding(response, latents)


def on_rings(samples=600, latents=2, seed=0):
    angle = 2 * math.pi * torch.rand(samples, generator=seeded(seed), dtype=torch.float64)
    radius = torch.randint(1, 3, (samples,), generator=seeded(seed + 1))
    codes = torch.zeros(samples, latents, dtype=torch.float64)
    codes[:, 0], codes[:, 1] = radius * angle.cos(), radius * angle.sin()
    return codes


def radii(path):
    return path.points[:, :2].norm(dim=1)


def even(points):
    steps = (points[1:] - points[:-1]).norm(dim=1)
    # A polyline cut at equal arc length has chords that are shorter where it bends.
    return bool((steps.max() - steps.min()) / steps.max() < 0.02)


@pytest.mark.parametrize("everywhere", [False, True])
def test_the_path_keeps_to_its_ring_where_the_straight_line_crosses_others(everywhere):
    world, codes = rings(), on_rings()
    subject = world if everywhere else response_map(world, ZERO, extent=(-2.5, 2.5), codes=codes)
    path = manifold_path(
        subject, point(2, 0), point(-2, 0), codes=codes, temperature=1e-4, cost="field"
    )
    assert (radii(path) - 2).abs().max() < 0.05
    # The straight line crosses radii 2 to 0 and back: the integral of (K/2pi)^2 sin^2 is half.
    assert path.straight_cost == pytest.approx(2 * (K / (2 * math.pi)) ** 2, rel=1e-6)
    assert path.cost < 0.01 * path.straight_cost
    assert path.length == pytest.approx(2 * math.pi, rel=0.01)
    assert path.straight_length == pytest.approx(4)
    assert even(path.points)
    assert even(path.straight)


def test_the_path_in_more_latents_stays_where_those_rest():
    world, codes = rings(4), on_rings(latents=4)
    path = manifold_path(
        world, point(2, 0, 0, 0), point(-2, 0, 0, 0), codes=codes, temperature=1e-3, cost="field"
    )
    assert (radii(path) - 2).abs().max() < 0.1
    assert path.points[:, 2:].abs().max() < 0.1
    assert path.dims is None


def test_a_high_temperature_gives_the_straight_line_and_a_low_one_does_not():
    plane = response_map(rings(), ZERO, extent=(-2.5, 2.5))
    hot = manifold_path(plane, point(2, 0), point(-2, 0), temperature=1e4)
    assert torch.equal(hot.points, hot.straight)
    assert hot.cost == hot.straight_cost
    cold = manifold_path(plane, point(2, 0), point(-2, 0), temperature=1e-4)
    assert (cold.points - cold.straight).abs().max() > 1


def snell(slow, start, end):
    """Where light that is `slow` times slower above y = 0 crosses it, and the least time."""

    def time(x):
        below = math.hypot(x - start[0], start[1])
        return below + slow * math.hypot(end[0] - x, end[1])

    best = minimize_scalar(time, bounds=(-1, 1), method="bounded", options={"xatol": 1e-10})
    return best.x, best.fun


@pytest.mark.parametrize("slow", [1.5, 10.0])
def test_the_path_refracts_as_light_does_between_two_media(slow):
    """|F|^2 + temperature is 1 below and `slow` above: the cheapest path obeys Snell's law."""
    temperature = 0.5

    def response(z):
        square = torch.where(z[:, 1:] > 0, slow - temperature, 1 - temperature)
        return torch.cat([z[:, :1] + square.sqrt(), z[:, 1:]], 1)

    plane = response_map(responding(response, 2), ZERO, extent=(-1, 1), grid=100)
    start, end = (-0.8, -0.9), (0.7, 0.8)
    path = manifold_path(plane, point(*start), point(*end), temperature=temperature)
    crossing, least = snell(slow, start, end)
    total = path.cost + temperature * path.length
    assert least * (1 - 2e-3) <= total <= least * 1.01  # the map smears the surface by a cell
    above = int((path.points[:, 1] > 0).nonzero()[0, 0])
    assert path.points[above, 0].item() == pytest.approx(crossing, abs=0.05)


def test_the_graph_alone_finds_the_light_ray_within_its_directions():
    """Without drawing out, 32 directions are at most 1.3 % too long, 8 would be 8 %."""
    plane = response_map(identity(2), ZERO, extent=(-1, 1), grid=60)
    worst = 0.0
    for angle in torch.linspace(0, math.pi, 13)[:-1]:
        end = 0.9 * point(math.cos(angle), math.sin(angle))
        path = manifold_path(plane, -end, end, temperature=1.0, relax=0)
        chain = plane_chain(plane, torch.stack([-end, end]))
        worst = max(worst, (chain[1:] - chain[:-1]).norm(dim=1).sum().item() / 1.8)
        assert path.length == pytest.approx(1.8)  # the straight line is a candidate
    assert 1.0 <= worst < 1.02


def plane_chain(plane, ends):
    from zscope.assays.responses.paths import _Plane

    space = _Plane(plane)
    space.choose("field")
    return space.graph_path(ends, 1.0, 0)


@pytest.mark.parametrize("everywhere", [False, True])
def test_an_identity_autoencoder_costs_nothing_and_goes_straight(everywhere):
    codes = gaussian_codes(100, 2)
    subject = identity(2) if everywhere else response_map(identity(2), ZERO, extent=(-3, 3))
    path = manifold_path(subject, point(-1, 0.3), point(2, 1), codes=codes, cost="field")
    assert path.cost == path.straight_cost == 0
    assert np.allclose(path.points, resample(torch.stack([point(-1, 0.3), point(2, 1)]), 101))


@settings(max_examples=4)
@given(seed=st.integers(0, 1000))
def test_the_path_never_costs_more_than_the_straight_line(seed):
    world = curved(2, seed=seed)
    plane = response_map(world, ZERO, extent=(-2, 2), grid=20)
    start, end = gaussian_codes(2, 2, seed=seed).clamp(-2, 2)
    path = manifold_path(plane, start, end, relax=20)
    assert 0 <= path.cost <= path.straight_cost * (1 + 1e-9)
    assert path.length >= path.straight_length * (1 - 1e-9)
    assert torch.equal(path.points[0], start)
    assert torch.equal(path.points[-1], end)


def test_exchanging_the_ends_reverses_the_path():
    plane = response_map(curved(2), ZERO, extent=(-2, 2), grid=40)
    there = manifold_path(plane, point(-1.5, 1), point(1, -1.2))
    back = manifold_path(plane, point(1, -1.2), point(-1.5, 1))
    assert there.cost == pytest.approx(back.cost, rel=1e-2)
    assert (there.points - back.points.flip(0)).abs().max() < 0.05


def test_permuting_the_latents_permutes_the_path():
    world, codes, order = rings(3), on_rings(300, 3), [2, 0, 1]
    one = manifold_path(world, codes[0], codes[1], codes=codes, relax=5)
    other = manifold_path(
        permuted(world, order), codes[0][order], codes[1][order], codes=codes[:, order], relax=5
    )
    assert one.cost == pytest.approx(other.cost, rel=1e-2)
    assert (one.points[:, order] - other.points).abs().max() < 0.05


def test_the_path_of_a_map_runs_in_its_plane_with_the_other_latents_at_the_base():
    base = point(7, 0, 8, 0)

    def response(z):
        return torch.cat([z[:, :1], 0.5 * z[:, 1:2], z[:, 2:3], 0.5 * z[:, 3:]], 1)

    plane = response_map(responding(response, 4), base, (3, 1), extent=(-1, 1))
    path = manifold_path(plane, point(-1, 1), point(9, 0.5, 9, 1))  # a plane pair, a whole vector
    assert path.dims == (3, 1)
    assert torch.equal(path.points[0], point(7, 1, 8, -1))
    assert torch.equal(path.points[-1], point(7, 0.5, 8, 1))
    assert (path.points[:, [0, 2]] == point(7, 8)).all()
    # |F|^2 = (z_1^2 + z_3^2) / 4 along the straight line, where z_3 = 1 - 4 z_1 … by quadrature.
    share = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    square = ((-1 + 2 * share) ** 2 + (1 - 0.5 * share) ** 2) / 4
    exact = square.mean().item() * math.hypot(2, 0.5)
    assert path.straight_cost == pytest.approx(exact, rel=1e-5)


def test_the_mean_field_is_what_a_map_of_several_bases_is_judged_by():
    """Bases pull to +1 and -1: each alone has a field, their mean has none along latent 0."""

    def response(z):
        return torch.cat([z[:, :1] + z[:, 2:], z[:, 1:]], 1)

    bases = torch.tensor([[0.0, 0, 1], [0, 0, -1]], dtype=torch.float64)
    plane = response_map(responding(response, 3), bases, (0, 1), extent=(-1, 1), grid=10)
    path = manifold_path(plane, point(-1, 0), point(1, 0))
    assert path.straight_cost == pytest.approx(0, abs=1e-20)
    assert torch.equal(path.points, path.straight)  # not lured by rounding
    single = response_map(responding(response, 3), bases[0], (0, 1), extent=(-1, 1), grid=10)
    assert manifold_path(single, point(-1, 0), point(1, 0)).straight_cost == pytest.approx(2)


def test_frames_are_decoded_at_equal_arc_length():
    world = rings()
    plane = response_map(world, ZERO, extent=(-2.5, 2.5))
    path = manifold_path(plane, point(2, 0), point(-2, 0), temperature=1e-4, frames=5)
    quarters = path.points[[0, 25, 50, 75, 100]]
    assert np.allclose(path.frames, quarters, atol=1e-6)  # rings() decodes to the code itself
    assert np.allclose(path.straight_frames[:, 0], [2, 1, 0, -1, -2])


def test_identical_ends_are_a_path_without_length():
    plane = response_map(rings(), ZERO, extent=(-2.5, 2.5), grid=20)
    for path in (
        manifold_path(plane, point(1, 0), point(1, 0)),
        manifold_path(rings(), point(1, 0), point(1, 0), codes=on_rings(50)),
    ):
        assert path.cost == path.length == 0
        assert (path.points == point(1, 0)).all()
        json.dumps(path.to_dict())


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_the_density_keeps_to_the_codes_where_the_field_says_nothing(everywhere, seed):
    """An identity is self-consistent everywhere; the codes are an arc of a circle."""
    generator = seeded(seed)
    angle = math.pi * torch.rand(400, generator=generator, dtype=torch.float64)
    radius = 1 + 0.02 * torch.randn(400, generator=generator, dtype=torch.float64)
    codes = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    world, ends = identity(2), (codes[angle.argmin()], codes[angle.argmax()])
    subject = world if everywhere else response_map(world, ZERO, extent=(-1.5, 1.5), codes=codes)
    path = manifold_path(subject, *ends, codes=codes)
    assert path.minimised == "density"
    assert (radii(path) - 1).abs().max() < 0.1
    assert path.warning is None
    assert path.code_distance.max() < path.code_limit < path.straight_code_distance.max()
    # Both lengths are known: the model decodes a code to itself.
    assert path.decoded_length == pytest.approx(path.length, rel=1e-3)
    assert path.length == pytest.approx(math.pi, rel=0.05)
    assert path.straight_decoded_length == pytest.approx(2, rel=0.05)
    assert path.largest_jump == pytest.approx(path.length / 100, rel=0.1)
    paper = manifold_path(subject, *ends, codes=codes, cost="field")
    assert torch.equal(paper.points, paper.straight)
    assert "leaves the data" in paper.warning
    assert "straight line" in dict(paper.summary())["decoded length"]


@pytest.mark.parametrize("reverse", [False, True])
def test_an_outlier_at_an_end_is_not_called_a_path_that_leaves_the_data(reverse):
    """The first code lies apart; between any others of a filled square nothing is left."""
    codes = 2 * torch.rand(600, 2, generator=seeded(5), dtype=torch.float64) - 1
    ends = [point(1.5, 0), point(0, 0)][:: -1 if reverse else 1]
    path = manifold_path(identity(2), *ends, codes=codes, samples=600)
    assert (
        f"the {'end' if reverse else 'start'} of the path is far from other codes" in path.warning
    )
    assert path.warning == dict(path.summary())["warning"]
    within = manifold_path(identity(2), point(-0.5, 0), point(0.5, 0), codes=codes, samples=600)
    assert within.warning is None


def test_the_density_is_that_of_all_codes_however_few_are_connected():
    """Among few codes a gap is hardly wider than their spacing, and paths cut across it."""
    codes = on_rings(2000)
    few, most, fewer = (
        manifold_path(identity(2), point(2, 0), point(-2, 0), codes=codes[:count], samples=samples)
        for count, samples in ((2000, 60), (2000, 2000), (60, 60))
    )
    assert torch.equal(few.straight_code_distance, most.straight_code_distance)
    assert few.code_limit == most.code_limit
    assert few.straight_code_distance.max() > 3 * fewer.straight_code_distance.max()
    for path in (few, most):
        assert (radii(path) - 2).abs().max() < 0.1


def test_in_a_ball_of_many_latents_the_straight_line_does_not_leave_the_codes():
    """As in a VAE that fills its prior: the middle is nearer to codes than the ends are."""
    codes = gaussian_codes(400, 10)
    first, second = codes[0], codes[(codes @ codes[0]).argmin()]
    path = manifold_path(identity(10), first, second, codes=codes, cost="field")
    assert torch.equal(path.points, path.straight)
    middle = path.code_distance[40:61].max()
    assert middle < path.code_limit


def test_a_jump_of_the_decoder_is_reported():
    """Codes on both sides of 0 decode 10 apart."""
    world = World(lambda z: z + 5 * z[:, :1].sign(), lambda x: x - 5 * x[:, :1].sign(), 2)
    codes = gaussian_codes(300, 2)
    path = manifold_path(world, point(-1, 0), point(1, 0), codes=codes, relax=0)
    assert path.largest_jump == pytest.approx(200**0.5, rel=0.02)
    assert path.decoded_length > path.length + 10


def test_without_codes_the_map_has_only_its_field():
    plane = response_map(rings(), ZERO, extent=(-2.5, 2.5), grid=10)
    path = manifold_path(plane, point(2, 0), point(-2, 0), relax=0)
    assert path.minimised == "field"
    assert path.code_distance is None
    assert path.warning is None
    with pytest.raises(ConfigError, match="needs codes of data"):
        manifold_path(plane, point(2, 0), point(-2, 0), cost="density")


def test_two_islands_are_joined_by_asking_for_more_neighbours():
    near = gaussian_codes(20, 2, scale=0.1)
    codes = torch.cat([near, near + 10])
    path = manifold_path(
        identity(2), point(0, 0), point(10, 10), codes=codes, neighbours=1, cost="field"
    )
    assert path.length == pytest.approx(math.hypot(10, 10))
    assert "leaves the data" in path.warning
    assert path.warning in dict(path.summary())["warning"]


def test_duplicated_codes_do_no_harm():
    codes = on_rings(100).repeat(5, 1)
    path = manifold_path(rings(), codes[0], codes[1], codes=codes, neighbours=3)
    assert math.isfinite(path.cost)


def test_the_same_call_gives_the_same_path():
    codes = on_rings(3000)
    one, two = (
        manifold_path(rings(), codes[0], codes[9], codes=codes, samples=200) for _ in range(2)
    )
    assert torch.equal(one.points, two.points)


def test_a_model_without_gradients_is_told_what_to_do():
    world = responding(lambda z: torch.from_numpy(0.5 * z.detach().numpy()), 2)
    codes = gaussian_codes(50, 2)
    with pytest.raises(InterfaceError, match="no gradient.*relax=0"):
        manifold_path(world, codes[0], codes[1], codes=codes, cost="field")
    path = manifold_path(world, codes[0], codes[1], codes=codes, relax=0, cost="field")
    assert path.cost <= path.straight_cost
    manifold_path(world, codes[0], codes[1], codes=codes)  # the density needs no gradients


def test_an_end_off_the_map_is_refused_with_the_range():
    plane = response_map(rings(), ZERO, extent=(-1, 1), grid=5)
    with pytest.raises(ConfigError, match="end \\(3, 0\\) lies off the map.*-1 to 1.*wider"):
        manifold_path(plane, point(0, 0), point(3, 0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0.0}, "above 0"),
        ({"points": 1}, "at least its two ends"),
        ({"frames": 1}, "at least its two ends"),
        ({"codes": None}, "needs codes"),
        ({"start": point(1, 0, 0)}, "start has 3 numbers"),
    ],
)
def test_unusable_arguments_are_named(options, words):
    given = {"start": point(1, 0), "end": point(0, 1), "codes": on_rings(30), **options}
    start, end = given.pop("start"), given.pop("end")
    with pytest.raises(ConfigError, match=words):
        manifold_path(rings(), start, end, **given)


def test_the_default_path_joins_two_codes_far_apart():
    """Not the first and the last row, which may be one code, nor an outlier."""
    for seed in (3, 4):
        codes = gaussian_codes(300, 3, seed).float()
        codes[0] = codes[-1]
        codes[7] = 1000
        path = zs.assays.manifold_path(zs.record(identity(3), codes), relax=0)
        typical = torch.cdist(codes, codes).flatten()
        assert torch.quantile(typical, 0.97) < path.straight_length < 100
        for end in (path.points[0], path.points[-1]):
            assert (codes == end).all(1).any()


def test_a_path_between_equal_codes_has_no_length():
    path = zs.assays.manifold_path(zs.record(identity(2), torch.ones(20, 2)), relax=0)
    assert path.length == 0


class HelixVAE(zs.Autoencoder):
    """The network of the paper: 4 hidden layers of 32 units on both sides, 2 latents."""

    latents = 2

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = self._layers(3, 4), self._layers(2, 3)

    def _layers(self, inputs, outputs):
        layers = [nn.Linear(inputs, 32), nn.ELU()]
        for _ in range(3):
            layers += [nn.Linear(32, 32), nn.ELU()]
        return nn.Sequential(*layers, nn.Linear(32, outputs))

    def encode(self, x, auxiliary=None):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        return zs.Posterior(mean, (log_variance / 2).exp())

    def decode(self, z):
        return self.decoder(z)


def strand(t, n):
    angle = math.pi * (t + n)
    return torch.stack([angle.cos(), angle.sin(), t], 1)


def distance_to_strand(x, n):
    curve = strand(torch.linspace(-1.1, 1.1, 4001), n)
    return torch.cdist(x.float(), curve).amin(1)


def trained_on_the_helix(steps, seed=0, gamma=0.02):
    generator = seeded(seed)
    t = 2 * torch.rand(1024, generator=generator) - 1
    n = torch.randint(0, 2, (1024,), generator=generator)
    x = strand(t, n) + 0.1 * torch.randn(1024, 3, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = HelixVAE()
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    calmer = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(steps):
        batch = x[torch.randint(0, 1024, (256,), generator=generator)]
        posterior = model.encode(batch)
        error = (model.decode(posterior.sample(generator)) - batch).square().sum(1).mean()
        loss = error / (2 * gamma) + posterior.kl().sum(1).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        calmer.step()
    return model, x


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_the_helix_the_path_keeps_to_its_strand_where_the_straight_line_hops(seed):
    model, x = trained_on_the_helix(5000, seed)
    with torch.no_grad():
        codes = model.encode(x).mean
        low, high = codes.amin(0) - 0.1, codes.amax(0) + 0.1
        plane = response_map(
            model, codes[0], codes=codes, extent=(low[0], high[0], low[1], high[1])
        )
        for n in (0, 1):
            start, end = model.encode(strand(torch.tensor([-0.7, 0.7]), n)).mean
            for subject in (plane, model):
                path = manifold_path(subject, start, end, codes=codes)
                assert distance_to_strand(model.decode(path.points), n).max() < 0.5
                assert distance_to_strand(model.decode(path.straight), n).max() > 0.9
                assert path.warning is None
                assert path.straight_code_distance.max() > path.code_limit


def test_a_code_on_the_edge_of_the_map_is_not_off_it():
    """In single precision the edge at 0.7 is a little below 0.7."""
    plane = response_map(identity(2), torch.zeros(2), grid=5, extent=(-0.7, 0.7))
    path = manifold_path(plane, np.array([0.7, 0.7]), np.array([-0.7, 0.1]))
    assert path.cost == 0
    assert np.allclose(path.points[[0, -1]], [[0.7, 0.7], [-0.7, 0.1]])
    with pytest.raises(ConfigError, match="lies off the map"):
        manifold_path(plane, np.array([0.7001, 0.7]), np.array([-0.7, 0.1]))


@pytest.mark.parametrize(
    "options",
    [{"samples": 0}, {"samples": -5}, {"neighbours": 0}, {"relax": -1}, {"temperature": math.inf}],
)
def test_numbers_that_cannot_be_meant_are_refused(options):
    codes = gaussian_codes(20, 2)
    with pytest.raises(ConfigError, match=next(iter(options))):
        manifold_path(identity(2), codes[0], codes[1], codes=codes, **options)

"""Response maps: the field, its divergence and its curvature, where their values are known."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds import curved, gaussian_codes, identity, linear, permuted, responding, seeded

import zscope as zs
from zscope.assays.engine import use_memory
from zscope.assays.responses.maps import response_map
from zscope.errors import ConfigError, InterfaceError, Undefined

ZERO = torch.zeros(2, dtype=torch.float64)


def linear_response(matrix):
    """R(z) = A z, so F = (A - I) z."""
    return responding(lambda z: z @ matrix.T.to(z), len(matrix))


@given(
    seed=st.integers(0, 1000), grid=st.integers(2, 40), low=st.floats(-9, 9), wide=st.floats(0.1, 9)
)
def test_the_divergence_of_a_linear_field_is_its_trace_on_any_grid(seed, grid, low, wide):
    matrix = torch.randn(4, 4, generator=seeded(seed), dtype=torch.float64)
    base = torch.randn(4, generator=seeded(seed + 1), dtype=torch.float64)
    found = response_map(
        linear_response(matrix), base, (3, 1), grid=grid, extent=(low, low + wide, -1, 2)
    )
    trace = (matrix[3, 3] - 1 + matrix[1, 1] - 1).item()
    assert found.divergence.shape == (grid, grid)
    assert np.allclose(found.divergence, trace, atol=1e-9 * (1 + abs(low)) * grid / wide)


def test_float32_models_keep_the_trace_to_float32_precision():
    matrix = torch.tensor([[0.4, 1.0], [-0.3, 0.2]])
    found = response_map(linear_response(matrix), torch.zeros(2), extent=(-3, 3))
    assert np.allclose(found.divergence, -1.4, atol=1e-4)


def test_the_divergence_of_a_curved_field_is_its_derivative_whatever_the_spacing():
    """R = z - 0.3 z^3 in each latent: div F = -0.9 (z_0^2 + z_1^2)."""
    world = responding(lambda z: z - 0.3 * z**3, 2)
    for grid in (51, 101, 201):
        found = response_map(world, ZERO, grid=grid, extent=(-2, 2, -1, 3))
        first, second = found.axes
        exact = -0.9 * (first[:, None] ** 2 + second[None] ** 2)
        inside = (slice(1, -1), slice(1, -1))
        spacing = 4 / (grid - 1)
        # A central difference of a cubic is off by exactly 0.3 h^2 in each latent.
        assert np.allclose(found.divergence[inside], exact[inside] - 0.6 * spacing**2, atol=1e-9)


def test_each_grid_point_holds_the_response_of_its_own_latent_vector():
    world, base = curved(5), gaussian_codes(1, 5)[0]
    found = response_map(world, base, (2, 4), grid=7, extent=(-1, 1, 0, 3))
    for a, b in ((0, 0), (3, 5), (6, 2)):
        z = base.clone()
        z[2], z[4] = found.axes[0][a], found.axes[1][b]
        response = world.encode(world.decode(z[None])).mean[0]
        assert np.allclose(found.field[a, b], (response - z)[[2, 4]], atol=1e-12)


def test_an_attracting_point_has_curvature_one_over_twice_the_distance():
    """F = -z: div(F/|F|) = -1/r in the plane, so H = 1/(2r); no direction at 0 itself."""
    found = response_map(responding(lambda z: 0 * z, 2), ZERO, grid=101, extent=(-2, 2))
    radius = (found.axes[0][:, None] ** 2 + found.axes[1][None] ** 2).sqrt()
    inside = torch.zeros_like(radius, dtype=torch.bool)
    inside[1:-1, 1:-1] = True
    far = inside & (radius > 0.5)
    assert np.allclose(found.curvature[far], 1 / (2 * radius[far]), rtol=5e-3)
    assert np.allclose(found.divergence, -2)
    assert found.undefined.sum() == 5  # the centre, and the four differences that use it
    assert found.undefined[50, 50]
    assert found.curvature[50, 50] == 0


def test_a_repelling_point_has_the_opposite_curvature():
    pull = response_map(responding(lambda z: 0 * z, 2), ZERO, grid=40, extent=(-2, 2))
    push = response_map(responding(lambda z: 2 * z, 2), ZERO, grid=40, extent=(-2, 2))
    assert np.allclose(push.curvature, -pull.curvature)
    assert np.allclose(push.divergence, 2)


def test_curvature_does_not_change_with_the_strength_of_the_field_but_divergence_does():
    weak = response_map(responding(lambda z: 0.9 * z, 2), ZERO, grid=30, extent=(-1, 2))
    strong = response_map(responding(lambda z: 0.1 * z, 2), ZERO, grid=30, extent=(-1, 2))
    assert np.allclose(weak.curvature, strong.curvature)
    assert np.allclose(strong.divergence, 9 * weak.divergence)


def test_an_identity_autoencoder_has_no_field_and_no_direction_anywhere():
    found = response_map(identity(3), torch.zeros(3), (0, 2), grid=20, extent=(-1, 1))
    assert not found.field.any()
    assert not found.divergence.any()
    assert found.undefined.all()
    assert not found.curvature.any()
    json.dumps(found.to_dict())


def test_a_projection_has_the_divergence_that_its_trace_says():
    """W of rank 1 in two latents: R projects, so the trace of R - I is 1 - 2."""
    found = response_map(
        linear(torch.tensor([[1.0], [2.0]], dtype=torch.float64)), ZERO, grid=12, extent=(-1, 1)
    )
    assert np.allclose(found.divergence, -1)


def test_exchanging_the_two_latents_transposes_the_map():
    world, base = curved(4), gaussian_codes(1, 4)[0]
    one = response_map(world, base, (1, 3), grid=15, extent=(-1, 1, 0, 2))
    other = response_map(world, base, (3, 1), grid=15, extent=(0, 2, -1, 1))
    assert np.allclose(one.field, other.field.flip(-1).transpose(0, 1))
    assert np.allclose(one.divergence, other.divergence.T)
    assert np.allclose(one.curvature, other.curvature.T)


def test_permuting_the_latents_of_the_model_permutes_the_map():
    world, base, order = curved(4), gaussian_codes(1, 4)[0], [2, 0, 3, 1]
    one = response_map(world, base, (2, 1), grid=10, extent=(-1, 1))
    other = response_map(permuted(world, order), base[order], (0, 3), grid=10, extent=(-1, 1))
    assert np.allclose(one.field, other.field)


def test_the_summary_says_where_responses_converge():
    def response(z):
        return z - 0.5 * z.sign() * z**2  # div F = -|z_0| - |z_1|, away from the axes

    found = response_map(responding(response, 2), ZERO, grid=10, extent=(-1, 1))
    lines = dict(found.summary())
    assert lines["responses converge on"] == "100.0 % of the map"
    away = response_map(responding(lambda z: 3 * z, 2), ZERO, grid=10, extent=(-1, 1))
    assert dict(away.summary())["responses converge on"] == "0.0 % of the map"
    assert dict(away.summary())["mean divergence"] == "4"


def test_a_self_consistent_point_may_be_unlike_data():
    """An identity is self-consistent everywhere; codes of data are near the circle of radius 1."""
    angle = 6.2832 * torch.rand(1500, generator=seeded(3), dtype=torch.float64)
    codes = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * gaussian_codes(1500, 2, 4)
    recording = zs.record(identity(2), codes.float())
    field = zs.assays.response_map(recording, dims=(0, 1), extent=2, grid=4, score_grid=21)
    radius = torch.cartesian_prod(*2 * [torch.linspace(-2, 2, 21)]).norm(dim=1).reshape(21, 21)
    assert field.in_holes.sum() == 0
    assert field.unlike[(radius - 1).abs() > 0.5].all()
    assert not field.unlike[(radius - 1).abs() < 0.05].any()
    shares = dict(field.summary())
    expected = 100 * field.unlike.double().mean()
    assert shares["self-consistent, unlike data"] == f"{expected:.1f} % of the map"
    assert shares["in holes"] == "0.0 % of the map"
    json.dumps(field.to_dict())
    without = zs.assays.response_map(recording, dims=(0, 1), extent=2, grid=4, score_grid=0)
    assert without.unlike is None
    assert "in holes" not in dict(without.summary())


def test_several_base_vectors_give_the_average_of_their_fields():
    world, bases = curved(4), gaussian_codes(6, 4)
    single = [response_map(world, base, (0, 1), grid=9, extent=(-1, 1)) for base in bases]
    together = response_map(world, bases, (0, 1), grid=9, extent=(-1, 1))
    average = torch.stack([one.field for one in single]).mean(0)
    assert np.allclose(together.field, average)
    assert np.allclose(together.divergence, torch.stack([s.divergence for s in single]).mean(0))
    assert not np.allclose(together.curvature, torch.stack([s.curvature for s in single]).mean(0))


def test_a_small_memory_budget_changes_no_value():
    world, bases = curved(3), gaussian_codes(3, 3)
    whole = response_map(world, bases, (0, 1), grid=8, extent=(-1, 1))
    world.decoded.clear()
    with use_memory(20_000):
        parts = response_map(world, bases, (0, 1), grid=8, extent=(-1, 1))
    assert max(len(seen) for seen in world.decoded) < 3 * 64
    assert np.allclose(whole.field, parts.field)


def test_the_map_covers_the_codes_without_their_outer_half_percents():
    codes = torch.rand(2000, 3, generator=seeded(0), dtype=torch.float64)
    codes[0] = 1e6
    found = response_map(identity(3), codes[1], (0, 2), codes=codes, grid=5)
    low, high = np.quantile(codes[:, [0, 2]].numpy(), [0.005, 0.995], axis=0)
    assert found.extent == pytest.approx((low[0], high[0], low[1], high[1]))
    assert found.codes.shape == (2000, 2)


def test_an_extent_may_be_one_number_one_pair_or_four_numbers():
    four = response_map(identity(2), ZERO, grid=3, extent=(-1, 1, -1, 1))
    pair = response_map(identity(2), ZERO, grid=3, extent=(-1, 1))
    pairs = response_map(identity(2), ZERO, grid=3, extent=[[-1, 1], [-1, 1]])
    number = response_map(identity(2), ZERO, grid=3, extent=1)
    assert four.extent == pair.extent == pairs.extent == number.extent == (-1, 1, -1, 1)


def test_the_decoded_grid_shows_the_centres_of_its_tiles():
    world = responding(lambda z: z, 3)
    base = torch.tensor([5.0, 6.0, 7.0], dtype=torch.float64)
    found = response_map(world, base, (0, 2), grid=4, extent=(0, 4, 0, 8), decode_grid=2)
    expected = [[[1, 6, 2], [1, 6, 6]], [[3, 6, 2], [3, 6, 6]]]
    assert np.allclose(found.decoded, expected)


def test_arrays_are_taken_like_tensors():
    world, base = curved(3), gaussian_codes(5, 3)
    tensors = response_map(world, base[0], codes=base, grid=6)
    arrays = response_map(world, base[0].numpy(), codes=base.numpy(), grid=6)
    assert torch.equal(tensors.field, arrays.field)


def test_a_wrapped_function_of_float32_weights_is_asked_in_float32():
    weights = torch.randn(5, 3, generator=seeded(0))
    wrapped = zs.wrap(lambda x: x @ weights, lambda z: z @ weights.T, latents=3, prior=None)
    found = response_map(wrapped, torch.zeros(3), grid=5, extent=(-1, 1))
    assert found.field.isfinite().all()


def test_without_codes_or_extent_the_range_is_asked_for():
    with pytest.raises(ConfigError, match="neither codes nor an extent.*extent=\\(-3, 3\\)"):
        response_map(identity(2), ZERO)


@pytest.mark.parametrize("dims", [(0, 0), (0, 2), (-1, 0), (0, 1, 1)])
def test_a_map_needs_two_different_latents_of_the_model(dims):
    with pytest.raises(ConfigError, match="two different latents from 0 to 1"):
        response_map(identity(2), ZERO, dims, extent=(-1, 1))


def test_a_model_with_one_latent_has_no_map():
    with pytest.raises(ConfigError, match="a model with 1 latents"):
        response_map(identity(1), torch.zeros(1), extent=(-1, 1))


def test_a_collapsed_latent_is_refused_with_a_way_forward():
    codes = gaussian_codes(50, 2)
    codes[:, 1] = 0.5
    with pytest.raises(Undefined, match="latent 1 runs from 0.5 to 0.5.*collapsed"):
        response_map(identity(2), codes[0], codes=codes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grid": 1}, "at least 2 points"),
        ({"extent": (1, 2, 3)}, "give \\(low, high\\)"),
        ({"extent": (-1, float("nan"))}, "give \\(low, high\\)"),
        ({"codes": torch.zeros(4, 5)}, "codes with 5 latents"),
    ],
)
def test_unusable_options_are_named(options, words):
    with pytest.raises(ConfigError, match=words):
        response_map(identity(2), ZERO, **{"extent": (-1, 1), **options})


def test_nan_from_the_model_is_reported_with_its_latent_vector():
    world = responding(lambda z: torch.where(z[:, :1] > 0.9, torch.nan, z), 2)
    with pytest.raises(InterfaceError, match="NaN.*latent vector.*\\[1, -1\\]"):
        response_map(world, ZERO, grid=3, extent=(-1, 1))


def test_a_base_that_is_not_finite_is_refused():
    with pytest.raises(Undefined, match="NaN or infinite numbers in 1 of 1 rows"):
        response_map(identity(2), ZERO * torch.nan, extent=(-1, 1))


def test_the_model_is_left_in_its_mode():
    with torch.random.fork_rng():
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5)).train()
    wrapped = zs.wrap(lambda x: x, model, latents=2, prior=None)
    one = response_map(wrapped, torch.zeros(2), grid=4, extent=(-1, 1))
    two = response_map(wrapped, torch.zeros(2), grid=4, extent=(-1, 1))
    assert torch.equal(one.field, two.field)
    assert model.training


def mixing(*pairs, latents=6, leak=0.0):
    """Rotates each pair of latents (i, j, angle), so that they respond to each other."""
    turn = torch.eye(latents, dtype=torch.float64) + leak
    for i, j, angle in pairs:
        c, s = np.cos(angle), np.sin(angle)
        turn[[i, i, j, j], [i, j, i, j]] = torch.tensor([c, -s, s, c], dtype=torch.float64)
    return responding(lambda z: z @ turn.T.to(z), latents)


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize(
    ("pairs", "expected"),
    [([(1, 4, 0.7)], (1, 4)), ([(0, 5, 0.3), (2, 3, 0.8)], (2, 3)), ([(2, 3, 0.3)], (2, 3))],
)
def test_the_default_plane_is_the_pair_with_the_strongest_mutual_response(pairs, expected, seed):
    """Other latents vary more, and all leak a little into each other."""
    codes = gaussian_codes(500, 6, seed, scale=[1.5, 1, 1, 1, 1, 1.5]).float()
    recording = zs.record(mixing(*pairs, leak=0.03), codes)
    assert zs.assays.response_map(recording, grid=4).dims == expected


def test_a_one_way_response_does_not_decide_the_plane():
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[1, 0] = 1  # latent 1 responds strongly to latent 0, but not the other way
    matrix[2, 3] = matrix[3, 2] = 0.3
    recording = zs.record(linear_response(matrix), gaussian_codes(500, 4).float())
    assert zs.assays.response_map(recording, grid=4).dims == (2, 3)


def test_without_mutual_responses_the_plane_is_that_of_the_widest_causal_latents():
    codes = gaussian_codes(500, 4, scale=[9, 1, 2, 3]).float()
    keep = torch.tensor([0.0, 1, 1, 1])  # the widest latent is ignored
    world = responding(lambda z: z * keep.to(z), 4)
    assert zs.assays.response_map(zs.record(world, codes), grid=4).dims == (2, 3)
    many = zs.record(identity(2000), gaussian_codes(20, 2000).float() * torch.arange(2000))
    widest = many.codes.var(0).topk(2).indices.sort().values.tolist()
    assert list(zs.assays.response_map(many, grid=4).dims) == widest

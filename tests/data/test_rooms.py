"""Rooms: silhouettes, symmetries and shadows that projective geometry prescribes, and hues that
touch nothing but their own surface."""

import colorsys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.path import Path as Outline
from scipy.spatial import ConvexHull

import zscope as zs
from zscope.data import rooms
from zscope.data.rooms import (
    AXES,
    FLOOR,
    OBJECT,
    OPEN_SKY,
    SKY,
    WALLS,
    WHITE,
    RoomPainter,
    camera,
    hit_distance,
    hue_colors,
    light_maps,
    normals,
)
from zscope.errors import ConfigError

SIZES = (10, 10, 10, 8, 4, 15)
SCALES, ANGLES = AXES[3].values, AXES[5].values
AHEAD = 7  # the orientation of 0 degrees
SHAPES = range(4)


def row(floor=0, wall=3, thing=6, scale=4, shape=0, orientation=AHEAD):
    return np.ravel_multi_index(
        np.broadcast_arrays(floor, wall, thing, scale, shape, orientation), SIZES
    ).ravel()


def draw(rows, resolution=64) -> np.ndarray:
    return RoomPainter(resolution)(np.atleast_1d(rows))


def maps(scale=4, shape=0, orientation=AHEAD, resolution=64) -> np.ndarray:
    """5 materials x height x width."""
    light = light_maps(resolution, SCALES[scale], shape, ANGLES[orientation])
    return light.reshape(5, resolution, resolution)


def test_the_grid_is_that_of_3d_shapes():
    data = zs.data.load("rooms")
    assert len(data) == 480_000
    assert data.shape == (3, 64, 64)
    assert data.factor_names == (
        "floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation"
    )  # fmt: skip
    assert data.factor_sizes == SIZES
    assert data.factor_kinds[4] == "categorical"
    values = data.provenance["values"]
    assert values["floor_hue"] == pytest.approx(np.arange(10) / 10)
    assert values["scale"] == pytest.approx(np.linspace(0.75, 1.25, 8))
    assert values["orientation"] == pytest.approx(np.linspace(-30, 30, 15))
    assert data.factors[15].tolist() == [0, 0, 0, 0, 1, 0]


def test_on_average_the_colours_are_those_of_3d_shapes():
    """The published mean of all 480,000 pictures, by channel (as computed by disent)."""
    n = np.arange(300)  # every hue as often as every other
    hues = n % 10, (n + n // 10) % 10, (n + 3 * (n // 10)) % 10
    rows = row(*hues, n % 8, n // 8 % 4, n % 5 * 3)
    mean = draw(rows, resolution=16).mean((0, 2, 3)) / 255
    assert mean == pytest.approx([0.5026, 0.5788, 0.6034], abs=0.02)


def test_hues_are_those_of_the_colour_circle():
    expected = [colorsys.hsv_to_rgb(hue, 1, 1) for hue in np.linspace(0, 1, 31)]
    assert hue_colors(np.linspace(0, 1, 31)) == pytest.approx(np.array(expected))


def test_a_picture_is_its_light_times_its_colours():
    picture = draw(row(1, 4, 8, 2, 3, 11))[0]
    light = maps(2, 3, 11)
    for material in (FLOOR, WALLS, OBJECT, OPEN_SKY):
        assert light[material].max() > 0.5
    for y, x in np.random.default_rng(0).integers(0, 64, (200, 2)):
        for channel in range(3):
            value = (
                light[FLOOR, y, x] * colorsys.hsv_to_rgb(0.1, 1, 1)[channel]
                + light[WALLS, y, x] * colorsys.hsv_to_rgb(0.4, 1, 1)[channel]
                + light[OBJECT, y, x] * colorsys.hsv_to_rgb(0.8, 1, 1)[channel]
                + light[OPEN_SKY, y, x] * SKY[channel]
                + light[WHITE, y, x]
            )
            assert abs(int(picture[channel, y, x]) - min(255 * value, 255)) <= 0.51


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("orientation", [0, AHEAD, 11])
def test_a_hue_changes_its_own_surface_and_nothing_else(shape, orientation):
    light = maps(5, shape, orientation)
    base = draw(row(0, 3, 6, 5, shape, orientation))
    for material, changed in (
        (FLOOR, row(5, 3, 6, 5, shape, orientation)),
        (WALLS, row(0, 8, 6, 5, shape, orientation)),
        (OBJECT, row(0, 3, 1, 5, shape, orientation)),
    ):
        differs = (draw(changed) != base).any((0, 1))
        assert not differs[light[material] == 0].any()
        assert differs[light[material] > 0.05].all()
    # Surfaces share pixels only along their edges: inside, a pixel belongs to one of them.
    seen = (light[[FLOOR, WALLS, OBJECT, OPEN_SKY]] > 0).sum(0)
    assert seen.min() == 1
    assert (seen > 1).mean() < 0.09


def surface(shape: int, scale: float) -> np.ndarray:
    """Many points of the object's surface: the definition of the shapes, in another form."""
    around = np.linspace(0, 2 * np.pi, 120, endpoint=False)
    if shape == 0:
        side = np.array([-0.74, 0.74]) * scale
        return np.stack(np.meshgrid(side, side + 0.74 * scale, side), -1).reshape(-1, 3)
    if shape == 1:
        rings = [(0.74, 0), (0.74, 1.55)]
    else:
        radius, height = (0.88, 1.76) if shape == 2 else (0.62, 2.1)
        tilt = np.linspace(-np.pi / 2, np.pi / 2, 60)
        middle = np.where(tilt < 0, radius, height - radius)
        rings = zip(radius * np.cos(tilt), middle + radius * np.sin(tilt), strict=True)
    return scale * np.concatenate(
        [
            np.stack([radius * np.cos(around), 0 * around + y, radius * np.sin(around)], 1)
            for radius, y in rings
        ]
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("scale", "orientation"), [(0, 0), (4, AHEAD), (7, 12)])
def test_the_silhouette_is_the_projection_of_the_surface(shape, scale, orientation):
    place, right, up, forward = camera(ANGLES[orientation])
    seen = surface(shape, SCALES[scale]) - place
    depth = seen @ forward
    on_screen = np.stack([seen @ right / depth, -(seen @ up) / depth], axis=1) / rooms.VIEW
    hull = on_screen[ConvexHull(on_screen).vertices]  # every shape is convex
    at = 2 * (np.arange(64) + 0.5) / 64 - 1
    pixels = np.stack(np.meshgrid(at, at), axis=-1).reshape(-1, 2)
    expected = Outline(hull).contains_points(pixels).reshape(64, 64)
    light = maps(scale, shape, orientation)
    actual = light[OBJECT] > 0
    assert not (expected & ~actual).any()
    whole = (light[[FLOOR, WALLS, OPEN_SKY]] == 0).all(0)
    assert not (whole & ~expected & ~edge(expected)).any()
    assert abs(int((actual & ~edge(actual)).sum()) - int((expected & ~edge(expected)).sum())) < 80
    assert (actual & ~expected & ~grown(expected)).sum() == 0


def edge(mask: np.ndarray) -> np.ndarray:
    """Pixels of a mask that touch its outside."""
    return mask & grown(~mask)


def grown(mask: np.ndarray) -> np.ndarray:
    out = mask.copy()
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            out |= np.roll(mask, (dy, dx), (0, 1))
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_the_object_grows_with_the_scale_and_stays_in_the_picture(shape):
    areas = []
    for scale in range(8):
        seen = maps(scale, shape, 5)[OBJECT] > 0
        areas.append(seen.sum())
        assert not np.concatenate([seen[0], seen[-1], seen[:, 0], seen[:, -1]]).any()
    assert (np.diff(areas) > 0).all()
    assert areas[-1] / areas[0] == pytest.approx((1.25 / 0.75) ** 2, rel=0.15)


@pytest.mark.parametrize("shape", SHAPES)
def test_seen_from_ahead_the_scene_is_symmetrical_and_otherwise_not(shape):
    for material in (OPEN_SKY, WALLS, OBJECT):
        ahead, aside = maps(4, shape)[material] > 0, maps(4, shape, 12)[material] > 0
        assert (ahead == ahead[:, ::-1]).all()
        assert material == OBJECT or (aside != aside[:, ::-1]).any()


@pytest.mark.parametrize("orientation", [0, 3, 6])
def test_opposite_orientations_mirror_each_other(orientation):
    for shape in SHAPES:
        left, right = maps(3, shape, orientation) > 0, maps(3, shape, 14 - orientation) > 0
        for material in (OPEN_SKY, WALLS, OBJECT):
            assert (left[material] == right[material][:, ::-1]).all()


def test_only_the_cube_turns_with_the_orientation():
    def silhouette(shape, orientation):
        return maps(4, shape, orientation)[OBJECT] > 0

    assert (silhouette(0, 0) != silhouette(0, AHEAD)).sum() > 50
    for shape in (1, 2, 3):
        assert (silhouette(shape, 0) != silhouette(shape, AHEAD)).sum() < 12


def test_the_shadow_falls_away_from_the_sun():
    """The sun stands to the left: the floor is dark to the right of the object's foot."""
    for shape in SHAPES:
        light = maps(4, shape)
        floor = np.where(light[FLOOR] > 0.2, light[FLOOR], np.nan)
        rows = slice(44, 54)
        assert np.nanmin(floor[rows, 36:]) < 0.75 * np.nanmin(floor[rows, :20])
        assert np.nanmax(floor) > 0.95
        assert floor[60].min() > 0.95  # the near floor is in the sun


def test_shading_tells_the_faces_of_the_cube_and_the_walls_apart():
    cube = maps(7, 0, 12)[OBJECT]
    levels = np.unique(cube[~edge(cube > 0) & (cube > 0)].round(1))
    assert len(levels) >= 3
    walls = maps(0, 2, 12)
    whole = walls[WALLS][(walls[[FLOOR, OBJECT, OPEN_SKY]] == 0).all(0)]
    assert np.ptp(whole) > 0.15


def test_a_sphere_has_a_highlight_on_the_side_of_the_sun():
    highlight = maps(4, 2)[WHITE]
    y, x = np.unravel_index(highlight.argmax(), highlight.shape)
    seen = np.argwhere(maps(4, 2)[OBJECT] > 0)
    centre = seen.mean(0)
    assert highlight.max() > 0.2
    assert y < centre[0]
    assert x < centre[1]


@pytest.mark.parametrize("shape", SHAPES)
def test_rays_end_on_the_surface_and_normals_point_at_the_viewer(shape):
    random = np.random.default_rng(shape)
    origin = random.normal(size=(3, 2000)) * 2 + [[0], [4], [6]]
    toward = np.array([[0], [0.8], [0]]) - origin + 0.5 * random.normal(size=(3, 2000))
    toward /= np.linalg.norm(toward, axis=0)
    distance = hit_distance(shape, 1.1, origin, toward)
    hit = np.isfinite(distance)
    assert 0.2 < hit.mean() < 1
    points = (origin + distance * toward)[:, hit]
    facing = normals(shape, 1.1, points)
    assert np.linalg.norm(facing, axis=0) == pytest.approx(1, abs=1e-3)
    assert (facing * toward[:, hit]).sum(0).max() < 1e-3
    # Just outside nothing is met when leaving along the normal; just inside one has to come out.
    assert np.isinf(hit_distance(shape, 1.1, points + 1e-3 * facing, facing)).all()
    assert np.isfinite(hit_distance(shape, 1.1, points + 1e-3 * facing, -facing)).mean() > 0.99


@settings(max_examples=8)
@given(rows=st.lists(st.integers(0, 479_999), min_size=2, max_size=5))
def test_a_picture_is_the_same_in_every_batch(rows):
    rows = np.array(rows)
    together = draw(rows, 24)
    assert np.abs(draw(rows[::-1], 24).astype(int) - together[::-1]).max() == 0
    for index in range(len(rows)):
        assert (draw(rows[index], 24)[0] == together[index]).all()


def test_half_the_resolution_is_the_mean_of_four_pixels():
    rows = np.random.default_rng(1).choice(480_000, 5)
    fine = draw(rows, 64).astype(float).reshape(5, 3, 32, 2, 32, 2).mean((3, 5))
    assert np.abs(fine - draw(rows, 32)).mean() < 1


def test_a_sub_grid_holds_rows_of_the_full_grid():
    full = zs.data.load("rooms", resolution=8)
    part = zs.data.load(
        "rooms", resolution=8, floor_hue=5, wall_hue=1, object_hue=[3], scale=2,
        shape="sphere,cube", orientation=1,
    )  # fmt: skip
    assert part.factor_sizes == (5, 1, 1, 2, 2, 1)
    rows = row(np.array([0, 2, 4, 6, 8])[:, None, None], 0, 3, np.array([0, 7])[:, None], [2, 0])
    assert (part.images[:] == full.images[rows]).all()


def test_a_change_of_pixels_comes_with_a_new_version():
    """The version identifies cached pictures: raise it when this fails on purpose."""
    light = [maps(scale, shape, 3 * scale, 16).mean((1, 2)) for scale in (0, 4) for shape in SHAPES]
    assert rooms.VERSION == 1
    assert np.mean(light, axis=0) == pytest.approx(
        [0.38739, 0.20503, 0.06631, 0.27051, 0.00044], abs=1e-4
    )


def test_only_a_limited_number_of_scenes_is_kept(monkeypatch):
    monkeypatch.setattr(rooms, "TABLE_BYTES", 3 * 5 * 4 * 8**2)
    cache = rooms.Maps(8)
    for scene in (0, 1, 2, 3, 0):
        cache(scene)
    assert list(cache.cache) == [2, 3, 0]


def test_a_picture_traced_in_bands_is_the_same(monkeypatch):
    whole = light_maps(32, 1.0, 0, 10.0)
    monkeypatch.setattr(rooms, "RAYS", 1000)
    assert light_maps(32, 1.0, 0, 10.0) == pytest.approx(whole, abs=1e-6)


def test_a_wrong_choice_names_the_shapes():
    with pytest.raises(ConfigError, match="Did you mean sphere"):
        zs.data.load("rooms", shape="spheres")

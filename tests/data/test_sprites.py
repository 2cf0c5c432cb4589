"""Sprites: sizes, places and symmetries that geometry prescribes, in any batch and resolution."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path as Outline
from PIL import Image

import zscope as zs
from zscope.data import sprites
from zscope.data.sprites import AXES, BACKGROUND, SpritePainter
from zscope.errors import ConfigError, DataError

SIZES = (3, 6, 40, 32, 32)
SQUARE, ELLIPSE, HEART = range(3)


def row(shape=0, scale=5, orientation=0, x=15, y=15):
    return np.ravel_multi_index(np.broadcast_arrays(shape, scale, orientation, x, y), SIZES).ravel()


def draw(rows, *, resolution=64, antialias=False, **options) -> np.ndarray:
    return SpritePainter(resolution, antialias, **options)(np.atleast_1d(rows))


def centre_of_mass(images: np.ndarray) -> np.ndarray:
    """Samples x (x, y), in units of 1/64 of the side."""
    side = images.shape[-1]
    at = (np.arange(side) + 0.5) * 64 / side
    mass = images.sum((1, 2, 3), dtype=np.float64)
    x = (images.sum((1, 2), dtype=np.float64) * at).sum(1) / mass
    y = (images.sum((1, 3), dtype=np.float64) * at).sum(1) / mass
    return np.stack([x, y], axis=1)


def test_the_grid_is_that_of_dsprites():
    data = zs.data.load("sprites")
    assert len(data) == 737_280
    assert data.shape == (1, 64, 64)
    assert data.factor_names == ("shape", "scale", "orientation", "position_x", "position_y")
    assert data.factor_sizes == SIZES
    assert data.factor_kinds[0] == "categorical"
    assert data.factors[32 * 32 * 40 + 33].tolist() == [0, 1, 0, 1, 1]
    assert data.provenance["values"]["scale"] == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_pictures_are_black_and_white_unless_antialiased():
    rows = np.random.default_rng(0).choice(737_280, 200)
    assert set(np.unique(draw(rows))) == {0, 255}
    assert len(np.unique(draw(rows, antialias=True))) > 30


def test_on_average_as_many_pixels_are_white_as_in_dsprites():
    """0.042494 is the published mean of all 737,280 pictures (as computed by disent)."""
    images = draw(np.arange(720) * 1024)  # a shift by whole pixels changes no count
    assert images.mean() / 255 == pytest.approx(0.042494, rel=0.01)


@pytest.mark.parametrize("resolution", [8, 10, 16, 37, 64, 100])
def test_the_area_grows_with_the_square_of_the_scale_and_none_is_cut_off(resolution):
    true = (18.2**2, math.pi * 11.6 * 7.35, 282.5)
    for shape in range(3):
        rows = row(shape, np.arange(6)[:, None, None], [[0], [7]], [0, 31], [31, 0])
        images = draw(rows, resolution=resolution, antialias=True)
        area = images.sum((1, 2, 3), dtype=np.float64) / 255 * (64 / resolution) ** 2
        scale = np.repeat(np.linspace(0.5, 1, 6), 4)
        assert area == pytest.approx(true[shape] * scale**2, rel=0.02)


def test_binary_areas_are_right_on_average_over_orientations():
    for shape, area in enumerate((18.2**2, math.pi * 11.6 * 7.35, 282.5)):
        white = draw(row(shape, 5, np.arange(40))).sum((1, 2, 3), dtype=np.int64) / 255
        assert white.mean() == pytest.approx(area, rel=0.02)


@pytest.mark.parametrize("resolution", [64, 48])
def test_the_centre_of_mass_moves_with_the_position_alone(resolution):
    steps = np.arange(0, 32, 5)
    for shape in (SQUARE, ELLIPSE, HEART):
        for scale in (0, 5):
            rows = row(shape, scale, 3, steps[:, None], steps)
            centres = centre_of_mass(draw(rows, resolution=resolution, antialias=True))
            x, y = np.meshgrid(16.5 + steps, 16.5 + steps, indexing="ij")
            assert centres == pytest.approx(np.stack([x.ravel(), y.ravel()], 1), abs=0.05)


def test_a_step_in_position_shifts_the_picture_by_one_pixel():
    for shape in range(3):
        here = draw(row(shape, 4, 7, 10, 20))
        assert (draw(row(shape, 4, 7, 11, 20)) == np.roll(here, 1, axis=3)).all()
        assert (draw(row(shape, 4, 7, 10, 21)) == np.roll(here, 1, axis=2)).all()


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("resolution", [64, 32, 50])
def test_turns_that_a_shape_cannot_tell_apart_give_the_same_picture(resolution, antialias):
    def turned(shape, steps):
        rows = row(shape, np.arange(6)[:, None], (np.arange(0, 20, 3) + steps) % 40, 9, 23)
        return draw(rows, resolution=resolution, antialias=antialias).astype(int)

    assert np.abs(turned(SQUARE, 0) - turned(SQUARE, 10)).max() == 0
    assert np.abs(turned(ELLIPSE, 0) - turned(ELLIPSE, 20)).max() == 0
    for shape, steps in ((SQUARE, 5), (ELLIPSE, 10), (HEART, 10), (HEART, 20)):
        differs = (turned(shape, 0) != turned(shape, steps)).any((1, 2, 3))
        assert differs.all()


def test_no_two_orientations_of_the_heart_look_alike():
    images = draw(row(HEART, 5, np.arange(40))).reshape(40, -1)
    assert len(np.unique(images, axis=0)) == 40


def test_the_heart_stands_upright_with_its_cusp_above():
    image = draw(row(HEART, 5))[0, 0] > 0
    column = 31  # of the centre
    assert (image[:, :63] == image[:, 62::-1]).all()
    top, bottom = np.flatnonzero(image[:, column])[[0, -1]]
    lobe = np.flatnonzero(image.any(1))[0]
    assert top - lobe >= 2  # the cusp is a notch
    assert image[bottom].sum() <= 3  # the tip is narrow
    widest = image.sum(1).argmax()
    assert widest < (lobe + bottom) / 2


@pytest.mark.parametrize("shape", [SQUARE, ELLIPSE])
@pytest.mark.parametrize("resolution", [64, 41])
def test_pixels_agree_with_another_program_that_fills_outlines(shape, resolution):
    random = np.random.default_rng(shape)
    for _ in range(25):
        scale, orientation, x, y = (int(random.integers(size)) for size in SIZES[1:])
        turn = 2 * np.pi * orientation / 40
        around = np.linspace(0, 2 * np.pi, 721)
        if shape == SQUARE:
            corners = 9.1 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
        else:
            corners = np.stack([11.6 * np.cos(around), 7.35 * np.sin(around)], axis=1)
        turned = corners @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
        outline = turned * AXES[1].values[scale] + [16.5 + x, 16.5 + y]
        at = (np.arange(resolution) + 0.5) * 64 / resolution
        points = np.stack(np.meshgrid(at, at), axis=-1).reshape(-1, 2)
        expected = Outline(outline).contains_points(points).reshape(resolution, resolution)
        actual = draw(row(shape, scale, orientation, x, y), resolution=resolution)[0, 0] > 0
        assert (actual != expected).sum() <= 1  # a pixel's centre may lie on the outline


def test_half_the_resolution_is_the_mean_of_four_pixels():
    rows = np.random.default_rng(1).choice(737_280, 100)
    fine = draw(rows, resolution=64, antialias=True).astype(float)
    coarse = draw(rows, resolution=32, antialias=True)
    means = fine.reshape(100, 1, 32, 2, 32, 2).mean((3, 5))
    assert np.abs(means - coarse).max() < 4 / 64 * 256  # both count samples, 64 of them
    assert np.abs(means - coarse)[means > 0].mean() < 3  # less than one sample


VARIANTS = ["plain", "color", "noisy", "background"]


def variant_painter(variant, **options) -> SpritePainter:
    picture = sprites.painting(24) if variant == "background" else None
    return SpritePainter(24, True, variant, painting=picture, **options)


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_a_picture_is_the_same_in_every_batch(variant, data):
    rows = np.array(data.draw(st.lists(st.integers(0, 737_279), min_size=2, max_size=6)))
    painter = variant_painter(variant, seed=4)
    together = painter(rows)
    assert (painter(rows[::-1]) == together[::-1]).all()
    for index in range(len(rows)):
        assert (painter(rows[index : index + 1])[0] == together[index]).all()


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_the_random_part_belongs_to_the_seed_and_the_row(variant):
    rows = np.array([5, 5, 6])  # rows 5 and 6 differ by one step of position
    one, other = variant_painter(variant, seed=0)(rows), variant_painter(variant, seed=1)(rows)
    assert (one[0] == one[1]).all()
    assert (one[0] != one[2]).any()
    assert (one != other).any((1, 2, 3)).all()
    assert variant_painter(variant, seed=0).key != variant_painter(variant, seed=1).key


def test_colours_are_bright_flat_and_different():
    rows = np.random.default_rng(2).choice(737_280, 300)
    images, masks = draw(rows, variant="color"), draw(rows) > 0
    assert images.shape == (300, 3, 64, 64)
    colors = np.array([image[:, mask[0]].max(1) for image, mask in zip(images, masks, strict=True)])
    assert (images == colors[:, :, None, None] * masks).all()
    assert 127 <= colors.min() < 135
    assert 248 < colors.max() <= 255
    assert colors.mean() == pytest.approx(0.75 * 255, rel=0.02)
    assert np.abs(np.corrcoef(colors.T) - np.eye(3)).max() < 0.2


def test_noise_is_uniform_around_a_white_sprite():
    rows = np.random.default_rng(3).choice(737_280, 50)
    images, masks = draw(rows, variant="noisy"), np.repeat(draw(rows) > 0, 3, axis=1)
    assert (images[masks] == 255).all()
    noise = images[~masks]
    counts = np.bincount(noise, minlength=256)
    assert counts.min() > 0.9 * counts.mean()
    assert counts.max() < 1.1 * counts.mean()
    flat = images[:, :, :10, :].reshape(50, -1).astype(float)  # above every small sprite
    assert abs(np.corrcoef(flat[:, :-1].ravel(), flat[:, 1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(flat[0], flat[1])[0, 1]) < 0.1


def test_sprites_invert_the_picture_behind_them(tmp_path):
    picture = np.random.default_rng(4).integers(0, 256, (100, 120, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "picture.png")
    data = BACKGROUND.load(tmp_path, image=tmp_path / "picture.png", seed=7)
    rows = np.random.default_rng(5).choice(737_280, 40)
    masks = np.repeat(draw(rows) > 0, 3, axis=1)
    behind = np.where(masks, 255 - data.images[rows], data.images[rows]).astype(int)
    places = set()
    for image in behind:
        # The tint shifts a channel as a whole: find the crop whose differences are those.
        crops = np.lib.stride_tricks.sliding_window_view(
            picture.transpose(2, 0, 1), (64, 64), (1, 2)
        )
        halves = crops[0, :, :, :4, :4] // 2 - image[0, :4, :4]
        spread = np.ptp(halves.reshape(*halves.shape[:2], -1), axis=-1)
        top, left = np.unravel_index(spread.argmin(), spread.shape)
        tint = 2 * image - crops[:, top, left].astype(int)
        assert np.ptp(tint.reshape(3, -1), axis=1).max() <= 1
        places.add((top, left))
    assert len(places) > 30


def test_the_built_in_painting_has_many_colours_and_never_changes():
    picture = sprites.painting(64)
    assert picture.shape == (3, 274, 350)
    assert len(np.unique(picture.reshape(3, -1), axis=1).T) > 5000
    assert picture[:, :80].mean((1, 2))[0] > 1.5 * picture[:, :80].mean((1, 2))[2]  # a red sky
    assert (picture == sprites.painting(64)).all()


def test_pictures_that_cannot_serve_as_background_are_refused(tmp_path):
    (tmp_path / "text.png").write_text("not a picture")
    with pytest.raises(DataError, match=r"text.png: cannot be read as a picture"):
        zs.data.load("sprites-background", image=str(tmp_path / "text.png"))
    with pytest.raises(DataError, match="there is no picture .*missing.png"):
        zs.data.load("sprites-background", image=str(tmp_path / "missing.png"))
    Image.new("RGB", (200, 30)).save(tmp_path / "narrow.png")
    with pytest.raises(DataError, match=r"200 x 30 pixels.*smaller than a crop of 64 x 64"):
        zs.data.load("sprites-background", image=str(tmp_path / "narrow.png"))


def test_a_sub_grid_holds_rows_of_the_full_grid():
    full = zs.data.load("sprites-noisy", resolution=16)
    part = zs.data.load(
        "sprites-noisy", resolution=16, shape="heart", scale=2, orientation=4, position_x=[3, 30]
    )
    assert part.factor_sizes == (1, 2, 4, 2, 32)
    rows = row(2, np.array([0, 5])[:, None, None, None], np.array([0, 10, 20, 30])[:, None, None],
               np.array([3, 30])[:, None], np.arange(32))  # fmt: skip
    assert (part.images[::37] == full.images[rows[::37]]).all()


def test_a_change_of_pixels_comes_with_a_new_version():
    """The version identifies cached pictures: raise it when this fails on purpose."""
    code = hashlib.sha256(draw(np.arange(720) * 1024).tobytes()).hexdigest()[:16]
    assert (sprites.VERSION, code) == (1, "7574c53ac982e830")


def test_the_recipe_makes_the_data_again():
    options = {"resolution": 20, "antialias": True, "orientation": 10, "shape": ["heart"]}
    data = zs.data.load("sprites-color", **options)
    again = zs.data.from_recipe(data.recipe)
    assert (data.images[[0, 77]] == again.images[[0, 77]]).all()
    assert (data.factors == again.factors).all()


@pytest.mark.parametrize("resolution", [7, 0, 5000])
def test_a_resolution_that_cannot_be_drawn_is_refused(resolution):
    with pytest.raises(ConfigError, match=f"resolution={resolution}"):
        zs.data.load("sprites", resolution=resolution)


def test_many_places_between_pixels_need_no_table(monkeypatch):
    """At 50 x 50 the centre has 32 x 32 places in its pixel; stamps are not kept then."""
    assert sprites.Stamps(50, False).table is None
    rows = np.random.default_rng(6).choice(737_280, 60)
    direct = draw(rows, resolution=41)
    monkeypatch.setattr(sprites, "TABLE_BYTES", 2**40)
    stamps = sprites.Stamps(41, False)
    assert stamps.table is not None
    cover, top, left = stamps(rows)
    for image, stamp, y, x in zip(direct[:, 0], cover, top, left, strict=True):
        assert (image[y : y + stamps.size, x : x + stamps.size] == stamp).all()
        assert image.sum(dtype=int) == stamp.sum(dtype=int)

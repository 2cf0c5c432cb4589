"""Controls made of any dataset: a background that follows factors, and shuffled factors."""

import numpy as np
import pytest

import zscope as zs
from zscope.assays.alignment.dataset_alignment import dataset_alignment
from zscope.data import options_in_force
from zscope.data.modified import OPTIONS, background_level
from zscope.data.own import OPTIONS as OWN
from zscope.data.perturbed import change_size
from zscope.errors import ConfigError, DataError

SMALL = {
    "resolution": 16, "antialias": True, "shape": "ellipse", "scale": [1, 3, 5],
    "orientation": [0], "position_x": "0..30:2", "position_y": "8..22:2",
}  # fmt: skip
TURNED = {"background_by": "position_x,position_y", "background": 0.1, "background_wave": 4}


def sprites(**options):
    return zs.data.load("sprites", **{**SMALL, **options})


def test_the_level_shows_where_the_picture_is_black_and_not_where_it_is_white():
    plain = np.asarray(sprites().images) / 255
    data = sprites(**TURNED)
    x, y = data.factors[:, 3], data.factors[:, 4]
    total = (x - x.mean()) / x.std() + (y - y.mean()) / y.std()
    level = 0.05 * (1 + np.sin(4 * total))
    expected = plain + level[:, None, None, None] * (1 - plain)
    images = np.asarray(data.images)
    assert images.dtype == np.uint8
    assert np.abs(images / 255 - expected).max() <= 0.5001 / 255
    assert np.abs(images / 255 - plain).max() <= 0.1 + 0.5 / 255
    assert (data.images[[5, 3]] == images[[5, 3]]).all()


def test_an_aligned_background_leaves_the_directions_and_a_turned_one_turns_them():
    original, turned = sprites(), sprites(**TURNED)
    size = change_size(original, turned)
    assert size.relative_variance == pytest.approx(0.047, abs=0.003)
    aligned = sprites(background_by="scale", background_variance=size.variance)
    distance = {
        name: dataset_alignment(each.images, each.factors_with_kinds).distance
        for name, each in (("original", original), ("turned", turned), ("aligned", aligned))
    }
    assert distance["original"] < 0.08
    assert abs(distance["aligned"] - distance["original"]) < 0.02
    assert distance["turned"] > 0.25


@pytest.mark.parametrize("variance", [0.05, 0.316, 3.0])
def test_the_change_has_the_variance_asked_for_and_follows_the_factor_alone(variance):
    original = sprites()
    data = sprites(background_by="scale", background_variance=variance)
    assert change_size(original, data).variance == pytest.approx(variance, rel=0.06)
    facts = data.provenance["background"]
    assert facts["variance"] == pytest.approx(change_size(original, data).variance)
    corner = np.asarray(data.images)[:, 0, 0, 0]  # black in every picture
    for scale in range(3):
        (level,) = set(corner[data.factors[:, 1] == scale].tolist())
        assert level == pytest.approx(255 * facts["amplitude"] * scale / 2, abs=0.51)


def test_shuffled_factors_are_the_same_rows_in_an_order_without_meaning():
    data, shuffled = sprites(), sprites(shuffled=True)
    assert (np.asarray(shuffled.images) == np.asarray(data.images)).all()
    assert (np.unique(shuffled.factors, axis=0) == np.unique(data.factors, axis=0)).all()
    for column, other in zip(shuffled.factors.T, data.factors.T, strict=True):
        if np.ptp(column):
            assert abs(np.corrcoef(column, other)[0, 1]) < 4 / np.sqrt(len(data))
    assert (sprites(shuffled=1).factors == shuffled.factors).all()
    assert (sprites(shuffled=2).factors != shuffled.factors).any()
    # the background still follows what is in the picture
    both = sprites(**TURNED, shuffled=1)
    assert (np.asarray(both.images) == np.asarray(sprites(**TURNED).images)).all()
    assert (both.factors == shuffled.factors).all()


def test_the_recipe_has_the_options_and_makes_the_data_again():
    data = sprites(**TURNED, shuffled=True)
    again = zs.data.from_recipe(data.recipe)
    assert again.recipe == data.recipe
    assert (np.asarray(again.images) == np.asarray(data.images)).all()
    part = data.split((0.8, 0.2))[1]
    held_out = zs.data.from_recipe(part.recipe)
    assert (held_out.batch([0, 7]) == part.batch([0, 7])).all()


def test_defaults_are_no_options_and_equal_choices_are_equal():
    quiet = {"background_by": None, "background": None, "background_wave": 0.0, "shuffled": False}
    for name in zs.data.names():
        assert options_in_force(name, quiet) == {}
        assert not set(OPTIONS) & set(zs.data.source(name).options)
    assert not set(OPTIONS) & set(OWN)
    listed = {**TURNED, "background_by": ["position_x", "position_y"]}
    assert options_in_force("sprites", TURNED) == options_in_force("sprites", listed)
    assert options_in_force("mnist", {"shuffled": True}) == {"shuffled": 1}


def test_files_of_ones_own_can_be_shuffled_too(tmp_path):
    labels = np.arange(40)
    np.savez(tmp_path / "own.npz", images=np.zeros((40, 8, 8), np.uint8), factors=labels[:, None])
    data = zs.data.load(tmp_path / "own.npz", shuffled=1)
    assert sorted(data.factors[:, 0]) == labels.tolist()
    assert (data.factors[:, 0] != labels).sum() > 30
    assert options_in_force(data.recipe["name"], data.recipe["options"]) == {"shuffled": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"background": 0.1}, "background=0.1 has no effect without background_by"),
        ({"background_wave": 4}, "background_wave=4.0 has no effect without background_by"),
        ({"background_by": "scale"}, "no size; expected one of background"),
        (
            {"background_by": "scale", "background": 0.1, "background_variance": 1},
            "background and background_variance; expected one",
        ),
        ({"background_by": "scal", "background": 0.1}, "'scal' is no factor. Did you mean"),
        ({"background_by": "shape", "background": 0.1}, "the same in all rows"),
        ({"background_by": "scale", "background": 1.1}, "above 0, at most 1"),
        ({"background_by": "scale", "background_variance": 1e4}, "white at its lightest"),
        ({"background_by": "scale", "background_variance": -1}, "white at its lightest"),
        ({"background_by": "scale", "background": "dark"}, "Is one of them of the wrong kind"),
        ({"backround_by": "scale"}, "background_by"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(options, message):
    with pytest.raises(ConfigError, match=message):
        sprites(**options)


def test_levels_need_pictures_of_bytes_and_factors_with_an_order():
    with pytest.raises(DataError, match="needs pictures of bytes"):
        zs.data.load("square-linear", samples=10, background_by="w1", background=0.1)
    with pytest.raises(ConfigError, match="categorical, without an order"):
        sprites(shape="square,ellipse", background_by="shape", background=0.1)
    with pytest.raises(ConfigError, match="no factors to shuffle"):
        zs.data.modified.modify(zs.data.from_arrays(np.zeros((5, 3), np.float32)), shuffled=1)


def test_several_factors_without_a_wave_are_averaged():
    data = sprites()
    w = data.factors[:, 3:] / [15, 7]
    assert background_level(data, ["position_x", "position_y"]) == pytest.approx(w.mean(1))

"""Datasets without some values of a factor."""

import numpy as np
import pytest

import zscope as zs
from zscope.errors import DataError


def test_left_out_values_are_gone_and_the_recipe_loads_the_same_rows():
    whole = zs.data.load("rooms", resolution=8, floor_hue=2, wall_hue=2, object_hue=2, scale=2)
    by_name = whole.leave_out({"shape": "sphere"})
    assert len(by_name) == len(whole) * 3 // 4
    assert 2 not in by_name.factors[:, whole.factor_names.index("shape")]
    assert by_name.recipe["leave_out"] == {"shape": [2]}
    again = zs.data.from_recipe(by_name.recipe)
    np.testing.assert_array_equal(again.factors, by_name.factors)
    np.testing.assert_array_equal(again.images[:5], by_name.images[:5])
    several = whole.leave_out({"shape": ["cube", 1], "orientation": 14})
    assert len(several) == len(whole) // 2 * 14 // 15


def test_values_are_left_out_after_the_split_so_that_parts_stay_disjoint():
    whole = zs.data.load("helix", samples=100)
    train, test = whole.split([0.8, 0.2])
    old = train.leave_out({"strand": 0})
    again = zs.data.from_recipe(old.recipe)
    np.testing.assert_array_equal(again.factors, old.factors)
    held_out = {tuple(row) for row in np.asarray(test.images[:])}
    assert not held_out & {tuple(row) for row in np.asarray(old.images[:])}
    assert old.split([0.5, 0.5])[0].recipe is None  # no recipe says "left out, then split"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"strands": 1}, "no factor 'strands'. Did you mean strand"),
        ({"strand": 5}, "no sample has strand=5. Known: 0, 1"),
        ({"t": 0.5}, "the factor t is continuous"),
        ({"strand": [0, 1]}, "would leave nothing"),
        ({}, "expected them by name"),
    ],
)
def test_values_that_cannot_be_left_out_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        zs.data.load("helix", samples=100).leave_out(values)


def test_values_of_no_factors_cannot_be_left_out():
    with pytest.raises(DataError, match="no factors, so no values"):
        zs.data.from_arrays(np.zeros((4, 2), np.float32)).leave_out({"a": 1})

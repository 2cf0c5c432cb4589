"""The place of factors among ordered variables where it is known."""

from itertools import product

import numpy as np
import pytest
from worlds import identity

import zscope as zs
from zscope.assays import factor_place
from zscope.assays.responses.place import mean_place
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, Undefined


def recording(columns, names=("shape", "hue", "noise"), groups=None):
    """Codes that are these columns of (shape, hue, noise, noise), of which two are not encoded."""
    rows = np.array(list(product(range(4), range(4), range(2))), float)
    factors = np.random.default_rng(0).permutation(np.repeat(rows, 25, axis=0))
    noise = np.random.default_rng(1).normal(size=(len(factors), 2))
    codes = np.column_stack([factors[:, :2], noise])[:, columns].astype(np.float32)
    world = identity(len(columns))
    world.groups = groups
    kinds = ("categorical", "ordinal", "categorical")
    return zs.record(world, Dataset("grid", codes, factors, names, factor_kinds=kinds))


def test_a_factor_in_one_variable_has_its_place_and_one_that_is_not_learned_has_none():
    found = factor_place(recording([2, 1, 3, 0]))  # hue in variable 1, shape in variable 3
    assert found.places == [pytest.approx(3, abs=0.05), pytest.approx(1, abs=0.05), None]
    assert found.skills[:2] == pytest.approx([1, 1])
    assert found.skills[2] < 0.05
    assert found.chance == 1.5
    assert [measure.name for measure in found.measures()] == ["place of shape", "place of hue"]


def test_latents_of_one_variable_share_its_place():
    found = factor_place(recording([2, 1, 3, 0], groups=[[0, 1], [2, 3]]))
    assert found.places[:2] == [pytest.approx(1, abs=0.02), pytest.approx(0, abs=0.02)]
    assert found.chance == 0.5


def test_the_mean_index_under_known_weights():
    assert mean_place([1, 0, 0]) == 0
    assert mean_place([0.25, 0.25, 0.25, 0.25]) == 1.5
    assert mean_place([3, 0, 1]) == 0.5
    with pytest.raises(Undefined, match="not all 0"):
        mean_place([0, 0])


def test_late_minus_early_is_reversed_with_the_variables():
    words = {"early": ["shape"], "late": ["hue"]}
    there = factor_place(recording([0, 2, 3, 1]), **words)
    back = factor_place(recording([1, 3, 2, 0]), **words)
    assert there.order == pytest.approx(3, abs=0.1)
    assert back.order == pytest.approx(-there.order, abs=0.05)
    assert there.measures()[0].chance == 0
    # Nothing to compare where one of them was not learned.
    assert factor_place(recording([0, 2, 3, 1]), early="noise", late="hue").order is None


def test_responses_of_the_decoder_are_another_route():
    grid = recording([2, 1, 3, 0])
    codes = grid.codes.clone()
    by_codes = factor_place(grid)
    matrix = zs.assays.conditioned_response_matrix(grid)
    by_decoder = factor_place(grid, importance=matrix)
    squares = matrix.matrix.numpy() ** 2
    for k in (0, 1):  # by hand
        expected = (np.arange(4) * squares[k]).sum() / squares[k].sum()
        assert by_decoder.places[k] == pytest.approx(expected)
    assert by_decoder.skills[:2] == pytest.approx(by_codes.skills[:2], abs=0.02)
    assert (grid.codes == codes).all()


def test_factors_and_groups_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match=r"late='hues' is no factor.*hue"):
        factor_place(recording([0, 1, 2, 3]), late=["hues"])
    grid = recording([0, 1, 2, 3])
    grouped = zs.assays.dci(grid, groups=[[0, 1], [2, 3]])
    with pytest.raises(ConfigError, match="without groups"):
        factor_place(grid, importance=grouped)

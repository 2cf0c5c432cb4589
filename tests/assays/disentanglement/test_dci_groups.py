"""DCI by variables of several latents."""

import numpy as np
import pytest
import torch
from known_codes import grid
from worlds import identity

import zscope as zs
import zscope.assays as a
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError

FACTORS = grid((4, 4), 60)
GROUPS = [[0, 1], [2, 3]]


def spread():
    """Each factor over two latents: its sum, with noise that only their sum is free of."""
    noise = np.random.default_rng(0).normal(size=FACTORS.shape)
    return np.stack([FACTORS + noise, -noise], 2).reshape(len(FACTORS), 4)


def test_a_factor_in_both_latents_of_a_variable_is_complete_by_variables_only():
    codes = np.repeat(FACTORS, 2, axis=1) + 0.3 * np.random.default_rng(0).normal(size=(960, 4))
    by_latents, by_variables = a.dci(codes, FACTORS), a.dci(codes, FACTORS, groups=GROUPS)
    assert by_latents.completeness < 0.8
    assert by_variables.completeness > 0.95
    assert by_variables.disentanglement > 0.95
    assert by_variables.importance.shape == (2, 2)


def test_two_factors_in_one_variable_are_disentangled_by_latents_only():
    mixed = a.dci(FACTORS, FACTORS, groups=[[0, 1]])
    assert a.dci(FACTORS, FACTORS).score == pytest.approx(1, abs=1e-3)
    assert mixed.score == pytest.approx(0, abs=1e-3)
    assert any("Only one variable" in flag for flag in mixed.flags)


def test_the_importance_of_a_variable_is_the_sum_over_its_latents():
    codes = spread()
    single = a.dci(codes, FACTORS)
    grouped = a.dci(codes, FACTORS, groups=[[0, 3], [1, 2]])
    every = np.zeros((4, 2))
    every[single.active] = single.importance
    expected = np.stack([every[[0, 3]].sum(0), every[[1, 2]].sum(0)])
    assert grouped.importance == pytest.approx(expected)
    assert grouped.informativeness == single.informativeness
    # By hand: 1 - entropy of the shares, in units of log 2, weighted by importance.
    shares = expected / expected.sum(1, keepdims=True)
    each = 1 + (shares * np.log2(shares)).sum(1)
    assert grouped.score == pytest.approx((each * expected.sum(1)).sum() / expected.sum())


def test_single_latents_as_groups_change_nothing_but_the_words():
    codes = spread()
    plain = a.dci(codes, FACTORS, resamples=2)
    grouped = a.dci(codes, FACTORS, resamples=2, groups=[[0], [1], [2], [3]])
    assert (grouped.score, grouped.interval, grouped.chance) == (
        plain.score,
        plain.interval,
        plain.chance,
    )
    assert "groups" not in plain.to_dict()
    assert "variables used" in repr(grouped)
    assert "variable 2" in [t.get_text() for t in grouped.plot().get_yticklabels()]


def test_the_variables_of_the_model_are_used_by_name():
    codes = spread().astype(np.float32)
    world = identity(4)
    data = Dataset("grid", codes, FACTORS, factor_kinds=("ordinal", "ordinal"))
    singles = a.dci(zs.record(world, data), groups="model")  # it has no other variables
    assert singles.score == a.dci(zs.record(world, data)).score
    world.groups = GROUPS
    recording = zs.record(world, data)
    grouped = a.dci(recording, groups="model")
    assert grouped.groups == GROUPS
    assert grouped.score == a.dci(recording, groups=GROUPS).score
    report = zs.assay(recording, names=["dci"], options={"dci": {"groups": "model"}})
    assert report.results["dci"].score == grouped.score


def test_bad_groups_are_refused():
    codes = torch.from_numpy(spread())
    with pytest.raises(ConfigError, match=r"codes without a model.*groups=\[\[0, 1\], \[2\]\]"):
        a.dci(codes, FACTORS, groups="model")
    with pytest.raises(
        ConfigError, match="'modle'; expected a list of lists of whole numbers or model"
    ):
        a.dci(codes, FACTORS, groups="modle")
    with pytest.raises(ConfigError, match="leave out 2 of 4 latents"):
        a.dci(codes, FACTORS, groups=[[0, 1]])

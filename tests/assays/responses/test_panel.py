"""The structure panel: agreement of responses and importance where it is known."""

from dataclasses import replace
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from worlds import identity, ignoring

import zscope as zs
from zscope.assays import structure_panel
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, Undefined


def grid(world, columns=(0, 1, 2)):
    """A recording of a grid of three factors, of which the observations are columns."""
    values = np.array(list(product(range(4), range(4), range(4))), float)
    factors = np.repeat(values, 40, axis=0)
    images = factors[:, columns].astype(np.float32)
    data = Dataset("grid", images, factors, factor_kinds=("ordinal",) * 3)
    return zs.record(world, data)


@pytest.fixture(scope="module")
def aligned():
    return structure_panel(grid(identity(3)))


def test_codes_that_are_the_factors_agree_fully_and_have_no_edges(aligned):
    """Each factor has one latent: both matrices are diagonal."""
    assert aligned.score > 0.9
    assert abs(aligned.chance) < 0.2
    assert aligned.importance.argmax(1).tolist() == [0, 1, 2]
    assert aligned.edges == []


def test_agrees_with_the_correlation_of_ranks_by_hand(aligned):
    first, second = (
        rankdata((np.asarray(each, float) / float(each.max())).round(2).ravel())
        for each in (aligned.conditioned.matrix, aligned.importance)
    )
    assert aligned.score == pytest.approx(np.corrcoef(first, second)[0, 1])


def test_permuting_the_latents_changes_nothing_but_their_order(aligned):
    turned = structure_panel(grid(identity(3), columns=(2, 0, 1)))
    assert turned.importance.argmax(1).tolist() == [1, 2, 0]
    assert turned.importance[:, [1, 2, 0]] == pytest.approx(aligned.importance, abs=0.02)
    assert turned.score > turned.chance + 0.5
    # The importance of other latents than those that respond: no agreement.
    crossed = replace(aligned.conditioned, matrix=aligned.conditioned.matrix[:, [1, 2, 0]])
    recording = grid(identity(3))
    assert structure_panel(recording, conditioned=crossed).score < aligned.chance


def test_the_diagonal_is_bimodal_where_latents_are_either_used_or_not(aligned):
    assert not aligned.bimodal  # all are
    found = structure_panel(grid(ignoring(3, [1])))
    assert found.bimodal
    assert found.gap == pytest.approx((0, 1), abs=0.05)


def test_results_of_different_models_are_refused(aligned):
    recording = grid(identity(3))
    four = {"matrix": torch.ones(3, 4).double(), "scale": torch.ones(4).double()}
    other = replace(aligned.conditioned, **four)
    with pytest.raises(ConfigError, match="3 latents respond, 4 to single factors"):
        structure_panel(recording, conditioned=other)
    equal = replace(aligned.conditioned, matrix=torch.ones(3, 3).double())
    with pytest.raises(Undefined, match="no order to compare.*variable-types"):
        structure_panel(recording, conditioned=equal)


def test_codes_alone_have_no_responses():
    codes = np.random.default_rng(0).normal(size=(200, 3))
    measured = zs.assay(zs.Recording.from_arrays(codes, codes > 0), names=["structure-panel"])
    assert "a model is needed" in measured.missing["structure-panel"]


def test_the_figure_has_the_four_views(aligned):
    figure = aligned.plot()
    figure.canvas.draw()
    matrices = [ax.images[0].get_array() for ax in figure.axes if ax.images]
    shown = (aligned.responses.relative, aligned.conditioned.matrix, aligned.importance)
    for matrix, expected in zip(matrices, shown, strict=True):
        assert np.asarray(matrix) == pytest.approx(np.asarray(expected))
    with pytest.raises(ConfigError, match="transposed"):
        zs.plots.structure_panel(aligned.responses, aligned.conditioned, np.ones((2, 3)))
    plt.close(figure)

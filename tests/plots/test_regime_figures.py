"""Figures of the polarised regime."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from zscope import plots


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


class TestLinesAndBars:
    def test_lines_are_means_over_seeds_and_bars_mean_counts(self):
        series = {"means": {1: [2.0, 4.0], 8: [5.0, 7.0]}, "samples": {1: [1.0], 8: [1.0]}}
        ax = plots.lines_and_bars(
            series, {1: [0, 2], 8: [6, 7]}, x="β", y="TC", bar_label="passive"
        )
        line = next(line for line in ax.get_lines() if line.get_label() == "means")
        np.testing.assert_allclose(line.get_xydata(), [[0, 3], [1, 6]])
        behind = next(each for each in ax.figure.axes if each is not ax)
        assert [bar.get_height() for bar in behind.patches] == [1, 6.5]
        assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "8"]

    def test_levels_without_values_keep_their_bars(self):
        ax = plots.lines_and_bars({"means": {}}, {1: [3]}, x="β", y="TC", bar_label="passive")
        assert ax.get_legend() is None
        assert ax.get_ylim()[0] == 0


def test_a_counted_histogram_draws_its_fractions():
    ax = plots.counted_histogram([0.25, 0.75], [0.0, 1.0, 2.0], x="M")
    values, edges, _ = ax.patches[0].get_data()
    assert values.tolist() == [0.25, 0.75]
    assert edges.tolist() == [0.0, 1.0, 2.0]


def test_one_legend_stands_for_all_panels():
    figure, grid = plots.panel_grid(1, 2)
    for ax, name in zip(grid[0], ("a", "b"), strict=True):
        ax.plot([0, 1], label=name)
        ax.plot([1, 0], label="both")
        ax.legend()
    plots.legend_below(figure, grid)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "both", "b"]
    assert all(ax.get_legend() is None for ax in grid[0])

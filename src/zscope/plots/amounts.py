"""Bars and histograms."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zscope.errors import ConfigError
from zscope.plots import theme

__all__ = [
    "Binned",
    "bars",
    "binned_panels",
    "histogram",
    "histograms",
    "paired_bars",
]


@theme.themed
def bars(
    values: Any,
    *,
    names: Sequence[Any] | None = None,
    x: str = "",
    y: str = "",
    title: str = "",
    errors: Any = None,
    marks: Sequence[int] | None = None,
    line: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One bar for each value. `errors` are half-widths, or a pair of rows (below, above).

    Bars that are not in `marks` are grey; `line` draws a horizontal reference line.
    """
    heights = theme.array(values).astype(float).ravel()
    if not heights.size or not np.isfinite(heights).all():
        raise ConfigError(
            f"bars: got {heights.size} values, of which {int((~np.isfinite(heights)).sum())} are "
            "not finite. Pass at least one value, and only finite ones."
        )
    labels = theme.labels(len(heights), names)
    ax = theme.axes(ax, float(np.clip(0.9 + 0.24 * len(heights), 2.2, theme.PAGE)), 2.2)
    # Labels that would overlap are rotated.
    width = ax.get_position().width * theme.figure_of(ax).get_size_inches()[0] / len(heights)
    long = max(map(len, labels)) * 0.075 > max(width, 0.23)
    marked = range(len(heights)) if marks is None else marks
    ax.bar(
        range(len(heights)),
        heights,
        width=0.72,
        color=[theme.BLUE if k in marked else theme.FAINT for k in range(len(heights))],
    )
    if errors is not None:
        ax.errorbar(
            range(len(heights)),
            heights,
            yerr=theme.array(errors),
            fmt="none",
            ecolor=theme.INK,
            elinewidth=0.8,
        )
    count = len(heights)
    every = 1 if count <= 40 or (long and count <= 60) else 5 * -(-count // 130)
    ticks = list(range(0, len(heights), every))
    rotated: dict[str, Any] = (
        {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if long else {}
    )
    ax.set_xticks(ticks, [labels[k] for k in ticks], **rotated)
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(-0.6, len(heights) - 0.4)
    if heights.min() < 0:
        ax.axhline(0, color=theme.INK, linewidth=0.6)
        ax.spines["bottom"].set_visible(False)
    if line is not None:
        ax.axhline(line, color=theme.GREY, linewidth=0.8, linestyle=(0, (4, 2)))
    ax.set(xlabel=x, ylabel=y)
    theme.title(ax, title)
    return ax


@theme.themed
def paired_bars(
    tables: Mapping[str, Mapping[str, tuple[float, float]]],
    *,
    names: tuple[str, str],
    y: str = "",
    floors: Mapping[str, Mapping[str, float]] | None = None,
    ax: Axes | None = None,
) -> Axes | Figure:
    """A panel for each table, {subset: pair of values}: two bars for each subset.

    `names` are those of the two bars, in a legend. `floors` are drawn as a dash over both. With
    `ax` the first table is drawn there.
    """
    if not tables or not all(tables.values()):
        raise ConfigError(f"paired_bars: of {len(tables)} tables, some are empty. Leave them out.")
    chosen = dict(tables) if ax is None else dict(list(tables.items())[:1])
    if ax is None and len(chosen) > 1:
        most = max(map(len, chosen.values()))
        width = float(np.clip(len(chosen) * (0.9 + 0.36 * most), 4, theme.PAGE))
        figure, grid = theme.panels(1, len(chosen), width, 2.5)
        axes = list(grid.flat)
    else:
        axes = [theme.axes(ax, theme.COLUMN, 2.5)]
        figure = axes[0]
    for panel, (title, table) in zip(axes, chosen.items(), strict=True):
        at = np.arange(len(table))
        heights = np.array(list(table.values()), float)
        colours = theme.categories(2)
        for k, (name, colour) in enumerate(zip(names, colours, strict=True)):
            panel.bar(at + 0.38 * (k - 0.5), heights[:, k], 0.36, color=colour, label=name)
        own = (floors or {}).get(title, {})
        for place, subset in enumerate(table):
            if subset in own:
                dash = {"color": theme.INK, "linewidth": 0.9, "linestyle": (0, (3, 1.5))}
                panel.plot([place - 0.42, place + 0.42], [own[subset]] * 2, **dash)
        panel.set_xticks(at, list(table), rotation=30, ha="right", rotation_mode="anchor")
        panel.tick_params(axis="x", length=0)
        panel.set(ylabel=y if panel is axes[0] else "")
        theme.title(panel, title)
    axes[0].legend(fontsize=theme.SMALL)
    return figure


@theme.themed
def histogram(
    values: Any,
    *,
    x: str = "",
    y: str = "fraction",
    title: str = "",
    bins: int | Sequence[float] | None = None,
    mark: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A histogram; `mark` draws a vertical line at a value."""
    return _histograms({"": values}, x, y, title, bins, mark, ax)


@theme.themed
def histograms(
    samples: Mapping[str, Any],
    *,
    x: str = "",
    y: str = "fraction",
    title: str = "",
    bins: int | Sequence[float] | None = None,
    mark: float | None = None,
    marked: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Several named histograms over the same bins; the fractions of each add up to 1.

    `mark` draws a vertical line at a value, and `marked` names it in the legend.
    """
    return _histograms(samples, x, y, title, bins, mark, ax, marked)


def _histograms(
    samples: Mapping[str, Any],
    x: str,
    y: str,
    title: str,
    bins: int | Sequence[float] | None,
    mark: float | None,
    ax: Axes | None,
    marked: str = "",
) -> Axes:
    arrays = {name: theme.array(values).astype(float).ravel() for name, values in samples.items()}
    pooled = np.concatenate(list(arrays.values())) if arrays else np.zeros(0)
    if not pooled.size or not np.isfinite(pooled).all():
        raise ConfigError(
            f"histogram: got {pooled.size} values, of which {int((~np.isfinite(pooled)).sum())} "
            "are not finite. Pass at least one value, and only finite ones."
        )
    count = int(np.clip(np.sqrt(pooled.size), 10, 60)) if bins is None else bins
    edges = np.histogram_bin_edges(pooled, count)
    ax = theme.axes(ax, theme.COLUMN, 2.2)
    for colour, (name, values) in zip(theme.categories(len(arrays)), arrays.items(), strict=True):
        fractions = np.histogram(values, edges)[0] / max(1, values.size)
        ax.stairs(fractions, edges, fill=True, color=colour, alpha=0.25)
        ax.stairs(fractions, edges, color=colour, linewidth=1.2, label=name or None)
    # Room for the legend above the bars.
    rows = len(arrays) + bool(marked) if len(arrays) > 1 else 0
    ax.set_ylim(0, ax.get_ylim()[1] * (1 + 0.15 * rows))
    if mark is not None:
        dashes = (0, (4, 2))
        height = 1 / (1 + 0.15 * rows)
        ax.axvline(
            mark,
            ymax=height,
            color=theme.INK,
            linewidth=0.8,
            linestyle=dashes,
            label=marked or None,
        )
    ax.set(xlabel=x, ylabel=y)
    theme.title(ax, title)
    if len(arrays) > 1:
        ax.legend(loc="upper right")
    return ax


class Binned(NamedTuple):
    """One panel of histograms that were counted before: fractions over the same edges."""

    fractions: Mapping[str, Any]
    edges: Any
    line: Any = None  # a curve to compare with, one number for each bin
    mark: float | None = None  # a value to compare with


@theme.themed
def binned_panels(
    grid: Sequence[Sequence[Binned]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    colours: Sequence[Any] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure | Axes:
    """Small multiples of counted histograms: one row for each item of `grid`.

    The first histogram of a panel is filled with the colour of its row, others are outlines
    with a legend in the first row. `rows` are written above the first panel of each row,
    `columns` below the last one. With `ax` only the first panel is drawn, on it.
    """
    if not grid or not all(grid):
        raise ConfigError(
            f"binned_panels: got {len(grid)} rows, some of them empty. Pass a panel for each cell."
        )
    colours = [theme.BLUE] * len(grid) if colours is None else colours
    if ax is not None:
        ax = theme.axes(ax)
        _draw_binned(ax, grid[0][0], colours[0])
        ax.set(xlabel=columns[0], ylabel="fraction")
        theme.title(ax, rows[0])
        return ax
    down, across = len(grid), max(map(len, grid))
    figure, axes = theme.panels(down, across, min(theme.PAGE, 1.9 * across), 0.35 + 1.25 * down)
    for row, (panels, colour) in enumerate(zip(grid, colours, strict=True)):
        for column, panel in enumerate(panels):
            place = axes[row, column]
            _draw_binned(place, panel, colour)
            place.set_yticks([])
            place.spines["left"].set_visible(False)
            place.locator_params(axis="x", nbins=4)
            if row == 0 and len(panel.fractions) > 1:
                place.legend(loc="best", fontsize=theme.SMALL)
            if row == down - 1:
                place.set_xlabel(columns[column])
        axes[row, 0].set_title(rows[row], fontsize=theme.NORMAL)
    if title:
        figure.suptitle(title, fontsize=theme.LARGE, x=0.01, ha="left")
    return figure


def _draw_binned(ax: Axes, panel: Binned, colour: Any) -> None:
    edges = theme.array(panel.edges)
    others = iter((theme.INK, theme.GREY, theme.GREEN))
    for number, (name, values) in enumerate(panel.fractions.items()):
        heights = theme.array(values)
        if number == 0:
            ax.stairs(heights, edges, fill=True, color=colour, alpha=0.75, label=name)
        else:
            ax.stairs(heights, edges, color=next(others), linewidth=1.0, label=name)
    if panel.line is not None:
        middle = (edges[1:] + edges[:-1]) / 2
        ax.plot(middle, theme.array(panel.line), color=theme.INK, linewidth=0.9)
    if panel.mark is not None and edges[0] <= panel.mark <= edges[-1]:
        ax.axvline(panel.mark, color=theme.INK, linewidth=0.8, linestyle=(0, (4, 2)))
    ax.set_ylim(bottom=0)

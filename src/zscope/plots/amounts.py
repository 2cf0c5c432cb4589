"""Bars and histograms."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zscope.errors import ConfigError
from zscope.plots import theme

__all__ = ["bars", "histogram", "histograms", "paired_bars"]


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

"""Figures of studies: measurements of a family of models, a mark for every seed.

strips({"ae": [0.75, 0.71], "xae": [0.81, 0.84]}, y="self-consistency")
lines_over({"mnist": {1: [4.9, 5.2], 2: [1.6, 1.9]}}, x="β", y="structure score")
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from zscope.plots.theme import GREY, SMALL, axes, categories, themed
from zscope.plots.theme import title as set_title

__all__ = ["lines_over", "panel_grid", "scatter_groups", "stacked_bars", "strips"]

Published = Mapping[Any, tuple[float, float]]  # level -> value and its half-width


@themed
def strips(
    groups: Mapping[Any, Sequence[float]],
    *,
    y: str,
    x: str = "",
    title: str = "",
    line: tuple[float, str] | None = None,
    published: Published | None = None,
    bars: bool = False,
    colours: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A point for every seed and a line at the mean, side by side for each group.

    `line` is a level to compare with, such as chance; `published` values are grey diamonds with
    their printed spread; `bars` draws the means as bars from 0. `colours` has one for each group.
    """
    ax = axes(ax, width=max(2.2, 0.9 + 0.55 * len(groups)))
    colours = colours or categories(len(groups))
    for place, (values, colour) in enumerate(zip(groups.values(), colours, strict=True)):
        if not len(values):
            continue
        mean = float(np.mean(values))
        if bars:
            ax.bar(place, mean, 0.62, color=colour, alpha=0.35, linewidth=0)
        shift = np.linspace(-0.14, 0.14, len(values)) if len(values) > 1 else [0.0]
        ax.scatter(place + np.asarray(shift), values, s=9, color=colour, linewidths=0, zorder=3)
        ax.plot([place - 0.28, place + 0.28], [mean, mean], color=colour, linewidth=1.4, zorder=4)
    if line is not None:
        ax.axhline(line[0], color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        ax.annotate(
            line[1], (1, line[0]), xycoords=("axes fraction", "data"), xytext=(2, 0),
            textcoords="offset points", fontsize=SMALL, color=GREY, va="center",
        )  # fmt: skip
    _published(ax, {place: published[key] for place, key in enumerate(groups) if key in published}
               if published else {})  # fmt: skip
    names = [str(key) for key in groups]
    ax.set_xticks(range(len(names)), names)
    if sum(map(len, names)) > 8 * len(names) or max(map(len, names), default=0) > 9:
        ax.tick_params(axis="x", labelrotation=30)
        for label in ax.get_xticklabels():
            label.set_horizontalalignment("right")
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if title:
        set_title(ax, title)
    return ax


@themed
def lines_over(
    series: Mapping[Any, Mapping[float, Sequence[float]]],
    *,
    x: str,
    y: str,
    title: str = "",
    log: bool = False,
    legend: str = "",
    published: Mapping[Any, Published] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The mean over seeds against a setting, with a point for every seed and a 95 % bar.

    `published` values of a series are grey diamonds with their printed spread.
    """
    from zscope.tables.statistics import mean_of

    ax = axes(ax)
    for (name, levels), colour in zip(series.items(), categories(len(series)), strict=True):
        places = sorted(levels)
        means = [mean_of(list(levels[place])) for place in places]
        known = [(place, each) for place, each in zip(places, means, strict=True) if each]
        if not known:
            continue
        ax.plot([p for p, _ in known], [m.value for _, m in known], color=colour, label=str(name))
        for place, mean in known:
            ax.scatter([place] * len(levels[place]), levels[place], s=7, color=colour, alpha=0.5,
                       linewidths=0, zorder=3)  # fmt: skip
            if not mean.is_range:
                ax.plot([place, place], [mean.low, mean.high], color=colour, linewidth=0.8)
    for values in (published or {}).values():
        _published(ax, values)
    if log:
        ax.set_xscale("log", base=2 if log else 10)
        ticks = sorted({place for levels in series.values() for place in levels})
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if len(series) > 1 and ax.get_legend_handles_labels()[0]:
        ax.legend(title=legend or None, fontsize=SMALL, title_fontsize=SMALL)
    if title:
        set_title(ax, title)
    return ax


def _published(ax: Axes, values: Mapping[Any, tuple[float, float]]) -> None:
    for number, (place, (value, spread)) in enumerate(values.items()):
        label = "published" if number == 0 else None
        ax.errorbar(
            place + 0.0, value, yerr=spread or None, fmt="D", color=GREY, markersize=3.5,
            markerfacecolor="white", markeredgewidth=0.8, elinewidth=0.8, zorder=2, label=label,
        )  # fmt: skip


@themed
def scatter_groups(
    groups: Mapping[Any, tuple[Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Points (x, y) of several groups, each in its colour."""
    ax = axes(ax)
    for (name, (first, second)), colour in zip(
        groups.items(), categories(len(groups)), strict=True
    ):
        ax.scatter(first, second, s=12, color=colour, linewidths=0, label=str(name), alpha=0.8)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if len(groups) > 1:
        ax.legend(fontsize=SMALL)
    if title:
        set_title(ax, title)
    return ax


@themed
def stacked_bars(
    parts: Mapping[str, Sequence[float]],
    levels: Sequence[Any],
    *,
    x: str,
    y: str,
    title: str = "",
    colours: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Bars of several parts on top of each other, one bar for each level."""
    ax = axes(ax)
    base = np.zeros(len(levels))
    for (name, values), colour in zip(
        parts.items(), colours or categories(len(parts)), strict=True
    ):
        ax.bar(range(len(levels)), values, 0.75, bottom=base, color=colour, label=name)
        base = base + np.asarray(values, dtype=float)
    ax.set_xticks(
        range(len(levels)), [f"{v:g}" if isinstance(v, float) else str(v) for v in levels]
    )
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.legend(fontsize=SMALL, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if title:
        set_title(ax, title)
    return ax


@themed
def panel_grid(
    rows: int, columns: int, *, width: float = 7.0, height: float = 2.4, **options: Any
) -> tuple[Any, np.ndarray]:
    """A figure with rows x columns axes in the theme, as a 2-D array."""
    from zscope.plots.theme import panels

    return panels(rows, columns, width, height, **options)

"""Figures of the polarised regime: measurements over strengths, with counts of latents."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from zscope.plots.theme import BLUE, FAINT, GREY, SMALL, axes, categories, themed
from zscope.plots.theme import title as set_title

__all__ = ["counted_histogram", "legend_below", "lines_and_bars"]


@themed
def lines_and_bars(
    series: Mapping[str, Mapping[float, Sequence[float]]],
    bars: Mapping[float, Sequence[float]],
    *,
    x: str,
    y: str,
    bar_label: str,
    title: str = "",
    top: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Means over seeds as lines with 95 % bars, and mean counts as pale bars with their own axis.

    Levels are evenly spaced, as in the figures of Bonheme 2023; `top` ends the axis of counts.
    """
    from zscope.tables.statistics import mean_of

    ax = axes(ax)
    levels = sorted({*bars, *(level for own in series.values() for level in own)})
    place = {level: k for k, level in enumerate(levels)}
    behind = ax.twinx()
    counts = [float(np.mean(bars[level])) if len(bars.get(level, ())) else 0.0 for level in levels]
    behind.bar(range(len(levels)), counts, 0.7, color=FAINT, label=bar_label, zorder=0)
    behind.set_ylabel(bar_label, color=GREY)
    behind.tick_params(axis="y", colors=GREY, length=2)
    behind.set_ylim(0, top or max(1.0, 1.1 * max(counts, default=1.0)))
    behind.spines[["top", "left", "bottom"]].set_visible(False)
    behind.spines["right"].set_color(GREY)
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    for (name, own), colour in zip(series.items(), categories(len(series)), strict=True):
        known = [(place[level], mean_of(list(own[level]))) for level in sorted(own)]
        points = [(at, mean) for at, mean in known if mean is not None]
        if not points:
            continue
        ax.plot([at for at, _ in points], [mean.value for _, mean in points], marker="o",
                markersize=3.5, color=colour, label=name)  # fmt: skip
        for at, mean in points:
            if not mean.is_range:
                ax.plot([at, at], [mean.low, mean.high], color=colour, linewidth=0.9)
    if ax.get_ylim()[0] > 0 or not ax.get_lines():
        ax.set_ylim(bottom=0)
    ax.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
    ax.set_xlim(-0.6, len(levels) - 0.4)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if ax.get_lines():
        ax.legend(fontsize=SMALL)
    if title:
        set_title(ax, title)
    return ax


@themed
def counted_histogram(
    fractions: Sequence[float],
    edges: Sequence[float],
    *,
    x: str = "",
    title: str = "",
    colour: Any = BLUE,
    curve: Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A histogram that was counted before, as fractions; `curve` is one to compare with."""
    ax = axes(ax)
    ax.stairs(np.asarray(fractions), np.asarray(edges), fill=True, color=colour)
    if curve is not None:
        middles = (np.asarray(edges)[1:] + np.asarray(edges)[:-1]) / 2
        ax.plot(middles, np.asarray(curve), color=GREY, linewidth=1.0)
    ax.set_xlabel(x)
    ax.set_ylabel("fraction")
    ax.locator_params(axis="x", nbins=5)
    if title:
        set_title(ax, title)
    return ax


def legend_below(figure: Any, panels: Any, *, columns: int = 5) -> None:
    """One legend of all panels below them, in place of one in each."""
    entries: dict[str, Any] = {}
    for ax in np.asarray(panels).flat:
        handles, names = ax.get_legend_handles_labels()
        entries |= dict(zip(names, handles, strict=True))
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    if entries:
        figure.legend(
            entries.values(), entries.keys(), loc="outside lower center", fontsize=SMALL,
            ncols=min(columns, len(entries)), frameon=False,
        )  # fmt: skip

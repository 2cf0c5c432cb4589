"""Amounts: bars, and how values are distributed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from zscope.errors import ConfigError
from zscope.plots import theme


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

    Bars not in `marks` are grey; `line` is a level to compare with.
    """
    heights = theme.array(values).astype(float).ravel()
    if not heights.size or not np.isfinite(heights).all():
        raise ConfigError(
            f"bars: {heights.size} values, of which {int((~np.isfinite(heights)).sum())} are not "
            "finite. Give at least one value, and finite ones."
        )
    labels = theme.names(len(heights), names)
    ax = theme.axes(ax, float(np.clip(0.9 + 0.24 * len(heights), 2.2, theme.PAGE)), 2.2)
    # Names that would run into each other are turned.
    room = ax.get_position().width * theme.figure_of(ax).get_size_inches()[0] / len(heights)
    long = max(map(len, labels)) * 0.075 > max(room, 0.23)
    chosen = range(len(heights)) if marks is None else marks
    ax.bar(
        range(len(heights)),
        heights,
        width=0.72,
        color=[theme.BLUE if k in chosen else theme.FAINT for k in range(len(heights))],
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
    every = 1 if len(heights) <= 40 or long else 5
    shown = list(range(0, len(heights), every))
    turned: dict[str, Any] = (
        {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if long else {}
    )
    ax.set_xticks(shown, [labels[k] for k in shown], **turned)
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
def histogram(
    values: Any,
    *,
    x: str = "",
    y: str = "share",
    title: str = "",
    bins: int | Sequence[float] | None = None,
    mark: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How values are distributed; `mark` is a value to point at."""
    return _distributions({"": values}, x, y, title, bins, mark, ax)


@theme.themed
def histograms(
    samples: Mapping[str, Any],
    *,
    x: str = "",
    y: str = "share",
    title: str = "",
    bins: int | Sequence[float] | None = None,
    mark: float | None = None,
    marked: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Several distributions over the same bins, each named; shares add up to 1 for each.

    `mark` is a value to point at, `marked` what it is.
    """
    return _distributions(samples, x, y, title, bins, mark, ax, marked)


def _distributions(
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
    together = np.concatenate(list(arrays.values())) if arrays else np.zeros(0)
    if not together.size or not np.isfinite(together).all():
        raise ConfigError(
            f"histogram: {together.size} values, of which "
            f"{int((~np.isfinite(together)).sum())} are not finite. Give finite numbers."
        )
    count = int(np.clip(np.sqrt(together.size), 10, 60)) if bins is None else bins
    edges = np.histogram_bin_edges(together, count)
    ax = theme.axes(ax, theme.COLUMN, 2.2)
    for colour, (name, values) in zip(theme.categories(len(arrays)), arrays.items(), strict=True):
        shares = np.histogram(values, edges)[0] / max(1, values.size)
        ax.stairs(shares, edges, fill=True, color=colour, alpha=0.25)
        ax.stairs(shares, edges, color=colour, linewidth=1.2, label=name or None)
    if mark is not None:
        dashes = (0, (4, 2))
        ax.axvline(mark, color=theme.INK, linewidth=0.8, linestyle=dashes, label=marked or None)
    ax.set_ylim(bottom=0)
    ax.set(xlabel=x, ylabel=y)
    theme.title(ax, title)
    if len(arrays) > 1:
        ax.legend()
    return ax

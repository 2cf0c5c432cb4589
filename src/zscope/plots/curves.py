"""Line charts with labels at the ends of the lines."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from zscope.errors import ConfigError
from zscope.plots import theme

__all__ = [
    "curves_and_gap",
    "lines",
    "score_panels",
    "step_lines",
    "traversal_errors",
    "traversal_panels",
]

MOST_PANELS = 24
PANEL = 0.9
"""The side of a panel of `traversal_panels`, of the distance to the next."""
APART = 0.015
"""Between lines that are drawn apart, of the range of values."""


@theme.themed
def lines(
    series: Mapping[str, Any] | Any,
    *,
    at: Any = None,
    x: str = "",
    y: str = "",
    title: str = "",
    markers: bool | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Named lines, {name: values} (or an array with one line per row), at the positions `at`.

    Up to 8 lines are labelled at their right ends, more of them in a legend beside the axes.
    """
    if not isinstance(series, Mapping):
        rows = np.atleast_2d(theme.array(series))
        series = {"" if len(rows) == 1 else str(k): row for k, row in enumerate(rows)}
    arrays = {name: theme.array(values).astype(float).ravel() for name, values in series.items()}
    if not arrays or not all(v.size and np.isfinite(v).all() for v in arrays.values()):
        raise ConfigError(
            f"lines: of {len(arrays)} lines, some are empty or have values that are not finite. "
            "Pass finite values for every line."
        )
    many = len(arrays) > 8
    ax = theme.axes(ax, theme.PAGE * 0.75 if many else theme.COLUMN, 2.6 if many else 2.3)
    colours = theme.categories(len(arrays))
    ends = []
    for colour, (name, values) in zip(colours, arrays.items(), strict=True):
        positions = np.arange(len(values)) if at is None else theme.array(at).ravel()
        positions = positions.astype(float)
        if len(positions) != len(values):
            raise ConfigError(
                f"lines: {name!r} has {len(values)} values at {len(positions)} positions. Pass one "
                "value for each position."
            )
        marked = len(values) <= 12 if markers is None else markers
        ax.plot(positions, values, color=colour, marker="o" if marked else None, markersize=3)
        ends.append((positions[-1], values[-1], name, colour))
    ax.set(xlabel=x, ylabel=y)
    theme.title(ax, title)
    if many:
        names, place = list(arrays), (1.01, 0.5)
        ax.legend(names, fontsize=theme.SMALL, loc="center left", bbox_to_anchor=place)
    else:
        end_labels(ax, ends)
    return ax


@theme.themed
def curves_and_gap(
    series: Mapping[str, Any],
    gap: Any,
    *,
    at: Any,
    level: float,
    x: str = "",
    y: str = "",
    gap_name: str = "gap",
    level_name: str = "",
    ax: Axes | None = None,
) -> Figure | Axes:
    """Named lines over a logarithmic axis, and beside them the gap between two of them.

    `level` is what the gap is compared with, a dashed line called `level_name`. With `ax` only
    the gap is drawn, on it.
    """
    if ax is None:
        figure, grid = theme.panels(1, 2, theme.PAGE, 2.3)
        left, right = grid[0]
        left.set_xscale("log")
        lines(series, at=at, x=x, y=y, ax=left)
    else:
        figure, right = None, ax
    right.set_xscale("log")
    lines({"": gap}, at=at, x=x, y=f"{gap_name} ({y})" if y else gap_name, ax=right)
    positions, values = theme.array(at).astype(float), theme.array(gap).astype(float)
    right.axhline(level, color=theme.GREY, linewidth=0.8, linestyle=(0, (4, 2)))
    right.annotate(
        f"{level_name} = {level:.3f}" if level_name else f"{level:.3f}",
        (positions.min(), level),
        (0, 2),
        textcoords="offset points",
        fontsize=theme.SMALL,
        color=theme.GREY,
    )
    right.set_ylim(min(0.0, float(values.min())), 1.15 * max(level, float(values.max()), 1e-12))
    return right if figure is None else figure


@theme.themed
def step_lines(
    series: Mapping[str, Mapping[Any, float]],
    *,
    x: str = "",
    y: str = "",
    apart: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Named lines, {name: {position: value}}, each with positions of its own.

    The axis of values begins at 0 if no value is negative. With `apart`, lines are moved up or
    down a little, so that none hides another one where both have the same values.
    """
    if not series or not all(series.values()):
        raise ConfigError(
            f"step_lines: of {len(series)} lines, some have no values. Leave them out, or give "
            "them values."
        )
    many = len(series) > 8
    ax = theme.axes(ax, theme.PAGE * 0.75 if many else theme.COLUMN * 1.15, 2.6)
    ends = []
    every = [value for values in series.values() for value in values.values()]
    step = APART * (max(every) - min(0, *every) or 1) if apart else 0
    colours = theme.categories(len(series))
    for k, (colour, (name, values)) in enumerate(zip(colours, series.items(), strict=True)):
        shift = step * ((len(series) - 1) / 2 - k)
        places, numbers = list(values), [float(value) + shift for value in values.values()]
        marker = "o" if len(places) <= 12 else None
        ax.plot(places, numbers, color=colour, marker=marker, markersize=3, label=name)
        ends.append((places[-1], numbers[-1], name, colour))
    ax.set(xlabel=x, ylabel=y)
    _from_zero(ax, every)
    ax.xaxis.set_major_locator(_round_ticks())
    if many:
        ax.legend(fontsize=theme.SMALL, loc="center left", bbox_to_anchor=(1.01, 0.5))
    else:
        end_labels(ax, ends)
    return ax


@theme.themed
def score_panels(
    table: Sequence[Mapping[str, Any]], *, x: str = "step", titles: Mapping[str, str] | None = None
) -> Figure:
    """A panel for each score of a long table: value, interval and chance against the column `x`.

    A line above each panel says that 95 % intervals are shaded, where there are some.
    `titles` are for assays that are known by another name.
    """
    names = dict.fromkeys((row["assay"], row["measure"]) for row in table)
    width = min(theme.PAGE, 2.4 * len(names))
    figure, grid = theme.panels(1, len(names), width, 2.2, sharex=True)
    for ax, (assay, measure) in zip(grid.flat, names, strict=True):
        rows = [row for row in table if (row["assay"], row["measure"]) == (assay, measure)]
        at, values = [row[x] for row in rows], [row["value"] for row in rows]
        ax.plot(at, values, color=theme.BLUE, marker="o" if len(at) <= 12 else None, markersize=3)
        banded = [row for row in rows if row["low"] is not None]
        ax.fill_between(
            [row[x] for row in banded],
            [row["low"] for row in banded],
            [row["high"] for row in banded],
            color=theme.BLUE,
            alpha=0.2,
            linewidth=0,
        )
        chance = [row for row in rows if row["chance"] is not None]
        if chance:
            ax.plot(
                [row[x] for row in chance],
                [row["chance"] for row in chance],
                color=theme.GREY,
                linestyle="--",
                linewidth=0.9,
            )
            end = (chance[-1][x], chance[-1]["chance"], "chance", theme.GREY)
            end_labels(ax, [end])
        name = (titles or {}).get(assay, assay)
        name = name if measure == "score" else f"{name}, {measure}"
        ax.set_title(name, fontsize=theme.NORMAL, pad=12)
        ax.annotate(
            "shaded: 95 % interval" if banded else "", (0, 1), (0, 3), xycoords="axes fraction",
            textcoords="offset points", fontsize=theme.SMALL, color=theme.GREY,
        )  # fmt: skip
        ax.set_xlabel(x)
        _from_zero(ax, values)
        ax.xaxis.set_major_locator(_round_ticks(4))
    return figure


def _round_ticks(most: int = 6) -> MaxNLocator:
    """Ticks at few round whole numbers."""
    return MaxNLocator(most, integer=True, steps=[1, 2, 5, 10])


def _from_zero(ax: Axes, values: Sequence[float]) -> None:
    """Let an axis of positive values begin just below 0; whole numbers have whole ticks."""
    if min(values) >= 0:
        ax.set_ylim(-0.06 * (ax.get_ylim()[1] or 1), ax.get_ylim()[1])
    if all(float(value).is_integer() for value in values):
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))


@theme.themed
def traversal_errors(
    values: Any,
    errors: Any,
    *,
    moved: int,
    names: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Figure | Axes:
    """One panel per observed latent, one line per sample, as latent `moved` is moved.

    Of more than 24 latents, those with the largest errors get a panel.

    `values` (steps) are the values of the moved latent, `errors` (samples x steps x latents)
    the signed N - N'. The panel of the moved latent has its title in bold. With `ax`, only the
    latent with the largest error is drawn.
    """
    values, errors = theme.array(values).astype(float), theme.array(errors).astype(float)
    count = errors.shape[-1]
    if errors.ndim != 3 or values.shape != errors.shape[1:2]:
        raise ConfigError(
            f"traversal_errors: expected values of shape (steps,) and errors of shape "
            f"(samples, steps, latents), got {values.shape} and {errors.shape}."
        )
    labels = theme.labels(count, names)
    order = np.argsort(-np.abs(errors).max((0, 1)), kind="stable")
    if ax is not None:
        worst = int(order[0])
        sample_lines(theme.axes(ax), values, errors[:, :, worst])
        ax.set(xlabel=f"value of latent {labels[moved]}", ylabel=f"error of latent {labels[worst]}")
        return ax
    chosen = sorted(order[:MOST_PANELS].tolist())
    across = min(count, 4) if count <= 16 else 6
    down = -(-len(chosen) // across)
    figure, grid = theme.panels(
        down, across, theme.PAGE * min(1, (across + 0.3) / 4), 0.3 + 1.35 * down, sharey=True
    )
    for panel in grid.flat[len(chosen) :]:
        panel.set_visible(False)
    for k, panel in zip(chosen, grid.flat, strict=False):
        sample_lines(panel, values, errors[:, :, k])
        weight = "bold" if k == moved else "normal"
        panel.set_title(f"latent {labels[k]}", fontsize=theme.NORMAL, fontweight=weight)
        panel.tick_params(labelsize=theme.SMALL)
        panel.xaxis.set_major_locator(MaxNLocator(4))
    note = "" if len(chosen) == count else f" ({len(chosen)} of {count}, the largest errors)"
    figure.supxlabel(f"value of latent {labels[moved]}, moved{note}", fontsize=theme.NORMAL)
    figure.supylabel("error, before − after", fontsize=theme.NORMAL)
    return figure


@theme.themed
def traversal_panels(values: Any, errors: Any, *, names: Sequence[Any] | None = None) -> Figure:
    """A panel for each moved latent (rows) and each observed one (columns), a line per sample.

    `values` (latents x steps) are the values of each moved latent, `errors` (latents x samples x
    steps x latents) the signed N - N'. All panels have one range of errors, so that they can be
    compared; the ones of the moved latents, on the diagonal, have a grey ground. The range of the
    moved latent stands at the right of its row.
    """
    values, errors = theme.array(values).astype(float), theme.array(errors).astype(float)
    count = len(errors)
    if errors.ndim != 4 or errors.shape[-1] != count or values.shape != (count, errors.shape[2]):
        raise ConfigError(
            "traversal_panels: expected values of shape (latents, steps) and errors of shape "
            f"(latents, samples, steps, latents), got {values.shape} and {errors.shape}."
        )
    labels = theme.labels(count, names)
    side = float(np.clip((theme.PAGE - 1.3) / count, 0.4, 1.6))
    # All panels are drawn in one pair of axes: a hundred pairs take seconds.
    ax = theme.axes(None, side * count + 1.3, 0.85 * side * count + 0.8)
    low, high = float(min(0, errors.min())), float(max(0, errors.max()))
    scale = PANEL / ((high - low) or 1.0)
    spans = np.ptp(values, axis=1, keepdims=True)  # an unused latent may have none
    across = np.where(spans > 0, (values - values[:, :1]) / np.where(spans > 0, spans, 1), 0.5)
    grid = list(np.ndindex(count, count))  # moved latent, from the top, and observed one
    corners = {(m, k): np.array([k, count - 1 - m]) + (1 - PANEL) / 2 for m, k in grid}
    ax.add_collection(
        PatchCollection(
            [Rectangle(tuple(corner), PANEL, PANEL) for corner in corners.values()],
            facecolors=["#f0f0f0" if m == k else "none" for m, k in grid],
            edgecolors="#d0d0d0",
            linewidths=0.4,
        )
    )
    zero = np.array([[0, -scale * low], [PANEL, -scale * low]])
    zeros = [corner + zero for corner in corners.values()]
    ax.add_collection(LineCollection(zeros, colors=theme.INK, linewidths=0.4))
    samples = errors.shape[1]
    shades = theme.categories(samples) if samples <= 8 else [theme.BLUE] * samples
    gap = np.full((1, 2), np.nan)
    for sample, shade in enumerate(shades):
        heights = scale * (errors[:, sample] - low)
        parts = [
            [corner + np.column_stack([PANEL * across[m], heights[m, :, k]]), gap]
            for (m, k), corner in corners.items()
        ]
        x, y = np.concatenate([part for pair in parts for part in pair]).T
        ax.plot(x, y, color=shade, linewidth=0.7, rasterized=samples > 50)
    ax.set(xlim=(0, count), ylim=(0, count))
    few = count <= 8
    words = [f"latent {label}" for label in labels] if few else labels
    ax.set_xticks(np.arange(count) + 0.5, words)
    ax.set_yticks(np.arange(count)[::-1] + 0.5, words)
    ax.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=theme.NORMAL)
    ax.spines[:].set_visible(False)
    for m, row in enumerate(values):
        text = f"{row[0]:.2g} to {row[-1]:.2g}".replace("-", "−")
        place = (count + 0.06, count - m - 0.5)
        ax.text(*place, text, fontsize=theme.SMALL, color=theme.GREY, va="center")
    ax.set_title("observed latent", fontsize=theme.NORMAL, loc="center", pad=14)
    ax.set_ylabel("moved latent", fontsize=theme.NORMAL)
    ends = f"{low:.2g} to {high:.2g}".replace("-", "−")
    sentences = (
        f"in each panel: error of the observed latent, before − after (from {ends}; line: 0)",
        "against the value of the moved latent (range at the right)",
    )
    letters = int((side * count + 1.3) * 125 / theme.NORMAL)
    lines = [line for text in sentences for line in wrap(text, letters)]
    ax.set_xlabel("\n".join(lines), fontsize=theme.NORMAL)
    return theme.figure_of(ax)


def sample_lines(ax: Axes, values: np.ndarray, errors: np.ndarray) -> None:
    """One line for each sample (samples x steps)."""
    ax.axhline(0, color=theme.INK, linewidth=0.5)
    lines = [np.column_stack([values, line]) for line in errors]
    many = len(lines) > 50  # pixels, because so many lines make a large file
    colours = theme.categories(len(lines)) if len(lines) <= 8 else theme.BLUE
    ax.add_collection(LineCollection(lines, colors=colours, linewidths=0.8, rasterized=many))
    ax.autoscale_view()
    if values[0] < values[-1]:  # the range of an unused latent may be empty
        ax.set_xlim(values[0], values[-1])


def end_labels(
    ax: Axes, ends: Sequence[tuple[float, float, str, Any]], size: float = theme.SMALL
) -> None:
    """Labels at the right ends of lines, moved apart where they would overlap."""
    ends = sorted((end for end in ends if end[2]), key=lambda end: end[1])
    if not ends:
        return
    figure = theme.figure_of(ax)
    low, high = ax.get_ylim()
    # In points, because overlap depends on the font size. The height of the axes is only
    # roughly known before the layout is done, hence the extra distance.
    points = ax.get_position().height * figure.get_size_inches()[1] * 72
    positions = np.array([(end[1] - low) / (high - low) * points for end in ends])
    for _ in range(200):
        gaps = np.diff(positions)
        tight = gaps < 1.05 * size
        if not tight.any():
            break
        push = np.where(tight, (1.1 * size - gaps) / 2, 0.0)
        positions[:-1] -= push
        positions[1:] += push
    for k in range(len(positions)):  # none over the axis below
        least = 0.6 * size if k == 0 else positions[k - 1] + 1.05 * size
        positions[k] = max(positions[k], least)
    for (x, y, name, colour), position in zip(ends, positions, strict=True):
        shift = position - (y - low) / (high - low) * points
        ax.annotate(
            name,
            (x, y),
            (3, shift),
            textcoords="offset points",
            va="center",
            ha="left",
            fontsize=size,
            color=colour,
            annotation_clip=False,
        )

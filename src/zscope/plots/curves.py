"""Line charts with labels at the ends of the lines."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from zscope.errors import ConfigError
from zscope.plots import theme

__all__ = ["lines", "traversal_errors"]

MOST_PANELS = 24


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

    Up to 8 lines are labelled at their right ends, more of them in a legend.
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
    ax = theme.axes(ax, theme.COLUMN, 2.3)
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
    if len(arrays) > 8:
        ax.legend(list(arrays), ncols=2, fontsize=theme.SMALL)
    else:
        end_labels(ax, ends)
    return ax


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
        _sample_lines(theme.axes(ax), values, errors[:, :, worst])
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
        _sample_lines(panel, values, errors[:, :, k])
        weight = "bold" if k == moved else "normal"
        panel.set_title(f"latent {labels[k]}", fontsize=theme.NORMAL, fontweight=weight)
        panel.tick_params(labelsize=theme.SMALL)
        panel.xaxis.set_major_locator(MaxNLocator(4))
    note = "" if len(chosen) == count else f" ({len(chosen)} of {count}, the largest errors)"
    figure.supxlabel(f"value of latent {labels[moved]}, moved{note}", fontsize=theme.NORMAL)
    figure.supylabel("error, before − after", fontsize=theme.NORMAL)
    return figure


def _sample_lines(ax: Axes, values: np.ndarray, errors: np.ndarray) -> None:
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

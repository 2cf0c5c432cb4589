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
    names: Sequence[Any] | None = None,
    largest: int = 3,
    ax: Axes | None = None,
) -> Figure | Axes:
    """One panel per latent: the errors of all latents while that latent is moved.

    Of more than 24 latents, those with the largest errors get a panel.

    `values` (latents x steps) are the values of the moved latent, `errors` (latents x steps
    x latents) the signed N - N'. The moved latent is blue; of the others, those with the
    `largest` errors are coloured and labelled, the rest grey. With `ax`, only the traversal
    with the largest error is drawn.
    """
    values, errors = theme.array(values).astype(float), theme.array(errors).astype(float)
    count = len(values)
    if errors.shape != (count, values.shape[1], count):
        raise ConfigError(
            f"traversal_errors: expected values of shape (latents, steps) and errors of shape "
            f"(latents, steps, latents), got {values.shape} and {errors.shape}."
        )
    labels = theme.labels(count, names)
    if ax is not None:
        worst = int(np.abs(errors).max((1, 2)).argmax())
        end_labels(
            ax, _traversal(theme.axes(ax), values[worst], errors[worst], worst, labels, largest)
        )
        ax.set(xlabel=f"value of latent {labels[worst]}", ylabel="error")
        return ax
    order = np.argsort(-np.abs(errors).max((1, 2)), kind="stable")
    chosen = sorted(order[:MOST_PANELS].tolist())
    across = min(count, 4) if count <= 16 else 6
    down = -(-len(chosen) // across)
    figure, grid = theme.panels(
        down, across, theme.PAGE * min(1, (across + 0.3) / 4), 0.3 + 1.35 * down, sharey=True
    )
    ends = []
    for panel in grid.flat[len(chosen) :]:
        panel.set_visible(False)
    for k, panel in zip(chosen, grid.flat, strict=False):
        ends.append((panel, _traversal(panel, values[k], errors[k], k, labels, largest)))
        panel.set_title(f"moving {labels[k]}", fontsize=theme.NORMAL)
        panel.tick_params(labelsize=theme.SMALL)
        panel.xaxis.set_major_locator(MaxNLocator(4))
    for panel, panel_ends in ends:  # once the shared scale is known
        end_labels(panel, panel_ends)
    note = "" if len(chosen) == count else f" ({len(chosen)} of {count}, the largest errors)"
    figure.supxlabel(f"value of the moved latent{note}", fontsize=theme.NORMAL)
    figure.supylabel("error, before − after", fontsize=theme.NORMAL)
    return figure


def _traversal(
    ax: Axes, values: np.ndarray, errors: np.ndarray, moved: int, labels: list[str], largest: int
) -> list[tuple[float, float, str, Any]]:
    """Draw the lines, and return the ends that are to be labelled."""
    size = np.abs(errors).max(0)
    others = [k for k in np.argsort(-size, kind="stable") if k != moved]
    ax.axhline(0, color=theme.INK, linewidth=0.5)
    # One artist for all of them: a line each takes seconds with hundreds of latents.
    faint = [np.column_stack([values, errors[:, k]]) for k in others[largest:]]
    many = len(faint) > 50  # pixels, because so many lines make a large file
    ax.add_collection(LineCollection(faint, colors=theme.FAINT, linewidths=0.7, rasterized=many))
    ends = []
    colours = (theme.RED, theme.GREEN, theme.PURPLE, theme.ORANGE, theme.SKY)
    for position, k in enumerate(others[:largest]):
        colour = colours[position % len(colours)]
        ax.plot(values, errors[:, k], color=colour, linewidth=1.0)
        ends.append((values[-1], errors[-1, k], labels[k], colour))
    ax.plot(values, errors[:, moved], color=theme.BLUE, linewidth=1.6)
    ends.append((values[-1], errors[-1, moved], labels[moved], theme.BLUE))
    if values[0] < values[-1]:  # the range of an unused latent may be empty
        ax.set_xlim(values[0], values[-1])
    return ends


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

"""Curves: lines that carry their own names."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from zscope.errors import ConfigError
from zscope.plots import theme


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
    """Named lines, {name: values} (or an array, one line for each row), over `at`.

    Names stand at the right end of their lines when there are at most 8, else in a legend.
    """
    if not isinstance(series, Mapping):
        rows = np.atleast_2d(theme.array(series))
        series = {"" if len(rows) == 1 else str(k): row for k, row in enumerate(rows)}
    arrays = {name: theme.array(values).astype(float).ravel() for name, values in series.items()}
    if not arrays or not all(v.size and np.isfinite(v).all() for v in arrays.values()):
        raise ConfigError(
            f"lines: {len(arrays)} lines, of which some are empty or hold numbers that are not "
            "finite. Give finite values for every line."
        )
    ax = theme.axes(ax, theme.COLUMN, 2.3)
    colours = theme.categories(len(arrays))
    ends = []
    for colour, (name, values) in zip(colours, arrays.items(), strict=True):
        places = np.arange(len(values)) if at is None else theme.array(at)
        where = places.astype(float).ravel()
        if len(where) != len(values):
            raise ConfigError(
                f"lines: {name!r} has {len(values)} values at {len(where)} places; give one value "
                "for each place."
            )
        dotted = len(values) <= 12 if markers is None else markers
        ax.plot(where, values, color=colour, marker="o" if dotted else None, markersize=3)
        ends.append((where[-1], values[-1], name, colour))
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
    """n panels of n lines: the error of every latent while one of them is moved.

    `values` (latents x steps) are where the moved latent was put, `errors` (latents x steps
    x latents) the signed N - N'. The moved latent is blue; of the others, the `largest` are
    named and coloured, the rest grey. With `ax`, only the worst traversal is drawn there.
    """
    values, errors = theme.array(values).astype(float), theme.array(errors).astype(float)
    count = len(values)
    if errors.shape != (count, values.shape[1], count):
        raise ConfigError(
            f"traversal_errors: values of shape {values.shape} and errors {errors.shape}; needed "
            "are (latents, steps) and (latents, steps, latents)."
        )
    labels = theme.names(count, names)
    if ax is not None:
        worst = int(np.abs(errors).max((1, 2)).argmax())
        end_labels(
            ax, _traversal(theme.axes(ax), values[worst], errors[worst], worst, labels, largest)
        )
        ax.set(xlabel=f"value of latent {labels[worst]}", ylabel="error")
        return ax
    across = min(count, 4) if count <= 16 else min(count, 6)
    down = -(-count // across)
    figure, grid = theme.panels(
        down, across, theme.PAGE * min(1, (across + 0.3) / 4), 0.3 + 1.35 * down, sharey=True
    )
    ends = []
    for k, panel in enumerate(grid.flat):
        if k >= count:
            panel.set_visible(False)
            continue
        ends.append((panel, _traversal(panel, values[k], errors[k], k, labels, largest)))
        panel.set_title(f"moving {labels[k]}", fontsize=theme.NORMAL)
        panel.tick_params(labelsize=theme.SMALL)
        panel.xaxis.set_major_locator(MaxNLocator(4))
    for panel, names_at in ends:  # once the shared scale is known
        end_labels(panel, names_at)
    figure.supxlabel("value of the moved latent", fontsize=theme.NORMAL)
    figure.supylabel("error, before − after", fontsize=theme.NORMAL)
    return figure


def _traversal(
    ax: Axes, where: np.ndarray, errors: np.ndarray, moved: int, labels: list[str], largest: int
) -> list[tuple[float, float, str, Any]]:
    """Draws the lines, and returns where their names go."""
    size = np.abs(errors).max(0)
    others = [k for k in np.argsort(-size, kind="stable") if k != moved]
    named = others[:largest]
    ax.axhline(0, color=theme.INK, linewidth=0.5)
    for k in others[largest:]:
        ax.plot(where, errors[:, k], color=theme.FAINT, linewidth=0.7)
    ends = []
    colours = (theme.RED, theme.GREEN, theme.PURPLE, theme.ORANGE, theme.SKY)
    for position, k in enumerate(named):
        colour = colours[position % len(colours)]
        ax.plot(where, errors[:, k], color=colour, linewidth=1.0)
        ends.append((where[-1], errors[-1, k], labels[k], colour))
    ax.plot(where, errors[:, moved], color=theme.BLUE, linewidth=1.6)
    ends.append((where[-1], errors[-1, moved], labels[moved], theme.BLUE))
    if where[0] < where[-1]:  # the code of a dead latent may never move
        ax.set_xlim(where[0], where[-1])
    return ends


def end_labels(
    ax: Axes, ends: Sequence[tuple[float, float, str, Any]], size: float = theme.SMALL
) -> None:
    """Names beside the right ends of lines, moved apart where they would overlap."""
    ends = sorted((end for end in ends if end[2]), key=lambda end: end[1])
    if not ends:
        return
    figure = theme.figure_of(ax)
    low, high = ax.get_ylim()
    # In points, for overlaps are a matter of type size. Before the layout is done the
    # height of the axes is only roughly known; names keep a little more distance.
    points = ax.get_position().height * figure.get_size_inches()[1] * 72
    place = np.array([(end[1] - low) / (high - low) * points for end in ends])
    for _ in range(200):
        gaps = np.diff(place)
        tight = gaps < 1.05 * size
        if not tight.any():
            break
        push = np.where(tight, (1.1 * size - gaps) / 2, 0.0)
        place[:-1] -= push
        place[1:] += push
    for (across, up, name, colour), spot in zip(ends, place, strict=True):
        shift = spot - (up - low) / (high - low) * points
        ax.annotate(
            name,
            (across, up),
            (3, shift),
            textcoords="offset points",
            va="center",
            ha="left",
            fontsize=size,
            color=colour,
            annotation_clip=False,
        )

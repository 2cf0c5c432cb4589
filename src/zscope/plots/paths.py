"""Manifold paths: in the plane, as film strips, and what they cost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zscope.plots import theme
from zscope.plots.curves import end_labels
from zscope.plots.pictures import as_cells, image_grid
from zscope.plots.planes import scatter

if TYPE_CHECKING:
    from zscope.assays.responses.paths import ManifoldPath

PATH, STRAIGHT = theme.GREEN, theme.RED
FEW = 8
"""Vectors of at most this many features are drawn as one line for each feature."""


@theme.themed
def path_plane(
    given: "ManifoldPath",
    *,
    dims: Sequence[int] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """The path (green) and the straight line (red, dashed) over two latents.

    In the plane of a map, the size of the response lies under them in grey. For a path in
    all latents the two that it moves most are shown, or `dims`.
    """
    path, straight = theme.array(given.points), theme.array(given.straight)
    columns = list(dims or given.dims or _most_moved(path))
    ax = theme.axes(ax, theme.COLUMN, 2.9)
    box = None
    if given.map is not None and columns == list(given.map.dims):
        box = _ground(ax, given.map)
    codes = given.codes
    if codes is not None:
        points = theme.array(codes)
        points = points if points.shape[1] == 2 and given.map is not None else points[:, columns]
        scatter(ax, points, theme.INK, size=2)
    path, straight = path[:, columns], straight[:, columns]
    if box is not None:
        ax.set_xlim(box[:2])
        ax.set_ylim(box[2:])
    ax.plot(*straight.T, color=STRAIGHT, linestyle=(0, (4, 2)), linewidth=1.6, zorder=4)
    ax.plot(*path.T, color=PATH, linewidth=2.0, zorder=5)
    for name, point in (("start", path[0]), ("end", path[-1])):
        ax.plot(*point, "o", color="white", markeredgecolor=theme.INK, markersize=4.5, zorder=6)
        paper = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
        side = -1 if point[0] > np.mean(ax.get_xlim()) else 1
        ax.annotate(
            name,
            point,
            (6 * side, 4),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            fontsize=theme.SMALL,
            zorder=7,
            bbox={**paper, "alpha": 0.75},
        )
    ax.set_box_aspect(1)
    ax.set(xlabel=f"latent {columns[0]}", ylabel=f"latent {columns[1]}")
    theme.title(ax, title)
    return ax


@theme.themed
def film_strip(
    frames: Any,
    *,
    names: Sequence[str] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Decoded frames in rows, from start to end: strips x frames x observation.

    Vectors of a few features are lines of each feature along the path, one shade a strip.
    """
    values = theme.array(frames)
    if values.ndim == 3 and values.shape[-1] <= FEW:
        return _features(values, names, title, ax)
    cells = as_cells(values)
    columns = ["start", *[""] * (cells.shape[1] - 2), "end"]
    return image_grid(
        np.moveaxis(cells, -1, 2) if cells.ndim == 5 else cells,
        rows=names,
        columns=columns,
        title=title,
        ax=ax,
    )


@theme.themed
def path_figure(given: "ManifoldPath") -> Figure:
    """Plane, cost along the way, and film strips of both paths."""
    frames = np.stack([theme.array(given.frames), theme.array(given.straight_frames)])
    few = frames.ndim == 3 and frames.shape[-1] <= FEW
    figure = plt.figure(figsize=(theme.PAGE, 2.3 + (0 if few else 1.75)), layout="constrained")
    if few:
        left, middle, right = (theme.axes(ax) for ax in figure.subplots(1, 3))
        film_strip(frames, names=["path", "straight"], ax=right)
    else:
        above, below = figure.subfigures(2, 1, height_ratios=[2.6, 1.75])
        left, middle = (theme.axes(ax) for ax in above.subplots(1, 2, width_ratios=[1, 1.35]))
        film_strip(frames, names=["path", "straight"], ax=theme.axes(below.subplots()))
    path_plane(given, ax=left)
    _profile(given, middle)
    if few:
        middle.set_box_aspect(1)
        right.set_box_aspect(1)
    return figure


def _profile(given: "ManifoldPath", ax: Axes) -> None:
    for name, values, cost, colour, dash in (
        ("path", given.profile, given.cost, PATH, "-"),
        ("straight", given.straight_profile, given.straight_cost, STRAIGHT, (0, (4, 2))),
    ):
        heights = theme.array(values)
        where = np.linspace(0, 1, len(heights))
        ax.plot(where, heights, color=colour, linestyle=dash, label=f"{name}: cost {cost:.3g}")
    ax.set_xlim(0, 1)
    # Room above the curves for the legend.
    ax.set_ylim(0, 1.3 * max(float(given.profile.max()), float(given.straight_profile.max())) or 1)
    ax.set(xlabel="share of the way", ylabel="squared response")
    ax.legend(fontsize=theme.SMALL, loc="upper right")


def _features(values: np.ndarray, names: Sequence[str] | None, title: str, ax: Axes | None) -> Axes:
    ax = theme.axes(ax, theme.COLUMN, 2.3)
    styles = ["-", (0, (4, 2)), (0, (1, 1.5))]
    where = np.linspace(0, 1, values.shape[1])
    colours = theme.categories(values.shape[2])
    for strip, frames in enumerate(values):
        for feature, colour in enumerate(colours):
            ax.plot(
                where,
                frames[:, feature],
                color=colour,
                linestyle=styles[strip % len(styles)],
                linewidth=1.3 if strip == 0 else 1.0,
            )
    ax.set_xlim(0, 1)
    ax.set(xlabel="share of the way", ylabel="decoded feature")
    theme.title(ax, title)
    if names is not None:
        for name, style in zip(names, styles, strict=False):
            ax.plot([], [], color=theme.INK, linestyle=style, label=name)
        ax.set_ylim(top=ax.get_ylim()[1] + 0.15 * np.ptp(ax.get_ylim()))
        ax.legend(fontsize=theme.SMALL, loc="upper right", ncols=2, columnspacing=1.0)
    last = values[0, -1]
    end_labels(ax, [(1.0, float(last[k]), f"x{k}", colour) for k, colour in enumerate(colours)])
    return ax


def _ground(ax: Axes, given: Any) -> tuple[float, float, float, float]:
    from matplotlib.colors import LinearSegmentedColormap

    grey = LinearSegmentedColormap.from_list("ground", ["#ffffff", "#6f6f6f"])
    values = theme.array(given.magnitude)
    ax.imshow(
        values.T,
        extent=given.extent,
        origin="lower",
        aspect="auto",
        cmap=grey,
        vmin=0,
        vmax=theme.symmetric(values, 0.99),
        zorder=0,
    )
    return given.extent


def _most_moved(path: np.ndarray) -> list[int]:
    moved = np.ptp(path, axis=0)
    first, second = np.argsort(-moved, kind="stable")[:2]
    return sorted([int(first), int(second)])

"""Manifold paths: in the plane, as film strips, and what they cost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zscope.errors import ConfigError
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
    if path.shape[1] < 2:
        raise ConfigError(
            "path_plane: a path over one latent has no plane. Draw its costs and frames: "
            "path_figure, or .plot() without ax."
        )
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
    for name, turn in (("start", 1), ("end", -1)):
        point, away = path[::turn][0], _free(ax, path[::turn], straight[::turn], -turn)
        ax.plot(*point, "o", color="white", markeredgecolor=theme.INK, markersize=4.5, zorder=6)
        paper = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
        ax.annotate(
            name,
            point,
            (7 * away[0], 7 * away[1]),
            textcoords="offset points",
            ha="left" if away[0] > 0.4 else "right" if away[0] < -0.4 else "center",
            va="bottom" if away[1] > 0.4 else "top" if away[1] < -0.4 else "center",
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
    plane = given.points.shape[1] > 1  # one latent has none
    figure = plt.figure(figsize=(theme.PAGE, 2.3 + (0 if few else 1.75)), layout="constrained")
    if few:
        *left, middle, right = (theme.axes(ax) for ax in figure.subplots(1, 2 + plane))
        film_strip(frames, names=["path", "straight"], ax=right)
    else:
        above, below = figure.subfigures(2, 1, height_ratios=[2.6, 1.75])
        shares = [1, 1.35][-1 - plane :]
        drawn = above.subplots(1, 1 + plane, width_ratios=shares, squeeze=False)[0]
        *left, middle = (theme.axes(ax) for ax in drawn)
        film_strip(frames, names=["path", "straight"], ax=theme.axes(below.subplots()))
    for ax in left:
        path_plane(given, ax=ax)
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
    ax.set(xlabel="share of the way", ylabel="squared displacement")
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


def _free(ax: Axes, path: np.ndarray, straight: np.ndarray, side: float) -> np.ndarray:
    """The direction, on paper, in which neither line leaves its first point; else `side`."""
    span = np.array([np.ptp(ax.get_xlim()), np.ptp(ax.get_ylim())])
    leaving = [
        (line[: max(2, len(line) // 8)].mean(0) - line[0]) / span for line in (path, straight)
    ]
    if min(map(np.linalg.norm, leaving)) < 1e-6:  # the path is a point
        return np.array([side, 0.0])
    first, second = (step / np.linalg.norm(step) for step in leaving)
    away = -(first + second)
    if np.linalg.norm(away) < 0.5:  # they leave on opposite sides
        away = np.array([-first[1], first[0]])
        away = -away if away @ ((path[: len(path) // 2].mean(0) - path[0]) / span) > 0 else away
    return away / np.linalg.norm(away)


def _most_moved(path: np.ndarray) -> list[int]:
    moved = np.ptp(path, axis=0)
    first, second = np.argsort(-moved, kind="stable")[:2]
    return sorted([int(first), int(second)])

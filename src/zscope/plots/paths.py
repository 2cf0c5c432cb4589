"""Manifold paths: in a plane, as film strips, and their cost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from zscope.errors import ConfigError
from zscope.plots import theme
from zscope.plots.curves import end_labels
from zscope.plots.pictures import as_cells, image_grid
from zscope.plots.planes import scatter

if TYPE_CHECKING:
    from zscope.assays.responses.maps import ResponseMap
    from zscope.assays.responses.paths import ManifoldPath

__all__ = ["film_strip", "path_figure", "path_plane", "path_space"]

PATH, STRAIGHT = theme.GREEN, theme.RED
FEW = 8
"""Vectors of at most this many features are drawn as one line per feature."""


@theme.themed
def path_plane(
    result: "ManifoldPath",
    *,
    dims: Sequence[int] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """The path (green) and the straight line (red, dashed) over two latents.

    For a path in the plane of a map, the background shows the displacement in grey. For a path
    in all latents, the axes are `dims`, by default the two latents that change most.
    """
    path, straight = theme.array(result.points), theme.array(result.straight)
    if path.shape[1] < 2:
        raise ConfigError(
            "path_plane: the path has one latent, and a plane needs two. Draw its cost and frames "
            "instead: path_figure, or .plot() without ax."
        )
    columns = list(dims or result.dims or _most_varying(path))
    ax = theme.axes(ax, theme.COLUMN, 2.9)
    box = None
    if result.map is not None and columns == list(result.map.dims):
        box = _draw_background(ax, result.map)
    codes = result.codes
    if codes is not None:
        points = theme.array(codes)
        points = points if points.shape[1] == 2 and result.map is not None else points[:, columns]
        scatter(ax, points, theme.INK, size=2)
    path, straight = path[:, columns], straight[:, columns]
    if box is not None:
        ax.set_xlim(box[:2])
        ax.set_ylim(box[2:])
    ax.plot(*straight.T, color=STRAIGHT, linestyle=(0, (4, 2)), linewidth=1.6, zorder=4)
    ax.plot(*path.T, color=PATH, linewidth=2.0, zorder=5)
    for name, turn in (("start", 1), ("end", -1)):
        point, away = path[::turn][0], _free_direction(ax, path[::turn], straight[::turn], -turn)
        ax.plot(*point, "o", color="white", markeredgecolor=theme.INK, markersize=4.5, zorder=6)
        box_style = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
        ax.annotate(
            name,
            point,
            (7 * away[0], 7 * away[1]),
            textcoords="offset points",
            ha="left" if away[0] > 0.4 else "right" if away[0] < -0.4 else "center",
            va="bottom" if away[1] > 0.4 else "top" if away[1] < -0.4 else "center",
            fontsize=theme.SMALL,
            zorder=7,
            bbox={**box_style, "alpha": 0.75},
        )
    ax.set_box_aspect(1)
    ax.set(xlabel=f"latent {columns[0]}", ylabel=f"latent {columns[1]}")
    theme.title(ax, title)
    return ax


@theme.themed
def path_space(
    result: "ManifoldPath",
    observations: Any = None,
    *,
    reconstructions: Any = None,
    title: str = "",
    view: tuple[float, float] = (18.0, -60.0),
    ax: Axes | None = None,
) -> Axes:
    """The decoded path (green) and the decoded straight line (red, dashed) in three dimensions.

    For data of three features: `observations` are drawn in grey, their `reconstructions` in blue.
    The lines have as many points as the result has frames: `manifold_path(..., frames=101)`.
    `view` is the elevation and the azimuth in degrees.
    """
    lines = [theme.array(each) for each in (result.frames, result.straight_frames)]
    if lines[0].ndim != 2 or lines[0].shape[1] != 3:
        raise ConfigError(
            f"path_space: decoded frames of shape {lines[0].shape[1:]}; expected three features. "
            "For pictures use film_strip, for other vectors path_figure."
        )
    own = ax is None
    if ax is None:
        figure = plt.figure(figsize=(theme.COLUMN, 3.2), layout="constrained")
        ax = figure.add_subplot(projection="3d")
    if ax.name != "3d":
        raise ConfigError(
            "path_space: the axes are flat. Make them with projection='3d', or leave ax out."
        )
    space: Any = ax
    for points, colour, name in (
        (observations, theme.GREY, "data"),
        (reconstructions, theme.SKY, "reconstructions"),
    ):
        if points is not None:
            rows = theme.array(points)
            space.scatter(*rows.T, s=3, color=colour, alpha=0.5, linewidths=0, label=name)
    ends = lines[0][[0, -1]]
    space.plot(*lines[1].T, color=STRAIGHT, linestyle=(0, (4, 2)), linewidth=1.6, label="straight")
    space.plot(*lines[0].T, color=PATH, linewidth=2.0, label="path")
    space.plot(*ends.T, "o", color="white", markeredgecolor=theme.INK, markersize=4.5)
    space.view_init(*view)
    space.set_box_aspect((1, 1, 1.1), zoom=1.0)
    for axis, name in zip((space.xaxis, space.yaxis, space.zaxis), "xyz", strict=True):
        axis.set_pane_color((1.0, 1.0, 1.0, 1.0))
        axis.set_tick_params(labelsize=theme.SMALL, pad=-2)
        axis.set_major_locator(MaxNLocator(3))
        axis.set_label_text(name)
        axis.labelpad = -5
        axis._axinfo["grid"].update(color=theme.FAINT, linewidth=0.4)
    space.legend(fontsize=theme.SMALL, loc="upper center", ncols=4 if own else 2, markerscale=2)
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
    """Decoded frames from start to end, one row per strip: strips x frames x observation.

    Vectors of a few features are drawn as one line per feature, in one style per strip.
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
def path_figure(result: "ManifoldPath") -> Figure:
    """The plane, the cost along both paths, and their film strips."""
    frames = np.stack([theme.array(result.frames), theme.array(result.straight_frames)])
    few = frames.ndim == 3 and frames.shape[-1] <= FEW
    plane = result.points.shape[1] > 1
    figure = plt.figure(figsize=(theme.PAGE, 2.3 + (0 if few else 1.75)), layout="constrained")
    if few:
        grid = figure.subplots(1, 2 + plane, squeeze=False)[0]
        *left, middle, right = (theme.axes(ax) for ax in grid)
        film_strip(frames, names=["path", "straight"], ax=right)
    else:
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[2.6, 1.75])[:, 0]
        ratios = [1, 1.35][-1 - plane :]
        grid = above.subplots(1, 1 + plane, width_ratios=ratios, squeeze=False)[0]
        *left, middle = (theme.axes(ax) for ax in grid)
        film_strip(frames, names=["path", "straight"], ax=theme.axes(below.subplots()))
    for ax in left:
        path_plane(result, ax=ax)
    _profile(result, middle)
    if few:
        middle.set_box_aspect(1)
        right.set_box_aspect(1)
    return figure


def _profile(result: "ManifoldPath", ax: Axes) -> None:
    for name, values, cost, colour, dash in (
        ("path", result.profile, result.cost, PATH, "-"),
        ("straight", result.straight_profile, result.straight_cost, STRAIGHT, (0, (4, 2))),
    ):
        heights = theme.array(values)
        fraction = np.linspace(0, 1, len(heights))
        ax.plot(fraction, heights, color=colour, linestyle=dash, label=f"{name}: cost {cost:.3g}")
    ax.set_xlim(0, 1)
    # Room above the curves for the legend.
    ax.set_ylim(
        0, 1.3 * max(float(result.profile.max()), float(result.straight_profile.max())) or 1
    )
    ax.set(xlabel="fraction of the path", ylabel="squared displacement")
    ax.legend(fontsize=theme.SMALL, loc="upper right")


def _features(values: np.ndarray, names: Sequence[str] | None, title: str, ax: Axes | None) -> Axes:
    ax = theme.axes(ax, theme.COLUMN, 2.3)
    styles = ["-", (0, (4, 2)), (0, (1, 1.5))]
    fraction = np.linspace(0, 1, values.shape[1])
    colours = theme.categories(values.shape[2])
    for strip, frames in enumerate(values):
        for feature, colour in enumerate(colours):
            ax.plot(
                fraction,
                frames[:, feature],
                color=colour,
                linestyle=styles[strip % len(styles)],
                linewidth=1.3 if strip == 0 else 1.0,
            )
    ax.set_xlim(0, 1)
    ax.set(xlabel="fraction of the path", ylabel="decoded feature")
    theme.title(ax, title)
    if names is not None:
        for name, style in zip(names, styles, strict=False):
            ax.plot([], [], color=theme.INK, linestyle=style, label=name)
        ax.set_ylim(top=ax.get_ylim()[1] + 0.15 * np.ptp(ax.get_ylim()))
        ax.legend(fontsize=theme.SMALL, loc="upper right", ncols=2, columnspacing=1.0)
    last = values[0, -1]
    end_labels(ax, [(1.0, float(last[k]), f"x{k}", colour) for k, colour in enumerate(colours)])
    return ax


def _draw_background(ax: Axes, field: "ResponseMap") -> tuple[float, float, float, float]:
    from matplotlib.colors import LinearSegmentedColormap

    grey = LinearSegmentedColormap.from_list("ground", ["#ffffff", "#6f6f6f"])
    values = theme.array(field.magnitude)
    ax.imshow(
        values.T,
        extent=field.extent,
        origin="lower",
        aspect="auto",
        cmap=grey,
        vmin=0,
        vmax=theme.symmetric_limit(values, 0.99),
        zorder=0,
    )
    return field.extent


def _free_direction(ax: Axes, path: np.ndarray, straight: np.ndarray, side: float) -> np.ndarray:
    """A direction, in the figure, in which neither line leaves its first point; else `side`."""
    span = np.array([np.ptp(ax.get_xlim()), np.ptp(ax.get_ylim())])
    directions = [
        (line[: max(2, len(line) // 8)].mean(0) - line[0]) / span for line in (path, straight)
    ]
    if min(map(np.linalg.norm, directions)) < 1e-6:  # the path is a point
        return np.array([side, 0.0])
    first, second = (step / np.linalg.norm(step) for step in directions)
    away = -(first + second)
    if np.linalg.norm(away) < 0.5:  # they leave on opposite sides
        away = np.array([-first[1], first[0]])
        away = -away if away @ ((path[: len(path) // 2].mean(0) - path[0]) / span) > 0 else away
    direction: np.ndarray = away / np.linalg.norm(away)
    return direction


def _most_varying(path: np.ndarray) -> list[int]:
    ranges = np.ptp(path, axis=0)
    first, second = np.argsort(-ranges, kind="stable")[:2]
    return sorted([int(first), int(second)])

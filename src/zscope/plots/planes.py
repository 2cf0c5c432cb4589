"""Codes over two latents: scatter plots, and arrows between codes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from zscope.errors import ConfigError
from zscope.plots import theme

__all__ = ["arrows", "clouds"]

MOST = 3000
"""The largest number of points to draw: more would only hide each other."""


@theme.themed
def clouds(
    samples: Mapping[str, Any],
    *,
    dims: Sequence[int] = (0, 1),
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Several sets of codes over two latents, {name: samples x latents}."""
    ax = theme.axes(ax, theme.COLUMN, 2.9)
    colours = theme.categories(len(samples))
    for colour, (name, codes) in zip(colours, samples.items(), strict=True):
        points = _plane(codes, dims, "clouds")
        scatter(ax, points, colour, label=name)
    _label(ax, dims, title)
    if len(samples) > 1:
        ax.legend(markerscale=3, handletextpad=0.2)
    return ax


@theme.themed
def arrows(
    start: Any,
    end: Any,
    *,
    dims: Sequence[int] = (0, 1),
    title: str = "",
    most: int = 400,
    ax: Axes | None = None,
) -> Axes:
    """An arrow from each row of `start` to the same row of `end`."""
    first, second = _plane(start, dims, "arrows"), _plane(end, dims, "arrows")
    if first.shape != second.shape:
        raise ConfigError(
            f"arrows: got {len(first)} starts and {len(second)} ends. Pass one end for each start."
        )
    rows = evenly_spaced(len(first), most)
    first, second = first[rows], second[rows]
    ax = theme.axes(ax, theme.COLUMN, 2.9)
    step = second - first
    ax.quiver(
        *first.T,
        *step.T,
        np.hypot(*step.T),
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.004,
        cmap=_arrow_colours(),
        headwidth=4.5,
        headlength=5,
        headaxislength=4.5,
    )
    # A quiver scales the axes to the starts of its arrows only.
    ax.update_datalim(np.concatenate([first, second]))
    ax.autoscale_view()
    _label(ax, dims, title)
    return ax


def scatter(
    ax: Axes, points: np.ndarray, colour: Any, *, label: str | None = None, size: float = 4.0
) -> Any:
    """Small dots, at most `MOST` of them, drawn as pixels in vector files."""
    points = points[evenly_spaced(len(points), MOST)]
    opacity = float(np.clip(400 / len(points), 0.35, 0.9))
    return ax.scatter(
        points[:, 0],
        points[:, 1],
        s=size,
        color=colour,
        alpha=opacity,
        linewidths=0,
        label=label,
        rasterized=True,
        zorder=3,
    )


def by_factor(
    ax: Axes,
    points: np.ndarray,
    factor: Any,
    names: Sequence[str] | None = None,
    most: int = 1000,
) -> None:
    """Codes coloured by a factor: with a legend for up to ten values, else with a colour bar."""
    values = theme.array(factor).ravel()
    if len(values) != len(points):
        raise ConfigError(
            f"plots: got {len(values)} factor values for {len(points)} codes. Pass one per code."
        )
    rows = evenly_spaced(len(points), most)
    (x, y), values = points[rows].T, values[rows]
    distinct, indices = np.unique(values, return_inverse=True)
    style: dict[str, Any] = {
        "s": 6,
        "linewidths": 0.25,
        "edgecolors": "white",
        "rasterized": True,
        "zorder": 3,
    }
    if len(distinct) > 10:
        image = ax.scatter(x, y, c=values.astype(float), cmap="viridis", **style)
        theme.colorbar(image, ax, (names or ["factor"])[0], at=1.3)
        return
    colours = theme.categories(len(distinct))
    ax.scatter(x, y, c=[colours[k] for k in indices], **style)
    labels = names if names is not None else [f"{value:g}" for value in distinct]
    for colour, label in zip(colours, labels, strict=True):
        ax.plot([], [], "o", color=colour, markersize=3.5, label=label)
    ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.17),
        ncols=min(5, len(distinct)),
        fontsize=theme.SMALL,
        handletextpad=0.0,
        columnspacing=0.8,
        labelspacing=0.2,
    )


def evenly_spaced(count: int, most: int) -> np.ndarray:
    """At most `most` evenly spaced row numbers."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _plane(codes: Any, dims: Sequence[int], who: str) -> np.ndarray:
    values = theme.array(codes).astype(float)
    if values.ndim != 2 or values.shape[1] < 1 or not np.isfinite(values).all():
        raise ConfigError(
            f"{who}: expected finite codes of shape samples x latents, got shape {values.shape} "
            f"with {int((~np.isfinite(values)).sum())} values that are not finite."
        )
    if values.shape[1] == 1:  # a single latent: the y axis stays at 0
        return np.column_stack([values[:, 0], np.zeros(len(values))])
    return values[:, list(dims)]


def _arrow_colours() -> Any:
    """The sequential colours without their palest third, which is invisible in thin arrows."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(theme.sequential()(np.linspace(0.3, 1, 128)))


def _label(ax: Axes, dims: Sequence[int], title: str) -> None:
    ax.set(xlabel=f"latent {dims[0]}", ylabel=f"latent {dims[1]}")
    theme.title(ax, title)

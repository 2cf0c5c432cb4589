"""Codes in a plane of two latents: clouds of points, arrows from here to there."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from zscope.errors import ConfigError
from zscope.plots import theme

MOST = 3000
"""Points drawn at most: more would only hide each other."""


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
    """Where each code is moved to: an arrow from each row of `start` to that of `end`."""
    first, second = _plane(start, dims, "arrows"), _plane(end, dims, "arrows")
    if first.shape != second.shape:
        raise ConfigError(
            f"arrows: {len(first)} starts and {len(second)} ends; give one end for each start."
        )
    kept = thinned(len(first), most)
    first, second = first[kept], second[kept]
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
        cmap=_strong(),
        headwidth=4.5,
        headlength=5,
        headaxislength=4.5,
    )
    both = np.concatenate([first, second])
    # A quiver counts only the feet of its arrows when axes are scaled.
    ax.update_datalim(both)
    ax.autoscale_view()
    _label(ax, dims, title)
    return ax


def scatter(
    ax: Axes, points: np.ndarray, colour: Any, *, label: str | None = None, size: float = 4.0
) -> Any:
    """Small dots, thinned to what can be seen; one raster in vector files."""
    points = points[thinned(len(points), MOST)]
    opacity = float(np.clip(400 / len(points), 0.35, 0.9))
    return ax.scatter(
        *points.T,
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
    """Codes coloured by a factor: a legend for up to ten values, else a scale."""
    values = theme.array(factor).ravel()
    if len(values) != len(points):
        raise ConfigError(
            f"plots: {len(values)} values of a factor for {len(points)} codes; give one for each."
        )
    kept = thinned(len(points), most)
    points, values = points[kept], values[kept]
    different, which = np.unique(values, return_inverse=True)
    style: dict[str, Any] = {
        "s": 6,
        "linewidths": 0.25,
        "edgecolors": "white",
        "rasterized": True,
        "zorder": 3,
    }
    if len(different) > 10:
        drawn = ax.scatter(*points.T, c=values.astype(float), cmap="viridis", **style)
        theme.colorbar(drawn, ax, (names or ["factor"])[0], at=1.3)
        return
    colours = theme.categories(len(different))
    ax.scatter(*points.T, c=[colours[k] for k in which], **style)
    labels = names if names is not None else [f"{value:g}" for value in different]
    for colour, label in zip(colours, labels, strict=True):
        ax.plot([], [], "o", color=colour, markersize=3.5, label=label)
    ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.17),
        ncols=min(5, len(different)),
        fontsize=theme.SMALL,
        handletextpad=0.0,
        columnspacing=0.8,
        labelspacing=0.2,
    )


def thinned(count: int, most: int) -> np.ndarray:
    """Row numbers, evenly chosen so that at most `most` remain."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _plane(codes: Any, dims: Sequence[int], who: str) -> np.ndarray:
    values = theme.array(codes).astype(float)
    if values.ndim != 2 or values.shape[1] < 1 or not np.isfinite(values).all():
        raise ConfigError(
            f"{who}: codes of shape {values.shape}; needed are finite numbers, one row of latents "
            "for each sample."
        )
    if values.shape[1] == 1:  # a single latent against nothing
        return np.column_stack([values[:, 0], np.zeros(len(values))])
    return values[:, list(dims)]


def _strong() -> Any:
    """The amounts' colours without their palest fifth, which thin arrows would lose."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(theme.sequential()(np.linspace(0.3, 1, 128)))


def _label(ax: Axes, dims: Sequence[int], title: str) -> None:
    ax.set(xlabel=f"latent {dims[0]}", ylabel=f"latent {dims[1]}")
    theme.title(ax, title)

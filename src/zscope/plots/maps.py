"""Response maps: divergence, curvature and magnitude of the field, decoded grid, drift."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zscope.errors import ConfigError
from zscope.plots import theme
from zscope.plots.pictures import GAP, as_cells, place_cells
from zscope.plots.planes import by_factor, evenly_spaced, scatter

if TYPE_CHECKING:
    from zscope.assays.responses.drift import Drift
    from zscope.assays.responses.maps import ResponseMap

__all__ = [
    "curvature_map",
    "decoded_map",
    "divergence_map",
    "drift_plane",
    "drift_steps",
    "magnitude_map",
    "map_figure",
]


@theme.themed
def divergence_map(
    field: "ResponseMap",
    *,
    factor: Any = None,
    names: Sequence[str] | None = None,
    codes: bool = True,
    arrows: bool = False,
    title: str = "divergence",
    ax: Axes | None = None,
) -> Axes:
    """Where responses converge (blue) and where they diverge (red), with the codes on top.

    Responses converge to self-consistent codes, which may be unlike data: hatched. `factor`
    colours the codes, `names` are the names of its values; `arrows` adds the field.
    """
    values = theme.array(field.divergence)
    ax = _signed(field, values, values, title, ax)
    _hatch(ax, field)
    if arrows:
        _draw_arrows(ax, field)
    if codes and field.codes is not None:
        _draw_codes(ax, field, factor, names)
    return ax


@theme.themed
def curvature_map(
    field: "ResponseMap", *, title: str = "mean curvature", ax: Axes | None = None
) -> Axes:
    """How sharply responses converge (red) and diverge (blue); grey where they are undefined.

    What is unlike data is hatched.
    """
    hidden = theme.array(field.undefined)
    values = np.ma.masked_array(theme.array(field.curvature), hidden)
    ax = _signed(field, values, values.compressed(), title, ax)
    _hatch(ax, field)
    return ax


@theme.themed
def magnitude_map(
    field: "ResponseMap", *, title: str = "displacement", ax: Axes | None = None
) -> Axes:
    """How far decoding and encoding moves a code; what is unlike data is hatched."""
    ax = _frame(field, title, ax)
    values = theme.array(field.magnitude)
    image = _image(ax, field, values, theme.sequential(), 0, theme.symmetric_limit(values, 0.995))
    theme.colorbar(image, ax)
    _hatch(ax, field)
    return ax


@theme.themed
def decoded_map(field: "ResponseMap", *, title: str = "decoded", ax: Axes | None = None) -> Axes:
    """The decoded observations at the points of a grid."""
    if field.decoded is None:
        raise ConfigError(
            "decoded_map: the map has no decoded grid. Compute it with response_map(..., "
            "decode_grid=12)."
        )
    ax = _frame(field, title, ax)
    # The first latent increases to the right, the second upwards.
    tiles = as_cells(np.swapaxes(theme.array(field.decoded), 0, 1)[::-1])
    ratio = tiles.shape[2] / tiles.shape[3] if tiles.ndim == 5 else 0.8
    count = tiles.shape[1]
    side = 1 / (count * (1 + GAP) - GAP)
    inner = ax.inset_axes((0, 0, 1, 1))
    place_cells(inner, tiles, None, (0.0, 0.0), side, ratio)
    inner.set(xlim=(0, 1), ylim=(ratio, 0))
    inner.set_aspect("auto")
    inner.set_axis_off()
    ax.spines[:].set_visible(False)
    return ax


@theme.themed
def map_figure(
    field: "ResponseMap",
    *,
    factor: Any = None,
    names: Sequence[str] | None = None,
    arrows: bool = False,
) -> Figure:
    """Divergence with the codes, mean curvature and, if the map has one, the decoded grid.

    What is unlike data is hatched, in blue too: responses converge there to codes that are
    self-consistent and yet decode to something else.
    """
    count = 2 if field.decoded is None else 3
    height = 2.3 if factor is None else 2.6  # room for the legend below
    height += 0.25 if field.scores is not None else 0
    figure, grid = theme.panels(1, count, theme.PAGE * (0.72 if count == 2 else 1), height)
    divergence_map(field, factor=factor, names=names, arrows=arrows, ax=grid[0, 0])
    curvature_map(field, ax=grid[0, 1])
    if count == 3:
        decoded_map(field, ax=grid[0, 2])
    for ax in grid[0, 1:]:
        ax.set_ylabel("")
    if field.scores is not None:
        _explain(figure)
    return figure


@theme.themed
def drift_plane(
    drift: "Drift",
    *,
    dims: Sequence[int] = (0, 1),
    most: int = 60,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Trajectories of codes under repeated passes, and their fixed points.

    Over a map, the basins of attraction are shaded. Attracting fixed points (rate below 1) are
    filled, others open; their size follows the fraction of codes that converge to them.
    """
    ax = theme.axes(ax, theme.COLUMN, 3.1)
    dims = drift.dims or tuple(dims)
    latents = drift.limits.shape[1]
    columns = [d for d in dims if d < latents]
    if len(columns) < 2:
        raise ConfigError(
            f"drift_plane: dims={tuple(dims)}, but the codes have {latents} latents. Choose two "
            "latents of the codes."
        )
    points = theme.array(drift.fixed_points)[:, columns]
    colours = _basin_colours(drift, len(points))
    if drift.axes is not None:
        _draw_basins(ax, drift, colours)
    paths = theme.array(drift.trajectories)[:, :, columns]
    ends = theme.array(drift.basin)
    for k in evenly_spaced(len(paths), most):
        end = ends[drift.followed[k]]
        ax.plot(
            *paths[k].T,
            color=theme.GREY if end < 0 else colours[end] if drift.axes is None else theme.INK,
            linewidth=0.5,
            alpha=0.7,
            zorder=2,
        )
    attracts, fractions = theme.array(drift.attracts), theme.array(drift.share)
    for (x, y), colour, filled, fraction in zip(points, colours, attracts, fractions, strict=True):
        ax.scatter(
            x,
            y,
            s=14 + 160 * fraction,
            facecolors=colour if filled else "white",
            edgecolors="white" if filled else colour,
            linewidths=0.8,
            zorder=4,
        )
    if drift.axes is None and drift.unconverged:
        # Diverging codes would shrink the others to a dot: let them leave the picture.
        converged = paths[ends[drift.followed] >= 0].reshape(-1, 2)
        visible = np.concatenate(
            [paths[:, 0], converged, points] if len(paths) else [points, [[0, 0]]]
        )
        for limit, column in ((ax.set_xlim, visible[:, 0]), (ax.set_ylim, visible[:, 1])):
            margin = 0.05 * np.ptp(column) or 1.0
            limit(column.min() - margin, column.max() + margin)
    ax.set(xlabel=f"latent {columns[0]}", ylabel=f"latent {columns[1]}")
    theme.title(ax, title or _summary(drift), theme.NORMAL)
    return ax


@theme.themed
def drift_steps(drift: "Drift", *, title: str = "", ax: Axes | None = None) -> Axes:
    """How far each pass moves the codes: thin lines for single codes, thick for their median."""
    trajectories = theme.array(drift.trajectories).astype(float)
    steps = np.linalg.norm(np.diff(trajectories, axis=1), axis=2)
    ax = theme.axes(ax, theme.COLUMN, 2.3)
    passes = np.arange(1, steps.shape[1] + 1)
    # The line of a code ends where it has converged.
    moving = np.where(steps > 0, steps, np.nan)
    some = moving[evenly_spaced(len(moving), 100)]
    single = ax.plot(passes, some.T, color=theme.FAINT, linewidth=0.5)
    if single:
        median = np.median(steps, axis=0)
        height = np.where(median > 0, median, np.nan)
        (middle,) = ax.plot(passes, height, color=theme.BLUE, linewidth=1.8)
        ax.legend([middle, single[0]], ["median", "single codes"], fontsize=theme.SMALL)
    if (steps > 0).any():
        ax.set_yscale("log")
    ax.set(xlabel="pass", ylabel="distance moved")
    theme.title(ax, title or _summary(drift), theme.NORMAL)
    return ax


def _summary(drift: "Drift") -> str:
    fixed, moving = len(drift.fixed_points), len(drift.unconverged)
    text = f"{fixed} fixed point{'' if fixed == 1 else 's'}"
    return text + (f"; {moving} of {len(drift.basin)} not converged" if moving else "")


def _basin_colours(drift: "Drift", count: int) -> list[str]:
    """A colour for each fixed point, such that adjacent basins differ."""
    import networkx as nx

    palette = theme.OKABE_ITO[:6]
    if drift.axes is None or count <= len(palette):
        return list(palette[:count]) if count <= len(palette) else theme.categories(count)
    basins = theme.array(drift.basins)
    graph = nx.Graph()
    graph.add_nodes_from(range(count))
    for one, other in ((basins[1:], basins[:-1]), (basins[:, 1:], basins[:, :-1])):
        touching = (one != other) & (one >= 0) & (other >= 0)
        graph.add_edges_from(zip(one[touching].tolist(), other[touching].tolist(), strict=True))
    indices = nx.greedy_color(graph, strategy="largest_first")
    return [palette[indices[k] % len(palette)] for k in range(count)]


def _draw_basins(ax: Axes, drift: "Drift", colours: list[str]) -> None:
    from matplotlib.colors import to_rgb

    assert drift.axes is not None
    basins = theme.array(drift.basins)
    tints = np.ones((len(colours) + 1, 3))
    for k, colour in enumerate(colours):
        tints[k] = 1 - 0.3 * (1 - np.array(to_rgb(colour)))
    picture = tints[basins].swapaxes(0, 1)  # -1 is the last tint: white
    first, second = (theme.array(axis) for axis in drift.axes)
    half = [(axis[1] - axis[0]) / 2 for axis in (first, second)]
    box = (first[0] - half[0], first[-1] + half[0], second[0] - half[1], second[-1] + half[1])
    ax.imshow(picture, extent=box, origin="lower", aspect="auto", zorder=0)
    ax.set_box_aspect(1)
    ax.set_xlim(box[:2])
    ax.set_ylim(box[2:])


def _frame(field: "ResponseMap", title: str, ax: Axes | None) -> Axes:
    ax = theme.axes(ax, theme.COLUMN, 2.9)
    low, high, bottom, top = field.extent
    ax.set_xlim(low, high)
    ax.set_ylim(bottom, top)
    ax.set_box_aspect(1)
    ax.set(xlabel=f"latent {field.dims[0]}", ylabel=f"latent {field.dims[1]}")
    theme.title(ax, title)
    return ax


def _image(
    ax: Axes, field: "ResponseMap", values: np.ndarray, colours: Any, low: float, high: float
) -> Any:
    image = ax.imshow(
        values.T,
        extent=field.extent,
        origin="lower",
        aspect="auto",
        cmap=colours,
        vmin=low,
        vmax=high,
    )
    ax.set_box_aspect(1)
    return image


def _signed(
    field: "ResponseMap", values: np.ndarray, defined: np.ndarray, title: str, ax: Axes | None
) -> Axes:
    ax = _frame(field, title, ax)
    colours = theme.diverging().with_extremes(bad=theme.FAINT)
    # A few grid points at a boundary are much larger than the rest: they may saturate.
    largest = theme.symmetric_limit(defined if defined.size else [0.0], 0.98)
    image = _image(ax, field, values, colours, -largest, largest)
    theme.colorbar(image, ax, extend=_extend(defined, largest))
    return ax


def _hatch(ax: Axes, field: "ResponseMap") -> None:
    """Hatch what is unlike data, and draw its border."""
    if field.unlike is None or not field.unlike.any():
        return
    marked = theme.array(field.unlike).astype(float).T
    low, high, bottom, top = field.extent
    where = np.linspace(low, high, marked.shape[1]), np.linspace(bottom, top, marked.shape[0])
    levels: dict[str, Any] = {"levels": [0.5, 1.5], "zorder": 1}
    # Pale, so that the hatching is visible on dark colours too.
    ax.contourf(*where, marked, colors="white", alpha=0.5, **levels)
    ax.contourf(*where, marked, colors="none", hatches=["//////"], **levels)
    if not marked.all():
        ax.contour(*where, marked, levels=[0.5], colors=theme.INK, linewidths=0.6, zorder=1)


def _explain(figure: Figure) -> None:
    """The meaning of colours and hatching, below all panels."""
    from matplotlib.patches import Patch

    towards, away = (theme.diverging()(share) for share in (0.2, 0.8))
    figure.legend(
        handles=[
            Patch(facecolor=towards, label="divergence < 0: towards self-consistent codes"),
            Patch(facecolor=away, label="divergence > 0: a boundary"),
            Patch(facecolor="white", edgecolor=theme.GREY, hatch="//////", label="unlike data"),
        ],
        loc="outside lower center",
        ncols=3,
        fontsize=theme.SMALL,
        frameon=False,
    )


def _extend(values: np.ndarray, largest: float) -> str:
    low, high = (values < -largest).any(), (values > largest).any()
    return "both" if low and high else "min" if low else "max" if high else "neither"


def _draw_codes(ax: Axes, field: "ResponseMap", factor: Any, names: Sequence[str] | None) -> None:
    points = theme.array(field.codes)
    if factor is None:
        scatter(ax, points, theme.INK, size=2.5)
    else:
        by_factor(ax, points, factor, names)
    low, high, bottom, top = field.extent
    ax.set_xlim(low, high)
    ax.set_ylim(bottom, top)


def _draw_arrows(ax: Axes, field: "ResponseMap") -> None:
    first, second = (theme.array(axis) for axis in field.axes)
    pick = [np.linspace(0, len(axis) - 1, 18).astype(int)[1:-1] for axis in (first, second)]
    arrows = theme.array(field.field)[np.ix_(*pick)]
    ax.quiver(
        first[pick[0]],
        second[pick[1]],
        arrows[..., 0].T,
        arrows[..., 1].T,
        color=theme.INK,
        width=0.004,
        headwidth=4,
        zorder=2,
    )

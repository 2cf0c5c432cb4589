"""Response maps: divergence, curvature and size of the field, decoded grid, drift."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zscope.errors import ConfigError
from zscope.plots import theme
from zscope.plots.pictures import GAP, as_cells, place_cells
from zscope.plots.planes import by_factor, scatter, thinned

if TYPE_CHECKING:
    from zscope.assays.responses.drift import Drift
    from zscope.assays.responses.maps import ResponseMap


@theme.themed
def divergence_map(
    given: "ResponseMap",
    *,
    factor: Any = None,
    names: Sequence[str] | None = None,
    codes: bool = True,
    arrows: bool = False,
    title: str = "divergence",
    ax: Axes | None = None,
) -> Axes:
    """Where responses gather (blue) and where they part (red), with the codes on top.

    `factor` colours the codes; `arrows` adds the field itself.
    """
    values = theme.array(given.divergence)
    ax = _signed(given, values, values, title, ax)
    if arrows:
        _arrows(ax, given)
    if codes and given.codes is not None:
        _codes(ax, given, factor, names)
    return ax


@theme.themed
def curvature_map(
    given: "ResponseMap", *, title: str = "mean curvature", ax: Axes | None = None
) -> Axes:
    """How sharply responses gather (red) and part (blue); grey where there is no direction."""
    hidden = theme.array(given.undefined)
    values = np.ma.masked_array(theme.array(given.curvature), hidden)
    return _signed(given, values, values.compressed(), title, ax)


@theme.themed
def magnitude_map(given: "ResponseMap", *, title: str = "response", ax: Axes | None = None) -> Axes:
    """How far one pass moves a code."""
    ax = _frame(given, title, ax)
    values = theme.array(given.magnitude)
    image = _image(ax, given, values, theme.sequential(), 0, theme.symmetric(values, 0.995))
    theme.colorbar(image, ax)
    return ax


@theme.themed
def decoded_map(given: "ResponseMap", *, title: str = "decoded", ax: Axes | None = None) -> Axes:
    """What the points of the map decode to."""
    if given.decoded is None:
        raise ConfigError(
            "decoded_map: this map holds no decoded grid. Make it with response_map(..., "
            "decode_grid=12)."
        )
    ax = _frame(given, title, ax)
    # The first latent runs to the right and the second upwards.
    tiles = as_cells(np.swapaxes(theme.array(given.decoded), 0, 1)[::-1])
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
    given: "ResponseMap",
    *,
    factor: Any = None,
    names: Sequence[str] | None = None,
    arrows: bool = False,
) -> Figure:
    """Divergence with the codes, mean curvature and, if there is one, the decoded grid."""
    count = 2 if given.decoded is None else 3
    height = 2.3 if factor is None else 2.6  # a legend stands below
    figure, grid = theme.panels(1, count, theme.PAGE * (0.72 if count == 2 else 1), height)
    divergence_map(given, factor=factor, names=names, arrows=arrows, ax=grid[0, 0])
    curvature_map(given, ax=grid[0, 1])
    if count == 3:
        decoded_map(given, ax=grid[0, 2])
    for ax in grid[0, 1:]:
        ax.set_ylabel("")
    return figure


@theme.themed
def drift_plane(
    given: "Drift",
    *,
    dims: Sequence[int] = (0, 1),
    most: int = 60,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Trajectories of codes under repeated passes, ending at fixed points.

    Over a map, the basins are shaded. Fixed points are filled when they attract (rate below
    1), open when they do not; their size follows the share of codes that go there.
    """
    ax = theme.axes(ax, theme.COLUMN, 3.1)
    dims = given.dims or tuple(dims)
    latents = given.limits.shape[1]
    columns = [d for d in dims if d < latents]
    if len(columns) < 2:
        raise ConfigError(
            f"drift_plane: dims={tuple(dims)} of codes with {latents} latents; two latents are "
            "needed to draw a plane."
        )
    points = theme.array(given.fixed_points)[:, columns]
    colours = _apart(given, len(points))
    if given.axes is not None:
        _basins(ax, given, colours)
    paths = theme.array(given.trajectories)[:, :, columns]
    ends = theme.array(given.basin)
    for k in thinned(len(paths), most):
        end = ends[given.followed[k]]
        ax.plot(
            *paths[k].T,
            color=theme.GREY if end < 0 else colours[end] if given.axes is None else theme.INK,
            linewidth=0.5,
            alpha=0.7,
            zorder=2,
        )
    attracts, shares = theme.array(given.attracts), theme.array(given.share)
    for point, colour, filled, share in zip(points, colours, attracts, shares, strict=True):
        ax.scatter(
            *point,
            s=14 + 160 * share,
            facecolors=colour if filled else "white",
            edgecolors="white" if filled else colour,
            linewidths=0.8,
            zorder=4,
        )
    if given.axes is None and given.unconverged:
        # Codes that run away would leave the others a dot: their way may leave the picture.
        settled = paths[ends[given.followed] >= 0].reshape(-1, 2)
        shown = np.concatenate([paths[:, 0], settled, points] if len(paths) else [points, [[0, 0]]])
        for limit, column in ((ax.set_xlim, shown[:, 0]), (ax.set_ylim, shown[:, 1])):
            margin = 0.05 * np.ptp(column) or 1.0
            limit(column.min() - margin, column.max() + margin)
    ax.set(xlabel=f"latent {columns[0]}", ylabel=f"latent {columns[1]}")
    theme.title(ax, title or _told(given), theme.NORMAL)
    return ax


@theme.themed
def drift_steps(given: "Drift", *, title: str = "", ax: Axes | None = None) -> Axes:
    """How far each pass moves the codes: thin lines for single codes, thick for the median."""
    ways = theme.array(given.trajectories).astype(float)
    steps = np.linalg.norm(np.diff(ways, axis=1), axis=2)
    ax = theme.axes(ax, theme.COLUMN, 2.3)
    passes = np.arange(1, steps.shape[1] + 1)
    # A code that has arrived stays where it is: its line ends there.
    shown = np.where(steps > 0, steps, np.nan)
    single = ax.plot(passes, shown[thinned(len(shown), 100)].T, color=theme.FAINT, linewidth=0.5)
    if single:
        median = np.median(steps, axis=0)
        height = np.where(median > 0, median, np.nan)
        (middle,) = ax.plot(passes, height, color=theme.BLUE, linewidth=1.8)
        ax.legend([middle, single[0]], ["median", "single codes"], fontsize=theme.SMALL)
    if (steps > 0).any():
        ax.set_yscale("log")
    ax.set(xlabel="pass", ylabel="distance moved")
    theme.title(ax, title or _told(given), theme.NORMAL)
    return ax


def _told(given: "Drift") -> str:
    fixed, moving = len(given.fixed_points), len(given.unconverged)
    text = f"{fixed} fixed point{'' if fixed == 1 else 's'}"
    return text + (f"; {moving} of {len(given.basin)} not converged" if moving else "")


def _apart(given: "Drift", count: int) -> list[str]:
    """A colour for each fixed point, such that basins side by side differ."""
    import networkx as nx

    palette = theme.OKABE_ITO[:6]
    if given.axes is None or count <= len(palette):
        return list(palette[:count]) if count <= len(palette) else theme.categories(count)
    basins = theme.array(given.basins)
    graph = nx.Graph()
    graph.add_nodes_from(range(count))
    for one, other in ((basins[1:], basins[:-1]), (basins[:, 1:], basins[:, :-1])):
        touching = (one != other) & (one >= 0) & (other >= 0)
        graph.add_edges_from(zip(one[touching].tolist(), other[touching].tolist(), strict=True))
    chosen = nx.greedy_color(graph, strategy="largest_first")
    return [palette[chosen[k] % len(palette)] for k in range(count)]


def _basins(ax: Axes, given: "Drift", colours: list[str]) -> None:
    from matplotlib.colors import to_rgb

    assert given.axes is not None
    basins = theme.array(given.basins)
    tints = np.ones((len(colours) + 1, 3))
    for k, colour in enumerate(colours):
        tints[k] = 1 - 0.3 * (1 - np.array(to_rgb(colour)))
    picture = tints[basins].swapaxes(0, 1)  # -1 is the last tint: white
    first, second = (theme.array(axis) for axis in given.axes)
    half = [(axis[1] - axis[0]) / 2 for axis in (first, second)]
    box = (first[0] - half[0], first[-1] + half[0], second[0] - half[1], second[-1] + half[1])
    ax.imshow(picture, extent=box, origin="lower", aspect="auto", zorder=0)
    ax.set_box_aspect(1)
    ax.set_xlim(box[:2])
    ax.set_ylim(box[2:])


def _frame(given: "ResponseMap", title: str, ax: Axes | None) -> Axes:
    ax = theme.axes(ax, theme.COLUMN, 2.9)
    low, high, bottom, top = given.extent
    ax.set_xlim(low, high)
    ax.set_ylim(bottom, top)
    ax.set_box_aspect(1)
    ax.set(xlabel=f"latent {given.dims[0]}", ylabel=f"latent {given.dims[1]}")
    theme.title(ax, title)
    return ax


def _image(
    ax: Axes, given: "ResponseMap", values: np.ndarray, colours: Any, low: float, high: float
) -> Any:
    image = ax.imshow(
        values.T,
        extent=given.extent,
        origin="lower",
        aspect="auto",
        cmap=colours,
        vmin=low,
        vmax=high,
    )
    ax.set_box_aspect(1)
    return image


def _signed(
    given: "ResponseMap", values: np.ndarray, judged: np.ndarray, title: str, ax: Axes | None
) -> Axes:
    ax = _frame(given, title, ax)
    colours = theme.diverging().with_extremes(bad=theme.FAINT)
    # A few grid points at a boundary are far larger than the rest: they may saturate.
    largest = theme.symmetric(judged if judged.size else [0.0], 0.98)
    image = _image(ax, given, values, colours, -largest, largest)
    theme.colorbar(image, ax, extend=_beyond(judged, largest))
    return ax


def _beyond(values: np.ndarray, largest: float) -> str:
    low, high = (values < -largest).any(), (values > largest).any()
    return "both" if low and high else "min" if low else "max" if high else "neither"


def _codes(ax: Axes, given: "ResponseMap", factor: Any, names: Sequence[str] | None) -> None:
    points = theme.array(given.codes)
    if factor is None:
        scatter(ax, points, theme.INK, size=2.5)
    else:
        by_factor(ax, points, factor, names)
    low, high, bottom, top = given.extent
    ax.set_xlim(low, high)
    ax.set_ylim(bottom, top)


def _arrows(ax: Axes, given: "ResponseMap") -> None:
    first, second = (theme.array(axis) for axis in given.axes)
    pick = [np.linspace(0, len(axis) - 1, 18).astype(int)[1:-1] for axis in (first, second)]
    field = theme.array(given.field)[np.ix_(*pick)]
    ax.quiver(
        first[pick[0]],
        second[pick[1]],
        field[..., 0].T,
        field[..., 1].T,
        color=theme.INK,
        width=0.004,
        headwidth=4,
        zorder=2,
    )

"""Grids of observations: decoded grids, hybrids, traversals. Vectors are drawn as small lines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from zscope.errors import ConfigError
from zscope.plots import theme

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder

__all__ = ["hybrid_grid", "image_grid", "segment_grid", "traversals"]

GAP = 0.06
"""The space between two pictures, as a fraction of a picture."""


@theme.themed
def image_grid(
    images: Any,
    *,
    rows: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
    x: str = "",
    y: str = "",
    title: str = "",
    limits: tuple[float, float] | None = None,
    size: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A grid of observations: rows x columns x observation (a single row needs no rows axis).

    Observations are pictures, channels x height x width (or height x width), or vectors,
    which are drawn as lines. Values from 0 to 1 are shown as they are; for others, `limits` are
    the values of black and white. `size` is the side of a picture in inches.
    """
    cells = as_cells(images)
    down, across = cells.shape[:2]
    picture = _is_picture(cells)
    ratio = cells.shape[2] / cells.shape[3] if picture else 0.8
    size = size or float(np.clip((theme.PAGE - 0.9) / across, 0.2, 0.55))
    width = across * size * (1 + GAP) + (0.25 + 0.062 * _longest(rows))
    height = down * size * ratio * (1 + GAP) + 0.35 + 0.2 * bool(x or columns) + 0.2 * bool(title)
    own = ax is None
    ax = theme.axes(ax, width, height)
    ax.set(xlabel=x, ylabel=y)
    theme.title(ax, title)
    step_x, step_y = 1 + GAP, ratio * (1 + GAP)
    place_cells(ax, cells, limits, (0.0, 0.0), 1.0, ratio)
    ax.set_xlim(-GAP, across * step_x)
    ax.set_ylim(down * step_y, -GAP * ratio)
    ax.set_aspect("equal")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    for count, names, step, half, ticks in (
        (across, columns, step_x, 0.5, ax.set_xticks),
        (down, rows, step_y, ratio / 2, ax.set_yticks),
    ):
        if names is None:
            ticks([])
        elif len(names) != count:
            raise ConfigError(f"image_grid: got {len(names)} names for {count} rows or columns.")
        else:
            ticks([k * step + half for k in range(count)], [str(name) for name in names])
    if own:
        theme.fit(ax)
    return ax


@theme.themed
def hybrid_grid(
    decoded: Any,
    sources: Any,
    *,
    names: Sequence[Any] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Hybrids, with the observations that they combine.

    Single hybrids: `decoded` is units x observation (or bases x units x observation) and
    `sources` base and alternative (bases x 2 x observation); each row shows a base, its hybrids
    and the alternative. Double hybrids: `decoded` is units x units x observation and `sources`
    base, first and second alternative; rows take their unit from the first, columns from the
    second.
    """
    decoded, sources = theme.array(decoded), theme.array(sources)
    plain = sources.ndim - 1 if sources.shape[0] in (2, 3) and decoded.ndim >= sources.ndim else 0
    double = plain and sources.shape[0] == 3 and decoded.ndim == sources.ndim + 1
    if double:
        return _double_hybrids(decoded, sources, names, title, ax)
    if plain and decoded.ndim == sources.ndim:
        decoded, sources = decoded[None], sources[None]
    if decoded.ndim != sources.ndim or decoded.shape[0] != sources.shape[0]:
        raise ConfigError(
            "hybrid_grid: expected hybrids of shape units x observation with 2 sources, or units x "
            f"units x observation with 3, got {decoded.shape} with sources {sources.shape}."
        )
    grid = np.concatenate([sources[:, :1], decoded, sources[:, 1:2]], axis=1)
    labels = theme.labels(decoded.shape[1], names)
    columns, x = ["base", *labels, "other"], "latent from the other"
    ax = image_grid(grid, columns=columns, x=x, title=title, ax=ax)
    return _frame_columns(ax, [0, grid.shape[1] - 1])


@theme.themed
def segment_grid(
    decoded: Any,
    sources: Any,
    *,
    names: Sequence[Any] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Hybrids of one base with several alternatives, a row for each unit that is exchanged.

    `decoded` is units x alternatives x observation, `sources` the base and the alternatives. The
    first row shows the sources, framed.
    """
    hybrids, first = as_cells(decoded), as_cells(sources)
    if first.shape[0] != 1 or first.shape[1] != hybrids.shape[1] + 1:
        raise ConfigError(
            f"segment_grid: {first.shape[1]} sources for hybrids with {hybrids.shape[1]} "
            "alternatives; expected the base and the alternatives: one more."
        )
    # Below the base nothing is drawn; vectors have no empty cell.
    blank = np.full_like(hybrids[:, :1], max(1.0, float(hybrids.max()), float(first.max())))
    left = blank if _is_picture(hybrids) else np.repeat(first[:, :1], len(hybrids), axis=0)
    cells = np.concatenate([first, np.concatenate([left, hybrids], axis=1)])
    labels = ["", *theme.labels(len(hybrids), names)]
    columns = ["base", *map(str, range(1, hybrids.shape[1] + 1))]
    own = ax is None
    ax = image_grid(
        np.moveaxis(cells, -1, 2) if cells.ndim == 5 else cells,
        rows=labels,
        columns=columns,
        title=title,
        ax=ax,
    )
    ax.xaxis.tick_top()
    ax.set_xlabel("")
    ratio = cells.shape[2] / cells.shape[3] if _is_picture(cells) else 0.8
    width = cells.shape[1] * (1 + GAP)
    ax.add_patch(_frame(-GAP / 2, -GAP / 2 * ratio, width, ratio * (1 + GAP)))
    if own:
        theme.fit(ax)
    return ax


def _double_hybrids(
    decoded: np.ndarray,
    sources: np.ndarray,
    names: Sequence[Any] | None,
    title: str,
    ax: Axes | None,
) -> Axes:
    own = ax is None
    labels = theme.labels(len(decoded), names)
    ax = image_grid(decoded, rows=labels, columns=labels, title=title, ax=ax)
    cells = as_cells(sources)
    ratio = cells.shape[2] / cells.shape[3] if _is_picture(cells) else 0.8
    across, down = ax.get_xlim()[1], ax.get_ylim()[0]
    for place, name in zip(ax.get_yticks(), labels, strict=True):
        ax.text(-0.15, place, name, ha="right", va="center")
    ax.set_yticks([])
    # The sources are placed by the hybrids that they contribute to: the base in the corner,
    # the second above the columns, the first beside the rows.
    top, left = -1.35 * ratio, -1.75
    corners = [(left, top), (left, (down - ratio) / 2), ((across - 1) / 2, top)]
    for cell, (x, y), name in zip(cells[0], corners, ("base", "first", "second"), strict=True):
        place_cells(ax, cell[None, None], None, (x, y), 1.0, ratio)
        ax.add_patch(_frame(x - GAP / 2, y - GAP / 2 * ratio, 1 + GAP, ratio * (1 + GAP)))
        if name == "first":
            ax.text(x + 0.5, y - 0.12, name, fontsize=theme.SMALL, ha="center", va="bottom")
        else:
            ax.text(x + 1.12, y + ratio / 2, name, fontsize=theme.SMALL, va="center")
    ax.set_xlim(left - GAP, across)
    ax.set_ylim(down, top - GAP)
    space = "\n" if len(decoded) < 4 else " "  # the label may be longer than a small grid
    ax.set_xlabel(f"latent{space}from the second")
    ax.set_ylabel(f"latent{space}from the first")
    if own:
        theme.fit(ax)
    return ax


def _frame_columns(ax: Axes, columns: Sequence[int]) -> Axes:
    """Draw a thin frame around some columns."""
    down = (ax.get_ylim()[0] - ax.get_ylim()[1]) - GAP
    for column in columns:
        ax.add_patch(_frame(column * (1 + GAP) - GAP / 2, -GAP / 2, 1 + GAP, down))
    return ax


def _frame(left: float, top: float, width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (left, top), width, height, fill=False, edgecolor=theme.BLUE, linewidth=0.9, clip_on=False
    )


@theme.themed
def traversals(
    autoencoder: "Autoencoder",
    base: Any,
    *,
    order: Sequence[int] | None = None,
    labels: Sequence[Any] | None = None,
    kl: Any = None,
    extent: Any = (-2.0, 2.0),
    steps: int = 9,
    title: str = "",
) -> Figure:
    """One row per latent: the base vector, decoded while that latent is moved over `extent`.

    `order` lists the latents to show, and `labels` names their rows. With `kl` (the mean KL of
    each latent) the rows are ordered by it, largest first, and labelled with it. `extent` is
    (low, high) for all latents, or one pair per latent.
    """
    from zscope.autoencoder import evaluation

    start = torch.as_tensor(base).detach().reshape(-1)
    latents = len(start)
    divergences = None if kl is None else theme.array(kl).astype(float).ravel()
    if order is None:
        order = (
            range(latents)
            if divergences is None
            else np.argsort(-divergences, kind="stable").tolist()
        )
    order = [int(k) for k in order]
    if any(not 0 <= k < latents for k in order) or not order:
        raise ConfigError(
            f"traversals: order={order}, but the base has {latents} latents. Choose latents from 0 "
            f"to {latents - 1}."
        )
    if labels is not None and len(labels) != len(order):
        raise ConfigError(f"traversals: got {len(labels)} labels for {len(order)} rows.")
    if labels is None and divergences is not None:
        labels = [f"{k}   KL {divergences[k]:.2f}" for k in order]
    ends = np.broadcast_to(theme.array(extent).astype(float), (latents, 2))
    values = np.linspace(ends[:, 0], ends[:, 1], steps, axis=1)
    device, dtype = autoencoder.place
    codes = start.to(dtype).repeat(len(order), steps, 1)
    for row, k in enumerate(order):
        codes[row, :, k] = torch.from_numpy(values[k]).to(dtype)
    with evaluation(autoencoder):
        images = autoencoder.decode(codes.flatten(0, 1).to(device)).cpu()
    same = bool((ends == ends[0]).all())
    columns = [theme.number(v, 1) for v in values[0]] if same else None
    ax = image_grid(
        images.reshape(len(order), steps, *images.shape[1:]),
        rows=labels if labels is not None else order,
        columns=columns,
        x="value of the latent" if same else "value of the latent, from low to high",
        y="latent" if labels is None else "",
        title=title,
    )
    return theme.figure_of(ax)


def as_cells(images: Any) -> np.ndarray:
    """rows x columns x height x width x channels, or rows x columns x features."""
    values = theme.array(images)
    if values.ndim == 2 or (values.ndim == 4 and values.shape[1] in (1, 3, 4)):  # a single row
        values = values[None]
    if values.ndim == 5 and values.shape[2] in (1, 3, 4):
        values = np.moveaxis(values, 2, -1)
    elif values.ndim == 4:
        values = values[..., None]
    if values.ndim not in (3, 5) or not values.size:
        raise ConfigError(
            "image_grid: expected observations of shape rows x columns x (channels x height x "
            f"width), or rows x columns x features, got {values.shape}."
        )
    if not np.isfinite(values).all():
        raise ConfigError(
            "image_grid: some observations have NaN or infinite values. Has the decoder diverged?"
        )
    return values


def place_cells(
    ax: Axes,
    cells: np.ndarray,
    limits: tuple[float, float] | None,
    corner: tuple[float, float],
    side: float,
    ratio: float,
) -> None:
    """Draw a grid with its upper left corner at `corner` and cells that are `side` wide."""
    if _is_picture(cells):
        _place_pictures(ax, cells, limits, corner, side, ratio)
    else:
        _place_vectors(ax, cells, limits, corner, side, ratio)


def _is_picture(cells: np.ndarray) -> bool:
    return cells.ndim == 5


def _place_pictures(
    ax: Axes,
    cells: np.ndarray,
    limits: tuple[float, float] | None,
    corner: tuple[float, float],
    side: float,
    ratio: float,
) -> None:
    """Draw all pictures of a grid as one raster with white gaps, which keeps files small."""
    values = cells / 255 if cells.dtype == np.uint8 else cells.astype(float)
    if limits is None and (values.min() < -0.05 or values.max() > 1.05):
        limits = float(values.min()), float(values.max())
    low, high = limits or (0.0, 1.0)
    values = np.clip((values - low) / ((high - low) or 1.0), 0, 1)
    down, across, height, width, channels = values.shape
    if channels == 1:
        values = np.repeat(values, 3, axis=-1)
    # Small pictures are enlarged by a whole number, so that the gap can be narrower than one
    # of their pixels.
    scale = max(1, -(-32 // min(height, width)))
    values = values[..., :3].repeat(scale, axis=2).repeat(scale, axis=3)
    height, width = height * scale, width * scale
    gap = max(1, round(GAP * width))
    sheet = np.ones((down * (height + gap) - gap, across * (width + gap) - gap, 3))
    for row in range(down):
        for column in range(across):
            top, left = row * (height + gap), column * (width + gap)
            sheet[top : top + height, left : left + width] = values[row, column]
    right = corner[0] + side * (across * (1 + GAP) - GAP)
    bottom = corner[1] + side * ratio * (down * (1 + GAP) - GAP)
    extent = (corner[0], right, bottom, corner[1])
    ax.imshow(sheet, extent=extent, interpolation="nearest").set_gid("pictures")


def _place_vectors(
    ax: Axes,
    cells: np.ndarray,
    limits: tuple[float, float] | None,
    corner: tuple[float, float],
    side: float,
    ratio: float,
) -> None:
    low, high = limits or (float(cells.min()), float(cells.max()))
    down, across, features = cells.shape
    across_cell = np.linspace(0.06, 0.94, features) if features > 1 else np.array([0.5])
    strokes, baselines = [], []
    for row in range(down):
        for column in range(across):
            left = corner[0] + side * column * (1 + GAP)
            top = corner[1] + side * ratio * row * (1 + GAP)
            scaled = (cells[row, column] - low) / ((high - low) or 1.0)
            y = top + side * ratio * (0.94 - 0.88 * scaled)
            strokes.append(np.column_stack([left + side * across_cell, y]))
            zero = top + side * ratio * (
                0.94 - 0.88 * np.clip((0 - low) / ((high - low) or 1), 0, 1)
            )
            baselines.append([(left, zero), (left + side, zero)])
    ax.add_collection(LineCollection(baselines, colors=theme.FAINT, linewidths=0.5))
    ax.add_collection(LineCollection(strokes, colors=theme.BLUE, linewidths=0.9))
    if features <= 16:
        points = np.concatenate(strokes)
        ax.plot(points[:, 0], points[:, 1], ".", color=theme.BLUE, markersize=2)


def _longest(names: Sequence[Any] | None) -> int:
    return max((len(str(name)) for name in names or []), default=0)

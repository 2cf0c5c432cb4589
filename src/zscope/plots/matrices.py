"""Heatmaps, one or a grid of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zscope.errors import ConfigError
from zscope.plots import theme

__all__ = ["Panel", "heatmap", "heatmaps"]

NUMBERED = 16
"""Larger matrices are drawn without numbers in their cells."""


@theme.themed
def heatmap(
    matrix: Any,
    *,
    rows: str | Sequence[Any] | None = None,
    columns: str | Sequence[Any] | None = None,
    x: str = "",
    y: str = "",
    title: str = "",
    label: str = "",
    diverging: bool | None = None,
    marks: Sequence[int] | None = None,
    marked: str = "causal",
    limit: float | None = None,
    bar: bool = True,
    numbered: int = NUMBERED,
    ax: Axes | None = None,
) -> Axes:
    """A matrix as coloured cells, with their numbers if there is room.

    `rows` and `columns` are the names of rows and columns (a single text names the axis, as
    `y` and `x` do). `diverging` centres the colours on 0, by default if there are negative
    numbers; False gives all of these the palest colour. The rows and columns in `marks` are
    bold, all others grey, and a note says that bold means `marked`. `limit` is the value of
    the darkest colour, by default the largest value. `bar` adds the bar of colours. Matrices
    with more than `numbered` rows or columns have no numbers in their cells.
    """
    values = np.atleast_2d(theme.array(matrix)).astype(float)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise ConfigError(
            f"heatmap: the matrix of shape {values.shape} has {int((~np.isfinite(values)).sum())} "
            "entries that are not finite. Pass a non-empty matrix of finite numbers; leave out "
            "rows and columns that are undefined."
        )
    y, row_names = (rows, None) if isinstance(rows, str) else (y, rows)
    x, column_names = (columns, None) if isinstance(columns, str) else (x, columns)
    height, width = values.shape
    for axis, names, count in (("rows", row_names, height), ("columns", column_names, width)):
        if names is not None and len(names) != count:
            raise ConfigError(
                f"heatmap: got {len(names)} names for {count} {axis}. Pass one for each."
            )
    signed = values.min() < 0 if diverging is None else diverging
    largest = limit or theme.symmetric_limit(values)
    cell = _cell(max(height, width))
    own = ax is None
    ax = theme.axes(ax)
    if own:
        theme.resize(ax, width * cell, height * cell)
    image = ax.imshow(
        values,
        cmap=theme.diverging() if signed else theme.sequential(),
        vmin=-largest if signed else 0,
        vmax=largest,
    )
    ax.set(xlabel=x, ylabel=y)
    theme.title(ax, title)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=theme.SMALL if max(height, width) > 8 else theme.NORMAL)
    _label(ax, "x", width, column_names, marks)
    _label(ax, "y", height, row_names, marks)
    if max(height, width) <= numbered:
        _separate_cells(ax, height, width)
        _write_numbers(ax, image, values)
    if bar:
        theme.colorbar(image, ax, label, share=min(1.0, max(0.5, 1.4 / (height * cell))))
    if marks is not None:
        note = f"bold: {marked}" if len(marks) else f"none {marked}"
        ax.annotate(
            note,
            (1, 1),
            (0, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=theme.SMALL,
            color=theme.GREY,
        )
    if own:
        theme.fit(ax)
    return ax


class Panel(NamedTuple):
    """One heatmap of a grid."""

    matrix: Any
    rows: Sequence[str]
    columns: Sequence[str]
    title: str


@theme.themed
def heatmaps(
    grid: Sequence[Sequence[Panel]],
    *,
    x: str = "",
    y: str = "",
    label: str = "",
    limit: float = 1.0,
    down: Sequence[str] = (),
    blocks: Callable[[list[str]], Mapping[str, tuple[int, int]]] | None = None,
    note: str = "",
) -> Figure:
    """A grid of heatmaps with one scale of colours; negative numbers have the palest colour.

    `down` are the titles of the rows of the grid. `blocks` says which ranges of rows and columns
    belong together: lines separate them, and the first row and the last column name them.
    """
    across = max(map(len, grid))
    side = max(1.5, min(2.6, 0.14 * max(len(panel.rows) for line in grid for panel in line)))
    margin = 0.05 * max(len(name) for line in grid for panel in line for name in panel.rows)
    figure, axes = theme.panels(
        len(grid), across, margin + 0.5 + across * (side + 0.15), 0.9 + len(grid) * (side + 0.45)
    )
    image = None
    for i, line in enumerate(grid):
        for panel in axes[i, len(line) :]:
            panel.set_visible(False)
        for j, (panel, ax) in enumerate(zip(line, axes[i], strict=False)):
            heatmap(
                np.clip(theme.array(panel.matrix), 0, None),
                rows=panel.rows,
                columns=panel.columns,
                limit=limit,
                bar=False,
                numbered=0,
                ax=ax,
            )
            ax.tick_params(labelsize=theme.SMALL)
            image = ax.images[0]
            if j and panel.rows == line[0].rows:
                ax.set_yticklabels([])
            if i < len(grid) - 1 and panel.columns == grid[-1][0].columns:
                ax.set_xticklabels([])
            named = blocks is not None and i == 0
            theme.title(ax, panel.title, theme.NORMAL)
            if named:
                ax.set_title(ax.get_title(loc="left"), fontsize=theme.NORMAL, pad=12)
            if blocks is not None:
                _divide(ax, blocks(list(panel.rows)), blocks(list(panel.columns)),
                        top=i == 0, right=j == len(line) - 1)  # fmt: skip
        if down and down[i]:
            axes[i, 0].set_ylabel(down[i])
    bar = figure.colorbar(image, ax=axes, shrink=min(1.0, 1.4 / (len(grid) * side)), aspect=12)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=theme.SMALL)
    bar.set_label(label)
    figure.supxlabel("\n".join(filter(None, [x, note])), fontsize=theme.NORMAL)
    figure.supylabel(y, fontsize=theme.NORMAL)
    return figure


def _divide(
    ax: Axes,
    rows: Mapping[str, tuple[int, int]],
    columns: Mapping[str, tuple[int, int]],
    *,
    top: bool,
    right: bool,
) -> None:
    """Lines between blocks of rows and columns, and their names above and to the right."""
    for start, _ in list(rows.values())[1:]:
        ax.axhline(start - 0.5, color=theme.INK, linewidth=0.7)
    for start, _ in list(columns.values())[1:]:
        ax.axvline(start - 0.5, color=theme.INK, linewidth=0.7)
    style: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": theme.SMALL,
        "color": theme.GREY,
        "annotation_clip": False,
    }
    low, high = -0.5, ax.get_xlim()[1]
    for name, (start, end) in columns.items() if top else ():
        ax.annotate(name, ((start + end - 1) / 2, low), (0, 2), ha="center", va="bottom", **style)
    for name, (start, end) in rows.items() if right else ():
        ax.annotate(name, (high, (start + end - 1) / 2), (2, 0), va="center", rotation=270, **style)


def _cell(count: int) -> float:
    """The side of a cell in inches: large matrices fit on a page."""
    return float(np.clip(5.4 / count, 0.02, 0.36 if count > 4 else 0.5))


def _separate_cells(ax: Axes, height: int, width: int) -> None:
    """White gaps between cells."""
    ax.set_xticks(np.arange(1, width) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, height) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=0.8)
    ax.tick_params(which="minor", length=0)


def _write_numbers(ax: Axes, image: Any, values: np.ndarray) -> None:
    size = np.abs(values).max()
    digits = 2 if size < 10 else 1 if size < 100 else 0
    font = float(np.interp(max(values.shape), [8, NUMBERED], [7.0, 5.2]))
    for (row, column), value in np.ndenumerate(values):
        text = ax.text(
            column,
            row,
            theme.number(value, digits),
            ha="center",
            va="center",
            fontsize=font,
            color="white" if theme.is_dark(image.cmap(image.norm(value))) else theme.INK,
        )
        text.set_in_layout(False)  # it fits its cell, and measuring hundreds of texts is slow


def _label(
    ax: Axes, axis: str, count: int, names: Sequence[Any] | None, marks: Sequence[int] | None
) -> None:
    labels = theme.labels(count, names)
    # Some numbers may be left out so that they do not overlap, but names only of very many.
    numbers = all(label.isdigit() for label in labels)
    every = (
        1 if count <= (32 if numbers else 64) else 4 * -(-count // (128 if count <= 100 else 64))
    )
    positions = list(range(0, count, every))
    long = axis == "x" and max(len(labels[k]) for k in positions) > 3
    ticks = ax.set_xticks if axis == "x" else ax.set_yticks
    rotated: dict[str, Any] = (
        {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if long else {}
    )
    ticks(positions, [labels[k] for k in positions], **rotated)
    if marks is None:
        return
    texts = ax.get_xticklabels() if axis == "x" else ax.get_yticklabels()
    for k, text in zip(positions, texts, strict=True):
        text.set_color(theme.INK if k in marks else theme.GREY)
        text.set_fontweight("bold" if k in marks else "normal")

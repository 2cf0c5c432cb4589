"""Heatmaps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from zscope.errors import ConfigError
from zscope.plots import theme

__all__ = ["heatmap"]

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
    ax: Axes | None = None,
) -> Axes:
    """A matrix as coloured cells, with their numbers if there is room.

    `rows` and `columns` are the names of rows and columns (a single text names the axis, as
    `y` and `x` do). `diverging` centres the colours on 0, by default if there are negative
    numbers; False gives all of these the palest colour. The rows and columns in `marks` are
    bold, all others grey, and a note says that bold means `marked`. `limit` is the value of
    the darkest colour, by default the largest value.
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
    if max(height, width) <= NUMBERED:
        _separate_cells(ax, height, width)
        _write_numbers(ax, image, values)
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

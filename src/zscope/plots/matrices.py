"""Heatmaps, one or a grid of them."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

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
    empty: str = "no value",
    bar: bool = True,
    numbered: int = NUMBERED,
    ax: Axes | None = None,
) -> Axes:
    """A matrix as coloured cells, with their numbers if there is room.

    `rows` and `columns` are the names of rows and columns (a single text names the axis, as
    `y` and `x` do). `diverging` centres the colours on 0, by default if there are negative
    numbers; False gives all of these the palest colour. The rows and columns in `marks` are
    bold, all others grey, and a note says that bold means `marked`. `limit` is the value of
    the darkest colour, by default the largest value. A None in the matrix is hatched, and a note
    says that these cells are `empty`. `bar` adds the bar of colours. Matrices with more than
    `numbered` rows or columns have no numbers in their cells.
    """
    cells = np.atleast_2d(theme.array(matrix))
    absent = np.frompyfunc(lambda each: each is None, 1, 1)(cells).astype(bool)
    values = np.where(absent, 0, cells).astype(float)
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
        np.ma.masked_array(values, absent),
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
        _write_numbers(ax, image, values, absent)
    notes = []
    if absent.any():
        _hatch(ax, absent)
        notes.append(f"hatched: {empty}")
    if bar:
        draw_bar = theme.light_bar if own else theme.colorbar
        draw_bar(image, ax, label, share=min(1.0, max(0.5, 1.4 / (height * cell))))
    if marks is not None:
        notes.append(f"bold: {marked}" if len(marks) else f"none {marked}")
    if notes:
        ax.annotate(
            "; ".join(notes),
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


Blocks = Callable[[list[str]], Mapping[str, tuple[int, int]]]


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
    blocks: Blocks | None = None,
    note: str = "",
) -> Figure:
    """A grid of heatmaps with one scale of colours; negative numbers have the palest colour.

    `down` are the titles of the rows of the grid, wrapped to their height. `blocks` says which
    ranges of rows and columns belong together: lines separate them, and the first row and the last
    column name them.
    """
    panels = [panel for line in grid for panel in line]
    same = all(list(panel.columns) == list(panels[0].columns) for panel in panels)
    # In inches. Panels are square and close together, which no layout engine does for names
    # of this length.
    side = float(np.clip(0.15 * max(len(panel.rows) for panel in panels), 1.3, 2.6))
    titles = [_wrap(text, max(8, int(15 * side))) for text in down]
    room = 0.14 * max((1 + title.count("\n") for title in titles), default=0)
    left = 0.3 + room + 0.055 * max(len(name) for panel in panels for name in panel.rows)
    below = 0.1 + 0.05 * max(len(name) for panel in panels for name in panel.columns)
    step = (side + 0.12, side + (0.12 if same else below + 0.2))
    count = (max(map(len, grid)), len(grid))
    x = _wrap("\n".join(filter(None, [x, note])), int(13 * (count[0] * step[0] + 1)))
    y = _wrap(y, int(13 * (count[1] * step[1] + 0.5)))
    left += 0.14 * y.count("\n")
    width = left + count[0] * step[0] + 0.75
    bottom = below + 0.2 + 0.15 * x.count("\n")
    height = bottom + count[1] * step[1] + 0.35
    figure = theme.figure_of(theme.axes(None, width, height))
    figure.clear()
    figure.set_layout_engine("none")
    for i, line in enumerate(grid):
        base = bottom + (count[1] - 1 - i) * step[1]
        for j, panel in enumerate(line):
            place = ((left + j * step[0]) / width, base / height, side / width, side / height)
            ax = theme.axes(figure.add_axes(place))
            last = j == len(line) - 1
            title = panel.title if i == 0 or panel.title != grid[0][j].title else ""
            _draw_panel(ax, panel._replace(title=title), limit, blocks, top=i == 0, right=last)
            if j:
                ax.set_yticklabels([])
            if same and i < count[1] - 1:
                ax.set_xticklabels([])
        if titles:
            at = ((0.2 + 0.14 * y.count("\n") + room / 2) / width, (base + side / 2) / height)
            style: dict[str, Any] = {"ha": "center", "va": "center", "multialignment": "center"}
            figure.text(*at, titles[i], rotation=90, fontsize=theme.NORMAL, **style)
    bar = figure.colorbar(
        ax.images[0],
        cax=figure.add_axes(
            ((width - 0.5) / width, bottom / height, 0.1 / width, min(side, 1.4) / height)
        ),
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=theme.SMALL)
    bar.set_label(label)
    middle = (left + (count[0] * step[0] - 0.12) / 2) / width
    figure.text(middle, 0.04 / height, x, ha="center", va="bottom", fontsize=theme.NORMAL)
    middle = (bottom + (count[1] * step[1] - 0.12) / 2) / height
    figure.text(0.04 / width, middle, y, rotation=90, ha="left", va="center", fontsize=theme.NORMAL)
    return figure


def _wrap(text: str, width: int) -> str:
    """Lines of up to `width` characters, broken after commas as far as possible."""
    lines = []
    for line in text.splitlines():
        tied = line.replace(" ", "\xa0").replace(",\xa0", ", ")
        longest = max(map(len, tied.split()), default=0)
        lines.append(fill(tied if longest <= width else line, width, break_on_hyphens=False))
    return "\n".join(lines).replace("\xa0", " ")


def _draw_panel(
    ax: Axes, panel: Panel, limit: float, blocks: Blocks | None, *, top: bool, right: bool
) -> None:
    heatmap(
        np.clip(theme.array(panel.matrix), 0, None),
        rows=panel.rows,
        columns=panel.columns,
        limit=limit,
        bar=False,
        numbered=0,
        ax=ax,
    )
    ax.set_aspect("auto")
    ax.tick_params(labelsize=theme.SMALL)
    for text in ax.get_xticklabels():
        text.set(rotation=90, ha="center", va="top", rotation_mode="default")
    named = blocks is not None and top
    ax.set_title(panel.title, fontsize=theme.NORMAL, pad=12 if named else 4)
    if blocks is not None:
        _divide(ax, blocks(list(panel.rows)), blocks(list(panel.columns)), top=top, right=right)


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


def _hatch(ax: Axes, absent: np.ndarray) -> None:
    """Hatch the cells without a value, which must not look like 0."""
    for row, column in np.argwhere(absent):
        cell = Rectangle(
            (column - 0.5, row - 0.5), 1, 1, facecolor="none", edgecolor=theme.GREY,
            hatch="////", linewidth=0,
        )  # fmt: skip
        ax.add_patch(cell)


def _write_numbers(ax: Axes, image: Any, values: np.ndarray, absent: np.ndarray) -> None:
    size = np.abs(values).max()
    digits = 2 if size < 10 else 1 if size < 100 else 0
    for (row, column), value in np.ndenumerate(values):
        if absent[row, column]:
            continue
        text = ax.text(
            column,
            row,
            theme.number(value, digits),
            ha="center",
            va="center",
            fontsize=theme.SMALL,
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

"""Figures of many runs: a score against a setting, two scores, and all of their correlations."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from zscope.collection import Runs, as_runs
from zscope.errors import ConfigError, Undefined
from zscope.plots import theme
from zscope.plots.curves import end_labels
from zscope.plots.matrices import heatmap
from zscope.results import listed
from zscope.tables import numbers_of
from zscope.tables.statistics import ENOUGH, Mean, mean_of, rank_correlation

__all__ = ["panels", "rank_correlations", "score_lines", "score_scatter"]

LABELLED = 8
"""Lines that are labelled at their ends; more of them have a legend."""
MARKERS = "osD^vP*X"


@theme.themed
def panels(
    runs: Runs | str | Path, scores: Sequence[str], against: str, line: str | None = None
) -> Axes | Figure:
    """A panel for each score: lines against a setting, points against another score."""
    runs = as_runs("plots", runs)
    column = runs.columns.resolve(against, "plots")
    draw = score_lines if column in runs.columns.fields.values() else score_scatter
    if len(scores) == 1:
        return draw(runs, scores[0], against, line)
    if not scores:
        raise ConfigError("plots: no score to draw. Name one, as zscope table lists them.")
    across = min(len(scores), 2)
    down = -(-len(scores) // across)
    figure, grid = theme.panels(
        down, across, theme.PAGE, (2.4 if draw is score_lines else 2.8) * down
    )
    for panel in grid.flat[len(scores) :]:
        panel.set_visible(False)
    for score, panel in zip(scores, grid.flat, strict=False):
        draw(runs, score, against, line, ax=panel)
    return figure


@theme.themed
def score_lines(
    runs: Runs | str | Path,
    score: str,
    against: str,
    line: str | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """The mean of a score at each value of a numeric field, a line for each level of another.

    Shaded are the 95 % t-intervals of the means over the other runs; of two runs their range, and
    nothing of a single one. Where the field has a single value they are bars. The note above the
    axes says which of these there are. Values that grow by factors are drawn at even distances.
    """
    runs = as_runs("plots", runs)
    column, x, group = _columns(runs, score, against, line)
    finished = runs.select(status="finished")
    rows = [row for row in finished.rows if row.get(column) is not None and x in row]
    if not numbers_of([row[x] for row in rows]) or not numbers_of([row[column] for row in rows]):
        raise ConfigError(
            f"plots: there are no finished runs with numbers for both {score!r} and {against!r}. "
            f"Settings that vary: {listed(runs.varying())}."
        )
    levels: dict[Any, dict[float, list[float]]] = {}
    for row in rows:
        values = levels.setdefault(row.get(group) if group else None, {})
        values.setdefault(float(row[x]), []).append(float(row[column]))
    ax = theme.axes(ax, theme.COLUMN, 2.4)
    ends: list[tuple[float, float, str, Any]] = []
    drawn: list[Mean] = []
    order = _order(levels)
    colours = theme.categories(len(order))
    for k, level in enumerate(order):
        positions = sorted(levels[level])
        means = [mean for at in positions if (mean := mean_of(levels[level][at])) is not None]
        _line(ax, positions, means, colours[k], MARKERS[k % len(MARKERS)], _name(level, group))
        ends.append((positions[-1], means[-1].value, _name(level, group), colours[k]))
        drawn += means
    places = sorted({at for values in levels.values() for at in values})
    _scale(ax, places)
    ax.set(xlabel=runs.columns.label(against), ylabel=runs.columns.label(score))
    ax.yaxis.set_major_locator(_ticks())
    if len(order) > LABELLED:
        ax.legend(ncols=2, fontsize=theme.SMALL)
    else:
        end_labels(ax, ends)
    others = [name for name in finished.varying() if name not in (x, group)]
    _note(ax, _about_means(drawn, others, "shaded" if len(places) > 1 else "bar"))
    return ax


def _about_means(means: Sequence[Mean], others: Sequence[str], how: str) -> str:
    """What the points are means of, and what is drawn around them: `how` says as what."""
    counts = {mean.n for mean in means}
    fewest, most = min(counts), max(counts)
    if most == 1:
        return "single runs"
    over = f"over {listed(others, 4)}" if others else "of runs with the same settings"
    kinds = ["95 % interval"] if any(not mean.is_range for mean in means) else []
    kinds += ["range of 2 runs"] if 2 in counts else []
    none = " (none for single runs)" if fewest == 1 else ""
    number = f"{most}" if fewest == most else f"{fewest} to {most}"
    if all(mean.low == mean.high for mean in means):
        return f"mean {over} (n = {number}), which all have the same value"
    return f"mean {over} (n = {number}); {how}: {' or '.join(kinds)}{none}"


def _ticks() -> MaxNLocator:
    """Few ticks, at round numbers."""
    return MaxNLocator(6, steps=[1, 2, 5, 10])


def _columns(runs: Runs, score: str, against: str, line: str | None) -> tuple[str, str, str | None]:
    names = [runs.columns.resolve(each, "plots") for each in (score, against)]
    return names[0], names[1], None if line is None else runs.columns.resolve(line, "plots")


def _order(levels: Any) -> list[Any]:
    from zscope.collection import sort_key

    return sorted(levels, key=sort_key)


def _name(level: Any, group: str | None) -> str:
    """The label of a line: numbers with the name of the field."""
    if group is None:
        return ""
    if level is None:
        return f"no {group}"
    return f"{group} {level:g}" if numbers_of([level]) else str(level)


def _line(
    ax: Axes, x: Sequence[float], means: Sequence[Mean], colour: Any, marker: str, name: str
) -> None:
    # A band that narrows to the point of a single run would look like certainty.
    several = np.array([mean.n > 1 for mean in means])
    low, high = np.array([[mean.low, mean.high] for mean in means]).T
    ax.fill_between(x, low, high, where=several.tolist(), color=colour, alpha=0.18, linewidth=0)
    beside = np.concatenate([[False], several, [False]])
    alone = several & ~beside[:-2] & ~beside[2:]  # a band needs two points
    ax.vlines(np.array(x)[alone], low[alone], high[alone], color=colour, alpha=0.35, linewidth=3)
    values = [mean.value for mean in means]
    ax.plot(x, values, color=colour, marker=marker, markersize=3, label=name)


def _scale(ax: Axes, levels: list[float]) -> None:
    """A logarithmic axis for values that grow by factors; ticks at the values if they are few."""
    places = np.array(levels)
    if len(levels) > 2 and levels[0] > 0 and _unevenness(np.log(places)) < _unevenness(places):
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        places = np.log(places)
    if len(levels) <= 8:
        least = 0.07 * (places[-1] - places[0])  # closer ones would overlap
        shown: list[int] = []
        for k, place in enumerate(places):
            if not shown or place - places[shown[-1]] >= least:
                shown.append(k)
        ticks = [levels[k] for k in shown]
        ax.xaxis.set_major_locator(FixedLocator(ticks))
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


def _unevenness(places: np.ndarray) -> float:
    """How much the distances between neighbours differ, relative to their mean."""
    gaps = np.diff(places)
    return float(gaps.std() / gaps.mean())


def _note(ax: Axes, text: str) -> None:
    """A grey line above the axes: what must be known to read them."""
    width = ax.get_position().width * theme.figure_of(ax).get_size_inches()[0]
    lines = fill(text, max(48, int(width * 140 / theme.SMALL)))
    ax.set_title(lines, fontsize=theme.SMALL, color=theme.GREY, loc="left", pad=4)


@theme.themed
def score_scatter(
    runs: Runs | str | Path,
    score: str,
    against: str,
    line: str | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Two scores of each finished run, coloured by the levels of a field, with their rank
    correlation (Spearman) over all runs."""
    runs = as_runs("plots", runs)
    column, x, group = _columns(runs, score, against, line)
    finished = runs.select(status="finished")
    rows = [
        row for row in finished.rows if numbers_of([row.get(column)]) and numbers_of([row.get(x)])
    ]
    if not rows:
        raise ConfigError(
            f"plots: no finished run has both {score!r} and {against!r}. Were they measured on "
            "different runs? See: zscope table RUNS"
        )
    ax = theme.axes(ax, theme.COLUMN, 2.8)
    levels: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        levels.setdefault(row.get(group) if group else None, []).append(row)
    colours = theme.categories(len(levels))
    many = len(rows) > 5000  # pixels, because so many points make a large file
    for k, level in enumerate(_order(levels)):
        points = np.array([[row[x], row[column]] for row in levels[level]], dtype=float).T
        ax.scatter(
            points[0], points[1], s=12 if len(rows) <= 300 else 5, color=colours[k], alpha=0.75,
            marker=MARKERS[k % len(MARKERS)], linewidths=0, label=_name(level, group),
            rasterized=many,
        )  # fmt: skip
    ax.set(xlabel=runs.columns.label(against), ylabel=runs.columns.label(score))
    ax.xaxis.set_major_locator(_ticks())
    ax.yaxis.set_major_locator(_ticks())
    if group is not None:
        _legend(ax, len(levels))
    correlation = _correlation(finished, x, column)
    _note(
        ax,
        f"{len(rows):,} runs, too few or constant for a correlation"
        if correlation is None
        else f"Spearman's ρ = {theme.number(correlation)} over {len(rows):,} runs",
    )
    return ax


def _legend(ax: Axes, count: int) -> None:
    """A legend beside the axes: among the points, its markers would be taken for some of them."""
    ax.legend(
        fontsize=theme.SMALL, handletextpad=0.2, ncols=1 + (count - 1) // 16,
        loc="upper left", bbox_to_anchor=(1.01, 1.0),
    )  # fmt: skip


@theme.themed
def rank_correlations(
    runs: Runs | str | Path, scores: Sequence[str] | None = None, *, ax: Axes | None = None
) -> Axes:
    """Spearman's rank correlation between scores over finished runs, as a matrix.

    Scores that are constant, or that have fewer than three different points with another, are
    left out, which the note above the matrix says.
    """
    runs = as_runs("plots", runs)
    names = runs.scores() if scores is None else scores
    keys = {runs.columns.label(n, "plots"): runs.columns.resolve(n, "plots") for n in names}
    finished = runs.select(status="finished")
    left, dropped = _correlated(finished, keys)
    if len(left) < 2:
        raise Undefined(
            f"plots: of {len(keys)} scores, {len(left)} vary over at least 3 finished runs, and "
            f"a correlation needs 2. Left out: {listed(dropped)}. Measure more runs or scores."
        )
    matrix = [[_correlation(finished, keys[a], keys[b]) for b in left] for a in left]
    counts = [len(_pairs(finished, keys[a], keys[b])) for a in left for b in left if a != b]
    own = ax is None
    ax = heatmap(
        matrix, rows=left, columns=left, diverging=True, limit=1.0, label="Spearman's ρ", ax=ax
    )
    few, many = min(counts), max(counts)
    note = f"{many:,} runs" if few == many else f"{few:,} to {many:,} runs with both scores"
    if dropped:
        note += f"; constant or too few: {listed(dropped, 3)}"
    _note(ax, note)
    if own:
        theme.fit(ax)  # room for the note
    return ax


def _correlated(runs: Runs, keys: dict[str, str]) -> tuple[list[str], list[str]]:
    """Scores with a rank correlation to each other, and those without."""
    left = list(keys)
    while True:
        undefined = {
            a: sum(_correlation(runs, keys[a], keys[b]) is None for b in left) for a in left
        }
        worst = max(undefined, key=lambda each: undefined[each], default=None)
        if worst is None or not undefined[worst]:
            return left, [each for each in keys if each not in left]
        left.remove(worst)


def _correlation(runs: Runs, first: str, second: str) -> float | None:
    """The rank correlation of two scores; None of fewer than three different points."""
    pairs = _pairs(runs, first, second)
    return rank_correlation(*zip(*pairs, strict=True)) if len(set(pairs)) >= ENOUGH else None


def _pairs(runs: Runs, first: str, second: str) -> list[tuple[float, float]]:
    """The values of two scores, of the runs that have both."""
    return [
        (row[first], row[second])
        for row in runs.rows
        if numbers_of([row.get(first)]) and numbers_of([row.get(second)])
    ]

"""The page of several models side by side: one HTML file that loads nothing."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import torch

from zscope.assays import CATALOGUE
from zscope.errors import ZscopeError
from zscope.report import pictures
from zscope.report.findings import MEANING
from zscope.report.page import flatten, style, template
from zscope.report.pictures import FEW
from zscope.report.several import Row, SideBySide

__all__ = ["page"]

MOST_PANELS = 3
"""Pairs of models whose differences are drawn."""


def page(comparison: SideBySide) -> str:
    """The page as text. The template escapes everything that comes from a user."""
    first = comparison.reports[0]
    others = [row for row in comparison.rows if not row.counts]
    groups = groupby(others, key=lambda row: CATALOGUE[row.assay].group)
    from zscope import __version__

    return template("several.html").render(
        comparison=comparison,
        version=__version__,
        models=list(zip(comparison.names, comparison.reports, strict=True)),
        two=len(comparison.names) == 2,
        data=first.about["data"],
        meaning=MEANING,
        groups=[(name, list(rows)) for name, rows in groups],
        titles={name: entry.title for name, entry in CATALOGUE.items()},
        figures=list(_figures(comparison)),
        reconstructions=_reconstructions(comparison),
        abouts=[(name, flatten(report.about)) for name, report in
                zip(comparison.names, comparison.reports, strict=True)],
        style=style(),
    )  # fmt: skip


def _figures(comparison: SideBySide) -> Iterator[tuple[pictures.Drawing, str]]:
    """The clear differences of every two models, the clearest first."""
    from zscope.plots import clear_differences

    pairs = dict.fromkeys(
        (each.first, each.second) for row in comparison.counted for each in row.differences
    )
    for first, second in list(pairs)[:MOST_PANELS]:
        clarity = _clarity(comparison.counted, first, second)
        if not clarity:
            continue
        try:
            drawing = pictures.draw(clear_differences(clarity, first, second), f"{first}-{second}")
        except ZscopeError:
            continue
        yield drawing, f"Differences between {first} and {second}"


def _clarity(rows: list[Row], first: str, second: str) -> dict[str, float]:
    """How clear each difference is, positive where the second model is better."""
    clarity = {}
    for row in rows:
        for each in row.differences:
            if (each.first, each.second) == (first, second) and each.interval is not None:
                clarity[row.name] = each.clarity * (1 if row.better == "higher" else -1)
    return dict(sorted(clarity.items(), key=lambda item: -item[1]))


def _reconstructions(comparison: SideBySide) -> list[tuple[str, str]]:
    """The same observations and what each model makes of them, a picture a row.

    Nothing for observations of a few numbers, which are no pictures.
    """
    rows: list[tuple[str, np.ndarray]] = []
    for name, report in zip(comparison.names, comparison.reports, strict=True):
        pairs = None if report.traces is None else report.traces.row_errors
        if pairs is None:
            continue
        both = [each.numpy().astype(float) for each in (pairs.originals, pairs.decoded)]
        both = [np.where(np.isfinite(each), each, 0.0) for each in both]
        rows += [("observations", both[0])] if not rows else []
        if both[1].shape == rows[0][1].shape:
            rows.append((name, both[1]))
    if len(rows) < 2 or rows[0][1][0].size <= FEW:
        return []
    if rows[0][1].ndim == 4:  # one range of brightness for all
        low, high = (f([f(values) for _, values in rows]) for f in (np.min, np.max))
        scale = (low, high) if low < -0.05 or high > 1.05 else (0.0, 1.0)
        return [(name, pictures.sheet(_scale(values, *scale)[None])) for name, values in rows]
    return [(name, pictures.strip(torch.from_numpy(values.copy()))) for name, values in rows]


def _scale(values: np.ndarray, low: float, high: float) -> np.ndarray:
    scaled: np.ndarray = ((values - low) / ((high - low) or 1.0)).clip(0, 1)
    return scaled

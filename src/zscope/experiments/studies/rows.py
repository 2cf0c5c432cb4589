"""Rows of measurements, and the statistics that claims are judged by.

    rows = results.rows("digits", data="mnist")
    slopes(rows, "structure-score", along="beta")           # one slope a seed
    differences(rows.where(model="xae"), rows.where(model="ae"), "hybrid")      # paired by seed

A row is a dict: the settings of a run by their short names (beta, not options.beta), `group` (its
grid), `run` (its name), and what was measured of it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from zscope.collection import sort_key
from zscope.experiments.studies.judging import Interval, rank_correlation_interval

__all__ = [
    "Rows",
    "correlation",
    "data_name",
    "differences",
    "kendall",
    "log_ratios",
    "mean_and_sd",
    "sd",
    "slopes",
]

Row = dict[str, Any]


class Rows(list[Row]):
    """Rows that can be filtered and grouped."""

    def where(self, **fields: Any) -> "Rows":
        """The rows with these values; a list means one of them."""
        wanted = {k: v if isinstance(v, list) else [v] for k, v in fields.items()}
        return Rows(r for r in self if all(r.get(k) in values for k, values in wanted.items()))

    def on(self, *names: str) -> "Rows":
        """The rows on these data sets, whatever the options of the data."""
        return Rows(row for row in self if data_name(str(row.get("data"))) in names)

    def by_data(self) -> "dict[str, Rows]":
        """The rows of each data set by its name, in the order of the rows."""
        names = dict.fromkeys(data_name(str(row.get("data"))) for row in self)
        return {name: self.on(name) for name in names}

    def by(self, *fields: str) -> "dict[Any, Rows]":
        """The rows of each value of a field (of several: each tuple of values), in order."""
        groups: dict[Any, Rows] = {}
        for row in self:
            key = tuple(row.get(field) for field in fields)
            groups.setdefault(key[0] if len(fields) == 1 else key, Rows()).append(row)
        order = sorted(groups, key=lambda key: [sort_key(k) for k in _as_tuple(key)])
        return {key: groups[key] for key in order}

    def values(self, key: str) -> list[float]:
        """The values of a measurement, of the rows that have it."""
        return [float(row[key]) for row in self if row.get(key) is not None]

    def per_seed(self, key: str) -> dict[Any, float]:
        """The mean of a measurement over the rows of each seed that have it."""
        groups = {seed: rows.values(key) for seed, rows in self.by("seed").items()}
        return {seed: float(np.mean(values)) for seed, values in groups.items() if values}


def data_name(data: str) -> str:
    """The name of a data set without its options: "mnist" of "mnist?resolution=32"."""
    return data.partition("?")[0]


def sd(values: Iterable[float]) -> float:
    """The standard deviation over seeds, with n - 1; 0 of a single value."""
    known = list(values)
    return float(np.std(known, ddof=1)) if len(known) > 1 else 0.0


def mean_and_sd(values: Iterable[float | None], digits: int = 2) -> str:
    """Mean ± standard deviation over seeds (n - 1); a single value alone; "" of none."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return f"{known[0]:.{digits}f}" if known else ""
    return f"{np.mean(known):.{digits}f} ± {sd(known):.{digits}f}"


def _as_tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def differences(first: Rows, second: Rows, key: str, other: str = "") -> dict[Any, float]:
    """`key` of the first minus `other` (default: the same) of the second, for each seed of both."""
    one, two = first.per_seed(key), second.per_seed(other or key)
    return {seed: one[seed] - two[seed] for seed in one if seed in two}


def log_ratios(first: Rows, second: Rows, key: str) -> dict[Any, float]:
    """log(first / second) for each seed of both, where both are positive."""
    one, two = first.per_seed(key), second.per_seed(key)
    return {
        seed: math.log(one[seed] / two[seed])
        for seed in one
        if seed in two and one[seed] > 0 and two[seed] > 0
    }


def slopes(
    rows: Rows, key: str, along: str, scale: Callable[[float], float] = math.log2
) -> dict[Any, float]:
    """The least-squares slope of `key` on scale(along), for each seed with two levels or more."""
    answer = {}
    for seed, own in rows.by("seed").items():
        pairs = [(scale(row[along]), row[key]) for row in own if row.get(key) is not None]
        if len({x for x, _ in pairs}) > 1:
            x, y = np.array(pairs, dtype=float).T
            answer[seed] = float(np.polyfit(x, y, 1)[0])
    return answer


def kendall(rows: Rows, key: str, along: str) -> dict[Any, float]:
    """Kendall's τ between `key` and `along`, for each seed; ties in `key` count 0."""
    answer = {}
    for seed, own in rows.by("seed").items():
        pairs = [(row[along], row[key]) for row in own if row.get(key) is not None]
        signs = [
            math.copysign(1, x2 - x1) * (0 if y1 == y2 else math.copysign(1, y2 - y1))
            for k, (x1, y1) in enumerate(pairs)
            for x2, y2 in pairs[k + 1 :]
            if x1 != x2
        ]
        if signs:
            answer[seed] = sum(signs) / len(signs)
    return answer


def correlation(rows: Iterable[Mapping[str, Any]], x: str, y: str) -> Interval | None:
    """Spearman's rank correlation over rows, with its interval over seeds."""
    known = Rows(dict(r) for r in rows if r.get(x) is not None and r.get(y) is not None)
    return rank_correlation_interval(
        [[(row[x], row[y]) for row in own] for own in known.by("seed").values()]
    )

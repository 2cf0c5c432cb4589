"""Means over runs with their intervals, and differences between paired runs.

Over n >= 3 runs with mean m and standard deviation s,

    m ± t(0.975, n - 1) s / sqrt(n)

covers the expected value in 95 % of cases, if runs are independent and about normal. Of one or
two runs there is no interval that could be trusted: their range is given instead.

The mean of n >= 3 paired differences has a percentile bootstrap interval. Percentiles of
resampled means are too narrow for few pairs, so they are taken further out (the percentiles at
Φ(±sqrt(n / (n - 1)) t(0.975, n - 1))), and the interval is never narrower than the t-interval
above: three differences of one sign, which chance gives in a quarter of all cases, are no proof.
Differences that are all equal, as those of counts may be, do not say how far others would spread:
their range is given, and they are called by a sign test at 5 %, which needs six of them.

Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69, 2015.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

__all__ = ["ENOUGH", "EQUAL", "Difference", "Mean", "difference_of", "mean_of", "rank_correlation",
           "rank_test"]  # fmt: skip

ENOUGH = 3
"""Values, or pairs, from which an interval is computed."""
EQUAL = 6
"""Equal differences from which they are called: chance gives n of one sign with 2 / 2^n."""
ROUNDING = 1e-9
"""Relative spread of differences that are equal but for rounding."""
RESAMPLES = 4000
AT_ONCE = 2_000_000
"""Numbers that are drawn at a time."""


@dataclass(frozen=True)
class Mean:
    """The mean of some runs, and their 95 % interval or (of fewer than three) their range."""

    value: float
    low: float
    high: float
    n: int

    @property
    def is_range(self) -> bool:
        return self.n < ENOUGH


@dataclass(frozen=True)
class Difference(Mean):
    """The mean difference of pairs, and its 95 % interval or (of fewer than three, or of equal
    ones) their range."""

    @property
    def are_equal(self) -> bool:
        """Whether all differences are the same, so that they have no spread to judge by."""
        return self.high - self.low <= ROUNDING * abs(self.value)

    @property
    def is_range(self) -> bool:
        return self.n < ENOUGH or self.are_equal

    @property
    def verdict(self) -> str:
        """above, below or undecided: whether the interval excludes 0, and on which side.

        Fewer than three pairs are undecided, and fewer than six that are all equal.
        """
        few = self.n < (EQUAL if self.are_equal else ENOUGH)
        if few or self.low <= 0 <= self.high:
            return "undecided"
        return "above" if self.low > 0 else "below"


def mean_of(values: Sequence[float]) -> Mean | None:
    """The mean with its t-interval; None of no values."""
    if not values:
        return None
    array = np.asarray(values, dtype=float)
    centre = float(array.mean())
    if len(array) < ENOUGH:
        return Mean(centre, float(array.min()), float(array.max()), len(array))
    half = _half_width(array)
    return Mean(centre, centre - half, centre + half, len(array))


def _half_width(values: np.ndarray) -> float:
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    # Of equal values: rounding in the mean would leave a spread of its own.
    spread = 0.0 if (values == values[0]).all() else float(values.std(ddof=1))
    return float(stdtrit(len(values) - 1, 0.975)) * spread / math.sqrt(len(values))


def difference_of(values: Sequence[float], seed: int = 0) -> Difference | None:
    """The mean of paired differences with its bootstrap interval; None of no pairs.

    Fewer than three differences, and differences that are all equal, have their range instead.
    """
    if not values:
        return None
    array = np.asarray(values, dtype=float)
    centre = float(array.mean())
    spread = Difference(centre, float(array.min()), float(array.max()), len(array))
    if spread.is_range:
        return spread
    half = _half_width(array)
    low, high = _bootstrap(array, seed)
    return Difference(centre, min(low, centre - half), max(high, centre + half), len(array))


def _bootstrap(values: np.ndarray, seed: int) -> tuple[float, float]:
    """Percentiles of the means of resampled values."""
    from scipy.special import ndtr, stdtrit

    count = len(values)
    generator = np.random.default_rng([seed, count])
    rows = max(1, AT_ONCE // count)
    means = np.concatenate([
        values[generator.integers(count, size=(min(rows, RESAMPLES - start), count))].mean(1)
        for start in range(0, RESAMPLES, rows)
    ])  # fmt: skip
    tail = ndtr(-math.sqrt(count / (count - 1)) * stdtrit(count - 1, 0.975))
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def rank_correlation(first: Any, second: Any) -> float | None:
    """Spearman's rank correlation; None of fewer than three pairs, or of constant values."""
    from scipy.stats import rankdata

    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if len(first) < ENOUGH or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def rank_test(first: Any, second: Any) -> tuple[float, float] | None:
    """Spearman's rank correlation, and its p-value against pairs in random order.

    By all orders of up to 7 pairs and by 9,999 random ones of more: the usual formula is for many
    pairs, and says p = 0 for three in the same order. None where there is no correlation.
    """
    value = rank_correlation(first, second)
    if value is None:
        return None
    from scipy.stats import rankdata, zscore

    x, y = zscore(rankdata(first)), zscore(rankdata(second))
    if len(x) <= 7:
        orders = np.array(list(permutations(range(len(x)))))
        return value, float((np.abs(y[orders] @ x) >= abs(y @ x) - 1e-9).mean())
    rng = np.random.default_rng(0)
    orders = np.stack([rng.permutation(len(x)) for _ in range(9_999)])
    return value, float(((np.abs(y[orders] @ x) >= abs(y @ x) - 1e-9).sum() + 1) / 10_000)

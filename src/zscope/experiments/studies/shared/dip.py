"""Hartigan's dip test: do values have more than one mode?

    dip = min over unimodal distributions U of  sup_x |F(x) - U(x)|

with F the empirical distribution of n values: from 1 / 2n to 1/4, for two points of equal weight.
The best U is convex below its mode and concave above: the greatest convex minorant and the least
concave majorant of F, outside of an interval that is narrowed until they fit. The p-value is the
share of uniform samples of the same size whose dip is at least as large: of all unimodal
distributions the uniform one is the hardest to tell from two modes. Unchanged by shifting and
scaling values.

Hartigan & Hartigan, Annals of Statistics 13, 1985.
"""

from collections.abc import Sequence

import numpy as np

__all__ = ["dip", "dip_test"]

DRAWS = 500


def dip(values: Sequence[float] | np.ndarray) -> float:
    """The dip of at least one value."""
    x = np.sort(np.asarray(values, dtype=float))
    n = len(x)
    low, high, most = 0, n - 1, 1.0  # in units of 1 / 2n
    while low < high and x[low] < x[high]:
        below, above = _hull(x, low, high, convex=True), _hull(x, low, high, convex=False)
        # The distance between the two curves at the points of each, and where it is largest.
        under = np.interp(x[above], x[below], below)
        over = np.interp(x[below], x[above], above)
        apart_above, apart_below = above + 1 - under, over + 1 - below
        if apart_above.max() >= apart_below.max():
            right = int(above[apart_above.argmax()])
            left = int(below[x[below] <= x[right]].max())
            apart = float(apart_above.max())
        else:
            left = int(below[apart_below.argmax()])
            right = int(above[x[above] >= x[left]].min())
            apart = float(apart_below.max())
        if apart <= most:
            break
        most = max(
            most, _misfit(x, below, left, convex=True), _misfit(x, above, right, convex=False)
        )
        if (left, right) == (low, high) or left >= right:
            break
        low, high = left, right
    return most / (2 * n)


def _hull(x: np.ndarray, low: int, high: int, *, convex: bool) -> np.ndarray:
    """The points of the greatest convex minorant, or of the least concave majorant, of F."""
    sign = 1 if convex else -1
    hull: list[int] = []
    for point in range(low, high + 1):
        while len(hull) > 1:
            a, b = hull[-2:]
            turn = (b - a) * (x[point] - x[b]) - (point - b) * (x[b] - x[a])
            if sign * turn < 0:
                break
            hull.pop()
        hull.append(point)
    return np.array(hull)


def _misfit(x: np.ndarray, hull: np.ndarray, end: int, *, convex: bool) -> float:
    """The largest distance of F from the curve outside of the interval that is left."""
    part = np.arange(hull[0], end + 1) if convex else np.arange(end, hull[-1] + 1)
    curve = np.interp(x[part], x[hull], hull)
    distance = part + 1 - curve if convex else curve + 1 - part
    return float(distance.max(initial=0.0))


def dip_test(values: Sequence[float] | np.ndarray, *, seed: int = 0) -> tuple[float, float] | None:
    """The dip, and its p-value against one mode; None of fewer than 8 values."""
    if len(values) < 8:
        return None
    random = np.random.default_rng([seed, len(values)])
    own = dip(values)
    draws = [dip(random.uniform(size=len(values))) for _ in range(DRAWS)]
    return own, (1 + sum(each >= own for each in draws)) / (1 + DRAWS)

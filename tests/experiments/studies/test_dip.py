"""The dip statistic: known values, and a linear programme that knows nothing of hulls."""

import numpy as np
import pytest
from scipy.optimize import linprog

from zscope.experiments.studies.shared.dip import dip, dip_test


def by_linear_programme(x):
    """The least D such that some unimodal distribution is within D of the empirical one."""
    x, n, best = np.sort(x), len(x), 1.0
    for mode in range(n):  # u_i = U(x_i); at the mode U may jump, from u_mode to u_n; last: D
        rows, limits = [], []

        def add(terms, limit=0.0, rows=rows, limits=limits):
            row = np.zeros(n + 2)
            for place, factor in terms:
                row[place] += factor
            rows.append(row)
            limits.append(limit)

        right = [n if i == mode else i for i in range(n)]
        for i in range(n):
            add([(i, 1), (-1, -1)], i / n)
            add([(right[i], -1), (-1, -1)], -(i + 1) / n)
        add([(mode, 1), (n, -1)])
        for i in range(n - 1):
            add([(right[i], 1), (i + 1, -1)])
        slopes = [
            [(i + 1, 1 / (x[i + 1] - x[i])), (right[i], -1 / (x[i + 1] - x[i]))]
            for i in range(n - 1)
        ]
        for i in range(n - 2):
            if i + 1 != mode:
                sign = 1 if i + 1 < mode else -1  # slopes rise below the mode
                add(
                    [(p, sign * f) for p, f in slopes[i]]
                    + [(p, -sign * f) for p, f in slopes[i + 1]]
                )
        cost = np.zeros(n + 2)
        cost[-1] = 1
        bounds = [(None, None)] * (n + 1) + [(0, 1)]
        answer = linprog(cost, A_ub=rows, b_ub=limits, bounds=bounds)
        if answer.status == 0:
            best = min(best, answer.fun)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_a_linear_programme(seed):
    random = np.random.default_rng(seed)
    x = random.uniform(size=7)
    if seed % 2:
        x[:3] += 2
    assert dip(x) == pytest.approx(by_linear_programme(x), abs=1e-7)


def test_known_values():
    assert dip([0, 0, 0, 1, 1, 1]) == 0.25
    assert dip(np.arange(10)) == pytest.approx(1 / 20)
    x = np.random.default_rng(1).normal(size=30)
    assert dip(5 * x - 2) == pytest.approx(dip(x))


def test_two_groups_are_told_from_one():
    random = np.random.default_rng(0)
    two = np.r_[random.normal(0, 0.2, 12), random.normal(2, 0.2, 12)]
    assert dip_test(two)[1] < 0.01
    assert dip_test(random.normal(size=24))[1] > 0.1
    assert dip_test([1.0, 2.0]) is None

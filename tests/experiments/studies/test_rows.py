"""Statistics over rows of measurements."""

import math

import pytest

from zscope.experiments.studies.rows import (
    Rows,
    correlation,
    differences,
    kendall,
    log_ratios,
    mean_and_sd,
    sd,
    slopes,
)


def family():
    return Rows(
        {"seed": seed, "model": model, "beta": beta, "score": (seed - 19) * beta + (model == "b")}
        for seed in (20, 21, 22, 23)
        for model in ("a", "b")
        for beta in (1, 2, 4)
    )


def test_rows_are_chosen_and_grouped():
    rows = family()
    assert len(rows.where(model="a", beta=[1, 4])) == 8
    pairs = [(beta, model) for beta in (1, 2, 4) for model in ("a", "b")]
    assert list(rows.by("beta", "model")) == pairs
    assert rows.where(beta=2).per_seed("score") == {20: 2.5, 21: 4.5, 22: 6.5, 23: 8.5}
    assert Rows([{"seed": 1, "score": None}]).values("score") == []


def test_differences_pair_by_seed_and_drop_seeds_without_partner():
    rows = family().where(beta=1)
    first, second = rows.where(model="b"), rows.where(model="a", seed=[20, 21])
    assert differences(first, second, "score") == {20: 1, 21: 1}
    assert log_ratios(first, second, "score") == {20: math.log(2), 21: math.log(1.5)}
    negative, positive = Rows([{"seed": 1, "score": -1}]), Rows([{"seed": 1, "score": 1}])
    assert log_ratios(negative, positive, "score") == {}


def test_slopes_are_per_seed_on_the_logarithm():
    rows = Rows(
        {"seed": seed, "beta": beta, "y": seed * math.log2(beta) + 7}
        for seed in (1, 2)
        for beta in (1, 2, 8)
    )
    assert slopes(rows, "y", "beta") == pytest.approx({1: 1, 2: 2})
    assert slopes(rows.where(beta=1), "y", "beta") == {}


def test_kendall_counts_pairs_in_order():
    rows = Rows({"seed": 1, "beta": b, "y": y} for b, y in ((1, 3), (2, 1), (4, 5)))
    assert kendall(rows, "y", "beta") == pytest.approx({1: 1 / 3})
    constant = Rows({"seed": 1, "beta": b, "y": 2} for b in (1, 2, 4))
    assert kendall(constant, "y", "beta") == {1: 0}


def test_correlation_has_an_interval_over_seeds():
    rows = Rows({"seed": s, "x": b, "y": -b + 0.01 * s} for s in range(6) for b in (1, 2, 4, 8))
    interval = correlation(rows, "x", "y")
    assert interval.value < -0.9
    assert interval.high < 0
    assert interval.n == 6
    assert correlation(rows, "x", "absent") is None


def test_the_spread_over_seeds_is_that_of_a_sample():
    # 1, 2, 3: squares of deviations sum to 2, divided by n - 1 = 2 (by n it would be 0.82).
    assert sd([1.0, 2.0, 3.0]) == 1.0
    assert mean_and_sd([1.0, None, 2.0, 3.0], 1) == "2.0 ± 1.0"
    assert mean_and_sd([0.5]) == "0.50"
    assert mean_and_sd([None]) == ""
    assert sd([4.0]) == 0.0

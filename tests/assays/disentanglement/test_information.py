"""Binning, mutual information, and what chance would show."""

import itertools
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_codes import drawn, normal
from sklearn.metrics import mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

from zscope.assays.information import (
    bins_for,
    entropy,
    expected_information,
    information,
    quantile_bins,
    width_bins,
)

seeds = st.integers(0, 10_000)


def test_quantile_bins_are_equally_filled():
    counts = np.bincount(quantile_bins(normal((1000, 1)))[:, 0])
    assert counts.tolist() == [50] * 20


def test_equal_values_stay_together_and_few_values_are_kept():
    values = np.repeat([5.0, -1.0, 7.0], [700, 200, 100])[:, None]
    assert set(zip(values[:, 0], quantile_bins(values)[:, 0], strict=True)) == {
        (-1.0, 0),
        (5.0, 1),
        (7.0, 2),
    }
    half_tied = np.concatenate([np.zeros(500), normal(500)])[:, None]
    bins = quantile_bins(half_tied)[:, 0]
    assert len(set(bins[:500])) == 1


@given(seed=seeds)
def test_any_increasing_map_and_any_reflection_leave_quantile_bins_alone(seed):
    values = normal((400, 2), seed)
    bins = quantile_bins(values)
    assert np.array_equal(quantile_bins(np.exp(values) * 3 - 1), bins)
    assert np.array_equal(19 - quantile_bins(-values), bins)


def test_one_outlier_moves_quantile_bins_by_a_row_but_ruins_equal_widths():
    values = normal((1000, 1))
    spoilt = values.copy()
    spoilt[0] = 1e6
    assert (quantile_bins(values) != quantile_bins(spoilt)).sum() <= 20
    assert np.bincount(width_bins(spoilt)[:, 0]).tolist()[0] == 999


def test_width_bins_are_numpys_histogram_with_the_maximum_in_the_last_bin():
    values = normal((500, 1))
    expected = np.histogram(values[:, 0], 20)[0]
    assert np.bincount(width_bins(values)[:, 0], minlength=20).tolist() == expected.tolist()


@pytest.mark.parametrize("low", [1e16, 5e-324])
def test_width_bins_of_a_range_with_fewer_numbers_than_bins(low):
    values = np.repeat([low, np.nextafter(low, 1e300)], [30, 10])[:, None]
    counts = np.bincount(width_bins(values)[:, 0], minlength=20)
    assert counts[counts > 0].tolist() == [30, 10]
    assert len(counts) == 20


def test_few_rows_get_fewer_bins():
    assert [bins_for(n) for n in (20, 100, 200, 10_000)] == [2, 10, 20, 20]


def test_entropy_of_a_fair_die():
    assert entropy(np.full(6, 100)) == pytest.approx(log(6))


@given(seed=seeds)
def test_information_agrees_with_scikit_learn(seed):
    factors = np.asfortranarray(drawn((3, 7), 300, seed))
    bins = quantile_bins(normal((300, 3), seed) + factors[:, :1])
    found = information(bins, factors)
    for j, k in itertools.product(range(3), range(2)):
        expected = mutual_info_score(factors[:, k], bins[:, j])
        assert found.plain[j, k] == pytest.approx(expected, abs=1e-12)
        table = contingency_matrix(factors[:, k], bins[:, j], sparse=True)
        expected = expected_mutual_information(table, 300)
        assert found.chance[j, k] == pytest.approx(expected, rel=1e-8)


def test_chance_is_the_mean_over_every_permutation():
    first, second = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 0, 0, 0])
    every = [
        mutual_info_score(first, [second[i] for i in order])
        for order in itertools.permutations(range(6))
    ]
    found = expected_information(np.bincount(first), np.bincount(second))
    assert found == pytest.approx(np.mean(every), rel=1e-10)


def test_chance_is_right_for_many_rows_where_only_part_of_the_sum_is_taken():
    # 2 N I tends to a chi-square variable with (R - 1)(C - 1) degrees of freedom.
    samples = 1_000_000
    found = expected_information(np.full(20, samples // 20), np.full(5, samples // 5))
    assert found == pytest.approx(19 * 4 / (2 * samples), rel=1e-3)


@pytest.mark.parametrize(("samples", "sizes"), [(200, (3, 3)), (1000, (20, 20)), (300, (60,))])
def test_noise_codes_are_rarely_taken_for_informative(samples, sizes):
    taken = 0
    for seed in range(150):
        factors = np.asfortranarray(drawn(sizes, samples, seed))
        bins = quantile_bins(normal((samples, 6), seed + 1000))
        taken += information(bins, factors).informative.any()
    assert taken <= 6  # 1 % of 150 are expected; more than 6 happen once in 4000


def test_a_weak_but_real_dependence_is_found():
    factors = np.asfortranarray(drawn((4,), 2000))
    code = factors + 4 * normal(factors.shape)
    assert information(quantile_bins(code), factors).informative.tolist() == [True]


def test_a_code_that_tells_its_factor_has_share_one():
    factors = np.asfortranarray(drawn((5, 3), 500))
    found = information(quantile_bins(factors[:, ::-1] * -2.0), factors)
    np.testing.assert_allclose(found.share[[0, 1], [1, 0]], 1)
    assert found.share[[0, 1], [0, 1]].max() < 0.05


@pytest.mark.parametrize("digits", [0, 1, 2, 8])
@pytest.mark.parametrize("samples", [3, 20, 21, 500])
def test_quantile_bins_follow_the_middle_rank_of_equal_values(digits, samples):
    values = np.random.default_rng(0).normal(size=(samples, 3)).round(digits)
    values[:, 2] = np.repeat([0.0, -0.0, 1.0], samples)[::3]
    bins = quantile_bins(values, 20)
    for column, found in zip(values.T, bins.T, strict=True):
        below = (column[None] < column[:, None]).sum(1)
        equal = (column[None] == column[:, None]).sum(1)
        distinct = np.unique(column)
        few = len(distinct) <= 20
        middle = (20 * (below + equal / 2) / samples).astype(int)
        assert (found == (np.searchsorted(distinct, column) if few else middle)).all()


@pytest.mark.parametrize("strength", [0.0, 0.1, 0.5])
def test_the_variance_of_information_is_its_spread_over_samples(strength):
    estimates = []
    for seed in range(150):
        rng = np.random.default_rng([seed, 7])
        labels = rng.integers(4, size=(2000, 1))
        codes = strength * labels + rng.standard_normal((2000, 1))
        estimates.append(information(quantile_bins(codes), labels))
    spread = np.std([each.plain[0, 0] for each in estimates])
    expected = np.mean([np.sqrt(each.variance[0, 0]) for each in estimates])
    assert expected == pytest.approx(spread, rel=0.15)

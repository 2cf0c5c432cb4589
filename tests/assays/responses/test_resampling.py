"""How often each sample counts in a resample, and how far out an interval is cut."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm, t
from worlds import gaussian_codes, identity, seeded

from zscope.assays.responses.conditioned import conditioned_response_matrix
from zscope.assays.responses.consistency import interventional_consistency
from zscope.assays.responses.matrix import response_matrix
from zscope.assays.responses.resampling import block_tail, block_weights, interval, tail
from zscope.errors import ConfigError


@pytest.mark.parametrize("resamples", [-1, 1])
def test_a_number_of_resamples_that_gives_no_interval_is_refused(resamples):
    codes, factors = gaussian_codes(60, 2), np.indices((3, 20)).reshape(2, -1).T
    with pytest.raises(ConfigError, match=r"response_matrix: resamples=.*at least"):
        response_matrix(identity(2), codes, resamples=resamples)
    with pytest.raises(ConfigError, match=r"conditioned_.*: resamples=.*at least"):
        conditioned_response_matrix(identity(2), codes, factors, resamples=resamples)
    with pytest.raises(ConfigError, match=r"interventional_.*: resamples=.*at least"):
        interventional_consistency(identity(2), codes, resamples=resamples)


def test_the_share_cut_off_is_that_of_students_distribution():
    """Standardised, a mean of n numbers reaches as far as t with n - 1 degrees of freedom."""
    for units in (2, 5, 16, 100):
        wide = t.ppf(0.975, units - 1) * math.sqrt(units / (units - 1))
        assert tail(units) == pytest.approx(norm.cdf(-wide), abs=1e-12)
    assert tail(10**6) == pytest.approx(0.025, rel=1e-3)
    assert block_tail(64) < tail(16) < block_tail(100_000) < 0.025


def test_intervals_of_few_samples_hold_the_truth_nearly_as_often_as_they_say():
    """The plain percentiles of the same draws hold it in about 86 % of cases."""
    truth, inside, plain, trials = math.sqrt(2), 0, 0, 150
    for seed in range(trials // 10):
        codes = gaussian_codes(48, 10, seed)  # ten independent latents at a time
        found = response_matrix(identity(10), codes, resamples=100, generator=seeded(seed))
        low, high = found.interval.diagonal(dim1=1, dim2=2)
        inside += int(((low <= truth) & (truth <= high)).sum())
        squares = (codes - codes.roll(-1, 0)).square()
        draws = (block_weights(48, 100, seeded(seed))[1:] @ squares).sqrt()
        low, high = torch.quantile(draws, torch.tensor([0.025, 0.975], dtype=torch.float64), dim=0)
        plain += int(((low <= truth) & (truth <= high)).sum())
    assert inside / trials > 0.88
    assert inside - plain > 0.02 * trials, (inside, plain)


def test_few_resamples_are_made_enough_to_reach_the_ends():
    codes = gaussian_codes(200, 2)
    few, enough, more = (
        response_matrix(identity(2), codes, resamples=count, generator=seeded(1)).interval
        for count in (2, 200, 400)
    )
    assert torch.equal(few, enough)
    assert not torch.equal(enough, more)


def test_the_ends_of_an_interval_are_the_percentiles_of_the_resamples():
    draws = torch.rand(201, 3, 4, generator=seeded(0), dtype=torch.float64)
    draws[7, 1, 1] = math.nan
    ends = torch.tensor([0.02, 0.98], dtype=torch.float64)
    expected = torch.quantile(draws[1:].flatten(1), ends, dim=0).reshape(2, 3, 4)
    torch.testing.assert_close(interval(draws, 0.02), expected, equal_nan=True)
    assert interval(draws[:1], 0.02) is None

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds import expected_mmd, gaussian_codes, random_rotation, seeded

from zscope.assays.responses import mmd as module
from zscope.assays.responses.mmd import mmd
from zscope.errors import Undefined

seeds = st.integers(0, 10_000)


def by_hand(x, y, *, biased, variance=1.0):
    """Straight from the definition, one pair at a time."""
    n, latents = x.shape

    def kernel(a, b):
        r = float(((a - b) ** 2).sum())
        widths = [2 * latents * variance * s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10)]
        return sum(c / (c + r) for c in widths)

    total = 0.0
    for i in range(n):
        for j in range(n):
            if i != j or biased:
                total += kernel(x[i], x[j]) + kernel(y[i], y[j])
                total -= kernel(x[i], y[j]) + kernel(x[j], y[i])
    return total / (n * n if biased else n * (n - 1))


@given(seed=seeds, biased=st.booleans())
def test_agrees_with_the_definition_pair_by_pair(seed, biased):
    x, y = gaussian_codes(9, 3, seed), gaussian_codes(9, 3, seed + 1, scale=1.5)
    found = mmd(x, y, biased=biased, variance=0.7, permutations=0)
    expected = by_hand(x.numpy(), y.numpy(), biased=biased, variance=0.7)
    assert found.value == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert found.p_value is None


@pytest.mark.parametrize(("latents", "variance", "shift"), [(1, 1, 1), (3, 4, 0), (8, 0.25, 0.3)])
def test_agrees_with_the_exact_value_for_two_gaussians(latents, variance, shift):
    x = gaussian_codes(3000, latents, 0)
    y = gaussian_codes(3000, latents, 1) * variance**0.5 + shift
    found = mmd(x, y, permutations=0)
    exact = expected_mmd(latents, variance, shift)
    assert abs(found.value - exact) < 4 * found.standard_error
    assert found.standard_error < 0.1 * exact  # so that the line above says something


def test_the_exact_value_of_one_gaussian_against_itself_is_zero():
    assert expected_mmd(5, 1.0) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.15, 0.6])
def test_the_standard_error_is_the_spread_over_repeated_draws(shift):
    draws = [
        mmd(
            gaussian_codes(60, 2, seed),
            gaussian_codes(60, 2, 10_000 + seed) + shift,
            permutations=0,
        )
        for seed in range(400)
    ]
    spread = np.std([draw.value for draw in draws])
    claimed = np.sqrt(np.mean([draw.standard_error**2 for draw in draws]))
    if shift > 0:
        assert claimed == pytest.approx(spread, rel=0.15)
    else:  # on the safe side; and the estimate itself has no bias
        assert spread < claimed < 1.4 * spread
        assert np.mean([draw.value for draw in draws]) == pytest.approx(0, abs=3 * spread / 20)


def test_the_interval_holds_a_truth_near_zero_where_symmetric_ends_would_not():
    """A draw with a small value has a small standard error as well."""
    truth, trials, inside, symmetric = expected_mmd(2, 1.0, 0.22), 200, 0, 0
    for seed in range(trials):
        found = mmd(
            gaussian_codes(100, 2, seed), gaussian_codes(100, 2, 9000 + seed) + 0.22, permutations=0
        )
        low, high = found.interval
        assert low <= found.value <= high
        inside += low <= truth <= high
        symmetric += abs(found.value - truth) <= 1.96 * found.standard_error
    assert inside / trials > 0.92
    assert symmetric / trials < 0.9


def test_the_interval_of_the_biased_form_is_moved_as_its_value_is():
    x, y = gaussian_codes(40, 2, 0), gaussian_codes(40, 2, 1) + 0.5
    plain, biased = mmd(x, y, permutations=0), mmd(x, y, biased=True, permutations=0)
    for end, moved in zip(plain.interval, biased.interval, strict=True):
        assert moved - biased.value == pytest.approx((end - plain.value) * 39 / 40)


def test_p_values_of_equal_distributions_are_uniform():
    values = np.array(
        [
            mmd(
                gaussian_codes(30, 2, seed),
                gaussian_codes(30, 2, 5000 + seed),
                permutations=99,
                generator=seeded(seed),
            ).p_value
            for seed in range(300)
        ]
    )
    # Each share has a standard deviation below 3 %.
    for level in (0.05, 0.25, 0.5, 0.75):
        assert abs((values <= level).mean() - level) < 0.09


def test_exchanging_pairs_turns_signs_as_promised():
    x, y = gaussian_codes(8, 2, 0), gaussian_codes(8, 2, 1) + 1
    swap = torch.tensor([True, False, True, True, False, False, True, False])[:, None]
    by_exchange = mmd(torch.where(swap, y, x), torch.where(swap, x, y), permutations=0).value
    h = torch.zeros(8, 8, dtype=torch.float64)
    for i in range(8):
        for j in range(8):
            pair = [i, j]
            if i != j:
                h[i, j] = by_hand(x[pair].numpy(), y[pair].numpy(), biased=False)
    signs = torch.where(swap[:, 0], -1.0, 1.0).double()
    assert by_exchange == pytest.approx(float(signs @ h @ signs) / 56)


def test_different_distributions_have_the_smallest_p_value():
    x, y = gaussian_codes(200, 2, 0), gaussian_codes(200, 2, 1) + 1
    assert mmd(x, y, permutations=99).p_value == pytest.approx(0.01)


def test_identical_clouds_are_not_different():
    x = gaussian_codes(50, 2)
    found = mmd(x, x.clone())
    assert found.value == pytest.approx(0, abs=1e-12)
    assert found.p_value == 1


def test_the_biased_form_is_never_negative_and_larger():
    for seed in range(20):
        x, y = gaussian_codes(20, 2, seed), gaussian_codes(20, 2, seed + 100)
        biased = mmd(x, y, biased=True, permutations=0).value
        assert biased >= 0
        assert biased > mmd(x, y, permutations=0).value


@given(seed=seeds)
def test_moving_and_turning_both_clouds_changes_nothing(seed):
    x, y = gaussian_codes(30, 3, seed), gaussian_codes(30, 3, seed + 1, scale=2)
    turn = random_rotation(3, seed)
    moved = mmd(x @ turn + 5, y @ turn + 5, permutations=0).value
    assert moved == pytest.approx(mmd(x, y, permutations=0).value, abs=1e-10)


def test_blocks_of_rows_change_nothing(monkeypatch):
    x, y = gaussian_codes(70, 2, 0), gaussian_codes(70, 2, 1) + 0.2
    whole = mmd(x, y)
    monkeypatch.setattr(module, "BLOCK_BYTES", 8 * 4 * 70 * 13)  # 13 rows at once
    parts = mmd(x, y)
    assert parts.value == pytest.approx(whole.value, rel=1e-12)
    assert parts.standard_error == pytest.approx(whole.standard_error, rel=1e-9)
    assert parts.p_value == whole.p_value


@pytest.mark.parametrize(
    ("x", "y", "variance", "said"),
    [
        (torch.zeros(9, 2), torch.zeros(8, 2), 1.0, r"\(9, 2\) and \(8, 2\)"),
        (torch.zeros(3, 2), torch.zeros(3, 2), 1.0, "at least 4 samples"),
        (torch.zeros(9, 2), torch.zeros(9, 2), 0.0, "kernels of zero width"),
    ],
)
def test_clouds_that_cannot_be_compared_are_refused(x, y, variance, said):
    unchecked = inspect.unwrap(mmd)  # past the types that only tests check
    with pytest.raises(Undefined, match=said):
        unchecked(x, y, variance=variance)

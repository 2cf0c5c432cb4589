import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from worlds import gaussian_codes, seeded

import zscope as zs
from zscope.assays import independence
from zscope.errors import Undefined


def test_independent_latents_score_zero():
    found = independence(gaussian_codes(3000, 4, scale=[1, 2, 3, 4]))
    assert abs(found.score) < 4 * found.standard_error
    assert found.p_value > 0.01
    assert found.samples == 1500


def test_p_values_of_independent_latents_are_uniform():
    values = np.array(
        [
            independence(gaussian_codes(60, 2, s), permutations=99, generator=seeded(s)).p_value
            for s in range(200)
        ]
    )
    for level in (0.1, 0.5, 0.9):
        assert abs((values <= level).mean() - level) < 0.11  # 3 standard deviations


@pytest.mark.parametrize("how", ["line", "uncorrelated"])
def test_dependent_latents_are_found_even_without_correlation(how):
    x = gaussian_codes(2000, 1)
    other = x if how == "line" else x.square() / 2**0.5
    found = independence(torch.cat([x, other], 1))
    assert found.score > 5 * found.standard_error
    assert found.p_value < 0.01


def test_dependence_inside_a_group_is_allowed():
    x = gaussian_codes(2000, 2)
    codes = torch.cat([x, x[:, :1]], 1)
    assert independence(codes).p_value < 0.01
    assert independence(codes, groups=[[0, 2], [1]]).p_value > 0.01


def test_scaling_all_latents_together_changes_nothing():
    codes = gaussian_codes(300, 2) @ torch.tensor([[1, 1], [0, 0.3]]).double()
    small, large = independence(codes), independence(1000 * codes)
    assert large.score == pytest.approx(small.score, rel=1e-9)


def test_of_a_posterior_draws_are_judged():
    # The means lie on a line, but the spread hides it.
    means = gaussian_codes(2000, 1).float().expand(2000, 2).contiguous()
    assert independence(zs.Posterior(means)).p_value < 0.01
    hidden = zs.Posterior(means, torch.full_like(means, 100.0))
    assert independence(hidden).p_value > 0.01


def test_one_variable_is_independent_of_nothing():
    with pytest.raises(Undefined, match=r"1 variable\(s\) and 100 codes"):
        independence(gaussian_codes(100, 1))
    with pytest.raises(Undefined, match=r"2 variable\(s\) and 6 codes"):
        independence(gaussian_codes(6, 2))


def test_the_figure_shows_which_latents_rise_and_fall_together():
    codes = gaussian_codes(2000, 3)
    codes[:, 2] = codes[:, 0].exp()  # any increasing map keeps the ranks
    found = independence(torch.cat([codes, torch.ones(2000, 1)], 1))
    assert float(found.correlation[0, 2]) == pytest.approx(1)
    assert abs(float(found.correlation[0, 1])) < 0.1
    assert found.correlation[3, :3].abs().max() == found.correlation[:3, 3].abs().max() == 0


def test_equal_numbers_share_a_rank_whatever_the_order_of_the_rows():
    """Sorted rows of few values: in their order, the ranks of unrelated latents would agree."""
    first = torch.arange(3).repeat_interleave(399).double()
    codes = torch.stack([first, torch.arange(3).repeat(399).double()], 1)
    expected = spearmanr(codes[:, 0], codes[:, 1]).statistic
    assert expected == pytest.approx(0)
    for rows in (codes, codes[torch.randperm(1197, generator=seeded(1))]):
        found = independence(rows, permutations=0).correlation
        assert float(found[0, 1]) == pytest.approx(expected, abs=1e-9)
        assert found.diagonal().tolist() == pytest.approx([1, 1])

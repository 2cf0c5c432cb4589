"""Total correlation, mutual information, effective rank, and the truncation table."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from zscope.assays.regime.effective_rank import effective_rank, matrix_rank, spectral_rank
from zscope.assays.regime.mutual_information import mutual_information
from zscope.assays.regime.total_correlation import (
    covariance_total_correlation,
    total_correlation,
)
from zscope.assays.regime.truncation import truncation, type_subsets
from zscope.assays.regime.types import variable_types
from zscope.autoencoder import Posterior
from zscope.errors import Undefined

seeds = st.integers(0, 10_000)


def normal(samples: int, columns: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, columns, generator=generator, dtype=torch.float64)


def equicorrelated(d: int, rho: float) -> torch.Tensor:
    return torch.full((d, d), rho, dtype=torch.float64).fill_diagonal_(1)


def codes_with_covariance(covariance: torch.Tensor, samples: int = 50) -> torch.Tensor:
    """Codes whose sample covariance is exactly the given one."""
    white = normal(samples, len(covariance))
    white -= white.mean(0)
    white = torch.linalg.qr(white).Q * (samples - 1) ** 0.5
    return white @ torch.linalg.cholesky(covariance).T


# Total correlation


@pytest.mark.parametrize(("d", "expected"), [(2, 0.14384), (4, 0.58158)])
def test_equal_correlations_of_a_half(d, expected):
    covariance = equicorrelated(d, 0.5)
    assert covariance_total_correlation(covariance) == pytest.approx(expected, abs=5e-6)
    assert total_correlation(codes_with_covariance(covariance)).score == pytest.approx(
        expected, abs=5e-6
    )


@pytest.mark.parametrize("extra", [1, 6])
def test_independent_unit_columns_add_nothing(extra):
    covariance = equicorrelated(3, 0.4)
    padded = torch.block_diag(covariance, torch.eye(extra, dtype=torch.float64))
    assert covariance_total_correlation(padded) == pytest.approx(
        covariance_total_correlation(covariance), abs=1e-14
    )


@given(seed=seeds)
def test_total_correlation_ignores_the_scale_and_order_of_latents_but_not_rotation(seed):
    codes = normal(60, 4, seed) @ normal(4, 4, seed + 1)
    plain = total_correlation(codes).score
    moved = codes[:, [2, 0, 3, 1]] * torch.tensor([1e-4, 3.0, -50.0, 0.1]) + 7
    assert total_correlation(moved).score == pytest.approx(plain, rel=1e-6)
    turned = codes @ torch.linalg.eigh(torch.cov(codes.T)).eigenvectors
    assert total_correlation(turned).score == pytest.approx(0, abs=1e-9)


def test_total_correlation_agrees_with_the_log_determinant():
    codes = normal(200, 5) @ normal(5, 5, 1)
    covariance = np.cov(codes.numpy(), rowvar=False)
    expected = 0.5 * (np.log(np.diag(covariance)).sum() - np.linalg.slogdet(covariance)[1])
    assert total_correlation(codes).score == pytest.approx(expected)


def test_dependent_columns_are_refused_and_constant_ones_are_dropped():
    codes = normal(50, 3)
    tied = torch.cat([codes, codes[:, :1] + codes[:, 1:2]], 1)
    with pytest.raises(Undefined, match="4 latents of 50 samples are linearly dependent"):
        total_correlation(tied)
    with pytest.raises(Undefined, match="4 samples of 3 latents always look linearly dependent"):
        total_correlation(codes[:4])
    assert total_correlation(codes[:5]).score > 0
    constant = torch.cat([torch.ones(50, 1), codes], 1)
    result = total_correlation(constant)
    assert result.dropped == [0]
    assert result.flags == ["Latent 0 is constant and left out."]
    assert result.score == pytest.approx(total_correlation(codes).score)
    assert total_correlation(codes[:, :1]).score == 0
    assert total_correlation(constant, columns=[0, 2]).dropped == [0]


def test_independent_latents_read_the_floor():
    scores = [total_correlation(normal(1000, 10, s)).score for s in range(20)]
    assert np.mean(scores) == pytest.approx(total_correlation(normal(1000, 10)).floor, rel=0.15)


# Mutual information


def test_two_dependent_latents_among_passive_ones():
    # A lattice: eight independent columns of two values, and one copied column.
    bits = torch.tensor(np.indices((2,) * 9).reshape(9, -1).T, dtype=torch.float64)
    codes = torch.cat([bits, bits[:, :1]], 1)
    result = mutual_information(codes)
    assert result.score == pytest.approx(math.log(2) / 45)
    assert result.matrix[0, 9].item() == pytest.approx(math.log(2))
    assert result.matrix[0, 0].item() == pytest.approx(math.log(2))  # the entropy


@given(seed=seeds)
def test_pairs_agree_with_scikit_learn(seed):
    codes = normal(200, 3, seed) @ normal(3, 3, seed + 1)
    result = mutual_information(codes, bins=7)
    labels = [np.digitize(c, np.linspace(c.min(), c.max(), 8)[1:-1]) for c in codes.numpy().T]
    for i in range(3):
        for j in range(3):
            expected = mutual_info_score(labels[i], labels[j])
            assert result.matrix[i, j].item() == pytest.approx(expected, abs=1e-12)


def test_independent_latents_read_the_bias_floor_which_falls_with_the_samples():
    uniform = torch.rand(10_000, 6, generator=torch.Generator().manual_seed(0))
    many = mutual_information(uniform)
    assert many.floor == pytest.approx(19**2 / 20_000)
    assert many.score == pytest.approx(many.floor, rel=0.1)
    assert many.corrected < 0.1 * many.score + 1e-3
    few = mutual_information(normal(1000, 6))
    assert 0.1 < few.score < 0.25
    shuffled = mutual_information(normal(1000, 6), permutations=3)
    assert shuffled.floor == pytest.approx(few.score, rel=0.1)


def test_a_constant_latent_shares_nothing_and_one_latent_is_refused():
    codes = torch.cat([normal(100, 2), torch.full((100, 1), 3.0)], 1)
    assert mutual_information(codes).matrix[2].tolist() == [0, 0, 0]
    with pytest.raises(Undefined, match="at least 2"):
        mutual_information(normal(100, 1))


# Effective rank


def test_known_ranks():
    assert matrix_rank(torch.diag(torch.tensor([4.0, 1.0]))) == pytest.approx(1.64938, abs=5e-6)
    assert matrix_rank(torch.eye(5)) == pytest.approx(5)
    assert matrix_rank(torch.ones(4, 4)) == pytest.approx(1)
    assert spectral_rank(torch.tensor([2.0, 1.0])) == pytest.approx(1.88988, abs=5e-6)


def test_codes_have_the_rank_of_their_covariance_or_of_themselves():
    codes = codes_with_covariance(torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64)))
    assert effective_rank(codes).score == pytest.approx(1.64938, abs=5e-6)
    assert effective_rank(codes, of="data").score == pytest.approx(1.88988, abs=5e-6)


@given(seed=seeds)
def test_rank_ignores_rotation_shift_and_scale_but_not_one_latents_scale(seed):
    codes = normal(40, 3, seed)
    turn = torch.linalg.qr(normal(3, 3, seed + 1)).Q
    assert effective_rank(5 * codes @ turn + 2).score == pytest.approx(effective_rank(codes).score)
    assert effective_rank(codes * torch.tensor([1.0, 1.0, 1e-3])).score < 2.001


def test_identical_codes_have_no_rank():
    with pytest.raises(Undefined, match="all 50 codes are identical"):
        effective_rank(torch.ones(50, 4))
    off_by_rounding = torch.full((37, 2), 0.1, dtype=torch.float64) * torch.tensor([1.0, 3.0])
    assert (off_by_rounding - off_by_rounding.mean(0)).abs().max() > 0
    with pytest.raises(Undefined, match="all 37 codes are identical"):
        effective_rank(off_by_rounding)


# Truncation


def polarised(samples: int = 2000) -> Posterior:
    """Three active latents, two passive ones whose tiny means copy an active one."""
    active = normal(samples, 3)
    passive = 1e-3 * (active[:, :1] + 0.1 * normal(samples, 2, seed=5))
    mean = torch.cat([active, passive], 1)
    std = torch.cat([torch.full((samples, 3), 0.1), torch.ones(samples, 2)], 1).double()
    return Posterior(mean, std)


def test_passive_latents_alone_make_means_differ_from_samples():
    result = truncation(polarised())
    full, used = (result.table["total correlation"][k] for k in ("full", "active+mixed"))
    assert full[0] > 3
    assert full[1] < 0.01
    assert used[0] == pytest.approx(used[1], abs=0.005)
    mean, sampled = result.table["effective rank"]["full"]
    assert mean == pytest.approx(3, abs=0.05)
    assert sampled == pytest.approx(5, abs=0.05)
    assert result.subsets["passive"] == [3, 4]
    assert "mixed" not in result.subsets
    assert ("effective rank, full" in dict(result.summary())) is True


def test_a_collapsed_model_has_only_the_passive_subset():
    subsets = type_subsets(variable_types(torch.ones(10, 3)))
    assert set(subsets) == {"full", "passive"}
    mixed = type_subsets(variable_types(torch.tensor([[0.01, 1.0], [0.01, 0.0]]).repeat(5, 1)))
    assert mixed == {"full": [0, 1], "active": [0], "mixed": [1], "active+mixed": [0, 1]}


def test_one_latent_has_a_rank_but_nothing_to_share_or_draw():
    single = truncation(Posterior(normal(50, 1), torch.ones(50, 1).double()))
    assert single.table["total correlation"] == {}
    assert single.table["effective rank"]["full"] == (1, 1)
    with pytest.raises(Undefined, match="no two of the 1 latents"):
        single.plot()


def test_truncation_of_a_deterministic_encoder_is_refused():
    with pytest.raises(Undefined, match="no variance"):
        truncation(Posterior(torch.zeros(5, 2)))

"""CKA, Procrustes and canonical correlation of two representations."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from zscope.assays.similarity.cca import pwcca, svcca
from zscope.assays.similarity.cka import StreamingCKA, cka
from zscope.assays.similarity.heatmap import similarity_heatmap
from zscope.assays.similarity.procrustes import procrustes
from zscope.errors import Undefined

seeds = st.integers(0, 10_000)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def turned(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Turned, scaled and shifted."""
    turn = torch.linalg.qr(normal(x.shape[1], x.shape[1], seed=seed)).Q
    return 3.7 * x @ turn + normal(x.shape[1], seed=seed + 1)


def hsic_1(K: np.ndarray, L: np.ndarray) -> float:
    """Song et al. 2012, equation 5, as printed."""
    n = len(K)
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    ones = np.ones(n)
    total = np.trace(K @ L) + (ones @ K @ ones) * (ones @ L @ ones) / ((n - 1) * (n - 2))
    return (total - 2 / (n - 2) * (ones @ K @ L @ ones)) / (n * (n - 3))


# CKA


def test_the_worked_pair():
    x, y = torch.tensor([1.0, 2, 3, 4]), torch.tensor([1.0, 3, 2, 4])
    assert cka(x, y, debiased=False).score == pytest.approx(0.64)
    assert procrustes(x[:, None], y[:, None]).score == pytest.approx(0.8)


@pytest.mark.parametrize("shape", [(30, 4), (12, 40)])
@given(seed=seeds)
def test_turning_scaling_and_shifting_leave_one(shape, seed):
    x = normal(*shape, seed=seed)
    moved = turned(x, seed + 1)
    assert cka(x, moved).score == pytest.approx(1)
    assert cka(x, moved, debiased=False).score == pytest.approx(1)
    assert procrustes(x, moved).score == pytest.approx(1)
    y = normal(shape[0], 5, seed=seed + 3)
    assert cka(moved, y).score == pytest.approx(cka(x, y).score)


def test_other_linear_maps_do_not():
    x = normal(200, 3)
    assert cka(x, x * torch.tensor([1.0, 1, 10])).score < 0.8
    assert procrustes(x, x * torch.tensor([1.0, 1, 10])).score < 0.9
    assert svcca(x, x * torch.tensor([1.0, 1, 2])).score == pytest.approx(1)


@pytest.mark.parametrize(("p", "q"), [(3, 5), (50, 60), (3, 60)])
def test_debiased_cka_is_song_s_hsic_of_the_gram_matrices(p, q):
    x = normal(20, p, seed=1)
    y = 0.3 * normal(20, q, seed=2) + x[:, :1] + 5
    K, L = (m.numpy() @ m.numpy().T for m in (x, y))
    expected = hsic_1(K, L) / math.sqrt(hsic_1(K, K) * hsic_1(L, L))
    assert cka(x, y).score == pytest.approx(expected, rel=1e-9)


def test_plain_cka_of_gram_and_feature_form_agree():
    x, y = normal(20, 30, seed=1), normal(20, 40, seed=2)
    a, b = x - x.mean(0), y - y.mean(0)
    expected = (a.T @ b).norm() ** 2 / ((a.T @ a).norm() * (b.T @ b).norm())
    assert cka(x, y, debiased=False).score == pytest.approx(expected.item())


def test_unrelated_representations_read_zero_unless_plain():
    draws = [(normal(64, 128, seed=s), normal(64, 128, seed=99 + s)) for s in range(20)]
    debiased = [cka(x, y).score for x, y in draws]
    assert abs(np.mean(debiased)) < 3 * np.std(debiased) / 20**0.5
    assert np.std(debiased) < 0.05
    plain = cka(*draws[0], debiased=False)
    everywhere = [cka(x, y, debiased=False).score for x, y in draws]
    assert np.mean(everywhere) == pytest.approx(0.666, abs=0.005)
    assert (plain.samples, plain.features) == (64, (128, 128))


@pytest.mark.parametrize("n", [4, 5, 6, 7, 10, 13, 50])
def test_samples_that_are_all_equally_far_apart_are_refused_whatever_rounding_leaves(n):
    # The unbiased self-similarity of a simplex is 0: 0 / 0, on either side of 0 by rounding.
    y = normal(n, 3, seed=n)
    turn = torch.linalg.qr(normal(n, n, seed=n + 1)).Q
    for x in (torch.eye(n).double(), 0.1 * torch.eye(n).double() + 0.3, turn):
        for first, second, side in ((x, y, "first"), (y, x, "second")):
            with pytest.raises(Undefined, match=f"{n} samples of the {side}.*equally far.*plain"):
                cka(first, second)
            with pytest.raises(Undefined, match="equally far"):
                StreamingCKA().add(first, second).result()
            names = ("corners", "y") if side == "first" else ("y", "corners")
            with pytest.raises(Undefined, match="equally far.*'corners'"):
                similarity_heatmap({names[0]: first}, {names[1]: second})
        assert 0 < cka(x, y, debiased=False).score < 1
        assert cka(x, x, debiased=False).score == pytest.approx(1)


def test_a_representation_is_never_unlike_itself_however_few_the_samples():
    # HSIC_1 of a matrix with itself is a sum of squares, so the root is always of a number > 0.
    for seed in range(30):
        x = normal(4, 500, seed=seed)
        K = x.numpy() @ x.numpy().T
        assert hsic_1(K, K) > 0
        assert cka(x, x).score == pytest.approx(1)


def test_unrelated_representations_may_come_out_below_zero_and_never_nan():
    scores = [cka(normal(30, 8, seed=s), normal(30, 8, seed=500 + s)).score for s in range(30)]
    assert min(scores) < 0 < max(scores)
    assert all(math.isfinite(score) for score in scores)


@pytest.mark.parametrize(
    ("n", "expected_cka", "expected_procrustes"),
    [
        (100, (0.86, 0.67, 0.34), (0.90, 0.78, 0.57)),
        (500, (0.82, 0.55, 0.10), (0.84, 0.61, 0.27)),
        (5000, (0.80, 0.51, 0.01), (0.81, 0.54, 0.08)),
    ],
)
def test_shared_features_read_as_the_table_says(n, expected_cka, expected_procrustes):
    a, fresh = normal(n, 50, seed=1), normal(n, 50, seed=2)
    for k, keep in enumerate((40, 25, 0)):
        b = torch.cat([a[:, :keep], fresh[:, keep:]], 1)
        assert cka(a, b, debiased=False).score == pytest.approx(expected_cka[k], abs=0.015)
        assert procrustes(a, b).score == pytest.approx(expected_procrustes[k], abs=0.015)
        assert cka(a, b).score == pytest.approx(keep / 50, abs=0.06)  # without the bias


@pytest.mark.parametrize("debiased", [True, False])
def test_streaming_equals_batch(debiased):
    x = normal(500, 7, seed=1) * 10 + 1000  # far from the origin: sums would cancel
    y = torch.cat([x[:, :3] + normal(500, 3, seed=2), normal(500, 2, seed=3)], 1)
    stream = StreamingCKA()
    for start in (0, 1, 4, 100, 333):
        stop = {0: 1, 1: 4, 4: 100, 100: 333, 333: 500}[start]
        stream.add(x[start:stop], y[start:stop])
    ours = stream.result(debiased=debiased)
    assert ours.samples == 500
    assert ours.score == pytest.approx(cka(x, y, debiased=debiased).score, abs=1e-10)


def test_constant_layers_and_too_few_samples_are_refused():
    x = normal(10, 3)
    with pytest.raises(Undefined, match="second representation is the same for all 10"):
        cka(x, torch.ones(10, 2))
    with pytest.raises(Undefined, match="at least 4"):
        cka(x[:3], x[:3])
    assert cka(x[:3], x[:3], debiased=False).score == pytest.approx(1)
    with pytest.raises(Undefined, match="10 rows and the second 9"):
        cka(x, x[:9])
    with pytest.raises(Undefined, match="3 samples so far"):
        StreamingCKA().add(x[:3], x[:3]).result()
    with pytest.raises(Undefined, match="first representation is the same"):
        StreamingCKA().add(torch.ones(5, 2), x[:5]).result(debiased=False)
    with pytest.raises(Undefined, match="earlier ones have 3 and 3"):
        StreamingCKA().add(x, x).add(x[:, :2], x)


@pytest.mark.parametrize("n", [10, 37, 999])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 123.456])
def test_equal_rows_are_refused_though_their_mean_is_off_by_rounding(n, value):
    still = torch.full((n, 2), value, dtype=torch.float64) * torch.tensor([1.0, 3.0])
    x = normal(n, 3)
    for measure in (cka, procrustes, svcca, pwcca):
        for first, second in ((still, x), (x, still)):
            with pytest.raises(Undefined, match=f"same for all {n}"):
                measure(first, second)
    with pytest.raises(Undefined, match=f"same for all {n}"):
        StreamingCKA().add(still[:7], x[:7]).add(still[7:], x[7:]).result()
    half = torch.cat([still, x], 1)
    assert cka(half, x).score == pytest.approx(1)


# Procrustes


@pytest.mark.parametrize(("p", "q"), [(4, 4), (3, 6), (40, 50)])
def test_procrustes_agrees_with_the_best_turn_found_by_scipy(p, q):
    x, y = normal(25, p, seed=1), normal(25, q, seed=2)
    a = np.zeros((25, max(p, q)))
    b = np.zeros((25, max(p, q)))
    a[:, :p], b[:, :q] = (x - x.mean(0)).numpy(), (y - y.mean(0)).numpy()
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    turn, _ = scipy.linalg.orthogonal_procrustes(a, b)
    result = procrustes(x, y)
    assert result.distance == pytest.approx(np.linalg.norm(a @ turn - b))
    assert result.score == pytest.approx(1 - result.distance**2 / 2)
    assert result.angle == pytest.approx(math.acos(result.score))


@given(seed=seeds)
def test_the_angle_is_a_metric(seed):
    x, y, z = (normal(12, 3, seed=seed + k) for k in range(3))
    xy, yz, xz = procrustes(x, y).angle, procrustes(y, z).angle, procrustes(x, z).angle
    assert xz <= xy + yz + 1e-12
    assert procrustes(y, x).angle == pytest.approx(xy)
    assert procrustes(x, turned(x, seed)).angle == pytest.approx(0, abs=1e-7)


def test_a_collapsed_layer_has_no_shape():
    with pytest.raises(Undefined, match="first representation is the same"):
        procrustes(torch.ones(5, 2), normal(5, 2))


# Canonical correlation


def canonical(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """By the eigenvalues of Sxx^-1 Sxy Syy^-1 Syx."""
    x, y = x - x.mean(0), y - y.mean(0)
    product = np.linalg.solve(x.T @ x, x.T @ y) @ np.linalg.solve(y.T @ y, y.T @ x)
    return np.sqrt(np.sort(np.linalg.eigvals(product).real)[::-1].clip(0, 1))


def test_canonical_correlations_agree_with_the_eigenvalue_form():
    x = normal(300, 3, seed=1)
    y = torch.cat([x[:, :2] + normal(300, 2, seed=2), normal(300, 1, seed=3)], 1)
    result = svcca(x, y, variance=1.0)
    np.testing.assert_allclose(result.correlations, canonical(x.numpy(), y.numpy()), atol=1e-9)
    assert result.score == pytest.approx(result.correlations.mean().item())


def test_small_directions_are_cut_off_first():
    x = normal(300, 3) * torch.tensor([1.0, 1.0, 1e-3])
    assert svcca(x, x).directions == (2, 2)
    assert svcca(x, x, variance=1.0).directions == (3, 3)


def test_projection_weighting_favours_what_the_first_holds_most_of():
    x = normal(2000, 2, seed=1) * torch.tensor([3.0, 1.0])
    strong, weak = x.clone(), x.clone()
    strong[:, 1], weak[:, 0] = normal(2000, seed=2), 3 * normal(2000, seed=3)
    assert svcca(x, strong).score == pytest.approx(0.5, abs=0.05)
    assert svcca(x, weak).score == pytest.approx(0.5, abs=0.05)
    assert pwcca(x, strong).score == pytest.approx(0.75, abs=0.05)  # 3 / (3 + 1)
    assert pwcca(x, weak).score == pytest.approx(0.25, abs=0.05)


def test_as_many_directions_as_samples_are_refused():
    with pytest.raises(Undefined, match="as many directions as samples"):
        svcca(normal(20, 30), normal(20, 30, seed=1))
    with pytest.raises(Undefined, match="same for all 5"):
        pwcca(torch.ones(5, 2), normal(5, 2))

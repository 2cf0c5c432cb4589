"""Codes against the principal components of the observations: space, axes and order."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA
from worlds import gaussian_codes, random_rotation

import zscope as zs
from zscope.assays import codes_against_pca
from zscope.assays.alignment.codes_against_pca import matched_chance, principal_scores
from zscope.errors import ConfigError, Undefined

SCALES = [4.0, 3.0, 2.0, 1.0, 0.5]


def observations(samples=400, features=7, seed=0):
    """Gaussian rows along rotated directions of different variances."""
    flat = gaussian_codes(samples, len(SCALES), seed, SCALES)
    return flat @ random_rotation(features, seed)[: len(SCALES)]


def components(x, count):
    """The scores by another route: eigenvectors of the covariance."""
    centred = x - x.mean(0)
    return centred @ torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :count]


def turned(x, degrees):
    """The first two components, whitened and rotated."""
    T = components(x, 2)
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return T / T.std(0) @ torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def test_a_signed_permutation_of_the_components_is_aligned():
    x = observations()
    codes = components(x, 3)[:, [2, 0, 1]] * torch.tensor([-1.0, 5, -0.1]) + 7
    result = codes_against_pca(x, codes)
    assert result.axes == pytest.approx(1, abs=1e-12)
    assert result.matched == [2, 0, 1]
    assert result.canonical.tolist() == pytest.approx([1] * 3, abs=1e-12)
    assert result.angles.tolist() == pytest.approx([0] * 3, abs=1e-6)
    assert result.order is None  # codes alone have no posterior variances
    variances = PCA().fit(x.numpy()).explained_variance_ratio_
    assert result.explained == pytest.approx(variances[:3].sum())


@pytest.mark.parametrize("degrees", [0, 10, 30, 45])
def test_whitened_components_rotated_by_t_have_axes_cos_t_and_the_same_space(degrees):
    x = observations()
    result = codes_against_pca(x, turned(x, degrees))
    assert result.axes == pytest.approx(math.cos(math.radians(degrees)), abs=1e-10)
    assert result.angles.tolist() == pytest.approx([0, 0], abs=1e-6)
    assert result.space == pytest.approx(1, abs=1e-12)


def test_angles_are_those_by_which_a_direction_is_tilted():
    x = observations()
    T = components(x, 3) / components(x, 3).norm(dim=0)
    tilted = torch.stack([T[:, 0], math.cos(0.3) * T[:, 1] + math.sin(0.3) * T[:, 2]], 1)
    result = codes_against_pca(x, tilted)
    assert result.angles.tolist() == pytest.approx([0, math.degrees(0.3)], abs=1e-6)
    assert result.axes == pytest.approx((1 + math.cos(0.3)) / 2)


def test_a_linear_vae_finds_space_axes_and_order():
    x = observations()
    noise, beta = 0.5, 0.2
    best = zs.theory.fit_linear_vae(x, latents=5, gamma=noise, beta=beta)
    exact = best.posterior(x)
    shuffle = [3, 1, 4, 0, 2]
    posterior = zs.Posterior(exact.mean[:, shuffle], exact.std[:, shuffle])
    result = codes_against_pca(x, posterior)
    assert result.axes == pytest.approx(1, abs=1e-6)
    assert result.order == pytest.approx(1)
    assert result.matched == shuffle
    eigenvalues = result.eigenvalues[result.matched]
    assert result.spreads.tolist() == pytest.approx((1 - beta * noise / eigenvalues).tolist())
    assert result.variances.tolist() == pytest.approx((beta * noise / eigenvalues).tolist())
    # The negative control: precision in the reverse order.
    wrong = zs.Posterior(posterior.mean, posterior.std.flip(1)[:, [1, 3, 0, 4, 2]])
    assert codes_against_pca(x, wrong).order < 0.9


@pytest.mark.parametrize(("latents", "expected"), [(2, 0.900), (3, 0.828), (5, 0.729)])
def test_chance_is_that_of_random_axes(latents, expected):
    assert matched_chance(latents) == pytest.approx(expected, abs=2e-3)
    x = observations(300)
    T = components(x, latents)
    T = T / T.std(0)
    scores = [codes_against_pca(x, T @ random_rotation(latents, seed)).axes for seed in range(60)]
    assert np.mean(scores) == pytest.approx(expected, abs=4 * np.std(scores) / math.sqrt(60))


@given(seed=st.integers(0, 50), scale=st.floats(0.01, 100))
def test_rotating_observations_and_scaling_latents_change_nothing_but_mixing_latents_does(
    seed, scale
):
    x = observations(seed=seed)
    codes = components(x, 3) + 0.5 * gaussian_codes(len(x), 3, seed + 1)
    before = codes_against_pca(x, codes)
    moved = codes * torch.tensor([scale, -1, 3]) - 2
    after = codes_against_pca(scale * x @ random_rotation(7, seed) + 5, moved[:, [1, 2, 0]])
    assert after.axes == pytest.approx(before.axes, abs=1e-8)
    assert after.canonical.tolist() == pytest.approx(before.canonical.tolist(), abs=1e-8)
    mixed = codes_against_pca(x, (codes / codes.std(0)) @ random_rotation(3, seed))
    assert mixed.canonical.tolist() == pytest.approx(before.canonical.tolist(), abs=1e-8)
    assert abs(mixed.axes - before.axes) > 1e-3


def test_correlations_agree_with_scikit_learn():
    x = observations()
    codes = components(x, 2) + gaussian_codes(len(x), 2, 3)
    result = codes_against_pca(x, codes)
    scores = PCA(2).fit_transform(x.numpy())
    expected = np.abs(np.corrcoef(codes.numpy(), scores, rowvar=False)[:2, 2:])
    np.testing.assert_allclose(result.correlations.numpy(), expected, atol=1e-10)
    one, two = CCA(2, tol=1e-10, max_iter=5000).fit_transform(codes.numpy(), scores)
    expected = [np.corrcoef(one[:, k], two[:, k])[0, 1] for k in range(2)]
    assert result.canonical.tolist() == pytest.approx(sorted(expected, reverse=True), abs=1e-5)


def test_few_components_of_a_large_matrix_are_those_of_all():
    x = gaussian_codes(400, 300) * torch.linspace(3, 1, 300).double() ** 2
    scores, eigenvalues, total = principal_scores(x, 3)  # by iteration
    model = PCA().fit(x.numpy())
    expected = model.explained_variance_ * 399 / 400
    np.testing.assert_allclose(eigenvalues.numpy(), expected[:4], rtol=1e-8)
    assert total == pytest.approx(expected.sum())
    np.testing.assert_allclose(
        scores.abs().numpy(), np.abs(model.transform(x.numpy())[:, :3]), atol=1e-6
    )


def test_a_bent_sheet_is_aligned_locally_but_not_as_a_whole():
    """Two latents along and across an arc: around each point they are its directions."""
    w = torch.rand(3000, 2, generator=torch.Generator().manual_seed(0)).double()
    angle, height = 1.7 * math.pi * w[:, 0], 0.8 * w[:, 1]
    x = torch.stack([angle.cos(), angle.sin(), height], 1)
    posterior = zs.Posterior(w, torch.tensor([0.1, 0.5]).double().expand(3000, 2))
    result = codes_against_pca(x, posterior, samples=3000, points=40)
    assert result.local_axes.mean() > 0.9 > result.axes
    assert result.local_space.mean() > 0.95 > result.space
    assert len(result.local_axes) == 40
    names = [each.name for each in result.measures()]
    assert names == ["", "space", "order", "local axes", "local space", "local order"]
    # Mixed latents are aligned nowhere.
    half = torch.tensor([[1, 1], [-1, 1]], dtype=torch.float64) / math.sqrt(2)
    mixed = (w - w.mean(0)) / w.std(0) @ half
    local = codes_against_pca(x, mixed, samples=3000, points=40).local_axes
    assert local.mean() == pytest.approx(math.sqrt(0.5), abs=0.1)


def test_equal_eigenvalues_and_dependent_codes_are_flagged():
    x = torch.cat([torch.eye(4), -torch.eye(4)]).double()
    [flag] = codes_against_pca(x, x[:, :2]).flags
    assert "eigenvalues that differ by less than 1%" in flag
    x = observations()
    T = components(x, 2)
    flags = codes_against_pca(x, torch.cat([T, T[:, :1] + T[:, 1:]], 1)).flags
    assert any("span 2 directions only" in flag for flag in flags)


def test_what_cannot_be_compared_is_refused_with_a_way_forward():
    x, codes = observations(60), gaussian_codes(60, 3)
    with pytest.raises(Undefined, match=r"59 codes; row i of both must belong together"):
        codes_against_pca(x, codes[1:])
    with pytest.raises(Undefined, match=r"1 of 3 latents are active"):
        codes_against_pca(x, codes * torch.tensor([1.0, 0, 0]))
    with pytest.raises(Undefined, match=r"3 latents are in use, but .* vary along 2 directions"):
        codes_against_pca(x[:, :2], codes)
    with pytest.raises(Undefined, match="all 60 observations are equal"):
        codes_against_pca(torch.ones(60, 4), codes)
    with pytest.raises(Undefined, match=r"the same code in all 60 rows"):
        codes_against_pca(x, codes * torch.tensor([1.0, 1, 0]), active="all")
    with pytest.raises(ConfigError, match="at least 5 neighbours for 3 latents"):
        codes_against_pca(x, codes, points=3, neighbours=4)
    with pytest.raises(Undefined, match="neighbourhoods of 100"):
        codes_against_pca(x, codes, points=3, neighbours=100)


def test_many_latents_need_many_neighbours_only_where_neighbours_are_asked_for():
    x = gaussian_codes(300, 60)
    result = codes_against_pca(x, components(x, 60))
    assert (len(result.active), result.axes) == (60, pytest.approx(1))
    with pytest.raises(ConfigError, match="at least 62 neighbours for 60 latents"):
        codes_against_pca(x, components(x, 60), points=3)


def test_a_recording_gives_observations_codes_and_their_precision():
    x = observations().float()
    best = zs.theory.fit_linear_vae(x, latents=6, gamma=0.5, beta=0.1)
    recording = zs.record(best.autoencoder(), x)
    result = codes_against_pca(recording, points=5)
    assert (result.active, result.passive) == ([0, 1, 2, 3, 4], [5])
    assert result.axes == pytest.approx(1, abs=1e-5)
    assert result.order == pytest.approx(1)
    assert result.plot().get_xlabel() == "principal component"
    assert [name for name, _ in result.summary()].count("axes") == 0

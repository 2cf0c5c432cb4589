"""Ranking and eigenfaces, cartesian or polar pairs, and the choice of β."""

import math
import sys

import numpy as np
import pytest
import torch
from worlds import World, gaussian_codes, identity

import zscope as zs
from zscope.assays import (
    cartesian_or_polar,
    groups,
    latent_ranking,
    nonlinear_eigenfaces,
    pair_traversal,
)
from zscope.assays.run import measure
from zscope.errors import ConfigError, Undefined
from zscope.experiments.beta_choice import Trial, choice_of_beta
from zscope.randomness import named_generator

# Ranking


def test_a_linear_vae_is_ranked_as_its_principal_components():
    x = gaussian_codes(800, 4, scale=[0.5, 3.0, 1.0, 2.0])
    best = zs.theory.fit_linear_vae(x, latents=4, gamma=0.5, beta=0.1)
    shuffled = best.posterior(x)
    order = [2, 0, 3, 1]  # new latent k is principal component order[k]
    posterior = zs.Posterior(shuffled.mean[:, order], shuffled.std[:, order])
    found = latent_ranking(posterior)
    assert found.order == [1, 3, 0, 2]
    # σ² λ is the same for every latent.
    eigenvalues = torch.linalg.eigvalsh(x.T.cov(correction=0)).flip(0)
    products = found.variances[found.order] * eigenvalues
    assert products.tolist() == pytest.approx([0.05] * 4, rel=1e-6)
    assert found.plot().get_xlabel().startswith("latent")
    with pytest.raises(Undefined, match="no variance to rank by"):
        latent_ranking(zs.Posterior(shuffled.mean))


def test_eigenfaces_move_the_mean_code_along_the_latents_that_matter():
    world = World(lambda z: z[:, None, None].expand(-1, 1, 3, 4), lambda x: x, 4)
    mean = gaussian_codes(500, 4)
    variances = torch.tensor([0.5, 0.1, 0.9, 0.2]).double().expand(500, 4)
    found = nonlinear_eigenfaces(
        world, zs.Posterior(mean, variances.sqrt()), shown=2, reach=2.0, samples=300
    )
    assert found.latents == [1, 3]
    assert found.images.shape == (2, 3, 1, 3, 4)
    rows = torch.randperm(500, generator=named_generator(0, "nonlinear-eigenfaces"))[:300]
    torch.testing.assert_close(found.centre, mean[rows.sort().values].mean(0))
    shown = found.images[:, :, 0, 0]
    torch.testing.assert_close(shown[0, 1], found.centre)
    expected = torch.tensor([0.0, 0, 0, 2]).double()
    torch.testing.assert_close(shown[1, 2] - shown[1, 1], expected)
    torch.testing.assert_close(shown[1, 0] - shown[1, 1], -expected)
    assert found.plot().get_images()
    with pytest.raises(ConfigError, match="shown=0"):
        nonlinear_eigenfaces(world, zs.Posterior(mean, variances), shown=0)


# Cartesian or polar


def factors_of(samples=4000, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 10, samples), random.integers(0, 8, samples), random


def test_angle_and_radius_are_told_from_x_and_y():
    hue, height, random = factors_of()
    angle = 2 * np.pi * (hue + random.uniform(0.3, 0.7, len(hue))) / 10
    radius = 1 + height + random.uniform(-0.2, 0.2, len(hue))
    polar = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    plain = np.stack([hue, height], 1) + random.uniform(-0.2, 0.2, (len(hue), 2))
    codes = np.concatenate([polar, plain], 1)
    factors = np.stack([hue, height], 1)
    found = cartesian_or_polar(codes, factors)
    pairs = {pair.latents: pair for pair in found.pairs}
    assert pairs[0, 1].verdict == "polar"
    assert pairs[0, 1].polar > 0.8
    assert pairs[0, 1].cartesian < 0.2
    assert pairs[0, 1].factors == (0, 1)  # the angle tells factor 0, the radius factor 1
    assert pairs[2, 3].verdict == "cartesian"
    assert pairs[2, 3].cartesian > 0.9
    assert pairs[2, 3].polar < 0.3
    assert found.polar == [(0, 1)]
    assert (2, 3) in found.cartesian
    assert found.plot().get_xlabel() == "latent"
    assert pairs[0, 1].angle == 0
    assert pairs[0, 1].radius == 1
    assert pairs[2, 3].angle is None
    assert dict(found.summary())["polar pairs"] == "0-1 (angle: factor 0, radius: factor 1)"
    named = zs.Recording.from_arrays(codes, factors, kinds="ordinal", names=["hue", "height"])
    lines = dict(zs.assays.cartesian_or_polar(named).summary())
    assert lines["polar pairs"] == "0-1 (angle: hue, radius: height)"
    assert "2-3 (hue, height)" in lines["cartesian pairs"]
    # Shifting, scaling and flipping latents leaves every number as it is.
    moved = cartesian_or_polar(codes * [-3, 0.01, 5, 1] + [7, -1, 0, 2], factors)
    again = {pair.latents: pair for pair in moved.pairs}
    for latents, pair in pairs.items():
        assert again[latents].polar == pytest.approx(pair.polar, abs=0.02)
        assert again[latents].cartesian == pytest.approx(pair.cartesian)


def test_noise_is_neither():
    hue, height, random = factors_of()
    codes = random.standard_normal((len(hue), 2))
    codes[:, 0] += 0.05 * hue  # enough to be in use, not enough for a chart
    codes[:, 1] += 0.05 * height
    found = cartesian_or_polar(codes, np.stack([hue, height], 1))
    assert [pair.verdict for pair in found.pairs] == ["neither"]


def test_both_factors_in_one_coordinate_make_no_chart():
    hue, height, random = factors_of()
    codes = np.stack([hue + 0.1 * height, random.standard_normal(len(hue))], 1)
    codes[:, 1] += 0.1 * hue
    found = cartesian_or_polar(codes, np.stack([hue, height], 1))
    assert found.pairs[0].cartesian < 0.6


def test_of_many_rows_and_pairs_of_latents_a_part_is_used_and_the_result_says_so(monkeypatch):
    hue, height, random = factors_of(3000)
    plain = np.stack([hue, height], 1) + random.uniform(-0.2, 0.2, (3000, 2))
    found = cartesian_or_polar(plain, np.stack([hue, height], 1))
    assert not any("drawn at random" in flag for flag in found.flags)
    module = sys.modules[cartesian_or_polar.__module__]
    monkeypatch.setattr(module, "MOST_NUMBERS", 1200)
    some = cartesian_or_polar(plain, np.stack([hue, height], 1))
    assert (some.samples, some.pairs[0].verdict) == (1200, "cartesian")
    assert "Measured at 1,200 of 3,000 samples, drawn at random." in some.flags


def test_a_chart_needs_two_latents_and_two_factors():
    hue, height, _ = factors_of(200)
    with pytest.raises(Undefined, match="1 latents in use and 2 factors"):
        cartesian_or_polar(hue[:, None].astype(float), np.stack([hue, height], 1))


def test_a_plane_is_decoded_around_the_mean_code():
    codes = gaussian_codes(50, 3)
    found = pair_traversal(identity(3), codes, (2, 0), steps=3, reach=1.0)
    centre = codes.mean(0)
    torch.testing.assert_close(found.images[1, 1], centre)
    right = found.images[1, 2] - centre  # columns follow the first latent
    torch.testing.assert_close(right, torch.tensor([0.0, 0, 1]).double())
    top = found.images[0, 1] - centre  # the second rises upwards
    torch.testing.assert_close(top, torch.tensor([1.0, 0, 0]).double())
    with pytest.raises(ConfigError, match="two different latents"):
        pair_traversal(identity(3), codes, (1, 1))


# Choice of β


def linear_posterior(beta, eigenvalues=(1 / 3, 1 / 12, 1e-4)):
    """What a linear β-VAE with squared error learns: σ² = β / 2λ, at most 1."""
    values = torch.tensor(eigenvalues, dtype=torch.float64)
    optimum = zs.theory.linear_vae_optimum(values, gamma=0.5, beta=beta)
    means = gaussian_codes(200, len(values)) * optimum.variance_of_means.sqrt()
    return zs.Posterior(means, optimum.variance.sqrt().expand(200, -1))


def test_a_latent_gives_up_at_twice_its_eigenvalue():
    betas = [1e-5, 1e-4, 2e-4, 1e-3, 0.01, 0.1, 0.16, 0.17, 0.5, 0.7]
    tried = []

    def evaluate(beta):
        tried.append(beta)
        return linear_posterior(beta)

    found = choice_of_beta(evaluate, betas[::-1], needed=2)
    assert found.onset == 2e-4  # twice the smallest eigenvalue
    assert tried == betas[:3]  # nothing is trained beyond
    assert found.chosen == 2e-4
    assert found.counts == [3, 3, 2]
    beyond = choice_of_beta(linear_posterior, betas, needed=2, beyond=10)
    assert beyond.betas == betas
    assert beyond.chosen == 0.1  # the last with two latents below 0.8
    assert beyond.counts[-1] == 0 or beyond.counts[-1] == 1
    assert beyond.plot().get_xscale() == "log"
    alone = choice_of_beta(linear_posterior, [1e-5, 1e-4])
    assert alone.onset is None
    assert "Try larger β" in alone.flags[0]


def test_scores_and_distances_decide_where_they_are_given():
    def scored(beta):
        return Trial(linear_posterior(beta), score=-abs(math.log(beta / 0.01)))

    assert choice_of_beta(scored, [1e-3, 0.01, 0.1], needed=2, beyond=5).chosen == 0.01

    def measured(beta):
        return Trial(linear_posterior(beta), distance=abs(math.log(beta / 0.1)))

    assert choice_of_beta(measured, [1e-3, 0.01, 0.1, 0.5], needed=2, beyond=5).chosen == 0.1


def test_a_search_without_an_answer_says_so():
    with pytest.raises(Undefined, match="expected 2 active latents, got at most 1"):
        choice_of_beta(linear_posterior, [0.2, 0.3], needed=2, beyond=3)
    with pytest.raises(ConfigError, match="positive numbers"):
        choice_of_beta(linear_posterior, [0.0, 1.0])
    with pytest.raises(Undefined, match="no variance"):
        choice_of_beta(lambda beta: zs.Posterior(gaussian_codes(5, 2)), [1.0])


# The catalogue


def test_every_alignment_assay_runs_from_a_recording():
    W = torch.tensor([[2.0, 0, 0, 0.5], [0, 1, 0, 0.5], [0, 0, 0, 0]])
    inverse = torch.linalg.pinv(W[:2])

    def encode(x):
        mean = torch.cat([x @ inverse, torch.zeros(len(x), 1)], 1)
        return mean, torch.log(torch.tensor([0.05, 0.1, 1.0])).expand(len(x), 3)

    model = zs.wrap(encode, lambda z: z @ W, latents=3)
    codes = gaussian_codes(300, 2).float()
    x = codes @ W[:2]
    factors = (codes > 0).long().numpy()
    data = zs.data.from_arrays(x, factors)
    names = groups()["alignment"]
    assert len(names) >= 7

    results = measure(zs.record(model, data), [*names, "predicted-variance"]).results
    assert set(results) == {*names, "predicted-variance"}
    assert results["distance-to-orthogonality"].active == [0, 1]
    assert results["latent-ranking"].order == [0, 1, 2]
    assert results["cartesian-or-polar"].cartesian == [(0, 1)]
    for result in results.values():
        result.to_dict()

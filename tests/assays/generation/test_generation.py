"""Fréchet distance, precision and recall where the answer is known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg
from worlds import World, gaussian_codes, identity, random_rotation, seeded

import zscope as zs
from zscope.assays.generation.extractors import inception, name_of, random_features
from zscope.assays.generation.frechet import bures
from zscope.assays.generation.quality import traverse
from zscope.errors import ConfigError, Undefined

seeds = st.integers(0, 1000)
frechet_distance, precision_recall = zs.assays.frechet_distance, zs.assays.precision_recall


def shaped(mean, covariance, count=40):
    """Rows whose sample mean and covariance (n - 1) are exactly these."""
    mean, covariance = np.asarray(mean, float), np.asarray(covariance, float)
    rows = np.random.default_rng(0).normal(size=(count, len(mean)))
    rows -= rows.mean(0)
    rows = rows @ np.linalg.inv(np.linalg.cholesky(np.cov(rows, rowvar=False))).T
    return torch.from_numpy(rows @ np.linalg.cholesky(covariance).T + mean)


# Fréchet distance.


def test_of_two_gaussians_with_diagonal_covariance():
    """|μ|² + Σ (s_i - t_i)²: (3² + 4²) + (2 - 1)² + (1 - 3)² = 30."""
    x, y = shaped([0, 0], np.diag([4.0, 1.0])), shaped([3, 4], np.diag([1.0, 9.0]))
    found = frechet_distance(x, y)
    assert found.distance == pytest.approx(30)
    assert found.of_means == pytest.approx(25)
    assert found.of_covariances == pytest.approx(5)
    assert found.score == found.distance
    assert found.to_dict()["extractor"] == "rows as given"


def test_of_two_correlated_gaussians():
    """With equal variances and correlations ±ρ: 2d - 2 tr (AB)^{1/2}, and AB = (1 - ρ²) I."""
    rho = 0.6
    x = shaped([0, 0], [[1, rho], [rho, 1]])
    y = shaped([0, 0], [[1, -rho], [-rho, 1]])
    assert frechet_distance(x, y).distance == pytest.approx(4 - 4 * math.sqrt(1 - rho**2))


@given(seed=seeds)
def test_agrees_with_the_root_of_the_product(seed):
    x, y = gaussian_codes(30, 4, seed, [1, 2, 3, 0.1]), gaussian_codes(25, 4, seed + 1) + 0.5
    first, second = np.cov(x.numpy(), rowvar=False), np.cov(y.numpy(), rowvar=False)
    root = np.real(linalg.sqrtm(first @ second))
    gap = x.numpy().mean(0) - y.numpy().mean(0)
    expected = gap @ gap + np.trace(first + second - 2 * root)
    assert frechet_distance(x, y).distance == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(seed=seeds, scale=st.floats(0.1, 10))
def test_moving_and_turning_change_nothing_and_scaling_squares(seed, scale):
    x, y = gaussian_codes(30, 3, seed), gaussian_codes(30, 3, seed + 1, [1, 2, 0.5])
    plain = frechet_distance(x, y).distance
    turn = random_rotation(3, seed)
    moved = frechet_distance(scale * x @ turn + 5, scale * y @ turn + 5).distance
    assert moved == pytest.approx(scale**2 * plain, rel=1e-6)
    assert frechet_distance(y, x).distance == pytest.approx(plain, rel=1e-9)


def test_equal_sets_are_at_distance_zero_even_when_flat():
    x = gaussian_codes(10, 20) @ torch.diag(torch.logspace(-8, 3, 20).double())  # rank 9
    found = frechet_distance(x, x).distance
    assert 0 <= found < 1e-7 * x.square().sum().item()
    assert bures(torch.zeros(3, 3).double(), torch.eye(3).double()) == pytest.approx(3)


def test_higher_moments_are_not_told_apart():
    """Negative control for the docstring: a cross and a Gaussian with the same moments."""
    cross = torch.cat([torch.eye(2), -torch.eye(2)]).double().repeat(10, 1)
    same = shaped(cross.mean(0), np.cov(cross.numpy(), rowvar=False))
    assert frechet_distance(cross, same).distance == pytest.approx(0, abs=1e-10)


# Precision and recall.


def line(*values):
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def test_shares_by_hand():
    """Real 0, 1, 2 reach from -1 to 3 (k = 1); of -2, -1, 5, 2.5 two lie inside. Generated
    balls have radius 1, 1, 3.5, 2.5: they hold 0, 1 and 2."""
    found = precision_recall(line(0, 1, 2), line(-2, -1, 2.5, 5), neighbours=1)
    assert found.precision == 0.5
    assert found.recall == 1
    narrow = precision_recall(line(0, 1, 2), line(-2, -1.9, 2.5, 2.6), neighbours=1)
    assert narrow.recall == 0
    assert narrow.precision == 0.5


def test_a_set_has_full_precision_and_recall_with_itself():
    x = gaussian_codes(50, 3)
    found = precision_recall(x, x.flip(0))
    assert (found.precision, found.recall) == (1, 1)


def test_a_sample_of_one_mode_is_precise_and_forgets_the_other():
    mode = gaussian_codes(200, 2, scale=0.1)
    real = torch.cat([mode, mode + 10])
    found = precision_recall(real, gaussian_codes(400, 2, seed=1, scale=0.1))
    assert found.precision > 0.95
    assert found.recall == pytest.approx(0.5, abs=0.05)
    swapped = precision_recall(gaussian_codes(400, 2, seed=1, scale=0.1), real)
    assert (swapped.precision, swapped.recall) == (found.recall, found.precision)


def test_agrees_with_all_pairs_of_scipy():
    from scipy.spatial.distance import cdist

    x, y = gaussian_codes(60, 4), gaussian_codes(50, 4, seed=1, scale=1.5)

    def inside(points, members):
        radii = np.sort(cdist(members, members), axis=1)[:, 3]
        return (cdist(points, members) <= radii).any(1).mean()

    found = precision_recall(x, y)
    assert found.precision == inside(y.numpy(), x.numpy())
    assert found.recall == inside(x.numpy(), y.numpy())


def test_copies_do_not_shrink_a_set():
    x, y = gaussian_codes(40, 2), gaussian_codes(40, 2, seed=1)
    once, often = precision_recall(x, y), precision_recall(x.repeat(5, 1), y)
    assert once.precision == often.precision


def test_a_collapsed_set_reaches_nothing_but_itself():
    x = gaussian_codes(40, 2)
    found = precision_recall(x, x[:1].expand(30, 2))
    assert found.precision == 1
    assert found.recall == pytest.approx(1 / 40)


# Extractors.


def test_an_extractor_gets_copies_in_plain_strides():
    x = torch.rand(12, 3, 4, 4, generator=seeded(0)).to(memory_format=torch.channels_last)
    before = x.clone()

    def overwrite(batch):
        return batch.view(len(batch), -1)[:, :2].sub_(1)

    assert frechet_distance(x, x, extractor=overwrite).score == pytest.approx(0, abs=1e-9)
    assert torch.equal(x, before)


def test_the_extractor_is_applied_and_named():
    pictures = torch.rand(20, 1, 8, 8, generator=seeded(0))
    other = torch.rand(20, 1, 8, 8, generator=seeded(1))

    def brightness(x):
        return x.mean((2, 3))

    found = frechet_distance(pictures, other, extractor=brightness)
    rows = [p.mean((2, 3)).double() for p in (pictures, other)]
    assert found.distance == pytest.approx(frechet_distance(*rows).distance)
    assert found.extractor == "brightness"
    assert (
        frechet_distance(pictures, other, extractor=brightness, name="light").extractor == "light"
    )
    model = zs.models.build("classifier", shape=(1, 8, 8), latents=3)
    found = precision_recall(pictures, other, extractor=model)
    assert (found.extractor, found.features) == ("last hidden layer of classifier", 256)
    assert name_of(zs.wrap(lambda x: x, lambda z: z)) == "codes of Autoencoder"


def test_batches_do_not_matter_and_the_mode_is_kept():
    model = zs.models.build("ae", shape=(1, 8, 8), latents=3, backbone="consistency").train()
    x = torch.rand(600, 1, 8, 8, generator=seeded(0))
    found = frechet_distance(x, x.flip(0), extractor=model)
    assert found.distance == pytest.approx(0, abs=1e-6)
    assert model.training


def test_what_cannot_be_compared_is_refused():
    x = gaussian_codes(10, 3)
    with pytest.raises(Undefined, match=r"\(10, 3\) and \(10, 2\)"):
        frechet_distance(x, x[:, :2])
    with pytest.raises(Undefined, match="at least two rows"):
        frechet_distance(x, x[:1])
    with pytest.raises(Undefined, match="have different columns"):
        precision_recall(x, x[:, :2])
    with pytest.raises(Undefined, match=r"features of shape \(5, 1, 4, 4\).*extractor="):
        frechet_distance(torch.zeros(5, 1, 4, 4), torch.zeros(5, 1, 4, 4))
    with pytest.raises(Undefined, match="1 of 10 observations contain NaN"):
        frechet_distance(x, torch.where(x == x[0, 0], math.nan, x))
    with pytest.raises(ConfigError, match="neither a model, nor a function"):
        frechet_distance(x, x, extractor="resnet")
    with pytest.raises(Undefined, match="0 observations"):
        precision_recall(x, x[:0])


def test_without_torch_fidelity_there_is_no_inception():
    with pytest.raises(ConfigError, match=r"pip install torch-fidelity.*another extractor"):
        inception()
    with pytest.raises(ConfigError, match="torch-fidelity"):
        frechet_distance(torch.zeros(3, 1, 8, 8), torch.zeros(3, 1, 8, 8), extractor="inception")


# Sample quality.


def test_the_identity_model_reconstructs_perfectly_and_samples_by_its_latents():
    """Codes N(0, C) with strong correlation: hybrids lose it, the prior has none either."""
    mixing = torch.tensor([[1.0, 0.0], [0.9, 0.436]]).double()
    codes = gaussian_codes(2000, 2) @ mixing.T
    model = identity(2, prior="normal")
    found = zs.assays.sample_quality(
        model, codes, posterior=zs.Posterior(codes), samples=1000, extractor=lambda x: x
    )
    assert found.distances["reconstructions"] == pytest.approx(0, abs=1e-9)
    lost = 4 - 2 * sum(math.sqrt(1 + sign * 0.9) for sign in (1, -1))
    assert found.distances["hybrid"] == pytest.approx(lost, abs=0.1)
    assert found.distances["prior"] == pytest.approx(lost, abs=0.1)
    assert found.floor < 0.05
    assert found.precision["reconstructions"] == found.recall["reconstructions"] == 1
    assert found.precision["hybrid"] < 0.9


def test_a_model_without_a_prior_is_not_sampled_from_one():
    codes = gaussian_codes(100, 2)
    found = zs.assays.sample_quality(identity(2), codes, posterior=zs.Posterior(codes))
    assert set(found.distances) == {"reconstructions", "hybrid", "traversals"}
    assert found.extractor == "64 features of a random network"
    own = zs.assays.sample_quality(
        identity(2), codes, posterior=zs.Posterior(codes), extractor="own"
    )
    assert own.extractor == "codes of World"


def test_the_same_features_judge_every_model_and_a_models_own_do_not_see_what_it_loses():
    """A model that keeps 2 of 4 numbers reconstructs perfectly in its own eyes."""
    x = gaussian_codes(1000, 4)
    mask = torch.tensor([1.0, 1, 0, 0]).double()
    whole, half = identity(4), World(lambda z: z * mask, lambda x: x * mask, 4)

    def distances(extractor):
        results = [
            zs.assays.sample_quality(model, x, posterior=model.encode(x), extractor=extractor)
            for model in (whole, half)
        ]
        return [each.distances["reconstructions"] for each in results], {r.floor for r in results}

    (perfect, lossy), floors = distances("random")
    assert perfect == pytest.approx(0, abs=1e-6)
    assert lossy > 5 * max(floors)
    assert len(floors) == 1
    (perfect, lossy), floors = distances("own")
    assert perfect == lossy == pytest.approx(0, abs=1e-6)
    assert len(floors) == 2  # each on a scale of its own


def test_random_features_see_blur_noise_and_mixtures_of_pictures():
    digits = zs.data.load("digits").batch(slice(0, 1600))
    real, other = digits[::2], digits[1::2]

    def blurred(size):
        return torch.nn.functional.avg_pool2d(other, size, 1, size // 2)

    def noisy(scale):
        return other + scale * torch.randn(other.shape, generator=seeded(0))

    def mixed(share):
        return (1 - share) * other + share * other.flip(0)

    def distance(pictures):
        return frechet_distance(real, pictures, extractor="random").distance

    floor = distance(other)
    for worse, small, large in ((blurred, 3, 5), (noisy, 0.2, 0.6), (mixed, 0.25, 0.5)):
        assert floor < distance(worse(small)) < distance(worse(large))


@pytest.mark.parametrize("shape", [(3, 8, 9), (1, 1, 1), (5,)], ids=str)
def test_random_features_are_always_the_same(shape):
    x = torch.randn(300, *shape, generator=seeded(0))
    before = torch.random.get_rng_state()
    features = random_features(x)
    assert features.shape == (300, 64)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.allclose(random_features(x[7:9]), features[7:9], atol=1e-5)


def test_hybrids_of_a_structural_model_exchange_whole_variables():
    """Latents 0 and 1 agree in every code; as one variable they agree in hybrids too."""
    first = gaussian_codes(400, 1)
    codes = torch.cat([first, first, gaussian_codes(400, 1, seed=1)], 1)
    model = identity(3)

    def apart(x):
        return (x[:, :1] - x[:, 1:2]).abs()

    single = zs.assays.sample_quality(
        model, codes, posterior=zs.Posterior(codes), extractor=apart
    ).distances["hybrid"]
    model.groups = [[0, 1], [2]]
    whole = zs.assays.sample_quality(
        model, codes, posterior=zs.Posterior(codes), extractor=apart
    ).distances["hybrid"]
    assert whole == pytest.approx(0, abs=1e-9)
    assert single > 0.5


def test_hybrids_of_a_small_store_have_few_values():
    codes = gaussian_codes(400, 3)
    seen = []

    def look(x):
        seen.append(x)
        return x

    options = {"posterior": zs.Posterior(codes), "extractor": look}
    zs.assays.sample_quality(identity(3), codes, store=5, **options)
    hybrids = [x for x in seen if len(x[:, 0].unique()) == 5]
    assert len(hybrids) == 1
    assert len(hybrids[0].unique(dim=0)) > 5  # in new combinations
    seen.clear()
    zs.assays.sample_quality(identity(3), codes, **options)
    assert min(len(x[:, 0].unique()) for x in seen) > 50


def test_a_traversal_moves_one_latent_within_its_range():
    codes = gaussian_codes(300, 4)
    moved = traverse(codes, seeded(0))
    changed = moved != codes
    assert (changed.sum(1) == 1).all()
    assert (changed.sum(0) > 40).all()
    assert (moved >= codes.amin(0)).all()
    assert (moved <= codes.amax(0)).all()
    spread = (moved - codes.amin(0))[changed] / (codes.amax(0) - codes.amin(0)).expand(300, 4)[
        changed
    ]
    assert spread.mean().item() == pytest.approx(0.5, abs=0.06)  # evenly over the range


def test_a_recording_is_measured_from_the_catalogue_and_drawn():
    rows = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    model = zs.models.build("vae", shape=(4,), latents=2, hidden=(16,))
    found = zs.assays.sample_quality(zs.record(model, rows))
    assert found.extractor == "64 features of a random network"
    own = zs.assays.sample_quality(zs.record(model, rows), extractor="own")
    assert own.extractor == "last hidden layer of vae"
    assert ("extractor", found.extractor) in found.summary()
    assert found.plot() is not None
    with pytest.raises(Undefined, match="8 observations and 8 posteriors"):
        zs.assays.sample_quality(
            identity(2), gaussian_codes(8, 2), posterior=zs.Posterior(gaussian_codes(8, 2))
        )


def test_sets_too_small_for_their_neighbours_are_refused():
    """Three rows have no third neighbour: without radii nothing would lie within anything."""
    few, many = gaussian_codes(3, 2), gaussian_codes(30, 2)
    with pytest.raises(Undefined, match="30 and 3 rows.*3 neighbours"):
        precision_recall(many, few)
    with pytest.raises(ConfigError, match="neighbours=0"):
        precision_recall(many, many, neighbours=0)
    # Many rows that are all the same are not too few: they reach no further than themselves.
    found = precision_recall(many, torch.zeros(30, 2, dtype=torch.float64))
    assert found.recall == 0


@pytest.mark.parametrize("given", [5, "words", None, torch.zeros(4, 2) * 1j])
def test_what_is_no_table_of_numbers_is_refused(given):
    with pytest.raises(Undefined, match="frechet_distance: got"):
        frechet_distance(given, given)

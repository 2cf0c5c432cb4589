"""Latent statistics against closed forms, draws, and fields whose places depend on each other."""

import json
import math

import numpy as np
import pytest
import torch
from map_worlds import PatchPCA, autoregressive
from scipy import stats

import zscope as zs
from zscope import assays as a
from zscope.errors import Undefined
from zscope.layout import LatentScaling
from zscope.map_summary import MapSummary

LAYOUT = zs.Layout(3, (4, 6))


def posterior(pictures=40, layout=LAYOUT, seed=0, spread=True):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(pictures, layout.latents, generator=generator, dtype=torch.float64)
    mean = layout.flat(layout.view(mean) * torch.arange(1, layout.channels + 1)[:, None, None] + 2)
    std = torch.rand(pictures, layout.latents, generator=generator, dtype=torch.float64)
    return zs.Posterior(mean, std if spread else None, layout=layout)


def test_means_and_deviations_are_those_of_the_numbers():
    codes = posterior(spread=False)
    result = a.latent_statistics(codes)
    maps = LAYOUT.view(codes.mean).transpose(0, 1).flatten(1).numpy()
    assert result.mean.numpy() == pytest.approx(maps.mean(1))
    assert result.std.numpy() == pytest.approx(maps.std(1))
    assert result.skewness.numpy() == pytest.approx(stats.skew(maps, axis=1))
    assert result.kurtosis.numpy() == pytest.approx(stats.kurtosis(maps, axis=1))
    assert result.score == pytest.approx(1 / codes.mean.numpy().std())
    assert result.shift_factor == pytest.approx(float(codes.mean.mean()))
    assert result.low.numpy() == pytest.approx(maps.min(1))
    assert result.noise_share.tolist() == [0, 0, 0]


def test_moments_of_draws_are_those_of_many_draws():
    codes = posterior(pictures=12)
    generator = torch.Generator().manual_seed(1)
    draws = torch.cat([codes.sample(generator) for _ in range(4000)])
    sampled = a.latent_statistics(zs.Posterior(draws, layout=LAYOUT), resamples=0)
    exact = a.latent_statistics(codes, resamples=0)
    for name in ("mean", "std", "skewness", "kurtosis", "spectrum"):
        assert getattr(exact, name).numpy() == pytest.approx(
            getattr(sampled, name).numpy(), abs=0.02, rel=0.01
        ), name
    assert exact.score == pytest.approx(sampled.score, rel=0.01)
    # The negative control: without the posterior's variance they are not.
    means = a.latent_statistics(codes, of="mean", resamples=0)
    assert float(means.std[0]) < float(exact.std[0]) - 0.05


def test_a_known_covariance_is_found_and_a_rotation_keeps_its_eigenvalues():
    generator = torch.Generator().manual_seed(0)
    layout = zs.Layout(3, (8, 8))
    white = torch.randn(3000, 3, 64, generator=generator, dtype=torch.float64)
    root = torch.tensor([[2.0, 0, 0], [1, 1, 0], [0, 0, 0.5]], dtype=torch.float64)
    maps = torch.einsum("jk,ikp->ijp", root, white)
    result = a.latent_statistics(zs.Posterior(maps.flatten(1), layout=layout), resamples=0)
    expected = torch.linalg.eigvalsh(root @ root.T).flip(0)
    assert result.spectrum.numpy() == pytest.approx(expected.numpy(), rel=0.02)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
    turned = torch.einsum("jk,ikp->ijp", turn, maps)
    other = a.latent_statistics(zs.Posterior(turned.flatten(1), layout=layout), resamples=0)
    assert other.spectrum.numpy() == pytest.approx(result.spectrum.numpy())
    assert other.std.numpy() != pytest.approx(result.std.numpy(), rel=0.05)


def test_scaled_latents_scale_the_answers():
    codes = posterior()
    scaled = zs.Posterior(7 * codes.mean, 7 * codes.std, layout=LAYOUT)
    one, seven = (a.latent_statistics(each, resamples=20) for each in (codes, scaled))
    assert seven.score == pytest.approx(one.score / 7)
    assert seven.mean.numpy() == pytest.approx(7 * one.mean.numpy())
    assert seven.kurtosis.numpy() == pytest.approx(one.kurtosis.numpy())
    assert seven.interval == pytest.approx(tuple(end / 7 for end in one.interval))


def test_parts_of_the_pictures_merge_to_the_whole():
    codes = posterior(pictures=31)
    whole = MapSummary.of(codes)
    parts = MapSummary.of(codes[:7]).merge(MapSummary.of(codes[7:20]), MapSummary.of(codes[20:]))
    one, many = (
        a.latent_statistics(zs.Recording(None, codes, summary=each), resamples=0)
        for each in (whole, parts)
    )
    for name in ("mean", "std", "skewness", "kurtosis", "noise_share", "place_share", "spectrum",
                 "independent_places", "mean_map", "std_map"):  # fmt: skip
        assert getattr(one, name).numpy() == pytest.approx(getattr(many, name).numpy(), abs=1e-12)


@pytest.mark.parametrize(
    ("layout", "maps", "expected"),
    [
        ((64,), lambda g: torch.randn(4000, 64, generator=g, dtype=torch.float64), 64),
        ((64,), lambda g: torch.randn(4000, 1, generator=g, dtype=torch.float64).expand(-1, 64), 1),
        ((64,), lambda g: autoregressive(4000, 64, 0.8, g), 7.642),
    ],
    ids=["independent", "constant in space", "autoregressive"],
)
def test_places_are_worth_as_many_as_are_independent(layout, maps, expected):
    lines = maps(torch.Generator().manual_seed(3))
    result = a.latent_statistics(
        zs.Posterior(lines.contiguous(), layout=zs.Layout(1, layout)), resamples=0
    )
    assert float(result.independent_places[0]) == pytest.approx(expected, rel=0.06)


def test_a_map_that_is_the_same_for_all_pictures_is_explained_by_place():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(500, 2, 16, generator=generator, dtype=torch.float64)
    fixed = torch.linspace(-3, 3, 16, dtype=torch.float64)
    maps = noise + torch.stack([fixed, torch.zeros(16, dtype=torch.float64)])
    result = a.latent_statistics(
        zs.Posterior(maps.flatten(1), layout=zs.Layout(2, (4, 4))), resamples=0
    )
    variance = float(fixed.var(correction=0))
    assert float(result.place_share[0]) == pytest.approx(variance / (1 + variance), rel=0.02)
    assert float(result.place_share[1]) < 0.002
    assert result.mean_map[0].flatten().numpy() == pytest.approx(fixed.numpy(), abs=0.2)


def test_intervals_over_pictures_cover_and_those_over_places_would_not():
    """Pairs of places as if each were a picture of its own: the negative control."""
    generator = torch.Generator().manual_seed(5)
    hits = {"pictures": np.zeros(2), "places": np.zeros(2)}
    for _ in range(200):
        lines = autoregressive(40, 64, 0.8, generator)
        for name, rows in (("pictures", lines), ("places", lines.reshape(-1, 2))):
            result = a.latent_statistics(
                zs.Posterior(rows, layout=zs.Layout(1, (rows.shape[1],))),
                resamples=20, generator=generator,
            )  # fmt: skip
            ends = torch.cat([result.mean_interval, result.std_interval])
            truth = torch.tensor([0.0, 1.0])
            hits[name] += ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).numpy()
    assert all(180 <= count <= 198 for count in hits["pictures"])
    assert all(count < 175 for count in hits["places"])


def test_the_declared_scaling_is_applied():
    codes = posterior()
    model = zs.wrap(lambda x: x.reshape(len(x), 3, 4, 6), lambda z: z.flatten(1), prior=None)
    model.latent_scaling = LatentScaling(scaling_factor=0.5)
    data = codes.mean.float()
    recording = zs.record(model, data)
    result = a.latent_statistics(recording)
    assert result.declared_std == pytest.approx(0.5 * float(data.std(correction=0)), rel=1e-5)
    model.latent_scaling = LatentScaling(
        latents_mean=tuple(result.latents_mean), latents_std=tuple(result.latents_std)
    )
    again = a.latent_statistics(zs.record(model, data))
    assert again.declared_std == pytest.approx(1)
    assert again.declared_channel_std.numpy() == pytest.approx(np.ones(3))


def test_the_lines_to_paste_are_json_and_undo_the_scale():
    codes = posterior()
    result = a.latent_statistics(codes)
    both = (
        json.loads("{" + result.paste() + "}"),
        json.loads("{" + result.paste(channels=True) + "}"),
    )
    assert both[0]["scaling_factor"] == pytest.approx(result.score, rel=1e-4)
    mean = torch.tensor(both[1]["latents_mean"])[:, None, None]
    std = torch.tensor(both[1]["latents_std"])[:, None, None]
    draws = LAYOUT.view(codes.sample(torch.Generator().manual_seed(9)))
    scaled = ((draws - mean) / std).transpose(0, 1).flatten(1)
    assert scaled.mean(1).numpy() == pytest.approx(np.zeros(3), abs=0.05)
    assert scaled.std(1).numpy() == pytest.approx(np.ones(3), abs=0.05)


def test_vectors_few_pictures_and_constant_maps_are_refused():
    with pytest.raises(Undefined, match="no channels and places.*layout"):
        a.latent_statistics(zs.Posterior(torch.eye(20, 6)))
    with pytest.raises(Undefined, match="4 pictures.*at least 8"):
        a.latent_statistics(posterior(pictures=4))
    constant = zs.Posterior(torch.ones(20, LAYOUT.latents), layout=LAYOUT)
    with pytest.raises(Undefined, match="3 channels are constant over 20 pictures.*collapsed"):
        a.latent_statistics(constant)


def test_a_constant_channel_has_no_shape_and_no_nan():
    codes = posterior(spread=False)
    maps = LAYOUT.view(codes.mean).clone()
    maps[:, 1] = 4
    result = a.latent_statistics(zs.Posterior(maps.flatten(1), layout=LAYOUT))
    assert float(result.std[1]) == 0
    assert [float(result.skewness[1]), float(result.kurtosis[1])] == [0, 0]
    lines = json.loads("{" + result.paste(channels=True) + "}")
    assert lines["latents_std"][1] == 1  # latents are divided by it
    assert lines["latents_std"][0] == pytest.approx(float(result.std[0]), rel=1e-4)
    assert all(t.isfinite().all() for t in vars(result).values() if isinstance(t, torch.Tensor))


def test_channels_that_differ_from_each_other_but_never_change_are_constant():
    maps = torch.tensor([0.1, 0.2, 0.3])[:, None].expand(20, 3, 24)
    with pytest.raises(Undefined, match="3 channels are constant"):
        a.latent_statistics(zs.Posterior(maps.flatten(1), layout=LAYOUT))


def test_means_that_never_change_have_a_scale_only_by_their_noise():
    still = torch.full((20, LAYOUT.latents), 0.1)
    codes = zs.Posterior(still, torch.full_like(still, 2.0), layout=LAYOUT)
    assert a.latent_statistics(codes).score == pytest.approx(1 / 2)
    with pytest.raises(Undefined, match="posterior means of 20 pictures are identical.*of='mean'"):
        a.latent_statistics(codes, of="mean")


def test_a_nan_is_refused_with_its_place():
    maps = posterior(spread=False).mean.clone()
    maps[5, 30] = torch.nan
    with pytest.raises(Undefined, match="picture 5 are NaN or infinite in channel 1 at place 1, 0"):
        a.latent_statistics(zs.Posterior(maps, layout=LAYOUT))


def test_one_channel_has_one_mode_and_its_own_scale():
    layout = zs.Layout(1, (4, 6))
    maps = posterior(layout=layout, spread=False).mean
    result = a.latent_statistics(zs.Posterior(maps, layout=layout))
    assert (result.effective_rank, result.modes) == (pytest.approx(1), 1)
    assert result.score == pytest.approx(1 / float(result.std[0]))


def test_principal_components_of_patches_have_their_variances_as_covariance(pictures):
    pca = PatchPCA(pictures, 4, 5)
    codes = pca.encode(pictures.double())
    layout = zs.Layout(5, tuple(codes.shape[2:]))
    result = a.latent_statistics(zs.Posterior(codes.flatten(1), layout=layout), resamples=0)
    assert result.spectrum.numpy() == pytest.approx(pca.variances.numpy(), abs=1e-6)
    assert result.std.square().numpy() == pytest.approx(pca.variances.numpy(), abs=1e-6)
    # They are uncorrelated, so that the eigenvalues are the variances of the channels themselves.
    white = PatchPCA(pictures, 4, 5, whiten=True).model()
    whitened = a.latent_statistics(zs.record(white, pictures), resamples=0)
    assert whitened.score == pytest.approx(1, abs=1e-5)
    assert whitened.spectrum.numpy() == pytest.approx(np.ones(5), abs=1e-5)
    assert whitened.modes == 5


def test_noise_of_the_posterior_is_added_to_the_variance_exactly(pictures):
    model = PatchPCA(pictures, 4, 3, whiten=True, std=0.5).model()
    result = a.latent_statistics(zs.record(model, pictures), resamples=0)
    assert result.std.square().numpy() == pytest.approx(np.full(3, 1.25), rel=1e-5)
    assert result.noise_share.numpy() == pytest.approx(np.full(3, 0.2), rel=1e-5)
    assert result.score == pytest.approx(1 / math.sqrt(1.25), rel=1e-5)


def test_few_noisy_pictures_do_not_look_as_if_place_explained_them():
    generator = torch.Generator().manual_seed(2)
    layout, shares = zs.Layout(1, (8, 8)), []
    for _ in range(40):
        maps = torch.randn(10, 64, generator=generator, dtype=torch.float64)
        noisy = zs.Posterior(maps, torch.full_like(maps, 3.0), layout=layout)
        shares.append(float(a.latent_statistics(noisy, resamples=0).place_share[0]))
    # Uncorrected, the mean of ten maps of variance 1 has a tenth of it, of 10 in all.
    assert sum(shares) / len(shares) < 0.002


def test_the_effective_sample_size_is_printed():
    result = a.latent_statistics(posterior(spread=False), resamples=0)
    assert result.effective_samples.numpy() == pytest.approx(40 * result.independent_places.numpy())
    assert "effective sample size" in repr(result)
    assert "of 960 numbers" in repr(result)


def test_a_declared_scaling_of_another_size_is_refused():
    model = zs.wrap(lambda x: x.reshape(len(x), 3, 4, 6), lambda z: z.flatten(1), prior=None)
    data = posterior().mean.float()
    for wrong, message in [
        (LatentScaling(latents_mean=(0.0,), latents_std=(1.0,)), "1 numbers.*3 channels"),
        (LatentScaling(latents_std=(1.0, 0.0, 1.0)), "latents_std.*above 0"),
    ]:
        model.latent_scaling = wrong
        with pytest.raises(zs.errors.ConfigError, match=message):
            a.latent_statistics(zs.record(model, data))


def test_tails_have_intervals_over_pictures():
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(400, 2, 4, 4, generator=generator).double()
    maps[:, 1] = maps[:, 1].exp()  # log-normal: skewness 6.2
    layout = zs.Layout(2, (4, 4))
    many = zs.assays.latent_statistics(zs.Recording.from_arrays(maps, layout=layout))
    few = zs.assays.latent_statistics(zs.Recording.from_arrays(maps[:50], layout=layout))
    for name in ("skewness", "kurtosis"):
        low, high = getattr(many, f"{name}_interval").T
        assert bool((low < getattr(many, name)).all() and (getattr(many, name) < high).all())
        assert float(low[0]) < 0 < float(high[0])  # of a Gaussian
        assert float(low[1]) > 1
    widths = [float(each.skewness_interval.diff(dim=1)[0]) for each in (few, many)]
    assert widths[0] > 1.5 * widths[1]
    single = zs.assays.latent_statistics(zs.Recording.from_arrays(maps, layout=layout), resamples=0)
    assert single.kurtosis_interval is None

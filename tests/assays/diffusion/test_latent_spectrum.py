"""Latent spectra against closed forms, aliasing, and pictures of known spectra."""

import numpy as np
import pytest
import torch
from map_worlds import (
    PatchPCA,
    average_pooling,
    dataset,
    identity,
    moving_squares,
    power_law,
    sines,
    sound_pooling,
    space_to_depth,
    video_pooling,
)
from scipy import fft

import zscope as zs
from zscope import assays as a
from zscope.assays.diffusion.spectrum import cut, low_pass
from zscope.errors import Undefined
from zscope.map_summary import MapSummary, band_energies, cosine_basis


def white(pictures, shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(pictures, *shape, generator=generator, dtype=torch.float64)


def spectrum_of(maps, **options):
    layout = zs.Layout(maps.shape[1], tuple(maps.shape[2:]))
    return a.latent_spectrum(zs.Posterior(maps.flatten(1), layout=layout), **options)


def test_white_maps_have_the_chance_level_and_no_slope():
    result = spectrum_of(white(4000, (2, 16, 16)), resamples=0).spectra["space"]
    assert result.chance == pytest.approx(28 / 63)
    assert result.side == 8
    assert result.high == pytest.approx(28 / 63, abs=0.003)
    assert result.slope == pytest.approx(0, abs=0.01)
    assert result.bands == pytest.approx([1] * 15, abs=0.02)


@pytest.mark.parametrize(("length", "side", "chance"), [(64, 8, 4 / 7), (7, 4, 2 / 3)])
def test_white_lines_have_the_chance_level_of_one_axis(length, side, chance):
    result = spectrum_of(white(40_000, (1, length)), resamples=0).spectra["time"]
    assert (result.side, result.chance) == (side, pytest.approx(chance))
    assert result.high == pytest.approx(chance, abs=0.01)


def test_blocks_of_four_are_used_on_small_maps():
    result = spectrum_of(white(500, (1, 4, 7)), resamples=0).spectra["space"]
    assert (result.side, result.chance) == (4, pytest.approx(6 / 15))


def test_maps_constant_in_space_have_no_slope_and_can_be_printed_and_saved(tmp_path):
    x = white(40, (1, 32, 32)).float() + white(40, (1, 1, 1), seed=1).float()
    model = zs.wrap(
        lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 8, 8).clone(),
        lambda z: torch.nn.functional.interpolate(z, scale_factor=4),
        prior=None,
    )
    report = zs.assay(model, x, names=["latent-spectrum", "latent-statistics"])
    result = report.results["latent-spectrum"]
    assert result.spectra["space"].slope is None
    assert result.spectra["space"].high == pytest.approx(0, abs=1e-12)
    assert "undefined: fewer than two bands have any energy" in str(result)
    assert "under 0.01×" in str(report.card)
    result.plot()
    assert report.save(tmp_path / "page.html").exists()


@pytest.mark.parametrize("stds", [(0.1, 0.1), (0.7, 0.1), (2.0, 0.1), (0.1, 2.0)])
def test_a_copy_is_as_smooth_as_the_pictures_whatever_its_noise(stds):
    x = torch.cat([power_law(60, 16, 3.0), power_law(60, 16, 0.5, seed=1)], 1)
    std = torch.tensor(stds).reshape(-1, 1, 1)
    model = zs.wrap(lambda x: (x.clone(), std.expand_as(x).square().log()), lambda z: z.clone())
    result = a.latent_spectrum(zs.record(model, x), resamples=0)
    assert result.score == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("std", "counts"), [(9.0, True), (11.0, False)])
def test_channels_that_are_nearly_all_noise_do_not_count(std, counts):
    """99 % of the variance: of a channel of variance 1, noise of std 10 or more."""
    smooth = power_law(60, 16, 3.0)[:, 0].double()
    rough = white(60, (16, 16), seed=3)
    maps = torch.stack([smooth / smooth.std(), rough / rough.std()], 1)
    stds = torch.tensor([1e-6, std], dtype=torch.float64)[:, None, None].expand_as(maps)
    layout = zs.Layout(2, (16, 16))
    posterior = zs.Posterior(maps.flatten(1), stds.flatten(1), layout=layout)
    both = a.latent_spectrum(posterior, resamples=0).spectra["space"].bands
    apart = [spectrum_of(maps[:, k : k + 1], resamples=0).spectra["space"].bands for k in (0, 1)]
    expected = np.mean(apart, 0) if counts else np.array(apart[0])
    assert both == pytest.approx(expected, rel=1e-9)


def test_bands_agree_with_the_cosine_transform_of_scipy():
    maps = white(5, (2, 8, 19))
    ours = band_energies(maps, (0, 1), 8)
    for picture in range(5):
        for channel in range(2):
            bands, first = np.zeros(15), 0.0
            for start in (0, 8):  # what is left of 19 columns is not transformed
                block = maps[picture, channel, :, start : start + 8].numpy()
                terms = fft.dctn(block, norm="ortho")
                first += terms[0, 0] / 2
                for u in range(8):
                    for v in range(8):
                        bands[u + v] += terms[u, v] ** 2 / 2
            assert ours[picture, channel].numpy() == pytest.approx([first, *bands])


def test_energies_of_blocks_that_tile_the_map_are_one_on_average():
    maps = power_law(40, 16, 1.5, colours=3).double() * torch.tensor([1.0, 9, 0.2])[:, None, None]
    result = spectrum_of(maps + 5, resamples=0).spectra["space"]
    counts = np.bincount(np.add.outer(range(8), range(8)).ravel())
    assert (np.array(result.bands) * counts).sum() / 64 == pytest.approx(1)


def test_a_single_wave_has_its_energy_in_one_band():
    maps = cosine_basis(8)[6].expand(10, 1, 8).clone() * torch.arange(1, 11)[:, None, None]
    result = spectrum_of(maps, resamples=0).spectra["time"]
    assert result.high == pytest.approx(1)
    assert result.bands[6] == pytest.approx(8)
    assert result.slope is None  # one band is no line


@pytest.mark.parametrize(
    ("alpha", "pixels", "pooled", "folded"),
    [(1, 0.29, 0.28, 0.39), (2, 0.13, 0.12, 0.22), (3, 0.03, 0.03, 0.06)],
)
def test_power_laws_have_the_spectra_of_the_specification(alpha, pixels, pooled, folded):
    x = power_law(200, 32, alpha)
    for model, expected in [
        (identity(), pixels), (average_pooling(), pooled), (space_to_depth(), folded),
    ]:  # fmt: skip
        result = a.latent_spectrum(zs.record(model, x), resamples=0)
        assert result.spectra["space"].high == pytest.approx(expected, abs=0.012)


def test_the_slope_of_power_that_falls_with_the_square_of_frequency():
    result = spectrum_of(power_law(200, 32, 2).double(), resamples=0)
    assert result.spectra["space"].slope == pytest.approx(-1.6, abs=0.1)


@pytest.mark.parametrize("model", [identity, average_pooling], ids=["identity", "pooling"])
def test_excess_is_one_where_latents_are_the_pictures_of_that_size(model, pictures):
    result = a.latent_spectrum(zs.record(model(), pictures))
    assert result.score == pytest.approx(1, abs=1e-6)
    assert result.excess_interval["space"] == pytest.approx((1, 1), abs=1e-6)


def test_space_to_depth_folds_the_spectrum():
    """S_z(f) is the sum of S_x over all frequencies that look alike on every second pixel."""
    side, alpha = 16, 2.0
    frequency = np.fft.fftfreq(side) * side
    radius = np.hypot(frequency[:, None], frequency)
    radius[0, 0] = 1
    power = radius**-alpha
    half = side // 2
    folded = sum(
        np.roll(power, (half * u, half * v), (0, 1)) for u in (0, 1) for v in (0, 1)
    )[np.ix_(*[np.r_[0 : half // 2, side - half // 2 : side]] * 2)]  # fmt: skip
    # The covariance of places, then the expected energy of each term of the transform.
    covariance = np.fft.ifft2(folded).real
    covariance /= covariance[0, 0]
    basis = cosine_basis(half).numpy()
    index = np.subtract.outer(np.arange(half), np.arange(half)) % half
    energy = np.zeros((half, half))
    for u in range(half):
        for v in range(half):
            rows, columns = (np.outer(basis[k], basis[k]) for k in (u, v))
            energy[u, v] = np.einsum(
                "ij,kl,ijkl->", rows, columns, covariance[index[:, :, None, None], index]
            )
    sums = np.add.outer(range(half), range(half))
    expected = energy[sums >= half].sum() / (energy.sum() - energy[0, 0])
    result = a.latent_spectrum(zs.record(space_to_depth(), power_law(3000, side, alpha)))
    low, high = result.high_interval["space"]
    assert result.spectra["space"].high == pytest.approx(expected, rel=0.03)
    assert low < expected < high


def test_white_noise_raises_the_high_frequencies():
    x = power_law(200, 32, 2)
    pooled = torch.nn.functional.avg_pool2d(x, 2).double()
    noisy = pooled / pooled.std() + 0.5 * white(200, (1, 16, 16), seed=3)
    assert spectrum_of(pooled, resamples=0).spectra["space"].high == pytest.approx(0.12, abs=0.012)
    assert spectrum_of(noisy, resamples=0).spectra["space"].high == pytest.approx(0.20, abs=0.015)


def test_permuted_shifted_and_scaled_channels_change_nothing_and_mixed_ones_do():
    maps = torch.cat([power_law(60, 16, 3).double(), white(60, (1, 16, 16))], 1)
    moved = maps.flip(1) * torch.tensor([4.0, -0.2])[:, None, None] + 7
    mixed = torch.stack([maps[:, 0] + 0.9 * maps[:, 1], maps[:, 1]], 1)
    first, second, third = (
        spectrum_of(each, resamples=0).spectra["space"] for each in (maps, moved, mixed)
    )
    assert second.bands == pytest.approx(first.bands)
    assert second.slope == pytest.approx(first.slope)
    assert abs(third.high - first.high) > 0.03


def test_parts_of_the_pictures_have_the_spectrum_of_the_whole():
    x = power_law(31, 16, 2, colours=2)
    layout = zs.Layout(2, (16, 16))
    codes = zs.Posterior(x.flatten(1).double() + 3, layout=layout)
    whole = MapSummary.of(codes, x)
    parts = [MapSummary.of(codes[k], x[k]) for k in (slice(7), slice(7, 20), slice(20, None))]
    one, many = (
        a.latent_spectrum(zs.Recording(None, codes, summary=each), resamples=0)
        for each in (whole, parts[0].merge(*parts[1:]))
    )
    assert many.spectra["space"].bands == pytest.approx(one.spectra["space"].bands, abs=1e-12)
    assert many.score == pytest.approx(one.score, abs=1e-12)


def test_a_cut_keeps_slow_waves_and_removes_fast_ones():
    basis = cosine_basis(16)
    slow, fast = (torch.outer(basis[k], basis[1]) for k in (3, 5))
    layout = zs.Layout(1, (16, 16))
    assert cut(layout, 0.25) == (4, 4)
    kept = low_pass(torch.stack([slow, fast]), (4, 4))
    assert kept[0].numpy() == pytest.approx(slow.numpy(), abs=1e-12)
    assert kept[1].numpy() == pytest.approx(np.zeros((16, 16)), abs=1e-12)


def test_smoothed_latents_of_the_identity_decode_to_the_smoothed_picture(pictures):
    result = a.latent_spectrum(zs.record(identity(), pictures))
    assert result.correspondence == pytest.approx({"1/2": 0, "1/4": 0}, abs=1e-10)
    # Both are the picture's own low frequencies, whose share of the variance scipy knows.
    terms = fft.dctn(pictures.numpy(), axes=(2, 3), norm="ortho")
    terms -= terms.mean(0)
    for name, count in (("1/2", 8), ("1/4", 4)):
        share = (terms[..., :count, :count] ** 2).sum() / (terms**2).sum()
        assert result.picture_variance[name] == pytest.approx(share, abs=1e-5)
        assert result.cut_variance[name] == pytest.approx(share, abs=1e-5)


def test_smoothed_latents_of_folded_pictures_do_not_decode_to_smoothed_ones():
    """Average pooling nearly does, patch components less, folding does not."""
    x = power_law(96, 32, 2)
    x = x - x.mean(0)
    models = [average_pooling(4), PatchPCA(x, 4, 6).model(), space_to_depth(4)]
    values = [
        a.latent_spectrum(zs.record(model, x), resamples=0).correspondence["1/2"]
        for model in models
    ]
    assert values[0] < 0.01
    assert values[0] < values[1] < values[2]


def test_sound_is_transformed_along_time():
    clips = sines(40)
    result = a.latent_spectrum(zs.record(sound_pooling(), dataset(clips)))
    assert list(result.spectra) == ["time"]
    # The first channel alone is the sound, averaged down.
    layout = zs.Layout(1, (16,))
    means = clips.reshape(40, 16, 4).mean(2)
    summary = MapSummary.of(zs.Posterior(means, layout=layout), clips)
    alone = a.latent_spectrum(
        zs.Recording(None, zs.Posterior(means, layout=layout), summary=summary)
    )
    assert alone.score == pytest.approx(1)
    assert float(result.channel_high[0]) == pytest.approx(alone.spectra["time"].high)
    # Slopes are derivatives, which have more of the high frequencies.
    assert float(result.channel_high[1]) > 1.2 * float(result.channel_high[0])
    assert result.score > 1.1


def test_video_is_transformed_by_frames_and_along_time():
    clips = moving_squares(40)
    result = a.latent_spectrum(zs.record(video_pooling(), dataset(clips)))
    assert list(result.spectra) == ["space", "time"]
    assert result.excess == pytest.approx({"space": 1, "time": 1}, abs=1e-6)
    assert result.score == result.excess["space"]
    # Frames in random order have the same spectrum in space and another in time.
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    shuffled = a.latent_spectrum(zs.record(video_pooling(), dataset(clips[:, :, order])))
    assert shuffled.spectra["space"].bands == pytest.approx(result.spectra["space"].bands)
    assert shuffled.spectra["time"].high > 1.2 * result.spectra["time"].high


def test_a_short_clip_has_no_spectrum_along_time():
    result = a.latent_spectrum(zs.record(video_pooling(), dataset(moving_squares(20, frames=3))))
    assert list(result.spectra) == ["space"]
    assert result.left_out["spectrum along time"] == "3 places, and 4 along each axis are needed"


def test_what_has_no_spectrum_is_refused_with_the_reason():
    with pytest.raises(Undefined, match="3 x 9 places have no spectrum.*4 places"):
        spectrum_of(white(20, (2, 3, 9)))
    still = zs.Posterior(torch.ones(20, 64), torch.ones(20, 64), layout=zs.Layout(1, (8, 8)))
    with pytest.raises(Undefined, match="means of all 1 channels are constant"):
        a.latent_spectrum(still)
    with pytest.raises(Undefined, match="no channels and places"):
        a.latent_spectrum(zs.Posterior(torch.eye(20)))


def test_a_constant_channel_is_left_out():
    maps = white(50, (1, 8, 8))
    both = torch.cat([maps, torch.full_like(maps, 0.1)], 1)
    one, two = (spectrum_of(each, resamples=0) for each in (maps, both))
    assert two.spectra["space"].bands == pytest.approx(one.spectra["space"].bands)
    assert two.channel_high.tolist() == [pytest.approx(one.spectra["space"].high), 0]


def test_without_pictures_or_a_model_the_answer_says_what_is_missing():
    result = spectrum_of(white(20, (1, 8, 8)))
    assert result.score is None
    assert result.left_out["excess"] == "no pictures were given to compare with"
    assert "no model that decodes" in result.left_out["correspondence"]
    assert result.high_interval.keys() == {"space"}
    flat = zs.wrap(lambda x: x.reshape(len(x), 1, 8, 8), lambda z: z.flatten(1), prior=None)
    rows = a.latent_spectrum(zs.record(flat, white(20, (64,)).float()))
    assert "observations of 64 cannot be averaged to maps of 1 x 8 x 8" in rows.left_out["excess"]
    assert "have other axes" in rows.left_out["correspondence"]


def test_pictures_without_high_frequencies_have_no_excess():
    flat = torch.linspace(0, 1, 20)[:, None, None, None].expand(20, 1, 8, 8).contiguous()
    model = zs.wrap(lambda x: x + white(1, (1, 8, 8)).to(x), lambda z: z, prior=None)
    result = a.latent_spectrum(zs.record(model, flat))
    assert result.score is None
    assert "have no high frequencies" in result.left_out["excess"]


def test_the_correspondence_is_of_the_base_pictures():
    recording = zs.record(average_pooling(2), dataset(power_law(200, 16, 2)))
    samples = {each.name: each.samples for each in a.latent_spectrum(recording).measures()}
    assert (samples["excess"], samples["correspondence at 1/2"]) == (200, 128)


def test_bands_of_many_pictures_are_centred_in_parts(monkeypatch):
    maps = 2 + white(300, (3, 8, 8))
    whole = spectrum_of(maps)
    monkeypatch.setattr("zscope.assays.diffusion.spectrum.BANDS_BYTES", 1000)
    parts = spectrum_of(maps)
    assert parts.spectra["space"].bands == pytest.approx(whole.spectra["space"].bands, rel=1e-12)
    ends = [each.high_interval["space"] for each in (parts, whole)]
    assert ends[0] == pytest.approx(ends[1])

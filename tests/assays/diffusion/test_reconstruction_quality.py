"""PSNR, SSIM and Fréchet distances of pictures whose answers are known, and SSIM by loops."""

import math

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
    video_pooling,
)

import zscope as zs
from zscope import assays as a
from zscope.assays.diffusion.quality import ssim
from zscope.errors import ConfigError, DataError, InterfaceError, Undefined


def random_pictures(count=20, side=16, colours=1, seed=0):
    return torch.rand(count, colours, side, side, generator=torch.Generator().manual_seed(seed))


def decoding(function):
    """Encodes pictures as they are and decodes them by a function."""
    return zs.wrap(lambda x: x.clone(), function, prior=None)


@pytest.mark.parametrize("offset", [0.1, 0.003])
def test_a_constant_offset_has_its_decibels(offset):
    x = 0.2 + 0.5 * random_pictures()
    result = a.reconstruction_quality(zs.record(decoding(lambda z: z + offset), x))
    assert result.score == pytest.approx(-20 * math.log10(offset), abs=1e-3)
    assert result.mean_error_psnr == pytest.approx(result.score, abs=1e-3)
    assert result.interval == pytest.approx((result.score, result.score), abs=1e-3)
    assert (result.peak, result.exact) == (1, 0)


def test_both_means_of_the_error_differ_where_pictures_do():
    """Half of the pictures are off by 0.1, half by 0.01: 30 dB on average."""
    x = 0.2 + 0.5 * random_pictures(40)
    offset = torch.where(torch.arange(40) % 2 == 0, 0.1, 0.01)
    model = zs.wrap(lambda x: x.clone(), lambda z: z, prior=None)
    codes = (x + offset[:, None, None, None]).flatten(1)
    layout = zs.Layout(1, (16, 16))
    recording = zs.Recording(model, zs.Posterior(codes, layout=layout), dataset(x))
    model.encode(x)
    result = a.reconstruction_quality(recording)
    assert result.score == pytest.approx(30, abs=1e-3)
    assert result.mean_error_psnr == pytest.approx(-10 * math.log10(0.00505), abs=1e-3)


def test_principal_components_lose_the_variance_they_do_not_explain(pictures):
    pca = PatchPCA(pictures, 4, 3)
    result = a.reconstruction_quality(zs.record(pca.model(), pictures), peak=1.0)
    lost = float(pca.all_variances[3:].sum()) / 16  # per pixel of a patch; not clipped
    assert result.mean_error_psnr == pytest.approx(-10 * math.log10(lost), abs=1e-4)


def test_exact_reconstructions_are_counted_and_have_100_decibels():
    result = a.reconstruction_quality(zs.record(identity(), random_pictures()))
    assert (result.score, result.mean_error_psnr, result.exact) == (100, 100, 20)
    assert result.ssim == pytest.approx(1)


def test_reconstructions_are_clipped_to_the_range_and_not_rounded():
    x = torch.where(random_pictures() > 0.5, 1.0, 0.0)
    beyond = decoding(lambda z: 3 * z - 1)
    assert a.reconstruction_quality(zs.record(beyond, x)).exact == 20
    below_a_byte = decoding(lambda z: 0.999 * z)
    assert a.reconstruction_quality(zs.record(below_a_byte, x)).exact == 0


def test_the_range_is_that_of_the_data():
    x = 2 * random_pictures() - 1
    result = a.reconstruction_quality(zs.record(decoding(lambda z: 0.9 * z), x))
    assert (result.peak, result.flags) == (2, [])
    error = (0.1 * x).double().square().flatten(1).mean(1)
    assert result.score == pytest.approx(float((10 * (4 / error).log10()).mean()), abs=1e-4)
    wide = a.reconstruction_quality(zs.record(decoding(lambda z: 0.9 * z), 100 * x))
    assert wide.peak == pytest.approx(200, rel=0.01)
    assert "was read from the pictures at hand" in wide.flags[0]
    assert "was read from the pictures at hand" in repr(wide)
    stated = a.reconstruction_quality(zs.record(decoding(lambda z: 0.9 * z), 100 * x), peak=255)
    assert (stated.peak, stated.flags) == (255, [])
    bytes_of_x = (255 * random_pictures()).to(torch.uint8).numpy()
    assert a.reconstruction_quality(zs.record(average_pooling(), bytes_of_x)).peak == 1


def test_constant_pictures_have_the_similarity_of_their_means():
    first, second = torch.full((2, 1, 11, 12), 0.3), torch.full((2, 1, 11, 12), 0.7)
    c1 = 0.01**2
    expected = (2 * 0.3 * 0.7 + c1) / (0.3**2 + 0.7**2 + c1)
    assert ssim(first, second).numpy() == pytest.approx([expected] * 2, rel=1e-6)
    scaled = ssim(255 * first.double(), 255 * second.double(), 255.0)
    assert scaled.numpy() == pytest.approx([expected] * 2, rel=1e-6)


def test_similarity_agrees_with_loops_over_windows():
    """Another route: one window at a time, covariances as means of products of deviations."""
    x = random_pictures(2, 14, 3).double()
    y = (x + 0.1 * random_pictures(2, 14, 3, seed=1).double()).clamp(0, 1)
    place = np.arange(-5, 6)
    weights = np.exp(-np.add.outer(place**2, place**2) / (2 * 1.5**2))
    weights /= weights.sum()
    c1, c2 = 0.01**2, 0.03**2
    for ours, one, two in zip(ssim(x, y), x.numpy(), y.numpy(), strict=True):
        values = []
        for colour in range(3):
            for row in range(4):
                for column in range(4):
                    p, q = (
                        each[colour, row : row + 11, column : column + 11] for each in (one, two)
                    )
                    a_, b_ = (weights * p).sum(), (weights * q).sum()
                    pp = (weights * (p - a_) ** 2).sum()
                    qq = (weights * (q - b_) ** 2).sum()
                    pq = (weights * (p - a_) * (q - b_)).sum()
                    values.append(
                        (2 * a_ * b_ + c1) * (2 * pq + c2)
                        / ((a_**2 + b_**2 + c1) * (pp + qq + c2))
                    )  # fmt: skip
        assert float(ours) == pytest.approx(np.mean(values), abs=1e-12)


def test_similarity_is_symmetric_and_at_most_one():
    x, y = random_pictures(5), random_pictures(5, seed=1)
    assert ssim(x, y).numpy() == pytest.approx(ssim(y, x).numpy())
    assert float(ssim(x, y).abs().max()) < 0.5
    assert ssim(x, x).numpy() == pytest.approx(np.ones(5))


def test_chance_is_the_mean_picture():
    x = random_pictures(40)
    result = a.reconstruction_quality(zs.record(decoding(lambda z: z), x))
    mean = x.mean(0, keepdim=True).expand_as(x)
    error = (x - mean).double().square().flatten(1).mean(1)
    assert result.chance == pytest.approx(float((-10 * error.log10()).mean()), abs=1e-4)
    assert result.ssim_chance == pytest.approx(float(ssim(x, mean).mean()), abs=1e-6)


def test_small_pictures_have_no_similarity():
    result = a.reconstruction_quality(zs.record(identity(), random_pictures(side=10)))
    assert result.ssim is None
    assert result.no_ssim == "its window has 11 x 11 pixels, and the pictures have 10 x 10"
    assert "11 x 11" in repr(result)


def test_video_is_compared_frame_by_frame():
    clips = moving_squares(20)
    result = a.reconstruction_quality(zs.record(video_pooling(), dataset(clips)))
    frames = clips.transpose(1, 2).flatten(0, 1)
    decoded = video_pooling(2)
    decoded = decoded.decode(decoded.encode(clips).mean).transpose(1, 2).flatten(0, 1)
    error = (frames - decoded).double().square().flatten(1).mean(1)
    expected = 10 * (1 / error.clamp_min(1e-10)).log10()
    assert result.score == pytest.approx(float(expected.mean()), abs=1e-4)
    assert result.ssim == pytest.approx(float(ssim(frames, decoded).mean()), abs=1e-6)
    # Squares at even pixels are pooled without loss, in some frames of some clips.
    assert 0 < result.exact == int((error == 0).sum()) < len(frames)
    whole = (clips.flatten(1) - decoded.reshape(20, -1)).double().square().mean(1)
    assert abs(float((-10 * whole.clamp_min(1e-10).log10()).mean()) - result.score) > 0.01


def test_sound_is_compared_by_signal_and_noise():
    clips = sines(30)
    model = zs.wrap(
        lambda x: x.unflatten(2, (-1, 4))[:, 0].movedim(2, 1),
        lambda z: 0.9 * z.movedim(1, 2).flatten(1)[:, None],
        prior=None,
    )
    result = a.reconstruction_quality(zs.record(model, dataset(clips)))
    assert (result.measure_name, result.ssim) == ("SNR", None)
    assert result.score == pytest.approx(20, abs=1e-4)  # an error of a tenth of the signal
    rows = zs.wrap(
        lambda x: x.unflatten(1, (-1, 4)).movedim(2, 1),
        lambda z: 0.9 * z.movedim(1, 2).flatten(1),
        prior=None, layout="channels first",
    )  # fmt: skip
    alone = a.reconstruction_quality(zs.record(rows, clips[:, 0]))
    assert (alone.measure_name, alone.score) == ("SNR", pytest.approx(20, abs=1e-4))


def test_silence_has_a_finite_ratio():
    clips = sines(20)
    clips[0] = 0
    result = a.reconstruction_quality(zs.record(sound_pooling(), dataset(clips)))
    assert math.isfinite(result.score)


def test_a_perceptual_distance_is_the_caller_s():
    x = 0.2 + 0.5 * random_pictures(30)
    sizes = []

    def distance(first, second):
        sizes.append(len(first))
        return (first - second).abs().flatten(1).mean(1)

    recording = zs.record(decoding(lambda z: z + 0.1), x)
    result = a.reconstruction_quality(recording, perceptual=distance)
    assert result.perceptual == pytest.approx(0.1, abs=1e-5)
    assert sum(sizes) == 60  # reconstructions, and the mean picture for chance
    assert result.perceptual_chance > 0.1
    for wrong, message in [
        (lambda x, y: torch.zeros(1), "2 numbers for 30 pairs"),
        (lambda x, y: torch.full((len(x),), math.nan), "30 of them NaN"),
    ]:
        with pytest.raises(DataError, match=message):
            a.reconstruction_quality(recording, perceptual=wrong)
    with pytest.raises(ConfigError, match="perceptual"):
        a.reconstruction_quality(recording, perceptual=3)


def test_the_distance_of_sets_is_that_of_their_features():
    """Pictures as white as their features: reconstructions moved by 0.1 in each of 4 of them."""
    x = 0.3 + 0.05 * torch.randn(400, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def corner(pictures):
        return pictures[:, 0, :2, :2].flatten(1)

    recording = zs.record(decoding(lambda z: z + 0.1), x)
    result = a.reconstruction_quality(recording, extractor=corner)
    assert result.frechet == pytest.approx(4 * 0.1**2, rel=1e-3)
    assert 0 < result.frechet_floor < 0.001
    assert result.extractor == "corner"
    assert "400 pictures" in result.flags[0]
    assert "200 pictures each" in repr(result)
    assert a.reconstruction_quality(zs.record(identity(), x)).frechet is None


def test_no_network_is_downloaded():
    recording = zs.record(identity(), random_pictures())
    with pytest.raises(ConfigError, match=r"names no file.*inception\('weights.pth'\)"):
        a.reconstruction_quality(recording, extractor="inception")


def test_what_cannot_be_measured_is_refused_with_the_reason():
    x = random_pictures()
    with pytest.raises(ConfigError, match="range of the values is -1"):
        a.reconstruction_quality(zs.record(identity(), x), peak=-1.0)
    with pytest.raises(Undefined, match="5 pictures were recorded, and at least 8"):
        a.reconstruction_quality(zs.record(identity(), x[:5]))
    with pytest.raises(InterfaceError, match=r"\(1, 16, 32\), but the encoder takes"):
        a.reconstruction_quality(zs.record(decoding(lambda z: torch.cat([z, z], 3)), x))
    with pytest.warns(UserWarning, match="decoder gives NaN or infinite"):
        broken = zs.record(decoding(lambda z: z / 0), x)
    with pytest.raises(InterfaceError, match="decoder gave NaN or infinite"):
        a.reconstruction_quality(broken)


def test_more_pictures_than_fit_at_once_give_the_same_numbers(monkeypatch):
    x = power_law(40, 16, 2.0)
    whole = a.reconstruction_quality(zs.record(average_pooling(), x), resamples=0)
    monkeypatch.setattr("zscope.assays.diffusion.quality.batch_size", lambda shape, budget: 7)
    parts = a.reconstruction_quality(zs.record(average_pooling(), x), resamples=0)
    numbers = [
        (each.score, each.chance, each.mean_error_psnr, each.ssim, each.ssim_chance)
        for each in (whole, parts)
    ]
    assert numbers[1] == pytest.approx(numbers[0])

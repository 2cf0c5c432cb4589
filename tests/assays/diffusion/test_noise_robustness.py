"""Noise robustness of linear decoders, whose curves are known, and of a curved one."""

import math

import numpy as np
import pytest
import torch
from map_worlds import (
    PatchPCA,
    dataset,
    identity,
    moving_squares,
    sines,
    sound_pooling,
    video_pooling,
)

import zscope as zs
from zscope import assays as a
from zscope.assays.diffusion.noise import LEVELS, _crossing
from zscope.errors import InterfaceError, Undefined


def many(model, x, **options):
    """The mean of a few measurements, each with noise of its own."""
    recording = zs.record(model, x)
    results = [
        a.noise_robustness(
            recording, generator=torch.Generator().manual_seed(seed), resamples=0, **options
        )
        for seed in range(4)
    ]
    return results, torch.stack([each.distortion for each in results]).mean(0)


def test_the_identity_has_gain_and_pull_one(pictures):
    results, distortion = many(identity(), pictures)
    assert distortion.numpy() == pytest.approx(np.square(LEVELS), rel=0.02)
    assert results[0].score == pytest.approx(1, rel=0.03)
    assert results[0].pull.numpy() == pytest.approx(np.ones(6), rel=0.03)
    assert results[0].reconstruction == pytest.approx(0, abs=1e-10)
    assert results[0].tolerance == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("whiten", [False, True])
def test_principal_components_have_the_square_of_the_noise_times_what_they_explain(
    pictures, whiten
):
    pca = PatchPCA(pictures, 4, 3, whiten=whiten)
    explained = float(pca.variances.sum() / pca.all_variances.sum())
    results, distortion = many(pca.model(), pictures)
    assert distortion.numpy() == pytest.approx(np.square(LEVELS) * explained, rel=0.02)
    by_channel = torch.stack([each.by_channel for each in results]).mean(0)
    expected = 0.09 * pca.variances / pca.all_variances.sum()
    assert by_channel.numpy() == pytest.approx(expected.numpy(), rel=0.03)
    # The components of a decoded picture are its codes: noise comes back as it went in.
    assert results[0].pull.numpy() == pytest.approx(np.ones(6), rel=0.04)
    # Noise of variance lost / explained moves pictures as far as reconstructions are.
    expected = math.sqrt((1 - explained) / explained)
    assert results[0].reconstruction == pytest.approx(1 - explained, rel=1e-4)
    assert results[0].tolerance == pytest.approx(expected, rel=0.03)


def test_a_response_of_half_the_latents_pulls_to_a_quarter(pictures):
    halving = zs.wrap(lambda x: 0.5 * x, lambda z: z, prior=None)  # R(z) = z / 2
    result = a.noise_robustness(zs.record(halving, pictures))
    assert result.pull.numpy() == pytest.approx(np.full(6, 0.25), rel=0.05)


def test_pull_does_not_count_the_error_of_reconstructions(pictures):
    """R(z) = z + 1: far from z, but noise neither grows nor shrinks."""
    moved = zs.wrap(lambda x: x + 1.0, lambda z: z, prior=None)
    result = a.noise_robustness(zs.record(moved, pictures))
    assert result.pull.numpy() == pytest.approx(np.ones(6), rel=0.05)


def test_the_quality_against_the_picture_is_that_of_noise_alone(pictures):
    x = torch.sigmoid(pictures)
    results, _ = many(identity(), x)
    sigma = float(x.std(correction=0))
    expected = [-20 * math.log10(level * sigma) for level in LEVELS]
    assert results[0].psnr.numpy() == pytest.approx(expected, abs=0.1)


def test_a_decoder_that_amplifies_fine_differences_is_fragile(pictures):
    curved = zs.wrap(lambda x: x.clone(), lambda z: z + 0.3 * (20 * z).sin(), prior=None)
    fragile = a.noise_robustness(zs.record(curved, pictures))
    # E(1 + 6 cos 20 z)² = 1 + 18 for noise far below a period; less for more of it.
    assert 4 < fragile.score < 19
    assert fragile.interval[0] < fragile.score < fragile.interval[1]
    assert float(fragile.distortion[-1]) < 2


def test_the_noise_of_training_is_that_of_the_posterior(pictures):
    model = PatchPCA(pictures, 4, 3, whiten=True, std=0.5).model()
    result = a.noise_robustness(zs.record(model, pictures), resamples=0)
    assert result.trained_noise.numpy() == pytest.approx(
        np.full(3, 0.5 / math.sqrt(1.25)), rel=1e-4
    )
    assert dict(result.summary())["noise in training"].startswith("0.45, 0.45, 0.45 ")
    marks = [each for each in result.plot().get_lines() if each.get_linestyle() == ":"]
    assert [each.get_xdata()[0] for each in marks] == pytest.approx([0.5 / math.sqrt(1.25)] * 3)
    plain = a.noise_robustness(zs.record(identity(), pictures))
    assert plain.trained_noise.tolist() == [0]
    assert "noise in training" not in dict(plain.summary())


def test_permuted_shifted_and_scaled_channels_have_the_same_gain(pictures):
    scaled = PatchPCA(pictures, 4, 3, factors=(5.0, -0.2, 1.0))
    model = zs.wrap(
        lambda x: scaled.encode(x).flip(1) + 4, lambda z: scaled.decode((z - 4).flip(1)), prior=None
    )
    _, first = many(PatchPCA(pictures, 4, 3).model(), pictures)
    _, second = many(model, pictures)
    assert second.numpy() == pytest.approx(first.numpy(), rel=0.03)
    # A decoder that does not undo the scale bears less.
    other = PatchPCA(pictures, 4, 3)
    louder = zs.wrap(other.encode, lambda z: other.decode(3 * z), prior=None)
    assert float(many(louder, pictures)[1][0]) == pytest.approx(9 * float(first[0]), rel=0.05)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0.01, 0.1), (0.04, 0.2), (0.02, math.sqrt(0.02)), (0.0004, 0.02), (0, 0), (1.01, None)],
)
def test_the_tolerance_is_interpolated_between_levels(limit, expected):
    parabola = [level**2 for level in LEVELS]
    crossing = _crossing(parabola, limit)
    assert crossing is None if expected is None else crossing == pytest.approx(expected)


def test_a_decoder_that_ignores_noise_has_no_tolerance_to_tell(pictures):
    mean = pictures.mean(0)
    model = zs.wrap(lambda x: x.clone(), lambda z: mean + 0 * z, prior=None)
    result = a.noise_robustness(zs.record(model, pictures))
    assert (result.score, result.tolerance) == (0, None)
    assert ("tolerance", "above 1") in result.summary()


def test_sound_and_video_are_measured_too():
    sound = a.noise_robustness(zs.record(sound_pooling(), dataset(sines(40))), resamples=0)
    video = a.noise_robustness(zs.record(video_pooling(), dataset(moving_squares(24))), resamples=0)
    for result in (sound, video):
        assert result.distortion.numpy() == pytest.approx(
            result.score * np.square(LEVELS), rel=0.15
        )


def test_what_cannot_be_measured_is_refused_with_the_reason(pictures):
    equal = pictures[:1].expand(20, -1, -1, -1).contiguous()
    noisy = zs.wrap(lambda x: (x, torch.zeros_like(x)), lambda z: z, prior=None)
    with pytest.raises(Undefined, match="all 20 base pictures are equal"):
        a.noise_robustness(zs.record(noisy, equal))
    larger = zs.wrap(lambda x: x.clone(), lambda z: torch.cat([z, z], 3), prior=None)
    with pytest.raises(InterfaceError, match=r"\(1, 16, 32\), but the encoder takes \(1, 16, 16\)"):
        a.noise_robustness(zs.record(larger, pictures))

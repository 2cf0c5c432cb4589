"""Equivariance against models that follow transformations exactly, and one whose error is known."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from map_worlds import (
    Identity,
    PatchPCA,
    average_pooling,
    dataset,
    identity,
    moving_squares,
    power_law,
    sines,
    sound_pooling,
    space_to_depth,
    tokens,
    video_pooling,
)

import zscope as zs
from zscope import assays as a
from zscope.errors import Undefined

OF_PICTURES = {
    "flip vertically", "flip horizontally", "turn by 90°", "turn by 180°", "turn by 270°",
    "shift along height", "shift along width", "half the size",
}  # fmt: skip


@pytest.mark.parametrize("model", [identity, average_pooling], ids=["identity", "pooling"])
def test_pooling_follows_every_transformation(model, pictures):
    result = a.equivariance(zs.record(model(), pictures))
    assert set(result.transformations) == OF_PICTURES
    for name, each in result.transformations.items():
        assert each.encoder == pytest.approx(0, abs=1e-10), name
        if name != "half the size":  # upsampling is by whole pixels
            assert each.decoder == pytest.approx(0, abs=1e-10), name
            assert each.decibels == pytest.approx(0, abs=1e-3), name
    assert result.score == pytest.approx(1, abs=1e-9)
    assert not result.left_out


def test_an_encoder_that_ignores_the_picture_s_orientation_is_at_chance():
    """Latents of places in random order: a flip of the picture does not flip them."""
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(
        lambda x: x.flatten(2)[:, :, order].reshape(x.shape),
        lambda z: z.flatten(2)[:, :, order.argsort()].reshape(z.shape),
        prior=None,
    )
    white = torch.randn(96, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    result = a.equivariance(zs.record(model, white))
    assert result.transformations["flip vertically"].encoder == pytest.approx(1, abs=0.1)
    assert result.transformations["flip vertically"].decoder == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("alpha", "tolerance"), [(2.0, 0.03), (0.0, 0.05)])
def test_space_to_depth_has_the_error_of_mirrored_channels(alpha, tolerance):
    """eps_E = 1 - rho, rho the correlation of a pixel with its horizontal neighbour of a pair."""
    x = power_law(128, 16, alpha, seed=4)
    x = x - x.mean((0, 2, 3), keepdim=True)
    recording = zs.record(space_to_depth(), x)
    result = a.equivariance(recording, resamples=0)
    # The correlation of neighbours follows from the power at each frequency.
    frequency = np.fft.fftfreq(16) * 16
    radius = np.hypot(frequency[:, None], frequency)
    radius[0, 0] = 1
    power = radius**-alpha
    rho = (power * np.cos(2 * np.pi * frequency / 16)).sum() / power.sum()
    error = result.transformations["flip horizontally"].encoder
    assert error == pytest.approx(1 - rho, abs=tolerance)
    kinds = {"flips": [], "turns": [], "shifts": [], "scaling": []}
    for name, each in result.transformations.items():
        if each.inside:
            word = "scaling" if name.startswith("half") else f"{name.split()[0]}s"
            kinds[word].append(each.encoder)
    means = {kind: np.mean(errors) for kind, errors in kinds.items() if errors}
    assert result.kinds == pytest.approx(means)
    sure = a.equivariance(recording)
    assert list(sure.kind_intervals) == list(result.kinds)
    for kind, (low, high) in sure.kind_intervals.items():
        assert (low + high) / 2 == pytest.approx(sure.kinds[kind])
    assert sum(sure.interval) / 2 == pytest.approx(sure.score)
    assert sure.interval[0] < sure.score
    # It shuffles nothing between places: whole shifts are followed exactly.
    assert result.transformations["shift along width"].encoder == pytest.approx(0, abs=1e-10)


def test_permuted_shifted_and_scaled_channels_change_nothing(pictures):
    plain = PatchPCA(pictures, 4, 3)
    moved = PatchPCA(pictures, 4, 3, factors=(5.0, -0.3, 1.0))
    order = torch.tensor([2, 0, 1])
    model = zs.wrap(
        lambda x: moved.encode(x)[:, order] + 7,
        lambda z: moved.decode((z - 7)[:, order.argsort()]),
        prior=None,
    )
    first, second = (a.equivariance(zs.record(each, pictures)) for each in (plain.model(), model))
    for name, each in first.transformations.items():
        other = second.transformations[name]
        assert other.encoder == pytest.approx(each.encoder, abs=1e-4)
        assert other.decoder == pytest.approx(each.decoder, abs=1e-4)
        assert np.array(other.channels) == pytest.approx(np.array(each.channels)[order], abs=1e-4)
    # Mixed channels in units of their own deviations are weighted otherwise.
    mix = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 2, 1]])
    mixed = zs.wrap(
        lambda x: torch.einsum("jk,nkhw->njhw", mix, plain.encode(x)),
        lambda z: plain.decode(torch.einsum("jk,nkhw->njhw", torch.linalg.inv(mix), z)),
        prior=None,
    )
    third = a.equivariance(zs.record(mixed, pictures))
    name = "flip vertically"
    assert abs(third.transformations[name].encoder - first.transformations[name].encoder) > 0.01


def test_pictures_that_the_model_cannot_reconstruct_leave_the_data():
    """Only the upper half is lit; the model knows nothing of the lower one."""
    x = torch.rand(60, 1, 16, 16, generator=torch.Generator().manual_seed(2))
    x[:, :, 8:] = 0
    known = torch.zeros(16, 1)
    known[:8] = 1
    model = zs.wrap(lambda x: x.clone(), lambda z: 0.9 * z * known, prior=None)
    result = a.equivariance(zs.record(model, x))
    flips = result.transformations
    assert flips["flip horizontally"].inside
    assert flips["flip horizontally"].ratio == pytest.approx(1, abs=1e-3)
    assert not flips["flip vertically"].inside
    assert flips["flip vertically"].ratio > 50
    # It counts neither in the score nor in its interval.
    inside = [each.encoder for each in flips.values() if each.inside]
    assert result.score == pytest.approx(1 - sum(inside) / len(inside))
    assert "outside the data" in repr(result)


def test_decibels_are_what_decoding_transformed_latents_costs(pictures):
    recording = zs.record(space_to_depth(), pictures)
    result = a.equivariance(recording, resamples=0)
    some = pictures[recording.picture_order[: result.samples]]
    flipped = F.pixel_shuffle(F.pixel_unshuffle(some, 2).flip(3), 2)
    error = (flipped - some.flip(3)).double().square().flatten(1).mean(1)
    peak = float(pictures.max() - pictures.min())
    # Reconstructions are exact, which counts as 100 dB.
    expected = 100 - float((10 * (peak**2 / error).log10()).mean())
    got = result.transformations["flip horizontally"].decibels
    assert got == pytest.approx(expected, abs=1e-4)


def test_a_model_of_one_size_leaves_scaling_out(pictures):
    pca = PatchPCA(pictures, 4, 3)  # subtracts a mean picture of 16 x 16
    result = a.equivariance(zs.record(pca.model(), pictures))
    assert result.left_out == {"half the size": "this model accepts 16x16 only"}
    assert set(result.transformations) == OF_PICTURES - {"half the size"}
    assert "left out: this model accepts 16x16 only" in str(result.summary())


def test_maps_that_are_not_square_have_no_quarter_turns():
    x = torch.rand(40, 1, 8, 12, generator=torch.Generator().manual_seed(0))
    result = a.equivariance(zs.record(average_pooling(), x))
    assert result.left_out["turns by 90°"] == "maps of 4 x 6 places are not square"
    assert not any("turn" in name for name in result.transformations)


def test_odd_and_small_maps_leave_shifts_and_scaling_out():
    x = torch.rand(40, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    result = a.equivariance(zs.record(average_pooling(3), x))
    assert "3 places for 9 pixels" in result.left_out["shift along height"]
    assert "odd number" in result.left_out["half the size"]


def test_video_and_sound_have_transformations_of_their_own():
    video = a.equivariance(zs.record(video_pooling(), dataset(moving_squares(24))))
    assert {"reverse time", "shift along time", "turn by 90°", "half the size"} <= set(
        video.transformations
    )
    assert video.score == pytest.approx(1, abs=1e-9)
    sound = a.equivariance(zs.record(sound_pooling(), dataset(sines(60))), resamples=0)
    assert set(sound.transformations) == {"reverse time", "shift along time", "half the size"}
    # Means follow the reversal of time, slopes change their sign: |s + s'|² against |s + t|².
    assert sound.transformations["reverse time"].channels[0] == pytest.approx(0, abs=1e-6)
    assert sound.transformations["reverse time"].channels[1] > 1.5
    assert sound.transformations["shift along time"].encoder == pytest.approx(0, abs=1e-6)


def test_rows_of_one_axis_of_places_are_sound_of_one_channel():
    clips = sines(60)[:, 0]
    result = a.equivariance(zs.record(tokens(), clips))
    assert result.transformations["half the size"].ratio < 1e3
    assert "reverse time" in result.transformations


def test_latents_without_places_of_the_picture_are_refused():
    flat = zs.wrap(lambda x: x.reshape(len(x), 1, 8, 8), lambda z: z.flatten(1), prior=None)
    rows = torch.rand(20, 64, generator=torch.Generator().manual_seed(0))
    with pytest.raises(Undefined, match=r"shape \(64,\) have latents of 1 x 8 x 8"):
        a.equivariance(zs.record(flat, rows))


def test_collapsed_posteriors_and_few_pictures_are_refused():
    still = zs.wrap(lambda x: (0 * x, 0 * x), lambda z: z, prior=None)
    x = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(Undefined, match="10 base pictures have identical posterior means"):
        a.equivariance(zs.record(still, x))
    with pytest.raises(Undefined, match="6 pictures were encoded, and at least 8"):
        a.equivariance(zs.record(identity(), x[:6]))
    with pytest.raises(Undefined, match="10 pictures were recorded for 64 channels.*64 are needed"):
        a.equivariance(zs.record(space_to_depth(8), power_law(10, 16, 1)))
    model = zs.wrap(Identity(), Identity(), prior=None, example=x)
    with pytest.raises(Undefined, match="posteriors were given without their pictures"):
        a.equivariance(model, model.encode(x))

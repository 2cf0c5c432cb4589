"""Locality of copies, blurs and mixtures, whose answers are known."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from map_worlds import (
    PatchPCA,
    average_pooling,
    box_blur,
    dataset,
    identity,
    moving_squares,
    power_law,
    sines,
    sound_pooling,
    tokens,
    video_pooling,
)

import zscope as zs
from zscope import assays as a
from zscope.errors import Undefined


@pytest.fixture(scope="module")
def squares():
    return power_law(64, 16, 1.0)


def test_a_copy_is_perfectly_local(squares):
    result = a.locality(zs.record(identity(), squares))
    assert result.score == pytest.approx(1)
    assert result.interval == pytest.approx((1, 1))
    assert result.reach == 0
    assert result.gain.tolist() == pytest.approx([1])
    assert result.crosstalk.tolist() == [0]
    assert result.chance == 1 / 256


def test_a_box_blur_keeps_a_ninth_and_reaches_one_place(squares):
    result = a.locality(zs.record(box_blur(), squares))
    assert result.score == pytest.approx(1 / 9)
    assert result.gain.tolist() == pytest.approx([1 / 9])
    assert result.reach == 1
    assert result.within[1:].numpy() == pytest.approx(np.ones(len(result.within) - 1))


def test_pooling_and_components_of_patches_are_local(pictures):
    for model in (average_pooling(), PatchPCA(pictures, 4, 3).model()):
        result = a.locality(zs.record(model, pictures))
        assert result.score == pytest.approx(1)
        assert result.gain.numpy() == pytest.approx(np.ones(len(result.gain)), abs=1e-4)
        assert result.crosstalk.numpy() == pytest.approx(np.zeros(len(result.gain)), abs=1e-6)


@pytest.mark.parametrize(("noise", "score"), [(3.0, (1 + 1 / 9) / 2), (30.0, 1.0)])
def test_channels_that_are_nearly_all_noise_do_not_count(squares, noise, score):
    """A copy, and a blur of which 90 % or 99.9 % are noise of the posterior."""
    x = torch.cat([squares, squares.flip(0)], 1)
    x = x / x.std((0, 2, 3), correction=0, keepdim=True)
    spread = torch.tensor([0.1, noise]).reshape(-1, 1, 1)
    kernel = torch.full((1, 1, 3, 3), 1 / 9)

    def decode(z):
        return torch.cat([z[:, :1], F.conv2d(z[:, 1:], kernel, padding=1)], 1)

    model = zs.wrap(lambda x: (x.clone(), spread.expand_as(x).square().log()), decode, prior=None)
    result = a.locality(zs.record(model, x))
    assert result.by_channel.tolist() == pytest.approx([1, 1 / 9], rel=1e-4)
    assert result.score == pytest.approx(score, rel=1e-4)


def test_a_response_spread_over_the_whole_map_is_at_chance(squares):
    small = F.avg_pool2d(squares, 2)

    def spread(z):
        return z.mean((2, 3), keepdim=True).expand_as(z)

    model = zs.wrap(lambda x: x.clone(), spread, prior=None)
    result = a.locality(zs.record(model, small))
    assert result.score == pytest.approx(1 / 64)
    assert result.score == pytest.approx(result.chance)


def test_mixed_channels_are_crosstalk(squares):
    """R_0 = 0.8 z_0 + 0.6 z_1 and R_1 = 0.8 z_1 - 0.6 z_0, with equal variances."""
    x = torch.cat([squares, power_law(64, 16, 1.0, seed=1)], 1)
    turn = torch.tensor([[0.8, 0.6], [-0.6, 0.8]])
    model = zs.wrap(
        lambda x: x.clone(), lambda z: torch.einsum("jk,nkhw->njhw", turn, z), prior=None
    )
    result = a.locality(zs.record(model, x))
    assert result.score == pytest.approx(1)
    assert result.gain.numpy() == pytest.approx([0.8, 0.8], abs=1e-5)
    assert result.crosstalk.numpy() == pytest.approx([0.36, 0.36], rel=0.02)


def test_distances_are_those_of_the_farther_axis(squares):
    moved = zs.wrap(lambda x: x.clone(), lambda z: z.roll((1, -2), (2, 3)), prior=None)
    result = a.locality(zs.record(moved, squares))
    assert result.reach == 2
    assert result.within[:3].tolist() == [0, 0, pytest.approx(1)]
    assert result.gain.tolist() == [0]


def test_permuted_shifted_and_scaled_channels_change_nothing(pictures):
    kernel = torch.full((3, 1, 3, 3), 1 / 9)

    def model(factors, order):
        pca, order = PatchPCA(pictures, 4, 3, factors=factors), torch.tensor(order)

        def decode(z):
            z = (z - 5)[:, order.argsort()]
            scale = pca.scale.float()[:, None, None]
            return pca.decode(F.conv2d(z / scale, kernel, padding=1, groups=3) * scale)

        return zs.wrap(lambda x: pca.encode(x)[:, order] + 5, decode, prior=None)

    plain = a.locality(zs.record(model((1, 1, 1), [0, 1, 2]), pictures))
    moved = a.locality(zs.record(model((7, -0.1, 2), [2, 0, 1]), pictures))
    assert moved.score == pytest.approx(plain.score, rel=1e-3)
    assert moved.gain.numpy() == pytest.approx(plain.gain.numpy()[[2, 0, 1]], rel=1e-3)
    # A decoder that mixes channels has another answer.
    pca = PatchPCA(pictures, 4, 3)
    mixed = zs.wrap(pca.encode, lambda z: pca.decode(z + z.roll(1, 1)), prior=None)
    assert float(a.locality(zs.record(mixed, pictures)).crosstalk.mean()) > 0.1


def test_the_answer_agrees_with_a_loop_over_pictures_and_channels(pictures):
    """One picture, one channel and one place at a time, in NumPy."""
    kernel = torch.tensor([[0, 0.2, 0], [0.1, 0.5, 0.1], [0, 0, 0.3]])

    def decode(z):
        blurred = F.conv2d(z, kernel.to(z).expand(2, 1, 3, 3), padding=1, groups=2)
        return blurred + 0.3 * z.flip(1).tanh()

    x = torch.cat([pictures, pictures.roll(5, 0).square()], 1)[:24]
    recording = zs.record(zs.wrap(lambda x: x.clone(), decode, prior=None), x)
    source = torch.Generator().manual_seed(3)
    result = a.locality(recording, generator=source, resamples=0)
    source.manual_seed(3)  # the same places
    places = torch.stack([2 + torch.randint(12, (24,), generator=source) for _ in range(2)], 1)
    order = recording.picture_order
    z, sigma = x[order].double(), x.double().std((0, 2, 3), correction=0).numpy()
    energy, gain = np.zeros((2, 16)), np.zeros((2, 2))
    for i, (row, column) in enumerate(places.tolist()):
        for j in range(2):
            changed = z[i : i + 1].clone()
            changed[0, j, row, column] = z[(i + 1) % 24, j, row, column]
            made = float(changed[0, j, row, column] - z[i, j, row, column]) / sigma[j]
            after = (decode(changed) - decode(z[i : i + 1]))[0].numpy() / sigma[:, None, None]
            for p in range(16):
                for q in range(16):
                    energy[j, max(abs(p - row), abs(q - column))] += (after[:, p, q] ** 2).sum()
            gain[j] += after[j, row, column] * made, made**2
    assert result.by_channel.numpy() == pytest.approx(energy[:, 0] / energy.sum(1), rel=1e-4)
    assert result.gain.numpy() == pytest.approx(gain[:, 0] / gain[:, 1], rel=1e-4)
    assert float(result.within[1]) == pytest.approx(
        (energy[:, :2].sum(1) / energy.sum(1)).mean(), rel=1e-4
    )


def test_a_dead_channel_is_silent_and_counts_nowhere(pictures):
    """The encoder has noise in the second channel, which the decoder does not look at."""
    noise = torch.randn(96, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    x = torch.cat([pictures, 1e-3 * noise], 1)

    def decode(z):
        return torch.cat([z[:, :1], 0 * z[:, 1:]], 1)

    result = a.locality(zs.record(zs.wrap(lambda x: x.clone(), decode, prior=None), x))
    assert result.silent == [1]
    assert result.score == pytest.approx(1)
    assert [float(result.by_channel[1]), float(result.gain[1])] == [0, 0]
    assert float(result.crosstalk[1]) == 0


@pytest.mark.parametrize(
    ("model", "observations", "distances"),
    [(sound_pooling(), sines(40), 14), (video_pooling(), moving_squares(24), 6)],
    ids=["sound", "video"],
)
def test_sound_and_video_are_local_too(model, observations, distances):
    result = a.locality(zs.record(model, dataset(observations)))
    assert result.score == pytest.approx(1, abs=1e-6)
    assert len(result.within) <= distances


def test_tokens_that_attend_to_one_another_are_not_quite_local():
    result = a.locality(zs.record(tokens(), sines(60)[:, 0]))
    assert 0.5 < result.score < 0.999


def test_a_decoder_that_ignores_everything_is_refused(squares):
    model = zs.wrap(lambda x: x.clone(), lambda z: 0 * z, prior=None)
    with pytest.raises(Undefined, match=r"no response changes.*\(1 channels\).*unit-importance"):
        a.locality(zs.record(model, squares))


def test_the_cost_does_not_depend_on_the_size_of_the_maps():
    from map_worlds import Counting

    counts = []
    for side in (8, 32):
        counting = Counting(lambda x: x.clone(), lambda z: z.clone())
        recording = zs.record(counting.model, power_law(40, side, 1.0))
        a.locality(recording)  # learns how much memory a pass takes
        again = zs.record(counting.model, power_law(40, side, 1.0))
        counting.decodings = counting.encodings = 0
        a.locality(again)
        counts.append((counting.decodings, counting.encodings))
    assert counts[0] == counts[1] == (80, 80)


def test_maps_that_are_compared_a_few_at_a_time_give_the_same(pictures, monkeypatch):
    recording = zs.record(PatchPCA(pictures, 4, 3).model(), pictures)
    whole = a.locality(recording)
    monkeypatch.setattr("zscope.assays.diffusion.locality.MAP_BYTES", 1)
    few = a.locality(zs.record(PatchPCA(pictures, 4, 3).model(), pictures))
    assert few.score == whole.score
    assert torch.equal(few.within, whole.within)
    assert torch.equal(few.crosstalk, whole.crosstalk)

"""Importance of channels: known for principal components, copies and dead channels."""

import numpy as np
import pytest
import torch
from map_worlds import PatchPCA, average_pooling, dataset, sines, sound_pooling

import zscope as zs
from zscope import assays as a
from zscope.errors import Undefined


@pytest.mark.parametrize("whiten", [False, True])
def test_components_are_worth_their_share_of_the_variance(pictures, whiten):
    pca = PatchPCA(pictures, 4, 5, whiten=whiten)
    result = a.unit_importance(zs.record(pca.model(), pictures))
    expected = (pca.variances / pca.all_variances.sum()).numpy()
    assert result.importance.numpy() == pytest.approx(expected, abs=1e-6)
    assert result.alone.numpy() == pytest.approx(expected, abs=1e-6)
    assert result.explained == pytest.approx(expected.sum(), abs=1e-6)
    assert result.score == pytest.approx(expected.max(), abs=1e-6)
    assert result.unit_names[0] == "channel 0"


def test_the_interval_of_a_share_is_narrower_than_that_of_what_it_is_a_share_of():
    """Pictures of high contrast are explained badly, by either channel alike."""
    generator = torch.Generator().manual_seed(0)
    contrast = torch.randn(200, 1, 1, 1, generator=generator).exp()
    x = contrast * torch.randn(200, 2, 8, 8, generator=generator)
    strong = torch.tensor([3.0, 1.0]).reshape(-1, 1, 1)

    x, decode = x * strong, lambda z: z.clamp(-4 * strong, 4 * strong)
    model = zs.wrap(lambda x: x.clone(), decode, prior=None)
    result = a.unit_importance(zs.record(model, x))
    share = float(result.alone[0]) / result.explained
    low, high = result.share_interval[0].tolist()
    assert low < share < high
    apart = result.alone_interval[0] / result.explained
    assert high - low < 0.5 * float(apart[1] - apart[0])


def test_without_anything_explained_there_are_no_shares(pictures):
    model = zs.wrap(lambda x: x.clone(), lambda z: -z, prior=None)
    assert a.unit_importance(zs.record(model, pictures)).share_interval is None


def test_one_channel_alone_is_everything(pictures):
    result = a.unit_importance(zs.record(average_pooling(), pictures))
    assert float(result.importance[0]) == pytest.approx(result.explained)
    assert float(result.alone[0]) == pytest.approx(result.explained)


def test_channels_with_the_same_content_are_worth_little_each_and_much_alone(pictures):
    """The decoder takes the mean of two copies: without one, half of the change is left."""
    twice = zs.wrap(lambda x: torch.cat([x, x], 1), lambda z: z.mean(1, keepdim=True), prior=None)
    result = a.unit_importance(zs.record(twice, pictures))
    assert result.importance.numpy() == pytest.approx([0.25, 0.25], abs=1e-6)
    assert result.alone.numpy() == pytest.approx([0.75, 0.75], abs=1e-6)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_dead_channel_is_worth_nothing_and_a_harmful_one_less(pictures, weight):
    """The decoder adds the second channel, which is noise, to the picture of the first."""
    noise = torch.randn(96, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    x = torch.cat([pictures, noise - noise.mean(0)], 1)

    def decode(z):
        return torch.cat([z[:, :1] + weight * z[:, 1:], 0 * z[:, 1:]], 1)

    result = a.unit_importance(zs.record(zs.wrap(lambda x: x.clone(), decode, prior=None), x))
    powers = x.double().square().mean((0, 2, 3))
    expected = -(weight**2) * float(powers[1] / powers.sum())
    assert float(result.importance[1]) == pytest.approx(expected, abs=1e-6)
    assert float(result.alone[0]) == pytest.approx(float(powers[0] / powers.sum()), abs=1e-6)


def test_permuted_shifted_and_scaled_channels_change_nothing(pictures):
    scaled = PatchPCA(pictures, 4, 3, factors=(5.0, -0.2, 1.0))
    model = zs.wrap(
        lambda x: scaled.encode(x).flip(1) + 4, lambda z: scaled.decode((z - 4).flip(1)), prior=None
    )
    first = a.unit_importance(zs.record(PatchPCA(pictures, 4, 3).model(), pictures))
    second = a.unit_importance(zs.record(model, pictures))
    assert second.importance.flip(0).numpy() == pytest.approx(first.importance.numpy(), abs=1e-5)
    # Mixing them does change it.
    mix = torch.tensor([[1.0, 1, 0], [0, 1, 0], [0, 0, 1]])
    plain = PatchPCA(pictures, 4, 3)
    mixed = zs.wrap(
        lambda x: torch.einsum("jk,nkhw->njhw", mix, plain.encode(x)),
        lambda z: plain.decode(torch.einsum("jk,nkhw->njhw", torch.linalg.inv(mix), z)),
        prior=None,
    )
    third = a.unit_importance(zs.record(mixed, pictures))
    assert abs(float(third.importance[1] - first.importance[1])) > 0.02


def test_agrees_with_a_loop_over_channels(pictures):
    """NumPy, one channel at a time, on a decoder that is not linear."""
    x = torch.cat([pictures, pictures.roll(1, 0), pictures.roll(2, 0).square()], 1)

    def decode(z):
        return z + 0.5 * z.roll(1, 1) * z

    result = a.unit_importance(zs.record(zs.wrap(lambda x: x.clone(), decode, prior=None), x))
    numbers = x.double().numpy()
    total = ((numbers - numbers.mean(0)) ** 2).sum()

    def explained(codes):
        return 1 - ((decode(torch.from_numpy(codes)).numpy() - numbers) ** 2).sum() / total

    for k in range(3):
        without, alone = numbers.copy(), np.broadcast_to(numbers.mean(0), numbers.shape).copy()
        without[:, k], alone[:, k] = numbers[:, k].mean(0), numbers[:, k]
        loss = explained(numbers) - explained(without)
        assert float(result.importance[k]) == pytest.approx(loss, rel=1e-4)
        assert float(result.alone[k]) == pytest.approx(explained(alone), rel=1e-4)


def test_intervals_are_over_pictures(pictures):
    result = a.unit_importance(zs.record(PatchPCA(pictures, 4, 3).model(), pictures))
    low, high = result.importance_interval.T
    assert bool((low < result.importance).all())
    assert bool((result.importance < high).all())
    assert result.interval == pytest.approx(tuple(result.importance_interval[0].tolist()))


def test_the_mean_map_differs_from_place_to_place():
    """A channel with a fixed pattern loses nothing when it is replaced by its mean map."""
    generator = torch.Generator().manual_seed(0)
    pattern = torch.randn(1, 1, 8, 8, generator=generator)
    noise = torch.randn(40, 1, 8, 8, generator=generator)
    x = torch.cat([noise, pattern.expand(40, -1, -1, -1)], 1).contiguous()
    result = a.unit_importance(zs.record(zs.wrap(lambda x: x.clone(), lambda z: z, prior=None), x))
    assert result.importance.numpy() == pytest.approx([1, 0], abs=1e-6)


def test_sound_and_refusals(pictures):
    sound = a.unit_importance(zs.record(sound_pooling(), dataset(sines(40))))
    assert 0 < float(sound.importance[1]) < float(sound.importance[0])
    model = zs.wrap(lambda x: (x, torch.zeros_like(x)), lambda z: z, prior=None)
    with pytest.raises(Undefined, match="all 20 base pictures are equal"):
        a.unit_importance(zs.record(model, pictures[:1].expand(20, -1, -1, -1).contiguous()))
    vector = zs.wrap(lambda x: x.flatten(1), lambda z: z.reshape(-1, 1, 16, 16), prior=None)
    with pytest.raises(Undefined, match="a vector, without channels and places"):
        a.unit_importance(zs.record(vector, pictures))
    assert np.isfinite(sound.score)

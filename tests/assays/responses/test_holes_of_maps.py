"""Holes of latents that are maps, and hybrids of their channels."""

import pytest
import torch
from map_worlds import Counting, PatchPCA, identity, power_law

import zscope as zs
from zscope import assays as a
from zscope.assays import CATALOGUE
from zscope.assays.run import passes
from zscope.errors import ConfigError, Undefined


def twins(pictures: int = 60, side: int = 8):
    """Pictures with two equal colours."""
    return power_law(pictures, side, 2.0).repeat(1, 2, 1, 1)


def averaging(scale=(1.0, 1.0), shift=(0.0, 0.0), swap: bool = False):
    """A decoder that gives both colours the mean of both channels."""
    scales, shifts = (torch.tensor(each)[:, None, None] for each in (scale, shift))

    def encode(x):
        z = x.flip(1) if swap else x
        return z * scales + shifts

    def decode(z):
        return ((z - shifts) / scales).mean(1, keepdim=True).expand(-1, 2, -1, -1)

    return zs.wrap(encode, decode, prior=None)


def test_hybrids_of_equal_channels_fall_into_holes_and_those_of_patches_do_not():
    recording = zs.record(averaging(), twins())
    channels, patches = a.holes(recording), a.holes(recording, units="patch:4")
    assert channels.source == "channel hybrid"
    assert channels.score > 0.9  # a few hybrids have both channels of one picture
    assert patches.source == "patch:4 hybrid"
    assert patches.score == 0
    assert channels.unit == patches.unit == "channel"


@pytest.mark.parametrize("name", ["holes", "structure-score", "causal-structure-score"])
def test_hybrids_of_many_units_cost_no_more_than_those_of_channels(name):
    """1,024 single latents, of which hybrids are as many as of two channels."""
    entry, world = CATALOGUE[name], Counting(lambda x: x.clone(), lambda z: z.clone())
    recording = zs.record(world.model, twins(side=32))
    entry.load()(recording)
    decodings = []
    for units in ("channel", "latent", [[j] for j in range(2048)]):
        before = world.decodings
        result = entry.load()(recording, units=units, samples=32)
        decodings.append(world.decodings - before)
        assert result.unit == "channel"
    assert decodings[0] == decodings[1] == decodings[2]
    if name == "holes":
        found = a.holes(recording, units="latent")
        assert found.score == 0
        assert "single latent hybrid" in repr(found)
        assert a.holes(zs.record(averaging(), twins(side=32)), units="latent").score == 1


def test_the_displacement_is_the_norm_over_all_latents_in_units_of_each_channel():
    recording = zs.record(averaging(), twins())
    generator = torch.Generator().manual_seed(3)
    codes = torch.randn(5, 128, generator=generator)
    found = a.hole_score(recording.autoencoder, codes, recording, samples=60)
    sigma = float(recording.codes[:, :64].double().std(correction=0))
    half = (codes[:, :64] - codes[:, 64:]).double() / 2
    expected = half.square().sum(1).mul(2).sqrt() / sigma
    assert torch.allclose(found.displacement, expected, rtol=1e-4)


def test_order_shift_and_scale_of_channels_change_nothing():
    generator = torch.Generator().manual_seed(3)
    codes = torch.randn(20, 2, 8, 8, generator=generator)
    recording = zs.record(averaging(), twins())
    plain = a.hole_score(recording.autoencoder, codes.flatten(1), recording)
    other = averaging((0.1, 30.0), (5.0, -2.0), swap=True)
    moved = codes.flip(1) * torch.tensor([0.1, 30.0])[:, None, None]
    moved = moved + torch.tensor([5.0, -2.0])[:, None, None]
    found = a.hole_score(other, moved.flatten(1), zs.record(other, twins()))
    assert torch.allclose(found.displacement, plain.displacement, rtol=1e-3)
    # The control: in units of the latents themselves it would be dominated by one channel.
    raw = (zs.assays.response(other, moved.flatten(1)).displacement).norm(dim=1)
    assert not torch.allclose(raw.double(), plain.displacement, rtol=0.5)


def test_the_identity_and_patch_pca_have_no_holes():
    x = power_law(60, 16, 2.0)
    for model in (identity(), PatchPCA(x, 4, 3).model()):
        for options in ({}, {"units": "place"}):
            assert a.holes(zs.record(model, x), **options).score == 0


def test_the_limit_is_the_95_percent_quantile_of_a_few_pictures():
    def bent(z):
        return z + 0.1 * z.square()

    x = power_law(100, 8, 2.0, colours=2)
    recording = zs.record(zs.wrap(lambda x: x.clone(), bent, prior=None), x)
    found = a.holes(recording)
    assert found.limit == pytest.approx(float(torch.quantile(found.reference, 0.95)))
    assert found.chance == pytest.approx(0.05, abs=0.01)
    own = a.holes(recording, quantile=0.5)
    assert own.limit == pytest.approx(float(torch.quantile(own.reference, 0.5)))


def test_channels_that_the_decoder_ignores_are_named():
    def first(z):
        return torch.cat([z[:, :1], 0 * z[:, 1:]], 1)

    x = power_law(40, 8, 2.0, colours=2)
    found = a.holes(zs.record(zs.wrap(lambda x: x.clone(), first, prior=None), x))
    assert found.ignored == [1]
    assert "ignored channels" in repr(found)
    nothing = zs.wrap(lambda x: x.clone(), lambda z: 0 * z, prior=None)
    with pytest.raises(Undefined, match="none of the 2 channels is in use"):
        a.holes(zs.record(nothing, x))


def test_prior_samples_are_on_request():
    x = power_law(40, 8, 2.0, colours=2)
    model = zs.wrap(lambda x: (x, torch.full_like(x, -8.0)), lambda z: z.clone())
    recording = zs.record(model, x)
    assert a.holes(recording).source == "channel hybrid"
    assert a.holes(recording, base="prior").source == "prior"
    with pytest.raises(Undefined, match="has no prior"):
        a.holes(zs.record(identity(), x), base="prior")
    with pytest.raises(ConfigError, match="prior or hybrid"):
        a.holes(recording, base="posterior")


def test_decoded_hybrids_are_compared_with_pictures_and_codes_are_not():
    amount = torch.randn(200, 2, 1, 1, generator=torch.Generator().manual_seed(0))
    pattern = power_law(1, 8, 2.0)
    equal, apart = amount[:, :1] * pattern.repeat(1, 2, 1, 1), amount * pattern
    far = {}
    for name, x in (("equal", equal), ("apart", apart)):
        found = a.holes(zs.record(identity(), x))
        assert found.score == 0
        assert found.code_distance is None
        far[name] = float((found.data_distance > found.data_limit).double().mean())
    # Two equal colours become two different ones, unlike every picture.
    assert far["equal"] > 0.8
    assert far["apart"] < 0.2
    codes_alone = zs.Posterior(equal.flatten(1), layout=zs.Layout(2, (8, 8)))
    assert a.holes(identity(), codes_alone).unlike_data == []


def test_the_cost_is_that_stated_for_any_size_of_maps():
    counts = []
    for side in (8, 32):
        world = Counting(lambda x: x.clone(), lambda z: z.clone())
        recording = zs.record(world.model, power_law(200, side, 2.0, colours=4))
        assert recording.used == [0, 1, 2, 3]  # is known to all assays
        stated = passes(CATALOGUE["holes"], recording, {})
        assert stated == 2 * 128
        world.decodings = world.encodings = 0
        a.holes(recording)
        assert max(world.decodings, world.encodings) == pytest.approx(stated, abs=2)
        counts.append((world.decodings, world.encodings))
        a.response_matrix(recording)  # shares the base pictures
        assert world.encodings == pytest.approx(stated + 4 * 128, abs=2)
    assert counts[0] == counts[1]


def test_hybrids_of_maps_are_those_of_channels():
    layout = zs.Layout(3, (4,))
    codes = torch.arange(60.0).reshape(5, 12)
    posterior = zs.Posterior(codes, layout=layout)
    for source in (posterior, zs.Recording(None, posterior)):
        drawn = zs.sampling.hybrid(source, 40, generator=torch.Generator().manual_seed(0))
        rows = (drawn.reshape(40, 3, 4) - torch.arange(12.0).reshape(3, 4)) / 12
        assert (rows == rows[..., :1]).all()  # each channel is that of one code
        assert (rows[:, 0] != rows[:, 1]).any()
    # Without a layout, latents are drawn one by one.
    single = zs.sampling.hybrid(codes, 40, generator=torch.Generator().manual_seed(0))
    rows = (single.reshape(40, 3, 4) - torch.arange(12.0).reshape(3, 4)) / 12
    assert (rows != rows[..., :1]).any()
    with pytest.raises(ConfigError, match="there are 3"):
        zs.sampling.hybrid(posterior, 2, base=codes[0], vary=[3])


@pytest.mark.parametrize("first", ["response-matrix", "response", "locality"])
def test_the_base_pictures_are_decoded_once_whichever_assay_comes_first(first):
    world = Counting(lambda x: x.clone(), lambda z: z.clone())
    recording = zs.record(world.model, power_law(200, 8, 2.0, colours=4))
    assert recording.used == [0, 1, 2, 3]
    CATALOGUE[first].load()(recording)
    world.decodings = world.encodings = 0
    a.holes(recording)  # the hybrids alone are new
    assert (world.decodings, world.encodings) == (128, 128)


def test_no_hole_at_all_has_an_interval_from_0_exactly():
    for count in (16, 60, 96):
        found = a.holes(zs.record(identity(), power_law(count, 8, 2.0)))
        assert found.score == 0
        assert found.interval[0] == 0
        assert 0 < found.interval[1] < 0.4

"""Interventional consistency of the channels of latents that are maps."""

import pytest
import torch
import torch.nn.functional as F
from map_worlds import Counting, PatchPCA, identity, power_law, space_to_depth

import zscope as zs
from zscope import assays as a
from zscope.assays import CATALOGUE
from zscope.assays.run import passes
from zscope.errors import Undefined


def coloured(pictures: int = 40, colours: int = 3, side: int = 8):
    return power_law(pictures, side, 2.0, colours=colours)


def mixing(matrix, *, scale=None, shift=None, order=None):
    """Channels that respond with a mixture of all channels at the same place."""
    count = len(matrix)
    scale = torch.ones(count) if scale is None else scale
    shift = torch.zeros(count) if shift is None else shift
    order = torch.arange(count) if order is None else order

    def encode(x):
        z = torch.einsum("jk,nkhw->njhw", matrix, x)[:, order]
        return z * scale[:, None, None] + shift[:, None, None]

    def decode(z):
        return ((z - shift[:, None, None]) / scale[:, None, None])[:, order.argsort()]

    return zs.wrap(encode, decode, prior=None)


def test_the_identity_is_consistent_in_every_way():
    found = a.interventional_consistency(zs.record(identity(), coloured()))
    expected = 1 - torch.eye(3, dtype=torch.float64)
    assert torch.allclose(found.invariance, expected, atol=1e-9)
    assert (found.equivariance == 1).all()
    assert set(found.self_consistency) == {"posterior", "hybrid"}
    assert all((score == 1).all() for score in found.self_consistency.values())
    assert (found.base, found.interventions, found.samples) == ("hybrid", 4, 32)
    assert found.unit_names == ("channel 0", "channel 1", "channel 2")
    assert found.intervened is None
    assert {"groups", "intervened"}.isdisjoint(found.to_dict())


def test_patch_pca_is_consistent():
    x = power_law(60, 16, 2.0)
    found = a.interventional_consistency(zs.record(PatchPCA(x, 4, 3).model(), x))
    assert found.means["invariance"] == pytest.approx(1, abs=1e-4)
    assert found.means["equivariance"] == pytest.approx(1, abs=1e-4)


def test_an_intervention_sets_a_channel_to_another_picture_s_map():
    """Not to one number: every changed channel is one of the recorded maps, the same for all N."""
    seen = []

    def decode(z):
        seen.append(z.clone())
        return z.clone()

    recording = zs.record(zs.wrap(lambda x: x.clone(), decode, prior=None), coloured())
    recording.used  # noqa: B018 (decodes, and is shared)
    seen.clear()
    a.interventional_consistency(recording)
    codes = torch.cat([part.flatten(1) for part in seen if len(part) > 2])
    maps = recording.codes.reshape(-1, 3, 64)
    known = {tuple(row) for row in maps[:, 1].tolist()}
    changed = codes.reshape(-1, 3, 64)
    start = next(k for k in range(len(changed)) if len(changed) - k == 32 + 3 * 4 * 32)
    second = changed[start : start + 3 * 4 * 32].reshape(3, 4, 32, 3, 64)[1, :, :, 1]
    assert (second == second[:, :1]).all()  # one map for all 32 vectors
    assert all(tuple(row) in known for row in second[:, 0].tolist())
    assert second.std(-1).min() > 0.01


def test_invariance_of_a_mixture_has_its_closed_form():
    """R = M z: channel i moves by M_im times what channel m does, in units of both spreads."""
    mix = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.3, 0.0, 1.0]])
    seen = []
    model = zs.wrap(
        lambda x: torch.einsum("jk,nkhw->njhw", mix, x),
        lambda z: seen.append(z.clone()) or z.clone(),
        prior=None,
    )
    found = a.interventional_consistency(zs.record(model, coloured(60)), samples=50)
    drawn = next(batch for batch in seen if len(batch) == 50).reshape(50, 3, 64)
    before = torch.einsum("jk,nkp->njp", mix, drawn).double()
    sigma = before.var(0, correction=0).sum(1).sqrt()
    expected = 1 - mix.T.abs() * sigma[:, None] / sigma
    assert torch.allclose(found.invariance, expected, atol=1e-5)


def test_order_shift_and_scale_of_channels_change_nothing():
    mix = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.8, 0.0], [0.3, 0.0, 0.6]])
    order = torch.tensor([2, 0, 1])
    other = mixing(
        mix, scale=torch.tensor([0.2, 9.0, 3.0]), shift=torch.tensor([5.0, -1.0, 2.0]), order=order
    )
    plain, found = (
        a.interventional_consistency(zs.record(model, coloured()), base="posterior")
        for model in (mixing(mix), other)
    )
    for name in ("invariance", "equivariance"):
        expected = getattr(plain, name)[order][:, order]
        assert torch.allclose(getattr(found, name), expected, atol=1e-4), name
    # The control: as printed, sizes are not in units of each channel.
    paper = a.interventional_consistency(
        zs.record(other, coloured()), base="posterior", flavour="paper"
    )
    assert not torch.allclose(paper.invariance, found.invariance, atol=0.1)


def test_a_dead_channel_is_collapsed():
    found = a.interventional_consistency(
        zs.record(mixing(torch.diag(torch.tensor([1.0, 0.0, 1.0]))), coloured())
    )
    assert found.collapsed == [1]
    assert found.means["invariance"] == pytest.approx(1)


def test_of_many_channels_the_sixteen_of_largest_variance_are_changed():
    x = power_law(80, 20, 1.0)  # 25 channels of 4 x 4
    recording = zs.record(space_to_depth(5), x)
    found = a.interventional_consistency(recording, resamples=20)
    assert found.invariance.shape == found.equivariance.shape == (16, 25)
    variance = recording.codes.reshape(-1, 25, 16).var(0, correction=0).sum(1)
    assert found.intervened == sorted(variance.argsort(descending=True)[:16].tolist())
    own = found.invariance[range(16), found.intervened]
    assert own.tolist() == pytest.approx([0] * 16, abs=1e-6)
    assert found.means["invariance"] == pytest.approx(1)
    assert found.means["equivariance"] == pytest.approx(1)
    assert found.by_unit("invariance").tolist() == pytest.approx([1] * 25)
    low, _ = found.intervals["invariance"]
    assert low <= found.means["invariance"] + 1e-9
    assert found.to_dict()["intervened"] == found.intervened
    assert "intervened on" in repr(found)
    import matplotlib

    matplotlib.use("agg")
    assert found.plot().get_ylabel() == "intervened channel"


def test_the_cost_is_that_stated_for_any_size_of_maps():
    counts = []
    for side in (8, 32):
        world = Counting(lambda x: x.clone(), lambda z: z.clone())
        recording = zs.record(world.model, coloured(60, 4, side))
        assert len(recording.used) == 4
        stated = passes(CATALOGUE["interventional-consistency"], recording, {})
        assert stated == 4 * 32 * 4 + 2 * 32
        world.decodings = world.encodings = 0
        a.interventional_consistency(recording)
        assert max(world.decodings, world.encodings) == pytest.approx(stated, abs=2)
        counts.append(world.decodings)
    assert counts[0] == counts[1]


def test_many_channels_cost_no_more_than_sixteen():
    world = Counting(lambda x: F.pixel_unshuffle(x, 5), lambda z: F.pixel_shuffle(z, 5))
    recording = zs.record(world.model, power_law(60, 20, 1.0))
    entry = CATALOGUE["interventional-consistency"]
    assert len(recording.used) == 25
    world.decodings = 0
    a.interventional_consistency(recording)
    assert passes(entry, recording, {}) == 4 * 32 * 16 + 2 * 32
    assert world.decodings == pytest.approx(4 * 32 * 16 + 2 * 32, abs=2)


def test_white_maps_are_drawn_only_on_request():
    x = coloured()
    model = zs.wrap(lambda x: (x, torch.full_like(x, -8.0)), lambda z: z.clone())
    recording = zs.record(model, x)
    assert a.interventional_consistency(recording).base == "hybrid"
    asked = a.interventional_consistency(recording, base="prior")
    assert set(asked.self_consistency) == {"prior", "posterior", "hybrid"}


def test_refusals():
    with pytest.raises(Undefined, match="7 pictures for 3 units"):
        a.interventional_consistency(zs.record(identity(), coloured(7)))
    many = zs.record(identity(), coloured(40, 3, 16))
    with pytest.raises(Undefined, match=r"40 pictures for 768 units \(latent\); at least 768"):
        a.interventional_consistency(many, units="latent")


def test_of_many_units_sixteen_are_changed_which_costs_no_more():
    recording = zs.record(identity(), coloured(600, 3, 14))
    found = a.interventional_consistency(recording, units="latent")
    assert len(found.intervened) == 16
    assert len(found.groups) == 588
    assert found.means["invariance"] == pytest.approx(1)
    assert found.means["equivariance"] == pytest.approx(1)

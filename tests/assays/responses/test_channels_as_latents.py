"""What else is asked about responses, of the channels of maps: hybrids, traversals, maps, paths."""

import math

import pytest
import torch
from map_worlds import (
    Counting,
    PatchPCA,
    identity,
    moving_squares,
    power_law,
    sines,
    sound_pooling,
    video_pooling,
)

import zscope as zs
from zscope import assays as a
from zscope.assays import CATALOGUE
from zscope.assays.run import passes
from zscope.errors import ConfigError


@pytest.fixture(scope="module")
def same():
    """The identity of 60 pictures with 3 colours."""
    return zs.record(identity(), power_law(60, 8, 2.0, colours=3))


@pytest.fixture(scope="module")
def halved():
    """Responses are half of the codes, with channels of different scale, moved away from 0."""
    scale = torch.tensor([1.0, 10.0, 0.1])[:, None, None]
    model = zs.wrap(lambda x: 0.5 * x * scale, lambda z: z / scale, prior=None)
    return zs.record(model, power_law(60, 8, 2.0, colours=3))


OFFSETS = ["traversal-responses", "response-map", "manifold-path", "drift"]


@pytest.mark.parametrize("name", [*OFFSETS, "response", "hybridisation"])
def test_each_is_measured_by_name_and_speaks_of_channels(same, name):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.text import Text

    found = zs.assay(same, names=[name]).results[name]
    assert CATALOGUE[name].maps_on_request == (name in OFFSETS)
    assert (found.unit, len(found.unit_names)) == ("channel", 3)
    assert "latent" not in repr(found).lower()
    axes = found.plot()
    figure = axes if hasattr(axes, "savefig") else axes.get_figure()
    words = [text.get_text() for text in figure.findobj(Text)]
    assert not [word for word in words if "latent" in word.lower()]
    plt.close("all")
    if name not in OFFSETS:  # maps and paths have their own size, whatever the size of the latents
        assert len(str(found.to_dict())) < 4_000


def test_traversals_of_the_identity_have_no_error(same):
    found = a.traversal_responses(same)
    assert found.error.shape[0] == found.error.shape[3] == 3
    assert float(found.error.abs().max()) < 1e-6


def test_traversals_in_units_of_each_channel(halved):
    """R(z) = z/2, as offsets from the map m: error_k = u_k/2 + mean(m_k) / (2 sigma_k)."""
    found = a.traversal_responses(halved)
    moved = found.error[0, 0, :, 0].double()
    values = found.values[0].double()
    slope = float((moved[-1] - moved[0]) / (values[-1] - values[0]))
    assert slope == pytest.approx(0.5, rel=1e-4)
    # Only the channel that is moved has an error that changes.
    assert float((found.error[0, :, :, 1:] - found.error[0, :, :1, 1:]).abs().max()) < 1e-4


def test_the_map_and_the_path_of_the_identity_do_not_move(same):
    field = a.response_map(same)
    assert float(field.magnitude.max()) < 1e-6
    path = a.manifold_path(same)
    assert path.cost < 1e-12
    assert path.points.shape[1] == 3


def test_a_map_of_halved_codes_has_its_divergence(halved):
    """F = -z/2 + constant along both channels: a divergence of -1, for any scale of channels."""
    field = a.response_map(halved)
    assert field.divergence.flatten().tolist() == pytest.approx([-1] * 10_000, abs=1e-3)


def test_drift_of_the_identity_stays_where_it_is(same):
    found = a.drift(same)
    assert found.unconverged == []
    assert found.rates.tolist() == pytest.approx([1] * len(found.rates), abs=1e-4)
    assert torch.allclose(found.limits, found.trajectories[:, 0].to(found.limits), atol=1e-5)


def test_drift_of_halved_codes_has_one_fixed_point_and_its_rate(halved):
    found = a.drift(halved)
    assert len(found.fixed_points) == 1
    assert float(found.rates[0]) == pytest.approx(0.5, abs=1e-3)


def test_responses_by_channel(same, halved):
    assert a.response(same).by_channel.tolist() == [0, 0, 0]
    found = a.response(halved)
    maps = found.codes.double().reshape(-1, 3, 64)
    root = maps.square().mean((0, 2)).sqrt() / 2 / maps.std((0, 2), correction=0)
    assert torch.allclose(found.by_channel, root, rtol=1e-5)
    assert torch.equal(found.codes, halved.codes[halved.picture_order[:60]])
    assert {"codes", "response", "sampled"}.isdisjoint(found.to_dict())
    x = power_law(60, 16, 2.0)
    exact = a.response(zs.record(PatchPCA(x, 4, 3).model(), x))
    assert float(exact.by_channel.max()) < 1e-5


def test_responses_share_the_base_pictures():
    world = Counting(lambda x: x.clone(), lambda z: 0.5 * z)
    recording = zs.record(world.model, power_law(40, 8, 2.0, colours=2))
    matrix = a.response_matrix(recording)
    world.decodings = 0
    found = a.response(recording)
    assert world.decodings == 0
    assert passes(CATALOGUE["response"], recording, {}) == 40
    assert torch.allclose(found.response, 0.5 * found.codes)
    assert matrix.relative.diagonal().tolist() == pytest.approx([0.5, 0.5])


def test_hybrids_replace_whole_channels(same):
    found = a.hybridisation(same)
    base, other = found.sources.reshape(2, 3, 64)
    for channel, hybrid in enumerate(found.codes.reshape(3, 3, 64)):
        expected = base.clone()
        expected[channel] = other[channel]
        assert torch.equal(hybrid, expected)
    change = (base - other).double().square().sum(1).div(3 * 64).sqrt()
    assert torch.allclose(found.change, change, rtol=1e-5)
    assert {"sources", "codes", "groups"}.isdisjoint(found.to_dict())
    assert a.hybridisation(same, units="patch:4").change.shape == (4,)
    assert a.hybridisation(same, double=True).change.shape == (3, 3)
    three = a.hybridisation(same, alternatives=3)
    assert three.change.shape == (3, 3)
    assert math.isfinite(float(three.unit_change.max()))


def test_hybrids_of_a_posterior_are_those_of_its_channels(same):
    found = a.hybridisation(same.autoencoder, zs.Posterior(same.codes, layout=same.layout))
    assert found.unit == "channel"
    with pytest.raises(ConfigError, match="two names for the same thing"):
        a.hybridisation(same, units="place", parts=2)


def test_hybrids_cost_what_is_stated():
    world = Counting(lambda x: x.clone(), lambda z: z.clone())
    recording = zs.record(world.model, power_law(20, 8, 2.0, colours=4))
    world.decodings = 0
    a.hybridisation(recording)
    stated = passes(CATALOGUE["hybridisation"], recording, {})
    assert stated == 6
    assert world.decodings == pytest.approx(stated, abs=2)


@pytest.mark.parametrize(
    ("model", "data", "shown"),
    [(sound_pooling, sines, (64,)), (video_pooling, moving_squares, (1, 16, 16))],
)
def test_hybrids_of_sound_and_video_can_be_drawn(model, data, shown):
    recording = zs.record(model(), data(24))
    found = a.hybridisation(recording)
    assert found._drawable(found.decoded_sources).shape[1:] == shown
    words = [each.get_text() for each in found.plot().get_xticklabels()]
    assert words == ["base", *map(str, range(recording.layout.channels)), "other"]

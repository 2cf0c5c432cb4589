"""Layouts: channels and places of latents, from the encoder's output to the recording."""

import json
import math
import os
import subprocess
import sys
from inspect import unwrap
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from map_worlds import (
    Tokens,
    average_pooling,
    dataset,
    identity,
    moving_squares,
    power_law,
    sines,
    sound_pooling,
    tokens,
    video_pooling,
)
from torch import nn

import zscope as zs
from zscope.adapters import from_diffusers
from zscope.data.dataset import from_arrays
from zscope.errors import ConfigError, DataError, InterfaceError
from zscope.layout import LatentScaling
from zscope.recording import join_posteriors

SHAPES = [zs.Layout(3, (4,)), zs.Layout(3, (4, 6)), zs.Layout(2, (4, 6, 8)), zs.Layout(1, (8, 8))]
UNITS = ["channel", "place", "latent", "patch:2"]


def codes_of(layout, count=5):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, layout.latents, generator=generator, dtype=torch.float64)


# Layout


@given(st.integers(1, 5), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_maps_are_rows_in_order_of_channels_and_places(channels, places):
    layout = zs.Layout(channels, tuple(places))
    codes = torch.arange(2 * layout.latents).reshape(2, -1)
    maps = layout.view(codes)
    assert maps.shape == (2, channels, *places)
    assert torch.equal(layout.flat(maps), codes)
    assert torch.equal(maps, torch.arange(codes.numel()).reshape(2, channels, *places))
    assert layout.latents == layout.channels * layout.positions == codes.shape[1]


@pytest.mark.parametrize("layout", SHAPES, ids=str)
@pytest.mark.parametrize("unit", UNITS)
def test_sums_within_units_agree_with_a_mask(layout, unit):
    codes = codes_of(layout)
    number = layout.unit_of(unit)
    assert sorted(set(number.tolist())) == list(range(layout.count(unit)))
    mask = torch.nn.functional.one_hot(number, layout.count(unit)).double()
    assert layout.sums(codes, unit).numpy() == pytest.approx((codes @ mask).numpy())
    assert layout.reduce(codes, unit).numpy() == pytest.approx((codes.square() @ mask).numpy())
    assert len(layout.unit_names(unit)) == layout.count(unit)


@pytest.mark.parametrize("unit", UNITS)
def test_squares_of_all_units_add_up(unit):
    layout = zs.Layout(2, (4, 6))
    codes = codes_of(layout)
    total = codes.square().sum(1)
    assert layout.reduce(codes, unit).sum(1).numpy() == pytest.approx(total.numpy())


def test_units_are_named_as_people_call_them():
    layout = zs.Layout(2, (4, 6))
    assert layout.unit_names("channel") == ["channel 0", "channel 1"]
    assert layout.unit_names("place")[7] == "place 1, 1"
    assert layout.unit_names("patch:2")[4] == "patch 2, 2"
    assert (str(layout), layout.names) == ("2 x 4 x 6", ("height", "width"))
    assert zs.Layout(2, (9,)).names == ("time",)
    assert zs.Layout(2, (5, 4, 6)).names == ("time", "height", "width")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, (4, 4)), "channels=0"),
        ((2, ()), r"places=\(\)"),
        ((2, (4, 0)), r"places=\(4, 0\)"),
        ((2, (4, 4), ("height",)), "1 names .* for 2 axes"),
    ],
)
def test_layouts_that_are_none_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        zs.Layout(*arguments)


def test_lengths_are_whole_numbers():
    # Without the checks of types that only the tests have.
    half = SimpleNamespace(channels=2, places=(4.5, 4), names=())
    with pytest.raises(ConfigError, match=r"places=\(4.5, 4\); expected a number of channels"):
        zs.Layout.__post_init__(half)


def test_codes_and_maps_of_another_size_are_refused():
    layout = zs.Layout(2, (4, 6))
    with pytest.raises(ConfigError, match=r"codes of shape \(3, 40\), and 2 x 4 x 6 maps have 48"):
        layout.view(torch.zeros(3, 40))
    with pytest.raises(ConfigError, match=r"maps of shape \(3, 2, 6, 4\); expected \.\.\. x 2 x 4"):
        layout.flat(torch.zeros(3, 2, 6, 4))
    for unit in UNITS:
        for add_up in (layout.reduce, layout.sums):
            with pytest.raises(ConfigError, match=r"shape \(3, 40\), and 2 x 4 x 6 maps have 48"):
                add_up(torch.zeros(3, 40), unit)


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        ("patch:5", r"4 x 6 places cannot be divided into patches of 5\. Use patch:2"),
        ("patch:0", "expected channel, place, latent or patch:N"),
        ("rows", "units='rows'"),
    ],
)
def test_units_that_are_none_are_refused(unit, message):
    with pytest.raises(ConfigError, match=message):
        zs.Layout(2, (4, 6)).count(unit)


# Declared scaling


def test_a_declared_scaling_is_one_number_or_one_for_each_channel():
    shift, factor = LatentScaling(scaling_factor=0.5, shift_factor=0.1).affine(3)
    assert (shift.tolist(), factor.tolist()) == ([0.1] * 3, [0.5] * 3)
    own = LatentScaling(scaling_factor=2.0, latents_mean=(1.0, 2.0), latents_std=(4.0, 8.0))
    shift, factor = own.affine(2)
    assert (shift.tolist(), factor.tolist()) == ([1, 2], [0.5, 0.25])
    assert not LatentScaling()
    assert LatentScaling(latents_std=(1.0,))


# Posterior


def test_the_layout_travels_with_a_posterior():
    layout = zs.Layout(3, (4, 6))
    posterior = zs.Posterior(codes_of(layout), codes_of(layout).abs(), layout=layout)
    standard = zs.Posterior(torch.zeros(1, 72), torch.ones(1, 72))
    for other in (
        posterior[1:3], posterior[torch.tensor([0, 2])], posterior.detach(),
        posterior.to(torch.float32), posterior.relative_to(standard),
        join_posteriors([posterior[:2], posterior[2:]]),
    ):  # fmt: skip
        assert other.layout == layout
    assert zs.Posterior(codes_of(layout)).layout is None


def test_a_posterior_of_another_size_or_with_full_covariances_is_refused():
    layout = zs.Layout(3, (4, 6))
    with pytest.raises(InterfaceError, match="3 x 4 x 6 has 72 latents, and the mean has 71"):
        zs.Posterior(codes_of(layout)[:, 1:], layout=layout)
    roots = torch.eye(72).expand(5, 72, 72)
    with pytest.raises(InterfaceError, match="must be diagonal.*leave the layout out"):
        zs.Posterior(codes_of(layout).float(), scale_tril=roots, layout=layout)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ((3, 4, 6), r"layout=\(3, 4, 6\) is a tuple.*layout=zs\.Layout\(3, \(4, 6\)\)"),
        ("auto", r"layout='auto' is a str; expected channels.*zs\.Layout\(4, \(64, 64\)\)"),
    ],
)
def test_what_is_no_layout_is_refused_with_one_that_is(layout, message):
    codes = codes_of(zs.Layout(3, (4, 6)))
    # Without the checks of types that only the tests have.
    with pytest.raises(InterfaceError, match=f"Posterior: {message}"):
        unwrap(zs.Posterior.__init__)(object.__new__(zs.Posterior), codes, layout=layout)
    with pytest.raises(ConfigError, match=f"from_arrays: {message}"):
        unwrap(zs.Recording.from_arrays.__func__)(zs.Recording, codes, layout=layout)


# wrap


@pytest.mark.parametrize(
    ("model", "observations", "layout"),
    [
        (average_pooling, power_law(4, 16, 1.0), zs.Layout(1, (8, 8))),
        (sound_pooling, sines(4), zs.Layout(2, (16,))),
        (video_pooling, moving_squares(4), zs.Layout(1, (8, 8, 8))),
        (tokens, sines(4)[:, 0], zs.Layout(3, (16,))),
    ],
    ids=["pictures", "sound", "video", "tokens"],
)
def test_channels_and_places_are_read_from_the_latents(model, observations, layout):
    autoencoder = model()
    posterior = autoencoder.encode(observations)
    assert posterior.layout == autoencoder.layout == layout
    assert autoencoder.layout_note == ""
    assert autoencoder.decode(posterior.mean).shape == observations.shape


def test_tokens_are_turned_to_channels_first_and_back():
    module, x = Tokens(), sines(4)[:, 0]
    model = tokens()
    ours, theirs = model.encode(x).mean, module(x)
    assert torch.equal(model.layout.view(ours), theirs.transpose(1, 2))
    assert torch.equal(model.decode(ours), module.decode(theirs))
    stated = tokens(layout="channels last")
    assert torch.equal(stated.encode(x).mean, ours)
    # Taken for channels first, tokens would be channels.
    wrong = tokens(layout="channels first")
    assert wrong.encode(x).layout == zs.Layout(16, (3,))
    assert not torch.equal(wrong.encode(x).mean, ours)


def test_sequences_of_vectors_are_cut_along_time():
    """Observations of time x features: half of the features are refused, half of the time not."""
    weight = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    x = torch.randn(4, 12, 5, generator=torch.Generator().manual_seed(1))
    model = zs.wrap(lambda x: x @ weight, lambda z: z @ torch.linalg.pinv(weight), prior=None)
    assert model.encode(x).layout == zs.Layout(3, (12,))
    assert model.layout_note == ""


def test_a_model_of_one_length_is_read_as_channels_first_and_says_so():
    weight = torch.randn(64, 48, generator=torch.Generator().manual_seed(0)) / 8
    model = zs.wrap(
        lambda x: (x @ weight).reshape(len(x), 16, 3), lambda z: z.flatten(1) @ weight.T, prior=None
    )
    assert model.encode(sines(4)[:, 0]).layout == zs.Layout(16, (3,))
    assert "16 channels with 3 places" in model.layout_note
    assert "layout='channels last'" in model.layout_note


def patches(x):
    """Patches of 4 x 4 pixels as tokens of one size of pictures: tokens x channels."""
    if x.shape[-2:] != (16, 16):
        raise ValueError("expects 16 x 16 pixels")
    return F.pixel_unshuffle(x, 4).flatten(2).transpose(1, 2)


def from_patches(z):
    return F.pixel_shuffle(z.transpose(1, 2).reshape(len(z), -1, 4, 4), 4)


def test_half_of_the_colours_does_not_tell_which_axis_has_the_places():
    """With fewer colours the encoder makes fewer channels, which are not places for that."""
    x = power_law(4, 16, 1.0, colours=3)
    model = zs.wrap(
        lambda x: patches(x).transpose(1, 2), lambda z: from_patches(z.transpose(1, 2)), prior=None
    )
    assert model.encode(x).layout == zs.Layout(48, (16,))
    assert "48 channels with 16 places" in model.layout_note
    # Tokens x channels cannot be told from it, which the note says, with the way out.
    turned = zs.wrap(patches, from_patches, prior=None)
    assert turned.encode(x).layout == zs.Layout(16, (48,))
    assert "layout='channels last'" in turned.layout_note
    stated = zs.wrap(patches, from_patches, prior=None, layout="channels last")
    assert stated.encode(x).layout == zs.Layout(48, (16,))


def test_tokens_of_pictures_of_any_size_are_told_by_their_height():
    """An encoder of any height that takes one width: the last axis is refused, the next tells."""

    def encode(x):
        if x.shape[-1] != 16:
            raise ValueError("expects a width of 16")
        return F.pixel_unshuffle(x, 4).flatten(2).transpose(1, 2)

    model = zs.wrap(encode, from_patches, prior=None)
    assert model.encode(power_law(4, 16, 1.0, colours=3)).layout == zs.Layout(48, (16,))
    assert model.layout_note == ""


def test_asking_for_the_layout_leaves_the_model_as_it_is():
    """Batch norm must not see the half observation, and its mode must not change."""
    with torch.random.fork_rng():
        encoder = nn.Sequential(nn.Conv1d(1, 3, 4, stride=4), nn.BatchNorm1d(3)).train()
        decoder = nn.ConvTranspose1d(3, 1, 4, stride=4)
    before = encoder[1].running_mean.clone()
    model = zs.wrap(encoder, decoder, prior=None)
    model.encode(sines(4))
    assert encoder.training
    assert torch.equal(encoder[1].running_mean, before)


def test_latents_with_one_place_and_vectors_have_no_layout():
    one = zs.wrap(
        lambda x: x.mean((2, 3), keepdim=True), lambda z: z.expand(-1, -1, 16, 16), prior=None
    )
    assert one.encode(power_law(4, 16, 1.0)).layout is None
    asked = zs.wrap(
        lambda x: x.mean((2, 3), keepdim=True), lambda z: z, prior=None, layout=zs.Layout(1, (1, 1))
    )
    assert asked.encode(power_law(4, 16, 1.0)).layout is None
    vector = zs.wrap(lambda x: x.flatten(1), lambda z: z.reshape(-1, 1, 16, 16), prior=None)
    assert vector.encode(power_law(4, 16, 1.0)).layout is None
    off = zs.wrap(lambda x: x.clone(), lambda z: z, prior=None, layout=None)
    assert off.encode(power_law(4, 16, 1.0)).layout is None


def test_a_layout_may_be_stated_for_flattened_maps():
    layout = zs.Layout(1, (16, 16))
    model = zs.wrap(
        lambda x: x.flatten(1), lambda z: z.reshape(-1, 1, 16, 16), prior=None, layout=layout
    )
    assert model.encode(power_law(4, 16, 1.0)).layout == layout


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (zs.Layout(2, (16, 16)), r"shape \(1, 16, 16\), and layout=2 x 16 x 16"),
        ("square", "layout='square' is not known"),
    ],
)
def test_layouts_that_contradict_the_model_are_refused(layout, message):
    with pytest.raises(InterfaceError, match=message):
        zs.wrap(
            lambda x: x.clone(), lambda z: z, prior=None, layout=layout
        ).encode(power_law(4, 16, 1.0))  # fmt: skip


def test_an_axis_of_places_is_needed_where_one_was_asked_for():
    model = zs.wrap(lambda x: x.flatten(1), lambda z: z, prior=None, layout="channels last")
    with pytest.raises(InterfaceError, match=r"shape \(256,\), which have no axis of places"):
        model.encode(power_law(4, 16, 1.0))


def test_pictures_of_another_size_are_refused_with_both_sizes():
    model = average_pooling()
    model.encode(power_law(4, 16, 1.0))
    with pytest.raises(InterfaceError, match=r"\(1, 4, 4\), earlier \(1, 8, 8\).*one size"):
        model.encode(power_law(4, 8, 1.0))


def posteriors(layout):
    """An encoder that returns posteriors with a layout, as rows."""
    return lambda x: zs.Posterior(x.flatten(1), torch.full_like(x.flatten(1), 0.1), layout=layout)


def as_pictures(z):
    return z.reshape(-1, 3, 8, 8)


def test_wrapped_encoders_say_their_layout_by_their_posterior():
    x, layout = power_law(4, 8, 1.0, colours=3), zs.Layout(3, (8, 8))
    model = zs.wrap(posteriors(layout), as_pictures)
    assert model.encode(x).layout == model.layout == layout
    assert torch.equal(model.decode(model.encode(x).mean), x)
    assert zs.wrap(posteriors(layout), as_pictures, layout=layout).encode(x).layout == layout
    assert zs.wrap(posteriors(layout), as_pictures, layout=None).encode(x).layout is None
    names = zs.Layout(3, (8, 8), ("y", "x"))
    assert zs.wrap(posteriors(layout), as_pictures, layout=names).encode(x).layout == names


@pytest.mark.parametrize("layout", [zs.Layout(12, (4, 4)), "channels last", "channels first"])
def test_a_layout_other_than_that_of_the_posterior_is_refused(layout):
    model = zs.wrap(posteriors(zs.Layout(3, (8, 8))), as_pictures, layout=layout)
    with pytest.raises(
        InterfaceError, match=rf"has the layout 3 x 8 x 8, and layout='{layout}' was given"
    ):
        model.encode(power_law(4, 8, 1.0, colours=3))


# record


class Flattened(zs.Autoencoder):
    """The identity on maps, which are rows; posterior and model may say which maps."""

    latents, prior = 72, None

    def __init__(self, stated, said):
        super().__init__()
        self.layout, self.said = stated, said

    def encode(self, x, auxiliary=None):
        return zs.Posterior(x.flatten(1), layout=self.said)

    def decode(self, z):
        return z.reshape(-1, 2, 6, 6)


def test_either_the_model_or_its_posteriors_may_say_the_layout():
    """All assays of maps, also those that are given a model and rows of codes."""
    from zscope.assays.run import measure

    layout = zs.Layout(2, (6, 6))
    factors = np.random.default_rng(0).integers(0, 3, (40, 2))
    data = from_arrays(power_law(40, 6, 1.0, colours=2), factors)
    names = [n for n, e in zs.assays.CATALOGUE.items() if e.maps and not e.compares and e.passes]
    scores = []
    for stated, said in ((layout, layout), (None, layout), (layout, None)):
        recording = zs.record(Flattened(stated, said), data)
        assert recording.layout == layout
        outcome = measure(recording, names)
        assert not outcome.failed
        assert len(outcome.results) > 20
        scores.append({
            f"{name} {each.name}": (each.value, result.unit, str(result.unit_names))
            for name, result in outcome.results.items() for each in result.measures()
        })  # fmt: skip
    for other in scores[1:]:
        assert scores[0].keys() == other.keys()
        for name, (value, *units) in scores[0].items():
            assert other[name] == (pytest.approx(value, abs=1e-9), *units), name
    # Without a recording, too: the data are encoded anew.
    model = Flattened(layout, None)
    found = zs.assays.conditioned_response_matrix(model, data, causal=[0, 1])
    assert found.matrix.shape == (2, 2)


@pytest.mark.parametrize("stated", [zs.Layout(8, (3, 3)), zs.Layout(2, (9, 4))], ids=str)
def test_two_layouts_that_contradict_each_other_are_refused(stated):
    model = Flattened(stated, zs.Layout(2, (6, 6)))
    with pytest.raises(
        InterfaceError, match=rf"record: .* layout 2 x 6 x 6, and `layout` of the model is {stated}"
    ):
        zs.record(model, power_law(20, 6, 1.0, colours=2))


def test_a_recording_keeps_some_codes_and_the_summary_of_all(monkeypatch):
    x = power_law(60, 16, 1.0)
    whole = zs.record(average_pooling(), x)
    assert len(whole) == whole.map_summary.pictures == 60
    monkeypatch.setattr("zscope.recording.KEPT_BYTES", 20 * 64 * 4)
    few = zs.record(average_pooling(), x)
    assert (len(few), few.map_summary.pictures) == (20, 60)
    assert torch.allclose(few.map_summary.means, whole.map_summary.means, atol=1e-12)
    assert "20 of 60 encoded samples" in repr(few)
    # Codes, rows and pictures of what was kept belong together.
    again = average_pooling().encode(few.observations)
    assert torch.equal(again.mean, few.codes)
    assert torch.equal(x[few.rows], few.observations)


def test_posteriors_take_twice_the_memory_of_codes(monkeypatch):
    monkeypatch.setattr("zscope.recording.KEPT_BYTES", 20 * 256 * 4)
    model = zs.wrap(lambda x: (x, torch.zeros_like(x)), lambda z: z, prior=None)
    assert len(zs.record(model, power_law(60, 16, 1.0))) == 10


PEAK = """
import resource
import torch
import zscope as zs
import zscope.recording

zscope.recording.KEPT_BYTES = 48 * 2**20

def encode(x):
    maps = torch.nn.functional.interpolate(x, scale_factor=8).repeat(1, 4, 1, 1)
    return maps, torch.zeros_like(maps)

def decode(z):
    return torch.nn.functional.avg_pool2d(z[:, :1], 8)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

x = torch.randn(1600, 1, 8, 8, generator=torch.Generator().manual_seed(0))
model = zs.wrap(encode, decode)
zs.record(model, x[:32])
before = peak()
recording = zs.record(model, x)
assert (len(recording), recording.map_summary.pictures) == (384, 1600)
print(peak() - before)
"""


def test_memory_is_that_of_the_kept_codes_whatever_the_number_of_pictures():
    """Summaries of all batches would take another 500 MB, joining the codes 48 MB."""
    ran = subprocess.run(
        [sys.executable, "-c", PEAK], capture_output=True, text=True, check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert float(ran.stdout) < 60


def test_batches_must_have_standard_deviations_all_or_none():
    def encode(x):
        return (x, torch.zeros_like(x)) if len(x) == 16 else x.clone()

    model, x = zs.wrap(encode, lambda z: z, prior=None), power_law(20, 16, 1.0)
    model.encode(x[:16])  # from now on, pictures are encoded in batches of 16
    with pytest.raises(InterfaceError, match="mean and std for the first.*mean for one of 4 obs"):
        zs.record(model, x)


def test_a_nan_is_refused_with_its_channel_and_place():
    def encode(x):
        maps = torch.cat([x, x], 1)
        maps[x[:, 0, 0, 0] == x[:, 0, 0, 0].max(), 1, 3, 2] = math.nan
        return maps

    model = zs.wrap(encode, lambda z: z[:, :1], prior=None)
    with pytest.raises(InterfaceError, match="1 of 20 observations.*in channel 1 at place 3, 2"):
        zs.record(model, power_law(20, 16, 1.0))


def test_arrays_may_have_the_axes_of_their_layout():
    layout = zs.Layout(2, (4, 4))
    maps = np.random.default_rng(0).normal(size=(20, 2, 4, 4))
    flat = zs.Recording.from_arrays(maps.reshape(20, 32), layout=layout)
    deep = zs.Recording.from_arrays(maps, variances=maps**2, layout=layout)
    assert torch.equal(flat.codes, deep.codes)
    assert deep.layout == layout
    score = zs.assays.latent_statistics(deep, of="mean").score
    assert score == pytest.approx(zs.assays.latent_statistics(flat).score)


@pytest.mark.parametrize("shape", [(20, 2, 4, 4), (20, 32), (20, 4, 4)])
def test_arrays_of_another_layout_are_refused_with_both(shape):
    layout = zs.Layout(4, (4, 8))
    expected = f"{', '.join(map(str, shape))}.*layout=4 x 4 x 8.*x 4 x 4 x 8, or samples x 128.*Are"
    with pytest.raises(DataError, match=f"from_arrays: codes of shape .{expected}") as raised:
        zs.Recording.from_arrays(torch.zeros(shape), layout=layout)
    assert "say so" not in str(raised.value)
    with pytest.raises(DataError, match="from_arrays: variances of shape"):
        zs.Recording.from_arrays(
            torch.ones(20, 128), variances=torch.ones(shape), layout=layout
        )  # fmt: skip


def test_a_nan_among_arrays_is_refused_with_its_channel_and_place():
    layout = zs.Layout(2, (4, 4))
    maps = np.zeros((20, 2, 4, 4))
    maps[7, 1, 3, 2] = math.nan
    message = "1 of 20 rows of the {} hold NaN .* row 7, in channel 1 at place 3, 2"
    for codes in (maps, maps.reshape(20, 32)):
        with pytest.raises(DataError, match=message.format("codes")):
            zs.Recording.from_arrays(codes, layout=layout)
    with pytest.raises(DataError, match=message.format("variances")):
        zs.Recording.from_arrays(np.ones((20, 32)), variances=maps, layout=layout)


def test_a_decoder_that_gives_nan_is_no_collapsed_posterior():
    """Assays that decode name the place, those of codes go on."""

    def decode(z):
        x = z.clone()
        x[:, 1, 2, 3] = math.nan
        return x

    model = zs.wrap(lambda x: x.clone(), decode, prior=None)
    with pytest.warns(UserWarning, match="decoder gives NaN or infinite numbers"):
        recording = zs.record(model, power_law(40, 8, 1.0, colours=2))
    assert (recording.usage.measure, recording.used) == ("spread", [0, 1])
    assert zs.assays.effective_rank(recording).score > 1
    for name in ("distance_to_orthogonality", "response_matrix", "holes", "locality"):
        with pytest.raises(InterfaceError, match="colour 1 at pixel 2, 3"):
            getattr(zs.assays, name)(recording)


def test_every_assay_of_maps_runs_on_every_kind_of_maps():
    names = [n for n, e in zs.assays.CATALOGUE.items() if e.group == "diffusion"]
    assert len(names) == 7
    for model, data in [
        (identity(), power_law(20, 16, 1.0)),
        (sound_pooling(), dataset(sines(20))),
        (video_pooling(), dataset(moving_squares(20))),
        (tokens(), sines(20)[:, 0]),
    ]:
        recording = zs.record(model, data)
        for name in names:
            result = zs.assays.CATALOGUE[name].load()(recording)
            numbers = [m.value for m in result.measures()]
            assert np.isfinite(numbers).all(), (name, numbers)
            assert "nan" not in repr(result).lower().split(), name


@pytest.mark.parametrize(
    "name", [n for n, e in zs.assays.CATALOGUE.items() if e.group == "diffusion"]
)
def test_results_of_maps_are_json_and_drawn(name):
    result = zs.assays.CATALOGUE[name].load()(zs.record(average_pooling(), power_law(20, 24, 1.0)))
    again = json.loads(json.dumps(result.to_dict()))
    # Equivariance looks at half of the pictures.
    assert again["samples"] == (10 if name == "equivariance" else 20)
    result.plot()
    plt.close("all")


# diffusers, by a stand-in of the same form


class StandIn(nn.Module):
    """Encodes and decodes as the autoencoders of diffusers do; no package is needed."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def encode(self, x):
        mean = torch.nn.functional.pixel_unshuffle(x, 2)
        law = SimpleNamespace(mean=mean, logvar=torch.full_like(mean, -4.0))
        return SimpleNamespace(latent_dist=law)

    def decode(self, z):
        return SimpleNamespace(sample=torch.nn.functional.pixel_shuffle(z, 2))


def test_a_diffusers_model_has_a_layout_and_its_declared_scaling():
    x = power_law(20, 16, 1.0).sigmoid()
    model = from_diffusers(StandIn({"scaling_factor": 0.5, "shift_factor": 0.1}))
    assert model.latent_scaling == LatentScaling(scaling_factor=0.5, shift_factor=0.1)
    recording = zs.record(model, x)
    assert recording.layout == zs.Layout(4, (8, 8))
    result = zs.assays.latent_statistics(recording)
    expected = 0.5 * math.sqrt(float((2 * x - 1).var(correction=0)) + math.exp(-4))
    assert result.declared_std == pytest.approx(expected, rel=1e-4)
    assert result.declared["scaling_factor"] == 0.5
    # Pictures from 0 to 1 are decoded as such again.
    assert torch.allclose(model.decode(recording.codes), recording.observations, atol=1e-6)


def test_a_scaling_for_each_channel_and_none_at_all_are_read():
    own = {"latents_mean": [0.0, 0.1, 0.2, 0.3], "latents_std": [1, 2, 3, 4]}
    scaling = from_diffusers(StandIn(SimpleNamespace(**own))).latent_scaling
    assert scaling.latents_std == (1, 2, 3, 4)
    assert scaling.scaling_factor is None
    assert from_diffusers(StandIn({})).latent_scaling is None
    assert from_diffusers(StandIn(None)).latent_scaling is None
    with pytest.raises(InterfaceError, match="cannot be read .*scaling_factor"):
        from_diffusers(StandIn({"scaling_factor": "large"}))

"""Latent maps in the explorer: channels and places are changed as asked, in one round."""

import re
from base64 import b64decode

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import Client, Convolutional
from test_explorer_answers import pixels

import zscope as zs
from zscope.assays.diffusion.spectrum import low_pass
from zscope.assays.engine import respond
from zscope.errors import InterfaceError
from zscope.explorer.rendering import LONG
from zscope.explorer.session import PICTURES, SAMPLES, Session
from zscope.explorer.views import ENDPOINTS
from zscope.explorer.views.channels import Channels, channels
from zscope.randomness import named_generator

ROW = 7


def numbers(answer):
    """The array of an answer, of either form."""
    if "values" in answer:
        return np.reshape(answer["values"], answer["shape"])
    return np.frombuffer(b64decode(answer["half"]), "<f2").astype(float).reshape(answer["shape"])


def statistics(session):
    """Mean and standard deviation of each channel, and the mean maps, by another route."""
    posterior = session.recording.posterior
    means = posterior.layout.view(posterior.mean).double()
    axes = (0, *range(2, means.ndim))
    variance = means.var(axes, correction=0)
    variance += posterior.layout.view(posterior.variance).double().mean(axes)
    return means.mean(axes), variance.sqrt(), means.mean(0)


def column(values, axes=2):
    return torch.as_tensor(values, dtype=torch.float64).reshape(-1, *[1] * axes)


def latents(session, row=ROW):
    return session.recording.layout.view(session.codes[row]).double()


def changed(session, **changes):
    """The changed latents of a picture, in the model's own units."""
    answer = Client(session).ask("channels", sample=ROW, exact=True, **changes)
    mean, sigma, _ = statistics(session)
    axes = len(session.recording.layout.places)
    return column(mean, axes) + column(sigma, axes) * torch.from_numpy(numbers(answer["z"]))


def same(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected.double(), rtol=tolerance, atol=tolerance)


def test_a_picture_without_changes_is_its_reconstruction(maps, maps_client):
    answer = maps_client.ask("channels", sample=ROW, exact=True)
    z = maps.codes[[ROW]]
    same(changed(maps), latents(maps))
    decoded = maps.model.decode(z)
    same(torch.from_numpy(numbers(answer["decoded"])), decoded[0])
    sigma = column(statistics(maps)[1])
    displacement = (respond(maps.model, z) - z)[0].reshape(4, 8, 8) / sigma
    same(torch.from_numpy(numbers(answer["displacement"])), displacement)
    rms = displacement.square().mean((1, 2)).sqrt()
    assert answer["displaced"] == pytest.approx(rms.tolist(), rel=1e-4)
    for name in ("change", "difference"):
        assert not numbers(answer[name]).any()
    assert answer["rings"] is None
    picture = maps_client.ask("channels", sample=ROW)["decoded"]
    expected = (255 * decoded[0].permute(1, 2, 0)).round().byte().detach().numpy()
    np.testing.assert_array_equal(pixels(picture), expected)
    assert maps_client.ask("channels")["sample"] == maps.start


def test_maps_travel_in_half_precision_and_in_units_of_their_channel(maps, maps_client):
    changes = {"sample": ROW, "offset": [1, -2, 0.5, 0], "brush": [1, 3, 4, 3, 2.5]}
    short, exact = (maps_client.ask("channels", **changes, exact=exact) for exact in (False, True))
    for name in ("z", "displacement", "change"):
        assert "values" not in short[name]
        assert len(b64decode(short[name]["half"])) == 2 * 4 * 8 * 8
        np.testing.assert_allclose(numbers(short[name]), numbers(exact[name]), rtol=1e-3, atol=1e-4)
    facts = maps_client.ask("session")["layout"]
    mean, sigma, _ = statistics(maps)
    assert facts["mean"] == pytest.approx(mean.tolist())
    assert facts["std"] == pytest.approx(sigma.tolist())
    assert (facts["channels"], facts["places"]) == (4, [8, 8])
    assert facts["names"] == ["height", "width"]
    assert facts["note"] == ""


def test_an_offset_moves_a_channel_everywhere(maps):
    _, sigma, _ = statistics(maps)
    same(
        changed(maps, offset=[0, 1.5, 0, -2]),
        latents(maps) + column([0, 1.5, 0, -2]) * column(sigma),
    )


def test_a_gain_scales_the_difference_from_the_mean_map(maps):
    middle = statistics(maps)[2]
    expected = middle + column([1, 0, 0.5, 2]) * (latents(maps) - middle)
    same(changed(maps, gain=[1, 0, 0.5, 2]), expected)


def test_a_muted_channel_is_its_mean_map_whatever_else_is_asked(maps):
    middle = statistics(maps)[2]
    z = changed(maps, mute=[2, 0], offset=[1, 1, 1, 1], noise=0.5, brush=[2, 1, 1, 4, 3])
    same(z[[0, 2]], middle[[0, 2]])
    assert (z[[1, 3]] - latents(maps)[[1, 3]]).abs().min() > 0.01
    removed = changed(maps, gain=[1, 1, 0, 1])
    same(changed(maps, mute=[2]), removed)


@pytest.mark.parametrize(
    ("place", "size", "rows", "columns"),
    [((3, 5), 1, (3, 4), (5, 6)), ((3, 5), 2, (3, 5), (5, 7)), ((3, 5), 3, (2, 5), (4, 7)),
     ((0, 7), 3, (0, 2), (6, 8)), ((4, 4), 8, (1, 8), (1, 8))],
)  # fmt: skip
def test_a_brush_changes_its_square_of_one_channel_only(maps, place, size, rows, columns):
    z = changed(maps, brush=[1, *place, size, -1.5])
    expected = latents(maps).clone()
    expected[1, slice(*rows), slice(*columns)] -= 1.5 * statistics(maps)[1][1]
    same(z, expected)
    answer = channels(maps, Channels(sample=ROW, brush=[1, *place, size, -1.5], exact=True))
    before = channels(maps, Channels(sample=ROW, exact=True))
    moved = (answer["z"]["values"] != before["z"]["values"]).reshape(4, 8, 8)
    assert moved.sum() == (rows[1] - rows[0]) * (columns[1] - columns[0])


def test_of_overlapping_brushes_the_last_one_counts(maps):
    both = [0, 2, 2, 3, 1, 0, 2, 2, 1, -2]
    expected = latents(maps).clone()
    sigma = statistics(maps)[1][0]
    expected[0, 1:4, 1:4] += sigma
    expected[0, 2, 2] -= 3 * sigma
    same(changed(maps, brush=both), expected)
    same(changed(maps, brush=[*both, 0, 2, 2, 3, 0]), latents(maps))  # 0 erases


def test_a_pasted_patch_is_that_of_another_picture_in_all_channels(maps):
    expected = latents(maps).clone()
    expected[:, 4:7, 0:2] = latents(maps, 30)[:, 4:7, 0:2]
    same(changed(maps, paste=[30, 5, 0, 3]), expected)


def test_noise_is_that_of_its_seed(maps):
    draws = torch.randn(4, 8, 8, generator=named_generator(5, "explorer"), dtype=torch.float64)
    expected = latents(maps) + 0.3 * column(statistics(maps)[1]) * draws
    same(changed(maps, noise=0.3, seed=5), expected)
    assert not torch.equal(changed(maps, noise=0.3, seed=5), changed(maps, noise=0.3, seed=6))


@pytest.mark.parametrize(("keep", "terms"), [(0.5, 4), (0.25, 2), (0.05, 1)])
def test_the_low_pass_is_that_of_the_spectrum(maps, keep, terms):
    same(changed(maps, keep=keep), low_pass(latents(maps), (terms, terms)))


def test_changes_are_made_in_the_order_that_is_documented(maps):
    _, sigma, middle = statistics(maps)
    y = latents(maps).clone()
    y[:, 5:7, 5:7] = latents(maps, 3)[:, 5:7, 5:7]
    y[2, 5, 5] += 2 * sigma[2]
    z = middle + 0.5 * (y - middle) + column(sigma)
    z = low_pass(z, (6, 6))
    draws = torch.randn(4, 8, 8, generator=named_generator(1, "explorer"), dtype=torch.float64)
    z = z + 0.1 * column(sigma) * draws
    z[3] = middle[3]
    everything = {
        "paste": [3, 5, 5, 2], "brush": [2, 5, 5, 1, 2], "gain": [0.5] * 4, "offset": [1] * 4,
        "keep": 0.75, "noise": 0.1, "seed": 1, "mute": [3],
    }  # fmt: skip
    same(changed(maps, **everything), z)


def test_what_is_decoded_and_encoded_again_is_that_of_the_changed_latents(maps, maps_client):
    changes = {"offset": [0.5, 0, 0, -1], "brush": [0, 2, 6, 2, 3], "noise": 0.2}
    answer = maps_client.ask("channels", sample=ROW, exact=True, **changes)
    z0 = maps.codes[[ROW]]
    z = changed(maps, **changes).reshape(1, -1).float()
    same(torch.from_numpy(numbers(answer["decoded"])), maps.model.decode(z)[0], 1e-4)
    difference = (maps.model.decode(z) - maps.model.decode(z0))[0].abs().mean(0)
    same(torch.from_numpy(numbers(answer["difference"])), difference, 1e-4)
    response, before = respond(maps.model, z), respond(maps.model, z0)
    sigma = column(statistics(maps)[1])
    for name, expected in (("displacement", response - z), ("change", response - before)):
        same(torch.from_numpy(numbers(answer[name])), expected.reshape(4, 8, 8) / sigma, 1e-4)


def grey(blur):
    """A session of an encoder that copies 1 x 9 x 9 pictures, and a decoder that may blur them."""
    x = torch.rand(30, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    kernel = torch.full((1, 1, 3, 3), 1 / 9)
    decoder = (lambda z: F.conv2d(z, kernel, padding=1)) if blur else (lambda z: z.clone())
    return Session(zs.wrap(lambda x: x.clone(), decoder, prior=None), x, name="grey")


@pytest.mark.parametrize(
    ("blur", "brush", "within", "reach", "gain"),
    [
        (False, [0, 4, 4, 1, 2], [1] * 5, 0, 1),
        (True, [0, 4, 4, 1, 2], [1 / 9, 1, 1, 1, 1], 1, 1 / 9),
        # A square of 3 x 3, blurred: weights 4, 6, 9 of 9 inside; 1, 2, 3 of 9 in the ring.
        (True, [0, 4, 4, 3, 1], [(4 * 16 + 4 * 36 + 81) / 361, 1, 1, 1], 1, (16 + 24 + 9) / 81),
    ],
)
def test_rings_say_how_far_a_change_spreads(blur, brush, within, reach, gain):
    session = grey(blur)
    client = Client(session)
    rings = client.ask("channels", brush=brush, exact=True)["rings"]
    assert rings["within"] == pytest.approx(within, abs=1e-5)
    assert rings["reach"] == reach
    assert rings["gain"] == pytest.approx(gain, abs=1e-5)
    distance = numbers(rings["distance"])
    assert distance.shape == (9, 9)
    assert distance[4, 4] == 0
    assert distance[0, 4] == len(within) - 1
    # Other changes spread everywhere, so that the rings would say nothing of the brush.
    both = client.ask("channels", brush=brush, offset=[1], exact=True)["rings"]
    assert both["within"] is both["reach"] is both["gain"] is None
    assert both["distance"] == rings["distance"]
    session.close()


def test_an_encoder_that_does_not_see_a_change_has_no_rings():
    x = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(lambda x: x.clone(), lambda z: z * 0, prior=None)
    session = Session(model, x, name="deaf")
    rings = Client(session).ask("channels", brush=[0, 1, 1, 1, 2])["rings"]
    assert rings["within"] is None
    session.close()


REFUSED = [
    ({"brush": [4, 0, 0, 1, 1]}, r"brush names channel 4, but the model has 4 channels \(0 to 3\)"),
    ({"brush": [-1, 0, 0, 1, 1]}, "brush names channel -1"),
    ({"brush": [0.5, 0, 0, 1, 1]}, "brush names channel 0.5"),
    ({"brush": [0, 8, 0, 1, 1]}, "brush at place 8, 0, which is outside the map of 8 x 8"),
    ({"brush": [0, 0, -1, 1, 1]}, "brush at place 0, -1, which is outside"),
    ({"brush": [0, 0, 0.5, 1, 1]}, "brush at place 0, 0.5"),
    ({"brush": [0, 0, 0, 9, 1]}, "brush of size 9; expected a whole number from 1 to 8"),
    ({"brush": [0, 0, 0, 0, 1]}, "brush of size 0"),
    ({"brush": [0, 0, 0, 1]}, "4 numbers, which is not a multiple of 5. Give channel, height, "),
    ({"paste": [60, 0, 0, 1]}, "no sample 60"),
    ({"paste": [1, 0, 8, 1]}, "paste at place 0, 8"),
    ({"paste": [1, 0, 0, 9]}, "paste of size 9"),
    ({"paste": [1, 0, 0]}, "3 numbers, which is not a multiple of 4"),
    ({"mute": [4]}, "mute names channel 4"),
    ({"offset": [0, 1]}, "offset has 2 numbers, but the model has 4 channels"),
    ({"gain": [1] * 5}, "gain has 5 numbers"),
    ({"noise": -0.1}, "noise=-0.1 is not valid"),
    ({"noise": 11}, "noise=11 is not valid"),
    ({"keep": 0}, "keep=0 is not valid"),
    ({"keep": 1.1}, "keep=1.1 is not valid"),
    ({"sample": 60}, "no sample 60"),
    ({"frame": 1}, "no frame 1"),
    ({"offset": [0, 0, 0, "1"]}, "offset.3='1' is not valid"),
    ({"mute": []}, r"mute=\[\] is not valid"),
    ({"z": [0.0]}, "z=.*is not valid"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_the_maps_do_not_have_is_refused_by_name(maps_client, changes, message):
    assert re.search(message, maps_client.error(422, "channels", **changes))


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(maps_client, bad):
    reply = maps_client.post("/api/channels", content=f'{{"brush": [0, 0, 0, 1, {bad}]}}')
    assert reply.status_code == 422, reply.text
    assert "finite number" in reply.json()["error"]["message"]


def test_a_response_that_is_not_finite_is_said_so(colours):
    model = zs.wrap(lambda x: F.avg_pool2d(x, 2), lambda z: F.interpolate(z.exp(), scale_factor=2))
    session = Session(model, colours, name="explodes")
    message = Client(session).error(422, "channels", offset=[1e5, 0, 0])
    assert "gave NaN or infinite numbers" in message
    session.close()


def test_a_query_string_asks_the_same(maps_client):
    query = "sample=7&offset=0,1,0,0&mute=2,3&brush=0,3,4,2,1.5,1,0,0,1,-1&paste=9,1,1,2&keep=0.5"
    changes = {
        "sample": 7, "offset": [0, 1, 0, 0], "mute": [2, 3], "paste": [9, 1, 1, 2], "keep": 0.5,
        "brush": [0, 3, 4, 2, 1.5, 1, 0, 0, 1, -1],
    }  # fmt: skip
    reply = maps_client.get(f"/api/channels?{query}")
    assert reply.json() == maps_client.ask("channels", **changes)


def test_an_answer_takes_one_round_of_the_model(colours):
    session = Session(Convolutional().model(), colours, name="counted")
    model, calls = session.model, []

    def counting(name, call):
        def counted(batch):
            calls.append((name, len(batch)))
            return call(batch)

        return counted

    for name in ("decode", "encode"):
        setattr(model, name, counting(name, getattr(model, name)))

    def rounds(**changes):
        calls.clear()
        Client(session).ask("channels", **changes)
        names = [name for name, _ in calls]
        assert names == ["decode", "encode"] * (len(names) // 2)
        assert {count for _, count in calls} <= {1}
        return len(names) // 2

    assert rounds(sample=ROW) == 1
    assert rounds(sample=ROW) == 0
    every = [
        {"offset": [1, 0, 0, 0]}, {"gain": [0, 1, 1, 1]}, {"mute": [1]}, {"noise": 0.5},
        {"keep": 0.5}, {"brush": [0, 1, 1, 3, 2]}, {"paste": [2, 1, 1, 3]},
    ]  # fmt: skip
    assert [rounds(sample=ROW, **changes) for changes in every] == [1] * 7
    # Only a change of a picture that was never asked for needs the picture itself as well.
    assert rounds(sample=ROW + 1, offset=[1, 0, 0, 0]) == 2
    assert rounds(sample=ROW + 1, offset=[2, 0, 0, 0]) == 1
    session.close()


def test_a_model_of_maps_has_no_views_of_single_latents(maps, maps_client, client):
    about = maps_client.ask("session")
    assert [view["name"] for view in about["views"]] == ["channels", "overview", "compare"]
    assert about["latents"] == []
    assert client.ask("session")["layout"] is None
    assert "channels" not in [view["name"] for view in client.ask("session")["views"]]
    required = {
        "decode": {"codes": [[0.0] * 256]},
        "traversal": {"latent": 0},
        "path": {"start": [0, 0], "end": [1, 1]},
    }
    single = [name for name, endpoint in ENDPOINTS.items() if endpoint.latents == "vector"]
    assert {"latents", "traversal", "map", "matrix", "graph", "samples", "draw"} <= set(single)
    for name in single:
        message = maps_client.error(422, name, **required.get(name, {}))
        assert "maps of 4 x 8 x 8" in message
        assert "/api/channels" in message
    message = client.error(422, "channels")
    assert "no channels and places" in message
    assert "zs.Layout" in message
    assert set(maps_client.ask("sample", index=3)) == {"index", "row", "factors", "observation"}


def test_models_of_maps_are_compared_by_pictures_and_layers(maps, maps_client):
    answer = maps_client.ask("compare", sample=ROW)
    assert [one["z"] for one in answer["models"]] == [None, None]
    x = maps.recording.data.batch([ROW])
    for one, subject in zip(answer["models"], (maps.subject, maps.other), strict=True):
        model = subject.recording.autoencoder
        error = (model.decode(model.encode(x).mean) - x).square().sum().item()
        assert one["error"] == pytest.approx(error, rel=1e-4)
    assert "Compare the layers" in maps_client.error(422, "similarity", of="latents")
    assert maps_client.ask("session")["similarities"] == ["layers"]


def test_a_constant_channel_is_shown_without_numbers_that_are_none(colours):
    def encode(x):
        z = F.avg_pool2d(x, 2)
        return torch.cat([z[:, :1], torch.full_like(z[:, :1], 2.0)], 1)

    model = zs.wrap(encode, lambda z: F.interpolate(z[:, :1], scale_factor=2).expand(-1, 3, -1, -1))
    session = Session(model, colours, name="constant")
    answer = Client(session).ask("channels", brush=[1, 2, 2, 3, 2], offset=[0, 1], exact=True)
    assert not numbers(answer["z"])[1].any()
    assert not numbers(answer["difference"]).any()
    assert answer["rings"] is None
    session.close()


@pytest.fixture(scope="module")
def sound():
    """Waves of 256 numbers, and latents of 2 x 64."""
    start = torch.rand(30, 1, generator=torch.Generator().manual_seed(0))
    waves = torch.sin(40 * (torch.linspace(0, 1, 256) + start))
    model = zs.wrap(
        lambda x: torch.cat([F.avg_pool1d(x[:, None], 4), F.max_pool1d(x[:, None], 4)], 1),
        lambda z: F.interpolate(z[:, :1], scale_factor=4)[:, 0],
        prior=None,
    )
    session = Session(model, waves, name="sound")
    yield session
    session.close()


def test_maps_along_time_are_brushed_and_pasted(sound):
    expected = latents(sound).clone()
    expected[1, 9:12] += 2 * statistics(sound)[1][1]
    same(changed(sound, brush=[1, 10, 3, 2]), expected)
    expected = latents(sound).clone()
    expected[:, 63:] = latents(sound, 4)[:, 63:]
    same(changed(sound, paste=[4, 63, 1]), expected)
    answer = Client(sound).ask("channels", sample=ROW, brush=[0, 5, 1, 1], exact=True)
    assert numbers(answer["difference"])[20:24] == pytest.approx(
        float(statistics(sound)[1][0] / (sound.renderer.high - sound.renderer.low)), rel=1e-4
    )
    assert answer["rings"]["gain"] == pytest.approx(1, abs=1e-5)
    assert "outside the map of 64 places" in Client(sound).error(
        422, "channels", brush=[0, 64, 1, 1]
    )


def test_long_sounds_keep_their_outline():
    sound = torch.zeros(12, 3 * LONG)
    sound[:, 1000], sound[:, 7001] = 1, -1
    model = zs.wrap(
        lambda x: F.avg_pool1d(x[:, None], 2),
        lambda z: F.interpolate(z, scale_factor=2)[:, 0],
        prior=None,
    )
    session = Session(model, sound, name="long")
    values = Client(session).ask("sample", index=0)["observation"]["values"]
    assert len(values) == LONG
    assert (max(values), min(values)) == (1, -1)
    assert values.index(1) == pytest.approx(1000 / 3, abs=2)
    assert (
        len(Client(session).ask("sample", index=0, exact=True)["observation"]["values"]) == 3 * LONG
    )
    session.close()


def test_channels_of_sound_are_rendered_one_after_the_other():
    x = torch.rand(12, 2, 3 * LONG, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(
        lambda x: F.avg_pool1d(x, 4), lambda z: F.interpolate(z, scale_factor=4), prior=None
    )
    session = Session(model, x, name="stereo")
    assert session.recording.layout == zs.Layout(2, (3 * LONG // 4,))
    client = Client(session)
    assert client.ask("session")["observation"]["shape"] == [2, 3 * LONG]
    values = np.reshape(client.ask("sample", index=ROW)["observation"]["values"], (2, LONG))
    parts = session.recording.data.batch([ROW])[0].numpy().reshape(2, LONG // 2, 6)
    np.testing.assert_array_equal(values[:, ::2], parts.min(2))
    np.testing.assert_array_equal(values[:, 1::2], parts.max(2))
    answer = client.ask("channels", sample=ROW, brush=[1, 0, 1, 1])
    difference = numbers(answer["difference"])
    assert difference.shape == (LONG,)
    sigma = float(statistics(session)[1][1])
    shift = sigma / 2 / (session.renderer.high - session.renderer.low)  # in one of two channels
    assert difference.max() == pytest.approx(shift, rel=1e-3)
    assert not difference[4:].any()
    session.close()


def test_a_frame_of_a_video_in_colours_is_shown():
    x = torch.rand(12, 3, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(
        lambda x: F.avg_pool3d(x, 2), lambda z: F.interpolate(z, scale_factor=2), prior=None
    )
    session = Session(model, x, name="colours")
    client = Client(session)
    look = client.ask("session")["observation"]
    assert (look["kind"], look["shape"], look["frames"]) == ("picture", [3, 8, 8], 4)
    shown = client.ask("sample", index=ROW, frame=2)["observation"]
    frame = session.recording.data.batch([ROW])[0, :, 2]
    np.testing.assert_array_equal(
        pixels(shown), (255 * frame.permute(1, 2, 0)).round().byte().numpy()
    )
    session.close()


@pytest.fixture(scope="module")
def video():
    """Six grey frames of 8 x 8, and latents of 1 x 3 x 4 x 4."""
    x = torch.rand(20, 6, 8, 8, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(
        lambda x: F.avg_pool3d(x[:, None], 2),
        lambda z: F.interpolate(z, scale_factor=2)[:, 0],
        prior=None,
    )
    session = Session(model, x, name="video")
    yield session
    session.close()


def test_a_brush_on_a_video_changes_one_frame_of_latents(video):
    expected = latents(video).clone()
    expected[0, 1, 0:2, 2:4] += statistics(video)[1][0]
    same(changed(video, brush=[0, 1, 0, 2, 2, 1]), expected)
    distance = numbers(
        Client(video).ask("channels", brush=[0, 1, 0, 2, 2, 1], exact=True)["rings"]["distance"]
    )
    assert distance.shape == (3, 4, 4)
    assert distance[1, 0, 2] == 0
    assert distance[0, 0, 2] == distance[2, 1, 3] == 1
    assert distance[1, 0, 0] == 2


def test_a_frame_of_a_video_is_shown(video):
    client = Client(video)
    assert client.ask("session")["observation"]["frames"] == 6
    x = video.model.decode(video.codes[[ROW]])[0]
    for frame in (0, 5):
        shown = client.ask("channels", sample=ROW, frame=frame)["decoded"]
        np.testing.assert_array_equal(
            pixels(shown)[..., 0], (255 * x[frame]).round().byte().numpy()
        )
    whole = client.ask("channels", sample=ROW, brush=[0, 0, 1, 1, 1, 1], exact=True)
    assert numbers(whole["difference"]).any()
    later = client.ask("channels", sample=ROW, brush=[0, 0, 1, 1, 1, 1], frame=4, exact=True)
    assert not numbers(later["difference"]).any()
    assert "no frame 6" in client.error(422, "channels", frame=6)


def test_what_was_assumed_about_the_layout_is_passed_on():
    x = torch.rand(12, 16, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(lambda x: x.reshape(-1, 2, 8), lambda z: z.reshape(-1, 16), prior=None)
    session = Session(model, x, name="guessed")
    note = Client(session).ask("session")["layout"]["note"]
    assert "channels last" in note
    assert note == session.model.layout_note
    session.close()


def test_maps_of_four_axes_are_refused_at_the_start():
    x = torch.rand(12, 16, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(lambda x: x.reshape(-1, 1, 2, 2, 2, 2), lambda z: z.reshape(-1, 16), prior=None)
    with pytest.raises(InterfaceError, match="4 axes of places; the explorer shows up to 3"):
        Session(model, x, name="four")


def test_fewer_pictures_are_encoded_where_latents_are_maps():
    x = torch.rand(PICTURES + 50, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    for latents_are_maps, expected in ((True, PICTURES), (False, PICTURES + 50)):
        model = zs.wrap(
            lambda x: x.clone(), lambda z: z.reshape(-1, 1, 2, 2), prior=None,
            layout="auto" if latents_are_maps else None,
        )  # fmt: skip
        session = Session(model, x, name="many")
        assert len(session.recording) == expected
        session.close()
    session = Session(model, x, name="many", samples=20)
    assert len(session.recording) == 20
    session.close()
    assert SAMPLES > PICTURES

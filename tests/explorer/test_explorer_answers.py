"""What the explorer answers is what the library says."""

from base64 import b64decode

import numpy as np
import pytest
import torch
from conftest import Client

import zscope as zs
from zscope import assays, sampling
from zscope.assays.engine import respond
from zscope.errors import InterfaceError
from zscope.explorer.rendering import Renderer
from zscope.explorer.session import Session
from zscope.randomness import named_generator


def close(answer, expected, tolerance=1e-5):
    return torch.testing.assert_close(
        torch.tensor(answer).double(),
        torch.as_tensor(expected).double(),
        rtol=tolerance,
        atol=tolerance,
    )


def pixels(picture):
    shape = (picture["height"], picture["width"], picture["channels"])
    return np.frombuffer(b64decode(picture["bytes"]), np.uint8).reshape(shape)


Z = [0.5, -1.0, 0.25, 0.0, 2.0, -0.5]


def test_a_decoded_vector_is_what_the_decoder_returns(client, pictures):
    expected = pictures.model.decode(torch.tensor([Z]))[0]
    exact = client.ask("latents", z=Z, exact=True)["decoded"]
    assert exact["shape"] == [1, 32, 32]
    close(exact["values"], expected.flatten(), 0)
    picture = client.ask("latents", z=Z)["decoded"]
    np.testing.assert_array_equal(
        pixels(picture)[..., 0], (255 * expected[0]).round().byte().numpy()
    )


def test_the_response_and_how_far_it_moves_are_those_of_the_library(client, pictures):
    answer = client.ask("latents", z=Z)
    z = torch.tensor([Z])
    close(answer["response"], respond(pictures.model, z)[0])
    again = pictures.model.decode(respond(pictures.model, z))[0, 0]
    np.testing.assert_array_equal(
        pixels(answer["decoded_response"])[..., 0], (255 * again).round().byte().numpy()
    )
    score = assays.hole_score(
        pictures.model,
        z,
        pictures.recording,
    )
    assert answer["displacement"]["distance"] == pytest.approx(score.displacement.item())
    assert answer["displacement"]["percentile"] == pytest.approx(score.percentile.item())
    assert answer["displacement"]["hole"] == bool(score.holes)
    assert answer["displacement"]["from_codes"] == pytest.approx(score.code_distance.item())
    assert answer["displacement"]["from_data"] == pytest.approx(score.data_distance.item())
    assert answer["displacement"]["unlike"] == bool(score.unlike_data)


def test_a_query_string_and_a_body_ask_the_same(client):
    text = ",".join(map(str, Z))
    assert client.get(f"/api/latents?z={text}").json() == client.ask("latents", z=Z)
    assert client.get("/api/matrix?kind=relative").json() == client.ask("matrix", kind="relative")


def test_many_vectors_at_once_are_answered_one_by_one(client):
    other = [0.1 * value for value in Z]
    answer = client.ask("decode", codes=[Z, other], exact=True)
    for k, z in enumerate((Z, other)):
        alone = client.ask("latents", z=z, exact=True)
        close(answer["decoded"][k]["values"], alone["decoded"]["values"])
        close(answer["response"][k], alone["response"])


def test_a_sample_is_the_recorded_observation_with_its_code_and_factors(client, pictures, sprites):
    answer = client.ask("sample", index=5)
    recording = pictures.recording
    assert answer["row"] == int(recording.rows[5])
    np.testing.assert_array_equal(
        pixels(answer["observation"])[..., 0], sprites.images[answer["row"]][0]
    )
    close(answer["z"], recording.codes[5])
    assert answer["factors"] == sprites.factors[answer["row"]].tolist()
    assert client.ask("latents", sample=5)["z"] == pytest.approx(answer["z"])
    assert client.ask("sample")["index"] == pictures.start


@pytest.mark.parametrize("source", ["prior", "posterior", "hybrid", "uniform"])
def test_draws_are_those_of_zscope_sampling(client, pictures, source):
    origin = pictures.model if source == "prior" else pictures.recording.posterior
    generator = named_generator(3, "explorer")
    expected = getattr(sampling, source)(origin, 1, generator=generator)[0]
    close(client.ask("draw", source=source, seed=3)["z"], expected)


def test_projecting_repeats_the_response_until_it_rests():
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    session = Session(zs.wrap(lambda x: x / 2, lambda z: z, latents=3), x, name="halving")
    answer = Client(session).ask("project", z=[8, 0, -6])
    steps = [10 / 2 ** (k + 1) for k in range(len(answer["steps"]))]
    assert answer["steps"] == pytest.approx(steps, rel=1e-4)
    spread = (session.codes - session.codes.mean(0)).norm(dim=1).square().mean().sqrt()
    assert answer["converged"]
    assert steps[-1] <= 1e-3 * spread < steps[-2]
    close(answer["codes"][2], [2, 0, -1.5])
    assert answer["frames"][0] == {"pass": 0, "decoded": {"values": [8, 0, -6]}}
    assert answer["frames"][-1]["pass"] == len(answer["codes"]) - 1
    assert not Client(session).ask("project", z=[8, 0, -6], passes=3)["converged"]
    session.close()


def test_a_traversal_moves_one_latent_over_its_range(client, pictures):
    answer = client.ask("traversal", latent=1, steps=5, z=Z)
    row = next(row for row in pictures.latents if row["latent"] == 1)
    assert answer["values"] == pytest.approx(np.linspace(row["low"], row["high"], 5).tolist())
    codes = torch.tensor([Z]).repeat(5, 1)
    codes[:, 1] = torch.tensor(answer["values"])
    close(answer["response"], respond(pictures.model, codes))
    middle = (255 * pictures.model.decode(codes)[2, 0]).round().byte().numpy()
    np.testing.assert_array_equal(pixels(answer["decoded"][2])[..., 0], middle)


def test_latents_come_with_the_most_important_first(client, rows_client):
    about = client.ask("session")
    order = [row["kl"] for row in about["latents"]]
    assert order == sorted(order, reverse=True)
    assert {row["latent"] for row in about["latents"] if row["type"] == "passive"} == {4, 5}
    assert about["prior"] == "normal"
    assert [factor["name"] for factor in about["factors"]][:2] == ["shape", "scale"]
    rows = rows_client.ask("session")
    responses = [row["response"] for row in rows["latents"]]
    assert responses == sorted(responses, reverse=True)
    assert rows["prior"] is None
    assert rows["observation"]["kind"] == "row"


def test_a_map_is_the_response_map_with_codes_and_a_factor(client, pictures):
    answer = client.ask("map", first=1, second=0, grid=8, sample=3, factor=1)
    field = assays.response_map(
        pictures.model, pictures.codes[3], (1, 0), grid=8, extent=answer["extent"]
    )
    close(answer["values"], field.divergence)
    close(client.ask("map", first=1, second=0, grid=8, sample=3, layer="curvature")["values"],
          field.curvature)  # fmt: skip
    rows = answer["samples"]
    close(answer["codes"], pictures.codes[rows][:, [1, 0]])
    assert answer["factor"] == pictures.recording.factors[rows, 1].tolist()
    low0, high0, low1, high1 = answer["extent"]
    inside = torch.tensor(answer["codes"])
    within = (inside >= torch.tensor([low0, low1])) & (inside <= torch.tensor([high0, high1]))
    assert within.all(1).double().mean() > 0.98


def test_the_default_plane_is_that_of_the_report(client, pictures):
    dims = assays.response_map(pictures.recording, grid=4, decode_grid=0).dims
    assert client.ask("map", grid=8, layer="none")["dims"] == list(dims)
    assert client.ask("map", grid=8, layer="none", second=dims[0])["dims"][1] == dims[0]


def test_the_holes_of_a_map_are_hole_scores_of_its_points(client, pictures):
    answer = client.ask("map", first=0, second=1, grid=5, layer="holes")
    base = torch.tensor(answer["base"])
    low0, high0, low1, high1 = answer["extent"]
    codes = base.repeat(25, 1)
    codes[:, :2] = torch.cartesian_prod(
        torch.linspace(low0, high0, 5), torch.linspace(low1, high1, 5)
    )
    score = assays.hole_score(
        pictures.model,
        codes,
        pictures.recording,
    )
    close(answer["values"], score.ratio.reshape(5, 5), 1e-4)
    near = {"from_codes": score.code_distance, "from_data": score.data_distance}
    for layer, values in near.items():
        shown = client.ask("map", first=0, second=1, grid=5, layer=layer)
        close(shown["values"], values.reshape(5, 5), 1e-4)
    marked = client.ask("map", first=0, second=1, grid=5)["unlike"]
    assert np.flatnonzero(marked).tolist() == score.unlike_data


def test_a_path_leads_from_its_start_to_its_end(client, pictures):
    where = {"first": 0, "second": 1, "grid": 12, "start": [-2, -1], "end": [2.2, 1.5]}
    answer = client.ask("path", **where)
    for name in ("points", "straight"):
        close(answer[name][0], [-2, -1])
        close(answer[name][-1], [2.2, 1.5])
    assert answer["minimised"] == "density"
    assert 0 <= answer["from_codes"] <= answer["straight_from_codes"]
    assert answer["decoded_length"] >= answer["largest_jump"] > 0
    assert answer["straight_decoded_length"] >= answer["straight_largest_jump"] > 0
    base = torch.tensor(client.ask("sample")["z"])
    base[:2] = torch.tensor([-2.0, -1.0])
    first = (255 * pictures.model.decode(base[None])[0, 0]).round().byte().numpy()
    for name in ("frames", "straight_frames"):
        np.testing.assert_array_equal(pixels(answer[name][0])[..., 0], first)
    whole = client.ask("path", **where, within="all")
    close(whole["points"][-1], [2.2, 1.5])


def test_a_path_in_a_model_of_two_latents_keeps_their_order(rows_client):
    answer = rows_client.ask(
        "path", first=1, second=0, grid=8, start=[-0.5, 0.2], end=[0.4, 1.0], frames=3
    )
    close(answer["points"][0], [-0.5, 0.2])
    close(answer["points"][-1], [0.4, 1.0])
    assert len(answer["frames"]) == 3
    assert len(answer["frames"][0]["values"]) == 3


def test_matrices_are_those_of_the_assays(client, pictures, sprites):
    matrix = assays.response_matrix(pictures.recording)
    response = client.ask("matrix", kind="response")
    close(response["values"], matrix.matrix)
    assert response["causal"] == matrix.causal == [0, 1, 2, 3]
    close(client.ask("matrix", kind="relative")["values"], matrix.relative)
    conditioned = client.ask("matrix", kind="conditioned")
    assert conditioned["rows"] == list(sprites.factor_names)
    assert np.shape(conditioned["values"]) == (len(sprites.factor_names), 6)
    importance = client.ask("matrix", kind="importance")
    assert importance["columns"] == [0, 1, 2, 3]
    answer = assays.dci(pictures.recording)
    assert importance["disentanglement"] == pytest.approx(answer.disentanglement)
    close(importance["values"], answer.importance.T)
    invariance = client.ask("matrix", kind="invariance")
    assert invariance["collapsed"] == [4, 5]


def test_the_graph_is_that_of_the_response_matrix(client, pictures):
    answer = client.ask("graph")
    matrix = assays.response_matrix(pictures.recording)
    assert [node["latent"] for node in answer["nodes"]] == matrix.causal
    assert {(edge["from"], edge["to"]) for edge in answer["edges"]} == set(matrix.edges())
    assert answer["pairs"] == [list(pair) for pair in matrix.pairs]
    none = client.ask("graph", threshold=answer["largest"] + 1)
    assert none["edges"] == none["pairs"] == []
    every = client.ask("graph", threshold=0)
    assert len(every["edges"]) >= len(answer["edges"])


def test_the_graph_has_the_edges_of_a_report_with_intervals():
    # Pairs turned by 8 to 12 degrees: responses about as large as leaks may be.
    blocks = [torch.tensor([[1.0, s], [-s, 1.0]]) for s in (0.14, 0.15, 0.16, 0.17, 0.18, 0.2)]
    matrix = torch.block_diag(*blocks)
    model = zs.wrap(lambda x: x @ matrix, lambda z: z, latents=12)
    codes = torch.randn(500, 12, generator=torch.Generator().manual_seed(0))
    session = Session(model, codes @ torch.linalg.inv(matrix), name="pairs", samples=500)
    try:
        report = zs.assay(session.recording, names=["response-matrix"], resamples=5)
        expected = set(report.results["response-matrix"].edges())
        answer = Client(session).ask("graph")
        by_slider = Client(session).ask("graph", threshold=answer["default"])
    finally:
        session.close()
    assert 0 < len(expected) < 12
    for graph in (answer, by_slider):
        assert {(edge["from"], edge["to"]) for edge in graph["edges"]} == expected


def test_a_sheet_of_samples_tells_which_lie_in_holes(client, pictures):
    answer = client.ask("samples", source="prior", count=20, seed=4)
    codes = sampling.prior(pictures.model, 20, generator=named_generator(4, "explorer"))
    close(answer["codes"], codes)
    score = assays.hole_score(
        pictures.model,
        codes,
        pictures.recording,
    )
    assert [one["hole"] for one in answer["displacement"]] == [k in score.holes for k in range(20)]
    assert answer["holes"] == score.score
    assert answer["unlike"] == len(score.unlike_data) / 20
    data = client.ask("samples", source="data", count=7)
    for k, row in enumerate(data["samples"]):
        assert data["observations"][k] == client.ask("sample", index=row)["observation"]
        close(data["codes"][k], pictures.codes[row])


def test_two_models_are_compared_on_the_same_sample(client, pictures):
    answer = client.ask("compare", sample=9)
    x = pictures.recording.data.batch([9])
    both = [pictures.model, pictures.other.recording.autoencoder]
    for model_answer, model in zip(answer["models"], both, strict=True):
        code = model.encode(x).mean
        close(model_answer["z"], code[0])
        error = (model.decode(code) - x).square().sum().item()
        assert model_answer["error"] == pytest.approx(error, rel=1e-4)
    assert [model_answer["name"] for model_answer in answer["models"]] == ["pictures", "turned"]


def test_similarity_finds_the_turned_latents(client):
    answer = client.ask("similarity", of="latents")
    values = np.array(answer["values"])
    assert values.shape == (6, 4)
    # Noise of 0.2 in both: 1 / (1 + 0.04).
    assert values[2, 2] == pytest.approx(1 / 1.04, abs=0.03)
    assert values[0, 0] == pytest.approx(np.cos(0.7) / 1.04, abs=0.05)
    assert values[4:].max() < 0.2
    layers = client.ask("similarity", of="layers")
    at = layers["rows"].index("mean"), layers["columns"].index("mean")
    assert np.array(layers["values"])[at] == pytest.approx(1, abs=1e-3)


def test_a_model_without_a_prior_or_factors_says_what_is_missing(rows_client):
    assert "has no prior" in rows_client.error(422, "draw", source="prior")
    assert "has no prior" in rows_client.error(422, "samples", source="prior")
    assert "--compare" in rows_client.error(422, "compare")
    plain = Session(
        _identity(), torch.rand(50, 3, generator=torch.Generator().manual_seed(0)), name="plain"
    )
    api = Client(plain)
    for kind in ("conditioned", "importance"):
        assert "come without factors" in api.error(422, "matrix", kind=kind)
    assert "factor 0, but the data have 0" in api.error(422, "map", factor=0, grid=4)
    plain.close()


def _identity(latents=3):
    return zs.wrap(lambda x: x, lambda z: z, latents=latents)


def test_numbers_that_the_model_does_not_have_are_refused_by_name(client):
    assert "2 numbers, but the model has 6" in client.error(422, "latents", z=[0, 1])
    assert "no sample 300: 300 were recorded" in client.error(422, "sample", index=300)
    assert "no latent 6: the model has 6" in client.error(422, "traversal", latent=6)
    assert "latent 2 was chosen twice" in client.error(422, "map", first=2, second=2)
    assert "factor 9" in client.error(422, "map", factor=9, grid=4)
    assert "off the map" in client.error(422, "path", start=[99, 0], end=[0, 0], grid=6)


def test_a_model_with_one_latent_has_no_map():
    x = torch.rand(40, 1, generator=torch.Generator().manual_seed(0))
    session = Session(_identity(1), x, name="one")
    assert "needs two latents" in Client(session).error(422, "map")
    session.close()


def test_a_collapsed_model_is_explored_without_hole_scores():
    class Collapsed(zs.Autoencoder):
        latents = 2

        def encode(self, x, auxiliary=None):
            return zs.Posterior(torch.zeros(len(x), 2), torch.ones(len(x), 2))

        def decode(self, z):
            return torch.zeros(len(z), 3)

    session = Session(Collapsed(), torch.zeros(30, 3), name="collapsed")
    api = Client(session)
    assert "collapsed" in api.ask("session")["no_hole_scores"]
    assert api.ask("latents", z=[0, 1])["displacement"] is None
    assert api.ask("samples", count=2)["holes"] is None
    assert "none of the 2 latents" in api.error(422, "map", layer="holes", grid=4)
    session.close()


def test_data_that_do_not_fit_the_model_are_said_at_the_start():
    x = torch.rand(20, 3, generator=torch.Generator().manual_seed(0))
    weight = torch.ones(5, 2)
    model = zs.wrap(lambda x: x, lambda z: z, latents=3)

    class Other(zs.Autoencoder):
        latents = 2

        def encode(self, x, auxiliary=None):
            return zs.Posterior(x @ weight)

        def decode(self, z):
            return z @ weight.T

    with pytest.raises(InterfaceError, match=r"wide raised RuntimeError on .*\(3,\).*--data"):
        Session(Other(), x, name="wide")
    with pytest.raises(InterfaceError, match="explore: wide raised RuntimeError"):
        Session(model, x, name="one", other=Other(), other_name="wide")
    pictures = torch.rand(20, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    flat = zs.wrap(lambda x: x.reshape(len(x), 4), lambda z: z, latents=4)
    with pytest.raises(zs.ZscopeError, match=r"shape \(4,\).*\(1, 2, 2\)"):
        Session(flat, pictures, name="flat")


def test_too_many_latents_for_a_matrix_are_said_so():
    x = torch.rand(300, 300, generator=torch.Generator().manual_seed(0))
    session = Session(_identity(300), x, name="wide")
    api = Client(session)
    assert "300 latents" in api.error(422, "matrix")
    assert "300 latents" in api.error(422, "graph")
    assert len(api.ask("latents")["z"]) == 300
    session.close()


def test_pictures_keep_one_range_and_travel_small():
    signed = Renderer(zs.data.from_arrays(np.float32([[[[-1, 1], [0, 0.5]]]])))
    assert (signed.low, signed.high) == (-1, 1)
    picture = signed.render(torch.tensor([[[[-1.0, 1.0], [0.0, 3.0]]]]))[0]
    np.testing.assert_array_equal(pixels(picture)[..., 0], [[0, 255], [128, 255]])
    wide = Renderer(zs.data.from_arrays(np.zeros((2, 3, 200, 100), np.uint8)))
    small = wide.render(torch.ones(1, 3, 200, 100), most=96)[0]
    assert (small["height"], small["width"], small["channels"]) == (67, 34, 3)
    assert set(pixels(small).flatten()) == {255}
    several = Renderer(zs.data.from_arrays(np.zeros((2, 2, 4, 4), np.float32)))
    side = several.render(torch.stack([torch.zeros(4, 4), torch.ones(4, 4)])[None])[0]
    assert (side["height"], side["width"], side["channels"]) == (4, 8, 1)
    kelvin = Renderer(zs.data.from_arrays(np.float32([[[[250, 300]]]])))
    assert (kelvin.low, kelvin.high) == (250, 300)

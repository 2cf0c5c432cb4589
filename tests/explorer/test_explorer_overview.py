"""The overview of the codes: its numbers, and what files and tables hold."""

import base64
import csv
import io
import json
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import Client, Principal

import zscope as zs
from zscope.errors import DataError
from zscope.explorer.embedding import principal_components
from zscope.explorer.session import Session


def floats(answer):
    values = np.frombuffer(base64.b64decode(answer["floats"]), "<f4")
    assert len(values) == answer["count"]
    return values


def test_principal_components_are_those_of_numpy():
    generator = torch.Generator().manual_seed(0)
    codes = torch.randn(200, 5, generator=generator) @ torch.randn(5, 5, generator=generator)
    points, shares = principal_components(codes)
    centred = codes.double().numpy() - codes.double().numpy().mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    assert np.abs(points.numpy()) == pytest.approx(np.abs(left * sizes), abs=1e-9)
    assert shares.numpy() == pytest.approx(sizes**2 / (sizes**2).sum())


@pytest.mark.parametrize("shape", [(30, 50), (4, 2), (40, 1)])
def test_components_keep_distances_whatever_the_shape(shape):
    codes = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    points, shares = principal_components(codes)
    assert points.shape == (shape[0], min(*shape, 10))
    assert float(shares.sum()) <= 1 + 1e-9
    if min(shape) <= 10:
        assert torch.cdist(points, points) == pytest.approx(
            torch.cdist(codes.double(), codes.double()), abs=1e-6
        )


def test_the_plane_holds_all_codes_and_names_its_axes(client, pictures):
    answer = client.ask("overview")
    points, shares = principal_components(pictures.codes)
    assert answer["axes"] == [0, 1]
    assert answer["names"][0] == f"component 1 ({100 * shares[0]:.0f} %)"
    assert floats(answer["x"]) == pytest.approx(points[:, 0].numpy(), rel=1e-6)
    answer = client.ask("overview", method="latents", first=3)
    assert answer["names"][0] == "z3"
    assert answer["axes"][1] != 3
    assert (floats(answer["x"]) == pictures.codes[:, 3].numpy()).all()


def test_codes_of_one_latent_are_stacked_as_in_a_histogram(client, pictures):
    assert not client.ask("overview")["stacked"]
    answer = client.ask("overview", method="latents", first=1, second=1)
    assert answer["stacked"]
    assert answer["axes"] == [1, 1]
    assert answer["names"] == ["z1", "codes"]
    x, y = floats(answer["x"]), floats(answer["y"])
    assert (x == pictures.codes[:, 1].numpy()).all()
    counts, edges = np.histogram(x, bins=60)
    middle = np.abs(x[:, None] - edges).min(1) > 1e-5  # codes whose bin is beyond doubt
    bins = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, 59)
    assert middle.sum() > 0.9 * len(x)
    for each in set(bins[middle]) - set(bins[~middle]):
        assert sorted(y[bins == each]) == list(range(1, counts[each] + 1))


def test_a_model_with_one_latent_has_a_plane_and_a_constant_one_too(sprites):
    x = sprites.batch(slice(None))
    for used, height in ((1, 40), (0, 100)):
        session = Session(
            Principal(x, used=used, unused=1 - used), sprites, name="one", samples=100
        )
        for method in ("pca", "latents"):
            answer = Client(session).ask("overview", method=method)
            assert answer["stacked"]
            assert answer["axes"] == [0, 0]
            top = floats(answer["y"]).max()
            assert top == 100 if used == 0 else 1 < top < height
        session.close()


@pytest.mark.parametrize(("parameters", "text"), [
    ({"first": 17}, "there is no component 17: there are 6"),
    ({"method": "latents", "second": 6}, "there is no latent 6"),
    ({"method": "tsne"}, "method='tsne' is not valid"),
])  # fmt: skip
def test_axes_that_do_not_exist_are_refused(client, parameters, text):
    assert text in client.error(422, "overview", **parameters)


def test_colours_are_factors_scores_and_spreads(client, pictures):
    recording = pictures.recording
    shape = client.ask("colours", of="factor", index=0)
    assert (floats(shape["values"]) == recording.factors.values[:, 0]).all()
    assert shape["words"] == list(recording.factors.labels["shape"])
    assert shape["kind"] == "categorical"
    holes = client.ask("colours", of="holes")
    score = zs.assays.hole_score(recording.autoencoder, recording.codes, recording)
    assert floats(holes["values"]) == pytest.approx(score.ratio.numpy(), rel=1e-4)
    spread = client.ask("colours", of="spread", index=5)
    assert set(floats(spread["values"])) == {1.0}
    # Four latents have the variance 0.04 and two that of the prior.
    assert set(floats(client.ask("colours", of="precise")["values"])) == {4.0}
    assert "there is no factor 9" in client.error(422, "colours", of="factor", index=9)
    assert "--labels FILE" in client.error(422, "colours", of="label")


def test_a_deterministic_model_has_no_spreads(rows_client):
    for of in ("spread", "precise"):
        assert "is deterministic" in rows_client.error(422, "colours", of=of)


def test_small_pictures_are_those_of_the_observations(client):
    answer = client.ask("pictures", samples=[4, 9], side=16)
    assert answer["samples"] == [4, 9]
    assert [one["width"] for one in answer["observations"]] == [16, 16]
    assert "there is no sample 300" in client.error(422, "pictures", samples=[300])


def test_a_selection_lists_each_sample_once_with_what_is_known(client, pictures):
    answer = client.ask("selection", samples=[7, 3, 7])
    assert answer["count"] == 2
    assert answer["samples"] == [3, 7]
    assert answer["columns"][:4] == ["index", "hole_score", "in_hole", "shape"]
    index = answer["columns"].index("index")
    assert [row[index] for row in answer["rows"]] == pictures.recording.rows[[3, 7]].tolist()
    many = client.ask("selection", samples=list(range(300)))
    assert many["count"] == 300
    assert len(many["rows"]) == 100


@pytest.mark.parametrize("samples", [[12, 5, 200], None])
def test_an_exported_file_has_the_rows_of_the_recording(client, pictures, samples):
    answer = client.ask("export", samples=samples)
    rows = list(range(300)) if samples is None else sorted(samples)
    assert answer["rows"] == len(rows)
    table = csv.DictReader(io.StringIO(base64.b64decode(answer["base64"]).decode()))
    expected = zs.code_table(pictures.recording, rows).columns
    for k, row in enumerate(table):
        assert int(row["index"]) == expected["index"][k]
        assert np.float32(row["code_2"]) == expected["code_2"][k]
        assert float(row["hole_score"]) == pytest.approx(expected["hole_score"][k], rel=1e-4)
        assert row["shape"] == expected["shape"][k]
    assert k == len(rows) - 1


def test_an_exported_parquet_file_can_be_read(client):
    parquet = pytest.importorskip("pyarrow.parquet")
    answer = client.ask("export", samples=[1, 2], format="parquet")
    table = parquet.read_table(io.BytesIO(base64.b64decode(answer["base64"])))
    assert table.num_rows == 2
    assert len(json.loads(table.schema.metadata[b"zscope"])["latents"]) == 6


def test_maps_are_laid_out_and_exported_but_have_no_plane_of_latents(maps_client, maps):
    answer = maps_client.ask("overview")
    assert answer["x"]["count"] == len(maps.codes)
    assert "the latents of this model are maps" in maps_client.error(
        422, "overview", method="latents"
    )
    assert maps_client.ask("selection", samples=[0])["columns"] == ["index"]


@pytest.mark.parametrize("form", ["words", "array", "frame", "file"])
def test_own_labels_follow_their_observations(sprites, tmp_path, form):
    words = np.array([f"batch {k % 3}" for k in range(len(sprites))])
    labels = words
    if form == "array":
        labels = np.arange(len(sprites)) % 3
    elif form == "frame":
        labels = pytest.importorskip("pandas").DataFrame({"batch": words, "row": range(len(words))})
    elif form == "file":
        labels = tmp_path / "labels.csv"
        labels.write_text("batch\n" + "\n".join(words))
    x = sprites.batch(slice(None))
    session = Session(Principal(x), sprites, name="labels", samples=50, labels=labels)
    try:
        answer = Client(session).ask("colours", of="label")
        values = floats(answer["values"])
        assert (values == session.recording.rows.numpy() % 3).all()
        assert answer["words"] == ([] if form == "array" else ["batch 0", "batch 1", "batch 2"])
        assert answer["name"] == ("batch" if form in ("frame", "file") else "label")
        name = answer["name"]
        assert name in Client(session).ask("selection", samples=[0])["columns"]
    finally:
        session.close()


def test_only_the_columns_of_codes_are_left_out_of_a_selection(sprites):
    labels = {"std_height": np.arange(len(sprites)), "code_name": np.arange(len(sprites))}
    labels = np.rec.fromarrays(list(labels.values()), names=list(labels))
    x = sprites.batch(slice(None))
    pd = pytest.importorskip("pandas")
    session = Session(Principal(x), sprites, name="own", samples=20, labels=pd.DataFrame(labels))
    answer = Client(session).ask("selection", samples=[3])
    session.close()
    assert {"std_height", "code_name"} < set(answer["columns"])
    assert not {"std_0", "code_0"} & set(answer["columns"])


def test_labels_of_other_observations_are_refused(sprites):
    x = sprites.batch(slice(None))
    with pytest.raises(DataError, match=r"7 labels for [\d,]+ observations"):
        Session(Principal(x), sprites, name="labels", samples=50, labels=np.arange(7))


def test_without_umap_the_page_says_what_to_install(client, monkeypatch):
    monkeypatch.setattr("zscope.explorer.embedding.find_spec", lambda name: None)
    assert "pip install umap-learn" in client.error(422, "overview", method="umap")


def test_a_umap_is_computed_once_in_the_background(sprites, monkeypatch):
    release, made = threading.Event(), []

    class Umap:
        def __init__(self, **options):
            made.append(options)

        def fit_transform(self, codes):
            assert release.wait(60)
            return codes[:, 1::-1]

    monkeypatch.setattr("zscope.explorer.embedding.find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
    session = Session(Principal(sprites.batch(slice(None))), sprites, name="umap", samples=40)
    try:
        api = Client(session)
        waiting = api.ask("overview", method="umap")
        assert waiting["ready"] is False
        assert waiting["seconds"] >= 0
        assert api.ask("overview")["ready"]  # others are answered meanwhile
        release.set()
        session.umap().thread.join(60)
        answer = api.ask("overview", method="umap")
        assert answer["names"] == ["UMAP 1", "UMAP 2"]
        assert (floats(answer["x"]) == session.codes[:, 1].numpy()).all()
        assert len(made) == 1
        assert made[0]["random_state"] == 0
    finally:
        release.set()
        session.close()


def test_a_umap_that_fails_is_said_and_not_repeated(sprites, monkeypatch):
    class Umap:
        def __init__(self, **options):
            raise ValueError("no neighbours")

    monkeypatch.setattr("zscope.explorer.embedding.find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
    session = Session(Principal(sprites.batch(slice(None))), sprites, name="umap", samples=40)
    try:
        session.umap().thread.join(60)
        message = Client(session).error(422, "overview", method="umap")
        assert "UMAP failed on 40 codes (ValueError: no neighbours)" in message
    finally:
        session.close()

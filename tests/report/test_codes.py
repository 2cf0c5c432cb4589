"""The table of codes: every column equals what it was made of."""

import csv
import json

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.assays.responses.holes import hole_score
from zscope.errors import ConfigError, MissingExtra

SHAPES = ["disc", "square"]


class Shrinking(zs.Autoencoder):
    """Encodes two numbers exactly and a third as noise; far codes come back at half their size."""

    latents = 3

    def encode(self, x, auxiliary=None):
        mean = torch.cat([x, torch.zeros(len(x), 1)], 1)
        std = torch.tensor([0.1, 0.1, 1.0]).expand(len(x), 3)
        return zs.Posterior(mean, std)

    def decode(self, z):
        z = z[:, :2]
        return torch.where(z.norm(dim=1, keepdim=True) > 3, z / 2, z)


@pytest.fixture(scope="module")
def recording():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=generator).clamp(-2, 2)
    x[7] = torch.tensor([5.0, 0.0])
    factors = np.column_stack([np.arange(400) % 2, np.arange(400), x[:, 0].numpy()])
    data = zs.Dataset(
        "points",
        x.numpy(),
        factors,
        factor_names=("shape", "index", "height"),
        factor_kinds=("categorical", "ordinal", "continuous"),
        factor_labels={"shape": SHAPES},
    )
    return zs.record(Shrinking(), data, samples=300)


@pytest.fixture(scope="module")
def table(recording):
    return zs.code_table(recording)


def test_columns_are_those_of_the_recording(table, recording):
    columns = table.columns
    assert list(columns) == [
        "index", "code_0", "code_1", "code_2", "std_0", "std_1", "std_2", "hole_score", "in_hole",
        "shape", "factor_index", "height", "path",
    ]  # fmt: skip
    assert len(table) == 300
    rows = recording.rows.numpy()
    assert (columns["index"] == rows).all()
    for j in range(3):
        assert (columns[f"code_{j}"] == recording.codes[:, j].numpy()).all()
        assert (columns[f"std_{j}"] == recording.posterior.variance[:, j].sqrt().numpy()).all()
    assert [SHAPES.index(word) for word in columns["shape"]] == (rows % 2).tolist()
    assert (columns["factor_index"] == rows).all()
    assert set(columns["path"]) == {""}


def test_hole_scores_are_those_of_the_assay(table, recording):
    score = hole_score(recording.autoencoder, recording.codes, recording)
    assert table.columns["hole_score"] == pytest.approx(score.ratio.numpy(), rel=1e-6)
    assert np.flatnonzero(table.columns["in_hole"]).tolist() == score.holes


def test_a_code_that_moves_is_in_a_hole_and_others_are_not():
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0)).clamp(-2, 2)
    x[7] = torch.tensor([5.0, 0.0])
    columns = zs.code_table(zs.record(Shrinking(), x.numpy())).columns
    assert columns["in_hole"].nonzero()[0].tolist() == [7]
    assert columns["hole_score"][7] > 10 * np.median(columns["hole_score"])


def test_the_metadata_have_the_type_of_each_latent(table, recording):
    types = zs.assays.variable_types(recording)
    latents = table.metadata["latents"]
    assert [row["latent"] for row in latents] == [0, 1, 2]
    assert [row["type"] for row in latents] == types.labels == ["active", "active", "passive"]
    assert table.metadata["factors"][0] == {
        "name": "shape", "kind": "categorical", "values": SHAPES, "column": "shape"
    }  # fmt: skip
    assert table.metadata["factors"][1]["column"] == "factor_index"


def test_some_rows_are_those_of_the_whole(table, recording):
    rows = [5, 2, 299]
    some = zs.code_table(recording, rows).columns
    for name, column in table.columns.items():
        assert (some[name] == column[rows]).all(), name


def test_a_parquet_file_gives_back_every_value_and_the_metadata(table, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert table.save(tmp_path / "codes.parquet") == [tmp_path / "codes.parquet"]
    read = parquet.read_table(tmp_path / "codes.parquet")
    assert read.column_names == list(table.columns)
    for name, column in table.columns.items():
        assert read[name].to_pylist() == column.tolist(), name
    assert json.loads(read.schema.metadata[b"zscope"]) == table.metadata


def test_a_csv_file_gives_back_every_value_and_has_its_metadata_beside_it(table, tmp_path):
    files = table.save(tmp_path / "codes.csv")
    assert [file.name for file in files] == ["codes.csv", "codes.metadata.json"]
    with files[0].open() as file:
        names, *rows = csv.reader(file)
    assert names == list(table.columns)
    for name, cells in zip(names, zip(*rows, strict=True), strict=True):
        column = table.columns[name]
        if column.dtype.kind == "f":  # single precision as well, although as few digits
            assert (np.array(cells).astype(column.dtype) == column).all(), name
        else:
            assert list(cells) == [str(value) for value in column], name
    assert json.loads(files[1].read_text()) == table.metadata


def test_a_frame_has_the_same_columns(table):
    pytest.importorskip("pandas")
    frame = table.to_frame()
    assert list(frame) == list(table.columns)
    assert (frame["code_1"].to_numpy() == table.columns["code_1"]).all()


def test_codes_alone_have_no_hole_score_and_no_spread():
    codes = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    table = zs.code_table(zs.Recording.from_arrays(codes))
    assert list(table.columns) == ["index", "code_0", "code_1", "path"]
    assert "only codes were given" in table.metadata["no_hole_score"]


def test_hole_scores_can_be_left_out(recording):
    table = zs.code_table(recording, holes=False)
    assert "hole_score" not in table.columns
    assert table.metadata["no_hole_score"] == "not asked for"


def test_latents_that_are_maps_have_the_types_of_channels():
    maps = torch.randn(20, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    layout = zs.Layout(2, (3, 3))
    recording = zs.Recording.from_arrays(maps, variances=maps.new_full(maps.shape, 0.01),
                                         layout=layout)  # fmt: skip
    table = zs.code_table(recording)
    assert table.metadata["layout"] == [2, 3, 3]
    assert [(row["channel"], row["type"]) for row in table.metadata["latents"]] == [
        (0, "active"), (1, "active"),
    ]  # fmt: skip
    assert (table.columns["code_10"] == maps[:, 1, 0, 1].numpy()).all()


def test_the_path_of_a_picture_is_that_of_its_file(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for k in range(12):
        folder = tmp_path / "dark" if k < 6 else tmp_path / "bright"
        folder.mkdir(exist_ok=True)
        pillow.fromarray(np.full((4, 4), 20 * k, np.uint8)).save(folder / f"{k:02}.png")
    data = zs.data.load(tmp_path)
    model = zs.wrap(
        lambda x: x.flatten(1)[:, :2], lambda z: z[:, :1].repeat(1, 16).view(-1, 1, 4, 4)
    )
    table = zs.code_table(zs.record(model, data, samples=5, seed=3), holes=False)
    for path, code, name in zip(
        *(table.columns[n] for n in ("path", "code_0", "class")), strict=True
    ):
        picture = np.asarray(pillow.open(path))
        assert picture[0, 0] / 255 == pytest.approx(code)
        assert path == str(tmp_path / name / path.rpartition("/")[2])


@pytest.mark.parametrize(("name", "text"), [
    ("codes.xlsx", "ends in .xlsx, and tables of codes are written as .parquet or .csv"),
    ("codes", "ends in nothing"),
    ("codes.parque", "Did you mean .parquet"),
])  # fmt: skip
def test_other_names_are_refused(table, tmp_path, name, text):
    with pytest.raises(ConfigError, match=text):
        table.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_parquet_without_pyarrow_names_what_to_install(table, tmp_path, monkeypatch):
    monkeypatch.setattr("zscope.report.codes.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"'pyarrow'.*zscope\[files\]"):
        table.save(tmp_path / "codes.parquet")

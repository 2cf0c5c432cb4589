"""zscope export, as a user meets it."""

import json
import os
import sys

import numpy as np
import pytest

import zscope as zs
from zscope.cli import main


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path):
    """Run a command in this process: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zscope", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    model = zs.models.build("beta-vae", shape=(3,), latents=2, hidden=(16,), beta=0.02, seed=0)
    zs.train(model, zs.data.load("helix"), steps=30, rate=2e-2, out=folder)
    return folder


def test_a_run_is_exported_with_its_own_data(zscope, trained, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    code, out, err = zscope("export", trained, "codes.parquet", "--samples", 200, "--seed", 3)
    assert code == 0, err
    assert "200 observations in codes.parquet: index, code_0, code_1, std_0" in out
    table = parquet.read_table(tmp_path / "codes.parquet")
    recording = zs.record(zs.load(trained), zs.data.load("helix"), samples=200, seed=3)
    assert table["index"].to_pylist() == recording.rows.tolist()
    assert table["code_1"].to_pylist() == recording.codes[:, 1].tolist()
    assert "hole_score" in table.column_names
    types = [row["type"] for row in json.loads(table.schema.metadata[b"zscope"])["latents"]]
    assert types == zs.assays.variable_types(recording).labels


def test_a_file_of_codes_is_exported_with_its_factors(zscope, tmp_path):
    codes = np.random.default_rng(0).normal(size=(30, 2))
    np.savez("both.npz", codes=codes, factors=np.arange(30) % 3)
    code, out, err = zscope("export", "both.npz", "codes.csv")
    assert code == 0, err
    assert "No hole scores: a model is needed, and only codes were given" in out
    assert "codes.metadata.json" in out
    lines = (tmp_path / "codes.csv").read_text().splitlines()
    assert lines[0] == "index,code_0,code_1,0,path"
    assert [line.split(",")[3] for line in lines[1:]] == [str(k % 3) for k in range(30)]


def test_hole_scores_can_be_left_out(zscope, trained, tmp_path):
    code, out, err = zscope("export", trained, "codes.csv", "--samples", 50, "--no-holes")
    assert code == 0, err
    assert "hole" not in out
    assert "hole" not in (tmp_path / "codes.csv").read_text()


def test_another_ending_is_refused_before_the_model_is_loaded(zscope):
    code, _, err = zscope("export", "no-such-run", "codes.xlsx")
    assert code == 1
    assert "ends in .xlsx" in err


def test_a_folder_is_not_replaced(zscope, trained, tmp_path):
    (tmp_path / "codes.csv").mkdir()
    code, _, err = zscope("export", trained, "codes.csv", "--samples", 50)
    assert code == 1
    assert "export: FILE codes.csv is a folder" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_is_no_file_for_a_table(zscope, trained, tmp_path):
    os.symlink("/dev/full", tmp_path / "codes.csv")
    code, _, err = zscope("export", trained, "codes.csv", "--samples", 50)
    assert code == 1
    assert "is no regular file" in err


def test_a_full_disk_is_said_in_one_line(zscope, trained, tmp_path, monkeypatch):
    def refuse(path, content):
        raise zs.errors.RunError(f"store: {path} could not be written (No space left on device).")

    monkeypatch.setattr("zscope.files.write_whole", refuse)
    code, _, err = zscope("export", trained, "codes.csv", "--samples", 50)
    assert code == 1
    assert "No space left" in err
    assert not list(tmp_path.glob("codes*"))

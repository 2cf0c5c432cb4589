"""zscope data: list, info and fetch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import zscope.data
from zscope.cli.data import app
from zscope.errors import DataError


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def test_the_list_shows_every_dataset_with_its_state(tmp_path):
    output = run("list", "--root", tmp_path).splitlines()
    assert output[0].split() == ["NAME", "STATE", "SAMPLES", "SHAPE"]
    lines = {line.split()[0]: line for line in output[1:]}
    assert list(lines) == zscope.data.names()
    assert "can be fetched" in lines["mnist"]
    assert "60,000" in lines["mnist"]
    assert "1x28x28" in lines["mnist"]
    assert "by hand" in lines["celeba"]
    assert "built in" in lines["sprites"]


def test_the_list_for_programs_is_json(tmp_path):
    entries = json.loads(run("list", "--json", "--root", tmp_path))
    assert [entry["name"] for entry in entries] == zscope.data.names()
    (mnist,) = (entry for entry in entries if entry["name"] == "mnist")
    assert mnist["state"] == "can be fetched"
    assert mnist["samples"] == 60_000
    assert mnist["shape"] == [1, 28, 28]


def test_info_tells_factors_options_files_licence_and_whom_to_cite(tmp_path):
    output = run("info", "dsprites", "--root", tmp_path)
    for part in (
        "737,280 samples of 1x64x64; can be fetched",
        "square, ellipse, heart",
        "resolution",
        "7da33b31b13a06f4b04a70402ce90c2e",
        "https://raw.githubusercontent.com/google-deepmind/dsprites-dataset",
        f"files, in {tmp_path}/dsprites",
        "download: zscope data fetch dsprites",
        "licence: Apache-2.0",
        "cite: Matthey",
    ):
        assert part in output


def test_info_says_what_to_do_where_there_is_no_address(tmp_path):
    output = run("info", "mpi3d-toy", "--root", tmp_path)
    assert "mpi3d_toy.npz  missing" in output
    (tmp_path / "mpi3d-toy").mkdir()
    (tmp_path / "mpi3d-toy" / "mpi3d_toy.npz").write_bytes(b"put in by hand")
    assert "here, will be checked at first use" in run("info", "mpi3d-toy", "--root", tmp_path)
    assert "download from https://github.com/rr-learning/disentanglement_dataset" in output


def test_info_for_programs_is_json(tmp_path):
    entry = json.loads(run("info", "smallnorb", "--json", "--root", tmp_path))
    assert [factor["size"] for factor in entry["factors"]] == [5, 10, 9, 18, 6]
    assert len(entry["files"]) == 6
    assert all(file["here"] is None for file in entry["files"])


def test_info_of_a_file_of_ones_own_says_how_it_is_read(tmp_path):
    np.savez(tmp_path / "x.npz", images=np.zeros((5, 8, 8, 3), np.uint8), labels=list("abcab"))
    output = run("info", tmp_path / "x.npz")
    assert "5 samples of 3x8x8; read as uint8" in output
    assert "labels  3  categorical  a, b, c" in output
    assert "kinds" in output
    entry = json.loads(run("info", "--json", tmp_path / "x.npz"))
    assert entry["factors"][0]["values"] == ["a", "b", "c"]


def test_info_shows_what_the_options_make_of_a_table(tmp_path):
    (tmp_path / "cells.csv").write_text("a,b,dose\n1,2,0.1\n3,4,0.5\n")
    path = tmp_path / "cells.csv"
    plain = run("info", path)
    assert "no factors" in plain
    assert "features: a, b, dose" in plain
    guessed = run("info", path, "--data-option", "factors=dose")
    assert "  dose    continuous (guessed)" in guessed
    assert "features: a, b\n" in guessed
    output = run("info", path, "--data-option", "factors=dose", "--data-option", "kinds=ordinal")
    assert "2 samples of 2; read as float32" in output
    assert "dose  2  ordinal  0.1, 0.5" in output


def test_fetch_imports_from_a_folder_and_info_shows_it(real_data, tmp_path):
    output = run("fetch", "mnist", "--from", real_data, "--root", tmp_path)
    assert output.count("sha256 verified") == 4
    assert f"mnist is in {tmp_path}/mnist" in output
    assert "zscope train vae mnist" in output
    assert "60,000 samples of 1x28x28; here" in run("info", "mnist", "--root", tmp_path)
    entry = json.loads(run("info", "mnist", "--json", "--root", tmp_path))
    assert entry["files"][0]["here"]["origin"].startswith(str(real_data))
    assert len(zscope.data.load("mnist", root=tmp_path)) == 60_000


def test_fetch_can_be_quiet(real_data, tmp_path):
    assert run("fetch", "mnist", "--from", real_data, "--root", tmp_path, "--quiet") == ""
    assert "here" in run("info", "mnist", "--root", tmp_path)


def test_a_hash_written_down_at_import_is_shown(tmp_path, monkeypatch):
    from zscope.data import mpi3d

    tiny = mpi3d.build("toy", "mpi3d_toy.npz", summary="", sizes=(1, 1, 1, 1, 1, 2, 2))
    monkeypatch.setattr(mpi3d, "TOY", tiny)
    np.savez(tmp_path / "mpi3d_toy.npz", images=np.zeros((4, 64, 64, 3), np.uint8))
    assert "structure checked" in run("fetch", "mpi3d-toy", "--from", tmp_path, "--root", tmp_path)
    output = run("info", "mpi3d-toy", "--root", tmp_path)
    assert "(recorded, not published)" in output


def test_unknown_names_get_the_nearest_known_ones():
    for command in ("info", "fetch"):
        with pytest.raises(DataError, match="Did you mean mnist"):
            run(command, "mnits")


@pytest.mark.parametrize("words", [["list"], ["info"], ["fetch"]])
def test_help_teaches_by_example(words):
    output = run(*words, "--help")
    assert "zscope " in output.split("Options:")[0].split("\n", 1)[1]


def test_without_a_command_the_help_is_shown():
    assert "fetch" in CliRunner().invoke(app, []).output


def command(*words, **environment):
    zscope_command = Path(sys.executable).with_name("zscope")
    return subprocess.run(
        [zscope_command, "data", *(str(word) for word in words)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_an_error_is_one_line_and_exit_code_1(tmp_path):
    result = command("fetch", "celeba", ZSCOPE_DATA=str(tmp_path))
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert f"put them into {tmp_path}/celeba" in result.stderr

"""zscope train and the command line itself, as a user meets them."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import zscope as zs
from zscope import store
from zscope.cli import main
from zscope.cli.options import settings, value
from zscope.errors import ConfigError


def here(*words, monkeypatch, capsys, cwd):
    """Run the command in this process: (exit code, its output, its errors)."""
    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["zscope", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    output = capsys.readouterr()
    return end.value.code or 0, output.out, output.err


def zscope(*words, cwd):
    """Run the command in a process of its own, as a shell would."""
    return subprocess.run(
        [sys.executable, "-c", "from zscope.cli import main; main()", *map(str, words)],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"},
    )


SMALL = ("--steps", 20, "--latents", 2, "--set", "hidden=8,8", "--quiet")


def test_a_run_is_trained_repeated_from_its_configuration_and_resumed(
    tmp_path, monkeypatch, capsys
):
    place = {"monkeypatch": monkeypatch, "capsys": capsys, "cwd": tmp_path}
    code, out, err = here("train", "vae", "helix", *SMALL, "--out", "one", "--json", **place)
    assert code == 0, err
    summary = json.loads(out)
    assert (summary["status"], summary["step"]) == ("finished", 20)
    again = zscope("train", "--config", "one/run.json", "--out", "two", "--quiet", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    for file in ("model.safetensors", "history.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    code, out, _ = here("train", "--out", "one", "--resume", **place)
    assert code == 0
    assert "finished at step 20" in out
    model = zs.load(tmp_path / "one")
    assert model.latents == 2


def test_the_default_folder_names_model_data_and_seed(tmp_path, monkeypatch, capsys):
    words = ("train", "ae", "helix", *SMALL, "--seed", 3)
    assert here(*words, monkeypatch=monkeypatch, capsys=capsys, cwd=tmp_path)[0] == 0
    assert store.open_run(tmp_path / "runs" / "ae-helix-3").finished


def test_collapse_is_said_once_also_to_the_quiet(tmp_path, monkeypatch, capsys):
    faint = 0.01 * np.random.default_rng(0).normal(size=(200, 4))
    np.save(tmp_path / "faint.npy", faint.astype(np.float32))
    words = ("train", "vae", "faint.npy", "--set", "backbone=linear", "--latents", 2, "--steps", 40,
             "--rate", 0.05, "--data-option", "standardise=false")  # fmt: skip
    for out, quiet in (("one", ()), ("two", ("--quiet",))):
        where = {"monkeypatch": monkeypatch, "capsys": capsys, "cwd": tmp_path}
        code, _, err = here(*words, "--out", out, *quiet, **where)
        assert (code, err.count("All 2 latents are passive after 40 steps")) == (0, 1), err


def test_a_split_is_part_of_the_configuration(tmp_path, monkeypatch, capsys):
    words = ("train", "vae", "helix", *SMALL, "--split", "0.5,0.5", "--out", "r")
    assert here(*words, monkeypatch=monkeypatch, capsys=capsys, cwd=tmp_path)[0] == 0
    split = store.open_run(tmp_path / "r").config["data"]["split"]
    assert split == {"fractions": [0.5, 0.5], "seed": 0, "part": 0}


def test_a_file_of_ones_own_is_trained_on(tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).normal(size=(50, 6)))
    words = ("train", "vae", "mine.npy", *SMALL)
    assert here(*words, monkeypatch=monkeypatch, capsys=capsys, cwd=tmp_path)[0] == 0
    assert zs.load(tmp_path / "runs" / "vae-mine-0").latents == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "vea", "helix"), "Did you mean vae"),
        (("train", "vae", "helx"), "Did you mean helix"),
        (("train", "vae", "helix", "--set", "bata=3"), "bata"),
        (("train", "vae", "helix", "--set", "beta"), "not of the form key=value"),
        (("train", "vae", "helix", "--rate", "-1"), "rate"),
        (("train", "vae", "gone.npy"), "gone.npy"),
        (("train",), "MODEL and DATASET are missing"),
        (("train", "--resume", "--out", "nothing"), "nothing"),
        (("train", "vae", "helix", "--split", "a,b"), "list of fractions"),
        (("train", "vae", "helix", "--config", "x.json"), "both MODEL"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(tmp_path, monkeypatch, capsys, words, message):
    words = (*words, *(() if "--resume" in words else SMALL))
    code, _, errors = here(*words, monkeypatch=monkeypatch, capsys=capsys, cwd=tmp_path)
    assert code == 1
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_an_error_is_no_traceback_in_a_real_shell(tmp_path):
    done = zscope("train", "vea", "helix", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("models:")
    assert done.stderr.count("\n") == 1


def test_an_unknown_command_gets_the_nearest_known_one(tmp_path):
    done = zscope("trian", cwd=tmp_path)
    assert done.returncode == 2
    assert "train" in done.stderr


def test_help_teaches_and_loads_nothing_heavy(tmp_path):
    code = (
        "import sys; sys.argv = ['zscope', '--help']\n"
        "from zscope.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'sklearn', 'rich', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in ("demo", "data", "train"):
        assert command in done.stdout
    assert "zscope train --out runs/mine --resume" in zscope("train", "--help", cwd=tmp_path).stdout


def test_importing_zscope_loads_nothing_heavy():
    code = (
        "import sys, zscope\nzscope.wrap, zscope.record, zscope.data.load, zscope.models.build\n"
        "zscope.train, zscope.assays\n"
        "heavy = {'matplotlib', 'sklearn', 'fastapi', 'dask', 'distributed'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_values_are_read_as_what_they_look_like():
    words = ["a=1", "b=.5", "c=true", "d=8,8", "e=relu", "f=1e-4", "g-h=None"]
    assert settings(words, "--set") == {
        "a": 1, "b": 0.5, "c": True, "d": [8, 8], "e": "relu", "f": 1e-4, "g_h": None,
    }  # fmt: skip
    assert value("[1, 2]") == [1, 2]
    with pytest.raises(ConfigError, match="key=value"):
        settings(["=3"], "--set")


@pytest.mark.parametrize("option", [("--steps", "9"), ("--set", "beta=4"), ("--latents", "3")])
def test_options_are_not_dropped_silently_when_a_run_is_repeated(
    tmp_path, monkeypatch, capsys, option
):
    code, _, err = here(
        "train", "--out", "run", "--resume", *option,
        monkeypatch=monkeypatch, capsys=capsys, cwd=tmp_path,
    )  # fmt: skip
    assert code == 1
    assert option[0] in err
    assert "Leave it out" in err

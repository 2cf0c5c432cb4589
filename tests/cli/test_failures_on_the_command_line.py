"""A failing assay is never silent, whatever the output."""

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from zscope.assays import CATALOGUE
from zscope.assays.arguments import accepts_recording
from zscope.cli import app


@accepts_recording
def mig(codes, factors, *, variances=None):
    raise ZeroDivisionError("a fault")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command on codes for which MIG fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(import_module(CATALOGUE["mig"].module), "mig", mig)
    values = np.random.default_rng(0).integers(3, size=(60, 2))
    np.savez("both.npz", codes=values.astype(float), factors=values)

    def call(*words):
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == 1
        return result

    return call


COMMANDS = [("assay", "both.npz", "mig", "irs"), ("score", "both.npz", "--only", "mig")]


@pytest.mark.parametrize("words", COMMANDS)
def test_with_csv_the_message_goes_to_stderr(run, words):
    result = run(*words, "--csv")
    assert "ZeroDivisionError" not in result.stdout
    assert "mig: Failed with ZeroDivisionError: a fault." in result.stderr
    assert "--json" in result.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_on_a_terminal_the_traceback_is_pointed_to(run, words):
    result = run(*words)
    assert "mig: Failed with ZeroDivisionError" in result.stdout
    assert "For the traceback, run it again with --json." in result.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_json_has_the_traceback_and_needs_no_hint(run, words):
    result = run(*words, "--json")
    assert "Traceback (most recent call last)" in json.dumps(json.loads(result.stdout))
    assert result.stderr == ""


def test_a_report_says_which_file_has_the_traceback(run):
    result = run("report", "both.npz", "mig", "-o", "page.html")
    assert "The tracebacks are in page.json" in result.stdout
    assert "Traceback" in Path("page.json").read_text()
    assert "-o report.html" in run("report", "both.npz", "mig", "-o", "scores.csv").stdout

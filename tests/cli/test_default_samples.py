"""The number of samples that the help of a command states is that of the library."""

import re

import pytest
from typer.testing import CliRunner

from zscope import recording
from zscope.cli import app
from zscope.experiments import comparison
from zscope.explorer import session

DEFAULTS = {
    "assay": recording.SAMPLES,
    "report": recording.SAMPLES,
    "fondue": recording.SAMPLES,
    "compare": comparison.SAMPLES,
    "dynamics": comparison.SAMPLES,
    "select": recording.SAMPLES,
    "explore": session.SAMPLES,
}


@pytest.mark.parametrize("command", DEFAULTS)
def test_the_help_states_the_default_of_the_library(command):
    text = " ".join(CliRunner().invoke(app, [command, "--help"]).stdout.split())
    assert f"(default {DEFAULTS[command]:,}" in re.split("--samples", text)[1][:120]

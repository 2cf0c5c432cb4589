"""A dataset added as CONTRIBUTING says appears wherever datasets are listed."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from scripts import docs_script
from typer.testing import CliRunner

import zscope as zs
from zscope.cli.data import app

ROOT = Path(__file__).resolve().parents[2]

# The one file, as it would stand in src/zscope/data/stripes.py.
MODULE = '''
"""Stripes: one bright row in each picture."""

from pathlib import Path

import numpy as np

from zscope.data.dataset import Dataset
from zscope.data.source import Factor, Source, factor_arguments

FACTORS = (Factor("height", 8),)


def load(folder: Path, brightness: int = 255) -> Dataset:
    images = (np.eye(8, dtype=np.uint8) * np.uint8(brightness))[:, None, :, None]
    images = np.repeat(images, 8, axis=3)
    return Dataset("stripes", images, np.arange(8)[:, None], **factor_arguments(FACTORS))


STRIPES = Source(
    name="stripes",
    title="Eight stripes",
    summary="One bright row in each picture of 8 x 8 pixels.",
    cite="Made for a test.",
    load=load,
    options={"brightness": "Of the stripe, 0 to 255."},
    samples=8,
    shape=(1, 8, 8),
    factors=FACTORS,
)
'''


@pytest.fixture(autouse=True)
def stripes(monkeypatch):
    module = types.ModuleType("zscope.data.stripes")
    exec(MODULE, module.__dict__)
    monkeypatch.setitem(sys.modules, "zscope.data.stripes", module)
    monkeypatch.setitem(zs.data.CATALOGUE, "stripes", "stripes:STRIPES")  # the one line


def run(*words):
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_it_is_loaded_by_name_with_its_options():
    assert "stripes" in zs.data.names()
    data = zs.data.load("stripes", brightness=100)
    assert data.shape == (1, 8, 8)
    assert data.images[3, 0, 3].tolist() == [100] * 8
    assert data.factor_names == ("height",)
    assert np.array_equal(zs.data.from_recipe(data.recipe).images, data.images)


def test_the_command_line_lists_and_describes_it():
    (line,) = (line for line in run("list").splitlines() if line.startswith("stripes"))
    assert line.split() == ["stripes", "built", "in", "8", "1x8x8", "Eight", "stripes"]
    description = run("info", "stripes")
    for part in ("One bright row", "height  8  ordinal", "Of the stripe", "cite: Made for a test."):
        assert part in description


def test_the_documentation_has_a_page_of_it():
    pages = docs_script("pages")
    written = pages.data_pages()
    assert "One bright row" in written["data/stripes.md"]
    assert "`brightness`" in written["data/stripes.md"]
    assert "[stripes](stripes.md)" in written["data/index.md"]


def test_contributing_describes_these_steps():
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    for part in ("src/zscope/data/", "`Source`", "one line in `CATALOGUE`", "data/__init__.py"):
        assert part in text.partition("**A dataset**")[2]

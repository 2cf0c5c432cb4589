"""Declarations are read from a source file as Python would evaluate them, without running it."""

import importlib
import sys

import pytest

from zscope.declared import declared

SOURCE = '''
"""A module that must not be run."""

import math
from collections import (  # two lines
    Counter,
    OrderedDict as Ordered,
)
from pathlib import Path

raise RuntimeError("the module was run")

ENTRY_OF_OTHERS = 1
ENTRY = dict(
    title="a title "
    "of two lines",
    size=SIDE * 2,
    parts=("a", *MORE),
    counts={**TABLE, "c": 3},
    made=[name.upper() for name in MORE],
    ordered=Ordered,
    path=Path("x") / "y",
    root=math.sqrt(16.0),
    own=helper,
)
SIDE: int = 4  # annotated
MORE = ("b",
        "c")
TABLE = {
    "a": 1,
}
TEXT = """
def helper(): a text that looks like code
SIDE = 5
"""
LATER = dict(text=TEXT)
SEVERAL = {
    "one": dict(number=1),
    "two": dict(number=2),
}
POSITIONAL = dict([("a", 1)])
NUMBER = 3
'''


@pytest.fixture(autouse=True)
def _modules(tmp_path, monkeypatch):
    (tmp_path / "declaring.py").write_text(SOURCE)
    functions = "def helper():\n    return 'run'\n\n\nENTRY = dict(own=helper, number=1)\n"
    (tmp_path / "functions.py").write_text(functions)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("functions", None)


def test_only_what_is_wanted_is_evaluated():
    assert declared("declaring", "ENTRY", ["title"]) == {"title": "a title of two lines"}
    assert declared("declaring", "ENTRY", ["title", "absent"]) == {"title": "a title of two lines"}


def test_names_are_looked_up_where_python_would():
    from collections import OrderedDict
    from pathlib import Path

    wanted = ["size", "parts", "counts", "made", "ordered", "path", "root"]
    assert declared("declaring", "ENTRY", wanted) == {
        "size": 8,
        "parts": ("a", "b", "c"),
        "counts": {"a": 1, "c": 3},
        "made": ["B", "C"],
        "ordered": OrderedDict,
        "path": Path("x/y"),
        "root": 4.0,
    }


def test_texts_of_several_lines_are_whole():
    text = "\ndef helper(): a text that looks like code\nSIDE = 5\n"
    assert declared("declaring", "LATER") == {"text": text}


def test_one_of_several_is_chosen_by_its_key():
    assert declared("declaring", "SEVERAL", key="two") == {"number": 2}


def test_what_only_the_module_itself_has_is_taken_from_it():
    entry = declared("functions", "ENTRY")
    assert entry["own"]() == "run"
    assert "functions" in sys.modules


def test_a_literal_beside_it_does_not_run_the_module():
    assert declared("functions", "ENTRY", ["number"]) == {"number": 1}
    assert "functions" not in sys.modules


@pytest.mark.parametrize(
    ("module", "name", "error", "message"),
    [
        ("declaring", "ABSENT", ImportError, "declaring has no ABSENT. See CONTRIBUTING.md"),
        ("declaring", "POSITIONAL", TypeError, "POSITIONAL is not a call with named arguments"),
        ("declaring", "NUMBER", TypeError, "NUMBER is not a call.*cannot be listed without"),
        ("nowhere", "ENTRY", ModuleNotFoundError, "nowhere is in a catalogue, but"),
    ],
)
def test_what_cannot_be_read_is_refused(module, name, error, message):
    with pytest.raises(error, match=message):
        declared(module, name)

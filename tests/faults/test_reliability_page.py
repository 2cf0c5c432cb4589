"""docs/reliability.md says what the harness counted."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def page():
    place = ROOT / "docs" / "reliability.py"
    description = importlib.util.spec_from_file_location("reliability", place)
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_counts():
    assert page().PAGE.read_text() == page().text()
    assert {file.stem for file in page().COUNTS.iterdir()} == set(page().PARTS)


def test_enough_was_tried_and_nothing_failed():
    counts = {name: page().read(name) for name in page().PARTS}
    assert {name for name, each in counts.items() if each["failures"]} == set()
    assert counts["kills"]["kills"] >= 1_000
    assert counts["run_files"]["tries"] + counts["files.data"]["tries"] >= 10_000
    assert counts["api"]["tries"] >= 60_000

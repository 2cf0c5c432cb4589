"""docs/reliability.md says what the harness counted."""

from scripts import docs_script


def page():
    return docs_script("reliability")


def test_the_page_is_that_of_the_counts():
    assert page().PAGE.read_text() == page().text()
    assert {file.stem for file in page().COUNTS.iterdir()} == set(page().PARTS)


def test_enough_was_tried_and_nothing_failed():
    counts = {name: page().read(name) for name in page().PARTS}
    assert {name for name, each in counts.items() if each["failures"]} == set()
    assert counts["kills"]["kills"] >= 1_000
    assert counts["run_files"]["tries"] + counts["files.data"]["tries"] >= 10_000
    assert counts["api"]["tries"] >= 100_000

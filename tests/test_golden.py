"""Numbers stay: a change of a number is a decision, which the changelog records."""

import json

import golden
import pytest

from zscope.assays import CATALOGUE

RULE = (
    "A change of a number is a decision. If it is meant, measure again with "
    f"`{golden.COMMAND}` and write in CHANGELOG.md what changed and why, with the line it prints. "
    "See CONTRIBUTING.md."
)


@pytest.fixture(scope="module")
def kept() -> dict:
    return json.loads(golden.FILE.read_text(encoding="utf-8"))


def test_every_number_is_what_it_was(kept):
    lines = golden.changes(golden.golden(), kept)
    assert not lines, "\n".join([f"{len(lines)} numbers changed.", *lines[:50], RULE])


def test_no_assay_and_no_model_is_missing(kept):
    import zscope as zs

    measured = {where.partition(": ")[2] for where in kept}
    assert not set(CATALOGUE) - measured
    assert not set(zs.models.names()) - measured


def test_golden_values_never_change_silently():
    """The changelog names the hash of the file."""
    changelog = golden.CHANGELOG.read_text(encoding="utf-8")
    line = golden.changelog_line()
    assert line in changelog, f"CHANGELOG.md has no line with {line!r}. {RULE}"


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (0.5, 0.50004, False),
        (0.5, 0.5001, True),
        ([1.0, 1e-9], [1.0, 3e-9], False),  # relative to the largest
        ([1.0, 0.1], [0.1, 1.0], True),
        ([1.0, 0.1], [1.0], True),
        (3, 4, True),
        (None, 0.5, True),
        ([0, 2], [0, 1], True),
    ],
)
def test_a_changed_number_is_named_with_what_it_was(old, new, changed):
    lines = golden.changes({"vae: mig": {"score": new}}, {"vae: mig": {"score": old}})
    assert lines == ([f"vae: mig: score was {old}, is {new}"] if changed else [])


def test_numbers_that_agree_are_not_written_anew():
    old = {"vae: mig": {"score": 0.5, "gone": 1}}
    new = {"vae: mig": {"score": 0.50001, "more": 2}, "vae: dci": {"score": 0.1}}
    expected = {"vae: mig": {"score": 0.5, "more": 2}, "vae: dci": {"score": 0.1}}
    assert golden.settled(new, old) == expected
    assert golden.settled({"vae: mig": {"score": 0.6}}, old) == {"vae: mig": {"score": 0.6}}


def test_a_missing_result_and_a_missing_field_are_changes():
    old = {"vae: mig": {"score": 0.5, "chance": 0.0}, "vae: sap": {"score": 0.1}}
    lines = golden.changes({"vae: mig": {"score": 0.5}}, old)
    assert lines == ["vae: mig: chance is gone: 0.0", "vae: sap: no longer measured"]


def test_the_order_of_a_long_array_matters():
    values = [float(k) for k in range(40)]
    [(_, first)], [(_, second)] = (list(golden.flatten(v)) for v in (values, values[::-1]))
    assert first[:2] == second[:2]
    assert not golden.same(second, first, 1e-2)

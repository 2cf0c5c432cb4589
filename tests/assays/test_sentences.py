"""Every entry says in plain words what its result means and how its figure is read."""

import inspect
import typing

import pytest

import zscope as zs
from zscope.results import Result

ENTRIES = list(zs.assays.CATALOGUE.values())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_has_one_sentence_on_its_result(entry):
    assert 60 <= len(entry.meaning) <= 250
    assert entry.meaning.endswith(".")
    assert not entry.meaning[0].islower()
    assert ". " not in entry.meaning


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_has_a_sentence_on_its_figure_exactly_if_there_is_one(entry):
    result = typing.get_type_hints(inspect.unwrap(entry.load()))["return"]
    draws = result.plot is not Result.plot
    assert bool(entry.figure) == draws
    if draws:
        assert 40 <= len(entry.figure) <= 260
        assert entry.figure.endswith(".")
        assert ". " not in entry.figure


def test_entries_that_share_a_sentence_share_a_module():
    """So that no sentence was copied to an assay that asks something else."""
    homes = {}
    for entry in ENTRIES:
        homes.setdefault(entry.meaning, set()).add(entry.module)
    assert all(len(modules) == 1 for modules in homes.values())

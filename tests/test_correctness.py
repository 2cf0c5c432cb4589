"""Every score and loss names the tests that show it is right, and these tests exist."""

import ast
from pathlib import Path

import pytest
from test_statistics import generator

import zscope as zs
from zscope.assays import CATALOGUE

TESTS = Path(__file__).parent
TABLE = generator().declared()
NAMES = {"assays": list(CATALOGUE), "models": zs.models.names()}
SUBJECTS = [(part, name) for part, names in NAMES.items() for name in names]


def find_tests():
    """file: name of every test, as the table writes them."""
    names = set()
    for file in TESTS.rglob("test_*.py"):
        for part in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(part, ast.FunctionDef) and part.name.startswith("test_"):
                names.add(f"{file.stem.removeprefix('test_')}: {part.name.removeprefix('test_')}")
    return names


EXISTING = find_tests()


def named(table):
    """All tests that a table names."""
    for value in table.values():
        if isinstance(value, dict):
            yield from named(value)
        elif isinstance(value, list):
            yield from value


@pytest.mark.parametrize(("part", "name"), SUBJECTS)
def test_a_score_or_loss_has_tests_of_every_kind_or_says_why_not(part, name):
    checks = generator().checks(TABLE, part, name)
    for kind in generator().KINDS:
        tests = checks[kind]
        assert tests, f"{name}: no test for {kind}, and no reason"
        assert len(tests) > 30 if isinstance(tests, str) else set(tests) <= EXISTING, tests
    assert {test for tests in checks["faults"].values() for test in tests} <= EXISTING


def test_every_fault_of_the_list_has_a_test_and_every_name_is_known():
    parts = [*TABLE["assays"].values(), *TABLE["models"].values(), *TABLE["shared"].values()]
    covered = {number for part in parts for number in part.get("faults", {})}
    assert covered == set(TABLE["faults"])
    assert set(TABLE["assays"]) <= set(CATALOGUE)
    assert set(TABLE["models"]) <= set(zs.models.names())
    members = {name for group in TABLE["shared"].values() for name in group["members"]}
    assert members <= {"*", *CATALOGUE, *zs.models.names()}


def test_a_test_that_was_renamed_is_missed():
    """The negative control: names are compared as they are."""
    tests = set(named(TABLE["assays"]["mig"]))
    assert tests <= EXISTING
    assert not {f"{test}_" for test in tests} & EXISTING

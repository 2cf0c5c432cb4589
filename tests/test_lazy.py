"""Names of packages that are loaded when they are first used."""

import sys
import types

import pytest

from zscope.lazy import load_attribute


def test_a_name_is_loaded_once_from_its_home(monkeypatch):
    package = types.ModuleType("zscope.some_package")
    monkeypatch.setitem(sys.modules, "zscope.some_package", package)
    found = load_attribute("zscope.some_package", "seed_of", {"seed_of": "zscope.seeds"})
    assert found is sys.modules["zscope.seeds"].seed_of
    assert vars(package)["seed_of"] is found


def test_a_home_without_the_name_of_the_library_is_in_the_package():
    assert load_attribute(
        "zscope.training", "TrainConfig", {"TrainConfig": "config"}
    ).__module__ == ("zscope.training.config")


def test_an_unknown_name_is_what_python_says_of_modules():
    with pytest.raises(AttributeError, match=r"module 'zscope.training' has no attribute 'tran'"):
        load_attribute("zscope.training", "tran", {"train": "loop"})

"""The oldest versions that are allowed are those that `make test-floors` tests."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"].values()
DEPENDENCIES = [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in extra)]
FLOORS = [line for line in DEPENDENCIES if not line.startswith("zscope[")]


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().lower().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def release(version: str) -> list[int]:
    """Zeros at the end say nothing: 2.0 is 2.0.0."""
    numbers = [int(number) for number in version.split(".")]
    while numbers[-1] == 0:
        numbers.pop()
    return numbers


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_is_the_version_that_is_tested(floor):
    name, version = re.fullmatch(r"([\w-]+)>=([\d.]+)", floor).groups()
    assert release(version) == release(pins("requirements-floors.lock")[name])
    assert release(version) <= release(pins("requirements.lock")[name])

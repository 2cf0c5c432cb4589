"""Source: the catalogue entry of a dataset, built in or made of its publisher's files."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.dataset import Dataset, Kind
from zscope.errors import ConfigError, did_you_mean

__all__ = [
    "Factor",
    "File",
    "Source",
    "factor_arguments",
    "one_of",
    "pixels",
    "plain_value",
    "typed",
    "whole",
]


@dataclass(frozen=True)
class Factor:
    """A factor as the catalogue describes it, before the data are loaded.

    `size` counts its values (0 for a continuous factor); `values` names them, where they
    have names.
    """

    name: str
    size: int
    kind: Kind = "ordinal"
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class File:
    """One of the publisher's files.

    `url`, `mirrors`, `size` and the hashes are given only where a public source confirms
    them. `check` checks the structure of the file (names, shapes, types, counts) and
    raises `DataError` if it is not what the publisher describes. `folder` is the folder
    that a zip archive unpacks to: `zscope data fetch --from` also accepts that folder.
    """

    name: str
    check: Callable[[Path], None]
    url: str | None = None
    mirrors: tuple[str, ...] = ()
    size: int | None = None
    md5: str | None = None
    sha256: str | None = None
    folder: str | None = None


@dataclass(frozen=True)
class Source:
    """One entry of the catalogue of datasets. `load(folder, **options)` returns the Dataset.

    For built-in data `files` is empty and the folder is a cache; otherwise the folder holds
    the publisher's files. `options` maps the name of each option to a line of help; `forms`
    makes one value of all that mean the same, for options where `plain_value` cannot.
    `samples`, `shape` and `factors` describe what `load` returns without options.
    """

    name: str
    title: str
    summary: str
    cite: str
    load: Callable[..., Dataset]
    licence: str = "Apache-2.0 (part of zscope)"
    files: tuple[File, ...] = ()
    homepage: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    samples: int | None = None
    shape: tuple[int, ...] | None = None
    factors: tuple[Factor, ...] = ()

    @property
    def built_in(self) -> bool:
        return not self.files

    @property
    def can_be_fetched(self) -> bool:
        """Whether every file has a confirmed address and checksum."""
        return all(file.url and (file.sha256 or file.md5) for file in self.files)


def plain_value(value: Any) -> Any:
    """One value for all that mean the same: 1 for 1.0, true and "1", lists for tuples and arrays.

    Plain JSON, of which equal values have equal texts.
    """
    if isinstance(value, str):
        with suppress(ValueError):
            number = json.loads(value)
            return _plain(number) if isinstance(number, int | float) else value
        return value
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return str(value) if isinstance(value, Path) else value


def typed(value: Any, kind: Any) -> Any:
    """The value as the type of its parameter: 1.0 for 1, 32 for 32.0, true for 1."""
    plain = plain_value(value)
    if kind is float and isinstance(plain, int):
        return float(plain)
    if kind is bool and plain in (0, 1):
        return bool(plain)
    return plain if kind in (int, float) else value


def one_of(who: str, option: str, value: Any, allowed: Sequence[str]) -> str:
    """The value of an option, which must be one of the allowed ones."""
    if value not in allowed:
        raise ConfigError(f"{who}: {option}={value!r}. {did_you_mean(str(value), allowed)}")
    return str(value)


def pixels(who: str, option: str, value: Any) -> int:
    """The value of an option that is a number of pixels."""
    return whole(who, option, value, "a whole number of pixels", 64)


def whole(who: str, option: str, value: Any, expected: str, usual: int) -> int:
    """The value of an option that is a whole number, at least 1."""
    try:
        number = int(value)
        if number != float(value):
            number = 0
    except (TypeError, ValueError, OverflowError):
        number = 0
    if number < 1:
        raise ConfigError(
            f"{who}: {option}={value!r}; expected {expected}, for instance {option}={usual}."
        )
    return number


def factor_arguments(factors: Sequence[Factor]) -> dict[str, Any]:
    """The arguments of a Dataset that describe its factors."""
    labels = {factor.name: list(factor.values) for factor in factors if factor.values}
    return {
        "factor_names": tuple(factor.name for factor in factors),
        "factor_sizes": tuple(factor.size for factor in factors),
        "factor_kinds": tuple(factor.kind for factor in factors),
        "factor_labels": labels,
    }

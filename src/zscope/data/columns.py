"""Named columns of numbers or words: how files of codes, variances and factors are read.

    read_columns("codes.npy")                      columns of an array are called 0, 1, 2, ...
    read_columns("factors.csv", role="factors")    columns of a table carry their names
    read_columns("both.npz", role="factors")       the array called factors

`numbers` makes a matrix of columns, `factor_table` a table of factors with their kinds.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from zscope import files
from zscope.data.fetching import UNREADABLE
from zscope.errors import ConfigError, DataError
from zscope.factors import Kind, Kinds, kinds_of

__all__ = [
    "FactorTable", "array_columns", "array_names", "comma_separated", "factor_table", "file_type",
    "numbers", "parse_column", "read_columns", "read_errors",
]  # fmt: skip

ARRAYS = (".npz", ".h5", ".hdf5")
SUFFIXES = (".npy", *ARRAYS, ".csv", ".tsv", ".parquet")
ROLES = ("codes", "factors", "variances")
MISSING = ("", "na", "n/a", "null", "none", "?", "-")  # in place of a number


@dataclass(frozen=True, eq=False)
class FactorTable:
    """Factors as numbers. A kind of None was not stated and has to be guessed."""

    names: tuple[str, ...]
    values: np.ndarray  # rows x factors, float64
    kinds: tuple[Kind | None, ...]
    categories: dict[str, list[Any]]  # what the values 0, 1, 2, ... of a factor stand for


def read_columns(
    path: str | Path, role: Literal["codes", "factors", "variances"] = "codes"
) -> dict[str, np.ndarray]:
    """The columns of a file by name, as numbers or words.

    A file of several arrays must name them codes, factors or variances; an only array may
    have any other name. The array `factor_names` names the columns of the factors.
    """
    from zscope.data import arrays, tables  # which use the functions below

    path = Path(path)
    suffix = file_type(path, SUFFIXES)
    with read_errors(path):
        if suffix == ".npy":
            return array_columns(arrays.open_npy(path), path)
        if suffix not in ARRAYS:
            return tables.table_columns(path)
        with arrays.open_arrays(path) as (shapes, get):
            names = [name for name in shapes if name not in (*arrays.NAMES, *arrays.KINDS)]
            if role not in names and (len(names) != 1 or names[0] in ROLES):
                raise DataError(
                    f"{path}: the file holds {', '.join(names) or 'no array'}, and which of them "
                    f"are the {role} is not clear. Save it with np.savez(path, {role}=...)."
                )
            array = get(role if role in names else names[0])
            labels = arrays.stated_words(shapes, get, arrays.NAMES) if role == "factors" else []
            return array_columns(array, path, labels)


def array_names(path: str | Path) -> list[str]:
    """The names of the arrays in an .npz or HDF5 file; none for other files."""
    from zscope.data import arrays

    path = Path(path)
    if file_type(path, SUFFIXES) not in ARRAYS:
        return []
    with read_errors(path), arrays.open_arrays(path) as (shapes, _):
        return list(shapes)


def numbers(columns: Mapping[str, np.ndarray], path: str | Path) -> np.ndarray:
    """Columns of numbers side by side, rows x columns as float64."""
    for label, column in columns.items():
        if column.dtype.kind not in "biuf":
            raise DataError(
                f"{path}: column {label} holds words such as {str(column[0])!r}, not numbers. Is "
                "this the file of the factors? Codes come first: zscope score CODES FACTORS"
            )
    return np.column_stack([column.astype(np.float64) for column in columns.values()])


def factor_table(
    columns: Mapping[str, np.ndarray], kinds: Kinds = None, *, name: str = "factors"
) -> FactorTable:
    """Columns of numbers or words as a table of factors; `name` begins the errors.

    `kinds` states one kind for all, one for each, or some by name (dose=continuous).
    Words are categorical unless stated otherwise and are numbered in alphabetical order.
    Numbers that are not whole but stated as ordinal or categorical are numbered in order
    of size.
    """
    stated = dict(zip(columns, kinds_of(kinds, list(columns), name), strict=True))
    table: list[np.ndarray] = []
    table_kinds: list[Kind | None] = []
    categories: dict[str, list[Any]] = {}
    for label, column in columns.items():
        words = column.dtype.kind not in "biuf"
        kind = stated[label] or ("categorical" if words else None)
        if words and kind == "continuous":
            raise ConfigError(
                f"{name}: kinds says that {label} is continuous, but it holds words such as "
                f"{str(column[0])!r}. Make it categorical, or correct the column."
            )
        values = column.astype(str) if words else column.astype(np.float64)
        if not words and not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values))[0])
            raise DataError(
                f"{name}: factor {label} is {values[row]} in row {row} (counting from 0). Leave "
                "out rows whose factors are not known, also from the observations or codes."
            )
        if words or (kind in ("ordinal", "categorical") and (values != np.round(values)).any()):
            labels, values = np.unique(values, return_inverse=True)
            categories[label] = labels.tolist()
        table.append(values.astype(np.float64))
        table_kinds.append(kind)
    return FactorTable(tuple(columns), np.column_stack(table), tuple(table_kinds), categories)


def array_columns(
    values: np.ndarray, path: str | Path, names: Sequence[str] = (), *, prefix: str = ""
) -> dict[str, np.ndarray]:
    """The columns of an array by name; without names they are counted after `prefix`."""
    if values.dtype.names or values.dtype.kind in "cOV":
        raise DataError(
            f"{path}: values of type {values.dtype} are not single numbers or words. Save a plain "
            "array, samples x columns."
        )
    table = values[:, None] if values.ndim == 1 else values
    if table.ndim != 2 or 0 in table.shape:
        raise DataError(
            f"{path}: expected an array of samples x columns, got shape {values.shape}. Flatten "
            "it: array.reshape(len(array), -1)"
        )
    files.check_memory("data", 8 * table.size, f"{path}, {table.shape} numbers,")
    names = list(names) or [f"{prefix}{k}" for k in range(table.shape[1])]
    if len(names) != table.shape[1]:
        raise DataError(
            f"{path}: {len(names)} names ({', '.join(names)}) for {table.shape[1]} columns. Give "
            "one for each."
        )
    if len(set(names)) < len(names):
        raise DataError(
            f"{path}: some of the {len(names)} names ({', '.join(names)}) are equal, so that one "
            "column would hide another. Give each its own name."
        )
    return {name: parse_column(table[:, k], name, path) for k, name in enumerate(names)}


def parse_column(column: np.ndarray, name: str, path: str | Path) -> np.ndarray:
    """A column as numbers if all of its cells are, else as words.

    Empty cells are refused, as are NA and the like where all other cells are numbers.
    """
    if column.dtype.kind in "biuf":
        return column
    cells = np.char.decode(column, "utf-8") if column.dtype.kind == "S" else column.astype(str)
    missing = np.isin(np.char.lower(np.char.strip(cells)), MISSING)
    values = cells
    try:
        filled = cells[~missing].astype(np.float64)
    except ValueError:  # words, of which "none" may be one
        missing = cells == ""
    else:
        values = filled
    if missing.any():
        raise DataError(
            f"{path}: no value of {name} in row {int(np.flatnonzero(missing)[0])} (counting from "
            "0). Leave out rows with missing values, from every file that describes them."
        )
    return values


def file_type(path: Path, known: Sequence[str]) -> str:
    """The suffix of a file that exists and is not empty, or "folder"."""
    if not path.exists():
        raise DataError(
            f"{path}: there is no such file or folder (looked in {Path.cwd()}). Is the path right?"
        )
    suffix = "folder" if path.is_dir() else path.suffix.lower()
    if suffix != "folder":
        files.require_regular(path)
    if suffix not in known:
        what = "a folder" if suffix == "folder" else f"a file ending in {suffix or 'nothing'}"
        expected = ", ".join(known).replace("folder", "or a folder of pictures")
        raise DataError(
            f"{path}: {what} cannot be read; expected {expected}. Is the path right? Save arrays "
            "with np.save."
        )
    if suffix != "folder" and path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty (0 bytes). Was writing it interrupted?")
    return suffix


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn what a reader raises for a damaged file into a DataError of one line."""
    try:
        yield
    except UNREADABLE as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(
            f"{path}: cannot be read as {path.suffix or 'a folder'} ({type(error).__name__}: "
            f"{reason}). Is it complete, and of the type that its name says? Write it again, for "
            "instance with np.save."
        ) from error


def comma_separated(value: Any) -> list[str] | None:
    """A list, given as such or separated by commas."""
    if value is None:
        return None
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return [str(part).strip() for part in parts]

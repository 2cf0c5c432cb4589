"""One's own data: a file of arrays, a table, or a folder of pictures, given by its path.

    zs.data.load("images.npy")                        an array, samples first
    zs.data.load("images.npz")                        arrays images and, if there, factors
    zs.data.load("cells.csv", factors="dose,plate")   columns; the named ones are factors
    zs.data.load("photos/", resolution=64)            pictures; sub-folders are classes

Arrays in .npy files, and in .npz and HDF5 files that are not compressed, are opened as
memory maps. Numbers that are not bytes are converted to float32 when their rows are
read, never as a whole. Compressed or encoded data of more than 256 MB are written once
to a .npy file in the folder of datasets, and opened from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np

from zscope.data.dataset import GUESSED, Dataset, Kind, from_arrays, guess_kind
from zscope.data.fetching import UNREADABLE
from zscope.data.source import pixels
from zscope.data.unpacking import LARGE, PIECE, kept, resized
from zscope.errors import ConfigError, DataError, did_you_mean

# Suffix -> module:function that reads it.
READERS = {
    ".npy": "arrays:read_npy",
    ".npz": "arrays:read_npz",
    ".h5": "arrays:read_h5",
    ".hdf5": "arrays:read_h5",
    ".csv": "tables:read_csv",
    ".tsv": "tables:read_csv",
    ".parquet": "tables:read_parquet",
    "folder": "pictures:read_folder",
}
OPTIONS = {
    "factors": "The factors: columns of a table (a,b,c), the name of an array in an .npz or HDF5 "
    "file, or for a .npy file the path of another with one row a sample.",
    "features": "Tables: the columns that are observations; by default all that are not factors.",
    "array": "Files of several arrays: the name of the observations.",
    "names": "The names of the factors: a,b,c.",
    "kinds": "Whether factors are continuous, ordinal or categorical, in order (ordinal,ordinal) "
    "or by name (dose=continuous).",
    "resolution": "Side in pixels to resize pictures to.",
}
# Options that only some files have; the rest apply to all.
ONLY = {
    "factors": (".npy", ".npz", ".h5", ".hdf5", ".csv", ".tsv", ".parquet"),
    "features": (".csv", ".tsv", ".parquet"),
    "array": (".npz", ".h5", ".hdf5"),
}


@dataclass(frozen=True)
class Found:
    """What a reader finds: observations of any numeric type, and columns of factors by name."""

    observations: Any
    factors: Mapping[str, np.ndarray] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    kinds: list[str] | None = None  # of the factors, where the file says them


def load_path(
    path: str | Path,
    *,
    factors: Any = None,
    features: Any = None,
    array: str | None = None,
    names: Any = None,
    kinds: str | Sequence[str] | Mapping[str, str] | None = None,
    resolution: Any = None,
) -> Dataset:
    """The dataset in a file or folder. The options are described in `OPTIONS`."""
    path = Path(path)
    side = None if resolution is None else pixels(path.name, "resolution", resolution)
    reader = _reader(path)
    suffix = "folder" if path.is_dir() else path.suffix.lower()
    for option, value in {"factors": factors, "features": features, "array": array}.items():
        if value is not None and suffix not in ONLY[option]:
            raise ConfigError(
                f"{path.name}: {option}={value!r} does not apply to {suffix}; it is for "
                f"{', '.join(ONLY[option])}. Leave it out."
            )
    try:
        found = reader(
            path,
            factors=_listed(factors),
            features=_listed(features),
            array=array,
            side=side,
        )
    except UNREADABLE as error:
        raise DataError(
            f"{path}: cannot be read as {path.suffix or 'a folder'} ({type(error).__name__}: "
            f"{error}). Is it complete, and what its name says? Write it again, or convert it to "
            ".npy with np.save."
        ) from error
    images = from_arrays(found.observations, name=path.name).images
    if side is not None and images.shape[2:] != (side, side):
        images = _resized(images, side, path)
    about: dict[str, Any] = {**found.about, "path": str(path.resolve())}
    if found.factors is None:
        if kinds is not None or names is not None:
            raise ConfigError(
                f"{path.name}: {'kinds' if kinds is not None else 'names'} are given, but there "
                "are no factors. Say which they are with factors=."
            )
        return Dataset(path.name, images, provenance=about)
    table = _named(found.factors, _listed(names), path.name)
    if kinds is None and found.kinds is not None:
        if len(found.kinds) != len(table):
            raise DataError(
                f"{path.name}: the file says {len(found.kinds)} factor_kinds "
                f"({', '.join(found.kinds)}) for {len(table)} factors ({', '.join(table)}). Write "
                "one for each into the file, or overrule them with kinds=."
            )
        kinds = found.kinds
    values, described, categories = factor_table(table, kinds, name=path.name)
    if categories:
        about["categories"] = categories
    told = _kinds(kinds, list(table), path.name)
    guessed = [label for label in table if label not in told and label not in categories]
    if guessed:
        about[GUESSED] = guessed
    return Dataset(
        path.name,
        images,
        values,
        factor_names=tuple(table),
        factor_kinds=described,
        provenance=about,
    )


class Real:
    """Rows of numbers as float32, converted and checked when they are read.

    NaN, infinite, and numbers too large for float32 are refused with the number of their row.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, rows: Any, name: str) -> None:
        self._rows = rows
        self._name = name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._rows.shape)

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def __getitem__(self, rows: Any) -> np.ndarray:
        part = np.asarray(self._rows[rows])
        with np.errstate(over="ignore"):
            converted = part.astype(np.float32, copy=False)
        if part.dtype.kind == "f" and not np.isfinite(converted).all():
            self._refuse(part, converted, rows)
        return converted

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)

    def _refuse(self, part: np.ndarray, converted: np.ndarray, rows: Any) -> None:
        if isinstance(rows, int | np.integer):
            part, converted, rows = part[None], converted[None], np.array([rows])
        bad = ~np.isfinite(converted.reshape(len(converted), -1)).all(axis=1)
        place = int(np.flatnonzero(bad)[0])
        value = part[place][~np.isfinite(converted[place])].flat[0]
        if isinstance(rows, slice):
            row = range(*rows.indices(len(self)))[place]
        else:
            rows = np.asarray(rows)
            row = int((np.flatnonzero(rows) if rows.dtype == bool else rows)[place]) % len(self)
        raise DataError(
            f"{self._name}: {value} in row {row} (counting from 0), among {int(bad.sum())} such "
            f"rows of the {len(bad)} just read; finite numbers that fit float32 are needed. "
            "Leave those rows out, or fill in what is missing."
        )


def real_rows(found: Any, name: str) -> Any:
    """Numbers of any type as float32: small data converted and checked at once, of large
    data the rows that are read."""
    real = Real(found, name)
    if max(4, found.dtype.itemsize) * int(np.prod(found.shape)) > LARGE:
        return real
    if found.dtype != np.float32 or not found.dtype.isnative:
        return real[:]
    step = max(1, PIECE // max(1, found[:1].nbytes))
    for start in range(0, len(found), step):
        real[start : start + step]
    return found


def factor_table(
    columns: Mapping[str, np.ndarray],
    kinds: str | Sequence[str] | Mapping[str, str] | None = None,
    *,
    name: str = "factors",
) -> tuple[np.ndarray, tuple[Kind, ...], dict[str, list]]:
    """Columns of numbers or words as a table of numbers, their kinds, and named categories.

    Words are categorical and numbered in alphabetical order. Ordinal and categorical
    numbers that are not whole are numbered in order of size.
    """
    asked = _kinds(kinds, list(columns), name)
    table: list[np.ndarray] = []
    described: list[Kind] = []
    categories: dict[str, list] = {}
    for label, column in columns.items():
        words = column.dtype.kind not in "biuf"
        kind = asked.get(label) or ("categorical" if words else guess_kind(column))
        if words and kind == "continuous":
            raise ConfigError(
                f"{name}: kinds says that {label} is continuous, but it holds words such as "
                f"{str(column[0])!r}. Make it categorical, or correct the column."
            )
        if not words and not np.isfinite(column).all():
            row = int(np.flatnonzero(~np.isfinite(column))[0])
            raise DataError(
                f"{name}: factor {label} is {column[row]} in row {row} (counting from 0). Leave "
                "out rows whose factors are not known."
            )
        if kind != "continuous" and (words or (column != np.round(column)).any()):
            plain = column.astype(str) if words else column
            names, places = np.unique(plain, return_inverse=True)
            categories[label] = names.tolist()
            table.append(places)
        else:
            table.append(column if kind == "continuous" else column.astype(np.int64))
        described.append(kind)
    return np.column_stack(table), tuple(described), categories


def _reader(path: Path) -> Callable[..., Found]:
    """What can read this path."""
    if not path.exists():
        raise DataError(
            f"{path}: there is no such file or folder. Is the path right? It is looked for "
            f"in {Path.cwd()}."
        )
    suffix = "folder" if path.is_dir() else path.suffix.lower()
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty (0 bytes). Was it written to the end?")
    if suffix not in READERS:
        raise DataError(
            f"{path}: files ending in {suffix or 'nothing'} are not known. "
            f"Known: {', '.join(READERS)} of pictures."
        )
    module, function = READERS[suffix].split(":")
    return getattr(import_module(f"zscope.data.{module}"), function)


def _resized(images: Any, side: int, path: Path) -> np.ndarray:
    if len(images.shape) != 4:
        raise ConfigError(
            f"{path.name}: resolution={side}, but the observations are rows of {images.shape[1]} "
            "numbers, not pictures. Leave the option out."
        )
    step = max(1, PIECE // (4 * int(np.prod(images.shape[1:]))))
    pieces = (
        resized(np.asarray(images[start : start + step]), side)
        for start in range(0, len(images), step)
    )
    shape = (*images.shape[:2], side, side)
    dtype = np.dtype(images.dtype)
    if int(np.prod(shape)) * dtype.itemsize > LARGE:
        return kept(path, f"{side}px", shape, dtype, pieces)
    return np.concatenate(list(pieces))


def _named(
    columns: Mapping[str, np.ndarray], names: list[str] | None, who: str
) -> Mapping[str, np.ndarray]:
    if names is None:
        return columns
    if len(names) != len(columns):
        raise ConfigError(
            f"{who}: {len(names)} names ({', '.join(names)}) for {len(columns)} factors. Give one "
            "for each."
        )
    if len(set(names)) < len(names):
        raise ConfigError(
            f"{who}: the names of the factors ({', '.join(names)}) are not all different. Give "
            "each one of its own."
        )
    return dict(zip(names, columns.values(), strict=True))


def _kinds(
    kinds: str | Sequence[str] | Mapping[str, str] | None, names: list[str], who: str
) -> dict[str, Any]:
    """What is asked for each factor by name."""
    if kinds is None:
        return {}
    if not isinstance(kinds, Mapping):
        listed = _listed(kinds) or []
        if any("=" in kind for kind in listed):
            kinds = dict(kind.partition("=")[::2] for kind in listed)
        elif len(listed) in (1, len(names)):
            kinds = dict(zip(names, listed * (len(names) // len(listed)), strict=True))
        else:
            raise ConfigError(
                f"{who}: {len(listed)} kinds for {len(names)} factors ({', '.join(names)}). Give "
                "one for each, or name them: dose=continuous."
            )
    for label, kind in kinds.items():
        if label not in names:
            raise ConfigError(f"{who}: kinds names {label!r}. {did_you_mean(label, names)}")
        if kind not in get_args(Kind):
            raise ConfigError(
                f"{who}: the kind of {label} is {kind!r}. {did_you_mean(kind, get_args(Kind))}"
            )
    return dict(kinds)


def _listed(value: Any) -> list[str] | None:
    """A list given as such, or as words between commas."""
    if value is None:
        return None
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return [str(part).strip() for part in parts]

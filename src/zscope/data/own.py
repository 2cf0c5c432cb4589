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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.columns import factor_table, file_type, readable, words_between_commas
from zscope.data.dataset import GUESSED, Dataset, from_arrays, guess_kind
from zscope.data.source import pixels
from zscope.data.unpacking import LARGE, PIECE, kept, resized
from zscope.errors import ConfigError, DataError

# Suffix -> module:function that reads it.
READERS = {
    ".npy": "arrays:read_npy",
    ".npz": "arrays:read_arrays",
    ".h5": "arrays:read_arrays",
    ".hdf5": "arrays:read_arrays",
    ".csv": "tables:read_table",
    ".tsv": "tables:read_table",
    ".parquet": "tables:read_table",
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
    feature_names: Sequence[str] = ()


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
    suffix = file_type(path, list(READERS))
    for option, value in {"factors": factors, "features": features, "array": array}.items():
        if value is not None and suffix not in ONLY[option]:
            raise ConfigError(
                f"{path.name}: {option}={value!r} does not apply to {suffix}; it is for "
                f"{', '.join(ONLY[option])}. Leave it out."
            )
    module, function = READERS[suffix].split(":")
    reader = getattr(import_module(f"zscope.data.{module}"), function)
    with readable(path):
        found: Found = reader(
            path,
            factors=words_between_commas(factors),
            features=words_between_commas(features),
            array=array,
            side=side,
        )
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
        return Dataset(
            path.name, images, feature_names=tuple(found.feature_names), provenance=about
        )
    columns = _renamed(found.factors, words_between_commas(names), path.name)
    if kinds is not None:
        about.pop(GUESSED, None)  # of a file that zscope wrote
    elif found.kinds is not None:
        if len(found.kinds) != len(columns):
            raise DataError(
                f"{path.name}: the file says {len(found.kinds)} factor_kinds "
                f"({', '.join(found.kinds)}) for {len(columns)} factors ({', '.join(columns)}). "
                "Write one for each into the file, or overrule them with kinds=."
            )
        kinds = found.kinds
    table = factor_table(columns, kinds, name=path.name)
    factor_kinds = tuple(
        kind or guess_kind(values) for kind, values in zip(table.kinds, table.values.T, strict=True)
    )
    if table.categories:
        about["categories"] = table.categories
    guessed = [name for name, kind in zip(table.names, table.kinds, strict=True) if kind is None]
    if guessed:
        about[GUESSED] = guessed
    return Dataset(
        path.name,
        images,
        table.values if "continuous" in factor_kinds else table.values.astype(np.int64),
        factor_names=table.names,
        factor_kinds=factor_kinds,
        feature_names=tuple(found.feature_names),
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


def _renamed(
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

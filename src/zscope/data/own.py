"""One's own data: a file of arrays, a table, or a folder of pictures, given by its path.

    zs.data.load("images.npy")                        an array, samples first
    zs.data.load("images.npz")                        arrays images and, if there, factors
    zs.data.load("cells.csv", factors="dose,plate")   columns; the named ones are factors
    zs.data.load("cells.csv", impute="median")        fill in missing cells
    zs.data.load("photos/", resolution=64)            pictures; sub-folders are classes

Arrays in .npy files, and in uncompressed .npz and HDF5 files, are opened as memory maps.
Numbers that are not bytes are converted to float32 row by row as they are read, never all
at once. Compressed data of more than 256 MB are written once to a .npy file in the folder
of datasets and opened from there.

Observations keep the units of the file. Features of tables, and of vectors in .npy files, are
standardised when a model is trained on them, unless standardise=False; see `zscope.scaling`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.columns import comma_separated, factor_table, file_type, read_errors
from zscope.data.dataset import Dataset, from_arrays
from zscope.data.source import pixels
from zscope.data.unpacking import LARGE, PIECE, cached_memory_map, resized
from zscope.errors import ConfigError, DataError
from zscope.factors import Kinds, factors_of, read_kinds

__all__ = [
    "FORMS", "GUESSED", "LABELS", "OPTIONS", "Contents", "Float32Rows", "float32_rows", "load_path",
]  # fmt: skip

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
# Keys of the provenance in a file that zscope wrote, next to its factors.
LABELS, GUESSED = "categories", "guessed_kinds"
OPTIONS = {
    "factors": "Where the factors are: columns of a table (a,b,c), an array of an .npz or HDF5 "
    "file, or for a .npy file the path of another .npy file with one row per sample.",
    "features": "Tables: the columns to use as observations (default: all that are not factors).",
    "categories": "Tables: columns of numbers to treat as categories (columns of words always "
    "are): one feature for each value, 0 or 1.",
    "impute": "Tables: fill in missing cells with the median or mean of their column, and with "
    "the most frequent value of a category (default: refuse them).",
    "standardise": "Vectors: train on features of mean 0 and standard deviation 1; the run "
    "stores the scaling and applies it to later data (default: true for tables and .npy files).",
    "array": "Files of several arrays: the name of the array of observations.",
    "names": "Names for the factors: a,b,c.",
    "kinds": "The kind of each factor (continuous, ordinal or categorical), in order "
    "(ordinal,ordinal) or by name (dose=continuous).",
    "resolution": "Side in pixels to resize pictures to.",
}
# What makes one value of all that mean the same; see `Source.forms`.
FORMS: dict[str, Callable[[Any], Any]] = {
    "factors": comma_separated,
    "features": comma_separated,
    "categories": comma_separated,
    "names": comma_separated,
    "kinds": read_kinds,
}
# Files whose vectors are standardised unless told otherwise: those without units of zscope's own.
VECTORS = (".csv", ".tsv", ".parquet", ".npy")
# Options that apply to some types of files only; the others apply to all.
ONLY = {
    "factors": (".npy", ".npz", ".h5", ".hdf5", ".csv", ".tsv", ".parquet"),
    "features": (".csv", ".tsv", ".parquet"),
    "categories": (".csv", ".tsv", ".parquet"),
    "impute": (".csv", ".tsv", ".parquet"),
    "array": (".npz", ".h5", ".hdf5"),
}


@dataclass(frozen=True)
class Contents:
    """What a file holds: observations of any numeric type, and columns of factors by name."""

    observations: Any
    factors: Mapping[str, np.ndarray] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    kinds: list[str] | None = None  # of the factors, where the file states them
    feature_names: Sequence[str] = ()
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    paths: Sequence[Path] = ()  # of the observations, where each has a file


def load_path(
    path: str | Path,
    *,
    factors: Any = None,
    features: Any = None,
    categories: Any = None,
    impute: Any = None,
    standardise: bool | None = None,
    array: str | None = None,
    names: Any = None,
    kinds: Kinds = None,
    resolution: Any = None,
) -> Dataset:
    """The dataset in a file or folder. The options are described in `OPTIONS`."""
    path = Path(path)
    side = None if resolution is None else pixels(path.name, "resolution", resolution)
    suffix = file_type(path, list(READERS))
    given = {
        "factors": factors,
        "features": features,
        "categories": categories,
        "impute": impute,
        "array": array,
    }
    for option, value in given.items():
        if value is not None and suffix not in ONLY[option]:
            raise ConfigError(
                f"{path.name}: {option}={value!r} does not apply to {suffix}; it is for "
                f"{', '.join(ONLY[option])}. Leave it out."
            )
    module, function = READERS[suffix].split(":")
    reader = getattr(import_module(f"zscope.data.{module}"), function)
    with read_errors(path):
        contents: Contents = reader(
            path,
            factors=comma_separated(factors),
            features=comma_separated(features),
            categories=comma_separated(categories),
            impute=impute,
            array=array,
            side=side,
        )
    images = from_arrays(contents.observations, name=path.name).images
    if side is not None and images.shape[2:] != (side, side):
        images = _resize_all(images, side, path)
    about: dict[str, Any] = {**contents.about, "path": str(path.resolve())}
    rows: dict[str, Any] = {
        "feature_names": tuple(contents.feature_names),
        "categories": contents.categories,
        "standardise": _standardise(path.name, standardise, suffix in VECTORS, images),
        "paths": _texts(contents.paths),
    }
    if contents.factors is None:
        if kinds is not None or names is not None:
            raise ConfigError(
                f"{path.name}: {'kinds' if kinds is not None else 'names'} are given, but there "
                "are no factors. Name the factors with factors=."
            )
        return Dataset(path.name, images, provenance=about, **rows)
    columns = _rename(contents.factors, comma_separated(names), path.name)
    new_names = dict(zip(contents.factors, columns, strict=True))
    stated = about.pop(LABELS, {})
    labels = {new: stated[name] for name, new in new_names.items() if name in stated}
    unsure = about.pop(GUESSED, ())
    guessed = tuple(new for name, new in new_names.items() if name in unsure)
    if kinds is not None:
        guessed = ()
    elif contents.kinds is not None:
        if len(contents.kinds) != len(columns):
            raise DataError(
                f"{path.name}: the file has {len(contents.kinds)} factor_kinds "
                f"({', '.join(contents.kinds)}) for {len(columns)} factors ({', '.join(columns)}). "
                "Write one for each into the file, or override them with kinds=."
            )
        kinds = contents.kinds
    table = factor_table(columns, kinds, name=path.name)
    named = factors_of(table.values, kinds=table.kinds, names=table.names, who=path.name)
    return Dataset(
        path.name,
        images,
        table.values if "continuous" in named.kinds else table.values.astype(np.int64),
        factor_names=table.names,
        factor_kinds=named.kinds,
        factor_labels={**labels, **table.categories},
        guessed_kinds=named.guessed or guessed,
        provenance=about,
        **rows,
    )


def _texts(paths: Sequence[Path]) -> np.ndarray | None:
    """Absolute paths as an array of texts, which do not all take the room of the longest."""
    return np.array([str(path.resolve()) for path in paths], dtype=object) if paths else None


class Float32Rows:
    """Rows of numbers as float32, converted and checked as they are read.

    NaN, infinity, and numbers too large for float32 raise an error that names their row.
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
            f"{self._name}: {value} in row {row} (counting from 0); {int(bad.sum())} of the "
            f"{len(bad)} rows just read have numbers that are not finite or do not fit float32. "
            "Leave those rows out, or fill in the missing values."
        )


def float32_rows(rows: Any, name: str) -> Any:
    """Numbers of any type as float32.

    Small data are converted and checked at once, large data as their rows are read.
    """
    converted = Float32Rows(rows, name)
    if max(4, rows.dtype.itemsize) * int(np.prod(rows.shape)) > LARGE:
        return converted
    if rows.dtype != np.float32 or not rows.dtype.isnative:
        return converted[:]
    step = max(1, PIECE // max(1, rows[:1].nbytes))
    for start in range(0, len(rows), step):
        converted[start : start + step]  # checks them
    return rows


def _standardise(who: str, wanted: Any, default: bool, images: Any) -> bool:
    """Whether to train on standardised features."""
    if wanted not in (None, True, False):
        raise ConfigError(
            f"{who}: standardise={wanted!r}; expected true (the default for tables and for vectors "
            "in .npy files) or false."
        )
    return default and len(images.shape) == 2 if wanted is None else bool(wanted)


def _resize_all(images: Any, side: int, path: Path) -> np.ndarray:
    if len(images.shape) != 4:
        raise ConfigError(
            f"{path.name}: resolution={side}, but the observations are rows of {images.shape[1]} "
            "numbers, not pictures. Leave the option out."
        )
    step = max(1, PIECE // (4 * int(np.prod(images.shape[1:]))))
    pieces = resized(
        (np.asarray(images[start : start + step]) for start in range(0, len(images), step)), side
    )
    shape = (*images.shape[:2], side, side)
    dtype = np.dtype(images.dtype)
    if int(np.prod(shape)) * dtype.itemsize > LARGE:
        return cached_memory_map(path, f"{side}px", shape, dtype, pieces)
    return np.concatenate(list(pieces))


def _rename(
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
            "each its own name."
        )
    return dict(zip(names, columns.values(), strict=True))

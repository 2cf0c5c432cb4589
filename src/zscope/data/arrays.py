"""Read arrays of one's own: .npy, .npz and HDF5 files."""

import io
import json
import math
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from zscope import files
from zscope.data.columns import array_columns
from zscope.data.own import GUESSED, LABELS, Contents
from zscope.data.unpacking import (
    LARGE,
    PIECE,
    cached_memory_map,
    h5_rows,
    h5_table,
    npy_header,
    npz_headers,
    npz_rows,
    open_h5,
    open_zip,
    require_bytes,
)
from zscope.errors import ConfigError, DataError

__all__ = ["open_arrays", "open_npy", "read_arrays", "read_npy", "stated_words"]

OBSERVATIONS = ("images", "imgs", "x", "X", "data", "observations", "arr_0")
FACTORS = ("factors", "labels", "y", "targets", "latents_classes")
NAMES = ("factor_names", "label_names")
FEATURE_NAMES = ("feature_names",)
KINDS = ("factor_kinds",)
PROVENANCE = "provenance"  # facts about the data, as JSON
DECIDED_HERE = ("path", "array", "root", "imputed")  # facts that a file does not know better

Shapes = dict[str, tuple[int, ...]]


def read_npy(path: Path, *, factors: list[str] | None = None, **_: Any) -> Contents:
    """Observations in a .npy file; `factors` is the path of another one."""
    columns = None
    if factors:
        if len(factors) > 1:
            raise ConfigError(
                f"{path.name}: {len(factors)} files of factors ({', '.join(factors)}); a .npy file "
                "can have only one. Put their columns side by side in one file."
            )
        other = factors_file(path, factors[0])
        if other.suffix != ".npy":
            raise ConfigError(
                f"{path.name}: factors={factors[0]!r}; expected the path of another .npy file with "
                "the factors, one row per sample."
            )
        files.require_regular(other, path.name)
        if not other.is_file():
            raise DataError(
                f"{path.name}: factors={factors[0]!r}, but there is no such file here or next to "
                f"{path}. Is the path right?"
            )
        columns = array_columns(np.asarray(open_npy(other)), other, prefix="factor")
    return Contents(open_npy(path), columns)


def factors_file(path: Path, name: str) -> Path:
    """The file that the option factors of a .npy file names: here, or next to it."""
    other = Path(name).expanduser()
    return other if other.is_absolute() or other.exists() else path.parent / other


def open_npy(path: Path) -> np.ndarray:
    """The memory map of a .npy file."""
    with files.open_regular(path) as stream:
        shape, dtype, _ = npy_header(stream)
        _refuse_objects(path, "the array", dtype)
        require_bytes(path, "the array", shape, dtype, path.stat().st_size - stream.tell())
    if 0 in shape:
        raise DataError(f"{path}: an array of shape {shape} has no samples. Was it saved in full?")
    return cast(np.ndarray, np.load(path, mmap_mode="r", allow_pickle=False))


@contextmanager
def open_arrays(path: Path) -> Iterator[tuple[Shapes, Callable[[str], np.ndarray]]]:
    """The shapes of the arrays in an .npz or HDF5 file by name, and a function that reads one."""
    if path.suffix.lower() == ".npz":
        headers = npz_headers(path)
        shapes = {name: shape for name, (shape, _) in headers.items()}
        yield shapes, lambda name: _npz_array(path, name, headers)
        return
    with open_h5(path) as file:
        tables = {name: table for name in file if (table := h5_table(file, name, path)) is not None}
        # Without a shape: an empty one, which h5py calls null.
        shapes = {name: tuple(table.shape or ()) for name, table in tables.items()}
        yield shapes, lambda name: _h5_array(path, tables[name])


def stated_words(
    shapes: Shapes, get: Callable[[str], np.ndarray], arrays: Sequence[str]
) -> list[str]:
    """The words in the first of these arrays that an .npz or HDF5 file has, or none."""
    array = next((name for name in arrays if name in shapes), None)
    return [_text(name) for name in np.ravel(get(array))] if array else []


def read_arrays(
    path: Path, *, factors: list[str] | None = None, array: str | None = None, **_: Any
) -> Contents:
    """Observations and factors in an .npz or HDF5 file."""
    with open_arrays(path) as (shapes, get):
        return _choose(path, shapes, factors, array, get)


def _choose(
    path: Path,
    shapes: Shapes,
    factors: list[str] | None,
    array: str | None,
    get: Callable[[str], np.ndarray],
) -> Contents:
    """Observations, factors and their names among the arrays of a file."""
    listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "nothing"
    for option, name in (("array", array), *(("factors", name) for name in factors or ())):
        if name is not None and name not in shapes:
            raise ConfigError(f"{path.name}: {option}={name!r}, but the file holds {listing}.")
    if array is None:
        array = next((name for name in OBSERVATIONS if name in shapes), None)
    if array is None:
        tables = [name for name, shape in shapes.items() if len(shape) > 1 and name not in FACTORS]
        if len(tables) != 1:
            raise DataError(
                f"{path.name}: the file holds {listing}; which of these are the observations is "
                "not clear. Name the array with array=NAME."
            )
        array = tables[0]
    if shapes[array] and shapes[array][0] == 0:
        raise DataError(
            f"{path.name}: {array} has shape {shapes[array]}, so there are no samples. Was it "
            "saved in full?"
        )
    factor_arrays = factors or [name for name in FACTORS if name in shapes and name != array][:1]
    labels = stated_words(shapes, get, NAMES)
    columns: dict[str, np.ndarray] = {}
    for name in factor_arrays:
        values = np.asarray(get(name))
        # Arrays of one column are named like the array.
        single = len(factor_arrays) > 1 or (values.ndim == 1 and not labels)
        names = [name] if single and values.ndim == 1 else labels
        columns.update(array_columns(values, path.name, names, prefix="factor"))
    about = {"array": array, **_provenance(get(PROVENANCE) if PROVENANCE in shapes else None)}
    kinds = stated_words(shapes, get, KINDS) if columns else []
    features = stated_words(shapes, get, FEATURE_NAMES)
    return Contents(get(array), columns or None, about, kinds or None, features)


def _provenance(array: np.ndarray | None) -> dict[str, Any]:
    """The provenance that `zscope data perturb` writes; empty for anything else."""
    if array is None or array.ndim:
        return {}
    try:
        facts = json.loads(_text(array.item()), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(facts, dict):
        return {}
    labels, guessed = facts.pop(LABELS, None), facts.pop(GUESSED, None)
    facts = {key: value for key, value in facts.items() if key not in DECIDED_HERE}
    if isinstance(labels, dict) and all(isinstance(words, list) for words in labels.values()):
        facts[LABELS] = labels
    if isinstance(guessed, list):
        facts[GUESSED] = guessed
    return facts


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} in the provenance")


def _npz_array(
    path: Path, name: str, headers: dict[str, tuple[tuple[int, ...], np.dtype]]
) -> np.ndarray:
    shape, dtype = headers[name]
    _refuse_objects(path, name, dtype)
    with open_zip(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type == zipfile.ZIP_STORED:
            with archive.open(member) as stream:
                while stream.read(PIECE):
                    pass  # at the end, the checksum is compared
    if member.compress_type == zipfile.ZIP_STORED and 0 not in shape and shape:
        with path.open("rb") as stream:
            stream.seek(member.header_offset + 26)
            # The name and extra field of the local header come before the array.
            stream.seek(sum(struct.unpack("<HH", stream.read(4))), 1)
            shape, dtype, columns_first = npy_header(stream)
            start = stream.tell()
            return np.memmap(path, dtype, "r", start, shape, "F" if columns_first else "C")
    if math.prod(shape) * dtype.itemsize > LARGE:
        return cached_memory_map(path, name, shape, dtype, npz_rows(path, name, path.name))
    with open_zip(path) as archive:  # to the end, where the checksum is compared
        content = io.BytesIO(archive.read(member))
    return np.lib.format.read_array(content, allow_pickle=False)


def _h5_array(path: Path, table: Any) -> np.ndarray:
    dtype = table.dtype
    if table.shape is None:
        raise DataError(f"{path}: {table.name} is empty. Was it saved in full?")
    if dtype.hasobject:  # strings of any length
        files.check_memory("data", 16 * table.size, f"{table.name} in {path.name}")
        return np.array([_text(word) for word in np.ravel(table[()])])
    offset = table.id.get_offset()
    if offset is not None and table.chunks is None and table.external is None and table.size:
        return np.memmap(path, dtype, "r", offset, table.shape)
    if table.size * dtype.itemsize > LARGE:
        return cached_memory_map(path, table.name, table.shape, dtype, h5_rows(table))
    return cast(np.ndarray, table[()])


def _refuse_objects(path: Path, name: str, dtype: np.dtype) -> None:
    if dtype.hasobject:
        raise DataError(
            f"{path}: {name} holds pickled Python objects, which are not opened because they can "
            "run any code. Save plain numbers: np.save(file, np.array(rows, dtype='float32'))."
        )


def _text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)

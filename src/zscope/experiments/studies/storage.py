"""Measurements of a study on disk: small, plain files that no model is needed to read.

    OUT/measured/MEASURE/UNIT.json     as soon as a unit is measured, so that nothing is lost
    OUT/measurements.json.gz           all of them, and the settings of the runs

Numbers have five significant digits. Arrays of more than 64 numbers are packed: bytes as they are,
others with half precision, which figures need and claims do not read.
"""

import base64
import gzip
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zscope.errors import RunError
from zscope.experiments.studies.judging import round_to
from zscope.experiments.studies.study import Results
from zscope.files import open_regular, write_whole

__all__ = ["decode", "encode", "read_results", "write_results"]

FEW = 64
FILE = "measurements.json.gz"
MOST = 200_000_000
"""Bytes that a file of measurements may have when it is unpacked."""


def encode(value: Any) -> Any:
    """A measurement as JSON; a number that is not finite is None."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return _pack(value) if value.size > FEW else encode(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return round_to(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | range):
        return [encode(item) for item in value]
    raise TypeError(f"study: a measurement is a {type(value).__name__}; expected numbers and texts")


def _pack(array: np.ndarray) -> Any:
    if array.dtype.kind == "b":
        array = array.astype(np.uint8)
    if array.dtype.kind == "f":
        kind = "float16" if np.abs(np.nan_to_num(array)).max(initial=0) < 6e4 else "float32"
        array = array.astype(kind)
    elif array.dtype.kind not in "iu":
        return encode(array.tolist())
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()
    return {"packed": packed, "dtype": str(array.dtype), "shape": list(array.shape)}


def decode(value: Any) -> Any:
    """The measurement again: packed arrays as arrays."""
    if isinstance(value, dict):
        if value.keys() == {"packed", "dtype", "shape"}:
            content = zlib.decompress(base64.b64decode(value["packed"]))
            array = np.frombuffer(content, dtype=value["dtype"]).reshape(value["shape"])
            return array.astype(np.float32) if array.dtype.kind == "f" else array
        return {key: decode(item) for key, item in value.items()}
    return [decode(item) for item in value] if isinstance(value, list) else value


def write_results(results: Results, folder: Path) -> None:
    """Write all measurements to one file; the same measurements give the same bytes."""
    content = {
        "study": results.study,
        "scale": results.scale,
        "runs": results.runs,
        "values": results.values,
        "failed": results.failed,
        "about": results.about,
    }
    text = json.dumps(encode(content), separators=(",", ":"), ensure_ascii=False)
    write_whole(folder / FILE, gzip.compress(text.encode(), 9, mtime=0))


def read_results(folder: Path) -> Results:
    """The measurements in a folder."""
    file = folder / FILE
    try:
        with open_regular(file, "study", RunError) as stream, gzip.open(stream) as unpacked:
            content = json.loads(unpacked.read(MOST))
        parts = {key: decode(content[key]) for key in Results.__dataclass_fields__}
    except OSError as error:
        raise RunError(
            f"study: {file} cannot be read ({error.strerror or error}). Measure the study first: "
            "zscope study run NAME"
        ) from None
    except (ValueError, KeyError, TypeError, EOFError, zlib.error) as error:
        raise RunError(
            f"study: {file} is damaged ({type(error).__name__}: {error}). Delete it and start the "
            "study again: what is finished is not done twice."
        ) from None
    return Results(**parts)

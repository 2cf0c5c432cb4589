"""Unpack archives of pictures to memory maps, once, a piece at a time.

Archives cannot be read by row. On first use their pictures are written to a .npy file
beside them, samples x channels x height x width as bytes, which is opened as a memory map
from then on. Its name contains part of the hash of the archive. It is written under a
temporary name and renamed when it is complete.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from zscope.data.fetching import Record, delete_partial_files, disk_errors, progress_bar
from zscope.errors import DataError, MissingExtra

__all__ = [
    "LARGE", "PIECE", "cached_memory_map", "channels_first", "h5_rows", "memory_map", "npy_header",
    "npz_headers", "npz_rows", "open_h5", "pillow", "read_rows", "resize", "unpack",
]  # fmt: skip

PIECE = 16 * 2**20  # bytes held in memory at a time
LARGE = 256 * 2**20  # bytes: larger arrays are never held in memory


def unpack(
    who: str,
    folder: Path,
    made_from: Iterable[Record],
    shape: tuple[int, ...],
    pieces: Callable[[], Iterator[np.ndarray]],
    *,
    variant: str = "",
    resolution: int | None = None,
) -> np.ndarray:
    """The memory map of a dataset's pictures, written from `pieces()` at the first call.

    `shape` is the shape of all pictures that `pieces` yields together. With `resolution`
    they are resized to squares of that side (bilinear, antialiased).
    """
    key = hashlib.sha256("".join(record.sha256 for record in made_from).encode()).hexdigest()[:12]
    side = f"-{resolution}px" if resolution else ""
    if resolution:
        shape = (*shape[:2], resolution, resolution)
    target = folder / f"images{variant and f'-{variant}'}{side}-{key}.npy"
    source = (resize(piece, resolution) for piece in pieces()) if resolution else pieces()
    return memory_map(who, target, shape, np.dtype(np.uint8), source)


def memory_map(
    who: str, target: Path, shape: tuple[int, ...], dtype: np.dtype, pieces: Iterator[np.ndarray]
) -> np.ndarray:
    """The memory map at `target`, written from `pieces` if it does not exist yet."""
    try:
        array: np.ndarray = np.load(target, mmap_mode="r")
        if array.shape == shape and array.dtype == dtype:
            return array
    except (OSError, ValueError, EOFError):
        pass  # missing, or not ours: write it
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    total = int(np.prod(shape)) * dtype.itemsize
    with disk_errors(who, target.parent):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            delete_partial_files(target.parent)
            rows = 0
            with partial.open("wb") as out, progress_bar(f"unpacking {who}", total) as advance:
                np.lib.format.write_array_header_1_0(
                    out, {"descr": dtype.str, "fortran_order": False, "shape": shape}
                )
                for piece in pieces:
                    if piece.shape[1:] != shape[1:]:
                        raise DataError(
                            f"{who}: rows {rows} to {rows + len(piece) - 1} have shape "
                            f"{piece.shape[1:]}, the others {shape[1:]}. The file is damaged or "
                            "of another version: fetch it again."
                        )
                    out.write(np.ascontiguousarray(piece, dtype=dtype).data)
                    rows += len(piece)
                    advance(piece.nbytes)
                out.flush()
                os.fsync(out.fileno())
            if rows != shape[0]:
                raise DataError(
                    f"{who}: expected {shape[0]:,} samples, the files have {rows:,}. They are "
                    "damaged or of another version: fetch them again."
                )
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    return cast(np.ndarray, np.load(target, mmap_mode="r"))


def cached_memory_map(
    path: Path, key: str, shape: tuple[int, ...], dtype: np.dtype, pieces: Iterator[np.ndarray]
) -> np.ndarray:
    """The memory map of a large array of one's own, written once to the folder of datasets."""
    from zscope.data import folder

    status = path.stat()
    made_from = f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {key}"
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:12]
    return memory_map(
        path.name, folder() / "own" / f"{path.stem}-{digest}.npy", shape, dtype, pieces
    )


def resize(images: np.ndarray, resolution: int) -> np.ndarray:
    """Pictures (samples x channels x height x width) resized to squares, in their own type."""
    smooth = torch.nn.functional.interpolate(
        torch.from_numpy(np.array(images, dtype=np.float32)),
        size=(resolution, resolution),
        mode="bilinear",
        antialias=True,
    )
    if images.dtype != np.uint8:
        return smooth.numpy()
    return smooth.round_().clamp_(0, 255).byte().numpy()


def channels_first(images: np.ndarray) -> np.ndarray:
    """Samples x height x width x channels as samples x channels x height x width."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def read_rows(stream: Any, shape: tuple[int, ...], dtype: Any, who: str) -> Iterator[np.ndarray]:
    """An array of known shape from a stream of its bytes, some rows at a time."""
    dtype = np.dtype(dtype)
    row = int(np.prod(shape[1:])) * dtype.itemsize
    step = max(1, PIECE // row)
    for start in range(0, shape[0], step):
        count = min(step, shape[0] - start)
        content = stream.read(count * row)
        if len(content) != count * row:
            raise DataError(
                f"{who}: the file ends in row {start + len(content) // row:,} of {shape[0]:,}. It "
                "is truncated: fetch it again."
            )
        yield np.frombuffer(content, dtype).reshape(count, *shape[1:])


def npy_header(stream: Any) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Shape, type and order (whether it is stored by columns) of the .npy file in a stream."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, columns_first, dtype = np.lib.format.read_array_header_2_0(stream)
    return shape, dtype, columns_first


def npz_headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of each array in an .npz file, without reading the arrays."""
    with zipfile.ZipFile(path) as archive:
        headers = {}
        for member in archive.namelist():
            with archive.open(member) as stream:
                shape, dtype, _ = npy_header(stream)
            headers[member.removesuffix(".npy")] = (shape, dtype)
    return headers


def npz_rows(path: Path, name: str, who: str) -> Iterator[np.ndarray]:
    """One array of an .npz file, some rows at a time."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
        shape, dtype, columns_first = npy_header(stream)
        if columns_first or dtype.hasobject:
            raise DataError(
                f"{who}: the array {name!r} of {path.name} is stored "
                f"{'by columns' if columns_first else 'as Python objects'} and cannot be read "
                "safely by row. Save it again: np.savez(file, images=np.ascontiguousarray(x))."
            )
        yield from read_rows(stream, shape, dtype, who)


def open_h5(path: Path) -> Any:
    """An HDF5 file, for reading."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra("data", "h5py", "files") from error
    return h5py.File(path, "r")


def h5_rows(table: Any) -> Iterator[np.ndarray]:
    """An HDF5 dataset, some rows at a time, in whole chunks so that none is read twice."""
    row = int(np.prod(table.shape[1:])) * table.dtype.itemsize
    chunk = table.chunks[0] if table.chunks else 1
    step = max(1, PIECE // (row * chunk)) * chunk
    for start in range(0, table.shape[0], step):
        yield table[start : start + step]


def pillow() -> Any:
    """The package that reads pictures."""
    try:
        import PIL.Image
    except ImportError as error:
        raise MissingExtra("data", "pillow", "files") from error
    return PIL.Image

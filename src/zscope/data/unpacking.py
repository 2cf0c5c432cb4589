"""Unpack archives of pictures to memory maps, once, a piece at a time.

Archives cannot be read by row. On first use their pictures are written to a .npy file in
the user's folder of datasets, samples x channels x height x width as bytes, which is opened as
a memory map from then on. Its name contains part of the hash of the archive. One process
writes it, under a temporary name that is changed when it is complete, and others wait. Where
that folder is read-only, small datasets are decoded to memory each time.
"""

import gzip
import hashlib
import io
import math
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from zscope import files
from zscope.data.fetching import (
    UNREADABLE,
    Record,
    cache_folder,
    progress_bar,
    writing_cache,
)
from zscope.errors import DataError, MissingExtra

__all__ = [
    "LARGE", "PIECE", "cached_memory_map", "channels_first", "h5_rows", "h5_table", "memory_map",
    "npy_header", "npz_headers", "npz_rows", "open_gzip", "open_h5", "open_picture", "open_zip",
    "pillow", "read_picture", "read_rows", "require_bytes", "resize", "resized", "unpack",
]  # fmt: skip

PIECE = 16 * 2**20  # bytes held in memory at a time
LARGE = 256 * 2**20  # bytes: larger arrays are never held in memory
MOST_HEADER = 10_000  # bytes, as in NumPy
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")


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
    target = cache_folder(folder) / f"images{variant and f'-{variant}'}{side}-{key}.npy"
    source = resized(pieces(), resolution) if resolution else pieces()
    return memory_map(who, target, shape, np.dtype(np.uint8), source)


def memory_map(
    who: str, target: Path, shape: tuple[int, ...], dtype: np.dtype, pieces: Iterator[np.ndarray]
) -> np.ndarray:
    """The memory map at `target`, written from `pieces` if it does not exist yet."""
    if (array := _open_map(target, shape, dtype)) is not None:
        files.sweep(target.parent)  # what a kill after the last write has left
        return array
    total = math.prod(shape) * dtype.itemsize
    with writing_cache(who, target.parent) as writable:
        if not writable:
            if total > LARGE:
                raise DataError(
                    f"{who}: {total / 1e9:.1f} GB have to be unpacked, but {target.parent} cannot "
                    "be written. Choose another folder: set ZSCOPE_DATA."
                )
            return np.concatenate([*_checked(who, shape, pieces)]).astype(dtype, copy=False)
        if (array := _open_map(target, shape, dtype)) is None:  # no other process was faster
            files.check_disk(who, target.parent, total, f"{target.name}, {shape} of {dtype},")
            with files.writing(target) as out, progress_bar(f"unpacking {who}", total) as advance:
                np.lib.format.write_array_header_1_0(
                    out, {"descr": dtype.str, "fortran_order": False, "shape": shape}
                )
                for piece in _checked(who, shape, pieces):
                    out.write(np.ascontiguousarray(piece, dtype=dtype).data)
                    advance(piece.nbytes)
    return cast(np.ndarray, np.load(target, mmap_mode="r")) if array is None else array


def _open_map(target: Path, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    try:
        array: np.ndarray = np.load(target, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None  # missing, or not ours: write it
    return array if array.shape == shape and array.dtype == dtype else None


def _checked(
    who: str, shape: tuple[int, ...], pieces: Iterator[np.ndarray]
) -> Iterator[np.ndarray]:
    """The pieces, which must be the rows of an array of this shape."""
    rows = 0
    for piece in pieces:
        if piece.shape[1:] != shape[1:]:
            raise DataError(
                f"{who}: rows {rows} to {rows + len(piece) - 1} have shape {piece.shape[1:]}, the "
                f"others {shape[1:]}. The file is damaged or of another version: fetch it again."
            )
        rows += len(piece)
        yield piece
    if rows != shape[0]:
        raise DataError(
            f"{who}: expected {shape[0]:,} samples, the files have {rows:,}. They are damaged or "
            "of another version: fetch them again."
        )


def cached_memory_map(
    path: Path, key: str, shape: tuple[int, ...], dtype: np.dtype, pieces: Iterator[np.ndarray]
) -> np.ndarray:
    """The memory map of a large array of one's own, written once to the folder of datasets."""
    from zscope.data import folder

    status = path.stat()
    made_from = f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {key}"
    digest = hashlib.sha256(made_from.encode(errors="surrogateescape")).hexdigest()[:12]
    # A folder for each array, since a folder has one writer.
    target = folder() / "own" / f"{path.stem[:50]}-{digest}" / "array.npy"
    return memory_map(path.name, target, shape, dtype, pieces)


def resized(pieces: Iterator[np.ndarray], resolution: int) -> Iterator[np.ndarray]:
    """Pictures resized some at a time: enlarged ones are many times the size of a piece."""
    for piece in pieces:
        size = 4 * max(math.prod(piece.shape[1:]), math.prod(piece.shape[1:-2]) * resolution**2)
        step = max(1, PIECE // size)
        for start in range(0, len(piece), step):
            yield resize(piece[start : start + step], resolution)


def resize(images: np.ndarray, resolution: int) -> np.ndarray:
    """Pictures (samples x channels x height x width) resized to squares, in their own type."""
    import torch

    size = 8 * math.prod(images.shape[:2]) * resolution**2
    files.check_memory("data", size, f"a picture of {resolution} x {resolution} pixels")
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
    row = math.prod(shape[1:]) * dtype.itemsize
    files.check_memory(who, row, f"one row of {shape[1:]}")
    step = max(1, PIECE // max(1, row))
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
    digits = stream.read(2 if version == (1, 0) else 4)
    size = int.from_bytes(digits, "little")
    if size > MOST_HEADER:
        raise ValueError(f"a header of {size:,} bytes")
    start = io.BytesIO(digits + stream.read(size))
    if version == (1, 0):
        shape, columns_first, dtype = np.lib.format.read_array_header_1_0(start)
    else:
        shape, columns_first, dtype = np.lib.format.read_array_header_2_0(start)
    if min(shape, default=0) < 0:
        raise ValueError(f"a shape of {shape}")
    return shape, dtype, columns_first


def require_bytes(
    path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype, left: int
) -> None:
    """Refuse an array whose header announces more bytes than are left in the file."""
    size = math.prod(shape) * dtype.itemsize
    if size > left and not dtype.hasobject:
        raise DataError(
            f"{path}: {name} should have {size:,} bytes ({shape} of {dtype}), and {left:,} are "
            "there. The file is truncated or damaged: write it again."
        )


def npz_headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of each array in an .npz file, without reading the arrays."""
    with open_zip(path) as archive:
        headers = {}
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                shape, dtype, _ = npy_header(stream)
                require_bytes(path, name, shape, dtype, member.file_size - stream.tell())
            if name in headers:
                raise DataError(
                    f"{path}: there are two arrays called {name!r}, and which one is meant is not "
                    "clear. Save them under different names."
                )
            headers[name] = (shape, dtype)
    return headers


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip archive, for reading."""
    with files.open_regular(path) as file, zipfile.ZipFile(file) as archive:
        # A damaged length in the list of members hides those after it, which nobody else notices.
        file.seek(-12 - len(archive.comment), io.SEEK_END)
        announced, count = int.from_bytes(file.read(2), "little"), len(archive.infolist())
        if announced not in (count % 2**16, 2**16 - 1):  # the last stands for a larger number
            raise zipfile.BadZipFile(f"{count} members are listed, and {announced} announced")
        yield archive


@contextmanager
def open_gzip(path: Path) -> Iterator[Any]:
    """A compressed file, for reading."""
    with files.open_regular(path) as file, gzip.GzipFile(fileobj=file) as stream:
        yield stream


def read_member(archive: zipfile.ZipFile, name: str, who: str) -> bytes:
    """A file in an archive, if it fits into memory."""
    member = archive.getinfo(name)
    files.check_memory(who, member.file_size, f"{name} in the archive")
    return archive.read(member)


def read_picture(archive: zipfile.ZipFile, name: str, who: str) -> np.ndarray:
    """A picture in an archive, height x width x 3."""
    with open_picture(f"{who}: {name}", read_member(archive, name, who)) as picture:
        return np.asarray(picture.convert("RGB"))


def npz_rows(path: Path, name: str, who: str) -> Iterator[np.ndarray]:
    """One array of an .npz file, some rows at a time."""
    with open_zip(path) as archive, archive.open(f"{name}.npy") as stream:
        shape, dtype, columns_first = npy_header(stream)
        if columns_first or dtype.hasobject:
            raise DataError(
                f"{who}: the array {name!r} of {path.name} is stored "
                f"{'by columns' if columns_first else 'as Python objects'} and cannot be read "
                "safely by row. Save it again: np.savez(file, images=np.ascontiguousarray(x))."
            )
        yield from read_rows(stream, shape, dtype, who)
        if stream.read(1):  # also compares the checksum of the member
            raise DataError(f"{who}: {name} in {path.name} has more than {shape} numbers.")


def open_h5(path: Path) -> Any:
    """An HDF5 file, for reading."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra("data", "h5py", "files") from error
    files.require_regular(path)
    return h5py.File(path, "r")


def h5_table(file: Any, name: str, path: Path) -> Any:
    """A dataset of an HDF5 file; None for anything else. Values in other files are refused."""
    import h5py

    external = isinstance(file.get(name, getlink=True), h5py.ExternalLink)
    table = None if external else file.get(name)
    if table is not None and not isinstance(table, h5py.Dataset):
        return None
    if table is None or table.external is not None or table.is_virtual:
        raise DataError(
            f"{path}: the values of {name} are in other files, which are not opened. Copy them "
            "into this one, for instance with h5repack."
        )
    return table


def h5_rows(table: Any) -> Iterator[np.ndarray]:
    """An HDF5 dataset, some rows at a time, in whole chunks so that none is read twice."""
    row = math.prod(table.shape[1:]) * table.dtype.itemsize
    chunk = table.chunks[0] if table.chunks else 1
    files.check_memory("data", row * chunk, f"a chunk of {table.name}")
    step = max(1, PIECE // max(1, row * chunk)) * chunk
    for start in range(0, table.shape[0], step):
        yield table[start : start + step]


def pillow() -> Any:
    """The package that reads pictures."""
    try:
        import PIL.Image
    except ImportError as error:
        raise MissingExtra("data", "pillow", "files") from error
    return PIL.Image


@contextmanager
def open_picture(file: Path | str, content: bytes | None = None) -> Iterator[Any]:
    """A picture for reading, or its content; a DataError if it is damaged or far too large.

    Only the formats below are tried: others of Pillow start other programs.
    """
    image = pillow()
    if content is None:
        files.require_regular(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damaged tags, which nobody reads
            warnings.simplefilter("error", image.DecompressionBombWarning)
            opened = file if content is None else io.BytesIO(content)
            with image.open(opened, formats=FORMATS) as picture:
                yield picture
    except (image.DecompressionBombError, image.DecompressionBombWarning) as error:
        raise DataError(
            f"{file}: the picture has more than {image.MAX_IMAGE_PIXELS:,} pixels ({error}). Is it "
            "damaged, or made to fill the memory? If it is right, reduce it first."
        ) from error
    except UNREADABLE as error:
        raise DataError(
            f"{file}: cannot be read as a picture ({type(error).__name__}: {error}). Remove it, or "
            "save it again."
        ) from error

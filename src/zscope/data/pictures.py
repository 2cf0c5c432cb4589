"""Read pictures of one's own: a folder of .png, .jpg and other files; sub-folders are classes."""

import hashlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.own import Contents
from zscope.data.unpacking import LARGE, PIECE, cached_memory_map, open_picture, pillow, resize
from zscope.errors import DataError

__all__ = ["read_folder"]

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
GREY = {"1", "L", "LA", "I;16", "I;16B", "I;16L"}
TURNED = {5, 6, 7, 8}  # values of the orientation tag that exchange width and height
ORIENTATION = 0x0112
OTHERS = 200_000
"""Files without a picture after which a folder with few pictures is taken for a mistake."""


def read_folder(path: Path, *, side: int | None = None, **_: Any) -> Contents:
    """All pictures of a folder, in the order of their names."""
    files = _find_pictures(path)
    if not files:
        others = sorted(file.name for file in path.iterdir())[:3]
        raise DataError(
            f"{path}: no pictures in this folder or its sub-folders (which hold "
            f"{', '.join(others) or 'nothing'}). Expected {', '.join(sorted(SUFFIXES))}."
        )
    height, width, channels = _common_size(files, side)
    shape = (len(files), channels, height, width)

    def pieces() -> Iterator[np.ndarray]:
        step = max(1, PIECE // (channels * height * width))
        for start in range(0, len(files), step):
            yield np.concatenate(
                [_read_picture(file, channels, side) for file in files[start : start + step]]
            )

    if math.prod(shape) > LARGE:
        listing = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
        key = hashlib.sha256("\n".join(listing).encode()).hexdigest() + str(side)
        images = cached_memory_map(path, key, shape, np.dtype(np.uint8), pieces())
    else:
        images = np.concatenate(list(pieces()))
    return Contents(images, _classes(path, files), paths=files)


def _find_pictures(path: Path) -> list[Path]:
    """The pictures in a folder and its sub-folders, sorted; a whole disk is refused."""
    files: list[Path] = []
    others = 0
    for folder, _, names in os.walk(path):
        chosen = [
            file
            for name in names
            if os.path.splitext(name)[1].lower() in SUFFIXES
            and not name.startswith(".")
            and (file := Path(folder, name)).is_file()
        ]
        files += chosen
        others += 1 + len(names) - len(chosen)
        if others > OTHERS and len(files) < others // 10:
            raise DataError(
                f"{path}: {len(files):,} pictures among the first {others + len(files):,} files "
                "and folders, and more to come. Is this a whole disk or a home folder? Give the "
                "folder that has the pictures."
            )
    return sorted(files)


def _classes(path: Path, files: list[Path]) -> dict[str, np.ndarray] | None:
    """The first folder below `path` that each file is in."""
    inside = [file.relative_to(path).parts for file in files]
    beside = sum(len(parts) == 1 for parts in inside)
    if beside == len(files):
        return None
    if beside:
        raise DataError(
            f"{path}: {beside} pictures are next to sub-folders with {len(files) - beside} more. "
            "Sub-folders are classes: put every picture into one, or give the path of one folder."
        )
    return {"class": np.array([parts[0] for parts in inside])}


def _common_size(files: list[Path], side: int | None) -> tuple[int, int, int]:
    """Height, width and channels of all pictures, from their headers."""
    sizes: dict[tuple[int, int], Path] = {}
    colour = False
    for file in files:
        with open_picture(file) as picture:
            width, height = picture.size
            if picture.getexif().get(ORIENTATION) in TURNED:
                width, height = height, width
            sizes.setdefault((width, height), file)
            colour |= picture.mode not in GREY
    if side is not None:
        return side, side, 3 if colour else 1
    if len(sizes) > 1:
        (first, one), (second, other) = list(sizes.items())[:2]
        raise DataError(
            f"{files[0].parent}: pictures of {len(sizes)} sizes, for instance {one.name} "
            f"{first[0]} x {first[1]} and {other.name} {second[0]} x {second[1]}. Resize "
            "them with resolution=64 (the central square of each)."
        )
    width, height = next(iter(sizes))
    return height, width, 3 if colour else 1


def _read_picture(file: Path, channels: int, side: int | None) -> np.ndarray:
    """One picture as 1 x channels x height x width; transparency is dropped."""
    from PIL import ImageOps

    with open_picture(file) as picture:
        turned = ImageOps.exif_transpose(picture)
        if turned.mode.startswith("I;16"):
            # Pillow would clip 16-bit greys at 255.
            turned = pillow().fromarray((np.asarray(turned) >> 8).astype(np.uint8))
        if turned.mode in ("I", "F"):
            raise DataError(
                f"{file}: a 32-bit grey picture, whose range is not known. Save it with 8 or "
                "16 bits, or save all pictures as one array with np.save."
            )
        pixels = np.asarray(turned.convert("RGB" if channels == 3 else "L"))
    planes = pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)[None]
    if side is None:
        return planes
    height, width = planes.shape[2:]
    square = min(height, width)
    top, left = (height - square) // 2, (width - square) // 2
    middle = planes[:, :, top : top + square, left : left + square]
    return middle if square == side else resize(middle, side)

"""CelebA: 202,599 aligned photographs of faces with 40 yes-or-no attributes.

The publisher's archive and lists: Liu, Luo, Wang and Tang, ICCV 2015. Sizes and hashes as
in TensorFlow Datasets' checksums (celeb_a.txt). The publisher's drive serves the files to
browsers only, so they have to be downloaded by hand.

The aligned pictures are 178 x 218. As is common practice for autoencoders, the central
148 x 148 pixels are cropped and resized to 64 x 64; both numbers are options.
"""

import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from zscope.data.dataset import Dataset
from zscope.data.fetching import require_files
from zscope.data.source import Factor, File, Source, factor_arguments, one_of, pixels
from zscope.data.unpacking import open_zip, read_picture, unpack
from zscope.errors import ConfigError, DataError

__all__ = ["CELEBA", "build"]

ARCHIVE = "img_align_celeba.zip"
ATTRIBUTES = "list_attr_celeba.txt"
PARTITION = "list_eval_partition.txt"
WIDTH, HEIGHT = 178, 218
PARTS = {"train": 0, "valid": 1, "test": 2}
STEP = 64
HEADER = (  # the second line of the list
    "5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose "
    "Black_Hair Blond_Hair Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee "
    "Gray_Hair Heavy_Makeup High_Cheekbones Male Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard "
    "Oval_Face Pale_Skin Pointy_Nose Receding_Hairline Rosy_Cheeks Sideburns Smiling Straight_Hair "
    "Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick Wearing_Necklace Wearing_Necktie Young"
)
NAMES = HEADER.split()


def pictures(archive: zipfile.ZipFile) -> list[str]:
    """The members of the archive that are pictures, in the order of their numbers."""
    return sorted(
        name
        for name in archive.namelist()
        if name.endswith(".jpg") and not PurePosixPath(name).name.startswith(".")
    )


def check_archive(path: Path, *, count: int) -> None:
    """Check that the archive holds all numbered pictures, undamaged, in the published size."""
    with open_zip(path) as archive:
        names = pictures(archive)
        numbers = [PurePosixPath(name).stem for name in names]
        if numbers != [f"{k:06}" for k in range(1, count + 1)]:
            raise DataError(
                f"{path.name}: expected {count:,} pictures, named 000001.jpg to {count:06}.jpg, "
                f"got {len(names):,}. Is the archive complete?"
            )
        if damaged := archive.testzip():
            raise DataError(f"{path.name}: {damaged} is damaged. Unpack or download it again.")
        height, width, _ = read_picture(archive, names[0], path.name).shape
        if (width, height) != (WIDTH, HEIGHT):
            raise DataError(
                f"{path.name}: expected pictures of {(WIDTH, HEIGHT)}, got {(width, height)}."
            )


def read_attributes(path: Path) -> tuple[list[str], np.ndarray]:
    """The names of the attributes, and for each picture 0 (no) or 1 (yes)."""
    with path.open() as lines:
        count = int(next(lines))
        names = next(lines).split()
        rows = [line.split()[1:] for line in lines]
    if len(rows) != count:
        raise DataError(f"{path.name}: {len(rows):,} rows, but its first line says {count:,}.")
    values = np.array(rows, dtype=np.int64)
    if values.shape != (count, len(names)) or not np.isin(values, (-1, 1)).all():
        raise DataError(f"{path.name}: expected {len(names)} columns of -1 and 1.")
    return names, (values + 1) // 2


def check_attributes(path: Path, *, count: int) -> None:
    """Check that the list holds the published attributes of all pictures."""
    names, values = read_attributes(path)
    if names != NAMES or len(values) != count:
        raise DataError(
            f"{path.name}: expected {count:,} rows of the {len(NAMES)} published attributes, got "
            f"{len(values):,} rows of {len(names)}{' others' if names != NAMES else ''}. Another "
            "version?"
        )


def read_partition(path: Path) -> np.ndarray:
    """For each picture 0 (train), 1 (valid) or 2 (test)."""
    return np.array([int(line.split()[1]) for line in path.read_text().splitlines()])


def check_partition(path: Path, *, count: int) -> None:
    """Check that the list holds the published parts, one after the other."""
    values = read_partition(path)
    if len(values) != count or set(values) != {0, 1, 2} or (np.diff(values) < 0).any():
        raise DataError(
            f"{path.name}: expected {count:,} rows, first those of train (0), then of valid (1), "
            f"then of test (2), got {len(values):,}. Another version?"
        )


def build(
    *, count: int, training: int, file_facts: dict[str, dict[str, Any]] | None = None
) -> Source:  # fmt: skip
    """The Source for this number of pictures; `file_facts` holds size and hash by file."""

    def load(
        folder: Path, *, part: str = "train", resolution: Any = 64, crop: Any = 148
    ) -> Dataset:
        part = one_of("celeba", "part", part, [*PARTS, "all"])
        side = pixels("celeba", "resolution", resolution)
        square = pixels("celeba", "crop", crop)
        if square > WIDTH:
            raise ConfigError(f"celeba: crop={square}; the pictures are {WIDTH} pixels wide.")
        records = require_files(source, folder)
        left, top = (WIDTH - square) // 2, (HEIGHT - square) // 2

        def pieces() -> Iterator[np.ndarray]:
            with open_zip(folder / ARCHIVE) as archive:
                names = pictures(archive)
                for start in range(0, len(names), STEP):
                    faces = [
                        read_picture(archive, name, "celeba")
                        for name in names[start : start + STEP]
                    ]
                    faces = [face[top : top + square, left : left + square] for face in faces]
                    yield np.stack(faces).transpose(0, 3, 1, 2)

        images = unpack(
            "celeba",
            folder,
            [records[ARCHIVE]],
            (count, 3, square, square),
            pieces,
            variant=f"crop{square}",
            resolution=side,
        )
        _, factors = read_attributes(folder / ATTRIBUTES)
        if part != "all":
            # The parts are contiguous, so that each is a slice of the memory map.
            partition = read_partition(folder / PARTITION)
            first, last = np.searchsorted(partition, [PARTS[part], PARTS[part] + 1])
            images, factors = images[first:last], factors[first:last]
        return Dataset("celeba", images, factors, **factor_arguments(source.factors))

    def file(name: str, check: Any, **more: Any) -> File:
        return File(name, partial(check, count=count), **(file_facts or {}).get(name, {}), **more)

    source = Source(
        name="celeba",
        title="CelebA faces",
        summary="Aligned photographs of faces, cropped to the central 148 x 148 and resized to "
        "64 x 64, with 40 yes-or-no attributes.",
        cite="Liu, Luo, Wang, Tang, Deep learning face attributes in the wild, ICCV 2015.",
        load=load,
        licence="For non-commercial research; see the publisher's agreement.",
        files=(
            file(ARCHIVE, check_archive, folder="img_align_celeba"),
            file(ATTRIBUTES, check_attributes),
            file(PARTITION, check_partition),
        ),
        homepage="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        options={
            "part": "train (162,770, the default), valid (19,867), test (19,962) or all.",
            "resolution": "Side in pixels to resize to; 64 by default.",
            "crop": "Side in pixels of the central square to crop; 148 by default, at most 178.",
        },
        samples=training,
        shape=(3, 64, 64),
        factors=tuple(Factor(name.lower(), 2, "categorical", ("no", "yes")) for name in NAMES),
    )
    return source


CELEBA = build(
    count=202_599,
    training=162_770,
    file_facts={
        ARCHIVE: {
            "size": 1_443_490_838,
            "sha256": "46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
        },
        ATTRIBUTES: {
            "size": 26_721_026,
            "sha256": "f0e5da289d5ccf75ffe8811132694922b60f2af59256ed362afa03fefba324d0",
        },
        PARTITION: {
            "size": 2_836_386,
            "sha256": "fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7",
        },
    },
)

"""SYMSOL: symmetric solids seen from random orientations.

The publisher's archive: Murphy, Esteves, Jampani, Ramalingam and Makadia, Implicit-PDF,
ICML 2021, arXiv:2106.05965. Address, size and hash as in TensorFlow Datasets' checksums
(symmetric_solids). It holds `train` and `test`, each with `images/SHAPE_NUMBER.png`,
224 x 224, and `rotations.npz` with the rotations that give each picture, the one it was
rendered with first.

The factors are the shape and that rotation, as a vector along its axis whose length is
the angle in radians. For the symmetric shapes other rotations give the same picture, and
no encoder can distinguish them.
"""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zscope import files
from zscope.data.dataset import Dataset
from zscope.data.fetching import Record, cache_folder, disk_errors, require_files
from zscope.data.source import Factor, File, Source, factor_arguments, one_of, pixels
from zscope.data.unpacking import (
    memory_map,
    npz_headers,
    npz_rows,
    open_zip,
    read_picture,
    unpack,
)
from zscope.errors import ConfigError, DataError, did_you_mean

__all__ = ["SYMSOL", "build"]

FILE = "symsol_dataset.zip"
SIDE = 224
STEP = 64
SHAPES = {
    "tet": "tetrahedron",
    "cube": "cube",
    "icosa": "icosahedron",
    "cone": "cone",
    "cyl": "cylinder",
    "tetX": "marked tetrahedron",
    "cylO": "marked cylinder",
    "sphereX": "marked sphere",
}
GROUPS = {"all": tuple(SHAPES), "symsol1": tuple(SHAPES)[:5], "symsol2": tuple(SHAPES)[5:]}


def picture(part: str, shape: str, number: int) -> str:
    return f"{part}/images/{shape}_{number:05}.png"


def rotations(path: Path, part: str) -> Iterator[np.ndarray]:
    """The rotation each picture of a part was rendered with, shape by shape."""
    from zscope.data import folder

    with (
        disk_errors("symsol", folder()),
        open_zip(path) as archive,
        files.partial_folder(folder()) as here,
    ):
        files.sweep(folder())
        inner = here / "rotations.npz"
        member = archive.getinfo(f"{part}/rotations.npz")
        files.check_disk("symsol", here, member.file_size, f"{member.filename} in {path.name}")
        with archive.open(member) as packed, inner.open("wb") as out:
            shutil.copyfileobj(packed, out, 2**20)
        headers = npz_headers(inner)
        for shape in SHAPES:
            sizes = headers.get(shape, ((), None))[0]
            if len(sizes) != 4 or sizes[2:] != (3, 3):
                raise DataError(
                    f"{path.name}: expected {shape} in {part}/rotations.npz to have shape "
                    f"(pictures, equivalent rotations, 3, 3), got {sizes or 'nothing'}."
                )
            for rows in npz_rows(inner, shape, "symsol"):
                yield rows[:, 0]


def check(path: Path, *, counts: dict[str, int]) -> None:
    """Check that the archive holds all published pictures and rotations."""
    with open_zip(path) as archive:
        names = set(archive.namelist())
        for part, count in counts.items():
            for shape in SHAPES:
                missing = [n for k in range(count) if (n := picture(part, shape, k)) not in names]
                if missing:
                    raise DataError(
                        f"{path.name}: {len(missing):,} of {count:,} pictures of {shape} are "
                        f"missing from {part}, the first is {missing[0]}."
                    )
            first = read_picture(archive, picture(part, "tet", 0), path.name)
            if first.shape != (SIDE, SIDE, 3):
                raise DataError(
                    f"{path.name}: expected pictures of {SIDE} pixels, got {first.shape[:2]}."
                )
        if damaged := archive.testzip():
            raise DataError(f"{path.name}: {damaged} is damaged. Download it again.")
    for part, count in counts.items():
        total, expected = sum(len(rows) for rows in rotations(path, part)), count * len(SHAPES)
        if total != expected:
            raise DataError(
                f"{path.name}: expected {expected:,} rotations in {part}, got {total:,}."
            )


def build(counts: dict[str, int], **facts: Any) -> Source:
    """The Source for these numbers of pictures per shape; `facts` holds address, size, hash."""

    def load(
        folder: Path, *, part: str = "train", shapes: Any = "all", resolution: Any = 64
    ) -> Dataset:
        part = one_of("symsol", "part", part, list(counts))
        side = pixels("symsol", "resolution", resolution)
        selected = _select_shapes(shapes)
        record = require_files(source, folder)[FILE]

        def pieces() -> Iterator[np.ndarray]:
            with open_zip(folder / FILE) as archive:
                names = [picture(part, shape, k) for shape in SHAPES for k in range(counts[part])]
                for start in range(0, len(names), STEP):
                    solids = [
                        read_picture(archive, name, "symsol")
                        for name in names[start : start + STEP]
                    ]
                    yield np.stack(solids).transpose(0, 3, 1, 2)

        total = counts[part] * len(SHAPES)
        images = unpack(
            "symsol", folder, [record], (total, 3, SIDE, SIDE), pieces,
            variant=part, resolution=None if side == SIDE else side,
        )  # fmt: skip
        data = Dataset(
            "symsol",
            images,
            _factors(folder, record, part, total),
            **factor_arguments(source.factors),
        )
        if selected == tuple(SHAPES):
            return data
        mask = np.isin(list(SHAPES), selected).repeat(counts[part])
        return _renumber(data.subset(mask), selected)

    def _factors(folder: Path, record: Record, part: str, total: int) -> np.ndarray:
        def vectors() -> Iterator[np.ndarray]:
            from scipy.spatial.transform import Rotation

            for rows in rotations(folder / FILE, part):
                # A copy: older versions of scipy refuse arrays that cannot be written to.
                yield Rotation.from_matrix(np.array(rows)).as_rotvec()

        target = cache_folder(folder) / f"rotations-{part}-{record.sha256[:12]}.npy"
        vectors_map = memory_map("symsol", target, (total, 3), np.dtype(np.float64), vectors())
        shape = np.repeat(np.arange(len(SHAPES)), total // len(SHAPES))
        return np.column_stack([shape, vectors_map])

    source = Source(
        name="symsol",
        title="SYMSOL symmetric solids",
        summary="Eight solids from random orientations, 224 x 224, resized to 64 x 64.",
        cite="Murphy, Esteves, Jampani, Ramalingam, Makadia, Implicit representation of "
        "probability distributions on the rotation manifold, ICML 2021.",
        load=load,
        licence="None stated by the publisher.",
        files=(File(FILE, partial(check, counts=counts), **facts),),
        homepage="https://implicit-pdf.github.io",
        options={
            "part": "train (45,000 pictures per shape, the default) or test (5,000).",
            "shapes": f"all, symsol1 (without marks), symsol2 (marked), or some of "
            f"{','.join(SHAPES)}.",
            "resolution": "Side in pixels to resize to; 64 by default, 224 as published.",
        },
        forms={"shapes": _select_shapes},
        samples=counts["train"] * len(SHAPES),
        shape=(3, 64, 64),
        factors=(
            Factor("shape", len(SHAPES), "categorical", tuple(SHAPES.values())),
            *(Factor(f"rotation_{axis}", 0, "continuous") for axis in "xyz"),
        ),
    )
    return source


def _select_shapes(shapes: Any) -> tuple[str, ...]:
    """The shapes that the option names, in the order of the dataset."""
    names = shapes.split(",") if isinstance(shapes, str) else list(shapes)
    if len(names) == 1 and names[0] in GROUPS:
        return GROUPS[names[0]]
    for shape in names:
        if shape not in SHAPES:
            raise ConfigError(
                f"symsol: shapes={shapes!r}. {did_you_mean(str(shape), [*SHAPES, *GROUPS])}"
            )
    return tuple(shape for shape in SHAPES if shape in names)


def _renumber(data: Dataset, shapes: tuple[str, ...]) -> Dataset:
    """Number the shapes that are left from 0."""
    factors = np.array(data.factors)
    factors[:, 0] = np.unique(factors[:, 0], return_inverse=True)[1]
    factor_list = [
        Factor("shape", len(shapes), "categorical", tuple(SHAPES[shape] for shape in shapes)),
        *(Factor(f"rotation_{axis}", 0, "continuous") for axis in "xyz"),
    ]
    return Dataset("symsol", data.images, factors, **factor_arguments(factor_list))


SYMSOL = build(
    {"train": 45_000, "test": 5_000},
    url="https://storage.googleapis.com/gresearch/implicit-pdf/" + FILE,
    size=3_328_555_013,
    sha256="d47c397d9a7091bff186aa47aef56ac0ae0136f1693a05797173b4c556a37f03",
)

"""Small NORB: photographs of 50 toys under controlled pose and lighting.

The publisher's six gzipped binary matrices: LeCun, Huang and Bottou, CVPR 2004. Sizes and
hashes as in TensorFlow Datasets' checksums (smallnorb.txt). Each view was taken by two
cameras; only pictures of the first are used, as is common in representation learning.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.dataset import Dataset
from zscope.data.fetching import require_files
from zscope.data.source import Factor, File, Source, factor_arguments, one_of, pixels
from zscope.data.unpacking import open_gzip, read_rows, unpack
from zscope.errors import DataError

__all__ = ["SMALLNORB", "build"]

SIDE = 96
STEMS = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
PARTS = {"train": ("train",), "test": ("test",), "all": ("train", "test")}
MATRICES: dict[int, np.dtype] = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
CATEGORIES = ("animal", "human", "plane", "truck", "car")


def file_name(part: str, content: str) -> str:
    return f"{STEMS[part]}-{content}.mat.gz"


def read_header(stream: Any, name: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type in the header of a binary matrix: magic number, rank, at least 3 sizes."""
    start = stream.read(8)
    magic, rank = (int.from_bytes(start[k : k + 4], "little") for k in (0, 4))
    if magic not in MATRICES or not 0 < rank <= 8:
        raise DataError(
            f"{name}: starts with {start.hex() or 'nothing'}, which is not the header of a binary "
            "matrix of bytes or integers. It is another kind of file: get the publisher's."
        )
    sizes = np.frombuffer(stream.read(4 * max(3, rank)), "<i4")[:rank]
    return tuple(int(size) for size in sizes), MATRICES[magic]


def matrix_rows(path: Path) -> Iterator[np.ndarray]:
    """A gzipped binary matrix, some rows at a time."""
    with open_gzip(path) as stream:
        shape, dtype = read_header(stream, path.name)
        yield from read_rows(stream, shape, dtype, path.name)
        if stream.read(1):  # at the end, the checksum is compared
            raise DataError(f"{path.name}: has more than {shape} numbers. Fetch it again.")


def check(path: Path, *, shape: tuple[int, ...], dtype: Any) -> None:
    """Check that a file is a complete binary matrix of this shape and type."""
    expected = (shape, np.dtype(dtype))
    with open_gzip(path) as stream:
        actual = read_header(stream, path.name)
    if actual != expected:
        raise DataError(f"{path.name}: expected a matrix of {expected}, got {actual}.")
    for _ in matrix_rows(path):
        pass  # an incomplete file raises here


def build(counts: dict[str, int], file_facts: dict[str, dict[str, Any]] | None = None) -> Source:
    """The Source for these numbers of views; `file_facts` holds address, size and hash by file."""
    files = []
    for part, count in counts.items():
        for content, shape, dtype in (
            ("dat", (count, 2, SIDE, SIDE), "u1"),
            ("cat", (count,), "<i4"),
            ("info", (count, 4), "<i4"),
        ):
            name = file_name(part, content)
            about = (file_facts or {}).get(name, {})
            files.append(File(name, partial(check, shape=shape, dtype=dtype), **about))

    def load(folder: Path, *, part: str = "all", resolution: Any = None) -> Dataset:
        halves = PARTS[one_of("smallnorb", "part", part, list(PARTS))]
        side = None if resolution is None else pixels("smallnorb", "resolution", resolution)
        records = require_files(source, folder)

        def pieces() -> Iterator[np.ndarray]:
            for half in halves:
                for pairs in matrix_rows(folder / file_name(half, "dat")):
                    yield pairs[:, :1]

        def column(content: str) -> np.ndarray:
            parts = (matrix_rows(folder / file_name(half, content)) for half in halves)
            return np.concatenate([rows for half in parts for rows in half]).astype(np.int64)

        images = unpack(
            "smallnorb",
            folder,
            [records[file_name(half, "dat")] for half in halves],
            (sum(counts[half] for half in halves), 1, SIDE, SIDE),
            pieces,
            variant=part,
            resolution=side,
        )
        instance, elevation, azimuth, lighting = column("info").T
        # Each part has five of the ten instances: they are renumbered and keep their names.
        toys, instance = np.unique(instance, return_inverse=True)
        factor_list = list(source.factors)
        factor_list[1] = Factor(
            "instance", len(toys), "categorical", tuple(str(toy) for toy in toys)
        )
        # Azimuths are published as 0, 2, ..., 34, in tens of degrees.
        factors = np.stack([column("cat"), instance, elevation, azimuth // 2, lighting], axis=1)
        return Dataset("smallnorb", images, factors, **factor_arguments(factor_list))

    source = Source(
        name="smallnorb",
        title="Small NORB",
        summary="Grey photographs of 50 toys, 96 x 96, under 9 elevations, 18 azimuths and 6 "
        "lightings; first camera.",
        cite="LeCun, Huang, Bottou, Learning methods for generic object recognition with "
        "invariance to pose and lighting, CVPR 2004.",
        load=load,
        licence="For research; may not be sold.",
        files=tuple(files),
        homepage="https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",
        options={
            "part": "train (instances 4 6 7 8 9), test (0 1 2 3 5) or all (the default).",
            "resolution": "Side in pixels to resize to, for instance 64; 96 as published.",
        },
        samples=sum(counts.values()),
        shape=(1, SIDE, SIDE),
        factors=(
            Factor("category", 5, "categorical", CATEGORIES),
            Factor("instance", 10, "categorical"),
            Factor("elevation", 9),
            Factor("azimuth", 18),
            Factor("lighting", 6, "categorical"),
        ),
    )
    return source


def _file_facts(*lines: str) -> dict[str, dict[str, Any]]:
    file_facts = {}
    for line in lines:
        part, content, size, sha256 = line.split()
        name = file_name(part, content)
        url = f"https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/{name}"
        file_facts[name] = {"url": url, "size": int(size), "sha256": sha256}
    return file_facts


SMALLNORB = build(
    {"train": 24_300, "test": 24_300},
    _file_facts(
        "train dat 131896188 5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873",
        "train cat 348 2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa",
        "train info 71052 de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32",
        "test dat 130799817 cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474",
        "test cat 347 ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff",
        "test info 10428 16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2",
    ),
)

"""3D Shapes: every combination of hues, scale, shape and orientation of an object in a room.

The publisher's HDF5 file: Burgess and Kim 2018. Size and hash as in TensorFlow Datasets'
checksums (shapes3d.txt). The built-in `rooms` draws the same grid without a download.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.dataset import Dataset, grid_factors
from zscope.data.fetching import require_files
from zscope.data.source import Factor, File, Source, factor_arguments, pixels
from zscope.data.unpacking import channels_first, h5_rows, h5_table, open_h5, unpack
from zscope.errors import DataError

__all__ = ["SHAPES3D", "build"]

FILE = "3dshapes.h5"
SIDE = 64
NAMES = ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")


def check(path: Path, *, sizes: Sequence[int]) -> None:
    """Check that `images` and `labels` have the published shapes, types and order."""
    count = int(np.prod(sizes))
    with open_h5(path) as file:
        expected = {"images": (count, SIDE, SIDE, 3), "labels": (count, len(sizes))}
        for name, shape in expected.items():
            if name not in file or file[name].shape != shape:
                actual = file[name].shape if name in file else "nothing"
                raise DataError(f"{path.name}: expected {name} of shape {shape}, got {actual}.")
            h5_table(file, name, path)
        if file["images"].dtype != np.uint8:
            raise DataError(f"{path.name}: expected images of bytes, got {file['images'].dtype}.")
        labels = file["labels"][()]
    places = [np.unique(column, return_inverse=True)[1] for column in labels.T]
    if not np.array_equal(np.stack(places, 1), grid_factors(sizes)):
        raise DataError(f"{path.name}: the labels are not in the published order.")


def build(sizes: Sequence[int] = (10, 10, 10, 8, 4, 15), **facts: Any) -> Source:
    """The Source for a grid of these sizes; `facts` holds address, size and hash."""

    def load(folder: Path, *, resolution: Any = None) -> Dataset:
        side = None if resolution is None else pixels("shapes3d", "resolution", resolution)
        records = require_files(source, folder)

        def pieces() -> Iterator[np.ndarray]:
            with open_h5(folder / FILE) as file:
                for rows in h5_rows(file["images"]):
                    yield channels_first(rows)

        shape = (int(np.prod(sizes)), 3, SIDE, SIDE)
        images = unpack("shapes3d", folder, records.values(), shape, pieces, resolution=side)
        return Dataset("shapes3d", images, grid_factors(sizes), **factor_arguments(source.factors))

    source = Source(
        name="shapes3d",
        title="3D Shapes",
        summary="A coloured object in a room, 64 x 64, in every combination of six factors.",
        cite="Burgess, Kim, 3D Shapes Dataset, 2018; Kim, Mnih, Disentangling by Factorising, "
        "ICML 2018.",
        load=load,
        licence="Apache-2.0.",
        files=(File(FILE, partial(check, sizes=sizes), **facts),),
        homepage="https://github.com/google-deepmind/3d-shapes",
        options={"resolution": "Side in pixels to resize to; 64 as published."},
        samples=int(np.prod(sizes)),
        shape=(3, SIDE, SIDE),
        factors=tuple(
            Factor(name, size, "categorical" if name == "shape" else "ordinal")
            for name, size in zip(NAMES, sizes, strict=True)
        ),
    )
    return source


SHAPES3D = build(
    url="https://storage.googleapis.com/3d-shapes/3dshapes.h5",
    size=267_573_662,
    sha256="0a0f6ed98baff276a50f3a081a7434d788da63cb135a98189b2a5b5769be1785",
)

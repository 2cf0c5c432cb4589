"""MPI3D: a robot arm holding an object, rendered simply, realistically, or photographed.

The publisher's npz files: Gondal et al., NeurIPS 2019. They have moved several times and
no public source confirms a checksum, so they have to be downloaded by hand, and their
structure is checked.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.dataset import Dataset, grid_factors
from zscope.data.fetching import require_files
from zscope.data.source import Factor, File, Source, factor_arguments, pixels
from zscope.data.unpacking import channels_first, npz_headers, npz_rows, unpack
from zscope.errors import DataError

__all__ = ["REAL", "SIM", "TOY", "build"]

SIDE = 64
SIZES = (6, 6, 2, 3, 3, 40, 40)


def check(path: Path, *, sizes: Sequence[int]) -> None:
    """Check that `images` has the published shape and type, and is complete."""
    expected = ((int(np.prod(sizes)), SIDE, SIDE, 3), np.dtype(np.uint8))
    actual = npz_headers(path).get("images", "nothing")
    if actual != expected:
        raise DataError(f"{path.name}: expected images of {expected}, got {actual}.")
    for _ in npz_rows(path, "images", path.name):
        pass  # reading compares the archive's own checksum


def build(variant: str, file: str, *, summary: str, sizes: Sequence[int] = SIZES) -> Source:
    name = f"mpi3d-{variant}"

    def load(folder: Path, *, resolution: Any = None) -> Dataset:
        side = None if resolution is None else pixels(name, "resolution", resolution)
        records = require_files(source, folder)

        def pieces() -> Iterator[np.ndarray]:
            for rows in npz_rows(folder / file, "images", name):
                yield channels_first(rows)

        shape = (int(np.prod(sizes)), 3, SIDE, SIDE)
        images = unpack(name, folder, records.values(), shape, pieces, resolution=side)
        return Dataset(name, images, grid_factors(sizes), **factor_arguments(source.factors))

    def factor(place: int, name: str, values: str, kind: Any = "categorical") -> Factor:
        return Factor(name, sizes[place], kind, tuple(values.split(", "))[: sizes[place]])

    source = Source(
        name=name,
        title=f"MPI3D, {variant}",
        summary=summary,
        cite="Gondal, Wüthrich, Miladinović, Locatello, Breidt, Volchkov, Akpo, Bachem, Schölkopf, "
        "Bauer, On the transfer of inductive bias from simulation to the real world: a new "
        "disentanglement dataset, NeurIPS 2019.",
        load=load,
        licence="CC BY 4.0.",
        files=(File(file, partial(check, sizes=sizes)),),
        homepage="https://github.com/rr-learning/disentanglement_dataset",
        options={"resolution": "Side in pixels to resize to; 64 as published."},
        samples=int(np.prod(sizes)),
        shape=(3, SIDE, SIDE),
        factors=(
            factor(0, "object_color", "white, green, red, blue, brown, olive"),
            factor(1, "object_shape", "cone, cube, cylinder, hexagonal, pyramid, sphere"),
            factor(2, "object_size", "small, large", "ordinal"),
            factor(3, "camera_height", "top, center, bottom", "ordinal"),
            factor(4, "background_color", "purple, sea green, salmon"),
            Factor("horizontal_axis", sizes[5]),
            Factor("vertical_axis", sizes[6]),
        ),
    )
    return source


TOY = build("toy", "mpi3d_toy.npz", summary="Simply rendered pictures, 64 x 64.")
SIM = build("sim", "mpi3d_realistic.npz", summary="Realistically rendered pictures, 64 x 64.")
REAL = build("real", "mpi3d_real.npz", summary="Photographs, 64 x 64.")

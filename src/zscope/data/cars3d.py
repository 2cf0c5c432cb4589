"""Cars3D: 183 car models from 24 azimuths and 4 elevations.

The publisher's archive, with one MATLAB file per car: Reed, Zhang, Zhang and Lee, Deep
Visual Analogy-Making, NeurIPS 2015. Two public loaders check the same md5.
"""

import io
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from zscope import files
from zscope.data.dataset import Dataset
from zscope.data.fetching import UNREADABLE, require_files
from zscope.data.source import Factor, File, Source, factor_arguments, pixels
from zscope.data.unpacking import unpack
from zscope.errors import DataError

__all__ = ["CARS3D", "build"]

FILE = "nips2015-analogy-data.tar.gz"
SIDE = 128
AZIMUTHS, ELEVATIONS = 24, 4
PER_CAR = AZIMUTHS * ELEVATIONS


def cars(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each car's file, in the order of the archive."""
    with files.open_regular(path) as file, tarfile.open(fileobj=file, mode="r|gz") as archive:
        for member in archive:
            place = PurePosixPath(member.name)
            if place.parent.name == "cars" and place.suffix == ".mat" and place.name[0] != ".":
                files.check_memory("cars3d", member.size, f"{member.name} in {path.name}")
                content = archive.extractfile(member)
                if content is not None:
                    yield place.stem, content.read()


def read_car(name: str, content: bytes) -> np.ndarray:
    """The pictures of a car, azimuth by azimuth and elevation by elevation."""
    from scipy.io import loadmat

    try:
        pictures: np.ndarray = loadmat(io.BytesIO(content), variable_names=["im"])["im"]
    except UNREADABLE as error:
        raise DataError(
            f"cars3d: {name}.mat in {FILE} has no readable array 'im' ({type(error).__name__}). "
            "Damaged? Fetch the archive again."
        ) from error
    expected = (SIDE, SIDE, 3, AZIMUTHS, ELEVATIONS)
    if pictures.shape != expected or pictures.dtype != np.uint8:
        raise DataError(
            f"cars3d: expected 'im' in {name}.mat of {FILE} to have shape {expected} and type "
            f"uint8, got {pictures.shape} and {pictures.dtype}. Another version? Fetch the archive "
            "again."
        )
    return pictures.transpose(3, 4, 2, 0, 1).reshape(PER_CAR, 3, SIDE, SIDE)


def check(path: Path, *, models: int) -> None:
    """Check that the archive holds the published number of cars, each with its pictures."""
    count = sum(len(read_car(name, content)) == PER_CAR for name, content in cars(path))
    if count != models:
        raise DataError(
            f"{path.name}: expected {models} cars in data/cars, got {count}. Another version?"
        )


def build(models: int = 183, **facts: Any) -> Source:
    """The Source for this number of cars; `facts` holds address and hash."""

    def load(folder: Path, *, resolution: Any = None) -> Dataset:
        side = None if resolution is None else pixels("cars3d", "resolution", resolution)
        records = require_files(source, folder)

        def pieces() -> Iterator[np.ndarray]:
            # Models are numbered in the order of the archive, which can only be read forward.
            for name, content in cars(folder / FILE):
                yield read_car(name, content)

        shape = (models * PER_CAR, 3, SIDE, SIDE)
        images = unpack("cars3d", folder, records.values(), shape, pieces, resolution=side)
        model, azimuth, elevation = np.unravel_index(
            np.arange(shape[0]), (models, AZIMUTHS, ELEVATIONS)
        )
        factors = np.stack([elevation, azimuth, model], axis=1)
        return Dataset("cars3d", images, factors, **factor_arguments(source.factors))

    source = Source(
        name="cars3d",
        title="Cars3D",
        summary="183 car models on white, 128 x 128, from 24 azimuths and 4 elevations.",
        cite="Reed, Zhang, Zhang, Lee, Deep Visual Analogy-Making, NeurIPS 2015.",
        load=load,
        licence="None stated by the publisher.",
        files=(File(FILE, partial(check, models=models), **facts),),
        homepage="http://www.scottreed.info",
        options={"resolution": "Side in pixels to resize to, for instance 64; 128 as published."},
        samples=models * PER_CAR,
        shape=(3, SIDE, SIDE),
        factors=(
            Factor("elevation", ELEVATIONS),
            Factor("azimuth", AZIMUTHS),
            Factor("model", models, "categorical"),
        ),
    )
    return source


CARS3D = build(
    url="http://www.scottreed.info/files/" + FILE,
    md5="4e866a7919c1beedf53964e6f7a23686",
)

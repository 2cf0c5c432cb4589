"""dSprites: every combination of shape, scale, orientation and position of a white sprite.

The publisher's npz file: Matthey, Higgins, Hassabis and Lerchner 2017. Several public
loaders check the same md5. The built-in `sprites` draws the same grid without a download.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.dataset import Dataset, grid_factors
from zscope.data.fetching import require_files
from zscope.data.source import Factor, File, Source, factor_arguments, pixels
from zscope.data.unpacking import npz_headers, npz_rows, unpack
from zscope.errors import DataError

__all__ = ["DSPRITES", "build"]

FILE = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
SIDE = 64


def check(path: Path, *, sizes: Sequence[int]) -> None:
    """Check that the arrays have the published names, shapes, types and order."""
    count = int(np.prod(sizes))
    headers = npz_headers(path)
    expected = {
        "imgs": ((count, SIDE, SIDE), np.dtype(np.uint8)),
        "latents_values": ((count, 1 + len(sizes)), np.dtype(np.float64)),
        "latents_classes": ((count, 1 + len(sizes)), np.dtype(np.int64)),
    }
    for name, header in expected.items():
        if headers.get(name) != header:
            raise DataError(
                f"{path.name}: expected {name} of {header}, got {headers.get(name, 'nothing')}. "
                "Another version of dSprites?"
            )
    classes = np.concatenate(list(npz_rows(path, "latents_classes", "dsprites")))
    # The first latent, colour, has one value.
    if not np.array_equal(classes[:, 1:], grid_factors(sizes)):
        raise DataError(f"{path.name}: the factors are not in the published order.")


def build(sizes: Sequence[int] = (3, 6, 40, 32, 32), **facts: Any) -> Source:
    """The Source for a grid of these sizes; `facts` holds address, size and hash."""

    def load(folder: Path, *, resolution: Any = None) -> Dataset:
        side = None if resolution is None else pixels("dsprites", "resolution", resolution)
        records = require_files(source, folder)

        def pieces() -> Iterator[np.ndarray]:
            for rows in npz_rows(folder / FILE, "imgs", "dsprites"):
                if rows.max() > 1:
                    raise DataError(f"{FILE}: expected pixels of 0 and 1, got {rows.max()}.")
                yield rows[:, None] * np.uint8(255)

        count = int(np.prod(sizes))
        shape = (count, 1, SIDE, SIDE)
        images = unpack("dsprites", folder, records.values(), shape, pieces, resolution=side)
        return Dataset("dsprites", images, grid_factors(sizes), **factor_arguments(source.factors))

    source = Source(
        name="dsprites",
        title="dSprites",
        summary="A white square, ellipse or heart on black, 64 x 64, in every combination of "
        "scale, orientation and position.",
        cite="Matthey, Higgins, Hassabis, Lerchner, dSprites: Disentanglement testing Sprites "
        "dataset, 2017.",
        load=load,
        licence="Apache-2.0; pictures made with LÖVE (zlib/libpng).",
        files=(File(FILE, partial(check, sizes=sizes), **facts),),
        homepage="https://github.com/google-deepmind/dsprites-dataset",
        options={"resolution": "Side in pixels to resize to; 64 as published."},
        samples=int(np.prod(sizes)),
        shape=(1, SIDE, SIDE),
        factors=(
            Factor("shape", sizes[0], "categorical", ("square", "ellipse", "heart")[: sizes[0]]),
            Factor("scale", sizes[1]),
            Factor("orientation", sizes[2]),
            Factor("position_x", sizes[3]),
            Factor("position_y", sizes[4]),
        ),
    )
    return source


DSPRITES = build(
    url="https://raw.githubusercontent.com/google-deepmind/dsprites-dataset/master/" + FILE,
    md5="7da33b31b13a06f4b04a70402ce90c2e",
)

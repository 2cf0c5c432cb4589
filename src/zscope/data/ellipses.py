"""Ellipses whose factors are drawn continuously: `sprites` with the option `continuous`.

    scale        uniform from 0.5 to 1
    position_x   uniform from 0 to 1, the places of the grid of sprites and all between
    position_y   the same from top to bottom
    aspect       width over height, log-uniform from 1/2 to 2

White on black, upright, of the area pi a b scale^2 whatever the aspect, with a and b the half
axes of the ellipse of the grid. No ellipse is cut off. A pixel is the exact fraction of its area
that is covered: with F(X, Y) the area of the unit disc left of X and below Y, stretched to the
ellipse, it is the mixed difference of F at its corners. For -1 <= X <= 1, 0 <= Y <= 1,
c = sqrt(1 - Y^2), m = X clipped to [-c, c] and G(t) = (t sqrt(1 - t^2) + arcsin t) / 2,

    F(X, Y) = 2 G(X) + pi / 2 - G(m) - G(c) + Y (m + c),    F(X, -Y) = F(X, 1) - F(X, Y)

The values of a row depend on the seed and its number only. Data without the lattice of a grid
are needed where mutual information or intrinsic dimension would otherwise measure the lattice.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from zscope.data.dataset import Dataset, Rows
from zscope.data.rendering import InMemory, draws, uniform
from zscope.data.source import Factor, factor_arguments, whole
from zscope.data.unpacking import LARGE
from zscope.seeds import seed_of

__all__ = ["FACTORS", "Ellipses", "area_of_disc", "coverage", "ellipses", "factor_values"]

VERSION = 1  # increase it with every change of a pixel
STREAM = 9  # number of this stream of random numbers
CHUNK = 2**20  # corners of pixels at a time
FACTORS = tuple(
    Factor(name, 0, "continuous") for name in ("scale", "position_x", "position_y", "aspect")
)


def area_of_disc(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """F(x, y): the area of the unit disc left of x and below y."""
    x, y = np.clip(x, -1, 1), np.clip(y, -1, 1)
    above = np.abs(y)
    half = np.sqrt(1 - above**2)
    middle = np.clip(x, -half, half)
    left = 2 * _segment(x) + math.pi / 2
    area = left - _segment(middle) - _segment(half) + above * (middle + half)
    return np.asarray(np.where(y >= 0, area, left - area))


def _segment(t: np.ndarray) -> np.ndarray:
    """The integral of sqrt(1 - t^2) from 0 to t."""
    return np.asarray((t * np.sqrt(np.maximum(1 - t**2, 0)) + np.arcsin(t)) / 2)


def coverage(
    x: np.ndarray, y: np.ndarray, width: np.ndarray, height: np.ndarray, resolution: int
) -> np.ndarray:
    """The covered fraction of each pixel (samples x height x width).

    Centres and half axes are in units of the picture's side.
    """
    edges = np.arange(resolution + 1) / resolution
    across = (edges - x[:, None]) / width[:, None]
    down = (edges - y[:, None]) / height[:, None]
    areas = area_of_disc(across[:, None, :], down[:, :, None])
    areas *= (width * height)[:, None, None] * resolution**2
    return np.diff(np.diff(areas, axis=1), axis=2).clip(0, 1)


def factor_values(rows: np.ndarray, seed: int) -> np.ndarray:
    """Scale, position_x, position_y and aspect of some rows."""
    random = uniform(draws(seed_of(seed, STREAM), rows, 4))
    scale, x, y, aspect = random.T
    return np.stack([0.5 + scale / 2, x, y, 2 ** (2 * aspect - 1)], axis=1)


@dataclass(frozen=True, eq=False)
class Ellipses:
    """Pictures of ellipses, drawn when they are read. Lengths are in units of the side."""

    factors: np.ndarray
    resolution: int
    first: float  # the centre at position 0
    travel: float  # from there to the centre at position 1
    radius: float  # of a circle of scale 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.factors), 1, self.resolution, self.resolution)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.factors)

    def __getitem__(self, rows: Any) -> np.ndarray:
        values = np.atleast_2d(self.factors[rows])
        out = np.empty((len(values), *self.shape[1:]), np.uint8)
        step = max(1, CHUNK // (self.resolution + 1) ** 2)
        for start in range(0, len(values), step):
            scale, x, y, aspect = values[start : start + step].T
            x, y = self.first + self.travel * x, self.first + self.travel * y
            width, height = (self.radius * scale * aspect**power for power in (0.5, -0.5))
            covered = coverage(x, y, width, height, self.resolution)
            out[start : start + step, 0] = np.rint(255 * covered)
        return out[0] if np.ndim(self.factors[rows]) == 1 else out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


def ellipses(
    name: str, count: int, seed: int, *, resolution: int, first: float, travel: float, radius: float
) -> Dataset:
    """The dataset of that many ellipses, held in memory unless they are very many."""
    count = whole(name, "continuous", count, "a number of pictures", 12_000)
    factors = factor_values(np.arange(count), seed)
    images: Rows = Ellipses(factors, resolution, first, travel, radius)
    if count * resolution**2 <= LARGE:
        images = InMemory(images)
    provenance = {"pictures": f"ellipses {VERSION} {resolution}", "seed": seed}
    return Dataset(name, images, factors, **factor_arguments(FACTORS), provenance=provenance)

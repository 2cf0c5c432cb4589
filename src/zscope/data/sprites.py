"""Sprites: a white square, ellipse or heart on black, the factor grid of dSprites.

    shape        square, ellipse, heart
    scale        6 values from 0.5 to 1
    orientation  40 steps of 9 degrees
    position_x   32 places from left to right, one pixel apart at 64 x 64
    position_y   32 places from top to bottom

737,280 pictures, the last factor running fastest. Sizes and positions follow dSprites
(Matthey et al., "dSprites: Disentanglement testing Sprites dataset", 2017): on average
4.25 % of the pixels are white, and no sprite is cut off. One departure: in dSprites the 40
orientations run from 0 to 2 pi with both ends, so the first and last are the
same; here all 40 differ, and 10 steps are exactly a quarter turn.

A picture is a stamp (the sprite alone, in its bounding square) placed on a background.
Stamps are computed from the implicit equations of the shapes, for every sub-pixel position
of the centre, so that any resolution is exact. With `antialias=True` a pixel is the covered
fraction of its area (64 samples or more), otherwise its centre decides.

Three variants have colour, as in Locatello et al. (ICML 2019, arXiv:1811.12359): their
random parts are a function of the seed and the row alone.

    sprites-color       the sprite in a random colour, each channel from 0.5 to 1
    sprites-noisy       the sprite white, on uniform noise
    sprites-background  the sprite inverts a random crop of a painting, which is blended
                        half and half with a random colour
"""

import hashlib
import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from zscope.data.dataset import Dataset
from zscope.data.ellipses import ellipses
from zscope.data.rendering import (
    SUBSET_OPTIONS,
    Axis,
    Choice,
    check_resolution,
    choices_of,
    draws,
    grid_dataset,
    scramble,
    uniform,
)
from zscope.data.source import Source
from zscope.data.unpacking import open_picture
from zscope.errors import ConfigError, DataError

__all__ = ["BACKGROUND", "COLOR", "NOISY", "SPRITES", "SpritePainter", "load"]

VERSION = 1  # increase it with every change of a pixel: cached pictures are then drawn again

AXES = (
    Axis("shape", ("square", "ellipse", "heart"), "categorical"),
    Axis("scale", tuple(np.linspace(0.5, 1, 6).round(12).tolist())),
    Axis("orientation", tuple((np.arange(40) * 2 * np.pi / 40).tolist()), cyclic=True),
    Axis("position_x", tuple(np.linspace(0, 1, 32).tolist())),
    Axis("position_y", tuple(np.linspace(0, 1, 32).tolist())),
)

# Lengths below are in units of 1/64 of the picture's side, for scale 1.
SIDE = 64.0
FIRST = 16.5  # the centre at the first position; it moves by 1 a step
SQUARE = 9.1  # half a side. Not 9: pixel centres would fall on the edge
ELLIPSE = (11.6, 7.35)  # half axes
HEART = (5.9, 5.0, 14.1)  # radius of the lobes, their distance from the axis, depth of the tip
HEART_TIP = 1.5  # radius of its rounding: a sharp tip would be a spike one pixel wide
HEART_CENTROID = -2.053  # height of the centre of mass, from the centres of the lobes
REACH = SQUARE * math.sqrt(2)  # no point of a sprite is further from its centre

TABLE_BYTES = 64 * 2**20

Variant = Literal["plain", "color", "noisy", "background"]


def inside(shape: int, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Whether points lie in a shape of scale 1, centred and upright; v points up."""
    if shape == 0:
        return np.asarray(np.maximum(np.abs(u), np.abs(v)) < SQUARE)
    if shape == 1:
        return (u / ELLIPSE[0]) ** 2 + (v / ELLIPSE[1]) ** 2 < 1
    radius, aside, depth = HEART
    u, v = np.abs(u), v + HEART_CENTROID
    # Two round lobes, and below them a wedge whose edges are the tangents from the tip.
    angle = math.atan2(depth, aside) - math.asin(radius / math.hypot(aside, depth))
    along, across = math.cos(angle), math.sin(angle)
    lobes = (u - aside) ** 2 + v**2 < radius**2
    wedge = (across * u - along * (v + depth) < 0) & (along * (u - aside) + across * v <= 0)
    up, touch = HEART_TIP / along, HEART_TIP * across / along
    rounded = (along * u + across * (v + depth) > touch) | (
        u**2 + (v + depth - up) ** 2 < HEART_TIP**2
    )
    return lobes | (wedge & (v <= 0) & rounded)


class Stamps:
    """The sprite alone: how much it covers (0 to 255) each pixel of the square around it.

    A stamp depends on shape, scale, orientation and on the position of the centre within
    its pixel. At 64 x 64 that is always the middle; at other resolutions there are more
    cases. Stamps are computed on first use, and kept if all of them fit in memory.
    """

    def __init__(self, resolution: int, antialias: bool) -> None:
        self.pixel: float = SIDE / resolution
        self.samples: int = max(8, math.ceil(256 / resolution)) if antialias else 1
        centres = (FIRST + np.arange(32)) / self.pixel
        self.pixels: np.ndarray = np.floor(centres).astype(np.int64)
        places = (centres - self.pixels).round(9)
        self.places, self.place = np.unique(places, return_inverse=True)
        self.reach: int = math.ceil(REACH / self.pixel)
        self.size: int = 2 * self.reach + 1
        self.margin: int = max(
            0, self.reach - int(self.pixels[0]), int(self.pixels[-1]) + self.reach + 1 - resolution
        )
        count = 720 * len(self.places) ** 2
        keep = count * self.size**2 <= TABLE_BYTES
        self.table: np.ndarray | None = (
            np.zeros((count, self.size, self.size), np.uint8) if keep else None
        )
        self.ready: np.ndarray = np.zeros(count if keep else 0, bool)

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The stamps of these rows, and their top and left pixels on the padded canvas."""
        x, y = rows // 32 % 32, rows % 32
        case = (rows // 1024 * len(self.places) + self.place[y]) * len(self.places) + self.place[x]
        corner = self.margin - self.reach
        return self._lookup(case), self.pixels[y] + corner, self.pixels[x] + corner

    def _lookup(self, case: np.ndarray) -> np.ndarray:
        if self.table is None:
            needed, which = np.unique(case, return_inverse=True)
            return self._compute(needed)[which]
        needed = np.unique(case[~self.ready[case]])
        if needed.size:
            self.table[needed] = self._compute(needed)
            self.ready[needed] = True
        return np.asarray(self.table[case])

    def _compute(self, case: np.ndarray) -> np.ndarray:
        out = np.empty((len(case), self.size, self.size), np.uint8)
        points = (self.size * self.samples) ** 2
        step = max(1, 2**20 // points)
        shape, scale, orientation, below, right = np.unravel_index(
            case, (3, 6, 40, len(self.places), len(self.places))
        )
        for kind in range(3):
            cases = np.flatnonzero(shape == kind)
            for start in range(0, len(cases), step):
                part = cases[start : start + step]
                out[part] = self._cover(
                    kind,
                    np.asarray(AXES[1].values)[scale[part]],
                    np.asarray(AXES[2].values)[orientation[part]],
                    self.places[below[part]],
                    self.places[right[part]],
                )
        return out

    def _cover(
        self, shape: int, scale: np.ndarray, angle: np.ndarray, below: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        # Samples of a pixel: a square grid, sheared so that no two share an abscissa or
        # ordinate. Otherwise upright edges would be resolved to 1/8 pixel only.
        fine, step = np.arange(self.samples), 1 / self.samples
        sheared = (fine[:, None] + (fine + 0.5) * step) * step
        pixels = np.arange(-self.reach, self.reach + 1)
        x = pixels[:, None] + sheared.T[:, None, :] - right[:, None, None, None]
        y = pixels[:, None, None] + sheared - below[:, None, None, None]
        x, y = x[:, None] * self.pixel, y[:, :, :, None] * self.pixel
        cos, sin = (part / scale for part in (np.cos(angle), np.sin(angle)))
        cos, sin = (part[:, None, None, None, None] for part in (cos, sin))
        # Angles grow clockwise on the screen, where y points down.
        blocks = inside(shape, cos * x + sin * y, sin * x - cos * y)
        return np.asarray(np.rint(blocks.mean((2, 4)) * 255), np.uint8)


@lru_cache(maxsize=4)
def stamps(resolution: int, antialias: bool) -> Stamps:
    return Stamps(resolution, antialias)


@dataclass(frozen=True, eq=False)
class SpritePainter:
    """Draws sprites by their row in the full grid."""

    resolution: int
    antialias: bool
    variant: Variant = "plain"
    seed: int = 0
    painting: np.ndarray | None = None  # channels x height x width

    @property
    def axes(self) -> tuple[Axis, ...]:
        return AXES

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1 if self.variant == "plain" else 3, self.resolution, self.resolution)

    @property
    def key(self) -> str:
        key = f"sprites {VERSION} {self.variant} {self.resolution} antialias={self.antialias}"
        if self.variant != "plain":
            key += f" seed={self.seed}"
        if self.painting is not None:
            key += f" painting={hashlib.sha256(self.painting.tobytes()).hexdigest()[:16]}"
        return key

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        table = stamps(self.resolution, self.antialias)
        cover, top, left = table(rows)
        margin, side = table.margin, self.resolution
        padded = side + 2 * margin
        canvas = np.zeros((len(rows), self.shape[0], padded, padded), np.uint8)
        picture = canvas[:, :, margin : margin + side, margin : margin + side]
        size = (table.size, table.size)
        windows = sliding_window_view(canvas, size, axis=(2, 3), writeable=True)
        here = (np.arange(len(rows)), slice(None), top, left)
        cover = cover[:, None]
        if self.variant == "plain":
            windows[here] = cover
        elif self.variant == "color":
            color = 0.5 + 0.5 * uniform(draws(self.seed, rows, 3)).astype(np.float32)
            windows[here] = color[:, :, None, None] * cover + np.float32(0.5)
        elif self.variant == "noisy":
            count = 3 * side * side
            noise = draws(self.seed, rows, -(-count // 8)).view(np.uint8)[:, :count]
            picture[:] = noise.reshape(picture.shape)
            behind = windows[here]
            windows[here] = behind + np.minimum(cover, 255 - behind)
        else:
            picture[:] = self._backgrounds(rows)
            behind = windows[here].astype(np.int32)
            windows[here] = behind + (255 - 2 * behind) * cover // 255
        return picture

    def _backgrounds(self, rows: np.ndarray) -> np.ndarray:
        assert self.painting is not None
        _, height, width = self.painting.shape
        random = uniform(draws(self.seed, rows, 5))
        top = (random[:, 3] * (height - self.resolution + 1)).astype(np.int64)
        left = (random[:, 4] * (width - self.resolution + 1)).astype(np.int64)
        crops = sliding_window_view(self.painting, (self.resolution,) * 2, axis=(1, 2))
        tint = (random[:, :3] * 256).astype(np.uint16)[:, :, None, None]
        return ((crops[:, top, left].swapaxes(0, 1) + tint) // 2).astype(np.uint8)


def painting(resolution: int) -> np.ndarray:
    """A landscape that resembles a painting: a red sky, dark water, a bridge.

    Bands of colour along the level lines of a wavy height map, with brush strokes (noise
    averaged along the same lines). Its size relative to a picture is that of the painting
    used by Locatello et al.: 350 x 274 for pictures of 64 x 64.
    """
    height, width = math.ceil(274 * resolution / 64), math.ceil(350 * resolution / 64)
    y, x = np.mgrid[0:height, 0:width] / height
    waves = 0.05 * np.sin(5 * x + 3 * y) + 0.035 * np.sin(11 * x - 6 * y + 1)
    swirl = 0.10 * np.exp(-12 * ((x - 0.85) ** 2 + (y - 0.52) ** 2)) * np.sin(14 * (x - y))
    level = y + waves + swirl
    bridge = y - 0.62 - 0.55 * (0.75 - x)
    level = np.where(bridge > 0, 2 + bridge - 0.02 * np.sin(30 * x), level)
    noise = uniform(scramble(np.arange(height * width, dtype=np.uint64))).reshape(height, width)
    down, right = np.gradient(level)
    steep = np.hypot(down, right) + 1e-12
    strokes = np.zeros_like(noise)
    for direction in (1, -1):
        row, column = np.mgrid[0:height, 0:width].astype(float)
        for _ in range(max(3, resolution // 6)):
            at = (row.astype(int).clip(0, height - 1), column.astype(int).clip(0, width - 1))
            strokes += noise[at]
            row += direction * (right / steep)[at]
            column -= direction * (down / steep)[at]
    strokes = (strokes - strokes.mean()) / strokes.std()
    stops = np.array(
        [-0.1, 0.08, 0.16, 0.24, 0.32, 0.40, 0.47, 0.56, 0.66, 0.8, 1.1, 2.0, 2.2, 2.6]
    )
    inks = np.array(
        [
            (226, 92, 38), (240, 150, 54), (214, 70, 40), (246, 186, 84), (232, 110, 48),
            (250, 206, 120), (120, 120, 130), (40, 66, 104), (70, 104, 116), (28, 44, 74),
            (52, 60, 56), (150, 98, 60), (104, 62, 42), (60, 36, 30),
        ]
    )  # fmt: skip
    tone = level + 0.018 * strokes
    rgb = np.stack([np.interp(tone, stops, inks[:, channel]) for channel in range(3)])
    rgb = rgb * (1 + 0.09 * strokes)
    return np.asarray(np.clip(rgb, 0, 255), np.uint8)


def painting_from(path: str | Path, resolution: int) -> np.ndarray:
    """A picture file as background, reduced to at most 350 x 274 for pictures of 64 x 64."""
    if not Path(path).exists():
        raise DataError(
            f"sprites-background: there is no picture {path}. Is the path right? Leave the option "
            "out for the built-in painting."
        )
    with open_picture(path) as file:
        image = file.convert("RGB")
    image.thumbnail((math.ceil(350 * resolution / 64), math.ceil(274 * resolution / 64)))
    if min(image.size) < resolution:
        raise DataError(
            f"sprites-background: {path} is {image.width} x {image.height} pixels after reduction, "
            f"smaller than a crop of {resolution} x {resolution}. Use a larger or wider picture."
        )
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def load(
    folder: Path,
    *,
    variant: Variant = "plain",
    resolution: int = 64,
    antialias: bool = False,
    seed: int = 0,
    image: str | Path | None = None,
    shape: Choice = None,
    scale: Choice = None,
    orientation: Choice = None,
    position_x: Choice = None,
    position_y: Choice = None,
    pictures: int | None = None,
    subset_seed: int = 0,
    continuous: int | None = None,
) -> Dataset:
    """The pictures of all combinations of factor values, of the chosen ones, or a subset.

    With `continuous`, ellipses whose factors are drawn at random between the values of the grid.
    """
    name = "sprites" if variant == "plain" else f"sprites-{variant}"
    check_resolution(name, resolution)
    if antialias not in (True, False):
        raise ConfigError(f"{name}: antialias={antialias!r}; expected true or false.")
    background = None
    if variant == "background":
        background = painting(resolution) if image is None else painting_from(image, resolution)
    painter = SpritePainter(resolution, antialias, variant, seed, background)
    choices: dict[str, Choice] = {
        "shape": shape,
        "scale": scale,
        "orientation": orientation,
        "position_x": position_x,
        "position_y": position_y,
    }
    if continuous is not None:
        fixed = {**choices, "pictures": pictures}
        return _continuous(name, continuous, subset_seed, resolution, fixed)
    return grid_dataset(name, painter, folder, choices, pictures=pictures, subset_seed=subset_seed)


def _continuous(
    name: str, count: int, seed: int, resolution: int, choices: dict[str, Choice]
) -> Dataset:
    """Ellipses that move between the first and last places of the grid."""
    given = [option for option, choice in choices.items() if choice is not None]
    if given:
        raise ConfigError(
            f"{name}: continuous={count} draws ellipses of all sizes, places and aspects, so "
            f"{given[0]}={choices[given[0]]!r} has no effect. Leave one of the two out."
        )
    return ellipses(
        name,
        count,
        seed,
        resolution=resolution,
        first=FIRST / SIDE,
        travel=(len(AXES[3]) - 1) / SIDE,
        radius=math.sqrt(math.prod(ELLIPSE)) / SIDE,
    )


OPTIONS = {
    "resolution": "pixels per side, 8 to 1024 (64)",
    "antialias": "grey edges by the covered fraction of each pixel (False)",
    "shape": "a count, or a list of square, ellipse, heart (all 3)",
    "scale": "a count, or a list of positions 0 to 5 (all 6)",
    "orientation": "a count, or a list of positions 0 to 39 (all 40)",
    "position_x": "a count, or a list of positions 0 to 31 (all 32)",
    "position_y": "a count, or a list of positions 0 to 31 (all 32)",
    **SUBSET_OPTIONS,
}
SEEDED = {**OPTIONS, "seed": "random seed of colours, noise or crops (0)"}
CITE = "Matthey et al., dSprites: Disentanglement testing Sprites dataset, 2017"
VARIANTS = f"{CITE}; Locatello et al., ICML 2019, arXiv:1811.12359"

CONTINUOUS = (
    "how many antialiased ellipses with continuous scale, position_x, position_y and aspect to "
    "draw in place of the grid, by subset_seed (none)"
)

SPRITES = Source(
    name="sprites",
    title="Sprites",
    summary="White squares, ellipses and hearts on black: the factor grid of dSprites",
    cite=CITE,
    load=load,
    options={**OPTIONS, "continuous": CONTINUOUS},
    forms=choices_of("sprites", AXES),
    shape=(1, 64, 64),
    samples=math.prod(len(axis) for axis in AXES),
    factors=tuple(axis.factor(range(len(axis))) for axis in AXES),
)
COLOR = replace(
    SPRITES,
    name="sprites-color",
    title="Sprites in colour",
    summary="Each sprite in a random colour, on black",
    cite=VARIANTS,
    load=partial(load, variant="color"),
    options=SEEDED,
    shape=(3, 64, 64),
)
NOISY = replace(
    COLOR,
    name="sprites-noisy",
    title="Sprites in noise",
    summary="White sprites on uniform noise in colour",
    load=partial(load, variant="noisy"),
)
BACKGROUND = replace(
    COLOR,
    name="sprites-background",
    title="Sprites on a painting",
    summary="Each sprite inverts the colours of a random crop of a painting",
    load=partial(load, variant="background"),
    options={**SEEDED, "image": "path of a picture to crop (default: a generated painting)"},
)

"""Rooms: a coloured object in a coloured room under the sky, the factor grid of 3D Shapes.

    floor_hue, wall_hue, object_hue   10 hues each, around the colour circle
    scale                             8 values from 0.75 to 1.25
    shape                             cube, cylinder, sphere, capsule
    orientation                       15 angles of view from -30 to 30 degrees

480,000 pictures in the order of the published file, the last factor running fastest
(Burgess, Kim, "3D Shapes Dataset", 2018; Kim, Mnih, ICML 2018, arXiv:1802.05983).

Each picture is ray traced: a camera on a circle around the object, a floor, the four walls
of a square room, diffuse light from a small sun and from the sky, a soft shadow, a
highlight, 16 rays per pixel. Rays do not depend on the hues: for each scale, shape and
orientation they give the light that each material sends to each pixel. A picture is these
5 maps times the colours of the materials,

    pixel = floor light x floor colour + wall light x wall colour
            + object light x object colour + sky + highlight,

which is exact because no surface reflects the colour of another. So a hue changes only the
pixels in which its surface is visible.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from zscope.data.dataset import Dataset
from zscope.data.rendering import (
    SUBSET_OPTIONS,
    Axis,
    Choice,
    check_resolution,
    choices_of,
    grid_dataset,
)
from zscope.data.source import Source

__all__ = ["ROOMS", "RoomPainter", "load"]

VERSION = 1  # increase it with every change of a pixel: cached pictures are then drawn again

HUES = tuple((np.arange(10) / 10).tolist())
AXES = (
    Axis("floor_hue", HUES, cyclic=True),
    Axis("wall_hue", HUES, cyclic=True),
    Axis("object_hue", HUES, cyclic=True),
    Axis("scale", tuple(np.linspace(0.75, 1.25, 8).tolist())),
    Axis("shape", ("cube", "cylinder", "sphere", "capsule"), "categorical"),
    Axis("orientation", tuple(np.linspace(-30, 30, 15).tolist())),
)
GEOMETRIES = 8 * 4 * 15

# Lengths are in units of roughly the object's width; y points up, the object stands at 0.
CAMERA = (7.0, 3.0)  # distance from the object's axis, height
TARGET = 1.45  # the height it looks at
VIEW = math.tan(math.radians(20))  # half the picture's side, seen at distance 1
ROOM = 4.6  # half the side of the floor
WALL = 2.4  # height of the walls
CUBE = 0.74  # half a side
CYLINDER = (0.74, 1.55)  # radius, height
SPHERE = 0.88  # radius
CAPSULE = (0.62, 2.1)  # radius, height

SUN = np.array([-0.5, 1.0, 0.75], np.float32)
SUN_SIZE = 0.12  # spread of its rays: the softness of shadows
SKYLIGHT = (0.56, 0.13)  # on a vertical surface, and what is added on a horizontal one
SUNLIGHT = 0.46
LAMP = 0.05  # a weak light at the camera, on the object
HIGHLIGHT = (0.35, 40)  # strength, sharpness
CONTACT = (0.45, 0.22)  # strength and width of the contact shadow
SKY = (0.60, 0.88, 0.97)
SUBPIXELS = 4  # rays per pixel along each axis

RAYS = 2**17  # traced at a time
TABLE_BYTES = 256 * 2**20

FLOOR, WALLS, OBJECT, OPEN_SKY, WHITE = range(5)


def hit_distance(shape: int, scale: float, origin: np.ndarray, toward: np.ndarray) -> np.ndarray:
    """The distance along each ray (3 x rays, unit directions) to the object, or infinity."""
    if shape == 0:
        half = CUBE * scale
        low = np.array([[-half], [0], [-half]], np.float32)
        with np.errstate(divide="ignore", invalid="ignore"):
            one, two = (low - origin) / toward, (low + 2 * half - origin) / toward
        entry, leave = np.minimum(one, two).max(0), np.maximum(one, two).min(0)
        return np.where((entry < leave) & (entry > 0), entry, np.inf)
    if shape == 1:
        radius, height = CYLINDER[0] * scale, CYLINDER[1] * scale
        side = _tube(origin, toward, radius, 0, height)
        with np.errstate(divide="ignore", invalid="ignore"):
            top = (height - origin[1]) / toward[1]
            x, z = origin[0] + top * toward[0], origin[2] + top * toward[2]
        lid = np.where((x**2 + z**2 < radius**2) & (top > 0), top, np.inf)
        return np.asarray(np.minimum(side, lid))
    if shape == 2:
        return _ball(origin, toward, SPHERE * scale, SPHERE * scale)
    radius, height = CAPSULE[0] * scale, CAPSULE[1] * scale
    parts = [_ball(origin, toward, radius, y) for y in (radius, height - radius)]
    parts.append(_tube(origin, toward, radius, radius, height - radius))
    return np.asarray(np.minimum.reduce(parts))


def _ball(origin: np.ndarray, toward: np.ndarray, radius: float, height: float) -> np.ndarray:
    from_centre = origin - np.array([[0], [height], [0]], np.float32)
    along = (from_centre * toward).sum(0)
    inside = along**2 - (from_centre**2).sum(0) + radius**2
    distance = -along - np.sqrt(np.maximum(inside, 0))
    return np.where((inside > 0) & (distance > 0), distance, np.inf)


def _tube(
    origin: np.ndarray, toward: np.ndarray, radius: float, low: float, high: float
) -> np.ndarray:
    speed = toward[0] ** 2 + toward[2] ** 2
    along = origin[0] * toward[0] + origin[2] * toward[2]
    inside = along**2 - speed * (origin[0] ** 2 + origin[2] ** 2 - radius**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = (-along - np.sqrt(np.maximum(inside, 0))) / speed
        height = origin[1] + distance * toward[1]
    hit = (inside > 0) & (distance > 0) & (height > low) & (height < high)
    return np.where(hit, distance, np.inf)


def normals(shape: int, scale: float, points: np.ndarray) -> np.ndarray:
    """The unit normals (3 x points) of the object at points of its surface."""
    x, y, z = points
    if shape == 0:
        away = np.stack([x, y - CUBE * scale, z])
        return np.where(np.abs(away) == np.abs(away).max(0), np.sign(away), 0)
    if shape == 1:
        top = y > CYLINDER[1] * scale - 1e-4
        return np.where(top, [[0], [1], [0]], np.stack([x, 0 * y, z]) / (CYLINDER[0] * scale))
    radius, height = (SPHERE, 2 * SPHERE) if shape == 2 else CAPSULE
    middle = np.clip(y, radius * scale, (height - radius) * scale)
    return np.stack([x, y - middle, z]) / (radius * scale)


def camera(orientation: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where the camera is, and its directions right, up and forward."""
    angle = math.radians(orientation)
    place = np.array([CAMERA[0] * math.sin(angle), CAMERA[1], CAMERA[0] * math.cos(angle)])
    forward = np.array([0, TARGET, 0]) - place
    forward /= np.linalg.norm(forward)
    right = np.array([math.cos(angle), 0, -math.sin(angle)])
    return place, right, np.cross(right, forward), forward


def light_maps(resolution: int, scale: float, shape: int, orientation: float) -> np.ndarray:
    """The light that each of the 5 materials sends to each pixel: 5 x pixels, about 0 to 1."""
    rays = resolution * SUBPIXELS
    rows = max(1, RAYS // (rays * SUBPIXELS)) * SUBPIXELS
    parts = [
        _trace(rays, start, min(start + rows, rays), scale, shape, orientation)
        for start in range(0, rays, rows)
    ]
    light = np.concatenate(parts, axis=1)
    blocks = light.reshape(5, resolution, SUBPIXELS, resolution, SUBPIXELS)
    return np.asarray(blocks.mean((2, 4), dtype=np.float32).reshape(5, -1))


def _trace(
    rays: int, first: int, last: int, scale: float, shape: int, orientation: float
) -> np.ndarray:
    """The light along each ray of some rows of rays: 5 materials x rows x rays."""
    place, right, up, forward = camera(orientation)
    across = VIEW * (2 * (np.arange(rays) + 0.5) / rays - 1)
    down = VIEW * (2 * (np.arange(first, last) + 0.5) / rays - 1)
    through = forward[:, None] + np.outer(right, across)
    toward = through[:, None, :] - np.outer(up, down)[:, :, None]
    toward = toward.reshape(3, -1).astype(np.float32)
    toward /= np.sqrt((toward**2).sum(0))
    eye = place.astype(np.float32)[:, None]
    sun = _sun(last - first, rays)

    with np.errstate(divide="ignore"):
        to_floor = np.where(toward[1] < 0, -eye[1] / toward[1], np.float32(np.inf))
        # The camera is inside the room: of each pair of walls a ray hits the one ahead of it.
        to_walls = [(np.copysign(np.float32(ROOM), toward[k]) - eye[k]) / toward[k] for k in (0, 2)]
    to_object = hit_distance(shape, scale, eye, toward)
    nearest = np.minimum(np.minimum(to_floor, np.minimum(*to_walls)), to_object)
    points = eye + nearest * toward
    on_object = nearest == to_object
    on_floor = ~on_object & (nearest == to_floor)
    on_wall = ~on_object & ~on_floor & (points[1] < WALL)
    facing = np.zeros_like(toward)
    for axis, distance in zip((0, 2), to_walls, strict=True):
        facing[axis] = np.where(on_wall & (nearest == distance), -np.sign(toward[axis]), 0)
    facing[1] = on_floor
    facing[:, on_object] = normals(shape, scale, points[:, on_object])

    toward_sun = (facing * sun).sum(0)
    lit = toward_sun > 0
    behind = np.flatnonzero(lit & ~on_object)
    lit[behind] = hit_distance(shape, scale, points[:, behind], sun[:, behind]) == np.inf
    light = SKYLIGHT[0] + SKYLIGHT[1] * facing[1] + SUNLIGHT * np.where(lit, toward_sun, 0)

    out = np.zeros((5, light.size), np.float32)
    out[OPEN_SKY] = ~(on_object | on_floor | on_wall)
    out[WALLS, on_wall] = light[on_wall]
    out[FLOOR, on_floor] = light[on_floor] * (1 - _contact(shape, scale, points[:, on_floor]))
    normal, ray, shine = facing[:, on_object], toward[:, on_object], sun[:, on_object]
    out[OBJECT, on_object] = light[on_object] - LAMP * (normal * ray).sum(0)
    halfway = (shine - ray) / np.sqrt(((shine - ray) ** 2).sum(0))
    gloss = np.maximum((normal * halfway).sum(0), 0) ** HIGHLIGHT[1]
    out[WHITE, on_object] = np.where(lit[on_object], HIGHLIGHT[0] * gloss, 0)
    return out.reshape(5, last - first, rays)


@lru_cache(maxsize=2)
def _sun(rows: int, rays: int) -> np.ndarray:
    """A direction to the sun for each ray: the rays of a pixel see different parts of it."""
    row, column = np.divmod(np.arange(SUBPIXELS**2) * 7 % SUBPIXELS**2, SUBPIXELS)
    x, z = (np.stack([row, column]) + 0.5) / SUBPIXELS - 0.5
    sun = SUN[:, None] + 2 * SUN_SIZE * np.stack([x, 0 * x, z])
    sun = (sun / np.linalg.norm(sun, axis=0)).reshape(3, SUBPIXELS, SUBPIXELS)
    tiled = np.tile(sun, (1, rows // SUBPIXELS, rays // SUBPIXELS))
    return tiled.reshape(3, -1).astype(np.float32)


def _contact(shape: int, scale: float, points: np.ndarray) -> np.ndarray:
    """The fraction of light that the object blocks from the floor around it."""
    x, z = np.abs(points[0]), np.abs(points[2])
    if shape == 0:
        half = CUBE * scale
        gap = np.hypot(np.maximum(x - half, 0), np.maximum(z - half, 0))
    else:
        foot = (CYLINDER[0], 0.45 * SPHERE, 0.45 * CAPSULE[0])[shape - 1] * scale
        gap = np.maximum(np.hypot(x, z) - foot, 0)
    return np.asarray(CONTACT[0] * np.exp(-gap / (CONTACT[1] * scale)))


class Maps:
    """A cache of light maps, traced on first use; the oldest are dropped when it is full."""

    def __init__(self, resolution: int) -> None:
        self.resolution: int = resolution
        self.limit: int = max(1, TABLE_BYTES // (5 * 4 * resolution**2))
        self.cache: OrderedDict[int, np.ndarray] = OrderedDict()

    def __call__(self, geometry: int) -> np.ndarray:
        if geometry not in self.cache:
            scale, shape, orientation = np.unravel_index(geometry, (8, 4, 15))
            self.cache[geometry] = light_maps(
                self.resolution,
                float(AXES[3].values[scale]),
                int(shape),
                float(AXES[5].values[orientation]),
            )
            if len(self.cache) > self.limit:
                self.cache.popitem(last=False)
        return self.cache[geometry]


@lru_cache(maxsize=4)
def maps(resolution: int) -> Maps:
    return Maps(resolution)


def hue_colors(hues: np.ndarray) -> np.ndarray:
    """Red, green and blue (samples x 3, 0 to 1) of fully saturated hues from 0 to 1."""
    return np.asarray(np.clip(np.abs((hues[:, None] * 6 + [0, 4, 2]) % 6 - 3) - 1, 0, 1))


@dataclass(frozen=True)
class RoomPainter:
    """Draws rooms by their row in the full grid."""

    resolution: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        return AXES

    @property
    def shape(self) -> tuple[int, int, int]:
        return (3, self.resolution, self.resolution)

    @property
    def key(self) -> str:
        return f"rooms {VERSION} {self.resolution}"

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        palette = hue_colors(np.asarray(HUES)).astype(np.float32) * 255
        colors = np.empty((len(rows), 3, 5), np.float32)  # samples x channels x materials
        colors[..., FLOOR] = palette[rows // (100 * GEOMETRIES)]
        colors[..., WALLS] = palette[rows // (10 * GEOMETRIES) % 10]
        colors[..., OBJECT] = palette[rows // GEOMETRIES % 10]
        colors[..., OPEN_SKY] = np.float32(255) * np.array(SKY, np.float32)
        colors[..., WHITE] = 255
        out = np.empty((len(rows), 3, self.resolution**2), np.uint8)
        scenes = rows % GEOMETRIES
        order = np.argsort(scenes, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(scenes[order])) + 1):
            if group.size:
                light = colors[group].reshape(-1, 5) @ maps(self.resolution)(int(scenes[group[0]]))
                light = np.minimum(light + np.float32(0.5), np.float32(255))
                out[group] = light.reshape(len(group), 3, -1)
        return out.reshape(len(rows), *self.shape)


def load(
    folder: Path,
    *,
    resolution: int = 64,
    floor_hue: Choice = None,
    wall_hue: Choice = None,
    object_hue: Choice = None,
    scale: Choice = None,
    shape: Choice = None,
    orientation: Choice = None,
    pictures: int | None = None,
    subset_seed: int = 0,
) -> Dataset:
    """The pictures of all combinations of factor values, of the chosen ones, or a subset."""
    painter = RoomPainter(check_resolution("rooms", resolution))
    choices: dict[str, Choice] = {
        "floor_hue": floor_hue,
        "wall_hue": wall_hue,
        "object_hue": object_hue,
        "scale": scale,
        "shape": shape,
        "orientation": orientation,
    }
    return grid_dataset(
        "rooms", painter, folder, choices, pictures=pictures, subset_seed=subset_seed
    )


ROOMS = Source(
    name="rooms",
    title="Rooms",
    summary="An object in a room, ray traced: the factor grid of 3D Shapes",
    cite="Burgess, Kim, 3D Shapes Dataset, 2018; Kim, Mnih, ICML 2018, arXiv:1802.05983",
    load=load,
    options={
        "resolution": "pixels per side, 8 to 1024 (64)",
        "floor_hue": "a count, or a list of positions 0 to 9 (all 10)",
        "wall_hue": "a count, or a list of positions 0 to 9 (all 10)",
        "object_hue": "a count, or a list of positions 0 to 9 (all 10)",
        "scale": "a count, or a list of positions 0 to 7 (all 8)",
        "shape": "a count, or a list of cube, cylinder, sphere, capsule (all 4)",
        "orientation": "a count, or a list of positions 0 to 14 (all 15)",
        **SUBSET_OPTIONS,
    },
    forms=choices_of("rooms", AXES),
    samples=1000 * GEOMETRIES,
    shape=(3, 64, 64),
    factors=tuple(axis.factor(range(len(axis))) for axis in AXES),
)

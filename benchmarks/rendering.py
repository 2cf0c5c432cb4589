"""How many pictures per second does one core draw? Required: 10,000 sprites and 1,500 rooms.

The time includes everything that a reader of an empty cache waits for: finding out which rows are
missing, drawing them, checksums, writing them to disk and returning the bytes, in batches of 64
random rows at 64 x 64, as in training. The first use of a shape or a scene (720 stamps, 480
traced scenes) is timed separately.

For comparison the same run also draws one picture at a time without tables, reads the pictures
again from the cache, and gathers them from an array in memory, which is the least that any
source of batches must do. All times are processor times of one thread.
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from ratios import Ratio, agreement, finish, released

from zscope.data import rooms, sprites
from zscope.data.rendering import Painter, Rendered
from zscope.data.rooms import RoomPainter
from zscope.data.sprites import SpritePainter

BATCH = 64
REPEATS = 5


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def naive_sprites(rows: np.ndarray) -> np.ndarray:
    """Every pixel of every picture from the equation of its shape, one picture at a time."""
    out = np.zeros((len(rows), 1, 64, 64), np.uint8)
    at = np.arange(64) + 0.5
    for index, row in enumerate(rows):
        shape, scale, angle, x, y = np.unravel_index(row, (3, 6, 40, 32, 32))
        u, v = np.meshgrid(at - 16.5 - x, at - 16.5 - y)
        size, turn = sprites.AXES[1].values[scale], sprites.AXES[2].values[angle]
        cos, sin = np.cos(turn) / size, np.sin(turn) / size
        out[index, 0] = 255 * sprites.inside(int(shape), cos * u + sin * v, sin * u - cos * v)
    return out


def naive_rooms(rows: np.ndarray) -> np.ndarray:
    """Every picture traced from scratch."""
    out = np.empty((len(rows), 3, 64, 64), np.uint8)
    for index, row in enumerate(rows):
        rooms.maps.cache_clear()
        out[index] = RoomPainter(64)(np.array([row]))[0]
    return out


def measure(
    name: str,
    painter: Painter,
    count: int,
    naive: Callable[[np.ndarray], np.ndarray],
    few: int,
    floor: int,
) -> list[Ratio]:
    """Seconds for each picture, by each method, in interleaved repeats."""
    total = int(np.prod([len(axis) for axis in painter.axes]))
    random = np.random.default_rng(0)
    one_of_each = np.arange(720) * 1024 if name == "sprites" else np.arange(480)
    rows = random.choice(total, few, replace=False)
    equal = agreement(f"all bytes of {few} pictures with those", painter(rows), naive(rows), 0)
    print(f"{name}: {seconds(lambda: painter(one_of_each)):.2f} s for the tables, once")
    spent: dict[str, list[float]] = {"drawn": [], "read": [], "memory": [], "naive": []}
    for repeat in range(REPEATS):
        rows = random.choice(total, count, replace=False)
        batches = np.split(rows, count // BATCH)
        with tempfile.TemporaryDirectory() as folder:
            images = Rendered(painter, Path(folder))
            array = np.empty((count, *painter.shape), np.uint8)
            order = np.split(random.permutation(count), count // BATCH)

            def read(images: Rendered = images, batches: list[np.ndarray] = batches) -> None:
                for batch in batches:
                    images[batch]

            def gather(array: np.ndarray = array, order: list[np.ndarray] = order) -> None:
                for batch in order:
                    array[batch]

            spent["drawn"].append(seconds(read) / count)
            spent["read"].append(seconds(read) / count)
            array[:] = images[rows]
            spent["memory"].append(seconds(gather) / count)
        if name == "sprites" or not repeat:
            spent["naive"].append(seconds(partial(naive, rows[:few])) / few)
            painter(one_of_each)  # the naive method has cleared the tables
    same = agreement(f"all bytes of {count:,} pictures read again", array, images[rows], 0)
    numpy = released("numpy")
    return [
        Ratio(
            f"{name}, drawn and stored", "data", spent["drawn"], [1 / floor],
            baseline=f"the limit of {floor:,} a second", version="64 x 64", agreement=equal,
            at_most=1,
        ),
        Ratio(
            f"{name}, drawn and stored, against one at a time", "data",
            spent["drawn"][: len(spent["naive"])], spent["naive"],
            baseline="each picture from its equations, not stored", version=numpy, agreement=equal,
        ),
        Ratio(
            f"{name}, read again", "data", spent["read"], spent["memory"],
            baseline="gathering them from an array in memory", version=numpy, agreement=same,
        ),
    ]  # fmt: skip


def main() -> int:
    cases = (
        ("sprites", SpritePainter(64, False), 8192, naive_sprites, 64, 10_000),
        ("rooms", RoomPainter(64), 2048, naive_rooms, 8, 1_500),
    )
    return finish("rendering", [ratio for case in cases for ratio in measure(*case)])


if __name__ == "__main__":
    sys.exit(main())

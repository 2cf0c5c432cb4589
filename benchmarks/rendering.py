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

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

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
    name: str, painter: Painter, count: int, naive: Callable[[np.ndarray], np.ndarray], few: int
) -> dict[str, float]:
    """Pictures per second of each method, the median of interleaved repeats."""
    total = int(np.prod([len(axis) for axis in painter.axes]))
    random = np.random.default_rng(0)
    one_of_each = np.arange(720) * 1024 if name == "sprites" else np.arange(480)
    rows = random.choice(total, few, replace=False)
    assert (naive(rows) == painter(rows)).all(), "the naive method draws different pictures"
    print(f"{name}: {seconds(lambda: painter(one_of_each)):.2f} s for the tables, once")
    speeds: dict[str, list[float]] = {"drawn": [], "read": [], "memory": [], "naive": []}
    for _ in range(REPEATS):
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

            speeds["drawn"].append(count / seconds(read))
            speeds["read"].append(count / seconds(read))
            array[:] = images[rows]
            speeds["memory"].append(count / seconds(gather))
        if name == "sprites" or not speeds["naive"]:
            speeds["naive"].append(few / seconds(partial(naive, rows[:few])))
            painter(one_of_each)  # the naive method has cleared the tables
    return {method: statistics.median(values) for method, values in speeds.items()}


def main() -> int:
    failed = False
    for name, painter, count, naive, few, floor in (
        ("sprites", SpritePainter(64, False), 8192, naive_sprites, 64, 10_000),
        ("rooms", RoomPainter(64), 2048, naive_rooms, 8, 1_500),
    ):
        speed = measure(name, painter, count, naive, few)
        print(
            f"{name}: {speed['drawn']:,.0f} drawn and stored per second (at least {floor:,}), "
            f"{speed['drawn'] / speed['naive']:.1f} x one at a time ({speed['naive']:,.0f})\n"
            f"{name}: {speed['read']:,.0f} read again, {speed['read'] / speed['memory']:.2f} x "
            f"gathering from memory ({speed['memory']:,.0f})"
        )
        failed |= speed["drawn"] < floor
    if failed:
        print("FAILED: too slow")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

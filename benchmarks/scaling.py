"""How does the cost of each assay grow with samples, latents and pixels?

Every assay of one recording is measured by the runner, on one thread, along three axes, the other
two at their base values: samples, latents and pixels. The model is an untrained β-VAE with
perceptrons of 64 units, whose last layer is scaled so that all latents are active; the data are
simulated pictures of four factors. A cell is the processor time of one assay, with nothing shared
from others; the recording is not counted. An axis ends for an assay when its next cell would take
longer than the limit (judged by the last cells), or when a cell did.

An exponent b of time = a · size^b is the slope of a least-squares line through log times of at
least 5 ms, with a 95 % t-interval. Assays that use at most so many samples ("most") are constant
beyond: the table shows the exponent as the runner has it.

    python benchmarks/scaling.py [--quick] [--assays mig,dci] [--axes samples] [--limit 20]

Cells are added to the JSON file (--out, by default .bench/scaling.json) as they are measured, and
a cell that is in it is not measured again: stop the script whenever you like.
"""

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import zscope as zs
from zscope.assays.run import choose, measure
from zscope.data.dataset import from_arrays
from zscope.files import write_whole

BASE = {"samples": 2000, "latents": 10, "pixels": 16 * 16}
SIZES = {
    "samples": [1000, 3162, 10_000, 31_623, 100_000],
    "latents": [4, 8, 16, 32, 64, 128, 256, 512],
    "pixels": [side * side for side in (8, 16, 32, 64, 128)],
}
QUICK = {
    "samples": [1000, 2000, 4000, 8000],
    "latents": [4, 8, 16, 32],
    "pixels": [side * side for side in (8, 16, 32, 64)],
}
FACTORS, LEVELS, HIDDEN = 4, 5, 64
LEAST = 0.005
"""Seconds; below, calling the assay takes longer than its work."""
CONFIDENCE = 0.95


class TooLong(BaseException):
    """A cell has reached the limit; no Exception, which the runner would keep."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def simulate(samples: int, pixels: int) -> Any:
    """Pictures that depend on four factors, with noise."""
    rng = np.random.default_rng(0)
    factors = rng.integers(0, LEVELS, (samples, FACTORS))
    mixing = rng.normal(size=(FACTORS, pixels)).astype(np.float32)
    side = math.isqrt(pixels)
    x = np.empty((samples, 1, side, side), np.float32)
    for rows in np.array_split(np.arange(samples), max(1, samples * pixels // 2**24)):
        values = (factors[rows] / LEVELS).astype(np.float32) @ mixing
        values += rng.normal(scale=0.1, size=values.shape)
        x[rows] = (1 / (1 + np.exp(-values))).reshape(-1, 1, side, side)
    return from_arrays(x, factors.astype(float))


@lru_cache(maxsize=1)
def recording(samples: int, latents: int, pixels: int) -> zs.Recording:
    """Codes of mean 0, variance 1 and posterior variance of about 0.05."""
    data = simulate(samples, pixels)
    model = zs.models.build(
        "beta-vae", shape=data.shape, latents=latents, backbone="mlp", hidden=(HIDDEN,)
    )
    last = [part for part in model.encoder.modules() if isinstance(part, torch.nn.Linear)][-1]
    mean = zs.record(model, data, samples=1000).posterior.mean
    with torch.no_grad():
        last.weight[:latents] /= mean.std(0)[:, None]
        last.bias[:latents] = (last.bias[:latents] - mean.mean(0)) / mean.std(0)
        last.weight[latents:] *= 0.1
        last.bias[latents:] -= 3
    return zs.record(model, data, samples=samples)


def seconds_of(name: str, sizes: dict[str, int], limit: float) -> dict[str, Any]:
    """The time of an assay, or why there is none."""
    recorded = replace(recording(**sizes), shared={})
    start = time.process_time()
    try:
        with limited(limit):
            outcome = measure(recorded, [name])
    except TooLong:
        return {"seconds": None, "reason": f"longer than {limit:g} s"}
    taken = time.process_time() - start
    if name in outcome.results:
        return {"seconds": taken, "reason": None}
    failure = outcome.failed.get(name)
    reason = failure.message if failure else outcome.missing.get(name, "no result")
    return {"seconds": None, "reason": reason.splitlines()[0][:200]}


def depends(entry: Any, axis: str) -> bool:
    """Assays of codes alone do not see the pictures."""
    return axis != "pixels" or str(entry.passes) != "0" or "observations" in entry.takes


def would_exceed(times: list[tuple[int, float]], size: int, limit: float) -> bool:
    """Whether the next cell would take too long, growing as between the last two or faster."""
    times = [(known, taken) for known, taken in times if known < size and taken > 0]
    if len(times) < 2:
        return False
    (first, before), (second, last) = times[-2:]
    growth = max(1.0, math.log(last / before) / math.log(second / first))
    return last * (size / second) ** growth > limit


def fit(times: list[tuple[int, float]]) -> dict[str, float] | None:
    """The exponent and its interval; None of fewer than three times."""
    times = [(size, taken) for size, taken in times if taken >= LEAST]
    if len(times) < 3:
        return None
    line = stats.linregress(*np.log(np.array(times, float)).T)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(times) - 2) * line.stderr)
    return {
        "exponent": float(line.slope),
        "low": float(line.slope) - half,
        "high": float(line.slope) + half,
        "points": len(times),
    }


class Cells:
    """The measured cells, in a JSON file."""

    def __init__(self, file: Path, settings: dict[str, Any]) -> None:
        self.file, self.settings = file, settings
        self.cells: dict[str, dict[str, Any]] = {}
        if file.is_file():
            content = json.loads(file.read_text())
            if content["settings"] != settings:
                sys.exit(
                    f"scaling: {file} was measured with {content['settings']}, not {settings}. "
                    "Delete it, or name another with --out."
                )
            self.cells = content["cells"]

    def get(self, axis: str, size: int, name: str, limit: float) -> dict[str, Any]:
        key = f"{axis} {size} {name}"
        if key not in self.cells:
            self.cells[key] = seconds_of(name, {**BASE, axis: size}, limit)
            self.save()
        return self.cells[key]

    def times(self, axis: str, name: str) -> list[tuple[int, float]]:
        found = []
        for key, cell in self.cells.items():
            kind, size, assay = key.split(" ")
            if (kind, assay) == (axis, name) and cell["seconds"] is not None:
                found.append((int(size), cell["seconds"]))
        return sorted(found)

    def fits(self) -> dict[str, dict[str, Any]]:
        keys = dict.fromkeys((k.split(" ")[0], k.split(" ")[2]) for k in self.cells)
        return {f"{axis} {name}": fit(self.times(axis, name)) for axis, name in keys}

    def save(self) -> None:
        content = {"settings": self.settings, "cells": self.cells, "fits": self.fits()}
        write_whole(self.file, (json.dumps(content, indent=1) + "\n").encode())


def show(cells: Cells, names: list[str], axes: list[str]) -> None:
    """The largest cell of each axis that was measured, and the exponent."""
    print(f"\n{'':27}" + "".join(f"{axis:>30}" for axis in axes))
    for name in names:
        texts = []
        for axis in axes:
            times = cells.times(axis, name)
            line = fit(times)
            text = f"{times[-1][1]:.2f} s at {times[-1][0]:,}" if times else "-"
            if line is not None:
                text += f"  {line['exponent']:.2f} [{line['low']:.1f}, {line['high']:.1f}]"
            texts.append(text)
        print(f"{name:27}" + "".join(f"{text:>30}" for text in texts))
    for key, cell in cells.cells.items():
        if cell["seconds"] is None and "longer than" not in cell["reason"]:
            print(f"no time: {key}: {cell['reason']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes, 5 s a cell")
    parser.add_argument("--assays", help="names or groups, with commas (default: all)")
    parser.add_argument("--axes", default=",".join(BASE), help="samples, latents, pixels")
    parser.add_argument("--limit", type=float, help="seconds of a cell (default 20, quick 5)")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Path(__file__).resolve().parents[1] / ".bench"
    file = options.out or bench / f"scaling{'-quick' if options.quick else ''}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    sizes = QUICK if options.quick else SIZES
    limit = options.limit or (5.0 if options.quick else 20.0)
    axes = options.axes.split(",")
    entries = [e for e in choose(options.assays and options.assays.split(",")) if not e.compares]
    about = {"base": BASE, "hidden": HIDDEN, "factors": FACTORS, "zscope": zs.__version__}
    cells = Cells(file, about)
    begun = time.perf_counter()
    measure(recording(**{**BASE, "samples": 1000}), [e.name for e in entries])  # imports
    ended: set[tuple[str, str]] = set()
    for axis in axes:
        for size in sizes[axis]:
            for entry in entries:
                key = axis, entry.name
                if key in ended or not depends(entry, axis):
                    continue
                too_long = would_exceed(cells.times(*key), size, limit)
                if too_long or cells.get(axis, size, entry.name, limit)["seconds"] is None:
                    ended.add(key)
            print(f"{axis} {size:,}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    show(cells, [entry.name for entry in entries], axes)
    print(f"written to {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How does the cost of each assay grow with samples, latents and pixels?

Every assay of the catalogue is measured along three axes, the other two at their base values. A
cell is one assay in a process of its own (a copy of this one), with nothing shared from others:

    seconds   processor time on one thread; the recording is not counted
    passes    codes decoded, or observations encoded if these are more; a code whose derivative by
              every latent is computed counts once for each
    memory    the peak above the recording and its observations, in MB (2^20 bytes): anonymous
              pages, looked at every few milliseconds. Above the budget (`use_memory`) the cell is
              run again, and the C library told to return blocks of 1 MB and more as soon as they
              are free: by default it keeps some, so that the peak is not what is needed

The models are constructed, so that all latents are in use and none is trivial: orthogonal features
of the pictures, a little curved, encoded a little rotated, with four factors in the first latents.
`masks` gets a model with a causal block, `feature-effects` tables instead of pictures. Assays that
compare get two models of the same pictures. Assays of maps get a convolutional model: their
"latents" are channels, and of 2 x 2 pixels there is one place (8 x 8 at the base values). Assays of
codes alone do not see pixels.

An exponent b of cost = a · size^b is the slope of a least-squares line through logarithms, with a
95 % t-interval; times below 5 ms are left out. An axis ends for an assay when it refuses, or when
its next cell would take longer than the limit (judged by the last cells), or one did.

    python benchmarks/scaling.py [--quick] [--assays mig,dci] [--axes samples] [--limit 60]
    python benchmarks/scaling.py --write                    # and the table in docs/scale.md

Cells are added to the JSON file (--out, by default .bench/scaling.json) as they are measured, and
a cell that is in it is not measured again (unless --again): stop the script whenever you like.
The script ends with 1 if a cell took longer than the limit or more memory than the budget, or if
time grows faster than the samples or passes faster than the latents.
"""

import argparse
import ctypes
import json
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.assays.engine import memory_budget
from zscope.assays.entry import Entry
from zscope.assays.run import choose, compare, measure
from zscope.autoencoder import evaluation
from zscope.data.dataset import Dataset, from_arrays
from zscope.files import write_whole

ROOT = Path(__file__).resolve().parents[1]
BASE = {"samples": 2000, "latents": 10, "pixels": 32 * 32}
OF_MAPS = {"pixels": 16 * 16}
"""Smaller, so that as many pictures as channels are kept of 512 channels."""
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
FACTORS, LEVELS = 4, 5
ANGLE = 0.3
"""By which codes that are decoded and encoded again are rotated, in planes of two latents."""
LEAST = 0.005
"""Seconds; below, calling the assay takes longer than its work."""
CONFIDENCE = 0.95
M_MMAP_THRESHOLD = -3  # of the C library
PAUSE = 0.003
"""Seconds between looks at the memory."""
ROUNDING = 0.05
"""Of an exponent whose interval begins above 1 by no more, growth is linear."""
DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
MARKS = "<!-- the table of benchmarks/scaling.py -->", "<!-- end of the table -->"


class Curved(zs.Autoencoder):
    """Decodes orthogonal features, a little curved, and encodes them a little rotated."""

    def __init__(self, shape: tuple[int, ...], latents: int, seed: int) -> None:
        super().__init__()
        self.shape, self.latents = shape, latents
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(math.prod(shape), latents, generator=generator)
        basis = torch.linalg.qr(features).Q
        turn = torch.eye(latents)
        for j in range(0, latents - 1, 2):
            turn[j : j + 2, j : j + 2] = torch.tensor(
                [[math.cos(ANGLE), -math.sin(ANGLE)], [math.sin(ANGLE), math.cos(ANGLE)]]
            )
        self.encoder = nn.Linear(len(basis), latents, bias=False)
        self.decoder = nn.Linear(latents, len(basis), bias=False)
        self.encoder.weight.data, self.decoder.weight.data = turn @ basis.T, basis

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> zs.Posterior:
        mean = self.encoder(x.flatten(1))
        return zs.Posterior(mean, 0.2 * (0.3 * mean.sin()).exp())

    def decode(self, z: Tensor) -> Tensor:
        x = self.decoder(z)
        return (x + 0.1 * (3 * x).sin()).unflatten(1, self.shape)


def convolutional(channels: int, seed: int = 0) -> zs.Autoencoder:
    """Latents that are maps, of a quarter of the places of a picture of three colours."""
    generator = torch.Generator().manual_seed(seed)
    encoder = torch.randn(channels, 12, generator=generator)
    decoder = torch.linalg.pinv(encoder).T.reshape(channels, 3, 2, 2)
    down, up = nn.Conv2d(3, channels, 2, 2, bias=False), nn.ConvTranspose2d(channels, 3, 2, 2)
    down.weight.data, up.weight.data = encoder.reshape(channels, 3, 2, 2), decoder
    up.bias.data.zero_()  # type: ignore[union-attr]

    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = down(x - 0.5)
        return mean, torch.full_like(mean, -3)

    return zs.wrap(encode, lambda z: up(z) + 0.5)


def vectors(samples: int, latents: int, pixels: int, *, table: bool = False) -> Dataset:
    """Observations that `Curved` decodes from codes of which the first follow four factors."""
    side = math.isqrt(pixels)
    model = Curved((pixels,) if table else (1, side, side), latents, seed=0)
    rng = np.random.default_rng(0)
    factors = rng.integers(0, LEVELS, (samples, FACTORS))
    x = np.empty((samples, *model.shape), np.float32)
    with evaluation(model):
        for rows in np.array_split(np.arange(samples), max(1, samples * pixels // 2**22)):
            codes = rng.normal(size=(len(rows), latents))
            few = min(FACTORS, latents)
            codes[:, :few] = 0.3 * codes[:, :few] + (factors[rows, :few] - 2) / 1.5
            x[rows] = model.decode(torch.from_numpy(codes).float()).numpy()
    return from_arrays(x, factors.astype(float))


def pictures(samples: int, pixels: int) -> Dataset:
    """Smooth random pictures of three colours, with some noise."""
    side = math.isqrt(pixels)
    x = torch.empty(samples, 3, side, side)
    generator = torch.Generator().manual_seed(0)
    for part in x.split(512):
        coarse = torch.rand(len(part), 3, 4, 4, generator=generator)
        smooth = F.interpolate(coarse, size=side, mode="bicubic")
        part.copy_(smooth + 0.1 * torch.randn(part.shape, generator=generator))
    return from_arrays(x.clamp_(0, 1).numpy())


def world_of(entry: Entry) -> str:
    """Which model and data an assay needs."""
    if "layout" in entry.needs:
        return "maps"
    if "causal block" in entry.needs:
        return "causal block"
    if "vectors" in entry.needs:
        return "tables"
    return "pair" if entry.compares else "pictures"


@lru_cache(maxsize=1)
def recordings(world: str, samples: int, latents: int, pixels: int) -> list[zs.Recording]:
    """One recording, or two of the same observations; observations are read."""
    while world != "maps" and pixels < latents:  # for as many orthogonal features
        pixels *= 4
    if world == "maps":
        models, data = [convolutional(latents)], pictures(samples, pixels)
    else:
        data = vectors(samples, latents, pixels, table=world not in ("pictures", "pair"))
        models = [Curved(data.shape, latents, seed=0)]
    if world == "pair":
        models.append(Curved(data.shape, latents, seed=1))
        mixing = models[0].encoder.weight.data  # the same features, in another order
        models[1].encoder.weight.data = mixing.flip(0) + 0.2 * mixing
    if world == "causal block":
        build = zs.models.build
        models = [build("xvae", shape=data.shape, latents=latents, backbone="mlp", hidden=(64,))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [zs.record(model, data, samples=samples) for model in models]
    return [replace(each, shared={"observations": each.observations}) for each in made]


def fresh(recording: zs.Recording) -> zs.Recording:
    """The same with nothing that an assay has computed, but with the observations read."""
    made = replace(recording, shared={})
    vars(made)["observations"] = recording.shared["observations"]
    return made


class Passes:
    """Counts what a model is asked to decode and to encode."""

    def __init__(self, model: zs.Autoencoder) -> None:
        self.counts: dict[str, int] = {}
        for name in ("encode", "decode", "decode_causes"):
            if hasattr(model, name):
                self._count(model, name)

    def _count(self, model: zs.Autoencoder, name: str) -> None:
        function: Callable[..., Any] = getattr(model, name)
        self.counts[name] = 0

        def counted(rows: Tensor, *others: Any) -> Any:
            derivatives = torch._C._functorch.maybe_current_level() is not None
            columns = model.latents if derivatives and model.layout is None else 1
            self.counts[name] += len(rows) * columns
            return function(rows, *others)

        object.__setattr__(model, name, counted)


def run(entry: Entry, made: list[zs.Recording]) -> dict[str, Any]:
    """One assay, in this process."""
    taken = [fresh(each) for each in made]
    passes = Passes(taken[0].model) if taken[0].model is not None else None
    start = time.process_time()
    if entry.name == "similarity-heatmap":
        layers = [
            {"observations": r.observations.flatten(1), "mean": r.codes, "std": r.posterior.std}
            for r in taken
        ]
        zs.assays.similarity_heatmap(*layers)
        reason = None
    else:
        outcome = (
            compare(taken, [entry.name]) if entry.compares else measure(taken[0], [entry.name])
        )
        failure = outcome.failed.get(entry.name)
        reason = failure.traceback if failure else outcome.missing.get(entry.name)
    seconds = time.process_time() - start
    counted = max(passes.counts.values()) if passes else 0
    if reason is not None:
        return {"seconds": None, "refused": " ".join(reason.split())[-300:], "before": seconds}
    return {"seconds": seconds, "passes": counted}


def anonymous(process: int | str = "self") -> int:
    """Bytes of anonymous memory of a process, 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def cell(entry: Entry, sizes: dict[str, int], limit: float) -> dict[str, Any]:
    """The cost of an assay, or why there is none."""
    made = recordings(world_of(entry), **sizes)
    outcome = in_copy(entry, made, limit, returning=False)
    if outcome.get("memory", 0) > memory_budget() / 2**20:
        again = in_copy(entry, made, 2 * limit, returning=True)
        outcome["memory"] = again.get("memory", outcome["memory"])
    return outcome


def processor_time(process: int) -> float:
    """Seconds that a process has taken, 0 when it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_copy(
    entry: Entry, made: list[zs.Recording], limit: float, *, returning: bool
) -> dict[str, Any]:
    """An assay in a copy of this process, which ends at the limit."""
    ctypes.CDLL(None).malloc_trim(0)  # what is free here would count as used there
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        code = 1
        try:
            if returning:
                ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)
            before = anonymous()
            outcome = {**run(entry, made), "memory": before}
            os.write(writing, json.dumps(outcome).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    most, ended, status, begun = 0, 0, 0, time.perf_counter()
    while not ended:
        time.sleep(PAUSE)
        most = max(most, anonymous(child))
        if processor_time(child) > limit or time.perf_counter() - begun > 30 * limit:
            os.kill(child, signal.SIGKILL)
        ended, status = os.waitpid(child, os.WNOHANG)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    if not text:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return {"seconds": None, "longer": limit}
        sys.exit(f"scaling: {entry.name} ended its process with the status {status}.")
    outcome = json.loads(text)
    outcome["memory"] = round(max(0, most - outcome["memory"]) / 2**20, 1)
    return dict(outcome)


def depends(entry: Entry, axis: str) -> bool:
    """Assays of codes alone do not see the pictures."""
    if axis != "pixels" or "layout" in entry.needs or entry.name == "similarity-heatmap":
        return True
    return str(entry.passes) != "0" or "observations" in entry.takes


def would_exceed(times: list[tuple[int, float]], size: int, limit: float) -> bool:
    """Whether the next cell would take too long, growing as between the last two or faster."""
    times = [(known, taken) for known, taken in times if known < size and taken > 0]
    if len(times) < 2:
        return False
    (first, before), (second, last) = times[-2:]
    growth = max(1.0, math.log(last / before) / math.log(second / first))
    return last * (size / second) ** growth > limit


def fit(costs: list[tuple[int, float]], least: float) -> dict[str, float] | None:
    """The exponent and its interval; None of fewer than three costs."""
    costs = [(size, cost) for size, cost in costs if cost >= least]
    if len(costs) < 3:
        return None
    if len({cost for _, cost in costs}) == 1:
        return {"exponent": 0.0, "low": 0.0, "high": 0.0, "points": len(costs)}
    line = stats.linregress(*np.log(np.array(costs, float)).T)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(costs) - 2) * line.stderr)
    slope = float(line.slope)
    return {"exponent": slope, "low": slope - half, "high": slope + half, "points": len(costs)}


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

    def get(self, axis: str, size: int, entry: Entry, limit: float) -> dict[str, Any]:
        key = f"{axis} {size} {entry.name}"
        if key not in self.cells:
            sizes = {**BASE, **(OF_MAPS if world_of(entry) == "maps" else {}), axis: size}
            self.cells[key] = cell(entry, sizes, limit)
            self.save()
        return self.cells[key]

    def forget(self, names: list[str], axes: list[str]) -> None:
        for key in list(self.cells):
            axis, _, name = key.split(" ")
            if axis in axes and name in names:
                del self.cells[key]

    def of(self, axis: str, name: str) -> list[tuple[int, dict[str, Any]]]:
        """The cells of an assay along an axis."""
        found = []
        for key, each in self.cells.items():
            kind, size, assay = key.split(" ")
            if (kind, assay) == (axis, name):
                found.append((int(size), each))
        return sorted(found, key=lambda pair: pair[0])

    def costs(self, axis: str, name: str, what: str = "seconds") -> list[tuple[int, float]]:
        return [(n, each[what]) for n, each in self.of(axis, name) if each["seconds"] is not None]

    def fit(self, axis: str, name: str, what: str = "seconds") -> dict[str, float] | None:
        return fit(self.costs(axis, name, what), LEAST if what == "seconds" else 1)

    def save(self) -> None:
        content = {"settings": self.settings, "cells": self.cells}
        write_whole(self.file, (json.dumps(content, indent=1) + "\n").encode())


def slope(line: dict[str, float] | None) -> str:
    if line is None:
        return ""
    text = f", {line['exponent']:.1f} ({line['low']:.1f} to {line['high']:.1f})"
    return text.replace("-0.0", "0.0").replace("-", MINUS)


def time_text(cells: Cells, axis: str, name: str) -> str:
    """The time at the largest size, its growth, and where the assay refuses."""
    times = cells.costs(axis, name)
    text = DASH
    if times:
        size, seconds = times[-1]
        text = f"{seconds:.2f}" if seconds >= LEAST else "< 0.01"
        text += slope(cells.fit(axis, name))
        if size != SIZES[axis][-1]:
            text = f"{text} up to {size:,}"
    refused = [size for size, each in cells.of(axis, name) if "refused" in each]
    return f"{text}; refuses {min(refused):,}" if refused and times else text


def table(cells: Cells) -> str:
    """All assays, in Markdown."""
    lines = [
        "| assay | seconds, 100,000 samples | 512 latents | 128 × 128 pixels "
        "| passes, 512 latents | MB |",
        "|---|---|---|---|---|---|",
    ]
    for name in CATALOGUE:
        passes = cells.costs("latents", name, "passes")
        count = f"{passes[-1][1]:,}{slope(cells.fit('latents', name, 'passes'))}"
        most = max(
            (mb for axis in SIZES for _, mb in cells.costs(axis, name, "memory")), default=None
        )
        row = [
            f"`{name}`",
            *(time_text(cells, axis, name) for axis in SIZES),
            count if passes and passes[-1][1] else DASH,
            DASH if most is None else f"{most:.0f}",
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def write(cells: Cells) -> None:
    """Put the table into docs/scale.md, between its marks."""
    page = ROOT / "docs" / "scale.md"
    before, _, rest = page.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    page.write_text(f"{before}{MARKS[0]}\n\n{table(cells)}\n\n{MARKS[1]}{after}")


def faults(cells: Cells, entries: list[Entry], axes: list[str]) -> list[str]:
    """What takes too long, too much memory, or grows too fast."""
    found = []
    budget = memory_budget() / 2**20
    for entry in entries:
        for axis in axes:
            for size, each in cells.of(axis, entry.name):
                where = f"{entry.name} at {size:,} {axis}"
                if "longer" in each:
                    found.append(f"{where}: longer than {each['longer']:g} s")
                if "Traceback" in each.get("refused", ""):
                    found.append(f"{where}: {each['refused']}")
                if each.get("memory", 0) > budget:
                    found.append(f"{where}: {each['memory']:.0f} MB")
        for axis, what in (("samples", "seconds"), ("latents", "passes")):
            line = cells.fit(axis, entry.name, what) if axis in axes else None
            if line is not None and line["low"] > 1 + ROUNDING:
                found.append(f"{entry.name}: {what} with {axis}{slope(line)}")
    return found


def show(cells: Cells, entries: list[Entry], axes: list[str]) -> None:
    """The largest cell of each axis that was measured, and the exponent."""
    print(f"\n{'':28}" + "".join(f"{axis:>34}" for axis in axes) + f"{'passes':>26}{'MB':>6}")
    for entry in entries:
        texts = []
        for axis in axes:
            times = cells.costs(axis, entry.name)
            text = f"{times[-1][1]:.2f} s at {times[-1][0]:,}" if times else "-"
            texts.append(text + slope(cells.fit(axis, entry.name)))
        passes = cells.costs("latents", entry.name, "passes")
        last = "-"
        if passes:
            last = f"{passes[-1][1]:,}{slope(cells.fit('latents', entry.name, 'passes'))}"
        most = max((mb for a in axes for _, mb in cells.costs(a, entry.name, "memory")), default=0)
        row = "".join(f"{text:>34}" for text in texts)
        print(f"{entry.name:28}{row}{last:>26}{most:6.0f}")
    for key, each in cells.cells.items():
        if "refused" in each:
            print(f"refused after {each['before']:.2f} s: {key}: {each['refused']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes, 10 s a cell")
    parser.add_argument("--assays", help="names or groups, with commas (default: all)")
    parser.add_argument("--axes", default=",".join(BASE), help="samples, latents, pixels")
    parser.add_argument("--limit", type=float, help="seconds of a cell (default 60, quick 10)")
    parser.add_argument("--again", action="store_true", help="measure known cells again")
    parser.add_argument("--write", action="store_true", help="write the table in docs/scale.md")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = options.out or ROOT / ".bench" / f"scaling{'-quick' if options.quick else ''}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    sizes = QUICK if options.quick else SIZES
    limit = options.limit or (10.0 if options.quick else 60.0)
    axes = options.axes.split(",")
    entries = choose(options.assays.split(",")) if options.assays else list(CATALOGUE.values())
    # One world after the other, so that a recording is made once for each size.
    entries = sorted(entries, key=world_of)
    about = {
        "base": BASE,
        "of maps": OF_MAPS,
        "factors": FACTORS,
        "angle": ANGLE,
        "zscope": zs.__version__,
    }
    cells = Cells(file, about)
    if options.again:
        cells.forget([entry.name for entry in entries], axes)
    begun = time.perf_counter()
    for entry in entries:  # imports, which a copy of this process has already
        run(entry, recordings(world_of(entry), 300, 6, 256))
    ended: set[tuple[str, str]] = set()
    for axis in axes:
        for size in sizes[axis]:
            for entry in entries:
                key = axis, entry.name
                if key in ended or not depends(entry, axis):
                    continue
                too_long = would_exceed(cells.costs(*key), size, limit)
                if too_long or cells.get(axis, size, entry, limit)["seconds"] is None:
                    ended.add(key)
            print(f"{axis} {size:,}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    show(cells, entries, axes)
    if options.write:
        write(cells)
    bad = faults(cells, entries, axes)
    print("\n".join(bad) if bad else f"all within {limit:g} s and {memory_budget() >> 20} MB")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

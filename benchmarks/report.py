"""How long does a default report take, page and numbers included?

Two questions about each model, in processor time on one thread:

- over the work that nobody can save: its model passes, done by hand (eager, plain memory order, no
  gradients, batches of 64), and its estimators (what the assays do besides calling the model);
- over the seconds that somebody is ready to wait.

The models are trained here for a few hundred steps on built-in pictures: a perceptron, as in
`zscope demo`, a convolutional network on 64 x 64 pixels, and two with 256 latents, one of which has
two linear layers only. Reports of latents that are maps: `benchmarks/structured.py`. The scores of
a report must be those of one whose layers run as PyTorch runs them.

    python benchmarks/report.py [--only demo]
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from ratios import Ratio, agreement, finish, released

import zscope as zs
from zscope.cli.demo import BETA, GRID, GROUPS
from zscope.report.build import Report, build
from zscope.report.page import page

BATCH = 64
OVERHEAD = 1.25
"""What a report may take, of its passes and estimators."""


@dataclass(frozen=True)
class Case:
    title: str
    seconds: float  # of processor time, at most
    side: int
    steps: int
    model: dict[str, Any]
    groups: list[str] | None = None  # None: all assays
    resamples: int = 20  # the default of `zscope report`


PERCEPTRON: dict[str, Any] = {"backbone": "mlp", "hidden": (512, 256), "latents": 10, "beta": BETA}
CASES = {
    "demo": Case("report of zscope demo", 15, 32, 1500, PERCEPTRON, GROUPS, 5),
    "perceptron": Case("default report, MLP 512-256, 10 latents", 60, 32, 1500, PERCEPTRON),
    "conv": Case(
        "default report, convolutional 64 x 64, 10 latents", 120, 64, 500,
        {"latents": 10, "beta": BETA},
    ),
    "linear-256": Case(
        "default report, two linear layers, 256 latents", 40, 32, 1000,
        {"backbone": "mlp", "hidden": (), "latents": 256, "beta": 0.1},
    ),
    "conv-256": Case(
        "default report, convolutional 64 x 64, 256 latents", 180, 64, 400,
        {"latents": 256, "beta": 0.1},
    ),
}  # fmt: skip


class Calls:
    """Rows that a model decodes and encodes, and the time that this takes."""

    def __init__(self) -> None:
        self.decoded, self.encoded, self.seconds = 0, 0, 0.0

    @contextmanager
    def watch(self, model: zs.Autoencoder) -> Iterator[None]:
        kind = type(model)
        encode, decode = kind.encode, kind.decode

        def counted_encode(inner: zs.Autoencoder, x: torch.Tensor, *rest: Any) -> zs.Posterior:
            self.encoded += len(x)
            start = time.process_time()
            try:
                return encode(inner, x, *rest)
            finally:
                self.seconds += time.process_time() - start

        def counted_decode(inner: zs.Autoencoder, z: torch.Tensor, *rest: Any) -> torch.Tensor:
            self.decoded += len(z)
            start = time.process_time()
            try:
                return decode(inner, z, *rest)
            finally:
                self.seconds += time.process_time() - start

        kind.encode, kind.decode = counted_encode, counted_decode
        try:
            yield
        finally:
            kind.encode, kind.decode = encode, decode


def by_hand(model: zs.Autoencoder, data: zs.Dataset, calls: Calls) -> float:
    """Seconds of as many rows in plain passes, from those of some of them."""
    model = deepcopy(model).to(memory_format=torch.contiguous_format).eval()
    x, codes = data.batch(np.arange(BATCH)), torch.randn(BATCH, model.latents)
    seconds = 0.0
    with torch.no_grad():
        for work, given, rows in (
            (model.decode, codes, calls.decoded), (model.encode, x, calls.encoded),
        ):  # fmt: skip
            work(given)
            some = min(60, -(-rows // BATCH))
            start = time.process_time()
            for _ in range(some):
                work(given)
            seconds += (time.process_time() - start) * rows / (some * BATCH)
    return seconds


def whole(recording: zs.Recording, case: Case) -> tuple[Report, float]:
    """A report with its page and its numbers, and the time that its assays take."""
    fresh = replace(recording, shared={})
    start = time.process_time()
    report = build(fresh, case.groups, resamples=case.resamples)
    assays = time.process_time() - start
    page(report)
    json.dumps(report.to_dict())
    return report, assays


def scores_of(report: Report) -> dict[tuple[str, str], float]:
    return {(row["assay"], row["measure"]): row["value"] for row in report.rows()}


def ratios(case: Case) -> Iterator[Ratio]:
    data = zs.data.load("sprites", resolution=case.side, antialias=True, **GRID)
    model = zs.models.build("beta-vae", shape=data.shape, seed=0, **case.model)
    zs.train(model, data, steps=case.steps, rate=1e-3, seed=0, progress=False)
    recording = zs.record(model, data)
    calls = Calls()
    start = time.process_time()
    with calls.watch(model):
        report, assays = whole(recording, case)
    total = time.process_time() - start
    passes = by_hand(model, data, calls)
    with patch("zscope.autoencoder.faster_layers", lambda _: nullcontext()):
        plain = build(replace(recording, shared={}), case.groups, resamples=0)
    mine, theirs = scores_of(report), scores_of(plain)
    scales = [max(1.0, abs(theirs[key])) for key in mine]
    same = agreement(
        f"{len(mine)} scores, with layers as PyTorch runs them, relative above 1",
        [mine[key] / scale for key, scale in zip(mine, scales, strict=True)],
        [theirs[key] / scale for key, scale in zip(mine, scales, strict=True)],
        1e-3,
    )  # fmt: skip
    unfailed = "complete" if not report.failed else f"without {', '.join(report.failed)}"
    yield Ratio(
        case.title, "report", [total], [case.seconds],
        baseline=f"{case.seconds:g} s of processor time ({len(report.results)} assays, {unfailed})",
        version="a limit", at_most=1.0, agreement=same,
    )  # fmt: skip
    estimators = assays - calls.seconds
    yield Ratio(
        f"{case.title}, overhead", "report", [total], [passes + estimators],
        baseline=f"{calls.decoded:,} decoded and {calls.encoded:,} encoded in batches of {BATCH} "
        f"({passes:.1f} s), and estimators ({estimators:.1f} s)",
        version=released("torch"), at_most=OVERHEAD, agreement=same,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=CASES)
    only = parser.parse_args().only
    torch.set_num_threads(1)
    found = [
        ratio for name, case in CASES.items() if only in (None, name) for ratio in ratios(case)
    ]
    return finish("report" if only is None else f"report-{only}", found)


if __name__ == "__main__":
    sys.exit(main())

"""What do response assays cost, over decoding and encoding the same codes by hand?

The baseline is the plain way: eager passes of the same model in plain memory order, without
gradients, in batches of 64, on one thread.

    response matrix       (d + 1) N codes
    invariance matrix     n J T codes (with equivariance and self-consistency on top)
    all response assays   of one recording, over the passes that each would make alone

for convolutional models at 64 x 64 (one as somebody would write it, and our own), and for
perceptrons. Peak memory must depend on the memory setting (`use_memory`), not on d N.

    python benchmarks/responses.py
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ratios import Agreement, Ratio, agreement, finish, released, turns
from torch import nn

import zscope as zs
from zscope.assays import interventional_consistency, respond, response_matrix
from zscope.assays.engine import use_memory
from zscope.assays.run import Measurements, choose, measure

LATENTS, BATCH, REPEATS = 10, 64, 5
CONVOLUTIONAL, PERCEPTRON, ALL = 0.85, 1.0, 0.6  # of the plain passes, at most
SAMPLES = 500
"""Of the recording of which all response assays are measured."""


class Model(zs.Autoencoder):
    latents = LATENTS

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def encode(self, x, auxiliary=None):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        return zs.Posterior(mean, (log_variance / 2).exp())

    def decode(self, z):
        return self.decoder(z)


def convolutional() -> Model:
    def down(inputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, 32, 4, 2, 1), nn.ReLU()]

    def up(outputs: int) -> list[nn.Module]:
        last = nn.ReLU() if outputs == 32 else nn.Sigmoid()
        return [nn.ConvTranspose2d(32, outputs, 4, 2, 1), last]

    encoder = [*down(1), *down(32), *down(32), *down(32), nn.Flatten()]
    decoder = [nn.Linear(LATENTS, 256), nn.ReLU(), nn.Linear(256, 512), nn.Unflatten(1, (32, 4, 4))]
    return Model(
        nn.Sequential(*encoder, nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 2 * LATENTS)),
        nn.Sequential(*decoder, *up(32), *up(32), *up(32), *up(1)),
    )


def dense(pixels: int = 784, hidden: int = 256) -> Model:
    return Model(
        nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, 2 * LATENTS)),
        nn.Sequential(nn.Linear(LATENTS, hidden), nn.ReLU(), nn.Linear(hidden, pixels)),
    )


def plain_passes(model: zs.Autoencoder, codes: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        parts = codes.split(BATCH)
        return torch.cat([model.encode(model.decode(part)).mean for part in parts])


def passes() -> Iterator[Ratio]:
    ours = zs.models.build("beta-vae", shape=(1, 64, 64), latents=LATENTS, seed=0)
    yield from compare("convolutional 64 x 64", convolutional(), 128, CONVOLUTIONAL)
    yield from compare("our convolutional 64 x 64", ours, 128, CONVOLUTIONAL)
    yield from compare("MLP 784-256-10", dense(), 2048, PERCEPTRON)


def compare(name: str, model: zs.Autoencoder, samples: int, at_most: float) -> Iterator[Ratio]:
    model.eval()
    plain = deepcopy(model).to(memory_format=torch.contiguous_format)
    posterior = zs.Posterior(torch.randn(samples, LATENTS), torch.ones(samples, LATENTS))
    interventions, base = 8, samples // 4
    works = {
        "response matrix": (
            (LATENTS + 1) * samples,
            lambda: response_matrix(model, posterior, samples=samples),
        ),
        "invariance matrix": (
            LATENTS * interventions * base,
            lambda: interventional_consistency(
                model, posterior, interventions=interventions, samples=base
            ),
        ),
    }
    for work, (count, ours) in works.items():
        codes = torch.randn(count, LATENTS)
        seconds = turns({"ours": ours, "plain": partial(plain_passes, plain, codes)}, REPEATS)
        few = codes[:500]
        yield Ratio(
            f"{work}, {name}", "passes", seconds["ours"], seconds["plain"],
            baseline=f"plain passes in batches of {BATCH}", version=released("torch"),
            at_most=at_most,
            agreement=agreement(
                f"{len(few)} responses", respond(model, few), plain_passes(plain, few), 1e-5
            ),
        )  # fmt: skip


class Counted(zs.Autoencoder):
    """The same model, which counts the codes that it decodes and the pictures that it encodes."""

    safe_inputs = True

    def __init__(self, model: zs.Autoencoder) -> None:
        super().__init__()
        self.model, self.latents, self.decoded, self.encoded = model, model.latents, 0, 0

    def encode(self, x, auxiliary=None):
        self.encoded += len(x)
        return self.model.encode(x, auxiliary)

    def decode(self, z):
        self.decoded += len(z)
        return self.model.decode(z)


def together() -> Ratio:
    """All response assays of a recording, over the plain passes that each makes alone."""
    data = zs.data.load("sprites", resolution=64, antialias=True, orientation=[0, 4, 8])
    model = zs.models.build("beta-vae", shape=data.shape, latents=LATENTS, beta=0.5, seed=0)
    zs.train(model, data, steps=300, rate=1e-3, seed=0, progress=False)
    plain = deepcopy(model).to(memory_format=torch.contiguous_format).eval()
    counted = Counted(model)
    recording = zs.record(counted, data, samples=SAMPLES)
    decoded, encoded, results = 0, 0, {}
    for entry in choose(["responses"]):
        counted.decoded = counted.encoded = 0
        alone = measure(replace(recording, shared={}), [entry.name])
        results |= alone.results
        decoded, encoded = decoded + counted.decoded, encoded + counted.encoded
    recording = zs.record(model, data, samples=SAMPLES)
    codes = recording.codes
    x = data.batch(np.arange(BATCH))

    def separate() -> None:
        with torch.no_grad():
            for start in range(0, decoded, BATCH):
                plain.decode(codes[torch.arange(start, start + BATCH) % len(codes)])
            for _ in range(0, encoded, BATCH):
                plain.encode(x)

    outcomes: list[Measurements] = []

    def ours() -> None:
        outcomes.append(measure(replace(recording, shared={}), ["responses"]))

    seconds = turns({"ours": ours, "separate": separate}, 2, warm=False)
    outcome = outcomes[0].results
    scores = [
        (mine.value, theirs.value)
        for name, result in results.items()
        for mine, theirs in zip(outcome[name].measures(), result.measures(), strict=True)
    ]
    return Ratio(
        "all response assays of a recording, our convolutional 64 x 64", "passes",
        seconds["ours"], seconds["separate"],
        baseline=f"plain passes of each alone ({decoded:,} decoded, {encoded:,} encoded)",
        version=released("torch"), at_most=ALL,
        agreement=agreement(
            f"{len(scores)} scores of {len(results)} assays, together and alone",
            *np.array(scores).T, 1e-5,
        ),
    )  # fmt: skip


def peak(samples: int, budget: int) -> float:
    """The peak memory of a response matrix in a fresh process, in megabytes.

    The setting returns large blocks to the system as soon as they are free. By default the C
    library keeps some of them, and how many varies from run to run (16 to 110 MB here).
    """
    command = [sys.executable, __file__, "peak", str(samples), str(budget)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    process = subprocess.run(command, capture_output=True, check=True, env=environment)
    return json.loads(process.stdout)


def measure_peak(samples: int, budget: int) -> None:
    # With real-time priority, which a benchmark may run at, the watching thread would starve.
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    model = dense(pixels=64 * 64, hidden=64).eval()
    posterior = zs.Posterior(torch.randn(samples, LATENTS))
    with use_memory(budget):
        response_matrix(model, posterior, samples=64)  # warm up
    before, kilobytes, done = allocated(), [], threading.Event()

    def watch() -> None:
        while not done.wait(0.0005):
            kilobytes.append(allocated())

    watcher = threading.Thread(target=watch)
    watcher.start()
    with use_memory(budget):
        response_matrix(model, posterior, samples=samples)
    done.set()
    watcher.join()
    print(json.dumps((max(kilobytes) - before) / 1024))


def allocated() -> int:
    """Kilobytes of anonymous memory, without pages of libraries, which the system may drop."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def memory() -> Ratio:
    budget = 64 * 2**20
    few, many = peak(1000, budget), peak(16_000, budget)
    whole = 16_000 * LATENTS * 64 * 64 * 4 / 2**20
    return Ratio(
        "peak memory of a response matrix, 16,000 samples", "memory", [many], [64.0],
        baseline=f"the limit of 64 MB (all decoded interventions: {whole:,.0f} MB)",
        version="use_memory", at_most=1.5, unit="MB",
        agreement=Agreement("MB more than with 1,000 samples", many - few, 32),
    )  # fmt: skip


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return finish("responses", [*passes(), together(), memory()])


if __name__ == "__main__":
    if sys.argv[1:2] == ["peak"]:
        measure_peak(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())

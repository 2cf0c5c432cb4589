"""How much do response assays cost on top of decoding and encoding codes?

    response matrix       (d + 1) N codes
    invariance matrix     n J T codes (with equivariance and self-consistency on top)

Both may take at most 1.15 times as long as decoding and encoding that many codes in the same
chunks, for a convolutional model at 64 x 64 and for a small MLP. Peak memory must depend on the
memory setting (`use_memory`), not on d N.

    python benchmarks/responses.py
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

import zscope as zs
from zscope.assays import interventional_consistency, response_matrix
from zscope.assays.engine import chunk_size, use_memory

LIMIT = 1.15
LATENTS = 10
REPEATS = 7


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


def bare(model: Model, codes: torch.Tensor, size: int) -> None:
    with torch.no_grad():
        for start in range(0, len(codes), size):
            model.encode(model.decode(codes[start : start + size]))


def ratio(model: Model, count: int, ours) -> float:
    """The fastest of several runs of ours divided by the fastest of the bare work, interleaved.

    In processor time of one thread, which depends little on other programs.
    """
    model.eval()
    codes = torch.randn(count, LATENTS)
    size = chunk_size(model, codes[:2], count)
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(REPEATS):
        for name, work in (("bare", lambda: bare(model, codes, size)), ("ours", ours)):
            start = time.process_time()
            work()
            times[name].append(time.process_time() - start)
    value = min(times["ours"]) / min(times["bare"])
    print(f"    {count:7,} codes in chunks of {size:5,}: bare {min(times['bare']):6.3f} s", end="")
    print(f"   ours {min(times['ours']):6.3f} s   ratio {value:.3f}")
    return value


def speed() -> list[float]:
    return [
        *compare("convolutional 64 x 64", convolutional(), 128, 8, 32),
        *compare("MLP 784-256-10", dense(), 2048, 16, 128),
    ]


def compare(
    name: str, model: Model, samples: int, interventions: int, base_samples: int
) -> tuple[float, float]:
    posterior = zs.Posterior(torch.randn(samples, LATENTS), torch.ones(samples, LATENTS))
    print(f"{name}\n  response matrix of {LATENTS} latents, {samples:,} samples")
    matrix = ratio(
        model,
        (LATENTS + 1) * samples,
        lambda: response_matrix(model, posterior, samples=samples),
    )
    print(f"  invariance matrix, {interventions} interventions on {base_samples} samples")
    invariance = ratio(
        model,
        LATENTS * interventions * base_samples,
        lambda: interventional_consistency(
            model, posterior, interventions=interventions, samples=base_samples
        ),
    )
    return matrix, invariance


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


def memory() -> bool:
    budget = 64 * 2**20
    few, many = peak(1000, budget), peak(16_000, budget)
    whole = 16_000 * LATENTS * 64 * 64 * 4 / 2**20
    print(f"peak memory, limit 64 MB: 1,000 samples {few:.0f} MB, 16,000 samples {many:.0f} MB")
    print(f"    (all decoded interventions at once would be {whole:,.0f} MB)")
    return many < 1.5 * 64 and many < few + 32


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ratios, bounded = speed(), memory()
    if max(ratios) > LIMIT or not bounded:
        sys.exit(f"FAILED: ratios {[round(r, 3) for r in ratios]} (at most {LIMIT})")
    print(f"ok: every ratio at most {LIMIT}, peak memory set by use_memory")


if __name__ == "__main__":
    if sys.argv[1:2] == ["peak"]:
        measure_peak(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()

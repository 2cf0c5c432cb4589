"""Are the variable types of 10,000,000 x 32 variances found in one pass, in constant memory?

    python benchmarks/regime.py

Batches are handed over one by one, as a model would make them, and each can be read only
once. The memory of the process may not grow by more than 64 MB between the first tenth
and the end (all variances would be 1.3 GB), and the pass may not take longer than NumPy's
mean and variance of the same numbers held in memory at once (timed on a tenth of them).
"""

import sys
import time
from collections.abc import Iterator

import numpy as np
import torch

from zscope.assays import VarianceMoments, variable_types

SAMPLES, LATENTS, BATCH = 10_000_000, 32, 8192


def resident() -> float:
    """Megabytes of memory now in use by this process."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def batches(samples: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    level = torch.linspace(0.01, 1, LATENTS)
    block = (torch.rand(BATCH, LATENTS, generator=generator) * 0.1 + level).clamp(max=1)
    for start in range(0, samples, BATCH):
        yield block[: min(BATCH, samples - start)]


def main() -> int:
    moments = VarianceMoments()
    marks, start = [], time.perf_counter()
    for batch in batches(SAMPLES):
        moments.add(batch)
        if moments.samples * 10 >= SAMPLES * (1 + 9 * len(marks)):
            marks.append(resident())
    types = moments.types()
    seconds = time.perf_counter() - start

    tenth = np.concatenate([batch.numpy() for batch in batches(SAMPLES // 10)])
    start = time.perf_counter()
    mean, variance = tenth.mean(0, dtype=np.float64), tenth.var(0, dtype=np.float64)
    plain = 10 * (time.perf_counter() - start)
    once = variable_types(iter(batches(SAMPLES // 10)))
    equal = np.allclose(once.mean_variance, mean) and np.allclose(
        once.variance_of_variance, variance, rtol=1e-9
    )
    growth = marks[-1] - marks[0]
    print(f"{types.samples} x {LATENTS} variances: {seconds:.1f} s, memory grew by {growth:.1f} MB")
    print(f"NumPy on an array in memory: {plain:.1f} s; ratio {plain / seconds:.1f} (promised 1)")
    print(f"active {len(types.active)}, mixed {len(types.mixed)}, passive {len(types.passive)}; "
          f"values {'equal' if equal else 'DIFFER'}")  # fmt: skip
    return 0 if growth < 64 and equal and plain >= seconds else 1


if __name__ == "__main__":
    sys.exit(main())

"""Are the types of 32 latents computed from 10,000,000 variances each in constant memory?

    python benchmarks/regime.py

Batches arrive one by one, as from a model, and each can be read only once. The memory of the
process may not grow by more than 64 MB between the first tenth and the end (all variances would
take 1.3 GB), and one pass over the batches may not take longer than NumPy's mean and variance of
the same numbers in memory (timed on a tenth of them).
"""

import sys
import time
from collections.abc import Iterator

import numpy as np
import torch

from zscope.assays import VarianceMoments, variable_types

SAMPLES, LATENTS, BATCH = 10_000_000, 32, 8192


def memory_in_use() -> float:
    """Megabytes in use by this process."""
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
    megabytes, start = [], time.perf_counter()
    for batch in batches(SAMPLES):
        moments.add(batch)
        if moments.samples * 10 >= SAMPLES * (1 + 9 * len(megabytes)):
            megabytes.append(memory_in_use())
    types = moments.types()
    seconds = time.perf_counter() - start

    tenth = np.concatenate([batch.numpy() for batch in batches(SAMPLES // 10)])
    start = time.perf_counter()
    mean, variance = tenth.mean(0, dtype=np.float64), tenth.var(0, dtype=np.float64)
    numpy_seconds = 10 * (time.perf_counter() - start)
    streamed = variable_types(iter(batches(SAMPLES // 10)))
    equal = np.allclose(streamed.mean_variance, mean) and np.allclose(
        streamed.variance_of_variance, variance, rtol=1e-9
    )
    growth = megabytes[-1] - megabytes[0]
    print(f"{types.samples} x {LATENTS} variances: {seconds:.1f} s, memory grew by {growth:.1f} MB")
    ratio = numpy_seconds / seconds
    print(f"NumPy on an array in memory: {numpy_seconds:.1f} s; ratio {ratio:.1f} (at least 1)")
    print(f"active {len(types.active)}, mixed {len(types.mixed)}, passive {len(types.passive)}; "
          f"values {'equal' if equal else 'DIFFER'}")  # fmt: skip
    return 0 if growth < 64 and equal and ratio >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())

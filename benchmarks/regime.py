"""Are the types of 32 latents computed from 10,000,000 variances each in constant memory?

    python benchmarks/regime.py

Batches arrive one by one, as from a model, and each can be read only once. The memory of the
process may not grow by more than 64 MB between the first tenth and the end (all variances would
take 1.3 GB), and one pass over the batches may not take longer than NumPy's mean and variance of
the same numbers in memory (timed on a tenth of them).
"""

import sys
from collections.abc import Iterator

import numpy as np
import torch
from ratios import Ratio, agreement, finish, released, turns

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
    megabytes = []
    for batch in batches(SAMPLES):
        moments.add(batch)
        if moments.samples * 10 >= SAMPLES * (1 + 9 * len(megabytes)):
            megabytes.append(memory_in_use())
    assert moments.types().samples == SAMPLES
    growth = max(megabytes) - megabytes[0]

    tenth = np.concatenate([batch.numpy() for batch in batches(SAMPLES // 10)])
    works = {
        "streamed": lambda: variable_types(iter(batches(SAMPLES // 10))),
        "numpy": lambda: (tenth.mean(0, dtype=np.float64), tenth.var(0, dtype=np.float64)),
    }
    seconds = turns(works, 5)
    streamed, (mean, variance) = works["streamed"](), works["numpy"]()
    equal = agreement(
        f"means and variances of {LATENTS} latents",
        [streamed.mean_variance.tolist(), streamed.variance_of_variance.tolist()],
        [mean, variance], 1e-9, relative=True,
    )  # fmt: skip
    return finish(
        "regime",
        [
            Ratio(
                f"types of {LATENTS} latents, streamed", "scores",
                seconds["streamed"], seconds["numpy"],
                baseline="mean and variance of the same numbers in memory",
                version=released("numpy"), agreement=equal, at_most=1.0,
            ),
            Ratio(
                f"memory of the types of {SAMPLES:,} samples", "memory",
                [max(growth, 0.1)], [64.0], baseline="the limit of growth",
                version=released("zscope"), agreement=equal, at_most=1.0, unit="MB",
            ),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

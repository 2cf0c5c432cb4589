"""Base samples, and weights that say how often each counts in a resample.

A response matrix compares a sample with the next one in a random order, so neighbours
share a sample: their squares are correlated, and drawing single ones would give
intervals that are too short (by a factor of 1.22 for a Gaussian identity autoencoder).
Whole blocks of neighbours are drawn instead, of length n^(1/3): the circular block
bootstrap (Politis & Romano, 1992).
"""

import torch
from torch import Generator, Tensor

from zscope.errors import ConfigError


def block_weights(samples: int, resamples: int, generator: Generator) -> Tensor:
    """Row 0: every sample once. Further rows: circular blocks drawn with replacement.

    Every row sums to 1.
    """
    if resamples == 1 or resamples < 0:
        raise ConfigError(
            f"resampling: resamples={resamples} gives no interval; at least 2 are needed, 200 give "
            "steady ends. Leave it at 0 for no interval."
        )
    weights = torch.zeros(resamples + 1, samples, dtype=torch.float64)
    weights[0] = 1
    length = max(1, round(samples ** (1 / 3)))
    blocks = -(-samples // length)
    for row in weights[1:]:
        starts = torch.randint(samples, (blocks, 1), generator=generator, device=generator.device)
        chosen = ((starts + torch.arange(length, device=starts.device)) % samples).cpu().flatten()
        row.index_add_(0, chosen, torch.ones(len(chosen), dtype=torch.float64))
    return weights / weights.sum(1, keepdim=True)


def interval(draws: Tensor, level: float = 0.95) -> Tensor | None:
    """The central percentiles over resamples (lower and upper along a new first axis).

    Row 0 of `draws` is the estimate itself and takes no part; None without resamples.
    """
    if len(draws) < 2:
        return None
    tail = (1 - level) / 2
    ends = torch.tensor([tail, 1 - tail], dtype=draws.dtype)
    return torch.quantile(draws[1:].flatten(1), ends, dim=0).reshape(2, *draws.shape[1:])

"""Block bootstrap: weights of the base samples in each resample, and intervals from them.

A response matrix compares a sample with the next one in a random order, so neighbours
share a sample: their squares are correlated, and drawing single ones would give
intervals that are too short (by a factor of 1.22 for a Gaussian identity autoencoder).
Instead, whole blocks of neighbours of length n^(1/3) are drawn: the circular block bootstrap
(Politis & Romano, 1992).

Percentile intervals from few blocks are too narrow, like normal intervals where Student's t
is appropriate; and a block loses the neighbour of its last sample, a share of 1 / length of
the correlation. Both are corrected by using percentiles further out (Hesterberg, Am. Stat.
69(4), 2015: the expanded percentile interval).
"""

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.errors import ConfigError
from zscope.sampling import whole

__all__ = ["block_tail", "block_weights", "interval", "resamples_of", "tail"]

ENOUGH = 200  # for stable ends of a 95 % interval


def resamples_of(resamples: int, who: str) -> int:
    """How many resamples to draw: none, or at least ENOUGH, because they are cheap here."""
    whole(who, 0, resamples=resamples)
    if resamples == 1:
        raise ConfigError(
            f"{who}: resamples={resamples} gives no interval; at least 2 are needed, 200 give "
            "stable ends. Leave it at 0 for no interval."
        )
    return max(resamples, ENOUGH) if resamples else 0


def block_weights(samples: int, resamples: int, generator: Generator) -> Tensor:
    """Row 0: every sample once. Further rows: circular blocks drawn with replacement.

    Every row sums to 1.
    """
    weights = torch.zeros(resamples + 1, samples, dtype=torch.float64)
    weights[0] = 1
    length = _block_length(samples)
    blocks = -(-samples // length)
    for row in weights[1:]:
        starts = torch.randint(samples, (blocks, 1), generator=generator, device=generator.device)
        chosen = ((starts + torch.arange(length, device=starts.device)) % samples).cpu().flatten()
        row.index_add_(0, chosen, torch.ones(len(chosen), dtype=torch.float64))
    return weights / weights.sum(1, keepdim=True)


def tail(units: int, *, length: int = 1, groups: int = 1) -> float:
    """The share to cut off at each end for a 95 % interval, with `units` resampled blocks.

    In each of several `groups` there may be as many.
    """
    from scipy.special import ndtr, stdtrit

    if units < 2:
        return 0.0
    wider = units / (units - 1) * (length / (length - 1) if length > 1 else 1.0)
    return float(ndtr(-stdtrit(groups * (units - 1), 0.975) * wider**0.5))


def block_tail(samples: int, *, groups: int = 1) -> float:
    """The same for the `block_weights` of this many samples (in each of the `groups`)."""
    length = _block_length(samples)
    return tail(-(-samples // length), length=length, groups=groups)


def interval(draws: Tensor, tail: float) -> Tensor | None:
    """Percentiles over the resamples (lower and upper along a new first axis).

    Row 0 of `draws` is the estimate itself and is not used; None without resamples.
    """
    if len(draws) < 2:
        return None
    # Four times faster than torch.quantile for large matrices.
    ends = np.quantile(draws[1:].cpu().numpy(), [tail, 1 - tail], axis=0)
    return torch.from_numpy(ends).to(draws)


def _block_length(samples: int) -> int:
    return max(1, round(float(samples ** (1 / 3))))

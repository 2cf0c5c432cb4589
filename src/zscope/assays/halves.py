"""Half-sampling: how far would a number have come out differently with other samples?

The statistic is worked out on random halves of the rows, drawn without replacement, and
the spread of those values around their mean is laid around the value of all rows. The
spread of a half around the whole is just that of the whole around the truth, as
1/(N/2) - 1/N = 1/N (Shao & Wu, Ann. Stat. 17(3), 1989). A bootstrap would draw rows
twice, which makes latents look more dependent than they are.
"""

from collections.abc import Callable

import torch
from torch import Generator

from zscope.errors import ConfigError
from zscope.randomness import fresh
from zscope.types import Matrix

Interval = tuple[float, float]


def half_sampled(
    statistic: Callable[[Matrix], float],
    rows: Matrix,
    value: float,
    resamples: int,
    generator: Generator | None,
    who: str,
) -> Interval | None:
    """The central 95 % around `value`; None without resamples."""
    if resamples == 1 or resamples < 0:
        raise ConfigError(
            f"{who}: resamples={resamples} gives no interval; at least 2 are needed, 200 give "
            "steady ends. Leave it at 0 for no interval."
        )
    if not resamples or len(rows) < 4:
        return None
    source, half = fresh(generator), len(rows) // 2
    values = []
    for _ in range(resamples):
        order = torch.randperm(len(rows), generator=source, device=source.device)[:half]
        values.append(statistic(rows[order.to(rows.device)]))
    drawn = torch.tensor(values, dtype=torch.float64)
    if not bool(drawn.isfinite().all()):
        return None
    ends = torch.quantile(drawn - drawn.mean(), torch.tensor([0.025, 0.975], dtype=torch.float64))
    return value + float(ends[0]), value + float(ends[1])

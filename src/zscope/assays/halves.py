"""Half-sampling: how far would a number have come out differently with other samples?

The statistic is worked out on random halves of the rows, drawn without replacement, and
the spread of those values around their mean is laid around the value of all rows. The
spread of a half around the whole is just that of the whole around the truth, as
1/(N/2) - 1/N = 1/N (Shao & Wu, Ann. Stat. 17(3), 1989). A bootstrap would draw rows
twice, which makes latents look more dependent than they are.

Few halves (the report takes 20) do not reach as far out as 95 %: the spread is taken as
Student's t with so many values takes it, which holds the truth as often with 5 as with 200.
"""

from collections.abc import Callable, Sequence

import numpy as np
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
    if not np.isfinite(values).all():
        return None
    return value - reach(values), value + reach(values)


def reach(values: Sequence[float]) -> float:
    """How far 95 % go to either side, of a number that came out like this on halves."""
    from scipy.special import stdtrit

    return float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1))

"""Half-sampling: how much would a statistic vary with other samples?

The statistic is computed on random halves of the rows, drawn without replacement; their
standard deviation gives the interval around the value of all rows. The variance of a half
around the whole equals that of the whole around the truth, as 1/(N/2) - 1/N = 1/N
(Shao & Wu, Ann. Stat. 17(3), 1989). A bootstrap would draw some rows twice, which makes
latents look more dependent than they are.

Rows that belong `together`, such as the places of one picture, are in the same half: they are not
independent, and halves of single rows would give intervals that are far too short.

For few halves (the report uses 20) the quantile is that of Student's t, so that the coverage
is 95 % with 5 halves as with 200.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.errors import ConfigError
from zscope.randomness import fresh
from zscope.results import NOT_REQUESTED
from zscope.sampling import whole
from zscope.types import Matrix

__all__ = [
    "FEWEST", "Interval", "check_together", "half_means", "half_width", "halves",
    "halves_interval", "shuffle_apart", "size_flag",
]  # fmt: skip

Interval = tuple[float, float]

FEWEST = 4
"""Rows, so that a half has two."""


def halves_interval(
    statistic: Callable[[Matrix], float],
    rows: Matrix,
    value: float,
    resamples: int,
    generator: Generator | None,
    who: str,
    together: int = 1,
) -> tuple[Interval | None, str]:
    """A 95 % interval around `value`, or None, and then the reason why there is none.

    So many consecutive rows belong `together`.
    """
    if resamples == 1 or resamples < 0:
        raise ConfigError(
            f"{who}: resamples={resamples} gives no interval; use at least 2, or 200 for a "
            "stable one. Leave it at 0 for no interval."
        )
    blocks = check_together(rows, together, who)
    if blocks < FEWEST:
        return None, f"too few samples ({blocks}); an interval needs at least {FEWEST}"
    if not resamples:
        return None, NOT_REQUESTED
    source, half = fresh(generator), blocks // 2
    values = []
    for _ in range(resamples):
        order = torch.randperm(blocks, generator=source, device=source.device)[:half]
        if together > 1:
            order = (order[:, None] * together + torch.arange(together)).flatten()
        values.append(statistic(rows[order.to(rows.device)]))
    if undefined := int((~np.isfinite(values)).sum()):
        return None, f"the score is undefined for {undefined} of {resamples} halves of the samples"
    return (value - half_width(values), value + half_width(values)), ""


def halves(rows: int, resamples: int = 200) -> Iterator[np.ndarray]:
    """Random halves of so many rows, the same ones in every call."""
    random = np.random.default_rng(rows)
    for _ in range(resamples):
        yield random.permutation(rows)[: rows // 2]


def half_means(values: Tensor) -> list[float]:
    """The means of halves of the rows; of other values of the same rows, of the same halves."""
    numbers = values.detach().cpu().double().numpy()
    return [float(numbers[half].mean()) for half in halves(len(numbers))]


def check_together(rows: Tensor, together: int, who: str) -> int:
    """How many independent blocks of rows there are."""
    whole(who, 1, together=together)
    if len(rows) % together:
        raise ConfigError(
            f"{who}: together={together}, but there are {len(rows)} rows, which are not so many "
            "times a whole number. Give the places of each picture one after the other."
        )
    return len(rows) // together


def shuffle_apart(rows: Tensor, together: int, generator: Generator) -> Tensor:
    """The columns in independent orders, in which rows that belong together stay together."""
    blocks = rows.unflatten(0, (-1, together))
    orders = [torch.randperm(len(blocks), generator=generator) for _ in range(rows.shape[1])]
    columns = [blocks[order, :, column] for column, order in enumerate(orders)]
    return torch.stack(columns, 2).flatten(0, 1)


def size_flag(samples: int, reason: str) -> str:
    """What a result says if its interval leaves out a bias that depends on the sample size."""
    return (
        f"The interval is about the score of {samples:,} samples, not that of many more: {reason}."
    )


def half_width(values: Sequence[float], rows: int | None = None) -> float:
    """Half the width of the 95 % interval of a statistic with these values on halves.

    Of fewer `rows` than halves, these decide how well the spread is known.
    """
    from scipy.special import stdtrit

    known = len(values) if rows is None else max(min(len(values), rows), 2)
    return float(stdtrit(known - 1, 0.975) * np.std(values, ddof=1))

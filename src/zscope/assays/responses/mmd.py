"""MMD: do two sets of codes come from the same distribution?

    MMD^2 = E k(x, x') + E k(y, y') - 2 E k(x, y),     0 <= MMD^2 <= 2 k(x, x) = 14

with the inverse multiquadratic kernels of Wasserstein autoencoders,

    k(a, b) = sum_s C_s / (C_s + ||a - b||^2),  C_s = 2 d sigma^2 s,
    s in {.1, .2, .5, 1, 2, 5, 10}

No root is taken. By default the U-statistic of Gretton et al. (JMLR
2012, lemma 6) over pairs w_i = (x_i, y_i): unbiased, so it can be slightly negative.
The V-statistic (`biased=True`) includes the diagonal terms and is never negative. Unchanged
by shifting or rotating both clouds together.

The standard error is that of the U-statistic, with its first- and second-order terms

    Var = (4 (n-2) zeta_1 + 2 zeta_2) / (n (n-1)),

so that it is valid both when the distributions differ and when they do not. zeta_1 is
estimated without bias and clipped at 0: the error is never below that for equal
distributions, for which it is up to a third too large. zeta_1 vanishes with MMD^2 (it is at most
sqrt(zeta_2) MMD^2), so a draw with a small value also has a small error, and value ± 1.96 errors
would contain the truth in only 84 to 96 % of draws. The interval therefore has all theta whose own
error explains the value (as Wilson's interval of a share does), with zeta_1 proportional to theta:

    |value - theta| <= 1.96 sqrt( (4 (n-2) c theta + 2 zeta_2) / (n (n-1)) )

and c = zeta_1 / MMD^2, drawn towards sqrt(zeta_2) / 2 where MMD^2 is within its noise. It contains
the truth in 95 to 98 % of draws (docs/correctness.md). The p-value is exact under the
hypothesis that both clouds are independent draws from one distribution: exchanging x_i and
y_i flips the sign of row and column i, so that a random exchange costs a product of signs
and no new kernel.

Rows that belong `together`, such as vectors at several places of one picture, are not independent.
The kernel of two pictures is then the mean of k over their rows, so that sums, errors and exchanges
are over whole pictures, and pairs of rows of one picture do not count.

Tolstikhin et al., "Wasserstein auto-encoders", ICLR 2018, for the kernels.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.errors import Undefined
from zscope.randomness import fresh
from zscope.sampling import whole
from zscope.types import Codes, as_tensor

__all__ = ["SCALES", "Discrepancy", "mmd"]

SCALES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
BLOCK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Discrepancy:
    """MMD^2 with its standard error, 95 % interval and p-value."""

    value: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float | None
    chance: float  # expected for two clouds from one distribution


def mmd(
    x: Codes | np.ndarray,
    y: Codes | np.ndarray,
    *,
    variance: float = 1.0,
    biased: bool = False,
    permutations: int = 200,
    together: int = 1,
    generator: Generator | None = None,
) -> Discrepancy:
    """MMD^2 between two clouds of equal size; `variance` is sigma^2 of the kernels.

    As many rows as `together` belong to one picture and are not independent.

    Memory does not grow with the square of the samples: kernels are summed in blocks of
    rows. With `permutations=0` there is no p-value.
    """
    whole("mmd", 0, permutations=permutations)
    whole("mmd", 1, together=together)
    x, y = as_tensor(x), as_tensor(y)
    least = 4 * together
    if x.shape != y.shape or x.ndim != 2 or len(x) < least or len(x) % together:
        raise Undefined(
            f"mmd: clouds of shape {tuple(x.shape)} and {tuple(y.shape)}; two tables of equal "
            f"shape with at least {least} samples are needed. Draw equally many samples of both."
        )
    if x.is_complex() or y.is_complex():
        raise Undefined("mmd: got complex numbers; expected real ones. Give both parts as columns.")
    if not variance > 0:
        raise Undefined(
            f"mmd: a variance of {variance} gives kernels of zero width. Are all codes the same? "
            "See which latents are used: zscope assay RUN response-matrix"
        )
    x, y = x.detach().cpu().double(), y.detach().cpu().double()
    count, latents = len(x) // together, x.shape[1]
    widths = [2 * latents * variance * s for s in SCALES]
    signs = _signs(permutations, count, fresh(generator))
    rows_at_once = max(1, BLOCK_BYTES // (8 * 4 * count * together**2))
    sums = torch.zeros(count, dtype=torch.float64)
    squares = diagonal = 0.0
    exchanged = torch.zeros(permutations, dtype=torch.float64)
    for start in range(0, count, rows_at_once):
        rows = slice(start, start + rows_at_once)
        part = slice(start * together, (start + rows_at_once) * together)
        h = _kernel(x[part], x, widths).add_(_kernel(y[part], y, widths))
        h.sub_(_kernel(x[part], y, widths)).sub_(_kernel(y[part], x, widths))
        if together > 1:
            h = h.unflatten(1, (count, together)).unflatten(0, (-1, together)).mean((1, 3))
        own_terms = h.diagonal(start)
        diagonal += float(own_terms.sum())
        own_terms.zero_()
        sums[rows] = h.sum(1)
        squares += float(h.square().sum())
        exchanged += ((h @ signs.T) * signs[:, rows].T).sum(0)
    pairs = count * (count - 1)
    total = float(sums.sum())
    if biased:
        value, chance = (total + diagonal) / count**2, (exchanged + diagonal) / count**2
    else:
        value, chance = total / pairs, exchanged / pairs
    second = max(0.0, squares / pairs - (total / pairs) ** 2)
    first = max(0.0, _first_order(sums / (count - 1), second))
    error = ((4 * (count - 2) * first + 2 * second) / pairs) ** 0.5
    ends = _interval(total / pairs, first, second, count)
    if biased:  # the same map as from the unbiased value to this one
        low, high = ((pairs * end + diagonal) / count**2 for end in ends)
        ends = low, high
    # Rounding must not decide between equal numbers, which identical clouds give.
    as_large = int((chance >= value - 1e-12).sum())
    p_value = (1 + as_large) / (1 + permutations) if permutations else None
    return Discrepancy(value, error, ends, p_value, diagonal / count**2 if biased else 0.0)


def _interval(value: float, first: float, second: float, count: int) -> tuple[float, float]:
    """All theta with |value - theta| <= 1.96 sqrt(slope theta + noise)."""
    noise = 2 * second / (count * (count - 1))
    within = noise**0.5  # the error for equal distributions
    ratio = 0.0
    if within > 0:
        largest = second**0.5
        ratio = min(largest, (first + within * largest / 2) / (max(0.0, value) + within))
    slope = 4 * (count - 2) / (count * (count - 1)) * ratio
    middle = value + 1.96**2 * slope / 2
    reach = max(0.0, middle**2 - value**2 + 1.96**2 * noise) ** 0.5
    return min(value, middle - reach), max(value, middle + reach)


def _first_order(means: Tensor, second: float) -> float:
    """zeta_1, the variance of E[h | w], from the row means of h.

    The variance of the row means also contains noise of order zeta_2 / n, and the rows share
    samples; both are subtracted, exactly in expectation.
    """
    n = len(means)
    noise = second * (n - 2) / (n - 1) ** 2
    share = 1 - 1 / (n - 1) - 3 * (n - 2) / (n - 1) ** 2
    return (float(means.var()) - noise) / share if share > 0 else 0.0


def _kernel(a: Tensor, b: Tensor, widths: list[float]) -> Tensor:
    squared = torch.addmm(b.square().sum(1), a, b.T, alpha=-2)
    squared.add_(a.square().sum(1, keepdim=True)).clamp_min_(0)
    total = torch.zeros_like(squared)
    for width in widths:
        total.add_((squared + width).reciprocal_(), alpha=width)
    return total


def _signs(permutations: int, count: int, generator: Generator) -> Tensor:
    draws = torch.randint(2, (permutations, count), generator=generator, device=generator.device)
    return draws.cpu().double().mul_(2).sub_(1)

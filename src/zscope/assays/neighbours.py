"""Nearest neighbours of every sample: exact distances, also in thousands of dimensions.

Search trees do not help above about twenty dimensions, so all pairs are compared, in one pass
of matrix products over blocks of rows: each pair of blocks serves both its rows and its
columns. The products are computed in float32 and only propose candidates; the distances
returned are computed from the differences to these candidates in float64. A bound on the
rounding error then proves that no other sample can be nearer; rows where it does not are
computed again in float64, and finally from the differences to all rows.

Rows that are equal, or nearer to each other than `tolerance` times the root mean square
distance from the mean (the same observation encoded in another batch), count once: a
neighbour at distance zero says nothing about dimension and makes every estimate useless.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from zscope.assays.matrices import Array, exponent_of, times_power, unit_scale
from zscope.errors import ConfigError, Undefined
from zscope.types import as_tensor

__all__ = ["Neighbours", "nearest_neighbours"]

SPARE = 4  # extra candidates, so that rounding errors do not push out a true neighbour
BLOCK_ROWS = 2048
REFINE_BYTES = 4 << 20  # fits into the processor's cache, so that each difference is read only once


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Distances to the nearest neighbours of each distinct sample, nearest first."""

    distances: Float[Tensor, "samples neighbours"]
    rows: Int[Tensor, " samples"]  # indices of the distinct rows
    duplicates: int  # number of rows left out because they equal another
    values: Float[Tensor, "samples columns"]  # the distinct rows

    def __len__(self) -> int:
        return len(self.distances)

    @property
    def count(self) -> int:
        return self.distances.shape[1]


def nearest_neighbours(
    codes: Array, neighbours: int = 20, *, tolerance: float = 1e-6
) -> Neighbours:
    """Distances from each distinct sample to its `neighbours` nearest others.

    `codes` is samples x columns; further axes (images) are flattened. Other types than
    float32 and float64 are converted to float64.
    """
    values = _as_values(codes)
    largest = float(values.abs().max()) if values.numel() else 1.0
    if not 1e-100 < largest < 1e100 and largest > 0:  # squares would vanish or overflow
        values, unit = values.double(), exponent_of(values.double())
        near = nearest_neighbours(unit_scale(values), neighbours, tolerance=tolerance)
        distances, rows = (times_power(part, unit) for part in (near.distances, near.values))
        return replace(near, distances=distances, values=rows)
    total = len(values)
    rows = _distinct_rows(values)
    values = values[rows] if len(rows) < total else values
    while True:
        _check_count(len(values), neighbours, total)
        distances, indices, radius = _k_nearest(values, neighbours)
        if (distances[:, 0] > tolerance * radius).all():
            return Neighbours(distances, rows, total - len(rows), values)
        keep = _mask_without_twins(distances, indices, tolerance * radius)
        values, rows = values[keep], rows[keep]


def _as_values(codes: Array) -> Tensor:
    values = as_tensor(codes, "nearest_neighbours").detach()
    if values.is_complex():
        raise Undefined("nearest_neighbours: got complex numbers; expected real ones, as columns.")
    values = values if values.dtype in (torch.float32, torch.float64) else values.double()
    values = values.reshape(-1, 1) if values.ndim <= 1 else values.flatten(1)
    if not values.isfinite().all():
        raise Undefined(
            f"nearest_neighbours: {int((~values.isfinite()).any(1).sum())} of {len(values)} "
            "samples contain NaN or infinity. Has training diverged? Find out why before leaving "
            "those rows out."
        )
    return values.contiguous()


def _check_count(distinct: int, neighbours: int, total: int) -> None:
    if neighbours < 1:
        raise ConfigError(f"nearest_neighbours: neighbours={neighbours}; expected at least 1.")
    if distinct <= neighbours:
        raise Undefined(
            f"nearest_neighbours: {distinct} distinct samples (of {total}) cannot have "
            f"{neighbours} neighbours each. Many equal rows mean discrete data or a collapsed "
            "encoder: record more observations, or use fewer neighbours."
        )


def _distinct_rows(values: Tensor) -> Tensor:
    """The first row of each set of equal rows, ascending."""
    first_rows: dict[bytes, int] = {}
    # Adding 0 turns -0 into 0, which is the same number with different bytes.
    for k, row in enumerate((values + 0.0).cpu().numpy()):
        first_rows.setdefault(hashlib.blake2b(row.data, digest_size=16).digest(), k)
    return torch.tensor(list(first_rows.values()), device=values.device)


def _mask_without_twins(distances: Tensor, indices: Tensor, limit: float) -> Tensor:
    """Mask of one row of each group of rows that are nearer to each other than `limit`."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    near = (distances <= limit).cpu()
    first = near.nonzero()[:, 0].numpy()
    second = indices.cpu()[near].numpy()
    n = len(distances)
    graph = coo_matrix((np.ones(len(first)), (first, second)), shape=(n, n))
    _, labels = connected_components(graph, directed=False)
    keep = np.zeros(n, dtype=bool)
    keep[np.unique(labels, return_index=True)[1]] = True
    return torch.from_numpy(keep).to(distances.device)


def _k_nearest(values: Tensor, k: int) -> tuple[Tensor, Tensor, float]:
    """Distances (float64, ascending) and indices of the k nearest rows of every row.

    Also the root mean square distance from the mean.
    """
    n = len(values)
    count = min(k + SPARE, n - 1)
    # A shift does not change distances; this one keeps the products small.
    centred = values - values.mean(0, dtype=torch.float64).to(values.dtype)
    scale = float(torch.linalg.vector_norm(centred, dtype=torch.float64)) / n**0.5
    centred /= max(scale, 1e-300)
    candidates, largest, slack = _candidates(centred.float(), count)
    distances, indices = _refine(values, candidates, torch.arange(n, device=values.device), k)
    unsure = (distances[:, -1] / scale).square() > largest - slack
    if count == n - 1:
        unsure[:] = False  # every other row was a candidate
    if not unsure.any():
        return distances, indices, scale
    precise = centred.double()
    for block in unsure.nonzero().flatten().split(256):
        candidates, largest, slack = _candidates_of(precise, block, count)
        some, which = _refine(values, candidates, block, k)
        for row in ((some[:, -1] / scale).square() > largest - slack).nonzero().flatten():
            gaps = torch.linalg.vector_norm(values.double() - values[block[row]].double(), dim=1)
            gaps[block[row]] = torch.inf
            some[row], which[row] = gaps.topk(k, largest=False)
        distances[block], indices[block] = some, which
    return distances, indices, scale


def _slack(norms: Tensor, largest: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Bound on the rounding error of squared distances from matrix products, for each row.

    The rounding error of a sum of `width` products grows like sqrt(width). For partners of
    similar norm it is relative to that norm; a partner of much larger norm is far away, and
    its rounding error is relative to the distance itself.
    """
    unit: float = torch.finfo(dtype).eps * (8 + width**0.5)
    return unit * (4 * norms + 8 * largest)


def _candidates(x: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest `count` rows of each row by matrix products: (indices, largest, slack).

    `largest` is the largest squared distance to them: no other row is nearer than
    sqrt(largest - slack).
    """
    n, width = x.shape
    norms = x.square().sum(1)
    best = torch.full((n, count), torch.inf, dtype=x.dtype, device=x.device)
    which = torch.zeros((n, count), dtype=torch.int64, device=x.device)
    for i in range(0, n, BLOCK_ROWS):
        rows = slice(i, min(i + BLOCK_ROWS, n))
        for j in range(i, n, BLOCK_ROWS):
            columns = slice(j, min(j + BLOCK_ROWS, n))
            gaps = torch.addmm(norms[columns], x[rows], x[columns].T, alpha=-2)
            gaps += norms[rows, None]
            if i == j:
                gaps.fill_diagonal_(torch.inf)
            _improve(best, which, rows, gaps, j)
            if j > i:
                _improve(best, which, columns, gaps.T, i)
    largest = best[:, -1].double()
    return which, largest, _slack(norms.double(), largest, width, x.dtype)


def _candidates_of(x: Tensor, rows: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """`_candidates` for some of the rows."""
    norms = x.square().sum(1)
    gaps = torch.addmm(norms, x[rows], x.T, alpha=-2) + norms[rows, None]
    gaps[torch.arange(len(rows)), rows] = torch.inf
    best, which = gaps.topk(count, largest=False)
    largest = best.amax(1)
    return which, largest, _slack(norms[rows], largest, x.shape[1], x.dtype)


def _improve(best: Tensor, which: Tensor, rows: slice, gaps: Tensor, offset: int) -> None:
    """Update the nearest partners of each row with a new block of partners."""
    count = best.shape[1]
    near, at = gaps.topk(min(count, gaps.shape[1]), largest=False)
    values = torch.cat([best[rows], near], 1)
    numbers = torch.cat([which[rows], at + offset], 1)
    best[rows], order = values.topk(count, largest=False)
    which[rows] = numbers.gather(1, order)


def _refine(values: Tensor, candidates: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest candidates, by exact distances, nearest first."""
    count, width = candidates.shape[1], values.shape[1]
    step = max(1, REFINE_BYTES // (8 * count * width))
    exact = torch.empty(candidates.shape, dtype=torch.float64, device=values.device)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        gaps = values[candidates[part]].double()
        gaps -= values[rows[part], None].double()
        exact[part] = torch.linalg.vector_norm(gaps, dim=-1)
    distances, order = exact.topk(k, largest=False, sorted=True)
    return distances, candidates.gather(1, order)

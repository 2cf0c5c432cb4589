"""Nearest neighbours of every sample: exact distances, also in thousands of dimensions.

Search trees do not help above about twenty dimensions, so all pairs are compared, in one pass
of matrix products over blocks of rows: each pair of blocks serves both its rows and its
columns. The products are computed in float32 and only propose candidates; the distances
returned are computed from the differences to these candidates in float64. A bound on the
rounding error then proves that no other sample can be nearer; rows where it does not are
computed again in float64, and finally from the differences to all rows.

All pairs take time that grows with the square of the samples. `most` limits the rows whose
neighbours are looked for, among all others all the same: distances are as exact, there are fewer
of them, and time grows with the samples.

Rows that are equal, or nearer to each other than `tolerance` times the root mean square
distance from the mean (the same observation encoded in another batch), count once: a
neighbour at distance zero says nothing about dimension and makes every estimate useless.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from zscope.assays.matrices import Array, exponent_of, times_power, unit_scale
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.sampling import whole
from zscope.types import as_tensor

__all__ = ["Neighbours", "nearest_neighbours"]

SPARE = 4  # extra candidates, so that rounding errors do not push out a true neighbour
BLOCK_ROWS = 2048
REFINE_BYTES = 4 << 20  # fits into the processor's cache, so that each difference is read only once
COPY_BYTES = 32 << 20  # of rows that are copied at once
LAGS = 8  # how many rows further on along a line to look for a twin


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Distances from distinct samples to their nearest neighbours, nearest first."""

    distances: Float[Tensor, "samples neighbours"]
    rows: Int[Tensor, " samples"]  # indices of the samples
    duplicates: int  # number of rows left out because they equal another
    values: Float[Tensor, "samples columns"]  # the samples themselves
    among: int  # how many distinct samples there are; neighbours are the nearest of all of them

    def __len__(self) -> int:
        return len(self.distances)

    @property
    def count(self) -> int:
        return self.distances.shape[1]


def nearest_neighbours(
    codes: Array,
    neighbours: int = 20,
    *,
    tolerance: float = 1e-6,
    most: int | None = None,
    generator: Generator | None = None,
) -> Neighbours:
    """Distances from each distinct sample to its `neighbours` nearest others.

    `codes` is samples x columns; further axes (images) are flattened. Other types than
    float32 and float64 are converted to float64. Of more than `most` distinct samples, so many are
    drawn at random, and their neighbours looked for among all.
    """
    if most is not None:
        whole("nearest_neighbours", 1, most=most)
    values = _as_values(codes)
    largest = float(values.abs().max()) if values.numel() else 1.0
    if not 1e-100 < largest < 1e100 and largest > 0:  # squares would vanish or overflow
        values, unit = values.double(), exponent_of(values.double())
        near = nearest_neighbours(
            unit_scale(values), neighbours, tolerance=tolerance, most=most, generator=generator
        )
        distances, rows = (times_power(part, unit) for part in (near.distances, near.values))
        return replace(near, distances=distances, values=rows)
    total = len(values)
    rows = _distinct_rows(values)
    values = values[rows] if len(rows) < total else values
    order = None  # of the rows that are drawn
    if most is not None and len(values) > most:
        keep = _mask_without_twins_along(values, tolerance)
        values, rows = values[keep], rows[keep]
    if most is not None and len(values) > most:
        source = fresh(generator)
        order = torch.randperm(len(values), generator=source, device=source.device)
        order = order.to(values.device)
    while True:
        _check_count(len(values), neighbours, total)
        queries = None if order is None else order[:most].sort().values
        distances, indices, radius = _k_nearest(values, neighbours, queries)
        if (distances[:, 0] > tolerance * radius).all():
            left = total - len(rows)
            if queries is None:
                return Neighbours(distances, rows, left, values, len(rows))
            return Neighbours(distances, rows[queries], left, values[queries], len(rows))
        keep = _mask_without_twins(distances, indices, tolerance * radius, queries, len(values))
        values, rows = values[keep], rows[keep]
        if order is not None:
            order = (keep.cumsum(0) - 1)[order[keep[order]]]


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
    k = 0
    for part in values.split(_rows_at_once(values)):
        # Adding 0 turns -0 into 0, which is the same number with different bytes.
        for row in (part + 0.0).cpu().numpy():
            first_rows.setdefault(hashlib.blake2b(row.data, digest_size=16).digest(), k)
            k += 1
    return torch.tensor(list(first_rows.values()), device=values.device)


def _rows_at_once(values: Tensor) -> int:
    return max(1, COPY_BYTES // (8 * max(1, values.shape[1])))


def _mask_without_twins(
    distances: Tensor, indices: Tensor, limit: float, queries: Tensor | None, n: int
) -> Tensor:
    """Mask of one row of each group of rows that are nearer to each other than `limit`."""
    near = distances <= limit
    first = near.nonzero()[:, 0]
    return _mask_of_groups(first if queries is None else queries[first], indices[near], n)


def _mask_without_twins_along(values: Tensor, tolerance: float) -> Tensor:
    """The same without the distances of all pairs, for rows that are near along a random line.

    Only the next few rows along the line are looked at: nearly all others are far apart.
    """
    mean, radius = _centre(values)
    source = torch.Generator().manual_seed(0)
    line = torch.randn(values.shape[1], generator=source, dtype=torch.float64).to(values.device)
    line /= line.norm()
    size = _rows_at_once(values)
    place = torch.cat([(part.double() - mean) @ line for part in values.split(size)])
    place, order = place.sort()
    limit = tolerance * radius
    pairs = []
    for lag in range(1, min(LAGS, len(values) - 1) + 1):
        close = (place[lag:] - place[:-lag] <= 1.01 * limit).nonzero().flatten()
        if not len(close):
            break
        for part in close.split(size):
            first, second = order[part], order[part + lag]
            gaps = values[first].double() - values[second].double()
            twins = torch.linalg.vector_norm(gaps, dim=1) <= limit
            pairs.append(torch.stack([first[twins], second[twins]]))
    if not pairs:
        return torch.ones(len(values), dtype=torch.bool, device=values.device)
    first, second = torch.cat(pairs, 1)
    return _mask_of_groups(first, second, len(values))


def _mask_of_groups(first: Tensor, second: Tensor, n: int) -> Tensor:
    """Mask of the first of each group of rows that these pairs connect."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    pairs = first.cpu().numpy(), second.cpu().numpy()
    graph = coo_matrix((np.ones(len(first)), pairs), shape=(n, n))
    _, labels = connected_components(graph, directed=False)
    keep = np.zeros(n, dtype=bool)
    keep[np.unique(labels, return_index=True)[1]] = True
    return torch.from_numpy(keep).to(first.device)


def _centre(values: Tensor) -> tuple[Tensor, float]:
    """The mean, and the root mean square distance from it."""
    mean = values.mean(0, dtype=torch.float64)
    squares = [
        (part - mean.to(values.dtype)).square().sum(dtype=torch.float64)
        for part in values.split(_rows_at_once(values))
    ]
    return mean, float(torch.stack(squares).sum() / len(values)) ** 0.5


def _k_nearest(
    values: Tensor, k: int, queries: Tensor | None = None
) -> tuple[Tensor, Tensor, float]:
    """Distances (float64, ascending) and indices of the k nearest rows of every row.

    Or of the rows `queries` alone. Also the root mean square distance from the mean.
    """
    n = len(values)
    count = min(k + SPARE, n - 1)
    # A shift does not change distances; this one keeps the products small.
    centred = values - values.mean(0, dtype=torch.float64).to(values.dtype)
    scale = float(torch.linalg.vector_norm(centred, dtype=torch.float64)) / n**0.5
    centred /= max(scale, 1e-300)
    if queries is None:
        queries = torch.arange(n, device=values.device)
        candidates, largest, slack = _candidates(centred.float(), count)
    else:
        candidates, largest, slack = _candidates_of(centred.float(), queries, count)
    distances, indices = _refine(values, candidates, queries, k)
    unsure = (distances[:, -1] / scale).square() > largest - slack
    if count == n - 1:
        unsure[:] = False  # every other row was a candidate
    if not unsure.any():
        return distances, indices, scale
    precise = centred.double()
    doubtful = unsure.nonzero().flatten()
    candidates, largest, slack = _candidates_of(precise, queries[doubtful], count)
    some, which = _refine(values, candidates, queries[doubtful], k)
    for place in ((some[:, -1] / scale).square() > largest - slack).nonzero().flatten():
        row = queries[doubtful[place]]
        gaps = torch.cat(
            [
                torch.linalg.vector_norm(part.double() - values[row].double(), dim=1)
                for part in values.split(_rows_at_once(values))
            ]
        )
        gaps[row] = torch.inf
        some[place], which[place] = gaps.topk(k, largest=False)
    distances[doubtful], indices[doubtful] = some, which
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
    nearest, indices = [], []
    for part in rows.split(max(1, BLOCK_ROWS**2 // len(x))):
        gaps = torch.addmm(norms, x[part], x.T, alpha=-2)
        gaps += norms[part, None]
        gaps[torch.arange(len(part)), part] = torch.inf
        best, which = gaps.topk(count, largest=False)
        nearest.append(best.amax(1))
        indices.append(which)
    largest = torch.cat(nearest).double()
    return torch.cat(indices), largest, _slack(norms[rows].double(), largest, x.shape[1], x.dtype)


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

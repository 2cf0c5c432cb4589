"""Dataset alignment: are the factors the directions in which the data vary most locally?

The data are x = g(w) on a grid of factors w. At each grid point, with central differences
between its two neighbours along every factor,

    J[:, a] = std(w_a) dx/dw_a,      J = U S V^T

    distance   mean |V - P(V)|_F, P(V) the nearest signed permutation
    gap        mean of sum_a log |J[:, a]| - sum_k log s_k  >= 0, in nats
    separation mean of min_k (s_k - s_k+1) / s_1

Distance 0: every factor is a principal direction of the data around each point, so a VAE that
follows these directions finds the factors. `chance` is the distance of a random V. The gap does
not need separate singular values; it is 0 where the steps of different factors are orthogonal.
Unchanged by rotating or shifting the observations, and by shifting or scaling a factor.

Only points with both neighbours along every factor are used (the ends wrap around for factors
in `cyclic`). Categorical factors have no direction: they stay fixed, and all their values are
visited. Factors with fewer than three values are left out, and flagged. Points where columns
are linearly dependent are left out, and counted. Where the derivative over a step and over
twice that step differ by more than 0.3 of their length, the grid is too coarse: such points are
counted in `coarse`.

The distance is that of Zietlow, PhD thesis, Tübingen 2022, eq. 3.25-3.29, for the generator of
the data in place of a decoder. Asking it of the data themselves is ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.active import random_rows, standard_error
from zscope.assays.alignment.column_product import log_column_ratio
from zscope.assays.alignment.distance_to_orthogonality import chance, distance_of, relative_gaps
from zscope.assays.jacobian import PerSample, Spectra
from zscope.errors import ConfigError, Undefined, did_you_mean
from zscope.factors import Factors, factors_of
from zscope.results import Scored
from zscope.types import Matrix

__all__ = ["DatasetAlignment", "dataset_alignment"]

LARGE_STEP = 0.3
DEPENDENT = 1e-9


@dataclass(frozen=True, eq=False)
class DatasetAlignment(Scored):
    """The mean distance over grid points, the gap, and the derivatives behind them."""

    distance: float
    standard_error: float | None  # None for a single point
    samples: int  # grid points
    chance: float  # mean for a uniformly random V of this size
    gap: float  # nats
    separation: float
    factors: list[str]  # the columns of J
    lengths: Float[Tensor, " factors"]  # root mean square length of each column
    cosines: Matrix  # mean absolute cosine between the columns of two factors
    dependent: int  # points left out: their columns are linearly dependent
    coarse: int  # points where the step of the grid is too large
    checked: int  # points where that can be told, because the neighbours' neighbours exist
    per_sample: PerSample
    spectra: Spectra
    flags: list[str]

    why_no_interval = "there is only one grid point"
    score_fields = ("distance",)

    @property
    def score(self) -> float:
        return self.distance

    @property
    def relative(self) -> float:
        """The distance in units of chance: 0 aligned, 1 random."""
        return self.distance / self.chance

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        return heatmap(
            self.cosines,
            rows=self.factors,
            columns=self.factors,
            x="factor",
            y="factor",
            title=f"DtO of the data = {self.distance:.2f} (chance {self.chance:.2f}): cosines",
            ax=ax,
        )


def dataset_alignment(
    observations: Any,
    factors: Any,
    *,
    kinds: Any = None,
    names: Sequence[str] | None = None,
    cyclic: Sequence[str] = (),
    samples: int = 2000,
    generator: Generator | None = None,
) -> DatasetAlignment:
    """The alignment of data with their factors, over at most `samples` points of the grid.

    `observations` is an array, or anything that returns rows when indexed by an array of row
    numbers; `factors` are samples x factors. Bytes count as 0 to 1. Raises `Undefined` if fewer
    than two factors can be differentiated, or no point has all its neighbours.
    """
    who = "dataset_alignment"
    table = factors_of(factors, kinds=kinds, names=names, who=who)
    unknown = sorted(set(cyclic) - set(table.names))
    if unknown:
        raise ConfigError(
            f"{who}: cyclic names {unknown[0]!r}, which is no factor. "
            f"{did_you_mean(unknown[0], table.names)}"
        )
    grid = _Grid(table, set(cyclic))
    if len(grid.axes) < 2:
        raise Undefined(
            f"{who}: {len(grid.axes)} of {len(table.names)} factors have an order and at least "
            "three values; directions of data need two. Are these labels rather than factors of a "
            "generator? Use data made from a grid of factors: zscope data list"
        )
    points = grid.inner()
    if not len(points):
        raise Undefined(
            f"{who}: none of {len(table)} observations has a neighbour on both sides along "
            f"{', '.join(grid.names)}. The factors are drawn at random, or the rows are a part of "
            "a grid: use all rows of data that lie on a grid."
        )
    points = points[random_rows(len(points), samples, generator, who).numpy()]
    J, coarse, checked = _jacobians(observations, grid, points)
    return _result(J, grid, coarse, checked)


class _Grid:
    """Which row has which place on the grid, and which rows are its neighbours."""

    def __init__(self, table: Factors, cyclic: set[str]) -> None:
        values = np.asarray(table.values)
        uniques = [np.unique(column, return_inverse=True) for column in values.T]
        self.values = [unique for unique, _ in uniques]
        self.places = np.stack([place for _, place in uniques], 1)
        sizes = np.array([len(unique) for unique in self.values])
        ordered = [kind != "categorical" for kind in table.kinds]
        self.axes = [a for a, size in enumerate(sizes) if size > 2 and ordered[a]]
        self.names = [table.names[a] for a in self.axes]
        self.skipped = [table.names[a] for a, n in enumerate(sizes) if n == 2 and ordered[a]]
        self.wrapped = {a for a in self.axes if table.names[a] in cyclic}
        self.sizes = sizes
        self.spread = values.astype(np.float64).std(0)
        # One number for each place, to look rows up. Random values of many factors have more
        # places than there are numbers, and no neighbours.
        self.is_grid = math.prod(sizes.tolist()) < 2**62
        weights = [math.prod(sizes[a + 1 :].tolist()) for a in range(len(sizes))]
        self.weights = np.array(weights if self.is_grid else [0] * len(sizes), np.int64)
        numbers = self.places @ self.weights
        self.order = np.argsort(numbers, kind="stable")
        self.sorted = numbers[self.order]
        self.repeated = int((np.diff(self.sorted) == 0).sum())

    def neighbours(self, rows: np.ndarray, axis: int, step: int) -> np.ndarray:
        """The row `step` places along an axis from each row; -1 where there is none."""
        places = self.places[rows].copy()
        places[:, axis] += step
        size = int(self.sizes[axis])
        if axis in self.wrapped:
            places[:, axis] %= size
        outside = (places[:, axis] < 0) | (places[:, axis] >= size)
        numbers = places @ self.weights
        found = np.searchsorted(self.sorted, numbers).clip(max=len(self.sorted) - 1)
        missing = outside | (self.sorted[found] != numbers)
        return np.where(missing, -1, self.order[found])

    def inner(self) -> np.ndarray:
        """The rows that have both neighbours along every axis."""
        rows = np.arange(len(self.places) if self.is_grid else 0)
        for axis in self.axes:
            for step in (-1, 1):
                rows = rows[self.neighbours(rows, axis, step) >= 0]
        return rows

    def width(self, rows: np.ndarray, axis: int, step: int) -> np.ndarray:
        """The difference of the factor between the neighbours on both sides."""
        values = self.values[axis].astype(np.float64)
        here, size = self.places[rows, axis], int(self.sizes[axis])
        if axis in self.wrapped:  # equal steps around the cycle
            return np.full(len(rows), 2 * step * (values[-1] - values[0]) / (size - 1))
        # Where there is no such neighbour the result is not used.
        ahead, behind = (here + step).clip(max=size - 1), (here - step).clip(min=0)
        difference: np.ndarray = values[ahead] - values[behind]
        return difference


def _jacobians(observations: Any, grid: _Grid, points: np.ndarray) -> tuple[Tensor, int, int]:
    """The triangles R of J at each point, how many have too large a step, and of how many."""
    triangles, coarse, checked = [], 0, 0
    for rows in np.array_split(points, -(-len(points) // 64)):
        fine, wide, known = [], [], np.ones(len(rows), bool)
        for axis in grid.axes:
            fine.append(_derivative(observations, grid, rows, axis, 1)[0])
            far, exists = _derivative(observations, grid, rows, axis, 2)
            wide.append(far)
            known &= exists
        J = torch.from_numpy(np.stack(fine, 2))
        change = (torch.from_numpy(np.stack(wide, 2)) - J).flatten(1).norm(dim=1)
        large = change > LARGE_STEP * J.flatten(1).norm(dim=1)
        coarse += int((large & torch.from_numpy(known)).sum())
        checked += int(known.sum())
        if J.shape[1] < J.shape[2]:  # fewer features than factors
            J = torch.nn.functional.pad(J, (0, 0, 0, J.shape[2] - J.shape[1]))
        triangles.append(torch.linalg.qr(J, mode="r").R)
    return torch.cat(triangles), coarse, checked


def _derivative(
    observations: Any, grid: _Grid, rows: np.ndarray, axis: int, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """std(w) dx/dw over `step` places on both sides, and where both neighbours exist."""
    ahead, behind = (grid.neighbours(rows, axis, s) for s in (step, -step))
    exists = (ahead >= 0) & (behind >= 0)
    # Two steps along a cycle of four lead to the same point from both sides.
    exists &= ahead != behind
    ends = [_read(observations, np.where(exists, end, rows)) for end in (ahead, behind)]
    width = np.where(exists, grid.width(rows, axis, step), 1.0)
    return grid.spread[axis] * (ends[0] - ends[1]) / width[:, None], exists


def _read(observations: Any, rows: np.ndarray) -> np.ndarray:
    """Some observations as float64, a row each."""
    order = np.argsort(rows, kind="stable")  # memory maps are read fastest in order
    part = np.asarray(observations[rows[order]])
    scale = 255.0 if part.dtype == np.uint8 else 1.0
    result = np.empty((len(rows), int(np.prod(part.shape[1:]))))
    result[order] = part.reshape(len(rows), -1) / scale
    return result


def _result(triangles: Tensor, grid: _Grid, coarse: int, checked: int) -> DatasetAlignment:
    _, spectra, transposed = torch.linalg.svd(triangles)
    dependent = spectra[:, -1] <= DEPENDENT * spectra[:, 0]
    if dependent.all():
        raise Undefined(
            f"dataset_alignment: at all {len(dependent)} grid points the steps of "
            f"{', '.join(grid.names)} are linearly dependent, so they have no directions of their "
            "own. Does one of the factors change nothing? Leave it out."
        )
    triangles, spectra, transposed = (part[~dependent] for part in (triangles, spectra, transposed))
    distances = distance_of(transposed.mT)
    lengths = triangles.norm(dim=1)
    units = triangles / lengths[:, None]
    skipped = int(dependent.sum())
    return DatasetAlignment(
        distance=float(distances.mean()),
        standard_error=standard_error(distances),
        samples=len(distances),
        chance=chance(len(grid.axes)),
        gap=float(log_column_ratio(triangles, DEPENDENT).mean()),
        separation=float(relative_gaps(spectra).mean()),
        factors=grid.names,
        lengths=lengths.square().mean(0).sqrt(),
        cosines=torch.einsum("nij,nik->njk", units, units).abs().mean(0),
        dependent=skipped,
        coarse=coarse,
        checked=checked,
        per_sample=distances,
        spectra=spectra,
        flags=_flags(grid, skipped, len(dependent), coarse, checked),
    )


def _flags(grid: _Grid, dependent: int, points: int, coarse: int, checked: int) -> list[str]:
    flags = []
    if grid.skipped:
        flags.append(
            f"Left out {', '.join(grid.skipped)}: with two values there is no central difference."
        )
    if grid.repeated:
        flags.append(
            f"{grid.repeated} observations repeat the factors of another one; the first of each "
            "is used."
        )
    if dependent:
        flags.append(
            f"Left out {dependent} of {points} grid points where the steps of the factors are "
            "linearly dependent."
        )
    if coarse:
        flags.append(
            f"At {coarse} of {checked} grid points the derivative over twice the step differs by "
            f"more than {LARGE_STEP:g}: the grid is too coarse for derivatives, or the data are "
            "noisy."
        )
    if not checked:
        flags.append("The grid is too small to tell whether its steps are small enough.")
    return flags

"""Column product: how far from orthogonal are the columns of a matrix?

    col(J)  = prod_j |c_j|          product of the lengths of the columns
    det†(J) = prod_k s_k            product of the singular values: the volume they span
    a(J)    = log col(J) - log det†(J)  >= 0

the log volume lost because columns are not orthogonal (Hadamard's inequality), 0 if and
only if they are pairwise orthogonal. Unchanged by rotating the rows and by scaling, permuting or
flipping the columns. It is also the contrast of independent mechanism analysis.

For a linear decoder W trained with |x - x̂|^2 + β KL the cost of misalignment is known
exactly, for every β. With the best encoder and the best diagonal noise, the loss exceeds
that of the best rotation W V^T by

    G(W) = β/2 ( sum_j log(1 + 2 |w_j|^2 / β) - log det(I + 2/β W^T W) )  >= 0

and G / β tends to a(W) for small β (`rotation_excess`).

Zietlow, PhD thesis, Tübingen 2022, eq. 3.23-3.24, propositions 5 and 6; Gresele et al.,
"Independent mechanism analysis, a new concept?", NeurIPS 2021. G(W) is ours.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from zscope.assays.jacobian import PerSample, Squares
from zscope.assays.matrices import as_rows, exponent_of, times_power
from zscope.errors import ConfigError, Undefined
from zscope.results import Result
from zscope.types import Matrix

__all__ = ["ColumnProduct", "column_product", "log_column_ratio", "rotation_excess"]


@dataclass(frozen=True, eq=False)
class ColumnProduct(Result):
    """Column and volume products of one matrix, as logarithms (nats)."""

    log_columns: float
    log_volume: float
    lengths: Float[Tensor, " columns"]

    @property
    def gap(self) -> float:
        """a(J) = log col(J) - log det†(J)."""
        return self.log_columns - self.log_volume


def column_product(matrix: Matrix | np.ndarray) -> ColumnProduct:
    """log col(J), log det†(J) and their gap, for a matrix with one column for each latent."""
    J = as_rows(matrix, "column_product")
    rows, columns = J.shape
    unit = exponent_of(J, 0)  # of each column: the gap is the same in any units
    J = times_power(J, -unit)
    lengths = J.norm(dim=0)
    if rows < columns or not (lengths > 0).all():
        raise Undefined(
            f"column_product: a {rows} x {columns} matrix with {int((lengths == 0).sum())} columns "
            "of zeros spans no volume. Leave passive latents out."
        )
    R = torch.linalg.qr(J, mode="r").R
    gap = log_column_ratio(R[None], torch.finfo(torch.float64).eps)[0]
    total = float((lengths.log() + unit.double() * math.log(2)).sum())
    return ColumnProduct(
        log_columns=total, log_volume=total - float(gap), lengths=times_power(lengths, unit)
    )


def log_column_ratio(triangle: Squares, precision: float) -> PerSample:
    """a(J) of each J = Q R from its triangle: sum_j log |r_j| / |R_jj|, without cancellation.

    The part of column j that is orthogonal to the columns before it has length |R_jj|. Values
    below the precision of J are rounding errors and are replaced by that precision.
    """
    lengths = triangle.norm(dim=1)
    orthogonal = triangle.diagonal(dim1=1, dim2=2).abs()
    share = torch.where(lengths > 0, orthogonal / lengths, 1.0)
    return -share.clamp(min=precision, max=1).log().sum(1)


def rotation_excess(weights: Matrix | np.ndarray, *, beta: float) -> float:
    """G(W): the excess loss, in nats, of a linear decoder that is not aligned with the axes."""
    if not 0 < beta < math.inf:
        raise ConfigError(
            f"rotation_excess: beta={beta}; expected a finite number above 0: without noise all "
            "rotations are equal."
        )
    scaled = as_rows(weights, "rotation_excess") * (2 / beta) ** 0.5
    eye = torch.eye(scaled.shape[1], dtype=torch.float64)
    # Columns of [I; W'] have squared lengths 1 + |w'_j|^2 and the volume det(I + W'^T W').
    return beta * column_product(torch.cat([eye, scaled])).gap

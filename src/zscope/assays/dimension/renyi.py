"""Rényi entropy of a batch in bits, from its kernel matrix.

With K a Gaussian kernel matrix of h samples and A = K_ij / (h sqrt(K_ii K_jj)),

    S_α(A) = 1 / (1 - α) log2 sum_k lambda_k(A)^α,          0 <= S <= log2 h
    I(x; y) = S(A) + S(B) - S(A ∘ B / tr(A ∘ B))

0 if all samples are equal, log2 h if the kernel separates all of them. For α = 2 no
eigenvalues are needed: S_2 = -log2 |A|_F^2. Unchanged by rotating, shifting or scaling the
samples, as the width of the kernel is proportional to their standard deviation.

`bandwidth="silverman"`: std(X) h^(-1 / (4 + columns)), with the standard deviation of all
entries, as in the source. It saturates on images: with 256 pixels and h = 100 every entropy is
log2 h, and so is the information between unrelated images.
`bandwidth="median"` uses the median distance between samples instead and does not saturate.

Sánchez Giraldo, Rao & Príncipe, IEEE Trans. Inf. Theory 61(1), 2015; Bonheme 2023,
equations D.2 to D.5.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from zscope.assays.matrices import Array, as_rows, same_rows, unit_scale
from zscope.errors import ConfigError
from zscope.results import Scored

__all__ = ["Renyi", "renyi_entropy", "renyi_information"]


@dataclass(frozen=True, eq=False)
class Renyi(Scored):
    """Bits, averaged over batches; `saturated` when within 1 % of the ceiling log2(batch)."""

    why_no_interval = "it is not computed; repeat the estimate on other samples to see its spread"
    why_no_chance = (
        "an entropy has none; for a mutual information, shuffle the rows of one of the two"
    )

    score: float
    saturated: bool
    order: float
    batch: int
    samples: int


def renyi_entropy(
    x: Array, *, order: float = 2.0, batch: int = 100, bandwidth: str = "silverman"
) -> Renyi:
    """Entropy of samples x columns, averaged over batches of consecutive samples."""
    rows = as_rows(x, "renyi_entropy", least=2)
    size = min(batch, len(rows))
    values = [
        matrix_entropy(kernel_matrix(part, bandwidth), order) for part in _full_batches(rows, size)
    ]
    return _result(values, order, size, len(rows))


def renyi_information(
    x: Array, y: Array, *, order: float = 2.0, batch: int = 100, bandwidth: str = "silverman"
) -> Renyi:
    """Information between two representations of the same samples, averaged over batches."""
    first, second = same_rows(x, y, "renyi_information")
    size = min(batch, len(first))
    values = []
    for a, b in zip(_full_batches(first, size), _full_batches(second, size), strict=True):
        A, B = kernel_matrix(a, bandwidth), kernel_matrix(b, bandwidth)
        joint = A * B
        joint = joint / joint.trace()
        values.append(
            matrix_entropy(A, order) + matrix_entropy(B, order) - matrix_entropy(joint, order)
        )
    return _result(values, order, size, len(first))


def kernel_matrix(rows: Tensor, bandwidth: str = "silverman") -> Tensor:
    """Gaussian kernel matrix of trace 1."""
    h, m = rows.shape
    rows = unit_scale(rows)  # it is the same in any unit
    distances = torch.cdist(rows, rows)
    if bandwidth == "silverman":
        width = rows.std(correction=0) * h ** (-1 / (4 + m))
    elif bandwidth == "median":
        i, j = torch.triu_indices(h, h, offset=1)
        width = distances[i, j].median()
    else:
        raise ConfigError(
            f"renyi: bandwidth={bandwidth!r} is not known. Use 'silverman' (as in the source) or "
            "'median' (which does not saturate on images)."
        )
    if float(width) == 0:
        return torch.ones_like(distances) / h
    return torch.exp(-0.5 * (distances / width).square()) / h


def matrix_entropy(A: Tensor, order: float = 2.0) -> float:
    """S_order of a symmetric matrix of trace 1, in bits; order 1 is the von Neumann entropy."""
    if not 0 <= order < math.inf:
        raise ConfigError(
            f"renyi: order={order}; expected a finite number from 0. The source uses 2."
        )
    if order == 2:
        return max(0.0, -math.log2(float(A.square().sum())))
    eigenvalues = torch.linalg.eigvalsh(A.double()).clamp(min=0)
    if order == 1:
        return max(0.0, float(torch.special.entr(eigenvalues).sum()) / math.log(2))
    largest = float(eigenvalues.max())  # taken out, because high powers are 0 otherwise
    power = math.log2(float((eigenvalues / largest).pow(order).sum()))
    return max(0.0, (power + order * math.log2(largest)) / (1 - order))


def _full_batches(rows: Tensor, size: int) -> list[Tensor]:
    """Batches of this size; a shorter last one is left out, because its maximum is lower."""
    if size < 1:
        raise ConfigError(f"renyi: batch={size}; expected at least 1 sample in a batch.")
    return [part for part in rows.split(size) if len(part) == size]


def _result(values: list[float], order: float, size: int, samples: int) -> Renyi:
    mean = sum(values) / len(values)
    return Renyi(mean, mean > 0.99 * math.log2(size), order, size, samples)

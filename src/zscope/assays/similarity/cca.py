"""Canonical correlation: which directions of two representations vary together?

Each side is first reduced to the principal directions that explain 99 % of its variance.
With rho_i the canonical correlations of the reduced representations,

    svcca  = mean_i rho_i
    pwcca  = sum_i a_i rho_i / sum_i a_i,   a_i = sum_j |<h_i, x_j>|

h_i being the i-th canonical variable of X and x_j the features of X: directions that
account for more of X have larger weights. Both lie between 0 and 1. Unchanged by any invertible
linear map of the reduced representations, so by rotating, shifting and uniformly scaling;
pwcca is not symmetric: its first argument gives the weights.

Unrelated Gaussian features score about sqrt(max(p, q) / n): use many samples.

Raghu et al., "SVCCA", NeurIPS 2017; Morcos et al., NeurIPS 2018, section 2.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array, centre, same_rows, unit_scale
from zscope.errors import Undefined
from zscope.results import Scored
from zscope.types import Spectrum

__all__ = ["CanonicalCorrelation", "pwcca", "svcca"]


@dataclass(frozen=True, eq=False)
class CanonicalCorrelation(Scored):
    score: float
    correlations: Spectrum  # largest first
    directions: tuple[int, int]  # of each side after the reduction
    samples: int
    features: tuple[int, int]

    why_no_interval = "it is not computed; the spread over pairs of runs says more"
    why_no_chance = (
        "it depends on the features: about sqrt(features / samples) for unrelated Gaussian ones"
    )

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        return bars(self.correlations, x="canonical direction", y="correlation", ax=ax)


@accepts_recording
def svcca(x: Array, y: Array, *, variance: float = 0.99) -> CanonicalCorrelation:
    """Mean canonical correlation of two representations of the same samples."""
    return _compare(x, y, variance, "svcca")


@accepts_recording
def pwcca(x: Array, y: Array, *, variance: float = 0.99) -> CanonicalCorrelation:
    """Canonical correlation weighted by how much of the first representation each accounts for."""
    return _compare(x, y, variance, "pwcca")


def _compare(x: Array, y: Array, variance: float, who: str) -> CanonicalCorrelation:
    a, b = same_rows(x, y, who)
    a, b = unit_scale(centre(a)), unit_scale(centre(b))
    basis_a, basis_b = _principal(a, variance, who), _principal(b, variance, who)
    directions = (basis_a.shape[1], basis_b.shape[1])
    if sum(directions) >= len(a):
        # Subspaces of an (n - 1)-dimensional space intersect if their dimensions add up to more.
        raise Undefined(
            f"{who}: {len(a)} samples for {directions} directions; with as many directions as "
            "samples some correlate perfectly whatever the data. Record more samples, or keep "
            "less variance (variance=)."
        )
    rotation, rho, _ = torch.linalg.svd(basis_a.T @ basis_b, full_matrices=False)
    rho = rho.clamp(max=1)
    weights = torch.ones_like(rho)
    if who == "pwcca":
        weights = ((basis_a @ rotation).T @ a).abs().sum(1)
    return CanonicalCorrelation(
        score=float((weights * rho).sum() / weights.sum()),
        correlations=rho,
        directions=directions,
        samples=len(a),
        features=(a.shape[1], b.shape[1]),
    )


def _principal(rows: Tensor, variance: float, who: str) -> Tensor:
    """Orthonormal basis of the leading principal components, samples x directions."""
    left: Tensor
    left, values, _ = torch.linalg.svd(rows, full_matrices=False)
    power = values.square()
    if float(power.sum()) == 0:
        raise Undefined(
            f"{who}: a representation is the same for all {len(rows)} samples, so it has no "
            "directions to correlate. Has the layer collapsed? See: zscope assay RUN variable-types"
        )
    share = power.cumsum(0) / power.sum()
    keep = int((share < variance).sum()) + 1
    # Directions that consist of rounding errors correlate with anything.
    keep = min(keep, int((values > 1e-10 * values[0]).sum()))
    return left[:, :keep]


ENTRIES = {
    "svcca": Entry(
        question="Which directions of two representations vary together?",
        meaning=(
            "The mean correlation of the directions that two representations have in common: 1 if "
            "one is a linear map of the other."
        ),
        figure=(
            "The correlation of each pair of matched directions, best first: where bars fall, the "
            "representations share no more."
        ),
        takes=("codes", "codes"),
        compares=True,
        title="SVCCA",
        maps="flat",
    ),
    "pwcca": Entry(
        question="Which directions vary together, weighted by the variance they explain?",
        meaning=(
            "The correlation of shared directions, weighted by how much of the first "
            "representation they explain: 1 if all that matters is shared."
        ),
        figure=(
            "The correlation of each pair of matched directions, best first: where bars fall, the "
            "representations share no more."
        ),
        takes=("codes", "codes"),
        compares=True,
        title="PWCCA",
        maps="flat",
    ),
}

"""Fréchet distance: how far apart are two sets of observations, as Gaussians of features?

    d² = |μ_1 - μ_2|² + tr( Σ_1 + Σ_2 - 2 (Σ_1^{1/2} Σ_2 Σ_1^{1/2})^{1/2} ),     0 <= d²

with the means and covariances (divided by n - 1) of the features of both sets: the squared
Wasserstein-2 distance between two Gaussians. 0 exactly if means and covariances agree;
symmetric; unchanged by shifting or rotating all features together; multiplied by c² if they
are scaled by c. Differences in higher moments are not detected.

The number depends on the extractor of the features, which is part of the result: only with
Inception features is it the FID of the literature. It is biased upwards by roughly
(features)/(samples) of the variance: compare equal numbers of samples, and compare with the
distance between two halves of the real data.

Everything is computed in float64; the trace of the root is the sum of the singular values of
Σ_1^{1/2} Σ_2^{1/2}, which avoids the root of a product that rounding has made indefinite.

Fréchet, C. R. Acad. Sci. 244, 1957; Dowson & Landau, J. Multivariate Anal. 12, 1982; Heusel
et al., NeurIPS 2017, arXiv:1706.08500, for images.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zscope.assays.generation.extractors import Extractor, extract, name_of
from zscope.assays.matrices import exponent_of, times_power
from zscope.errors import Undefined
from zscope.results import Measure, Scored
from zscope.types import Matrix

__all__ = ["FrechetDistance", "frechet_distance"]


@dataclass(frozen=True, eq=False)
class FrechetDistance(Scored):
    """The squared distance, and what means and covariances contribute to it."""

    distance: float
    of_means: float
    of_covariances: float
    extractor: str
    samples: tuple[int, int]
    features: int

    why_no_interval = "it decreases with the number of samples, so resampling would bias it"
    why_no_chance = "it compares two sets of observations, not codes with what they encode"
    score_fields = ("distance",)

    def measures(self) -> list[Measure]:
        return [self.measure("", self.distance, samples=min(self.samples))]

    @property
    def score(self) -> float:
        return self.distance


def frechet_distance(
    x: Any, y: Any, *, extractor: Extractor = None, name: str | None = None
) -> FrechetDistance:
    """The Fréchet distance between two sets of observations, or of rows of features.

    `name` replaces the name of the extractor in the result.
    """
    first = extract(x, extractor, "frechet_distance")
    second = extract(y, extractor, "frechet_distance")
    if first.shape[1] != second.shape[1] or min(len(first), len(second)) < 2:
        raise Undefined(
            f"frechet_distance: features of shape {tuple(first.shape)} and {tuple(second.shape)}; "
            "expected at least two rows of each, with equally many columns. Were both extracted by "
            "the same network?"
        )
    unit = exponent_of(torch.cat([first, second]))
    first, second = (times_power(rows, -unit) for rows in (first, second))
    of_means = float((first.mean(0) - second.mean(0)).square().sum())
    of_covariances = bures(_covariance(first), _covariance(second))
    parts = (of_means, of_covariances)
    of_means, of_covariances = (
        float(times_power(torch.tensor(part, dtype=torch.float64), 2 * unit)) for part in parts
    )
    total = of_means + of_covariances
    if not math.isfinite(total) or (total == 0 and sum(parts) > 0):
        raise Undefined(
            f"frechet_distance: the squares of features of up to 2^{int(unit)} overflow or vanish. "
            "Divide both by the same number."
        )
    return FrechetDistance(
        distance=of_means + of_covariances,
        of_means=of_means,
        of_covariances=of_covariances,
        extractor=name or name_of(extractor),
        samples=(len(first), len(second)),
        features=first.shape[1],
    )


def bures(first: Matrix, second: Matrix) -> float:
    """tr( A + B - 2 (A^{1/2} B A^{1/2})^{1/2} ) of two covariances."""
    shared = torch.linalg.svdvals(_root(first) @ _root(second)).sum()
    return max(0.0, float(first.trace() + second.trace() - 2 * shared))


def _covariance(rows: Matrix) -> Tensor:
    centred = rows - rows.mean(0)
    return centred.T @ centred / (len(rows) - 1)


def _root(covariance: Matrix) -> Matrix:
    values, vectors = torch.linalg.eigh(covariance)
    root: Matrix = vectors * values.clamp_min(0).sqrt() @ vectors.T
    return root

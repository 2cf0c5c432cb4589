"""Precision and recall: do samples look like real data, and do they cover all of it?

    precision   the share of generated observations inside the region of the real ones
    recall      the share of real observations inside the region of the generated ones

both from 0 to 1. The region of a set is the union of balls around its members, whose radius
is the distance to the member's k-th nearest neighbour in the set. Precision is low if samples
are unlike the data, recall if they cover only part of it; a Fréchet distance mixes the two.
Unchanged by shifting, rotating or uniformly scaling all features together. Equal rows of a
set count once, so that copies do not shrink its balls to points.

The numbers depend on the extractor of the features, which is part of the result, and on
the number of samples: compare equal numbers. Distances are computed in float64.

Kynkäänniemi et al., NeurIPS 2019, arXiv:1904.06991, eq. 1 and 2, k = 3.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zscope.assays.generation.extractors import Extractor, extract, name_of
from zscope.assays.neighbours import nearest_neighbours
from zscope.errors import Undefined
from zscope.results import Measure, Scored
from zscope.sampling import whole

__all__ = ["PrecisionRecall", "precision_recall"]

BLOCK_BYTES = 32 << 20


@dataclass(frozen=True, eq=False)
class PrecisionRecall(Scored):
    precision: float
    recall: float
    neighbours: int
    extractor: str
    samples: tuple[int, int]
    features: int

    why_no_interval = "it changes with the number of samples, so resampling would bias it"
    why_no_chance = "it compares two sets of observations, not codes with what they encode"
    score_fields = ("precision", "recall")

    def measures(self) -> list[Measure]:
        return [
            self.measure(name, getattr(self, name), samples=min(self.samples))
            for name in ("precision", "recall")
        ]


def precision_recall(
    x: Any,
    y: Any,
    *,
    neighbours: int = 3,
    extractor: Extractor = None,
    name: str | None = None,
) -> PrecisionRecall:
    """Precision and recall of generated observations, or of rows of features.

    `x` are real and `y` generated observations, or features of them.
    `name` replaces the name of the extractor in the result.
    """
    whole("precision_recall", 1, neighbours=neighbours)
    first = extract(x, extractor, "precision_recall")
    second = extract(y, extractor, "precision_recall")
    if first.shape[1] != second.shape[1]:
        raise Undefined(
            f"precision_recall: features of shape {tuple(first.shape)} and {tuple(second.shape)} "
            "have different columns. Were both extracted by the same network?"
        )
    if min(len(first), len(second)) <= neighbours:
        raise Undefined(
            f"precision_recall: got sets of {len(first)} and {len(second)} rows; a row must have "
            f"{neighbours} neighbours in its set. Give more observations: thousands are usual."
        )
    return PrecisionRecall(
        precision=_share_within(second, first, neighbours),
        recall=_share_within(first, second, neighbours),
        neighbours=neighbours,
        extractor=name or name_of(extractor),
        samples=(len(first), len(second)),
        features=first.shape[1],
    )


def _share_within(points: Tensor, members: Tensor, neighbours: int) -> float:
    """The share of points inside any ball around the members."""
    centres = members.unique(dim=0)
    radii = torch.zeros(len(centres), dtype=members.dtype)
    if len(centres) > neighbours:  # a collapsed set has no extent
        near = nearest_neighbours(members, neighbours, tolerance=0.0)
        centres, radii = near.values, near.distances[:, -1]
    rows = max(1, BLOCK_BYTES // (8 * len(centres)))
    inside = 0
    for start in range(0, len(points), rows):
        # Not by matrix products: the distance of a member to itself must be exactly 0.
        distances = torch.cdist(
            points[start : start + rows], centres, compute_mode="donot_use_mm_for_euclid_dist"
        )
        inside += int((distances <= radii).any(1).sum())
    return inside / len(points)

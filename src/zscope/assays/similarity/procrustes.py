"""Procrustes: how closely can one representation be rotated onto the other?

With X and Y centred and scaled to |X|_F = |Y|_F = 1, the best orthogonal map (rotation and
reflection) leaves

    distance^2 = min_Q |X Q - Y|_F^2 = 2 - 2 s,     s = |Y^T X|_* (sum of singular values)
    score      = s = 1 - distance^2 / 2             0 <= score <= 1
    angle      = arccos s                           0 <= angle <= pi / 2

Unchanged by orthogonal maps, isotropic scaling and shifts of either side. Unlike CKA it is
sensitive to directions of little variance, but it is large with few samples and many features:
(8 / 3 pi) sqrt(p / n) for unrelated Gaussian features. Quote the smaller of the two.
`distance` and `angle` are metrics (symmetric, zero only for equal shapes, triangle
inequality); the score is not. Other libraries call each of the three "Procrustes".

Bonheme 2023, equations 7.6 to 7.8; Williams et al., "Generalized shape metrics on neural
representations", NeurIPS 2021, for the angle.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array, centre, same_rows, unit_scale
from zscope.errors import Undefined
from zscope.results import Scored

__all__ = ["Procrustes", "procrustes"]


@dataclass(frozen=True, eq=False)
class Procrustes(Scored):
    score: float
    distance: float
    angle: float
    samples: int
    features: tuple[int, int]

    why_no_interval = "it is not computed; the spread over pairs of runs says more"
    why_no_chance = (
        "it depends on the features: about 0.85 sqrt(features / samples) for unrelated Gaussian "
        "ones"
    )


@accepts_recording
def procrustes(x: Array, y: Array) -> Procrustes:
    """Procrustes similarity of two representations of the same samples, in the same order.

    The representations may differ in the number of features: the smaller is then padded
    with zeros.
    """
    a, b = same_rows(x, y, "procrustes")
    features = (a.shape[1], b.shape[1])
    a, b = _unit(a, "first"), _unit(b, "second")
    cross = _reduce(b).T @ _reduce(a)
    score = min(1.0, float(torch.linalg.svdvals(cross).sum()))
    return Procrustes(
        score=score,
        distance=math.sqrt(2 - 2 * score),
        angle=math.acos(score),
        samples=len(a),
        features=features,
    )


def _unit(rows: Tensor, side: str) -> Tensor:
    rows = unit_scale(centre(rows))
    norm = torch.linalg.vector_norm(rows)
    if float(norm) == 0:
        raise Undefined(
            f"procrustes: the {side} representation is the same for all {len(rows)} samples, so "
            "there is no shape to rotate. Has the layer collapsed? See: zscope assay RUN "
            "variable-types"
        )
    unit: Tensor = rows / norm
    return unit


def _reduce(rows: Tensor) -> Tensor:
    """The same shape in at most as many columns as there are rows: exact."""
    if rows.shape[1] <= len(rows):
        return rows
    reduced: Tensor = torch.linalg.qr(rows.T, mode="r").R.T
    return reduced


ENTRY = Entry(
    question="How closely can one representation be rotated onto the other?",
    meaning=(
        "1 if one representation can be rotated and scaled onto the other exactly; unlike CKA, "
        "small directions count too."
    ),
    takes=("codes", "codes"),
    compares=True,
    maps="flat",
)

"""Elbow: beyond which number of latents does a model get no better?

For a curve of some loss (or accuracy) against the number of latents,

    knee      the size whose point lies farthest below the chord from the first point to
              the last, both axes scaled to 0…1 (above it for accuracies)
    within    the first size whose value is within 2 % of the best

Unchanged by scaling or shifting the values (knee) or scaling them (within). The source
reads elbows off plots; these two rules do the same in numbers.

    SPI = 1/h sum_ij | cos(x_i, x_j) - cos(decoded_i, decoded_j) |,       SPI >= 0

(similarity preservation index) measures whether decoding keeps the similarities between
samples: 0 when all angles between samples are preserved. Unchanged by scaling samples.
`pairs=True` divides by h^2 instead: at most 2.

Bonheme 2023, section 8.4 and equation D.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from zscope.assays.matrices import Array, same_rows
from zscope.errors import ConfigError, Undefined
from zscope.results import Result, Scored

__all__ = [
    "Elbow",
    "SimilarityPreservation",
    "downstream_accuracy",
    "elbow",
    "similarity_preservation",
]


@dataclass(frozen=True, eq=False)
class Elbow(Result):
    knee: int
    within: int
    curve: dict[int, float]
    better: str

    def plot(self, ax: Any = None) -> Any:
        from zscope.assays.dimension.fondue import mark_answer
        from zscope.plots import lines

        ax = lines(
            {"": list(self.curve.values())}, at=list(self.curve), x="latents", y="value", ax=ax
        )
        mark_answer(ax, self.knee)
        return ax


def elbow(
    curve: Mapping[int, float],
    *,
    better: Literal["lower", "higher"] = "lower",
    tolerance: float = 0.02,
) -> Elbow:
    """The elbow of a curve of values against numbers of latents, for two or more sizes."""
    _check_curve(curve, better, tolerance)
    sizes = sorted(curve)
    values = np.array([curve[n] for n in sizes], dtype=float)
    if len(sizes) < 2 or not np.isfinite(values).all():
        raise Undefined(
            f"elbow: got {len(sizes)} sizes with values {values.tolist()}; expected at least two "
            "sizes with finite values."
        )
    loss = values if better == "lower" else -values
    extent = loss.max() - loss.min()
    if extent == 0:
        knee = sizes[0]
    else:
        x = (np.array(sizes, dtype=float) - sizes[0]) / (sizes[-1] - sizes[0])
        y = (loss - loss.min()) / extent
        chord = y[0] + (y[-1] - y[0]) * x
        knee = sizes[int(np.argmax(chord - y))]
    near = loss <= loss.min() + tolerance * abs(loss.min())
    return Elbow(
        knee=knee,
        within=sizes[int(np.argmax(near))],
        curve={n: float(curve[n]) for n in sizes},
        better=better,
    )


def _check_curve(curve: Any, better: Any, tolerance: Any) -> None:
    numbers = isinstance(curve, Mapping) and all(map(_is_number, [*curve, *curve.values()]))
    if not numbers:
        raise ConfigError(
            f"elbow: curve={curve!r:.60}; expected a number for each size, such as {{2: 31.5, 4: "
            "20.1, 8: 19.8}."
        )
    if better not in ("lower", "higher"):
        raise ConfigError(f"elbow: better={better!r:.60}; expected 'lower' or 'higher'.")
    if not (_is_number(tolerance) and 0 <= tolerance < 1e6):
        raise ConfigError(
            f"elbow: tolerance={tolerance!r:.60}; expected a share of the best value, such as 0.02."
        )


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float | np.number)
        and not isinstance(value, bool | np.complexfloating)
        and not (isinstance(value, int) and abs(value) > 2**62)
    )


@dataclass(frozen=True, eq=False)
class SimilarityPreservation(Scored):
    score: float
    samples: int

    why_no_interval = "it sums over all pairs of samples, which are not independent"
    why_no_chance = "it compares observations with reconstructions and is best at 0"


def similarity_preservation(
    x: Array, decoded: Array, *, pairs: bool = False
) -> SimilarityPreservation:
    """SPI of observations and their reconstructions."""
    a, b = same_rows(x, decoded, "similarity_preservation")
    h = len(a)
    cosines = []
    for rows in (a, b):
        norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        if (norms == 0).any():
            raise Undefined(
                f"similarity_preservation: {int((norms == 0).sum())} of {h} samples are all zero "
                "and have no angle to the others. Remove them first."
            )
        unit = rows / norms
        cosines.append(unit @ unit.T)
    total = float((cosines[0] - cosines[1]).abs().sum())
    return SimilarityPreservation(score=total / (h * h if pairs else h), samples=h)


def downstream_accuracy(codes: Array, factors: Array, *, rounds: int = 100, seed: int = 0) -> float:
    """Mean accuracy over factors of gradient-boosted trees, on a held-out third.

    For the elbow of accuracy against the number of latents. One classifier per factor, with
    the default settings of scikit-learn's histogram booster but for `rounds` of boosting.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, y = same_rows(codes, factors, "downstream_accuracy", least=6)
    rows, labels = x.cpu().numpy(), y.cpu().numpy()
    order = np.random.default_rng(seed).permutation(len(rows))
    train, test = np.split(order, [2 * len(rows) // 3])
    scores = []
    for k in range(labels.shape[1]):
        if len(np.unique(labels[train, k])) < 2:
            continue
        model = HistGradientBoostingClassifier(max_iter=rounds, random_state=seed)
        model.fit(rows[train], labels[train, k])
        scores.append(model.score(rows[test], labels[test, k]))
    if not scores:
        raise Undefined(
            f"downstream_accuracy: none of the {labels.shape[1]} factors varies over the "
            f"{len(train)} training samples, so there is nothing to predict. Use data whose "
            "factors vary."
        )
    return float(np.mean(scores))

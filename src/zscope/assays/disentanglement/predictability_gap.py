"""Disentanglement score DS: how much better does one latent predict a factor than any other?

Each latent alone predicts each factor from the 5 nearest neighbours (along that latent, equal
weights), with 80 % of the rows for training and 20 % for testing:

    A_jk = max(0, std(y_k) - RMSE)           ordinal and continuous factors, M_k = std(y_k)
    A_jk = accuracy                          categorical factors
    DS   = mean over factors k of  (A_first,k - A_second,k) / M_k.

Range 0 to 1. Unchanged by the order, the scale and the offset of the latents and by
relabelling categorical values. Like MIG it is 0 for a factor encoded equally in two latents.

`flavour="zscope"`: latents in use; for categorical factors A is at least the accuracy a of
the best constant prediction, which is subtracted, and M = 1 - a, so that the score lies
between 0 and 1. Of values with equally many votes the nearest is predicted. With one latent
the second term is that of a constant prediction. A / M is the mean over 5 splits, in which every
row is tested once: a single split of 400 rows moves the score by up to .15.
`flavour="paper"`: one split, all latents, M = a for categorical factors as printed, so that the
score can reach (1 - a) / a: 2 for three equally likely values. Of values with equally many
votes the smallest is predicted, as in scikit-learn, so that relabelling changes the score
slightly.

Both set negative A to 0 for regression: for an uninformative latent, 5 neighbours have an RMSE
of sqrt(1.2) std, so that perfect codes would otherwise score 1.1, which is not what was
published.

Zietlow, PhD thesis, University of Tübingen, 2022, eq. 3.32-3.37; Rolinek, Zietlow &
Martius, "Variational autoencoders pursue PCA directions (by accident)", CVPR 2019.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.mig import top_two
from zscope.assays.disentanglement.score import Estimate, Score, compute_score
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    Variances,
    all_latents,
    prepare,
    used_latents,
)

__all__ = ["predictability_gap"]

NEIGHBOURS, FOLDS = 5, 5


@accepts_recording
def predictability_gap(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "paper"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_factor (gaps), .matrix (A / M: how well each latent predicts each factor)."""
    sample, flags = prepare("predictability_gap", codes, factors, kinds)
    ours = flavour == "zscope"
    return compute_score(
        Score,
        "predictability_gap",
        partial(_gaps, bounded=ours),
        sample,
        used_latents("predictability_gap", sample, variances) if ours else all_latents(sample),
        flags,
        flavour=flavour,
        meaning="predictability",
        resamples=resamples,
        generator=generator,
        permutations=2,
    )


def _gaps(sample: Sample, _: np.random.Generator, *, bounded: bool) -> Estimate:
    splits = sample.folds(FOLDS) if bounded else [sample.split(1 - 1 / FOLDS)]
    matrix = np.mean([_predictability(sample, *rows, bounded) for rows in splits], axis=0)
    top, second = top_two(matrix)[1:]
    if len(matrix) == 1 and not bounded:
        second = np.array([kind == "categorical" for kind in sample.kinds], dtype=float)
    gaps = top - second
    return Estimate(float(gaps.mean()), gaps, matrix.max(1), matrix)


def _predictability(
    sample: Sample, train: np.ndarray, test: np.ndarray, bounded: bool
) -> np.ndarray:
    """A / M of every latent and factor for one split."""
    neighbours = [
        nearest(sample.codes[train, j], sample.codes[test, j]) for j in range(sample.codes.shape[1])
    ]
    matrix = np.zeros((len(neighbours), len(sample.columns)))
    for place, kind in enumerate(sample.kinds):
        if kind == "categorical":
            labels = sample.labels[:, place]
            matrix[:, place] = _accuracies(neighbours, labels[train], labels[test], bounded)
        else:
            values = sample.factors[:, place]
            matrix[:, place] = _improvements(neighbours, values[train], values[test])
    return matrix


def _accuracies(
    neighbours: list[np.ndarray], train: np.ndarray, test: np.ndarray, bounded: bool
) -> list[float]:
    values = int(max(train.max(), test.max())) + 1
    constant = float(np.mean(test == np.bincount(train, minlength=values).argmax()))
    accuracies = []
    for near in neighbours:
        votes = train[near]
        agree = (votes[:, :, None] == votes[:, None, :]).sum(2)
        if bounded:  # of several values with most votes the nearest
            predicted = np.take_along_axis(votes, agree.argmax(1)[:, None], axis=1)[:, 0]
        else:  # the smallest, as in scikit-learn, though it depends on the labels
            predicted = np.where(agree == agree.max(1, keepdims=True), votes, values).min(1)
        accuracies.append(float(np.mean(predicted == test)))
    if bounded:
        room = 1 - constant
        return [max(0.0, value - constant) / room if room else 0.0 for value in accuracies]
    return [value / constant if constant else 0.0 for value in accuracies]


def _improvements(neighbours: list[np.ndarray], train: np.ndarray, test: np.ndarray) -> list[float]:
    spread = float(test.std())
    if not spread:
        return [0.0] * len(neighbours)
    errors = [np.sqrt(np.square(train[near].mean(1) - test).mean()) for near in neighbours]
    return [max(0.0, 1 - float(error) / spread) for error in errors]


def nearest(train: np.ndarray, test: np.ndarray, count: int = NEIGHBOURS) -> np.ndarray:
    """For each test number the indices of the `count` nearest training numbers, nearest first.

    In sorted order these are within `count` places on either side of where the number would
    be inserted, so that sorting once replaces a search tree.
    """
    count = min(count, len(train))
    order = np.argsort(train, kind="stable")
    ordered = train[order]
    middle = np.searchsorted(ordered, test)
    window = middle[:, None] + np.arange(-count, count)
    outside = (window < 0) | (window >= len(train))
    window = np.clip(window, 0, len(train) - 1)
    distance = np.where(outside, np.inf, np.abs(ordered[window] - test[:, None]))
    closest = np.argsort(distance, axis=1, kind="stable")[:, :count]
    nearest: np.ndarray = order[np.take_along_axis(window, closest, axis=1)]
    return nearest


ENTRY = Entry(
    question="How much better does one latent predict a factor than any other?",
    takes=("codes", "factors", "variances=usage"),
)

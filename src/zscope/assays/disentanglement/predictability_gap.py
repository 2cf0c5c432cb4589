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
from itertools import combinations
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
    # Equal codes in random order: neighbouring rows of sorted data have the same factors.
    shuffled = np.concatenate(splits[0])
    order = shuffled[np.argsort(sample.codes[shuffled].T, axis=1, kind="stable")]
    matrix = np.mean([_predictability(sample, order, test, bounded) for _, test in splits], axis=0)
    top, second = top_two(matrix)[1:]
    if len(matrix) == 1 and not bounded:
        second = np.array([kind == "categorical" for kind in sample.kinds], dtype=float)
    gaps = top - second
    return Estimate(float(gaps.mean()), gaps, matrix.max(1), matrix)


def _predictability(
    sample: Sample, order: np.ndarray, test: np.ndarray, bounded: bool
) -> np.ndarray:
    """A / M of every latent and factor for one split."""
    is_test = np.zeros(len(sample), dtype=bool)
    is_test[test] = True
    rows, neighbours = nearest(sample.codes, order, is_test)
    matrix = np.zeros((len(order), len(sample.columns)))
    for place, kind in enumerate(sample.kinds):
        measure = _accuracies if kind == "categorical" else _improvements
        values = (sample.labels if kind == "categorical" else sample.factors)[:, place]
        matrix[:, place] = measure(values, is_test, rows, neighbours, bounded)
    return matrix


def _accuracies(
    labels: np.ndarray, is_test: np.ndarray, rows: np.ndarray, neighbours: np.ndarray, bounded: bool
) -> np.ndarray:
    values = int(labels.max()) + 1
    constant = float(np.mean(labels[is_test] == np.bincount(labels[~is_test]).argmax()))
    # `values` itself must fit too: it stands for "not the most frequent" below.
    small = labels.astype(np.min_scalar_type(values))
    votes = small[neighbours]
    agree = np.zeros(votes.shape, dtype=np.int8)
    for one, other in combinations(range(len(votes)), 2):
        same = votes[one] == votes[other]
        agree[one] += same
        agree[other] += same
    if bounded:  # of several values with most votes the nearest
        predicted = np.take_along_axis(votes, agree.argmax(0)[None], axis=0)[0]
    else:  # the smallest, as in scikit-learn, though it depends on the labels
        predicted = np.where(agree == agree.max(0), votes, values).min(0)
    accuracies = (predicted == small[rows]).mean(1)
    room = 1 - constant if bounded else constant
    if not room:
        return np.zeros(len(accuracies))
    return np.asarray(np.maximum(0, accuracies - constant * bounded) / room)


def _improvements(
    values: np.ndarray, is_test: np.ndarray, rows: np.ndarray, neighbours: np.ndarray, _: bool
) -> np.ndarray:
    spread = float(values[is_test].std())
    if not spread:
        return np.zeros(len(rows))
    errors = np.sqrt(np.square(values[neighbours].mean(0) - values[rows]).mean(1))
    return np.asarray(np.maximum(0, 1 - errors / spread))


def nearest(
    codes: np.ndarray, order: np.ndarray, is_test: np.ndarray, count: int = NEIGHBOURS
) -> tuple[np.ndarray, np.ndarray]:
    """The test rows (latents x tests), and for each the `count` nearest of the other rows.

    `order` are the rows sorted along each latent. The neighbours (count x latents x tests, the
    nearest first) lie on both sides of their test row in that order; the nearer of the next one
    on the left and the next one on the right is taken `count` times, and of two equally near the
    left one. Sorting once thus serves all splits and replaces a search tree.
    """
    latents, tests = len(order), int(is_test.sum())
    count = min(count, len(codes) - tests)
    among = is_test[order]
    rows, known = order[among].reshape(latents, tests), order[~among].reshape(latents, -1)
    axis = np.arange(latents)[:, None]
    sought = codes[rows, axis]
    # Sentinels further away than any other number at both ends of each latent.
    numbers = np.pad(codes[known, axis], ((0, 0), (1, 1)))
    numbers[:, 0], numbers[:, -1] = -np.inf, np.inf
    start = axis * numbers.shape[1]
    left = np.cumsum(~among, axis=1)[among].reshape(latents, tests) + start
    right = left + 1
    numbers = numbers.ravel()
    places = np.empty((count, latents, tests), dtype=np.intp)
    for place in places:
        is_left = sought - numbers[left] <= numbers[right] - sought
        place[:] = np.where(is_left, left, right)
        left -= is_left
        right += ~is_left
    # Without the two sentinels of every latent up to this one.
    return rows, known.ravel()[places - 2 * axis - 1]


ENTRY = Entry(
    question="How much better does one latent predict a factor than any other?",
    meaning=(
        "How much better one latent predicts a factor than any other does: 1 if it alone predicts "
        "it perfectly, 0 if a second one is as good."
    ),
    figure=(
        "How well each latent (row) alone predicts each factor (column): one strong cell in a "
        "column is a factor that a single latent encodes."
    ),
    takes=("codes", "factors", "variances=usage"),
    better="higher",
    maps="pooled",
)

"""SAP: how much better does the best latent predict a factor than the second best?

With S_jk how well latent j alone predicts factor k on held-out rows,

    SAP = mean over factors k of  S_first,k - S_second,k.

Range 0 to 1, but for a categorical factor of V equally likely values even an uninformative
second latent has an accuracy of 1/V, so that perfect codes score 1 - 1/V. Unchanged by the
order of the latents and by relabelling categorical values.

`flavour="zscope"`: latents in use. Categorical factors: balanced accuracy of the best
thresholds on the latent, as the paper defines it (a latent is cut into up to 64 pieces, each
of which predicts the value that is most over-represented in it). Ordinal and continuous ones:
R^2 of a straight line. Trained on two thirds of the rows, tested on the rest. With one latent
the second score is that of guessing: 1/V, or 0. Unchanged by the scale of latents, and for
categorical factors by any increasing map.
`flavour="dlib"`: all latents; for discrete factors the accuracy of a linear support vector
machine (C = 0.01, balanced classes), which cannot separate middle values and depends on the
scale of the latent; for continuous ones the squared correlation on the training rows.

Kumar, Sattigeri & Balakrishnan, "Variational inference of disentangled latent concepts
from unlabeled observations", ICLR 2018, section 3.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.explicitness import r_squared
from zscope.assays.disentanglement.logistic import ignore_fit_warnings
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

__all__ = ["sap"]

PIECES = 64


@accepts_recording
def sap(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_factor (gaps), .matrix (how well each latent alone predicts each factor)."""
    sample, flags = prepare("sap", codes, factors, kinds)
    ours = flavour == "zscope"
    if ours:
        texts = [
            f"{values} values: the gap can be at most about {1 - 1 / values:.2f}."
            if kind == "categorical"
            else ""
            for kind, values in zip(sample.kinds, sample.labels.max(0) + 1, strict=True)
        ]
        flags += sample.flag_factors("has", "have", texts)
    return compute_score(
        Score,
        "sap",
        _with_thresholds if ours else _with_svm,
        sample,
        used_latents("sap", sample, variances) if ours else all_latents(sample),
        flags,
        flavour=flavour,
        meaning="held-out accuracy or R²",
        resamples=resamples,
        generator=generator,
        permutations=20 if ours else 1,
    )


def _with_thresholds(sample: Sample, _: np.random.Generator) -> Estimate:
    train, test = sample.split()
    codes = sample.codes
    pieces = [_pieces(codes[:, j], train, test) for j in range(codes.shape[1])]
    matrix = np.zeros((codes.shape[1], len(sample.columns)))
    guesses = np.zeros(len(sample.columns))
    for place, kind in enumerate(sample.kinds):
        if kind == "categorical":
            labels = sample.labels[:, place]
            guesses[place] = 1 / len(np.unique(labels[test]))
            matrix[:, place] = [
                _balanced_accuracy(*piece, labels[train], labels[test]) for piece in pieces
            ]
        else:
            values = sample.factors[:, place]
            matrix[:, place] = [
                _straight_line(codes[:, j], values, train, test) for j in range(codes.shape[1])
            ]
    return _estimate(matrix, guesses)


def _estimate(matrix: np.ndarray, guesses: np.ndarray) -> Estimate:
    _, top, second = top_two(matrix)
    # A single latent can be worse than guessing by chance; its gap is 0 then.
    gaps = np.maximum(top - guesses, 0) if len(matrix) == 1 else top - second
    return Estimate(float(gaps.mean()), gaps, matrix.max(1), matrix)


def _pieces(code: np.ndarray, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The piece of the latent's axis that each training row and each test row is in.

    Edges are half-way between neighbouring training values, so that a discrete latent with
    up to 64 values has one value in each piece.
    """
    ordered = np.sort(code[train])
    distinct = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    if len(distinct) <= PIECES:
        edges = (distinct[1:] + distinct[:-1]) / 2
    else:
        edges = np.unique(ordered[np.arange(1, PIECES) * len(ordered) // PIECES])
    return (
        np.searchsorted(edges, code[train], side="right"),
        np.searchsorted(edges, code[test], side="right"),
    )


def _balanced_accuracy(
    train_pieces: np.ndarray, test_pieces: np.ndarray, train: np.ndarray, test: np.ndarray
) -> float:
    """The mean over the values of the share of their rows that are predicted correctly."""
    values = int(max(train.max(), test.max())) + 1
    counts = np.bincount(train_pieces * values + train, minlength=PIECES * values)
    shares = counts.reshape(-1, values) / np.maximum(np.bincount(train, minlength=values), 1)
    predicted = shares.argmax(1)[test_pieces]
    correct = np.bincount(test, weights=predicted == test, minlength=values)
    totals = np.bincount(test, minlength=values)
    return float((correct[totals > 0] / totals[totals > 0]).mean())


def _straight_line(
    code: np.ndarray, values: np.ndarray, train: np.ndarray, test: np.ndarray
) -> float:
    centred = code[train] - code[train].mean()
    scale = np.square(centred).sum()
    slope = (centred * values[train]).sum() / scale if scale > 0 else 0.0
    predicted = values[train].mean() + slope * (code[test] - code[train].mean())
    return r_squared(values[test], predicted)


def _with_svm(sample: Sample, _: np.random.Generator) -> Estimate:
    from sklearn.svm import LinearSVC

    train, test = sample.split()
    matrix = np.zeros((sample.codes.shape[1], len(sample.columns)))
    for j in range(len(matrix)):
        code = sample.codes[:, j : j + 1]
        for place, kind in enumerate(sample.kinds):
            if kind == "continuous":
                matrix[j, place] = _squared_correlation(
                    code[train, 0], sample.factors[train, place]
                )
                continue
            labels = sample.labels[:, place]
            if (labels[train] == labels[train[0]]).all():
                matrix[j, place] = np.mean(labels[test] == labels[train[0]])
                continue
            svm = LinearSVC(C=0.01, class_weight="balanced", random_state=0)
            with ignore_fit_warnings():
                svm.fit(code[train], labels[train])
            matrix[j, place] = np.mean(svm.predict(code[test]) == labels[test])
    return _estimate(matrix, np.zeros(len(sample.columns)))


def _squared_correlation(code: np.ndarray, values: np.ndarray) -> float:
    covariance = np.cov(code, values)
    if covariance[0, 0] <= 1e-12 or covariance[1, 1] == 0:
        return 0.0
    return float(covariance[0, 1] ** 2 / (covariance[0, 0] * covariance[1, 1]))


ENTRY = Entry(
    question="How much better does the best latent predict a factor than the second best?",
    meaning=(
        "How much better the best latent predicts a factor than the second best one: 0 if two "
        "latents are equally good, or none is."
    ),
    figure=(
        "How well each latent (row) alone predicts each factor (column): one strong cell in a "
        "column is a factor that a single latent encodes."
    ),
    takes=("codes", "factors", "variances=usage"),
    better="higher",
    title="SAP",
    maps="pooled",
)

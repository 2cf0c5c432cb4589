"""Explicitness: can a linear classifier predict the factors from the codes?

For each categorical factor a multinomial logistic regression on standardised codes is
trained on two thirds of the rows to predict its values. On the other third, the area under
the ROC curve of each value against all others is averaged over the values,

    explicitness = mean over factors of  2 AUC - 1,

0 for guessing and 1 for codes that separate every value. For ordinal and continuous factors
it is R^2 of a linear regression on the held-out rows (0 if negative). Unchanged by the order,
the scale and the offset of the latents and by relabelling categorical values. Rotating the
codes hardly changes it: on its own it does not measure disentanglement.

`flavour="zscope"`: as above; a value missing from either part of the split is left out
(flagged); the split is the same for all factors. `flavour="raw"`: AUC itself, .5 for guessing.
`flavour="dlib"`: AUC itself, with the values of every factor as classes.

Linear classifiers with the usual penalty cannot fully separate many values along one
direction, so that codes equal to a factor of 40 values score below 1 (flagged).

Ridgeway & Mozer, "Learning deep disentangled embeddings with the F-statistic loss",
NeurIPS 2018, section 3.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.logistic import logistic_regression
from zscope.assays.disentanglement.score import Estimate, Score, compute_score
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    Variances,
    prepare,
    used_latents,
    varying_latents,
)

__all__ = ["explicitness"]


@accepts_recording
def explicitness(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "raw", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_factor, .matrix (size of the standardised weights, shares per factor)."""
    sample, flags = prepare("explicitness", codes, factors, kinds)
    if flavour == "dlib":
        flags += sample.class_flags()
    else:
        texts = [
            f"{values} values: a linear classifier with the usual penalty cannot fully separate "
            "that many along one direction."
            if kind == "categorical" and values > 10
            else ""
            for kind, values in zip(sample.kinds, sample.labels.max(0) + 1, strict=True)
        ]
        flags += sample.flag_factors("has", "have", texts)
    use_types = flavour != "dlib" and variances is not None
    return compute_score(
        Score,
        "explicitness",
        partial(_explicitness, flavour=flavour),
        sample,
        used_latents("explicitness", sample, variances) if use_types else varying_latents(sample),
        flags,
        flavour=flavour,
        meaning="share of the weights",
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def _explicitness(sample: Sample, _: np.random.Generator, *, flavour: str) -> Estimate:
    train, test = sample.split()
    codes = standardise(sample.codes, train)
    scores = np.zeros(len(sample.columns))
    weights = np.zeros((codes.shape[1], len(sample.columns)))
    flags = []
    for place, kind in enumerate(sample.kinds):
        if flavour != "dlib" and kind != "categorical":
            values = sample.factors[:, place]
            scores[place], weights[:, place] = linear_fit(codes, values, train, test)
            continue
        labels = sample.values[:, place] if flavour == "dlib" else sample.labels[:, place]
        model = logistic_regression(codes[train], labels[train])
        area, missing = mean_area(model.predict_proba(codes[test]), model.classes_, labels[test])
        if missing:
            flags.append(
                f"{missing} values of factor {sample.factor_words[place]} are missing from one "
                "part of the split and were left out."
            )
        scores[place] = max(0.0, 2 * area - 1) if flavour == "zscope" else area
        if hasattr(model, "coef_"):
            weights[:, place] = np.abs(model.coef_).mean(0)
    weights /= np.maximum(weights.sum(0), 1e-300)
    return Estimate(float(scores.mean()), scores, (weights * scores).max(1), weights, flags)


def standardise(codes: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1 on the training rows; constant columns become 0."""
    mean, spread = codes[train].mean(0), codes[train].std(0)
    scaled: np.ndarray = (codes - mean) / np.where(spread > 0, spread, 1)
    return scaled


def linear_fit(
    codes: np.ndarray, values: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[float, np.ndarray]:
    """R^2 on the test rows of a least squares fit to the training rows, and its |weights|."""
    design = np.column_stack([codes, np.ones(len(codes))])
    weights = np.linalg.lstsq(design[train], values[train], rcond=None)[0]
    return r_squared(values[test], design[test] @ weights), np.abs(weights[:-1])


def r_squared(values: np.ndarray, predicted: np.ndarray) -> float:
    """1 - squared error / variance; 0 if negative or if the values do not vary."""
    spread = np.square(values - values.mean()).sum()
    return max(0.0, 1 - float(np.square(values - predicted).sum() / spread)) if spread else 0.0


def mean_area(
    probabilities: np.ndarray, classes: np.ndarray, labels: np.ndarray
) -> tuple[float, int]:
    """The mean area under the ROC curve of the classes in both parts, and how many are not.

    The area is the share of pairs (one row of the class, one of the others) in the right
    order, ties counting half: from the ranks of the rows, as in the Mann-Whitney test.
    """
    from scipy.stats import rankdata

    areas = []
    for place, label in enumerate(classes):
        inside = labels == label
        count = int(inside.sum())
        if 0 < count < len(labels):
            ranks = rankdata(probabilities[:, place])
            pairs = count * (len(labels) - count)
            areas.append((ranks[inside].sum() - count * (count + 1) / 2) / pairs)
    missing = len(np.union1d(classes, labels)) - len(areas)
    return (float(np.mean(areas)), missing) if areas else (0.5, missing)


ENTRY = Entry(
    question="Can a linear classifier predict the factors from the codes?",
    meaning=(
        "1 if a linear classifier predicts every factor from the codes, 0 if it does no better "
        "than guessing; it does not ask for one latent for each factor."
    ),
    figure="The share that each latent (row) has in predicting each factor (column).",
    takes=("codes", "factors", "variances=usage"),
    better="higher",
    maps="pooled",
)

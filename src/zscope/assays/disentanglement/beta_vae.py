"""BetaVAE score: can a linear classifier tell which factor a set of pairs has in common?

The two rows of a pair share the value of one factor. The mean of |code - code'| over 64 pairs
for the same factor (any value) is a point, and its label is the index of that factor. A
logistic regression is trained on 10,000 points; the score is its accuracy on 5,000 more.
Range 0 to 1; uninformative codes get about 1 / factors (see `chance`), and exactly this if no
latent is in use. With one factor it is undefined. Unchanged by the order of the latents and by
relabelling values.

The classifier can combine latents, so that a rotated representation loses less than in the
FactorVAE score: this score demands less.

A pair consists of two different rows: pairs of a row with itself would be frequent in small
groups and so reveal the factor, whatever the codes. `flavour="zscope"`: latents in use, each
scaled by its standard deviation, so that the score does not depend on their scale.
`flavour="dlib"`: all latents, unscaled.

Higgins et al., "beta-VAE: learning basic visual concepts with a constrained variational
framework", ICLR 2017 (openreview:Sy2fzU9gl), the disentanglement metric.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.factor_vae import (
    AT_ONCE,
    BATCH,
    TEST,
    TRAIN,
    Groups,
    group_flags,
)
from zscope.assays.disentanglement.logistic import logistic_regression
from zscope.assays.disentanglement.score import Estimate, Score, compute_score, require_two_factors
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    Variances,
    all_latents,
    prepare,
    used_latents,
)

__all__ = ["beta_vae_score"]

CACHED_NUMBERS = 2**17  # 1 MB


@accepts_recording
def beta_vae_score(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_factor (accuracy on pairs that share it), .matrix (mean differences)."""
    sample, flags = prepare("beta_vae_score", codes, factors, kinds)
    require_two_factors("beta_vae_score", sample)
    flags += group_flags("beta_vae_score", sample)
    ours = flavour == "zscope"
    return compute_score(
        Score,
        "beta_vae_score",
        lambda part, rng: _accuracy(part, rng, scaled=ours),
        sample,
        used_latents("beta_vae_score", sample, variances) if ours else all_latents(sample),
        flags,
        flavour=flavour,
        meaning="mean difference within pairs",
        resamples=resamples,
        generator=generator,
        permutations=1,
        guess=1 / len(sample.columns),
    )


def _accuracy(sample: Sample, rng: np.random.Generator, *, scaled: bool) -> Estimate:
    codes = sample.codes
    if scaled:
        spread = codes.std(0)
        codes = (codes - codes.mean(0)) / np.where(spread > 0, spread, 1)
        codes = codes.astype(np.float32)  # enough for differences of standard size, and faster
    train, train_labels = difference_features(sample, codes, TRAIN, rng)
    test, test_labels = difference_features(sample, codes, TEST, rng)
    predicted = logistic_regression(train, train_labels).predict(test)
    correct = predicted == test_labels
    factors = range(len(sample.columns))
    # Of thousands of factors some are never drawn: their accuracy is 0.
    test_counts = np.maximum(np.bincount(test_labels, minlength=len(factors)), 1)
    accuracies = np.bincount(test_labels, weights=correct, minlength=len(factors)) / test_counts
    train_counts = np.maximum(np.bincount(train_labels, minlength=len(factors)), 1)
    matrix = np.stack([train[train_labels == k].sum(0) / train_counts[k] for k in factors], 1)
    # A latent encodes the factor it differs least in: 1 - smallest / largest difference.
    largest = np.maximum(matrix.max(1), 1e-300)
    return Estimate(float(correct.mean()), accuracies, 1 - matrix.min(1) / largest, matrix)


def difference_features(
    sample: Sample, codes: np.ndarray, total: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """`total` points, each the mean |difference| of 64 pairs, and the factor they share."""
    labels = np.sort(rng.integers(len(sample.columns), size=total))
    points = np.empty((total, codes.shape[1]))
    place = 0
    for k, values in enumerate(sample.labels.T):
        groups = Groups.of(values)
        weights = groups.counts / groups.counts.sum()
        count = int((labels == k).sum())
        for start in range(0, count, AT_ONCE):
            size = min(AT_ONCE, count - start)
            shared = rng.choice(len(weights), size=size * BATCH, p=weights)
            first, second = groups.pairs(shared, rng)
            points[place : place + size] = _mean_differences(codes, first, second)
            place += size
    return points, labels


def _mean_differences(codes: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The mean |difference| of every 64 pairs of rows."""
    latents = codes.shape[1]
    points = np.empty((len(first) // BATCH, latents))
    step = max(1, CACHED_NUMBERS // (BATCH * latents))
    for start in range(0, len(points), step):
        rows = slice(start * BATCH, (start + step) * BATCH)
        gaps = np.take(codes, first[rows], axis=0)
        gaps -= np.take(codes, second[rows], axis=0)
        np.abs(gaps, out=gaps)
        means = np.einsum("pbj->pj", gaps.reshape(-1, BATCH, latents)) / BATCH
        points[start : start + step] = means
    return points


ENTRY = Entry(
    question="Can a linear classifier tell which factor a set of pairs has in common?",
    meaning=(
        "How often a linear classifier tells from differences of codes which factor was fixed: 1 "
        "for always; guessing gives about one over the number of factors."
    ),
    figure=(
        "How much each latent (row) differs within pairs that share a factor (column): a faint "
        "cell is a latent that the factor keeps still."
    ),
    takes=("codes", "factors", "variances=usage"),
    needs=("two factors",),
    better="higher",
    title="β-VAE score",
    maps="pooled",
)

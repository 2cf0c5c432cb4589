"""Modularity: does each latent depend on a single factor?

With m_jk the information of latent j about factor k (nats) and K factors,

    modularity_j = 1 - (sum_k m_jk^2 - max_k m_jk^2) / (max_k m_jk^2 (K - 1)),

averaged over latents. Range 0 to 1. Unchanged by the order of the latents, by any increasing
map of a latent and by relabelling values. It depends neither on how much information a latent
has nor on whether several latents encode the same factor: read it with explicitness.

`flavour="zscope"`: m is the information above chance; latents with no more information about
any factor than noise are left out; without an informative latent the score is 0 (flagged).
The square of an estimate is too large on average, and the largest of several estimates even
more so: latents equally informative about all factors, whose modularity is 0, would score .4
if they are weak. So the sampling variance v of m is subtracted from each m^2, and the best
factor of a latent is chosen by m + e and measured by m - e, with noise e of variance v: these
are independent, like two halves of the rows (Rasines & Young, "Splitting strategies for
post-selection inference", Biometrika 110(3), 2023, section 2). Single latents are kept
between -1 and 1, their mean between 0 and 1. Where the best factor of a latent cannot be
determined, this is too low rather than too high; latents whose modularity has a standard error
above .2 are flagged.
`flavour="dlib"`: plug-in information from 20 equal-width bins, all latents; a latent without
information counts as 0. As the plug-in estimate is never exactly 0, ten latents of noise
score about .66, and passive latents move the score towards that.

With one factor it is undefined: every informative latent would score 1.

Ridgeway & Mozer, "Learning deep disentangled embeddings with the F-statistic loss",
NeurIPS 2018, section 3.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.score import Estimate, Score, compute_score, require_two_factors
from zscope.assays.entry import Entry
from zscope.assays.information import ratio
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    Variances,
    all_latents,
    prepare,
    used_latents,
)
from zscope.results import subject

__all__ = ["modularity"]

DRAWS = 200  # of the noise that separates choosing a factor from measuring it
LARGEST_ERROR = 0.2


@accepts_recording
def modularity(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_latent (modularity of each latent), .matrix (information, nats)."""
    sample, flags = prepare("modularity", codes, factors, kinds)
    require_two_factors("modularity", sample)
    ours = flavour == "zscope"
    return compute_score(
        Score,
        "modularity",
        _above_chance if ours else _plain,
        sample,
        used_latents("modularity", sample, variances) if ours else all_latents(sample),
        flags + ([] if ours else sample.class_flags()),
        flavour=flavour,
        meaning="information above chance, nats" if ours else "plug-in information, nats",
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def _above_chance(sample: Sample, rng: np.random.Generator) -> Estimate:
    info = sample.information
    informative = info.informative
    flags = []
    silent = [j for j, used in zip(sample.latents, informative, strict=True) if not used]
    if silent:
        flags.append(
            f"{subject('Latent', silent)} no more informative about any factor than noise and left "
            "out."
        )
    if not informative.any():
        flags.append("No latent is informative, so the score is 0 by definition.")
        return Estimate(0.0, info.share.max(0), np.zeros(len(informative)), info.excess, flags)
    each, error = debiased_modularity(
        (info.plain - info.chance)[informative], info.variance[informative], rng
    )
    weak = [sample.latents[j] for j in np.flatnonzero(informative)[error > LARGEST_ERROR]]
    if weak:
        flags.append(
            f"{subject('Latent', weak)} only weakly informative: with {len(sample)} samples the "
            f"standard error of their modularity is above {LARGEST_ERROR:g}."
        )
    per_latent = np.zeros(len(informative))
    per_latent[informative] = np.clip(each, 0, 1)
    return Estimate(
        float(each.mean()), info.share.max(0), per_latent, info.excess, flags, clip=True
    )


def _plain(sample: Sample, _: np.random.Generator) -> Estimate:
    info = sample.plain_information
    per_latent = modularity_of_codes(info.plain)
    shares = (info.plain / info.factor_entropy).max(0)
    return Estimate(float(per_latent.mean()), shares, per_latent, info.plain)


def debiased_modularity(
    information: np.ndarray, variance: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The modularity of each row, unbiased but within -1 and 1, and its standard error.

    `information` has these sampling variances; entries at chance are 0 on average.
    """
    factors = information.shape[1]
    # Relative to the largest of each latent, as `ratio` would treat small squares as 0.
    top = information.max(1, keepdims=True)
    shares, variance = information / top, variance / top**2
    # The same noise for every latent, so that their order does not matter.
    noise = rng.standard_normal((DRAWS, 1, factors))
    noise = noise / np.sqrt(np.square(noise).mean(0)) * np.sqrt(variance)
    best = np.zeros(len(shares))
    for e in (noise, -noise):
        chosen = (shares + e).argmax(-1)[..., None]
        squares = np.square(shares - e) - 2 * variance
        best += np.take_along_axis(squares, chosen, -1)[..., 0].mean(0) / 2
    total = (np.square(shares) - variance).sum(1)
    rest = ratio(total - best, best * max(1, factors - 1))
    # Below half of the mean square, the best factor is not determined.
    each = np.where(best > total / (2 * factors), np.clip(1 - rest, -1, 1), -1)
    # To first order: d modularity / d m_k = -2 m_k / (K - 1), for the best factor the sum of
    # the others.
    slopes = 2 * shares / max(1, factors - 1)
    slopes[np.arange(len(shares)), shares.argmax(1)] *= np.square(shares).sum(1) - 1
    return each, np.sqrt((np.square(slopes) * variance).sum(1))


def modularity_of_codes(information: np.ndarray) -> np.ndarray:
    """The formula above for each row; 0 for a latent without information."""
    # Relative to the largest of each latent, as `ratio` would treat small squares as 0.
    squares = np.square(ratio(information, information.max(1, keepdims=True)))
    best = squares.max(1)
    rest = ratio(squares.sum(1) - best, best * max(1, squares.shape[1] - 1))
    return np.where(best > 0, 1 - rest, 0)


ENTRY = Entry(
    question="Does each latent depend on a single factor?",
    meaning=(
        "1 if each latent is informative about one factor only, however much it tells about it; "
        "read it together with explicitness."
    ),
    figure=(
        "What each latent (row) tells about each factor (column): one strong cell in a row is a "
        "latent for one factor."
    ),
    takes=("codes", "factors", "variances=usage"),
    needs=("two factors",),
    better="higher",
    maps="pooled",
)

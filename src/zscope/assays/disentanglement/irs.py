"""IRS: does a latent stay fixed while its factor is fixed and everything else changes?

For latent j and factor k, the largest |code - group mean| among the rows that share a value
of the factor, averaged over its values, is compared with the largest deviation overall:

    M_jk = 1 - mean over values v of  max_{y_k = v} |z_j - E[z_j | y_k = v]|
               / max |z_j - E[z_j]|,
    IRS  = sum_j w_j max_k M_jk / sum_j w_j,    w_j = max |z_j - E[z_j]|.

Range 0 to 1. Unchanged by the order of the latents, by relabelling values, and by scaling all
latents together; because of the weights it depends on the scales of single latents. Groups
are smaller than the whole, so noise does not score 0: compare with `chance`. Maxima grow with
the number of rows, in groups and overall: the interval is about the score of this many samples,
not that of many more (flagged), and for codes with heavy tails it covers about 90 % of that.

`flavour="zscope"`: the maximum, as in the paper; latents in use; discrete factors not binned,
continuous ones in 20 bins; values that occur in fewer than 10 rows left out and counted in
`small_groups`.
`flavour="dlib"`: the 99 % quantile in the numerator only, every factor re-binned to 20
equal-width bins, all latents that are not constant. Noise then scores about .36, and codes
with few values can score slightly below 0.

Suter et al., "Robustly disentangled causal mechanisms: validating deep representations for
interventional robustness", ICML 2019, the interventional robustness score.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.score import Estimate, Score, compute_score
from zscope.assays.entry import Entry
from zscope.assays.halves import size_flag
from zscope.assays.information import width_bins
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    Variances,
    order_of,
    prepare,
    used_latents,
    varying_latents,
)
from zscope.errors import Undefined

__all__ = ["IRS", "irs"]

SMALLEST_GROUP = 10


@dataclass(frozen=True, eq=False)
class IRS(Score):
    """Interventional robustness, with the number of values that were too rare to use."""

    parents: list[int] = field(default_factory=list)  # per latent, its most robust factor
    groups: int = 0  # values used, summed over factors
    small_groups: int = 0  # values left out because of too few rows


@accepts_recording
def irs(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> IRS:
    """.score, .per_latent (row maxima), .parents, .matrix (robustness of each pair)."""
    sample, flags = prepare("irs", codes, factors, kinds)
    ours = flavour == "zscope"
    if ours:
        largest = max(int(np.bincount(labels).max()) for labels in sample.labels.T)
        if largest < SMALLEST_GROUP:
            raise Undefined(
                f"irs: no value of any factor occurs in {SMALLEST_GROUP} rows or more (at most "
                f"{largest} of {len(sample)}), so no factor can be fixed. Are these factors "
                "continuous? Say so with kinds='continuous', or record more samples."
            )
        text = "continuous: fixed to a bin only, so that a perfect latent scores slightly below 1."
        flags += sample.flag_factors(
            "is", "are", [text if kind == "continuous" else "" for kind in sample.kinds]
        )
    if resamples:
        flags.append(size_flag(len(sample), "maxima grow with the number of rows"))
    used = used_latents("irs", sample, variances) if ours else varying_latents(sample)
    return compute_score(
        IRS,
        "irs",
        _by_maximum if ours else _by_quantile,
        sample,
        used,
        flags,
        flavour=flavour,
        meaning="robustness",
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def _by_maximum(sample: Sample, _: np.random.Generator) -> Estimate:
    codes = np.ascontiguousarray(sample.codes.T)
    deviations, groups, small = [], 0, 0
    for labels in sample.labels.T:
        counts = np.bincount(labels)
        large = counts >= SMALLEST_GROUP
        groups, small = groups + int(large.sum()), small + int(((counts > 0) & ~large).sum())
        deviations.append(_largest_in_groups(codes, labels, counts, large))
    more = {"groups": groups, "small_groups": small}
    flags = []
    if small:
        flags.append(
            f"{small} of {groups + small} values of factors occur in fewer than "
            f"{SMALLEST_GROUP} rows and were left out."
        )
    # The mean of a group can be further from its extremes than the overall mean.
    mean = codes.mean(1)
    overall = np.maximum(codes.max(1) - mean, mean - codes.min(1))
    return _estimate(sample, np.minimum(np.stack(deviations, 1), overall[:, None]), more, flags)


def _largest_in_groups(
    codes: np.ndarray, labels: np.ndarray, counts: np.ndarray, large: np.ndarray
) -> np.ndarray:
    """For each latent (row) the largest |code - group mean|, averaged over the large groups."""
    if not large.any():
        overall: np.ndarray = np.abs(codes - codes.mean(1, keepdims=True)).max(1)
        return overall
    order, present = order_of(labels), counts > 0
    starts = (np.cumsum(counts) - counts)[present]
    largest = np.empty(len(codes))
    for j, code in enumerate(codes):  # one by one, since they fit a processor's cache
        ordered = np.take(code, order)
        mean = np.add.reduceat(ordered, starts) / counts[present]
        above = np.maximum.reduceat(ordered, starts) - mean
        below = mean - np.minimum.reduceat(ordered, starts)
        largest[j] = np.maximum(np.maximum(above, below)[large[present]], 0).mean()
    return largest


def _by_quantile(sample: Sample, _: np.random.Generator) -> Estimate:
    deviations, groups = [], 0
    for labels in width_bins(sample.factors).T:
        values = np.unique(labels)
        groups += len(values)
        quantiles = []
        for value in values:
            rows = sample.codes[labels == value]
            quantiles.append(np.quantile(np.abs(rows - rows.mean(0)), 0.99, axis=0))
        deviations.append(np.mean(quantiles, axis=0))
    return _estimate(sample, np.stack(deviations, 1), {"groups": groups, "small_groups": 0}, [])


def _estimate(
    sample: Sample, deviations: np.ndarray, more: dict[str, int], flags: list[str]
) -> Estimate:
    mean = sample.codes.mean(0)
    largest = np.maximum(sample.codes.max(0) - mean, mean - sample.codes.min(0))
    safe = np.where(largest > 0, largest, 1)
    # A latent that is constant (in a half of the rows, for example) is robust for no factor.
    matrix = np.where(largest[:, None] > 0, 1 - deviations / safe[:, None], 0)
    best = matrix.max(1)
    score = float((largest * best).sum() / largest.sum()) if largest.any() else 0.0
    parents = [sample.columns[k] for k in matrix.argmax(1)]
    return Estimate(score, matrix.max(0), best, matrix, flags, {"parents": parents, **more})


ENTRY = Entry(
    question="Does a latent stay fixed while its factor is fixed and everything else changes?",
    meaning=(
        "1 if a latent stays where it is while its factor is fixed and everything else changes; "
        "compare it with chance, which is well above 0 for this score."
    ),
    figure=(
        "How little each latent (row) moves while a factor (column) is fixed: a strong cell is a "
        "latent that only this factor moves."
    ),
    takes=("codes", "factors", "variances=usage"),
    better="higher",
    title="IRS",
    maps="pooled",
)

"""MCC: can latents and factors be matched one to one so that each pair is correlated?

    MCC = (1 / factors) max over matchings of  sum |corr(z_j, y_k)|

with every latent and every factor matched at most once (optimal assignment); a factor
without a latent counts as 0. Range 0 to 1: the usual measure of identifiability.
Unchanged by the order and the sign of the latents and by any linear map of each.

`flavour="linear"`: Pearson's correlation, 1 for codes identified up to scale and offset.
`flavour="rank"`: Spearman's, 1 for codes identified up to any monotone map of each.

Constant latents are left out; uninformative latents have no effect except on `chance`. The
values of a categorical factor are treated as ordered (flagged), so that relabelling them
changes the score.

Hyvärinen & Morioka, "Unsupervised feature extraction by time-contrastive learning and
nonlinear ICA", NeurIPS 2016; Khemakhem et al., "Variational autoencoders and nonlinear
ICA: a unifying framework", AISTATS 2020, the mean correlation coefficient.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
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
from zscope.results import subject

__all__ = ["MCC", "mcc"]


@dataclass(frozen=True, eq=False)
class MCC(Score):
    """The mean correlation coefficient with the matching that attains it."""

    matching: dict[int, int] = field(default_factory=dict)  # factor -> latent


@accepts_recording
def mcc(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["linear", "rank"] = "linear",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> MCC:
    """.score, .matching (factor to latent), .per_factor, .matrix (absolute correlations)."""
    sample, flags = prepare("mcc", codes, factors, kinds)
    unordered = [
        name
        for name, kind, values in zip(
            sample.factor_words, sample.kinds, sample.labels.max(0) + 1, strict=True
        )
        if kind == "categorical" and values > 2
    ]
    if unordered:
        flags.append(f"{subject('Factor', unordered)} categorical but treated as ordered.")
    return compute_score(
        MCC,
        "mcc",
        partial(_match, ranks=flavour == "rank"),
        sample,
        varying_latents(sample) if variances is None else used_latents("mcc", sample, variances),
        flags,
        flavour=flavour,
        meaning="absolute correlation",
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def _match(sample: Sample, _: np.random.Generator, *, ranks: bool) -> Estimate:
    from scipy.optimize import linear_sum_assignment

    matrix = correlations(sample.codes, sample.factors, ranks=ranks)
    rows, columns = linear_sum_assignment(-matrix)
    per_factor = np.zeros(len(sample.columns))
    per_factor[columns] = matrix[rows, columns]
    matching = {sample.columns[k]: sample.latents[j] for j, k in zip(rows, columns, strict=True)}
    words = zip(sample.columns, sample.factor_words, strict=True)
    missing = [name for k, name in words if k not in matching]
    flags = []
    if missing:
        flags.append(f"{subject('Factor', missing, 'has', 'have')} no latent, counted as 0.")
    per_latent = np.zeros(len(matrix))
    per_latent[rows] = matrix[rows, columns]
    more = {"matching": matching}
    return Estimate(float(per_factor.mean()), per_factor, per_latent, matrix, flags, more)


def correlations(first: np.ndarray, second: np.ndarray, *, ranks: bool) -> np.ndarray:
    """|correlation| of the columns of two matrices; 0 for constant columns."""
    if ranks:
        from scipy.stats import rankdata

        first, second = rankdata(first, axis=0), rankdata(second, axis=0)
    left, right = first - first.mean(0), second - second.mean(0)
    sizes = np.outer(np.linalg.norm(left, axis=0), np.linalg.norm(right, axis=0))
    products = np.abs(left.T @ right)
    return np.where(sizes > 0, np.minimum(products / np.where(sizes > 0, sizes, 1), 1), 0)


ENTRY = Entry(
    question="Can latents and factors be matched one to one so that each pair is correlated?",
    meaning=(
        "The mean correlation of factors and latents, matched one to one: 1 if every factor is "
        "recovered up to scale and sign."
    ),
    figure=(
        "The correlation of each latent (row) with each factor (column), without sign: one strong "
        "cell in each column is a factor that was recovered."
    ),
    takes=("codes", "factors", "variances=usage"),
    better="higher",
    title="MCC",
    maps="pooled",
)

"""MIG: is each factor encoded in one latent only?

    MIG = mean over factors k of  (I(z_first; y_k) - I(z_second; y_k)) / H(y_k)

with the two latents that have most information about factor k. Range 0 to 1. Unchanged by
the order of the latents, by any increasing map of a latent and by relabelling the values of
factors. A factor encoded equally in two latents scores 0, however well each encodes it.

`flavour="zscope"`: passive latents are left out, codes are cut into 20 quantile bins, and
chance is subtracted: (I_first - I0) - (I_second - I0) over H - I0, where I0 is the mean
information over all permutations of the rows. With one latent the second term is 0. A
factor of more than 20 values cannot reach 1 (a flag gives the maximum).
`flavour="dlib"`: the library of Locatello et al.: all latents, 20 equal-width bins between
minimum and maximum, plug-in information. A single outlier makes such bins useless.

Both use the codes passed (usually posterior means). Chen et al. use samples of q(z | x), so
that their numbers are lower.

Chen et al., "Isolating sources of disentanglement in VAEs", NeurIPS 2018, the definition of
MIG; Zietlow, PhD thesis, University of Tübingen, 2022, eq. 2.8.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.score import Estimate, Score, information_score
from zscope.assays.entry import Entry
from zscope.assays.information import Information, ratio
from zscope.assays.matrices import Array
from zscope.assays.sample import Sample, Variances

__all__ = ["mig"]


@accepts_recording
def mig(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """The mutual information gap: .score, .per_factor (gaps), .matrix (information, nats)."""
    return information_score(
        "mig",
        _gaps,
        _plain_gaps,
        codes,
        factors,
        flavour=flavour,
        variances=variances,
        kinds=kinds,
        resamples=resamples,
        generator=generator,
    )


def _gaps(sample: Sample, _: np.random.Generator) -> Estimate:
    info = sample.information
    first, top, second = top_two(info.excess)
    gaps = ratio(top - second, largest_excess(info, first))
    return Estimate(float(gaps.mean()), gaps, info.share.max(1), info.excess)


def _plain_gaps(sample: Sample, _: np.random.Generator) -> Estimate:
    info = sample.plain_information
    top, second = top_two(info.plain)[1:]
    gaps = (top - second) / info.factor_entropy
    shares = (info.plain / info.factor_entropy).max(1)
    return Estimate(float(gaps.mean()), gaps, shares, info.plain)


def largest_excess(info: Information, latents: np.ndarray) -> np.ndarray:
    """H - I0 of each factor with its latent: the largest possible information above chance."""
    excess: np.ndarray = info.factor_entropy - info.chance[latents, np.arange(len(latents))]
    return excess


def top_two(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each column: the row of the largest entry, that entry, and the second largest.

    With a single row the second largest is 0.
    """
    first = matrix.argmax(0)
    top = matrix[first, np.arange(matrix.shape[1])]
    if len(matrix) == 1:
        return first, top, np.zeros_like(top)
    return first, top, np.partition(matrix, -2, axis=0)[-2]


ENTRY = Entry(
    question="Is each factor encoded in one latent only?",
    meaning=(
        "1 if each factor is known from one latent and from no other; 0 if a second latent tells "
        "as much about it, or none tells anything."
    ),
    figure=(
        "What each latent (row) tells about each factor (column): one strong cell in a column is a "
        "factor that a single latent encodes."
    ),
    takes=("codes", "factors", "variances=usage"),
    better="higher",
    title="MIG",
    maps="pooled",
)

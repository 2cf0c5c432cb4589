"""MIG: is each factor found in one code, and in one only?

    MIG = mean over factors k of  (I(z_first; y_k) - I(z_second; y_k)) / H(y_k)

with the two codes that tell most about factor k. Range 0 to 1. Unchanged by the order of
the latents, by any increasing map of a latent and by relabelling the values of factors.
A factor written into two codes scores 0, however well each of them tells it.

`flavour="zscope"`: passive latents are left out, codes are cut into 20 quantile bins, and
chance is taken off: (I_first - I0) - (I_second - I0) over H - I0, where I0 is the mean
information over all permutations of the rows. With one latent the second term is 0. A
factor of more than 20 values cannot reach 1 (a flag says how far it can get).
`flavour="dlib"`: the library of Locatello et al.: all codes, 20 equal-width bins between
minimum and maximum, plug-in information. One outlier row ruins such bins.

Both measure the codes as given (usually posterior means). Chen et al. measure samples
under q(z | x), so that their numbers are lower.

Chen et al., "Isolating sources of disentanglement in VAEs", NeurIPS 2018, the definition of
MIG; Zietlow, PhD thesis, University of Tübingen, 2022, eq. 2.8.
"""

from collections.abc import Sequence

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.score import Estimate, Score, scored
from zscope.assays.entry import Entry
from zscope.assays.information import Information, ratio
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    chosen,
    everything,
    prepared,
    used_latents,
)


@accepts_recording
def mig(
    codes: Array,
    factors: Array,
    *,
    flavour: str = "zscope",
    variances: Array | None = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """The mutual information gap: .score, .per_factor (gaps), .matrix (information, nats)."""
    chosen("mig", "flavour", flavour, ("zscope", "dlib"))
    sample, flags = prepared("mig", codes, factors, kinds)
    ours = flavour == "zscope"
    return scored(
        Score,
        "mig",
        _gaps if ours else _plain_gaps,
        sample,
        used_latents("mig", sample, variances) if ours else everything(sample),
        flags + (sample.limits() if ours else sample.unbinned()),
        flavour=flavour,
        meaning="information above chance, nats" if ours else "plug-in information, nats",
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def _gaps(sample: Sample, _: np.random.Generator) -> Estimate:
    found = sample.information
    first, top, second = top_two(found.excess)
    gaps = ratio(top - second, best_possible(found, first))
    return Estimate(float(gaps.mean()), gaps, found.share.max(1), found.excess)


def _plain_gaps(sample: Sample, _: np.random.Generator) -> Estimate:
    found = sample.plain_information
    top, second = top_two(found.plain)[1:]
    gaps = (top - second) / found.factor_entropy
    shares = (found.plain / found.factor_entropy).max(1)
    return Estimate(float(gaps.mean()), gaps, shares, found.plain)


def best_possible(found: Information, first: np.ndarray) -> np.ndarray:
    """H - I0 of each factor, for the code that tells most about it."""
    best: np.ndarray = found.factor_entropy - found.chance[first, np.arange(len(first))]
    return best


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
    takes=("codes", "factors", "variances=variances"),
    title="MIG",
)

"""MIG-sup: does each code tell about one factor, and about one only?

    MIG-sup = mean over latents j of  (J(z_j; y_first) - J(z_j; y_second)),
    J(z; y) = I(z; y) / H(y)

with the two factors that code j tells most about: MIG with the roles exchanged. Range 0
to 1. Unchanged by the order of the latents, by any increasing map of a latent and by
relabelling values. A factor written into two codes still scores 1; a code that mixes two
factors scores low. With one factor the second term is 0.

`flavour="zscope"`: over the latents in use, quantile bins, chance taken off, as in MIG.
`flavour="dlib"`: all codes, equal-width bins, plug-in information.

Li et al., "Progressive learning and disentanglement of hierarchical representations",
ICLR 2020 (arXiv:2002.10549), the definition of MIG-sup; J is normalised by the entropy of
the factor, as in their code (other code divides by that of the code).
"""

from collections.abc import Sequence

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.mig import top_two
from zscope.assays.disentanglement.score import Estimate, Score, scored
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    chosen,
    everything,
    prepared,
    used_latents,
)


@accepts_recording
def mig_sup(
    codes: Array,
    factors: Array,
    *,
    flavour: str = "zscope",
    variances: Array | None = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """The gap between factors for each code: .score, .per_latent (gaps), .matrix (shares)."""
    chosen("mig_sup", "flavour", flavour, ("zscope", "dlib"))
    sample, flags = prepared("mig_sup", codes, factors, kinds)
    ours = flavour == "zscope"
    return scored(
        Score,
        "mig_sup",
        _gaps if ours else _plain_gaps,
        sample,
        used_latents("mig_sup", sample, variances) if ours else everything(sample),
        flags + (sample.limits() if ours else sample.unbinned()),
        flavour=flavour,
        meaning="share of the factor's entropy",
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def _gaps(sample: Sample, _: np.random.Generator) -> Estimate:
    return _estimate(sample.information.share)


def _plain_gaps(sample: Sample, _: np.random.Generator) -> Estimate:
    found = sample.plain_information
    return _estimate(found.plain / found.factor_entropy)


def _estimate(shares: np.ndarray) -> Estimate:
    _, top, second = top_two(shares.T)
    return Estimate(float((top - second).mean()), shares.max(0), top - second, shares)


ENTRY = Entry(
    question="Does each latent carry information about one factor only?",
    takes=("codes", "factors", "variances=variances"),
    title="MIG-sup",
)

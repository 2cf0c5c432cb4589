"""MIG-sup: does each latent carry information about one factor only?

    MIG-sup = mean over latents j of  (J(z_j; y_first) - J(z_j; y_second)),
    J(z; y) = I(z; y) / H(y)

with the two factors that latent j has most information about: MIG with the roles of latents
and factors exchanged. Range 0 to 1. Unchanged by the order of the latents, by any increasing
map of a latent and by relabelling values. Two latents that encode the same factor still score
1; a latent that mixes two factors scores low. With one factor the second term is 0.

`flavour="zscope"`: latents in use, quantile bins, chance subtracted, as in MIG.
`flavour="dlib"`: all latents, equal-width bins, plug-in information.

Li et al., "Progressive learning and disentanglement of hierarchical representations",
ICLR 2020 (arXiv:2002.10549), the definition of MIG-sup; J is normalised by the entropy of
the factor, as in their code (other implementations divide by that of the latent).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.mig import top_two
from zscope.assays.disentanglement.score import Estimate, Score, information_score
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.assays.sample import Sample, Variances

__all__ = ["mig_sup"]


@accepts_recording
def mig_sup(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """The gap between factors for each latent: .score, .per_latent (gaps), .matrix (shares)."""
    return information_score(
        "mig_sup",
        _gaps,
        _plain_gaps,
        codes,
        factors,
        flavour=flavour,
        variances=variances,
        kinds=kinds,
        resamples=resamples,
        generator=generator,
        meaning="share of the factor's entropy",
    )


def _gaps(sample: Sample, _: np.random.Generator) -> Estimate:
    return _estimate(sample.information.share)


def _plain_gaps(sample: Sample, _: np.random.Generator) -> Estimate:
    info = sample.plain_information
    return _estimate(info.plain / info.factor_entropy)


def _estimate(shares: np.ndarray) -> Estimate:
    _, top, second = top_two(shares.T)
    return Estimate(float((top - second).mean()), shares.max(0), top - second, shares)


ENTRY = Entry(
    question="Does each latent carry information about one factor only?",
    meaning=(
        "1 if each latent tells about one factor and nothing about the others; unlike MIG, it "
        "allows several latents for one factor."
    ),
    figure=(
        "What each latent (row) tells about each factor (column): one strong cell in a row is a "
        "latent for one factor."
    ),
    takes=("codes", "factors", "variances=usage"),
    better="higher",
    title="MIG-sup",
    maps="pooled",
)

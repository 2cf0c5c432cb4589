"""JEMMIG: is each factor encoded in one latent that encodes nothing else?

    JEMMIG_k = H(z_first, y_k) - I(z_first; y_k) + I(z_second; y_k)

in nats; 0 is best: latent and factor then determine each other, and no other latent has
information about the factor. It is inverted and scaled, and the score is the mean over factors of

    1 - JEMMIG_k / (H(y_k) + H(z_first))
        = (2 I(z_first; y_k) - I(z_second; y_k)) / (H(y_k) + H(z_first)),

range 0 to 1. Unchanged by the order of the latents, by any increasing map of a latent
and by relabelling values. A factor encoded in two latents scores 1/2.

`flavour="zscope"`: latents in use, quantile bins, chance subtracted from every information
(and twice from the scale, so that a perfect score is 1). A factor with few values leaves the
bins of a continuous latent undetermined, so that it cannot reach 1: with 3 values and 20 bins
.54 at most. A flag gives the maximum.
`flavour="dlib"`: equal-width bins, plug-in information, all latents, scaled by H(y_k) + ln(20)
as in the review of Carbonneau et al. (IEEE TNNLS 2022). Constant latents then score up to .7.

Do & Tran, "Theory and evaluation metrics for learning disentangled representations", ICLR
2020 (arXiv:1908.09961), the definition of JEMMIG among the metrics for interpretability.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.mig import top_two
from zscope.assays.disentanglement.score import Estimate, Score, information_score
from zscope.assays.entry import Entry
from zscope.assays.information import BINS, ratio
from zscope.assays.matrices import Array
from zscope.assays.sample import Sample, Variances

__all__ = ["jemmig"]

HIGHEST = 0.99  # a maximum below this is flagged


@accepts_recording
def jemmig(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score (1 is best), .per_factor, .matrix (information, nats)."""
    return information_score(
        "jemmig",
        _above_chance,
        _plain,
        codes,
        factors,
        flavour=flavour,
        variances=variances,
        kinds=kinds,
        resamples=resamples,
        generator=generator,
    )


def _above_chance(sample: Sample, _: np.random.Generator) -> Estimate:
    info = sample.information
    first, top, second = top_two(info.excess)
    chance = info.chance[first, np.arange(len(first))]
    scale = info.factor_entropy + info.code_entropy[first] - 2 * chance
    scores = ratio(2 * top - second, scale)
    most = ratio(2 * (np.minimum(info.factor_entropy, info.code_entropy[first]) - chance), scale)
    bins = [len(np.unique(sample.bins[:, j])) for j in first]
    texts = [
        f"{values} values, and the best latent has {count} bins: the score of a factor can then be "
        f"at most {limit:.2f}."
        if values < count and limit < HIGHEST
        else ""
        for values, count, limit in zip(
            sample.labels.max(0, initial=0) + 1, bins, most, strict=True
        )
    ]
    flags = sample.flag_factors("has", "have", texts)
    return Estimate(float(scores.mean()), scores, info.share.max(1), info.excess, flags)


def _plain(sample: Sample, _: np.random.Generator) -> Estimate:
    info = sample.plain_information
    first, top, second = top_two(info.plain)
    joint = info.factor_entropy + info.code_entropy[first] - top
    scores = 1 - (joint - top + second) / (info.factor_entropy + np.log(BINS))
    shares = (info.plain / info.factor_entropy).max(1)
    return Estimate(float(scores.mean()), scores, shares, info.plain)


ENTRY = Entry(
    question="Is each factor encoded in one latent that encodes nothing else?",
    meaning=(
        "1 if each factor is encoded in one latent that encodes nothing else; 1/2 if a second "
        "latent encodes it too."
    ),
    figure=(
        "What each latent (row) tells about each factor (column): one strong cell in each row and "
        "column is the best case."
    ),
    takes=("codes", "factors", "variances=usage"),
    better="higher",
    title="JEMMIG",
    maps="pooled",
)

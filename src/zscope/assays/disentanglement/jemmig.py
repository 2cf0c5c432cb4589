"""JEMMIG: is each factor told by one code, which tells nothing else?

    JEMMIG_k = H(z_first, y_k) - I(z_first; y_k) + I(z_second; y_k)

in nats, 0 at best: the code and the factor then determine one another and no other code
knows the factor. It is reported upside down and scaled, mean over factors of

    1 - JEMMIG_k / (H(y_k) + H(z_first))
        = (2 I(z_first; y_k) - I(z_second; y_k)) / (H(y_k) + H(z_first)),

range 0 to 1. Unchanged by the order of the latents, by any increasing map of a latent
and by relabelling values. A factor written into two codes scores 1/2.

`flavour="zscope"`: the formula above over the latents in use, quantile bins, with chance
taken off every information (and twice off the scale, so that perfect is 1).
`flavour="dlib"`: equal-width bins, plug-in, all codes, scaled by H(y_k) + ln(20) as in the
review of Carbonneau et al. (IEEE TNNLS 2022). There a constant code scores up to .7.

Do & Tran, "Theory and evaluation metrics for learning disentangled representations", ICLR
2020 (arXiv:1908.09961), the definition of JEMMIG among the metrics for interpretability.
"""

from collections.abc import Sequence

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.mig import top_two
from zscope.assays.disentanglement.score import Estimate, Score, scored
from zscope.assays.entry import Entry
from zscope.assays.information import BINS, ratio
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    chosen,
    everything,
    prepared,
    used_latents,
)


@accepts_recording
def jemmig(
    codes: Array,
    factors: Array,
    *,
    flavour: str = "zscope",
    variances: Array | None = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score (1 is best), .per_factor, .matrix (information, nats)."""
    chosen("jemmig", "flavour", flavour, ("zscope", "dlib"))
    sample, flags = prepared("jemmig", codes, factors, kinds)
    ours = flavour == "zscope"
    return scored(
        Score,
        "jemmig",
        _corrected if ours else _plain,
        sample,
        used_latents("jemmig", sample, variances) if ours else everything(sample),
        flags + (sample.limits() if ours else sample.unbinned()),
        flavour=flavour,
        meaning="information above chance, nats" if ours else "plug-in information, nats",
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def _corrected(sample: Sample, _: np.random.Generator) -> Estimate:
    found = sample.information
    first, top, second = top_two(found.excess)
    chance = found.chance[first, np.arange(len(first))]
    scale = found.factor_entropy + found.code_entropy[first] - 2 * chance
    each = ratio(2 * top - second, scale)
    return Estimate(float(each.mean()), each, found.share.max(1), found.excess)


def _plain(sample: Sample, _: np.random.Generator) -> Estimate:
    found = sample.plain_information
    first, top, second = top_two(found.plain)
    joint = found.factor_entropy + found.code_entropy[first] - top
    each = 1 - (joint - top + second) / (found.factor_entropy + np.log(BINS))
    shares = (found.plain / found.factor_entropy).max(1)
    return Estimate(float(each.mean()), each, shares, found.plain)


ENTRY = Entry(
    question="Is each factor encoded in one latent that encodes nothing else?",
    takes=("codes", "factors", "variances=variances"),
    title="JEMMIG",
)

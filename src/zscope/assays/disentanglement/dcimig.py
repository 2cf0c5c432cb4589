"""DCIMIG (3CharM): how much of the factors is told by codes that serve one factor each?

For each code j the gap between the two factors it tells most about, credited to the first:

    R_j = I(z_j; y_first(j)) - I(z_j; y_second(j)),
    D_k = max over codes j with first(j) = k of R_j   (0 if there is none),
    DCIMIG = sum_k D_k / sum_k H(y_k).

Range 0 to 1: it is 1 when every factor has a code that tells it fully and tells nothing
else. Unchanged by the order of the latents, by any increasing map of a latent and by
relabelling values. A copy of a code changes nothing.

`flavour="zscope"`: over the latents in use, quantile bins, chance taken off both sums.
`flavour="dlib"`: all codes, equal-width bins, plug-in information.

Sepliarskaia, Kiseleva & de Rijke, "How to not measure disentanglement", arXiv:1910.05587,
2019, the definition of 3CharM (DCIMIG in the first version).
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
def dcimig(
    codes: Array,
    factors: Array,
    *,
    flavour: str = "zscope",
    variances: Array | None = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_factor (share of its entropy told so), .per_latent (gaps, nats), .matrix."""
    chosen("dcimig", "flavour", flavour, ("zscope", "dlib"))
    sample, flags = prepared("dcimig", codes, factors, kinds)
    ours = flavour == "zscope"
    return scored(
        Score,
        "dcimig",
        _corrected if ours else _plain,
        sample,
        used_latents("dcimig", sample, variances) if ours else everything(sample),
        flags + (sample.limits() if ours else sample.unbinned()),
        flavour=flavour,
        meaning="information above chance, nats" if ours else "plug-in information, nats",
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def _corrected(sample: Sample, _: np.random.Generator) -> Estimate:
    found = sample.information
    return _estimate(found.excess, found.factor_entropy - found.chance)


def _plain(sample: Sample, _: np.random.Generator) -> Estimate:
    found = sample.plain_information
    return _estimate(found.plain, np.broadcast_to(found.factor_entropy, found.plain.shape))


def _estimate(information: np.ndarray, possible: np.ndarray) -> Estimate:
    """`possible`: the most that each code (row) could tell about each factor."""
    first, top, second = top_two(information.T)
    gaps = top - second
    credit = np.zeros_like(information)
    credit[np.arange(len(gaps)), first] = gaps
    best = credit.argmax(0)
    columns = np.arange(information.shape[1])
    told = credit[best, columns]
    # Without a code of its own a factor counts whole, whichever latent comes first.
    most = np.where(told > 0, possible[best, columns], possible.max(0))
    return Estimate(float(told.sum() / most.sum()), told / most, gaps, information)


ENTRY = Entry(
    question="How much of the factors is encoded by latents that serve one factor each?",
    takes=("codes", "factors", "variances=variances"),
    title="DCIMIG",
)

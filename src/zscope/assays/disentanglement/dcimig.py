"""DCIMIG (3CharM): how much of the factors is encoded by latents that encode one factor each?

For each latent j, the gap in information between its two best factors counts for the first:

    R_j = I(z_j; y_{first(j)}) - I(z_j; y_{second(j)}),
    D_k = max over latents j with first(j) = k of R_j   (0 if there is none),
    DCIMIG = sum_k D_k / sum_k H(y_k).

Range 0 to 1: it is 1 if every factor has a latent that determines it and has no information
about other factors. Unchanged by the order of the latents, by any increasing map of a latent,
by relabelling values and by copying a latent.

`flavour="zscope"`: latents in use, quantile bins, chance subtracted from both sums.
`flavour="dlib"`: all latents, equal-width bins, plug-in information.

Sepliarskaia, Kiseleva & de Rijke, "How to not measure disentanglement", arXiv:1910.05587,
2019, the definition of 3CharM (DCIMIG in the first version).
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

__all__ = ["dcimig"]


@accepts_recording
def dcimig(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_factor (share of its entropy), .per_latent (gaps, nats), .matrix."""
    return information_score(
        "dcimig",
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
    return _estimate(info.excess, info.factor_entropy - info.chance)


def _plain(sample: Sample, _: np.random.Generator) -> Estimate:
    info = sample.plain_information
    return _estimate(info.plain, np.broadcast_to(info.factor_entropy, info.plain.shape))


def _estimate(information: np.ndarray, possible: np.ndarray) -> Estimate:
    """`possible` is the largest possible information of each latent about each factor."""
    first, top, second = top_two(information.T)
    gaps = top - second
    credit = np.zeros_like(information)
    credit[np.arange(len(gaps)), first] = gaps
    best = credit.argmax(0)
    columns = np.arange(information.shape[1])
    best_gaps = credit[best, columns]
    # For a factor without a latent of its own `best` is arbitrary: use the largest possible.
    scale = np.where(best_gaps > 0, possible[best, columns], possible.max(0))
    score = float(best_gaps.sum() / scale.sum())
    return Estimate(score, best_gaps / scale, gaps, information)


ENTRY = Entry(
    question="How much of the factors is encoded by latents that encode one factor each?",
    meaning=(
        "The share of the information in the factors that is encoded by latents for one factor "
        "each: 1 for all of it."
    ),
    figure=(
        "What each latent (row) tells about each factor (column): one strong cell in each row and "
        "column is the best case."
    ),
    takes=("codes", "factors", "variances=usage"),
    better="higher",
    title="DCIMIG",
    maps="pooled",
)

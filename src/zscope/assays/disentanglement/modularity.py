"""Modularity: does each code depend on a single factor?

With m_jk the information of code j about factor k (nats) and K factors,

    modularity_j = 1 - (sum_k m_jk^2 - max_k m_jk^2) / (max_k m_jk^2 (K - 1)),

averaged over codes. Range 0 to 1. Unchanged by the order of the latents, by any
increasing map of a latent and by relabelling values. It says nothing about how much a
code tells, nor whether several codes tell the same: read it with explicitness.

`flavour="zscope"`: m is what exceeds chance, and codes whose best information is no more
than noise would show do not count; without an informative code the score is 0, flagged.
`flavour="dlib"`: plug-in information from 20 equal-width bins, all codes, a code with no
information at all counts as 0. Since the plug-in estimate never is 0, ten noise codes
score about .66 and passive latents draw the score towards that.

With one factor every informative code is modular by definition: 1, flagged.

Ridgeway & Mozer, "Learning deep disentangled embeddings with the F-statistic loss",
NeurIPS 2018, section 3.
"""

from collections.abc import Sequence

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.score import Estimate, Score, scored
from zscope.assays.entry import Entry
from zscope.assays.information import ratio
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    chosen,
    everything,
    prepared,
    used_latents,
)


@accepts_recording
def modularity(
    codes: Array,
    factors: Array,
    *,
    flavour: str = "zscope",
    variances: Array | None = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_latent (modularity of each code), .matrix (information, nats)."""
    chosen("modularity", "flavour", flavour, ("zscope", "dlib"))
    sample, flags = prepared("modularity", codes, factors, kinds)
    ours = flavour == "zscope"
    return scored(
        Score,
        "modularity",
        _informative if ours else _plain,
        sample,
        used_latents("modularity", sample, variances) if ours else everything(sample),
        flags + ([] if ours else sample.unbinned()),
        flavour=flavour,
        meaning="information above chance, nats" if ours else "plug-in information, nats",
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def _informative(sample: Sample, _: np.random.Generator) -> Estimate:
    found = sample.information
    counted, each = found.informative, modularity_of_codes(found.excess)
    flags = _one_factor(sample)
    silent = [j for j, counts in zip(sample.latents, counted, strict=True) if not counts]
    if silent:
        flags.append(f"Latents {silent} tell no more about any factor than noise: not counted.")
    if not counted.any():
        flags.append("No latent is informative, so modularity is 0 by definition.")
    each = np.where(counted, each, 0)
    score = float(each[counted].mean()) if counted.any() else 0.0
    return Estimate(score, found.share.max(0), each, found.excess, flags)


def _plain(sample: Sample, _: np.random.Generator) -> Estimate:
    found = sample.plain_information
    each = modularity_of_codes(found.plain)
    shares = (found.plain / found.factor_entropy).max(0)
    return Estimate(float(each.mean()), shares, each, found.plain, _one_factor(sample))


def modularity_of_codes(information: np.ndarray) -> np.ndarray:
    """The formula above for each row; 0 for a code without information."""
    # Relative to the best of the code: the square of little information is no rounding error.
    squares = np.square(ratio(information, information.max(1, keepdims=True)))
    best = squares.max(1)
    rest = ratio(squares.sum(1) - best, best * max(1, squares.shape[1] - 1))
    return np.where(best > 0, 1 - rest, 0)


def _one_factor(sample: Sample) -> list[str]:
    if len(sample.columns) > 1:
        return []
    return ["Only one factor varies: an informative latent is modular by definition."]


ENTRY = Entry(
    question="Does each latent depend on a single factor?",
    takes=("codes", "factors", "variances=variances"),
)

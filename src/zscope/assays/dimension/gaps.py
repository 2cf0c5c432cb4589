"""Gaps between samples and means, which FONDUE compares with its threshold.

    trace_gap         Tr Var[z] - Tr Var[mean]      0 for active latents, 1 for each passive one,
                                                    the passive share for each mixed one
    dimension_gap     ID(z) - ID(mean)              intrinsic dimensions; passive latents are
                                                    noise, which has full dimension. Measured at up
                                                    to 10,000 samples (see intrinsic-dimension)
    information_gap   H(z) - I(x; decoded)          Rényi, in bits, from kernel matrices

By the law of total variance the trace gap of any VAE is exactly the sum of the mean posterior
variances, which needs no samples: that is the default here. The sampled form only adds noise.
All are unchanged by the order of the latents.

Bonheme 2023, propositions 8.3.1 to 8.3.3, sections 8.2.5 and 8.7 to 8.8.
"""

import math
from dataclasses import dataclass, field

from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.dimension.intrinsic import SAMPLES, intrinsic_dimension
from zscope.assays.dimension.renyi import Renyi, renyi_entropy, renyi_information
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.autoencoder import Posterior
from zscope.errors import Undefined
from zscope.randomness import fresh
from zscope.results import Scored

__all__ = ["Gap", "InformationGap", "dimension_gap", "information_gap", "trace_gap"]


@dataclass(frozen=True, eq=False)
class Gap(Scored):
    """`score` is `sampled` minus `means`, the same quantity of sampled codes and of means."""

    score: float
    sampled: float
    means: float
    samples: int
    standard_error: float | None = None
    chance: float | None = None  # of posteriors that are the prior
    flags: list[str] = field(default_factory=list)

    why_no_interval = "it is not known for sampled=True, nor for a single observation"
    why_no_chance = "the means of an uninformative encoder are one point, which has no dimension"


@accepts_recording
def trace_gap(
    posterior: Posterior, *, sampled: bool = False, generator: Generator | None = None
) -> Gap:
    """Total variance of the samples minus that of the means.

    `sampled=True` samples one code for each observation and divides both variances by N - 1,
    as in the source.
    """
    _check(posterior, "trace_gap")
    if len(posterior) < 2:
        raise Undefined(
            "trace_gap: 1 observation has no variance of means; at least 2 are needed. Record "
            "more: zs.record(model, data, samples=N)"
        )
    mean = posterior.mean.double()
    of_means = float(mean.var(0, correction=1).sum())
    if not math.isfinite(of_means + float(posterior.variance.double().sum())):
        raise Undefined(
            f"trace_gap: the variances of {len(mean)} posteriors and their means are NaN or "
            "infinite. Has training diverged, or were the data not scaled as in training?"
        )
    if sampled:
        z = posterior.sample(fresh(generator)).double()
        of_samples = float(z.var(0, correction=1).sum())
        gap = of_samples - of_means
        return Gap(gap, of_samples, of_means, len(mean), chance=float(mean.shape[1]))
    traces = posterior.variance.double().sum(1)
    gap = float(traces.mean())
    error = float(traces.std()) / len(traces) ** 0.5 if len(traces) > 1 else None
    return Gap(gap, of_means + gap, of_means, len(mean), error, float(mean.shape[1]))


@accepts_recording
def dimension_gap(
    posterior: Posterior,
    *,
    neighbours: int = 20,
    samples: int = SAMPLES,
    generator: Generator | None = None,
) -> Gap:
    """Intrinsic dimension of sampled codes minus that of the means, at up to `samples` samples."""
    _check(posterior, "dimension_gap")
    source = fresh(generator)
    codes = posterior.sample(source)
    sampled, means = (
        intrinsic_dimension(each, neighbours=neighbours, samples=samples, generator=source)
        for each in (codes, posterior.mean)
    )
    error = None  # else as if the two were independent
    if sampled.standard_error is not None and means.standard_error is not None:
        error = math.hypot(sampled.standard_error, means.standard_error)
    return Gap(
        sampled.dimension - means.dimension,
        sampled.dimension,
        means.dimension,
        len(posterior),
        error,
        flags=[flag for flag in sampled.flags if flag.startswith("Measured at")],
    )


@dataclass(frozen=True, eq=False)
class InformationGap(Scored):
    """`score` = entropy of z - information, both rounded down to two decimals, in bits.

    `saturated` means that the entropy of the observations is at its ceiling, log2 of the
    batch size: the kernel separates all observations, the information is at its ceiling for
    any decoder, and the gap depends on z alone.
    """

    score: float
    entropy: float
    information: float
    ceiling: float
    saturated: bool
    samples: int

    why_no_interval = Renyi.why_no_interval
    why_no_chance = "uninformative codes can have any entropy, and so any gap"

    def summary(self) -> list[tuple[str, str]]:
        lines = super().summary()
        if self.saturated:
            lines.append(("warning", "kernel saturated: use bandwidth='median'"))
        return lines


def information_gap(
    observations: Array,
    decoded: Array,
    codes: Array,
    *,
    batch: int = 100,
    bandwidth: str = "silverman",
) -> InformationGap:
    """Rényi entropy of the codes minus the information between input and reconstruction."""
    entropy = renyi_entropy(codes, batch=batch, bandwidth=bandwidth)
    information = renyi_information(observations, decoded, batch=batch, bandwidth=bandwidth)
    ceiling = math.log2(information.batch)
    input_entropy = renyi_entropy(observations, batch=batch, bandwidth=bandwidth).score
    # Integer hundredths: in floats 6.63 - 6.64 is slightly above the threshold.
    hundredths = [math.floor(100 * value) for value in (entropy.score, information.score)]
    return InformationGap(
        score=(hundredths[0] - hundredths[1]) / 100,
        entropy=entropy.score,
        information=information.score,
        ceiling=ceiling,
        saturated=input_entropy > 0.99 * ceiling,
        samples=information.samples,
    )


def _check(posterior: Posterior, who: str) -> None:
    if posterior.deterministic:
        raise Undefined(
            f"{who}: the {len(posterior)} posteriors have no spread, so samples and means are the "
            "same. Use a variational model; the number of latents it needs also suits an "
            "autoencoder of the same architecture."
        )


ENTRIES = {
    "trace-gap": Entry(
        question="How much of the latent variance is noise?",
        meaning=(
            "The variance of the codes that is noise: it counts passive latents, each of which "
            "adds 1."
        ),
        takes=("relative",),
        needs=("variances",),
    ),
    "dimension-gap": Entry(
        question="How many more dimensions do samples have than means?",
        meaning=(
            "How many more dimensions samples have than means: above 0 if passive latents add "
            "noise."
        ),
        takes=("posterior",),
        needs=("variances",),
    ),
}

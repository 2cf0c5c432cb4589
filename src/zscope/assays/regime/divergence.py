"""Divergence: how many nats does each latent carry about the input?

    KL( N(m0, s0) || N(m1, s1) ) = 1/2 [ (s0 + (m0 - m1)^2) / s1 - 1 - log s0 + log s1 ]

for each latent, s0 and s1 being variances; against N(0, 1) it is
1/2 (s + m^2 - 1 - log s). Zero exactly when the two agree, never negative; unchanged
when both Gaussians are shifted and scaled together. Averaged over the samples it is an
upper bound on the mutual information between the latent and the observation; given the factors,
if the prior depends on them.

Of latents that are maps, there is one number for each channel, its sum over all places, for all
pictures that were encoded; `per_place` is its mean over places, and `bits_per_pixel` the whole rate
in bits for each number of an observation.

Kingma & Welling, ICLR 2014, appendix B; Bonheme 2023, equations 2.18 and 2.19, and
equation 4.31 for a prior that depends on auxiliary data (iVAE).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array, as_rows
from zscope.assays.pictures import check_pictures
from zscope.assays.regime.types import PerLatent
from zscope.autoencoder import Posterior
from zscope.errors import Undefined
from zscope.map_summary import POWERS
from zscope.recording import Recording
from zscope.results import Scored
from zscope.types import Codes

__all__ = ["Divergence", "gaussian_kl", "latent_divergence"]


@dataclass(frozen=True, eq=False)
class Divergence(Scored):
    """Mean KL of each latent, in nats, and their sum: the rate."""

    why_no_interval = "there is only one observation"
    score_fields = ("rate",)

    per_latent: PerLatent
    rate: float
    samples: int
    standard_error: float | None = None  # of the rate
    chance: float = 0.0  # of uninformative posteriors: they equal the prior
    per_place: PerLatent | None = None  # of maps: nats of each channel at a place
    bits_per_pixel: float | None = None  # of maps, where the observations are known

    @property
    def score(self) -> float:
        return self.rate

    def summary(self) -> list[tuple[str, str]]:
        lines = super().summary()
        if self.per_place is not None:
            texts = [f"{float(value):.3g}" for value in self.per_place[:8]]
            more = ", …" if len(self.per_place) > 8 else ""
            lines.append(("nats at a place", ", ".join(texts) + more))
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Without what only maps have, for others."""
        of_maps = ("per_place", "bits_per_pixel")
        values = super().to_dict()
        return {
            name: value
            for name, value in values.items()
            if value is not None or name not in of_maps
        }

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        return bars(self.per_latent, x="latent", y="KL (nats)", ax=ax)


def gaussian_kl(
    mean: Array,
    log_variance: Array,
    prior_mean: Array | None = None,
    prior_log_variance: Array | None = None,
) -> Codes:
    """KL of diagonal Gaussians from N(0, I), or from other diagonal Gaussians, for each latent.

    Computed from log-variances, which stay exact where the variance itself would round to
    0. Returns samples x latents; sum over the latents for the whole divergence.
    """
    m0, l0 = (as_rows(part, "gaussian_kl") for part in (mean, log_variance))
    m1 = torch.zeros_like(m0) if prior_mean is None else as_rows(prior_mean, "gaussian_kl")
    l1 = (
        torch.zeros_like(l0)
        if prior_log_variance is None
        else as_rows(prior_log_variance, "gaussian_kl")
    )
    shapes = [tuple(part.shape) for part in (m0, l0, m1, l1)]
    if len({shape[1] for shape in shapes}) > 1 or len({shape[0] for shape in shapes} - {1}) > 1:
        raise Undefined(
            f"gaussian_kl: mean, log-variance and the prior's two have shapes {shapes}; they must "
            "agree (the prior may have a single row for all samples)."
        )
    gap = l0 - l1
    # expm1: near the prior the terms cancel, and only rounding errors would be left.
    return 0.5 * (torch.expm1(gap) - gap + (m0 - m1).square() * (-l1).exp())


@accepts_recording
def latent_divergence(posterior: Posterior | Recording) -> Divergence:
    """Mean KL(q(z_j|x) || N(0, 1)) of each latent over the samples; of maps, of each channel."""
    if isinstance(posterior, Recording):
        return _of_maps(posterior)
    return divergence_of(posterior.kl().double())


def _of_maps(recording: Recording) -> Divergence:
    """From the means of each picture and channel."""
    summary = recording.map_summary
    check_pictures(summary.pictures, "latent_divergence")
    powers = dict(zip(POWERS, summary.means.unbind(2), strict=True))
    squares = powers["m2"] + 2 * summary.centre * powers["m"] + summary.centre.square()
    each = 0.5 * (squares + powers["v"] - 1 - powers["log_v"])  # at a place, on average
    whole = divergence_of(each * summary.layout.positions)
    numbers = None if recording.dataset is None else math.prod(recording.dataset.shape)
    return replace(
        whole,
        per_place=each.mean(0),
        bits_per_pixel=None if numbers is None else whole.rate / math.log(2) / numbers,
    )


def divergence_of(kl: Codes) -> Divergence:
    """The same from given divergences (samples x latents), under any prior."""
    rows = as_rows(kl, "latent_divergence")
    mean: Tensor = rows.mean(0).cpu()
    error = float(rows.sum(1).std()) / len(rows) ** 0.5 if len(rows) > 1 else None
    return Divergence(
        per_latent=mean, rate=float(mean.sum()), samples=len(rows), standard_error=error
    )


ENTRY = Entry(
    question="How many nats does each latent carry about the input?",
    meaning=(
        "The KL of each latent, in nats: an upper bound on what it tells about the input, and 0 "
        "for a latent that carries nothing."
    ),
    figure="One bar for each latent: the nats it spends; bars at 0 are collapsed latents.",
    takes=("relative_or_recording",),
    needs=("variances",),
    maps="maps",
)

"""Noise robustness: what noise on the latents does the decoder bear?

A diffusion model returns latents with small errors. With sigma_k the standard deviation of channel
k and e white noise of variance 1, z_t = z + t sigma_k e for t from 0.05 to 1:

    d(t)        = E|D(z_t) - D(z)|^2 / E|x - mean x|^2
    score       = gain = d(0.1) / 0.01
    tolerance   = the t at which d(t) is the error of reconstructions (interpolated in logarithms)
    pull(t)     = E|R(z_t) - R(z)|^2 / (t^2 sum sigma^2),       R: decode and encode again

For a linear decoder the gain is sum_k sigma_k^2 |W_k|^2 / Var x at every t; 1 for the identity.
pull is 1 for the identity and below 1 where encoder and decoder contract noise. It compares with
R(z), not z: otherwise the error of reconstructions would dominate small t. Also: d at t = 0.3 with
noise on one channel only, the quality of the picture decoded from noisy latents (PSNR against x,
not clipped), and the noise that training exposed the decoder to, the root of E v_k / sigma_k^2.
Unchanged by permuting, shifting and scaling channels, if the decoder undoes it; but pull weighs
channels by their variance.

Intervals are over the base pictures, each with noise of its own.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.pictures import (
    EXACT,
    Maps,
    base_pictures,
    channel_scales,
    decode_like,
    encode_pictures,
    intervals,
    squares,
    summary_of,
    varying,
)
from zscope.autoencoder import Autoencoder
from zscope.randomness import fresh, normal
from zscope.results import Measure, Scored

__all__ = ["LEVELS", "NoiseRobustness", "noise_robustness"]

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
SMALL, OF_ONE = 0.1, 0.3
"""The noise of the gain, and that on single channels."""


@dataclass(frozen=True, eq=False)
class NoiseRobustness(Scored):
    """.score is the gain; curves have a number for each of `levels`."""

    score: float
    levels: tuple[float, ...]
    distortion: Tensor  # d(t)
    distortion_interval: Tensor | None  # levels x 2
    psnr: Tensor  # dB, of pictures decoded from noisy latents against the pictures
    pull: Tensor
    reconstruction: float  # E|x - D(z)|^2 / E|x - mean x|^2
    tolerance: float | None  # None: more than the largest level
    by_channel: Tensor  # d at 0.3 with noise on one channel
    trained_noise: Tensor  # of each channel; 0 for a deterministic encoder
    samples: int
    interval: tuple[float, float] | None
    no_interval: str

    why_no_chance = "how strongly noise is amplified says nothing about what latents encode"
    score_fields: ClassVar[tuple[str, ...]] = ("tolerance",)

    def measures(self) -> list[Measure]:
        none = "an interpolation between levels; see the interval of the gain"
        measures = [self.measure("gain", self.score, interval=self.interval)]
        if self.tolerance is not None:
            measures.append(self.measure("tolerance", self.tolerance, interval=none))
        pull = float(self.pull[self.levels.index(SMALL)])
        return [*measures, self.measure("pull", pull, interval=none)]

    def summary(self) -> list[tuple[str, str]]:
        texts = [
            f"{float(d):.2g} at {t:g}" for t, d in zip(self.levels, self.distortion, strict=True)
        ]
        lines = [("distortion", ", ".join(texts))]
        if self.tolerance is None:
            lines.append(("tolerance", f"above {self.levels[-1]:g}"))
        if float(self.trained_noise.max()) > 0:
            noise = ", ".join(f"{float(each):.2g}" for each in self.trained_noise[:8])
            noise += ", …" if len(self.trained_noise) > 8 else ""
            lines.append(("noise in training", f"{noise} (in standard deviations)"))
        return [*lines, ("reconstruction error", f"{self.reconstruction:.2g} of the variance")]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines
        from zscope.plots.theme import GREY

        drawn = lines(
            {"decoded": self.distortion, "error of reconstructions":
             torch.full_like(self.distortion, self.reconstruction)},
            at=self.levels, x="noise, in standard deviations of a channel",
            y="change, of the variance", ax=ax,
        )  # fmt: skip
        drawn.set(xscale="log", yscale="log")
        low, high = self.levels[0], self.levels[-1]
        shown = [noise for noise in self.trained_noise.tolist() if low <= noise <= high]
        for noise in shown:
            drawn.axvline(noise, linestyle=":", linewidth=0.7, color=GREY, zorder=0)
        if shown:
            drawn.set_title(
                "dotted: noise in training, by channel", fontsize="small", color=GREY, loc="right"
            )
        return drawn


@accepts_recording
def noise_robustness(
    autoencoder: Autoencoder,
    maps: Maps,
    *,
    resamples: int = 200,
    generator: Generator | None = None,
) -> NoiseRobustness:
    """How far decoded pictures move when the latents of the base pictures get noise."""
    who = "noise_robustness"
    summary, source = summary_of(maps, who), fresh(generator)
    base, layout = base_pictures(autoencoder, maps, who), summary.layout
    sigma = channel_scales(summary)[1]
    x, variance = base.observations, varying(base.observations, who)
    scales = sigma.repeat_interleave(layout.positions).to(base.codes)
    channel = layout.unit_of("channel")

    def decode_noisy(level: float, only: int | None = None) -> Tensor:
        step = level * scales * normal(base.codes, source)
        if only is not None:
            step = step * (channel == only)
        return decode_like(autoencoder, base.codes + step, x)

    moved, errors, pulls = [], [], []
    power = float(sigma.square().sum()) * layout.positions
    for level in LEVELS:
        decoded = decode_noisy(level)
        moved.append(squares(decoded, base.decoded))
        errors.append(squares(decoded, x))
        back = squares(encode_pictures(autoencoder, decoded, base), base.responses)
        pulls.append(float(back.mean()) / (level**2 * power))
    changes = torch.stack(moved)  # levels x pictures
    distortion = changes.sum(1) / variance.sum()
    ends, reason = intervals(
        lambda rows: changes[:, rows].sum(1) / variance[rows].sum(),
        distortion, len(x), resamples, source, who,
    )  # fmt: skip
    single = [
        squares(decode_noisy(OF_ONE, k), base.decoded).sum() / variance.sum()
        for k in range(layout.channels)
    ]
    reconstruction = float(squares(x, base.decoded).sum() / variance.sum())
    small = LEVELS.index(SMALL)
    gain = distortion[small] / SMALL**2
    limits = None if ends is None else (ends[small] / SMALL**2).tolist()
    peak = base.limits.peak
    each = (torch.stack(errors) / x[0].numel()).clamp_min(EXACT * peak**2)
    noise = summary.moments()["v"] / torch.where(sigma > 0, sigma, 1).square()
    return NoiseRobustness(
        score=float(gain),
        levels=LEVELS,
        distortion=distortion,
        distortion_interval=ends,
        psnr=(10 * (peak**2 / each).log10()).mean(1),
        pull=torch.tensor(pulls, dtype=torch.float64),
        reconstruction=reconstruction,
        tolerance=_crossing(distortion.tolist(), reconstruction),
        by_channel=torch.stack(single),
        trained_noise=noise.sqrt(),
        samples=len(x),
        interval=None if limits is None else (limits[0], limits[1]),
        no_interval=reason,
    )


def _crossing(distortion: list[float], limit: float) -> float | None:
    """The noise at which the distortion reaches the limit; None if it never does."""
    if max(distortion) < limit:
        return None
    place = next(k for k, value in enumerate(distortion) if value >= limit)
    if place == 0:  # d grows as the square of the noise below the first level
        ratio = limit / distortion[0] if distortion[0] > 0 else 0.0
        return LEVELS[0] * math.sqrt(ratio)
    low, high = (math.log(max(each, 1e-300)) for each in distortion[place - 1 : place + 1])
    share = (math.log(max(limit, 1e-300)) - low) / (high - low) if high > low else 1.0
    first, second = (math.log(each) for each in LEVELS[place - 1 : place + 1])
    return math.exp(first + share * (second - first))


ENTRY = Entry(
    question="What noise on the latents does the decoder bear?",
    meaning=(
        "How much a picture changes when noise is added to its latents, for each unit of noise: 1 "
        "for the identity, and higher for a decoder that amplifies the errors of a diffusion "
        "model."
    ),
    figure=(
        "The change of the decoded picture against the noise on its latents: a curve that stays "
        "low is a robust decoder."
    ),
    takes=("autoencoder", "maps"),
    needs=("layout",),
    maps="maps",
    passes="pictures * (7 + channels)",
)

"""Reconstruction quality: how close are reconstructions to the pictures?

With L the range of the values (1 for pictures from 0 to 1), reconstructions clipped to it and not
rounded, and MSE_i the mean squared error of picture i,

    PSNR    mean over pictures of 10 log10( L^2 / MSE_i ), in dB; also of the mean of all MSE_i
    SSIM    mean over colours and windows of
            (2 a b + C1)(2 s_ab + C2) / ((a^2 + b^2 + C1)(s_a^2 + s_b^2 + C2))

with a, b the means, s the (co)variances of both pictures in a Gaussian window of 11 x 11 pixels and
standard deviation 1.5, weights of sum 1, windows inside the picture only, C1 = (0.01 L)^2 and
C2 = (0.03 L)^2. Published tables differ in which PSNR they mean, in rounding to 8 bits, and in how
L is guessed. An exact reconstruction counts as 100 dB; `exact` says how many there are. Chance is
the mean picture in place of each reconstruction. Video is compared frame by frame; sound (one axis)
by its ratio of signal to noise, 10 log10( sum x^2 / sum (x - decoded)^2 ).

Wang et al., "Image quality assessment: from error visibility to structural similarity", IEEE
Transactions on Image Processing 13(4), 2004, eq. 13 and section III.C. Intervals are over pictures.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.pictures import EXACT, intervals
from zscope.assays.engine import decode
from zscope.assays.entry import Entry
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, DataError, Undefined
from zscope.randomness import fresh
from zscope.results import Measure, Scored
from zscope.types import Codes, Observations

__all__ = ["ReconstructionQuality", "reconstruction_quality", "ssim"]

WINDOW, SIGMA = 11, 1.5
K1, K2 = 0.01, 0.03


@dataclass(frozen=True, eq=False)
class ReconstructionQuality(Scored):
    """.score is the mean PSNR (of sound: the ratio of signal to noise), in dB."""

    score: float
    chance: float
    mean_error_psnr: float  # of the mean of all squared errors
    ssim: float | None  # None for sound, and for pictures of fewer than 11 pixels
    ssim_chance: float | None
    ssim_interval: tuple[float, float] | None
    exact: int  # reconstructions without an error, which count as 100 dB
    peak: float  # L
    perceptual: float | None  # mean of the caller's own distance
    measure_name: str  # "PSNR" or "SNR"
    samples: int
    interval: tuple[float, float] | None
    no_interval: str
    no_ssim: str

    score_fields: ClassVar[tuple[str, ...]] = (
        "ssim", "ssim_chance", "ssim_interval", "perceptual", "measure_name",
    )  # fmt: skip

    def measures(self) -> list[Measure]:
        measures = [self.measure(f"{self.measure_name}, dB", self.score, interval=self.interval)]
        if self.ssim is not None:
            assert self.ssim_chance is not None
            measures.append(
                self.measure(
                    "SSIM", self.ssim, interval=self.ssim_interval, chance=self.ssim_chance
                )
            )
        return measures

    def summary(self) -> list[tuple[str, str]]:
        lines = [("of the mean error", f"{self.mean_error_psnr:.2f} dB")]
        lines += [("exact reconstructions", str(self.exact))] if self.exact else []
        lines += [("no SSIM", self.no_ssim)] if self.no_ssim else []
        if self.perceptual is not None:
            lines.append(("perceptual distance", f"{self.perceptual:.4g}"))
        return lines


@accepts_recording
def reconstruction_quality(
    autoencoder: Autoencoder,
    codes: Codes,
    *,
    observations: Observations,
    samples: int = 512,
    peak: float | None = None,
    perceptual: Any = None,
    resamples: int = 200,
    generator: Generator | None = None,
) -> ReconstructionQuality:
    """Compare up to `samples` observations with what their codes, the posterior means, decode to.

    `peak` is the range of the values: by default 1, or that of the observations if they exceed 0 to
    1. `perceptual` is a function of two batches of pictures that returns a distance for each.
    """
    who = "reconstruction_quality"
    if len(codes) != len(observations) or len(codes) < 2:
        raise Undefined(
            f"{who}: {len(codes)} codes and {len(observations)} observations; expected at least 2, "
            "with a code each. Record the model: zs.record(autoencoder, data)"
        )
    source = fresh(generator)
    rows = torch.randperm(len(codes), generator=source)[:samples].sort().values
    x = observations[rows].float()
    low, high = float(x.min()), float(x.max())
    inside = low >= 0 and high <= 1
    if peak is None:
        peak = 1.0 if inside else high - low
    if not peak > 0:
        raise ConfigError(
            f"{who}: peak={peak:g}; expected the range of the values, above 0. Are all values of "
            "the observations equal?"
        )
    decoded = decode(autoencoder, codes[rows])
    if decoded.shape != x.shape:
        raise DataError(
            f"{who}: observations of shape {tuple(x.shape[1:])} decode to shape "
            f"{tuple(decoded.shape[1:])}. Do the data belong to this model?"
        )
    limits = (0.0, 1.0) if inside else (low, high)
    decoded = decoded.clamp(*limits)
    mean = x.mean(0, keepdim=True).expand_as(x)
    sound = x.ndim == 3
    level = _signal_to_noise if sound else _peak_to_noise
    own, other = level(x, decoded, peak), level(x, mean, peak)
    similar, no_ssim = None, _why_no_ssim(x)
    if not no_ssim:
        similar = torch.stack([ssim(x, decoded, peak), ssim(x, mean, peak)])
    ends, reason = intervals(
        lambda half: own[half].mean(), own.mean(), len(own), resamples, source, who
    )
    similar_ends = None
    if similar is not None:
        similar_ends, _ = intervals(
            lambda half: similar[0, half].mean(), similar[0].mean(), len(own), resamples, source,
            who,
        )  # fmt: skip
    error = (x - decoded).double().square()
    signal = x.double().square().mean() if sound else torch.tensor(peak**2).double()
    floor = EXACT * signal
    return ReconstructionQuality(
        score=float(own.mean()),
        chance=float(other.mean()),
        mean_error_psnr=float(10 * (signal / error.mean().clamp_min(floor)).log10()),
        ssim=None if similar is None else float(similar[0].mean()),
        ssim_chance=None if similar is None else float(similar[1].mean()),
        ssim_interval=None if similar_ends is None else _pair(similar_ends),
        exact=int((error.flatten(1).sum(1) == 0).sum()),
        peak=peak,
        perceptual=_perceptual(perceptual, x, decoded, who),
        measure_name="SNR" if sound else "PSNR",
        samples=len(x),
        interval=None if ends is None else _pair(ends),
        no_interval=reason,
        no_ssim=no_ssim,
    )


def _pair(ends: Tensor) -> tuple[float, float]:
    return float(ends[0]), float(ends[1])


def _peak_to_noise(x: Tensor, other: Tensor, peak: float) -> Tensor:
    error = (x - other).double().square().flatten(1).mean(1)
    return 10 * (peak**2 / error.clamp_min(EXACT * peak**2)).log10()


def _signal_to_noise(x: Tensor, other: Tensor, peak: float) -> Tensor:
    signal = x.double().square().flatten(1).sum(1).clamp_min(EXACT * peak**2)
    error = (x - other).double().square().flatten(1).sum(1)
    return 10 * (signal / error.clamp_min(EXACT * signal)).log10()


def _why_no_ssim(x: Tensor) -> str:
    if x.ndim < 4:
        return "it compares pictures, and these have no height and width"
    if min(x.shape[-2:]) < WINDOW:
        sides = " x ".join(map(str, x.shape[-2:]))
        return f"its window has {WINDOW} x {WINDOW} pixels, and the pictures have {sides}"
    return ""


def ssim(x: Tensor, y: Tensor, peak: float = 1.0) -> Tensor:
    """The structural similarity of each pair of pictures (pictures x colours x height x width)."""
    if x.ndim == 5:  # video: the mean over frames
        frames = [each.transpose(1, 2).flatten(0, 1) for each in (x, y)]
        return ssim(*frames, peak).reshape(len(x), -1).mean(1)
    place = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    line = torch.exp(-place.square() / (2 * SIGMA**2))
    line = line / line.sum()
    colours = x.shape[1]

    def blur(each: Tensor) -> Tensor:
        rows = F.conv2d(each, line.reshape(1, 1, -1, 1).repeat(colours, 1, 1, 1), groups=colours)
        return F.conv2d(rows, line.reshape(1, 1, 1, -1).repeat(colours, 1, 1, 1), groups=colours)

    parts = []
    for a, b in zip(x.double().split(64), y.double().split(64), strict=True):
        mean_a, mean_b = blur(a), blur(b)
        own, other = blur(a * a) - mean_a**2, blur(b * b) - mean_b**2
        both = blur(a * b) - mean_a * mean_b
        c1, c2 = (K1 * peak) ** 2, (K2 * peak) ** 2
        means = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
        spread = (2 * both + c2) / (own + other + c2)
        parts.append((means * spread).flatten(1).mean(1))
    return torch.cat(parts)


def _perceptual(function: Any, x: Tensor, decoded: Tensor, who: str) -> float | None:
    if function is None:
        return None
    if not callable(function):
        raise ConfigError(
            f"{who}: perceptual is a {type(function).__name__}; expected a function of two batches "
            "of pictures that returns a distance for each. No network is downloaded for you."
        )
    with torch.no_grad():
        parts = [
            torch.as_tensor(function(a, b)).reshape(-1).double().cpu()
            for a, b in zip(x.split(32), decoded.split(32), strict=True)
        ]
    return float(torch.cat(parts).mean())


ENTRY = Entry(
    question="How close are reconstructions to the pictures?",
    takes=("decoder", "codes", "observations=observations"),
    needs=("layout",),
    maps="maps",
    passes="samples",
    better="higher",
)

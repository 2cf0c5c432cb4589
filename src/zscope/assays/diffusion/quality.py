"""Reconstruction quality: how close are reconstructions to the pictures?

With L the range of the values (1 for pictures from 0 to 1), reconstructions clipped to it and not
rounded, and MSE_i the mean squared error of picture i,

    PSNR    mean over pictures of 10 log10( L^2 / MSE_i ), in dB; also of the mean of all MSE_i
    SSIM    mean over colours and windows of
            (2 a b + C1)(2 s_ab + C2) / ((a^2 + b^2 + C1)(s_a^2 + s_b^2 + C2))

with a, b the means, s the (co)variances of both pictures in a Gaussian window of 11 x 11 pixels and
standard deviation 1.5, weights of sum 1, windows inside the picture only, C1 = (0.01 L)^2 and
C2 = (0.03 L)^2. Published tables differ in which PSNR they mean, in rounding to 8 bits, and in how
L is guessed: here it is 1, or 2 for values from -1 to 1; for others it is the range of the pictures
at hand, and a flag says so. A constant offset of d has -20 log10(d / L) dB. An (almost) exact
reconstruction, or frame, counts as 100 dB; `exact` says how many there are. Chance is the mean
picture in place of each reconstruction. Video is compared frame by frame (the mean over frames of
both measures); sound by its ratio of signal to noise, 10 log10( sum x^2 / sum (x - decoded)^2 ).

On request, with networks of the caller's own, since none is ever downloaded: the mean of a
`perceptual` distance such as LPIPS, and the Fréchet distance between pictures and reconstructions
by the features of an `extractor` (with Inception features the rFID), beside that between two halves
of the pictures, which is what it cannot fall below. It depends on the number of pictures: under
10,000 of them it is not comparable with published numbers, and a flag says so.

Wang et al., "Image quality assessment: from error visibility to structural similarity", IEEE
Transactions on Image Processing 13(4), 2004, eq. 13 and section III.C. Intervals are over pictures.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import check_size, decode
from zscope.assays.entry import Entry
from zscope.assays.generation.extractors import Extractor, extract, name_of
from zscope.assays.generation.frechet import FrechetDistance, frechet_distance
from zscope.assays.halves import half_means
from zscope.assays.pictures import (
    AT_ONCE,
    EXACT,
    FEWEST,
    Maps,
    Range,
    data_range,
    intervals,
    layout_of,
)
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, DataError, Undefined
from zscope.randomness import fresh
from zscope.recording import Recording, base_count, batch_size
from zscope.results import Measure, Scored
from zscope.sampling import whole

__all__ = ["ReconstructionQuality", "reconstruction_quality", "ssim"]

PICTURE_BYTES = 8 * 2**20
"""Of pictures at once, which are compared in double precision."""
WINDOW, SIGMA = 11, 1.5
K1, K2 = 0.01, 0.03
COMPARABLE = 10_000
"""Pictures from which on Fréchet distances are compared with one another."""


@dataclass(frozen=True, eq=False)
class ReconstructionQuality(Scored):
    """.score is the mean PSNR (of sound: the ratio of signal to noise), in dB."""

    score: float
    chance: float
    mean_error_psnr: float  # of the mean of all squared errors
    ssim: float | None  # None for sound, and for pictures of fewer than 11 pixels
    ssim_chance: float | None
    ssim_interval: tuple[float, float] | None
    exact: int  # reconstructions, or frames of video, (almost) without an error: 100 dB each
    peak: float  # L
    perceptual: float | None  # mean of the caller's own distance
    perceptual_chance: float | None
    perceptual_interval: tuple[float, float] | None
    frechet: float | None  # between pictures and reconstructions, by features of the extractor
    frechet_floor: float | None  # between two halves of the pictures
    extractor: str | None
    measure_name: str  # "PSNR" or "SNR"
    samples: int
    interval: tuple[float, float] | None
    no_interval: str
    no_ssim: str
    flags: list[str]
    halves: dict[str, list[float]] = field(default_factory=dict)  # of the pictures, by score

    not_written: ClassVar[tuple[str, ...]] = ("halves",)
    score_fields: ClassVar[tuple[str, ...]] = (
        "ssim", "ssim_chance", "ssim_interval", "perceptual", "perceptual_chance",
        "perceptual_interval", "frechet", "measure_name", "halves",
    )  # fmt: skip

    def on_halves(self) -> dict[str, list[float]]:
        return self.halves

    def measures(self) -> list[Measure]:
        measures = [self.measure(f"{self.measure_name}, dB", self.score, interval=self.interval)]
        if self.ssim is not None:
            ends, chance = self.ssim_interval, self.ssim_chance
            measures.append(self.measure("SSIM", self.ssim, interval=ends, chance=chance))
        if self.perceptual is not None:
            ends, chance = self.perceptual_interval, self.perceptual_chance
            name = "perceptual distance"
            measures.append(self.measure(name, self.perceptual, interval=ends, chance=chance))
        if self.frechet is not None:
            measures.append(
                self.measure(
                    "Fréchet distance", self.frechet,
                    interval=FrechetDistance.why_no_interval,
                    chance="see that between two halves of the pictures",
                )
            )  # fmt: skip
        return measures

    def summary(self) -> list[tuple[str, str]]:
        lines = [("of the mean error", f"{self.mean_error_psnr:.2f} dB")]
        lines += [("exact reconstructions", str(self.exact))] if self.exact else []
        lines += [("no SSIM", self.no_ssim)] if self.no_ssim else []
        if self.frechet_floor is not None:
            text = f"{self.frechet_floor:.4g} ({self.samples // 2:,} pictures each)"
            lines += [("Fréchet distance of two halves", text), ("features", str(self.extractor))]
        return lines

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        values = torch.tensor([self.score, self.chance])
        names = ["reconstruction", "mean picture"]
        return bars(values, names=names, marks=[0], y=f"{self.measure_name}, dB", ax=ax)


@accepts_recording
def reconstruction_quality(
    autoencoder: Autoencoder,
    maps: Maps,
    *,
    samples: int | None = None,
    peak: float | None = None,
    perceptual: Callable[[Tensor, Tensor], Any] | None = None,
    extractor: Extractor = None,
    resamples: int = 200,
    generator: Generator | None = None,
) -> ReconstructionQuality:
    """Compare pictures with what their codes, the posterior means, decode to.

    Of up to `samples` pictures, by default four times the base pictures (512 for few channels).

    `peak` is the range L of the values: by default 1, 2 for values from -1 to 1, or that of the
    pictures at hand; with another one reconstructions are not clipped. `perceptual` is a function
    of two batches of pictures that returns a distance for each. `extractor` turns pictures into
    rows of features for the Fréchet distance: a model, a function, or "random";
    `generation.extractors.inception(weights)` reads those of FID from a file.
    """
    who = "reconstruction_quality"
    maps = _checked(maps, perceptual, extractor, who)
    samples = 4 * base_count(maps) if samples is None else samples
    whole(who, FEWEST, samples=samples)
    limits, source = _limits(maps, peak, who), fresh(generator)
    rows = torch.randperm(len(maps), generator=source)[:samples].sort().values
    some = rows.split(batch_size(maps.data.shape, PICTURE_BYTES))
    total = sum(maps.data.batch(each.numpy()).double().sum(0) for each in some)
    mean = (torch.as_tensor(total) / len(rows)).float()
    sound, no_ssim = _is_sound(maps, mean), _why_no_ssim(mean)

    def compare(x: Tensor, other: Tensor) -> dict[str, Tensor]:
        values = {"signal": _powers(x), "error": _powers(x - other)}
        values["level"], values["exact"] = _level(x, other, limits.peak, sound)
        if not no_ssim:
            values["ssim"] = ssim(x, other, limits.peak)
        if perceptual is not None:
            values["perceptual"] = _perceptual(perceptual, x, other, who)
        return values

    own: list[dict[str, Tensor]] = []
    chance: list[dict[str, Tensor]] = []
    features: list[tuple[Tensor, Tensor]] = []
    for each in some:
        x = maps.data.batch(each.numpy())
        decoded = decode(autoencoder, maps.codes[each])
        check_size(decoded, x, who)
        decoded = decoded.reshape(x.shape).to(x).clamp(limits.low, limits.high)
        own.append(compare(x, decoded))
        chance.append(compare(x, mean.expand_as(x)))
        if extractor is not None:
            features.append((extract(x, extractor, who), extract(decoded, extractor, who)))
    values, other = _joined(own), _joined(chance)
    reported = [name for name in ("level", "ssim", "perceptual") if name in values]
    numbers = torch.stack([values[name] for name in reported])
    ends, reason = intervals(
        lambda half: numbers[:, half].mean(1), numbers.mean(1), len(rows), resamples, source, who
    )
    pairs = {} if ends is None else dict(zip(reported, map(tuple, ends.tolist()), strict=True))
    signal = values["signal"].mean() if sound else torch.tensor(limits.peak**2).double()
    distance, floor = _frechet(features, source)

    def mean_of(name: str, table: dict[str, Tensor]) -> float | None:
        return float(table[name].mean()) if name in table else None

    return ReconstructionQuality(
        score=float(values["level"].mean()),
        chance=float(other["level"].mean()),
        mean_error_psnr=float(_ratio(signal, values["error"].mean())),
        ssim=mean_of("ssim", values),
        ssim_chance=mean_of("ssim", other),
        ssim_interval=pairs.get("ssim"),
        exact=int(values["exact"].sum()),
        peak=limits.peak,
        perceptual=mean_of("perceptual", values),
        perceptual_chance=mean_of("perceptual", other),
        perceptual_interval=pairs.get("perceptual"),
        frechet=distance,
        frechet_floor=floor,
        extractor=None if extractor is None else name_of(extractor),
        measure_name="SNR" if sound else "PSNR",
        samples=len(rows),
        interval=pairs.get("level"),
        no_interval=reason,
        no_ssim=no_ssim,
        halves={
            name: half_means(values[key])
            for name, key in ((f"{'SNR' if sound else 'PSNR'}, dB", "level"), ("SSIM", "ssim"))
            if key in values
        },
        flags=_flags(limits, extractor, len(rows)),
    )


def _checked(maps: Maps, perceptual: Any, extractor: Any, who: str) -> Recording:
    """The recording, if these can be compared."""
    if not isinstance(maps, Recording):
        raise Undefined(
            f"{who}: latents were given without their pictures, and both are needed. Give what "
            "zs.record(autoencoder, data) returns."
        )
    layout_of(maps, who)
    if len(maps) < FEWEST:
        raise Undefined(
            f"{who}: {len(maps)} pictures were recorded, and at least {FEWEST} are needed. Record "
            "more: zs.record(autoencoder, data, samples=N)"
        )
    if perceptual is not None and not callable(perceptual):
        raise ConfigError(
            f"{who}: perceptual is a {type(perceptual).__name__}; expected a function of two "
            "batches of pictures that returns a distance for each. No network is downloaded."
        )
    if extractor == "inception":
        raise ConfigError(
            f"{who}: extractor='inception' names no file, and no network is downloaded for you. "
            "Give zscope.assays.generation.extractors.inception('weights.pth'), or a classifier."
        )
    return maps


def _limits(maps: Recording, peak: float | None, who: str) -> Range:
    """The range of the values: that of the data, or as long as the caller says."""
    limits = data_range(maps)
    if peak is None and limits.peak > 0:
        return limits
    if peak is None or not (peak > 0 and math.isfinite(peak)):
        seen = limits.peak if peak is None else peak
        raise ConfigError(
            f"{who}: the range of the values is {seen:g}; expected a number above 0. Are all "
            "values of the pictures equal? Give it: peak=1 for pictures from 0 to 1."
        )
    # Of another range only the length is known, not where it begins: nothing is clipped.
    return limits if peak == limits.peak else Range(-math.inf, math.inf, length=peak)


def _flags(limits: Range, extractor: Any, pictures: int) -> list[str]:
    flags = []
    if limits.guessed:
        flags.append(
            f"The range of the values, {limits.peak:.4g}, was read from the pictures at hand; give "
            "peak= to compare with other data."
        )
    if extractor is not None and pictures < COMPARABLE:
        flags.append(
            f"The Fréchet distance is of {pictures:,} pictures: it is larger than that of "
            f"{COMPARABLE:,} and more, and cannot be compared with published ones."
        )
    return flags


def _joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _frechet(features: list[tuple[Tensor, Tensor]], source: Generator) -> tuple[Any, Any]:
    """The distance between pictures and reconstructions, and that of two halves of the pictures."""
    if not features:
        return None, None
    real, decoded = (torch.cat(each) for each in zip(*features, strict=True))
    order = torch.randperm(len(real), generator=source)
    half = len(real) // 2
    floor = frechet_distance(real[order[:half]], real[order[half : 2 * half]])
    return frechet_distance(real, decoded).distance, floor.distance


def _is_sound(maps: Recording, mean: Tensor) -> bool:
    """Whether observations are samples x channels x time, or rows with latents along one axis."""
    layout = maps.layout
    return mean.ndim == 2 or (mean.ndim == 1 and layout is not None and len(layout.places) == 1)


def _powers(x: Tensor) -> Tensor:
    """The mean square of each picture."""
    return x.double().square().flatten(1).mean(1)


def _ratio(signal: Tensor, error: Tensor) -> Tensor:
    """In decibels, 100 at most; 0 of nothing."""
    signal = signal.clamp_min(torch.finfo(torch.float32).tiny)
    return 10 * (signal / torch.maximum(error, EXACT * signal)).log10()


def _level(x: Tensor, other: Tensor, peak: float, sound: bool) -> tuple[Tensor, Tensor]:
    """PSNR of each picture, and whether it is exact; of sound signal to noise.

    Of video the mean over frames, and how many of them are exact.
    """
    first, second = (_frames(x), _frames(other)) if x.ndim == 5 else (x, other)
    signal = _powers(first) if sound else torch.tensor(peak**2).double()
    error = _powers(first - second)
    levels, exact = _ratio(signal, error), (error <= EXACT * signal).double()
    return levels.reshape(len(x), -1).mean(1), exact.reshape(len(x), -1).sum(1)


def _frames(video: Tensor) -> Tensor:
    """Clips x colours x time x height x width as one picture for each frame."""
    return video.transpose(1, 2).flatten(0, 1)


def _why_no_ssim(mean: Tensor) -> str:
    if mean.ndim < 3:
        return "it compares pictures, and these have no height and width"
    if min(mean.shape[-2:]) < WINDOW:
        sides = " x ".join(map(str, mean.shape[-2:]))
        return f"its window has {WINDOW} x {WINDOW} pixels, and the pictures have {sides}"
    return ""


def ssim(x: Tensor, y: Tensor, peak: float = 1.0) -> Tensor:
    """The structural similarity of each pair of pictures (pictures x colours x height x width)."""
    if x.ndim == 5:  # video: the mean over frames
        return ssim(_frames(x), _frames(y), peak).reshape(len(x), -1).mean(1)
    parts = []
    size = max(1, min(AT_ONCE, PICTURE_BYTES // (8 * x[0].numel())))
    for first, second in zip(x.split(size), y.split(size), strict=True):
        a, b = first.double(), second.double()
        mean_a, mean_b = _blur(a), _blur(b)
        own, other = _blur(a * a) - mean_a**2, _blur(b * b) - mean_b**2
        both = _blur(a * b) - mean_a * mean_b
        c1, c2 = (K1 * peak) ** 2, (K2 * peak) ** 2
        means = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
        spread = (2 * both + c2) / (own + other + c2)
        parts.append((means * spread).flatten(1).mean(1))
    return torch.cat(parts)


def _blur(pictures: Tensor) -> Tensor:
    """Means in Gaussian windows inside the pictures."""
    place = torch.arange(WINDOW) - WINDOW // 2
    weights = torch.exp(-place.double().square() / (2 * SIGMA**2))
    weights = weights / weights.sum()
    for axis in (-2, -1):
        length = pictures.shape[axis] - WINDOW + 1
        # Sums of shifted pictures: convolutions in double precision take longer.
        total = pictures.narrow(axis, 0, length) * weights[0]
        for shift in range(1, WINDOW):
            total.add_(pictures.narrow(axis, shift, length), alpha=float(weights[shift]))
        pictures = total
    return pictures


def _perceptual(
    function: Callable[[Tensor, Tensor], Any], x: Tensor, y: Tensor, who: str
) -> Tensor:
    """The caller's distance of each pair of pictures."""
    with torch.no_grad():
        parts = [
            torch.as_tensor(function(a.contiguous(), b.contiguous())).reshape(-1).double().cpu()
            for a, b in zip(x.split(AT_ONCE), y.split(AT_ONCE), strict=True)
        ]
    distances = torch.cat(parts)
    if len(distances) != len(x) or not bool(distances.isfinite().all()):
        raise DataError(
            f"{who}: perceptual returned {len(distances)} numbers for {len(x)} pairs of pictures, "
            f"{int((~distances.isfinite()).sum())} of them NaN or infinite; expected a finite "
            "distance for each pair."
        )
    return distances


ENTRY = Entry(
    question="How close are reconstructions to the pictures?",
    meaning=(
        "PSNR in decibels and SSIM up to 1: how close reconstructions are to the pictures, beside "
        "what the mean picture would have."
    ),
    figure=(
        "The quality of reconstructions beside that of the mean picture, which is what knowing "
        "nothing gives."
    ),
    takes=("decoder", "maps"),
    needs=("layout",),
    maps="maps",
    passes="samples or 4 * pictures",
    better="higher",
)

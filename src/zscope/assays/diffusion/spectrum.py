"""Latent spectrum: are the latents as smooth in space as the pictures?

Latents with much energy at high spatial frequencies are hard for a diffusion model, which learns
low frequencies first. Maps are cut into blocks of B = 8 places (4 where they are small), each block
of each channel is transformed by an orthonormal cosine transform (DCT-II), channels in units of
their standard deviation. With e_uv the mean energy at frequencies u and v over blocks and channels,

    high      H = sum_{u+v >= B} e_uv / sum_{(u,v) != 0} e_uv       along one axis: u >= B / 2
    slope     least squares of log e_b on log b,   e_b the mean of e_uv over u + v = b >= 1
    excess    H of the latents / H of the pictures, averaged down to as many places

without channels of which 99 % are noise of the posterior: they carry nothing.

White maps have H = 28/63 = 0.444 (B = 8; 4/7 along one axis), the chance level, and slope 0.
excess, the score, is 1 where latents are as smooth as the pictures of that size are: exactly 1 for
the identity and for average pooling. Space-to-depth folds high frequencies into low ones, and has
more. Video is transformed frame by frame and, apart from that, along time.

A second question needs the decoder: does a smoothed latent decode to the smoothed picture? With
kappa = 1/2 and 1/4, z_kappa has the lowest kappa h x kappa w terms of the transform of the whole
map, and x_kappa as many terms of the picture, so that both have equally many cycles:

    correspondence(kappa) = E|D(z_kappa) - D(E(x_kappa))|^2 / E|x_kappa - mean x_kappa|^2

0 if the decoder maps one onto the other. The comparison with D(E(x_kappa)) rather than x_kappa
takes the quality of reconstructions out. Beside it: the variance of x explained by D(z_kappa), and
by x_kappa itself; the former may be negative.

Unchanged by permuting, shifting and scaling channels; not by mixing them. Spectra are of posterior
means, of all pictures that were encoded; intervals are over pictures. Constant channels, and bands
without any energy in the slope, are left out.

After Skorokhodov et al., "Improving the diffusability of autoencoders", arXiv:2502.14831, who
compare spectra of latents and pixels; the comparison at the latents' own resolution follows Ning
et al., arXiv:2603.14645. The amplitude profile of the former paper is left out, since we could not
check how it is normalised: no number here is one of theirs.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.pictures import (
    AT_ONCE,
    ROUNDING,
    Base,
    Maps,
    base_pictures,
    decode_like,
    encode_pictures,
    intervals,
    signal_channels,
    squares,
    summary_of,
    varying,
)
from zscope.autoencoder import Autoencoder
from zscope.errors import Undefined
from zscope.layout import Layout
from zscope.map_summary import MapSummary, all_axes, cosine_basis, spectral_axes
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import Measure, Result, Scored

__all__ = ["LatentSpectrum", "Spectrum", "cut", "latent_spectrum", "low_pass"]

CUTS = (0.5, 0.25)
BANDS_BYTES = 16 * 2**20
"""Of energies of bands that are centred at once."""


@dataclass(frozen=True, eq=False)
class Spectrum(Result):
    """The spectrum of maps along some axes."""

    bands: list[float]  # mean energy of a term, b = 0, 1, ...; white maps have 1 in all
    high: float
    slope: float | None  # None if fewer than two bands have any energy
    chance: float  # high of white maps
    side: int  # of a block


@dataclass(frozen=True, eq=False)
class LatentSpectrum(Scored):
    """By axes ("space", "time"): spectra of latents and pictures; .score is the first excess."""

    score: float | None  # None without pictures of the same axes
    spectra: dict[str, Spectrum]
    picture_spectra: dict[str, Spectrum]
    excess: dict[str, float]
    excess_interval: dict[str, tuple[float, float]]
    high_interval: dict[str, tuple[float, float]]
    channel_high: Tensor  # of each channel along the first axes; 0 for a constant one
    correspondence: dict[str, float]  # by kappa; empty without a model that decodes
    correspondence_interval: dict[str, tuple[float, float]]
    cut_variance: dict[str, float]  # of x, explained by D(z_kappa)
    picture_variance: dict[str, float]  # of x, explained by x_kappa
    left_out: dict[str, str]  # what could not be measured, and why
    samples: int
    cut_samples: int  # base pictures, of which the correspondence is
    no_interval: str

    why_no_chance = "the spectrum of the pictures, not chance, is what it is compared with"
    score_fields: ClassVar[tuple[str, ...]] = (
        "spectra", "picture_spectra", "excess", "excess_interval", "high_interval",
        "correspondence", "correspondence_interval",
    )  # fmt: skip

    def measures(self) -> list[Measure]:
        measures = [
            self.measure(_named("excess", axes), value, interval=self.excess_interval.get(axes))
            for axes, value in self.excess.items()
        ]
        measures += [
            self.measure(
                _named("high frequencies", axes), each.high,
                interval=self.high_interval.get(axes), chance=each.chance,
            )
            for axes, each in self.spectra.items()
        ]  # fmt: skip
        return measures + [
            self.measure(
                f"correspondence at {kappa}", value,
                interval=self.correspondence_interval.get(kappa), samples=self.cut_samples,
            )
            for kappa, value in self.correspondence.items()
        ]  # fmt: skip

    def summary(self) -> list[tuple[str, str]]:
        lines = [
            (
                _named("slope", axes),
                "undefined: fewer than two bands have any energy"
                if each.slope is None
                else f"{each.slope:.2f}",
            )
            for axes, each in self.spectra.items()
        ]
        for kappa, value in self.cut_variance.items():
            other = self.picture_variance[kappa]
            text = f"{100 * value:.0f} % decoded, {100 * other:.0f} % of the picture itself"
            lines.append((f"variance at {kappa}", text))
        return [*lines, *((name, f"left out: {why}") for name, why in self.left_out.items())]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        axes = next(iter(self.spectra))
        curves = {"latents": self.spectra[axes].bands[1:]}
        if axes in self.picture_spectra:
            curves["pictures"] = self.picture_spectra[axes].bands[1:]
        count = len(curves["latents"])
        where = "" if axes == "space" else f" along {axes}"
        drawn = lines(
            curves, at=range(1, count + 1), x=f"frequency{where} (half cycles a block)",
            y="energy of a term (white: 1)", ax=ax,
        )  # fmt: skip
        drawn.set_yscale("log")
        return drawn


def _named(measure: str, axes: str) -> str:
    return measure if axes == "space" else f"{measure} along {axes}"


@accepts_recording
def latent_spectrum(
    maps: Maps,
    *,
    resamples: int = 200,
    generator: Generator | None = None,
) -> LatentSpectrum:
    """Spectra of latents and pictures and, with a model, what the decoder makes of a cut one."""
    who = "latent_spectrum"
    summary, source = summary_of(maps, who), fresh(generator)
    layout, axes = summary.layout, spectral_axes(summary.layout)
    left_out: dict[str, str] = {}
    for name, each in all_axes(layout).items():
        if name not in axes:
            sides = " x ".join(str(layout.places[axis]) for axis in each)
            left_out[_named("spectrum", name)] = f"{sides} places, and 4 along each axis are needed"
    if not axes:
        places = " x ".join(map(str, layout.places))
        raise Undefined(
            f"{who}: maps of {places} places have no spectrum: it needs at least 4 places along "
            "one to three axes. Use larger pictures."
        )
    if not bool(_varies(summary).any()):
        raise Undefined(
            f"{who}: the posterior means of all {layout.channels} channels are constant, so they "
            "have no spectrum. Has the posterior collapsed? See: zscope assay RUN latent-statistics"
        )
    spectra, pictures, excess = {}, {}, {}
    limits: dict[str, dict[str, tuple[float, float]]] = {"high": {}, "excess": {}}
    reason = ""
    for name, (own, side) in axes.items():
        latent, picture = _latent_bands(summary, name), _picture_bands(summary, name)
        spectra[name] = _spectrum(latent.mean(0), side, len(own))
        if picture is not None:
            pictures[name] = _spectrum(picture.mean(0), side, len(own))
        if picture is None or not pictures[name].high > ROUNDING:
            picture = None
            left_out[_named("excess", name)] = _why_no_excess(maps, summary)
        else:
            excess[name] = spectra[name].high / pictures[name].high
        numbers = partial(_numbers, latent, picture, side, len(own))
        whole = numbers(torch.arange(len(latent)))
        ends, reason = intervals(numbers, whole, summary.pictures, resamples, source, who)
        for word, pair in zip(limits, () if ends is None else ends.tolist(), strict=False):
            limits[word][name] = pair[0], pair[1]
    first = next(iter(axes))
    return LatentSpectrum(
        score=excess.get(first),
        spectra=spectra,
        picture_spectra=pictures,
        excess=excess,
        excess_interval=limits["excess"],
        high_interval=limits["high"],
        channel_high=_channel_high(summary, first, *axes[first]),
        **_cuts(maps, resamples, source, who, left_out),
        left_out=left_out,
        samples=summary.pictures,
        no_interval=reason,
    )


def _numbers(latent: Tensor, picture: Tensor | None, side: int, axes: int, rows: Tensor) -> Tensor:
    """H of the latents of some pictures and, with pictures to compare with, the excess."""
    high = _high(latent[rows].mean(0), side, axes)
    if picture is None:
        return high[None]
    return torch.stack([high, high / _high(picture[rows].mean(0), side, axes)])


def _why_no_excess(maps: Maps, summary: MapSummary) -> str:
    if not summary.picture_spectra:
        if not isinstance(maps, Recording) or maps.dataset is None:
            return "no pictures were given to compare with"
        shape = " x ".join(map(str, maps.data.shape))
        return f"observations of {shape} cannot be averaged to maps of {summary.layout}"
    return "the pictures, averaged down to the size of the latents, have no high frequencies"


def _variances(summary: MapSummary) -> Tensor:
    moments = summary.moments()
    return (moments["m2"] - moments["m"].square()).clamp_min(0)


def _varies(summary: MapSummary) -> Tensor:
    """Channels whose posterior means vary, by more than rounding."""
    size = torch.maximum(summary.low.abs(), summary.high.abs())
    return _variances(summary) > (ROUNDING * size).square()


def _latent_bands(summary: MapSummary, name: str) -> Tensor:
    """The energy of each band in units of variances, as a mean over channels: pictures x bands."""
    used = signal_channels(summary, _varies(summary))
    mean, variance = summary.moments()["m"], _variances(summary)
    return _mean_bands(summary.spectra[name], mean, variance, used, summary.layout, name)


def _picture_bands(summary: MapSummary, name: str) -> Tensor | None:
    """The same of the pictures; None if there are none, or all of their colours are constant."""
    if summary.picture_means is None or name not in summary.picture_spectra:
        return None
    mean, square = summary.picture_means.mean(0).unbind(1)
    variance = (square - mean.square()).clamp_min(0)
    used = variance > ROUNDING * square
    if not bool(used.any()):
        return None
    return _mean_bands(summary.picture_spectra[name], mean, variance, used, summary.layout, name)


def _mean_bands(
    spectra: Tensor, mean: Tensor, variance: Tensor, used: Tensor, layout: Layout, name: str
) -> Tensor:
    """Of the channels in use, in units of their variances: pictures x bands, some at a time."""
    size = max(1, BANDS_BYTES // (8 * spectra[0].numel()))
    parts = [
        (_centre_first(part, mean, layout, name)[:, used] / variance[used, None]).mean(1)
        for part in spectra.split(size)
    ]
    return torch.cat(parts)


def _centre_first(bands: Tensor, mean: Tensor, layout: Layout, name: str) -> Tensor:
    """The energies of bands (pictures x channels x bands), the mean of each channel removed."""
    axes, side = spectral_axes(layout)[name]
    added = mean * side ** (len(axes) / 2)
    first, energy, *others = bands.unbind(2)
    return torch.stack([energy - 2 * added * first + added**2, *others], 2)


def _counts(side: int, axes: int) -> Tensor:
    """How many terms each band has."""
    if axes == 1:
        return torch.ones(side, dtype=torch.float64)
    sums = torch.arange(side)[:, None] + torch.arange(side)
    return torch.bincount(sums.flatten()).double()


def _high(bands: Tensor, side: int, axes: int) -> Tensor:
    """The share of high frequencies; 0 if only the constant term has any energy."""
    cut_off = side if axes == 2 else side // 2
    rest = bands[1:].sum()
    return bands[cut_off:].sum() / rest if bool(rest > 0) else torch.zeros_like(rest)


def _spectrum(bands: Tensor, side: int, axes: int) -> Spectrum:
    counts = _counts(side, axes)
    energy = bands / counts
    return Spectrum(
        bands=[float(each) for each in energy],
        high=float(_high(bands, side, axes)),
        slope=_slope(energy),
        chance=float(_high(counts, side, axes)),
        side=side,
    )


def _slope(energy: Tensor) -> float | None:
    used = energy[1:] > ROUNDING * energy.max()
    if int(used.sum()) < 2:
        return None
    frequency = torch.arange(1, len(energy)).double().log()[used]
    centred = frequency - frequency.mean()
    return float(centred @ energy[1:][used].log() / centred.square().sum())


def _channel_high(summary: MapSummary, name: str, axes: tuple[int, ...], side: int) -> Tensor:
    energies = summary.spectra[name].mean(0)[:, 1:]
    high = torch.stack([_high(each, side, len(axes)) for each in energies])
    return torch.where(_varies(summary), high, 0)


def low_pass(maps: Tensor, terms: tuple[int, ...]) -> Tensor:
    """Maps (... x places) of which only the lowest terms of the cosine transform are left."""
    first = maps.ndim - len(terms)
    for axis, count in enumerate(terms, first):
        basis = cosine_basis(maps.shape[axis])[:count].to(maps)
        maps = torch.tensordot(maps, basis.T @ basis, ([axis], [0])).movedim(-1, axis)
    return maps


def cut(layout: Layout, kappa: float) -> tuple[int, ...]:
    """How many terms are left along each axis."""
    return tuple(max(1, round(kappa * length)) for length in layout.places)


def _cuts(
    maps: Maps, resamples: int, source: Generator, who: str, left_out: dict[str, str]
) -> dict[str, Any]:
    """The correspondence of cut latents and cut pictures, where there are a model and pictures."""
    answers: dict[str, Any] = {
        "correspondence": {}, "correspondence_interval": {}, "cut_variance": {},
        "picture_variance": {}, "cut_samples": 0,
    }  # fmt: skip
    model = maps.model if isinstance(maps, Recording) else None
    if model is None or not model.decodes or model.needs_auxiliary:
        left_out["correspondence"] = (
            "there is no model that decodes, and encodes without further input"
        )
        return answers
    assert isinstance(maps, Recording)
    base, layout = base_pictures(model, maps, who), maps.posterior.layout
    assert layout is not None
    x = base.observations
    if x.ndim != 2 + len(layout.places):
        shape = " x ".join(map(str, base.shape))
        left_out["correspondence"] = (
            f"observations of {shape} have other axes than maps of {layout}"
        )
        return answers
    total, answers["cut_samples"] = varying(x, who), len(x)
    for kappa in CUTS:
        name = f"1/{round(1 / kappa)}"
        terms = cut(layout, kappa)
        pictures = torch.cat([low_pass(part, terms) for part in x.split(AT_ONCE)])
        some = torch.arange(len(x)).split(AT_ONCE)
        parts = [_errors(model, base, layout, terms, rows, pictures[rows]) for rows in some]
        error, left = torch.cat(parts, 1)
        spread = squares(pictures, pictures.mean(0, keepdim=True).expand_as(pictures))
        if not float(spread.sum()) > ROUNDING * float(total.sum()):
            left_out[f"correspondence at {name}"] = "the smoothed pictures are all equal"
            continue
        answers["correspondence"][name] = float(error.sum() / spread.sum())
        ends, _ = intervals(
            lambda rows, e=error, s=spread: e[rows].sum() / s[rows].sum(),  # type: ignore[misc]
            torch.tensor(answers["correspondence"][name]), len(x), resamples, source, who,
        )  # fmt: skip
        if ends is not None:
            answers["correspondence_interval"][name] = float(ends[0]), float(ends[1])
        for key, each in (("cut_variance", left), ("picture_variance", squares(x, pictures))):
            answers[key][name] = float(1 - each.sum() / total.sum())
    return answers


def _errors(
    model: Autoencoder,
    base: Base,
    layout: Layout,
    terms: tuple[int, ...],
    rows: Tensor,
    pictures: Tensor,
) -> Tensor:
    """The squares of D(z_kappa) - D(E(x_kappa)) and of x - D(z_kappa), for some x_kappa."""
    codes = layout.flat(low_pass(layout.view(base.codes[rows]), terms))
    decoded = decode_like(model, codes, pictures)
    again = decode_like(model, encode_pictures(model, pictures, base), pictures)
    return torch.stack([squares(decoded, again), squares(base.observations[rows], decoded)])


ENTRY = Entry(
    question="Are the latents as smooth in space as the pictures?",
    meaning=(
        "1 if the latents are as smooth in space as the pictures are; above 1 they have more fine "
        "detail, which diffusion models find hard to learn."
    ),
    figure=(
        "Energy against spatial frequency: latents that fall as the pictures do are as smooth as "
        "these; a flat line at 1 is white noise."
    ),
    takes=("maps",),
    needs=("layout",),
    maps="maps",
    passes="5 * pictures",
)

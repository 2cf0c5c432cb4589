"""Latent statistics: on which scale are the latents, channel by channel?

A diffusion model is trained on posterior draws of the latents, and expects numbers of mean 0 and
standard deviation 1. With m and v the mean and the variance of the posterior at each place, and
d = m - mu_k, the moments of draws follow without drawing, over pictures and places:

    mu_k = E m          sigma_k^2 = E[ d^2 + v ]
    skewness            E[ d^3 + 3 d v ] / sigma_k^3
    excess kurtosis     E[ d^4 + 6 d^2 v + 3 v^2 ] / sigma_k^4  -  3

`of="mean"` leaves v out. For the configuration of a diffusion model (`paste()`):

    scaling_factor      1 / standard deviation of all numbers of all channels together
    shift_factor        their mean:   (z - shift_factor) scaling_factor
    latents_mean, latents_std         mu_k and sigma_k:   (z - latents_mean) / latents_std

Rombach et al., "High-resolution image synthesis with latent diffusion models", CVPR 2022, appendix
G, set the scaling factor so, from one batch of draws, and do not remove the mean; here all encoded
pictures count. `declared_std` is the standard deviation of each channel, and of all together, under
the scaling that the model declares itself.

Also: the share of sigma_k^2 that is posterior noise, E v / sigma_k^2; the share that is explained
by the place alone (the variance of the mean map, less what chance adds to it); how many
independent numbers the P places of a picture are worth,

    m_k = E r^2 / E[ (mean of r over the picture)^2 ],    r = z less the mean map,   1 <= m_k <= P

1 for maps constant in space, P for independent places, so that n pictures are worth n m_k
independent numbers (`effective_samples`; the definition is ours); the extremes of the posterior
means; and the eigenvalues of the covariance of channels, with their effective rank and how many
explain 90 %.

Scaling latents by a scales mu and sigma by a; mixing channels by a rotation keeps the eigenvalues.
Intervals are over pictures. A constant channel has skewness, kurtosis and shares of 0.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.pictures import (
    NEGLIGIBLE,
    Maps,
    constant_channels,
    independent_places,
    intervals,
    summary_of,
)
from zscope.assays.regime.effective_rank import spectral_rank
from zscope.errors import Undefined
from zscope.layout import LatentScaling
from zscope.map_summary import MapSummary
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import Measure, Scored

__all__ = ["LatentStatistics", "latent_statistics"]

ROUNDING, TINY = 1e-9, 1e-12


@dataclass(frozen=True, eq=False)
class LatentStatistics(Scored):
    """.score is the scaling factor; most tensors have a number for each channel."""

    score: float
    shift_factor: float
    mean: Tensor
    std: Tensor
    mean_interval: Tensor | None  # channels x 2
    std_interval: Tensor | None
    skewness_interval: Tensor | None
    kurtosis_interval: Tensor | None
    noise_interval: Tensor | None  # of the noise share
    skewness: Tensor  # 0 for a constant channel
    kurtosis: Tensor  # excess
    noise_share: Tensor
    place_share: Tensor
    independent_places: Tensor
    low: Tensor
    high: Tensor
    declared_std: float | None  # of all channels together; None if nothing is declared
    declared_channel_std: Tensor | None
    declared: dict[str, Any] | None
    spectrum: Tensor
    effective_rank: float
    modes: int  # eigenvalues that explain 90 %
    mean_map: Tensor  # channels x places
    std_map: Tensor
    samples: int  # pictures
    of: str
    interval: tuple[float, float] | None
    no_interval: str
    shift_interval: tuple[float, float] | None

    why_no_chance = "latents may have any scale, whatever they encode"
    score_fields: ClassVar[tuple[str, ...]] = ("shift_factor", "shift_interval")

    @property
    def scaling_factor(self) -> float:
        return self.score

    @property
    def effective_samples(self) -> Tensor:
        """How many independent numbers the pictures are worth, channel by channel."""
        return self.samples * self.independent_places

    @property
    def latents_mean(self) -> list[float]:
        return [float(each) for each in self.mean]

    @property
    def latents_std(self) -> list[float]:
        """What latents are divided by: 1 for a constant channel."""
        constant = self.std.square() <= NEGLIGIBLE * self.std.square().max()
        return torch.where(constant, 1, self.std).tolist()

    def measures(self) -> list[Measure]:
        return [
            self.measure("scaling factor", self.score, interval=self.interval),
            self.measure("shift factor", self.shift_factor, interval=self.shift_interval),
        ]

    def summary(self) -> list[tuple[str, str]]:
        def row(values: Tensor) -> str:
            texts = [f"{float(value):.3g}" for value in values[:8]]
            return ", ".join(texts) + (", …" if len(values) > 8 else "")

        lines = [("channel means", row(self.mean)), ("channel stds", row(self.std))]
        lines += [("posterior noise", row(self.noise_share)), ("kurtosis", row(self.kurtosis))]
        worth = ", ".join(f"{float(each):,.0f}" for each in self.effective_samples[:8])
        worth += ", …" if len(self.mean) > 8 else ""
        numbers = self.samples * self.mean_map[0].numel()
        lines.append(("effective sample size", f"{worth} of {numbers:,} numbers"))
        rank = f"{self.effective_rank:.2f} of {len(self.mean)} channels; {self.modes} explain 90 %"
        lines.append(("effective rank", rank))
        if self.declared_std is not None:
            lines.append(("std as declared", f"{self.declared_std:.3g} (1 is expected)"))
        return lines

    def paste(self, *, channels: bool = False) -> str:
        """Lines for the config.json of the autoencoder: one scale for all, or for each channel."""
        if not channels:
            shift = f'"shift_factor": {self.shift_factor:.5g}'
            return f'"scaling_factor": {self.score:.5g},\n{shift}'
        mean, std = (
            ", ".join(f"{each:.5g}" for each in values)
            for values in (self.latents_mean, self.latents_std)
        )
        return f'"latents_mean": [{mean}],\n"latents_std": [{std}],\n"scaling_factor": 1.0'

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        return bars(self.std, x="channel", y="standard deviation", ax=ax)


@accepts_recording
def latent_statistics(
    maps: Maps,
    *,
    of: Literal["draws", "mean"] = "draws",
    resamples: int = 200,
    generator: Generator | None = None,
) -> LatentStatistics:
    """Moments of each channel over all pictures that were encoded, and the scale for diffusion."""
    who = "latent_statistics"
    summary = summary_of(maps, who)
    constant = constant_channels(summary)
    value = _numbers(summary, of, constant)
    size = float(torch.maximum(summary.low.abs(), summary.high.abs()).max())
    if not float(value["std"].max()) > TINY * size:
        raise Undefined(
            f"{who}: the posterior means of {summary.pictures} pictures are identical, so they "
            "have no scale. Leave of='mean' out to count the posterior's own noise."
        )
    limits, reason = _limits(summary, of, constant, resamples, fresh(generator), who)
    spectrum = _covariance(summary, of)
    scaling = maps.model.latent_scaling if isinstance(maps, Recording) and maps.model else None
    declared = None if not scaling else _declared(value, scaling)
    share = spectrum.cumsum(0) / spectrum.sum()
    return LatentStatistics(
        score=float(value["scale"]),
        shift_factor=float(value["shift"]),
        mean=value["mean"],
        std=value["std"],
        mean_interval=limits.get("mean"),
        std_interval=limits.get("std"),
        skewness=value["skewness"],
        kurtosis=value["kurtosis"],
        skewness_interval=limits.get("skewness"),
        kurtosis_interval=limits.get("kurtosis"),
        noise_interval=limits.get("noise_share"),
        noise_share=value["noise_share"],
        low=summary.low,
        high=summary.high,
        declared_std=None if declared is None else declared[0],
        declared_channel_std=None if declared is None else declared[1],
        declared=None if not scaling else vars(scaling).copy(),
        spectrum=spectrum,
        effective_rank=spectral_rank(spectrum),
        modes=int((share < 0.9 - ROUNDING).sum()) + 1,
        **_by_place(summary, of, constant),
        samples=summary.pictures,
        of=of,
        interval=_pair(limits.get("scale")),
        no_interval=reason,
        shift_interval=_pair(limits.get("shift")),
    )


def _pair(ends: Tensor | None) -> tuple[float, float] | None:
    return None if ends is None else (float(ends[0, 0]), float(ends[0, 1]))


def _limits(
    summary: MapSummary, of: str, constant: Tensor, resamples: int, generator: Generator, who: str
) -> tuple[dict[str, Tensor], str]:
    """95 % intervals over pictures of all numbers, by name; else nothing, and the reason."""
    whole = _numbers(summary, of, constant)

    def together(rows: Tensor) -> Tensor:
        return torch.cat(list(_numbers(summary, of, constant, rows).values()))

    value = torch.cat(list(whole.values()))
    ends, reason = intervals(together, value, summary.pictures, resamples, generator, who)
    if ends is None:
        return {}, reason
    return dict(zip(whole, ends.split([len(each) for each in whole.values()]), strict=True)), ""


def _moments(moments: dict[str, Tensor], of: str) -> tuple[Tensor, Tensor]:
    """The mean less the centre, and the variance, of each channel."""
    noise = moments["v"] if of == "draws" else torch.zeros_like(moments["v"])
    return moments["m"], (moments["m2"] - moments["m"].square()).clamp_min(0) + noise


def _pooled(moments: dict[str, Tensor], centre: Tensor, of: str) -> dict[str, Tensor]:
    """Mean and variance of the numbers of all channels together."""
    mean, variance = _moments(moments, of)
    mean = centre + mean
    return {"mean": mean.mean(), "variance": variance.mean() + mean.var(correction=0)}


def _numbers(
    summary: MapSummary, of: str, constant: Tensor, rows: Tensor | None = None
) -> dict[str, Tensor]:
    """Scaling factor, shift factor, and the moments of each channel, of some or all pictures."""
    weights = None
    if rows is not None:
        weights = torch.zeros(summary.pictures, dtype=torch.float64)
        weights[rows] = 1 / len(rows)
    moments = summary.moments(weights)
    mean, variance = _moments(moments, of)
    pooled = _pooled(moments, summary.centre, of)
    return {
        "scale": pooled["variance"].rsqrt().reshape(1),
        "shift": pooled["mean"].reshape(1),
        "mean": summary.centre + mean,
        "std": variance.sqrt(),
        **_shape(moments, of, constant),
    }


def _shape(moments: dict[str, Tensor], of: str, constant: Tensor) -> dict[str, Tensor]:
    a, variance = _moments(moments, of)
    m2, m3, m4 = (moments[name] for name in ("m2", "m3", "m4"))
    third, fourth = m3 - 3 * a * m2 + 2 * a**3, m4 - 4 * a * m3 + 6 * a**2 * m2 - 3 * a**4
    v, noise = moments["v"], torch.zeros_like(a)
    if of == "draws":
        noise = v
        third = third + 3 * (moments["mv"] - a * v)
        fourth = fourth + 6 * (moments["m2v"] - 2 * a * moments["mv"] + a**2 * v)
        fourth = fourth + 3 * moments["v2"]
    constant = constant | (variance <= 0)
    unit = torch.where(constant, 1, variance)
    return {
        "skewness": torch.where(constant, 0, third / unit**1.5),
        "kurtosis": torch.where(constant, 0, fourth / unit**2 - 3),
        "noise_share": torch.where(constant, 0, noise / unit),
    }


def _by_place(summary: MapSummary, of: str, constant: Tensor) -> dict[str, Tensor]:
    """Maps of mean and std, and what they say about the places of a picture."""
    m, m2, v, _ = summary.place_sums / summary.pictures
    noise = v if of == "draws" else torch.zeros_like(v)
    means = (m2 - m.square()).clamp_min(0)  # the variance about the mean map
    within = means + noise
    mean, variance = _moments(summary.moments(), of)
    shape = summary.layout.shape
    # Over few pictures the mean map varies by chance, too: by what places do not have in common.
    shared = (summary.means[:, :, 0] - mean).square().mean(0)
    by_chance = (means.mean(1) - shared) / (summary.pictures - 1)
    between = (m.var(1, correction=0) - by_chance).clamp_min(0)
    constant = constant | (variance <= 0)
    return {
        "place_share": torch.where(constant, 0, between / torch.where(constant, 1, variance)),
        "independent_places": independent_places(summary, draws=of == "draws"),
        "mean_map": (m + summary.centre[:, None]).reshape(shape),
        "std_map": within.sqrt().reshape(shape),
    }


def _covariance(summary: MapSummary, of: str) -> Tensor:
    """The eigenvalues of the covariance of channels, largest first."""
    mean, _ = _moments(summary.moments(), of)
    covariance = summary.products / summary.pictures - torch.outer(mean, mean)
    if of == "draws":
        covariance = covariance + torch.diag(summary.moments()["v"])
    values: Tensor = torch.linalg.eigvalsh(covariance)
    return values.flip(0).clamp_min(0)


def _declared(numbers: dict[str, Tensor], scaling: LatentScaling) -> tuple[float, Tensor]:
    """The std of all numbers, and of each channel, as the model declares that they are scaled."""
    mean, std = numbers["mean"], numbers["std"]
    shift, factor = scaling.affine(len(mean))
    scaled = (mean - shift) * factor
    pooled = (std * factor).square().mean() + scaled.var(correction=0)
    return float(pooled.sqrt()), std * factor.abs()


ENTRY = Entry(
    question="On which scale are the latents, channel by channel?",
    meaning=(
        "Mean and standard deviation of each channel, and the factor that scales latents to the "
        "standard deviation of 1 that a diffusion model expects."
    ),
    figure=(
        "The standard deviation of each channel: bars of very different height mean that one "
        "scaling factor does not fit all."
    ),
    takes=("maps",),
    needs=("layout",),
    maps="maps",
)

"""Base pictures: what the assays of latent maps share.

A few pictures (16 to 128, fewer for more channels) are decoded and encoded again once for each
recording, and every assay that intervenes starts from them: z are the posterior means, D(z) the
reconstructions and R(z) the means of their posteriors. Intervals resample whole pictures, with all
their places: places of one picture resemble each other, and resampling them would give intervals
that are far too short.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.assays.engine import chunk_size, decode_and_respond
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined
from zscope.layout import Layout
from zscope.map_summary import MapSummary
from zscope.recording import Recording, base_count, join_posteriors
from zscope.results import NOT_REQUESTED
from zscope.sampling import whole
from zscope.types import Codes

__all__ = [
    "EXACT", "Base", "Maps", "base_pictures", "channel_scales", "data_range",
    "independent_places", "intervals", "layout_of", "summary_of",
]  # fmt: skip

Maps = Recording | Posterior
"""What was recorded of a model whose latents have a layout."""
EXACT = 1e-10
"""Smaller squared errors, of the squared range, count as this: no picture has more than 100 dB."""
FEWEST = 8
"""Pictures, for an interval over pictures."""


@dataclass(frozen=True, eq=False)
class Base:
    """Some recorded pictures, as they are decoded and encoded again."""

    rows: Tensor  # of the recording
    observations: Tensor
    codes: Codes  # z
    decoded: Tensor  # D(z)
    responses: Codes  # R(z)


def layout_of(maps: Maps, who: str) -> Layout:
    posterior = maps.posterior if isinstance(maps, Recording) else maps
    if posterior.layout is None:
        raise Undefined(
            f"{who}: the {posterior.latents} latents have no channels and places. If they are "
            "maps, say so: zs.wrap(encoder, decoder, layout=zs.Layout(channels, places))"
        )
    return posterior.layout


def summary_of(maps: Maps, who: str, least: int = FEWEST) -> MapSummary:
    """The summary of all pictures that were encoded, at least a few."""
    layout_of(maps, who)
    summary = maps.map_summary if isinstance(maps, Recording) else MapSummary.of(maps)
    if summary.pictures < least:
        raise Undefined(
            f"{who}: {summary.pictures} pictures were encoded, and at least {least} are needed: "
            "places of one picture are not independent. Record more: zs.record(autoencoder, data)"
        )
    return summary


def channel_scales(summary: MapSummary) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, of posterior draws, over pictures and places."""
    moments = summary.moments()
    variance = moments["m2"] - moments["m"].square() + moments["v"]
    return summary.centre + moments["m"], variance.clamp_min(0).sqrt()


def independent_places(summary: MapSummary, *, draws: bool = False) -> Tensor:
    """How many independent numbers the places of a picture are worth, channel by channel.

    With r the latents less the mean map, E r^2 / E[(mean of r over the picture)^2], between 1 (maps
    constant in space) and the number of places. Of posterior means, or of `draws`.
    """
    m, m2, v, _ = summary.place_sums / summary.pictures
    noise = v if draws else torch.zeros_like(v)
    within = ((m2 - m.square()).clamp_min(0) + noise).mean(1)
    deviation = summary.means[:, :, 0] - summary.means[:, :, 0].mean(0)
    positions = summary.layout.positions
    whole = deviation.square().mean(0) + noise.mean(1) / positions
    silent = whole <= 0
    return torch.where(silent, 1, within / torch.where(silent, 1, whole)).clamp(1, positions)


def data_range(recording: Recording) -> float:
    """The range of the values of the pictures: 1, or their own if they exceed 0 to 1."""

    def find() -> float:
        low, high = float(recording.observations.min()), float(recording.observations.max())
        return 1.0 if low >= 0 and high <= 1 else high - low

    found: float = recording.share("range of the pictures", find)
    return found


def base_pictures(autoencoder: Autoencoder, recording: Recording, who: str) -> Base:
    """The pictures that all interventional assays of a recording start from."""
    layout_of(recording, who)
    count = base_count(recording)
    if count < FEWEST:
        raise Undefined(
            f"{who}: {len(recording)} pictures were recorded, and at least {FEWEST} are needed. "
            "Record more: zs.record(autoencoder, data, samples=N)"
        )

    def work() -> Base:
        rows = recording.picture_order[:count]
        codes = recording.codes[rows]
        size = chunk_size(autoencoder, codes[:2], count)
        parts = [decode_and_respond(autoencoder, part) for part in codes.split(size)]
        posterior = join_posteriors([each for _, each in parts])
        # The same codes that other assays start from (`engine.base_samples`).
        shared = recording.share("base responses", list)
        if sum(map(len, shared)) < count:
            shared[:] = [posterior]
        return Base(
            rows=rows,
            observations=recording.data.batch(rows.numpy()),
            codes=codes,
            decoded=torch.cat([x.to(codes.device) for x, _ in parts]),
            responses=posterior.mean,
        )

    base: Base = recording.share("base pictures", work)
    return base


def intervals(
    statistic: Callable[[Tensor], Tensor],
    value: Tensor,
    pictures: int,
    resamples: int,
    generator: Generator,
    who: str,
) -> tuple[Tensor | None, str]:
    """95 % intervals (... x 2) of numbers that depend on pictures, or None and the reason.

    `statistic(rows)` is computed on random halves of the pictures; the variance of a half around
    the whole is that of the whole around the truth (see `assays.halves`).
    """
    whole(who, 0, resamples=resamples)
    if resamples == 1:
        raise ConfigError(
            f"{who}: resamples={resamples} gives no interval; use at least 2, or 200 for a stable "
            "one. Leave it at 0 for no interval."
        )
    if pictures < FEWEST:
        return None, f"too few pictures ({pictures}); an interval needs at least {FEWEST}"
    if not resamples:
        return None, NOT_REQUESTED
    halves = [
        statistic(torch.randperm(pictures, generator=generator)[: pictures // 2])
        for _ in range(resamples)
    ]
    values = torch.stack(halves).double()
    if not bool(values.isfinite().all()):
        return None, "the number is undefined for some halves of the pictures"
    width = _student(resamples) * values.std(0)
    # An odd picture is in neither half.
    width *= np.sqrt((pictures // 2) / (pictures - pictures // 2))
    return torch.stack([value.double() - width, value.double() + width], -1), ""


def _student(resamples: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(resamples - 1, 0.975))

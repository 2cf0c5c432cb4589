"""Base pictures: what the assays of latent maps share.

A few pictures (16 to 128, fewer for more channels) are decoded and encoded again once for each
recording, and every assay that intervenes starts from them: z are the posterior means, D(z) the
reconstructions and R(z) the means of their posteriors. Intervals resample whole pictures, with all
their places: places of one picture resemble each other, and resampling them would give intervals
that are far too short.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.assays.engine import (
    Recorded,
    base_responses,
    check_size,
    chunk_size,
    decode,
    decode_and_respond,
    encode,
)
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined
from zscope.layout import Layout
from zscope.map_summary import MapSummary, with_channels
from zscope.recording import Recording, base_count, batch_size, join_posteriors
from zscope.results import NOT_REQUESTED
from zscope.sampling import whole
from zscope.types import Codes

__all__ = [
    "EXACT", "NEGLIGIBLE", "NOISE", "Base", "Maps", "Range", "base_pictures", "channel_scales",
    "check_pictures", "constant_channels",
    "data_range", "decode_like", "encode_pictures", "independent_places", "intervals",
    "layout_of", "signal_channels", "squares", "summary_of", "varying",
]  # fmt: skip

Maps = Recording | Posterior
"""What was recorded of a model whose latents have a layout."""
EXACT = 1e-10
"""Smaller squared errors, in units of the squared range, count as this: 100 dB at most."""
NOISE = 0.99
"""A channel of whose variance this share is noise of the posterior carries nothing."""
FEWEST = 8
"""Pictures, for an interval over pictures."""
RANGE = 512
"""Pictures from which the range of their values is found, where the data do not say it."""
RANGE_BYTES = 8 * 2**20
"""Of these pictures at once."""
AT_ONCE = 16
ROUNDING, NEGLIGIBLE = 1e-12, 1e-12
"""Of the size of the numbers, and of the largest variance: what varies less is constant."""


@dataclass(frozen=True)
class Range:
    """The lowest and the highest value that observations can have."""

    low: float
    high: float
    guessed: bool = False  # from the observations at hand
    length: float | None = None  # if the caller says so

    @property
    def peak(self) -> float:
        return self.high - self.low if self.length is None else self.length


@dataclass(frozen=True, eq=False)
class Base:
    """Some recorded pictures, as they are decoded and encoded again."""

    rows: Tensor  # of the recording
    observations: Tensor
    codes: Codes  # z
    decoded: Tensor  # D(z)
    responses: Codes  # R(z)
    shape: tuple[int, ...]  # of an observation, as the model takes it
    limits: Range

    def first(self, count: int) -> "Base":
        """The first of them, which are in random order."""
        return replace(
            self,
            rows=self.rows[:count],
            observations=self.observations[:count],
            codes=self.codes[:count],
            decoded=self.decoded[:count],
            responses=self.responses[:count],
        )


def layout_of(maps: Maps, who: str) -> Layout:
    posterior = maps.posterior if isinstance(maps, Recording) else maps
    if posterior.layout is None:
        raise Undefined(
            f"{who}: the {posterior.latents} latents have no channels and places. If they are "
            "maps, say so: zs.wrap(encoder, decoder, layout=zs.Layout(channels, places))"
        )
    return posterior.layout


def summary_of(maps: Maps, who: str, least: int = FEWEST) -> MapSummary:
    """The summary of all pictures that were encoded; at least a few, and a channel that varies."""
    layout = layout_of(maps, who)
    summary = maps.map_summary if isinstance(maps, Recording) else MapSummary.of(maps)
    check_pictures(summary.pictures, who, least)
    if not bool(summary.means.isfinite().all()):
        posterior = maps.posterior if isinstance(maps, Recording) else maps
        bad = ~(posterior.mean.isfinite() & posterior.variance.isfinite())
        picture = int(bad.any(1).nonzero()[0, 0])
        raise Undefined(
            f"{who}: the latents of picture {picture} are NaN or infinite in "
            f"{layout.first(bad[picture])}. Are the weights finite, and the data scaled as in "
            "training? Leave such pictures out."
        )
    if bool(constant_channels(summary).all()):
        raise Undefined(
            f"{who}: all {layout.channels} channels are constant over {summary.pictures} pictures, "
            "so there is nothing to measure. Has the posterior collapsed, or do the weights belong "
            "to another model?"
        )
    return summary


def check_pictures(pictures: int, who: str, least: int = FEWEST) -> None:
    """Refuse numbers that are pooled over the places of too few pictures."""
    if pictures < least:
        raise Undefined(
            f"{who}: {pictures} pictures were encoded, and at least {least} are needed: "
            "places of one picture are not independent. Record more: zs.record(autoencoder, data)"
        )


def constant_channels(summary: MapSummary) -> Tensor:
    """Which channels have the same mean everywhere, up to rounding, and no posterior noise."""
    moments = summary.moments()
    variance = (moments["m2"] - moments["m"].square()).clamp_min(0) + moments["v"]
    size = torch.maximum(summary.low.abs(), summary.high.abs())
    return variance <= torch.maximum((ROUNDING * size).square(), NEGLIGIBLE * variance.max())


def channel_scales(summary: MapSummary) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, of posterior draws, over pictures and places.

    The deviation of a constant channel is 0.
    """
    moments = summary.moments()
    variance = (moments["m2"] - moments["m"].square()).clamp_min(0) + moments["v"]
    spread = torch.where(constant_channels(summary), 0, variance).sqrt()
    return summary.centre + moments["m"], spread


def signal_channels(summary: MapSummary, among: Tensor) -> Tensor:
    """Which channels `among` some are not nearly all noise of the posterior; all, if none is.

    Means over channels leave out the others: a variational model has left them to the prior.
    """
    moments = summary.moments()
    means = (moments["m2"] - moments["m"].square()).clamp_min(0)
    signal = among & (means > (1 - NOISE) * (means + moments["v"]))
    return signal if bool(signal.any()) else among


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
    together = deviation.square().mean(0) + noise.mean(1) / positions
    silent = constant_channels(summary) | (together <= 0)
    return torch.where(silent, 1, within / torch.where(silent, 1, together)).clamp(1, positions)


def data_range(recording: Recording) -> Range:
    """0 to 1, or -1 to 1 if there are values below 0; otherwise what was found, as a guess."""

    def find() -> Range:
        data = recording.data
        if np.dtype(data.images.dtype) == np.uint8:
            return Range(0.0, 1.0)
        rows, size = np.arange(min(len(data), RANGE)), batch_size(data.shape, RANGE_BYTES)
        batches = (data.batch(rows[k : k + size]) for k in range(0, len(rows), size))
        ends = torch.stack([torch.stack(torch.aminmax(x)) for x in batches])
        low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
        for usual in (Range(0.0, 1.0), Range(-1.0, 1.0)):
            if low >= usual.low and high <= usual.high:
                return usual
        return Range(low, high, guessed=True)

    known: Range = recording.share("range of the pictures", find)
    return known


def base_pictures(autoencoder: Autoencoder, recording: Maps, who: str) -> Base:
    """The pictures that all interventional assays of a recording start from."""
    layout = layout_of(recording, who)
    if not isinstance(recording, Recording):
        raise Undefined(
            f"{who}: {len(recording)} posteriors were given without their pictures, and both are "
            "needed. Give what zs.record(autoencoder, data) returns."
        )
    least = max(FEWEST, layout.channels)
    if len(recording) < least:
        raise Undefined(
            f"{who}: {len(recording)} pictures were recorded for {layout.channels} channels, and "
            f"at least {least} are needed. Record more: zs.record(autoencoder, data, samples=N)"
        )

    def work() -> Base:
        rows = recording.picture_order[: base_count(recording)]
        x, codes = recording.data.batch(rows.numpy()), recording.codes[rows]
        size = chunk_size(autoencoder, codes[:2], len(codes))
        parts = [decode_and_respond(autoencoder, part) for part in codes.split(size)]
        decoded = torch.cat([each.to(codes.device) for each, _ in parts])
        check_size(decoded, x, who)
        posterior = join_posteriors([each for _, each in parts])
        # The same codes that other assays start from (`engine.base_samples`).
        shared = recording.share("base responses", list)
        if sum(map(len, shared)) < len(codes):
            shared[:] = [posterior]
        return Base(
            rows=rows,
            observations=with_channels(x, layout),
            codes=codes,
            decoded=with_channels(decoded.reshape(x.shape), layout),
            responses=posterior.mean,
            shape=tuple(x.shape[1:]),
            limits=data_range(recording),
        )

    base: Base = recording.share("base pictures", work)
    return base


def decode_like(autoencoder: Autoencoder, codes: Codes, x: Tensor) -> Tensor:
    """Decoded codes in the shape of the observations x."""
    return decode(autoencoder, codes).reshape(len(codes), *x.shape[1:])


def encode_pictures(autoencoder: Autoencoder, x: Tensor, base: Base) -> Codes:
    """The posterior means of changed base pictures."""
    rows = x.reshape(len(x), *base.shape)
    return encode(autoencoder, lambda some: rows[some], np.arange(len(rows))).mean.to(base.codes)


def squares(first: Tensor, second: Tensor) -> Tensor:
    """The sum of squared differences for each picture, in double precision, a few at a time."""
    pairs = zip(first.split(AT_ONCE), second.split(AT_ONCE), strict=True)
    return torch.cat([(a.double() - b.double()).square().flatten(1).sum(1) for a, b in pairs])


def varying(x: Tensor, who: str) -> Tensor:
    """The squared distance of each picture from the mean picture; `Undefined` if all are equal."""
    distance = squares(x, x.double().mean(0, keepdim=True).expand_as(x))
    if not float(distance.sum()) > ROUNDING**2 * float(squares(x, torch.zeros_like(x)).sum()):
        raise Undefined(
            f"{who}: all {len(x)} base pictures are equal, so there is no variance to compare "
            "with. Give data that vary."
        )
    return distance


def shared_responses(
    autoencoder: Autoencoder, recorded: Recorded, base: Codes, who: str
) -> Posterior:
    """The posteriors of the decoded base samples, which are known for the base pictures of maps."""
    if (
        isinstance(recorded, Recording)
        and recorded.dataset is not None
        and len(base) == base_count(recorded)
    ):
        base_pictures(autoencoder, recorded, who)
    return base_responses(autoencoder, recorded, base)


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

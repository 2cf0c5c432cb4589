"""Locality: does a change at one place of the latents stay there?

Channel j is replaced at one interior place q by its value in another picture. With delta the change
that was made and Delta = R(z') - R(z) the change of the response, channels in units of their
standard deviation, and r the Chebyshev distance of a place from q,

    e(r) = sum over channels and places at distance r of E Delta^2

    score       = e(0) / sum_r e(r)                      as a mean over channels
    within(r)   = sum_{r' <= r} e(r') / sum e            reach: the smallest r with at least 0.9
    gain        = E[Delta_jq delta] / E[delta^2]         1: preserved, 0: lost
    crosstalk   = the share of e(0) in other channels

The identity has score and gain 1 and crosstalk 0; a response spread evenly over P places has 1/P,
the chance level. An encoder that copies and a decoder that blurs by a box of 3 x 3 have score and
gain 1/9 and reach 1. In means over channels, those without any response (`silent`) and those of
which 99 % are noise of the posterior are left out.
Unchanged by permuting, shifting and scaling channels, if the decoder undoes it. One place for each
base picture, so that the cost does not depend on the size of the maps; intervals are over pictures.
The definition is ours.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import responses
from zscope.assays.entry import Entry
from zscope.assays.pictures import (
    Maps,
    base_pictures,
    channel_scales,
    intervals,
    signal_channels,
    summary_of,
)
from zscope.autoencoder import Autoencoder
from zscope.errors import Undefined
from zscope.layout import Layout
from zscope.randomness import fresh
from zscope.results import Measure, Scored

__all__ = ["Locality", "locality"]

MAP_BYTES = 16 * 2**20
"""Of maps in double precision at once."""
MARGIN = 2
"""Places between an interior place and the border, where the map is large enough."""
REACHED = 0.9
SILENT, ROUNDED = 1e-12, 1e-6
"""Of the squared change that was made, and of a response: smaller changes of it are rounding."""


@dataclass(frozen=True, eq=False)
class Locality(Scored):
    """.score is the share of the response at the place itself, as a mean over channels."""

    score: float
    chance: float
    by_channel: Tensor  # the score of each channel; 0 without any response
    within: Tensor  # by distance 0, 1, ..., as a mean over channels
    within_interval: Tensor | None
    reach: int
    gain: Tensor  # of each channel; like crosstalk 0 without any response
    crosstalk: Tensor
    silent: list[int]  # channels without any response
    samples: int
    interval: tuple[float, float] | None
    no_interval: str

    score_fields: ClassVar[tuple[str, ...]] = ()

    def summary(self) -> list[tuple[str, str]]:
        def row(values: Tensor) -> str:
            return ", ".join(f"{float(value):.2g}" for value in values[:8])

        near = min(2, len(self.within) - 1)
        return [
            ("reach", f"{self.reach} places ({float(self.within[near]):.2f} within {near})"),
            ("gain", row(self.gain)),
            ("crosstalk", row(self.crosstalk)),
        ]

    def measures(self) -> list[Measure]:
        return [self.measure("", self.score, interval=self.interval)]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        drawn = lines(
            {"": self.within}, at=range(len(self.within)), x="distance, in places",
            y="share of the response within", ax=ax,
        )  # fmt: skip
        drawn.set_ylim(0, 1.05)
        return drawn


@accepts_recording
def locality(
    autoencoder: Autoencoder,
    maps: Maps,
    *,
    resamples: int = 200,
    generator: Generator | None = None,
) -> Locality:
    """Change one channel at one place of each base picture, and see where the response changes."""
    who = "locality"
    summary, source = summary_of(maps, who), fresh(generator)
    base, layout = base_pictures(autoencoder, maps, who), summary.layout
    count, channels = len(base.codes), layout.channels
    sigma = channel_scales(summary)[1]
    unit = torch.where(sigma > 0, sigma, torch.inf)[:, None]
    place, coordinates = _interior(layout, count, source)
    far = _distances(layout, coordinates)  # pictures x places
    donors = base.codes.roll(-1, 0)
    latent = torch.arange(channels)[:, None] * layout.positions + place  # channels x pictures
    picture = torch.arange(count)

    def build(start: int, stop: int) -> Tensor:
        rows = torch.arange(start, stop)
        channel, sample = rows // count, rows % count
        codes = base.codes[sample].clone()
        own = latent[channel, sample]
        codes[torch.arange(len(rows)), own] = donors[sample, own]
        return codes

    longest = int(far.max()) + 1
    energy = torch.zeros(channels, count, longest, dtype=torch.float64)
    other, product = torch.zeros(2, channels, count, dtype=torch.float64)
    made = torch.stack(
        [(donors - base.codes)[picture, latent[k]].double() / unit[k] for k in range(channels)]
    )
    for start, stop, posterior in responses(autoencoder, channels * count, build):
        # Maps in double precision are larger than what the chunk was made for.
        for few in torch.arange(start, stop).split(
            max(1, MAP_BYTES // (8 * base.codes[0].numel()))
        ):
            channel, sample = few // count, few % count
            change = (posterior.mean[few - start] - base.responses[sample]).double()
            change = change.reshape(len(few), channels, -1) / unit
            squares = change.square()
            energy[channel, sample] = torch.zeros(
                len(few), longest, dtype=torch.float64
            ).scatter_add(1, far[sample], squares.sum(1))
            own = change[torch.arange(len(few)), channel, place[sample]]
            at_place = squares[torch.arange(len(few)), :, place[sample]].sum(1)
            other[channel, sample] = at_place - own.square()
            product[channel, sample] = own * made[channel, sample]
    total = energy.sum((1, 2))
    # A model in single precision answers a little differently in batches of another size.
    rounding = sum(
        float((ROUNDED * one.double().reshape(channels, -1) / unit).square().sum())
        for one in base.responses
    )
    silent = total <= (SILENT * made.square().sum(1)).clamp_min(rounding)
    if bool(silent.all()):
        raise Undefined(
            f"{who}: no response changes when a channel is replaced at one place ({channels} "
            "channels). Does the decoder ignore the latents? See: zscope assay RUN unit-importance"
        )
    speaking = ~silent
    counted = signal_channels(summary, speaking)

    def shares(rows: Tensor) -> Tensor:
        part = energy[counted][:, rows].sum(1)
        return (part.cumsum(1) / part.sum(1, keepdim=True)).mean(0)

    within = shares(picture)
    ends, reason = intervals(shares, within, count, resamples, source, who)
    here, changed = energy[:, :, 0].sum(1), made.square().sum(1)
    return Locality(
        score=float(within[0]),
        chance=1 / layout.positions,
        by_channel=_share(here, total, speaking),
        within=within,
        within_interval=ends,
        reach=int((within < REACHED - 1e-9).sum()),
        gain=_share(product.sum(1), changed, speaking),
        crosstalk=_share(other.sum(1).clamp_min(0), here, speaking & (here > SILENT * total)),
        silent=silent.nonzero().flatten().tolist(),
        samples=count,
        interval=None if ends is None else (float(ends[0, 0]), float(ends[0, 1])),
        no_interval=reason,
    )


def _share(part: Tensor, whole: Tensor, defined: Tensor) -> Tensor:
    """part / whole where that is defined, else 0."""
    return torch.where(defined, part / torch.where(defined, whole, 1), 0)


def _interior(layout: Layout, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """A random place away from the border for each picture: its number, and its coordinates."""
    columns = []
    for length in layout.places:
        margin = min(MARGIN, (length - 1) // 2)
        inner = torch.randint(length - 2 * margin, (count,), generator=generator)
        columns.append(inner + margin)
    coordinates = torch.stack(columns, 1)
    number = torch.zeros(count, dtype=torch.long)
    for axis, length in enumerate(layout.places):
        number = number * length + coordinates[:, axis]
    return number, coordinates


def _distances(layout: Layout, coordinates: Tensor) -> Tensor:
    """The Chebyshev distance of every place from that of each picture."""
    grid = torch.stack(
        torch.meshgrid(*(torch.arange(length) for length in layout.places), indexing="ij"), -1
    ).reshape(-1, len(layout.places))
    return (grid[None] - coordinates[:, None]).abs().amax(2)


ENTRY = Entry(
    question="Does a change at one place of the latents stay there?",
    meaning=(
        "The share of a change at one place that is found at the same place after decoding and "
        "encoding: 1 if it stays there."
    ),
    figure=(
        "The share of the change within each distance of the place that was changed: a curve that "
        "starts high is local."
    ),
    takes=("autoencoder", "maps"),
    needs=("layout",),
    maps="maps",
    passes="pictures * (channels + 1)",
    better="higher",
)

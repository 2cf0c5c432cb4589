"""Summary of latent maps: what statistics, spectra and types need of all encoded pictures.

Codes with channels and places are large: 10,000 pictures of 4 x 64 x 64 latents take 1.3 GB. So a
recording keeps some of them, and of all a few means for each picture and channel, over places:

    MapSummary.of(posterior)         of some pictures
    first.merge(second)              of both: the same as in one pass
    running.add(summary)             of pictures that come in batches (`RunningSummary`)

Pictures are never mixed, so that intervals can resample whole pictures: places of one picture are
not independent. Powers are taken of differences from a reference value for each channel, `centre`,
since those of numbers far from 0 would cancel.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zscope.autoencoder import Posterior
from zscope.errors import ConfigError, Undefined
from zscope.layout import Layout

__all__ = [
    "POWERS", "TINY", "MapSummary", "RunningSummary", "all_axes", "band_energies", "block_side",
    "cosine_basis", "spectral_axes", "with_channels",
]  # fmt: skip

POWERS = ("m", "m2", "m3", "m4", "v", "mv", "m2v", "v2", "log_v")
"""Means over the places of each picture and channel: m the mean less the centre, v the variance."""
AT_ONCE = 2**18
"""Latents of a few pictures, which are summarised together: in double precision, 2 MB."""
LARGEST_BLOCK = 8
SMALLEST_BLOCK = 4
TINY = 1e-30
CANCELLED = 1e-12
"""Of the square of a number: a smaller variance is what rounding leaves of it."""


@dataclass(frozen=True, eq=False)
class MapSummary:
    """Means of the posterior maps of `pictures`, and of their cosine transforms."""

    layout: Layout
    centre: Tensor  # channels
    means: Tensor  # pictures x channels x POWERS
    spectra: dict[str, Tensor]  # by axes: pictures x channels x (first term, energy of each band)
    place_sums: Tensor  # 4 x channels x places: of m, m2, v and v2 over pictures
    products: Tensor  # channels x channels: of m_j m_k, summed over pictures, mean over places
    low: Tensor  # channels
    high: Tensor
    deterministic: bool
    picture_spectra: dict[str, Tensor]  # the same of the pictures, averaged down to the places
    picture_means: Tensor | None  # pictures x colours x (mean, mean square) of these

    @property
    def pictures(self) -> int:
        return len(self.means)

    @classmethod
    def of(
        cls,
        posterior: Posterior,
        pictures: Tensor | None = None,
        *,
        centre: Tensor | None = None,
    ) -> "MapSummary":
        """The summary of some posteriors and their `pictures`; `centre`: by default their mean."""
        layout = posterior.layout
        if layout is None:
            raise ConfigError(
                "MapSummary: these latents have no layout, so there are no channels and places. "
                "Give one: zs.wrap(encoder, decoder, layout=zs.Layout(channels, places))"
            )
        if centre is None:
            shape = len(posterior), layout.channels, layout.positions
            centre = posterior.mean.reshape(shape).mean((0, 2), dtype=torch.float64)
        running, size = RunningSummary(len(posterior)), max(1, AT_ONCE // layout.latents)
        for start in range(0, len(posterior), size):
            rows = slice(start, start + size)
            few = None if pictures is None else pictures[rows]
            running.add(cls._of_few(posterior[rows], few, layout, centre))
        return running.whole()

    @classmethod
    def _of_few(
        cls, posterior: Posterior, pictures: Tensor | None, layout: Layout, centre: Tensor
    ) -> "MapSummary":
        """The same in one pass, which takes about twenty times the memory of the codes."""
        shape = len(posterior), layout.channels, layout.positions
        mean, v = (each.double().reshape(shape) for each in (posterior.mean, posterior.variance))
        m = mean - centre[:, None]
        m2, v2 = m.square(), v.square()
        powers = m, m2, m2 * m, m2.square(), v, m * v, m2 * v, v2, v.clamp_min(TINY).log()
        maps = m.reshape(len(m), *layout.shape)
        axes = spectral_axes(layout)
        small = None if pictures is None else _average_down(pictures, layout)
        return cls(
            layout=layout,
            centre=centre,
            means=torch.stack([power.mean(2) for power in powers], 2),
            spectra={name: band_energies(maps, *each) for name, each in axes.items()},
            place_sums=torch.stack([power.sum(0) for power in (m, m2, v, v2)]),
            products=torch.einsum("ijp,ikp->jk", m, m) / layout.positions,
            low=mean.amin((0, 2)),
            high=mean.amax((0, 2)),
            deterministic=posterior.deterministic,
            picture_spectra={}
            if small is None
            else {name: band_energies(small, *each) for name, each in axes.items()},
            picture_means=None
            if small is None
            else torch.stack([small.flatten(2).mean(2), small.flatten(2).square().mean(2)], 2),
        )

    def merge(self, *others: "MapSummary") -> "MapSummary":
        """The summary of all pictures, in this order."""
        every = self, *others
        running = RunningSummary(sum(each.pictures for each in every))
        for each in every:
            running.add(each)
        return running.whole()

    def moments(self, weights: Tensor | None = None) -> dict[str, Tensor]:
        """Means over pictures and places, by the names of POWERS; `weights` add up to 1."""
        if weights is None:
            total = self.means.mean(0)
        else:
            total = torch.einsum("i,icp->cp", weights.to(self.means), self.means)
        return dict(zip(POWERS, total.unbind(1), strict=True))

    def spread(self) -> Tensor:
        """The variance of the means over pictures, of each place: channels x places."""
        m, m2, _, _ = self.place_sums / self.pictures
        variance = (m2 - m.square()).clamp_min(0)
        return torch.where(variance > CANCELLED * m.square(), variance, 0)

    def _recentre(self, centre: Tensor) -> "MapSummary":
        """The same summary with differences from another value."""
        if torch.equal(self.centre, centre):
            return self
        s = self.centre - centre  # is added to m
        m, m2, m3, m4, v, mv, m2v, v2, log_v = self.means.unbind(2)
        means = (
            m + s,
            m2 + 2 * s * m + s**2,
            m3 + 3 * s * m2 + 3 * s**2 * m + s**3,
            m4 + 4 * s * m3 + 6 * s**2 * m2 + 4 * s**3 * m + s**4,
            v,
            mv + s * v,
            m2v + 2 * s * mv + s**2 * v,
            v2,
            log_v,
        )
        place_m, place_m2, place_v, place_v2 = self.place_sums
        t, total = s[:, None], torch.outer(m.sum(0), s)
        return MapSummary(
            layout=self.layout,
            centre=centre,
            means=torch.stack(means, 2),
            spectra={
                name: _shift_first(bands, s, *spectral_axes(self.layout)[name])
                for name, bands in self.spectra.items()
            },
            place_sums=torch.stack([
                place_m + self.pictures * t, place_m2 + 2 * t * place_m + self.pictures * t**2,
                place_v, place_v2,
            ]),
            products=self.products + total + total.T + self.pictures * torch.outer(s, s),
            low=self.low,
            high=self.high,
            deterministic=self.deterministic,
            picture_spectra=self.picture_spectra,
            picture_means=self.picture_means,
        )  # fmt: skip


class RunningSummary:
    """The summary of so many `pictures`, which come in batches, in the memory of one batch.

    Sums over pictures are added up. Tables with a row for each picture are taken once and filled:
    small ones that were collected would lie between large ones that come and go, whose memory
    could then not be used again.
    """

    def __init__(self, pictures: int) -> None:
        self._pictures, self._filled = pictures, 0
        self._whole: MapSummary | None = None

    @property
    def centre(self) -> Tensor | None:
        """What powers are taken from: the centre of the first batch."""
        return None if self._whole is None else self._whole.centre

    def add(self, batch: MapSummary) -> None:
        """Add the summary of further pictures."""
        whole = self._whole = self._whole or _empty(batch, self._pictures)
        batch = batch._recentre(whole.centre)
        whole.place_sums.add_(batch.place_sums)
        whole.products.add_(batch.products)
        whole.low.copy_(torch.minimum(whole.low, batch.low))
        whole.high.copy_(torch.maximum(whole.high, batch.high))
        for table, rows in zip(_tables(whole), _tables(batch), strict=True):
            table[self._filled : self._filled + len(rows)] = rows
        self._filled += batch.pictures

    def whole(self) -> MapSummary:
        """The summary of all pictures, in the order in which they came."""
        if self._whole is None:
            raise Undefined(
                "MapSummary: 0 pictures were given, of which there is nothing to say. Record some: "
                "zs.record(autoencoder, data)"
            )
        return self._whole


def _empty(like: MapSummary, pictures: int) -> MapSummary:
    """A summary with sums of 0 and room for the rows of so many pictures."""

    def rows(table: Tensor) -> Tensor:
        return table.new_zeros(pictures, *table.shape[1:])

    return replace(
        like,
        means=rows(like.means),
        spectra={name: rows(table) for name, table in like.spectra.items()},
        place_sums=torch.zeros_like(like.place_sums),
        products=torch.zeros_like(like.products),
        low=like.low.clone(),
        high=like.high.clone(),
        picture_spectra={name: rows(table) for name, table in like.picture_spectra.items()},
        picture_means=None if like.picture_means is None else rows(like.picture_means),
    )


def _tables(summary: MapSummary) -> list[Tensor]:
    """All that has a row for each picture."""
    means = [] if summary.picture_means is None else [summary.picture_means]
    bands = [*summary.spectra.values(), *summary.picture_spectra.values()]
    return [summary.means, *bands, *means]


def _average_down(pictures: Tensor, layout: Layout) -> Tensor | None:
    """The pictures averaged to as many places as the latents have; None if their axes differ."""
    axes = len(layout.places)
    pictures = with_channels(pictures, layout)
    sides = tuple(pictures.shape[2:])
    larger = all(side >= length for side, length in zip(sides, layout.places, strict=False))
    if pictures.ndim != 2 + axes or not larger or axes > 3:
        return None
    steps = [side // length for side, length in zip(sides, layout.places, strict=True)]
    if all(
        step * length == side
        for side, step, length in zip(sides, steps, layout.places, strict=False)
    ):
        plain: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)  # the same numbers, sooner
        small: Tensor = plain[axes - 1](pictures, steps)
    else:
        pools: Any = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
        small = pools[axes - 1](pictures, layout.places)
    return small.double()


def with_channels(observations: Tensor, layout: Layout) -> Tensor:
    """Rows of numbers as sound of one channel, if the latents have one axis of places."""
    return (
        observations[:, None]
        if observations.ndim == 2 and len(layout.places) == 1
        else observations
    )


def spectral_axes(layout: Layout) -> dict[str, tuple[tuple[int, ...], int]]:
    """The axes of places that are transformed together, by name, and the side of a block.

    Pictures by height and width, sound along time, video in both ways: frames first. Axes of fewer
    than four places are left out.
    """
    ways = all_axes(layout)
    sides = {
        name: block_side([layout.places[axis] for axis in each]) for name, each in ways.items()
    }
    return {name: (each, sides[name]) for name, each in ways.items() if sides[name]}


def all_axes(layout: Layout) -> dict[str, tuple[int, ...]]:
    """The axes of places that belong together, by name; none for more than three axes."""
    axes = tuple(range(len(layout.places)))
    if len(axes) == 1:
        return {layout.names[0]: axes}
    if len(axes) == 2:
        return {"space": axes}
    if len(axes) > 3:
        return {}
    time = layout.names.index("time") if "time" in layout.names else 0
    return {"space": tuple(axis for axis in axes if axis != time), layout.names[time]: (time,)}


def block_side(lengths: list[int]) -> int:
    """The largest power of two, up to 8, that fits all lengths; 0 if that is below four."""
    side = min(LARGEST_BLOCK, 2 ** (min(lengths).bit_length() - 1))
    return side if side >= SMALLEST_BLOCK else 0


def cosine_basis(length: int) -> Tensor:
    """The orthonormal cosine transform (DCT-II): frequencies x places."""
    place, frequency = torch.arange(length).double(), torch.arange(length).double()
    basis = torch.cos(math.pi / length * torch.outer(frequency, place + 0.5))
    basis *= math.sqrt(2 / length)
    basis[0] /= math.sqrt(2)
    return basis


def band_energies(maps: Tensor, axes: tuple[int, ...], side: int) -> Tensor:
    """The mean first term, then the mean energy of each band b = u + v, over blocks.

    `maps` are pictures x channels x places; `axes` are those of places that are cut into blocks of
    `side`. What is left over at the end of an axis is not transformed.
    """
    blocks = maps
    for axis in axes:
        place = 2 + axis
        whole = blocks.shape[place] // side * side
        blocks = blocks.narrow(place, 0, whole)
    basis = cosine_basis(side).to(maps)
    number = torch.zeros((), dtype=torch.long)
    for axis in axes:  # every one of them is taken from its place, and its blocks put in the end
        blocks = blocks.unflatten(2 + axis, (-1, side))
        blocks = torch.tensordot(blocks, basis, ([3 + axis], [1]))
        number = number[..., None] + torch.arange(side)
    terms = blocks.reshape(*maps.shape[:2], -1, number.numel())
    energy = terms.square().mean(2)
    bands = energy.new_zeros(*energy.shape[:2], int(number.max()) + 1)
    bands.index_add_(2, number.flatten(), energy)
    return torch.cat([terms[..., :1].mean(2), bands], 2)


def _shift_first(bands: Tensor, shift: Tensor, axes: tuple[int, ...], side: int) -> Tensor:
    """The energies after a constant was added to each channel: only the first term changes."""
    added = shift * side ** (len(axes) / 2)
    first, energy, *others = bands.unbind(2)
    return torch.stack([first + added, energy + 2 * added * first + added**2, *others], 2)

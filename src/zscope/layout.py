"""Layout: latents that are maps, with channels and places, such as 4 x 64 x 64.

Codes are rows of latents everywhere in zscope. A layout says what the numbers of a row are:
channel by channel, and within a channel place by place, the last axis fastest.

    layout = zs.Layout(4, (64, 64))       # of pictures: channels, height and width
    maps = layout.view(codes)             # samples x 4 x 64 x 64
    layout.flat(maps)                     # samples x 16384 again

Assays of such codes treat latents in units: all places of a channel ("channel"), all channels of
a place ("place"), a square of places with all their channels ("patch:4"), or single latents
("latent").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import torch
from torch import Tensor

from zscope.errors import ConfigError

__all__ = ["LatentScaling", "Layout", "no_layout"]

NAMES = {1: ("time",), 2: ("height", "width"), 3: ("time", "height", "width")}
"""Of the axes of places, unless others are given."""


@dataclass(frozen=True)
class Layout:
    """Channels x places, in the order in which latents are numbered."""

    channels: int
    places: tuple[int, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            sizes = (index(self.channels), *map(index, self.places))
        except TypeError:  # not whole numbers
            sizes = ()
        if len(sizes) < 2 or min(sizes) < 1:
            raise ConfigError(
                f"Layout: channels={self.channels!r}, places={self.places!r}; expected a number of "
                "channels and the length of each axis of places, for instance Layout(4, (64, 64))."
            )
        object.__setattr__(self, "channels", sizes[0])
        object.__setattr__(self, "places", sizes[1:])
        numbered = tuple(f"axis {k}" for k in range(len(self.places)))
        names = tuple(self.names) or NAMES.get(len(self.places), numbered)
        if len(names) != len(self.places):
            raise ConfigError(
                f"Layout: {len(names)} names {names} for {len(self.places)} axes of places "
                f"{self.places}. Give one name for each axis, or none."
            )
        object.__setattr__(self, "names", names)

    def __str__(self) -> str:
        return " x ".join(map(str, self.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, *self.places)

    @property
    def positions(self) -> int:
        """How many places a channel has."""
        return math.prod(self.places)

    @property
    def latents(self) -> int:
        return self.channels * self.positions

    def view(self, codes: Tensor) -> Tensor:
        """Rows of latents as maps: ... x channels x places."""
        self._check(codes)
        return codes.reshape(*codes.shape[:-1], *self.shape)

    def flat(self, maps: Tensor) -> Tensor:
        """Maps as rows of latents."""
        if tuple(maps.shape[-len(self.shape) :]) != self.shape:
            raise ConfigError(
                f"Layout: maps of shape {tuple(maps.shape)}; expected ... x {self}. Give the "
                "layout of these maps."
            )
        return maps.reshape(*maps.shape[: maps.ndim - len(self.shape)], self.latents)

    def by_place(self, values: Tensor) -> Tensor:
        """Each place of each sample as a row of its channels: (samples x places) x channels."""
        return self.view(values).flatten(2).movedim(1, 2).flatten(0, 1)

    def reduce(self, values: Tensor, unit: str = "channel") -> Tensor:
        """The sum of squares within each unit: ... x latents to ... x units."""
        return self.sums(values.square(), unit)

    def sums(self, values: Tensor, unit: str = "channel") -> Tensor:
        """The sum within each unit; by reshaping, so that it costs no more than one pass."""
        kind, size = self._parse(unit)
        self._check(values)
        if kind == "latent":
            return values
        maps = values.reshape(*values.shape[:-1], self.channels, self.positions)
        if kind == "channel":
            return maps.sum(-1)
        everywhere = maps.sum(-2)
        if kind == "place":
            return everywhere
        ahead = values.ndim - 1
        blocks = everywhere.reshape(*values.shape[:-1], *_blocks(self.places, size))
        inner = [ahead + 2 * k + 1 for k in range(len(self.places))]
        return blocks.sum(inner).flatten(ahead)

    def unit_of(self, unit: str = "channel") -> Tensor:
        """The number of the unit that each latent belongs to."""
        kind, size = self._parse(unit)
        if kind == "latent":
            return torch.arange(self.latents)
        if kind == "channel":
            return torch.arange(self.channels).repeat_interleave(self.positions)
        if kind == "place":
            return torch.arange(self.positions).repeat(self.channels)
        coarse = [length // size for length in self.places]
        number = torch.zeros(self.places, dtype=torch.long)
        for axis, length in enumerate(self.places):
            along = torch.arange(length) // size * math.prod(coarse[axis + 1 :])
            number += along.reshape([-1 if k == axis else 1 for k in range(len(self.places))])
        return number.flatten().repeat(self.channels)

    def ends(self, channel: int) -> tuple[int, int]:
        """The first latent of a channel, and the first after it."""
        return channel * self.positions, (channel + 1) * self.positions

    def first(self, marked: Tensor) -> str:
        """The channel and place of the first latent that is marked: "channel 1 at place 3, 2"."""
        channel, *place = self.view(marked).nonzero()[0].tolist()
        return f"channel {channel} at place {', '.join(map(str, place))}"

    def count(self, unit: str = "channel") -> int:
        """How many units there are."""
        kind, size = self._parse(unit)
        if kind == "patch":
            return math.prod(length // size for length in self.places)
        return {
            "channel": self.channels, "place": self.positions, "latent": self.latents,
        }[kind]  # fmt: skip

    def unit_names(self, unit: str = "channel") -> list[str]:
        """The units as people call them: "channel 2"; places and patches by their coordinates."""
        kind, size = self._parse(unit)
        if kind in ("channel", "latent"):
            return [f"{kind} {k}" for k in range(self.count(unit))]
        lengths = [length // size for length in self.places]
        grid = torch.cartesian_prod(*(torch.arange(length) for length in lengths))
        grid = grid.reshape(-1, len(lengths)) * size
        return [f"{kind} {', '.join(map(str, row))}" for row in grid.tolist()]

    def _check(self, codes: Tensor) -> None:
        if not codes.ndim or codes.shape[-1] != self.latents:
            raise ConfigError(
                f"Layout: codes of shape {tuple(codes.shape)}, and {self} maps have "
                f"{self.latents:,} latents. Give rows of as many, or the layout of these codes."
            )

    def _parse(self, unit: Any) -> tuple[str, int]:
        """The kind of a unit and the side of a patch (1 for others)."""
        if unit in ("channel", "place", "latent"):
            return unit, 1
        kind, colon, text = str(unit).partition(":")
        if kind != "patch" or not colon or not text.isdecimal() or not int(text):
            raise ConfigError(
                f"units={unit!r}; expected channel, place, latent or patch:N with N places along "
                "each axis, for instance patch:4."
            )
        size = int(text)
        if any(length % size for length in self.places):
            fits = [k for k in range(2, min(self.places)) if not any(n % k for n in self.places)]
            known = ", ".join(f"patch:{k}" for k in fits) or "place"
            places = " x ".join(map(str, self.places))
            raise ConfigError(
                f"units={unit!r}: {places} places cannot be divided into patches of {size}. "
                f"Use {known}."
            )
        return "patch", size


def no_layout(who: str, value: Any) -> str:
    """What is wrong with a layout that is none: the message of an error."""
    sizes = value if isinstance(value, tuple) and len(value) > 1 else (4, 64, 64)
    return (
        f"{who}: layout={value!r} is a {type(value).__name__}; expected channels and places. Give "
        f"layout=zs.Layout({sizes[0]}, {sizes[1:]}), or leave it out if the latents are a vector."
    )


def _blocks(places: tuple[int, ...], size: int) -> list[int]:
    """Each axis as (blocks, places of a block)."""
    return [part for length in places for part in (length // size, size)]


@dataclass(frozen=True)
class LatentScaling:
    """How latents are scaled for diffusion, by a model's configuration; None where it is silent.

        (z - shift_factor) scaling_factor                       one number for all channels
        (z - latents_mean) scaling_factor / latents_std         one for each channel

    as in the configurations of diffusers.
    """

    scaling_factor: float | None = None
    shift_factor: float | None = None
    latents_mean: tuple[float, ...] | None = None
    latents_std: tuple[float, ...] | None = None

    def __bool__(self) -> bool:
        return self.scaling_factor is not None or self.latents_std is not None

    def of_channels(self, chosen: Sequence[int], channels: int) -> "LatentScaling":
        """That of some of the channels, in the order given."""

        def part(values: tuple[float, ...] | None) -> tuple[float, ...] | None:
            # Numbers that belong to other channels all stay: they are refused where they are used.
            if values is None or len(values) != channels:
                return values
            return tuple(values[k] for k in chosen)

        return replace(
            self, latents_mean=part(self.latents_mean), latents_std=part(self.latents_std)
        )

    def mixed(self) -> "LatentScaling | None":
        """What is left of it when channels are mixed by a rotation: one factor for all of them.

        Numbers for each channel, and one number that is subtracted from all, belong to the
        channels as they were. A factor beside `latents_std` is the scale after dividing by these.
        """
        return None if self.latents_std is not None else LatentScaling(self.scaling_factor)

    def affine(self, channels: int) -> tuple[Tensor, Tensor]:
        """What is subtracted from each channel, and what it is then multiplied with."""
        factor = 1.0 if self.scaling_factor is None else self.scaling_factor
        if self.latents_mean is None and self.latents_std is None:
            shift = torch.full((channels,), self.shift_factor or 0.0, dtype=torch.float64)
            return shift, torch.full_like(shift, factor)
        mean = self.latents_mean or (0.0,) * channels
        std = self.latents_std or (1.0,) * channels
        if len(mean) != channels or len(std) != channels:
            raise ConfigError(
                f"scaling: the configuration has {len(mean)} numbers as latents_mean and "
                f"{len(std)} as latents_std, and the model has {channels} channels. Does it belong "
                "to this model?"
            )
        shift, spread = (torch.tensor(each, dtype=torch.float64) for each in (mean, std))
        if not bool((spread > 0).all()):
            raise ConfigError(
                f"scaling: latents_std={list(std)}; expected numbers above 0, since latents are "
                "divided by them. Correct the configuration of the model."
            )
        return shift, factor / spread

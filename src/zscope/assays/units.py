"""Units: what an assay changes and observes, one at a time.

    "auto"       the channels of maps; of vectors, single latents
    "channel"    all places of a channel
    "place"      all channels of a place
    "patch:4"    a square of 4 x 4 places, with all their channels
    "latent"     single latents
    [[0, 1], [2]]    a partition of the latents

`groups` is another name for a partition. More than 512 units of maps other than channels, such as
single latents, are refused where each would be changed on its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from zscope.errors import ConfigError, Undefined
from zscope.groups import Groups, membership, partition, sums
from zscope.layout import Layout
from zscope.results import R, name_units

__all__ = ["MOST_UNITS", "Units", "UnitsOption", "count_units", "units_of"]

UnitsOption = str | Sequence[Sequence[int]]
FEWEST = 8
"""Pictures, for an intervention on units of maps."""
MOST_UNITS = 512
"""Of maps, more units than this are not changed one by one."""


@dataclass(frozen=True, eq=False)
class Units:
    """The latents of each unit, in order, and what the units are called."""

    lists: list[list[int]]
    unit: str  # "latent", "group", "channel", "place" or "patch:4"
    names: list[str]
    layout: Layout | None = None  # if the latents are maps

    def __len__(self) -> int:
        return len(self.lists)

    @property
    def latents(self) -> int:
        return len(self.number)

    @cached_property
    def number(self) -> Tensor:
        """The unit that each latent belongs to."""
        number = torch.empty(sum(map(len, self.lists)), dtype=torch.long)
        for unit, members in enumerate(self.lists):
            number[members] = unit
        return number

    def sums(self, values: Tensor) -> Tensor:
        """The sum within each unit: samples x latents to samples x units."""
        if self.layout is not None and self.names:
            return self.layout.sums(values, self.unit)
        return sums(values, self._member.to(values.device))

    def widened(self, times: int) -> "Units":
        """The units of wider vectors, with `times` numbers for each latent."""
        if times == 1:
            return self
        lists = [[times * j + k for j in members for k in range(times)] for members in self.lists]
        return Units(lists, self.unit, [])

    @cached_property
    def _member(self) -> Tensor:
        return membership(self.lists, self.latents)

    def enough(self, who: str, pictures: int, samples: int = FEWEST) -> None:
        """Refuse maps with fewer recorded pictures than there are units, or fewer than 8.

        Of the recorded pictures `samples` are taken: at least 8, however many units there are.
        """
        least = max(FEWEST, len(self))
        if self.layout is not None and pictures < least:
            raise Undefined(
                f"{who}: {pictures} pictures for {len(self)} units ({self.unit}); at least {least} "
                "are needed. Record more: zs.record(autoencoder, data, samples=N)"
            )
        if self.layout is not None and samples < FEWEST:
            raise Undefined(
                f"{who}: samples={samples} of {pictures} pictures; at least {FEWEST} are needed. "
                f"Take more of them: samples={FEWEST}"
            )

    def name(self, result: R) -> R:
        """The same result, which now knows the units its numbers are of."""
        return name_units(result, self.unit, self.names)


def units_of(
    who: str,
    units: UnitsOption,
    groups: Groups | None,
    latents: int,
    layout: Layout | None,
    *,
    rounds: int = 0,
) -> Units:
    """The units that were asked for; `rounds` is what changing one of them takes."""
    if groups is not None and not (isinstance(units, str) and units == "auto"):
        raise ConfigError(
            f"{who}: units={units!r} and groups were given, which are two names for the same "
            "thing. Leave one of them out."
        )
    chosen = units if groups is None else groups
    if not isinstance(chosen, str):
        lists = partition(chosen, latents, who)
        if layout is None:
            return Units(lists, "latent", [])
        _refuse_many(who, layout, "group" if len(lists) < latents else "latent", len(lists), rounds)
        return Units(lists, "group", [], layout)
    if chosen == "auto":
        chosen = "latent" if layout is None else "channel"
    if chosen == "latent" and layout is None:
        return Units(partition(None, latents, who), "latent", [])
    if layout is None:
        raise ConfigError(
            f"{who}: units={chosen!r}, but the {latents} latents are a vector, without channels "
            "and places. Give a layout if they are maps: zs.wrap(encoder, decoder, "
            "layout=zs.Layout(channels, places)); of vectors use units='latent'."
        )
    try:
        count = layout.count(chosen)
    except ConfigError as error:
        raise ConfigError(f"{who}: {error}") from None
    _refuse_many(who, layout, chosen, count, rounds)
    number = layout.unit_of(chosen)
    order = number.argsort(stable=True).tolist()
    size = layout.latents // count
    lists = [order[start : start + size] for start in range(0, layout.latents, size)]
    return Units(lists, chosen, layout.unit_names(chosen), layout)


def count_units(units: object, groups: Groups | None, layout: Layout) -> int:
    """How many units an assay of maps has, as far as its options are valid."""
    chosen = groups if units in (None, "auto") else units
    if chosen is None:
        return layout.channels
    if isinstance(chosen, str):
        try:
            return layout.count(chosen)
        except ConfigError:  # which the assay itself will raise
            return layout.channels
    return len(chosen) if isinstance(chosen, Sequence) else layout.channels


def _refuse_many(who: str, layout: Layout, unit: str, count: int, rounds: int) -> None:
    """Refuse too many units of maps that are changed one by one, unless they are the channels."""
    if count > MOST_UNITS and rounds and unit != "channel":
        nouns = {"latent": "single latents", "place": "places", "group": "groups"}
        raise ConfigError(
            f"{who}: {count:,} {nouns.get(unit, 'patches')} would take {count * rounds:,} rounds. "
            f"Use units='channel' ({layout.channels}){_patches(layout)}."
        )


def _patches(layout: Layout) -> str:
    """The finest patches of which there are not too many."""
    for size in range(2, min(layout.places)):
        if not any(length % size for length in layout.places):
            count = layout.count(f"patch:{size}")
            if count <= MOST_UNITS // 8:
                return f", or units='patch:{size}' ({count})"
    return ""

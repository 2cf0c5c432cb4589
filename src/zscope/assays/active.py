"""Which latents enter a measure of alignment: the active ones.

A passive latent has a column of zeros in the decoder's Jacobian; if it were included, it
would be its own singular direction and look perfectly aligned. By default the latents in use
count, as in all other assays (`zscope.usage`). The source has two rules of its own:

    "used"       the latents in use (`recording.used`)
    "mean"       the standard deviation of its codes is above 0.5 (chapter 3)
    "variance"   its posterior variance is below 0.8 on average (chapter 4)
    "all"        every latent
    [0, 3, 4]    the listed latents

Where latents are maps, J has a column for every place of every channel, thousands of them. It is
then measured at a place: the columns are the c channels at one place of each picture, all other
latents stay as they are, and "latent" above means channel, over all pictures and places; its codes
deviate from those of other pictures at the same place. The place is drawn for each picture, in the
interior of the map (at least a quarter of each axis away from the border, if it has four places or
more): borders are padded, and unlike the rest. All assays of a recording look at the same places of
its base pictures, and share the derivatives there.

Zietlow, PhD thesis, Tübingen 2022, sections 3.3.2 and 4.3.4. Measuring at a place is ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.engine import Recorded, posterior_of, used_latents
from zscope.assays.jacobian import Linearised, Table, linearise
from zscope.assays.pictures import check_pictures
from zscope.assays.units import MOST_UNITS
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined, did_you_mean
from zscope.layout import Layout
from zscope.randomness import fresh, named_generator
from zscope.recording import Recording
from zscope.results import R, Result, name_units
from zscope.sampling import recorded_codes, whole
from zscope.types import Codes

__all__ = [
    "AtPlace", "Columns", "Place", "Rule", "Singles", "active_latents", "check_two_active",
    "choose_columns", "codes_of", "map_layout", "random_rows", "standard_error",
    "used_units",
]  # fmt: skip

RULES = ("used", "mean", "variance", "all")
Rule = str | Sequence[int]
"""One of RULES, or the latents themselves."""
Place = Sequence[int] | None
"""Coordinates of a place, such as (4, 4); None: drawn for each picture."""
Singles = Sequence[int] | Literal["all"] | None
"""Single latents of maps, in place of the channels of a place."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AtPlace(Result):
    """A result about latents or, where they are maps, about the channels at a place."""

    place: str = ""  # which: "drawn in the interior of each map"; empty for vectors

    def summary(self) -> list[tuple[str, str]]:
        lines = super().summary()
        return [("measured", f"at a place, {self.place}"), *lines] if self.place else lines

    def _reported_fields(self) -> set[str]:
        return super()._reported_fields() | {"place"}


@dataclass(frozen=True, eq=False)
class Columns:
    """The codes at which a decoder is differentiated, and what its columns stand for."""

    autoencoder: Autoencoder | None
    posterior: Posterior  # of the chosen rows, with all their latents
    rows: Tensor
    latents: list[int] | Table  # of the columns; of each row its own, where latents are maps
    active: list[int]
    passive: list[int]
    unit: str = "latent"
    unit_names: tuple[str, ...] = ()
    place: str = ""
    recording: Recording | None = None  # that keeps the derivatives

    def name(self, result: R) -> R:
        """The same result, which now knows what its numbers are of."""
        return name_units(result, self.unit, self.unit_names)

    def of(self, values: Codes) -> Float[Tensor, "samples columns"]:
        """The numbers of the columns, rows x columns, from those of all latents of the rows."""
        if isinstance(self.latents, list):
            return values[:, self.latents]
        return values.gather(1, self.latents.to(values.device))

    def linearise(self, *, likelihood: str = "gaussian", method: str = "auto") -> Linearised:
        """The triangles of J; of maps computed once for a recording, with all channels."""
        assert self.autoencoder is not None
        model, layout = self.autoencoder, self.posterior.layout
        options = {"likelihood": likelihood, "method": method}
        if isinstance(self.latents, list):
            return linearise(model, self.posterior.mean, latents=self.latents, **options)
        assert layout is not None
        channels = torch.arange(layout.channels)
        every = self.latents[:, :1] % layout.positions + layout.positions * channels

        def work() -> Linearised:
            return linearise(model, self.posterior.mean, latents=every, **options)

        key = "columns", len(self.rows), self.place, likelihood, method
        local = work() if self.recording is None else self.recording.share(key, work)
        return local if self.active == channels.tolist() else local.part(self.active)


def choose_columns(
    who: str,
    autoencoder: Autoencoder | None,
    codes: Recorded,
    *,
    samples: int,
    generator: Generator | None,
    active: Rule = "used",
    place: Place = None,
    latents: Singles = None,
) -> Columns:
    """At most `samples` of the codes, and the active latents, or the channels of a place."""
    layout = map_layout(autoencoder, codes, who)
    if layout is not None and latents is None:
        return _at_places(who, autoencoder, codes, layout, samples, generator, active, place)
    if place is not None:
        reason = "latents= names single latents" if layout else "the latents have no places"
        raise ConfigError(
            f"{who}: place={tuple(place)}, but {reason}. Leave one of them out, or give a layout "
            "if the latents are maps: zs.wrap(encoder, decoder, layout=zs.Layout(channels, places))"
        )
    posterior = posterior_of(codes, who)
    singles = active if latents is None else latents
    count = posterior.latents if isinstance(singles, str) else len(singles)
    if layout is not None and count > MOST_UNITS:
        axes = "y, x" if len(layout.places) == 2 else ", ".join(layout.names)
        raise Undefined(
            f"{who}: {count:,} columns; measured at a place instead. Pass place=({axes}), or "
            "latents=[...] for fewer."
        )
    chosen = active_latents(who, autoencoder, codes, singles)
    rows = random_rows(len(posterior), samples, generator, who)
    part = posterior[rows.to(posterior.mean.device)].detach()
    others = [] if layout else [j for j in range(posterior.latents) if j not in chosen]
    return Columns(autoencoder, part, rows, chosen, chosen, others)


def _at_places(
    who: str,
    autoencoder: Autoencoder | None,
    codes: Recorded,
    layout: Layout,
    samples: int,
    generator: Generator | None,
    active: Rule,
    place: Place,
) -> Columns:
    recording = _recording_of(who, autoencoder, codes, layout)
    posterior = recording.posterior
    chosen = _active_channels(who, recording, active)
    if isinstance(codes, Recording):
        whole(who, 1, samples=samples)
        rows = recording.picture_order[:samples]
        generator = named_generator(recording.seed, "places of base pictures")
    else:  # the caller has a generator
        generator = fresh(generator)
        rows = random_rows(len(posterior), samples, generator, who)
    if place is None:
        numbers = _interior_places(layout, len(rows), generator)
        text = "drawn in the interior of each map"
    else:
        numbers = torch.full((len(rows),), _number_of(who, layout, place))
        text = f"({', '.join(str(int(each)) for each in place)}) of each map"
    return Columns(
        autoencoder,
        posterior[rows.to(posterior.mean.device)].detach(),
        rows,
        numbers[:, None] + layout.positions * torch.tensor(chosen, dtype=torch.long),
        chosen,
        [k for k in range(layout.channels) if k not in chosen],
        "channel",
        tuple(layout.unit_names("channel")),
        text,
        recording if isinstance(codes, Recording) else None,
    )


def used_units(autoencoder: Autoencoder | None, codes: Recorded, who: str) -> list[int]:
    """The latents that count or, of maps, the channels."""
    layout = map_layout(autoencoder, codes, who)
    if layout is None:
        return used_latents(autoencoder, codes, who)
    return used_latents(autoencoder, _recording_of(who, autoencoder, codes, layout), who)


def _recording_of(
    who: str, autoencoder: Autoencoder | None, codes: Recorded, layout: Layout
) -> Recording:
    """The recording, or one of codes that do not say themselves that they are maps."""
    posterior = posterior_of(codes, who)
    means = codes_of(posterior, who)
    if isinstance(codes, Recording) and codes.layout is not None:
        return codes
    return Recording(autoencoder, Posterior(means, posterior.std, layout=layout))


def map_layout(autoencoder: Autoencoder | None, codes: Recorded, who: str) -> Layout | None:
    """Channels and places of the codes, or of a model that makes such codes; None for vectors."""
    posterior = posterior_of(codes, who)
    if posterior.layout is not None or autoencoder is None or autoencoder.layout is None:
        return posterior.layout
    return autoencoder.layout if autoencoder.layout.latents == posterior.latents else None


def _interior_places(layout: Layout, count: int, generator: Generator) -> Tensor:
    """The number of a random place for each picture, away from the border."""
    number = torch.zeros(count, dtype=torch.long)
    for length in layout.places:
        margin = -(-length // 4) if length >= 4 else 0
        along = torch.randint(length - 2 * margin, (count,), generator=generator)
        number = number * length + margin + along
    return number


def _number_of(who: str, layout: Layout, place: Sequence[int]) -> int:
    """The number of a place from its coordinates."""
    inside = len(place) == len(layout.places) and all(
        0 <= int(each) < length for each, length in zip(place, layout.places, strict=True)
    )
    if not inside:
        last = ", ".join(str(length - 1) for length in layout.places)
        raise ConfigError(
            f"{who}: place={tuple(place)}, and the map has {' x '.join(map(str, layout.places))} "
            f"places ({', '.join(layout.names)}). Choose one from "
            f"({', '.join('0' for _ in layout.places)}) to ({last}), or leave it out for a random "
            "one of each picture."
        )
    number = 0
    for each, length in zip(place, layout.places, strict=True):
        number = number * length + int(each)
    return number


def active_latents(
    who: str, autoencoder: Autoencoder | None, codes: Recorded, active: Rule
) -> list[int]:
    """The latents to use, by one of the rules above."""
    posterior = posterior_of(codes, who)
    mean = codes_of(posterior, who)
    latents = mean.shape[1]
    if active == "used":
        return used_latents(autoencoder, codes, who)
    if active == "all":
        return list(range(latents))
    if active == "mean":
        return _indices(mean.double().std(0, correction=0) > 0.5)
    if active == "variance":
        _check_variances(who, posterior)
        return _indices(posterior.variance.double().mean(0) < 0.8)
    return _listed(who, active, latents, "latents")


def _active_channels(who: str, recording: Recording, active: Rule) -> list[int]:
    """The same for channels, over all pictures, on average over places."""
    layout = recording.layout
    assert layout is not None
    if active in ("used", "mean"):  # by what differs between pictures
        check_pictures(recording.map_summary.pictures, who, least=2)
    if active == "used":
        return used_latents(recording.model, recording, who)
    if active == "all":
        return list(range(layout.channels))
    if active == "mean":
        return _indices(recording.map_summary.spread().mean(1).sqrt() > 0.5)
    if active == "variance":
        _check_variances(who, recording.posterior)
        return _indices(recording.map_summary.moments()["v"] < 0.8)
    return _listed(who, active, layout.channels, "channels")


def _check_variances(who: str, posterior: Posterior) -> None:
    if posterior.deterministic:
        raise ConfigError(
            f"{who}: active='variance' needs the variances of the posterior. Give "
            "recording.posterior of a variational model instead of codes."
        )


def _listed(who: str, active: Rule, count: int, noun: str) -> list[int]:
    if isinstance(active, str):
        raise ConfigError(f"{who}: active={active!r}. {did_you_mean(active, RULES)}")
    chosen = [int(j) for j in active]
    if len(set(chosen)) < len(chosen) or any(not 0 <= j < count for j in chosen):
        raise ConfigError(
            f"{who}: active={chosen} must list different {noun} from 0 to {count - 1}."
        )
    return chosen


def check_two_active(who: str, columns: Columns) -> None:
    if len(columns.active) < 2:
        count = len(columns.active) + len(columns.passive)
        raise Undefined(
            f"{who}: {len(columns.active)} of {count} {columns.unit}s are active, but angles need "
            "two. Has the posterior collapsed (β too large)? See variable_types; active='all' uses "
            "all."
        )


def codes_of(codes: Recorded, who: str) -> Codes:
    """The means, after checking that they are finite rows of latents."""
    return recorded_codes(posterior_of(codes, who).mean, who)


def random_rows(count: int, samples: int, generator: Generator | None, who: str) -> Tensor:
    """At most `samples` of `count` rows at random, without repeats, in ascending order."""
    if samples < 1:
        raise ConfigError(f"{who}: samples={samples}; at least one code is needed.")
    if samples >= count:
        return torch.arange(count)
    generator = fresh(generator)
    return torch.randperm(count, generator=generator, device=generator.device)[:samples].sort()[0]


def standard_error(values: Tensor) -> float | None:
    """Standard error of the mean of one value per code; None for a single code."""
    return float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else None


def _indices(mask: Tensor) -> list[int]:
    return [int(j) for j in mask.nonzero().flatten()]

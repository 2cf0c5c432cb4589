"""Hybridisation: what changes when one latent is taken from another sample?

The base N¹ is decoded with unit i taken from the alternative N², for every unit i. In the
double form there is a second alternative N³, and image (i, j) has unit i of N² and unit j
of N³ (on the diagonal: unit i of N² alone). A unit is a latent or, with `units`, `groups` or
`parts`, several; of latents that are maps it is a channel. With several `alternatives`, image
(i, k) has unit i of alternative k and the rest of the base: a row shows what one unit can change.

In a model with a causal block, on="causes" replaces causes instead of noises: the cause of
unit i is set to its value in the alternative, independent of its parents and its noise, and
its effects change too.

"On the interventional consistency of autoencoders", ICLR 2021 submission: fig. 34, 35.
Leeb et al., "Structure by architecture", ICLR 2023, fig. 6a, for several alternatives, with
the latents of a structural decoder in four `parts`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import decode
from zscope.assays.entry import Entry
from zscope.assays.units import Units, UnitsOption, units_of
from zscope.autoencoder import Autoencoder, Posterior, WithCausalBlock, evaluation
from zscope.errors import ConfigError, Undefined
from zscope.groups import Groups
from zscope.layout import Layout
from zscope.randomness import fresh
from zscope.results import Result
from zscope.sampling import posterior as posterior_samples
from zscope.sampling import recorded_codes, whole
from zscope.types import Codes

__all__ = ["Hybridisation", "hybridisation"]

SHOWN = 12  # units in the figure
MOST_SOUND = 2  # channels of sound, as in `zscope.data`


@dataclass(frozen=True, eq=False)
class Hybridisation(Result):
    """Decoded hybrids: (units, ...), in the double form (units, units, ...), and with several
    alternatives (units, alternatives, ...)."""

    sources: Codes  # base and alternatives; in the double form there are two
    decoded_sources: Tensor
    codes: Float[Tensor, "*grid columns"]  # the latents, or the causes, that were decoded
    decoded: Tensor
    groups: list[list[int]]
    change: Float[Tensor, "*grid"]  # root mean square difference from the decoded base
    on: Literal["noises", "causes"] = "noises"
    double: bool = False

    @property
    def unit_change(self) -> Float[Tensor, " units"]:
        """How much each unit changes the base; of several alternatives the root mean square."""
        if self.double:
            return self.change.diagonal()
        return self.change if self.change.ndim == 1 else self.change.square().mean(1).sqrt()

    def to_dict(self) -> dict[str, Any]:
        """Without the pictures, and without codes of maps."""
        left_out = ("decoded", "decoded_sources", *(() if self.double else ("double",)))
        left_out = (*left_out, *(() if self.unit == "latent" else ("sources", "codes")))
        return {name: value for name, value in super().to_dict().items() if name not in left_out}

    def summary(self) -> list[tuple[str, str]]:
        change = self.unit_change
        names = self.unit_names or [f"unit {k}" for k in range(len(change))]
        most, least = int(change.argmax()), int(change.argmin())
        return [
            ("units", str(len(self.groups))),
            ("largest change", f"{float(change[most]):.4g} ({names[most]})"),
            ("smallest change", f"{float(change[least]):.4g} ({names[least]})"),
        ]

    def _drawable(self, observations: Tensor) -> Tensor:
        """Sound as one line, its channels one after another, and of video the middle frame."""
        shape = self.decoded_sources.shape[1:]
        if len(shape) == 2 and shape[0] <= MOST_SOUND:
            return observations.flatten(-2)
        return observations[..., shape[1] // 2, :, :] if len(shape) == 4 else observations

    def plot(self, ax: Any = None) -> Any:
        """The hybrids; of more than 12 units, those that change the base most."""
        from zscope.plots import hybrid_grid, segment_grid

        change = self.unit_change
        units = sorted(change.argsort(descending=True, stable=True)[:SHOWN].tolist())
        decoded = self.decoded[units][:, units] if self.double else self.decoded[units]
        decoded, sources = self._drawable(decoded), self._drawable(self.decoded_sources)
        names = [str(unit) for unit in units]
        if self.change.ndim == 2 and not self.double:
            names = [
                self.unit_names[unit] if self.unit_names else f"latents {_range(self.groups[unit])}"
                for unit in units
            ]
            return segment_grid(decoded, sources, names=names, ax=ax)
        ax = hybrid_grid(decoded, sources, names=names, ax=ax)
        if len(units) < len(change):
            note = f"({len(units)} of {len(change)}, the largest changes)"
            ax.set_xlabel(f"{ax.get_xlabel()} {note}")
        return ax


@accepts_recording
def hybridisation(
    autoencoder: Autoencoder,
    codes: Posterior | Tensor | np.ndarray,
    *,
    double: bool = False,
    alternatives: int = 1,
    on: Literal["noises", "causes"] = "noises",
    units: UnitsOption = "auto",
    groups: Groups | Literal["model"] | None = None,
    parts: int | None = None,
    generator: Generator | None = None,
) -> Hybridisation:
    """Decode the base with each unit of the alternative(s) in turn.

    The first code is the base, followed by the `alternatives` (two for `double`); from more
    codes, they are drawn at random. Units are `on` the noises (the codes) or, in a model
    with a causal block, on the causes. They are `units`: single latents or, of maps, channels;
    `groups` of latents ("model": the variables of the model); or `parts` of equally many latents,
    in their order.
    """
    whole("hybridisation", 1, alternatives=alternatives)
    if double and alternatives > 1:
        raise ConfigError(
            f"hybridisation: double, with alternatives={alternatives}; the double form has two "
            "alternatives. Leave one of the options out."
        )
    generator = fresh(generator)
    layout = codes.layout if isinstance(codes, Posterior) else autoencoder.layout
    if isinstance(codes, Posterior):
        codes = codes.mean
    codes = recorded_codes(codes, "hybridisation")
    needed = 3 if double else 1 + alternatives
    if len(codes) < needed:
        raise Undefined(
            f"hybridisation: {len(codes)} code(s); {needed} are needed: a base and "
            f"{needed - 1} alternative(s). Give more codes."
        )
    if len(codes) > needed:
        codes = posterior_samples(Posterior(codes), needed, generator=generator)
    chosen = _units(autoencoder, units, groups, parts, codes.shape[1], layout, alternatives)
    if on == "causes":
        hybrids, decoded = _cause_hybrids(autoencoder, codes, chosen.lists, double)
    else:
        hybrids = _noise_hybrids(codes, chosen, double)
        decoded = decode(autoencoder, torch.cat([codes, hybrids.flatten(0, -2)]))
    sources, grid = decoded[:needed], decoded[needed:]
    change = (grid - sources[0]).flatten(1).double().square().mean(1).sqrt()
    shape = hybrids.shape[:-1]
    result = Hybridisation(
        sources=codes,
        decoded_sources=sources,
        codes=hybrids,
        decoded=grid.unflatten(0, shape),
        groups=chosen.lists,
        change=change.reshape(shape),
        on=on,
        double=double,
    )
    return chosen.name(result)


def _units(
    autoencoder: Autoencoder,
    units: UnitsOption,
    groups: Groups | Literal["model"] | None,
    parts: int | None,
    latents: int,
    layout: Layout | None,
    rounds: int,
) -> Units:
    """The latents of each unit."""
    who = "hybridisation"
    if parts is None:
        groups = autoencoder.groups if isinstance(groups, str) else groups
        return units_of(who, units, groups, latents, layout, rounds=rounds)
    whole(who, 1, parts=parts)
    if groups is not None or latents % parts:
        raise ConfigError(
            f"hybridisation: parts={parts} of {latents} latents"
            f"{'' if groups is None else ', and groups'}; expected a number that divides the "
            "latents evenly, and no groups. List other units: groups=[[0, 1], [2]]."
        )
    lists = [part.tolist() for part in torch.arange(latents).chunk(parts)]
    return units_of(who, units, lists, latents, layout)


def _range(latents: list[int]) -> str:
    """0-3 for consecutive latents, else all of them."""
    first, last = latents[0], latents[-1]
    if len(latents) > 2 and latents == list(range(first, last + 1)):
        return f"{first}\u2013{last}"
    return ", ".join(map(str, latents))


def _noise_hybrids(codes: Codes, units: Units, double: bool) -> Tensor:
    member = units.number.to(codes.device) == torch.arange(len(units), device=codes.device)[:, None]
    if len(codes) == 2:
        return torch.where(member, codes[1], codes[0])
    if not double:
        return torch.where(member[:, None], codes[1:], codes[0])
    # The first alternative is inserted last, so that the diagonal has it alone.
    second = torch.where(member[None], codes[2], codes[0])
    return torch.where(member[:, None], codes[1], second)


def _cause_hybrids(
    autoencoder: Autoencoder, codes: Codes, groups: list[list[int]], double: bool
) -> tuple[Tensor, Tensor]:
    """(causes of the hybrids, decoded sources and hybrids) for a model with a causal block."""
    if not isinstance(autoencoder, WithCausalBlock) or autoencoder.block is None:
        raise Undefined(
            f"hybridisation: {type(autoencoder).__name__} has no causal block, so only its "
            "codes can be hybridised. Leave out on='causes', or build the model with a block."
        )
    device, dtype = autoencoder.place
    noises = codes.to(device, dtype)
    with evaluation(autoencoder):
        own = autoencoder.causes(noises)
        units = own.unflatten(1, (codes.shape[1], -1))

        def with_causes(*replaced: tuple[int, int]) -> Tensor:
            """The causes of the base, with each (alternative, group) replaced."""
            fixed = {
                unit: units[source, unit] for source, group in replaced for unit in groups[group]
            }
            causes: Tensor = autoencoder.causes(noises[:1], fixed=fixed)[0]
            return causes

        count = range(len(groups))
        if len(codes) == 2:
            hybrids = torch.stack([with_causes((1, i)) for i in count])
        else:  # for the same unit, the first alternative wins
            others = range(1, len(codes))
            rows = [
                [with_causes((2, j), (1, i)) for j in count]
                if double
                else [with_causes((k, i)) for k in others]
                for i in count
            ]
            hybrids = torch.stack([torch.stack(row) for row in rows])
        decoded = autoencoder.decode_causes(torch.cat([own, hybrids.flatten(0, -2)]))
    return hybrids.to(codes), decoded.to(codes.device)


ENTRY = Entry(
    question="What changes when one latent is taken from another sample?",
    meaning=(
        "Hybrids take one latent from another sample and all others from the base; what differs "
        "between the two pictures is what that latent changes."
    ),
    figure=(
        "Between the base and the other sample, each picture has one latent, or one row and one "
        "column of latents, from another sample: pictures like the base are of latents without "
        "effect."
    ),
    takes=("decoder", "posterior"),
    passes="(latents + 1) * alternatives + 1",
    most=4_000,
    maps="units",
)

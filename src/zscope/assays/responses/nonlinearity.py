"""Variable nonlinearity: how far from linear is the decoder in each of its variables?

Variable i of each code a is replaced by that of another code, which gives b. With D the decoder,

    nonlinearity_i  E ||D((a + b)/2) - (D(a) + D(b))/2||  /  E ||(D(b) - D(a))/2||
    effect_i        E ||D(b) - D(a)||^2 / (2 Var D(a))
    unexplained_i   1 - R^2 of the best linear prediction of D(b) - D(a) from the change of the
                    latents of the variable

The first is 0 if and only if the pixels are linear in the variable along every exchange,
whatever the others are; then D is at the middle of the way what linear interpolation gives.
It rises as the picture bends on the way. The last, from 0 to 1, is 0 only if the effect is
linear and the same whatever the other variables are: an interaction, such as the colour of a
shape, counts too. `effect` is 1 for a variable that alone decides everything. All are unchanged
by any invertible linear map of the latents of a variable, and by the order of the variables.

A variable whose exchange changes nothing has a nonlinearity of 0/0: those with an effect below
`least` are masked (None). `order` is the mean over the first half of the variables minus that
over the last half (of an odd number, without the middle one): above 0 if early variables are
the non-linear ones, 0 in the mean over random orders.

Where latents are maps, the variables are whole channels, exchanged at all places. The linear
prediction then has as many inputs as places; it is left out (None) where there are fewer than four
exchanges for each, as it would fit anything.

Leeb et al., "Structure by architecture", ICLR 2023, section 4.1 and fig. 4, who show it in
traversals and print no number for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.assays.active import map_layout
from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import decode, posterior_of
from zscope.assays.entry import Entry
from zscope.assays.units import UnitsOption, units_of
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined
from zscope.groups import Groups, membership
from zscope.randomness import fresh
from zscope.results import Measure, Scored, listed
from zscope.sampling import recorded_codes, whole

__all__ = ["VariableNonlinearity", "variable_nonlinearity"]

FEWEST = 4  # exchanges for each number that a linear prediction of maps is made from
BLOCK_BYTES = 8 * 2**20


@dataclass(frozen=True, eq=False)
class VariableNonlinearity(Scored):
    """By variable, in their order; None where exchanging it changes too little."""

    why_no_interval = "it describes one decoder; compare models of several seeds"
    why_no_chance = "a decoder that has learned nothing is masked"

    nonlinearity: list[float | None]
    unexplained: list[float | None]
    effect: list[float]
    groups: list[list[int]]  # empty for units of maps, which have names
    least: float
    samples: int

    @property
    def order(self) -> float | None:
        """Early half minus late half; None where a half has no variable with an effect."""
        count = len(self.nonlinearity)
        half = count // 2
        means = []
        for part in (self.nonlinearity[:half], self.nonlinearity[count - half :]):
            known = [value for value in part if value is not None]
            means.append(sum(known) / len(known) if known else None)
        early, late = means
        return None if early is None or late is None else early - late

    def measures(self) -> list[Measure]:
        rows = [
            self.measure(self.unit_names[k] if self.unit_names else f"variable {k}", value)
            for k, value in enumerate(self.nonlinearity)
            if value is not None
        ]
        return (
            rows if self.order is None else [self.measure("order", self.order, chance=0.0), *rows]
        )

    def summary(self) -> list[tuple[str, str]]:
        masked = [k for k, value in enumerate(self.nonlinearity) if value is None]
        return [
            (f"effect below {self.least:g}", listed(masked)),
            ("effects", listed([f"{each:.2f}" for each in self.effect])),
        ]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        values = [0.0 if each is None else each for each in self.nonlinearity]
        known = [k for k, each in enumerate(self.nonlinearity) if each is not None]
        note = "" if len(known) == len(values) else " (without a bar: unused)"
        return bars(values, x=f"variable{note}", y="nonlinearity", marks=known, ax=ax)


@accepts_recording
def variable_nonlinearity(
    autoencoder: Autoencoder,
    codes: Posterior | Tensor | np.ndarray,
    *,
    groups: Groups | None = None,
    units: UnitsOption = "auto",
    samples: int = 512,
    least: float = 0.01,
    generator: Generator | None = None,
) -> VariableNonlinearity:
    """How far from linear the decoder is in each variable, over exchanges between codes.

    `groups` are the latents of each variable in their order: by default the variables of the
    model, else single latents, or of maps the channels; `units` names others ("patch:4"). At most
    `samples` codes are used, drawn at random.
    """
    who = "variable_nonlinearity"
    whole(who, 2, samples=samples)
    if not 0 <= least < 1:
        raise ConfigError(
            f"{who}: least={least}; expected a share of the variance, for instance 0.01."
        )
    posterior = posterior_of(codes, who)
    recorded = recorded_codes(posterior.mean, who)
    if len(recorded) < 2:
        raise Undefined(f"{who}: {len(recorded)} code(s), and an exchange needs two. Record more.")
    if groups is None and units == "auto":
        groups = autoencoder.groups
    layout = map_layout(autoencoder, posterior, who)
    parts = units_of(who, units, groups, recorded.shape[1], layout, rounds=2 * samples)
    lists = parts.lists
    order = torch.randperm(len(recorded), generator=fresh(generator))[:samples]
    base = recorded[order.to(recorded.device)]
    parts.enough(who, len(recorded), len(base))
    donors = base.roll(-1, 0)
    start = _decoded(autoencoder, base)
    spread = torch.zeros(len(base), dtype=torch.float64)
    for (each,) in _blocks(start):
        spread += (each - each.mean(0)).square().sum(1)
    variance = float(spread.mean())
    if variance == 0:
        raise Undefined(
            f"{who}: all {len(base)} codes are decoded to the same observation, so no variable "
            "has an effect. Has the posterior collapsed? See: zscope assay RUN variable-types"
        )
    effects: list[float] = []
    bends: list[float | None] = []
    rests: list[float | None] = []
    for member in membership(lists, base.shape[1]).to(base.device):
        other = torch.where(member, donors, base)
        moves = (donors - base)[:, member].double().cpu()
        few = layout is not None and len(moves) < FEWEST * moves.shape[1]
        sizes, bend, rest = _exchange(autoencoder, base, other, start, None if few else moves)
        effect = sizes / (2 * variance)
        effects.append(effect)
        masked = effect < least or effect == 0
        bends.append(None if masked else bend)
        rests.append(None if masked else rest)
    return parts.name(
        VariableNonlinearity(
            nonlinearity=bends,
            unexplained=rests,
            effect=effects,
            groups=[] if parts.names else lists,
            least=least,
            samples=len(base),
        )
    )


def _decoded(autoencoder: Autoencoder, codes: Tensor) -> Tensor:
    return decode(autoencoder, codes).flatten(1).cpu()


def _blocks(*tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Some columns of each at a time, in double precision, so that no whole table has to be."""
    size = max(1, BLOCK_BYTES // (8 * len(tables[0])))
    for parts in zip(*(table.split(size, 1) for table in tables), strict=True):
        yield tuple(part.double() for part in parts)


def _exchange(
    autoencoder: Autoencoder, base: Tensor, other: Tensor, start: Tensor, moves: Tensor | None
) -> tuple[float, float, float | None]:
    """Of an exchange: E ||D(b) - D(a)||^2, the nonlinearity, and what `moves` do not explain."""
    end, middle = (_decoded(autoencoder, z) for z in (other, (base + other) / 2))
    moved, bent = torch.zeros(2, len(base), dtype=torch.float64)
    for a, b, half in _blocks(start, end, middle):
        moved += (b - a).square().sum(1)
        bent += (half - (a + b) / 2).square().sum(1)
    if not moved.any():
        return 0.0, 0.0, 0.0
    bend = float(bent.sqrt().mean() / (moved.sqrt().mean() / 2))
    rest = None if moves is None else _unexplained(moves, start, end)
    return float(moved.mean()), bend, rest


def _unexplained(moves: Tensor, start: Tensor, end: Tensor) -> float:
    """1 - R^2 of a linear map from moves to changes, through the origin."""
    rest = whole = 0.0
    for a, b in _blocks(start, end):
        change = b - a
        weights = torch.linalg.lstsq(moves, change, driver="gelsd").solution
        rest += float((change - moves @ weights).square().sum())
        whole += float(change.square().sum())
    return min(1.0, rest / whole)


ENTRY = Entry(
    question="How far from linear is the decoder in each of its variables?",
    meaning=(
        "0 if the picture changes linearly with the variable along every exchange; larger, the "
        "more the picture bends on the way."
    ),
    figure=(
        "One bar for each variable of the decoder, first to last: higher bars bend the picture "
        "more; variables without effect are grey."
    ),
    takes=("decoder", "posterior"),
    passes="samples * (2 * latents + 1)",
    most=12_000,
    on_request=True,
    maps="units",
)

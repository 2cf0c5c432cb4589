"""Interventional consistency: does a change to one latent survive and leave the others unchanged?

N are latent vectors and N_I the same vectors after the intervention I_m, which sets unit m
of all of them to one value v (from the recorded codes). N' and N'_I are their responses
(posterior means), and sigma_i is the standard deviation of unit i over N'.

    invariance        INV[m,i] = 1 - E_I [ E_N |(N' - N'_I)_i| / (U_I sigma_i) ]
    equivariance      EQV[m,i] = 1 - E_I [ E_N |(Z'_I - I(Z'))_i| / (U_I sigma_i) ]
    self-consistency  SCN[i]   = 1 - E_N |(N' - N)_i| / sigma_i

with U_I = E_N |N_m - v| / sigma_m the size of the intervention, Z' the causes of N'
(N' itself without a causal block), and I(Z') the causes when unit m of the response is
set to v. All are at most 1 (SCN is -inf for a unit that should vary and never does).
Off the diagonal, INV = 1 means that no other unit changed; the diagonal is 0 where the
intervention is fully preserved and 1 where it has no effect. 0/0 is 0.

`flavour="scale-free"`: as above, in units of each latent's standard deviation: permuting
and rescaling latents changes nothing.
`flavour="paper"`: as printed, U_I is not divided by sigma_m: the same for latents of scale
1, but rescaling a latent changes the scores.

Collapsed units are not in use (no latent of theirs is in `recording.used`), or do not respond:
sigma_m below 1e-4 of the largest, or INV[m,m] > 0.9. They get high scores for doing nothing,
so `means` leaves them out and `means_with_collapsed` includes them. With `groups` a unit is a
group of latents and |.| the Euclidean norm over it.

N is drawn from the prior, or from hybrids of the codes if there is none; SCN is computed for
every distribution that the model has: prior, posterior, hybrid and uniform.

Of latents that are maps, units are channels: an intervention sets a channel to its map in another
picture, |.| is the norm over places, and N are hybrids of channels of posterior means, unless
`base` asks for others. SCN is computed for pictures and for hybrids, and for the prior or a box
only if they are the base: their samples are white maps, which nobody decodes. Of more than 16
channels the 16 of largest variance are intervened on (`intervened`, the rows of the matrices), and
all are observed.

"On the interventional consistency of autoencoders", ICLR 2021 submission: sec. 2.1, eq. 5
and the scores after it; table 2 for the distributions of self-consistency.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, points_of, respond, used_latents
from zscope.assays.entry import Entry
from zscope.assays.responses.interventions import MOST_UNITS, Errors, Flavour, norms, spread_of
from zscope.assays.responses.matrix import NEGLIGIBLE
from zscope.assays.responses.resampling import resamples_of, tail
from zscope.assays.units import Units, UnitsOption, units_of
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, InterfaceError, Undefined, did_you_mean
from zscope.groups import Groups
from zscope.randomness import fresh
from zscope.results import NOT_REQUESTED, Measure, Scored, listed
from zscope.sampling import hybrid as hybrid_samples
from zscope.sampling import posterior as posterior_samples
from zscope.sampling import prior as prior_samples
from zscope.sampling import recorded_codes, whole
from zscope.sampling import uniform as uniform_samples
from zscope.types import Codes, Matrix

__all__ = ["Consistency", "interventional_consistency", "self_consistency"]

Base = Literal["prior", "posterior", "hybrid", "uniform"]
Interval = tuple[float, float]
WHITE_MAPS = ("prior", "uniform")
"""Distributions whose samples of maps have independent places."""
UNRESPONSIVE = 0.9
MOST_CHANGED = 16
"""Of the units of maps; the others are only observed."""
OF_THESE_CODES = (
    "The interval of self-consistency (uniform) is for the box of these codes, whose ends are the "
    "most extreme of them: over other codes it covers about 90 %."
)


@dataclass(frozen=True, eq=False)
class Consistency(Scored):
    """Rows: the unit intervened on. Columns: the unit observed."""

    why_no_interval = NOT_REQUESTED

    invariance: Matrix
    equivariance: Matrix
    self_consistency: dict[str, Float[Tensor, "levels units"]]  # by distribution
    collapsed: list[int]
    means: dict[str, float]  # without collapsed units; empty if fewer than two are left
    means_with_collapsed: dict[str, float]
    base: Base  # where N came from
    flavour: Flavour
    groups: list[list[int]]
    interventions: int
    samples: int
    chance: dict[str, float]  # of `means`, if responses belonged to other codes
    intervals: dict[str, Interval]  # of `means`; empty without resamples
    intervened: list[int] | None = None  # the units of the rows; None: all of them

    def to_dict(self) -> dict[str, Any]:
        """Without the units of the rows, if these are all."""
        left_out = ("intervened",) if self.intervened is None else ()
        return {name: value for name, value in super().to_dict().items() if name not in left_out}

    @property
    def flags(self) -> list[str]:
        return [OF_THESE_CODES] if "self-consistency (uniform)" in self.intervals else []

    def measures(self) -> list[Measure]:
        # Of many units only self-consistency has an interval.
        many = f"too many units to resample: {len(self.groups)}, and at most {MOST_UNITS} can be"
        reason = many if self.intervals else None
        measures = [
            self.measure(
                name, value, interval=self.intervals.get(name, reason), chance=self.chance[name]
            )
            for name, value in self.means.items()
        ]
        # In every table: the means without collapsed units may be those of few units.
        only = "without collapsed units only"
        measures += [
            self.measure(f"{name}, all units", value, interval=only, chance=only)
            for name, value in self.means_with_collapsed.items()
            if math.isfinite(value)
        ]
        count, why = float(len(self.collapsed)), "it is a count"
        return [*measures, self.measure("collapsed units", count, interval=why, chance=why)]

    def summary(self) -> list[tuple[str, str]]:
        lines = [("collapsed", listed(self.collapsed))]
        if not self.means:
            lines.append(("means", "undefined: fewer than two units respond"))
        if self.intervened is not None:
            lines.append(("intervened on", listed(self.intervened)))
        return lines

    def by_unit(self, name: str = "self-consistency (posterior)") -> Float[Tensor, " units"]:
        """A mean of `means` unit by unit, collapsed ones included.

        Invariance: how unchanged each unit is by interventions on the others. Equivariance:
        over interventions on all units.
        """
        units = len(self.groups)
        if name == "invariance":
            own = torch.zeros_like(self.invariance[0])
            times = torch.full_like(own, float(len(self.invariance)))
            rows = list(range(units)) if self.intervened is None else self.intervened
            own[rows] = self.invariance[list(range(len(rows))), rows]
            times[rows] -= 1
            return (self.invariance.sum(0) - own) / times.clamp_min(1)
        if name == "equivariance":
            return self.equivariance.mean(0)
        distribution = name.removeprefix("self-consistency (").removesuffix(")")
        if distribution not in self.self_consistency:
            known = [f"self-consistency ({each})" for each in self.self_consistency]
            raise ConfigError(
                f"by_unit: there is no {name!r}. "
                f"{did_you_mean(name, ['invariance', 'equivariance', *known])}"
            )
        return self.self_consistency[distribution][-1]

    def plot(
        self, ax: Any = None, *, which: Literal["invariance", "equivariance"] = "invariance"
    ) -> Any:
        from zscope.plots import heatmap

        alive = [unit for unit in range(len(self.groups)) if unit not in self.collapsed]
        noun = self.unit.partition(":")[0] if self.unit_names else "unit"
        return heatmap(
            getattr(self, which),
            rows=self.intervened,
            x=f"observed {noun}",
            y=f"intervened {noun}",
            label=which,
            diverging=False,  # below 0 is as bad as 0; 1 is ideal
            limit=1,
            marks=alive if self.collapsed and self.intervened is None else None,
            marked="not collapsed",
            ax=ax,
        )


@accepts_recording
def interventional_consistency(
    autoencoder: Autoencoder,
    codes: Recorded,
    *,
    interventions: int = 16,
    samples: int = 128,
    base: Base | None = None,
    units: UnitsOption = "auto",
    groups: Groups | None = None,
    flavour: Flavour = "scale-free",
    levels: int = 1,
    resamples: int = 0,
    generator: Generator | None = None,
) -> Consistency:
    """Invariance, equivariance and self-consistency of each unit.

    Each unit is set to `interventions` values, on `samples` latent vectors. `codes` are recorded
    codes or a `Posterior`. `base` is the distribution of N: by default the prior if there is
    one, else hybrids, and of maps hybrids. `units` are single latents or, of maps, channels;
    `groups` is another name for a partition. `levels` > 1 applies the response repeatedly and
    compares the result with the start. `resamples` > 0 adds intervals of the means, over resampled
    latent vectors and values (both at once: Owen, Ann. Appl. Stat. 1(2), 2007).
    """
    who = "interventional_consistency"
    generator = fresh(generator)
    if flavour not in ("scale-free", "paper"):
        raise ConfigError(f"{who}: flavour={flavour!r}; use 'scale-free' or 'paper'.")
    whole(who, interventions=interventions, samples=samples, levels=levels)
    resamples = resamples_of(resamples, who)
    if interventions < 1 or samples < 2 or levels < 1:
        raise ConfigError(
            f"{who}: interventions={interventions}, samples={samples}, levels={levels}; at least "
            "1 intervention, 2 samples and 1 level are needed."
        )
    points = points_of(codes, who)
    recorded, of_maps = recorded_codes(points, who, generator), points.layout is not None
    if autoencoder.latents != recorded.shape[1]:
        raise InterfaceError(
            f"{who}: codes of {recorded.shape[1]} latents were given, but {autoencoder.title} has "
            f"{autoencoder.latents}. Are they codes of this model?"
        )
    chosen = units_of(who, units, groups, recorded.shape[1], points.layout)
    chosen.enough(who, len(recorded))
    if not of_maps and len(recorded) < max(2, recorded.shape[1]):
        raise Undefined(
            f"{who}: {len(recorded)} codes for {recorded.shape[1]} latents; fewer codes than "
            "latents cannot represent the aggregate posterior. Record more observations."
        )
    unused = _unused(chosen, used_latents(autoencoder, codes, who))
    changed = _changed(chosen, recorded)
    if base is None:
        base = "hybrid" if autoencoder.prior is None or of_maps else "prior"
    noises = draw(base, autoencoder, recorded, samples, chosen.lists, generator)
    before = respond(autoencoder, noises)
    # All units take their values from the same recorded codes: their order does not matter.
    rows = torch.randint(
        len(recorded), (interventions,), generator=generator, device=generator.device
    )
    values = recorded[rows.to(recorded.device)].to(noises)
    errors = Errors(autoencoder, noises, before, values, chosen, changed, flavour)
    invariance, equivariance = 1 - errors.invariance, 1 - errors.equivariance
    silent = (errors.spread < NEGLIGIBLE * errors.spread.max()) | (errors.spread == 0)
    responsive = ~silent
    responsive[changed] &= invariance[list(range(len(changed))), changed] <= UNRESPONSIVE
    collapsed = (unused | ~responsive.cpu()).nonzero().flatten().tolist()
    distributions: list[Base] = ["prior", "posterior", "hybrid", "uniform"]
    drifts: dict[str, _Drift] = {}
    for name in distributions:
        if name == base:  # its responses have been computed already
            drifts[name] = _Drift(autoencoder, noises, before, chosen, levels)
        elif (name != "prior" or autoencoder.prior is not None) and not (
            of_maps and name in WHITE_MAPS
        ):
            vectors = draw(name, autoencoder, recorded, samples, chosen.lists, generator)
            drifts[name] = _Drift(autoencoder, vectors, None, chosen, levels)
    scores = {name: drift.scores for name, drift in drifts.items()}
    # Those that were changed first, so that a row and its own column have the same index.
    every = [*changed, *(unit for unit in range(len(chosen)) if unit not in set(changed))]
    alive = [unit for unit in every if unit not in collapsed]
    unrelated = {name: drift.unrelated for name, drift in drifts.items()}

    def means(moved: Matrix, strayed: Matrix, drift: dict[str, Tensor], units: list[int]) -> Any:
        return _means(moved, strayed, drift, units, changed)

    intervals: dict[str, Interval] = {}
    if resamples:
        draws = [means(*both, {}, alive) for both in errors.resample(resamples, generator)]
        intervals = _intervals(draws, min(errors.blocks, interventions)) | {
            f"self-consistency ({name})": drift.interval(alive) for name, drift in drifts.items()
        }
    result = Consistency(
        invariance=invariance,
        equivariance=equivariance,
        self_consistency=scores,
        collapsed=collapsed,
        means=means(invariance, equivariance, scores, alive),
        means_with_collapsed=means(invariance, equivariance, scores, every),
        base=base,
        flavour=flavour,
        groups=chosen.lists,
        interventions=interventions,
        samples=samples,
        chance=means(1 - errors.unrelated[0], 1 - errors.unrelated[1], unrelated, alive),
        intervals=intervals if len(alive) > 1 else {},
        intervened=None if len(changed) == len(chosen) else changed,
    )
    return chosen.name(result)


def _unused(units: Units, used: list[int]) -> Tensor:
    """Which units have no latent, or none of a channel, that is in use."""
    if units.layout is None:
        return torch.tensor([set(used).isdisjoint(group) for group in units.lists])
    in_use = torch.zeros(units.layout.channels, dtype=torch.bool)
    in_use[used] = True
    every = in_use.repeat_interleave(units.layout.positions)
    return units.sums(every[None].double())[0] == 0


def _changed(units: Units, codes: Codes) -> list[int]:
    """The units that are intervened on: of many units of maps those of largest variance."""
    if units.layout is None or len(units) <= MOST_CHANGED:
        return list(range(len(units)))
    variance = units.sums(codes.var(0, correction=0).double().cpu()[None])[0]
    size = torch.tensor([len(members) for members in units.lists], dtype=torch.float64)
    order = (variance / size).argsort(descending=True, stable=True)
    return order[:MOST_CHANGED].sort().values.tolist()


def self_consistency(
    autoencoder: Autoencoder,
    noises: Codes,
    *,
    first: Codes | None = None,
    groups: Groups | None = None,
    levels: int = 1,
) -> Float[Tensor, "levels units"]:
    """SCN of each unit for the given latent vectors, after 1, 2, … `levels` responses.

    All levels are in units of the standard deviation of the first responses (`first`, if they
    are known).
    """
    units = units_of("self_consistency", "auto", groups, noises.shape[1], None)
    return _Drift(autoencoder, noises, first, units, levels).scores


class _Drift:
    """How far responses are from their latent vectors: SCN, its chance level and interval."""

    def __init__(
        self,
        autoencoder: Autoencoder,
        noises: Codes,
        first: Codes | None,
        units: Units,
        levels: int,
    ) -> None:
        response = respond(autoencoder, noises) if first is None else first
        self.spread, scores = spread_of(response, units), []
        for level in range(levels):
            response = response if level == 0 else respond(autoencoder, response)
            self.distance = norms(response - noises, units)
            scores.append(self._score(self.distance.mean(0)))
        self.scores = torch.stack(scores)
        others = norms(response.roll(1, 0) - noises, units).mean(0)
        self.unrelated = self._score(others)[None]

    def _score(self, distance: Tensor) -> Tensor:
        # 0/0, where nothing varies and nothing moved, is no error. A unit that should vary and
        # does not is infinitely far off, in units of its standard deviation.
        return 1 - torch.where(distance == 0, 0, distance / self.spread)

    def interval(self, units: list[int]) -> Interval:
        """The 95 % interval of the mean over these units, over latent vectors."""
        each = torch.stack([self._score(row) for row in self.distance])[:, units].mean(1)
        reach = 1.96 * float(each.std()) / len(each) ** 0.5
        return float(each.mean()) - reach, float(each.mean()) + reach


def draw(
    name: Base,
    autoencoder: Autoencoder,
    codes: Codes,
    samples: int,
    groups: list[list[int]],
    generator: Generator,
) -> Tensor:
    """Draw latent vectors from one of the four distributions, in the dtype of the codes."""
    if name == "prior":
        return prior_samples(autoencoder, samples, generator=generator).to(codes)
    if name == "posterior":
        return posterior_samples(Posterior(codes), samples, generator=generator)
    if name == "hybrid":
        return hybrid_samples(codes, samples, groups=groups, generator=generator)
    if name == "uniform":
        return uniform_samples(codes, samples, generator=generator)
    raise ConfigError(
        f"interventional_consistency: base={name!r}; use prior, posterior, hybrid or uniform."
    )


def _means(
    invariance: Matrix,
    equivariance: Matrix,
    scores: dict[str, Tensor],
    units: list[int],
    changed: list[int],
) -> dict[str, float]:
    """Means over these units, of which those that were `changed`, the rows, come first."""
    rows = [row for row, unit in enumerate(changed) if unit in units]
    if len(units) < 2 or not rows:
        return {}
    inside = invariance[rows][:, units]
    between = (inside.sum() - inside.trace()) / (len(rows) * (len(units) - 1))
    means = {
        "invariance": float(between),
        "equivariance": float(equivariance[rows][:, units].mean()),
    }
    for name, levels in scores.items():
        means[f"self-consistency ({name})"] = float(levels[-1, units].mean())
    return means


def _intervals(draws: list[dict[str, float]], units: int) -> dict[str, Interval]:
    """The 95 % interval of each mean, from draws of `units` blocks or values."""
    cut = tail(units)
    ends = torch.tensor([cut, 1 - cut], dtype=torch.float64)
    return {
        name: tuple(torch.quantile(torch.tensor([d[name] for d in draws]).double(), ends).tolist())
        for name in (draws[0] if draws else ())
    }


ENTRY = Entry(
    question="Does a change to one latent survive and leave the others unchanged?",
    meaning=(
        "Invariance 1 means that changing one latent leaves the encoded others as they were, "
        "self-consistency 1 that codes come back as they were; both fall as the model mixes "
        "latents."
    ),
    figure=(
        "Rows are the latents that were set, columns those that were observed: off the diagonal 1 "
        "means unchanged, on it 0 means that the change was fully preserved."
    ),
    takes=("autoencoder", "recording"),
    passes="interventions * samples * latents + 4 * samples",
    most=10_000,
    fewest=2,  # each is changed in every latent, many times
    maps="units",
    map_options={"interventions": 4, "samples": 32},
    map_passes="interventions * samples * min(latents, 16) + 2 * samples",
)

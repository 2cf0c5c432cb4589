"""Rate and distortion of many runs: one curve over β for each family of models.

    zs.experiments.rate_distortion_curves("runs")

Runs that agree in everything but β and the seed are one curve. β is the weight of the divergence
relative to that of the reconstruction (`divergence_weight` of the model), so that a run with a
weighted reconstruction stands where its loss puts it; models whose loss has no such weight are left
out. All rates are against the prior of the model, given the factors where it depends on them.

See `zscope.assays.regime.rate_distortion_curve` for the slopes and the area between curves.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from zscope import store
from zscope.assays.regime.rate_distortion_curve import (
    AreaBetween,
    RateDistortionCurve,
    area_between,
    rate_distortion_curve,
)
from zscope.assays.run import measure
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, Undefined, ZscopeError
from zscope.experiments.families import Family, Member, families, find_members
from zscope.experiments.observed import SAMPLES
from zscope.experiments.records import Clock, Tabular, Watch
from zscope.loading import load, run_data
from zscope.recording import record
from zscope.results import counted, text_table
from zscope.sampling import whole

__all__ = ["RateDistortionCurves", "rate_distortion_curves"]

WHO, ASSAY = "rate-distortion", "rate-distortion"
FREE = ("options.beta", "options.reconstruction_weight", "seed")
"""Fields in which the runs of one curve may differ."""


@dataclass(frozen=True, eq=False)
class RateDistortionCurves(Tabular):
    """A curve for each family of runs, and the areas between those of the same data."""

    columns = (
        "curve", "beta", "seed", "rate", "distortion", "elbo", "next beta", "slope", "violated",
        "excess", "worse",
    )  # fmt: skip

    curves: list[RateDistortionCurve]
    areas: list[AreaBetween]
    samples: int
    notes: list[str]  # which runs are left out, and why

    def records(self) -> list[dict[str, Any]]:
        return [row for curve in self.curves for row in curve.records()]

    def of(self, name: str) -> RateDistortionCurve:
        """The curve with this name."""
        for curve in self.curves:
            if curve.name == name:
                return curve
        names = ", ".join(repr(curve.name) for curve in self.curves)
        raise ConfigError(f"{WHO}: no curve is called {name!r}. There are {names}.")

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "curves": [curve.to_dict() for curve in self.curves],
            "areas": [area.to_dict() for area in self.areas],
            "samples": self.samples,
            "notes": self.notes,
        }

    def plot(self, ax: Any = None) -> Any:
        """Rate on x, distortion on y, with lines of equal ELBO."""
        from zscope.plots import rate_distortion_plane

        return rate_distortion_plane({curve.name: curve.points for curve in self.curves}, ax=ax)

    def __repr__(self) -> str:
        lines = []
        for curve in self.curves:
            lines += [curve.name] if curve.name else []
            table = [["β", "seeds", "rate", "distortion", "ELBO", "slope to the next", "outside"]]
            for beta, rate, distortion in curve.means:
                own = [slope for slope in curve.slopes if slope.low == beta]
                values = [slope.slope for slope in own if slope.slope is not None]
                ends = f"{min(values):.3g}" if values else ""
                ends += f" to {max(values):.3g}" if len(values) > 1 else ""
                wrong = f"{sum(slope.violated for slope in own)} of {len(own)}" if own else ""
                seeds = sum(point.beta == beta for point in curve.points)
                table.append(
                    [f"{beta:g}", str(seeds), f"{rate:.4g}", f"{distortion:.4g}",
                     f"{-rate - distortion:.4g}", ends, wrong]
                )  # fmt: skip
            lines += [text_table(table), ""]
        lines.append(
            "outside: slopes that do not lie between the two β, so that one of the models is not "
            "the best for its β"
        )
        for area in self.areas:
            first, second = area.names
            more = "more" if area.difference >= 0 else "less"
            low, high = area.rates
            lines.append(
                f"{second}: {abs(area.difference):.3g} nats {more} distortion than {first} at "
                f"equal rate ({low:.3g} to {high:.3g} nats)"
            )
        return "\n".join([*lines, *self.notes])


def rate_distortion_curves(
    runs: Any,
    data: Any = None,
    *,
    root: str | Path | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    tolerance: float = 0.0,
    progress: Watch | None = None,
) -> RateDistortionCurves:
    """Rate and distortion of runs, as curves over β with the slopes between neighbours.

    `runs` is a folder of runs, or several; `data` are by default those of each run (their
    held-out part), of which up to `samples` observations are used. `tolerance` is by how many
    nats a loss may exceed that of a neighbour.
    """
    whole(WHO, samples=samples, seed=seed)
    members, notes = find_members(WHO, runs)
    given = None if data is None else as_dataset(data)
    clock = Clock(len(members), progress)
    datasets: dict[str, Dataset] = {}
    curves: list[RateDistortionCurve] = []
    groups: list[Family] = []
    for family in families(members, FREE):
        points = []
        for member in family.members:
            clock(member.name)
            try:
                observed = given or _data_of(member, root, datasets)
                points.append(_point(member, observed, samples, seed))
            except Undefined as reason:
                notes.append(f"{member.name} is left out: {reason}")
        if points:
            curves.append(_curve(family, points, tolerance))
            groups.append(family)
    if not curves:
        raise Undefined(
            f"{WHO}: none of {counted(len(members), 'run')} has a rate and a β. {notes[0]}"
        )
    return RateDistortionCurves(curves, _areas(curves, groups), samples, notes)


Point = tuple[float, Any, float, float]
"""β, seed, rate and distortion."""


def _data_of(member: Member, root: str | Path | None, datasets: dict[str, Dataset]) -> Dataset:
    key = json.dumps(store.open_run(member.path).config.get("data"), sort_keys=True)
    if key not in datasets:
        datasets.clear()  # runs of one family have the same data: one dataset in memory is enough
        datasets[key] = run_data(member.path, root=root)
    return datasets[key]


def _point(member: Member, data: Dataset, samples: int, seed: int) -> Point:
    model = load(member.path)
    beta = model.divergence_weight
    if not beta:
        raise Undefined("its loss is not the distortion plus β times the rate.")
    recording = record(model, data, samples=samples, seed=seed)
    outcome = measure(recording, [ASSAY], options={ASSAY: {"samples": samples}})
    if ASSAY not in outcome.results:
        reasons = [*outcome.missing.values(), *(each.message for each in outcome.failed.values())]
        raise Undefined(f"it has no rate and distortion: {reasons[0]}")
    result: Any = outcome.results[ASSAY]
    return beta, member.fields["seed"], result.rate, result.distortion


def _curve(family: Family, points: Sequence[Point], tolerance: float) -> RateDistortionCurve:
    betas, seeds, rates, distortions = zip(*points, strict=True)
    # Seeds that are no numbers: those of weights and batches differ.
    numbers = {value: k for k, value in enumerate(dict.fromkeys(seeds))}
    plain = all(isinstance(value, int) for value in seeds)
    return rate_distortion_curve(
        betas,
        rates,
        distortions,
        seeds=seeds if plain else [numbers[value] for value in seeds],
        tolerance=tolerance,
        name=family.label,
    )


def _areas(curves: Sequence[RateDistortionCurve], groups: Sequence[Family]) -> list[AreaBetween]:
    """Between any two curves of the same data whose rates overlap."""
    areas = []
    for (first, a), (second, b) in combinations(zip(curves, groups, strict=True), 2):
        if _same_data(a.members[0], b.members[0]):
            try:
                areas.append(area_between(first, second))
            except ZscopeError:
                continue
    return areas


def _same_data(first: Member, second: Member) -> bool:
    own = [
        {key: value for key, value in each.fields.items() if key.partition(".")[0] == "data"}
        for each in (first, second)
    ]
    return own[0] == own[1]

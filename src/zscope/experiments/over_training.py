"""What `zscope dynamics` finds, part by part: numbers at the steps of a run, and their figures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zscope.assays.regime.tracking import CorrelationTracking
from zscope.errors import ConfigError, Undefined
from zscope.experiments.layer_maps import LayerMap, plot_maps, steps_table
from zscope.experiments.records import Tabular
from zscope.results import text_table

__all__ = [
    "CorrelationsOverTraining", "DimensionsOverTraining", "ScoresOverTraining",
    "SimilarityOverTraining", "TypesOverTraining", "fall_step",
]  # fmt: skip

SETTLED = 0.1


@dataclass(frozen=True, eq=False)
class SimilarityOverTraining(Tabular):
    """A map of layers for each step: rows at that step, columns at the end.

    At step 0 the model is untrained, which is the control: a layer that is no more similar later
    has learned nothing beyond what its architecture and the input give it. The map of the last
    step compares the final model with itself under other noise, which is the most that the other
    steps can reach.
    """

    columns = LayerMap.columns

    maps: list[LayerMap]
    final: int  # the step of the final model
    samples: int

    def records(self) -> list[dict[str, Any]]:
        return [row for each in self.maps for row in each.records()]

    def plot(self, ax: Any = None) -> Any:
        names = {
            "x": f"layers of the final model (step {self.final:,})",
            "y": "layers at this step",
        }
        return plot_maps(self.maps, **names, ax=ax)

    def __repr__(self) -> str:
        note = (
            "the smaller of CKA and Procrustes with the final model; step 0 is untrained, the last "
            "is the final model with other noise"
        )
        return f"{steps_table(self.maps)}\n{note}"


@dataclass(frozen=True, eq=False)
class DimensionsOverTraining(Tabular):
    """The intrinsic dimension of each layer, by step."""

    columns = ("step", "layer", "value", "low", "high", "n")

    steps: list[int]
    layers: list[str]
    table: list[dict[str, Any]]
    missing: dict[str, str] = field(default_factory=dict)  # "LAYER at step STEP" -> reason

    def records(self) -> list[dict[str, Any]]:
        return list(self.table)

    def of(self, layer: str) -> dict[int, float]:
        """By step, the dimension of one layer; steps without an answer are left out."""
        return {row["step"]: row["value"] for row in self.table if row["layer"] == layer}

    @property
    def settled(self) -> dict[str, int]:
        """By layer, the first step from which on its dimension is within 10 % of the last."""
        steps = {}
        for layer in self.layers:
            values = self.of(layer)
            if values:
                last = list(values.values())[-1]
                off = [s for s, value in values.items() if abs(value - last) > SETTLED * last]
                steps[layer] = min(s for s in values if not off or s > off[-1])
        return steps

    @property
    def settled_step(self) -> int | None:
        """The first step from which on every layer is within 10 % of its last value.

        None if some layer is not before the last step.
        """
        steps = self.settled.values()
        last = max(steps, default=None)
        return None if last == self.steps[-1] and len(self.steps) > 1 else last

    def change(self, layer: str, since: int, until: int | None = None) -> float:
        """The largest relative change of a layer's dimension from one step to later ones.

        max |d(s) / d(since) - 1| over the steps s after `since`, up to `until` (the last one).
        """
        values = self.of(layer)
        later = [s for s in values if s > since and (until is None or s <= until)]
        if since not in values or not later:
            raise Undefined(
                f"dynamics: layer {layer!r} has dimensions at steps {list(values)}; expected one "
                f"at step {since} and one after it, until {until or 'the last'}."
            )
        return max(abs(values[s] / values[since] - 1) for s in later)

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import step_lines

        series = {layer: self.of(layer) for layer in self.layers if self.of(layer)}
        return step_lines(series, x="step", y="intrinsic dimension", ax=ax)

    def __repr__(self) -> str:
        table = [["layer", *(f"step {step}" for step in self.steps), "settled from"]]
        settled = self.settled
        for layer in self.layers:
            values = self.of(layer)
            cells = [f"{values[s]:.2f}" if s in values else "none" for s in self.steps]
            table.append([layer, *cells, self._settled_text(settled.get(layer))])
        note = f"settled: within {SETTLED:.0%} of the last value from this step on; step 0 is "
        note += "untrained"
        step = self.settled_step
        overall = "not all layers have settled" if step is None else f"all layers: step {step}"
        notes = [note.replace("%", " %"), overall]
        return "\n".join([text_table(table), *notes, *_reasons(self.missing)])

    def _settled_text(self, step: int | None) -> str:
        if step is None:
            return ""
        return "not yet" if step == self.steps[-1] and len(self.steps) > 1 else f"step {step}"


@dataclass(frozen=True, eq=False)
class CorrelationsOverTraining(Tabular):
    """Correlations between latents, by step, and how often each latent correlates with another."""

    columns = ("step", "latent", "other", "correlation")

    steps: list[int]
    tracking: CorrelationTracking
    types: list[str]  # of each latent at the end; empty for a deterministic model

    def records(self) -> list[dict[str, Any]]:
        latents = range(len(self.tracking.counts))
        return [
            {"step": step, "latent": a, "other": b, "correlation": float(matrix[a, b])}
            for step, matrix in zip(self.steps, self.tracking.correlations, strict=True)
            for a in latents
            for b in latents
            if a < b
        ]

    def plot(self, ax: Any = None) -> Any:
        """The largest correlation of each latent with another one, over training.

        Two latents that correlate have the same number, so that lines would hide each other.
        """
        from zscope.plots import heatmap

        largest = self.tracking.correlations.abs().amax(2).T
        names = [f"{k} {kind}".strip() for k, kind in enumerate(self._types())]
        return heatmap(
            largest, rows=names, columns=[f"{step:,}" for step in self.steps], x="step",
            y="latent, and its type at the end" if self.types else "latent",
            label="largest |ρ| with another latent", limit=1.0, ax=ax,
        )  # fmt: skip

    def _types(self) -> list[str]:
        return self.types or [""] * len(self.tracking.counts)

    def __repr__(self) -> str:
        head = f"|ρ| > {self.tracking.threshold:g} at"
        table = [["latent", "type", head, "largest |ρ| at the end", "sd of ρ"]]
        last = self.tracking.correlations[-1].abs().amax(1)
        spread = self.tracking.fluctuation
        for k, (kind, count) in enumerate(zip(self._types(), self.tracking.counts, strict=True)):
            share = f"{count} of {len(self.steps)} steps"
            table.append([str(k), kind, share, f"{float(last[k]):.3f}", f"{spread[k]:.3f}"])
        return f"{text_table(table)}\nsteps {', '.join(map(str, self.steps))}"


@dataclass(frozen=True, eq=False)
class ScoresOverTraining(Tabular):
    """Scores of assays at each step, with their intervals and chance levels."""

    columns = ("step", "assay", "measure", "value", "low", "high", "chance", "n", "flavour")

    table: list[dict[str, Any]]
    missing: dict[str, str] = field(default_factory=dict)  # "ASSAY at step STEP" -> reason

    def records(self) -> list[dict[str, Any]]:
        return list(self.table)

    def of(self, assay: str) -> dict[int, float]:
        """By step, the first score of an assay; steps without an answer are left out."""
        scores: dict[int, float] = {}
        for row in self.table:
            if row["assay"] == assay:
                scores.setdefault(row["step"], row["value"])
        return scores

    @property
    def assays(self) -> list[str]:
        return list(dict.fromkeys(row["assay"] for row in self.table))

    def plot(self, ax: Any = None) -> Any:
        """A panel for each assay: the score with its 95 % interval, and chance as a dashed line."""
        from zscope.plots import score_panels, step_lines

        if ax is not None:
            first = self.assays[0]
            return step_lines({first: self.of(first)}, x="step", y=first, ax=ax)
        titles = {"polarisation": r"polarisation, $\Delta_{KL}$"}
        return score_panels(self.table, x="step", titles=titles)

    def __repr__(self) -> str:
        steps = list(dict.fromkeys(row["step"] for row in self.table))
        table = [["", *(f"step {step}" for step in steps)]]
        for assay in self.assays:
            values = self.of(assay)
            table.append([assay, *(f"{values[s]:.4g}" if s in values else "none" for s in steps)])
            chances = {r["step"]: r["chance"] for r in self.table if r["assay"] == assay}
            if any(value is not None for value in chances.values()):
                cells = [chances.get(step) for step in steps]
                table.append(["  chance", *("" if c is None else f"{c:.4g}" for c in cells)])
        return "\n".join([text_table(table), *_reasons(self.missing)])


@dataclass(frozen=True, eq=False)
class TypesOverTraining(Tabular):
    """Counts of latents by type, in the batch of every logged step."""

    columns = ("step", "active", "mixed", "passive")

    steps: list[int]
    active: list[int]
    mixed: list[int]
    passive: list[int]

    def records(self) -> list[dict[str, Any]]:
        counts = zip(self.steps, self.active, self.mixed, self.passive, strict=True)
        return [dict(zip(self.columns, row, strict=True)) for row in counts]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import step_lines

        kinds = {"active": self.active, "mixed": self.mixed, "passive": self.passive}
        series = {
            name: dict(zip(self.steps, counts, strict=True)) for name, counts in kinds.items()
        }
        label = "latents, by their type in a batch"
        return step_lines(series, x="step", y=label, apart=True, ax=ax)

    def __repr__(self) -> str:
        """Up to ten of the steps, with the first and the last."""
        rows = self.records()
        if len(rows) > 10:
            rows = [rows[round(k * (len(rows) - 1) / 9)] for k in range(10)]
        table = [list(self.columns), *([str(value) for value in row.values()] for row in rows)]
        note = "in the batch of each step; on the data: zscope assay RUN variable-types"
        return f"{text_table(table)}\n{note}"


def fall_step(
    history: Iterable[Mapping[str, Any]], column: str = "loss", *, share: float = 0.9
) -> int:
    """The first logged step at which a loss has made a share of its whole fall.

    loss(step) <= first - share (first - end), where the end is the mean over the last tenth of the
    logged steps, because the loss of a single batch is noisy. `history` is that of a run.
    """
    rows = [(int(row["step"]), float(row[column])) for row in history if column in row]
    if len(rows) < 2 or not 0 < share <= 1:
        raise ConfigError(
            f"fall_step: {len(rows)} logged values of {column!r} and share={share}; expected at "
            "least two values and a share above 0, at most 1. Does the history have this column?"
        )
    last = rows[-max(1, len(rows) // 10) :]
    first, end = rows[0][1], sum(value for _, value in last) / len(last)
    if not end < first:
        raise Undefined(
            f"fall_step: {column} begins at {first:.4g} and ends at {end:.4g}: it does not fall. "
            "Has training diverged, or is this a term that rises?"
        )
    # With share=1 the end may lie below every single value of a curve that still falls.
    reached = [step for step, value in rows if value <= first - share * (first - end)]
    return reached[0] if reached else rows[-1][0]


def _reasons(missing: Mapping[str, str]) -> list[str]:
    """Each reason once, with the places it is about."""
    places: dict[str, list[str]] = {}
    for place, reason in missing.items():
        places.setdefault(reason, []).append(place)
    lines = []
    for reason, own in places.items():
        more = f" and {len(own) - 3} more" if len(own) > 3 else ""
        lines.append(f"none for {', '.join(own[:3])}{more}: {reason}")
    return lines

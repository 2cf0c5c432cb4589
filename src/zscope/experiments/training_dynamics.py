"""Training dynamics: how does a model become what it is at the end of its run?

    similarity      layer by layer, the model at each checkpoint and the final one
    dimension       the intrinsic dimension of every layer
    correlations    between the latents
    alignment       distance to orthogonality, alignment gap, and Δ_KL (`polarisation`)
    types           how many latents are active, mixed and passive, from the history

All but the last need checkpoints (zscope train --snapshot-every). Step 0 is the untrained model.
One model is loaded at a time.

Bonheme 2023, sections 6.5, 7.4 and 8.4; Zietlow 2022, sections 3.3.2 and 3.3.3.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zscope import store
from zscope.assays.regime.tracking import correlation_tracking
from zscope.assays.run import measure
from zscope.assays.similarity.layers import layer_similarities
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, Undefined, ZscopeError, did_you_mean, listed_names
from zscope.experiments.comparison_of_runs import layers_of
from zscope.experiments.layer_maps import average
from zscope.experiments.observed import SAMPLES, choose_observations, model_activations
from zscope.experiments.over_training import (
    CorrelationsOverTraining,
    DimensionsOverTraining,
    ScoresOverTraining,
    SimilarityOverTraining,
    TypesOverTraining,
)
from zscope.experiments.records import Clock, Tabular, Watch
from zscope.experiments.stages import run_folder, stages_of
from zscope.loading import run_data
from zscope.recording import Recording, record
from zscope.results import Result, rows
from zscope.sampling import whole

__all__ = ["ALIGNMENT", "PARTS", "Dynamics", "dynamics"]

ALIGNMENT = ("distance-to-orthogonality", "alignment-gap", "polarisation")
DIMENSION, TYPES = "intrinsic-dimension", "variable-types"
WHO = "dynamics"


@dataclass(frozen=True, eq=False)
class Dynamics(Result):
    """One result for each part, and why others have none."""

    run: str
    results: dict[str, Tabular]
    missing: dict[str, str]
    samples: int

    def plot(self, ax: Any = None) -> Any:
        """The figure of the only part; of several, draw each: `results[part].plot()`."""
        if len(self.results) != 1:
            raise Undefined(
                f"dynamics: there are {len(self.results)} figures, one for each part. Draw them "
                f"one by one, for instance results[{next(iter(self.results))!r}].plot()."
            )
        return next(iter(self.results.values())).plot(ax)

    def __repr__(self) -> str:
        parts = [f"{part}\n{result!r}" for part, result in self.results.items()]
        head = f"{self.run}, {self.samples} samples" if self.samples else self.run
        return "\n\n".join([head, *parts, *_reasons(self.missing)])


def dynamics(
    run: Any,
    parts: str | Sequence[str] | None = None,
    data: Any = None,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    progress: Watch | None = None,
) -> Dynamics:
    """Follow a run over its checkpoints: the named parts, or all that apply.

    `run` is the folder of a run; `data` are by default its own, of which up to `samples`
    observations are used. A part that was named and has no answer raises; others are listed in
    `missing`.
    """
    whole(WHO, samples=samples, seed=seed)
    names = _choose(parts)
    folder = run_folder(WHO, run)
    opened = store.open_run(folder)
    observed: Dataset | None = None
    if names != ["types"] or data is not None:
        dataset = as_dataset(run_data(folder) if data is None else data)
        _check_shape(opened, dataset)
        observed = choose_observations(dataset, samples, seed)
    stages = len(store.checkpoints(folder)) + 2
    clock = Clock(sum(1 if name == "types" else stages for name in names), progress)
    results: dict[str, Tabular] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            results[name] = PARTS[name](folder, observed, seed, clock)
        except ZscopeError as error:
            if parts is not None:
                raise
            missing[name] = str(error)
    if not results:
        raise Undefined("\n".join(_reasons(missing)))
    count = 0 if observed is None else len(observed)
    return Dynamics(opened.name, results, missing, count)


def _reasons(missing: dict[str, str]) -> list[str]:
    """Each reason once, with the parts it is about."""
    parts: dict[str, list[str]] = {}
    for part, reason in missing.items():
        parts.setdefault(reason, []).append(part)
    return [f"{', '.join(own)}: {reason}" for reason, own in parts.items()]


def _check_shape(run: store.Run, data: Dataset) -> None:
    shape = (run.config.get("model") or {}).get("shape")
    if shape is not None and tuple(shape) != data.shape:
        raise ConfigError(
            f"{WHO}: {run.name} takes observations of shape {tuple(shape)}, but those of "
            f"{data.name} have shape {data.shape}. Choose data that fit with --data (data=), or "
            "leave it out: the run knows its own."
        )


def _choose(parts: str | Sequence[str] | None) -> list[str]:
    names = list(PARTS) if parts is None else listed_names(WHO, "parts", parts)
    for name in names:
        if name not in PARTS:
            raise ConfigError(
                f"{WHO}: no part is called {name!r}. {did_you_mean(str(name), PARTS)}"
            )
    if not names:
        raise ConfigError(f"{WHO}: got no parts. Name some of {', '.join(PARTS)}, or leave it out.")
    return list(dict.fromkeys(names))


def similarity(folder: Path, observed: Dataset, seed: int, clock: Clock) -> Tabular:
    """Every layer at each step with every layer of the final model.

    The final model has noise of its own, also next to itself: with the same noise on both sides
    the last step alone would be 1 for samples of the posterior and for what is decoded from them,
    while no other step can come near, and the same noise at all steps would make collapsed models
    similar that have nothing in common. So the last step is the most that the others can reach.
    """
    stages = stages_of(WHO, folder)
    last = max(stages)
    clock("similarity, the final model")
    final = layers_of(stages[last](), observed, draw=1)
    maps = []
    for step, load in stages.items():
        clock(f"similarity, step {step}")
        pair = (f"step {step}", f"step {last}")
        similarities = layer_similarities(layers_of(load(), observed), final)
        maps.append(average("", step, {pair: similarities}))
    return SimilarityOverTraining(maps, last, len(observed))


def dimension(folder: Path, observed: Dataset, seed: int, clock: Clock) -> Tabular:
    """The intrinsic dimension of every layer at each step."""
    layers = {}
    for step, load in stages_of(WHO, folder).items():
        clock(f"dimension, step {step}")
        layers[step] = layer_dimensions(model_activations(load(), observed))
    return dimensions_over(layers)


def layer_dimensions(layers: dict[str, Any]) -> dict[str, Result | str]:
    """By layer the intrinsic dimension, or why there is none."""
    results: dict[str, Result | str] = {}
    for name in list(layers):
        outcome = measure(Recording.from_arrays(layers.pop(name)), [DIMENSION])
        reasons = [*outcome.missing.values(), *(each.message for each in outcome.failed.values())]
        results[name] = outcome.results.get(DIMENSION) or reasons[0]
    return results


def dimensions_over(steps: dict[int, dict[str, Result | str]]) -> DimensionsOverTraining:
    """The dimensions of layers at several steps as one result."""
    layers = list(dict.fromkeys(name for own in steps.values() for name in own))
    table, missing = [], {}
    for step, own in steps.items():
        for name in layers:
            result = own.get(name, "The model has no such layer at this step.")
            if isinstance(result, str):
                missing[f"{name} at step {step}"] = result
                continue
            (row,) = rows(result)
            low, high = row["low"], row["high"]
            table.append({"step": step, "layer": name, "value": row["value"], "low": low,
                          "high": high, "n": row["n"]})  # fmt: skip
    if not table:
        raise Undefined(
            f"{WHO}: no layer has an intrinsic dimension. {next(iter(missing.values()))}"
        )
    return DimensionsOverTraining(list(steps), layers, table, missing)


def correlations(folder: Path, observed: Dataset, seed: int, clock: Clock) -> Tabular:
    """Correlations between latents at each checkpoint and at the end."""
    stages = stages_of(WHO, folder, untrained=False)
    codes, types = [], []
    for step, load in stages.items():
        clock(f"correlations, step {step}")
        recording = record(load(), observed, samples=len(observed), seed=seed)
        codes.append(recording.codes)
        if step == max(stages) and not recording.posterior.deterministic:
            result = measure(recording, [TYPES]).results.get(TYPES)
            types = list(getattr(result, "labels", []))
    return CorrelationsOverTraining(list(stages), correlation_tracking(codes), types)


def alignment(folder: Path, observed: Dataset, seed: int, clock: Clock) -> Tabular:
    """The assays of alignment at each step."""
    table: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    for step, load in stages_of(WHO, folder).items():
        clock(f"alignment, step {step}")
        recording = record(load(), observed, samples=len(observed), seed=seed)
        outcome = measure(recording, ALIGNMENT)
        for name, result in outcome.results.items():
            table += [{"step": step, **row} for row in rows(result, name)]
        reasons = outcome.missing | {name: each.message for name, each in outcome.failed.items()}
        missing |= {f"{name} at step {step}": reason for name, reason in reasons.items()}
    if not table:
        raise Undefined(
            f"{WHO}: alignment has no answer at any step. {next(iter(missing.values()))}"
        )
    return ScoresOverTraining(table, missing)


def types(folder: Path, observed: Dataset | None, seed: int, clock: Clock) -> Tabular:
    """How many latents are of each type, at every step that was logged."""
    clock("types")
    history = [row for row in store.open_run(folder).history if "active" in row]
    if not history:
        raise Undefined(
            f"{WHO}: the history of {folder} has no types of latents: the model is deterministic, "
            "or was trained without them. For its use of latents see: zscope assay RUN"
        )
    keys = ("active", "mixed", "passive")
    counts = {key: [int(row[key]) for row in history] for key in keys}
    return TypesOverTraining([row["step"] for row in history], **counts)


Part = Callable[[Path, Any, int, Clock], Tabular]
PARTS: dict[str, Part] = {
    "similarity": similarity,
    "dimension": dimension,
    "correlations": correlations,
    "alignment": alignment,
    "types": types,
}

"""Compare two models: the similarity of all their layers and of their latents.

The activations of both models are recorded by hooks on the same observations, each model with
noise of its own. Every two layers are compared by CKA, by Procrustes and by the smaller of both,
as those of many runs are (`compare_runs`). The maps come with two controls: the first model
against an untrained one of the same architecture with other initial weights (layers near the input
agree whatever was learned), and against shuffled samples (the level of no agreement). Models that
started from the same weights agree for that reason too; the result is then flagged. The latent
means are also compared by every assay of two representations: of CKA and Procrustes quote the
smaller.
Before stitching one model's decoder to the other's encoder, check the similarity of the means:
if it is low, stitching will fail.

The samples of both models are compared with the data by the features of one extractor.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from zscope import store
from zscope.assays.generation.quality import SampleQuality
from zscope.assays.regime.tracking import CorrelationTracking, correlation_tracking
from zscope.assays.run import Options, check_options, measure, refuse_unused
from zscope.assays.run import compare as compare_recordings
from zscope.assays.similarity.heatmap import (
    Layer,
    SimilarityHeatmap,
    prepare_layers,
    similarity_heatmap,
)
from zscope.autoencoder import Autoencoder, Posterior
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError
from zscope.experiments.comparison_of_runs import map_of_two, names_of
from zscope.experiments.layer_maps import LayerMap, plot_maps
from zscope.experiments.observed import (
    SAMPLES,
    check_shape,
    choose_observations,
    model_activations,
    untrained_copy,
)
from zscope.experiments.stages import run_folder, stages_of
from zscope.loading import load, run_data
from zscope.recording import Recording, record
from zscope.results import Measure, Result, Scored, frame_of, rows, text_table
from zscope.sampling import whole

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SAMPLES", "Comparison", "Settling", "compare", "correlations_over_training", "layer_heatmap",
    "untrained_copy",
]  # fmt: skip

QUALITY, HEATMAP = "sample-quality", "similarity-heatmap"
EXTRACTORS = ("random", "inception")
"""Extractors that have a name; any other text is a model."""


@dataclass(frozen=True, eq=False)
class Comparison(Scored):
    """The maps of all layers, and further similarities of the latent means."""

    why_no_interval = why_no_chance = "each similarity states its own"

    layers: LayerMap
    heatmap: SimilarityHeatmap  # the CKA of `layers`
    latents: dict[str, Scored]  # assay -> similarity of the latent means
    missing: dict[str, str]  # assay -> why it has no answer
    samples: int
    failed: dict[str, str] = field(default_factory=dict)  # assay -> what went wrong
    flags: list[str] = field(default_factory=list)
    quality: dict[str, SampleQuality] = field(default_factory=dict)  # "first", "second" -> samples

    def plot(self, ax: Any = None) -> Any:
        """CKA, Procrustes and the smaller of both, for every two layers."""
        ((first, second),) = self.layers.pairs
        return plot_maps([self.layers], x=f"layers of {second}", y=f"layers of {first}", ax=ax)

    def measures(self) -> list[Measure]:
        """The similarities of the latent means, by assay."""
        return [
            replace(measure, name=f"{name}, {measure.name}" if measure.name else name)
            for name, result in self.latents.items()
            for measure in result.measures()
        ]

    def to_frame(self, assay: str = "") -> "pd.DataFrame":
        """The similarities of the latent means, one row each, with the assay that made it."""
        return frame_of(
            [row for name, each in self.latents.items() for row in rows(each, assay or name)]
        )

    def summary(self) -> list[tuple[str, str]]:
        missing = [(name, f"not measured: {why}") for name, why in self.missing.items()]
        rest = [*missing, *self.failed.items(), ("samples", str(self.samples))]
        return [*self.heatmap.summary(), *rest]

    def __repr__(self) -> str:
        latents = [("latent means", "score"), *self._latent_similarities()]
        tables = [self.layers.text(), text_table(latents, left=2), *self._qualities()]
        return "\n".join([*tables, f"{self.samples} samples", *self.flags])

    def _qualities(self) -> list[str]:
        """The Fréchet distances of both models' samples to the data, by the same features."""
        if not self.quality:
            return []
        results = list(self.quality.values())
        kinds = dict.fromkeys(kind for each in results for kind in each.distances)
        rows = [["Fréchet distance to the data", *self.quality]]
        for kind in kinds:
            values = [each.distances.get(kind) for each in results]
            rows.append([kind, *("none" if v is None else f"{v:.4g}" for v in values)])
        rows.append(["other real data", *(f"{each.floor:.4g}" for each in results)])
        first = results[0]
        return [text_table(rows), f"by {first.extractor}, {first.samples} samples each"]

    def _latent_similarities(self) -> list[tuple[str, str]]:
        rows = []
        for name, result in self.latents.items():
            score = result.measures()[0]
            chance = "" if isinstance(score.chance, str) else f" (chance {score.chance:.3f})"
            flags = "".join(f"; {flag}" for flag in getattr(result, "flags", []))
            rows.append((name, f"{score.value:.3f}{chance}{flags}"))
        rows += [(name, f"not measured: {why}") for name, why in self.missing.items()]
        return rows + list(self.failed.items())


@dataclass(frozen=True, eq=False)
class Settling(Result):
    """CKA of each layer at some steps of training with the same layer at the end.

    Step 0 is the untrained model: a layer that is no closer to its final state later has
    learned nothing beyond what its architecture and the input give it. The final model has noise
    of its own: where samples of the posterior enter, its similarity with itself is below 1.
    """

    similarity: Float[Tensor, "steps layers"]
    steps: list[int]
    layers: list[str]
    samples: int

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        series = {name: self.similarity[:, k] for k, name in enumerate(self.layers)}
        return lines(series, at=self.steps, x="step", y="CKA with the final model", ax=ax)

    def __repr__(self) -> str:
        rows = [["layer", *(f"step {step}" for step in self.steps)]]
        for k, name in enumerate(self.layers):
            rows.append([name, *(f"{float(value):.3f}" for value in self.similarity[:, k])])
        notes = ["CKA with the final model; step 0 is untrained", f"{self.samples} samples"]
        return "\n".join([text_table(rows), *notes])


def compare(
    first: Any,
    second: Any = None,
    data: Any = None,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    debiased: bool = True,
    control: bool = True,
    extractor: Any = "random",
    options: Options | None = None,
) -> Comparison | Settling:
    """Compare two models layer by layer, or the checkpoints of a run with its final model.

    Models are anything that `zs.load` takes. Without `second`, `first` must be a run with
    checkpoints; the result then shows when each layer settled. `data` is a Dataset or an
    array, by default the data of the first run; up to `samples` observations are used.
    `debiased=False` gives plain CKA, which is biased upwards with few samples. `control` adds
    the comparisons with an untrained model and with shuffled samples. If one of the models has
    no decoder (a classifier), the encoders are compared.

    `extractor` gives the features by which reconstructions and samples of both models are
    compared with the data: "random" (fixed random weights), "inception", a function, or anything
    that `zs.load` takes, preferably a classifier of the data; None leaves this out.

    `options` are by assay, for those that compare and for sample-quality: {"svcca":
    {"variance": 0.9}}.
    """
    whole("compare", samples=samples, seed=seed)
    own = check_options(options)
    layer_options = {"debiased": debiased, **own.pop(HEATMAP, {})}
    if controls := [name for name in layer_options if name != "debiased"]:
        raise ConfigError(
            f"compare: {HEATMAP}.{controls[0]} cannot be set here. The controls come together: "
            "control=True or False (--control, --no-control)."
        )
    autoencoders = [load(target) for target in (first, second) if target is not None]
    dataset = as_dataset(run_data(first) if data is None else data)
    if second is None:
        refuse_unused(own, [HEATMAP])
        return _settling(
            first, autoencoders[0], choose_observations(dataset, samples, seed), layer_options
        )
    for number, autoencoder in zip(("first", "second"), autoencoders, strict=True):
        check_shape(f"the {number} model", autoencoder.observation_shape, dataset)
    observed = choose_observations(dataset, samples, seed)
    layers = map_of_two(
        names_of([first, second]), autoencoders, observed, debiased=layer_options["debiased"],
        control=seed if control else None,
    )  # fmt: skip
    latents, other = (_latents(model, observed) for model in autoencoders)
    recordings = [_recording(each, seed) for each in (latents, other)]
    quality_options = {"extractor": extractor, **own.pop(QUALITY, {})}
    outcome = compare_recordings(recordings, options=own, debiased=debiased)
    flags = _shared_start(*autoencoders)
    if encoders := [each.title for each in autoencoders if not each.decodes]:
        flags.append(f"The encoders alone are compared: no decoder in {', '.join(encoders)}.")
    quality, reasons = _sample_qualities(autoencoders, observed, quality_options, seed)
    return Comparison(
        layers,
        _cka_of(layers, len(observed), layer_options["debiased"]),
        {name: result for name, result in outcome.results.items() if isinstance(result, Scored)},
        outcome.missing | reasons,
        samples=len(observed),
        failed={name: each.message for name, each in outcome.failed.items()},
        flags=flags,
        quality=quality,
    )


def _sample_qualities(
    autoencoders: list[Autoencoder], observed: Dataset, options: dict[str, Any], seed: int
) -> tuple[dict[str, SampleQuality], dict[str, str]]:
    """The sample quality of both models with one extractor, and why one of them has none.

    A model without a decoder is left out: the comparison says so in a flag.
    """
    extractor = options["extractor"]
    if extractor is None:
        return {}, {}
    if isinstance(extractor, str | Path) and extractor not in EXTRACTORS:
        options = {**options, "extractor": load(extractor)}
    quality: dict[str, SampleQuality] = {}
    missing: dict[str, str] = {}
    for place, model in zip(("first", "second"), autoencoders, strict=True):
        if not model.decodes:
            continue
        recording = record(model, observed, samples=len(observed), seed=seed)
        outcome = measure(recording, [QUALITY], options={QUALITY: options})
        result = outcome.results.get(QUALITY)
        if isinstance(result, SampleQuality):
            quality[place] = result
        reasons = [*outcome.missing.values(), *(f.message for f in outcome.failed.values())]
        missing |= {f"{QUALITY} of the {place} model": reason for reason in reasons}
    return quality, missing


def _recording(latents: dict[str, Tensor], seed: int) -> Recording:
    """The codes of a model, with their variances if it has any."""
    std = latents["variance"].sqrt() if "variance" in latents else None
    return Recording(None, Posterior(latents["mean"], std), seed=seed)


def _shared_start(first: Autoencoder, second: Autoencoder) -> list[str]:
    """A flag if both were built with the same seed, which gives equal layers equal weights."""
    recipes = [model.recipe for model in (first, second)]
    seeds = [None if r is None else r.get("options", {}).get("seed") for r in recipes]
    if seeds[0] is None or seeds[0] != seeds[1]:
        return []
    return [
        f"Both models started from the weights of seed {seeds[0]}, which makes them similar by "
        "itself. To see the effect of training alone, train one of them with another seed."
    ]


def _settling(run: Any, final: Autoencoder, observed: Dataset, options: Any) -> Settling:
    """When did each layer of a run become what it is at the end?"""
    if not isinstance(run, str | Path):
        raise ConfigError(
            f"compare: got a single {type(run).__name__}. With one target alone, it must be the "
            "folder of a run, whose checkpoints are compared with its final model. Give a second "
            "model."
        )
    stages = stages_of("compare", Path(run))
    kept = {step for step, _ in store.checkpoints(Path(run))}
    stages = {step: stage for step, stage in stages.items() if step == 0 or step in kept}
    final_layers = _prepare(final, observed, draw=1)
    heatmaps = [
        similarity_heatmap(_prepare(stage(), observed), final_layers, **options)
        for stage in stages.values()
    ]
    diagonals = [dict(zip(h.shared, h.diagonal, strict=True)) for h in heatmaps]
    layers = [name for name in diagonals[0] if all(name in diagonal for diagonal in diagonals)]
    return Settling(
        similarity=torch.stack([torch.stack([d[name] for name in layers]) for d in diagonals]),
        steps=list(stages),
        layers=layers,
        samples=len(observed),
    )


def correlations_over_training(
    run: Path, data: Dataset, *, samples: int = SAMPLES, seed: int = 0, threshold: float = 0.2
) -> CorrelationTracking:
    """Correlations between the latents of a run at each of its checkpoints and at the end."""
    stages = stages_of("compare", run_folder("compare", run), untrained=False)
    codes = (record(load_stage(), data, samples=samples, seed=seed).codes
             for load_stage in stages.values())  # fmt: skip
    return correlation_tracking(codes, threshold=threshold)


def layer_heatmap(first: Autoencoder, second: Autoencoder, observed: Dataset) -> SimilarityHeatmap:
    """CKA alone of the layers of two models: Procrustes of wide layers takes minutes."""
    decode = first.decodes and second.decodes
    layers = [_prepare(model, observed, decode, k) for k, model in enumerate((first, second))]
    return similarity_heatmap(*layers)


def _cka_of(layers: LayerMap, samples: int, debiased: bool) -> SimilarityHeatmap:
    return SimilarityHeatmap(
        matrix=layers.means["cka"],
        null=layers.shuffled.get("cka"),
        control=layers.untrained.get("cka"),
        rows=layers.row_layers,
        columns=layers.column_layers,
        control_columns=layers.untrained_layers,
        debiased=debiased,
        samples=samples,
    )


def _latents(model: Autoencoder, data: Dataset) -> dict[str, Tensor]:
    """Mean and variance of the latents."""
    outputs = model_activations(model, data, decode=False)
    return {name: values for name, values in outputs.items() if name in ("mean", "variance")}


def _prepare(
    model: Autoencoder, data: Dataset, decode: bool = True, draw: int = 0
) -> dict[str, Layer]:
    """The layers of a model, ready to be compared."""
    return prepare_layers(model_activations(model, data, decode, draw))

"""Two models side by side: the similarity of all their layers and of their latents.

Activations are taken once per model, by hooks, on the same observations, each model with
noise of its own. Beside the heatmap stand two controls: the first model against an untrained
one of its architecture, with weights of its own (layers near the input agree whatever was
learned), and against shuffled samples (what no agreement reads). Models that began with the
same weights agree for that reason too, which is said. For the latents themselves Procrustes,
SVCCA and PWCCA are given too: of CKA and Procrustes quote the smaller. Before stitching one
model's decoder to the other's encoder, look at the similarity of the means: low means it
will fail.
"""

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zscope import models, store
from zscope.assays.regime.tracking import CorrelationTracking, correlation_tracking
from zscope.assays.similarity.activations import activations
from zscope.assays.similarity.cca import pwcca, svcca
from zscope.assays.similarity.heatmap import (
    Layer,
    SimilarityHeatmap,
    prepare_layers,
    similarity_heatmap,
)
from zscope.assays.similarity.procrustes import procrustes
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, RunError, Undefined
from zscope.loading import load
from zscope.randomness import seed_of
from zscope.recording import auxiliary_of, choose_rows, record
from zscope.results import Result


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """The heatmap of all layers, and further similarities of the latent means."""

    heatmap: SimilarityHeatmap
    latents: dict[str, float]  # of the means: procrustes, angle, svcca, pwcca
    samples: int
    flags: list[str] = field(default_factory=list)

    def plot(self, ax: Any = None) -> Any:
        return self.heatmap.plot(ax)

    def table(self) -> list[list[str]]:
        """Layers that both have, their similarity, and what the controls read."""
        heat = self.heatmap
        rows = [["layer", "CKA", "untrained", "shuffled"]]
        for name in heat.rows:
            if name not in heat.columns:
                continue
            i, j = heat.rows.index(name), heat.columns.index(name)
            raw = "" if heat.control is None else _at(heat.control, i, heat.control_columns, name)
            null = "" if heat.null is None else f"{float(heat.null[i, j]):.3f}"
            rows.append([name, f"{float(heat.matrix[i, j]):.3f}", raw, null])
        return rows

    def notes(self) -> list[str]:
        parts = ", ".join(f"{name} {value:.3f}" for name, value in self.latents.items())
        return [f"means: {parts}", f"{self.samples} samples", *self.flags]


def compare_models(
    first: Autoencoder,
    second: Autoencoder,
    data: Dataset,
    *,
    samples: int = 2000,
    seed: int = 0,
    debiased: bool = True,
    control: bool = True,
) -> Comparison:
    """Compare two models on up to `samples` observations of a dataset."""
    for number, model in (("first", first), ("second", second)):
        shape = model.observation_shape
        if shape is not None and tuple(shape) != data.shape:
            raise ConfigError(
                f"compare: the {number} model takes observations of shape {tuple(shape)}, but "
                f"those of {data.name} have {data.shape}, and both must see the same. Name data "
                "that fit both with --data, or compare models of the same data."
            )
    seen = observations(data, samples, seed)
    # Prepared one after the other: only one model's activations are held at a time.
    (ours, means), (theirs, others) = (ready(model, seen) for model in (first, second))
    raw = ready(untrained(first, seed=seed), seen)[0] if control else None
    heat = similarity_heatmap(
        ours,
        theirs,
        control=raw,
        null=control,
        debiased=debiased,
        generator=torch.Generator().manual_seed(seed_of(seed, 6)),
    )
    return Comparison(
        heatmap=heat,
        latents=latent_similarity(means, others),
        samples=len(seen),
        flags=_shared_start(first, second),
    )


def _shared_start(first: Autoencoder, second: Autoencoder) -> list[str]:
    """A warning where both were built from one seed, which gives like layers like weights."""
    recipes = [model.recipe for model in (first, second)]
    seeds = [None if r is None else r.get("options", {}).get("seed") for r in recipes]
    if seeds[0] is None or seeds[0] != seeds[1]:
        return []
    return [
        f"Both began with the weights of seed {seeds[0]}, and agree for that reason too: to see "
        "what training alone makes alike, train one of them with another seed."
    ]


def latent_similarity(first: Tensor, second: Tensor) -> dict[str, float]:
    """Procrustes score and angle, SVCCA and PWCCA; those that have no answer are left out."""
    found: dict[str, float] = {}
    try:
        turned = procrustes(first, second)
        found = {"procrustes": turned.score, "angle": turned.angle}
        found["svcca"] = svcca(first, second).score
        found["pwcca"] = pwcca(first, second).score
    except Undefined:
        pass  # a collapsed model, or fewer samples than latents
    return found


@dataclass(frozen=True, eq=False)
class Settling(Result):
    """CKA of each layer at some steps of training with the same layer at the end.

    Step 0 is the untrained model: a layer that is no higher later has learned nothing that
    its architecture and the input did not give it.
    """

    similarity: Float[Tensor, "steps layers"]
    steps: list[int]
    layers: list[str]
    samples: int

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        series = {name: self.similarity[:, k] for k, name in enumerate(self.layers)}
        return lines(series, at=self.steps, x="step", y="CKA with the final model", ax=ax)

    def table(self) -> list[list[str]]:
        rows = [["layer", *(f"step {step}" for step in self.steps)]]
        for k, name in enumerate(self.layers):
            rows.append([name, *(f"{float(v):.3f}" for v in self.similarity[:, k])])
        return rows

    def notes(self) -> list[str]:
        return ["CKA with the final model; step 0 is untrained", f"{self.samples} samples"]


def settling(
    run: Path,
    model: Autoencoder,
    data: Dataset,
    *,
    samples: int = 2000,
    seed: int = 0,
    debiased: bool = True,
) -> Settling:
    """When did each layer of a run become what it is at the end?"""
    recipe = store.open_run(run).config.get("model")
    saved = store.checkpoints(run)
    if recipe is None or not saved:
        raise RunError(
            f"compare: {run} has {len(saved)} checkpoints to compare with its final model. Train "
            "with --snapshot STEP (several times) to keep some, or name a second run."
        )
    seen = observations(data, samples, seed)
    stages = {0: models.from_recipe(recipe), **{step: load(file) for step, file in saved}}
    final = ready(model, seen)[0]
    rows, layers = [], None
    for stage in stages.values():
        heat = similarity_heatmap(ready(stage, seen)[0], final, debiased=debiased)
        shared = [name for name in heat.rows if name in heat.columns]
        layers = shared if layers is None else [name for name in layers if name in shared]
        rows.append({n: heat.matrix[heat.rows.index(n), heat.columns.index(n)] for n in shared})
    kept = layers or []
    return Settling(
        similarity=torch.stack([torch.stack([row[name] for name in kept]) for row in rows]),
        steps=list(stages),
        layers=kept,
        samples=len(seen),
    )


def correlations_over_training(
    run: Path, data: Dataset, *, samples: int = 2000, seed: int = 0, threshold: float = 0.2
) -> CorrelationTracking:
    """Correlations between the latents of a run at each of its checkpoints and at the end."""
    saved = [file for _, file in store.checkpoints(run)]
    if not saved:
        raise RunError(
            f"compare: {run} has no checkpoints to follow. Train with --snapshot STEP (several "
            "times) to keep some."
        )
    stages = [load(file) for file in saved] + ([load(run)] if store.open_run(run).finished else [])
    codes = (record(stage, data, samples=samples, seed=seed).codes for stage in stages)
    return correlation_tracking(codes, threshold=threshold)


def observations(data: Dataset, samples: int, seed: int) -> Dataset:
    """Some rows of the data, with their factors."""
    if min(samples, len(data)) < 4:
        raise Undefined(
            f"compare: samples={samples} of the {len(data)} observations of {data.name}; at least "
            "4 are needed, and some hundreds for numbers worth reading (2000 is usual)."
        )
    return data.subset(choose_rows(len(data), samples, seed))


def ready(model: Autoencoder, seen: Dataset) -> tuple[dict[str, Layer], Tensor]:
    """The layers of a model, and its latent means."""
    every = slice(0, len(seen))
    x = seen.batch(every)
    taken = activations(model, x, auxiliary=auxiliary_of(model, seen, every, x))
    return prepare_layers(taken), taken["mean"]


def untrained(model: Autoencoder, *, seed: int = 0) -> Autoencoder:
    """The same architecture with fresh weights, as a control.

    A model of zscope is built again; in any other, every module that can reset its
    parameters does so. The weights are other than those any model is likely to have begun
    with: beside its own, a model that learned little would look as if it had learned nothing
    but its beginning. The global random state is left as it was.
    """
    recipe = model.recipe
    if recipe is not None:
        options = {**recipe.get("options", {}), "seed": seed_of(seed, 7) % 2**31}
        return models.from_recipe({**recipe, "options": options}).eval()
    twin = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, 7))
        for module in twin.modules():
            reset = getattr(module, "reset_parameters", None)
            if isinstance(module, nn.Module) and callable(reset):
                reset()
    return twin


def _at(matrix: Tensor, row: int, columns: list[str], name: str) -> str:
    return f"{float(matrix[row, columns.index(name)]):.3f}" if name in columns else ""

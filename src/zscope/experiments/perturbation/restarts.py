"""Train the restarts on the original data, and choose among them (step 1 of the procedure)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from zscope import models
from zscope.assays.disentanglement.mig import mig
from zscope.autoencoder import Autoencoder, Trainable
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError
from zscope.experiments.perturbation.game import (
    RESUME,
    Choice,
    architecture_of,
    encode_factors,
    modifier_for,
)
from zscope.experiments.training import train, train_together
from zscope.models.composed import Composed
from zscope.monitor import regime
from zscope.recording import record
from zscope.training.checks import check_first_batch
from zscope.training.config import TrainConfig
from zscope.training.ensemble import can_train_together
from zscope.training.feeding import Feed
from zscope.training.loop import configure, pick_device
from zscope.types import Codes

__all__ = [
    "check_restarts", "check_training", "choose", "count_factors", "few_latents", "in_own_units",
    "train_restarts", "with_message",
]  # fmt: skip

FEW = 8
"""Observations that show whether a model has noise in its latents."""


def train_restarts(
    data: Dataset,
    folder: Path,
    settings: dict[str, Any],
    *,
    resume: bool,
    tick: Callable[[float], None] = lambda share: None,
) -> list[Autoencoder]:
    """Models that differ in their seed alone, each with its run in folder/seed-S.

    They are trained together where the model can be, else one after the other. `tick` is called
    with the share of the work that is done.
    """
    count, steps = settings["restarts"], settings["steps"]
    seeds = [settings["seed"] + number for number in range(count)]
    training: dict[str, Any] = {name: settings[name] for name in ("steps", "batch", "rate")}
    rows = 0

    def monitor(variances: Codes) -> dict[str, Any]:
        nonlocal rows
        rows += 1  # one for each model and a hundred steps
        tick(rows / (count * (2 + steps // 100)))
        return regime(variances)

    paths = [folder / f"seed-{seed}" for seed in seeds]
    untrained = [_build(data, settings, seed) for seed in seeds]
    given: dict[str, Any] = {"monitor": monitor, "progress": False}
    if can_train_together(untrained[0].recipe, untrained[-1].recipe):
        settings_of = (steps, None, settings["batch"], settings["rate"])
        pairs = zip(untrained, seeds, strict=True)
        configs = [configure(model, data, *settings_of, seed, {}) for model, seed in pairs]
        with with_message(f"perturb: stopped and saved in {count} restarts. {RESUME}"):
            runs = train_together(untrained, data, configs, paths, resume=resume, **given)
    else:
        runs = []
        for number, (model, seed, path) in enumerate(zip(untrained, seeds, paths, strict=True), 1):
            with with_message(
                f"perturb: stopped and saved in restart {number} of {count}. {RESUME}"
            ):
                again = resume and path.exists()
                run = train(model, data, seed=seed, out=path, resume=again, **training, **given)
                runs.append(run)
    return [run.model for run in runs if run.model is not None]


def _build(data: Dataset, settings: dict[str, Any], seed: int) -> Trainable:
    own = {**settings["options"], "seed": seed}
    shape, latents = data.shape, settings["latents"]
    return models.build(settings["model"], shape=shape, latents=latents, **own)


def check_restarts(
    data: Dataset, settings: dict[str, Any], trained: Sequence[Autoencoder] | None
) -> None:
    """Refuse what could not be trained or used for the game, before anything is trained.

    `trained` are the models that were given; None if they are to be trained.
    """
    if trained is None:
        model = _build(data, settings, settings["seed"])
        given = (settings["steps"], None, settings["batch"], settings["rate"], settings["seed"])
        check_training(model, data, configure(model, data, *given, {}))
        trained = [model]
    for each in trained:
        if not isinstance(each, Composed):
            raise ConfigError(
                f"perturb: {type(each).__name__} is not a model of zs.models, and its decoder "
                "cannot be trained apart from its encoder. Give the number of restarts, or models "
                "built with zs.models.build."
            )
        if record(each, data, samples=min(FEW, len(data))).posterior.std is None:
            raise ConfigError(
                f"perturb: {(each.recipe or {}).get('name', type(each).__name__)} has no noise in "
                "its latents. The models must have independent noise there, as vae and beta-vae "
                "have: the change works against the alignment that this noise causes."
            )
    architecture = architecture_of(trained[0], settings["options"])
    modifier_for(data, encode_factors(data).shape[1], architecture, settings["seed"])


def check_training(model: Trainable, data: Dataset, config: TrainConfig) -> None:
    """Refuse what would fail in the first step."""
    device = pick_device(config, 0)
    Feed(model, data, device)
    check_first_batch(model, data, config, device)


@contextmanager
def with_message(message: str) -> Iterator[None]:
    """Give an interrupt another message."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise type(interrupt)(message) from None


def choose(trained: Sequence[Autoencoder], data: Dataset, pairs: int) -> Choice:
    """The restarts with the lowest and with the highest MIG, leaving out over-pruned ones."""
    factors = count_factors(data)
    latents = min(model.latents for model in trained)
    needed = min(factors, latents)
    results, active = [], []
    for model in trained:
        recording = record(model, data)
        active.append(len(recording.used))
        results.append(mig(recording))
    scores = [result.score for result in results]
    order = sorted(range(len(scores)), key=lambda k: scores[k])
    usable = [k for k in order if active[k] >= needed]
    flags = [] if needed == factors else [few_latents(latents, factors)]
    if len(usable) < 2 * pairs:
        enough = (
            f"all {needed} latents" if flags else f"as many latents as there are factors ({needed})"
        )
        flags.append(
            f"Only {len(usable)} of {len(order)} restarts use {enough}, so restarts with fewer "
            "were chosen too. β may be too large, or the training too short."
        )
        usable = order
    sides = usable[:pairs], usable[-pairs:][::-1]
    chance = max(max(results[k].shuffled) for side in sides for k in side)
    return Choice(scores, active, *sides, flags, chance)


def few_latents(latents: int, factors: int) -> str:
    """What to say of models that cannot have a latent for each factor."""
    return (
        f"The models have {latents} latents and the data {factors} factors, so no model can have a "
        f"latent for each factor, which limits all scores; a run counts as pruned if it uses fewer "
        f"than {latents}. Use {factors} latents or more."
    )


def count_factors(data: Dataset) -> int:
    """The number of factors that take more than one value."""
    values = np.zeros((1, 0)) if data.factors is None else data.factors
    return int((values != values[0]).any(0).sum())


def in_own_units(data: Any) -> Dataset:
    """The data, to be trained on as they are: ε is in their units. Their recipe says so too."""
    dataset = as_dataset(data)
    recipe = dataset.recipe
    if dataset.standardise and recipe is not None and Path(recipe["name"]).is_absolute():
        recipe = {**recipe, "options": {**recipe["options"], "standardise": False}}
    return replace(dataset, standardise=False, recipe=recipe)

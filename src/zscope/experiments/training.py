"""`zs.train` and `zs.train_ensemble`: training with the types of latents in the history.

The loop is in `zscope.training`, which measures nothing of its own.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from zscope import data as datasets
from zscope import models, training
from zscope.errors import ConfigError
from zscope.monitor import regime
from zscope.presets import preset as find_preset
from zscope.store import Run
from zscope.training import TrainConfig

__all__ = ["Given", "train", "train_config", "train_ensemble", "train_together", "with_defaults"]

STEPS = 10_000
"""What is used where neither a preset nor the user says anything."""

P = ParamSpec("P")
R = TypeVar("R")


def monitored(function: Callable[P, R]) -> Callable[P, R]:
    """The function with `regime` as its monitor, unless another is given."""

    @wraps(function)
    def call(*args: P.args, **settings: P.kwargs) -> R:
        settings.setdefault("monitor", regime)
        return function(*args, **settings)

    call.__module__ = __name__  # where pickle finds it
    return call


train = monitored(training.train)
train_ensemble = monitored(training.train_ensemble)
train_together = monitored(training.train_together)


class Given(NamedTuple):
    """What describes a run by names, before model and data exist."""

    latents: int | None  # None: as many as the model has by default
    options: dict[str, Any]  # of the model
    split: list[float] | None
    steps: int | None
    epochs: float | None


def with_defaults(
    preset: str | None,
    model: str,
    *,
    latents: int | None = None,
    options: dict[str, Any] | None = None,
    split: list[float] | None = None,
    steps: int | None = None,
    epochs: float | None = None,
) -> Given:
    """What was given, completed by the preset or by the defaults; what was given wins."""
    options = dict(options or {})
    models.refuse_arguments(options)
    if preset is None:
        if steps is None and epochs is None:
            steps = STEPS
        return Given(latents, options, split, steps, epochs)
    paper = find_preset(preset)
    own_split = None if paper.split is None else list(paper.split)
    return Given(
        paper.latents if latents is None else latents,
        {**paper.options(model), **options},
        split or own_split,
        steps,
        epochs,
    )


def train_config(
    config: TrainConfig,
    *,
    out: Path | None,
    resume: bool = False,
    root: str | Path | None = None,
    data: Any = None,
    progress: bool | None = None,
) -> Run:
    """Train what a configuration describes; its model and its data must have recipes.

    `data` is the dataset of the recipe, if it is loaded already.
    """
    if config.model is None or config.data is None:
        raise ConfigError(
            "train: the configuration describes a run whose model or data were passed as Python "
            "objects, so it cannot be repeated from it alone. Call zs.train with them."
        )
    built = models.from_recipe(config.model.model_dump())
    if data is None:
        data = datasets.from_recipe(config.data.model_dump(exclude_none=True), root=root)
    fields = config.model_dump(exclude={"model", "data"})
    return train(built, data, out=out, resume=resume, progress=progress, **fields)

"""Checks before and during training, and their error messages."""

import math
from pathlib import Path

import torch

from zscope import store
from zscope.autoencoder import Losses, Trainable
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, TrainingError
from zscope.training.config import TrainConfig
from zscope.training.feeding import batch_rows

__all__ = ["check_finite", "check_first_batch", "check_weights"]


def check_first_batch(
    model: Trainable, dataset: Dataset, config: TrainConfig, device: torch.device
) -> None:
    """Raise a clear error for what would otherwise fail deep inside the first step."""
    expected = model.observation_shape
    if expected is not None and tuple(expected) != dataset.shape:
        raise ConfigError(
            f"train: the model takes observations of shape {tuple(expected)}, but {dataset.name} "
            f"has {dataset.shape}. Build the model with shape=data.shape."
        )
    x = dataset.batch(batch_rows(config, len(dataset), 0), device)
    if not x.isfinite().all():
        raise TrainingError(
            f"train: the first batch of {dataset.name} contains NaN or infinite numbers. Clean "
            "the data, or leave those rows out."
        )
    model.check_observations(x)


def check_finite(losses: Losses, step: int, path: Path | None, *, exact: bool) -> None:
    if math.isfinite(losses.total.item()):
        return
    values = {name: term.item() for name, term in losses.terms.items()}
    broken = [name for name, value in values.items() if not math.isfinite(value)] or ["loss"]
    listed = ", ".join(f"{name} = {value:.6g}" for name, value in values.items())
    when = f"at step {step}" if exact else f"at step {step} or shortly before"
    mark_failed(path)
    if step == 0:
        raise TrainingError(
            f"train: the term {broken[0]!r} became NaN or infinite {when} ({listed}). No update "
            "has been made yet: the data are on another scale than the model expects, or its first "
            "weights are not finite. Standardise vectors (--data-option standardise=true for a "
            "file, else zs.data.from_arrays(x, standardise=True)); pictures range from 0 to 1."
        )
    raise TrainingError(
        f"train: the term {broken[0]!r} became NaN or infinite {when} ({listed}). The usual cause "
        "is a learning rate that is too large, or data on another scale than the likelihood "
        f"expects. {last_checkpoint(path)}Train again with a smaller rate or with clip=1."
    )


def check_weights(model: torch.nn.Module, step: int, path: Path | None) -> None:
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            mark_failed(path)
            raise TrainingError(
                f"train: the weights {name!r} contain NaN or infinite numbers after step {step}. A "
                f"gradient overflowed: the learning rate is too large. {last_checkpoint(path)}"
                "Train again with a smaller rate or with clip=1."
            )


def mark_failed(path: Path | None) -> None:
    if path is not None and (path / "run.json").is_file():
        run = store.open_run(path)
        run.status = "failed"
        run.save()


def last_checkpoint(path: Path | None) -> str:
    """The sentence of an error message that names the last good checkpoint."""
    saved = [] if path is None else store.checkpoints(path)
    if not saved:
        return "No checkpoint had been written yet. "
    return f"The last good checkpoint is kept: {saved[-1][1]}. "

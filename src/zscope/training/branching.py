"""A branch of a run: training that starts from the final weights of another run.

The optimiser is new, steps are counted from 0 (so are schedules, and the temperature of the gates
of a causal block), and batches and noise are those of the branch's own seed. Features of tables
are seen in the units of the run that it starts from, because its weights are made for them.
"""

from pathlib import Path
from typing import Any

import torch

from zscope import store
from zscope.autoencoder import Trainable
from zscope.errors import ConfigError, RunError
from zscope.training.config import Start, TrainConfig, validate

__all__ = ["as_start", "load_start", "load_weights"]


def as_start(start: Any) -> tuple[Start | None, dict[str, Any] | None]:
    """What training starts from as its configuration states it, and the scaling of that run.

    `start` is a finished run or its folder; what comes from a configuration stays as it is, and
    its scaling too (None).
    """
    if start is None or isinstance(start, Start):
        return start, None
    if isinstance(start, dict):
        return validate("train", steps=1, start=start).start, None
    path = start.path if isinstance(start, store.Run) else start
    if not isinstance(path, str | Path):
        raise ConfigError(
            f"train: start is {'a run in memory' if path is None else repr(start)[:60]}; expected "
            "a finished run or its folder. Train the first run with out=FOLDER."
        )
    run = _finished(Path(path))
    weights = store.weights_checksum(Path(path) / "model.safetensors")
    return Start(run=str(Path(path).resolve()), weights=weights), run.config.get("scaling")


def load_weights(
    model: Trainable,
    optimisers: dict[str, torch.optim.Optimizer],
    config: TrainConfig,
    out: Path | None,
) -> int:
    """Load the newest checkpoint, or else what training starts from; returns the steps made."""
    step = 0 if out is None else store.read_newest_checkpoint(out, model, optimisers)
    if step == 0 and config.start is not None:
        load_start(model, config.start, out)
    return step


def load_start(model: Trainable, start: Start, out: Path | None) -> None:
    """Load the final weights of the run that training starts from."""
    path = Path(start.run)
    if not path.is_absolute():
        if out is None:
            raise ConfigError(
                f"train: it starts from {start.run}, a run of a sweep, which lies next to the run "
                "itself, and no folder was given. Give out=FOLDER in the folder of that run, or "
                "the path of a run as start."
            )
        path = out.parent / path
    run = _finished(path)
    file = path / "model.safetensors"
    changed = start.weights is not None and store.weights_checksum(file) != start.weights
    another = start.address is not None and run.environment.get("address") != start.address
    if changed or another:
        raise RunError(
            f"train: {path} is not the run that training was to start from: its "
            f"{'weights' if changed else 'settings'} are others. Was it trained again, or another "
            "one put into its place? Restore it, or start a new branch in another folder."
        )
    tensors, _ = store.read_tensors(file)
    store.fill(model, tensors, file)


def _finished(path: Path) -> store.Run:
    try:
        run = store.open_run(path)
    except RunError as error:
        raise RunError(f"train: there is no run to start from. {error}") from error
    if not run.finished:
        raise RunError(
            f"train: it is to start from {path}, which is {run.status} at step {run.step} of "
            f"{run.config.get('steps')}. Only the weights of a finished run can be started from: "
            f"finish it first (zscope train --out {path} --resume)."
        )
    return run

"""A run on disk during training: start or resume it, its history, its checkpoints."""

import hashlib
import json
import pickle
import platform
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zscope import __version__, store
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, RunError, TrainingError
from zscope.files import append, sync, write_whole
from zscope.training.config import TrainConfig

__all__ = [
    "History",
    "Log",
    "Unwritten",
    "begin",
    "check_log",
    "delete_old_checkpoints",
    "how_to_resume",
    "load_finished",
    "resumable",
    "saved",
    "send",
    "stopped",
]

Log = Callable[[dict[str, Any], int], Any]
"""What gets every row of the history, with its step: the `log_metrics` of an experiment tracker."""


def begin(
    path: Path | None, config: TrainConfig, resume: bool, together: list[str] | None = None
) -> store.Run:
    """A new run, or the one to resume. Nothing is written yet: if a check before the first step
    fails, the next attempt must find an empty folder.

    `together` are the names of the runs that this one is trained together with, itself included.
    """
    who = "train" if together is None else "train_ensemble"
    new_run = store.Run(path, config.model_dump(), environment=environment())
    if path is None:
        if resume:
            raise ConfigError(f"{who}: resume needs out=FOLDER, where to resume from.")
        return new_run
    if together is not None:
        new_run.environment["ensemble"] = together
    if (path / "run.json").is_file():
        run = store.open_run(path)
        if not resume:
            remedy = "Resume it with --resume (resume=True), or choose another folder."
            if together is not None:
                remedy = "Resume all of them with resume=True, or choose another folder."
            if run.status == "failed":
                remedy = "Resuming would repeat its steps and fail again: choose another folder."
            raise RunError(
                f"{who}: {path} already contains a run ({run.status}, step {run.step} of "
                f"{run.config.get('steps')}). {remedy}"
            )
        check_same_settings(run, config)
        check_same_members(run, together)
        return run
    if path.exists() and not path.is_dir():
        raise RunError(f"{who}: {path} is a file, not a folder. Choose another place for the run.")
    if path.is_dir() and any(entry for entry in path.iterdir() if not entry.name.startswith(".")):
        raise RunError(
            f"{who}: {path} is not empty and contains no run.json. So that no file is overwritten, "
            "choose a new or empty folder."
        )
    return new_run


def check_same_members(run: store.Run, together: list[str] | None) -> None:
    """A run goes on as it began, alone or with the same others: else it would have other bits."""
    before = run.environment.get("ensemble")
    if before == together or (run.finished and together is None):
        return
    state = f"{run.path} ({run.status}, step {run.step} of {run.config.get('steps')})"
    if before is None:
        raise RunError(
            f"train_ensemble: {state} was trained alone. Trained with others it would round "
            "differently and not repeat its own steps. Resume it alone with zs.train or zscope "
            "train --resume, or choose another folder."
        )
    names = [str(name) for name in before] if isinstance(before, list) else [str(before)]
    listed = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    who = "train" if together is None else "train_ensemble"
    raise RunError(
        f"{who}: {state} is one of {len(names)} runs that are trained together ({listed}). "
        f"{'Alone' if together is None else 'With others'} it would round differently and not "
        "repeat its own steps. Resume all of them, with what started them: the same call of "
        "zs.train_ensemble with resume=True, or the same zscope sweep run."
    )


def check_same_settings(run: store.Run, config: TrainConfig) -> None:
    before, now = flatten(run.config), flatten(config.model_dump())
    changed = [key for key in now | before if before.get(key) != now.get(key)]
    if changed:
        key, others = changed[0], len(changed) - 1
        more = f" (and {others} more differ)" if others else ""
        raise ConfigError(
            f"train: {run.path} was started with {key}={before.get(key)!r}, but resumed with {key}="
            f"{now.get(key)!r}{more}. A resumed run keeps its settings: leave the option out or "
            "start a new run."
        )


def flatten(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level, with names such as model.options.beta."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif value is not None:
            flat[prefix + key] = value
    return flat


def load_finished(run: store.Run, model: Autoencoder, config: TrainConfig) -> store.Run:
    """A finished run with its trained model."""
    assert run.path is not None
    tensors, _ = store.read_tensors(run.path / "model.safetensors")
    store.fill(model, tensors, run.path / "model.safetensors")
    run.model = model.eval()
    with suppress(OSError):  # what a kill at the very end has left
        store.clear_leftovers(run.path)
        delete_old_checkpoints(run.path, config, finished=True)
    return run


class History:
    """history.jsonl, appended row by row; or a list, for a run in memory.

    Each `flush` notes in the run how long the file is and its checksum; the run is saved by
    whoever flushes.
    """

    def __init__(self, run: store.Run, first: int) -> None:
        self.run, self.rows = run, run._history
        self.file = None if run.path is None else run.path / "history.jsonl"
        self.digest, self.length = hashlib.sha256(), 0
        if self.file is not None and run.path is not None:
            rows = [row for row in store.read_history(run.path, run.history_check)
                    if row["step"] < first]  # fmt: skip
            content = "".join(json.dumps(row) + "\n" for row in rows).encode()
            # First without a checksum: the rows to be dropped may have been counted in it.
            run.history_check = None
            run.save()
            write_whole(self.file, content)
            self._count(content)

    def add(self, row: dict[str, Any]) -> None:
        if self.file is None:
            self.rows.append(row)
        else:
            line = (json.dumps(row) + "\n").encode()
            append(self.file, line)
            self._count(line)

    def flush(self) -> None:
        """Make the added rows survive a power failure."""
        if self.file is not None:
            sync(self.file)
            self.run.history_check = {"bytes": self.length, "sha256": self.digest.hexdigest()}

    def _count(self, content: bytes) -> None:
        self.digest.update(content)
        self.length += len(content)


def check_log(log: Any, devices: int) -> None:
    """Refuse before the first step what could not be called at the first row."""
    if log is None:
        return
    if not callable(log):
        raise ConfigError(
            f"train: log={log!r:.60} cannot be called; expected a function of a dict and a step, "
            "for instance log=lambda values, step: print(step, values)."
        )
    if devices == 1:
        return
    try:
        pickle.dumps(log)
    except Exception as error:  # whatever its parts raise
        raise ConfigError(
            f"train: log= has to be sent to another process, because devices={devices}, and "
            f"cannot be ({type(error).__name__}: {error}). Is it a lambda, or does it hold an open "
            "file? Give a function of a module, which opens the tracker at its first call."
        ) from error


def send(log: Log | None, row: dict[str, Any], state: str) -> TrainingError | None:
    """Call `log` with a row; the error if it raises, which ends with the `state` of the run."""
    if log is None:
        return None
    values = {name: value for name, value in row.items() if name not in ("format", "step")}
    try:
        log(values, row["step"])
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        unsent = TrainingError(
            f"train: log= raised {type(error).__name__} at step {row['step']}: {lines[0][:200]}. "
            "Is the tracker reachable, and does it take a dict of numbers and a step? This row is "
            f"in the history, but was not sent. {state}"
        )
        unsent.__cause__ = error
        return unsent
    return None


def delete_old_checkpoints(path: Path, config: TrainConfig, *, finished: bool = False) -> None:
    """Delete all but the snapshots and, until the run is finished, the newest two.

    Two, because the newest may turn out to be damaged.
    """
    saved = store.checkpoints(path)
    for step, file in saved if finished else saved[:-2]:
        if not config.is_snapshot(step):
            file.unlink(missing_ok=True)


def stopped(who: str, step: int, config: TrainConfig, how: str | None) -> str:
    """The message of an interrupted run; `how` it is resumed, None if it was in memory only."""
    if how is None:
        return f"{who}: stopped after step {step} of {config.steps}; it was in memory only."
    return f"{who}: stopped and saved after step {step} of {config.steps}. Resume with: {how}"


def saved(step: int, how: str | None) -> str:
    """Where a run is after an error, and how it is resumed; None if it was in memory only."""
    if how is None:
        return "The run was in memory only: with out=FOLDER it could be resumed."
    return f"The run is saved after step {step}. Resume with: {how}"


def how_to_resume(path: Path | None, config: TrainConfig, root: str | None) -> str | None:
    """The command that resumes a run; `root` is the folder of its dataset."""
    if path is None:
        return None
    if config.model is None or config.data is None:
        return f"the same call of zs.train with out={str(path)!r} and resume=True"
    options = [] if root is None else ["--root", root]
    return shlex.join(["zscope", "train", "--out", str(path), "--resume", *options])


class Unwritten(RunError):
    """A run that cannot be written any more, with how to resume it; its cause says why."""


@contextmanager
def resumable(how: str | None) -> Iterator[None]:
    """If the run cannot be written any more, say how to resume it."""
    try:
        yield
    except RunError as error:
        if how is None:
            raise
        raise Unwritten(
            f"{error} The run can be resumed from its last checkpoint: {how}"
        ) from error


def environment() -> dict[str, Any]:
    return {
        "zscope": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }

"""What a worker does for one item of a sweep: train what is unfinished, measure what is missing.

An item is one run, or several that are trained together. A worker takes a run by its lock: of
two that want it, one trains it and the other leaves it. A run that was begun is resumed. All a
worker needs are the package and the folder of runs.
"""

import json
import os
import platform
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from zscope import data as datasets
from zscope import models, store
from zscope.assays.run import measure, stamp
from zscope.data.dataset import Dataset
from zscope.errors import Locked, RunError, ZscopeError
from zscope.experiments.sweeps.address import DIGITS, LEFT_OUT, address
from zscope.experiments.sweeps.plan import Measured, snapshots
from zscope.experiments.training import train_config, train_together
from zscope.files import lock, locked_by, write_whole
from zscope.kept import KeptResults, read_scores
from zscope.loading import load, run_data
from zscope.recording import record
from zscope.store import weights_checksum
from zscope.training.config import TrainConfig

__all__ = [
    "Item",
    "Row",
    "is_complete",
    "is_measured",
    "is_trained",
    "owner_of",
    "steps_done",
    "work",
]


@dataclass(frozen=True)
class Item:
    """What a worker is sent: a few paths, and configurations as plain values."""

    configs: dict[str, dict[str, Any]]  # by the name of the run
    addresses: dict[str, str]
    runs: str
    failed: str
    assay: Measured | None
    root: str | None = None


@dataclass(frozen=True)
class Row:
    """What became of each run of an item: done, failed or elsewhere (in another process)."""

    states: dict[str, str]
    reasons: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # spent on training
    steps: int = 0  # that were trained in them, over all runs
    measuring: float = 0.0  # seconds


def work(item: Item) -> Row:
    """Train and measure the runs of an item; what goes wrong with one is its result."""
    row = Row({})
    begun, done = time.monotonic(), steps_done(item)
    failure: Exception | None = None
    try:
        _train(item)
    except Locked as error:
        reasons = dict.fromkeys(item.configs, str(error))
        return Row(dict.fromkeys(item.configs, "elsewhere"), reasons)
    except Exception as error:
        failure = error
    trained, steps = time.monotonic(), steps_done(item) - done
    for name in item.configs:
        # Of several that are trained together one may fail, and the others finish.
        if failure is not None and not is_trained(Path(item.runs) / name):
            _fail(item, row, name, failure)
            continue
        try:
            _measure(item, name)
        except Locked as error:
            row.states[name], row.reasons[name] = "elsewhere", str(error)
        except Exception as error:
            _fail(item, row, name, error)
        else:
            row.states[name] = "done"
            with suppress(OSError):
                (Path(item.failed) / f"{name}.txt").unlink()
    return replace(row, seconds=trained - begun, steps=steps, measuring=time.monotonic() - trained)


def _fail(item: Item, row: Row, name: str, error: Exception) -> None:
    row.states[name], row.reasons[name] = "failed", _record_failure(item, name, error)


def is_trained(path: Path, wanted: Collection[int] = ()) -> bool:
    """Whether the run is finished, with the snapshots that are wanted."""
    try:
        run = store.open_run(path)
    except (RunError, OSError):
        return False
    if not run.finished or not _is_addressed(run, path):
        return False
    return not (wanted and _missing(path, wanted))


def _is_addressed(run: store.Run, path: Path) -> bool:
    """Whether a run says that it is the one that its folder is named for.

    One that was killed right after its last step does not say so yet; another one that was put
    into this folder says something else.
    """
    hashed = run.environment.get("address")
    return isinstance(hashed, str) and path.name.endswith(f"-{hashed[:DIGITS]}")


def is_measured(path: Path, assay: Measured | None) -> bool:
    """Whether the run has an entry for everything that is asked, of these weights and source."""
    if assay is None:
        return True
    expected = {**stamp(), "weights": weights_checksum(path / "model.safetensors")}
    try:
        entries = {
            (each.get("assay"), each.get("options"), each.get("asked"), each.get("seed"))
            for each in read_scores(path)
            if all(each.get(key) == value for key, value in expected.items())
        }
    except ZscopeError:
        return False
    wanted = {(e["assay"], e["options"], e["asked"], e["seed"]) for e in assay.requests.values()}
    return wanted <= entries


def is_complete(path: Path, wanted: Collection[int], assay: Measured | None) -> bool:
    return is_trained(path, wanted) and is_measured(path, assay)


def _train(item: Item) -> None:
    """Train the runs of an item that are not finished, together if they are several."""
    folder = Path(item.runs)
    configs = {name: TrainConfig(**each) for name, each in item.configs.items()}
    for name, config in configs.items():
        _describe_finished(item, name, config)
    unfinished = [
        name for name, each in configs.items() if not is_trained(folder / name, snapshots(each))
    ]
    for name in unfinished:  # others may have been begun with them
        configs |= _companions(folder, name, configs)
    if not unfinished:
        return
    members = [name for name in configs if name in unfinished or name not in item.configs]
    begun = [name for name in configs if _ensemble_of(folder / name)]
    if begun:
        members = list(_ensemble_of(folder / begun[0]))
    ready = {name: _prepare(folder / name, configs[name]) for name in members}
    first = next(iter(ready.values()))
    dataset = _dataset(first, item.root)
    if len(ready) == 1 and not begun:
        ((name, config),) = ready.items()
        run = train_config(config, out=folder / name, resume=True, data=dataset, progress=False)
        _describe(item, name, run)
        return
    recipes = [config.model.model_dump() for config in ready.values() if config.model is not None]
    runs = train_together(
        [models.from_recipe(recipe) for recipe in recipes],
        dataset,
        list(ready.values()),
        [folder / name for name in ready],
        resume=True,
        progress=False,
    )
    for name, run in zip(ready, runs, strict=True):
        _describe(item, name, run)


def _ensemble_of(path: Path) -> Sequence[str]:
    """The runs that an unfinished run was begun together with; none if it is trained alone."""
    with suppress(RunError, OSError):
        run = store.open_run(path)
        members = run.environment.get("ensemble")
        if not run.finished and isinstance(members, list):
            return [str(member) for member in members]
    return []


def _companions(
    folder: Path, name: str, configs: Mapping[str, TrainConfig]
) -> dict[str, TrainConfig]:
    """The configurations of runs outside the item that a run was begun together with."""
    others = [each for each in _ensemble_of(folder / name) if each not in configs]
    found = {}
    for other in others:
        if not store.is_run(folder / other):
            raise RunError(
                f"sweep: {folder / name} was begun together with {other}, which is not there any "
                "more. Runs that are trained together are resumed together: restore it, or delete "
                "both."
            )
        found[other] = TrainConfig(**store.open_run(folder / other).config)
    return found


def _prepare(path: Path, config: TrainConfig) -> TrainConfig:
    """The configuration with which a run is started, or resumed if it was begun.

    A run that was begun keeps the settings that do not change its weights. Snapshots that it
    lacks are added: it is resumed from before the first of them, and repeats its steps exactly.
    """
    if not store.is_run(path):
        return config
    with lock(path, "sweep"):
        run = store.open_run(path)
        stored = TrainConfig(**run.config)
        _refuse_another(path, stored, config)
        kept = {key: getattr(stored, key) for key in LEFT_OUT}
        # Those that the stored configuration takes every so many steps need not be listed.
        extra = {step for step in snapshots(config) if not stored.is_snapshot(step)}
        kept["snapshots"] = sorted({*stored.snapshots, *extra})
        merged = config.model_copy(update=kept)
        if merged.model_dump() != stored.model_dump():
            missing = _missing(path, snapshots(merged))
            for step, file in store.checkpoints(path):
                if missing and step >= missing[0]:
                    file.unlink()
            run.config = merged.model_dump()
            if run.finished and missing:
                run.status, run.step = "interrupted", 0
            run.save()
    return merged


def _refuse_another(path: Path, stored: TrainConfig, config: TrainConfig) -> None:
    """Refuse to go on with a run that is another one than its folder is named for."""
    left_out = set(LEFT_OUT)
    if stored.model_dump(exclude=left_out) == config.model_dump(exclude=left_out):
        return
    if stored.model is None or stored.data is None or address(stored) != address(config):
        raise RunError(
            f"sweep: {path} contains a run with other settings than its name stands for. Was a "
            "folder copied or renamed? Move it away and start the sweep again with --retry-failed."
        )


def _describe_finished(item: Item, name: str, config: TrainConfig) -> None:
    """Describe a run that was killed between its last step and being described."""
    path = Path(item.runs) / name
    if store.is_run(path):
        run = store.open_run(path)
        if run.finished and not _is_addressed(run, path):
            _refuse_another(path, TrainConfig(**run.config), config)
            _describe(item, name, run)


def _missing(path: Path, wanted: Collection[int]) -> list[int]:
    """The snapshots that a run has passed without keeping them."""
    saved = {step for step, _ in store.checkpoints(path)}
    run = store.open_run(path)
    return [step for step in sorted(wanted) if step <= run.step and step not in saved]


def _describe(item: Item, name: str, run: store.Run) -> None:
    """Write into the run what could change its bits."""
    about = {
        "address": item.addresses.get(name),
        "device": _device_of(run),
        "host": platform.node(),
    }
    about = {key: value for key, value in about.items() if value is not None}
    if run.path is not None and not all(run.environment.get(k) == v for k, v in about.items()):
        with lock(run.path, "sweep"):
            run = store.open_run(run.path)
            run.environment = {**run.environment, **about}
            run.save()


def _device_of(run: store.Run) -> str | None:
    parameters = [] if run.model is None else list(run.model.parameters())
    return str(parameters[0].device) if parameters else None


def _measure(item: Item, name: str) -> None:
    """Measure what is asked of a finished run and not there yet."""
    assay, path = item.assay, Path(item.runs) / name
    if assay is None or is_measured(path, assay):
        return
    with lock(path, "sweep"):
        if is_measured(path, assay):
            return
        model = load(path)
        recording = record(model, _measured_data(path, item.root), samples=assay.samples,
                           seed=assay.seed)  # fmt: skip
        outcome = measure(
            recording,
            assay.names,
            options=assay.options,
            resamples=assay.resamples,
            kept=KeptResults(store.open_run(path), model, own_data=True),
        )
    if outcome.failed:
        name, failure = next(iter(outcome.failed.items()))
        raise failure.error
    if outcome.warnings:
        raise RunError(f"sweep: {path}: {outcome.warnings[0]}")


@lru_cache(maxsize=2)
def _load_data(recipe: str, root: str | None) -> Dataset:
    return datasets.from_recipe(json.loads(recipe), root=root)


def _dataset(config: TrainConfig, root: str | None) -> Dataset:
    assert config.data is not None
    return _load_data(config.data.model_dump_json(exclude_none=True), root)


def _measured_data(path: Path, root: str | None) -> Dataset:
    """The data of a run, or its held-out part if they were split."""
    run = store.open_run(path)
    config = TrainConfig(**run.config)
    if config.data is not None and config.data.split is None:
        return _dataset(config, root)
    return run_data(path, root=root)


def steps_done(item: Item) -> int:
    """The steps that the runs of an item have saved, over all of them."""
    total = 0
    for name in item.configs:
        with suppress(RunError, OSError):
            total += store.open_run(Path(item.runs) / name).step
    return total


def _record_failure(item: Item, name: str, error: Exception) -> str:
    """Write failed/RUN.txt: why, the configuration, where, and the traceback; returns why."""
    text = " ".join(str(error).split()) or type(error).__name__
    reason = text if isinstance(error, ZscopeError) else f"{type(error).__name__}: {text}"
    lines = [
        reason,
        "",
        f"host {platform.node()}, process {os.getpid()}",
        json.dumps(item.configs[name], indent=2),
        "",
        "".join(traceback.format_exception(error)),
    ]
    with suppress(ZscopeError):  # a full disk: the reason still reaches whoever waits
        write_whole(Path(item.failed) / f"{name}.txt", "\n".join(lines).encode())
    return reason


def owner_of(item: Item) -> str | None:
    """Who works on an item just now."""
    owners = (locked_by(Path(item.runs) / name) for name in item.configs)
    return next((owner for owner in owners if owner is not None), None)

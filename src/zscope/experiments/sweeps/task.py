"""What a worker does for one item of a sweep: train what is unfinished, measure what is missing.

An item is one run, or several that are trained together. A worker takes a run by its lock: of
two that want it, one trains it and the other leaves it. A run that was begun is resumed. All a
worker needs are the package and the folder of runs.
"""

import hashlib
import json
import os
import platform
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from zscope import data as datasets
from zscope import models, store
from zscope.assays.run import measure, stamp
from zscope.data.dataset import Dataset
from zscope.errors import DataError, Locked, RunError, TrainingError, ZscopeError
from zscope.experiments.sweeps.address import DIGITS, LEFT_OUT, address, data_hash
from zscope.experiments.sweeps.plan import snapshots
from zscope.experiments.sweeps.request import Measured
from zscope.experiments.training import train_config, train_together
from zscope.files import lock, locked_by, write_whole
from zscope.kept import KeptResults, read_scores
from zscope.loading import load, run_data
from zscope.recording import record
from zscope.store import weights_checksum
from zscope.training.config import TrainConfig
from zscope.training.keeping import Unwritten, delete_old_checkpoints

__all__ = [
    "Item",
    "Row",
    "is_complete",
    "is_measured",
    "is_trained",
    "owner_of",
    "read_failure",
    "steps_done",
    "work",
]


MEASURING = "in measuring the request"


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
    try:
        failures = _train(item)
    except Locked as error:
        reasons = dict.fromkeys(item.configs, str(error))
        return Row(dict.fromkeys(item.configs, "elsewhere"), reasons)
    except Exception as error:
        failures = dict.fromkeys(item.configs, error)
    trained, steps = time.monotonic(), steps_done(item) - done
    for name in item.configs:
        # Of several that are trained together one may fail, and the others finish.
        if name in failures and not is_trained(Path(item.runs) / name):
            _fail(item, row, name, failures[name])
            continue
        try:
            if not is_trained(Path(item.runs) / name, snapshots(TrainConfig(**item.configs[name]))):
                raise RunError(f"sweep: {name} was not trained. Start the sweep again.")
            _measure(item, name)
        except Locked as error:
            row.states[name], row.reasons[name] = "elsewhere", str(error)
        except Exception as error:
            _fail(item, row, name, error, measuring=True)
        else:
            row.states[name] = "done"
            with suppress(OSError):
                (Path(item.failed) / f"{name}.txt").unlink()
    return replace(row, seconds=trained - begun, steps=steps, measuring=time.monotonic() - trained)


def _fail(item: Item, row: Row, name: str, error: Exception, *, measuring: bool = False) -> None:
    row.states[name], row.reasons[name] = "failed", _record_failure(item, name, error, measuring)


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


def _train(item: Item) -> dict[str, Exception]:
    """Train the runs of an item that are not finished, in the company in which they began.

    Returns what went wrong, by the name of the run.
    """
    folder = Path(item.runs)
    configs = {name: TrainConfig(**each) for name, each in item.configs.items()}
    failures: dict[str, Exception] = {}
    for name, config in configs.items():
        try:
            _describe_finished(item, name, config)
        except Locked:
            raise
        except ZscopeError as error:
            failures[name] = error
    unfinished = [
        name
        for name, each in configs.items()
        if name not in failures and not is_trained(folder / name, snapshots(each))
    ]
    for name in unfinished:
        _check_data(item, name, configs[name])
    for members in _companies(folder, unfinished):
        try:
            _train_members(item, members, configs)
        except Locked:
            raise
        except Exception as error:
            own = error.members if isinstance(error, TrainingError) else {}
            failures |= {name: own.get(name, error) for name in members if name in configs}
            for name in members:
                if name in configs:
                    _describe_finished(item, name, configs[name])
    return failures


def _companies(folder: Path, names: Sequence[str]) -> list[list[str]]:
    """The runs that are trained together: as they began, and those that have not, in one group."""
    new: list[str] = []
    begun: dict[tuple[str, ...], None] = {}
    for name in names:
        if store.is_run(folder / name):
            begun[tuple(_ensemble_of(folder / name)) or (name,)] = None
        else:
            # A kill may have come between the first and the last of an ensemble.
            others = (_ensemble_of(folder / each) for each in names)
            company = next((list(each) for each in others if name in each), None)
            new += [name] if company is None else []
    return [*map(list, begun), *([new] if new else [])]


def _train_members(item: Item, members: Sequence[str], configs: Mapping[str, TrainConfig]) -> None:
    """Train one run alone, or several together."""
    folder = Path(item.runs)
    for name in members:
        _check_start(folder, name, configs)
    ready = _prepare(folder, members, configs)
    dataset = _dataset(next(iter(ready.values())), item.root)
    if len(ready) == 1:
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


def _check_start(folder: Path, name: str, configs: Mapping[str, TrainConfig]) -> None:
    """Refuse a branch whose start is not there: the run that it starts from has failed."""
    start = configs[name].start if name in configs else None
    if start is not None and not is_trained(folder / start.run):
        raise RunError(
            f"sweep: {name} starts from {start.run}, which is not finished. Did it fail? Its own "
            "reason is listed too: remove that, and start the same sweep with --retry-failed."
        )


def _ensemble_of(path: Path) -> Sequence[str]:
    """The runs that a run is trained together with; none if it is trained alone."""
    with suppress(RunError, OSError):
        members = store.open_run(path).environment.get("ensemble")
        if isinstance(members, list):
            return [str(member) for member in members]
    return []


def _check_data(item: Item, name: str, config: TrainConfig) -> None:
    """Refuse files of one's own that are not those the plan was made for."""
    if name in item.addresses and address(config) != item.addresses[name]:
        raise DataError(
            f"sweep: the data of {name} are not those that the plan was made for. Was the file "
            "replaced meanwhile, or is another one at its place on this machine? Start the sweep "
            "again: runs on new data have other names."
        )


def _prepare(
    folder: Path, members: Sequence[str], configs: Mapping[str, TrainConfig]
) -> dict[str, TrainConfig]:
    """The configurations with which runs are started, or resumed if they were begun.

    Runs that were begun keep the settings that do not change their weights. Snapshots that one
    of them lacks are added to all: they are resumed from before the first of these, and repeat
    their steps exactly.
    """
    with ExitStack() as locks:
        begun = [name for name in members if store.is_run(folder / name)]
        for name in sorted(begun):
            locks.enter_context(lock(folder / name, "sweep"))
        runs = {name: store.open_run(folder / name) for name in begun}
        stored = {name: TrainConfig(**run.config) for name, run in runs.items()}
        for name in members:
            if name not in stored and name not in configs:
                raise RunError(
                    f"sweep: {folder / begun[0]} is trained together with {name}, which is not "
                    "there any more. Restore it, or delete both."
                )
            if name in stored and name in configs:
                _refuse_another(folder / name, stored[name], configs[name])
        own = {name: configs[name] if name in configs else stored[name] for name in members}
        if not stored:
            return own
        first = next(iter(stored.values()))
        wanted = {
            step for config in [*own.values(), *stored.values()] for step in snapshots(config)
        }
        kept = {key: getattr(first, key) for key in LEFT_OUT - {"scaling"}}
        # Those that are taken every so many steps need not be listed.
        regular = {*snapshots(first)} - {*first.snapshots}
        kept["snapshots"] = sorted(wanted - regular)
        ready = {name: config.model_copy(update=kept) for name, config in own.items()}
        lacking = [step for name in runs for step in _missing(folder / name, wanted)[:1]]
        for name, run in runs.items():
            if ready[name].model_dump() != stored[name].model_dump() or lacking:
                for step, file in store.checkpoints(folder / name):
                    if lacking and step >= min(lacking):
                        file.unlink()
                run.config = ready[name].model_dump()
                if run.finished and lacking:
                    run.status, run.step = "interrupted", 0
                run.save()
    return ready


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
    """Tidy up and describe a run that was killed between its last step and being described."""
    path = Path(item.runs) / name
    if store.is_run(path):
        run = store.open_run(path)
        if run.finished and not _is_addressed(run, path):
            own = TrainConfig(**run.config)
            _refuse_another(path, own, config)
            with lock(path, "sweep"):
                delete_old_checkpoints(path, own, finished=True)
            _describe(item, name, run)


def _missing(path: Path, wanted: Collection[int]) -> list[int]:
    """The snapshots that a run has passed without keeping them."""
    saved = {step for step, _ in store.checkpoints(path)}
    run = store.open_run(path)
    return [step for step in sorted(wanted) if step <= run.step and step not in saved]


def _describe(item: Item, name: str, run: store.Run) -> None:
    """Write into the run what it is, and where it was trained."""
    about = {"address": item.addresses[name]} if name in item.addresses else {}
    about["host"] = platform.node()
    if run.path is not None and not all(run.environment.get(k) == v for k, v in about.items()):
        with lock(run.path, "sweep"):
            run = store.open_run(run.path)
            run.environment = {**run.environment, **about}
            run.save()


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
            options=assay.loaded,
            resamples=assay.resamples,
            kept=KeptResults(store.open_run(path), model, own_data=True),
        )
    if outcome.failed:
        name, failure = next(iter(outcome.failed.items()))
        raise failure.error
    if outcome.warnings:
        raise RunError(f"sweep: {path}: {outcome.warnings[0]}")


@lru_cache(maxsize=2)
def _load_data(recipe: str, root: str | None, content: str) -> Dataset:
    return datasets.from_recipe(json.loads(recipe), root=root)


def _dataset(config: TrainConfig, root: str | None) -> Dataset:
    assert config.data is not None
    content = data_hash(config.data.model_dump())  # the file may have been replaced since
    return _load_data(config.data.model_dump_json(exclude_none=True), root, content)


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


def _record_failure(item: Item, name: str, error: Exception, measuring: bool) -> str:
    """Write failed/RUN.txt: why, the configuration, where, and the traceback; returns why."""
    text = " ".join(_with_remedy(item, name, error).split()) or type(error).__name__
    reason = text if isinstance(error, ZscopeError) else f"{type(error).__name__}: {text}"
    lines = [
        reason,
        f"{MEASURING} {request_hash(item.assay)}" if measuring else "",
        f"host {platform.node()}, process {os.getpid()}",
        json.dumps(item.configs[name], indent=2),
        "",
        "".join(traceback.format_exception(error)),
    ]
    with suppress(ZscopeError):  # a full disk: the reason still reaches whoever waits
        write_whole(Path(item.failed) / f"{name}.txt", "\n".join(lines).encode())
    return reason


def _with_remedy(item: Item, name: str, error: Exception) -> str:
    """The text of an error, with what is to be done in a sweep and not for a single run."""
    if isinstance(error, Unwritten):
        return (
            f"{error.__cause__} Then start the same sweep again with --retry-failed: the run goes "
            "on from its last checkpoint."
        )
    if isinstance(error, store.Damaged):
        return (
            f"{error} To train it again, delete the folder {Path(item.runs) / name} and start the "
            "same sweep with --retry-failed."
        )
    return str(error)


def request_hash(assay: Measured | None) -> str:
    """What changes when something else is measured."""
    asked = None if assay is None else assay.requests
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]


def read_failure(file: Path, assay: Measured | None) -> str | None:
    """The first line of why a run failed; None if that was in measuring something else."""
    with suppress(OSError):
        reason, _, rest = file.read_text(errors="replace").partition("\n")
        line = rest.partition("\n")[0]
        if not line.startswith(MEASURING) or line == f"{MEASURING} {request_hash(assay)}":
            return reason
    return None


def owner_of(item: Item) -> str | None:
    """Who works on an item just now."""
    owners = (locked_by(Path(item.runs) / name) for name in item.configs)
    return next((owner for owner in owners if owner is not None), None)

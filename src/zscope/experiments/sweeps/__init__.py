"""Sweeps: many runs from one file, on this machine or on a cluster.

    zs.sweep("beta.toml", "runs/beta")

    OUT/sweep.json         the plan as it was checked
    OUT/runs/              one folder a run, named by what it is; shared by sweeps that have the
                           same folder of runs
    OUT/failed/RUN.txt     why a run failed: reason, configuration, host, traceback
    OUT/log.jsonl          how long each item took, for the time that is left

Whatever is finished is never done again, so a sweep that was stopped or killed continues when
it is started again, and several processes, also on several machines that share the folder, may
work on one sweep.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from zscope import store
from zscope.collection import Runs
from zscope.collection import runs as find_runs
from zscope.collection.reasons import group_reasons
from zscope.errors import RunError, ZscopeError
from zscope.experiments.sweeps.plan import Entry, Plan, read_plan
from zscope.experiments.sweeps.progress import Watch, show
from zscope.experiments.sweeps.request import Measured
from zscope.experiments.sweeps.task import (
    Item,
    Row,
    is_complete,
    owner_of,
    read_failure,
    steps_done,
    work,
)
from zscope.experiments.workers import Outcome, check_executor, run_all, workers
from zscope.files import append, as_path, lock, locked_by, write_whole
from zscope.files import sweep as delete_leftovers
from zscope.results import duration

__all__ = [
    "Plan", "Status", "Sweep", "items_of", "prepare", "read_plan", "read_rates",
    "status", "step_of", "sweep",
]  # fmt: skip

AGAIN = 2.0
"""Seconds between two looks at runs that other processes work on."""
SHOWN = 20
"""Reasons why runs failed that are printed."""
TRY = 60.0
"""Seconds after which it is tried whether they still do."""


@dataclass
class Status:
    """How far a sweep is."""

    done: list[str] = field(default_factory=list)
    running: dict[str, str] = field(default_factory=dict)  # run -> "step 300 of 2000, process …"
    waiting: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # run -> why, in one line
    left: float | None = None  # seconds; None if that is not known yet

    @property
    def total(self) -> int:
        return len(self.done) + len(self.running) + len(self.waiting) + len(self.failed)

    def to_dict(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "running": self.running,
            "waiting": self.waiting,
            "failed": self.failed,
            "seconds_left": self.left,
        }

    def counts(self) -> str:
        parts = [f"{len(self.done):,} of {self.total:,} runs done"]
        parts += [f"{len(self.running):,} running"] if self.running else []
        parts += [f"{len(self.waiting):,} waiting"] if self.waiting else []
        parts += [f"{len(self.failed):,} failed"] if self.failed else []
        if self.left is not None and (self.running or self.waiting):
            parts.append(f"{duration(self.left)} left")
        return ", ".join(parts)

    def __str__(self) -> str:
        lines = [self.counts()]
        lines += [f"  running  {name}  {text}" for name, text in self.running.items()]
        lines += [f"  failed   {line}" for line in self.reasons()]
        return "\n".join(lines)

    def reasons(self) -> list[str]:
        """A line for each reason why runs failed, with the first of them; at most SHOWN."""
        reasons = group_reasons(self.failed)
        lines = [f"{each.run}: {each.line}" for each in reasons[:SHOWN]]
        rest = sum(1 + each.others for each in reasons[SHOWN:])
        return [*lines, f"{rest:,} more runs, for other reasons: see --json"] if rest else lines


class Sweep:
    """The runs of a sweep, and its folders."""

    def __init__(
        self, entries: Sequence[Entry], assay: Measured | None, out: Path, folder: Path
    ) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.assay, self.out, self.folder = assay, out, folder

    @property
    def failed_folder(self) -> Path:
        return self.out / "failed"

    def is_complete(self, name: str) -> bool:
        return is_complete(self.folder / name, self.entries[name].snapshots, self.assay)

    def failures(self) -> dict[str, str]:
        """The runs that failed, in training or in measuring what is asked now, and why."""
        reasons: dict[str, str] = {}
        for file in sorted(self.failed_folder.glob("*.txt")):
            if file.stem in self.entries:
                reason = read_failure(file, self.assay)
                reasons |= {} if reason is None else {file.stem: reason}
        return reasons

    def status(self) -> Status:
        """What is done, running, waiting and failed just now."""
        state, owners = Status(), set()
        failed = self.failures()
        for name, entry in self.entries.items():
            if name in self._complete or self.is_complete(name):
                self._complete.add(name)
                state.done.append(name)
            elif name in failed:
                state.failed[name] = failed[name]
            elif (owner := locked_by(self.folder / name)) is not None:
                owners.add(owner)
                step = step_of(self.folder / name)
                state.running[name] = f"step {step:,} of {entry.steps:,}, {owner}"
            else:
                state.waiting.append(name)
        state.left = self._time_left(state, max(1, len(owners)))
        return state

    @cached_property
    def _complete(self) -> set[str]:
        return set()  # what was seen to be complete stays so

    def _time_left(self, state: Status, workers: int) -> float | None:
        """Seconds, from what similar runs took so far."""
        rates = read_rates(self.out)
        if not rates:
            return None
        usual = sum(rates.values()) / len(rates)
        total = 0.0
        for name in [*state.running, *state.waiting]:
            entry = self.entries[name]
            left = max(0, entry.steps - step_of(self.folder / name))
            total += rates.get(entry.shape, usual) * left
        return total / workers


def prepare(
    plan: str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    runs: str | Path | None = None,
    root: str | Path | None = None,
    ensemble: bool = True,
) -> tuple[Plan, Sweep]:
    """Read and check a plan; nothing is written.

    Runs that an earlier plan in OUT trains together stay together.
    """
    out = as_path("sweep", out)
    earlier: list[list[str]] = []
    if (content := _earlier(out)) is not None:
        earlier = _groups_of(out, content)
        runs = _runs_folder(out, content) if runs is None else runs
    folder = out / "runs" if runs is None else as_path("sweep", runs)
    checked = read_plan(plan, root=root, ensemble=ensemble, groups=earlier)
    entries = [run.entry for run in checked.runs]
    return checked, Sweep(entries, checked.assay, out, folder)


def status(out: str | Path) -> Status:
    """How far the sweep in a folder is."""
    out = as_path("sweep", out)
    if not (out / "sweep.json").is_file():
        raise RunError(
            f"sweep: {out} contains no sweep.json, so no sweep was started there. Start one with: "
            f"zscope sweep run FILE --out {out}"
        )
    content = _read(out)
    try:
        entries = [_entry(run) for run in content["runs"]]
        asked = content["assay"] and {k: v for k, v in content["assay"].items() if k != "requests"}
        assay = None if asked is None else Measured(**asked)
        if assay is not None and assay.requests.keys() != set(assay.names):
            raise ValueError(f"assay names={assay.names!r:.60}")
    except (KeyError, TypeError, ValueError, AttributeError, ZscopeError) as error:
        raise RunError(
            f"sweep: {out / 'sweep.json'} lacks a part ({type(error).__name__}: {error}). Was it "
            "edited, or written by another version? Start the sweep again: nothing that is "
            "finished is done twice."
        ) from None
    return Sweep(entries, assay, out, _runs_folder(out, content)).status()


def _read(out: Path) -> dict[str, Any]:
    """The content of OUT/sweep.json."""
    try:
        return store.read_json(out / "sweep.json")
    except RunError as error:
        raise RunError(
            f"{error} It can also be deleted: started again, a sweep does nothing twice."
        ) from None


def _entry(run: Mapping[str, Any]) -> Entry:
    """A run as sweep.json describes it."""
    name, shape, kept = str(run["name"]), str(run["shape"]), [int(k) for k in run["snapshots"]]
    if Path(name).name != name:
        raise ValueError(f"a run cannot be called {name!r:.60}")
    return Entry(name, int(run["fields"]["steps"]), shape, kept)


def items_of(plan: Plan, sweep: Sweep) -> list[Item]:
    """What workers are sent: runs that are trained together, and single ones."""
    first = {group[0]: group for group in plan.groups}
    others = {name for group in plan.groups for name in group[1:]}
    places = str(sweep.folder.absolute()), str(sweep.failed_folder.absolute())
    items = []
    for run in plan.runs:
        if run.name not in others:
            members = [plan.by_name[name] for name in first.get(run.name, [run.name])]
            configs = {each.name: each.config.model_dump() for each in members}
            addresses = {each.name: each.address for each in members}
            items.append(Item(configs, addresses, *places, plan.assay, plan.root))
    return items


def sweep(
    plan: str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    runs: str | Path | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    cluster_options: Mapping[str, Any] | None = None,
    ensemble: bool = True,
    retry_failed: bool = False,
    root: str | Path | None = None,
    progress: Callable[[Sweep, Status], None] | bool | None = None,
) -> Runs:
    """Train and measure all runs of a plan, and return them as `zs.runs(out)` does.

    `plan` is a TOML or JSON file, or a dict of the same form. Runs lie in `runs` (by default
    OUT/runs), which several sweeps may share. The work is done by `jobs` processes of this
    machine (by default one a core), by a Dask scheduler (`cluster="tcp://host:8786"`), by jobs
    of SLURM (`cluster="slurm"`, with `cluster_options`), or by any `executor` of
    concurrent.futures. Small networks of one shape are trained together unless `ensemble=False`.
    What is finished is not done again; runs that failed before are left alone unless
    `retry_failed`. `progress=None` shows a live table in a terminal.
    """
    out = as_path("sweep", out)
    given: dict[str, Any] = {"runs": runs, "root": root, "ensemble": ensemble}
    before = _stamp(out)
    checked, state = prepare(plan, out, **given)
    pending = _pending(checked, state, retry_failed)
    with ExitStack() as stack:

        def pool() -> Executor:
            wanted: dict[str, Any] = {"jobs": jobs, "cluster": cluster, "options": cluster_options}
            inside = state.folder.resolve().is_relative_to(out.resolve())
            folders = [out] if inside else [out, state.folder]
            places: dict[str, Any] = {"folders": folders, "files": checked.files}
            if executor is not None:
                return check_executor(executor, **wanted)
            return stack.enter_context(workers(**wanted, **places))

        # A plan or workers that are refused are refused before anything is written.
        active = pool() if pending or executor is not None else None
        with lock(out, "sweep", wait=True):
            if _stamp(out) != before:
                # Whoever was faster has decided which runs are trained together.
                checked, state = prepare(plan, out, **given)
                pending = _pending(checked, state, retry_failed)
            _write(checked, state)
        if pending:
            if retry_failed:
                for name in state.failures():
                    (state.failed_folder / f"{name}.txt").unlink(missing_ok=True)
            with show(state, progress) as watch:
                watch.tick()
                active = active or pool()
                for wave in _waves(checked, pending):
                    _run(state, wave, active, watch)
    _tidy(state)
    return find_runs(out)


def _tidy(state: Sweep) -> None:
    """Delete what processes have left that were killed right after they had finished a run."""
    for folder in (state.out, state.failed_folder):
        delete_leftovers(folder)
    for name in state.entries:
        delete_leftovers(state.folder / name)
        delete_leftovers(state.folder / name / "assays")


def _pending(plan: Plan, state: Sweep, retry_failed: bool) -> list[Item]:
    """What is to be done: items with runs that neither are complete nor failed before."""
    failed = {} if retry_failed else state.failures()
    return [
        item
        for item in items_of(plan, state)
        if not all(name in failed or state.is_complete(name) for name in item.configs)
    ]


def _waves(plan: Plan, pending: list[Item]) -> list[list[Item]]:
    """The items in the order of their dependencies: no branch before the run it starts from."""
    depths: dict[int, list[Item]] = {}
    for item in pending:
        depth, config = 0, plan.by_name[_key(item)].config
        while config.start is not None:
            depth, config = depth + 1, plan.by_name[config.start.run].config
        depths.setdefault(depth, []).append(item)
    return [depths[depth] for depth in sorted(depths)]


def _run(state: Sweep, pending: list[Item], pool: Executor, watch: Watch) -> None:
    """Do all items; those that other processes work on are looked at until they are done."""
    lost: dict[str, str] = {}  # failures that could not be recorded
    saved = {_key(item): steps_done(item) for item in pending}
    while pending:

        def done(index: int, outcome: Outcome, items: list[Item] = pending) -> None:
            if isinstance(outcome.result, Row):
                _log(state, items[index], outcome.result)
                lost.update(_unrecorded(state, outcome.result))
            watch.tick()

        try:
            outcomes = run_all(pool, work, pending, done=done, tick=watch.tick)
        except KeyboardInterrupt as stopped:
            raise type(stopped)(
                f"sweep: stopped with {state.status().counts()}. Runs in training were saved: "
                "start the same sweep again to go on."
            ) from None
        again, others = [], []
        for item, outcome in zip(pending, outcomes, strict=True):
            before, saved[_key(item)] = saved[_key(item)], steps_done(item)
            if isinstance(outcome.result, Row):
                others += [item] if "elsewhere" in outcome.result.states.values() else []
            elif saved[_key(item)] > before:
                again.append(item)  # its workers died, but it came further: they are to blame
            else:
                _note_death(state, item, outcome)
        pending = again + _wait_for_others(state, others, watch)
    if lost:
        name, reason = next(iter(lost.items()))
        raise RunError(
            f"sweep: {len(lost)} runs failed, and that could not be recorded in "
            f"{state.failed_folder}. The first is {name}: {reason}"
        )


def _key(item: Item) -> str:
    return next(iter(item.configs))


def _wait_for_others(state: Sweep, items: list[Item], watch: Watch) -> list[Item]:
    """Wait for items that other processes work on; returns those that are to be tried here.

    That is as soon as one of them has no owner any more, and in any case after a while: who owns
    a run is a guess (the number of a dead process may have been given to another), its lock is not.
    """
    end = time.monotonic() + TRY
    while items := [item for item in items if not _is_over(state, item)]:
        if time.monotonic() > end or any(owner_of(item) is None for item in items):
            break
        watch.tick()
        time.sleep(AGAIN)
    return items


def _unrecorded(state: Sweep, row: Row) -> dict[str, str]:
    """Runs that failed without leaving a note of it: the disk is full, say."""
    return {
        name: row.reasons[name]
        for name, how in row.states.items()
        if how == "failed" and not (state.failed_folder / f"{name}.txt").is_file()
    }


def _is_over(state: Sweep, item: Item) -> bool:
    failed = state.failures()
    return all(name in failed or state.is_complete(name) for name in item.configs)


def _note_death(state: Sweep, item: Item, outcome: Outcome) -> None:
    """Record an item whose worker died again and again, or could not be told what to do."""
    for name in item.configs:
        text = f"{outcome.error}\n\n{outcome.traceback or ''}"
        with suppress(ZscopeError):
            write_whole(state.failed_folder / f"{name}.txt", text.encode())


def _write(plan: Plan, state: Sweep) -> None:
    """Write sweep.json, unless it says the same already."""
    try:
        where = str(state.folder.resolve().relative_to(state.out.resolve()))
    except ValueError:
        where = str(state.folder.resolve())
    content = json.loads(json.dumps(plan.to_dict(where)))
    before = _earlier(state.out) or {}
    if not all(before.get(key) == value for key, value in content.items()):
        store.write_json(state.out / "sweep.json", content, indent=None)


def _earlier(out: Path) -> dict[str, Any] | None:
    """The sweep.json of a folder, if there is one."""
    return _read(out) if (out / "sweep.json").is_file() else None


def _stamp(out: Path) -> tuple[int, ...]:
    """What changes when sweep.json is replaced; () if there is none."""
    try:
        state = (out / "sweep.json").stat()
    except OSError:
        return ()
    return state.st_mtime_ns, state.st_size, state.st_ino


def _runs_folder(out: Path, content: Mapping[str, Any]) -> Path:
    where = content.get("runs_folder", "runs")
    if not isinstance(where, str):
        raise RunError(
            f"sweep: {out / 'sweep.json'} has runs_folder={where!r:.60}; expected a path. Was it "
            "edited? Start the sweep again with --runs."
        )
    return out / where


def _groups_of(out: Path, content: Mapping[str, Any]) -> list[list[str]]:
    groups = content.get("groups", [])
    if isinstance(groups, list) and all(isinstance(group, list) for group in groups):
        return [[str(name) for name in group] for group in groups]
    raise RunError(
        f"sweep: {out / 'sweep.json'} has groups={groups!r:.60}; expected lists of names. Was it "
        "edited? Delete it and start the sweep again: nothing that is finished is done twice."
    )


def _log(state: Sweep, item: Item, row: Row) -> None:
    """Note how long an item took."""
    if row.steps:
        entry = {
            "shape": state.entries[next(iter(item.configs))].shape,
            "runs": len(item.configs),
            "steps": row.steps,
            "seconds": row.seconds + row.measuring,
        }
        with suppress(ZscopeError):
            append(state.out / "log.jsonl", (json.dumps(entry) + "\n").encode())


def read_rates(out: Path) -> dict[str, float]:
    """Seconds a step of one run, measuring included, by the shape of the run."""
    seconds: dict[str, float] = {}
    steps: dict[str, int] = {}
    with suppress(OSError, ValueError, KeyError, TypeError):
        for line in (out / "log.jsonl").read_text().splitlines():
            entry = json.loads(line)
            shape = str(entry["shape"])
            seconds[shape] = seconds.get(shape, 0.0) + float(entry["seconds"])
            steps[shape] = steps.get(shape, 0) + int(entry["steps"])
    return {shape: seconds[shape] / steps[shape] for shape in seconds if steps.get(shape)}


def step_of(path: Path) -> int:
    """The last step that a run has logged; 0 if it was not begun."""
    errors = suppress(OSError, ValueError, IndexError, KeyError, TypeError)
    with errors, (path / "history.jsonl").open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 4096))
        return int(json.loads(file.read().splitlines()[-1])["step"])
    return 0

"""Run a study: make and train what is missing, then measure what is missing.

    OUT/NAME/sweep/                 the sweep of its runs (`zscope sweep status OUT/NAME/sweep`)
    OUT/NAME/measured/              what was measured, a file for each run or other unit
    OUT/NAME/measurements.json.gz   all of it; `zscope.report.studies` writes what it shows

Runs lie in `runs` (default OUT/runs), named by their configuration, so that studies which want the
same run train it once; data that a study makes lie there too (`made.py`). Killed at any time and
started again, nothing finished is lost.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zscope import __version__
from zscope.errors import ConfigError, RunError, ZscopeError
from zscope.experiments import studies
from zscope.experiments.studies.grid import settings_of
from zscope.experiments.studies.made import resolve
from zscope.experiments.studies.storage import decode, encode, write_results
from zscope.experiments.studies.study import Measure, Results, Study
from zscope.experiments.studies.trained import Trained, TrainedRuns
from zscope.experiments.sweeps import Sweep, prepare, sweep
from zscope.experiments.workers import Outcome, run_all, workers
from zscope.files import as_path
from zscope.results import duration
from zscope.store import read_json, weights_checksum, write_json

__all__ = ["Prepared", "prepare_study", "run_study"]

Progress = Callable[[str], None]
EVERY = 15.0
"""Seconds between two lines of progress."""


@dataclass(frozen=True)
class Prepared:
    """A study whose runs have names."""

    study: Study
    scale: str
    out: Path
    runs: Path
    plan: dict[str, Any]  # of the sweep
    rows: list[dict[str, Any]]  # run, group and settings; a run in two grids stands twice
    state: Sweep
    root: str | None = None

    @property
    def done(self) -> list[str]:
        return [name for name in self.state.entries if self.state.is_complete(name)]


def prepare_study(
    study: Study,
    out: str | Path,
    *,
    scale: str = "small",
    runs: str | Path | None = None,
    seeds: int | None = None,
    root: str | Path | None = None,
) -> Prepared:
    """Check all runs of a study and find their names; nothing is written."""
    out = as_path("study", out)
    folder = out / "runs" if runs is None else as_path("study", runs)
    planned = study.plan(scale, seeds)
    keys = [json.dumps(run, sort_keys=True) for _, run in planned]
    unique = dict(zip(keys, (run for _, run in planned), strict=True))
    plan = {"run": [resolve(study.made, run, scale, folder) for run in unique.values()]}
    checked, state = prepare(plan, out / study.name / "sweep", runs=folder, root=root)
    # Runs that others start from are added to the plan, and have no line of their own.
    numbered = {run.line.partition(":")[0]: run.name for run in checked.runs}
    names = {key: numbered[f"[[run]] {number}"] for number, key in enumerate(unique, 1)}
    rows = [
        {"run": names[key], "group": group, **settings_of(run)}
        for key, (group, run) in zip(keys, planned, strict=True)
    ]
    where = None if root is None else str(Path(root).absolute())
    return Prepared(study, scale, out / study.name, folder, plan, rows, state, where)


def run_study(
    study: Study,
    out: str | Path,
    *,
    scale: str = "small",
    runs: str | Path | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    cluster_options: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Make, train and measure what is missing; returns all measurements."""
    tell = progress or (lambda line: None)
    given: dict[str, Any] = {"scale": scale, "runs": runs, "seeds": seeds, "root": root}
    place: dict[str, Any] = {"jobs": jobs, "cluster": cluster, "options": cluster_options}
    prepared = prepare_study(study, out, **given)
    begun = time.monotonic()
    if _make_data(prepared, place, tell):
        prepared = prepare_study(study, out, **given)  # runs on files are named by their content
    if study.grids:
        missing = len(prepared.state.entries) - len(prepared.done)
        if missing:
            tell(f"{study.name}: training {missing} of {len(prepared.state.entries)} runs")
        sweep(
            prepared.plan,
            prepared.out / "sweep",
            runs=prepared.runs,
            jobs=jobs,
            cluster=cluster,
            cluster_options=cluster_options,
            retry_failed=retry_failed,
            root=root,
            progress=_report_training(study.name, tell),
        )
    failed = dict(prepared.state.failures())
    finished = [row for row in prepared.rows if row["run"] not in failed]
    items = _items(prepared, finished)
    pending = [item for item in items if not item.is_measured()]
    if pending:
        tell(f"{study.name}: measuring {len(pending)} of {len(items)}")
        with ExitStack() as stack:
            folders = [prepared.out, prepared.runs]
            pool = stack.enter_context(workers(**place, folders=folders))
            failed |= _measure_all(study.name, pool, pending, tell)
    results = _gather(prepared, finished, items, failed, time.monotonic() - begun)
    write_results(results, prepared.out)
    return results


def _make_data(prepared: Prepared, place: Mapping[str, Any], tell: Progress) -> bool:
    """Make the data that runs of this scale name and that are not there; whether there were."""
    study, scale, runs = prepared.study, prepared.scale, prepared.runs
    named = {str(row["data"]).partition("/")[0] for row in prepared.rows}
    missing = [name for name, made in study.made.items()
               if name in named and not made.is_made(scale, runs)]  # fmt: skip
    if not missing:
        return False
    tell(f"{study.name}: making {', '.join(missing)}")
    address, where = studies.address(study), str(runs.absolute())
    items = [(address, name, scale, where, prepared.root) for name in missing]
    with workers(**place, folders=[prepared.out, runs]) as pool:
        outcomes = run_all(pool, make_data, items)
    for name, outcome in zip(missing, outcomes, strict=True):
        if outcome.error is not None:
            raise RunError(f"study: {name} could not be made: {outcome.error}")
    return True


def make_data(item: tuple[str, str, str, str, str | None]) -> None:
    """Make the files of one `MadeData`; called by workers."""
    address, name, scale, runs, root = item
    studies.load(address).made[name].make_files(scale, Path(runs), root)


def _report_training(name: str, tell: Progress) -> Callable[[Any, Any], None]:
    last = [time.monotonic()]

    def report(_: Any, status: Any) -> None:
        if time.monotonic() - last[0] > EVERY:
            last[0] = time.monotonic()
            tell(f"{name}: {status.counts()}")

    return report


@dataclass(frozen=True)
class Item:
    """One unit to measure, as a worker gets it."""

    study: str  # its name, or the file that it is in
    measure: str
    unit: str
    members: list[str]
    rows: list[dict[str, Any]]
    runs: str
    file: str
    scale: str
    code: str
    root: str | None

    def key(self) -> dict[str, Any]:
        """What a stored measurement depends on."""
        folder = Path(self.runs)
        weights = [weights_checksum(folder / name / "model.safetensors") for name in self.members]
        return {"code": self.code, "scale": self.scale, "weights": weights}

    def is_measured(self) -> bool:
        try:
            return bool(read_json(Path(self.file)).get("key") == self.key())
        except ZscopeError:
            return False


def _items(prepared: Prepared, rows: Sequence[dict[str, Any]]) -> list[Item]:
    items = []
    for measure in prepared.study.measures:
        for unit, members in measure.units(rows).items():
            words = unit or "all"
            file = prepared.out / "measured" / measure.name / f"{_file_name(words)}.json"
            items.append(
                Item(
                    studies.address(prepared.study), measure.name, unit, list(members),
                    list(rows), str(prepared.runs.absolute()), str(file.absolute()),
                    prepared.scale, measure.code, prepared.root,
                )
            )  # fmt: skip
    return items


def _file_name(words: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_.=," else "-" for letter in words)


def _measure_all(name: str, pool: Any, items: list[Item], tell: Progress) -> dict[str, str]:
    """Measure all items; returns why some failed, by unit."""
    failed: dict[str, str] = {}
    begun, last, count = time.monotonic(), [time.monotonic()], [0]

    def done(index: int, outcome: Outcome) -> None:
        count[0] += 1
        if outcome.error is not None:
            item = items[index]
            failed[f"{item.measure} {item.unit}".strip()] = outcome.error
            tell(f"{name}: {item.measure} of {item.unit or 'all runs'} failed: {outcome.error}")
        if time.monotonic() - last[0] > EVERY:
            last[0] = time.monotonic()
            left = (last[0] - begun) / count[0] * (len(items) - count[0])
            tell(f"{name}: measured {count[0]} of {len(items)}, {duration(left)} left")

    run_all(pool, measure_unit, items, done=done)
    return failed


def measure_unit(item: Item) -> None:
    """Measure one unit and write it down; called by workers."""
    study = studies.load(item.study)
    measure = _find(study, item.measure)
    runs = Path(item.runs)
    made = {name: each.folder(item.scale, runs) for name, each in study.made.items()}
    among = TrainedRuns(item.rows, runs, scale=item.scale, root=item.root, made=made)
    members = [among[name] for name in dict.fromkeys(item.members)]
    begun = time.monotonic()
    values = measure.function(members[0] if measure.single else members)
    _refuse_settings(item, values, members)
    seconds = round(time.monotonic() - begun, 2)
    content = {"key": item.key(), "values": encode(values), "seconds": seconds}
    write_json(Path(item.file), content, indent=None)


def _refuse_settings(item: Item, values: Mapping[str, Any], members: Sequence[Trained]) -> None:
    """Refuse a measurement with the name of a setting: rows of a study have both."""
    settings = {"run", "group", *(key for run in members for key in run.fields)}
    shared = sorted(settings & set(values))
    if item.unit in item.members and shared:
        raise ConfigError(
            f"study: {item.measure} measures {shared[0]!r}, which is also the name of a setting. "
            "Choose another name for the measurement."
        )


def _find(study: Study, name: str) -> Measure:
    for measure in study.measures:
        if measure.name == name:
            return measure
    raise RunError(f"study: {study.name} has no measure {name!r}. Is it another version?")


def _gather(
    prepared: Prepared,
    rows: list[dict[str, Any]],
    items: Sequence[Item],
    failed: dict[str, str],
    seconds: float,
) -> Results:
    values: dict[str, dict[str, Any]] = {each.name: {} for each in prepared.study.measures}
    for item in items:
        if item.is_measured():
            values[item.measure][item.unit] = decode(read_json(Path(item.file))["values"])
    about = {"zscope": __version__, "seconds": round(seconds)}
    return Results(prepared.study.name, prepared.scale, rows, values, failed, about)

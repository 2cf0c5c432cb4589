"""What a sweep would take: time and disk, from one short run of each shape.

For each shape that is not finished, one item of the sweep is trained for a few steps in a
temporary folder, and measured, after a first time that does not count. Two lengths are timed: the
difference gives the time of a step, the rest what a run costs whatever its length. Where the
sweep itself has finished runs of a shape, their times are used instead.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from zscope.errors import ZscopeError
from zscope.experiments.sweeps import Sweep, items_of, read_rates
from zscope.experiments.sweeps.address import address, run_name
from zscope.experiments.sweeps.plan import Plan
from zscope.experiments.sweeps.task import Item, work
from zscope.results import duration
from zscope.training.config import TrainConfig

__all__ = ["Cost", "Estimate", "estimate"]

STEPS = (5, 25)
"""Updates of the two short runs of each shape."""


@dataclass(frozen=True)
class Cost:
    """Of one run: seconds a step, seconds besides, and bytes on disk."""

    step: float
    fixed: float
    disk: int


@dataclass(frozen=True)
class Estimate:
    """What a sweep would do."""

    total: int
    done: int
    failed: int
    together: int  # runs that are trained together with others
    items: int  # what is left to do, in items
    seconds: float | None  # of one process; None if nothing was timed
    disk: int | None
    jobs: int
    shapes: list[dict[str, Any]]

    @property
    def time(self) -> str:
        """How long it takes: "about 12 min with 2 processes"; "" if nothing was timed."""
        if self.seconds is None:
            return ""
        parallel = min(self.jobs, max(1, self.items))
        text = f"about {duration(self.seconds / parallel)} with {parallel} "
        return text + ("process" if parallel == 1 else "processes")

    def to_dict(self) -> dict[str, Any]:
        return {
            "runs": self.total,
            "done": self.done,
            "failed": self.failed,
            "trained_together": self.together,
            "items_left": self.items,
            "seconds_of_work": self.seconds,
            "jobs": self.jobs,
            "bytes": self.disk,
            "shapes": self.shapes,
        }

    def __str__(self) -> str:
        left = self.total - self.done
        lines = [f"{self.total:,} runs: {self.done:,} done, {left:,} to do"]
        if self.failed:
            lines[0] += f" ({self.failed:,} failed before: --retry-failed)"
        if self.together:
            lines.append(f"{self.together:,} of them are trained together with others")
        for shape in self.shapes:
            lines.append(f"  {shape['runs']:>5,} × {shape['name']}  {shape['text']}")
        if self.seconds is not None and left:
            work = f"{duration(self.seconds)} of work"
            lines.append(f"{self.time} ({work}), {size(self.disk or 0)}")
        return "\n".join(lines)


def size(count: float) -> str:
    """Bytes in words."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def estimate(
    plan: Plan,
    sweep: Sweep,
    *,
    jobs: int | None = None,
    timing: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Estimate:
    """What is done, what is left, and what it would cost."""
    state = sweep.status()
    done = set(state.done)
    left = [item for item in items_of(plan, sweep) if not done.issuperset(item.configs)]
    rates = read_rates(sweep.out)
    costs: dict[str, Cost] = {}
    shapes: list[dict[str, Any]] = []
    for shape, items in _by_shape(plan, left):
        names = [name for item in items for name in item.configs if name not in done]
        first = plan.by_name[names[0]]
        title = (
            f"{first.fields['model']}, {first.fields['data']}, {first.fields['latents']} latents"
        )
        text = f"{first.config.steps:,} steps"
        if timing:
            if progress is not None:
                progress(f"timing {title}")
            cost = time_shape(max(items, key=lambda item: len(item.configs)))
            if shape in rates:  # measuring is part of these
                cost = replace(cost, step=rates[shape], fixed=0.0)
            costs[shape] = cost
            each = cost.fixed + cost.step * first.config.steps
            text += f", {duration(each) if each >= 1 else f'{each:.2f} s'} and "
            text += f"{size(cost.disk)} each"
        shapes.append({"name": title, "runs": len(names), "text": text, "shape": shape})
    seconds = disk = None
    if timing:
        waiting = [plan.by_name[name] for item in left for name in item.configs if name not in done]
        seconds = sum(costs[r.shape].fixed + costs[r.shape].step * r.config.steps for r in waiting)
        disk = sum(costs[run.shape].disk for run in waiting)
    return Estimate(
        total=len(plan.runs),
        done=len(state.done),
        failed=len(state.failed),
        together=sum(map(len, plan.groups)),
        items=len(left),
        seconds=seconds,
        disk=disk,
        jobs=jobs or os.cpu_count() or 1,
        shapes=shapes,
    )


def _by_shape(plan: Plan, items: list[Item]) -> Iterator[tuple[str, list[Item]]]:
    shapes: dict[str, list[Item]] = {}
    for item in items:
        shapes.setdefault(plan.by_name[next(iter(item.configs))].shape, []).append(item)
    yield from shapes.items()


def time_shape(item: Item) -> Cost:
    """The cost of a run, from short trainings of the item with one thread, as workers have."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="zscope-plan-") as folder:
            # The first steps of a process load the data and prepare kernels, which takes seconds.
            _short(item, STEPS[0], Path(folder) / "warm-up")
            rows = [_short(item, steps, Path(folder) / str(steps)) for steps in STEPS]
            count = len(item.configs)
            per_step = (rows[1].seconds - rows[0].seconds) / (rows[1].steps - rows[0].steps)
            per_step = max(per_step, rows[1].seconds / rows[1].steps / 10)
            start = max(0.0, rows[0].seconds - rows[0].steps * per_step) / count
            disk = _bytes(Path(folder) / str(STEPS[1])) // count
    finally:
        torch.set_num_threads(threads)
    config = next(iter(item.configs.values()))
    disk += config["steps"] // config["log_every"] * 150
    return Cost(per_step, start + rows[1].measuring / count, disk)


def _short(item: Item, steps: int, folder: Path) -> Any:
    """The item with so few steps, in a folder of its own."""
    # What a branch starts from is not there yet, and does not change its time.
    short = {"steps": steps, "snapshots": [], "snapshot_every": None, "warmup": 0, "start": None}
    shortened = [TrainConfig(**{**config, **short}) for config in item.configs.values()]
    addresses = {run_name(each, address(each)): address(each) for each in shortened}
    configs = {n: each.model_dump() for n, each in zip(addresses, shortened, strict=True)}
    here = replace(item, runs=str(folder / "runs"), failed=str(folder))
    row = work(replace(here, configs=configs, addresses=addresses))
    reasons = [row.reasons[name] for name, state in row.states.items() if state == "failed"]
    if reasons:
        raise ZscopeError(f"sweep: a short run of {next(iter(configs))} failed: {reasons[0]}")
    return row


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())

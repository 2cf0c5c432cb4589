"""What does it cost to plan many runs, to look at them, and to hand out work?

Without a goal: processor seconds to check a plan, to write it down and to look at all runs of it,
none of them begun, for ten times as many runs; and the time of an item that does nothing, through
two processes of this machine and through a Dask scheduler with two workers on this machine.

    python benchmarks/overhead.py [--runs 1000] [--items 500]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from ratios import Agreement, Ratio, agreement, finish, released, turns

import zscope as zs
from zscope.experiments.sweeps import prepare
from zscope.experiments.workers import run_all, workers
from zscope.store import write_json


def same(item: int) -> int:
    return item


def plan(runs: int) -> dict[str, float]:
    """Seconds to check a plan, to write it down, and to look at its runs, none of them begun."""
    seeds = list(range(runs // 2))
    content = {
        "train": {"steps": 50, "latents": 2, "options.hidden": [16]},
        "grid": {"model": "beta-vae", "data": "helix", "options.beta": [1, 2], "seed": seeds},
    }
    with tempfile.TemporaryDirectory() as folder:
        marks = [time.process_time()]
        checked, sweep = prepare(content, folder)
        marks.append(time.process_time())
        write_json(Path(folder) / "sweep.json", checked.to_dict("runs"), indent=None)
        marks.append(time.process_time())
        status = sweep.status()
        marks.append(time.process_time())
        missing = runs - status.total
        size = (Path(folder) / "sweep.json").stat().st_size / 1e6
    check, write, look = (end - begin for begin, end in pairwise(marks))
    print(
        f"{runs:,} runs: checked in {check:.2f} s, written in {write:.2f} s ({size:.1f} MB), "
        f"looked at in {look:.2f} s",
        flush=True,
    )
    return {"checked": check, "written": write, "looked at": look, "missing": missing}


def plans(small: int, repeats: int) -> list[Ratio]:
    """Plans grow with their runs: ten times the runs against ten times the seconds."""
    rows = [(plan(10 * small), plan(small)) for _ in range(repeats)]
    missing = max(abs(each.pop("missing")) for row in rows for each in row)
    return [
        Ratio(
            f"a plan of {10 * small:,} runs, {what}", "data",
            [large[what] for large, _ in rows], [10 * few[what] for _, few in rows],
            baseline=f"ten plans of {small:,}", version=released("zscope"),
            agreement=Agreement("runs missing from the status of a plan", missing, 0),
        )
        for what in rows[0][0]
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--items", type=int, default=500)
    options = parser.parse_args()
    zs.models.build("beta-vae", shape=(3,), latents=2)  # imports
    ratios = plans(options.runs, 3)
    with ExitStack() as stack:
        from distributed import LocalCluster

        local = stack.enter_context(workers(jobs=2))
        cluster = stack.enter_context(
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        )
        dask = stack.enter_context(workers(cluster=cluster.scheduler_address))
        items, answers = range(options.items), {}

        def hand_out(name: str, executor: Executor) -> Callable[[], None]:
            def work() -> None:
                answers[name] = [each.result for each in run_all(executor, same, items)]

            return work

        works = {"local": hand_out("local", local), "dask": hand_out("dask", dask)}
        seconds = turns(works, 5, clock=time.perf_counter)
    per_item = {name: [s / options.items for s in each] for name, each in seconds.items()}
    ratios.append(
        Ratio(
            "handing out an item to two processes",
            "data",
            per_item["local"],
            per_item["dask"],
            baseline="handing it to two workers of a scheduler on this machine",
            version=released("distributed"),
            agreement=agreement("what the items return", answers["local"], answers["dask"], 0),
        )
    )
    return finish("overhead", ratios)


if __name__ == "__main__":
    sys.exit(main())

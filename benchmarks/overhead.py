"""What does it cost to plan many runs, to look at them, and to hand out work?

Printed, with no claim: processor seconds to check a plan, to write it down and to look at all runs
of it, none of them begun; the time of an item that does nothing, through two processes of this
machine and through a Dask scheduler with two workers on this machine.

    python benchmarks/overhead.py [--runs 1000 10000] [--items 500]
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import Executor
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import zscope as zs
from zscope.experiments.sweeps import prepare
from zscope.experiments.workers import run_all, workers
from zscope.store import write_json


def same(item: int) -> int:
    return item


def plan(runs: int) -> None:
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
        sweep.status()
        marks.append(time.process_time())
        size = (Path(folder) / "sweep.json").stat().st_size / 1e6
    check, write, look = (end - begin for begin, end in pairwise(marks))
    print(
        f"{runs:,} runs: checked in {check:.2f} s, written in {write:.2f} s ({size:.1f} MB), "
        f"looked at in {look:.2f} s",
        flush=True,
    )


def hand_out(name: str, executor: Executor, items: int) -> None:
    """The fastest of several turns, because others may use the machine."""
    run_all(executor, same, range(8))
    clock, processor = [], []
    for _ in range(4):
        start, begun = time.perf_counter(), time.process_time()
        run_all(executor, same, range(items))
        clock.append((time.perf_counter() - start) / items)
        processor.append((time.process_time() - begun) / items)
    print(
        f"{name}: {1e3 * min(clock):.2f} ms an item, of which this process works "
        f"{1e3 * min(processor):.2f} ms",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--items", type=int, default=500)
    options = parser.parse_args()
    zs.models.build("beta-vae", shape=(3,), latents=2)  # imports
    for runs in options.runs:
        plan(runs)
    with workers(jobs=2) as executor:
        hand_out("two processes", executor, options.items)
    if find_spec("distributed") is None:
        print("Dask: not installed")
        return 0
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        workers(cluster=cluster.scheduler_address) as executor,
    ):
        hand_out("Dask", executor, options.items)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What does a sweep cost, compared with the trainings alone?

Three claims, each a ratio or a time measured in one run of this script:

1. 200 runs of 50 steps of a tiny model by `zs.sweep` (2 jobs, each run trained alone) take at most
   1.2 times as long as a bare loop over the same trainings in two processes. The bare loop: two new
   processes that import zscope once, load the data once and, for each model of their half, call
   `zs.models.build_for` and `zs.train(model, data, steps=50, ..., out=FOLDER)` on one thread. Both
   write the same run directories, and both times include starting the processes. One more line
   shows the sweep with ensembles, as it is by default.
2. The same sweep with two assays, called again when all is done, takes less than 2 ms a run.
3. Ten seeds of a small model in one ensemble, with a run directory for each, take less than 3 times
   as long as one of them.

Each turn has ratios of its own, with the order reversed from turn to turn, and the smallest counts
(of the second call: the smallest time), because a machine that is shared with others only ever adds
to a time. The first is a ratio of times by the clock, since processes of a sweep that wait for one
another are a cost too; processor times are printed beside. The others are processor times.

    python benchmarks/sweeps.py [--turns 3] [--runs 200]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import zscope as zs

STEPS, LATENTS, HIDDEN, RATE = 50, 2, [16], 1e-3
JOBS, TOGETHER, LONG = 2, 10, 1000
LIMITS = {"against a bare loop": 1.2, "second call, ms a run": 2.0, "ten seeds against one": 3.0}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Times(NamedTuple):
    clock: float
    processor: float  # of this process and of those it has waited for


def seconds(work: Callable[[], Any]) -> Times:
    clock, before = time.perf_counter(), os.times()
    work()
    after = os.times()
    return Times(time.perf_counter() - clock, sum(after[:4]) - sum(before[:4]))


def plan(seeds: int, steps: int = STEPS, assays: tuple[str, ...] = ()) -> dict[str, Any]:
    content: dict[str, Any] = {
        "train": {"steps": steps, "latents": LATENTS, "rate": RATE, "options.hidden": HIDDEN},
        "grid": {"model": ["beta-vae"], "data": ["helix"], "seed": list(range(seeds))},
    }
    return {**content, "assay": {"names": list(assays), "samples": 500}} if assays else content


def train_in_a_loop(seeds: list[int], folder: str) -> None:
    """What one process of the bare loop does."""
    torch.set_num_threads(1)
    data = zs.data.load("helix")
    for seed in seeds:
        options = {"latents": LATENTS, "hidden": HIDDEN, "seed": seed}
        model = zs.models.build_for("beta-vae", data, **options)
        out = f"{folder}/{seed}"
        zs.train(model, data, steps=STEPS, rate=RATE, seed=seed, out=out, progress=False)


def bare(runs: int, folder: Path) -> None:
    """Two processes with half of the seeds each."""
    halves = (json.dumps(list(range(first, runs, JOBS))) for first in range(JOBS))
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--loop", half, str(folder)],
            env={**os.environ, **ONE_THREAD},
        )
        for half in halves
    ]
    codes = [process.wait() for process in processes]  # wait for all of them
    if any(codes):
        sys.exit("the bare loop failed")


def sweep(
    runs: int,
    folder: Path,
    *,
    ensemble: bool,
    steps: int = STEPS,
    jobs: int = JOBS,
    assays: tuple[str, ...] = (),
) -> None:
    content = plan(runs, steps, assays)
    done = zs.sweep(content, folder, jobs=jobs, ensemble=ensemble, progress=False)
    if len(done) != runs or done.failed or done.unfinished:
        sys.exit(f"the sweep in {folder} is not complete")


def turn(runs: int, number: int) -> dict[str, Times]:
    """All three ways to train the runs, and the second call of a sweep."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways = {
            "bare": lambda: bare(runs, folder / "bare"),
            "sweep": lambda: sweep(runs, folder / "sweep", ensemble=False),
            "together": lambda: sweep(runs, folder / "together", ensemble=True),
        }
        order = list(ways)[:: -1 if number % 2 else 1]
        times = {way: seconds(ways[way]) for way in order}
        assays = ("variable-types", "effective-rank")
        for _ in range(3):  # the first measures, the second may write the index
            times["again"] = seconds(
                lambda: sweep(runs, folder / "sweep", ensemble=False, assays=assays)
            )
        return times


def ensemble_ratio() -> float:
    """Processor time of ten seeds together, over that of one; in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sweep(1, folder / "warm-up", ensemble=False, jobs=1)
        one = seconds(lambda: sweep(1, folder / "one", ensemble=False, steps=LONG, jobs=1))
        ten = seconds(lambda: sweep(TOGETHER, folder / "ten", ensemble=True, steps=LONG, jobs=1))
        return ten.processor / one.processor


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--loop", nargs=2, metavar=("SEEDS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        train_in_a_loop(json.loads(options.loop[0]), options.loop[1])
        return 0
    torch.set_num_threads(1)
    runs, turns = options.runs, []
    for number in range(options.turns):
        turns.append(turn(runs, number))
        text = ", ".join(
            f"{way} {t.clock:.2f} s (processor {t.processor:.2f} s)" for way, t in turns[-1].items()
        )
        print(f"turn {number + 1}, {runs} runs: {text}", flush=True)
    figures = {
        "against a bare loop": min(t["sweep"].clock / t["bare"].clock for t in turns),
        "second call, ms a run": min(1000 * t["again"].processor / runs for t in turns),
        "ten seeds against one": min(ensemble_ratio() for _ in range(options.turns)),
    }
    processor = min(t["sweep"].processor / t["bare"].processor for t in turns)
    together = min(t["together"].clock / t["bare"].clock for t in turns)
    print(f"{'in processor time':24} {processor:.3f}")
    print(f"{'with ensembles':24} {together:.3f}")
    failed = False
    for name, limit in LIMITS.items():
        passed = figures[name] <= limit
        failed |= not passed
        print(f"{name:24} {figures[name]:.3f} (at most {limit})  {'ok' if passed else 'FAILED'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

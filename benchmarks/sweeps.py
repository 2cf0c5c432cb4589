"""What does a sweep cost, compared with the trainings alone?

1. 200 runs of 50 steps of a tiny model by `zs.sweep` (2 jobs, each run trained alone) take at most
   1.2 times as long as a bare loop over the same trainings in two processes. The bare loop: two new
   processes that import zscope once, load the data once and, for each model of their half, call
   `zs.models.build_for` and `zs.train(model, data, steps=50, ..., out=FOLDER)` on one thread. Both
   write the same run directories, and both times include starting the processes. Beside it the
   sweep with ensembles, as it is by default.
2. The same sweep with two assays, called again when all is done, takes less than 2 ms a run.
3. Ten seeds of a small model in one ensemble, with a run directory for each, take less than 3 times
   as long as one of them.

The first is a ratio of times by the clock, since processes of a sweep that wait for one another are
a cost too; processor times are printed beside. The others are processor times.

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
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from ratios import Agreement, Ratio, agreement, children, finish, released, turns

import zscope as zs

STEPS, LATENTS, HIDDEN, RATE = 50, 2, [16], 1e-3
JOBS, TOGETHER, LONG = 2, 10, 1000
LOSS = "history.loss"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Times(NamedTuple):
    clock: float
    processor: float  # of this process and of those it has waited for


def seconds(work: Callable[[], Any]) -> Times:
    clock, processor = time.perf_counter(), children()
    work()
    return Times(time.perf_counter() - clock, children() - processor)


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


def turn(runs: int, number: int) -> tuple[dict[str, Times], float]:
    """All three ways to train the runs, and the second call of a sweep; how far losses differ."""
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
        losses = [
            zs.runs(folder / way).to_frame().sort_values("seed")[LOSS].to_numpy()
            for way in ("sweep", "bare")
        ]
        return times, float(abs(losses[0] - losses[1]).max())


def ensembles(repeats: int) -> Ratio:
    """Processor time of ten seeds together, over that of ten times one; in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder, number = Path(name), count()

        def one() -> None:
            sweep(1, folder / str(next(number)), ensemble=False, steps=LONG, jobs=1)

        def ten() -> None:
            sweep(TOGETHER, folder / str(next(number)), ensemble=True, steps=LONG, jobs=1)

        seconds = turns({"one": one, "ten": ten}, repeats, clock=children)
        apart, together = (zs.runs(folder / str(k)).to_frame() for k in (0, 1))
    first = together[together["seed"] == 0]
    return Ratio(
        "ten seeds in one ensemble, with a folder each", "training", seconds["ten"], seconds["one"],
        baseline="one of them", version=released("zscope"), at_most=3.0,
        agreement=agreement(
            "loss of seed 0 at the end, alone and in the ensemble",
            first[LOSS].to_numpy(), apart[LOSS].to_numpy(), 1e-4, relative=True,
        ),
    )  # fmt: skip


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
    runs, rows = options.runs, []
    for number in range(options.turns):
        rows.append(turn(runs, number))
        text = ", ".join(
            f"{way} {t.clock:.2f} s (processor {t.processor:.2f} s)"
            for way, t in rows[-1][0].items()
        )
        print(f"turn {number + 1}, {runs} runs: {text}", flush=True)
    times = [row for row, _ in rows]
    zscope = released("zscope")
    same = Agreement(
        f"loss at the end of {runs} runs, in a sweep and in a loop, largest difference",
        max(difference for _, difference in rows), 1e-6,
    )  # fmt: skip
    ratios = [
        Ratio(
            f"a sweep of {runs} runs{by}", "training", [t[way].clock for t in times],
            [t["bare"].clock for t in times], baseline="a bare loop in two processes, by the clock",
            version=zscope, at_most=limit, agreement=same,
        )
        for way, by, limit in (("sweep", "", 1.2), ("together", " in ensembles", None))
    ]  # fmt: skip
    ratios.append(
        Ratio(
            f"a finished sweep of {runs} runs called again",
            "data",
            [t["again"].processor for t in times],
            [0.002 * runs],
            baseline="the limit of 2 ms a run",
            version=zscope,
            at_most=1,
            agreement=same,
        )
    )
    return finish("sweeps", [*ratios, ensembles(options.turns)])


if __name__ == "__main__":
    sys.exit(main())

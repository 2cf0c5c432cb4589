"""Functions that tests give to workers: in a module of their own, which a worker can import."""

import os
import signal
import sys
import time
from pathlib import Path


def square(number):
    return number * number


def wait_for(path):
    """Return when there is such a file."""
    while not Path(path).exists():
        time.sleep(0.05)
    return path


def about_this_process(item):
    return os.getpid(), os.environ.get("OMP_NUM_THREADS"), "torch" in sys.modules


def misbehave(item):
    """What `item`, a word, says."""
    match item:
        case "raise":
            raise ValueError("a number is missing\nmore about it")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    return item


def die_once(path):
    """Kill the worker the first time; return afterwards."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def count_until_stopped(folder):
    """As a training: a loop that reads the flag, and notes that it has saved."""
    from zscope.interrupts import watch_interrupts

    folder = Path(folder)
    with watch_interrupts() as interrupted:
        (folder / f"{os.getpid()}.started").touch()
        while not interrupted.is_set():
            time.sleep(0.01)
        (folder / f"{os.getpid()}.saved").touch()
        raise interrupted.error


def train_tiny(item):
    """Train a run as a sweep does: taken by its lock, resumed, and noted when it is finished.

    `item` is the folder of all runs, the seed and the number of steps.
    """
    import zscope as zs
    from zscope.files import append, lock

    folder, seed, steps = Path(item[0]), item[1], item[2]
    run = folder / f"run-{seed}"
    data = zs.data.load("helix")
    model = zs.models.build("vae", shape=data.shape, latents=3, hidden=16)
    with lock(folder / f"lock-{seed}", "task", wait=True):
        if zs.store.is_run(run) and zs.store.open_run(run).finished:
            return seed, "was finished"
        job = os.environ.get("SLURM_JOB_ID", "-")
        append(folder / "starts.txt", f"{seed} {job}\n".encode())
        zs.train(
            model, data, steps=steps, batch=32, seed=seed, out=run, resume=True, progress=False,
            checkpoint_every=steps, log_every=100,
        )  # fmt: skip
        append(folder / "trainings.txt", f"{seed}\n".encode())
    return seed, "trained"


def count_on_workers(folder):
    """A program that is stopped: four tasks that never end, on two workers."""
    from zscope.experiments.workers import run_all, workers

    with workers(jobs=2) as executor:
        run_all(executor, count_until_stopped, [folder] * 4)


if __name__ == "__main__":
    count_on_workers(sys.argv[1])

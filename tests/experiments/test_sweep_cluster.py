"""Sweeps from the command line on real clusters, a worker of which is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from noted_trainings import PLACE, read_trainings
from programs import ENVIRONMENT, dask_cluster, output, wait_until
from test_cluster import slurm_environment  # noqa: F401

from zscope import store
from zscope.experiments.sweeps import status

TESTS = Path(__file__).parents[1]
PRELOAD = ("--no-nanny", "--preload", "noted_trainings")


@pytest.fixture
def noting(tmp_path, monkeypatch):
    """What makes workers note their trainings, in trainings.txt."""
    noted = {
        PLACE: str(tmp_path / "trainings.txt"),
        "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}{os.pathsep}{TESTS}",
    }
    for name, value in noted.items():
        monkeypatch.setenv(name, value)
    return noted


def start_sweep(folder, *words):
    """`zscope sweep run` with six tiny runs; a program of its own."""
    plan = {
        "train": {"steps": 1500, "latents": 2, "batch": 16, "checkpoint_every": 50,
                  "options.hidden": [6], "model": "vae", "data": "helix"},
        "grid": {"seed": list(range(6))},
        "assay": {"names": ["variable-types"], "samples": 100},
    }  # fmt: skip
    (folder / "plan.json").write_text(json.dumps(plan))
    command = "from zscope.cli import main; main()"
    options = ["plan.json", "--out", "out", "--no-ensemble", "--json", *words]
    with (folder / "errors.txt").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-c", command, "sweep", "run", *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def trainings(folder):
    return read_trainings(folder / "trainings.txt", [])


def check_all_done(folder, program):
    """All runs are done, none of them twice, and nothing is left over."""
    printed, _ = program.communicate(timeout=240)
    errors = (folder / "errors.txt").read_text()
    assert program.returncode == 0, errors
    assert all(line.startswith(("workers: ", "0 of", "1 of", "2 of", "3 of", "4 of", "5 of",
                                "6 of")) for line in errors.splitlines()), errors  # fmt: skip
    assert len(json.loads(printed)["done"]) == 6
    assert len(status(folder / "out").done) == 6
    begun = trainings(folder)
    assert len(begun) == 6
    assert max(len(steps) for steps in begun.values()) == 2  # that which was disturbed
    assert max(steps[-1] for steps in begun.values()) > 0  # and resumed
    assert not [*(folder / "out").rglob(".part-*"), *(folder / "out").rglob(".lock")]


@pytest.mark.slow
def test_a_sweep_survives_a_worker_of_dask_that_is_killed(tmp_path, noting):
    (tmp_path / "dask").mkdir()
    with dask_cluster(tmp_path / "dask") as cluster:
        first, _ = (cluster.add_worker(*PRELOAD, **noting) for _ in range(2))
        program = start_sweep(tmp_path, "--cluster", cluster.address)
        wait_until(lambda: is_training(tmp_path, first.pid), 120)
        os.kill(first.pid, signal.SIGKILL)
        check_all_done(tmp_path, program)


def is_training(folder, process):
    """Whether a process has a run that has a checkpoint."""
    for path in (folder / "out" / "runs").glob("*"):
        try:
            owner = json.loads((path / ".lock").read_text())["process"]
            if owner == process and store.checkpoints(path):
                return True
        except (OSError, ValueError):
            continue
    return False


@pytest.mark.slow
def test_a_sweep_survives_a_job_of_slurm_that_is_cancelled(
    tmp_path,
    slurm_environment,  # noqa: F811
    noting,
):
    options = ["queue=test", "jobs=2", "interface=lo", "job_extra_directives=--mem=0",
               "worker_extra_args=--preload noted_trainings"]  # fmt: skip
    words = [word for option in options for word in ("--cluster-option", option)]
    program = start_sweep(tmp_path, "--cluster", "slurm", *words)

    def job_in_training():
        for row in output("squeue", "-h", "-t", "R", "-o", "%i").split():
            steps = output("scontrol", "listpids", row).split()
            if any(is_training(tmp_path, int(word)) for word in steps if word.isdigit()):
                return row
        return None

    job = wait_until(job_in_training, 180)
    output("scancel", job)
    check_all_done(tmp_path, program)

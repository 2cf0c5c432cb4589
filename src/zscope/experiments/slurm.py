"""SLURM jobs as workers of a Dask client, through dask-jobqueue.

A job is one worker with one thread. The scheduler runs in this process; when it ends, so do the
jobs.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distributed import Client

from zscope.errors import ConfigError, MissingExtra, ResourceError
from zscope.experiments.cluster import WAIT, check_options, seconds_to_wait, short

__all__ = ["described_jobs", "slurm_client", "slurm_settings"]

REPLACE = 5.0  # seconds between two looks for jobs that have ended; Dask sees them after 15 s

# What may be set for SLURM jobs, besides `jobs` and `wait`; passed on to dask_jobqueue.
SLURM_OPTIONS = {
    "account", "death_timeout", "interface", "job_cpu", "job_extra_directives", "job_mem",
    "job_name", "job_script_prologue", "local_directory", "log_directory", "memory", "queue",
    "walltime", "worker_extra_args",
}  # fmt: skip
LISTS = {"job_extra_directives", "job_script_prologue", "worker_extra_args"}


@contextmanager
def slurm_client(options: Mapping[str, Any], folder: Path | None) -> Iterator[Client]:
    """A client whose workers are SLURM jobs; jobs that end are replaced until the block ends."""
    with described_jobs(options, folder) as (jobs, cluster):
        stop = threading.Event()
        try:
            cluster.scale(jobs=jobs)
            threading.Thread(target=_replace_jobs, args=[cluster, jobs, stop], daemon=True).start()
            with Client(cluster, set_as_default=False, name="zscope") as client:
                yield client
        finally:
            stop.set()


@contextmanager
def described_jobs(options: Mapping[str, Any], folder: Path | None) -> Iterator[tuple[int, Any]]:
    """How many jobs, and the SLURMCluster that could submit them: SLURM would take them."""
    if find_spec("dask_jobqueue") is None:
        raise MissingExtra("workers", "dask-jobqueue", "cluster")
    from dask_jobqueue.slurm import SLURMCluster

    jobs, settings = slurm_settings(options, folder)
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "workers: there is no SLURM here: the command sbatch was not found. Start this on a "
            "machine from which jobs are submitted, or use --jobs or --cluster tcp://host:port."
        )
    try:
        cluster = SLURMCluster(**settings)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(
            f"workers: the SLURM jobs could not be described ({short(error)}). Correct the "
            "cluster options."
        ) from error
    try:
        check_job(cluster.job_script())
        yield jobs, cluster
    finally:
        cluster.close()


def slurm_settings(options: Mapping[str, Any], folder: Path | None) -> tuple[int, dict[str, Any]]:
    """How many jobs, and the arguments of SLURMCluster."""
    check_options(options, SLURM_OPTIONS | {"jobs", "wait"})
    seconds_to_wait(options, WAIT["slurm"])
    try:
        jobs = int(str(options.get("jobs", 1)))
    except ValueError:
        jobs = 0
    if jobs < 1:
        raise ConfigError(
            f"workers: the cluster option jobs={options['jobs']!r} is no number of SLURM jobs; "
            "expected a whole number of at least 1."
        )
    given = {name: value for name, value in options.items() if name in SLURM_OPTIONS}
    for name in LISTS & set(given):
        if isinstance(given[name], str):
            given[name] = shlex.split(given[name])
    one_thread = ["export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE"]
    settings = {
        "cores": 1,
        "processes": 1,
        "memory": "4GB",
        "nanny": False,  # which would get SIGTERM too, and give the worker less time to save
        # In the place of the shell of the job, with whose end SLURM kills what is left.
        "python": f"exec {shlex.quote(sys.executable)}",
        **({} if folder is None else {"log_directory": str(folder.absolute() / "slurm")}),
        **given,
    }
    settings["job_script_prologue"] = one_thread + list(given.get("job_script_prologue", []))
    return jobs, settings


def check_job(script: str) -> None:
    """Let SLURM say whether it would take the job: later, nobody would hear it."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(script)
        file.flush()
        try:
            answer = subprocess.run(
                ["sbatch", "--test-only", file.name],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ResourceError(
                "workers: SLURM has not answered for 60 s. Is its controller running (scontrol "
                "ping)? Try again later."
            ) from error
    if answer.returncode != 0:
        raise ConfigError(
            f"workers: SLURM refuses the jobs ({short(answer.stderr)}). Correct the cluster "
            "options: queue is the partition, walltime and memory are what a job may use."
        )


def _replace_jobs(cluster: Any, jobs: int, stop: threading.Event) -> None:
    """Submit jobs in the place of those that have ended: scancel, or the end of their time."""
    while not stop.wait(REPLACE):
        with suppress(Exception):
            cluster.scale(jobs=jobs)


def __dir__() -> list[str]:
    return sorted(__all__)

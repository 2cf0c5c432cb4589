"""Workers of a cluster: real schedulers and workers, stopped and killed in the middle."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import tasks
from programs import (
    ENVIRONMENT,
    HERE,
    SOURCE,
    dask_cluster,
    output,
    python_path,
    slurm,
    wait_until,
    why_no_slurm,
)

import zscope as zs
from zscope.errors import ConfigError, MissingExtra, ResourceError
from zscope.experiments.slurm import slurm_settings
from zscope.experiments.workers import Outcome, run_all, try_workers, workers

STEPS = 1500  # of a training: two seconds


def refuse(match: str, error: type[Exception] = ConfigError, **settings) -> None:
    with pytest.raises(error, match=match), workers(**settings):
        pass


@pytest.mark.parametrize(
    ("cluster", "options", "match"),
    [
        ("slrum", {}, "neither an address nor a kind of cluster"),
        ("tcp://127.0.0.1:1", {"queue": "gpu"}, "no option 'queue'"),
        ("slurm", {"walltme": "1:00"}, "no option 'walltme'. Did you mean walltime"),
        ("slurm", {"job-extra-directive": "-x"}, "Did you mean job-extra-directives"),
        ("slurm", {"job-name": "x", "cores": 4}, "no option 'cores'"),
        ("slurm", {"jobs": "many"}, "jobs='many'.*whole number"),
        ("slurm", {"jobs": 0}, "jobs=0.*whole number"),
        ("slurm", {"wait": "long"}, "wait='long'; expected a number of seconds"),
    ],
)
def test_what_no_cluster_has_is_refused(cluster, options, match):
    refuse(match, cluster=cluster, options=options)
    with pytest.raises(ConfigError, match=match):
        try_workers(cluster=cluster, options=options)


def test_a_job_is_one_worker_with_one_thread_that_takes_the_place_of_its_shell(tmp_path):
    jobs, settings = slurm_settings(
        {"jobs": "50", "queue": "gpu", "job_extra_directives": "--mem=0 --gres=gpu:1"}, tmp_path
    )
    assert jobs == 50
    assert (settings["cores"], settings["processes"], settings["nanny"]) == (1, 1, False)
    assert settings["job_extra_directives"] == ["--mem=0", "--gres=gpu:1"]
    assert settings["python"].startswith("exec ")
    assert settings["log_directory"] == str(tmp_path / "slurm")


def test_without_slurm_it_is_said_where_to_go(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    refuse("sbatch was not found", cluster="slurm")


def test_without_the_packages_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("zscope.experiments.workers.find_spec", lambda name: None)
    refuse(r"pip install 'zscope\[cluster\]'", MissingExtra, cluster="tcp://127.0.0.1:1")


@pytest.fixture
def dask(tmp_path):
    with dask_cluster(tmp_path) as cluster:
        yield cluster


def trainings(folder: Path) -> Counter:
    file = folder / "trainings.txt"
    return Counter(file.read_text().split() if file.exists() else [])


def starts(folder: Path) -> list[list[str]]:
    """(seed, SLURM job) of each training that was begun or resumed."""
    file = folder / "starts.txt"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def train_all(executor: Executor, folder: Path, count: int, **callbacks) -> None:
    """All of them are trained, none twice."""
    outcomes = run_all(
        executor, tasks.train_tiny, [(folder, seed, STEPS) for seed in range(count)], **callbacks
    )
    assert [outcome.error for outcome in outcomes] == [None] * count
    assert trainings(folder) == {str(seed): 1 for seed in range(count)}


@contextmanager
def meanwhile(condition, action):
    """Wait for the condition beside the block, and then act."""
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(lambda: wait_until(condition, 120) and action())
        yield waiting
        waiting.result()


def steps_of_checkpoints(run: Path) -> list[int]:
    return [step for step, _ in zs.store.checkpoints(run)]


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_no_run(dask, tmp_path, capfd):
    first, _ = dask.add_worker(), dask.add_worker()
    with (
        workers(cluster=dask.address, folders=[tmp_path]) as executor,
        meanwhile(lambda: len(starts(tmp_path)) >= 3, first.kill),
    ):
        train_all(executor, tmp_path, 6)
    assert first.wait() == -signal.SIGKILL
    lines = capfd.readouterr().err.splitlines()
    assert all(line.startswith("workers: ") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("nanny", ["--no-nanny", "--nanny"])
def test_a_worker_that_is_asked_to_end_saves_its_run_and_another_one_resumes_it(
    dask, tmp_path, nanny
):
    first = dask.add_worker(nanny)

    def end():
        """Stop the only worker in the first training; then start another one."""
        first.terminate()
        assert first.wait(30) == 0
        steps = steps_of_checkpoints(tmp_path / "run-0")
        assert not list(tmp_path.glob("*/.lock"))
        dask.add_worker()
        return steps

    with (
        workers(cluster=dask.address, folders=[tmp_path]) as executor,
        meanwhile(lambda: starts(tmp_path), end) as ended,
    ):
        train_all(executor, tmp_path, 2)
    (step,) = ended.result()
    assert 0 < step < STEPS
    assert [seed for seed, _ in starts(tmp_path)].count("0") == 2


SLOW_TO_BEGIN = """
import time
from pathlib import Path
import torch

def set_num_threads(number):
    Path("begins").touch()
    time.sleep(3)

torch.set_num_threads = set_num_threads
"""


@pytest.mark.slow
def test_a_worker_that_is_asked_to_end_while_it_begins_ends(dask, tmp_path):
    """It imports torch then, for seconds. As with a job of SLURM, the scheduler closes too."""
    (tmp_path / "slow_to_begin.py").write_text(SLOW_TO_BEGIN)
    dask.add_worker()
    with workers(cluster=dask.address):
        late = dask.add_worker("--no-nanny", "--preload", "slow_to_begin.py")
        wait_until((tmp_path / "begins").exists)
        late.terminate()
        dask.scheduler.terminate()
        assert late.wait(30) == 0


STOPPED = """
import sys, tasks
from pathlib import Path
from zscope.experiments.workers import run_all, workers
folder = Path(sys.argv[2])
with workers(cluster=sys.argv[1], folders=[folder]) as executor:
    run_all(executor, tasks.train_tiny, [(folder, seed, 100_000) for seed in range(4)])
"""


@pytest.mark.slow
def test_ctrl_c_lets_the_tasks_save_and_leaves_the_workers_to_others(dask, tmp_path):
    dask.add_worker()
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, dask.address, tmp_path],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        wait_until(lambda: starts(tmp_path))
        time.sleep(1)
        program.send_signal(signal.SIGINT)
        message = program.stderr.read()
    assert "KeyboardInterrupt: run_all: stopped with 0 of 4 done" in message
    assert len(steps_of_checkpoints(tmp_path / "run-0")) == 1
    assert not list(tmp_path.glob("*/.lock"))
    assert len(starts(tmp_path)) == 1
    with workers(cluster=dask.address) as executor:
        assert run_all(executor, tasks.square, [3]) == [Outcome(9)]


@pytest.mark.slow
def test_the_executor_of_a_client_serves_too(dask):
    from distributed import Client

    dask.add_worker()
    with Client(dask.address, set_as_default=False) as client:
        good, bad = run_all(client.get_executor(), tasks.misbehave, ["good", "raise"])
    assert good == Outcome("good")
    assert bad.error == "ValueError: a number is missing"


@pytest.mark.slow
def test_an_item_that_kills_its_workers_is_given_up(dask):
    for _ in range(2):
        dask.add_worker("--nanny")  # which starts its worker again
    with workers(cluster=dask.address) as executor:
        bad, good = run_all(executor, tasks.misbehave, ["kill", "good"])
    assert good == Outcome("good")
    assert "given up: every worker that had it died" in bad.error


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_said_in_one_line_and_ten_seconds(capfd):
    before = time.monotonic()
    refuse("no Dask scheduler answers at tcp://127.0.0.1:1 ", cluster="tcp://127.0.0.1:1")
    assert time.monotonic() - before < 15
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_scheduler_without_workers_is_waited_for_only_so_long(dask, capfd):
    refuse("no worker for 1 s", ResourceError, cluster=dask.address, options={"wait": "1"})
    assert "waiting for the first worker" in capfd.readouterr().err


@pytest.fixture
def other_version(tmp_path):
    """What makes a worker one with another source; tasks of the tests are there too."""
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "src" / "zscope" / "theory.py").open("a") as file:
        file.write("# changed\n")
    return {"PYTHONPATH": python_path(tmp_path / "src", HERE)}


@pytest.mark.slow
def test_a_worker_with_another_version_is_refused(dask, other_version):
    dask.add_worker(**other_version)
    refuse(r"the worker at tcp://\S+ has zscope 0\S+, source \w{8}, but", cluster=dask.address)


VERSION = r"zscope 0\S+, source \w{8}"
OTHER_VERSION = rf"the worker on \S+ has {VERSION}, but this program is {VERSION}"


def check_no_item_is_lost(executor, late, place: Path, capfd) -> str:
    """A late worker gets items while the first one is busy, and is retired; why, in one line."""

    def end():
        assert late.wait() == 0  # and it does not come back
        place.touch()

    with meanwhile(lambda: True, end):
        assert run_all(executor, tasks.wait_for, [place] * 6) == [Outcome(place)] * 6
    (line,) = (line for line in capfd.readouterr().err.splitlines() if "the worker on" in line)
    assert line.startswith("workers: ")
    assert line.endswith(". It is retired, and others do its work.")
    return line


@pytest.mark.slow
@pytest.mark.parametrize("nanny", ["--no-nanny", "--nanny"])
def test_a_worker_with_another_version_that_comes_later_costs_no_item(
    dask, other_version, tmp_path, capfd, nanny
):
    dask.add_worker()
    with workers(cluster=dask.address) as executor:
        late = dask.add_worker(nanny, **other_version)
        line = check_no_item_is_lost(executor, late, tmp_path / "retired", capfd)
    assert re.search(OTHER_VERSION, line)


@pytest.mark.slow
def test_if_only_workers_with_another_version_are_left_it_ends_with_one_line(dask, other_version):
    first = dask.add_worker()
    with workers(cluster=dask.address) as executor:
        first.kill()
        first.wait()
        for _ in range(2):
            dask.add_worker(**other_version)
        with pytest.raises(ResourceError, match=f"no worker is left .*: {OTHER_VERSION}. Correct"):
            run_all(executor, tasks.square, [2, 3])


@pytest.mark.slow
def test_a_worker_without_zscope_is_refused(dask, tmp_path):
    (tmp_path / "src" / "zscope").mkdir(parents=True)
    (tmp_path / "src" / "zscope" / "__init__.py").touch()
    dask.add_worker(PYTHONPATH=python_path(tmp_path / "src"))
    refuse("cannot import this zscope", cluster=dask.address)


def hide(folder: Path) -> str:
    """What makes a worker not see what is in a folder, as on a machine of its own: another disk."""
    if os.getuid() != 0:
        pytest.skip("only root can give a worker another view of files")
    mount = f"mount -t tmpfs none {folder}"
    hidden = subprocess.run(["unshare", "-m", *mount.split()], check=False, capture_output=True)
    if hidden.returncode != 0:
        pytest.skip("a mount of one's own cannot be made here")
    return mount


@pytest.mark.slow
def test_a_worker_that_does_not_see_the_folder_is_refused(dask, tmp_path):
    for name in ("runs", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "rows.npy").touch()
    dask.add_worker(inside=f"{hide(tmp_path / 'runs')} && {hide(tmp_path / 'data')}")
    for folders in ([tmp_path / "runs"], [tmp_path, tmp_path / "runs"]):
        refuse("does not see .*runs, where the runs go", cluster=dask.address, folders=folders)
    refuse(
        "does not see .*rows.npy, which has the data.*all machines share",
        cluster=dask.address,
        folders=[tmp_path],
        files=[tmp_path / "data" / "rows.npy"],
    )


@pytest.mark.slow
def test_a_worker_that_comes_later_and_does_not_see_the_folder_costs_no_item(dask, tmp_path, capfd):
    (tmp_path / "out" / "runs").mkdir(parents=True)
    dask.add_worker()
    with workers(cluster=dask.address, folders=[tmp_path / "out" / "runs"]) as executor:
        late = dask.add_worker(inside=hide(tmp_path / "out"))
        line = check_no_item_is_lost(executor, late, tmp_path / "retired", capfd)
    assert re.search("does not see .*/out/runs. It", line)


@pytest.mark.slow
def test_a_scheduler_that_is_lost_ends_it_with_one_line(dask, tmp_path):
    dask.add_worker()
    with (
        pytest.raises(ResourceError, match="connection to the scheduler was lost"),
        workers(cluster=dask.address) as executor,
        meanwhile(lambda: starts(tmp_path), dask.scheduler.kill),
    ):
        run_all(executor, tasks.train_tiny, [(tmp_path, 0, 100_000)] * 2)


@pytest.fixture
def slurm_environment(monkeypatch):
    if reason := why_no_slurm():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the user munge must get there
        with slurm(Path(folder)) as configuration:
            monkeypatch.setenv("SLURM_CONF", str(configuration))
            for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
                monkeypatch.setenv(name, ENVIRONMENT[name])
            yield Path(folder)


SLURM = {"queue": "test", "interface": "lo", "job_extra_directives": "--mem=0"}


def cancel_last_job(folder: Path) -> list[int]:
    """Cancel the job that began the last training; the steps that it had saved when it was gone."""
    seed, job = starts(folder)[-1]
    output("scancel", job)
    wait_until(lambda: job not in output("squeue", "-h", "-o", "%i").split())
    return steps_of_checkpoints(folder / f"run-{seed}")


@pytest.mark.slow
def test_six_runs_by_slurm_jobs_one_of_which_is_cancelled(slurm_environment, tmp_path, capfd):
    with (
        workers(cluster="slurm", options=SLURM | {"jobs": "2"}, folders=[tmp_path]) as executor,
        meanwhile(lambda: len(starts(tmp_path)) >= 3, partial(cancel_last_job, tmp_path)) as gone,
    ):
        train_all(executor, tmp_path, 6)
    (step,) = gone.result()
    assert 0 < step < STEPS
    assert not output("squeue", "-h", "-t", "R").strip()
    lines = capfd.readouterr().err.splitlines()
    assert all(line.startswith("workers: ") for line in lines)
    assert list((tmp_path / "slurm").glob("*.err"))


@pytest.mark.slow
def test_a_job_that_has_ended_is_replaced(slurm_environment, tmp_path, monkeypatch):
    monkeypatch.setattr("zscope.experiments.slurm.REPLACE", 2.0)
    with (
        workers(cluster="slurm", options=SLURM, folders=[tmp_path]) as executor,
        meanwhile(lambda: starts(tmp_path), partial(cancel_last_job, tmp_path)),
    ):
        train_all(executor, tmp_path, 2)
    assert len({job for _, job in starts(tmp_path)}) == 2


@pytest.mark.slow
def test_jobs_that_slurm_refuses_are_refused_at_once(slurm_environment):
    refuse("SLURM refuses the jobs .*nope", cluster="slurm", options={"queue": "nope"})

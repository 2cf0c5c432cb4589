"""Workers of this machine: every item once, whatever happens to the workers."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import loky
import pytest
import tasks

from zscope.errors import ConfigError, Terminated
from zscope.experiments.workers import (
    Outcome,
    ThisProcess,
    check_executor,
    check_jobs,
    run_all,
    workers,
)

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def two():
    """Two worker processes, for all tests that leave them alive."""
    with workers(jobs=2) as executor:
        yield executor


def test_outcomes_are_in_the_order_of_the_items(two):
    assert run_all(two, tasks.square, range(5)) == [Outcome(n * n) for n in range(5)]
    assert run_all(two, tasks.square, []) == []


def test_workers_are_other_processes_with_one_thread_that_import_only_what_they_need(two):
    results = [outcome.result for outcome in run_all(two, tasks.about_this_process, range(4))]
    assert os.getpid() not in {process for process, _, _ in results}
    assert {about[1:] for about in results} == {("1", False)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_tick_comes_while_an_item_runs(jobs, two):
    ticks = []
    executor: Executor = ThisProcess() if jobs == 1 else two
    run_all(executor, time.sleep, [0.7], tick=lambda: ticks.append(time.monotonic()))
    assert ticks


def test_what_takes_no_work_is_refused():
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    for executor in (5, closed):
        with pytest.raises(ConfigError, match="takes no work.*leave it out"):
            check_executor(executor)
    with ThreadPoolExecutor(1) as executor:
        assert check_executor(executor, jobs=None) is executor
        with pytest.raises(ConfigError, match="jobs=2 has no effect"):
            check_executor(executor, jobs=2)


def test_one_job_runs_in_this_process():
    with workers(jobs=1) as executor:
        (outcome,) = run_all(executor, tasks.about_this_process, [0])
    assert outcome.result[0] == os.getpid()


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_item_that_fails_does_not_stop_the_others(jobs, two):
    executor: Executor = ThisProcess() if jobs == 1 else two
    first, failed, last = run_all(executor, tasks.misbehave, ["first", "raise", "last"])
    assert (first, last) == (Outcome("first"), Outcome("last"))
    assert failed.error == "ValueError: a number is missing"
    assert "in misbehave" in failed.traceback


def test_what_cannot_be_sent_is_an_error_of_its_item(two):
    lock = threading.Lock()
    good, bad = run_all(two, tasks.misbehave, ["good", lock])
    assert good == Outcome("good")
    assert "pickle" in bad.error.lower()


def test_a_worker_that_dies_costs_its_item_another_try_and_the_others_nothing(tmp_path):
    with workers(jobs=2) as executor:
        (before,) = run_all(executor, tasks.die_once, [tmp_path / "once"])
        outcomes = run_all(executor, tasks.misbehave, ["kill", "well"])
        after = run_all(executor, tasks.about_this_process, range(4))
    assert before.error is None
    assert outcomes[1] == Outcome("well")
    assert re.search(r"item 0 was given up.*died 3 times \(SIGKILL\(-9\)\)", outcomes[0].error)
    assert all(outcome.error is None for outcome in after)


def test_done_is_called_for_each_item_when_it_is_finished():
    calls, ticks = [], []

    def done(index, outcome):
        calls.append((index, outcome.result))
        time.sleep(0.3)

    with workers(jobs=1) as executor:
        run_all(executor, calls_so_far(calls), range(4), done=done, tick=lambda: ticks.append(1))
    assert calls == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert 1 <= len(ticks) <= 3


def calls_so_far(calls):
    return lambda item: len(calls)


def test_any_executor_serves():
    with ThreadPoolExecutor(2) as executor:
        assert run_all(executor, tasks.square, [3]) == [Outcome(9)]


def test_ctrl_c_in_this_process_is_not_an_outcome():
    def interrupted(item):
        raise KeyboardInterrupt

    with workers(jobs=1) as executor, pytest.raises(KeyboardInterrupt):
        run_all(executor, interrupted, [0])


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True, "2"])
def test_jobs_that_are_no_number_of_processes_are_refused(jobs):
    with pytest.raises(ConfigError, match=r"jobs=.*whole number of at least 1"):
        check_jobs(jobs)


def test_there_is_one_job_for_each_core():
    assert check_jobs(None) == loky.cpu_count()
    assert check_jobs(3) == 3


def test_options_and_jobs_must_suit_where_the_work_goes():
    with (
        pytest.raises(ConfigError, match="no cluster to take the option 'queue'"),
        workers(options={"queue": "gpu"}),
    ):
        pass
    with (
        pytest.raises(ConfigError, match="jobs=2 is the number of processes of this machine"),
        workers(jobs=2, cluster="slurm"),
    ):
        pass


def test_tasks_in_threads_are_asked_to_stop(tmp_path):
    def stop():
        if list(tmp_path.glob("*.started")):
            raise Terminated

    with ThreadPoolExecutor(2) as executor, pytest.raises(Terminated):
        run_all(executor, tasks.count_until_stopped, [tmp_path] * 2, tick=stop)
    assert list(tmp_path.glob("*.saved"))


def test_an_error_of_the_caller_lets_the_workers_save_and_ends_them(tmp_path):
    def stop():
        if len(list(tmp_path.glob("*.started"))) == 2:
            raise RuntimeError("the table could not be drawn")

    with pytest.raises(RuntimeError, match="table"), workers(jobs=2) as executor:
        run_all(executor, tasks.count_until_stopped, [tmp_path] * 4, tick=stop)
    processes = {int(file.stem) for file in tmp_path.glob("*.saved")}
    assert len(processes) == 2
    assert not alive(processes)


def about(process: int) -> list[str]:
    """The state of a process, its parent and more; nothing if there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def alive(processes: set[int]) -> set[int]:
    """Those that run; one that nobody has waited for yet does not."""
    return {process for process in processes if about(process)[:1] not in ([], ["Z"])}


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "whom"),
    [
        pytest.param(signal.SIGINT, "all", id="Ctrl-C in a terminal"),
        pytest.param(signal.SIGTERM, "parent", id="SIGTERM"),
        pytest.param(signal.SIGTERM, "all", id="SIGTERM to all"),
        pytest.param(signal.SIGKILL, "parent", id="SIGKILL"),
    ],
)
def test_whatever_ends_the_program_its_workers_save_and_end(tmp_path, number, whom):
    command = [sys.executable, HERE / "tasks.py", tmp_path]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE) as program:
        wait_until(lambda: len(list(tmp_path.glob("*.started"))) == 2)
        processes = {int(file.stem) for file in tmp_path.glob("*.started")}
        assert {about(process)[1] for process in processes} == {str(program.pid)}
        (os.killpg if whom == "all" else os.kill)(program.pid, number)
        message = program.stderr.read().decode()
    wait_until(lambda: not alive(processes))
    assert {int(file.stem) for file in tmp_path.glob("*.saved")} == processes
    assert message.count("Traceback") == (number != signal.SIGKILL)
    assert ("stopped with 0 of 4 done" in message) == (number != signal.SIGKILL)

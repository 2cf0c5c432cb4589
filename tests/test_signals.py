"""Tasks in threads, where no signal arrives, stop when they are asked to."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from zscope.errors import ConfigError, Terminated
from zscope.interrupts import attempt, run_task, stop_tasks, watch_interrupts


def count(started):
    """A loop that reads the flag between its steps."""
    with watch_interrupts() as interrupted:
        started.append(interrupted)
        assert interrupted.wait(20)
        raise interrupted.error


def finish_anyway(started):
    """A loop that had read the flag for the last time when it was set."""
    with watch_interrupts() as interrupted:
        started.append(interrupted)
        assert interrupted.wait(20)
    return "not reached"


@pytest.mark.parametrize("function", [count, finish_anyway])
def test_only_the_tasks_of_one_owner_are_stopped(function):
    mine, others = [], []
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(run_task, function, mine, f"me {function}")
        second = threads.submit(run_task, function, others, f"another {function}")
        while not (mine and others):
            pass
        assert stop_tasks(f"me {function}", seconds=20) == 0
        assert first.result() == ("ended",)
        assert mine[0].error is Terminated
        assert not others[0].is_set()
        stop_tasks(f"another {function}")
        assert second.result() == ("ended",)


def test_a_task_that_comes_after_the_stop_does_not_start():
    started = []
    stop_tasks("owner who has left")
    assert run_task(started.append, 1, "owner who has left") == ("ended",)
    assert run_task(started.append, 2, "owner who is there") == ("done", None)
    assert started == [2]


def test_one_that_does_not_read_the_flag_still_runs():
    with ThreadPoolExecutor(1) as threads:
        gate, started = threading.Event(), []
        task = threads.submit(run_task, lambda _: started.append(1) or gate.wait(20), 0, "slow")
        while not started:
            pass
        assert stop_tasks("slow", seconds=0.05) == 1
        gate.set()
        assert task.result() == ("done", True)


def test_an_error_of_zscope_is_its_message_and_another_names_its_kind():
    def refuse(error):
        raise error

    assert attempt(refuse, ConfigError("train: steps=0"))[:2] == ("failed", "train: steps=0")
    how, line, trace = attempt(refuse, KeyError("x"))
    assert (how, line) == ("failed", "KeyError: 'x'")
    assert "in refuse" in trace

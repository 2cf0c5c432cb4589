"""Ask what runs to save and end: a training of this program, the tasks of a worker.

A loop reads a flag between its steps (`watch_interrupts`), saves, and raises the flag's error.
The flag is set

- in the main thread of a program, by Ctrl-C, SIGTERM and SIGHUP;
- in a worker process of this machine (`begin_worker`), by SIGTERM and when the program that
  started it is gone; Ctrl-C, which a terminal sends to both, is left to that program;
- in a thread, where no signal arrives (tasks of a Dask worker), by `stop_tasks`.

This module is all that a worker imports before its first task.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from zscope.errors import Terminated, ZscopeError

__all__ = ["Interrupts", "attempt", "begin_worker", "run_task", "stop_tasks", "watch_interrupts"]

GRACE = 30.0  # seconds that a task may take to save and end

DONE, FAILED, ENDED = "done", "failed", "ended"  # how a task ended


class Interrupts(threading.Event):
    """Set when what runs is asked to stop; `error` is what to raise then."""

    error: type[KeyboardInterrupt] = KeyboardInterrupt
    watched = 0  # loops that read it now


_changed = threading.Condition()
_tasks: dict[Interrupts, str] = {}  # the tasks that run in this process, and whose they are
_stopped: set[str | None] = set()  # whose tasks are not to start any more; None: all
_of_thread = threading.local()
_serving = False  # whether this process is a worker, which ends with its task


@contextmanager
def watch_interrupts() -> Iterator[Interrupts]:
    """Let Ctrl-C, SIGTERM and SIGHUP set a flag that the loop reads between steps.

    The second of a kind acts at once, as it did before. In a worker, whoever ends the worker or
    its tasks sets the flag.
    """
    task: Interrupts | None = getattr(_of_thread, "task", None)
    interrupted = Interrupts() if task is None else task
    interrupted.watched += 1
    try:
        if _serving or threading.current_thread() is not threading.main_thread():
            yield interrupted
        else:
            with _signals_set(interrupted):
                yield interrupted
    finally:
        interrupted.watched -= 1
    if task is not None and task.is_set():  # after the loop had read it for the last time
        raise task.error("stopped")


@contextmanager
def _signals_set(interrupted: Interrupts) -> Iterator[None]:
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # the last is not on Windows
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}

    def handle(number: int, frame: Any) -> None:
        if number != signal.SIGINT:
            interrupted.error = Terminated
        interrupted.set()
        signal.signal(number, before[signal.Signals(number)])

    for number, handler in before.items():
        # One that was ignored stays so: the parent of several processes acts for them. A handler
        # that was not installed by Python (None) cannot be put back.
        if handler not in (signal.SIG_IGN, None):
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def attempt(function: Callable[[Any], Any], item: Any) -> tuple[Any, ...]:
    """(DONE, result), or (FAILED, one line, traceback), which can be sent to another process."""
    try:
        return DONE, function(item)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        line = lines[0] if isinstance(error, ZscopeError) else f"{type(error).__name__}: {lines[0]}"
        return FAILED, line, "".join(traceback.format_exception(error))


def run_task(function: Callable[[Any], Any], item: Any, owner: str) -> tuple[Any, ...]:
    """`attempt` in a worker, or (ENDED,) if the worker or its owner's tasks were asked to stop."""
    task, late = Interrupts(), False
    task.error = Terminated
    try:
        _of_thread.task = task
        with _changed:
            _tasks[task] = owner
            late = not _stopped.isdisjoint((owner, None))
        outcome: tuple[Any, ...] = (ENDED,) if late else attempt(function, item)
    except KeyboardInterrupt:
        outcome = (ENDED,)
    finally:
        _of_thread.task = None
        with _changed:
            _tasks.pop(task, None)
            _changed.notify_all()
    if _serving and task.is_set():
        _leave()
    if late:
        time.sleep(0.5)  # the next one comes at once, until this worker is gone
    return outcome


def stop_tasks(owner: str | None = None, seconds: float = 0.0) -> int:
    """Ask the tasks of an owner, or all, to save and end; how many still run after `seconds`.

    None of theirs will start in this process any more.
    """

    def running() -> list[Interrupts]:
        return [task for task, whose in _tasks.items() if owner in (None, whose)]

    with _changed:
        _stopped.add(owner)
        for task in running():
            task.set()
        _changed.wait_for(lambda: not running(), timeout=seconds)
        return len(running())


def begin_worker(parent: Any) -> None:
    """Make this process a worker that ends, its task saved, by SIGTERM or without its parent.

    `parent` is the end of a pipe on which nothing arrives until the parent closes it or dies.
    """
    global _serving  # noqa: PLW0603
    _serving = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # there is no SIGHUP on Windows
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # as with nohup
            signal.signal(number, _end)
    threading.Thread(target=_end_with_parent, args=[parent], daemon=True).start()


def _end(number: int, frame: Any) -> None:
    """End at once if there is no task; else let a loop save, or raise where none is watching."""
    tasks = list(_tasks)
    if not tasks:
        _leave()
    repeated = any(task.is_set() for task in tasks)
    for task in tasks:
        task.set()
    if not repeated and not any(task.watched for task in tasks):
        raise Terminated


def _end_with_parent(parent: Any) -> None:
    with suppress(EOFError, OSError):
        parent.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    _leave()


def _leave() -> None:
    """Exit without asking anybody: threads and queues that are cut off may wait for ever."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(143)


def __dir__() -> list[str]:
    return sorted(__all__)

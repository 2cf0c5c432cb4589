"""Workers: one function called on many items, by processes of this machine or of many.

    with workers(jobs=2) as executor:
        outcomes = run_all(executor, function, items)

Whatever has the interface of `concurrent.futures.Executor` serves. An item that fails does not
stop the others; a worker that dies is replaced, and another one goes on with its item.
"""

import queue
import re
import secrets
import signal
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

from zscope.errors import ConfigError, MissingExtra, ZscopeError
from zscope.interrupts import (
    DONE,
    ENDED,
    FAILED,
    GRACE,
    Interrupts,
    attempt,
    begin_worker,
    run_task,
    stop_tasks,
    watch_interrupts,
)

__all__ = [
    "LocalWorkers",
    "Outcome",
    "Stoppable",
    "ThisProcess",
    "run_all",
    "try_workers",
    "workers",
]

T = TypeVar("T")

DEATHS = 3  # of its worker, after which an item is given up
AHEAD = 1000  # items that an executor has at a time
TICK = 0.5  # seconds
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


@dataclass(frozen=True)
class Outcome:
    """What became of an item: its result, or one line about what went wrong."""

    result: Any = None
    error: str | None = None
    traceback: str | None = None


@contextmanager
def workers(
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    options: Mapping[str, Any] | None = None,
    folders: Sequence[Path] = (),
    files: Sequence[Path] = (),
) -> Iterator[Executor]:
    """Workers, until the block ends.

    Without `cluster`, `jobs` processes of this machine (default: one for each core) with one
    thread each; with jobs=1 everything runs in this process. `cluster` is the address of a Dask
    scheduler that is running, such as tcp://host:8786, or "slurm"; `options` are its settings.
    Its workers must be able to write to `folders`, the first of which is for logs too, and to read
    `files`.
    """
    _check_place(jobs, cluster, options)
    if cluster is not None:
        from zscope.experiments.cluster import connect

        with connect(cluster, options or {}, folders, files) as executor:
            yield executor
        return
    count = check_jobs(jobs)
    if count == 1:
        with _one_thread():
            yield ThisProcess()
        return
    pool = LocalWorkers(count)
    try:
        yield pool
    except BaseException:
        pool.stop()
        raise
    finally:
        pool.shutdown()


def try_workers(
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Refuse workers that could not be had, before long work that comes first."""
    _check_place(jobs, cluster, options)
    if cluster is None:
        check_jobs(jobs)
        return
    from zscope.experiments.cluster import try_cluster

    try_cluster(cluster, options or {})


def _check_place(jobs: int | None, cluster: str | None, options: Mapping[str, Any] | None) -> None:
    """Refuse settings that contradict each other, and a cluster without the package for it."""
    if cluster is not None:
        if jobs is not None:
            raise ConfigError(
                f"workers: jobs={jobs} is the number of processes of this machine, but the work "
                f"goes to {cluster}. Leave it out; for SLURM, give the cluster option jobs."
            )
        if find_spec("distributed") is None:
            raise MissingExtra("workers", "distributed", "cluster")
    elif options:
        raise ConfigError(
            f"workers: there is no cluster to take the option {next(iter(options))!r}. Name one "
            "(--cluster), or leave the option out."
        )


def check_executor(executor: Any, **others: Any) -> Executor:
    """An executor that can take work; refuses other places for the work beside it."""
    for name, value in others.items():
        if value is not None:
            raise ConfigError(
                f"workers: the work goes to the executor that was given, so {name}={value!r:.60} "
                "has no effect. Leave one of them out."
            )
    try:
        executor.submit(int).cancel()
    except (AttributeError, TypeError, RuntimeError) as error:
        raise ConfigError(
            f"workers: executor={executor!r:.60} takes no work ({type(error).__name__}: {error}). "
            "Expected one of concurrent.futures that is open, for instance "
            "ProcessPoolExecutor(2), or leave it out."
        ) from error
    return cast(Executor, executor)


def check_jobs(jobs: Any) -> int:
    """A number of processes; None means one for each core that this process may use."""
    if jobs is None:
        from loky import cpu_count

        return int(cpu_count())
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ConfigError(
            f"workers: jobs={jobs!r}; expected a whole number of at least 1. Leave it out for one "
            "process on each core."
        )
    return jobs


class ThisProcess(Executor):
    """Runs each item when it is submitted, in this process: for one job, and to debug."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Stoppable(Executor):
    """An executor whose workers can be asked to save what they do and end."""

    def stop(self, owner: str | None = None) -> None:
        """Do not start anything of this owner any more (None: of anybody), and wait a while for
        what runs."""
        raise NotImplementedError


class LocalWorkers(Stoppable):
    """Worker processes of this machine, each in a loky executor of its own.

    loky kills all workers of an executor when one of them dies: these go on.
    """

    def __init__(self, jobs: int) -> None:
        from multiprocessing import Pipe

        # loky replaces a worker that has grown by 300 MB; no user needs to know.
        warnings.filterwarnings("ignore", "A worker (stopped|was restarted) while", UserWarning)
        self._end_for_workers, self._end_for_us = Pipe(duplex=False)
        self._executors: list[Any] = [None] * jobs
        self._idle = list(range(jobs))
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock = threading.RLock()
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append((future, partial(fn, *args, **kwargs)))
        self._hand_out()
        return future

    def _hand_out(self) -> None:
        with self._lock:
            while self._idle and self._waiting and not self._closed:
                future, call = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    number = self._idle.pop()
                    work = self._start(number, call)
                    work.add_done_callback(partial(self._finish, number, future))

    def _start(self, number: int, call: Callable[[], Any]) -> "Future[Any]":
        from loky import ProcessPoolExecutor

        # A new process inherits that Ctrl-C is blocked: it is not ready to ignore it yet.
        with _blocked(signal.SIGINT):
            if self._executors[number] is None:
                self._executors[number] = ProcessPoolExecutor(
                    1,
                    initializer=begin_worker,
                    initargs=(self._end_for_workers,),
                    env=ONE_THREAD,
                )
            work: Future[Any] = self._executors[number].submit(call)
        return work

    def _finish(self, number: int, future: "Future[Any]", work: "Future[Any]") -> None:
        error = work.exception()
        with self._lock:
            if isinstance(error, BrokenExecutor):
                self._executors[number] = None
            self._idle.append(number)
        if error is None:
            future.set_result(work.result())
        else:
            future.set_exception(error)
        self._hand_out()

    def stop(self, owner: str | None = None) -> None:
        """All of it ends, whose ever it is; workers that take too long are killed."""
        with self._lock:
            self._closed = True
            for future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()
        self._end_for_us.close()
        end = time.monotonic() + GRACE
        while len(self._idle) < len(self._executors) and time.monotonic() < end:
            time.sleep(0.05)
        self._shut_down(kill_workers=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        self._shut_down(wait=wait)
        self._end_for_us.close()
        self._end_for_workers.close()

    def _shut_down(self, **how: bool) -> None:
        for number, executor in enumerate(self._executors):
            if executor is not None:
                self._executors[number] = None
                executor.shutdown(**how)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread of torch, as worker processes have: the number may change the last bits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_all(
    executor: Executor,
    function: Callable[[T], Any],
    items: Sequence[T],
    *,
    done: Callable[[int, Outcome], None] | None = None,
    tick: Callable[[], None] | None = None,
) -> list[Outcome]:
    """Call a function on every item; the outcomes are in the order of the items.

    `done` is called with the number of an item and its outcome as soon as it is known, in this
    thread, and `tick` about every half second: in this thread too, unless that is where the items
    run. An item whose worker dies goes to another one,
    up to three times. Ctrl-C and SIGTERM are passed on to the workers, which save the runs they
    are training; then KeyboardInterrupt or Terminated is raised.
    """
    here = isinstance(executor, ThisProcess)
    work = _Work(_adopt(executor), function, items)
    last = time.monotonic()
    # In this process the signals reach the item itself, which raises.
    ticking = nullcontext() if tick is None or not here else _ticking(tick)
    with ticking, nullcontext(Interrupts()) if here else watch_interrupts() as interrupted:
        try:
            while len(work.outcomes) < len(items):
                if interrupted.is_set():
                    raise interrupted.error(
                        f"run_all: stopped with {len(work.outcomes)} of {len(items)} done. Runs in "
                        "training were saved: start the same again to go on."
                    )
                work.submit(1 if here else AHEAD)
                finished = work.next()
                if finished is not None and done is not None:
                    done(*finished)
                if tick is not None and not here and time.monotonic() - last >= TICK:
                    tick()
                    last = time.monotonic()
        except BaseException:
            work.stop()
            raise
    return [work.outcomes[index] for index in range(len(items))]


@contextmanager
def _ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call it about every half second while the items of this process run."""
    ended = threading.Event()

    def call() -> None:
        while not ended.wait(TICK):
            tick()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Work:
    """The items of a call of `run_all`, those that are with the executor, and the outcomes."""

    def __init__(self, executor: Executor, function: Callable[[Any], Any], items: Sequence[Any]):
        self.executor, self.items = executor, items
        self.outcomes: dict[int, Outcome] = {}
        self.owner = secrets.token_hex(8)
        here = isinstance(executor, ThisProcess)
        self.call = partial(attempt, function) if here else partial(run_task, function)
        self.extra = () if here else (self.owner,)
        self.waiting = deque(range(len(items)))
        self.futures: dict[int, Future[Any]] = {}
        self.finished: queue.SimpleQueue[tuple[int, Future[Any]]] = queue.SimpleQueue()
        self.deaths: Counter[int] = Counter()

    def submit(self, limit: int) -> None:
        """Give waiting items to the executor, which has at most `limit` of them."""
        while self.waiting and len(self.futures) < limit:
            index = self.waiting.popleft()
            try:
                future = self.executor.submit(self.call, self.items[index], *self.extra)
            except BrokenExecutor as error:
                future = Future()
                future.set_exception(error)
            self.futures[index] = future
            future.add_done_callback(partial(self._note, index))

    def _note(self, index: int, future: "Future[Any]") -> None:
        self.finished.put((index, future))

    def next(self) -> tuple[int, Outcome] | None:
        """The next item that is done or given up, if there is one within a tick."""
        try:
            index, future = self.finished.get(timeout=TICK)
        except queue.Empty:
            return None
        del self.futures[index]
        outcome = self._outcome(index, future)
        if outcome is None:
            self.waiting.appendleft(index)
            return None
        self.outcomes[index] = outcome
        return index, outcome

    def _outcome(self, index: int, future: "Future[Any]") -> Outcome | None:
        """None if the item is to be tried again."""
        try:
            how, *rest = future.result()
        except (BrokenExecutor, CancelledError) as error:
            return self._after_death(index, error)
        except KeyboardInterrupt:  # a worker was asked to end
            return None
        except ZscopeError:  # of the executor: there are no workers any more
            raise
        except Exception as error:  # the item could not be sent, or its result not sent back
            how, rest = attempt(_raise, error)[0], list(attempt(_raise, error)[1:])
        if how == ENDED:
            return None
        if how == FAILED:
            return Outcome(error=rest[0], traceback=rest[1])
        assert how == DONE
        return Outcome(rest[0])

    def _after_death(self, index: int, error: BaseException) -> Outcome | None:
        self.deaths[index] += 1
        if self.deaths[index] < DEATHS:
            return None
        return Outcome(
            error=f"run_all: item {index} was given up: the worker that had it died {DEATHS} times "
            f"({_how_it_died(error)}). Was it killed for lack of memory? Use fewer jobs, a smaller "
            "batch or smaller data.",
            traceback=str(error),
        )

    def stop(self) -> None:
        """Cancel what waits; let what runs save and end."""
        self.waiting.clear()
        if isinstance(self.executor, Stoppable):
            self.executor.stop(self.owner)
            return
        for future in self.futures.values():
            future.cancel()
        stop_tasks(self.owner)  # those that run in threads of this process
        wait(self.futures.values(), timeout=GRACE)


def _adopt(executor: Executor) -> Executor:
    """The executor, or what is to be used in the place of Dask's own."""
    if type(executor).__module__ == "distributed.cfexecutor":
        from zscope.experiments.cluster import ClusterWorkers

        return ClusterWorkers(executor._client)  # type: ignore[attr-defined]
    return executor


def _raise(error: BaseException) -> None:
    raise error


def _how_it_died(error: BaseException) -> str:
    codes = re.search(r"exit codes of the workers are \{(.*)\}", str(error))
    return codes[1] if codes else type(error).__name__


def __dir__() -> list[str]:
    return sorted(__all__)

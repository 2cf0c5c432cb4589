"""Threads that call the model, so that the server never waits for one.

There are two lanes, each of which runs one call at a time: the live lane for short answers
(a moving slider), and the slow lane, with its own copy of the model, for long ones (a map,
a matrix). A model is never called from two threads at once, because `evaluation` and the
hooks of some assays change its modules during a call.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from zscope.autoencoder import Autoencoder
from zscope.errors import Stopped, ZscopeError

__all__ = ["Busy", "Lane", "ModelExit", "Stopped", "interruptible"]

MAX_WAITING = 64
CANCELLED = "explorer: the answer was cancelled, because the client has disconnected."


class Busy(ZscopeError):
    """Too many answers are waiting."""


class Job:
    """A call that is waiting, running or done."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.future: Future[Any] = Future()
        self.stop = threading.Event()


class Lane:
    """One thread, and a queue of calls for it."""

    def __init__(self, name: str) -> None:
        self._queue: queue.Queue[Job | None] = queue.Queue()
        self._current: Job | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"zscope-{name}", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any]) -> Job:
        if self._queue.qsize() >= MAX_WAITING or self._closed.is_set():
            raise Busy(
                f"explorer: {self._queue.qsize()} requests are waiting already. Are many pages "
                "open, or does a script send requests without waiting for answers? Try again later."
            )
        job = Job(call)
        self._queue.put(job)
        return job

    def check(self) -> None:
        """Raise `Stopped` if the running call was cancelled."""
        job = self._current
        if self._closed.is_set() or (job is not None and job.stop.is_set()):
            raise Stopped(CANCELLED)

    def close(self, patience: float = 5.0) -> bool:
        """Cancel all calls, and return whether the thread stopped within `patience` seconds."""
        self._closed.set()
        self._queue.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            if job.stop.is_set() or self._closed.is_set():
                job.future.set_exception(Stopped(CANCELLED))
                continue
            self._current = job
            try:
                job.future.set_result(job.call())
            except BaseException as error:
                # A model may raise anything, even SystemExit; the thread must survive it.
                job.future.set_exception(
                    error if isinstance(error, Exception) else ModelExit(error)
                )
            finally:
                self._current = None


class ModelExit(Exception):
    """The model tried to exit the program."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")


def interruptible(model: Autoencoder, check: Callable[[], None]) -> Autoencoder:
    """The same model, which runs `check` before each call of its encoder or decoder."""
    for name in ("encode", "decode"):
        setattr(model, name, _with_check(getattr(model, name), check))
    return model


def _with_check(call: Callable[..., Any], check: Callable[[], None]) -> Callable[..., Any]:
    def checked(*args: Any, **options: Any) -> Any:
        check()
        return call(*args, **options)

    return checked

"""Threads that call a model, one call after another, so that the server never waits for one.

Two lanes keep the page alive while something long is worked out: short answers (a slider
that moves) take one, long ones (a map, a matrix) the other, with a copy of the model of
its own. A model is never called from two threads at once: `evaluation` and the hooks of
some assays change its modules while they look.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from zscope.autoencoder import Autoencoder
from zscope.errors import ZscopeError

WAITING = 64


class Busy(ZscopeError):
    """More is asked for than can be worked out soon."""


class Stopped(ZscopeError):
    """Nobody waits for the answer any more."""


class Job:
    """A call that waits for its turn, runs, or has been made."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.future: Future[Any] = Future()
        self.stop = threading.Event()


class Lane:
    """One thread and the calls that wait for it."""

    def __init__(self, name: str) -> None:
        self._queue: queue.Queue[Job | None] = queue.Queue()
        self._current: Job | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"zscope-{name}", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any]) -> Job:
        if self._queue.qsize() >= WAITING or self._closed.is_set():
            raise Busy(
                f"explorer: {self._queue.qsize()} answers are waiting to be worked out already. "
                "Are many pages open, or is a script asking without waiting? Try again shortly."
            )
        job = Job(call)
        self._queue.put(job)
        return job

    def check(self) -> None:
        """Raise `Stopped` if nobody waits for the call that is running."""
        job = self._current
        if self._closed.is_set() or (job is not None and job.stop.is_set()):
            raise Stopped("explorer: the answer is no longer waited for.")

    def close(self, patience: float = 5.0) -> bool:
        """Give up what waits and what runs; whether the thread has ended in time."""
        self._closed.set()
        self._queue.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            if job.stop.is_set() or self._closed.is_set():
                job.future.set_exception(Stopped("explorer: the answer is no longer waited for."))
                continue
            self._current = job
            try:
                job.future.set_result(job.call())
            except BaseException as error:
                # A model may raise anything, SystemExit too; the thread must live on.
                job.future.set_exception(error if isinstance(error, Exception) else Ended(error))
            finally:
                self._current = None


class Ended(Exception):
    """The model tried to end the program."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")


def interruptible(model: Autoencoder, check: Callable[[], None]) -> Autoencoder:
    """The model itself, made to ask before each call whether anybody still waits."""
    for name in ("encode", "decode"):
        setattr(model, name, _checked(getattr(model, name), check))
    return model


def _checked(call: Callable[..., Any], check: Callable[[], None]) -> Callable[..., Any]:
    def checked(*args: Any, **options: Any) -> Any:
        check()
        return call(*args, **options)

    return checked

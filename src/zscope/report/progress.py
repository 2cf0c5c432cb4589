"""Progress of a measurement on a terminal, with the time left."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zscope.assays.run import Progress
from zscope.results import duration

__all__ = ["Watch", "show_progress"]

Watch = Callable[[Progress], None]


@contextmanager
def show_progress(progress: Watch | bool | None) -> Iterator[Watch | None]:
    """A function that shows progress: the one given, or a line on a terminal."""
    if callable(progress) or progress is False or not sys.stderr.isatty():
        yield progress if callable(progress) else None
        return
    from rich.console import Console

    with Console(stderr=True).status("encoding the data") as status:

        def update(step: Progress) -> None:
            left = "" if step.left is None else f", about {duration(step.left)} left"
            status.update(f"{step.name}  ({step.done + 1} of {step.total}{left})")

        yield update

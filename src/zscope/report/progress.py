"""Progress of a measurement in a terminal or notebook, with the time left."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zscope.assays.run import Progress
from zscope.notebook import Line, in_notebook
from zscope.results import duration

__all__ = ["Watch", "show_progress"]

Watch = Callable[[Progress], None]


@contextmanager
def show_progress(progress: Watch | bool | None) -> Iterator[Watch | None]:
    """A function that shows progress: the one given, or a line in a terminal or notebook."""
    if callable(progress) or progress is False:
        yield progress if callable(progress) else None
        return
    if in_notebook():
        line = Line()
        line.show("encoding the data")

        def show(step: Progress) -> None:
            line.show(text_of(step), step.done / step.total)

        yield show
        line.show("measured", 1.0, last=True)
        return
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("encoding the data") as status:

        def update(step: Progress) -> None:
            status.update(text_of(step))

        yield update


def text_of(step: Progress) -> str:
    """The assay that runs, its number, and the time left."""
    left = "" if step.left is None else f", about {duration(step.left)} left"
    return f"{step.name}  ({step.done + 1} of {step.total}{left})"

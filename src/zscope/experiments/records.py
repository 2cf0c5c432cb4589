"""Results that are a table with columns of their own, and the progress of long work."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from zscope.assays.run import Progress
from zscope.results import Result, frame_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Clock", "Tabular", "Watch"]

Watch = Callable[[Progress], None]


class Tabular(Result):
    """A result that is a table: `records` are its rows, `columns` their keys."""

    columns: ClassVar[tuple[str, ...]] = ()

    def records(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def to_frame(self, assay: str = "") -> "pd.DataFrame":
        """The table as a pandas DataFrame."""
        return frame_of(self.records(), self.columns)


class Clock:
    """Reports each of `total` pieces of work before it is done, with the time left."""

    def __init__(self, total: int, progress: Watch | None) -> None:
        self._total, self._progress = total, progress
        self._done = 0
        self._start = time.perf_counter()

    def __call__(self, name: str) -> None:
        if self._progress is not None:
            spent = time.perf_counter() - self._start
            left = spent / self._done * (self._total - self._done) if self._done else None
            self._progress(Progress(name, self._done, self._total, left))
        self._done += 1

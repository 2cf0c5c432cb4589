"""The progress of a sweep: a live table in a terminal, a few lines in a log."""

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zscope.collection.reasons import group_reasons
from zscope.notebook import Line, in_notebook

if TYPE_CHECKING:
    from zscope.experiments.sweeps import Status, Sweep

__all__ = ["Lines", "Live", "NotebookCounts", "Watch", "show"]

Report = Callable[["Sweep", "Status"], None]
LOOK = 2.0
"""Seconds between two looks at the folders of all runs, at least."""
SHARE = 20
"""How many times as long as a look the pause after it is: looks must not hold up the work."""
SHOWN = 8
"""Running runs in the live table."""


class Watch:
    """Shows nothing; `report` gets the status every few seconds."""

    def __init__(self, sweep: "Sweep", report: Report | None = None) -> None:
        self.sweep, self.report, self._next = sweep, report, 0.0
        self._busy = threading.Lock()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def tick(self) -> None:
        """Report, if it is time and no other thread is at it."""
        begun = time.monotonic()
        if self.report is None or begun <= self._next or not self._busy.acquire(blocking=False):
            return
        try:
            self.report(self.sweep, self.sweep.status())
            ended = time.monotonic()
            self._next = ended + max(LOOK, SHARE * (ended - begun))
        finally:
            self._busy.release()


class Lines(Watch):
    """A line at every tenth of the sweep and at least every minute, for logs."""

    def __init__(self, sweep: "Sweep") -> None:
        super().__init__(sweep, self._print)
        self._tenth, self._printed = -1, time.monotonic()

    def _print(self, sweep: "Sweep", status: "Status") -> None:
        tenth = 10 * len(status.done) // max(1, status.total)
        late = time.monotonic() - self._printed > 60
        if tenth > self._tenth or late:
            self._tenth, self._printed = tenth, time.monotonic()
            print(status.counts(), file=sys.stderr, flush=True)


class Live(Watch):
    """Counts, the running configurations and the time left, redrawn in place."""

    def __init__(self, sweep: "Sweep") -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        super().__init__(sweep, self._draw)
        self._live = RichLive(console=Console(stderr=True), refresh_per_second=2, transient=True)

    def __enter__(self) -> "Live":
        self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.stop()

    def _draw(self, sweep: "Sweep", status: "Status") -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_row(Text(status.counts(), style="bold"), "")
        for name, text in list(status.running.items())[:SHOWN]:
            table.add_row(Text(name), Text(text, style="dim"))
        if len(status.running) > SHOWN:
            table.add_row(Text(f"… {len(status.running) - SHOWN} more"), "")
        for name, reason, _ in group_reasons(status.failed)[:3]:
            table.add_row(Text(name, style="red"), Text(reason, overflow="ellipsis", no_wrap=True))
        self._live.update(table)


class NotebookCounts(Watch):
    """Counts below the cell of a notebook, with a bar."""

    def __init__(self, sweep: "Sweep") -> None:
        super().__init__(sweep, self._show)
        self._line = Line()

    def __exit__(self, *error: Any) -> None:
        self._show(self.sweep, self.sweep.status())

    def _show(self, sweep: "Sweep", status: "Status") -> None:
        share = len(status.done) / max(1, status.total)
        self._line.show(status.counts(), share, last=True)


def show(sweep: "Sweep", progress: Report | bool | None) -> Watch:
    """The right kind for where the output goes; None: a live one where one can be shown."""
    if callable(progress):
        return Watch(sweep, progress)
    if progress is False:
        return Watch(sweep)
    if in_notebook():
        return NotebookCounts(sweep)
    if sys.stderr.isatty():
        return Live(sweep)
    return Lines(sweep) if progress else Watch(sweep)

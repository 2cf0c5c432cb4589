"""One display for work in several parts, with the time left for all of them.

    whole = Whole(None, {"restarts": 30_000, "modifier": 10_000})
    with whole.part("restarts") as tick:
        tick(0.5)

The amounts of work are in any unit, the same for all parts. The time left is that of the
current part at its own speed, and that of the parts to come at the mean speed so far.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zscope.notebook import Line, in_notebook
from zscope.results import duration

__all__ = ["Whole"]

Tick = Callable[[float], None]


class Whole:
    """Shows the part that is being worked on, the share done and the time left.

    `show` is None for a bar in a terminal or notebook, True for lines in a log too, False for
    nothing.
    """

    def __init__(
        self,
        show: bool | None,
        parts: Mapping[str, float] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._work: dict[str, float] = dict(parts or {})
        self._done: dict[str, float] = {}  # in the unit of the work
        self._seconds: dict[str, float] = {}
        self._part: str | None = None
        self._printed = 0.0
        live = sys.stderr.isatty() or in_notebook()
        self.shown = live if show is None else bool(show)
        self._line = Line() if self.shown and in_notebook() else None
        self._bar: Any = _bar() if self.shown and live and self._line is None else None

    def expect(self, part: str, work: float) -> None:
        """Add a part; one that is known already keeps its amount of work."""
        self._work.setdefault(part, float(work))

    @property
    def share(self) -> float:
        """How much of all work is done."""
        return sum(self._done.values()) / max(sum(self._work.values()), 1e-12)

    @property
    def left(self) -> float | None:
        """Seconds until all parts are done; None before anything is."""
        done, seconds = sum(self._done.values()), sum(self._seconds.values())
        if not done or self.share >= 1:
            return None
        total = 0.0
        for part, work in self._work.items():
            rest = work - self._done.get(part, 0.0)
            own = self._done.get(part, 0.0)
            speed = own / self._seconds[part] if own and self._seconds[part] > 0 else done / seconds
            total += rest / max(speed, 1e-12)
        return total

    @contextmanager
    def part(self, name: str) -> Iterator[Tick]:
        """Work on a part; the tick takes the share of it that is done."""
        self.expect(name, 0.0)
        start, self._part = self._clock(), name
        self._seconds[name] = 0.0

        def tick(share: float) -> None:
            self._seconds[name] = self._clock() - start
            done = min(share, 1.0) * self._work[name]
            self._done[name] = max(done, self._done.get(name, 0.0))
            self._print()

        self._print(new=True)
        if self._bar is not None:
            self._bar.start()
        try:
            yield tick
            self._seconds[name] = self._clock() - start
            self._done[name] = self._work[name]
            self._print()
        finally:
            if self._bar is not None:
                self._bar.stop()

    def _print(self, *, new: bool = False) -> None:
        left = self.left
        rest = "" if left is None else f"about {duration(left)} left"
        if self._line is not None:
            share = self.share
            text = ", ".join(each for each in (self._part, rest) if each)
            self._line.show(text, share, last=share >= 1)
        elif self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=self.share, description=self._part, text=rest)
        elif self.shown and (new or self.share >= self._printed + 0.1):
            self._printed = self.share
            line = f"{self._part}: {int(100 * self.share)} % of all work done"
            print(f"{line}, {rest}" if rest else line, file=sys.stderr, flush=True)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
        console=Console(stderr=True),
    )
    bar.add_task("", total=1.0, text="")
    return bar

"""The progress of a run: a live bar in a terminal or notebook, a few lines in a log."""

import sys
import time
from typing import Any

from zscope.notebook import Line, in_notebook
from zscope.results import duration

__all__ = ["Bar", "Lines", "NotebookBar", "Progress", "collapse_warning", "sentence", "show"]

NAMES = {"reconstruction": "rec", "divergence": "KL"}


class Progress:
    """Shows nothing, for quiet runs."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def update(self, step: int, row: dict[str, Any] | None) -> None:
        return None


class Bar(Progress):
    """A bar with step, loss, its terms, the types of the latents and the time left."""

    def __init__(self, steps: int, first: int, title: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(title, total=steps, completed=first, text="")
        self._refreshed = 0.0

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.stop()

    def update(self, step: int, row: dict[str, Any] | None) -> None:
        now = time.monotonic()
        if row is not None:
            self._bar.update(self._task, completed=step, text=sentence(row))
        elif now - self._refreshed > 0.1:
            self._bar.update(self._task, completed=step)
            self._refreshed = now


class NotebookBar(Progress):
    """The same below the cell of a notebook."""

    def __init__(self, steps: int, first: int, title: str) -> None:
        self._line, self._steps, self._title, self._first = Line(), steps, title, first
        self._start, self._text = time.monotonic(), ""

    def update(self, step: int, row: dict[str, Any] | None) -> None:
        if row is not None:
            self._text = sentence(row)
        done = step - self._first
        left = (time.monotonic() - self._start) / done * (self._steps - step) if done else 0
        rest = f"  {duration(left)} left" if done and step < self._steps else ""
        text = f"{self._title}: step {step:,} of {self._steps:,}  {self._text}{rest}"
        self._line.show(text, step / self._steps, last=step == self._steps)


class Lines(Progress):
    """A line at every tenth of the run, for logs."""

    def __init__(self, steps: int, first: int, title: str) -> None:
        self._steps, self._title = steps, title
        self._next = first
        self._start, self._first = time.monotonic(), first

    def update(self, step: int, row: dict[str, Any] | None) -> None:
        if row is None or (step < self._next and step < self._steps):
            return
        self._next = step + max(1, self._steps // 10)
        done = step - self._first
        spent = time.monotonic() - self._start
        left = spent / done * (self._steps - step) if done else 0
        rest = f"  {duration(left)} left" if done and step < self._steps else ""
        print(
            f"{self._title}: step {step} of {self._steps}  {sentence(row)}{rest}",
            file=sys.stderr,
            flush=True,
        )


def sentence(row: dict[str, Any]) -> str:
    """The numbers of a row to display."""
    counts = ("format", "step", "active", "mixed", "passive", "variance")
    parts = [f"{NAMES.get(k, k)} {v:.4g}" for k, v in row.items() if k not in counts]
    if "active" in row:
        parts.append(f"{row['active']} active, {row['mixed']} mixed, {row['passive']} passive")
        parts.append(f"Σσ² {row['variance']:.2f}")
    return "  ".join(parts)


def collapse_warning(row: dict[str, Any], unit: str = "latent") -> str | None:
    """What to say of a model whose latents are all passive in this row of the history.

    `unit` is what the row counts: "latent", or "channel" of maps.
    """
    if row.get("passive", 0) == 0 or row["active"] or row["mixed"]:
        return None
    total = f"The only {unit} is" if row["passive"] == 1 else f"All {row['passive']} {unit}s are"
    return (
        f"Warning: {total} passive after {row['step']:,} steps: the posterior equals the prior, so "
        "the codes say nothing about the data. Train longer or with a larger rate, lower β, or "
        "choose another backbone."
    )


def show(progress: bool | None, steps: int, first: int, title: str) -> Progress:
    """The right kind for where the output goes; None means a bar, where one can be shown."""
    if progress is False:
        return Progress()
    if in_notebook():
        return NotebookBar(steps, first, title)
    if sys.stderr.isatty():
        return Bar(steps, first, title)
    return Lines(steps, first, title) if progress else Progress()

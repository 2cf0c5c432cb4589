"""Note each training that begins or ends: a line of a file that several processes write to.

Imported by a worker whose environment has PLACE (by Dask if --preload names it, by loky to begin
with `begin_noted_worker`), it notes the trainings of that worker there.

    begun RUN STEP
    finished RUN
"""

import io
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from zscope import interrupts, store
from zscope.experiments import workers
from zscope.training import ensemble, keeping, loop

PLACE = "ZSCOPE_NOTE_TRAININGS"


def note_trainings(file: Path) -> None:
    """From here on, note the trainings of this process."""

    def note(*words: Any) -> None:
        with io.FileIO(file, "ab") as stream:
            stream.write((" ".join(map(str, words)) + "\n").encode())

    class Noted(keeping.History):
        def __init__(self, run: store.Run, first: int) -> None:
            note("begun", run.name, first)
            super().__init__(run, first)

    def save(run: store.Run) -> None:
        before = store.open_run(run.path).finished if store.is_run(run.path) else False
        unpatched(run)
        if run.finished and not before:
            note("finished", run.name)

    unpatched = store.Run.save
    store.Run.save = save  # type: ignore[method-assign]
    workers.begin_worker = begin_noted_worker
    loop.History = ensemble.History = Noted  # type: ignore[misc,attr-defined]


def begin_noted_worker(parent: Any) -> None:
    """As any worker begins; whoever unpickles this has imported this module."""
    interrupts.begin_worker(parent)


def read_trainings(file: Path, groups: list[list[str]]) -> dict[str, list[int]]:
    """The steps at which the trainings of each run began; none twice, and none further back.

    Members of a group, which are trained together, are finished when all of them are.
    """
    members = {name: set(group) for group in groups for name in group}
    begun: dict[str, list[int]] = defaultdict(list)
    finished: set[str] = set()
    for line in file.read_text().splitlines() if file.exists() else ():
        what, name, *step = line.split()
        if what == "finished":
            finished.add(name)
        else:
            assert not members.get(name, {name}) <= finished, f"{name} was trained twice"
            begun[name].append(int(step[0]))
    assert all(steps == sorted(steps) for steps in begun.values()), begun
    return begun


if PLACE in os.environ:
    note_trainings(Path(os.environ[PLACE]))

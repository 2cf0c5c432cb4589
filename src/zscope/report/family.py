"""The page of a sweep: its table, its figures, what differs between rows, and its runs."""

import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from zscope.collection import Runs, runs
from zscope.collection.reasons import Reason, group_reasons
from zscope.documents import is_run
from zscope.errors import Undefined, ZscopeError
from zscope.report.build import files_of, write_all
from zscope.report.page import style, template
from zscope.results import listed
from zscope.tables import Table, numbers_of, table
from zscope.tables.pairs import key_text
from zscope.tables.statistics import ENOUGH

__all__ = ["FamilyReport", "family_report", "files_of_family", "has_runs"]

Drawings = Mapping[str, Callable[[], Any]]  # by caption

SCORES, LEVELS, LISTED = 12, 6, 300
"""The most scores that are drawn, panels of one score, and runs in the list."""
ROOM = 8_000_000
"""Characters that all pictures together may take, so that the page stays below 10 MB."""


def has_runs(target: str) -> bool:
    """Whether a target is a sweep or a folder of runs, and not a model."""
    from zscope.collection.index import stamps_below

    path = Path(target)
    if not path.is_dir() or is_run(path):
        return False
    return (path / "sweep.json").is_file() or bool(stamps_below(path))


@dataclass(frozen=True, eq=False)
class FamilyReport:
    """Many runs on one page. `table` has the means, `problems` runs that have none."""

    title: str
    command: str
    runs: Runs
    table: Table

    @property
    def problems(self) -> list[tuple[str, str, str]]:
        """Runs that are not in the table: name, state, and the first line of the reason."""
        failed = [(name, "failed", reason) for name, reason in self.runs.failed.items()]
        damaged = [(name, "damaged", reason) for name, reason in self.runs.damaged.items()]
        seen = {name for name, _, _ in [*failed, *damaged]}
        status = {row["run"]: row["status"] for row in self.runs.rows}
        rest = [
            (name, status.get(name, "not begun"), "")
            for name in [*self.runs.unfinished, *self.runs.missing]
            if name not in seen
        ]
        return [*failed, *damaged, *rest]

    @property
    def grouped_problems(self) -> list[tuple[Reason, str]]:
        """The problems of the same state and reason as one, and the state."""
        states: dict[str, dict[str, str]] = {}
        for name, state, reason in self.problems:
            states.setdefault(state, {})[name] = reason
        return [(each, state) for state, group in states.items() for each in group_reasons(group)]

    def to_dict(self) -> dict[str, Any]:
        names = ("run", "status", "reason")
        problems = [dict(zip(names, each, strict=True)) for each in self.problems]
        about = {"title": self.title, "command": self.command, "runs": len(self.runs)}
        return {"format": 1, **about, "table": self.table.to_dict(), "problems": problems}

    def save(self, path: str | Path) -> Path:
        """Write the page (.html, with its numbers as NAME-table.json), or the table alone."""
        path = Path(path)
        contents = {}
        for file in files_of_family(path):
            suffix = file.suffix.lower()
            if suffix == ".html":
                contents[file] = page(self, path).encode(errors="replace")
            elif suffix == ".json":
                contents[file] = json.dumps(self.to_dict(), indent=1).encode()
            else:
                contents[file] = self.table.to_bytes(suffix[1:])
        write_all(contents)
        return path


def files_of_family(path: Path) -> list[Path]:
    """The files of a page of this name. Its numbers are not called sweep.json, as the plan is."""
    files = files_of(path)
    return [path, path.with_name(f"{path.stem}-table.json")] if len(files) > 1 else files


def family_report(
    target: str, columns: Sequence[str] | None = None, *, command: str = ""
) -> FamilyReport:
    """The page of a sweep or of a folder of runs; `columns` as in a table (default: all)."""
    collection = runs(target)
    return FamilyReport(target, command, collection, table(collection, columns or None))


def page(report: FamilyReport, place: Path) -> str:
    """The page as text, with links that are right for a file at `place`."""
    from zscope import __version__

    links = list(_linked(report.runs, place.absolute().parent))
    return template("sweep.html").render(
        report=report,
        version=__version__,
        target=shlex.quote(report.title),
        numbers=files_of_family(place)[-1].name,
        table=report.table,
        facts=_facts(report.runs),
        figures=list(_figures(report)),
        problems=report.grouped_problems[:LISTED],
        more_problems=max(0, len(report.grouped_problems) - LISTED),
        runs=links[:LISTED],
        more_runs=max(0, len(links) - LISTED),
        example=next((path for path, address, _ in links if not address), None),
        style=style(),
    )


def _facts(collection: Runs) -> list[str]:
    """What the runs are, in a few words each."""
    counts = Counter(row["status"] for row in collection.rows)
    facts = [", ".join(f"{count:,} {status}" for status, count in counts.most_common())]
    if collection.missing:
        facts.append(f"{len(collection.missing):,} not begun")
    for name in collection.varying():
        levels = [key_text(each) for each in collection.levels(name) if each is not None]
        few = len(levels) <= LEVELS
        facts.append(f"{name}: {', '.join(levels)}" if few else f"{len(levels)} values of {name}")
    return facts


def _linked(collection: Runs, folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each run: its path for a shell, the address of its own report ("" if there is none), its row.

    Those with a report come first.
    """
    without = []
    for row in collection.rows:
        file = collection.folder / row["run"] / "report.html"
        place = shlex.quote(os.path.relpath(file.parent))
        if file.is_file():
            yield place, quote(Path(os.path.relpath(file.absolute(), folder)).as_posix()), row
        else:
            without.append((place, "", row))
    yield from without


def _figures(report: FamilyReport) -> Iterator[dict[str, Any]]:
    """Titles with their figures; what cannot be drawn says why."""
    from zscope import plots

    collection = report.runs.select(status="finished")
    settings = set(collection.columns.fields.values())
    columns = {name: collection.columns.resolve(name, "report") for name in report.table.columns}
    # A score that is the same in all runs has nothing to show that the table does not.
    measured = {
        name: {*collection.levels(column)} - {None}
        for name, column in columns.items()
        if column not in settings
    }
    scores = [name for name, values in measured.items() if len(values) > 1]
    constant = [name for name, values in measured.items() if len(values) == 1]
    axis, line, panel = _axes(collection)
    room = ROOM
    drawings: list[tuple[str, Drawings]] = []
    if axis is not None and panel is None:
        lines: Drawings = {
            score: partial(plots.score_lines, collection, score, axis, line)
            for score in scores[:SCORES]
        }
        drawings += [(f"Scores against {axis}", lines)] if lines else []
    elif axis is not None:
        for score in scores[:SCORES]:
            parts: Drawings = {
                name: partial(plots.score_lines, part, score, axis, line)
                for name, part in _parts(collection, panel).items()
            }
            drawings.append((f"{score} against {axis}", parts))
    if len(scores) > 1:
        other = next((s for s in scores if s.split(".")[0] != scores[0].split(".")[0]), scores[1])
        matrix = partial(plots.rank_correlations, collection, scores)
        points = partial(_points, collection, scores[0], other, line)
        named_points = f"{scores[0]} against {other}, each run"
        drawings.append(
            ("Scores against each other", {"rank correlations": matrix, named_points: points})
        )
    for title, parts in drawings:
        item = _draw(title, parts, room)
        room -= sum(len(drawing.address) for drawing, _ in item["figures"])
        yield item
    if constant:
        why = f"Not drawn, because they have one value in all runs: {listed(constant)}."
        yield {"title": "Constant scores", "figures": [], "undrawn": why}
    if axis is not None and (rest := scores[SCORES:]):
        why = f"Not drawn, to keep the page short: {listed(rest)}. See the end of the page."
        yield {"title": f"{len(rest)} more scores", "figures": [], "undrawn": why}


def _points(collection: Runs, score: str, against: str, line: str | None) -> Any:
    """Two scores of each run, unless there are too few points to say anything."""
    from zscope import plots

    names = [collection.columns.resolve(name, "report") for name in (score, against)]
    points = {tuple(row.get(name) for name in names) for row in collection.rows}
    different = sum(None not in point for point in points)
    if different < ENOUGH:
        raise Undefined(
            f"not drawn: the runs have {different} different points, and fewer than {ENOUGH} say "
            "nothing about how two scores go together. Train or measure more runs."
        )
    return plots.score_scatter(collection, score, against, line)


def _axes(collection: Runs) -> tuple[str | None, str | None, str | None]:
    """What scores are drawn against, the setting of the lines, and the setting of the panels."""
    varying = [name for name in collection.varying() if not collection.columns.is_seed(name)]
    levels = {name: collection.levels(name) for name in varying}
    numeric = [
        name for name in varying if numbers_of([each for each in levels[name] if each is not None])
    ]
    axis = max(numeric, key=lambda name: len(levels[name]), default=None)
    rest = [name for name in varying if name != axis and len(levels[name]) <= LEVELS]
    rest.sort(key=lambda name: (name != "model", name in numeric))
    line, panel = [*rest, None, None][:2]
    return axis, line, panel


def _parts(collection: Runs, panel: str | None) -> dict[str, Runs]:
    """The runs for each panel of a figure, by its caption."""
    if panel is None:
        return {"": collection}
    groups = list(collection.groups(panel))[:LEVELS]
    return {f"{panel}: {key_text(key[panel])}": group for key, group in groups}


def _draw(title: str, drawings: Drawings, room: int) -> dict[str, Any]:
    from zscope.report import pictures

    if room <= 0:
        reason = "The figure was left out to keep the page small."
        return {"title": title, "figures": [], "undrawn": reason}
    figures: list[tuple[pictures.Drawing, str]] = []
    reasons: dict[str, None] = {}
    for caption, draw in drawings.items():
        try:
            figures.append((pictures.draw(draw(), f"{title}-{caption}"), caption))
        except ZscopeError as error:
            reasons[f"{caption}: {error}" if caption else str(error)] = None
    return {"title": title, "figures": figures, "undrawn": " ".join(reasons)}

"""Many runs as one table: `zs.runs(path)`.

    runs = zs.runs("runs/beta")
    runs.to_frame()
    for key, group in runs.select(beta=[1, 4]).groups("model", "data"):
        ...

Settings, scores and the end of the history are read from the runs; an index makes it fast
(`zscope.collection.index`). The module has not the name of the function, which importing it
would hide.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zscope.collection.columns import Columns, choose_entries, columns_of, follows_model, rows_of
from zscope.collection.index import read_all, stamps_below, stamps_of
from zscope.documents import is_run, read_json
from zscope.errors import MissingExtra, RunError
from zscope.files import as_path
from zscope.results import html_table, text_table

if TYPE_CHECKING:
    import pandas as pd

    from zscope.store import Run

__all__ = ["Runs", "runs", "sort_key"]

Row = dict[str, Any]

SHOWN = 10
WIDEST = 8
"""Rows and columns of a table that is printed."""


def runs(path: str | Path) -> "Runs":
    """The runs of a sweep, all runs in a folder and the folders below it, or a single run."""
    path = as_path("runs", path)
    if (path / "sweep.json").is_file():
        return _runs_of_sweep(path)
    if is_run(path):
        path = path.absolute()
        return _collect(path.parent, stamps_of(path.parent, [path.name]), whole=False)
    if not path.is_dir():
        raise RunError(
            f"runs: there is no folder {path}. Name the folder of a sweep, a folder with runs in "
            "it, or a run."
        )
    stamps = stamps_below(path)
    if not stamps:
        raise RunError(
            f"runs: there is no run in {path}. Train some with: zscope sweep run FILE --out {path}"
        )
    return _collect(path, stamps, whole=True)


def _runs_of_sweep(path: Path) -> "Runs":
    content = read_json(path / "sweep.json")
    try:
        names = [str(each["name"]) for each in content["runs"]]
        folder = path / content.get("runs_folder", "runs")
        assay = dict(content.get("assay") or {})
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"runs: {path / 'sweep.json'} has no list of runs ({type(error).__name__}: {error}). "
            "Was it edited? Write it again: zscope sweep run FILE --out " + str(path)
        ) from None
    stamps = stamps_of(folder, names)
    collection = _collect(folder, stamps, whole=False, assay=assay)
    short = collection.columns.fields
    planned = {
        each["name"]: {short.get(k, k): v for k, v in (each.get("fields") or {}).items()}
        for each in content["runs"]
        if each["name"] not in stamps
    }
    return replace(collection, planned=planned, failed=_failures(path / "failed", names))


def _failures(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Why runs of a sweep failed: the first line of the file of each."""
    failures = {}
    planned = set(names)
    for file in sorted(folder.glob("*.txt")):
        if file.stem in planned:
            try:
                failures[file.stem] = (file.read_text("utf-8", "replace").splitlines() or [""])[0]
            except OSError as error:
                failures[file.stem] = f"{file} cannot be read ({error.strerror})"
    return failures


def _collect(
    folder: Path, stamps: Mapping[str, str], *, whole: bool, assay: dict[str, Any] | None = None
) -> "Runs":
    records = read_all(folder, stamps, whole=whole)
    columns = columns_of(records.values())
    assay = assay or {}
    rows = rows_of(records, columns, lambda entries: _choose(entries, assay))
    return Runs(folder, records, columns, rows, assay)


def _choose(entries: Sequence[Row], assay: Mapping[str, Any]) -> Row:
    """Of measurements of one assay, oldest first: the newest of those that a sweep asks for."""
    if len(entries) == 1:
        return entries[0]
    request = (assay.get("requests") or {}).get(entries[0]["assay"])
    if not isinstance(request, Mapping):
        return entries[-1]
    asked = [e for e in entries if all(e.get(key) == value for key, value in request.items())]
    return (asked or list(entries))[-1]


@dataclass(frozen=True, eq=False, repr=False)
class Runs:
    """Runs as rows of a table; iterating over them opens one after the other."""

    folder: Path
    records: Mapping[str, Mapping[str, Any]]
    columns: Columns
    rows: list[Row]  # plain dicts of what each run has, by the short names of columns
    assay: Mapping[str, Any]  # how a sweep measures
    planned: dict[str, Row] = field(default_factory=dict)  # settings of runs not begun
    failed: dict[str, str] = field(default_factory=dict)  # first line of the reason

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> "Iterator[Run]":
        from zscope.store import open_run

        return (open_run(self.folder / row["run"]) for row in self.rows)

    @property
    def paths(self) -> list[Path]:
        return [self.folder / row["run"] for row in self.rows]

    @property
    def missing(self) -> list[str]:
        """Runs that a sweep plans and that have not begun."""
        return list(self.planned)

    @property
    def unfinished(self) -> list[str]:
        """Runs that were begun and have not finished."""
        return [row["run"] for row in self.rows if row["status"] not in ("finished", "damaged")]

    @property
    def damaged(self) -> dict[str, str]:
        """What is wrong with the files of a run, by its name."""
        return {row["run"]: row["problem"] for row in self.rows if "problem" in row}

    def select(self, **fields: Any) -> "Runs":
        """The runs with this value, or one of these values, in every named column."""
        wanted = [
            (self.columns.resolve(name, "select"), _alternatives(value))
            for name, value in fields.items()
        ]
        rows = [
            row
            for row in self.rows
            if all(_is_one_of(row.get(name), values) for name, values in wanted)
        ]
        planned = {
            run: row
            for run, row in self.planned.items()
            if all(name not in row or _is_one_of(row[name], values) for name, values in wanted)
        }
        return replace(self, rows=rows, planned=planned)

    def groups(self, *fields: str) -> Iterator[tuple[Row, "Runs"]]:
        """Runs with the same values in these columns: (values by name, runs), in order."""
        names = [self.columns.resolve(each, "groups") for each in fields]
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row.get(name) for name in names), []).append(row)
        for key in sorted(groups, key=lambda key: [sort_key(value) for value in key]):
            yield dict(zip(names, key, strict=True)), replace(self, rows=groups[key], planned={})

    def levels(self, column: str) -> list[Any]:
        """The different values of a column, None if a run has none."""
        return sorted({row.get(column) for row in self.rows}, key=sort_key)

    def varying(self) -> list[str]:
        """Settings, seeds too, that are not the same in all runs that can be read.

        An option that only some of the models have, always with one value, follows from the
        model.
        """
        return list(self._varying)

    @cached_property
    def _varying(self) -> list[str]:
        rows = [row for row in self.rows if row["status"] != "damaged"]
        fields = [each for each in self.columns.fields.items() if self.columns.is_setting(each[1])]
        levels = {short: {row.get(short) for row in rows} for _, short in fields}
        models = len(levels.get("model", ()))
        return [
            short
            for long, short in fields
            if len(levels[short]) > 1 and not follows_model(long, levels[short], models)
        ]

    def scores(self) -> list[str]:
        """The columns that were measured by assays, as far as these runs have them."""
        return [name for name in self.columns.scores if any(name in row for row in self.rows)]

    def entries(self, run: str) -> dict[str, Row]:
        """What was measured of a run, by assay: its scores, or why there are none (`missing`), the
        number of samples, and how many latents are in use (`used`)."""
        return choose_entries(self.records[run], lambda entries: _choose(entries, self.assay))

    def differences(self, columns: Sequence[str] | None = None) -> list[str]:
        """What else differs between the runs and could change their numbers, a line each.

        The versions, machine and threads they were trained with, and options, samples and
        source of the assays behind `columns` (default: all).
        """
        records = [self.records[row["run"]] for row in self.rows]
        lines = []
        for key, what in _ENVIRONMENT.items():
            values = [each.get("environment", {}).get(key) for each in records]
            lines += _difference(what, values)
        names = self.columns.scores if columns is None else columns
        assays = {name.partition(".")[0] for name in names if name in self.columns.scores}
        chosen = [self.entries(row["run"]) for row in self.rows]
        for assay in sorted(assays):
            entries = [each[assay] for each in chosen if assay in each]
            for key, what in _MEASUREMENT.items():
                lines += _difference(f"{what} of {assay}", [each.get(key) for each in entries])
        return lines

    def to_frame(self) -> "pd.DataFrame":
        """The rows as a pandas DataFrame; what a run does not have is missing."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("to_frame", "pandas", "frames") from None
        present = {name for row in self.rows for name in row}
        order = ["run", "status", "step", *self.columns.fields.values(), *self.columns.scores,
                 *self.columns.history, "problem"]  # fmt: skip
        return pd.DataFrame(self.rows, columns=[name for name in order if name in present])

    def __repr__(self) -> str:
        title, table, more = self._short_table()
        return "\n".join([title, *([text_table(table)] if table else []), *more])

    def _repr_html_(self) -> str:
        title, table, more = self._short_table()
        lines = [html_table([[line]], header=False) for line in [title, *more]]
        return f"<div>{lines[0]}{html_table(table)}{''.join(lines[1:])}</div>"

    def _short_table(self) -> tuple[str, list[list[str]], list[str]]:
        """A title, the first rows with the columns in which runs differ, and what is left out."""
        counts = Counter(row["status"] for row in self.rows)
        parts = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
        title = f"{len(self):,} runs in {self.folder}" + (f": {parts}" if parts else "")
        more = []
        if len(self) > SHOWN:
            more.append(f"… {len(self) - SHOWN:,} more runs: .rows or .to_frame()")
        if self.missing:
            more.append(f"planned and not begun: {len(self.missing):,}, see .missing")
        names = [*self.varying(), *self.scores()][:WIDEST]
        if not self.rows:
            return title, [], more
        table = [["run", *names, "status"]]
        for row in self.rows[:SHOWN]:
            table.append([row["run"], *(_text(row.get(name)) for name in names), row["status"]])
        return title, table, more


_ENVIRONMENT = {
    "zscope": "version of zscope", "torch": "version of torch", "numpy": "version of numpy",
    "machine": "machine", "threads": "threads", "device": "device", "trained": "trained",
}  # fmt: skip
_MEASUREMENT = {
    "options": "options", "samples": "samples", "seed": "seed",
    "zscope": "version of zscope", "source": "source code",
}  # fmt: skip


def _difference(what: str, values: Sequence[Any]) -> list[str]:
    """A line if the values are not all the same."""
    counts = Counter("unknown" if value is None else str(value) for value in values)
    if len(counts) < 2:
        return []
    shown = [
        f"{value} ({count:,} run{'' if count == 1 else 's'})"
        for value, count in counts.most_common(4)
    ]
    rest = f", and {len(counts) - 4} others" if len(counts) > 4 else ""
    return [f"{what} differs: {', '.join(shown)}{rest}"]


def _alternatives(value: Any) -> list[Any]:
    if isinstance(value, list | tuple | set | frozenset | range):
        return list(value)
    return [value]


def _is_one_of(value: Any, wanted: Sequence[Any]) -> bool:
    """True is not 1 here, although Python takes them for equal; 1.0 is."""
    return any(
        (value == each and isinstance(value, bool) == isinstance(each, bool))
        or (isinstance(value, str) and value == str(each))  # a list of one number
        for each in wanted
    )


def sort_key(value: Any) -> tuple[int, Any]:
    """Numbers before texts, and what is missing last."""
    if value is None:
        return 2, ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 1, str(value)
    return 0, value


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)

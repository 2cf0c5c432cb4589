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

from zscope.collection.columns import (
    WORDS,
    Columns,
    choose_entries,
    columns_of,
    follows_another,
    rows_of,
)
from zscope.collection.copies import Copy, merge_copies
from zscope.collection.index import cell, read_all, stamps_below, stamps_of
from zscope.documents import is_run, read_json
from zscope.errors import ConfigError, MissingExtra, RunError
from zscope.files import as_path
from zscope.results import html_table, text_table

if TYPE_CHECKING:
    import pandas as pd

    from zscope.store import Run

__all__ = ["Runs", "as_runs", "runs", "sort_key"]

Row = dict[str, Any]

SHOWN = 10
WIDEST = 8
"""Rows and columns of a table that is printed."""


def runs(path: str | Path) -> "Runs":
    """The runs of a sweep, all runs in a folder and the folders below it, or a single run.

    Runs with the same address or the same configuration are one run: the first is taken, with
    the scores that only its copies have, and `.copies` names the others.
    """
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


def as_runs(who: str, value: Any) -> "Runs":
    """Runs as they are, or those at a path."""
    if isinstance(value, Runs):
        return value
    if isinstance(value, str | Path):
        return runs(value)
    raise ConfigError(
        f"{who}: got a {type(value).__name__}; expected runs or the folder of some: zs.runs(FOLDER)"
    )


def _runs_of_sweep(path: Path) -> "Runs":
    content = read_json(path / "sweep.json")
    try:
        names = [str(each["name"]) for each in content["runs"]]
        folder = path / content.get("runs_folder", "runs")
        assay = dict(content.get("assay") or {})
        fields: dict[str, Row] = {
            str(each["name"]): dict(each.get("fields") or {}) for each in content["runs"]
        }
        assay["asked"] = ((content.get("plan") or {}).get("assay") or {}).get("names")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"runs: {path / 'sweep.json'} has no list of runs ({type(error).__name__}: {error}). "
            "Was it edited? Write it again: zscope sweep run FILE --out " + str(path)
        ) from None
    stamps = stamps_of(folder, names)
    collection = _collect(folder, stamps, whole=False, assay=assay, fields=fields)
    short = collection.columns.fields
    planned = {
        name: {short.get(k, k): cell(v) for k, v in fields[name].items()}
        for name in names
        if name not in stamps
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
    folder: Path,
    stamps: Mapping[str, str],
    *,
    whole: bool,
    assay: dict[str, Any] | None = None,
    fields: Mapping[str, Mapping[str, Any]] | None = None,
) -> "Runs":
    """The runs with these stamps; `assay` and `fields` are what a plan says of them."""
    found = read_all(folder, stamps, whole=whole)
    for name, words in (fields or {}).items():
        own = found.get(name, {}).get("fields")
        if own is not None:
            own |= {key: cell(words[key]) for key in WORDS if key in words}
    records, copies = merge_copies(found)
    assay = assay or {}
    columns = columns_of(records.values(), map(str, assay.get("names") or ()))
    rows = rows_of(records, columns, lambda entries: _choose(entries, assay))
    return Runs(folder, records, columns, rows, assay, copies=copies)


def _choose(entries: Sequence[Row], assay: Mapping[str, Any]) -> Row | None:
    """Of measurements of one assay, oldest first: the newest, or of a sweep that asks for it the
    newest of those that it asks for."""
    request = (assay.get("requests") or {}).get(entries[0]["assay"])
    if isinstance(request, Mapping):
        entries = [e for e in entries if all(e.get(key) == v for key, v in request.items())]
    return entries[-1] if entries else None


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
    copies: dict[str, Copy] = field(default_factory=dict)  # left out, as other runs are the same

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
        chosen = {row["run"] for row in rows}
        copies = {name: copy for name, copy in self.copies.items() if copy.of in chosen}
        return replace(self, rows=rows, planned=planned, copies=copies)

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
        name = self.columns.resolve(column, "levels")
        return sorted({row.get(name) for row in self.rows}, key=sort_key)

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
            if len(levels[short]) > 1 and not follows_another(long, levels[short], models)
        ]

    def scores(self) -> list[str]:
        """The columns that were measured by assays, as far as these runs have them."""
        return [name for name in self.columns.scores if any(name in row for row in self.rows)]

    def entries(self, run: str) -> dict[str, Row]:
        """What was measured of a run, by assay: its scores, or why there are none (`missing`), the
        number of samples, and how many latents are in use (`used`)."""
        return choose_entries(self.records[run], lambda entries: _choose(entries, self.assay))

    def asked(self) -> list[str]:
        """The assays that a sweep asks for by their names, and not with a group of them."""
        given = self.assay.get("asked")
        names = [given] if isinstance(given, str) else given or ()
        single = {str(name).replace("_", "-") for name in names}
        return [name for name in self.columns.asked if name in single]

    def why_not(self, run: str, assay: str) -> str:
        """Why a run has no score of an assay: "" if nothing says so."""
        entry = self.entries(run).get(assay)
        if entry is not None:
            return str(entry.get("missing") or "").rstrip(".")
        if any(each["assay"] == assay for each in self.records[run].get("entries", ())):
            return "measured with other options or samples: start the sweep again to measure it"
        return "not measured" if assay in self.columns.asked else ""

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
        if self.copies:
            more.append(f"copies of other runs, left out: {len(self.copies):,}, see .copies")
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

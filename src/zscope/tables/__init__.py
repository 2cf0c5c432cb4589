"""Tables of many runs: means with intervals, or differences between paired runs.

    table = zs.tables.table(zs.runs("runs/beta"), ["mig", "passive"], by=["model", "beta"])
    table.save("table.tex")

How means, intervals and verdicts are computed: `zscope.tables.statistics`.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zscope.collection import Runs, as_runs
from zscope.errors import ConfigError, MissingExtra, RunError, listed_names
from zscope.files import write_whole
from zscope.results import counted, html_table, listed, text_table
from zscope.tables.formats import (
    as_csv,
    as_markdown,
    as_parquet,
    as_tex,
    digits_of,
    number_with_error,
    plain_number,
)
from zscope.tables.pairs import ABSENT, key_text, match, numbers_of
from zscope.tables.statistics import (
    ENOUGH,
    EQUAL,
    Difference,
    Mean,
    difference_of,
    mean_of,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FORMATS", "Table", "format_of", "numbers_of", "table"]

Row = dict[str, Any]

FORMATS = {"csv": ".csv", "parquet": ".parquet", "json": ".json", "md": ".md", "tex": ".tex"}
MANY = 20
"""Comparisons from which it is said that some are called by chance."""
REASONS = 3
"""Reasons that a note gives why runs have no score."""


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table of runs: plain rows for programs, cells for people, and what must be known."""

    by: tuple[str, ...]
    columns: tuple[str, ...]
    paired: str  # the field whose levels are compared; "" for a table of means
    rows: list[Row]
    cells: list[list[str]]  # as printed, the header first
    left: int  # columns that are aligned to the left: the keys
    notes: list[str]

    @property
    def names(self) -> list[str]:
        """The columns of `rows`."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "Table",
            "by": list(self.by),
            "columns": list(self.columns),
            "paired": self.paired or None,
            "rows": self.rows,
            "notes": self.notes,
        }

    def to_frame(self) -> "pd.DataFrame":
        """The rows as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("to_frame", "pandas", "frames") from None
        return pd.DataFrame(self.rows, columns=self.names)

    def to_text(self, width: int | None = None) -> str:
        """Lines for a terminal; a table wider than `width` is divided, with its keys repeated."""
        blocks = [text_table(block, left=self.left) for block in self._blocks(width)]
        return "\n".join(["\n\n".join(blocks), *([""] if self.notes else []), *self.notes])

    def _blocks(self, width: int | None) -> list[list[list[str]]]:
        if width is None:
            return [self.cells]
        sizes = [2 + max(map(len, column)) for column in zip(*self.cells, strict=True)]
        blocks: list[list[int]] = [[]]
        room = width + 2 - sum(sizes[: self.left])
        for k in range(self.left, len(sizes)):
            if blocks[-1] and sum(sizes[each] for each in blocks[-1]) + sizes[k] > room:
                blocks.append([])
            blocks[-1].append(k)
        return [[row[: self.left] + [row[k] for k in block] for row in self.cells]
                for block in blocks]  # fmt: skip

    def to_bytes(self, format: str) -> bytes:
        """The table in one of the formats csv, parquet, json, md, tex or terminal."""
        writers: dict[str, Callable[[], str | bytes]] = {
            "csv": lambda: as_csv(self.rows, self.names),
            "parquet": lambda: as_parquet(self.rows, self.names),
            "json": lambda: json.dumps({"format": 1, **self.to_dict()}, indent=2) + "\n",
            "md": lambda: "\n".join([as_markdown(self.cells, self.left), *self._list(), ""]),
            "tex": lambda: as_tex(self.cells, self.left, self.notes) + "\n",
            "terminal": lambda: self.to_text() + "\n",
        }
        if format not in writers:
            raise ConfigError(
                f"table: no format is called {format!r}. Known: {', '.join(writers)}."
            )
        content = writers[format]()
        return content if isinstance(content, bytes) else content.encode()

    def _list(self) -> list[str]:
        return ["", *(f"- {note}" for note in self.notes)] if self.notes else []

    def save(self, path: str | Path, format: str | None = None) -> Path:
        """Write a file, by default in the format of its ending."""
        path = Path(path)
        write_whole(path, self.to_bytes(format or format_of(path)))
        return path

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        notes = "".join(f"<br>{escape(note)}" for note in self.notes)
        return f"<div>{html_table(self.cells, left=self.left)}<small>{notes}</small></div>"


def format_of(path: Path) -> str:
    """The format of a file by its ending."""
    for format, ending in FORMATS.items():
        if path.suffix.lower() == ending:
            return format
    raise ConfigError(
        f"table: {path} ends in {path.suffix or 'nothing'}; tables are saved as "
        f"{', '.join(FORMATS.values())}. Name the file table.csv, for instance."
    )


def table(
    runs: Runs | str | Path,
    columns: Sequence[str] | None = None,
    by: Sequence[str] | None = None,
    paired: str | None = None,
    *,
    seed: int = 0,
) -> Table:
    """Means of `columns` over finished runs with the same values in the fields `by`.

    `runs` are those of `zs.runs`, or their folder. By default all scores, and assays that a sweep
    asks for even if no run has a value, by all settings that vary except the seed. With `paired`,
    the differences between the levels of that field, of runs that agree in everything else.
    `seed` is that of the bootstrap.
    """
    runs = as_runs("table", runs)
    if not runs.rows and not runs.planned:
        raise RunError(
            f"table: nothing was selected: none of the runs in {runs.folder} has these settings. "
            "See the values of a setting with runs.levels(NAME)."
        )
    names = default_columns(runs) if columns is None else listed_names("table", "columns", columns)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"table: seed={seed!r:.60}; expected a whole number of at least 0.")
    keys = {runs.columns.label(n, "table"): runs.columns.resolve(n, "table") for n in names}
    finished = _finished(runs)
    pair = None
    if paired is not None:
        (name, *_) = listed_names("table", "paired", [paired])
        pair = finished.columns.resolve(name, "table")
    if by is None:
        is_seed = finished.columns.is_seed
        by = [] if pair else [each for each in finished.varying() if not is_seed(each)]
    grouping = dict.fromkeys(listed_names("table", "by", by))
    fields = [finished.columns.resolve(each, "table") for each in grouping]
    if pair is None:
        result = _means(finished, keys, fields)
    else:
        result = _differences(finished, keys, [each for each in fields if each != pair], pair, seed)
    logged = [label for label, column in keys.items() if column in runs.columns.history]
    notes = [f"{listed(logged)}: of the last batch that was logged in training"] if logged else []
    notes += [*(_empty(runs) if columns is None else []), *_copies(runs), *_left_out(runs)]
    notes += finished.differences(list(keys.values()))
    return replace(result, notes=[*result.notes, *notes])


def default_columns(runs: Runs) -> list[str]:
    """All scores, and assays that were asked for by name; the loss, where nothing was measured."""
    names = runs.scores() or [each for each in runs.columns.history if each == "history.loss"]
    measured = _measured(runs)
    names += [name for name in runs.asked() if name not in measured]
    if not names:
        raise RunError(
            f"table: none of the {len(runs):,} runs in {runs.folder} has a score. Measure them "
            "first: zscope assay RUN, or an [assay] table in the file of the sweep."
        )
    return names


def _measured(runs: Runs) -> set[str]:
    """The assays that at least one run has a score of."""
    return {name.partition(".")[0] for name in runs.scores()}


def _empty(runs: Runs) -> list[str]:
    """A line about assays of a group that was asked for, of which no run has a score."""
    named = {*_measured(runs), *runs.asked()}
    names = [name for name in runs.columns.asked if name not in named]
    return [f"Asked for with a group, and no run has a score: {listed(names)}"] if names else []


def _copies(runs: Runs) -> list[str]:
    """A line about runs that are there more than once."""
    copies = runs.copies
    if not copies:
        return []
    others = [name for name, copy in copies.items() if not copy.agrees]
    differ = f"; {len(others):,} of them have other numbers: {listed(others, 3)}" if others else ""
    return [
        f"{counted(len(copies), 'run')} left out as {'a copy' if len(copies) == 1 else 'copies'} "
        f"of others (same configuration and seed), the first by name is counted{differ}"
    ]


def _finished(runs: Runs) -> Runs:
    finished = replace(runs, rows=[row for row in runs.rows if row["status"] == "finished"])
    if not len(finished):
        planned = f" and {len(runs.missing):,} planned ones have not begun" if runs.missing else ""
        raise RunError(
            f"table: none of the {len(runs):,} runs has finished{planned}. Wait, or start them "
            "again: zscope sweep run FILE --out OUT"
        )
    return finished


def _left_out(runs: Runs) -> list[str]:
    """What the table does not show of these runs, a line each."""
    lines = []
    if names := runs.unfinished:
        lines.append(f"{counted(len(names), 'run')} not finished, left out: {listed(names, 3)}")
    damaged = [row["run"] for row in runs.rows if row["status"] == "damaged"]
    if damaged:
        lines.append(f"{counted(len(damaged), 'run')} damaged, left out: {listed(damaged, 3)}")
    if runs.missing:
        lines.append(
            f"{counted(len(runs.missing), 'planned run')} not begun: {listed(runs.missing, 3)}"
        )
    return lines


def _means(runs: Runs, keys: dict[str, str], by: list[str]) -> Table:
    groups = list(runs.groups(*by))
    rows: list[Row] = [{**key, "n": len(group)} for key, group in groups]
    cells = [[*by, "n"]]
    cells += [[*map(key_text, key.values()), f"{len(group):,}"] for key, group in groups]
    means: list[Mean] = []
    for label, column in keys.items():
        values = [[each[column] for each in group.rows if each.get(column) is not None]
                  for _, group in groups]  # fmt: skip
        column_means = [mean_of(each) if numbers_of(each) else None for each in values]
        means += filter(None, column_means)
        texts = _mean_texts(column_means)
        cells[0].append(label)
        for k, (_, group) in enumerate(groups):
            text = texts[k] or _values_text(values[k])
            rows[k] |= _plain_mean(label, column_means[k], text)
            partly = 0 < len(values[k]) < len(group)
            cells[k + 1].append(text + (f" (n={len(values[k])})" if partly else ""))
    notes = [*_notes_of_means(runs, by, means), *_lacking(runs, keys)]
    return Table(tuple(by), tuple(keys), "", rows, cells, len(by), notes)


def _lacking(runs: Runs, keys: dict[str, str]) -> list[str]:
    """How many runs have no value in a column, and why; columns with equal lines share one."""
    lines: dict[tuple[int, str], list[str]] = {}
    for label, column in keys.items():
        if without := [row["run"] for row in runs.rows if row.get(column) is None]:
            reasons = _reasons(runs, without, column)
            lines.setdefault((len(without), reasons), []).append(label)
    return [
        f"{count:,} of {len(runs):,} runs have no {listed(labels)}{reasons}"
        for (count, reasons), labels in lines.items()
    ]


def _reasons(runs: Runs, names: Sequence[str], column: str) -> str:
    """Why these runs have no value in a column of scores, the most frequent reasons first."""
    counts = Counter(runs.why_not(name, column.partition(".")[0]) for name in names)
    reasons = [(reason, count) for reason, count in counts.most_common() if reason]
    if not reasons:
        return ""
    alone = len(counts) == 1
    texts = [reason if alone else f"{reason} ({count:,})" for reason, count in reasons[:REASONS]]
    more = [f"and {len(reasons) - REASONS} other reasons"] if len(reasons) > REASONS else []
    return f": {'; '.join([*texts, *more])}"


def _mean_texts(means: Sequence[Mean | None]) -> list[str]:
    """0.312 ± 0.021, or the range (0.30 to 0.33), with as many digits in the whole column."""
    errors = [(mean.high - mean.low) / 2 for mean in means if mean and not mean.is_range]
    digits = sorted(each for each in map(digits_of, errors) if each is not None)
    usual = digits[len(digits) // 2] if digits else None
    texts = []
    for mean in means:
        if mean is None:
            texts.append("")
        elif mean.is_range:
            low, high = plain_number(mean.low), plain_number(mean.high)
            texts.append(low if low == high else f"{low} to {high}")
        else:
            error = (mean.high - mean.low) / 2
            texts.append(" ± ".join(number_with_error(mean.value, error, usual)))
    return texts


def _notes_of_means(runs: Runs, by: list[str], means: Sequence[Mean]) -> list[str]:
    notes = []
    if any(not mean.is_range for mean in means):
        notes.append("±: 95 % t-interval of the mean over n runs")
    if any(mean.is_range and mean.n > 1 for mean in means):
        notes.append("a to b: the range, where there are fewer than 3 runs")
    groups = [group for _, group in runs.groups(*by)]
    for name in runs.varying():
        levels = max((group.levels(name) for group in groups), key=len)
        if len(levels) > 1 and not runs.columns.is_seed(name) and name not in by:
            notes.append(
                f"Rows also average over {name} ({listed(map(key_text, levels), 6)}): add it to "
                "by for rows of their own"
            )
    settings = runs.varying()
    repeated = len(runs) - len({tuple(row.get(name) for name in settings) for row in runs.rows})
    if repeated and len(runs) > 1:
        notes.append(f"Runs with the same settings and seed as another one: {repeated:,}")
    return notes


def _values_text(values: Sequence[Any]) -> str:
    """The values of a column that has no mean."""
    return listed(dict.fromkeys(map(key_text, values)), 3) if values else ABSENT


def _plain_mean(label: str, mean: Mean | None, text: str) -> Row:
    if mean is None:
        value = None if text == ABSENT else text
        parts: list[Any] = [value, None, None, 0, "none"]
    else:
        kind = "range" if mean.is_range else "t"
        parts = [mean.value, mean.low, mean.high, mean.n, kind]
    names = (label, *(f"{label}.{part}" for part in ("low", "high", "n", "interval")))
    return dict(zip(names, parts, strict=True))


def _differences(runs: Runs, keys: dict[str, str], by: list[str], field: str, seed: int) -> Table:
    levels = runs.levels(field)
    if len(levels) < 2:
        raise ConfigError(
            f"table: all {len(runs):,} runs have {field}={key_text(levels[0])}, so there is "
            f"nothing to pair. Fields that vary: {listed(runs.varying())}."
        )
    rows: list[Row] = []
    cells = [[*by, field, "score", "difference", "95 % interval", "pairs", "verdict"]]
    notes: dict[str, None] = {}
    pairs_by: dict[str, None] = {}
    alone: set[str] = set()
    partnered: set[str] = set()
    for key, group in runs.groups(*by):
        for a, b in combinations(group.levels(field), 2):
            matched = match(group, field, a, b)
            notes.update(dict.fromkeys(matched.also))
            pairs_by.update(dict.fromkeys(matched.fields))
            alone |= matched.alone
            partnered |= {row["run"] for pair in matched.pairs for rows in pair for row in rows}
            name = f"{key_text(b)} − {key_text(a)}"
            for label, column in keys.items():
                difference = difference_of(matched.differences(column, label), seed)
                rows.append({**key, field: name, "score": label, **_plain_difference(difference)})
                line = [*map(key_text, key.values()), name, label]
                cells.append([*line, *_difference_cells(difference)])
    about = [
        f"Differences of runs that agree in {listed(pairs_by) if pairs_by else 'everything else'}; "
        "the interval is a bootstrap over pairs, never narrower than the t-interval",
        f"above, below: the interval excludes 0; fewer than {ENOUGH} pairs, and fewer than {EQUAL} "
        "with equal differences, are always undecided, with their range",
    ]
    if alone - partnered:
        about.append(f"Runs without a partner: {len(alone - partnered):,}")
    if len(rows) >= MANY:
        about.append(
            f"{len(rows):,} comparisons: where there is no difference, about one in 20 is still "
            "called above or below"
        )
    about += [*notes, *_lacking(runs, keys)]
    return Table(tuple(by), tuple(keys), field, rows, cells, len(by) + 2, about)


def _plain_difference(difference: Difference | None) -> Row:
    names = ("difference", "low", "high", "pairs", "interval", "verdict")
    if difference is None:
        return dict(zip(names, (None, None, None, 0, "none", "undecided"), strict=True))
    kind = "range" if difference.is_range else "bootstrap"
    parts = (difference.value, difference.low, difference.high, difference.n, kind)
    return dict(zip(names, (*parts, difference.verdict), strict=True))


def _difference_cells(difference: Difference | None) -> list[str]:
    if difference is None:
        return [ABSENT, ABSENT, "0", "undecided"]
    error = (difference.high - difference.low) / 2
    value, _ = number_with_error(difference.value, error)
    ends = [number_with_error(end, error)[0] for end in (difference.low, difference.high)]
    interval = " to ".join(ends) + (" (range)" if difference.is_range else "")
    return [value, interval, str(difference.n), difference.verdict]


def __dir__() -> list[str]:
    return sorted(__all__)

"""Several models side by side: what differs between them, and by how much more than chance.

    comparison = compare_reports([zs.assay(a, data, resamples=20), zs.assay(b, data, resamples=20)])
    print(comparison)                     # which one, and why
    comparison.save("models.html")        # or .json, .csv

All models are measured on the same rows. A score of model a on a random half of the rows and that
of b on the same half differ less by chance than scores of different rows would, so differences have
intervals of their own,

    b - a  ±  t(0.975, halves - 1) sd( b_h - a_h ),        h the halves of the rows

see `zscope.assays.halves`. A difference is decided if 0 lies outside. Only scores of which high or
low values are known to be better take part in the verdict, one for each assay, and the explained
variance. They are counted, not weighed: scores of the same kind tend to agree.
"""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from zscope import __version__
from zscope.assays import CATALOGUE
from zscope.assays.halves import half_width
from zscope.documents import REPORT_FORMAT, schema_address
from zscope.errors import ConfigError, DataError, Undefined
from zscope.report.build import Report, files_of, round_numbers, write_all
from zscope.report.traces import Traces
from zscope.results import Measure, Result, counted, text_table

__all__ = [
    "Difference", "Row", "SideBySide", "check_rows", "compare_reports", "files_of_several",
]  # fmt: skip

EXPLAINED = "explained variance"
SUFFIXES = (".html", ".json", ".csv")
NO_HALVES = "no paired interval"
SHOWN_REASONS = 6
ROUNDING = 1e-5
"""Relative differences that single precision may make."""


@dataclass(frozen=True)
class Difference:
    """The second model minus the first, and which of them is better if that is decided."""

    first: str
    second: str
    value: float
    interval: tuple[float, float] | None  # 95 %, paired
    better: str  # the name of a model; "" if it is not decided, or neither side is better
    reason: str = ""  # why there is no interval

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def clarity(self) -> float:
        """The difference in units of half its interval: beyond 1 it is decided."""
        if self.interval is None:
            return 0.0
        half = (self.interval[1] - self.interval[0]) / 2
        return self.value / half if half > 0 else float(np.sign(self.value)) * 100.0


@dataclass(frozen=True)
class Row:
    """A score of all models, and the differences between every two of them."""

    name: str
    assay: str  # "" for the explained variance
    better: str  # "higher", "lower", or "" if neither is known to be better
    counts: bool  # whether it takes part in the verdict
    values: tuple[Measure | None, ...]  # in the order of the models
    differences: tuple[Difference, ...] = ()
    missing: tuple[str, ...] = ()  # why a model has no value, in the same order; "" if it has one

    @property
    def best(self) -> str:
        """The model that is better than every other one beyond chance; "" if there is none."""
        wins = [each.better for each in self.differences if each.better]
        return next((name for name in wins if wins.count(name) == len(self.values) - 1), "")

    @property
    def worst(self) -> str:
        """The model that is worse than every other one beyond chance; "" if there is none."""
        pairs = [(each.first, each.second, each.better) for each in self.differences if each.better]
        losers = [first if better == second else second for first, second, better in pairs]
        return next((name for name in losers if losers.count(name) == len(self.values) - 1), "")

    @property
    def comparable(self) -> bool:
        """Whether every two models have a paired interval."""
        return bool(self.differences) and all(each.interval for each in self.differences)

    @property
    def verdict(self) -> str:
        """What is known about the difference, in a few words."""
        if not self.better:
            decided = [each for each in self.differences if each.decided]
            return "differs" if decided else "not told apart" if self.comparable else ""
        if self.best:
            return f"{self.best} is better" if len(self.values) == 2 else f"{self.best} is best"
        if None in self.values:
            return "not measured of all"
        if not self.comparable:
            return next((d.reason for d in self.differences if d.reason), "") or NO_HALVES
        return f"{self.worst} is worst" if self.worst else "no more than chance"

    def to_dict(self) -> dict[str, Any]:
        return {
            "score": self.name,
            "assay": self.assay or None,
            "better": self.better or None,
            "counts": self.counts,
            "values": [None if each is None else each.to_dict() for each in self.values],
            "missing": list(self.missing),
            "differences": [
                {
                    "first": each.first,
                    "second": each.second,
                    "value": each.value,
                    "interval": None if each.interval is None else list(each.interval),
                    "better": each.better or None,
                    "reason": each.reason,
                }
                for each in self.differences
            ],
            "best": self.best or None,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Several reports about the same rows, their scores and what is decided between them."""

    names: list[str]
    reports: list[Report]
    rows: list[Row]
    similarity: list[tuple[str, str, float | str]]  # CKA of two models, or why there is none
    command: str = ""
    flags: list[str] = field(default_factory=list)

    @property
    def counted(self) -> list[Row]:
        """The scores that take part in the verdict: decided ones first, then comparable ones."""
        rows = [row for row in self.rows if row.counts]
        return sorted(rows, key=lambda row: (not row.best, not row.comparable))

    @property
    def wins(self) -> dict[str, list[Row]]:
        """By model, the scores on which it is better than every other beyond chance.

        The clearest first.
        """
        ordered = sorted(self.counted, key=lambda row: -_clearest(row))
        return {name: [row for row in ordered if row.best == name] for name in self.names}

    @property
    def verdict(self) -> str:
        """Which one, as far as it is decided."""
        comparable = [row for row in self.counted if row.comparable]
        apart = len(self.counted) - len(comparable)
        unknown = f" {counted(apart, 'more score')} cannot be judged." if apart else ""
        if not comparable:
            return f"Nothing is decided: no score has a paired interval.{unknown}"
        wins = {name: sum(row.best == name for row in comparable) for name in self.names}
        order = sorted(wins, key=lambda name: -wins[name])
        word = "better" if len(self.names) == 2 else "best"
        total, left = counted(len(comparable), "score"), len(comparable) - sum(wins.values())
        if not any(wins.values()):
            if len(self.names) == 2:
                text = f"None of {total} tells which model is better: all may differ by chance."
                return text + unknown
            text = f"No model is better than all others on any of {total}, beyond chance."
            return text + self._worst(comparable) + unknown
        parts = [f"{order[0]} is {word} on {wins[order[0]]} of {total}"]
        parts += [f"{name} on {wins[name] or 'none'}" for name in order[1:] if wins[name]]
        parts += ["no other model on any"] if len(parts) == 1 and len(order) > 2 else []
        parts += [f"{order[1]} on none"] if len(parts) == 1 else []
        rest = ""
        if left:
            rest = " The other one differs" if left == 1 else f" The other {left} differ"
            rest += (
                " by no more than chance." if len(self.names) == 2 else " too little to name one."
            )
        return f"{', '.join(parts)}.{rest}{self._worst(comparable)}{unknown}"

    def _worst(self, rows: list[Row]) -> str:
        """Of three models or more, which are worse than all others, and on how many scores."""
        if len(self.names) == 2:
            return ""
        counts = {name: sum(row.worst == name for row in rows) for name in self.names}
        order = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])
        return "".join(f" {name} is worse than all others on {counts[name]}." for name in order)

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why: by model, the clearest scores on which it is better, with their differences."""
        return {
            name: [self._reason(row, name) for row in rows[:SHOWN_REASONS]]
            for name, rows in self.wins.items()
            if rows
        }

    def _reason(self, row: Row, name: str) -> str:
        place = self.names.index(name)
        others = [k for k in range(len(self.names)) if k != place]
        closest = min(others, key=lambda k: abs(_value(row, k) - _value(row, place)))
        text = f"{row.name}: {_value(row, place):.3g} against {_value(row, closest):.3g}"
        pair = {name, self.names[closest]}
        each = next(d for d in row.differences if {d.first, d.second} == pair)
        if each.interval is None:
            return text
        sign = 1 if each.second == name else -1
        low, high = sorted(sign * end for end in each.interval)
        of = f" of {self.names[closest]}" if len(self.names) > 2 else ""
        return f"{text}{of} (difference {sign * each.value:.3g}, {low:.3g} to {high:.3g})"

    def __str__(self) -> str:
        lines = [self.verdict]
        for name, reasons in self.reasons.items():
            lines += [f"{name}:", *(f"  {reason}" for reason in reasons)]
        return "\n".join([*lines, "", text_table(self.table()), *self.flags])

    __repr__ = __str__

    def table(self) -> list[list[str]]:
        """The scores that take part in the verdict, with a header."""
        two = len(self.names) == 2
        header = ["", *self.names, *(["difference", "95 % interval"] if two else []), ""]
        return [header, *(self._cells(row, two) for row in self.counted)]

    def _cells(self, row: Row, two: bool) -> list[str]:
        values = ["none" if each is None else f"{each.value:.4g}" for each in row.values]
        cells = [row.name, *values]
        if two:
            each = row.differences[0] if row.differences else None
            ends = None if each is None else each.interval
            cells.append("none" if each is None else f"{each.value:.3g}")
            cells.append("none" if ends is None else f"{ends[0]:.3g} to {ends[1]:.3g}")
        return [*cells, row.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the reports themselves as plain values, numbers to six digits."""
        findings = {
            name: [each.to_dict() for each in report.findings]
            for name, report in zip(self.names, self.reports, strict=True)
        }
        requirements = {
            name: report.requirements.to_dict()
            for name, report in zip(self.names, self.reports, strict=True)
            if report.requirements is not None
        }
        similarity = [
            {
                "first": first,
                "second": second,
                "cka": None if isinstance(value, str) else value,
                "reason": value if isinstance(value, str) else "",
            }
            for first, second, value in self.similarity
        ]
        content: dict[str, Any] = round_numbers(
            {
                "format": REPORT_FORMAT,
                "schema": schema_address("comparison"),
                "models": self.names,
                "verdict": self.verdict,
                "reasons": self.reasons,
                **({"requirements": requirements} if requirements else {}),
                "scores": [row.to_dict() for row in self.rows],
                "similarity": similarity,
                "findings": findings,
                "flags": self.flags,
                "about": [report.about for report in self.reports],
                "command": self.command,
                "zscope": __version__,
            }
        )
        return content

    def to_csv(self) -> bytes:
        """A line for each score and pair of models."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["score", "better", "first", "second", "first value", "second value",
                         "difference", "low", "high", "better model"])  # fmt: skip
        for row in self.rows:
            values = dict(zip(self.names, row.values, strict=True))
            for each in row.differences:
                pair = [values[name] for name in (each.first, each.second)]
                numbers = ["" if value is None else value.value for value in pair]
                ends = each.interval or ("", "")
                cells = [row.name, row.better, each.first, each.second, *numbers, each.value, *ends]
                writer.writerow([*cells, each.better])
        return text.getvalue().encode()

    def save(self, path: str | Path) -> Path:
        """Write the page (.html, with its numbers in a .json beside it), .json or .csv."""
        path = Path(path)
        contents: dict[Path, bytes] = {}
        for file in files_of_several(path):
            ending = file.suffix.lower()
            if ending == ".html":
                from zscope.report.several_page import page

                contents[file] = page(self).encode(errors="replace")
            elif ending == ".csv":
                contents[file] = self.to_csv()
            else:
                text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
                contents[file] = text.encode(errors="backslashreplace")
        write_all(contents)
        return path


def files_of_several(path: Path) -> list[Path]:
    """The files of a page of this name; a name that it cannot have is refused."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"report: {path} ends in {suffix or 'nothing'}; several models side by side are "
            f"written as {', '.join(SUFFIXES)}. For another table, report one model."
        )
    return files_of(path)


def compare_reports(
    reports: Sequence[Report], names: Sequence[str] | None = None, *, command: str = ""
) -> SideBySide:
    """Put reports of several models on the same rows side by side.

    `names` are those of the models, by default the ends of the titles of the reports. Differences
    have intervals where the reports have: make them with `resamples=20` or more.
    """
    if len(reports) < 2:
        raise ConfigError(
            f"compare_reports: got {counted(len(reports), 'report')}; two or more are compared. "
            "Was only one model measured? Save it by itself: report.save('report.html')"
        )
    titles = list(names) if names else _short_names([report.title for report in reports])
    if len(titles) != len(reports):
        raise ConfigError(
            f"compare_reports: {len(titles)} names for {len(reports)} reports. Give one for each."
        )
    if twice := sorted({title for title in titles if titles.count(title) > 1}):
        raise ConfigError(
            f"compare_reports: two models are called {twice[0]!r}, so that the verdict could not "
            "say which one is meant. Give each a name of its own, or leave the names out."
        )
    seeds = [report.about["seed"] for report in reports]
    check_rows([report.traces for report in reports], seeds, titles)
    rows = [_explained(reports, titles)]
    known = [name for name in CATALOGUE if any(name in report.results for report in reports)]
    for name in known:
        rows += _rows_of(name, reports, titles)
    rows = [row for row in rows if any(each is not None for each in row.values)]
    return SideBySide(
        titles, list(reports), rows, _similarity(reports, titles), command, _flags(rows)
    )


def _short_names(titles: list[str]) -> list[str]:
    """The last parts of paths where these differ; numbers behind names that are the same."""
    last = [PurePath(title).name or title for title in titles]
    titles = last if len(set(last)) == len(set(titles)) else titles
    if len(set(titles)) == len(titles):
        return titles
    return [
        f"{title} ({titles[: k + 1].count(title)})" if titles.count(title) > 1 else title
        for k, title in enumerate(titles)
    ]


def check_rows(traces: Sequence[Traces | None], seeds: Sequence[int], names: Sequence[str]) -> None:
    """Refuse models that were measured on different rows, or with different seeds."""
    first = traces[0]
    for name, other, seed in zip(names[1:], traces[1:], seeds[1:], strict=True):
        if first is None or other is None:
            raise DataError(
                f"compare_reports: the reports of {names[0]} and {name} do not know their rows. "
                "Were they made by hand? Make them with zs.assay(model, data)."
            )
        reason = first.differs_from(other)
        if not reason and seeds[0] != seed:
            reason = f"seeds {seeds[0]} and {seed}"
        if reason:
            raise DataError(
                f"compare_reports: {names[0]} and {name} were not measured on the same rows "
                f"({reason}), so that their scores differ for that reason too. Were they trained "
                "on different data, or on different parts of it? Measure all on the same: --data "
                "NAME (in Python zs.assay(model, data) with one data and seed)."
            )


def _explained(reports: Sequence[Report], names: list[str]) -> Row:
    """The explained variance of all models."""
    values: list[Measure | None] = []
    halves: list[Sequence[float]] = []
    spreads: list[np.ndarray] = []
    for report in reports:
        pairs = None if report.traces is None else report.traces.row_errors
        if pairs is None or pairs.explained is None:
            values.append(None)
            halves.append([])
            continue
        interval = pairs.interval or "too few observations"
        chance = 0.0  # of the mean observation in place of each
        values.append(Measure("", pairs.explained, len(pairs.errors), interval, chance))
        halves.append(pairs.on_halves())
        spreads.append(pairs.spreads)
    same = all(len(each) == len(spreads[0]) and np.allclose(each, spreads[0], rtol=1e-4)
               for each in spreads)  # fmt: skip
    if not same:  # other units of the features, or other pictures
        halves = [[] for _ in reports]
    missing = tuple("" if each is not None else "nothing was decoded" for each in values)
    reason = NO_HALVES if same else "measured in different units"
    differences = _differences(names, values, halves, "higher", reason)
    return Row(EXPLAINED, "", "higher", True, tuple(values), differences, missing)


def _rows_of(name: str, reports: Sequence[Report], names: list[str]) -> list[Row]:
    """Every score of an assay."""
    entry = CATALOGUE[name]
    results = [report.results.get(name) for report in reports]
    tables = [_measures(result) for result in results]
    halves = [{} if result is None else result.on_halves() for result in results]
    keys = dict.fromkeys(key for table in tables for key in table)
    missing = tuple(
        "" if result is not None else _why_missing(report, name)
        for report, result in zip(reports, results, strict=True)
    )
    sizes = {len(getattr(r, "active", [])) for r in results if r is not None}
    reason = NO_HALVES
    if any(r is not None and r.needs_equal_sizes for r in results) and len(sizes) > 1:
        halves = [{} for _ in results]
        reason = f"{' and '.join(map(str, sorted(sizes)))} latents in use are not comparable"
    word = next((result.worded for result in results if result is not None), str)
    rows = []
    for k, key in enumerate(keys):
        values = [table.get(key) for table in tables]
        parts = [own.get(key, []) for own in halves]
        differences = _differences(names, values, parts, entry.better, reason)
        label = f"{name}, {word(key)}" if key else name
        counts = bool(entry.better) and k == 0
        rows.append(Row(label, name, entry.better, counts, tuple(values), differences, missing))
    return rows


def _measures(result: Result | None) -> dict[str, Measure]:
    return {} if result is None else {each.name: each for each in result.measures()}


def _why_missing(report: Report, name: str) -> str:
    failure = report.failed.get(name)
    return failure.message if failure else report.missing.get(name, "It was not measured.")


def _differences(
    names: list[str],
    values: Sequence[Measure | None],
    halves: Sequence[Sequence[float]],
    better: str,
    reason: str,
) -> tuple[Difference, ...]:
    """The differences between every two models that both have a value."""
    differences = []
    for a, b in combinations(range(len(names)), 2):
        first, second = values[a], values[b]
        if first is None or second is None:
            continue
        value, interval = second.value - first.value, None
        if len(halves[a]) == len(halves[b]) > 1 and np.isfinite(value):
            apart = [y - x for x, y in zip(halves[a], halves[b], strict=True)]
            width = half_width(apart, min(first.samples, second.samples))
            width = max(width, ROUNDING * max(abs(first.value), abs(second.value)))
            interval = value - width, value + width
        winner = ""
        if better and interval is not None and not interval[0] <= 0 <= interval[1]:
            winner = names[b] if (value > 0) == (better == "higher") else names[a]
        why = "" if interval else reason
        differences.append(Difference(names[a], names[b], value, interval, winner, why))
    return tuple(differences)


def _similarity(reports: Sequence[Report], names: list[str]) -> list[tuple[str, str, float | str]]:
    """CKA between the codes of every two models."""
    cka = CATALOGUE["cka"].load()
    table: list[tuple[str, str, float | str]] = []
    for (one, first), (other, second) in combinations(zip(names, reports, strict=True), 2):
        if first.traces is None or second.traces is None:
            continue
        try:
            table.append((one, other, float(cka(first.traces.codes, second.traces.codes).score)))
        except Undefined as error:
            table.append((one, other, str(error)))
    return table


def _flags(rows: Sequence[Row]) -> list[str]:
    """What limits the verdict."""
    flags = ["Scores are counted, not weighed, and those of one kind tend to agree."]
    tests = sum(len(row.differences) for row in rows if row.counts and row.comparable)
    if tests >= 10:
        flags.append(
            f"Each of {tests} differences is judged at 95 %: of as many between equal models, "
            f"about {max(1, round(tests / 20))} would be decided by chance."
        )
    return flags


def _value(row: Row, place: int) -> float:
    measure = row.values[place]
    return float("nan") if measure is None else measure.value


def _clearest(row: Row) -> float:
    """How clear the closest decision of a row is."""
    return min((abs(each.clarity) for each in row.differences if each.better), default=0.0)

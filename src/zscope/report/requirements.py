"""Requirements: what a latent space must meet, as a test that passes, fails or is undecided.

    mig > 0.3                      the score of an assay
    dci.completeness >= 0.5        another of its scores
    passive <= 2                   a count of latents
    explained variance > 90 %      of the data, by reconstructions
    problems == 0                  findings of the report

A score is judged by its 95 % interval: a requirement passes if all of the interval meets it,
fails if none of it does, and is undecided otherwise. Where there is no interval the value itself is
judged, and the outcome says why there is none; counts are those of the sample. What could not be
measured is undecided, never passed: where assays are left out or have failed, there may be more
findings than were counted.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from zscope.assays import CATALOGUE
from zscope.assays.choosing import choose
from zscope.errors import ConfigError, ZscopeError, did_you_mean
from zscope.report.tables import first_names
from zscope.results import counted, html_table, text_table

if TYPE_CHECKING:
    from zscope.report.build import Report
    from zscope.results import Result

__all__ = [
    "RESAMPLES", "Outcome", "Requirement", "Requirements", "judge", "parse", "parse_all",
    "with_resamples",
]  # fmt: skip

Verdict = Literal["passed", "failed", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("failed", "undecided", "passed")
EXIT_CODES: Mapping[Verdict, int] = {"passed": 0, "failed": 1, "undecided": 3}

RESAMPLES = 200
"""For the intervals of scores that are required: they are wide with few, and vary with the seed."""
RELATIONS = ("<=", ">=", "==", "!=", "<", ">")
FORM = re.compile(r"\s*(.+?)\s*(<=|>=|==|!=|<|>)\s*([^<>=!]+?)\s*")
COUNTED = {
    "active": "variable-types",
    "mixed": "variable-types",
    "passive": "variable-types",
    "causal": "response-matrix",
}
"""Sets of latents that need not be named with their assay; their numbers of latents are judged."""
OTHER_NAMES = {"hole-share": "holes"}
FINDINGS = {"problems": "problem", "notes": "note"}
OF_REPORT = ("explained-variance", "latents", "used", *FINDINGS)
"""What a report knows without one assay that could be named."""
COUNTS = {"latents", "used", *COUNTED, *FINDINGS}
IS_COUNT = "it is a count, exact of these samples"


@dataclass(frozen=True)
class Requirement:
    """One relation between a number of the report and a limit."""

    text: str
    assay: str  # "" for a number of the report itself
    part: str  # of the assay: a score or a set of latents, "" for its first score; or of the report
    relation: str
    limit: float

    @property
    def needs(self) -> list[str] | None:
        """The assays to measure; None for all of them."""
        if self.assay:
            return [self.assay]
        return None if self.part in FINDINGS else []

    def __str__(self) -> str:
        return self.text

    def judge(self, report: "Report") -> "Outcome":
        """Whether a report meets it."""
        try:
            value, interval, samples = _find(self, report)
        except LookupError as error:
            return Outcome(self, "undecided", reason=str(error.args[0]))
        if isinstance(interval, str):
            more = "" if self.assay or self.part not in FINDINGS else _unchecked(report)
            reason = more or (f"no interval: {interval}" if interval != IS_COUNT else "")
            most = math.inf if more else value
            verdict = _verdict(self.relation, (value, most), self.limit)
            return Outcome(self, verdict, value, None, samples, reason)
        verdict = _verdict(self.relation, interval, self.limit)
        reason = "the limit lies within the interval" if verdict == "undecided" else ""
        return Outcome(self, verdict, value, interval, samples, reason)


@dataclass(frozen=True)
class Outcome:
    """A requirement, the number that was measured, and the verdict with its reason."""

    requirement: Requirement
    verdict: Verdict
    value: float | None = None
    interval: tuple[float, float] | None = None  # 95 %
    samples: int | None = None
    reason: str = ""  # why it is undecided, or why there is no interval

    @property
    def measured(self) -> str:
        """The value with its interval, as in a sentence."""
        if self.value is None:
            return "not measured"
        text = f"{self.value:.4g}"
        if self.interval is None:
            return text
        return f"{text} (95 % interval {self.interval[0]:.3g} to {self.interval[1]:.3g})"

    def cells(self) -> list[str]:
        """Verdict, requirement, value, interval and reason, as a table prints them."""
        low_high = self.interval
        return [
            self.verdict,
            self.requirement.text,
            "none" if self.value is None else f"{self.value:.4g}",
            "none" if low_high is None else f"{low_high[0]:.3g} to {low_high[1]:.3g}",
            self.reason,
        ]

    def to_dict(self) -> dict[str, Any]:
        requirement = self.requirement
        return {
            "requirement": requirement.text,
            "assay": requirement.assay or None,
            "part": requirement.part or None,
            "relation": requirement.relation,
            "limit": requirement.limit,
            "verdict": self.verdict,
            "value": self.value,
            "interval": None if self.interval is None else list(self.interval),
            "samples": self.samples,
            "reason": self.reason,
        }


@dataclass(frozen=True, repr=False)
class Requirements:
    """The outcome of every requirement. It is true if all have passed.

    `assert report.require("mig > 0.3", "passive <= 2")` is a test: if it fails, pytest prints the
    table of outcomes.
    """

    outcomes: Sequence[Outcome] = field(default_factory=tuple)

    @property
    def verdict(self) -> Verdict:
        """failed if any failed, else undecided if any is, else passed."""
        verdicts = {each.verdict for each in self.outcomes}
        return next((each for each in VERDICTS if each in verdicts), "passed")

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"

    @property
    def failed(self) -> list[Outcome]:
        return [each for each in self.outcomes if each.verdict == "failed"]

    @property
    def undecided(self) -> list[Outcome]:
        return [each for each in self.outcomes if each.verdict == "undecided"]

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 3 undecided."""
        return EXIT_CODES[self.verdict]

    @property
    def summary(self) -> str:
        """The counts as in a sentence: 3 requirements: 1 failed, 2 passed."""
        counts = {name: sum(o.verdict == name for o in self.outcomes) for name in VERDICTS}
        parts = [f"{count} {name}" for name, count in counts.items() if count]
        return f"{counted(len(self.outcomes), 'requirement')}: {', '.join(parts) or 'none'}"

    def table(self) -> list[list[str]]:
        """Every outcome, with a header."""
        header = ["", "requirement", "value", "95 % interval", ""]
        return [header, *(each.cells() for each in self.outcomes)]

    def to_dict(self) -> dict[str, Any]:
        outcomes = [each.to_dict() for each in self.outcomes]
        return {"verdict": self.verdict, "outcomes": outcomes}

    def __bool__(self) -> bool:
        return self.passed

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __str__(self) -> str:
        lines = text_table([row[:4] for row in self.table()], left=2).splitlines()
        rows = [
            f"{line}  {outcome.reason}" if outcome.reason else line
            for line, outcome in zip(lines[1:], self.outcomes, strict=True)
        ]
        return "\n".join([self.summary, lines[0], *rows])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return (
            f"<div><strong>{escape(self.summary)}</strong>{html_table(self.table(), left=2)}</div>"
        )


def judge(report: "Report", requirements: Iterable[str | Requirement]) -> Requirements:
    """Whether a report meets the requirements."""
    return Requirements(tuple(each.judge(report) for each in parse_all(requirements)))


def parse_all(requirements: Iterable[str | Requirement]) -> list[Requirement]:
    """Requirements from their texts; one text alone is accepted too."""
    texts = [requirements] if isinstance(requirements, str) else list(requirements)
    return [each if isinstance(each, Requirement) else parse(each) for each in texts]


def parse(text: object) -> Requirement:
    """A requirement from a text such as "mig > 0.3"; ConfigError if it cannot be read."""
    form = FORM.fullmatch(text) if isinstance(text, str) else None
    if form is None or not isinstance(text, str):
        hint = " Write == for equal." if re.search("[^=]=[^=]", str(text)) else ""
        hint = " Write >= or <=." if re.search("[≥≤]", str(text)) else hint
        raise ConfigError(
            f"require: {text!r} is not of the form NAME RELATION NUMBER, with one of "
            f"{', '.join(RELATIONS)} as the relation.{hint} For instance: --require 'mig > 0.3'. "
            "Put it in quotes, since the shell takes > for a file."
        )
    name, relation, number = form.groups()
    limit = _number(number, text)
    assay, part = _split(name, text)
    if number.endswith("%") and part in COUNTS:
        raise ConfigError(
            f"require: {text!r}: {name} is a count, which is no share of anything. Give a whole "
            f"number: --require '{name} {relation} 2'"
        )
    if relation in ("==", "!=") and not _may_be_count(assay, part):
        raise ConfigError(
            f"require: {text!r}: {relation} is for counts, such as passive == 0, and {name} is "
            "measured with an error, so that it is never exactly a number. Use < or >, or two "
            "requirements for a range."
        )
    words = re.sub(r"\s+", " ", name.strip())
    return Requirement(f"{words} {relation} {number.strip()}", assay, part, relation, limit)


def with_resamples(
    requirements: Iterable[Requirement], options: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Options by assay, with enough resamples for the scores that are required."""
    from zscope.assays.arguments import option_names

    both = {name: dict(values) for name, values in (options or {}).items()}
    for each in requirements:
        if each.assay and "resamples" in option_names(CATALOGUE[each.assay]):
            both.setdefault(each.assay, {}).setdefault("resamples", RESAMPLES)
    return both


def _number(text: str, whole: str) -> float:
    """The limit; 90 % is 0.9."""
    bare, percent = text.removesuffix("%").strip(), text.endswith("%")
    try:
        number = float(bare)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(
            f"require: {whole!r} has {text!r} as its limit; expected a number such as 0.3 or "
            "30 %. Are name and limit exchanged? Write the name first."
        )
    return number / 100 if percent else number


def _key(name: str) -> str:
    """A name as it is compared: any case, with hyphens."""
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


def _split(name: str, text: str) -> tuple[str, str]:
    """The assay that a name is about and the part of it; ConfigError for an unknown name."""
    key = _key(name)
    if key in OF_REPORT:
        return "", key
    if key in COUNTED:
        return COUNTED[key], key
    first, _, rest = re.sub(r"\s*[.,]\s*", ".", key).partition(".")
    first = OTHER_NAMES.get(first, first)
    known = {name for name, entry in CATALOGUE.items() if not entry.compares}
    if first in known:
        return first, rest.strip("-")
    if first in CATALOGUE:
        raise ConfigError(
            f"require: {text!r}: {first} compares two or more models, and a report is about one. "
            "Use: zscope compare RUN RUN"
        )
    names = did_you_mean(first, known | {*OF_REPORT, *COUNTED, *OTHER_NAMES})
    raise ConfigError(
        f"require: {text!r}: nothing that is measured is called {name.strip()!r}. {names} Assays: "
        "zscope assay --list; their further scores are written as ASSAY.SCORE."
    )


def _may_be_count(assay: str, part: str) -> bool:
    return bool(part) if assay else part in COUNTS


def _verdict(relation: str, ends: tuple[float, float], limit: float) -> Verdict:
    """passed if every number between the ends meets the relation, failed if none does."""
    low, high = ends
    if relation in ("==", "!="):
        inside = low <= limit <= high
        if inside and low < high:
            return "undecided"
        return "passed" if inside == (relation == "==") else "failed"
    every, some = {
        "<": (high < limit, low < limit),
        "<=": (high <= limit, low <= limit),
        ">": (low > limit, high > limit),
        ">=": (low >= limit, high >= limit),
    }[relation]
    return "passed" if every else "undecided" if some else "failed"


Measured = tuple[float, tuple[float, float] | str, int | None]
"""A value, its interval or why there is none, and the number of samples."""


def _find(requirement: Requirement, report: "Report") -> Measured:
    """The number that a requirement is about; LookupError with the reason if there is none."""
    if requirement.assay:
        return _of_assay(requirement, report)
    return _of_report(requirement.part, report)


def _of_report(name: str, report: "Report") -> Measured:
    encoded = report.about["data"]["encoded"]
    layout = report.about["model"].get("layout")
    if name == "explained-variance":
        if report.explained is None:
            raise LookupError("nothing was decoded, so no variance is explained")
        none = "too few observations"
        return report.explained, report.explained_interval or none, encoded
    if name == "latents":
        return (
            (report.about["model"]["latents"] if layout is None else layout[0]),
            IS_COUNT,
            encoded,
        )
    if name == "used":
        rows = report.latents if layout is None else report.channels
        flags = [row["used"] if layout is None else not row["dead"] for row in rows]
        if not rows or (layout is not None and any(row["dead"] is None for row in rows)):
            raise LookupError("it is not known which latents are used: see the report")
        return sum(flags), IS_COUNT, encoded
    level = FINDINGS[name]
    return sum(each.level == level for each in report.findings), IS_COUNT, encoded


def _unchecked(report: "Report") -> str:
    """Why a report may have more findings than it says; "" if it is of all assays."""
    failed = [name for name in report.failed if not name.startswith("figure of ")]
    skipped = [each.name for each in choose(None) if each.name not in report]
    words = {"failed": failed, "not measured": skipped}
    parts = [f"{word}: {first_names(names)}" for word, names in words.items() if names]
    return f"at least so many; {', '.join(parts)}" if parts else ""


def _of_assay(requirement: Requirement, report: "Report") -> Measured:
    name, part = requirement.assay, requirement.part
    result = report.results.get(name)
    if result is None:
        if name in report.missing:
            raise LookupError(report.missing[name])
        if name in report.failed:
            raise LookupError(report.failed[name].message)
        raise LookupError(f"{name} was not measured; add it to the assays of the report")
    measures = result.measures()
    # A name may be that of the latents or, of maps, of the channels.
    scores = {_key(text): m for m in measures for text in (m.name, result.worded(m.name))}
    scores.setdefault("score", measures[0]) if measures else None
    if not part and measures:
        measure = measures[0]
    elif part in scores:
        measure = scores[part]
    elif (count := _count(result, part)) is not None:
        samples = getattr(result, "samples", None)
        return count, IS_COUNT, samples if isinstance(samples, int) else None
    else:
        raise LookupError(_unknown_part(name, part, result, scores))
    if not math.isfinite(measure.value):
        raise LookupError(f"{name} is {measure.value}")
    return measure.value, measure.interval, measure.samples


def _count(result: "Result", part: str) -> int | None:
    """How many there are in a list of this name: latents of a type, holes, …"""
    values = None
    with suppress(ZscopeError):
        values = getattr(result, part.replace("-", "_"), None) if part else None
    if isinstance(values, list) and all(isinstance(each, int) for each in values):
        return len(values)
    return None


def _unknown_part(name: str, part: str, result: "Result", scores: Mapping[str, Any]) -> str:
    """Why a part of a result cannot be judged."""
    from zscope.kept import SETS  # which loads torch

    names = {_key(each) for each in (*SETS, *(field.name for field in fields(result)))}
    known = {key for key in scores if key} | {n for n in names if _count(result, n) is not None}
    if not part:
        choice = (
            f"say which number is meant: {', '.join(sorted(known))}" if known else "it has none"
        )
        return f"{name} has no single score; {choice}"
    return f"{name} has no score and no set of latents called {part!r}. {did_you_mean(part, known)}"

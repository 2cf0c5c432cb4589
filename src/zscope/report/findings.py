"""Findings: what the measurements mean, in words, with evidence and what to do about it.

Each rule looks at the measurements and yields findings, or none where it does not apply. Its
threshold is part of the rule and is shown with each finding. Findings are ordered by how much
they matter, from 1 (nothing else can be trusted until this is fixed) to 0; healthy ones come
last.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any, Literal

from zscope.assays import CATALOGUE
from zscope.assays.run import Failure, isolate
from zscope.layout import Layout
from zscope.recording import Recording
from zscope.results import Result, html_table

Level = Literal["problem", "note", "healthy"]
LEVELS: tuple[Level, ...] = ("problem", "note", "healthy")
MEANING = {"problem": "problem", "note": "worth knowing", "healthy": "healthy"}

__all__ = [
    "LEVELS", "MEANING", "Check", "Facts", "Finding", "Level", "Rule", "Table", "and_list",
    "count_word", "findings", "index_list", "latents_text", "measures", "percent", "table", "title",
]  # fmt: skip


Table = tuple[tuple[str, ...], ...]
"""A small table of evidence: the names of the columns, then the rows."""
MOST_ROWS = 8


@dataclass(frozen=True)
class Finding:
    """A statement about the model, the numbers behind it, and what to do about it."""

    text: str
    evidence: str  # one sentence; numbers of several latents or scores are in the table
    action: str = ""
    level: Level = "note"
    matters: float = 0.5  # from 0 to 1
    table: Table = ()
    rule: str = ""
    checked: str = ""  # what the rule checks, with its threshold
    assays: tuple[str, ...] = ()  # those whose results the rule looked at

    def __str__(self) -> str:
        return f"{self.text}: {self.action}" if self.action else f"{self.text}."

    def _repr_html_(self) -> str:
        lines = [f"<strong>{escape(self.text)}</strong> ({MEANING[self.level]})"]
        lines += [escape(line) for line in (self.evidence, self.action) if line]
        return f"<div>{'<br>'.join(lines)}{html_table(self.numbers)}</div>"

    @property
    def numbers(self) -> Table:
        """The numbers behind it as a small table, or none."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        return {"sentence": str(self), **asdict(self)}


@dataclass(frozen=True)
class Check(Finding):
    """A finding that is a line of the card *Ready for diffusion?* too, with its number."""

    value: float | None = None
    interval: tuple[float, float] | None = None  # 95 %, over pictures

    @property
    def numbers(self) -> Table:
        """Its table; without one, its own number with the interval."""
        if self.table or self.value is None:
            return self.table
        ends = "" if self.interval is None else " to ".join(f"{end:.3g}" for end in self.interval)
        columns = ("checked", "value", "95 % interval")[: 3 if ends else 2]
        return table(columns, [(self.rule, f"{self.value:.3g}", ends)[: len(columns)]])


@dataclass(frozen=True, eq=False)
class Facts:
    """What rules can look at."""

    recording: Recording
    results: Mapping[str, Result]
    latents: Sequence[Mapping[str, Any]]  # rows of `latent_table`
    explained: float | None = None  # share of the data's variance that reconstructions explain
    channels: Sequence[Mapping[str, Any]] = ()  # rows of `channel_table`, of latents that are maps
    asked: dict[str, None] = field(default_factory=dict)  # results that were looked at, in order

    def get(self, name: str) -> Any:
        result = self.results.get(name)
        if result is not None:
            self.asked[name] = None
        return result

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """The rows of the table in the order of the latents."""
        return sorted(self.latents, key=lambda row: row["latent"])

    @property
    def used(self) -> list[int]:
        """The latents that count."""
        return self.recording.used

    @property
    def collapsed(self) -> bool:
        """Whether it is known of every latent, or channel, that it carries no information."""
        if self.layout is not None:
            return bool(self.channels) and all(row["dead"] for row in self.channels)
        return bool(self.latents) and not self.used

    @property
    def layout(self) -> Layout | None:
        """Channels and places, if the latents are maps."""
        return self.recording.layout


@dataclass(frozen=True)
class Rule:
    """One check of a model, with its threshold."""

    name: str
    threshold: float
    checks: str  # what holds for a healthy model, with {threshold} or {percent} in it
    find: Callable[[Facts, float], Iterable[Finding]]
    of_collapsed: bool = False  # whether it says anything of a model that uses no latent
    latents: Literal["vector", "maps", "any"] = "vector"  # the latents that it can speak of

    def applies(self, layout: object) -> bool:
        """Whether the rule is about such latents; the one place where this is decided."""
        return self.latents in ("any", "vector" if layout is None else "maps")

    @property
    def sentence(self) -> str:
        return self.checks.format(threshold=self.threshold, percent=100 * self.threshold)

    def __call__(self, facts: Facts) -> list[Finding]:
        """The findings; none where the collapse of the model explains what is seen."""
        if not self.applies(facts.layout) or (facts.collapsed and not self.of_collapsed):
            return []
        facts = replace(facts, asked={})
        yielded = list(self.find(facts, self.threshold))
        return [
            replace(each, rule=self.name, checked=self.sentence, assays=tuple(facts.asked))
            for each in yielded
        ]


def findings(facts: Facts, rules: Iterable[Rule], failed: dict[str, Failure]) -> list[Finding]:
    """The findings of all rules, the most important first; rules that fail go to `failed`."""
    unsorted: list[Finding] = []
    for rule in rules:
        with isolate(f"finding on {rule.name}", failed):
            unsorted += rule(facts)
    return sorted(unsorted, key=lambda each: (LEVELS.index(each.level), -each.matters))


NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def title(name: str) -> str:
    """The name of an assay as people write it."""
    return CATALOGUE[name].title


def count_word(count: int) -> str:
    """A number in words, up to ten."""
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def and_list(items: Sequence[Any]) -> str:
    """The items as in a sentence: a, b and c."""
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def latents_text(latents: Sequence[int]) -> str:
    """The latents as in a sentence; of many, the first ten."""
    if len(latents) > 12:
        return f"Latents {', '.join(map(str, latents[:10]))} and {len(latents) - 10} others"
    return f"Latent{'' if len(latents) == 1 else 's'} {and_list(latents)}"


def index_list(items: Sequence[int]) -> str:
    """A list of indices as Python code; the middle of a long one is left out."""
    if len(items) <= 24:
        return str(list(items))
    return f"[{', '.join(map(str, items[:8]))}, …, {items[-1]}]"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table of evidence; numbers have two decimals, and of many rows the last are counted."""

    def text(value: Any) -> str:
        return f"{value:.2f}" if isinstance(value, float) else str(value)

    lines = [tuple(map(text, row)) for row in rows]
    if len(lines) > MOST_ROWS:
        more = f"and {len(lines) - MOST_ROWS + 1} more"
        lines = [*lines[: MOST_ROWS - 1], (more, *[""] * (len(columns) - 1))]
    return tuple(columns), *lines


def measures(*rows: tuple[str, Any, str, str]) -> Table:
    """A table of numbers: name, value, what is expected and of how many, as far as any is given."""
    columns = ("", "value", "expected", "of")
    known = [k for k, name in enumerate(columns) if not name or any(row[k] != "" for row in rows)]
    return table([columns[k] for k in known], [[row[k] for k in known] for row in rows])


def percent(share: float) -> str:
    """A share as a percentage with two digits."""
    value = 100 * share
    if 0 < value < 0.05:
        return "under 0.1 %"
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"

"""Findings: what the measurements mean, in words, with evidence and what to do about it.

Each rule looks at what was measured and says something, or nothing where it does not
apply. Its threshold is part of the rule and is shown with what it found. Findings are
ordered by how much they matter, from 1 (nothing else on the page can be trusted before
this is put right) to 0; what is as it should be comes last.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from zscope.assays import CATALOGUE
from zscope.recording import Recording
from zscope.results import Result

Level = Literal["problem", "note", "healthy"]
LEVELS: tuple[Level, ...] = ("problem", "note", "healthy")
MEANING = {"problem": "problem", "note": "worth knowing", "healthy": "healthy"}


@dataclass(frozen=True)
class Finding:
    """What was found, the numbers behind it, and what to do about it."""

    text: str
    evidence: str
    action: str = ""
    level: Level = "note"
    matters: float = 0.5  # from 0 to 1
    rule: str = ""
    says: str = ""  # the rule with its threshold

    def __str__(self) -> str:
        return f"{self.text}: {self.action}" if self.action else f"{self.text}."

    def to_dict(self) -> dict[str, Any]:
        return {"sentence": str(self), **asdict(self)}


@dataclass(frozen=True, eq=False)
class Facts:
    """What rules may look at."""

    recording: Recording
    results: Mapping[str, Result]
    latents: Sequence[Mapping[str, Any]]  # rows of `latent_table`
    explained: float | None = None  # share of the data's variance in the reconstructions

    def get(self, name: str) -> Any:
        return self.results.get(name)

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """The rows of the table in the order of the latents."""
        return sorted(self.latents, key=lambda row: row["latent"])

    @property
    def used(self) -> list[int]:
        """The latents that carry something, by the rule on dead latents."""
        return [row["latent"] for row in self.rows if not is_dead(row)]


@dataclass(frozen=True)
class Rule:
    """One thing worth saying: when, by which threshold."""

    name: str
    threshold: float
    says: str  # when it speaks, with {threshold} in it
    find: Callable[[Facts, float], Iterable[Finding]]

    @property
    def sentence(self) -> str:
        return self.says.format(threshold=self.threshold, percent=100 * self.threshold)

    def __call__(self, facts: Facts) -> list[Finding]:
        return [
            Finding(**{**asdict(found), "rule": self.name, "says": self.sentence})
            for found in self.find(facts, self.threshold)
        ]


def findings(facts: Facts, rules: Iterable[Rule]) -> list[Finding]:
    """What the rules say of a model, what matters most first."""
    found = [finding for rule in rules for finding in rule(facts)]
    return sorted(found, key=lambda each: (LEVELS.index(each.level), -each.matters))


DEAD = 0.1


def is_dead(row: Mapping[str, Any], threshold: float = DEAD) -> bool:
    """A latent that carries nothing: passive, or without spread and without response."""
    if "type" in row:
        return bool(row["type"] == "passive")
    return bool(row.get("response", 1.0) < threshold)


NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def title(name: str) -> str:
    """The name of an assay as people write it."""
    return CATALOGUE[name].title


def listed(items: Sequence[Any]) -> str:
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def latents_named(latents: Sequence[int]) -> str:
    if len(latents) > 12:
        return f"Latents {', '.join(map(str, latents[:10]))} and {len(latents) - 10} others"
    return f"Latent{'' if len(latents) == 1 else 's'} {listed(latents)}"


def short(items: Sequence[int]) -> str:
    """A list of indices, by its ends if it is long."""
    if len(items) <= 24:
        return str(list(items))
    return f"[{', '.join(map(str, items[:8]))}, …, {items[-1]}]"


def sentence(parts: Sequence[str], most: int = 8) -> str:
    """Parts joined, with a capital, and dots for those that are too many."""
    text = "; ".join([*parts[:most], *(["…"] if parts[most:] else [])])
    return text[:1].upper() + text[1:]


def percent(share: float) -> str:
    value = 100 * share
    if 0 < value < 0.05:
        return "under 0.1 %"
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"

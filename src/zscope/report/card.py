"""The card *Ready for diffusion?*: every check of latents that are maps, with its number.

There is no single score: no number that has been published predicts how well a diffusion model
that is trained on a latent space will do.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zscope.assays import groups
from zscope.assays.diffusion.statistics import LatentStatistics
from zscope.assays.run import Measurements
from zscope.report.findings import LEVELS, Check, Finding, Level

__all__ = ["TITLE", "Card", "make_card"]

TITLE = "Ready for diffusion?"
GROUP = "diffusion"


@dataclass(frozen=True, eq=False)
class Card:
    """The checks, problems first; lines for config.json; and what could not be measured."""

    checks: list[Check]
    config: str  # one scale for all channels: scaling_factor, shift_factor
    channel_config: str  # or one for each: latents_mean, latents_std
    missing: dict[str, str]  # assays of the group without a result, and why

    @property
    def counts(self) -> dict[Level, int]:
        """How many checks have each level."""
        return {level: sum(each.level == level for each in self.checks) for level in LEVELS}

    @property
    def verdict(self) -> str:
        """The counts as in a sentence: 1 problem, 2 notes, 8 healthy."""
        problems, notes, healthy = self.counts.values()
        parts = [f"{problems} problem{'' if problems == 1 else 's'}"]
        parts += [f"{notes} note{'' if notes == 1 else 's'}", f"{healthy} healthy"]
        return ", ".join(parts)

    @property
    def reasons(self) -> dict[str, str]:
        """Why something could not be measured, with the assays that have this reason."""
        names: dict[str, list[str]] = {}
        for name, reason in self.missing.items():
            names.setdefault(reason, []).append(name)
        return {reason: ", ".join(each) for reason, each in names.items()}

    def __str__(self) -> str:
        lines = [f"{TITLE}  {self.verdict}"]
        lines += [f"  {each.level:8} {each}" for each in self.checks]
        lines += [f"  {'missing':8} {names}: {reason}" for reason, names in self.reasons.items()]
        if self.config:
            lines += ["For config.json, one scale for all channels or one for each:"]
            lines += [f"    {line}" for line in self.config.splitlines()]
            lines += ["  or", *(f"    {line}" for line in self.channel_config.splitlines())]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": TITLE,
            "counts": dict(self.counts),
            "checks": [each.to_dict() for each in self.checks],
            "config": self.config,
            "channel_config": self.channel_config,
            "missing": self.missing,
        }


def make_card(findings: Iterable[Finding], measurements: Measurements) -> Card | None:
    """The card, where an assay of the group was measured; the findings are in their order."""
    members = groups()[GROUP]
    if not any(name in measurements.results for name in members):
        return None
    failed = {name: failure.message for name, failure in measurements.failed.items()}
    reasons = {**measurements.missing, **failed}
    config = channel_config = ""
    if isinstance(statistics := measurements.results.get("latent-statistics"), LatentStatistics):
        config, channel_config = statistics.paste(), statistics.paste(channels=True)
    return Card(
        checks=[each for each in findings if isinstance(each, Check)],
        config=config,
        channel_config=channel_config,
        missing={name: reasons[name] for name in members if name in reasons},
    )

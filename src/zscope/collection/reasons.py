"""Why many runs failed, in a few lines: those with the same reason are one."""

import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Reason", "group_reasons"]

NAME = re.compile(r"[\w.+-]*-[0-9a-f]{12}(?![0-9a-f])")
"""The name of a run of a sweep."""
NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")


class Reason(NamedTuple):
    """The first of the runs that failed for a reason, why, and how many others did."""

    run: str
    text: str
    others: int

    @property
    def line(self) -> str:
        """The reason, and for how many other runs it is the same."""
        if not self.others:
            return self.text
        return f"{self.text} (and {self.others:,} more run{'s' * (self.others > 1)} like it)"


def group_reasons(reasons: Mapping[str, str]) -> list[Reason]:
    """Reasons by run, grouped by what they say but for names of runs and numbers.

    The most frequent come first.
    """
    groups: dict[str, list[str]] = {}
    for run, text in reasons.items():
        plain = NUMBER.sub("N", NAME.sub("RUN", text.replace(run, "RUN")))
        groups.setdefault(plain, []).append(run)
    grouped = [Reason(runs[0], reasons[runs[0]], len(runs) - 1) for runs in groups.values()]
    return sorted(grouped, key=lambda each: -each.others)

"""Which runs are compared with which: those that agree in everything but one setting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from zscope.collection import Runs
from zscope.errors import ConfigError

__all__ = ["ABSENT", "Matched", "key_text", "match", "numbers_of"]

Row = dict[str, Any]

ABSENT = "-"
"""What a table shows where there is no value."""


def numbers_of(values: Sequence[Any]) -> bool:
    """Whether these are numbers, at least one."""
    return bool(values) and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in values
    )


def key_text(value: Any) -> str:
    """A setting as a table shows it."""
    if value is None:
        return ABSENT
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Matched:
    """Runs of two levels that agree in `fields`."""

    pairs: list[tuple[list[Row], list[Row]]]
    fields: list[str]
    also: list[str]  # what differs too, of necessity
    alone: set[str]  # runs that have no partner

    def differences(self, column: str, label: str) -> list[float]:
        differences = []
        for first, second in self.pairs:
            values = [[row[column] for row in rows if row.get(column) is not None]
                      for rows in (first, second)]  # fmt: skip
            if all(values):
                if not all(map(numbers_of, values)):
                    raise ConfigError(
                        f"table: {label!r} is not a number ({values[0][0]!r}), so it has no "
                        "differences. Leave it out of the columns."
                    )
                differences.append(
                    sum(values[1]) / len(values[1]) - sum(values[0]) / len(values[0])
                )
        return differences


def match(runs: Runs, field: str, a: Any, b: Any) -> Matched:
    """Pair the runs of two levels by every other setting that varies.

    A setting that has one value at each level, and not the same, comes with the level (an option
    that only one of two models has): it is named instead.
    """
    first = [row for row in runs.rows if row.get(field) == a]
    second = [row for row in runs.rows if row.get(field) == b]
    fields, also = [], []
    for name in replace(runs, rows=first + second).varying():
        values = [{row.get(name) for row in rows} for rows in (first, second)]
        if name == field:
            continue
        if all(len(each) == 1 for each in values):
            one, other = (key_text(next(iter(each))) for each in values)
            also.append(
                f"{name} differs too: {one} with {field}={key_text(a)}, {other} with "
                f"{field}={key_text(b)}"
            )
        else:
            fields.append(name)
    groups: list[dict[tuple[Any, ...], list[Row]]] = [{}, {}]
    for group, rows in zip(groups, (first, second), strict=True):
        for row in rows:
            group.setdefault(tuple(row.get(name) for name in fields), []).append(row)
    both = [key for key in groups[0] if key in groups[1]]
    alone = {
        str(row["run"])
        for group in groups
        for key, rows in group.items()
        if key not in both
        for row in rows
    }
    return Matched([(groups[0][key], groups[1][key]) for key in both], fields, also, alone)

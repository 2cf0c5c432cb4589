"""The page on correctness: python docs/correctness.py writes docs/correctness.md.

Its numbers are those of tests/reference/coverage.json, which the slow tests of
tests/test_statistics.py measure, and its tests those of tests/correctness.toml.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
COVERAGE = TESTS / "reference" / "coverage.json"
PAGE = HERE / "correctness.md"
LEAST, MOST = 0.92, 0.99
"""Intervals that cover less are repaired or flagged; those that cover more are noted."""
KINDS = {
    "closed": "known values",
    "property": "what changes it and what does not",
    "route": "another route to the number",
    "refusal": "refused with a reason",
}
INTRO = f"""# Correctness

Every number on this page comes from a test. `make test-slow TESTS=tests/test_statistics.py`
measures the tables of intervals and p-values again and writes this page; the default tests check
that the page is up to date, that nothing is missing, and measure a few of the rows again.

## Do intervals cover what they say?

Nominal coverage is 95 %. Each row draws a world whose truth is known many times (seeds from 0) and
counts how often the printed interval contains it; in brackets the 95 % interval of that share
(Wilson). The truth is a closed form, or the score of very many samples. Some scores depend on the
number of samples, however large it is: their intervals are about the mean score of samples of
this size, the results say so, and "contains the truth" shows how often they contain the score of
very many samples nevertheless. What an interval is about is printed in bold. One that covers less
than {100 * LEAST:.0f} % of it is flagged in the result; more than {100 * MOST:.0f} % is cautious.
Mean and width are averages over the repeats; 3.92 sd, from the spread of the score over them, is
the width that the interval of a Gaussian score should have. All are conditional on the latents in
use, where a score selects them.
"""
P_VALUES = """## Are p-values uniform under the null?

Each row draws a world in which the hypothesis is true. A valid p-value is then at most 0.05 in 5 %
of the repeats, and so on; the last column is the p-value of a Kolmogorov-Smirnov test against
the uniform distribution.
"""
CHECKS = """## What each score and loss is checked against

Known values (closed forms), what changes the number and what does not (with a negative control),
another route to the same number, what is refused, and the faults that other implementations have
or had, each with the tests that show it. A file is found by its name below `tests/`.
"""


def shares(hits: int, repeats: int) -> tuple[float, float, float]:
    """A share and its 95 % interval (Wilson, JASA 22, 1927)."""
    z, share = 1.96, hits / repeats
    centre = (share + z**2 / (2 * repeats)) / (1 + z**2 / repeats)
    reach = (share * (1 - share) / repeats + (z / (2 * repeats)) ** 2) ** 0.5
    reach *= z / (1 + z**2 / repeats)
    return share, centre - reach, centre + reach


def percent(hits: int, repeats: int) -> str:
    share, low, high = shares(hits, repeats)
    return f"{share:.1%} ({low:.0%} to {high:.0%})".replace("%", " %")


def about(row: dict[str, Any]) -> float:
    """The share of repeats in which an interval contains what it is about."""
    return float(row["hits" if row["about"] == "truth" else "hits_at_this_size"] / row["repeats"])


def note(row: dict[str, Any]) -> str:
    covered = about(row)
    parts = []
    if row["about"] == "size":
        parts.append("about samples of this size (flagged)")
    if covered < LEAST:
        parts.append("covers less (flagged)")
    return ", ".join([*parts, *(["cautious"] if covered > MOST else [])])


def coverage_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| assay | measure | world | samples | resamples | repeats | truth | mean "
        "| contains the truth | contains the mean of this size | width | 3.92 sd | note |",
        "| --- |" + " --- |" * 12,
    ]
    for row in rows:
        repeats = row["repeats"]
        truth = f"{row['truth']:.4g} ({row['truth_from']})"
        both = [percent(row[key], repeats) for key in ("hits", "hits_at_this_size")]
        both[row["about"] == "size"] = f"**{both[row['about'] == 'size']}**"
        cells = [
            f"[{row['assay']}](assays/{row['assay']}.md)", row["measure"], row["world"],
            f"{row['samples']:,}", str(row["resamples"] or "none"), str(repeats), truth,
            f"{row['mean']:.4g}", *both,
            "one-sided" if row["width"] is None else f"{row['width']:.2g}",
            f"{3.92 * row['spread']:.2g}", note(row),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def p_value_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| assay | null | samples | repeats | p ≤ 0.05 | p ≤ 0.5 | uniform |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        repeats = row["repeats"]
        name = f"[{row['assay']}](assays/{row['assay']}.md)" if row["catalogue"] else row["assay"]
        below = [percent(row[key], repeats) for key in ("below_0.05", "below_0.5")]
        cells = [name, row["world"], f"{row['samples']:,}", str(repeats), *below]
        lines.append(f"| {' | '.join(cells)} | p = {row['uniform']:.2f} |")
    return "\n".join(lines)


def node(text: str) -> str:
    """ "mmd: name" as test_mmd.py::test_name."""
    file, _, name = text.partition(": ")
    return f"test_{file}.py::test_{name}"


def declared() -> dict[str, Any]:
    return tomllib.loads((TESTS / "correctness.toml").read_text(encoding="utf-8"))


def checks(table: dict[str, Any], part: str, name: str) -> dict[str, Any]:
    """What a score or loss is checked against: its own tests, then those it shares."""
    own = table[part].get(name, {})
    merged: dict[str, Any] = {kind: own.get(kind, []) for kind in (*KINDS, "faults")}
    merged["faults"] = dict(merged["faults"] or {})
    for group in table["shared"].values():
        if name in group["members"] or (part == "models" and "*" in group["members"]):
            for kind in KINDS:
                if not isinstance(merged[kind], str):
                    merged[kind] = [*merged[kind], *group.get(kind, [])]
            merged["faults"] |= group.get("faults", {})
    return merged


def checks_text(table: dict[str, Any], part: str, name: str, title: str) -> str:
    merged = checks(table, part, name)
    lines = [f"#### {name}", title]
    items = []
    for kind, words in KINDS.items():
        tests = merged[kind]
        text = f"none: {tests}" if isinstance(tests, str) else ", ".join(map(code, tests)) or "none"
        items.append(f"- {words}: {text}")
    for number, tests in sorted(merged["faults"].items(), key=lambda item: int(item[0])):
        fault = table["faults"][number].rstrip(".")
        items.append(
            f"- fault {number} of others, not here: {fault}: {', '.join(map(code, tests))}"
        )
    return "\n\n".join([*lines, "\n".join(items)])


def code(text: str) -> str:
    return f"`{node(text)}`"


def page() -> str:
    """The whole page."""
    from zscope import models
    from zscope.assays import CATALOGUE

    measured = json.loads(COVERAGE.read_text(encoding="utf-8"))
    table = declared()
    text = [
        INTRO, coverage_table(measured["intervals"]), P_VALUES, p_value_table(measured["p_values"]),
        CHECKS,
    ]  # fmt: skip
    group = ""
    for name, entry in CATALOGUE.items():
        if entry.group != group:
            group = entry.group
            text.append(f"### {group}")
        text.append(checks_text(table, "assays", name, entry.question))
    text.append("### Losses")
    for name in models.names():
        text.append(checks_text(table, "models", name, f"`{models.entry(name).formula}`"))
    return "\n\n".join(part.strip() for part in text) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Tables of scores: their numbers and flags as text; files of CSV, Parquet and LaTeX."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from zscope.errors import MissingExtra
from zscope.results import COLUMNS, Result, rows
from zscope.tables.formats import score_text, tex_text

__all__ = [
    "as_csv", "as_parquet", "as_tex", "first_names", "flag_lines", "long_rows", "names_by_text",
]  # fmt: skip


def first_names(names: Iterable[str], most: int = 6) -> str:
    """Names separated by commas; those after the first few are only counted."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def flag_lines(results: Mapping[str, Result]) -> list[str]:
    """What must be known to read the results, each flag once, with the assays it is about."""
    flags = names_by_text(
        (name, result.worded(flag))
        for name, result in results.items()
        for flag in getattr(result, "flags", [])
    )
    return [f"{names}: {flag}" for flag, names in flags.items()]


def names_by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Each text once, with the names of the assays that it is about."""
    names: dict[str, list[str]] = {}
    for name, text in pairs:
        names.setdefault(text, []).append(name)
    return {text: first_names(each) for text, each in names.items()}


def long_rows(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Every score in long form: assay, measure, value, low, high, chance, n, flavour."""
    return [row for name, result in results.items() for row in rows(result, name)]


def as_csv(table: list[dict[str, Any]], columns: Iterable[str] = COLUMNS) -> bytes:
    """Scores in long form, or a table of other columns, as comma-separated values."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue().encode()


def as_parquet(table: list[dict[str, Any]]) -> bytes:
    """Scores in long form as a Parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("report", "pyarrow", "files") from None
    numbers = {name: pa.float64() for name in ("value", "low", "high", "chance")}
    types = {"n": pa.int64(), **numbers}
    columns = {
        name: pa.array([row[name] for row in table], types.get(name, pa.string()))
        for name in COLUMNS
    }
    memory = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), memory)
    return memory.getvalue()


def as_tex(table: list[dict[str, Any]]) -> bytes:
    """Scores as a LaTeX table (package booktabs)."""
    lines = [r"\begin{tabular}{lrrr}", r"\toprule"]
    lines += [r"score & value & 95\,\% interval & chance \\", r"\midrule"]
    for row in table:
        name = row["assay"] if row["measure"] == "score" else f"{row['assay']}, {row['measure']}"
        interval = (
            "" if row["low"] is None else f"{_tex_number(row['low'])} to {_tex_number(row['high'])}"
        )
        cells = [tex_text(name), _tex_number(row["value"]), interval, _tex_number(row["chance"])]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""]).encode()


def _tex_number(value: float | None) -> str:
    return tex_text(score_text(value))

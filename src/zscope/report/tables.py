"""The table of scores as a file: comma-separated values, Parquet or LaTeX."""

import csv
import io
from typing import Any

from zscope.errors import MissingExtra
from zscope.results import COLUMNS

__all__ = ["as_csv", "as_parquet", "as_tex"]


def as_csv(table: list[dict[str, Any]]) -> bytes:
    """Scores in long form as comma-separated values."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
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
        ends = "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"
        chance = "" if row["chance"] is None else f"{row['chance']:.3f}"
        cells = [_tex(name), f"{row['value']:.3f}", ends, chance]
        lines.append(
            " & ".join(cell.replace("-", "$-$") if k else cell for k, cell in enumerate(cells))
            + r" \\"
        )
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""]).encode()


def _tex(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, f"\\{character}")
    return text

"""Tables as text: numbers with sensible digits, Markdown, LaTeX, CSV and Parquet."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from zscope.errors import MissingExtra

__all__ = [
    "as_csv", "as_markdown", "as_parquet", "as_tex", "digits_of", "number_with_error",
    "plain_number", "score_text", "tex_text",
]  # fmt: skip


def score_text(value: float | None) -> str:
    """A score with about four digits, three of them after the point; "" for None."""
    if value is None:
        return ""
    size = abs(value)
    if size >= 10_000 or 0 < size < 0.01:
        return f"{value:.4g}"
    digits = 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return f"{value + 0.0:.{digits}f}"  # 0 also for -0.0


def digits_of(error: float) -> int | None:
    """Digits after the point that show two digits of an error; None of no or a huge range."""
    if error <= 0 or not math.isfinite(error):
        return None
    digits = 1 - math.floor(math.log10(error))
    return max(0, digits) if -4 < digits < 7 else None


def number_with_error(value: float, error: float, usual: int | None = None) -> tuple[str, str]:
    """A number and its error, to two digits of the error: ("0.312", "0.021").

    `usual` are the digits of most numbers in a column, which one more or less does not change.
    """
    digits = digits_of(error)
    if digits is None:
        exact = error == 0
        return (plain_number(value), "0") if exact else (f"{value:.3g}", f"{error:.2g}")
    if usual is not None and abs(digits - usual) <= 1:
        digits = usual
    return f"{_round(value, digits):.{digits}f}", f"{error:.{digits}f}"


def plain_number(value: float) -> str:
    """A number that has no error: a whole one without digits after the point."""
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e6 else score_text(value)


def _round(value: float, digits: int) -> float:
    return round(value, digits) + 0.0  # 0 also for -0.0


def as_markdown(cells: Sequence[Sequence[str]], left: int) -> str:
    """A Markdown table; the first `left` columns are aligned to the left."""
    escaped = [[cell.replace("\\", "\\\\").replace("|", "\\|") for cell in row] for row in cells]
    widths = [max(3, *map(len, column)) for column in zip(*escaped, strict=True)]

    def line(row: Sequence[str]) -> str:
        parts = [
            f"{cell:<{width}}" if k < left else f"{cell:>{width}}"
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return f"| {' | '.join(parts)} |"

    rules = ["-" * width if k < left else "-" * (width - 1) + ":" for k, width in enumerate(widths)]
    return "\n".join([line(escaped[0]), line(rules), *map(line, escaped[1:])])


def as_tex(cells: Sequence[Sequence[str]], left: int, notes: Sequence[str] = ()) -> str:
    """A LaTeX table (package booktabs); notes are comments above it."""
    width = len(cells[0])
    comments = [f"% {line}" for note in notes for line in note.splitlines()]
    lines = [*comments, rf"\begin{{tabular}}{{{'l' * left}{'r' * (width - left)}}}", r"\toprule"]
    rows = [" & ".join(map(tex_text, row)) + r" \\" for row in cells]
    return "\n".join([*lines, rows[0], r"\midrule", *rows[1:], r"\bottomrule", r"\end{tabular}"])


def tex_text(text: str) -> str:
    """Text as LaTeX prints it, with signs of mathematics as such."""
    escapes: dict[str, str | int | None] = {mark: f"\\{mark}" for mark in "&%$#_{}"}
    escapes |= {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}
    escapes |= {"±": r"$\pm$", "−": "$-$", "…": r"\ldots{}", "×": r"$\times$"}
    escapes |= {"β": r"$\beta$", "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}"}
    text = text.translate(str.maketrans(escapes))
    text = re.sub(r"(?<![\w.])(-?\d+(?:\.\d+)?)e([+-]?)0*(\d+)(?![\w.-])", _power, text)
    return re.sub(r"(?<![\w.${])-(?=\d)", "$-$", text)  # a minus, not a hyphen


def _power(match: re.Match[str]) -> str:
    return rf"{match[1]}$\times 10^{{{match[2].replace('+', '')}{match[3]}}}$"


def as_csv(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Comma-separated values with a header; "" for None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_parquet(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> bytes:
    """A Parquet file; a column with numbers and texts becomes one of texts."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("table", "pyarrow", "files") from None
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            texts = [None if value is None else str(value) for value in values]
            columns[name] = pa.array(texts, pa.string())
    memory = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), memory)
    return memory.getvalue()

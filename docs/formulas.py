"""Typeset the formulas of docstrings: their indented blocks become displayed formulas.

    PR = (sum_i lambda_i)^2 / sum_i lambda_i^2,      1 <= PR <= latents

Three spaces or more separate what stands beside each other. A block with words beside its formulas
becomes a table. What `latex.py` cannot read stays a block of text, as it is in the docstring.
Formulas are written into the page as LaTeX, which KaTeX sets in the browser.
"""

import re
import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from latex import MARKED_LETTER, PAIRS, WORDS, Unreadable, latex

__all__ = ["display", "in_dollars", "typeset"]


def typeset(text: str, inline: bool = True) -> str:
    """Markdown whose indented blocks are formulas, as HTML that holds their LaTeX."""
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        if lines and all(line.startswith("    ") for line in lines):
            blocks.append(display([line[4:] for line in lines]))
        elif any(line.startswith("    ") for line in lines) and not lines[0].startswith("    "):
            blocks.append(mixed(lines, inline))
        else:
            blocks.append(prose(block) if inline else block)
    return "\n\n".join(blocks)


def mixed(lines: list[str], inline: bool) -> str:
    """A paragraph with a formula right below it, without an empty line between."""
    first = next(i for i, line in enumerate(lines) if line.startswith("    "))
    head, tail = "\n".join(lines[:first]), lines[first:]
    if re.match(r"\s*([-*]|\d+\.)\s", lines[0]) or not all(x.startswith("    ") for x in tail):
        return "\n".join(lines)
    return f"{prose(head) if inline else head}\n\n{display([line[4:] for line in tail])}"


SUBSCRIPTED = re.compile(
    rf"(?<![\w`/.'-])((?:{MARKED_LETTER}|(?:sigma|lambda|mu|rho|sum)(?=_))['†]?\*?"
    r"_(?:\{[^{} ]+\}|(?:first|second|max|[A-Za-z0-9]{1,3})(?![\w=]))(?:\^-?\d|²)?)(?!\()"
)


def prose(paragraph: str) -> str:
    """Single letters with a subscript are set as in the formulas around them."""
    parts = re.split(r"(``.*?``|`[^`]*`|\[[^\]]*\]\([^)]*\))", paragraph, flags=re.DOTALL)
    for number in range(0, len(parts), 2):
        words = parts[number].replace("<", "&lt;")
        parts[number] = SUBSCRIPTED.sub(lambda found: span(found[1]), words)
    return "".join(parts)


DOLLARS = re.compile(
    r"^```.*?^```|^ {4}[^\n]*|`[^`\n]+`"  # code, in which a dollar is a dollar
    r"|\$\$(?P<displayed>.+?)\$\$|(?<![\w$\\])\$(?P<inline>(?![\s$])[^$]+?(?<!\s))\$(?![\w$])",
    re.DOTALL | re.MULTILINE,
)


def in_dollars(page: str) -> str:
    """The LaTeX that a written page has between dollars, $x_j$ or $$ \\sum_j x_j $$, to be set."""

    def place(found: re.Match[str]) -> str:
        displayed, inline = found["displayed"], found["inline"]
        if not (displayed or inline):
            return found[0]
        tex, tag = " ".join((displayed or inline).split()), "div" if displayed else "span"
        return f'<{tag} class="tex" data-tex="{escape(tex)}">{safe(tex)}</{tag}>'

    return DOLLARS.sub(place, page)


def span(text: str) -> str:
    return f'<span class="tex" data-tex="{escape(latex(text))}">{safe(text)}</span>'


def safe_prose(text: str) -> str:
    """Words of a table cell, in which letters with a subscript are set as formulas."""
    parts = SUBSCRIPTED.split(text)
    html = "".join(span(part) if number % 2 else safe(part) for number, part in enumerate(parts))
    return re.sub(r"(?<=\w)\^(\d)", r"<sup>\1</sup>", html)


def safe(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return re.sub(r"[_*`\[\]\\]", lambda sign: f"&#{ord(sign[0])};", escape(text))


def display(lines: list[str]) -> str:
    """A block of formulas: displayed, or as a table if it has words beside them."""
    plain = "\n".join(lines)
    if is_code(plain):
        return f"```python\n{plain}\n```"
    try:
        rows = split_rows(lines)
        cells = [cell for row in rows for cell in row]
        words = any(is_prose(cell) or is_argument(cell) for cell in cells)
        if words or (len(rows) > 1 and any(is_label(cell) for cell in cells)):
            return table(rows)
        tex = align([[latex(cell) for cell in row] for row in rows])
    except Unreadable:
        return f"```text\n{plain}\n```"
    shown = f"<pre>{safe(plain)}</pre>".replace("\n", "&#10;")
    return f'<div class="tex" data-tex="{escape(tex)}">{shown}</div>'


def is_code(text: str) -> bool:
    return bool(re.search(r"\bzs\.|\bimport |^zscope |^python |^def |^class |^make ", text, re.M))


def is_prose(cell: str) -> bool:
    """Whether a cell is mostly words: such a one stays text."""
    plain = re.sub(r"_(?:\{[^}]*\}|[\w,]+)", "_", cell)
    words = [word for word in re.findall(r"[A-Za-z]+(?:'s)?", plain) if is_text(word)]
    signs = len(re.findall(r"<=|>=|\|\||[-=<>|^_/+~([{](?![a-z]{2})", plain))
    return len(words) >= 3 and len(words) > 2.5 * signs


def is_label(cell: str) -> bool:
    return bool(re.fullmatch(r"[a-z]+(?:[ -][a-z]+)*", cell))


def is_argument(cell: str) -> bool:
    return bool(re.fullmatch(r'\w+="[\w-]+":', cell))


def is_text(word: str) -> bool:
    """Whether a word is one of plain English, not a name or a function."""
    return len(word) > 1 and word.removesuffix("'s")[1:].islower() and word not in WORDS


def align(rows: list[list[str]]) -> str:
    if len(rows) == 1:
        return r" \qquad ".join(rows[0])
    width = max(map(len, rows))
    filled = [[rf"\displaystyle {cell}" for cell in row] for row in rows]
    lines = [" & ".join(row + [""] * (width - len(row))) for row in filled]
    body = r" \\[0.4em] ".join(lines)
    return rf"\begin{{array}}{{{'l' * width}}} {body} \end{{array}}"


def table(rows: list[list[str]]) -> str:
    """Formulas with words beside them, which break where the page is narrow."""
    width = max(map(len, rows))
    html = []
    for row in rows:
        cells = []
        for cell in row:
            if is_argument(cell):
                cells.append(f"<code>{safe(cell[:-1])}</code>")
            elif is_prose(cell) or is_label(cell):
                cells.append(safe_prose(cell))
            else:
                tex = escape(rf"\displaystyle {latex(cell)}")
                cells.append(f'<span class="tex" data-tex="{tex}">{safe(cell)}</span>')
        filled = [f"<td>{cell}</td>" for cell in cells[:-1]]
        span_of_last = width - len(row) + 1
        filled.append(f'<td colspan="{span_of_last}">{cells[-1]}</td>')
        html.append(f"<tr>{''.join(filled)}</tr>")
    return f'<table class="formulas"><tbody>{"".join(html)}</tbody></table>'


def split_rows(lines: list[str]) -> list[list[str]]:
    """The rows of a block, each of its cells; a line that is indented goes on with the last one."""
    starts = [line for line in lines if not line.startswith(" ")]
    if not starts or lines[0].startswith(" "):
        raise Unreadable("the first line is indented")
    column = label_column(starts)
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith(" "):
            rows[-1][-1] += " " + line.strip()
            continue
        head = [line[:column]] if column else []
        rows.append([])
        for cell in [*head, *re.split(r"\s{3,}", line[column:].strip())]:
            words = " ".join(cell.split())
            if rows[-1] and re.match(r"(=|<=|>=|≈|and) ", words) and not is_label(rows[-1][-1]):
                rows[-1][-1] += " " + words  # the signs of several rows were aligned
            elif words:
                rows[-1].append(words)
    if len(rows) > 1 and all(split_at_equals(row) for row in rows):
        return [split_at_equals(row) for row in rows]
    return rows


def label_column(lines: list[str]) -> int:
    """Where all lines go on after a label and two spaces; 0 if they do not."""
    if len(lines) < 2:
        return 0
    for column in range(2, min(map(len, lines))):
        if all(
            line[column] != " " and line[column - 2 : column] == "  " and line[:column].strip()
            for line in lines
        ):
            return column
    return 0


def split_at_equals(row: list[str]) -> list[str]:
    """`a = b` as two cells, so that the signs stand below each other; nothing if it has none."""
    if len(row) > 1 and row[1].startswith("= "):
        return row
    found = re.match(r"([^=<>|]+) ((?:=|<=|>=|≈) .*)", row[0])
    if found and all(found[1].count(a) == found[1].count(b) for a, b in PAIRS.items()):
        return [found[1], found[2], *row[1:]]
    return []

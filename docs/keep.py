"""Train small models, measure them, and keep figures and scores for the documentation.

    python docs/keep.py                     # everything, in about 10 minutes of two cores
    python docs/keep.py mig holes           # only these figures

`docs/kept` gets a figure for each assay that has one, and the further figures of the gallery, as
SVG or, where that is smaller, as PNG; `docs/kept/scores.json` has the scores that belong to them.
The building of the documentation reads these files and trains nothing. The code that is run here
is the code that the gallery shows.
"""

import argparse
import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from gallery import KEPT, WORLDS, Picture, figures

__all__ = ["MOST", "keep", "make_world", "run_code", "save"]

MOST = 60_000
"""Bytes of a figure as SVG; a larger one is kept as PNG."""
DPI = (150, 100)


def keep(
    names: Iterable[str] | None = None,
    folder: Path = KEPT,
    smaller: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Draw the named figures, or all of them, into a folder; name -> why there is none.

    `smaller` are replacements in the code, as {"steps=2000": "steps=20"} for tests.
    """
    wanted = [figures()[name] for name in (names or figures())]
    folder.mkdir(parents=True, exist_ok=True)
    scores: dict[str, list[list[str]]] = {}
    failures: dict[str, str] = {}
    for world in dict.fromkeys(picture.world for picture in wanted):
        with working_folder():
            space = make_world(world, smaller)
            for picture in wanted:
                if picture.world != world:
                    continue
                started = time.monotonic()
                try:
                    result, drawing = run_code(picture.code, space)
                    save(drawing, folder, picture)
                except Exception as error:
                    failures[picture.name] = f"{type(error).__name__}: {error}"
                else:
                    scores[picture.name] = rows_of(result)
                print(f"{picture.name}: {time.monotonic() - started:.1f} s", flush=True)
    file = folder / "scores.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    merged = {
        name: rows for name, rows in sorted({**before, **scores}.items()) if name in figures()
    }
    file.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return failures


@contextlib.contextmanager
def working_folder() -> Iterator[None]:
    """An empty folder, where the runs of a world are."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def make_world(name: str, smaller: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The names that the code of a world defines."""
    code = WORLDS[name][1]
    for old, new in (smaller or {}).items():
        code = re.sub(old, new, code)
    space: dict[str, Any] = {}
    exec(compile(code, f"<{name}>", "exec"), space)
    return space


def run_code(code: str, space: dict[str, Any]) -> tuple[Any, Any]:
    """The result and the drawing of code that ends in `RESULT.plot()`."""
    *before, last = ast.parse(code).body
    if not (
        isinstance(last, ast.Expr)
        and isinstance(last.value, ast.Call)
        and isinstance(last.value.func, ast.Attribute)
        and last.value.func.attr == "plot"
    ):
        raise ValueError(f"expected code that ends in RESULT.plot(), got: {code}")
    exec(compile(ast.Module(before, []), "<gallery>", "exec"), space)
    result = eval(compile(ast.Expression(last.value.func.value), "<gallery>", "eval"), space)
    return result, result.plot()


def save(drawing: Any, folder: Path, picture: Picture) -> Path:
    """Write a figure as SVG or as PNG, whichever is small enough, instead of the one before."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    figure = drawing if hasattr(drawing, "savefig") else drawing.get_figure()
    options: Any = {"svg.hashsalt": picture.name, "svg.fonttype": "path"}
    memory = io.BytesIO()
    with mpl.rc_context(options):
        figure.savefig(memory, format="svg", metadata={"Date": None})
    content, kind = shorten(memory.getvalue()), "svg"
    for dpi in DPI:
        if len(content) <= MOST:
            break
        memory = io.BytesIO()
        figure.savefig(memory, format="png", dpi=dpi)
        content, kind = reduce_colours(memory.getvalue()), "png"
    plt.close(figure)
    for other in ("svg", "png"):
        (folder / f"{picture.name}.{other}").unlink(missing_ok=True)
    file = folder / f"{picture.name}.{kind}"
    file.write_bytes(content)
    return file


def shorten(svg: bytes) -> bytes:
    """Lines are precise to a hundredth of a point; how letters are scaled stays exact."""

    def rounded(path: re.Match[str]) -> str:
        return re.sub(r"(\d+\.\d{2})\d+", r"\1", path[0])

    text = re.sub(r' d="[^"]*"', rounded, svg.decode())
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    return re.sub(r"\n\s*", "\n", text).encode()


def reduce_colours(png: bytes) -> bytes:
    """The picture with 128 colours, if that is smaller."""
    from PIL import Image

    memory = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(memory, "png", optimize=True)
    return min(png, memory.getvalue(), key=len)


def rows_of(result: Any) -> list[list[str]]:
    """The scores of a result as a table prints them: measure, value, interval, chance, samples."""
    return [[measure.name, *measure.cells()] for measure in result.measures()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="FIGURE", help="By default all of them.")
    names = parser.parse_args().names
    if unknown := sorted(set(names) - set(figures())):
        parser.error(f"no figure is called {', '.join(unknown)}; known: {', '.join(figures())}")
    import matplotlib

    matplotlib.use("Agg")
    failures = keep(names)
    for file in KEPT.iterdir():
        if file.suffix in {".svg", ".png"} and file.stem not in figures():
            file.unlink()  # of an assay that is gone
    for name, why in failures.items():
        print(f"no figure of {name}: {why}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

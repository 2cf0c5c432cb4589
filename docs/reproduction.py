"""Make docs/reproduction.md and its gallery from the kept measurements of studies.

    python docs/reproduction.py --from studies      # keep the measurements of studies that were run
    python docs/reproduction.py                     # draw and judge again what is kept
    python docs/reproduction.py --from studies regime-types     # only these studies

Nothing is trained or measured. `docs/reproduction/NAME` has the measurements, the claims, the
tables and the figures of one study: at most 300 kB, so that the whole stays small.
"""

import argparse
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from zscope.experiments import studies
from zscope.experiments.studies.storage import FILE, read_results
from zscope.report.studies import write_reproduction, write_study

HERE = Path(__file__).parent
KEPT = HERE / "reproduction"
MOST = 300_000
"""Bytes of one study."""
COLOURS = (256, 128, 64, 32, 16)
RESOLUTIONS = (150, 100)


def keep(source: Path, names: Sequence[str]) -> None:
    """Copy the measurements of studies in a folder that were run at scale small."""
    for name in names:
        file = source / name / FILE
        if file.is_file() and read_results(source / name).scale == "small":
            (KEPT / name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, KEPT / name / FILE)


def draw(name: str) -> None:
    """Draw and judge one study again, in as many bytes as it may have."""
    folder = KEPT / name
    for dpi in RESOLUTIONS:
        shutil.rmtree(folder / "figures", ignore_errors=True)
        shutil.rmtree(folder / "tables", ignore_errors=True)
        write_study(studies.load(name), read_results(folder), folder, formats=("png",), dpi=dpi)
        (folder / "study.html").unlink()
        claims = folder / "claims.json"
        content = json.loads(claims.read_text(encoding="utf-8"))
        claims.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
        for file in [*folder.glob("tables/*.tex"), *folder.glob("tables/*.csv")]:
            file.unlink()
        for colours in COLOURS:
            for image in folder.glob("figures/*.png"):
                shrink(image, colours)
            size = sum(file.stat().st_size for file in folder.rglob("*.*"))
            if size <= MOST:
                return
    print(f"{name}: {size:,} bytes, more than {MOST:,}. Measure fewer or smaller pictures.")


def shrink(file: Path, colours: int) -> None:
    """Save a picture with fewer colours, which a chart does not need."""
    memory = io.BytesIO()
    with Image.open(file) as image:
        image.convert("RGB").quantize(colours).save(memory, "png", optimize=True)
    if len(memory.getvalue()) < file.stat().st_size:
        file.write_bytes(memory.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--from", dest="source", type=Path, help="The folder of `zscope study run`."
    )
    parser.add_argument("names", nargs="*", help="Studies (default: all).")
    given = parser.parse_args()
    names = [studies.load(name).name for name in given.names] or studies.names()
    if given.source is not None:
        keep(given.source, names)
    for name in names:
        if (KEPT / name / FILE).is_file():
            draw(name)
    write_reproduction(KEPT, HERE / "reproduction.md")


if __name__ == "__main__":
    main()

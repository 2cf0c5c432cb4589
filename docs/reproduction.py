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

import numpy as np
from PIL import Image

from zscope.experiments import studies
from zscope.experiments.studies.storage import FILE, read_results
from zscope.report.studies import write_reproduction, write_study

HERE = Path(__file__).parent
KEPT = HERE / "reproduction"
MOST = 300_000
"""Bytes of one study."""
COLOURS = (256, 128, 64, 32)
"""With fewer, lines of a chart look alike, and files are no smaller."""
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
        drawings = {file: file.read_bytes() for file in folder.glob("figures/*.png")}
        for colours in COLOURS:
            for file, drawing in drawings.items():
                file.write_bytes(min(drawing, shrink(drawing, colours), key=len))
            size = sum(file.stat().st_size for file in folder.rglob("*.*"))
            if size <= MOST:
                return
    print(f"{name}: {size:,} bytes, more than {MOST:,}. Measure fewer or smaller pictures.")


def shrink(drawing: bytes, colours: int) -> bytes:
    """The picture with at most so many of its colours, each pixel with the nearest of them."""
    pixels = np.asarray(Image.open(io.BytesIO(drawing)).convert("RGB"))
    values, places, counts = np.unique(
        pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    palette = choose_colours(values, counts, colours)
    nearest = [_squares(palette, value).argmin() for value in values]
    image = Image.new("P", pixels.shape[1::-1])
    image.putpalette(palette.tobytes())
    image.putdata(np.array(nearest)[places.ravel()].tolist())
    memory = io.BytesIO()
    image.save(memory, "png", optimize=True)
    return memory.getvalue()


def choose_colours(values: np.ndarray, counts: np.ndarray, most: int) -> np.ndarray:
    """Colours of a picture, so that no frequent one is far from all of them.

    One after another, that with the largest sqrt(count) d^2, where d is its distance from those
    that were chosen. Methods that cut the space of colours into parts of as many pixels each, such
    as the median cut, give two thin lines one colour, the mean of both.
    """
    common = np.argsort(-counts, kind="stable")
    # The most frequent colour of each box stands for it: shades of one colour are no two colours.
    _, first, box = np.unique(values[common] // 8, axis=0, return_index=True, return_inverse=True)
    candidates = values[common[first]]
    weights = np.sqrt(np.bincount(box.ravel(), weights=counts[common]))
    chosen = [int(weights.argmax())]
    distances = _squares(candidates, candidates[chosen[0]])
    while len(chosen) < most and distances.any():
        chosen.append(int((weights * distances).argmax()))
        distances = np.minimum(distances, _squares(candidates, candidates[chosen[-1]]))
    return candidates[chosen]


def _squares(colours: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Squared distances of colours from one."""
    difference: np.ndarray = colours.astype(int) - colour.astype(int)
    return (difference**2).sum(1)


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

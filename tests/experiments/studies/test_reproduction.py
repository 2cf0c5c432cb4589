"""The kept measurements of studies: small, complete, and judged as the page says."""

import io
import re
import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zscope.documents import read_json
from zscope.experiments import studies
from zscope.experiments.studies.storage import read_results

KEPT = Path(__file__).resolve().parents[3] / "docs" / "reproduction"
NAMES = [name for name in studies.names() if (KEPT / name).is_dir()]


@cache
def judged(name):
    """The claims of a study, from its kept measurements."""
    return list(studies.load(name).claims(read_results(KEPT / name)))


def numbers(claim):
    """The number of seeds and the value of a claim, and of its parts; 0 if not measured."""
    own = [claim["seeds"], claim["measured"] or 0]
    return own + [number for part in claim.get("parts", ()) for number in numbers(part)]


@pytest.mark.parametrize("name", NAMES)
def test_the_verdicts_in_the_docs_follow_from_the_kept_measurements(name):
    assert read_results(KEPT / name).scale == "small"
    fresh = [(c.row, c.name, c.verdict) for c in judged(name)]
    kept = read_json(KEPT / name / "claims.json")["claims"]
    assert [(c["row"], c["name"], c["verdict"]) for c in kept] == fresh
    # Undecided by other runs is the same verdict: so numbers are compared too.
    assert [number for c in kept for number in numbers(c)] == pytest.approx(
        [number for c in judged(name) for number in numbers(c.to_dict())], rel=1e-2
    )
    text = (KEPT.parent / "reproduction.md").read_text()
    assert text.count(f"| {name} | ") == len(fresh)


@pytest.mark.parametrize("name", NAMES)
def test_the_sentence_of_a_control_stands_alone(name):
    # It is quoted where its claim is not: "control failed; expected: ...".
    leaning = re.compile(r"(and|but|while|it|they|them|that|those|in every)\b")
    sentences = {control.sentence for claim in judged(name) for each in (claim, *claim.parts)
                 for control in each.controls}  # fmt: skip
    assert not [sentence for sentence in sentences if leaning.match(sentence)]


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_study_is_small(name):
    assert sum(file.stat().st_size for file in (KEPT / name).rglob("*.*")) <= 300_000


@pytest.fixture(scope="module")
def shrink():
    return runpy.run_path(str(KEPT.parent / "reproduction.py"))["shrink"]


def as_png(pixels):
    memory = io.BytesIO()
    Image.fromarray(pixels).save(memory, "png")
    return memory.getvalue()


def test_thin_lines_keep_their_colours_beside_a_picture_of_many(shrink):
    lines = [(213, 96, 0), (221, 126, 51), (235, 178, 51), (51, 177, 143), (2, 115, 178)]
    pixels = np.full((200, 200, 3), 255, np.uint8)
    shades = np.linspace(0, 255, 200).astype(np.uint8)
    pixels[:150, :, 0], pixels[:150, :, 2] = shades, shades[:150, None]
    for row, colour in enumerate(lines):
        pixels[155 + 8 * row, 20:60] = colour
    small = shrink(as_png(pixels), 32)
    image = Image.open(io.BytesIO(small)).convert("RGB")
    assert len(image.getcolors()) == 32
    assert [image.getpixel((40, 155 + 8 * row)) for row in range(len(lines))] == lines
    worst = np.abs(np.asarray(image).astype(int) - pixels).max()
    assert worst < 64


def test_a_picture_of_few_colours_stays_as_it_is(shrink):
    pixels = np.random.default_rng(0).integers(0, 2, (20, 30, 3)).astype(np.uint8) * 255
    image = Image.open(io.BytesIO(shrink(as_png(pixels), 32)))
    np.testing.assert_array_equal(np.asarray(image.convert("RGB")), pixels)


def test_all_of_them_together_are_small():
    assert sum(file.stat().st_size for file in KEPT.rglob("*.*")) <= 10_000_000

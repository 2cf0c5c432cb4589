"""Kept figures: each assay with a figure has one, and the script that draws them works."""

import json
import re
import struct

import pytest
from scripts import docs_script

from zscope.assays import CATALOGUE

gallery, keep, pages = docs_script("gallery"), docs_script("keep"), docs_script("pages")
SMALLER = {
    r"steps=\d+": "steps=3",
    r"samples=\d+": "samples=100",
    r"20_000": "100",
    r"snapshot_every=\d+, ": "",
    r"latents=\d+": "latents=3",
}


def test_every_assay_with_a_figure_has_a_kept_one_and_nothing_else_is_kept():
    kept = {file.stem for file in gallery.KEPT.glob("*") if file.suffix in {".svg", ".png"}}
    assert {name for name, entry in CATALOGUE.items() if entry.figure} <= kept
    assert kept == set(gallery.figures())
    scores = json.loads((gallery.KEPT / "scores.json").read_text(encoding="utf-8"))
    assert set(scores) == kept


def test_kept_figures_are_small():
    sizes = [file.stat().st_size for file in gallery.KEPT.iterdir()]
    assert sum(sizes) < 3_000_000
    assert max(sizes) < 200_000


def test_beneath_every_figure_is_how_to_read_it():
    texts = pages.assay_pages()
    for name, entry in CATALOGUE.items():
        text = texts[f"assays/{name}.md"]
        assert entry.meaning in text.partition("## ")[0]
        if entry.figure:
            figure = text.partition("<figure")[2].partition("</figure>")[0]
            assert f"kept/{name}." in figure
            assert entry.figure in figure.partition("<figcaption")[2]
        else:
            assert "<figure" not in text


def test_on_dark_pages_figures_are_inverted_but_pictures_of_data_are_not():
    """By their classes; a figure that the library marks as pictures of data is known here too."""
    css = (gallery.HERE / "assets" / "site.css").read_text()
    assert '[data-md-color-scheme="slate"] .drawn' in css
    assert ".pictures" not in css
    assert set(gallery.figures()) > gallery.OF_DATA
    page = gallery.gallery_pages()["gallery/holes.md"]
    assert re.search(r"kept/holes\.svg\)\{ \.drawn ", page)
    assert re.search(r"kept/manifold-path\.svg\)\{ \.pictures ", page)
    for file in gallery.KEPT.glob("*.svg"):
        assert 'id="pictures"' not in file.read_text() or file.stem in gallery.OF_DATA


def test_every_figure_is_in_the_gallery_with_its_code_or_is_much_like_one_that_is():
    texts = gallery.gallery_pages()
    shown = {name for question in gallery.QUESTIONS for name in question.pictures}
    assert shown <= set(gallery.figures())
    assert len(shown) > 0.85 * len(gallery.figures())
    for question in gallery.QUESTIONS:
        text = texts[f"gallery/{question.name}.md"]
        assert text.startswith(f"# {question.title}\n")
        assert f'href="{question.name}/"' in texts["gallery/index.md"]
        for name in question.pictures:
            picture = gallery.figures()[name]
            assert picture.code in text
            assert gallery.WORLDS[picture.world][1] in text
            assert picture.reading in text
        for study, name in question.studies:
            file = gallery.HERE / "reproduction" / study / "figures" / f"{name}.png"
            assert file.is_file()
            assert f"{study}/figures/{name}.png" in text


def test_the_script_draws_what_the_gallery_shows(tmp_path):
    names = ["udr", "feature-effects"]
    failures = keep.keep(names, tmp_path, SMALLER)
    assert not failures
    files = {file.stem: file for file in tmp_path.iterdir() if file.suffix != ".json"}
    assert set(files) == set(names)
    for file in files.values():
        content = file.read_bytes()
        assert len(content) > 2_000
        assert content.startswith(b"\x89PNG" if file.suffix == ".png" else b"<?xml")
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert [row[0] for row in scores["udr"]] == [""]
    assert 0 <= float(scores["udr"][0][1]) <= 1


def test_a_figure_that_cannot_be_drawn_is_named_with_the_reason(tmp_path, monkeypatch):
    broken = gallery.Picture("broken", "", "", "zs.Undefined('no latent is used').plot()", "wine")
    monkeypatch.setattr(keep, "figures", lambda: {"broken": broken})
    failures = keep.keep(["broken"], tmp_path, SMALLER)
    assert list(failures) == ["broken"]
    assert not list(tmp_path.glob("broken.*"))


def test_only_code_that_ends_in_a_plot_is_run():
    with pytest.raises(ValueError, match="RESULT.plot"):
        keep.run_code("x = 3", {})


def test_how_letters_are_scaled_is_not_rounded():
    svg = b'<path d="M 1.23456 2.5 L 0.123456 3"/><use transform="scale(0.015625)"/>'
    assert keep.shorten(svg) == (
        b'<path d="M 1.23 2.5 L 0.12 3"/><use transform="scale(0.015625)"/>'
    )


def test_the_size_of_a_picture_is_read_from_its_file(tmp_path):
    png = tmp_path / "a.png"
    png.write_bytes(b"\x89PNG" + bytes(12) + struct.pack(">II", 300, 150))
    assert gallery.size_of(png) == (256, 128)
    svg = tmp_path / "a.svg"
    svg.write_text('<svg width="72pt" height="36pt">')
    assert gallery.size_of(svg) == (128, 64)

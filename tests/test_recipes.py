"""An assay, a score and a finding, added as CONTRIBUTING.md says, appear wherever they should."""

import csv
import importlib
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scripts import docs_script
from typer.testing import CliRunner

import zscope as zs
from zscope.assays.entry import read_entry
from zscope.cli import app
from zscope.report import build, page, rules

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def code_blocks(chapter: str) -> list[str]:
    text = TEXT.split(f"\n## {chapter}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


ASSAY, TEST, ASSAY_LINE, SCORE, SCORE_LINE = code_blocks("An assay")
FINDING, RULE = code_blocks("A finding")


def add_file(block: str, folder: Path, monkeypatch) -> str:
    """Write a code block to where its first line says, below `folder`; returns its module."""
    place = Path(block.splitlines()[0].removeprefix("# src/"))
    file = folder / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block)
    package = importlib.import_module(".".join(place.parts[:-1]))
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(file.parent)])
    importlib.invalidate_caches()
    return f"{package.__name__}.{place.stem}"


def forget(module: str, attribute: str = "") -> None:
    """Remove a module, and the function that `zs.assays` has loaded from it."""
    package, _, name = module.rpartition(".")
    sys.modules.pop(module, None)
    vars(sys.modules[package]).pop(name, None)
    vars(zs.assays).pop(attribute, None)


def add_assay(block: str, line: str, folder: Path, monkeypatch) -> tuple[str, str]:
    """The recipe followed: one file, one line in the catalogue."""
    name, place = re.fullmatch(r'\s*"([\w-]+)": "([\w.]+)",\s*', line).groups()
    module = add_file(block, folder, monkeypatch)
    assert module == f"zscope.assays.{place}"
    monkeypatch.setitem(zs.assays.CATALOGUE, name, read_entry(name, module))
    return name, module


@pytest.fixture(name="assay")
def _assay(tmp_path, monkeypatch):
    name, module = add_assay(ASSAY, ASSAY_LINE, tmp_path, monkeypatch)
    yield name
    forget(module, name.replace("-", "_"))


@pytest.fixture(name="score")
def _score(tmp_path, monkeypatch):
    name, module = add_assay(SCORE, SCORE_LINE, tmp_path, monkeypatch)
    yield name
    forget(module, name.replace("-", "_"))


@pytest.fixture(name="rule")
def _rule(tmp_path, monkeypatch):
    module = add_file(FINDING, tmp_path, monkeypatch)
    names = {"Rule": rules.Rule, "scales": importlib.import_module(module)}
    rule = eval(RULE.strip().rstrip(","), names)
    longer = (*rules.RULES, rule)
    for place in (rules, build, page):  # the one tuple, which the other two import
        monkeypatch.setattr(place, "RULES", longer)
    yield rule
    forget(module)


@pytest.fixture(scope="module", name="codes")
def _codes():
    """Codes of which the first two are the factors, with noise; they vary in three directions."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(5, (300, 2), generator=generator).double()
    codes = torch.cat([factors, torch.randn(300, 1, generator=generator).double()], 1)
    return (codes + 0.1 * torch.randn(300, 3, generator=generator)).numpy(), factors.numpy()


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory):
    """A run whose data have two factors."""
    data = zs.data.load("square-linear")
    model = zs.models.build("vae", shape=data.shape, latents=3, hidden=(8,))
    folder = tmp_path_factory.mktemp("runs") / "square"
    zs.train(model, data, steps=20, rate=1e-2, out=folder, progress=False)
    return str(folder)


def invoke(*words) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def docs_pages(monkeypatch) -> dict[str, str]:
    monkeypatch.setenv("ZSCOPE_DOCS_FIGURES", "no")
    return docs_script("pages").assay_pages()


def lines_by_name(text: str) -> dict[str, list[str]]:
    """The words of each line of a printed table, by the first of them."""
    return {words[0]: words[1:] for line in text.splitlines() if (words := line.split())}


def test_the_contributed_test_passes(assay):
    names: dict = {}
    exec(TEST, names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()


def test_a_made_up_assay_is_measured_by_every_door(assay, codes):
    recording = zs.Recording.from_arrays(*codes)
    covariance = np.cov(codes[0], rowvar=False)
    expected = np.trace(covariance) ** 2 / np.trace(covariance @ covariance)
    assert zs.assays.participation_ratio(recording).score == pytest.approx(expected)
    assert zs.assays.participation_ratio(codes[0]).score == pytest.approx(expected)
    report = zs.assay(recording, names=["dimension"], progress=False)
    assert report.results[assay].score == pytest.approx(expected)
    assert assay in zs.assays.groups()["dimension"]


def test_a_made_up_assay_is_listed_and_printed(assay, run):
    listed = invoke("assay", "--list").split("\ndimension\n")[1].split("\n\n")[0]
    assert " ".join(lines_by_name(listed)[assay]) == "Along how many directions do the codes vary?"
    printed = lines_by_name(invoke("assay", run, "dimension", "--samples", 200, "--quiet"))
    assert 1 <= float(printed[assay][0]) <= 3
    assert printed[assay][1:] == ["none", "none", "200"]
    again = lines_by_name(invoke("assay", run, "dimension", "--samples", 200, "--quiet"))
    assert again[assay] == printed[assay]
    assert (Path(run) / "assays" / f"{assay}.kept.npz").is_file()


def test_a_made_up_assay_is_in_every_format_of_a_report(assay, codes, tmp_path):
    report = zs.assay(zs.Recording.from_arrays(*codes), names=["dimension"], progress=False)
    value = report.results[assay].score
    text = report.save(tmp_path / "report.html").read_text()
    assert f'id="{assay}"' in text
    for part in ("Along how many directions", "bioRxiv 214262", "zs.assays.participation_ratio"):
        assert part in text
    assert "Codes without information may vary along any number of directions" in text
    content = json.loads((tmp_path / "report.json").read_text())["assays"][assay]
    assert content["result"]["score"] == pytest.approx(value, rel=1e-5)
    table = report.save(tmp_path / "scores.csv").read_text()
    (row,) = [row for row in csv.DictReader(io.StringIO(table)) if row["assay"] == assay]
    assert (float(row["value"]), row["n"]) == (value, "300")


def test_a_made_up_assay_has_a_page_in_the_docs(assay, monkeypatch):
    pages = docs_pages(monkeypatch)
    text = pages[f"assays/{assay}.md"]
    for part in ("bioRxiv 214262", "zs.assays.participation_ratio(recording)", "Group: dimension"):
        assert part in text
    assert f"[{assay}]({assay}.md)" in pages["assays/index.md"]


def test_a_made_up_score_is_among_the_scores_of_files(score, codes, tmp_path):
    files = [tmp_path / "codes.npy", tmp_path / "factors.npy"]
    for file, array in zip(files, codes, strict=True):
        np.save(file, array)
    expected = zs.assays.best_correlation(*codes)
    assert expected.score > 0.9
    assert expected.chance < 0.1
    words = ["--quiet", "--resamples", 2]
    printed = lines_by_name(invoke("score", *files, *words).split("by factor")[0])
    assert float(printed[score][0]) == pytest.approx(expected.score, abs=1e-3)
    assert "to" in printed[score]
    content = json.loads(invoke("score", *files, "--only", score, "--json"))
    assert list(content["scores"]) == [score]
    assert content["scores"][score]["score"] == expected.score
    group = ["assay", files[0], "disentanglement", "--factors", files[1], "--quiet"]
    assert score in lines_by_name(invoke(*group))


def test_a_made_up_score_is_measured_of_a_run_and_has_a_page(score, run, monkeypatch):
    words = ("disentanglement", "--samples", 200, "--quiet", "--csv")
    rows = list(csv.DictReader(io.StringIO(invoke("assay", run, *words))))
    (row,) = [row for row in rows if row["assay"] == score]
    assert 0 <= float(row["value"]) <= 1
    assert row["chance"]
    pages = docs_pages(monkeypatch)
    assert "Is each factor a linear function of one latent?" in pages[f"assays/{score}.md"]


def test_a_made_up_finding_is_reported(rule, codes, tmp_path):
    recording = zs.Recording.from_arrays(codes[0] * [1, 1, 100], codes[1])
    report = zs.assay(recording, names=["effective-rank"], progress=False)
    (finding,) = [each for each in report.findings if each.rule == "unequal scales"]
    sentence = (
        "A few latents dominate the distances between codes: standardise the codes before you "
        "compare distances"
    )
    assert str(finding) == sentence
    assert sentence in str(report).splitlines()
    text = report.save(tmp_path / "report.html").read_text()
    content = json.loads((tmp_path / "report.json").read_text())
    assert [each["sentence"] for each in content["findings"]].count(sentence) == 1
    assert "unequal scales" in [each["name"] for each in content["rules"]]
    assert "A few latents dominate the distances between codes" in text
    assert "differ in scale by at most 10 times" in text


def test_a_made_up_finding_is_silent_below_its_threshold(rule, codes):
    report = zs.assay(zs.Recording.from_arrays(*codes), names=["effective-rank"], progress=False)
    assert "unequal scales" not in [each.rule for each in report.findings]

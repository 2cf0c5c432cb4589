"""--require and --junit: exit codes, files and what is measured."""

import json
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from zscope.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Codes that are their factors, as a file."""
    folder = tmp_path_factory.mktemp("codes")
    factors = np.stack(np.meshgrid(*map(np.arange, (5, 4, 6))), -1).reshape(-1, 3)
    np.savez(folder / "codes.npz", codes=factors.astype(float), factors=factors)
    return folder / "codes.npz"


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path, files):
    """Run a command in this process: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def run(command, *words):
        words = ["zscope", command, str(files), "--kinds", "ordinal", *map(str, words)]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


def rules(*texts):
    return [word for text in texts for word in ("--require", text)]


@pytest.mark.parametrize(
    ("limits", "code"),
    [(["mig > 0.5"], 0), (["mig > 0.5", "passive <= 2"], 3), (["passive < 1", "mig < 0.5"], 1)],
)
def test_exit_codes(zscope, limits, code):
    """Codes alone have no variances, so that the number of passive latents is not known."""
    ended, out, err = zscope("assay", *rules(*limits))
    assert (ended, err) == (code, "")
    assert out.count("> 0.5") == ("mig > 0.5" in limits)


def test_the_quick_gate_measures_only_what_it_needs_with_intervals(zscope):
    code, out, _ = zscope("assay", "sap", *rules("mig > 0.5", "latents == 3"), "--json")
    content = json.loads(out)
    assert code == 0
    assert list(content["assays"]) == ["sap", "mig"]
    (score,) = content["assays"]["mig"]["scores"][:1]
    assert score["interval"] is not None
    assert content["assays"]["sap"]["scores"][0]["interval"] is None
    assert [each["verdict"] for each in content["requirements"]["outcomes"]] == ["passed"] * 2


def test_findings_are_counted_after_all_assays_whatever_is_named(zscope):
    """Of one assay alone there are fewer findings, and the gate would be open."""
    _, out, _ = zscope("assay", "sap", *rules("problems <= 5"), "--json")
    assert {"mig", "sap", "effective-rank"} <= set(json.loads(out)["assays"])


def test_a_page_begins_with_the_requirements_and_the_file_for_ci_is_beside_it(zscope, tmp_path):
    given = ("-o", "page.html", "--junit", "gate.xml", "--json")
    limits = rules("mig > 0.5", "sap > 2", "passive <= 2")
    code, out, _ = zscope("report", "mig", *limits, *given)
    assert code == 1
    verdicts = ["passed", "failed", "undecided"]
    assert [each["verdict"] for each in json.loads(out)["requirements"]["outcomes"]] == verdicts
    saved = json.loads((tmp_path / "page.json").read_text())
    assert [each["verdict"] for each in saved["requirements"]["outcomes"]] == verdicts
    page = (tmp_path / "page.html").read_text()
    assert page.index('id="requirements"') < page.index('id="findings"')
    assert "3 requirements: 1 failed, 1 undecided, 1 passed" in page
    assert "--require" in page
    tree = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert [tree.get(name) for name in ("tests", "failures", "errors")] == ["3", "1", "1"]


@pytest.mark.parametrize("command", ["assay", "report"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (rules("mgi > 0.5"), "Did you mean mig"),
        (rules("mig > lots"), "expected a number"),
        (["--junit", "gate.xml"], "has nothing to say without a requirement"),
        ([*rules("mig > 0"), "--junit", "."], "is a folder"),
    ],
)
def test_what_cannot_be_read_ends_with_code_2_before_anything_is_done(
    zscope, tmp_path, command, words, message
):
    code, out, err = zscope(command, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["page.html", "page.json", "./page.html"])
def test_the_file_for_ci_does_not_replace_the_page_or_its_numbers(zscope, tmp_path, name):
    given = ("mig", "-o", "page.html", "--junit", name)
    code, _, err = zscope("report", *given, *rules("mig > 0.5"))
    assert code == 2
    assert "is a file of the report itself" in err
    assert list(tmp_path.iterdir()) == []


def test_without_rules_nothing_changes(zscope):
    code, out, _ = zscope("assay", "mig", "--json")
    assert code == 0
    assert "requirements" not in json.loads(out)

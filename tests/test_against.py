"""What is said of other libraries is on a page that a script has written, digit by digit."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import zscope as zs

ROOT = Path(__file__).resolve().parents[1]
AGAINST = ROOT / "benchmarks" / "against"
sys.path += [str(AGAINST.parent), str(AGAINST)]
import answers  # noqa: E402
import known_worlds  # noqa: E402

README = (ROOT / "README.md").read_text()
RESULTS = (AGAINST / "RESULTS.md").read_text()


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def written():
    """(world, observations, score) -> the three cells of the page."""
    sections = {}
    for name, title in known_worlds.TITLES.items():
        text = RESULTS.split(f"## {title}\n")[1].split("\n## ")[0]
        for part in re.split(r"^(?=[\d,]+ observations:)", text, flags=re.MULTILINE)[1:]:
            rows = int(part.split()[0].replace(",", ""))
            for line in re.findall(r"^\| (?!score|---).*$", part, re.MULTILINE):
                score, *values = cells(line)
                sections[name, rows, score] = values
    return sections


PAGE = written()


def test_the_page_has_every_world_size_and_score():
    wanted = {(w, n, s) for w in known_worlds.TITLES for n in known_worlds.ROWS
              for s in known_worlds.SCORES}  # fmt: skip
    assert set(PAGE) == wanted
    assert "nan" not in RESULTS
    for package in ("latentverse", "scikit-dimension"):
        assert known_worlds.version_of(package) in RESULTS


def test_the_readme_quotes_the_digits_of_the_page():
    quotes = re.findall(r"^\| (noise|perfect|rotated): (\w+) \| ([01]) \| (.*)$", README, re.M)
    assert len(quotes) >= 5
    for world, score, right, line in quotes:
        means = [cell.split(" ± ")[0] for cell in PAGE[world, 5000, score]]
        assert cells(line) == means, (world, score)
        assert right == {"noise": "0", "perfect": "1"}[world]
    assert known_worlds.version_of("latentverse") in README
    for title in ("Similarity of unrelated", "Dimension, with rows"):
        section = RESULTS.split(f"## {title}")[1].split("\n## ")[0]
        digits = re.findall(r"\d\.\d\d\b", section)
        assert len(digits) in (2, 4)
        assert all(digit in README for digit in digits)


def test_a_score_that_is_worse_than_elsewhere_is_quoted_too():
    """A table of wins alone would be advertising."""
    worse = re.search(r"^\| perfect: mig \| 1 \| ([\d.]+) \| ([\d.]+) \|", README, re.M)
    assert float(worse[1]) < float(worse[2])


@pytest.mark.parametrize("name", known_worlds.TITLES)
def test_what_the_page_says_of_zscope_is_what_zscope_gives(name):
    """With 500 observations, which takes a second; boosting differs a little by machine."""
    scores = [known_worlds.by_zscope(*known_worlds.world(name, 500, seed), "zscope")
              for seed in known_worlds.SEEDS]  # fmt: skip
    for score in known_worlds.SCORES:
        mean = float(PAGE[name, 500, score][0].split(" ± ")[0].replace("−", "-"))
        assert np.mean([each[score] for each in scores]) == pytest.approx(mean, abs=0.02), score


def test_the_worlds_are_what_they_are_called():
    for name in known_worlds.TITLES:
        codes, factors = known_worlds.world(name, 5000, 0)
        assert codes.shape == (5000, known_worlds.LATENTS)
        assert tuple(factors.max(0) + 1) == known_worlds.VALUES
        correlations = np.abs(np.corrcoef(codes, factors, rowvar=False)[:8, 8:])
        assert correlations[5:].max() < 0.06  # noise in every world
        if name == "noise":
            assert correlations.max() < 0.06
        elif name == "perfect":
            assert np.diag(correlations).min() > 0.999
            assert (correlations - np.eye(8, 5)).max() < 0.06
        else:
            assert np.sort(correlations.max(1))[-1] < 0.95
            assert np.square(correlations).sum(0) == pytest.approx(1, abs=0.1)  # all encoded


def test_a_table_has_means_and_spreads_and_no_cell_for_a_score_that_a_tool_lacks():
    rows = [{"world": "noise", "rows": 500, "tool": "zscope", "mig": value} for value in (0.1, 0.3)]
    line = next(
        line for line in known_worlds.table(rows, "noise", 500).splitlines() if "mig" in line
    )
    assert cells(line) == ["mig", "0.200 ± 0.141", "", ""]
    assert known_worlds.cell([-0.25, -0.25]) == "−0.250 ± 0.000"


def test_the_readme_has_the_table_of_answers():
    assert answers.table() in README
    for assay, others in answers.ANSWERS.values():
        assert assay in zs.assays.CATALOGUE or not assay
        for library in others:
            assert known_worlds.version_of(library) in README


def test_a_name_that_a_library_does_not_have_is_an_error(monkeypatch):
    monkeypatch.setattr(answers, "peer", lambda name: sys.executable)
    answers.check("somebody", "json.decoder:JSONDecoder.decode")
    with pytest.raises(RuntimeError, match="no attribute 'nothing'"):
        answers.check("somebody", "json.decoder:nothing")


def test_the_readme_fits_a_screen_and_its_links_lead_somewhere():
    text = re.sub(r"<!--.*?-->\n?", "", README, flags=re.DOTALL)
    assert len(text.splitlines()) <= 115  # with tables and code
    places = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert len(places) > 15
    missing = [place for place in places if "://" not in place and not (ROOT / place).exists()]
    assert missing == []

"""The kept measurements of studies: small, complete, and judged as the page says."""

from pathlib import Path

import pytest

from zscope.documents import read_json
from zscope.experiments import studies
from zscope.experiments.studies.storage import read_results

KEPT = Path(__file__).resolve().parents[3] / "docs" / "reproduction"
NAMES = [name for name in studies.names() if (KEPT / name).is_dir()]


@pytest.mark.parametrize("name", NAMES)
def test_the_verdicts_in_the_docs_follow_from_the_kept_measurements(name):
    results = read_results(KEPT / name)
    assert results.scale == "small"
    fresh = [(c.row, c.name, c.verdict) for c in studies.load(name).claims(results)]
    kept = read_json(KEPT / name / "claims.json")["claims"]
    assert [(c["row"], c["name"], c["verdict"]) for c in kept] == fresh
    text = (KEPT.parent / "reproduction.md").read_text()
    assert text.count(f"| {name} | ") == len(fresh)


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_study_is_small(name):
    assert sum(file.stat().st_size for file in (KEPT / name).rglob("*.*")) <= 300_000


def test_all_of_them_together_are_small():
    assert sum(file.stat().st_size for file in KEPT.rglob("*.*")) <= 10_000_000

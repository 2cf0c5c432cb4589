"""The study of CONTRIBUTING.md, taken from its text: it runs, and judges what it should."""

import re
from pathlib import Path

import pytest

from zscope.experiments import studies
from zscope.experiments.studies.judging import FAILS, HOLDS, UNDECIDED
from zscope.experiments.studies.study import Results
from zscope.report.studies import write_study

ROOT = Path(__file__).resolve().parents[3]
CHAPTER = (ROOT / "CONTRIBUTING.md").read_text().split("\n## A study\n")[1].split("\n## ")[0]
(TEXT,) = re.findall(r"```python\n(.*?)```", CHAPTER, re.DOTALL)


@pytest.fixture(name="study")
def _study(tmp_path):
    (tmp_path / "pressure.py").write_text(TEXT)
    return studies.load(str(tmp_path / "pressure.py"))


def test_it_is_about_a_hundred_lines():
    assert len(TEXT.splitlines()) <= 100


def test_it_runs_and_draws(study, tmp_path):
    results = studies.run_study(study, tmp_path / "out", scale="tiny", jobs=1)
    assert not results.failed
    (claim,) = write_study(study, results, tmp_path / "out" / "pressure")
    assert claim.reason == "2 seeds; at least 4 are needed"
    assert (tmp_path / "out" / "pressure" / "figures" / "rate.svg").is_file()


@pytest.mark.parametrize(
    ("rate", "distortion", "verdict"), [(-1, 1, HOLDS), (1, 1, FAILS), (-1, -1, UNDECIDED)]
)
def test_its_claim_is_judged_by_what_was_measured(study, rate, distortion, verdict):
    runs = [
        {"run": f"{beta} {seed}", "group": "helix", "beta": beta, "seed": seed}
        for beta in (0.01, 0.1)
        for seed in (20, 21, 22, 23)
    ]
    values = {
        run["run"]: {
            "nats": rate * run["beta"] * (1 + 0.01 * run["seed"]),
            "distortion": distortion * run["beta"] * (1 + 0.02 * run["seed"]),
        }
        for run in runs
    }
    (claim,) = study.claims(Results("pressure", "small", runs, {"measure": values}))
    assert claim.verdict == verdict

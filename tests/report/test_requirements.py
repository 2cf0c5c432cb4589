"""Requirements: judged by intervals, and what was not measured never passes."""

from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from worlds import grid

import zscope as zs
from zscope.assays.choosing import choose
from zscope.assays.run import Failure, Measurements
from zscope.errors import ConfigError
from zscope.report.build import Report
from zscope.report.findings import Finding
from zscope.report.junit import junit
from zscope.report.requirements import Outcome, Requirements, parse, with_resamples
from zscope.report.traces import RowErrors, Traces
from zscope.results import Scored


@dataclass(frozen=True, eq=False)
class Known(Scored):
    score: float
    interval: tuple[float, float] | None = None
    samples: int = 50
    why_no_interval = "it was not asked for"
    why_no_chance = "nobody knows"


@dataclass(frozen=True, eq=False)
class Sets(Scored):
    passive: list[int]
    samples: int = 50
    why_no_interval = why_no_chance = "none"

    def measures(self):
        return [self.measure("first part", 0.25), self.measure("second", 0.75)]


def report(results=None, missing=None, failed=None, **more):
    """A report of known numbers."""
    about = {"model": {"latents": 5}, "data": {"encoded": 50}}
    given = {"findings": [], "latents": [], "explained": None, "reconstructions": None} | more
    measurements = Measurements(results or {}, missing or {}, failed or {})
    return Report(title="known", measurements=measurements, about=about, **given)


@pytest.mark.parametrize(
    ("relation", "limit", "verdict"),
    [
        (">", 0.1, "passed"), (">", 0.3, "undecided"), (">", 0.5, "failed"),
        (">", 0.2, "undecided"), (">=", 0.2, "passed"),  # the limit is the lower end
        (">", 0.4, "failed"), (">=", 0.4, "undecided"),  # the limit is the upper end
        ("<", 0.5, "passed"), ("<", 0.3, "undecided"), ("<", 0.1, "failed"),
        ("<", 0.4, "undecided"), ("<=", 0.4, "passed"),
        ("<", 0.2, "failed"), ("<=", 0.2, "undecided"),
    ],
)  # fmt: skip
def test_a_score_is_judged_by_the_bound_of_its_interval(relation, limit, verdict):
    """The value, 0.3, alone would decide nearly all of them."""
    (outcome,) = report({"mig": Known(0.3, (0.2, 0.4))}).require(f"mig {relation} {limit}")
    assert (outcome.verdict, outcome.value, outcome.interval) == (verdict, 0.3, (0.2, 0.4))
    assert outcome.samples == 50


def test_without_an_interval_the_value_is_judged_and_the_outcome_says_so():
    passed, failed = report({"mig": Known(0.3)}).require("mig > 0.29", "mig > 0.31")
    assert (passed.verdict, failed.verdict) == ("passed", "failed")
    assert passed.reason == failed.reason == "no interval: it was not asked for"


def test_what_was_not_measured_is_undecided_with_its_reason():
    broken = Failure("Failed with ValueError: x.", "", ValueError())
    known = report(missing={"sap": "No factors."}, failed={"dci": broken})
    outcomes = known.require("sap < 1", "dci < 1", "irs < 1", "explained variance < 1", "used < 9")
    assert {each.verdict for each in outcomes} == {"undecided"}
    reasons = [each.reason for each in outcomes]
    assert reasons[:2] == ["No factors.", "Failed with ValueError: x."]
    assert "irs was not measured" in reasons[2]
    assert "nothing was decoded" in reasons[3]


def test_parts_of_a_result_and_counts_of_sets():
    known = report({"dci": Sets([1, 4])})
    texts = ("dci.first part < 0.3", "dci, FIRST_PART < 0.3", "dci < 0.3", "dci.second > 0.7")
    assert [each.value for each in known.require(*texts)] == [0.25, 0.25, 0.25, 0.75]
    (count,) = known.require("dci.passive == 2")
    assert (count.verdict, count.value, count.reason) == ("passed", 2, "")
    (typo,) = known.require("dci.secnd > 0")
    assert typo.verdict == "undecided"
    assert "Did you mean second?" in typo.reason


def test_counts_of_the_report():
    rows = [{"latent": j, "used": j < 3} for j in range(5)]
    findings = [Finding("a", "b", level="problem"), Finding("a", "b", level="note")]
    errors = np.tile([0.05, 0.15], 500)
    pairs = RowErrors(errors, np.ones(1000), torch.zeros(1, 2), torch.zeros(1, 2))
    traces = Traces(None, torch.zeros(50, 5), None, None, pairs)
    missing = {each.name: "Not applicable." for each in choose(None)}
    known = report({}, missing, latents=rows, findings=findings, explained=0.9, traces=traces)
    texts = ("used == 3", "latents == 5", "problems == 1", "notes < 2", "explained variance > 89 %")
    outcomes = known.require(*texts)
    assert outcomes, outcomes
    assert [each.value for each in outcomes] == [3, 5, 1, 1, 0.9]
    assert known.require("explained variance > 0.9").verdict == "undecided"
    assert known.require("used != 3").verdict == "failed"


def test_findings_are_not_known_to_be_few_where_assays_are_left_out_or_failed():
    """More assays can only find more: a number that is exceeded by now has failed."""
    problems = [Finding("a", "b", level="problem")] * 2
    missing = {each.name: "Not applicable." for each in choose(None)}
    broken = {"finding on holes": Failure("Failed with ValueError: x.", "", ValueError())}
    del missing["sap"]
    partial = report({}, missing, findings=problems)
    failed = report({"sap": Known(0.3)}, missing, broken, findings=problems)
    for known, reason in ((partial, "not measured: sap"), (failed, "failed: finding on holes")):
        outcomes = known.require("problems <= 2", "problems == 0", "problems > 1", "problems == 4")
        verdicts = [each.verdict for each in outcomes]
        assert verdicts == ["undecided", "failed", "passed", "undecided"]
        assert {each.reason for each in outcomes} == {f"at least so many; {reason}"}
    assert report({"sap": Known(0.3)}, missing, findings=problems).require("problems <= 2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mig", "not of the form NAME RELATION NUMBER.*'mig > 0.3'"),
        ("mig = 1", "Write == for equal"),
        ("mig ≥ 1", "Write >= or <="),
        ("> 3", "not of the form"),
        (3, "not of the form"),
        ("0.3 < mig", "'mig' as its limit; expected a number"),
        ("mig > nan", "'nan' as its limit"),
        ("mgi > 0.3", "called 'mgi'. Did you mean mig"),
        ("pasive < 2", "Did you mean passive"),
        ("cka > 0.3", "compares two or more models"),
        ("mig == 0.3", "== is for counts, such as passive == 0, and mig"),
        ("explained variance != 1", "!= is for counts"),
        ("passive <= 20 %", "passive is a count"),
        ("problems < 5%", "problems is a count"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_way_forward(text, message):
    with pytest.raises(ConfigError, match=message):
        parse(text)


def test_a_requirement_says_which_assays_it_needs():
    assert parse("mig > 0.3").needs == ["mig"]
    assert parse("hole share < 5 %").needs == ["holes"]
    assert parse("passive <= 2").needs == ["variable-types"]
    assert parse("explained variance > 0.9").needs == []
    assert parse("problems == 0").needs is None


def test_required_scores_have_more_resamples_unless_they_are_set():
    rules = [parse("mig > 0.3"), parse("sap > 0.3"), parse("passive < 2"), parse("used > 1")]
    options = with_resamples(rules, {"sap": {"resamples": 7}, "irs": {"bins": 3}})
    assert options["mig"] == {"resamples": 200}
    assert options["sap"] == {"resamples": 7}
    assert options["irs"] == {"bins": 3}
    assert "variable-types" not in options


def outcomes(*verdicts):
    rule = parse("mig > 0.3")
    return Requirements(tuple(Outcome(rule, each) for each in verdicts))


@pytest.mark.parametrize(
    ("verdicts", "whole", "code"),
    [
        (["passed", "passed"], "passed", 0),
        (["passed", "undecided"], "undecided", 3),
        (["undecided", "failed", "passed"], "failed", 1),
        ([], "passed", 0),
    ],
)
def test_one_failure_outweighs_what_is_undecided(verdicts, whole, code):
    result = outcomes(*verdicts)
    assert (result.verdict, result.exit_code, bool(result)) == (whole, code, code == 0)


def test_the_table_and_the_json_have_every_outcome():
    result = report({"mig": Known(0.3, (0.2, 0.4))}).require("mig > 0.1", "mig > 0.3", "sap < 1")
    lines = str(result).splitlines()
    assert lines[0] == "3 requirements: 2 undecided, 1 passed"
    assert lines[2].split() == ["passed", "mig", ">", "0.1", "0.3", "0.2", "to", "0.4"]
    assert "<td" in result._repr_html_()
    content = result.to_dict()
    assert content["verdict"] == "undecided"
    assert content["outcomes"][0] == {
        "requirement": "mig > 0.1", "assay": "mig", "part": None, "relation": ">", "limit": 0.1,
        "verdict": "passed", "value": 0.3, "interval": [0.2, 0.4], "samples": 50, "reason": "",
    }  # fmt: skip


def test_junit_counts_and_escapes():
    known = report({"mig": Known(0.3, (0.2, 0.4))}, missing={"sap": 'No <factors> & "no" \x00'})
    one = known.require("mig > 0.1", "mig > 0.9", "sap < 1", "mig < 0.25")
    tree = ElementTree.fromstring(junit({"runs/<a> & b": one, "other": known.require("mig < 1")}))
    names = ("tests", "failures", "errors", "skipped")
    assert [tree.get(name) for name in names] == ["5", "1", "2", "0"]
    first, second = tree
    assert [first.get(name) for name in names] == ["4", "1", "2", "0"]
    assert [second.get(name) for name in names] == ["1", "0", "0", "0"]
    cases = list(first)
    assert {case.get("classname") for case in cases} == {"runs/<a> & b"}
    assert [case.get("name") for case in cases] == ["mig > 0.1", "mig > 0.9", "sap < 1",
                                                    "mig < 0.25"]  # fmt: skip
    assert [case[0].tag for case in cases] == ["system-out", "failure", "error", "error"]
    assert cases[1][0].get("message") == "mig > 0.9: 0.3 (95 % interval 0.2 to 0.4)"
    assert 'No <factors> & "no" ?' in cases[2][0].get("message")


def test_codes_that_are_the_factors_pass_and_noise_fails():
    factors = grid(6, 5, 4).repeat(4, 0)
    noise = np.random.default_rng(0).normal(size=factors.shape)
    for codes, verdict in ((factors.astype(float), "passed"), (noise, "failed")):
        recording = zs.Recording.from_arrays(codes, factors, kinds="ordinal")
        measured = zs.assay(recording, names=["mig", "sap"], resamples=20)
        result = measured.require("mig > 0.5", "sap > 0.5", "latents == 3")
        assert [each.verdict for each in result] == [verdict, verdict, "passed"], result
    # A limit in the middle of the interval is never decided.
    recording = zs.Recording.from_arrays(factors + noise, factors, kinds="ordinal")
    measured = zs.assay(recording, names=["mig"], resamples=20)
    (outcome,) = measured.require(f"mig > {measured.results['mig'].score}")
    assert outcome.verdict == "undecided"


def test_the_interval_of_explained_variance_is_that_of_rows_of_known_spread():
    """Errors of 0.1 or 0.3 of the variance, half each: 0.8 explained, ± 1.96 * 0.1 / sqrt(n)."""
    n = 1000
    x = torch.sign(torch.randn(n, 40, generator=torch.Generator().manual_seed(0)))
    scale = torch.where(torch.arange(n) % 2 == 0, 0.1, 0.3).sqrt()
    pairs = RowErrors.of(x, x * (1 - scale[:, None]))
    assert pairs.explained == pytest.approx(0.8, abs=0.005)
    low, high = pairs.interval
    assert (high - low) / 2 == pytest.approx(1.96 * 0.1 / n**0.5, rel=0.2)


def test_the_interval_of_explained_variance_covers_the_truth_also_of_a_few_rows():
    """With the quantile of 200 halves, of 6 rows it would in 86 % of cases."""
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        errors = random.uniform(0.05, 0.15, 6)
        pairs = RowErrors(errors, np.ones(6), torch.zeros(1, 2), torch.zeros(1, 2))
        low, high = pairs.interval
        covered += low <= 0.9 <= high
    assert 0.91 < covered / 400 < 0.99

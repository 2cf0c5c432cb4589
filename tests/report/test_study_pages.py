"""The page of a study and the table of all claims, from made-up claims whose verdicts are known."""

import re

import pytest

from zscope.experiments import studies
from zscope.experiments.studies.judging import Control, Interval, above, claim, claim_of_parts
from zscope.experiments.studies.study import Results, Row, Study
from zscope.report.studies import count_verdicts, write_reproduction, write_study
from zscope.store import write_json

HOLDS, FAILS = Interval(1.0, 0.5, 1.5, 8), Interval(-1.0, -1.5, -0.5, 8)
OPEN = Interval(1.0, -1.0, 3.0, 8)  # wide: four times the seeds would do
ONES = ("pca-perturbed", "pca-perturbed-rooms")  # which have claims of the same names


def judge(name, values, row="C-T4.2", **about):
    return claim(row, name, "it falls", source="table", expect=above(0), values=values,
                 statistic="d", **about)  # fmt: skip


def page_of(claims, tmp_path, scale="small"):
    rows = (Row("C-T3.3 lin", "table 3.3", "alignment"), Row("C-T4.2", "table 4.2", "scores"))
    study = Study("own", "C", "Does it fall?", rows, {}, (), lambda results: claims)
    write_study(study, Results("own", scale, []), tmp_path)
    return (tmp_path / "study.html").read_text()


@pytest.fixture
def reproduction(tmp_path, monkeypatch):
    """The text of reproduction.md where the two studies of ONES have these claims."""

    def write(*claims, scale="small"):
        for name in ONES:
            content = {"scale": scale, "claims": [each.to_dict() for each in claims],
                       "figures": [], "tables": []}  # fmt: skip
            write_json(tmp_path / name / "claims.json", content)
        monkeypatch.setattr(studies, "names", lambda: list(ONES))
        write_reproduction(tmp_path, tmp_path / "reproduction.md")
        text = (tmp_path / "reproduction.md").read_text()
        _, _, text = text.partition("## What would decide the others\n")
        return text.partition("## What was chosen")[0]

    return write


def test_what_would_decide_a_claim_names_its_study(reproduction):
    text = reproduction(judge("P2", OPEN))
    for name in ONES:
        assert (
            f"- {name}, C-T4.2 P2, it falls (expected above 0): about 32 seeds, if mean and "
            "spread stay the same." in text.splitlines()
        )


def test_claims_that_do_not_hold_are_listed_with_what_would_decide_them(reproduction):
    text = reproduction(judge("P2", HOLDS, needs="time"), judge("P3", FAILS, needs="the real data"),
                        judge("P4", FAILS))  # fmt: skip
    assert "P2" not in text
    assert "### Undecided" not in text
    assert text.count("--scale paper") == 1
    assert f"- {ONES[0]}, C-T4.2 P3, it falls (expected above 0): the real data.\n" in text
    assert f"- {ONES[0]}, C-T4.2 P4, it falls (expected above 0).\n" in text
    assert "--scale paper" not in reproduction(judge("P3", FAILS), scale="paper")


def test_no_undecided_claim_is_without_an_answer(reproduction):
    control = Control("it is less untrained", passed=False)
    parts = [judge("a", HOLDS), judge("b", OPEN, controls=[control])]
    text = reproduction(
        judge("P2", HOLDS, controls=[control]),
        judge("P3", None),
        judge("P4", HOLDS, presupposes="no latent is unused"),
        claim_of_parts("C-T4.2", "P5", "all fall", parts, source="table"),
    )
    assert "### Do not hold" not in text
    answers = [
        line.rpartition(" it falls")[2] for line in text.splitlines() if ONES[0] + "," in line
    ]
    assert answers[:3] == [
        " (expected above 0): a control that passes: it is less untrained.",
        ": runs in which it can be measured.",
        " (expected above 0): runs where this is not so: no latent is unused.",
    ]
    assert answers[3].endswith(
        "C-T4.2 P5, all fall: b: a control that passes: it is less untrained."
    )


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ("small", "not refuted at the published one"),
        ("paper", "as published"),
        ("tiny", "nothing can be concluded from its verdicts. Numbers of steps"),
    ],
)
def test_the_page_says_what_its_scale_means(scale, words, tmp_path):
    assert words in " ".join(page_of([judge("P2", HOLDS)], tmp_path, scale).split())


def test_a_page_prints_no_none_and_no_sign_of_zero(tmp_path):
    control = Control("it is far", None, f"DtO {None}")
    negative = claim("C-T4.2", "P2", "it falls", source="table", expect=above(-0.0), values=OPEN,
                     statistic="d", controls=[control])  # fmt: skip
    page = page_of([negative], tmp_path)
    assert "could not be tried (DtO not measured)" in page
    assert "expected above 0<" in page
    assert "None" not in page


def test_ids_are_valid_and_links_lead_to_them(tmp_path):
    parts = [judge("β = 1, sprites", HOLDS), judge("β = 1: sprites", HOLDS)]
    claims = [
        judge("c1, weight 4", HOLDS, row="C-T3.3 lin"),
        claim_of_parts("C-T3.3 lin", "c2", "all fall", parts, source="table"),
        claim_of_parts("C-T3.3 lin", "c3", "all rise", parts, source="table"),
        judge("", HOLDS, row="claims"),
    ]
    page = page_of(claims, tmp_path)
    ids, links = re.findall(r'\bid="([^"]*)"', page), re.findall(r'href="#([^"]*)"', page)
    assert len(set(ids)) == len(ids)
    assert all(each and not re.search(r"\s", each) for each in ids)
    assert set(links) <= set(ids)
    assert {"C-T3.3-lin-c1-weight-4", "C-T3.3-lin-c2", "C-T3.3-lin-c3"} <= set(links)
    assert len([each for each in ids if "sprites" in each]) == 4


def test_claims_are_counted_in_good_english():
    one, two = [judge("P2", HOLDS)], [judge("P2", FAILS), judge("P3", OPEN)]
    assert count_verdicts(one) == "Of 1 claim 1 holds, 0 do not hold, 0 are undecided."
    expected = "Of 4 claims 0 hold, 2 do not hold, 2 are undecided."
    assert count_verdicts(two * 2) == expected
    assert "1 does not hold, 1 is undecided" in count_verdicts(two)

"""All findings: their order, their numbers, and that every rule has its tests."""

import dataclasses
from pathlib import Path

from rule_facts import BY_NAME, facts, normal, only, said
from worlds import identity

from zscope.determinism import NO_NUMBERS
from zscope.report.findings import Finding, Rule, findings, index_list, percent, table, title
from zscope.report.rules import RULES


def test_every_rule_is_named_once_shows_its_threshold_and_is_tested():
    assert len(BY_NAME) == len(RULES)
    text = "".join(each.read_text() for each in Path(__file__).parent.glob("test_findings*.py"))
    for rule in RULES:
        as_percent = "{percent" in rule.checks
        threshold = f"{100 * rule.threshold:g} %" if as_percent else f"{rule.threshold:g}"
        assert threshold in rule.sentence, rule.name
        assert text.count(f'"{rule.name}"') >= 2, f"{rule.name} lacks a test"


def test_a_decoder_that_gives_no_numbers_is_a_problem_of_its_own():
    """And no reason to say that the model is not a function of its input."""
    rule = BY_NAME["no numbers"]
    sound = facts(identity(2), normal(60, latents=2))
    assert rule(sound) == []
    note = f"{NO_NUMBERS} for 1 of 4 codes."
    broken = dataclasses.replace(
        sound, recording=dataclasses.replace(sound.recording, notes=(note,))
    )
    (found,) = rule(broken)
    assert (found.rule, found.level, found.evidence) == ("no numbers", "problem", note)
    assert BY_NAME["not a function"](broken) == []


def test_problems_come_first_then_what_matters_more():
    def always(*found):
        return Rule("always", 0.0, "Always.", lambda facts, threshold: found)

    rules = [
        always(Finding("a", "", level="healthy", matters=1.0)),
        always(Finding("b", "", level="note", matters=0.2), Finding("c", "", matters=0.4)),
        always(Finding("d", "", level="problem", matters=0.1)),
    ]
    assert [each.text for each in findings(facts(identity(2), normal(latents=2)), rules, {})] == [
        *("d", "c", "b", "a")
    ]


def test_a_finding_carries_its_rule_and_is_plain_in_json():
    found = only(said("few samples", identity(4), normal(60)))
    assert found.rule == "few samples"
    assert "50" in found.checked
    assert found.to_dict()["sentence"] == str(found)


def test_numbers_in_sentences_are_short():
    assert percent(0.314) == "31 %"
    assert percent(0.0149) == "1.5 %"
    assert percent(0) == "0 %"
    assert percent(0.0001) == "under 0.1 %"
    assert index_list(range(3)) == "[0, 1, 2]"
    assert index_list(range(100)) == "[0, 1, 2, 3, 4, 5, 6, 7, …, 99]"
    assert [title(n) for n in ("sap", "mig-sup", "factor-vae-score", "explicitness")] == [
        *("SAP", "MIG-sup", "FactorVAE score", "Explicitness")
    ]


def test_a_long_table_counts_what_it_leaves_out():
    rows = table(("latent", "share"), [(j, 0.5) for j in range(20)])
    assert len(rows) == 9
    assert rows[1] == ("0", "0.50")
    assert rows[-1] == ("and 13 more", "")

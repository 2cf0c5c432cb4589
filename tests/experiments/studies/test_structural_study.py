"""The study of structural decoders: its measures are right, its claims can fail, and (slow)
they hold."""

import json

import pytest
import torch

import zscope as zs
from zscope.experiments import studies
from zscope.experiments.studies import structural as study
from zscope.experiments.studies.structural import Order

ORDERED = Order([0.55, 0.60, 0.40, 0.20], [0.4, 0.6, 0.4, 0.1])
FLAT = Order([0.45, 0.46, 0.44, 0.45], [0.4, 0.4, 0.4, 0.4])


def holding(structural, adaptive, right=0.95):
    found = {"sae-4": structural, "adaae-4": adaptive}
    return {claim.name for claim in study.claims_of(found, right) if claim.holds}


def test_the_study_is_listed_and_says_what_it_is():
    assert studies.load("structural") is study
    assert study.NAME == "structural"
    assert study.SUMMARY.endswith(".")


def test_an_order_is_the_early_half_less_the_late_half():
    assert ORDERED.of("nonlinearity") == pytest.approx(0.275)
    assert FLAT.of("digit") == 0


def test_the_claims_hold_for_an_order_that_the_control_lacks():
    assert holding([ORDERED] * 3, [FLAT] * 3) == {"S1", "S2", "S3"}


def test_each_claim_can_fail():
    assert holding([ORDERED, ORDERED, FLAT], [FLAT] * 3) == {"S3"}  # one seed without it
    assert holding([ORDERED] * 3, [ORDERED] * 3) == {"S1", "S2"}  # the control has it too
    assert holding([FLAT] * 3, [FLAT] * 3) == set()
    assert holding([Order(ORDERED.nonlinearity, FLAT.digit)] * 3, [FLAT] * 3) == {"S1"}
    backwards = Order(ORDERED.nonlinearity[::-1], ORDERED.digit[::-1])
    assert holding([ORDERED] * 3, [backwards] * 3) == {"S1", "S2"}
    assert "S2" not in holding([ORDERED] * 3, [FLAT] * 3, right=0.1)  # nobody can read


def bits():
    """Codes of zeros and ones."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(2, (500, 8), generator=generator).float()


def reading_first():
    """Reads digit 0 or 1, whatever the first number of an observation says."""
    return zs.wrap(lambda x: torch.cat([1 - x[:, :1], x[:, :1]], 1), lambda z: z)


def test_a_linear_decoder_bends_nothing():
    found = study.order(zs.wrap(lambda x: x, lambda z: z), bits(), reading_first())
    assert found.nonlinearity == pytest.approx([0, 0, 0, 0], abs=1e-6)


def test_squares_of_bits_bend_by_one_half():
    """Between 0 and 1 a square is 1/4 off the line, and half the way is 1/2."""
    squared = zs.wrap(lambda x: x, lambda z: torch.cat([z[:, :2] ** 2, z[:, 2:]], 1))
    found = study.order(squared, bits(), reading_first())
    assert found.nonlinearity == pytest.approx([0.5, 0, 0, 0], abs=1e-6)


def test_only_the_variable_that_holds_the_digit_changes_it():
    found = study.order(zs.wrap(lambda x: x, lambda z: z), bits(), reading_first())
    assert found.digit[0] == pytest.approx(0.5, abs=0.08)  # two of four pairs of bits differ
    assert found.digit[1:] == [0, 0, 0]


def test_a_variable_that_changes_nothing_bends_nothing():
    deaf = zs.wrap(lambda x: x, lambda z: torch.cat([0 * z[:, :2], z[:, 2:]], 1))
    assert study.order(deaf, bits(), reading_first()).nonlinearity[0] == 0


def test_without_training_no_claim_holds(tmp_path, monkeypatch):
    """The whole way through, on other digits: at the start, latents change nothing."""
    digits = zs.data.load("digits").subset(range(600))
    monkeypatch.setattr(zs.data, "load", lambda name, **options: digits)
    monkeypatch.setitem(study.STEPS, "small", 1)
    monkeypatch.setattr(study, "SEEDS", (0,))
    plain = study.classifier
    monkeypatch.setattr(study, "classifier", lambda data: plain(data, steps=200))
    said = []
    claims = study.run(tmp_path, progress=said.append)
    assert [claim.name for claim in claims] == ["S1", "S2", "S3"]
    assert not any(claim.holds for claim in claims)
    assert len(said) == 3
    kept = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert [claim["name"] for claim in kept] == ["S1", "S2", "S3"]


def test_the_classifier_reads_digits():
    digits = zs.data.load("digits")
    assert study.accuracy(study.classifier(digits, steps=200), digits) > 0.9
    assert study.accuracy(study.classifier(digits, steps=1), digits) < 0.5

"""Rules about scores and factors: each speaks where it must and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rule_facts import BY_NAME, facts, normal, only, said
from worlds import gaussian_codes, grid, identity

import zscope as zs
from zscope.assays.disentanglement.score import Score
from zscope.report.findings import title

FACTORS = grid(4, 4, 4).repeat(8, 0)
VALUES = torch.from_numpy((FACTORS - FACTORS.mean(0)) / FACTORS.std(0)).float()
VALUES = VALUES + 0.01 * gaussian_codes(len(VALUES), 3).float()


def test_a_score_at_chance_is_named_and_so_is_what_shuffled_codes_get():
    shuffled = np.random.default_rng(1).permutation(FACTORS)
    found = only(said("scores at chance", identity(3), VALUES, "sap", factors=shuffled))
    assert found.text == "SAP is at chance"
    assert found.table[1][2].startswith("0.0")
    assert "same order" in found.action


def seeds(quick, all_of_them):
    """The first few, and the others when there is time."""
    rest = range(quick, all_of_them)
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in rest)]


@pytest.mark.parametrize("seed", seeds(4, 8))
def test_chance_is_seen_as_such_whichever_way_the_codes_are_shuffled(seed):
    rng = np.random.default_rng(seed)
    few = rng.permutation(len(FACTORS))[:150]  # so few that single shuffles differ by 0.02
    shuffled = rng.permutation(FACTORS[few])
    model = identity(3, std=0.1, prior="normal")  # in use by their spread, whatever they tell
    found = said("scores at chance", model, VALUES[few], "sap", factors=shuffled, seed=seed)
    assert only(found).text == "SAP is at chance"
    assert "over 20 shuffles" in only(found).table[1][2]
    # A weak code is not taken for chance in any of them.
    weak = VALUES + VALUES.std(0) * normal(len(VALUES), 3)
    assert said("scores at chance", identity(3), weak, "sap", factors=FACTORS, seed=seed) == []


def test_several_scores_at_chance_are_one_finding():
    shuffled = np.random.default_rng(1).permutation(FACTORS)
    names = ("mig", "sap", "predictability-gap")
    found = only(said("scores at chance", identity(3), VALUES, *names, factors=shuffled))
    assert found.text == "MIG, SAP and Predictability gap are at chance"


def test_scores_of_codes_that_are_the_factors_are_not_at_chance():
    assert said("scores at chance", identity(3), VALUES, "sap", "mig", factors=FACTORS) == []


def test_a_score_that_shuffled_codes_pass_says_nothing():
    """Modularity of plug-in information: a factor with a value of its own in every row shares
    nearly as much with any code as the code's bins can tell, a factor of two values nearly
    nothing."""
    factors = np.column_stack([normal(600, 1)[:, 0], np.arange(600) % 2])
    codes = torch.from_numpy(factors).float() + 0.1 * normal(600, 2, seed=1)
    arguments = ("scores at chance", identity(2), codes, "modularity")
    options = {"modularity": {"flavour": "dlib"}}
    found = only(said(*arguments, factors=factors, options=options))
    assert found.text == "Modularity is uninformative here"
    assert float(found.table[1][2]) > 0.99
    assert "default flavour" in found.action
    assert said(*arguments, factors=factors) == []  # chance is subtracted


def with_modularity(score, shuffled):
    """Good codes, whose modularity and that of shuffled codes are as given."""
    looked = facts(identity(3), VALUES, "modularity", factors=FACTORS)
    chance = float(np.mean(shuffled))
    result = replace(looked.get("modularity"), score=score, chance=chance, shuffled=shuffled)
    return replace(looked, results={"modularity": result})


def test_one_shuffle_of_ten_does_not_make_a_score_chance_but_two_do():
    rule = BY_NAME["scores at chance"]
    assert rule(with_modularity(0.884, [0.0] * 9 + [1.0])) == []
    assert only(rule(with_modularity(0.884, [0.0] * 8 + [1.0] * 2))).text == (
        "Modularity is at chance"
    )


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("spread", [None, 0.1], ids=["deterministic", "variational"])
def test_every_score_of_noise_is_at_chance(seed, spread):
    recording = zs.Recording.from_arrays(
        normal(len(FACTORS), 4, seed),
        FACTORS,
        variances=None if spread is None else torch.full((len(FACTORS), 4), spread**2),
        seed=seed,
    )
    report = zs.assay(recording, names="disentanglement")
    found = [each for each in report.findings if each.rule == "scores at chance"]
    scores = {name for name, each in report.results.items() if isinstance(each, Score)}
    assert len(scores) >= 10
    text = " ".join(each.text for each in found)
    assert [name for name in scores if title(name) not in text] == []
    assert not report.failed


def test_no_gap_between_latents_that_share_a_factor_is_not_chance():
    """Ten values, each of six latents tells as much: gaps vanish, the code is informative."""
    digit = np.random.default_rng(0).integers(0, 10, (2000, 1))
    codes = torch.from_numpy(
        np.eye(10)[digit[:, 0]] @ np.random.default_rng(1).normal(size=(10, 6))
    )
    codes = codes.float() + 0.3 * normal(2000, 6)
    names = ("predictability-gap", "mig", "sap")
    looked = facts(identity(6), codes, *names, factors=digit)
    small = {
        name: replace(each, score=0.0058, chance=0.0008, shuffled=[0.0008] * 2)
        for name, each in looked.results.items()
    }
    assert BY_NAME["scores at chance"](replace(looked, results=small)) == []
    # The same numbers of codes without information are chance.
    noise = facts(identity(6), normal(2000, 6, 1), *names, factors=digit)
    assert only(BY_NAME["scores at chance"](replace(noise, results=small))).text.endswith("chance")


def test_a_factor_that_the_code_does_not_encode_is_named():
    blind = VALUES.clone()
    blind[:, 2] = normal(len(VALUES), 1)[:, 0]
    found = only(said("missing factors", identity(3), blind, "mig", factors=FACTORS))
    assert (found.level, found.text) == ("problem", "The code does not encode factor2")
    assert [row[0] for row in found.table] == ["factor", "factor0", "factor1", "factor2"]
    whole = only(said("missing factors", identity(3), VALUES, "mig", factors=FACTORS))
    assert (whole.level, whole.text) == ("healthy", "The code encodes all 3 factors")
    noise = normal(len(VALUES), 3)
    model = identity(3, std=0.1, prior="normal")
    none = only(said("missing factors", model, noise, "mig", factors=FACTORS))
    assert none.text == "The code encodes none of the factors"


def test_noise_codes_without_a_latent_that_counts_encode_none_of_the_factors():
    looked = facts(identity(4), normal(1000, 4), "mig", "dci", factors=FACTORS.repeat(2, 0)[:1000])
    assert looked.get("mig").active == []
    found = only(BY_NAME["missing factors"](looked))
    assert found.text == "The code encodes none of the factors"
    assert BY_NAME["factors spread over latents"](looked) == []


def test_a_single_factor_is_encoded_or_not():
    """DCI is undefined then; the skill of the same trees is not."""
    kind = np.random.default_rng(0).integers(0, 5, (1000, 1))
    codes = np.random.default_rng(1).normal(size=(5, 4))[kind[:, 0]] * 2
    codes = torch.from_numpy(codes).float() + 0.3 * normal(1000, 4)
    found = only(said("missing factors", identity(4), codes, "mig", factors=kind))
    assert (found.level, found.text) == ("healthy", "The code encodes factor0")
    noise = only(said("missing factors", identity(4), normal(1000, 4, 2), "mig", factors=kind))
    assert (noise.level, noise.text) == ("problem", "The code does not encode factor0")
    assert "same order" in noise.action
    assert said("missing factors", identity(4), codes, factors=kind) == []  # no score was asked


@pytest.mark.parametrize("kind", ["categorical", "continuous"])
@pytest.mark.parametrize(
    ("skill", "level", "words"),
    [
        (0.03, "problem", "does not encode factor0"),
        (0.3, "note", "encodes factor0 (0."),
        (0.8, "healthy", "encodes 2 factors"),
    ],
)
@pytest.mark.parametrize("samples", [1200, 3000])
def test_factors_of_known_skill_are_encoded_in_part_or_not_at_all(
    kind, skill, level, words, samples
):
    """A label that is right with probability `skill` and else at random, or R^2 = `skill`."""
    rng = np.random.default_rng(samples)
    if kind == "categorical":
        factor = rng.integers(0, 4, samples)
        code = np.where(rng.random(samples) < skill, factor, rng.integers(0, 4, samples))
        code = code + 0.01 * rng.normal(size=samples)
    else:
        factor = rng.normal(size=samples)
        code = skill**0.5 * factor + (1 - skill) ** 0.5 * rng.normal(size=samples)
    other = rng.normal(size=samples)
    codes = torch.from_numpy(np.column_stack([code, other])).float()
    factors, kinds = np.column_stack([factor, other]), (kind, "continuous")
    found = only(said("missing factors", identity(2), codes, "mig", factors=factors, kinds=kinds))
    assert found.level == level
    assert words in found.text
    if level != "problem":
        assert float(found.table[1][1]) == pytest.approx(skill, abs=0.12)


def test_a_factor_of_two_latents_together_is_encoded():
    """The sign of a product: no single latent tells it. The sign of one latent is told by it."""
    codes = normal(3000, 2)
    factors = torch.stack([codes[:, 0] * codes[:, 1] > 0, codes[:, 1] > 0], 1).long().numpy()
    model = identity(2, std=0.1, prior="normal")
    looked = facts(model, codes, "mig", factors=factors)
    found = only(BY_NAME["missing factors"](looked))
    assert (found.level, found.text) == ("healthy", "The code encodes 2 factors")
    (_, skill, nats), (_, other_skill, other_nats) = found.table[1:]
    assert float(skill) > 0.5
    assert float(nats) < 0.05
    assert float(other_skill) > 0.9
    assert float(other_nats) > 0.5
    spread = only(BY_NAME["factors spread over latents"](looked))
    assert spread.text == "factor0 is encoded by several latents"
    assert spread.table[1][1] == "none alone"


def on_a_ring(samples=3000, centre=(0.0, 0.0)):
    """Twelve values of an angle in two latents, four of another factor in the third."""
    rng = np.random.default_rng(0)
    angle, other = rng.integers(0, 12, samples), rng.integers(0, 4, samples)
    turn = 2 * np.pi * angle / 12
    codes = np.column_stack([np.cos(turn) + centre[0], np.sin(turn) + centre[1], other - 1.5])
    codes = torch.from_numpy(codes + 0.02 * rng.normal(size=codes.shape)).float()
    return codes, np.column_stack([angle, other]), turn


ORDERED = ("ordinal", "ordinal")


def test_a_factor_encoded_as_an_angle_is_named():
    codes, factors, turn = on_a_ring()
    chart = "cartesian-or-polar"
    looked = facts(identity(3), codes, chart, "mig", factors=factors, kinds=ORDERED)
    found = only(BY_NAME["polar pairs"](looked))
    assert found.text == "Latents 0 and 1 encode factor0 as an angle"
    # The angle is not also reported as a factor of several latents.
    other = only(BY_NAME["factors spread over latents"](looked))
    assert other.text == "factor1 is encoded mainly by latent 2"
    straight = np.column_stack([turn, factors[:, 1], normal(3000, 1)[:, 0]])
    straight = torch.from_numpy(straight).float()
    assert said("polar pairs", identity(3), straight, chart, factors=factors, kinds=ORDERED) == []
    # Values without an order are at no angle.
    kinds = ("categorical", "ordinal")
    assert said("polar pairs", identity(3), codes, chart, factors=factors, kinds=kinds) == []


def test_the_advised_angle_is_around_the_centre_of_the_ring():
    rng = np.random.default_rng(0)
    hue, size = rng.uniform(-np.pi, np.pi, 2000), rng.uniform(0.8, 1.2, 2000)
    codes = np.column_stack([5 + size * np.cos(hue), -3 + size * np.sin(hue)])
    codes = torch.from_numpy(codes + 0.02 * rng.normal(size=codes.shape)).float()
    factors, chart = np.column_stack([hue, size]), "cartesian-or-polar"
    kinds = ("continuous", "continuous")
    found = only(said("polar pairs", identity(2), codes, chart, factors=factors, kinds=kinds))
    assert found.text == "Latents 0 and 1 encode factor0 as an angle and factor1 as a radius"
    formula = found.action.split("from ")[1].split(", not")[0]
    names = {"atan2": np.arctan2, "z0": codes[:, 0].numpy(), "z1": codes[:, 1].numpy()}
    error = np.angle(np.exp(1j * (eval(formula, names) - hue)))
    assert np.abs(error).max() < 0.2
    assert np.corrcoef(np.arctan2(names["z1"], names["z0"]), hue)[0, 1] < 0.8  # without it


@pytest.mark.parametrize("samples", [600, 2000])
@pytest.mark.parametrize("degrees", [20, 45])
@pytest.mark.parametrize("kind", ["categorical", "ordinal"])
def test_two_factors_on_a_turned_grid_are_no_angle(samples, degrees, kind):
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 4, (samples, 2))
    codes = (factors - 1.5) * [1, 1.5] + 0.5 * rng.normal(size=(samples, 2))
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    codes = torch.from_numpy(codes @ [[cosine, -sine], [sine, cosine]]).float()
    kinds, name = (kind, kind), "cartesian-or-polar"
    assert said("polar pairs", identity(2), codes, name, factors=factors, kinds=kinds) == []


@pytest.mark.parametrize("seed", range(6))
def test_random_clusters_are_no_angles_even_if_they_are_numbered(seed):
    rng = np.random.default_rng(seed)
    label, other = rng.integers(0, 10, 600), rng.integers(0, 3, 600)
    codes = rng.normal(size=(10, 4))[label] * 2 + 0.3 * rng.normal(size=(600, 4))
    codes, factors = torch.from_numpy(codes).float(), np.column_stack([label, other])
    name = "cartesian-or-polar"
    assert said("polar pairs", identity(4), codes, name, factors=factors, kinds=ORDERED) == []


def test_two_latents_with_a_part_of_a_factor_are_no_angle():
    """A noisy ring beside a latent that tells the factor well: the code is not an angle."""
    codes, factors, _ = on_a_ring()
    chart, rule = "cartesian-or-polar", "polar pairs"
    codes[:, :2] += 0.6 * normal(len(codes), 2)
    noisy = said(rule, identity(3), codes, chart, "mig", factors=factors, kinds=ORDERED)
    assert only(noisy).text == "Latents 0 and 1 encode factor0 as an angle"
    more = torch.cat([codes, torch.from_numpy(factors[:, :1]).float()], 1)
    assert said(rule, identity(4), more, chart, "mig", factors=factors, kinds=ORDERED) == []


def test_the_radius_names_no_factor_that_it_does_not_encode():
    rng = np.random.default_rng(0)
    turn, other = rng.uniform(-np.pi, np.pi, 600), rng.integers(0, 3, 600)
    codes = np.column_stack([np.cos(turn), np.sin(turn)]) * rng.uniform(0.5, 1.5, (600, 1))
    factors, kinds = np.column_stack([turn, other]), ("continuous", "ordinal")
    codes, name = torch.from_numpy(codes).float(), "cartesian-or-polar"
    found = only(said("polar pairs", identity(2), codes, name, factors=factors, kinds=kinds))
    assert found.text == "Latents 0 and 1 encode factor0 as an angle"


def test_a_factor_in_two_latents_is_named_and_one_in_a_single_latent_is_not():
    twice = torch.cat([VALUES, VALUES[:, :1] + 0.3 * normal(len(VALUES), 1)], 1)
    rule = "factors spread over latents"
    found = only(said(rule, identity(4), twice, "mig", factors=FACTORS))
    assert found.text == "factor0 is encoded by several latents"
    assert found.table[1][1] == "0, 3"
    own = only(said(rule, identity(3), VALUES, "mig", factors=FACTORS))
    assert (own.level, own.text) == ("healthy", "Each factor is encoded mainly by one latent")


def test_one_factor_in_many_latents_is_one_statement_that_lists_all_of_them():
    digit = np.random.default_rng(0).integers(0, 10, (2000, 1))
    # Each of four latents has the ten values in another order, so that all tell as much.
    codes = torch.from_numpy(digit * [1, 3, 7, 9, 0] % 10).float() + normal(2000, 5)
    report = zs.assay(zs.Recording.from_arrays(codes, digit, names=["digit"]))
    texts = [each.text for each in report.findings if each.rule == "factors spread over latents"]
    assert texts == ["digit is encoded by several latents"]
    found = next(each for each in report.findings if each.text in texts)
    assert sorted(found.table[1][1].split(", ")) == ["0", "1", "2", "3"]
    assert "factors" not in found.action


def test_rotated_factors_can_be_read_but_sit_in_no_latent_alone():
    turned = VALUES @ (torch.eye(3) - 2 / 3)  # a reflection: two codes share each factor
    names = ("mig", "explicitness")
    found = only(said("factors spread over latents", identity(3), turned, *names, factors=FACTORS))
    assert found.level == "note"
    assert found.text == "factor0, factor1 and factor2 are each encoded by several latents"
    own = only(said("factors spread over latents", identity(3), VALUES, *names, factors=FACTORS))
    assert own.level == "healthy"
    noise = normal(len(FACTORS), 3)
    assert said("factors spread over latents", identity(3), noise, *names, factors=FACTORS) == []

"""Studies of FONDUE, layers and classifiers: verdicts on made-up measurements that are known."""

import math

import numpy as np
import pytest
import torch
from made_up import claims_of, control_fails, control_untried, exceptions, noisy, planned

from zscope.experiments.studies import fondue_elbows, load
from zscope.experiments.studies.grids.fondue import (
    DIGIT_PRESSURE,
    DIGIT_SIZES,
    SPRITE_PRESSURE,
    SPRITE_SIZES,
)
from zscope.experiments.studies.judging import FAILS, HOLDS, UNDECIDED
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.shared.maps import agreement
from zscope.experiments.studies.shared.sizes import answers, ended_well, search_step, searches
from zscope.experiments.studies.study import Results


def gaps(row, used, *, later=0, untrained=None):
    """A model that can use `used` latents: each other one adds 1 to the gap."""
    steps = [0, *row.get("snapshots", []), row["steps"]]
    if row.get("group", "").endswith("-pressure"):  # measured where searches take them, at the end
        steps = steps[-1:]
    values = {"at": steps}
    for number, step in enumerate(steps):
        usable = used + (later if number == len(steps) - 1 else 0)
        active = min(row["latents"], usable) if step else 0
        passive = row["latents"] - active
        gap = 0.05 * active + passive
        own = {"trace": gap, "sampled": gap, "codes_trace": active, "dimension": gap,
               "active": active, "mixed": 0, "passive": passive, "used": active,
               "kl": 2.0 * active}  # fmt: skip
        if step == 0 and untrained:
            own |= {"dimension": 0.0 if row["latents"] <= untrained else 2.0}
        for key, value in own.items():
            values.setdefault(key, []).append(value)
    return values


def results_of(name, measure, values, **more):
    rows = planned(name)
    units = {row["run"]: found for row in rows if (found := values(row)) is not None}
    data = {row["data"]: {"dimension": 5.2, "samples": 9, "data": row["data"]} for row in rows}
    return Results(name, "small", rows, {measure: units, "measure_data": data, **more})


def verdicts(name, results):
    return {(each.row, each.name): each for each in load(name).claims(results)}


def rows_of(used):
    rows = [{"latents": n, "seed": 20, "snapshots": (50,), "steps": 100} for n in range(1, 9)]
    return Rows({**row, **gaps(row, used)} for row in rows)


def test_searches_replay_on_measured_gaps():
    found = searches(rows_of(4), 5.2)
    assert answers(found) == {20: 4}
    assert found[20].sizes[0] == 5
    assert answers(searches(rows_of(4), None, search="binary")) == {20: 4}
    assert ended_well(found).passed


@pytest.mark.parametrize(
    ("group", "scale", "step"),
    [("digits", "small", 2_000), ("digits-pressure", "small", 4_000),
     ("digits-pressure", "paper", 2_000)],
)  # fmt: skip
def test_searches_take_models_at_half_of_their_training_or_that_were_trained_for_them(
    group, scale, step
):
    assert search_step(group, scale, [0, 1_000, 2_000, 4_000]) == step


@pytest.mark.parametrize(
    ("sizes", "pressure", "steps"),
    [(DIGIT_SIZES, DIGIT_PRESSURE, 4_000), (SPRITE_SIZES, SPRITE_PRESSURE, 3_750)],
)
def test_runs_under_pressure_are_trained_as_far_as_searches_take_the_others(sizes, pressure, steps):
    assert {block["steps"] for block in sizes.small} == {steps}
    assert all(steps / 2 in block["snapshots"] for block in sizes.small)
    assert {block["steps"] for block in pressure.small} == {steps / 2}


def test_a_collapsed_search_is_no_answer_of_one_latent():
    found = searches(rows_of(0), 5.2)
    assert found[20].status == "collapsed"
    assert answers(found) == {}
    assert not ended_well(found).passed


def test_a_search_ends_at_the_largest_size_and_below_a_gap():
    rows = rows_of(9)
    assert searches(rows, 5)[20].status == "limit"
    without_six = Rows(row for row in rows if row["latents"] != 6)
    assert searches(without_six, 2)[20].limit == 5


def test_fondue_holds_where_all_searches_agree():
    found = verdicts("fondue", results_of("fondue", "measure_gaps", lambda row: gaps(row, 4)))
    for row in ("D-T8.1", "D-T8.4", "D-T8.5", "D-T8.6", "D-T8.8", "D-D.5", "D-F8.1"):
        assert found[row, "c1"].verdict == HOLDS
    assert found["D-T8.7", "c1"].verdict == UNDECIDED


@pytest.mark.parametrize(("used", "verdict"), [(3, HOLDS), (8, FAILS)])
def test_bisection_trains_fewer_models_where_the_answer_is_above_the_start(used, verdict):
    found = verdicts("fondue", results_of("fondue", "measure_gaps", lambda row: gaps(row, used)))
    claim = found["D-D.5", "c2"]
    assert claim.verdict == verdict
    assert "bisection of 1 to the largest size trained" in claim.sentence


def test_fondue_fails_if_training_changes_it_and_the_control_if_untrained_models_agree():
    results = results_of("fondue", "measure_gaps", lambda row: gaps(row, 4, later=3, untrained=4))
    found = verdicts("fondue", results)
    assert found["D-T8.1", "c1"].verdict == FAILS
    assert found["D-T8.8", "c1"].verdict == UNDECIDED


@pytest.mark.parametrize(("sign", "verdict"), [(1, HOLDS), (-1, FAILS)])
def test_pressure_holds_if_stronger_priors_leave_fewer_latents(sign, verdict):
    def values(row):
        level = np.log2(row.get("beta") or row["offdiagonal"])
        return gaps(row, round(4 - sign * level))

    found = verdicts("fondue-pressure", results_of("fondue-pressure", "measure_trace", values))
    assert {each.verdict for each in found.values()} == {verdict}


def elbows(row, place, used=4, searched=None):
    """As measured; models that are searched may have their elbow elsewhere, at `searched`."""

    def loss(place):
        return 50 - 10 * min(row["latents"], place) + 0.01 * (row["seed"] % 3)

    values = {"loss": loss(place)} | ({} if row["model"] == "ae" else gaps(row, used))
    if row["group"] in ("digits", "sprites"):
        values["searched_loss"] = loss(place if searched is None else searched)
    return values


@pytest.mark.parametrize(("sign", "verdict"), [(1, HOLDS), (-1, FAILS)])
def test_elbows_follow_answers_over_strengths_where_both_fall(sign, verdict):
    def values(row):
        level = np.log2(row.get("beta") or row.get("offdiagonal") or 1)
        noise = row["seed"] % 3 == 0 and level == 1  # so that not all seeds are the same
        return elbows(row, round(3 - level) + noise, round(3 - sign * level))

    found = verdicts("fondue-elbows", results_of("fondue-elbows", "measure_model", values))
    parts = {part.name: part.verdict for part in found["D-D.2", "c1"].parts}
    assert parts["sprites, β, chord"] == verdict


def test_elbows_of_all_strengths_are_over_the_same_sizes():
    results = results_of("fondue-elbows", "measure_model", lambda row: elbows(row, 4))
    levels = fondue_elbows._trained_by_strength(results, "digits", "beta")
    sizes = {level: {row["latents"] for row in own} for level, own in levels.items()}
    assert sizes == {level: set(range(1, 9)) for level in (0.5, 1.0, 2.0, 4.0)}


def test_strengths_are_compared_after_the_same_training():
    results = results_of("fondue-elbows", "measure_model", lambda row: elbows(row, 7, searched=3))
    plain = fondue_elbows._trained_by_strength(results, "digits", "beta")[1.0]
    assert set(fondue_elbows._elbows(plain, "within").values()) == {3}
    fully = fondue_elbows._trained(results, "digits")
    assert set(fondue_elbows._elbows(fully, "within").values()) == {7}


@pytest.mark.parametrize(("components", "verdict"), [(9, HOLDS), (4, UNDECIDED)])
def test_an_elbow_of_the_data_alone_is_no_evidence(components, verdict):
    sizes = list(range(1, 13))
    errors = [50 - 5 * min(n, components) for n in sizes]
    pca = {row["data"]: {"data": row["data"], "sizes": sizes, "errors": errors}
           for row in planned("fondue-elbows")}  # fmt: skip
    results = results_of("fondue-elbows", "measure_model", lambda row: elbows(row, 4),
                         measure_components=pca)  # fmt: skip
    found = verdicts("fondue-elbows", results)
    assert found["D-F8.5", "c1"].verdict == verdict
    assert found["D-F8.5", "c2"].verdict == HOLDS


def followed(untrained, final):
    """Models whose encoder is near its final state at step 100, and whose decoder is not."""

    def diagonal(encoder, decoder):
        return {"input": 1.0, "enc 1": encoder, "mean": 0.5, "dec 1": decoder}

    def seed(k):
        steps = [diagonal(untrained, 0.1), diagonal(0.9, 0.3 + 0.01 * k),
                 diagonal(0.95, 0.35 + 0.01 * k), diagonal(1.0, final)]  # fmt: skip
        return {"diagonals": steps}

    seeds = {str(20 + k): seed(k) for k in range(6)}
    return {"steps": [0, 100, 1000, 3000], "early": 100, "seeds": seeds}


@pytest.mark.parametrize(("untrained", "verdict"), [(0.1, HOLDS), (0.9, FAILS)])
def test_the_encoder_is_first_only_by_what_training_adds(untrained, verdict):
    units = dict.fromkeys(("tc", "dip", "annealed", "fashion"), followed(untrained, 1.0))
    results = Results("regime-dynamics", "small", [], {"measure_training": units})
    assert verdicts("regime-dynamics", results)["D-F7.2", "c1"].verdict == verdict


def test_a_model_whose_decoder_ignores_its_codes_is_not_judged():
    units = {"tc": followed(0.1, 1.0), "annealed": followed(0.1, 0.04)}
    rows = [{"run": f"{group}{seed}", "group": group, "seed": seed, **own}
            for seed in range(20, 26)
            for group, own in (("annealed", {"capacity": 5, "fall": 100}),
                               ("beta", {"beta": 1, "fall": 400 + seed}))]  # fmt: skip
    results = Results("regime-dynamics", "small", rows, {"measure_training": units})
    found = verdicts("regime-dynamics", results)
    assert found["D-C.3", "c1"].verdict == HOLDS
    parts = {part.name: part for part in found["D-F7.2", "c1"].parts}
    for claim in (found["D-C.4", "c1"], found["D-C.5", "c2"], parts["annealed VAE, C = 5"]):
        assert claim.verdict == UNDECIDED
        assert "the final decoder ignores its codes" in claim.reason


@pytest.mark.parametrize(("untrained", "verdict"), [(0.7, HOLDS), (0.85, UNDECIDED)])
def test_encoders_that_are_as_similar_before_training_are_no_evidence(untrained, verdict):
    def seeds(encoder):
        return {str(20 + k): {"diagonal": {"enc 1": encoder + 0.002 * k}} for k in range(6)}

    unit = {"seeds": seeds(0.9), "untrained": seeds(untrained)}
    units = dict.fromkeys(("sprites", "fashion", "digits"), unit)
    results = Results("regime-dynamics", "small", [], {"measure_objectives": units})
    assert verdicts("regime-dynamics", results)["D-F7.10", "c1"].verdict == verdict


@pytest.mark.parametrize(("shuffled", "verdict"), [(0.5, HOLDS), (0.9, UNDECIDED)])
def test_similar_layers_of_shuffled_labels_are_no_shared_features(shuffled, verdict):
    def seeds(hidden):
        return {str(20 + k): {"diagonal": {"enc 1": hidden + 0.002 * k},
                              "column": {"mean": 0.2, "variance": 0.1, "sampled": 0.1}}
                for k in range(6)}  # fmt: skip

    units = {}
    for name in ("sprites", "fashion", "digits"):
        units[name] = {"seeds": seeds(0.9), "untrained": seeds(0.6)}
        units[f"{name}, shuffled"] = {"seeds": seeds(shuffled)}
    results = Results("regime-classifier", "small", [], {"measure_pairs": units})
    assert verdicts("regime-classifier", results)["D-C.1", "c1"].verdict == verdict


def test_agreement_is_of_ranks_and_grows_with_width():
    cka, more = np.array([[1.0, 0.5], [0.4, 0.1]]), np.array([[0.0, 0.1], [0.1, 0.3]])
    found = agreement(cka, cka + more, ["a", "b"], ["a", "b"], {"a": 2, "b": 50})
    assert found["measures"] == pytest.approx(1)
    assert found["width"] > 0.9


@pytest.mark.parametrize("name", ["fondue", "fondue-pressure", "fondue-elbows", "ide-over-training",
                                  "regime-dynamics", "regime-classifier"])  # fmt: skip
def test_nothing_is_decided_without_measurements(name):
    study = load(name)
    results = Results(name, "small", planned(name))
    found = list(study.claims(results))
    assert {each.verdict for each in found} == {UNDECIDED}
    assert {each.row for each in found} == {row.id for row in study.rows}
    for table in study.tables(results):
        assert len({len(line) for line in table.cells}) == 1


def test_bisection_is_counted_over_the_published_range():
    results = results_of("fondue", "measure_gaps", lambda row: gaps(row, 4))
    rows = results.rows("digits")
    found = searches(rows, None, search="binary", most=199)
    assert {each.latents for each in found.values()} == {4}
    assert {each.samples for each in found.values()} <= {7, 8}  # log2 of 199
    every = results_of("fondue", "measure_gaps", lambda row: gaps(row, 99)).rows("digits")
    assert searches(every, None, search="binary", most=199) == {}  # the largest is acceptable


def test_losses_of_pictures_are_above_their_entropy():
    x = torch.tensor([[0.0, 1.0, 0.5], [0.25, 0.5, 1.0]])
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert float(fondue_elbows._cross_entropy(x, x)) == pytest.approx(
        (2 * math.log(2) + entropy) / 2, abs=1e-6
    )
    rng = torch.Generator().manual_seed(0)
    for _ in range(20):
        p = torch.rand(2, 3, generator=rng)
        assert fondue_elbows._cross_entropy(x, p) > fondue_elbows._cross_entropy(x, x)


def parts(claim, verdict, *titles):
    """What `exceptions` has for a claim that has this verdict in some of its parts."""
    return {claim: verdict.partition(" (")[0],
            **{f"{claim}, {title}": verdict for title in titles}}  # fmt: skip


ENDED = "no search collapsed or reached the largest size"
FAR = "means and samples of untrained models differ by more than 1 in dimension"
WORLD = {
    "growth": 0.05,  # of the estimate from k = 10 to k = 20
    "used": 4, "bend": 4,  # the sizes at which FONDUE ends and at which dimensions diverge
    "near": 0.0, "beyond": 1.0,  # the gap at every size, and how it grows from there on
    "untrained": 2.0, "untrained_beyond": 0.0,
    "idle": int,  # mixed and passive latents, by how many there are beyond 4
    "after": 0.1, "before": 0.5, "after_few": 0.3,
}  # fmt: skip
TITLES = {"continuous": "continuous sprites", "fashion": "Fashion-MNIST", "digits": "digits"}
LAYERS = ("encoder.trunk.1", "encoder.trunk.3", "encoder.head", "mean", "variance", "sampled",
          "decoder.layers.0", "decoder.layers.2", "output")  # fmt: skip


class TestDimensions:
    """Models use 4 latents: up to them, means and samples have the same dimension, then not.

    Untrained models never have. Sprites on a grid have no stable dimension, and are not judged. Of
    models with 2 latents only the hidden layers of the encoder change more after the first epoch,
    and only on Fashion-MNIST. What is changed is changed for one dataset.
    """

    def measured(self, changed="", known=5.0, **changes):
        world = {group: WORLD | (changes if group == changed else {}) for group in TITLES}
        world["sprites"] = WORLD | {"growth": 0.9}
        rows = planned("ide-over-training")
        data = {group: next(row["data"] for row in rows if row["group"] == group)
                for group in world}  # fmt: skip
        codes = {row["run"]: self.codes(row, world[row["group"]])
                 for row in rows if row["group"] in ("continuous", "fashion")}  # fmt: skip
        layers = {row["run"]: self.layers(row, world[row["group"]])
                  for row in rows if row["run"] in codes and row["latents"] in (2, 10)}  # fmt: skip
        observations = {
            name: {"data": name, "estimates": self.subsets(7 * (1 + world[group]["growth"]), 7.0)}
            for group, name in data.items()
        }
        gaussians = {"2": self.subsets(9.0), "5": self.subsets(known), "10": self.subsets(2.0)}
        dimensions = {name: {"data": name, "dimension": 5.2} for name in data.values()}
        return Results("ide-over-training", "small", rows, {
            "measure_codes": codes, "measure_layers": layers, "measure_data": dimensions,
            "measure_observations": observations, "measure_known": {"": gaussians},
        })  # fmt: skip

    def subsets(self, twenty, ten=5.0):
        return [noisy({"10": ten, "20": twenty}, {"run": f"r{k}"}) for k in range(6) if twenty]

    def codes(self, row, world):
        n = row["latents"]
        more = max(0, n - world["bend"])
        gap = world["near"] + world["beyond"] * more
        untrained = world["untrained"] + world["untrained_beyond"] * more
        idle = 20 + world["idle"](max(0, n - 4))
        used = world["used"](row["seed"]) if callable(world["used"]) else world["used"]
        values = {
            "trained_means": 4.0, "trained_samples": 4.0 + gap,
            "untrained_means": 4.0, "untrained_samples": 4.0 + untrained,
            "final_mixed": idle * (n % 2), "final_passive": idle * (1 - n % 2),  # one or the other
        }  # fmt: skip
        return gaps(row, used) | noisy(values, row)

    def layers(self, row, world):
        after = dict.fromkeys(LAYERS, world["after"])
        if row["latents"] == 2:
            early = world["after_few"] if row["group"] == "fashion" else 0.0
            after |= {name: early if "trunk" in name else 0.0 for name in after}
        before = dict.fromkeys(LAYERS, world["before"])
        return noisy({"after": {"input": 9.0, **after}, "before": {"input": 0.0, **before}}, row)

    def test_all_claims_hold_of_all_data_that_are_judged(self):
        results = self.measured()
        assert exceptions(results) == {}
        claims = claims_of(results)
        assert {name: [round(part.interval.value, 2) for part in claim.parts]
                for name, claim in claims.items() if claim.parts and name != "D-F8.10 c1"} == {
            "D-F8.4 c1": [0.05] * 3, "D-F8.9 c1": [0.0] * 2, "D-F8.9 c2": [1.0] * 2,
            "D-F8.11 c1": [0.1] * 2,
        }  # fmt: skip
        assert claims["D-F8.11 c2"].interval.value == pytest.approx(0.2, abs=0.01)

    @pytest.mark.parametrize(
        ("group", "growth"), [("continuous", 0.25), ("fashion", -0.25), ("digits", 0.25)]
    )
    def test_estimates_that_depend_on_the_neighbourhood_are_not_stable(self, group, growth):
        expected = parts("D-F8.4 c1", FAILS, TITLES[group])
        assert exceptions(self.measured(group, growth=growth)) == expected

    @pytest.mark.parametrize(
        ("group", "changes", "claims"),
        [
            ("continuous", {"near": 1.5}, ["D-F8.9 c1"]),
            ("continuous", {"beyond": 0.3}, ["D-F8.9 c2"]),
            ("fashion", {"bend": 2}, ["D-F8.9 c1", "D-F8.9 c2"]),  # before FONDUE's number
            # It falls with the number of idle latents; or grows, but not in the same order.
            ("fashion", {"idle": lambda more: -more}, ["D-F8.10 c1"]),
            ("continuous", {"idle": bool}, ["D-F8.10 c1"]),
            ("continuous", {"after": 0.3}, ["D-F8.11 c1"]),
        ],
    )
    def test_a_claim_about_models_fails_on_its_own_data_alone(self, group, changes, claims):
        expected = {}
        for claim in claims:
            expected |= parts(claim, FAILS, TITLES[group])
        assert exceptions(self.measured(group, **changes)) == expected

    def test_too_few_latents_need_not_change_early_layers_more(self):
        assert exceptions(self.measured("fashion", after_few=0.05)) == {"D-F8.11 c2": FAILS}

    @pytest.mark.parametrize(
        ("group", "changes", "claims", "words"),
        [
            ("continuous", {"untrained": 0.5}, ["D-F8.9 c1"], FAR),
            ("continuous", {"used": lambda seed: 0 if seed == 25 else 4},
             ["D-F8.9 c1", "D-F8.9 c2"], ENDED),
            ("fashion", {"before": 0.1}, ["D-F8.11 c1"],
             "dimensions of layers change more within the first epoch than after it"),
        ],
    )  # fmt: skip
    def test_no_claim_holds_if_its_control_fails(self, group, changes, claims, words):
        expected = {}
        for claim in claims:
            expected |= parts(claim, control_fails(words), TITLES[group])
        assert exceptions(self.measured(group, **changes)) == expected

    @pytest.mark.parametrize("group", ["continuous", "fashion"])
    def test_a_gap_that_grows_with_size_before_training_is_no_evidence(self, group):
        expected = {
            **parts("D-F8.9 c2", control_fails("in untrained models the dimensions of means and "
                                               "samples diverge less"), TITLES[group]),
            **parts("D-F8.10 c1", control_fails("in untrained models the difference of dimensions "
                                                "follows the number of mixed and passive latents "
                                                "less"), TITLES[group]),
        }  # fmt: skip
        assert exceptions(self.measured(group, untrained_beyond=1.0)) == expected

    @pytest.mark.parametrize(("group", "largest"), [("continuous", 8), ("fashion", 12)])
    def test_the_largest_size_is_no_answer_of_fondue(self, group, largest):
        results = self.measured(group, used=99, bend=largest)
        claims = claims_of(results)
        for name in ("D-F8.9 c1", "D-F8.9 c2"):
            reasons = {part.name: part.verdict_text for part in claims[name].parts}
            assert reasons.pop(TITLES[group]) == control_fails(ENDED)
            assert set(reasons.values()) == {HOLDS}

    def test_estimates_are_stable_only_if_a_known_dimension_is_found(self):
        words, titles = "a Gaussian of dimension 5 is estimated within 10 %", TITLES.values()
        for known, verdict in ((5.7, control_fails), (4.3, control_fails), (None, control_untried)):
            expected = parts("D-F8.4 c1", verdict(words), *titles)
            assert exceptions(self.measured(known=known)) == expected

    def test_untrained_models_may_be_far_on_either_side(self):
        assert exceptions(self.measured("fashion", untrained=-2.0)) == {}

    def test_untrained_models_that_are_near_in_some_seeds_are_not_far_enough(self):
        results = self.measured()
        for row in results.rows("fashion", seed=[20, 21]):
            results.values["measure_codes"][row["run"]]["untrained_samples"] -= 2
        expected = parts("D-F8.9 c1", control_fails(FAR), "Fashion-MNIST")
        assert exceptions(results) == expected

    def test_a_single_size_with_another_dimension_is_enough(self):
        results = self.measured()
        for row in results.rows("fashion", latents=3):
            results.values["measure_codes"][row["run"]]["trained_samples"] -= 2
        assert exceptions(results) == parts("D-F8.9 c1", FAILS, "Fashion-MNIST")

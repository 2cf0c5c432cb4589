"""Studies of responses: the rules that choose and judge, where the answer is known."""

import numpy as np
import pytest
from made_up import claims_of, control_fails, control_untried, exceptions, noisy, results_of

from zscope.errors import Undefined
from zscope.experiments.studies import responses_disentanglement as disentanglement
from zscope.experiments.studies import responses_maps as maps
from zscope.experiments.studies import responses_structure as structure
from zscope.experiments.studies.judging import FAILS, HOLDS, UNDECIDED
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.study import Results

SEEDS = (20, 21, 22, 23)


@pytest.mark.parametrize(
    ("diagonal", "expected"),
    [
        ([0.02, 0.05, 0.9, 1.0], 0.85 - 0.1),  # two classes
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], 0.0),  # even
        ([0.6, 0.7, 1.0], -0.3),  # one class
        ([0.0, 0.01, 0.3], -0.29),
    ],
)
def test_a_diagonal_is_categorical_if_its_largest_gap_contains_one_half(diagonal, expected):
    assert disentanglement.separation(diagonal) == pytest.approx(expected)


def test_a_factor_has_a_plane_only_if_two_causal_latents_share_it():
    rows = np.array([[5.0, 4.0, 0.5, 0.5], [9.0, 0.5, 0.3, 0.2]])
    best, pair, found = maps.choose_pair(rows, [0, 1, 2])
    assert (best, pair, found["qualifies"], found["factors"]) == (0, [0, 1], True, 1)
    # One latent holds nearly all of the second factor: its partner is anyone.
    best, _, found = maps.choose_pair(rows[1:], [0, 1, 2])
    assert not found["qualifies"]
    # Latent 1 is not causal: what it holds is no response.
    assert not maps.choose_pair(rows[:1], [0, 2, 3])[2]["qualifies"]
    with pytest.raises(Undefined, match="1 causal latents"):
        maps.choose_pair(rows, [0])


def row(seed, **values):
    return {"run": f"r{seed}", "group": "rooms", "seed": seed, "latents": 12, **values}


def test_scores_of_one_run_are_compared_and_not_means_over_different_runs():
    # CDS is undefined at β 8, where DCI is high: the runs that have both decide.
    rows = Rows([row(20, beta=1, cds=0.5, dci=0.4), row(20, beta=8, cds=None, dci=0.9)])
    assert disentanglement._same_run(rows, "cds", "dci") == {20: pytest.approx(0.1)}


def controls(**values):
    rows = Rows(row(seed, beta=1, **{k: v + seed / 1e4 for k, v in values.items()})
                for seed in SEEDS)  # fmt: skip
    return [control.passed for control in disentanglement._controls(rows, "cds", "CDS")]


def test_a_score_must_exceed_that_of_untrained_models_and_chance():
    assert controls(cds=0.5, untrained_cds=0.1, cds_chance=0.2) == [True, True]
    assert controls(cds=0.5, untrained_cds=0.6, cds_chance=0.2) == [False, True]
    assert controls(cds=0.5, untrained_cds=0.1, cds_chance=0.7) == [True, False]
    # Without two causal latents an untrained model has no score to pass on.
    assert controls(cds=0.5, cds_chance=0.1, untrained_causal=0) == [True, True]
    assert controls(cds=0.5, cds_chance=0.1, untrained_causal=5) == [None, True]


@pytest.mark.parametrize(("mean", "verdict"), [(2.0, HOLDS), (-0.5, FAILS)])
def test_a_score_that_falls_does_not_rise_faster(mean, verdict):
    """By sampled responses it falls steeply: a slower fall by means is no rise."""
    values, runs = {}, []
    for seed in SEEDS:
        for collapsed in (0, 4, 8):
            name = f"{seed}-{collapsed}"
            runs.append({"run": name, "group": "rooms", "seed": seed, "latents": 12, "beta": 1,
                         "data": "rooms"})  # fmt: skip
            values[name] = {"collapsed": collapsed, "mean": (mean + seed / 200) * collapsed,
                            "sampled": -3.0 * collapsed, "untrained": 9.0}  # fmt: skip
    measured = {"measure": values, "measure_identity": {"": {"score": 0.1, "error": 0.2}}}
    results = Results("responses-structure", "small", runs, measured)
    found = {(c.row, c.name): c for c in structure.claims(results)}["A-T3", "c1"]
    parts = {part.name: part.verdict for part in found.parts}
    assert parts == {"rises": verdict, "faster": HOLDS}
    assert found.verdict == verdict


CONVERGING = "the excess of codes where the divergence is negative"
CURVED = "the excess of codes where the mean curvature is positive"
SHUFFLED = "is smaller if they are shuffled per latent"
UNTRAINED = "is smaller in the untrained model"
HOPS = "most paths of the weak recipe change strand"


class TestHelix:
    """Codes lie where responses converge and paths stay; of the controls the opposite is true."""

    def measured(self, weak=(), **changes):
        values = {
            "converging_excess": 0.25, "converging_hybrid_excess": 0.01,
            "untrained_converging_excess": -0.02, "curved_excess": 0.15,
            "curved_hybrid_excess": 0.0, "untrained_curved_excess": 0.02,
            "same_straight_hops": 0.95, "same_straight_farthest": 1.0,
            "same_field_hops": 0.1, "same_field_farthest": 0.1, "other_field_hops": 1,
        }  # fmt: skip
        others = {key: -value for key, value in values.items()} | {
            "same_straight_hops": 0.0, "same_field_hops": 0.9, "other_field_hops": 0,
        }  # fmt: skip
        own = {"helix": values | changes, "weak": others | dict(weak), "beta 1": others}
        return results_of("responses-helix", lambda run: noisy(own[run["group"]], run))

    def test_all_claims_hold_of_the_models_that_are_asked(self):
        claims = claims_of(self.measured())
        assert {claim.verdict for claim in claims.values()} == {HOLDS}
        assert {claim.interval.n for claim in claims.values()} == {8}
        assert {name: round(claim.interval.value, 2) for name, claim in claims.items()} == {
            "A-F2 c1": 0.25, "A-F2 c2": 0.15, "A-F3 c1": 0.85, "A-F3 c2": 0.9, "A-F3 c3": 0.9,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("changes", "claim"),
        [
            ({"converging_excess": -0.1}, "A-F2 c1"),
            ({"curved_excess": -0.1}, "A-F2 c2"),
            ({"same_straight_hops": 0.0}, "A-F3 c1"),
            ({"same_straight_farthest": 0.05}, "A-F3 c2"),
            ({"same_field_hops": 0.8}, "A-F3 c3"),  # less often than the straight line, yet most
        ],
    )
    def test_a_claim_fails_by_what_it_speaks_of_alone(self, changes, claim):
        assert exceptions(self.measured(**changes)) == {claim: FAILS}

    @pytest.mark.parametrize(
        ("changes", "claims", "words"),
        [
            ({"converging_hybrid_excess": 0.3}, ["A-F2 c1"], f"{CONVERGING} {SHUFFLED}"),
            ({"untrained_converging_excess": 0.3}, ["A-F2 c1"], f"{CONVERGING} {UNTRAINED}"),
            ({"curved_hybrid_excess": 0.2}, ["A-F2 c2"], f"{CURVED} {SHUFFLED}"),
            ({"untrained_curved_excess": 0.2}, ["A-F2 c2"], f"{CURVED} {UNTRAINED}"),
            ({"other_field_hops": 0.5}, ["A-F3 c1", "A-F3 c2", "A-F3 c3"],
             "paths between different strands change strand"),
            ({"weak": {"same_field_hops": 0.1}}, ["A-F3 c1"], HOPS),
        ],
    )  # fmt: skip
    def test_no_claim_holds_if_its_control_fails(self, changes, claims, words):
        results = self.measured(**changes)
        assert exceptions(results) == dict.fromkeys(claims, control_fails(words))

    def test_a_single_path_that_need_not_cross_spoils_the_control(self):
        results = self.measured()
        last = [run["run"] for run in results.runs if run["group"] == "helix"][-1]
        results.values["measure"][last]["other_field_hops"] = 0.5
        assert set(exceptions(results)) == {"A-F3 c1", "A-F3 c2", "A-F3 c3"}

    def test_nothing_is_said_of_most_paths_where_seeds_disagree(self):
        results = self.measured()
        for number, run in enumerate(results.rows("helix")):
            results.values["measure"][run["run"]]["same_field_hops"] = 0.2 + 0.6 * (number % 2)
        assert exceptions(results) == {"A-F3 c3": UNDECIDED}

    def test_a_control_that_was_not_measured_has_not_failed(self):
        no_weak = self.measured(weak={"same_field_hops": None})
        assert exceptions(no_weak) == {"A-F3 c1": control_untried(HOPS)}
        words = "paths between different strands change strand"
        assert exceptions(self.measured(other_field_hops=None)) == dict.fromkeys(
            ("A-F3 c1", "A-F3 c2", "A-F3 c3"), control_untried(words)
        )
        assert exceptions(self.measured(curved_hybrid_excess=None)) == {
            "A-F2 c2": control_untried(f"{CURVED} {SHUFFLED}")
        }


FIGURES = {"mnist": ("A-F25 c1", "A-F26 c1", "A-F27 c1"),
           "fashion-mnist": ("A-F28 c1", "A-F29 c1", "A-F30 c1")}  # fmt: skip
CLASSIFIER = "the classifier reads held-out pictures (above .9; Fashion-MNIST above .8)"


class TestPlane:
    """Two latents of MNIST and of Fashion-MNIST; what is changed is changed on one of them."""

    def measured(self, data="", **changes):
        values = {
            "auc": 0.8, "auc_shifted": 0.5, "accuracy": 0.95, "collapsed": 0, "confidence": 0.9,
            "confidence_untrained": 0.5, "confidence_shuffled": 0.4, "contraction": -1.5,
            "contraction_untrained": -0.5,
        }  # fmt: skip

        def measure(run):
            if run["group"] == "classifier":
                return None
            return noisy(values | (changes if run["data"] == data else {}), run)

        return results_of("responses-plane", measure)

    def test_all_claims_hold_of_both(self):
        claims = claims_of(self.measured())
        assert {claim.verdict for claim in claims.values()} == {HOLDS}
        values = [round(claim.interval.value, 1) for claim in claims.values()]
        assert values == [0.3, 0.4, 1.5] * 2

    @pytest.mark.parametrize("data", list(FIGURES))
    @pytest.mark.parametrize(
        ("changes", "place"),
        [({"auc": 0.45}, 0), ({"confidence": 0.45}, 1), ({"contraction": 0.5}, 2)],
    )
    def test_a_claim_fails_on_its_own_data_alone(self, data, changes, place):
        assert exceptions(self.measured(data, **changes)) == {FIGURES[data][place]: FAILS}

    def test_a_shifted_map_must_not_tell_boundaries_as_well(self):
        assert exceptions(self.measured("mnist", auc_shifted=0.9)) == {"A-F25 c1": FAILS}

    @pytest.mark.parametrize("data", list(FIGURES))
    def test_confidence_on_shuffled_pixels_is_no_recognition(self, data):
        words = "confidence is above that on pictures with shuffled pixels"
        assert exceptions(self.measured(data, confidence_shuffled=0.95)) == {
            FIGURES[data][1]: control_fails(words)
        }

    @pytest.mark.parametrize("data", list(FIGURES))
    def test_an_untrained_model_that_contracts_as_much_leaves_contraction_undecided(self, data):
        words = "responses of the untrained model contract less"
        assert exceptions(self.measured(data, contraction_untrained=-3.9)) == {
            FIGURES[data][2]: control_fails(words)
        }

    @pytest.mark.parametrize(
        ("data", "accuracy", "enough"),
        [("mnist", 0.85, False), ("fashion-mnist", 0.85, True), ("fashion-mnist", 0.75, False)],
    )
    def test_the_classifier_must_read_the_data_of_the_figure(self, data, accuracy, enough):
        spoiled = () if enough else FIGURES[data][:2]
        assert exceptions(self.measured(data, accuracy=accuracy)) == dict.fromkeys(
            spoiled, control_fails(CLASSIFIER)
        )

    @pytest.mark.parametrize("changes", [{}, {"auc": 0.2, "confidence": 0.2, "contraction": 1.0}])
    def test_nothing_is_judged_on_data_of_which_a_latent_has_collapsed(self, changes):
        results = self.measured("fashion-mnist", **changes)
        last = [run["run"] for run in results.runs if run["data"] == "fashion-mnist"][-2]
        results.values["measure"][last]["collapsed"] = 1
        assert exceptions(results) == dict.fromkeys(
            FIGURES["fashion-mnist"], "undecided (1 of 8 latents collapsed)"
        )

    def test_a_control_that_was_not_measured_has_not_failed(self):
        words = "confidence is above that on pictures with shuffled pixels"
        assert exceptions(self.measured("mnist", confidence_shuffled=None)) == {
            "A-F26 c1": control_untried(words)
        }
        assert exceptions(self.measured("mnist", accuracy=None)) == dict.fromkeys(
            ("A-F25 c1", "A-F26 c1"), control_untried(CLASSIFIER)
        )

"""Studies of FONDUE, layers and classifiers: verdicts on made-up measurements that are known."""

import math

import numpy as np
import pytest
import torch

from zscope.experiments.studies import fondue_elbows, load
from zscope.experiments.studies.judging import FAILS, HOLDS, UNDECIDED
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.shared.maps import agreement
from zscope.experiments.studies.shared.sizes import answers, ended_well, searches
from zscope.experiments.studies.study import Results


def settings(name):
    return [
        {
            "run": f"{k}",
            "group": group,
            **{key.removeprefix("options."): v for key, v in run.items()},
        }
        for k, (group, run) in enumerate(load(name).plan("small"))
    ]


def gaps(row, used, *, later=0, untrained=None):
    """A model that can use `used` latents: each other one adds 1 to the gap."""
    steps = [0, *row.get("snapshots", []), row["steps"]]
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
    rows = settings(name)
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


def elbows(row, place):
    loss = 50 - 10 * min(row["latents"], place)
    return {
        "loss": loss + 0.01 * (row["seed"] % 3),
        **(gaps(row, 4) if row["model"] != "ae" else {}),
    }


@pytest.mark.parametrize(("components", "verdict"), [(9, HOLDS), (4, UNDECIDED)])
def test_an_elbow_of_the_data_alone_is_no_evidence(components, verdict):
    sizes = list(range(1, 13))
    errors = [50 - 5 * min(n, components) for n in sizes]
    pca = {row["data"]: {"data": row["data"], "sizes": sizes, "errors": errors}
           for row in settings("fondue-elbows")}  # fmt: skip
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
    results = Results(name, "small", settings(name))
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

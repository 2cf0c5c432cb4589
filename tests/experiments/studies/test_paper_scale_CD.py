"""The studies of documents C and D at scale paper, on made-up measurements."""

from functools import cache

import numpy as np
import pytest

from zscope.experiments import studies
from zscope.experiments.studies.grid import Grid, runs, settings_of
from zscope.experiments.studies.judging import FAILS, HOLDS, UNDECIDED
from zscope.experiments.studies.rows import data_name
from zscope.experiments.studies.study import Results
from zscope.experiments.studies.trained import TrainedRuns
from zscope.report.studies import describe_plan

NAMES = [name for name in studies.names() if studies.load(name).document in "CD"]


@cache
def planned(name, seeds=6):
    plan = studies.load(name).plan("paper", seeds)
    return [{"run": f"r{k}", "group": group, **settings_of(run)}
            for k, (group, run) in enumerate(plan)]  # fmt: skip


def measured(name, values, measure="measure", **more):
    """Results with values(row) for each planned run; None leaves a run unmeasured."""
    rows = planned(name)
    units = {row["run"]: own for row in rows if (own := values(row)) is not None}
    return Results(name, "paper", rows, {measure: units, **more})


def verdicts(results):
    claims = studies.load(results.study).claims(results)
    return {(claim.row, claim.name): claim for claim in claims}


def draw(results):
    import matplotlib.pyplot as plt

    names = [figure.name for figure in studies.load(results.study).figures(results)]
    plt.close("all")
    return names


@pytest.mark.parametrize("seeds", [1, 4])  # too few to be judged, and enough
@pytest.mark.parametrize("name", NAMES)
def test_every_claim_table_and_figure_is_made_without_measurements(name, seeds):
    study, empty = studies.load(name), Results(name, "paper", planned(name, seeds))
    claims = list(study.claims(empty))
    assert {claim.verdict for claim in claims} == {UNDECIDED}
    assert {claim.row for claim in claims} <= {row.id for row in study.rows}
    assert all(table.cells for table in study.tables(empty))
    if seeds > 1:
        draw(empty)


@pytest.mark.parametrize("name", NAMES)
def test_every_grid_has_published_runs_or_says_why_not(name):
    for grid in studies.load(name).grids.values():
        assert grid.paper or grid.small_only


@pytest.mark.parametrize("name", NAMES)
def test_every_unit_compares_runs_of_one_dataset_and_one_kind_of_network(name):
    rows = {row["run"]: row for row in planned(name)}
    for measure in studies.load(name).measures:
        for unit, members in measure.units(list(rows.values())).items():
            own = [rows[member] for member in members]
            if not measure.single and unit:
                assert len({data_name(row["data"]) for row in own}) == 1
                assert len({row["backbone"] for row in own}) == 1 or "data=" in unit


def test_a_preset_is_part_of_the_settings_and_what_is_given_takes_precedence():
    row = settings_of({"model": "vae", "preset": "polarised-2023", "options.hidden": [4],
                       "backbone": "mlp", "steps": 7})  # fmt: skip
    assert (row["latents"], row["steps"], row["batch"], row["backbone"]) == (10, 7, 64, "mlp")
    assert row["hidden"] == [4]
    assert "steps" not in settings_of({"preset": "locatello-2019", "epochs": 2})


def test_notes_on_small_runs_are_not_printed_at_scale_paper(tmp_path):
    study = studies.load("pca-alignment")
    texts = {scale: str(describe_plan(study, tmp_path, scale=scale, timing=False, root=tmp_path))
             for scale in ("small", "paper")}  # fmt: skip
    assert "β .05 instead of the published 1e-4" in texts["small"]
    assert "β .05 instead" not in texts["paper"]
    assert "β 1 is the plain VAE" in texts["paper"]
    # Table 3.1: the networks and the optimiser come from the preset.
    assert "hidden [1200, 1200]" in texts["paper"]
    assert "optimiser adagrad" in texts["paper"]
    assert "steps 12000" in texts["small"]


def test_a_grid_describes_each_scale():
    grid = Grid(small=runs(model="ae"), notes="Both.", small_notes="Small.", small_only="Why.")
    assert grid.describe("small") == grid.describe("tiny") == "Both. Small."
    assert grid.describe("paper") == "Why."
    assert Grid(paper=runs(model="ae"), paper_only="Large.").describe("small") == "Large."


@pytest.mark.parametrize("name", ["ivae-histograms", "regime-types", "regime-mean-sampled"])
def test_pictures_are_kept_of_the_first_seed_of_each_scale(name, tmp_path):
    for scale, seed in (("paper", 0), ("small", 20)):
        plan = studies.load(name).plan(scale)
        rows = [{"run": f"{k}", "group": group, **settings_of(run)}
                for k, (group, run) in enumerate(plan)]  # fmt: skip
        among = TrainedRuns(rows, tmp_path, scale=scale)
        some = among.select(rows[0]["group"])[:40]
        assert {run.seed for run in some if run.is_first} == {seed}


def test_types_are_judged_on_dsprites_and_counts_on_each_dataset():
    def values(row):
        if row["model"] not in ("beta-vae", "annealed-vae") or row["seed"] > 6:
            return None
        odd = data_name(row["data"]) == "cars3d"  # which must not count for figure 6.2
        level = row.get("beta") or row["capacity"]
        return {
            "strength": float(level), "labels": ["passive", "active"], "active_untrained": 0,
            "sd_mean": [5.0 if odd else 0.01 + 0.001 * row["seed"], 1.0],
            "not_active": -level if odd else level,
            "not_active_05": level, "not_active_20": level,
        }  # fmt: skip

    found = verdicts(measured("regime-types", values))
    assert found["D-F6.2", "c1"].verdict == HOLDS
    counts = {part.name: part.verdict for part in found["D-F6.5", "c1"].parts}
    assert counts["β-VAE, dSprites"] == HOLDS
    assert counts["β-VAE, Cars3D"] == FAILS


def test_annealed_vaes_have_figures_of_their_own_on_cars3d():
    def values(row):
        if row["group"] != "annealed" or row["seed"] > 6:
            return None
        sign = -1 if data_name(row["data"]) == "cars3d" else 1
        nats = {"tc": sign * row["capacity"], "tc_floor": 0.0, "mi": None, "mi_floor": None}
        return {"strength": float(row["capacity"]), "passive": 3, "mixed": 0, "active": 7,
                "M": nats, "Z": nats, "rank_M": 5.0 + 0.01 * row["seed"]}  # fmt: skip

    results = measured("regime-mean-sampled", values)
    found = verdicts(results)
    assert found["D-B.2", "c1"].verdict == HOLDS
    assert found["D-B.3", "c1"].verdict == FAILS
    assert {"figure-B.2", "figure-B.3"} <= set(draw(results))
    assert [part.name for part in found["D-B.4", "c1"].parts] == ["dSprites", "Cars3D"]


def test_truncation_has_published_strengths_and_annealed_vaes_on_a_background():
    def values(row):
        if row["seed"] > 6:
            return None
        more = data_name(row["data"]) == "sprites-background"
        nats = {part: {"M": {"tc": tc, "tc_floor": 0.0, "mi": tc, "mi_floor": 0.0}}
                for part, tc in (("full", 2.0 + 0.01 * row["seed"] if more else 0.0),
                                 ("active", 1.0))}  # fmt: skip
        own = row.get("beta") or row.get("capacity") or row.get("offdiagonal")
        return {"strength": float(own), "passive": 2, "mixed": 0, "active": 5, "nats": nats}

    found = verdicts(measured("regime-truncation", values))
    assert found["D-B.5", "c1"].verdict == HOLDS
    assert [part.name for part in found["D-F6.8", "c1"].parts] == [
        f"β = {beta}" for beta in (1, 2, 4, 6, 8, 10)
    ]


def test_dynamics_follow_the_data_of_each_figure():
    study = studies.load("regime-dynamics")
    rows = {row["run"]: row for row in planned("regime-dynamics")}
    units = {measure.name: measure.units(list(rows.values())) for measure in study.measures}

    def about(measure, unit):
        own = [rows[member] for member in units[measure][unit]]
        return {data_name(row["data"]) for row in own}, {row["backbone"] for row in own}

    assert about("measure_training", "tc") == ({"cars3d"}, {"locatello"})
    assert about("measure_training", "dip") == ({"dsprites"}, {"locatello"})
    assert about("measure_training", "annealed") == ({"smallnorb"}, {"locatello"})
    assert about("measure_training", "fashion") == ({"smallnorb"}, {"mlp"})
    assert about("measure_strengths", "connected, β 1 and 16") == ({"dsprites"}, {"mlp"})
    assert "β 1 and 16" not in units["measure_strengths"]  # one side has no runs
    followed = [rows[member] for member in units["measure_training"]["tc"]]
    assert all(len(row["snapshots"]) == 5 for row in followed)
    assert [row["seed"] for row in followed] == [0, 1, 2, 3, 4]


def test_losses_over_training_are_compared_on_each_dataset():
    def values(row):
        late = data_name(row["data"]) == "cars3d" and row.get("beta") == 8
        level = row.get("beta") or row.get("offdiagonal") or 1
        return {"fall": 2 ** (12 if late else 8) + row["seed"] * level}

    found = verdicts(measured("regime-dynamics", values, "measure_history"))
    parts = {part.name: part.verdict for part in found["D-C.5", "c1"].parts}
    assert parts["Cars3D, β 8 and 1"] == FAILS
    assert parts["dSprites, β 8 and 1"] == parts["SmallNORB, λ 20 and 1"] == HOLDS


def test_classifiers_are_compared_with_convolutional_encoders_of_their_data():
    rows = {row["run"]: row for row in planned("regime-classifier")}
    (pairs, *_) = studies.load("regime-classifier").measures
    units = pairs.units(list(rows.values()))
    assert set(units) == {f"{name}{more}" for name in ("sprites", "fashion", "digits")
                          for more in ("", ", shuffled")}  # fmt: skip
    for members in units.values():
        own = [rows[member] for member in members]
        assert [row["model"] for row in own] == ["classifier"] * 5 + ["beta-vae"] * 5
        assert {row.get("beta") for row in own[5:]} == {1}


def gaps(row, used):
    """A model that can use `used` latents: each other one adds 1 to the gap."""
    steps = [0, *row.get("snapshots", []), row["steps"]]
    active = min(row["latents"], used)
    own = {"trace": 0.01 * active + row["latents"] - active, "active": active, "mixed": 0,
           "passive": row["latents"] - active, "used": active, "kl": 2.0 * active}  # fmt: skip
    return {"at": steps, **{key: [value] * len(steps) for key, value in own.items()}}


def sizes(name, used, measure):
    rows = planned(name)
    data = {row["data"]: {"dimension": 11.0, "samples": 9, "data": row["data"]} for row in rows}
    return measured(name, lambda row: gaps(row, used(row)), measure, measure_data=data)


@pytest.mark.slow  # thousands of runs
def test_fondue_compares_networks_and_starts_far_above_the_answer():
    def used(row):
        return 5 if row["group"].endswith("connected") else 11 + row["seed"] % 2

    found = verdicts(sizes("fondue", used, "measure_gaps"))
    assert found["D-T8.7", "c1"].verdict == HOLDS
    starts = {part.name: part for part in found["D-T8.6", "c1"].parts}
    assert {"start 5", "start 182"} <= set(starts)
    assert found["D-T8.6", "c2"].verdict == HOLDS


@pytest.mark.slow  # thousands of runs
def test_pressure_is_judged_on_celeba_too():
    def used(row):
        level = np.log2(row.get("beta") or row["offdiagonal"])
        return round(8 + level if row["group"].startswith("fashion") else 8 - level)

    found = verdicts(sizes("fondue-pressure", used, "measure_trace"))
    parts = {part.name: part.verdict for part in found["D-T8.2", "c1"].parts}
    assert parts == {"Symsol": HOLDS, "dSprites": HOLDS, "CelebA": FAILS}


@pytest.mark.slow  # thousands of runs
def test_elbows_of_strengths_are_those_of_fully_trained_models():
    def values(row):
        level = row.get("beta") or row.get("offdiagonal") or 1
        n = round(12 - 3 * np.log2(level)) - row["seed"] % 3
        place = n if "steps" in row and row["steps"] == 300_000 else 3
        loss = {"loss": 100 - 3 * min(row["latents"], place) + 0.01 * row["seed"]}
        return loss | (gaps(row, n) if row["model"] != "ae" else {})

    rows = planned("fondue-elbows")
    data = {row["data"]: {"dimension": 11.0, "samples": 9, "data": row["data"]} for row in rows}
    results = measured("fondue-elbows", values, "measure_model", measure_data=data)
    found = verdicts(results)
    assert found["D-D.2", "c1"].verdict == HOLDS
    assert [part.name for part in found["D-F8.8", "c1"].parts][:2] == [
        "Symsol, chord", "Symsol, within 2 % of the best"
    ]  # fmt: skip


def test_restarts_are_compared_with_the_original_of_the_same_data_and_model():
    def values(row):
        if row["group"] != "changed":
            return {"mig": 9.0, "active": 6, "chart": "neither"}  # other data: must not count
        changed = row["data"].endswith("/changed")
        better = row["model"] == "slow-vae"
        mig = (0.3 if better else 0.1) if changed else 0.2
        return {"mig": mig + 0.001 * row["seed"], "active": 6, "chart": "neither"}

    results = measured("pca-restarts", values, "measure_lengths")
    parts = {part.name: part.interval.value for part in verdicts(results)["C-F4.8", "c1"].parts}
    assert parts == {"β-VAE": 0, "FactorVAE": 0, "TC-VAE": 0, "SlowVAE": 1}


def test_eigenfaces_are_judged_on_celeba_alone():
    def values(row):
        rising = data_name(row["data"]) == "fashion-mnist"
        energy = [1.0, 2.0, 3.0] if rising else [3.0, 2.0, 1.0]
        return {"energy": energy, "loss": 1.0}

    found = verdicts(measured("pca-alignment", values, "measure_faces"))
    assert found["C-F3.6", "c1"].verdict == HOLDS


def test_the_published_beta_is_marked_at_scale_paper():
    results = measured("pca-beta-search", lambda row: {"ds": 0.5, "dto": 0.1, "variances": [0.1]})
    (table,) = studies.load("pca-beta-search").tables(results)
    assert [row[1:3] for row in table.cells if "4 (published)" in row[1]] == [
        ["4 (published)", "50 epochs"]
    ]


def test_regime_of_sprites_is_measured_over_its_own_steps():
    def values(row):
        exact = row["latents"] != 10
        place = data_name(row["data"]).removeprefix("square-").replace("dsprites", "sprites")
        return {"place": place, "exact": exact, "steps_measured": [0, 100, 230_400],
                "gaps": [0.5, 0.01, 0.01], "counts": [0, 5, 5], "untrained": 0.5, "last": 0.01,
                "late": 0.01 + 1e-5 * row["seed"], "settled": 100, "share": 0.99,
                "crossing": 50.0 if exact else 90.0 + row["seed"]}  # fmt: skip

    found = verdicts(measured("pca-regime", values))
    parts = {part.name: part for part in found["C-T3.2", "c1"].parts}
    assert parts["sprites"].verdict == HOLDS
    assert "230,400 steps" in parts["sprites"].statistic

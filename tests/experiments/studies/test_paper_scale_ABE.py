"""Scale paper of the studies of documents A, B and E, on made-up measurements of planned runs."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from zscope import models
from zscope.data.dataset import Dataset, grid_factors
from zscope.experiments import studies
from zscope.experiments.studies import responses_disentanglement as disentanglement
from zscope.experiments.studies import structural_order as order
from zscope.experiments.studies.grid import short_name
from zscope.experiments.studies.grids.structural import DIGIT_READER
from zscope.experiments.studies.judging import FAILS, HOLDS, UNDECIDED
from zscope.experiments.studies.rows import Rows, data_name
from zscope.experiments.studies.shared.structural_published import PUBLISHED
from zscope.experiments.studies.study import Results
from zscope.experiments.studies.trained import TrainedRuns
from zscope.presets import preset

NAMES = [name for name in studies.names() if studies.load(name).document in "ABE"]
MPI3D = ("mpi3d-toy", "mpi3d-sim", "mpi3d-real")


@cache
def planned(name):
    """The runs at scale paper as rows, with made-up names."""
    return [
        {"run": f"run-{k}", "group": group, **{short_name(key): v for key, v in run.items()}}
        for k, (group, run) in enumerate(studies.load(name).plan("paper"))
    ]


def results_of(name, measure=lambda run: {}, **values):
    """Results of all planned runs, with what `measure` makes up of each."""
    runs = planned(name)
    measured = {run["run"]: measure(run) for run in runs}
    return Results(name, "paper", runs, {"measure": measured, **values})


def claims_of(results):
    return {(c.row, c.name): c for c in studies.load(results.study).claims(results)}


def tables_of(results):
    return {table.name: table for table in studies.load(results.study).tables(results)}


def figures_of(results):
    import matplotlib.pyplot as plt

    figures = [(f.name, f.row, f.caption) for f in studies.load(results.study).figures(results)]
    plt.close("all")
    names = [name for name, *_ in figures]
    assert len(set(names)) == len(names)  # or one would overwrite the other
    return {name: (row, caption) for name, row, caption in figures}


def noise(run, size=0.01):
    return size * np.random.default_rng(int(run["run"].partition("-")[2])).uniform(-1, 1)


def first(run):
    """Whether the run has the first published seed, of which pictures are kept."""
    return run["seed"] in (0, 11)


@pytest.mark.parametrize("name", NAMES)
def test_without_measurements_nothing_is_judged_and_nothing_fails(name):
    results = results_of(name)
    claims = claims_of(results)
    assert {claim.verdict for claim in claims.values()} == {UNDECIDED}
    assert tables_of(results)
    figures_of(results)


@pytest.mark.parametrize("name", NAMES)
def test_every_grid_has_runs_at_scale_paper_or_says_that_it_has_none(name):
    for grid in studies.load(name).grids.values():
        none = "scale small only" in grid.notes or grid is DIGIT_READER
        assert grid.expand("paper") or none


@pytest.mark.parametrize("name", NAMES)
def test_every_run_at_scale_paper_has_enough_seeds_or_only_pictures(name):
    for group, grid in studies.load(name).grids.items():
        seeds = {run["seed"] for run in grid.expand("paper")}
        alone = "classifier" in group or group in ("faces", "beta 1")
        assert alone or not seeds or len(seeds) >= 4


def test_every_model_has_the_options_that_it_is_given():
    for name in NAMES:
        for _, run in studies.load(name).plan("paper"):
            given = {key.removeprefix("options.") for key in run if key.startswith("options.")}
            if "preset" in run:
                given |= set(preset(run["preset"]).network)
            assert given <= set(models.entry(run["model"]).options)


def test_the_largest_structural_models_have_as_many_weights_as_printed():
    (run, *_) = [run for run in planned("consistency-families") if run["model"] == "xcsae-12-i"]
    published = preset(run["preset"])
    with torch.device("meta"):
        model = models.build("xcsae-12-i", shape=(1, 28, 28), latents=published.latents,
                             width=run["width"], start=run["options.start"],
                             **published.network)  # fmt: skip
    assert sum(p.numel() for p in model.parameters()) == 444_685  # table 4 of document B


def test_pictures_of_the_first_published_seed_are_kept():
    for name in ("responses-plane", "responses-disentanglement", "structural-order"):
        runs = planned(name)
        among = TrainedRuns(runs, Path(), scale="paper")
        own = [among[run["run"]] for run in runs if "classifier" not in run["group"]]
        assert {run.seed for run in own if run.is_first} == {0}


# Responses


def structure(shapes, mpi3d):
    """Scores that change with log2 β by so much on each; more collapse with larger β on MPI3D."""

    def measure(run):
        name, step = data_name(run["data"]), np.log2(run["beta"])
        slope = {"shapes3d": shapes}.get(name, mpi3d if name in MPI3D else -1.0)
        level = 90 if run["group"] == "rooms as digits" else 50
        return {"sampled": level + slope * step + noise(run), "mean": 10 * step + 3 * noise(run),
                "collapsed": int(step), "untrained": 200.0 + noise(run), "error": 1.0}  # fmt: skip

    identity = {"": {"score": 0.1, "error": 0.2}}
    return results_of("responses-structure", measure, measure_identity=identity)


@pytest.mark.parametrize(("shapes", "mpi3d"), [(-2.0, 3.0), (2.0, -3.0)])
def test_the_structure_score_is_judged_on_each_data_set_by_itself(shapes, mpi3d):
    results = structure(shapes, mpi3d)
    claims = claims_of(results)
    expected = {"c1.1": HOLDS, "c1.2": HOLDS, "c1.3": HOLDS if shapes < 0 else FAILS,
                "c1.4": HOLDS if mpi3d < 0 else FAILS,
                "c1.5": HOLDS if mpi3d < 0 else FAILS}  # fmt: skip
    assert {name: claims["A-T2", name].verdict for name in expected} == expected
    assert claims["A-T2", "c1.3"].interval.value == pytest.approx(shapes, abs=0.02)
    assert "3D Shapes" in claims["A-T2", "c1.3"].sentence
    assert "MPI3D toy" in claims["A-T2", "c1.4"].sentence
    assert claims["A-T2", "c2.1"].verdict == HOLDS  # 90 against 50, with one network
    parts = {part.name: part.verdict for part in claims["A-T3", "c1"].parts}
    assert set(parts) == {f"MPI3D {kind}: {word}" for kind in ("toy", "real")
                          for word in ("rises", "faster")}  # fmt: skip
    assert set(parts.values()) == {HOLDS}


def test_the_tables_of_structure_scores_show_all_data_sets():
    results = structure(-2.0, 3.0)
    tables = tables_of(results)
    lines = {(line[0], line[1]): line for line in tables["structure-score"].cells[1:]}
    assert {name for name, _ in lines} == {
        "MNIST", "Fashion-MNIST", "3D Shapes", "3D Shapes (network of the digits)", "MPI3D toy",
        "MPI3D real",
    }  # fmt: skip
    assert lines["3D Shapes", "8"][2].startswith("44")  # 50 - 2 x 3
    assert lines["MPI3D toy", "8"][2:4] == [lines["MPI3D toy", "8"][2], "MPI3D toy 0.05 ± 0.02"]
    assert [line[-1] for line in lines.values()] == ["4"] * len(lines)
    numbers = {(line[0], line[1]): line[2:5] for line in tables["table-3"].cells[1:]}
    assert numbers["MPI3D real", "8"][0].startswith("3.0")  # 30 of 1,000
    assert numbers["MPI3D real", "8"][2] == "17.85"


def panel():
    return {"responses": np.eye(3) + 0.2, "conditioned": np.ones((2, 3)),
            "importance": np.ones((2, 3)), "causal": [0, 1],
            "edges": [[0, 1]], "factors": ["one", "two"]}  # fmt: skip


def disentangled(shapes, mpi3d):
    def measure(run):
        name, step = data_name(run["data"]), np.log2(run["beta"])
        value = 0.4 + step * (shapes if name == "shapes3d" else mpi3d) + noise(run)
        scores = {"cds": value + 0.2, "dci": value, "irs": value + 0.1, "mig": value}
        lower = {f"{prefix}{key}{end}": value - 0.3 for key in scores
                 for prefix, end in (("untrained_", ""), ("", "_chance"))}  # fmt: skip
        return {**scores, **lower, "causal": 8, "agreement": 0.9 if name == "shapes3d" else 0.0,
                "agreement_chance": 0.2 + noise(run), "diagonal": [0.1, 0.9],
                **({"panel": panel()} if first(run) else {})}  # fmt: skip

    ends = {"": {"exact": 0.99, "turned": 0.1, "permuted": 0.01}}
    return results_of("responses-disentanglement", measure, measure_ends=ends)


@pytest.mark.parametrize(("shapes", "verdict"), [(0.05, HOLDS), (-0.05, FAILS)])
def test_disentanglement_is_judged_on_shapes_alone(shapes, verdict):
    results = disentangled(shapes, -3 * shapes)
    claims = claims_of(results)
    assert claims["A-T1", "c1"].verdict == claims["A-T1", "c2.1"].verdict == verdict
    assert claims["A-F6", "c1"].interval.value == pytest.approx(0.7, abs=0.02)
    tables = tables_of(results)
    assert set(tables) == {"table-1", "table-3-mpi3d-toy", "table-3-mpi3d-real"}
    lines = {(line[0], line[1]): line for line in tables["table-1"].cells[1:]}
    assert len(lines) == 8
    assert float(lines["12", "8"][3]) == pytest.approx(0.6 + 3 * shapes, abs=0.01)
    toy = tables["table-3-mpi3d-toy"].cells
    assert [line[4] for line in toy[1:]] == ["0.69", "0.86", "0.66", "1"]


def test_matrices_of_each_data_set_are_drawn():
    figures = figures_of(disentangled(0.05, 0.05))
    assert figures["matrices"][0] == "A-F10"
    assert figures["panel-24"][0] == "A-F6"
    assert "β 4, seed 0" in figures["panel-24"][1]
    assert {name for name, (row, _) in figures.items() if row == "A-F17"} == {
        "matrices-mpi3d-toy", "matrices-mpi3d-real",
    }  # fmt: skip


def test_a_coarse_grid_has_every_combination_of_its_values():
    sizes = (6, 5, 4, 3)
    pictures = np.zeros((360, 1, 2, 2), np.uint8)
    data = Dataset("made", pictures, grid_factors(sizes), factor_names=tuple("abcd"))
    grid = disentanglement.coarse_grid(data, most=100)
    counts = [len(np.unique(column)) for column in np.asarray(grid.factors).T]
    assert 50 < len(grid) == np.prod(counts) <= 100
    assert min(counts) == 3
    assert len(disentanglement.coarse_grid(data)) == 360


def mapped(fits):
    def measure(run):
        picture = np.zeros((12, 12, 3), np.uint8)
        film = np.zeros((2, 3, 3, 4, 4), np.uint8)
        drawn = {"axes": [[-1, 1], [-1, 1]], "divergence": np.eye(4), "curvature": np.eye(4),
                 "codes": np.eye(2), "pictures": picture, "path": np.eye(2), "line": np.eye(2),
                 "film": film}  # fmt: skip
        return {"qualifies": data_name(run["data"]) in fits, "excess": 0.3 + noise(run),
                "idle_excess": 0.0, "untrained_excess": 0.0, "converging": 0.5, "spikes": 10,
                "values": 10, "share": 0.9, "factor": "made", "pair": [0, 1],
                **({"map": drawn} if first(run) and run["beta"] == 4 else {})}  # fmt: skip

    return results_of("responses-maps", measure)


def test_maps_are_judged_on_shapes_and_drawn_for_all():
    assert claims_of(mapped(MPI3D))["A-F4", "c1"].verdict == UNDECIDED
    results = mapped(("shapes3d",))
    assert claims_of(results)["A-F4", "c1"].verdict == HOLDS
    figures = figures_of(results)
    assert figures["map-24-4"][0] == "A-F4"
    assert figures["map-mpi3d-real-12-4"][0] == figures["path-mpi3d-toy-12-4"][0] == "A-F19"
    assert {line[0] for line in tables_of(results)["pairs"].cells[1:]} == {
        "3D Shapes", "MPI3D toy", "MPI3D real",
    }  # fmt: skip


def test_the_plane_of_enlarged_digits_is_judged_tabled_and_drawn():
    def measure(run):
        field = {"divergence": np.eye(4), "curvature": np.eye(4), "codes": np.eye(2),
                 "pictures": np.zeros((4, 4)),
                 "arrows": dict.fromkeys(("from", "to"), np.eye(2))}  # fmt: skip
        return {"auc": 0.8 + noise(run), "auc_shifted": 0.5, "accuracy": 0.95, "collapsed": 0,
                "confidence": 0.9 + noise(run), "confidence_untrained": 0.5,
                "confidence_shuffled": 0.4, "contraction": -1.0 + noise(run),
                "contraction_untrained": -0.2,
                **({"maps": {"near": field, "wide": field}} if first(run) else {})}  # fmt: skip

    results = results_of("responses-plane", measure)
    claims = claims_of(results)
    assert len(claims) == 6
    assert {claim.verdict for claim in claims.values()} == {HOLDS}
    assert {line[0] for line in tables_of(results)["by-seed"].cells[1:]} == {
        "MNIST", "Fashion-MNIST",
    }  # fmt: skip
    figures = figures_of(results)
    assert sorted(row for row, _ in figures.values()) == [f"A-F{k}" for k in range(25, 31)]
    assert all("seed 0" in caption for _, caption in figures.values())
    among = TrainedRuns(results.runs, Path(), scale="paper")
    for run in among.select("plane"):  # each has a classifier of pictures of its size
        assert len(among.select("classifier", data=run["data"])) == 1


# Structure by architecture


def scored(shapes):
    """DCI by model on 3D Shapes; elsewhere that of all models is the same."""

    def measure(run):
        best = {"sae-12": 0.9, "sae-6": 0.7, "vlae-12": 0.8}.get(run["model"], 0.3)
        value = (best if shapes else 1 - best) if run["data"] == "shapes3d" else 0.5
        return {"dci": value + noise(run), "untrained_dci": 0.01, "dci_chance": 0.01,
                "mig": value, "turned": 0.3, "excess": 9.0 + noise(run), "mse": 0.01}  # fmt: skip

    return results_of("structural-scores", measure)


def test_structural_scores_are_judged_on_shapes_by_the_published_names():
    claim = claims_of(scored(True))["E-T1", "c1"]
    assert claim.verdict == HOLDS
    assert claim.interval.value == pytest.approx(0.6, abs=0.02)
    assert claim.sentence == "DCI of SAE-12 is above that of AE"
    assert claims_of(scored(False))["E-T1", "c1"].interval.high < 0


def test_every_printed_row_of_tables_1_to_4_has_a_number():
    tables = tables_of(scored(True))
    for data, number in (("shapes3d", 1), ("mpi3d-toy", 2), ("mpi3d-sim", 3), ("mpi3d-real", 4)):
        lines = {line[0]: line for line in tables[f"table-{number}"].cells[1:]}
        assert set(lines) == set(PUBLISHED[data])
        assert all(line[2] and line[-1] == "5" for line in lines.values())
    assert tables["table-2"].cells[1][2].startswith(("0.49", "0.50"))
    assert "reconstruction-mpi3d-sim" in tables


def test_the_order_of_factors_is_judged_on_shapes_and_other_data_have_pictures():
    names = (*order.EARLY, *order.HUES)
    weights = [[0.5, 0.5, 0.5, 0, 0, 0]] * 2 + [[0] * 6] * 8 + [[0, 0, 0, 0.5, 0.5, 0.5]] * 2

    def measure(run):
        pictures = {"traversals": np.zeros((4, 5, 3, 4, 4), np.uint8),
                    "variables": [[0], [1, 2, 3]], "hybrids": np.zeros((4, 5, 3, 4, 4), np.uint8),
                    "sources": np.zeros((6, 3, 4, 4), np.uint8),
                    "segments": [[k] for k in range(4)]}  # fmt: skip
        if run["group"] == "faces":
            return pictures
        shown = pictures if first(run) else {}
        if run["data"] in MPI3D:
            return {**shown, "order": -9.0}  # not to be judged
        late = 10.0 if run["model"] == "sae-12" else 0.0
        places = {name: 0.5 + late * (name in order.HUES) for name in names}
        return {**shown, "order": late + noise(run), "places": places, "weights": weights,
                "skills": dict.fromkeys(names, 0.9)}  # fmt: skip

    results = results_of("structural-order", measure)
    claims = claims_of(results)
    assert {name: claim.verdict for (_, name), claim in claims.items()} == {
        "c1.1": HOLDS, "c1.2": HOLDS,
    }  # fmt: skip
    assert claims["E-F4", "c1.1"].sentence.startswith("3D Shapes: ")
    assert {line[0] for line in tables_of(results)["places"].cells[1:]} == {"3D Shapes"}
    figures = figures_of(results)
    assert figures["traversals-rooms"][0] == "E-F4"
    assert {name for name, (row, _) in figures.items() if row == "E-F13"} == {
        f"traversals-{data}" for data in MPI3D
    }
    assert figures["segments-faces-sae-16"][0] == "E-F6a"


def test_hybrids_are_judged_on_shapes_and_shown_for_all():
    def measure(run):
        pictures = {kind: np.zeros((5, 3, 4, 4), np.uint8) for kind in ("reconstruction", "hybrid")}
        shown = {"pictures": pictures, "originals": pictures["hybrid"]} if first(run) else {}
        if "classifier" in run["group"] or run["group"] == "faces":
            return shown
        better = run["data"] == "shapes3d"
        best = 2.0 if run["model"] == "sae-12" else 3.0
        return {**shown, "reconstruction": 1.0, "hybrid": best + noise(run), "uniform": 8.0,
                "store": best, "prior": 6.0 if better else 1.5}  # fmt: skip

    known = {"accuracies": {"shape": 0.99}, "floor": 1.0, "factor_hybrids": 1.1}
    extractor = {"": {"rooms": known, "mpi3d-toy": {**known, "floor": 7.5}}}
    results = results_of("hybrid-sampling", measure, measure_extractor=extractor)
    claims = claims_of(results)
    assert {name: claim.verdict for (_, name), claim in claims.items()} == {
        "c1": HOLDS, "c2.1": HOLDS, "c2.2": HOLDS, "c3.1": HOLDS,
    }  # fmt: skip
    assert [part.name for part in claims["E-F3", "c1"].parts] == [
        f"3D Shapes, {model}" for model in ("vae", "beta-tcvae", "vlae-6", "factor-vae")
    ]
    assert "SAE-12" in claims["E-F3", "c2.1"].sentence
    tables = tables_of(results)
    assert set(tables) == {f"distances-{data}" for data in ("rooms", *MPI3D)}
    assert "7.5" in tables["distances-mpi3d-toy"].notes[1]
    figures = figures_of(results)
    assert figures["samples-faces"][0] == "E-F6b"
    assert figures["samples-faces"][1].startswith("CelebA")


def test_extrapolation_is_judged_on_the_published_branches():
    errors = {"neither": 12.0, "encoder": 8.0, "decoder": 0.5, "both": 0.4, "sham": 12.0}

    def measure(run):
        branch = {"encoder": "decoder", "decoder": "encoder"}.get(run.get("freeze"), "both")
        if run.get("start") is None:
            branch = "neither"
        elif "leave_out" in run:
            branch = "sham"
        frozen = {"frozen_same": True, "trained_same": False} if branch == "encoder" else {}
        factor = (1 if run["model"] == "sae-12" else 1.5) * (1 + noise(run))
        return {"branch": branch, "new": factor * errors[branch] / 1000, "old": 1e-3, **frozen}

    results = results_of("extrapolation", measure)
    claims = claims_of(results)
    assert {claim.verdict for claim in claims.values()} == {HOLDS}
    assert ("E-F12", "c3") in claims  # VLAE too
    assert len(claims["E-F7", "c1"].parts) == 7
    tables = tables_of(results)
    assert {line[1]: line[3] for line in tables["figure-7"].cells[1:]}["βVAE"] == "15.49"
    figures_of(results)


# Interventional consistency


def consistent(run):
    level = 0.9 if run["model"].startswith(("xc", "cae")) else 0.7
    keys = ("posterior", "hybrid", "uniform", "prior", "invariance", "equivariance")
    drop = dict(zip(keys, (0.2, 0.0, -0.1, 0.0, 0.0, 0.0), strict=True))
    if "preset" in run and run["preset"] == "consistency-2021":  # size Standard: worse
        level = 0.5
    scores = {key: level * (key != "posterior") + drop[key] + noise(run) for key in keys}
    low = {f"{kind} {key}": 0.1 for key in keys for kind in ("untrained", "chance")}
    return {**scores, **low, "collapsed": 0, "error": 0.01 + noise(run, 1e-5),
            "untouched": 1.0 - level + noise(run), "moved": 1.0 - level + noise(run),
            "untrained untouched": 5.0, "untrained moved": 5.0}  # fmt: skip


def test_consistency_is_judged_at_the_published_weight_and_size():
    claims = claims_of(results_of("consistency", consistent))
    assert {name.partition("weight ")[2] for _, name in claims if "weight" in name} == {"4"}
    wanted = [("B-T2", "c1"), ("B-T2", "c2"), ("B-T2", "c7"), ("B-F2", "c1"), ("B-F3", "c1"),
              ("B-F3", "c2"), ("B-S5", "c1")]  # fmt: skip
    assert {claims[row, f"{name}, weight 4"].verdict for row, name in wanted} == {HOLDS}
    assert claims["B-T2", "c1, weight 4"].interval.value == pytest.approx(0.2, abs=0.01)
    assert not any("CAE-I" in part.name.replace("XCAE", "") for c in claims.values()
                   for part in c.parts)  # fmt: skip


def test_families_have_a_table_for_each_size():
    tables = tables_of(results_of("consistency-families", consistent))
    for name, value in (("scores", "0.700"), ("scores-standard", "0.500")):
        lines = {line[0]: line for line in tables[name].cells[1:]}
        assert {"SAE", "XSAE", "XCSAE-I", "XCSAE-E", "VAE", "AVAE"} <= set(lines)
        assert lines["SAE"][1].startswith(value[:3]) or lines["SAE"][1].startswith(("0.69", "0.49"))
        assert {line[-1] for line in lines.values()} == {"5"}


def test_masks_and_hybrids_of_faces_are_shown():
    def measure(run):
        if run["group"] == "classifier":
            return {}
        units = {"consistency-2021": 12, "consistency-2021-celeba": 32}.get(run["preset"], 6)
        mask = np.triu(np.full((units, units), 0.9), 1)
        values = {"probabilities": mask.tolist(), "start": 0.5, "kept": 5, "possible": 15,
                  "needed": 1, "rise without edges": 0.1, "SCN change without edges": 0.0,
                  "error rise": mask.tolist(), "SCN change": None}  # fmt: skip
        if first(run) and run["group"] == "faces" and "unit" not in run:
            values |= {"pairs": np.zeros((4, 2, 3, 8, 8), np.uint8),
                       "hybrids": np.zeros((4, units, 3, 8, 8), np.uint8)}  # fmt: skip
        return {} if run["model"] == "ae" and run["group"] != "faces" else values

    results = results_of("consistency-masks", measure)
    lines = {line[0]: line for line in tables_of(results)["table-1"].cells[1:]}
    assert {"XAE", "XAE S4", "XAE, 12 units", "XCSAE-I, 12 units", "XAE, 32 units",
            "XAE, 32 units S4"} <= set(lines)  # fmt: skip
    assert lines["XAE, 32 units"][5] == "48.44 %"
    figures = figures_of(results)
    assert figures["hybrids-faces-xae"][0] == "B-F34"


def test_rows_on_a_data_set_have_any_options():
    rows = Rows([{"data": "mnist?resolution=32"}, {"data": "mnist"}, {"data": "fashion-mnist"}])
    assert len(rows.on("mnist")) == 2
    assert [data_name(row["data"]) for row in rows.on("fashion-mnist")] == ["fashion-mnist"]

"""Models on changed data and on controls: the versions, the runs, the table."""

import csv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import zscope as zs
from zscope import store
from zscope.data.perturbed import change_size
from zscope.errors import ConfigError, DataError, RunError
from zscope.experiments.perturbation import evaluation
from zscope.experiments.perturbation.evaluation import (
    check_evaluation,
    evaluate_perturbation,
    parse_model,
)
from zscope.experiments.perturbation.table import Row, ScoreTable, summarise
from zscope.experiments.sweeps import Status, Sweep, status, task
from zscope.experiments.sweeps.plan import Entry
from zscope.experiments.whole import Whole
from zscope.kept import read_scores
from zscope.results import Result

NETWORKS = {"backbone": "mlp", "hidden": [6], "beta": 0.1}
QUICK = {"jobs": 1, "progress": False}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A file of pictures on a grid of two factors."""
    w = np.stack([part.ravel() for part in np.indices((5, 5))], 1)
    rows, columns = np.indices((4, 4))
    u = w / 2 - 1
    x = 128 + 40 * u[:, :1, None] * np.sign(columns - 1.5) + 20 * u[:, 1:, None] * (rows - 1.5)
    file = tmp_path_factory.mktemp("data") / "planes.npz"
    np.savez(file, images=x.astype(np.uint8)[:, None], factors=w)
    return zs.data.load(file)


@pytest.fixture(scope="module")
def finished(original, tmp_path_factory):
    out = tmp_path_factory.mktemp("perturbed") / "out"
    zs.perturb(
        original, epsilon=0.1, out=out, restarts=2, steps=5, rounds=5, batch=10, rate=1e-2,
        modifier_rate=1e-2, options=NETWORKS, progress=False,
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def table(finished):
    return evaluate_perturbation(
        finished, "beta-vae?beta=0.2, ae", scores="mig,sap,dci.completeness", seeds=2, **QUICK
    )


def runs_of(folder, **fields):
    """The names of the runs of an evaluation with these settings."""
    return [row["run"] for row in zs.runs(folder / "evaluate").select(**fields).rows]


def test_every_model_is_trained_on_every_version_with_every_seed(table, finished):
    assert [(row.model, row.version) for row in table.rows] == [
        (model, version)
        for model in ("beta-vae?beta=0.2", "ae")
        for version in ("original", "changed", "noise", "untrained")
    ]
    assert table.failed == {}
    assert all(len(row.active) == row.runs == 2 for row in table.rows)
    state = status(finished / "evaluate")  # it is the folder of a sweep
    assert len(state.done) == state.total == 2 * 4 * 2
    assert len(list(finished.glob("evaluate/runs/*/run.json"))) == 2 * 4 * 2
    (name,) = runs_of(finished, model="beta-vae", data="noise.npz", seed=1)
    assert name.startswith("beta-vae-noise-b0.2-s1-")
    run = store.open_run(finished / "evaluate" / "runs" / name)
    assert run.config["model"]["options"]["beta"] == 0.2
    assert run.config["model"]["options"]["hidden"] == [6]  # as the restarts have it
    assert run.config["steps"] == 5
    assert run.config["seed"] == 1
    assert len(run.environment["ensemble"]) == 2  # both seeds go together


def test_scores_are_those_of_the_runner_on_the_training_data(table, finished, original):
    for row in table.rows:
        if row.version in ("noise", "untrained"):
            continue
        file = {"original": "planes.npz", "changed": "perturbed.npz"}[row.version]
        data = original if row.version == "original" else zs.data.load(finished / file)
        scores: dict = {name: [] for name in table.columns}
        active = []
        for name in runs_of(finished, model=row.model.partition("?")[0], data=file):
            run = finished / "evaluate" / "runs" / name
            results = zs.assay(run, data, names=["mig", "sap", "dci"], progress=False).results
            scores["mig"].append(results["mig"].score)
            scores["sap"].append(results["sap"].score)
            measures = {each.name: each.value for each in results["dci"].measures()}
            scores["dci.completeness"] += [v for k, v in measures.items() if k == "completeness"]
            # Also for a deterministic model, whose posterior says nothing about it.
            active.append(len(zs.record(zs.load(run), data).used))
            assert {entry["used"] for entry in read_scores(run)} == {active[-1]}
        assert row.scores == {name: pytest.approx(values) for name, values in scores.items()}
        assert row.active == active
    assert table.cell("ae", "original", "dci.completeness").count == 2


def test_fewer_latents_than_factors_are_a_flag_and_no_pruning(finished, table):
    assert not any("latents and the data" in flag for flag in table.flags)
    few = evaluate_perturbation(finished, "ae", scores="mig", seeds=1, latents=1, **QUICK)
    assert [row.active for row in few.rows] == [[1.0]] * 4
    assert [row.pruned for row in few.rows] == [0] * 4
    assert few.factors == 2
    assert "The models have 1 latents and the data 2 factors" in few.flags[0]
    assert "fewer latents in use than the 1 that there are" in few.caption()


def test_pruned_runs_are_those_that_use_fewer_latents_than_there_are_factors(finished, table):
    found = zs.runs(finished / "evaluate")
    (name,) = runs_of(finished, model="ae", data="planes.npz", seed=0)
    versions = {"original": zs.data.load(finished / "perturbed.npz")}
    used = found.entries(name)["mig"]["used"]
    for factors, latents, pruned in ((used, used, 0), (used + 1, 9, 1), (used + 1, used, 0)):
        own = evaluation._table(
            found, {("ae", "original"): [name]}, ["mig"], versions, factors, latents
        )
        assert (own.rows[0].active, own.rows[0].pruned) == ([used], pruned)


def test_controls_add_as_much_variance_as_the_change(table, finished, original):
    sizes = {
        name: change_size(original, zs.data.load(finished / place))
        for name, place in (
            ("changed", "perturbed.npz"),
            ("noise", "evaluate/noise.npz"),
            ("untrained", "evaluate/untrained.npz"),
        )
    }
    assert {name: size.to_dict() for name, size in sizes.items()} == table.sizes
    target = sizes["changed"].variance
    assert sizes["noise"].variance == pytest.approx(target, rel=0.05)
    assert sizes["untrained"].variance == pytest.approx(target, rel=0.05)
    # One number in: one curve out, so most of it is one direction; noise has many.
    assert sizes["untrained"].first_direction > 2 * sizes["noise"].first_direction
    about = zs.data.load(finished / "evaluate" / "noise.npz").provenance
    assert about["epsilon_of_the_change"] == 0.1
    assert about["amplitude"] == about["epsilon"] >= sizes["noise"].largest


def test_nothing_finished_is_trained_measured_or_written_twice(table, finished, monkeypatch):
    for place, name in ((task, "train_config"), (task, "train_together"), (task, "measure"),
                        (evaluation, "write_scaled")):  # fmt: skip
        monkeypatch.setattr(place, name, None)
    again = evaluate_perturbation(
        finished, ["beta-vae?beta=0.2", "ae"], scores=["mig", "sap", "dci.completeness"], seeds=2,
        **QUICK,
    )  # fmt: skip
    assert again.to_dict() == table.to_dict()
    # Fewer models and other seeds of them are another sweep of the same runs.
    less = evaluate_perturbation(finished, "ae", scores="sap", seeds=1, **QUICK)
    assert less.failed == {}
    wanted = {row.version: row.scores["sap"][:1] for row in table.rows if row.model == "ae"}
    assert {row.version: row.scores["sap"] for row in less.rows} == wanted


def test_a_folder_of_runs_is_shared_with_other_sweeps(finished, original, tmp_path, monkeypatch):
    shared = tmp_path / "runs"
    plan = {
        "train": {"model": "ae", "data": str(original.recipe["name"]), "latents": 2, "steps": 5,
                  "rate": 1e-2, "batch": 10, "options.hidden": [3], "options.backbone": "mlp"},
        "grid": {"seed": [0, 1]},
        "assay": {"names": ["mig"]},
    }  # fmt: skip
    sweep = zs.sweep(plan, tmp_path / "sweep", runs=shared, **QUICK)
    trained = []
    together = task.train_together

    def train_together(models, data, configs, paths, **options):
        trained.extend(path.name for path in paths)
        return together(models, data, configs, paths, **options)

    monkeypatch.setattr(task, "train_together", train_together)
    table = evaluate_perturbation(
        finished, "ae?hidden=[3]", scores="mig", seeds=2, runs=shared, **QUICK
    )
    assert table.failed == {}
    assert len(trained) == 3 * 2  # all but those on the original data
    assert table.rows[0].scores["mig"] == [row["mig"] for row in sweep.rows]
    assert len(list(shared.glob("*/run.json"))) == 4 * 2


@pytest.mark.slow
def test_a_stopped_evaluation_is_taken_up(finished, table, monkeypatch):
    trained = []
    plain = task.train_config

    def stopping(config, *, out, **settings):
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(out)
        return plain(config, out=out, **settings)

    more = {"scores": "mig", "seeds": 1, **QUICK}
    monkeypatch.setattr(task, "train_config", stopping)
    with pytest.raises(KeyboardInterrupt, match="stopped in the evaluation.*--resume"):
        evaluate_perturbation(finished, "vae", **more)
    before = {path: (path / "model.safetensors").stat().st_mtime_ns for path in trained}
    monkeypatch.setattr(task, "train_config", plain)
    result = evaluate_perturbation(finished, "vae", **more)
    assert [len(row.scores["mig"]) for row in result.rows] == [1] * 4
    assert before == {path: (path / "model.safetensors").stat().st_mtime_ns for path in trained}


def test_runs_go_to_an_executor_and_a_failing_one_leaves_the_others(finished, monkeypatch):
    plain = task.train_config

    def failing(config, *, out, **settings):
        if out.name.startswith("vae-untrained"):
            raise RuntimeError("no disk")
        return plain(config, out=out, **settings)

    monkeypatch.setattr(task, "train_config", failing)
    shares = []
    whole = Whole(False)
    monkeypatch.setattr(whole, "_print", lambda **_: shares.append(whole.share))
    more = {"scores": "mig", "seeds": 1}
    with ThreadPoolExecutor(2) as executor:
        result = evaluate_perturbation(
            finished, "vae?hidden=[4]", executor=executor, progress=whole, **more
        )
    ((name, reason),) = result.failed.items()
    assert name.startswith("vae-untrained-s0-")
    assert reason == "RuntimeError: no disk"
    assert "no disk" in (finished / "evaluate" / "failed" / f"{name}.txt").read_text()
    assert [len(row.scores["mig"]) for row in result.rows] == [1, 1, 1, 0]
    assert [len(row.active) for row in result.rows] == [1, 1, 1, 0]
    assert result.text().splitlines()[-1] == f"failed: {name}: RuntimeError: no disk"
    assert shares == sorted(shares)
    assert shares[-1] == 1
    monkeypatch.setattr(task, "train_config", plain)
    assert evaluate_perturbation(finished, "vae?hidden=[4]", **more, **QUICK).failed == {}


def test_the_time_left_counts_what_was_not_done_at_first(tmp_path):
    state = Sweep([Entry(name, 10, "", []) for name in "abcd"], None, tmp_path, tmp_path)
    shares = []
    report = evaluation._report_to(shares.append)
    (tmp_path / "d").mkdir()
    for done, step in ((["a", "b"], 0), (["a", "b"], 5), (["a", "b", "c"], 5)):
        (tmp_path / "d" / "history.jsonl").write_text(f'{{"step": {step}}}\n')
        report(state, Status(done, {"d": ""}, waiting=["c"] if len(done) < 3 else []))
    assert shares == pytest.approx([0, 0.25, 0.75])  # of the two that were left


@pytest.mark.slow
def test_runs_go_to_processes(finished):
    result = evaluate_perturbation(
        finished, "ae?hidden=[5]", scores="mig", seeds=1, jobs=2, progress=False
    )
    assert result.failed == {}


# The units of the data


def test_tables_are_trained_on_in_the_units_of_the_bound(tmp_path):
    rows = "\n".join(f"{a},{b},{a},{b}" for a in range(6) for b in range(6))
    path = tmp_path / "x.csv"
    path.write_text("x,y,f,g\n" + rows)
    data = zs.data.load(path, factors="f,g")
    assert data.standardise
    out = tmp_path / "p"
    zs.perturb(
        data, epsilon=0.1, out=out, restarts=2, steps=2, rounds=1, control=False,
        options=NETWORKS, progress=False,
    )  # fmt: skip
    table = evaluate_perturbation(out, "ae", scores="mig", seeds=1, **QUICK)
    assert table.failed == {}
    for run in zs.runs(out / "evaluate"):
        assert run.config["scaling"] is None
        assert zs.load(run.path).scaling is None
    # The same file by the same name in another sweep is standardised, and so another run.
    plan = {"run": {"model": "ae", "data": f"{path}?factors=f,g", "latents": 2, "steps": 2}}
    (other,) = zs.sweep(plan, tmp_path / "s", runs=out / "evaluate" / "runs", **QUICK)
    assert other.config["scaling"] is not None


def test_data_that_a_plan_cannot_name_are_copied(original):
    odd = {"name": "/data/a?.npz", "options": {}}
    assert evaluation._has_name(original)
    assert not evaluation._has_name(replace(original, recipe=None))
    assert not evaluation._has_name(replace(original, recipe=odd))
    assert not evaluation._has_name(original.split((0.5, 0.5))[0])


def test_a_part_of_a_dataset_is_trained_on_as_that_part(original, tmp_path):
    part = original.split((0.8, 0.2))[0]
    zs.perturb(
        part, epsilon=0.1, out=tmp_path / "out", restarts=2, steps=2, rounds=1, batch=10,
        options=NETWORKS, control=False, progress=False,
    )  # fmt: skip
    table = evaluate_perturbation(tmp_path / "out", "ae", scores="mig", seeds=1, **QUICK)
    assert table.failed == {}
    copy = zs.data.load(tmp_path / "out" / "evaluate" / "original.npz")
    assert np.array_equal(copy.images, part.images[:])
    assert {row["data"] for row in zs.runs(tmp_path / "out" / "evaluate").rows} == {
        "original.npz", "perturbed.npz", "noise.npz", "untrained.npz"
    }  # fmt: skip


# Statistics and formats


def test_three_seeds_have_a_t_interval_two_a_range_and_one_nothing():
    three = summarise([1.0, 2.0, 3.0])
    half = 4.30265 / np.sqrt(3)  # t(.975, 2)
    assert (three.mean, three.interval) == (2.0, "95 % t-interval")
    assert (three.low, three.high) == pytest.approx((2 - half, 2 + half), abs=1e-4)
    two = summarise([1.0, 3.0])
    assert (two.mean, two.low, two.high, two.interval) == (2.0, 1.0, 3.0, "range")
    assert summarise([1.5]).interval == "one run"
    assert summarise([]) is None


def small_table(seeds=3):
    values = [0.1, 0.2, 0.3][:seeds]
    rows = [Row("vae", "original", seeds, {"mig": values}, [2.0] * seeds, 0)]
    rows += [Row("vae", "changed", seeds, {"mig": values[:1]}, [1.0] * seeds, seeds)]
    size = {"largest": 0.1, "rms": 0.05, "variance": 1, "relative_variance": 0.07,
            "added_variance": -0.108, "first_direction": None, "rows": 9}  # fmt: skip
    return ScoreTable(["mig"], rows, {"changed": size}, {"original": 0.1}, 2, {"changed/vae-s1": "no disk"}, ["a flag"], chance=0.55)  # fmt: skip # noqa: E501


def test_the_table_is_written_in_three_formats(tmp_path):
    table = small_table()
    assert isinstance(table, Result)
    table.save(tmp_path)
    with open(tmp_path / "table.csv") as file:
        first, second = csv.DictReader(file)
    assert float(first["mig"]) == pytest.approx(0.2)
    assert (first["interval"], first["mig_n"], first["pruned"]) == ("95 % t-interval", "3", "0")
    assert (second["mig_n"], second["pruned"]) == ("1", "3")
    content = store.read_json(tmp_path / "table.json")
    assert content["rows"][0]["summary"]["mig"]["count"] == 3
    assert content["failed"] == {"changed/vae-s1": "no disk"}
    text = (tmp_path / "table.md").read_text()
    assert "| vae | original | 0.20 (-0.05 to 0.45) | 2.00 (2.00 to 2.00) | 0 of 3 |" in text
    assert "| vae | changed | 0.10 of 1 |" in text
    assert "mean over 3 seeds (95 % t-interval)" in text
    assert "| changed | 0.1000 | 0.0500 | 7.0 % | none | -10.8 % | none |" in text
    for each in (text, table.text()):
        assert "the variance of the change, not its ε; distance: 0 aligned, 0.55 random" in each
    assert content["distance_of_chance"] == 0.55
    assert "range: fewer than 3 seeds" in small_table(2).caption()
    assert table.text().splitlines()[-1] == "failed: changed/vae-s1: no disk"
    assert table.cell("vae", "original", "active").mean == 2


# Refusals


def test_what_cannot_be_evaluated_is_refused_before_anything_is_trained(
    finished, original, tmp_path
):
    for models, scores, words in (
        ("beta-vea", "mig", "beta-vae"),
        ("beta-vae?gamma=2", "mig", "gamma"),
        ("beta-vae?beta", "mig", "not of the form option=value"),
        ("", "mig", "models is empty"),
        ("ae", "migg", "Did you mean mig"),
        ("ae?seed=3", "mig", "has a seed"),
        ("ae?latents=3", "mig", "latents is not an option of a model"),
        ("ae,ae?hidden=[6]", "mig", "the same runs"),
    ):
        with pytest.raises(ConfigError, match=words):
            evaluate_perturbation(finished, models, scores=scores, progress=False)
    with pytest.raises(ConfigError, match="seeds=0"):
        evaluate_perturbation(finished, "ae", seeds=0, progress=False)
    with pytest.raises(ConfigError, match="evaluate_perturbation: .*rate"):
        evaluate_perturbation(finished, "ae", rate=-1, **QUICK)
    with pytest.raises(ConfigError, match="question mark"):
        check_evaluation(original, "ae", "mig", 1, out=tmp_path / "a?", latents=2, options={})
    with pytest.raises(RunError, match=r"no perturbation.json.*--out"):
        evaluate_perturbation(tmp_path, "ae")
    store.write_json(tmp_path / "perturbation.json", {"settings": {}})
    with pytest.raises(RunError, match=r"not finished.*--resume"):
        evaluate_perturbation(tmp_path, "ae")


@pytest.mark.slow
def test_arrays_must_be_given_again_once(original, tmp_path):
    arrays = zs.data.from_arrays(original.images[:], original.factors)
    zs.perturb(
        arrays, epsilon=0.1, out=tmp_path / "out", restarts=2, steps=2, rounds=3, batch=10,
        options=NETWORKS, control=False, progress=False,
    )  # fmt: skip
    more = {"scores": "mig", "seeds": 1, "steps": 2, **QUICK}
    with pytest.raises(DataError, match=r"given as arrays.*data=…"):
        evaluate_perturbation(tmp_path / "out", "ae", **more)
    first = evaluate_perturbation(tmp_path / "out", "ae", data=arrays, **more)
    assert first.failed == {}
    copy = zs.data.load(tmp_path / "out" / "evaluate" / "original.npz")
    assert np.array_equal(copy.images, original.images)
    assert evaluate_perturbation(tmp_path / "out", "ae", **more).to_dict() == first.to_dict()


def test_options_of_a_model_may_be_lists():
    assert parse_model("beta-vae?beta=4&hidden=[64,64]&likelihood=bernoulli") == (
        "beta-vae",
        {"beta": 4, "hidden": [64, 64], "likelihood": "bernoulli"},
    )

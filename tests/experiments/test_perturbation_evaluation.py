"""Models on changed data and on controls: the versions, the runs, the table."""

import csv
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import zscope as zs
from zscope import store
from zscope.data.perturbed import change_size
from zscope.errors import ConfigError, DataError, RunError
from zscope.experiments.perturbation import evaluation
from zscope.experiments.perturbation.evaluation import (
    Job,
    evaluate_perturbation,
    parse_model,
    train_all,
)
from zscope.experiments.perturbation.table import Row, ScoreTable, summarise
from zscope.experiments.workers import workers
from zscope.results import Result

NETWORKS = {"backbone": "mlp", "hidden": [6], "beta": 0.1}


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
        finished, "beta-vae?beta=0.2, ae", scores="mig,sap", seeds=2, progress=False
    )


def test_every_model_is_trained_on_every_version_with_every_seed(table, finished):
    assert [(row.model, row.version) for row in table.rows] == [
        (model, version)
        for model in ("beta-vae?beta=0.2", "ae")
        for version in ("original", "changed", "noise", "untrained")
    ]
    assert table.failed == {}
    folders = sorted(p.parent.relative_to(finished).as_posix() for p in finished.glob("evaluate/*/*/run.json"))  # fmt: skip # noqa: E501
    assert len(folders) == 2 * 4 * 2
    assert "evaluate/untrained/beta-vae-beta=0.2-s1" in folders
    run = store.open_run(finished / "evaluate" / "noise" / "beta-vae-beta=0.2-s1")
    assert run.config["model"]["options"]["beta"] == 0.2
    assert run.config["model"]["options"]["hidden"] == [6]  # as the restarts have it
    assert run.config["steps"] == 5
    assert run.config["seed"] == 1
    assert store.open_run(finished / "evaluate/noise/ae-s0").config["model"]["name"] == "ae"


def test_scores_are_those_of_the_runner(table, finished, original):
    run = finished / "evaluate" / "original" / "ae-s0"
    report = zs.assay(run, names=["mig", "sap"], progress=False)
    (row,) = (r for r in table.rows if (r.model, r.version) == ("ae", "original"))
    assert row.scores["mig"][0] == pytest.approx(report.results["mig"].score)
    assert row.scores["sap"][0] == pytest.approx(report.results["sap"].score)
    assert row.active[0] == len(zs.record(zs.load(run), original).used)


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


@pytest.mark.slow
def test_nothing_finished_is_trained_or_written_twice(table, finished, monkeypatch):
    def no_training(*args, **settings):
        assert settings["resume"]
        run = plain(*args, **settings)
        assert run.step == run.config["steps"]
        return run

    plain = evaluation.train
    monkeypatch.setattr(evaluation, "train", no_training)
    monkeypatch.setattr(evaluation, "write_scaled", None)
    again = evaluate_perturbation(
        finished, ["beta-vae?beta=0.2", "ae"], scores=["mig", "sap"], seeds=2,
        progress=False,
    )  # fmt: skip
    assert again.to_dict() == table.to_dict()


@pytest.mark.slow
def test_a_stopped_evaluation_is_taken_up(finished, table, monkeypatch):
    trained = []
    plain = evaluation.train

    def stopping(model, data, **settings):
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(settings["out"])
        return plain(model, data, **settings)

    more = {"scores": "mig", "seeds": 1, "progress": False}
    monkeypatch.setattr(evaluation, "train", stopping)
    with pytest.raises(KeyboardInterrupt, match="stopped in the evaluation.*--resume"):
        evaluate_perturbation(finished, "vae", **more)
    before = {path: (path / "model.safetensors").stat().st_mtime_ns for path in trained}
    monkeypatch.setattr(evaluation, "train", plain)
    result = evaluate_perturbation(finished, "vae", **more)
    assert [len(row.scores["mig"]) for row in result.rows] == [1] * 4
    assert before == {path: (path / "model.safetensors").stat().st_mtime_ns for path in trained}


def test_runs_go_to_an_executor_and_a_failing_one_leaves_the_others(finished, original):
    def job(folder, **more):
        settings = {
            "version": "original", "label": "ae", "folder": str(finished / folder),
            "data": original.recipe, "root": None, "model": "ae", "latents": 2,
            "options": {"hidden": [6]}, "training": {"steps": 3, "batch": 8, "rate": 1e-3},
            "seed": 0, "assays": ("mig",), "samples": 100,
        }  # fmt: skip
        return Job(**{**settings, **more})

    jobs = [job("a"), job("b", data={"name": "./nowhere.npz"}), job("c", seed=1)]
    assert pickle.loads(pickle.dumps(jobs)) == jobs
    done = []
    with ThreadPoolExecutor(2) as executor:
        outcomes = train_all(jobs, executor=executor, tick=done.append)
    assert [outcome.failed is None for outcome in outcomes] == [True, False, True]
    assert "nowhere" in outcomes[1].failed
    assert done == [1, 2, 3]
    alone = train_all([job("a"), job("d")])
    assert alone[0] == outcomes[0]
    assert alone[1].scores == outcomes[0].scores


@pytest.mark.slow
def test_runs_go_to_processes(finished, tmp_path):
    with workers(jobs=2) as executor:
        result = evaluate_perturbation(
            finished, "ae?hidden=[5]", scores="mig", seeds=1, executor=executor, progress=False
        )
    assert result.failed == {}


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
    size = {"largest": 0.1, "rms": 0.05, "variance": 1, "added_variance": 0.07,
            "first_direction": None, "rows": 9}  # fmt: skip
    return ScoreTable(["mig"], rows, {"changed": size}, {"original": 0.1}, 2, {"changed/vae-s1": "no disk"}, ["a flag"])  # fmt: skip # noqa: E501


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
    assert "| changed | 0.1000 | 0.0500 | 7.0% | none | none |" in text
    assert "range: fewer than 3 seeds" in small_table(2).caption()
    assert table.text().splitlines()[-1] == "failed: changed/vae-s1: no disk"
    assert table.cell("vae", "original", "active").mean == 2


# Refusals


def test_what_cannot_be_evaluated_is_refused_before_anything_is_trained(finished, tmp_path):
    for models, scores, words in (
        ("beta-vea", "mig", "beta-vae"),
        ("beta-vae?gamma=2", "mig", "gamma"),
        ("beta-vae?beta", "mig", "not of the form option=value"),
        ("", "mig", "models is empty"),
        ("ae", "migg", "Did you mean mig"),
    ):
        with pytest.raises(ConfigError, match=words):
            evaluate_perturbation(finished, models, scores=scores, progress=False)
    with pytest.raises(ConfigError, match="seeds=0"):
        evaluate_perturbation(finished, "ae", seeds=0, progress=False)
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
    more = {"scores": "mig", "seeds": 1, "steps": 2, "progress": False}
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

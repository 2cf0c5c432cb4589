"""Data that a study makes before its runs."""

import pytest

from zscope.errors import ConfigError, RunError
from zscope.experiments import studies
from zscope.experiments.studies.execution import prepare_study
from zscope.experiments.studies.made import MadeData
from zscope.experiments.sweeps.estimate import Estimate
from zscope.report.studies import describe_plan

OWN = '''
import numpy as np

from zscope import data as datasets
from zscope.data.perturbed import write_noisy
from zscope.experiments.studies.grid import Grid, runs
from zscope.experiments.studies.made import MadeData
from zscope.experiments.studies.study import Row, Study, each_run


def make_noisy(folder, settings, root):
    with open(folder / "log.txt", "a") as log:
        log.write("made\\n")
    data = datasets.load(settings["data"].partition("?")[0], samples=64, root=root)
    write_noisy(folder / "noise.npz", data, epsilon=settings["epsilon"], seed=1)


def measure(run):
    values = np.asarray(run.data.images[:])
    made = run.among.made["noisy"]
    return {"first": float(values[0, 0]), "there": (made / "noise.npz").is_file()}


STUDY = Study(
    name="own", document="A", title="Does it work?", rows=(Row("T1", "table 1", "latents"),),
    grids={"all": Grid(small=runs(model="ae", data=["helix?samples=64", "noisy/noise"], latents=2,
                                  hidden=(4,), steps=3, seeds=1))},
    made={"noisy": MadeData(make_noisy, {"small": {"data": "helix?samples=64", "epsilon": 0.1}},
                            {"noise": "noise.npz"})},
    measures=(each_run(measure),), claims=lambda results: (),
)
'''  # fmt: skip


@pytest.fixture
def study(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return studies.load(str(tmp_path / "own.py"))


def test_data_are_made_once_and_runs_train_on_them(study, tmp_path):
    lines = []
    results = studies.run_study(study, tmp_path / "out", jobs=1, progress=lines.append)
    assert not results.failed
    assert lines[0] == "own: making noisy"
    one, other = (results.rows(data=data) for data in ("helix?samples=64", "noisy/noise"))
    assert 0 < abs(one[0]["first"] - other[0]["first"]) < 0.1001
    assert other[0]["there"]
    assert other[0]["run"].startswith("ae-noise-s20-")
    (folder,) = (tmp_path / "out" / "runs").glob("data-*")
    assert folder == study.made["noisy"].folder("small", tmp_path / "out" / "runs")
    again = studies.run_study(study, tmp_path / "out", jobs=1)
    assert again.runs == results.runs
    assert (folder / "log.txt").read_text() == "made\n"
    # Another study with the same settings finds them; other settings are other data.
    same = MadeData(study.made["noisy"].make, study.made["noisy"].settings, {"noise": "noise.npz"})
    assert same.is_made("small", tmp_path / "out" / "runs")
    changed = {"small": {"data": "helix?samples=64", "epsilon": 0.2}}
    different = MadeData(study.made["noisy"].make, changed, {"noise": "noise.npz"})
    assert not different.is_made("small", tmp_path / "out" / "runs")


def test_a_plan_counts_runs_on_data_that_are_not_made_yet_and_writes_nothing(study, tmp_path):
    prepared = prepare_study(study, tmp_path / "out")
    assert len(prepared.state.entries) == 2
    assert [row["data"] for row in prepared.rows] == ["helix?samples=64", "noisy/noise"]
    assert not describe_plan(study, tmp_path / "out", timing=False).problem
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("jobs", "text"),
    [(1, "about 2.0 h with 1 process"), (4, "about 60 min with 2 processes"),
     (2, "about 60 min with 2 processes")],
)  # fmt: skip
def test_a_plan_tells_the_time_of_as_many_processes_as_have_something_to_do(
    study, tmp_path, monkeypatch, jobs, text
):
    def two_hours(plan, sweep, *, jobs):
        return Estimate(2, 0, 0, 0, items=2, seconds=7200.0, disk=0, jobs=jobs, shapes=[])

    monkeypatch.setattr("zscope.experiments.sweeps.estimate.estimate", two_hours)
    plan = describe_plan(study, tmp_path / "out", jobs=jobs)
    assert f"0 of 2 runs done, {text} to train the rest" in str(plan)
    assert plan.to_dict()["seconds_of_work"] == 7200


def test_data_that_cannot_be_made_and_unknown_versions_are_refused(study, tmp_path):
    def forget(folder, settings, root):
        pass

    made = MadeData(forget, {"small": {"data": "helix"}}, {"noise": "noise.npz"})
    with pytest.raises(RunError, match=r"forget has finished, but .*noise\.npz is not there"):
        made.make_files("tiny", tmp_path)
    with pytest.raises(ConfigError, match="no version 'nois' is made of helix.*noise"):
        made.file("nois", "small", tmp_path)

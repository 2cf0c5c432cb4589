"""Grids of runs, and the plans of all studies."""

import pytest

from zscope.errors import ConfigError, DataError
from zscope.experiments import studies
from zscope.experiments.studies.execution import prepare_study
from zscope.experiments.studies.grid import Grid, runs
from zscope.experiments.studies.made import resolve
from zscope.experiments.studies.study import DOCUMENTS
from zscope.experiments.sweeps.plan import read_plan

SMALL = Grid(
    small=runs(model=["ae", "vae"], data="helix", hidden=(8, 4), steps=600, seeds=2,
               snapshots=(60, 600), snapshot_every=100)
    + runs(model="beta-vae", beta=[1, 4], data="helix", steps=50, seeds=1),
    paper=runs(model="ae", data="helix", seeds=(11, 13), steps=9_000),
)  # fmt: skip


def test_lists_are_varied_tuples_are_one_value_and_seeds_begin_at_20():
    planned = SMALL.expand("small")
    assert [run["seed"] for run in planned] == [20, 21, 20, 21, 20, 20]
    assert [run["model"] for run in planned] == ["ae"] * 2 + ["vae"] * 2 + ["beta-vae"] * 2
    assert planned[0]["options.hidden"] == [8, 4]
    assert [run.get("options.beta") for run in planned[4:]] == [1, 4]
    assert len(read_plan({"run": planned}).runs) == 6


def test_the_number_of_seeds_can_be_chosen_and_printed_seeds_are_kept():
    assert {run["seed"] for run in SMALL.expand("small", 3)} == {20, 21, 22}
    assert [run["seed"] for run in SMALL.expand("paper")] == [11, 13]
    assert [run["seed"] for run in SMALL.expand("paper", 1)] == [11]


def test_tiny_runs_are_short_with_their_snapshots_inside():
    run = SMALL.expand("tiny")[0]
    assert run["steps"] == 12
    assert run["snapshots"] == [1, 12]
    assert run["snapshot_every"] == 2
    assert len(read_plan({"run": SMALL.expand("tiny")}).runs) == 8


def test_tiny_branches_start_from_the_tiny_run():
    common = {"model": "ae", "data": "rooms?resolution=8&pictures=99", "latents": 2, "seeds": 1}
    whole, part = {"steps": 90, "leave_out": {"shape": (2,)}}, {"steps": 40, "freeze": "encoder"}
    branches = Grid(small=runs(**common, **whole) + runs(**common, **part, start=whole))
    planned = read_plan({"run": branches.expand("tiny", 1)}).runs
    assert [run.config.steps for run in planned] == [12, 12]
    assert planned[1].config.start.run == planned[0].name


def test_an_unknown_scale_is_refused():
    with pytest.raises(ConfigError, match="scale 'large'; expected small, paper or tiny"):
        SMALL.expand("large")


@pytest.mark.parametrize("name", studies.names())
def test_every_run_of_every_study_could_start(name, request, tmp_path):
    study = studies.load(name)
    pictures = tmp_path
    if any("mnist" in str(run["data"]) for _, run in study.plan("small", 1)):
        try:
            pictures = request.getfixturevalue("pictures")
        except pytest.skip.Exception:
            check_plans(study, "small", tmp_path)  # the other data, at least
            raise
    prepared = prepare_study(study, tmp_path, root=pictures, seeds=1)
    assert study.name == name
    assert study.document in DOCUMENTS
    assert len({row.id for row in study.rows}) == len(study.rows) > 0
    assert not list(tmp_path.iterdir())  # a plan writes nothing
    assert all(row["seed"] >= 20 for row in prepared.rows)  # smaller ones were used to tune
    for grid in study.grids.values():
        assert grid.small or grid.paper_only


@pytest.mark.parametrize("name", studies.names())
def test_every_run_at_scale_paper_is_valid_or_lacks_its_data(name, tmp_path):
    check_plans(studies.load(name), "paper", tmp_path)


def check_plans(study, scale, folder):
    """All runs of one seed are valid, or what they lack is data that can be fetched."""
    by_data = {}
    for _, run in study.plan(scale, 1):
        by_data.setdefault(run["data"], []).append(resolve(study.made, run, scale, folder))
    for planned in by_data.values():
        unique = list({str(run): run for run in planned}.values())  # some are in two grids
        try:
            read_plan({"run": unique}, root=folder)
        except ConfigError as error:
            assert "zscope data fetch" in str(error)  # noqa: PT017
        except DataError:
            pass

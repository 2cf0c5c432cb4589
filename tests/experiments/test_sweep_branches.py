"""Branches in a sweep: runs that start from another run of the plan."""

import pytest
import torch

import zscope as zs
from zscope import store
from zscope.errors import ConfigError, DataError
from zscope.experiments.sweeps import estimate, prepare, task
from zscope.experiments.sweeps.plan import read_plan

TRAIN = {"model": "ae", "data": "helix?samples=200", "latents": 2, "rate": 1e-2, "batch": 32,
         "options.hidden": [6], "split": [0.8, 0.2]}  # fmt: skip
START = {"steps": 12, "leave_out": {"strand": [1]}}


def plan(*freeze, seeds=(0,), **train):
    grid = {"freeze": list(freeze or ("none", "encoder", "decoder")), "seed": list(seeds)}
    return {"train": {**TRAIN, "steps": 4, "start": START, **train}, "grid": grid}


def sweep(content, out, **options):
    return zs.sweep(content, out, jobs=1, progress=False, **options)


def weights(path):
    return store.read_tensors(path / "model.safetensors")[0]


def test_addresses_of_runs_from_before_stay_as_they_were():
    """Literal addresses of a version that knew neither freeze, start nor leave_out."""
    split = {"model": "beta-vae", "data": "square-linear?samples=200", "latents": 2, "steps": 100,
             "split": [0.8, 0.2], "options.beta": 4, "seed": 3}  # fmt: skip
    plain = {"model": "ae", "data": "digits", "steps": 100}
    unused = {"freeze": None, "start": None, "leave_out": None}
    for fields, address in (
        (split, "49e50556e53caa5fce365ab61e63f0bcdd5cc8780a39f21744e8409c3368e2c4"),
        (plain, "2eb1d2188751c60b2a9cfc6944cd05c9d8c93450869641d450983e045eed4b96"),
    ):
        for content in (fields, {**fields, **unused}, {**fields, "freeze": "none"}):
            (run,) = read_plan({"run": content}).runs
            assert run.address == address


def test_what_branches_start_from_is_planned_once_and_before_them():
    parent, *branches = read_plan(plan()).runs
    assert [run.config.freeze for run in branches] == [None, "encoder", "decoder"]
    assert {run.config.start.address for run in branches} == {parent.address}
    assert {run.config.start.run for run in branches} == {parent.name}
    assert (parent.config.steps, parent.config.freeze, parent.config.start) == (12, None, None)
    assert parent.config.data.leave_out == {"strand": [1]}
    assert branches[0].config.data.leave_out is None
    assert parent.fields["leave_out"] == {"strand": [1]}
    listed = {**TRAIN, **START, "start": None}
    again = read_plan({**plan(), "run": listed}).runs  # also if it is listed itself
    assert [run.name for run in again] == [run.name for run in (parent, *branches)]


def test_the_address_of_a_branch_is_that_of_its_start_and_its_own_settings():
    def last(**train):
        return read_plan(plan("encoder", **train)).runs[-1]

    first = last()
    assert last(start={**START, "steps": 13}).address != first.address
    assert last(steps=5).address != first.address
    assert last(start={**START, "leave_out": {"strand": 1}}).address == first.address
    assert last(start={**START, "rate": TRAIN["rate"]}).address == first.address


def test_a_branch_may_start_from_a_branch():
    deeper = {**START, "start": {"steps": 3}}
    first, second, third = read_plan(plan("encoder", start=deeper)).runs
    assert first.config.start is None
    assert second.config.start.address == first.address
    assert third.config.start.address == second.address
    assert first.config.data.leave_out == second.config.data.leave_out == {"strand": [1]}


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"start": 3}, "start=3; expected the fields in which"),
        ({"start": {"latents": 3}}, "different networks"),
        ({"start": {"stepz": 3}}, "start has a field 'stepz'.*steps"),
        ({"start": {"leave_out": {"strands": 1}}}, "no factor 'strands'. Did you mean strand"),
        ({"start": {"leave_out": {"strand": 2}}}, "no sample has strand=2. Known: 0, 1"),
        ({"start": {"leave_out": {"strand": [0, 1]}}}, "would leave nothing"),
        ({"start": {"leave_out": {"t": 0}}}, "factor t is continuous"),
        ({"leave_out": "strand"}, "leave_out='strand'; expected values of factors"),
        ({"model": "pcl"}, "has no decoder"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_trained(train, message):
    with pytest.raises((ConfigError, DataError), match=message):
        read_plan(plan("encoder", **train))


def test_branches_are_trained_after_what_they_start_from_which_is_trained_once(tmp_path):
    runs = sweep(plan(seeds=(0, 1)), tmp_path)
    assert len(runs) == 8
    assert not runs.failed
    checked, _ = prepare(plan(seeds=(0, 1)), tmp_path)
    assert checked.groups == [[run.name for run in checked.runs if run.config.start is None]]
    for run in checked.runs:
        path, start = tmp_path / "runs" / run.name, run.config.start
        if start is None:
            continue
        before, after = weights(tmp_path / "runs" / start.run), weights(path)
        moved = {k.partition(".")[0] for k in before if not torch.equal(before[k], after[k])}
        assert moved == {"encoder", "decoder"} - {run.config.freeze}
    rows = [row for row in runs.rows if row.get("freeze")]
    assert {row["start"] for row in rows} == {"steps=12, leave_out={'strand': [1]}"}


def test_a_branch_in_a_sweep_has_the_bits_of_one_trained_by_hand(tmp_path):
    sweep(plan("decoder"), tmp_path)
    parent, branch = prepare(plan("decoder"), tmp_path)[0].runs
    data = zs.data.load("helix", samples=200).split([0.8, 0.2])[0]
    model = zs.models.build("ae", shape=data.shape, latents=2, hidden=[6], seed=0)
    by_hand = zs.train(
        model, data, steps=4, rate=1e-2, batch=32, freeze="decoder",
        start=tmp_path / "runs" / parent.name,
    )  # fmt: skip
    stored = weights(tmp_path / "runs" / branch.name)
    assert all(torch.equal(v, stored[k]) for k, v in by_hand.model.state_dict().items())


def test_a_killed_sweep_goes_on_and_trains_nothing_twice(tmp_path, monkeypatch):
    trained, train = [], task.train_config

    def stop_at_third(config, *, out, **options):
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(out.name)
        return train(config, out=out, **options)

    monkeypatch.setattr(task, "train_config", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        sweep(plan(), tmp_path)
    monkeypatch.setattr(
        task,
        "train_config",
        lambda c, *, out, **o: trained.append(out.name) or train(c, out=out, **o),
    )
    sweep(plan(), tmp_path)
    assert trained == [run.name for run in prepare(plan(), tmp_path)[0].runs]


def test_branches_of_a_run_that_failed_say_so_and_are_tried_again_with_it(tmp_path, monkeypatch):
    train = task.train_config

    def fail(config, **options):
        if config.start is None:
            raise DataError("the disk is gone. Plug it in.")
        return train(config, **options)

    monkeypatch.setattr(task, "train_config", fail)
    failed = sweep(plan(), tmp_path).failed
    assert len(failed) == 4
    reasons = sorted(failed.values())
    assert "the disk is gone" in reasons[-1]
    assert all("which is not finished. Did it fail?" in reason for reason in reasons[:3])
    monkeypatch.undo()
    assert not sweep(plan(), tmp_path, retry_failed=True).failed


def test_the_cost_of_branches_is_estimated_without_what_they_start_from(tmp_path):
    costs = estimate.estimate(*prepare(plan(), tmp_path))
    assert costs.total == 4
    assert costs.seconds > 0
    assert not list(tmp_path.iterdir())

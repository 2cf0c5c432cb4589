"""Sweeps: every run once, whatever happened before."""

import json
import threading

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import store
from zscope.errors import ConfigError, RunError
from zscope.experiments import sweeps
from zscope.experiments.sweeps import estimate, prepare, status, task
from zscope.experiments.training import train_config
from zscope.files import lock
from zscope.kept import read_scores

TRAIN = {"steps": 12, "latents": 2, "rate": 1e-3, "batch": 32, "options.hidden": [6]}
ASSAY = {"names": ["variable-types", "effective-rank"], "samples": 100}


def plan(*, assay=ASSAY, **grid):
    fields = {"model": ["beta-vae"], "data": ["helix"], "seed": [0, 1], **grid}
    content = {"train": TRAIN, "grid": fields}
    return content if assay is None else {**content, "assay": assay}


def sweep(content, out, **options):
    return zs.sweep(content, out, jobs=1, progress=False, **options)


@pytest.fixture
def trained(monkeypatch):
    """The names of the runs that are trained from here on, and those that are measured."""
    runs = {"trained": [], "measured": []}
    alone, together, measure = task.train_config, task.train_together, task.measure

    def train_one(config, *, out, **options):
        runs["trained"].append(out.name)
        return alone(config, out=out, **options)

    def train_many(models, data, configs, paths, **options):
        runs["trained"] += [path.name for path in paths]
        return together(models, data, configs, paths, **options)

    def measured(recording, names, *, kept, **options):
        runs["measured"].append(kept._run.name)
        return measure(recording, names, kept=kept, **options)

    monkeypatch.setattr(task, "train_config", train_one)
    monkeypatch.setattr(task, "train_together", train_many)
    monkeypatch.setattr(task, "measure", measured)
    return runs


def weights(path):
    return store.read_tensors(path / "model.safetensors")[0]


@pytest.mark.parametrize("ensemble", [False, True])
def test_a_sweep_trains_and_measures_every_run_once(tmp_path, trained, ensemble):
    runs = sweep(plan(), tmp_path, ensemble=ensemble)
    assert len(runs) == 2
    assert len(trained["trained"]) == len(trained["measured"]) == 2
    names = [run.name for run in prepare(plan(), tmp_path)[0].runs]
    for name in names:
        run = store.open_run(tmp_path / "runs" / name)
        assert run.finished
        assert run.environment["address"].startswith(name[-12:])
        assert ("ensemble" in run.environment) == ensemble
        entries = read_scores(run.path)
        assert [entry["assay"] for entry in entries] == ASSAY["names"]
        assert entries[1]["scores"][""] == pytest.approx(
            zs.assay(run.path, names=["effective-rank"], samples=100)
            .results["effective-rank"]
            .score
        )
    sweep(plan(), tmp_path, ensemble=ensemble)  # nothing is left to do
    assert len(trained["trained"]) == len(trained["measured"]) == 2


@pytest.mark.parametrize("ensemble", [False, True])
def test_a_kill_between_the_last_step_and_the_address_leaves_no_trace(
    tmp_path, trained, monkeypatch, ensemble
):
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    sweep(plan(), calm, ensemble=ensemble)

    def die(item, name, run):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(task, "_describe", die)
        with pytest.raises(SystemExit):
            sweep(plan(), killed, ensemble=ensemble)
    for path in (killed / "runs").iterdir():  # as a kill before they are deleted leaves them
        (path / "checkpoints").mkdir(exist_ok=True)
        (path / "checkpoints" / "step-000000008.safetensors").write_bytes(b"")
    begun = len(trained["trained"])
    sweep(plan(), killed, ensemble=ensemble)
    assert not list(killed.rglob("step-*"))
    assert len(trained["trained"]) == begun + (0 if ensemble else 1)  # the one that had not begun
    for file in calm.glob("runs/*/run.json"):
        assert (killed / file.relative_to(calm)).read_bytes() == file.read_bytes()


def test_a_run_of_a_sweep_has_the_bits_of_a_run_of_its_own(tmp_path):
    sweep(plan(seed=[3], assay=None), tmp_path)
    planned = prepare(plan(seed=[3]), tmp_path)[0].runs[0]
    alone = train_config(planned.config, out=tmp_path / "alone")
    ours = tmp_path / "runs" / planned.name
    assert (ours / "history.jsonl").read_bytes() == (alone.path / "history.jsonl").read_bytes()
    assert all(torch.equal(weights(ours)[k], v) for k, v in weights(alone.path).items())


def test_another_seed_trains_only_the_new_runs(tmp_path, trained):
    sweep(plan(), tmp_path)
    first = list(trained["trained"])
    sweep(plan(seed=[0, 1, 2]), tmp_path)
    assert len(trained["trained"]) == 3
    assert not set(trained["trained"][2:]) & set(first)


def test_another_option_of_an_assay_trains_nothing(tmp_path, trained):
    sweep(plan(), tmp_path)
    sweep(plan(assay={**ASSAY, "options": {"variable-types": {"alpha": 0.2}}}), tmp_path)
    assert len(trained["trained"]) == 2
    assert len(trained["measured"]) == 4
    sweep(plan(), tmp_path)  # both results are kept
    assert len(trained["measured"]) == 4


def test_sweeps_share_runs_in_one_folder(tmp_path, trained):
    sweep(plan(assay=None), tmp_path / "a", runs=tmp_path / "runs")
    found = sweep(plan(seed=[1, 2], assay=None), tmp_path / "b", runs=tmp_path / "runs")
    assert len(trained["trained"]) == 3
    assert sorted(row["seed"] for row in found.rows) == [1, 2]


def test_a_failing_run_is_recorded_and_the_others_go_on(tmp_path, trained):
    content = plan(rate=[1e-3, 1e30], seed=[0], assay=None)
    sweep(content, tmp_path, ensemble=False)
    state = status(tmp_path)
    assert len(state.done) == 1
    ((name, reason),) = state.failed.items()
    assert "NaN or infinite" in reason
    text = (tmp_path / "failed" / f"{name}.txt").read_text()
    assert '"rate": 1e+30' in text
    assert "Traceback" in text
    sweep(content, tmp_path, ensemble=False)
    assert len(trained["trained"]) == 2  # it is not tried again
    sweep(content, tmp_path, retry_failed=True, ensemble=False)
    assert len(trained["trained"]) == 3
    assert len(status(tmp_path).failed) == 1


def test_a_member_of_an_ensemble_that_fails_is_recorded_and_the_others_are_measured(
    tmp_path, trained
):
    content = plan(**{"options.beta": [1, 1e300]})
    sweep(content, tmp_path)
    state = status(tmp_path)
    betas = {
        name: store.open_run(tmp_path / "runs" / name).config["model"]["options"]["beta"]
        for name in [*state.done, *state.failed]
    }
    assert [betas[name] for name in state.done] == [1, 1]
    assert [betas[name] for name in state.failed] == [1e300, 1e300]
    assert sorted(trained["measured"]) == sorted(state.done)
    assert all(name in reason for name, reason in state.failed.items())  # its own, no other's
    sweep(content, tmp_path)
    assert len(trained["trained"]) == 4  # nothing is tried again


def test_a_failure_in_measuring_something_else_is_no_reason_to_wait(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("no such luck")

    with monkeypatch.context() as patch:
        patch.setattr(task, "measure", fail)
        sweep(plan(), tmp_path)
    assert set(status(tmp_path).failed.values()) == {"ValueError: no such luck"}
    sweep(plan(), tmp_path)  # the same again would fail again
    assert len(status(tmp_path).failed) == 2
    other = {**ASSAY, "samples": 90}
    sweep(plan(assay=other), tmp_path)
    assert len(status(tmp_path).done) == 2


def test_progress_is_reported_while_a_run_of_this_process_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("zscope.experiments.sweeps.progress.LOOK", 0)
    states = []
    content = plan(seed=[0], steps=[1500], assay=None)
    zs.sweep(content, tmp_path, jobs=1, progress=lambda state, now: states.append(now))
    assert any(state.running for state in states)


def test_snapshots_that_a_finished_run_lacks_are_taken_without_changing_it(tmp_path, trained):
    sweep(plan(seed=[0]), tmp_path)
    path = next((tmp_path / "runs").iterdir())
    before, history = weights(path), (path / "history.jsonl").read_bytes()
    sweep(plan(seed=[0], snapshot_every=[5]), tmp_path)
    assert [step for step, _ in store.checkpoints(path)] == [5, 10]
    assert all(torch.equal(weights(path)[key], value) for key, value in before.items())
    assert (path / "history.jsonl").read_bytes() == history
    assert len(trained["trained"]) == 2
    # A run with more snapshots serves.
    sweep(plan(seed=[0], snapshots=[[10]]), tmp_path)
    sweep(plan(seed=[0]), tmp_path)
    assert len(trained["trained"]) == 2


def test_a_run_that_another_process_trains_is_left_to_it(tmp_path, trained, monkeypatch):
    monkeypatch.setattr(sweeps, "AGAIN", 0.05)
    content = plan(seed=[0, 1], assay=None)
    checked, _ = prepare(content, tmp_path, ensemble=False)
    first, second = checked.runs
    path = tmp_path / "runs" / first.name
    held = threading.Event()

    def hold():  # as a process that trains it, and dies
        with lock(path, "other"):
            held.set()
            release.wait(20)

    release = threading.Event()
    other = threading.Thread(target=hold)
    other.start()
    held.wait(20)
    states = []

    def watch(state, now):
        states.append(now)
        if second.name in now.done:
            release.set()

    monkeypatch.setattr("zscope.experiments.sweeps.progress.LOOK", 0)
    zs.sweep(content, tmp_path, ensemble=False, jobs=1, progress=watch)
    other.join()
    assert any(first.name in each.running for each in states)
    assert store.open_run(path).finished
    assert trained["trained"][-1] == first.name  # once nobody has it any more
    assert trained["trained"].count(second.name) == 1


def test_the_status_of_no_sweep_says_how_to_start_one(tmp_path):
    with pytest.raises(RunError, match="contains no sweep.json.*zscope sweep run"):
        status(tmp_path)


def test_the_plan_says_what_is_done_and_what_it_would_cost(tmp_path):
    content = plan(seed=[0, 1, 2])
    checked, state = prepare(content, tmp_path)
    answer = estimate.estimate(checked, state)
    assert (answer.total, answer.done, answer.together, answer.items) == (3, 0, 3, 1)
    assert answer.seconds > 0
    assert not (tmp_path / "runs").exists()
    runs = sweep(content, tmp_path)
    actual = sum(f.stat().st_size for f in (tmp_path / "runs").rglob("*") if f.is_file())
    assert answer.disk == pytest.approx(actual, rel=0.5)
    assert len(runs) == 3
    checked, state = prepare(content, tmp_path)
    after = estimate.estimate(checked, state)
    assert (after.done, after.seconds, after.disk) == (3, 0, 0)


def test_what_the_first_steps_of_a_process_cost_is_no_part_of_an_estimate(tmp_path, monkeypatch):
    checked, state = prepare(plan(assay=None, seed=[0]), tmp_path)
    (item,) = sweeps.items_of(checked, state)
    calls = []

    def work(item):
        ((name, config),) = item.configs.items()
        calls.append(name)
        warm_up = 10.0 if len(calls) == 1 else 0.0
        seconds = warm_up + 1.0 + 0.25 * config["steps"]
        return task.Row({name: "done"}, seconds=seconds, steps=config["steps"])

    monkeypatch.setattr(estimate, "work", work)
    cost = estimate.time_shape(item)
    assert cost.step == pytest.approx(0.25)
    assert cost.fixed == pytest.approx(1.0)


def test_status_tells_what_waits_and_the_time_left(tmp_path):
    sweep(plan(seed=[0]), tmp_path)
    zs.store.write_json(  # as if the sweep had been stopped in between
        tmp_path / "sweep.json",
        prepare(plan(seed=[0, 1, 2]), tmp_path)[0].to_dict("runs"),
    )
    state = status(tmp_path)
    assert (len(state.done), len(state.waiting)) == (1, 2)
    entry = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])
    assert state.left == pytest.approx(entry["seconds"] / entry["steps"] * 24)


def states(out):
    return {path.name: store.open_run(path).status for path in (out / "runs").iterdir()}


def test_snapshots_of_one_run_of_an_ensemble_are_taken_of_all(tmp_path):
    runs = tmp_path / "runs"
    sweep(plan(seed=[0, 1], assay=None), tmp_path / "a", runs=runs)
    before = {path.name: weights(path) for path in runs.iterdir()}
    sweep(plan(seed=[0], snapshots=[[6]], assay=None), tmp_path / "b", runs=runs)
    assert status(tmp_path / "b").failed == {}
    for path in runs.iterdir():
        assert store.open_run(path).finished
        assert [step for step, _ in store.checkpoints(path)] == [6]
        assert all(torch.equal(weights(path)[k], v) for k, v in before[path.name].items())
    sweep(plan(seed=[0, 1], assay=None), tmp_path / "a", runs=runs)  # is still complete
    assert len(status(tmp_path / "a").done) == 2


def interrupt(monkeypatch, step):
    """Stop the next training after a step, as Ctrl-C does."""
    from zscope.training import loop, stacking

    for module in (loop, stacking):
        plain = module.advance

        def advance(*args, _plain=plain, **options):
            _plain(*args, **options)
            if args[2] == step:
                raise KeyboardInterrupt

        monkeypatch.setattr(module, "advance", advance)


@pytest.mark.parametrize("first", [True, False])
def test_runs_go_on_in_the_company_in_which_they_began(tmp_path, monkeypatch, first):
    """Begun together and gone on with others, or begun alone and now planned together."""
    with monkeypatch.context() as patch:
        interrupt(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            sweep(plan(assay=None, checkpoint_every=[5]), tmp_path, ensemble=first)
    sweep(plan(assay=None, seed=[0, 3], checkpoint_every=[5]), tmp_path, ensemble=True)
    assert status(tmp_path).failed == {}
    assert len(status(tmp_path).done) == 2
    members = [store.open_run(path).environment.get("ensemble") for path in
               sorted((tmp_path / "runs").iterdir())]  # fmt: skip
    assert [len(each or []) for each in members] == ([2, 2, 0] if first else [0, 0])


def test_a_file_that_is_replaced_is_other_data(tmp_path):
    rows = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    losses = []
    for scale in (1.0, 5.0):
        np.savez(tmp_path / "new.npz", images=scale * rows)
        (tmp_path / "new.npz").replace(tmp_path / "data.npz")
        content = plan(seed=[0], data=[str(tmp_path / "data.npz")], assay=None)
        sweep(content, tmp_path / f"out{scale}")
        path = next((tmp_path / f"out{scale}" / "runs").iterdir())
        losses.append(store.open_run(path).history[0]["loss"])
    assert losses[1] > 5 * losses[0]


def test_data_that_change_after_the_plan_are_refused(tmp_path):
    rows = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    np.save(tmp_path / "data.npy", rows)
    checked, state = prepare(plan(seed=[0], data=[str(tmp_path / "data.npy")]), tmp_path / "out")
    (item,) = sweeps.items_of(checked, state)
    np.save(tmp_path / "data.npy", rows + 1)
    row = task.work(item)
    (reason,) = row.reasons.values()
    assert "are not those that the plan was made for" in reason


def test_data_that_a_worker_does_not_see_fail_with_one_line(tmp_path):
    np.save(tmp_path / "data.npy", np.eye(64, 4, dtype=np.float32))
    checked, state = prepare(plan(seed=[0], data=[str(tmp_path / "data.npy")]), tmp_path / "out")
    (item,) = sweeps.items_of(checked, state)
    (tmp_path / "data.npy").unlink()
    (reason,) = task.work(item).reasons.values()
    assert reason.startswith(f"sweep: {tmp_path / 'data.npy'} cannot be read (No such file")
    assert "\n" not in reason


@pytest.mark.parametrize("elsewhere", [False, True])
def test_workers_must_see_all_folders_and_files_of_a_sweep(tmp_path, monkeypatch, elsewhere):
    asked = {}

    def refuse(**settings):
        asked.update(settings)
        raise ConfigError("no")

    monkeypatch.setattr(sweeps, "workers", refuse)
    for name in ("rows", "labels"):
        np.save(tmp_path / f"{name}.npy", np.eye(64, 4, dtype=np.float32).astype(np.int64))
    data = f"{tmp_path / 'rows.npy'}?factors=labels.npy"
    folders = {"runs": tmp_path / "runs"} if elsewhere else {}
    with pytest.raises(ConfigError, match="no"):
        zs.sweep(plan(data=["helix", data]), tmp_path / "out", cluster="tcp://here:1", **folders)
    assert asked["folders"] == [tmp_path / "out", *folders.values()]
    assert asked["files"] == [tmp_path / "labels.npy", tmp_path / "rows.npy"]
    assert not (tmp_path / "out").exists()


def test_runs_that_failed_for_one_reason_are_one_line():
    names = [f"vae-helix-s{k}-{k:012x}" for k in range(9000)]
    nan = {name: f"train: {name}: NaN in step {k}, with {names[0]}" for k, name in enumerate(names)}
    state = sweeps.Status(failed={**nan, "other": "the disk is full"})
    first, second, third = str(state).splitlines()
    assert first == "0 of 9,001 runs done, 9,001 failed"
    assert second == f"  failed   {names[0]}: {nan[names[0]]} (and 8,999 more runs like it)"
    assert third == "  failed   other: the disk is full"
    assert len(state.to_dict()["failed"]) == 9001
    words = {f"run {chr(97 + k)}": f"reason {chr(97 + k)}" for k in range(26)}
    lines = sweeps.Status(failed=words).reasons()
    assert len(lines) == 21
    assert lines[-1] == "6 more runs, for other reasons: see --json"

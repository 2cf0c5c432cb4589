"""An ensemble that is stopped anywhere, and resumed, ends with the bytes of one that was not."""

import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import zscope as zs
from zscope import store
from zscope.cli import app
from zscope.errors import ConfigError, RunError, TrainingError
from zscope.training.loop import Interrupts

ROWS = np.random.default_rng(2).normal(size=(60, 3)).astype(np.float32)
SEEDS = [0, 3]
BETA = {0: 1.0, 3: 6.0}


def build(seed, **options):
    options = {"hidden": (6,), "beta": BETA.get(seed, 1.0), **options}
    return zs.models.build("beta-vae", shape=(3,), latents=2, seed=seed, **options)


def train(out, *, resume=False, build=build, seeds=SEEDS, **settings):
    settings = {"steps": 12, "batch": 16, "rate": 1e-2, "log_every": 2, "clip": 1.0,
                "checkpoint_every": 3, "snapshots": [5], **settings}  # fmt: skip
    return zs.train_ensemble(build, ROWS, seeds=seeds, out=out, resume=resume, **settings)


def content(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of an ensemble that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return content(folder)


class Killed(BaseException):
    pass


def stop_at(monkeypatch, call):
    """Ask to stop at a step, as Ctrl-C does."""

    class Late(Interrupts):
        def is_set(self):
            self.calls = getattr(self, "calls", 0) + 1
            return self.calls == call

    @contextmanager
    def late():
        yield Late()

    monkeypatch.setattr("zscope.training.ensemble.watch_interrupts", late)


def kill_at(monkeypatch, place, call):
    """Raise at the n-th call of a function of zscope.store."""
    function, calls = getattr(store, place), []

    def counted(*args, **options):
        calls.append(place)
        if len(calls) == call:
            raise Killed
        return function(*args, **options)

    monkeypatch.setattr(store, place, counted)


def interrupted(monkeypatch, folder, step=7):
    with monkeypatch.context() as patch:
        stop_at(patch, step)
        with pytest.raises(KeyboardInterrupt, match=f"saved after step {step} of 12.*resume=True"):
            train(folder)


def test_an_interrupted_ensemble_is_saved_and_resumed(tmp_path, monkeypatch, whole):
    interrupted(monkeypatch, tmp_path)
    runs = [store.open_run(tmp_path / f"seed-{seed}") for seed in SEEDS]
    assert {(run.status, run.step) for run in runs} == {("interrupted", 7)}
    assert [run.environment["ensemble"] for run in runs] == [["seed-0", "seed-3"]] * 2
    runs = train(tmp_path, resume=True)
    assert content(tmp_path) == whole
    assert [run.model.divergence_weight for run in runs] == [1.0, 6.0]


PICTURES = np.random.default_rng(3).random((60, 1, 8, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("model", "options", "settings"),
    [
        ("beta-vae", {"hidden": (4, 4)}, {}),
        ("beta-vae", {"hidden": (4, 4)}, {"optimiser": "adagrad"}),
        ("factor-vae", {"hidden": (4, 4), "discriminator": (4, 4)}, {}),
        ("beta-vae", {"backbone": "locatello"}, {}),
        ("beta-vae", {"hidden": (4, 4)}, {"rate": (1e-2, 3e-3)}),
    ],
    ids=["square matrices", "adagrad", "rivals", "kernels", "rates"],
)
def test_states_of_every_shape_are_those_of_single_runs_and_are_resumed(
    tmp_path, monkeypatch, model, options, settings
):
    """Of a square matrix, a turned one would not be noticed by its shape."""
    rows = np.random.default_rng(2).random((60, 4)).astype(np.float32)
    data = PICTURES if "backbone" in options else rows

    def make(seed):
        return zs.models.build(model, shape=data.shape[1:], latents=4, seed=seed, **options)

    def run(out, **more):
        given = {"steps": 12, "batch": 16, "rate": 1e-2, "clip": 1.0, "checkpoint_every": 3,
                 **settings, **more}  # fmt: skip
        return zs.train_ensemble(make, data, seeds=SEEDS, out=out, **given)

    run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(patch, "write_checkpoint", 6)  # the first member is a checkpoint ahead
        with pytest.raises(Killed):
            run(tmp_path / "killed")
    run(tmp_path / "killed", resume=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    few = {"steps": 3, "batch": 16, "rate": 1e-2, "clip": 1.0, **settings}
    member = zs.train_ensemble(make, data, seeds=SEEDS, **few)[1].model
    own = few["rate"][1] if isinstance(few["rate"], tuple) else few["rate"]
    alone = zs.train(make(3), data, seed=3, **{**few, "rate": own}).model
    weights = dict(member.named_parameters())
    start = dict(make(3).named_parameters())
    for name, expected in alone.named_parameters():
        # By layers, since Adam makes steps of rounding errors where a gradient nearly cancels.
        moved = (expected - start[name]).norm()
        assert moved > 1e-4, name
        assert (weights[name] - expected).norm() < 2e-3 * moved, name


# Two members have a checkpoint at steps 3, 5, 6 and 9 and weights at the end. The JSON files are
# run.json: four at the start, one at each checkpoint, one at the end.
@pytest.mark.parametrize(
    ("place", "call"),
    [
        pytest.param("write_json", 2, marks=pytest.mark.slow),  # the second has not begun
        ("write_checkpoint", 6),  # the first member is a checkpoint ahead
        pytest.param("write_tensors", 10, marks=pytest.mark.slow),  # one has its weights
        ("write_json", 14),  # the first member is marked as finished
    ],
)
def test_a_killed_ensemble_ends_with_the_same_bytes(tmp_path, monkeypatch, whole, place, call):
    with monkeypatch.context() as patch:
        kill_at(patch, place, call)
        with pytest.raises(Killed):
            train(tmp_path)
    if (place, call) == ("write_json", 14):
        states = [store.open_run(tmp_path / f"seed-{seed}").status for seed in SEEDS]
        assert states == ["finished", "running"]
    train(tmp_path, resume=True)
    assert content(tmp_path) == whole


def test_damaged_checkpoints_are_passed_over_in_all_members(tmp_path, monkeypatch, whole, capsys):
    interrupted(monkeypatch, tmp_path)
    for seed, steps in ((0, [7]), (3, [6])):
        for step in steps:
            file = tmp_path / f"seed-{seed}" / "checkpoints" / f"step-{step:09}.safetensors"
            file.write_bytes(file.read_bytes()[:-5])
    train(tmp_path, resume=True)  # from the snapshot at step 5
    assert capsys.readouterr().err.count("Trying the checkpoint before it") == 2
    assert content(tmp_path) == whole


@pytest.mark.slow
def test_without_a_common_checkpoint_it_starts_again(tmp_path, monkeypatch, whole):
    interrupted(monkeypatch, tmp_path)
    shutil.rmtree(tmp_path / "seed-3" / "checkpoints")
    train(tmp_path, resume=True)
    assert content(tmp_path) == whole


def test_a_finished_ensemble_is_loaded(tmp_path, monkeypatch, whole):
    trained = train(tmp_path)
    monkeypatch.setattr("zscope.training.ensemble.Stack", None)
    for loaded, run in zip(train(tmp_path, resume=True), trained, strict=True):
        assert loaded.finished
        assert loaded.history == run.history
        for a, b in zip(loaded.model.parameters(), run.model.parameters(), strict=True):
            assert torch.equal(a, b)
    assert content(tmp_path) == whole


def test_checkpoints_are_those_of_a_single_run(tmp_path):
    train(tmp_path)
    zs.train(build(3), ROWS, seed=3, steps=12, batch=16, rate=1e-2, clip=1.0, snapshots=[5],
             out=tmp_path / "alone")  # fmt: skip
    file = "checkpoints/step-000000005.safetensors"
    one, other = (store.read_tensors(tmp_path / run / file) for run in ("alone", "seed-3"))
    assert one[1] == other[1]
    assert one[0].keys() == other[0].keys()
    for name, tensor in one[0].items():
        assert tensor.shape == other[0][name].shape
        assert torch.allclose(tensor, other[0][name], rtol=1e-3, atol=1e-5), name
    assert zs.load(tmp_path / "seed-3" / file).divergence_weight == 6.0


def test_a_member_is_resumed_only_with_the_others(tmp_path, monkeypatch):
    interrupted(monkeypatch, tmp_path)
    settings = {"steps": 12, "batch": 16, "rate": 1e-2, "log_every": 2, "clip": 1.0,
                "checkpoint_every": 3, "snapshots": [5]}  # fmt: skip
    refusal = (
        r"seed-0 \(interrupted, step 7 of 12\) is one of 2 runs that are trained together "
        r"\(seed-0, seed-3\).*round differently.*zs.train_ensemble with resume=True"
    )
    with pytest.raises(RunError, match="^train: .*" + refusal):
        zs.train(build(0), ROWS, out=tmp_path / "seed-0", resume=True, **settings)
    with pytest.raises(RunError, match="^train_ensemble: .*" + refusal):
        train(tmp_path, seeds=[0, 3, 4], resume=True)
    assert not (tmp_path / "seed-4").exists()
    with pytest.raises(RunError, match="already contains a run .interrupted.*resume=True, or"):
        train(tmp_path)
    with pytest.raises(ConfigError, match="started with steps=12, but resumed with steps=13"):
        train(tmp_path, resume=True, steps=13)
    with pytest.raises(ConfigError, match="resume needs out="):
        train(None, resume=True)


def test_the_command_line_refuses_to_resume_a_member_alone(tmp_path, monkeypatch):
    data = zs.data.load("helix").split((0.1, 0.9))[0]
    stop_at(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        zs.train_ensemble(build, data, seeds=SEEDS, steps=4, batch=16, out=tmp_path)
    answer = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "seed-0"), "--resume"])
    assert isinstance(answer.exception, RunError)
    assert "is one of 2 runs that are trained together" in str(answer.exception)


def test_a_run_that_was_trained_alone_joins_no_ensemble(tmp_path):
    train(tmp_path / "first", seeds=[3])
    settings = {"steps": 12, "batch": 16, "rate": 1e-2, "log_every": 2, "clip": 1.0,
                "checkpoint_every": 3, "snapshots": [5]}  # fmt: skip
    zs.train(build(0), ROWS, out=tmp_path / "seed-0", **settings)
    with pytest.raises(RunError, match=r"seed-0 \(finished, step 12 of 12\) was trained alone"):
        train(tmp_path, resume=True)
    one = zs.train(build(3), ROWS, seed=3, out=tmp_path / "first" / "seed-3", resume=True,
                   **settings)  # fmt: skip
    assert one.finished  # a finished member is loaded like any run


def with_one_that_fails(seed):
    return build(seed, likelihood="gaussian", gamma=1e-40 if seed == 3 else 1.0)


def test_a_member_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    settings = {"build": with_one_that_fails, "seeds": [0, 3, 4]}
    with pytest.raises(TrainingError, match=r"at step 0.*This is run 2 of 3 \(seed-3\)"):
        train(tmp_path / "whole", **settings)
    assert "The others go on." in capsys.readouterr().err
    runs = {seed: store.open_run(tmp_path / "whole" / f"seed-{seed}") for seed in (0, 3, 4)}
    assert {seed: run.status for seed, run in runs.items()} == {
        0: "finished", 3: "failed", 4: "finished",
    }  # fmt: skip
    alone = zs.train(with_one_that_fails(4), ROWS, seed=4, steps=12, batch=16, rate=1e-2, clip=1.0,
                     log_every=2)  # fmt: skip
    assert runs[4].history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-5)

    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "stopped", **settings)
    for _ in range(2):  # resumed, and then called again
        with pytest.raises(TrainingError, match=r"1 of 3 runs \(seed-3\) failed before"):
            train(tmp_path / "stopped", resume=True, **settings)
        assert content(tmp_path / "stopped") == content(tmp_path / "whole")


def test_runs_have_a_folder_each_or_none(tmp_path):
    from zscope.training import TrainConfig, train_together

    models = [build(seed) for seed in SEEDS]
    configs = [TrainConfig(steps=2, seed=seed, batch=8) for seed in SEEDS]
    with pytest.raises(ConfigError, match="2 runs have 1 folders"):
        train_together(models, ROWS, configs, [tmp_path / "a", tmp_path / "a"])
    with pytest.raises(ConfigError, match="others have none"):
        train_together(models, ROWS, configs, [tmp_path / "a", None])
    configs[1] = TrainConfig(steps=2, seed=3, batch=9)
    with pytest.raises(ConfigError, match="batch=8 and another batch=9"):
        train_together(models, ROWS, configs, [None, None])
    assert not list(tmp_path.iterdir())

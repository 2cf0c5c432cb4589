"""The training loop: it learns, repeats, resumes bit for bit, and stops when it must."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import zscope as zs
from zscope import store
from zscope.autoencoder import Losses, Posterior
from zscope.errors import ConfigError, InterfaceError, RunError, TrainingError
from zscope.seeds import seed_of
from zscope.training import TrainConfig
from zscope.training.feeding import batch_rows
from zscope.training.keeping import how_to_resume
from zscope.training.loop import make_optimisers

ROWS = np.random.default_rng(0).normal(size=(256, 4)).astype(np.float32) @ np.diag([2, 1, 0.1, 0.1])
ROWS = ROWS.astype(np.float32)


def small(seed=0, **options):
    settings = {"shape": (4,), "latents": 2, "hidden": (8,), "seed": seed} | options
    return zs.models.build("vae", **settings)


def weights(run):
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


def test_training_lowers_the_loss_and_keeps_rows_at_fixed_steps():
    run = zs.train(small(), ROWS, steps=250, rate=1e-2)
    steps = [row["step"] for row in run.history]
    assert steps == [0, 100, 200, 250]
    assert run.history[-1]["loss"] < 0.6 * run.history[0]["loss"]
    assert run.finished
    assert {"loss", "reconstruction", "divergence", "active", "passive"} <= run.history[0].keys()


def test_the_loss_of_a_row_is_the_sum_of_its_terms():
    for row in zs.train(small(), ROWS, steps=20).history:
        assert row["loss"] == pytest.approx(row["reconstruction"] + row["divergence"])


def test_row_zero_is_the_untrained_model_on_the_first_batch():
    model = small()
    run = zs.train(small(), ROWS, steps=5, batch=32, seed=7)
    config = TrainConfig(steps=5, batch=32, seed=7)
    x = torch.from_numpy(ROWS[batch_rows(config, 256, 0)])
    generator = torch.Generator().manual_seed(seed_of(7, 0, 0))
    assert run.history[0]["loss"] == model.losses(x, generator).total.item()


def test_a_bare_loop_by_hand_gives_the_same_bits():
    run = zs.train(small(), ROWS, steps=30, batch=32, rate=3e-3, seed=5)
    model = small()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    config = TrainConfig(steps=30, batch=32, seed=5)
    for step in range(30):
        x = torch.from_numpy(ROWS[batch_rows(config, 256, step)])
        loss = model.losses(x, torch.Generator().manual_seed(seed_of(5, step, 0))).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert same(weights(run), model.state_dict())


def denormals_are_zero():
    return float(torch.tensor(1e-39) * 1) == 0


@pytest.mark.parametrize("together", [False, True], ids=["alone", "ensemble"])
def test_denormal_numbers_are_flushed_during_training_only(together):
    seen = []

    def monitor(losses):
        seen.append(denormals_are_zero())
        return {}

    def build(seed):
        return zs.models.build("vae", shape=(3,), latents=2, hidden=(4,), seed=seed)

    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    assert not denormals_are_zero()
    if together:
        zs.train_ensemble(build, rows, seeds=[0, 1], steps=4, monitor=monitor)
    else:
        zs.train(build(0), rows, steps=4, monitor=monitor)
    assert seen
    assert all(seen)
    assert not denormals_are_zero()
    with pytest.raises(TrainingError):
        zs.train(build(0), rows, steps=40, rate=1e30)
    assert not denormals_are_zero()


def test_moments_that_fade_to_denormals_leave_the_same_weights(monkeypatch):
    """Features that are 0 but in the first batch: their moments fade for 1,200 steps."""
    rows = np.random.default_rng(0).random((9600, 8)).astype(np.float32)
    rows[:, 4:] = 0
    rows[batch_rows(TrainConfig(steps=1200, batch=8), len(rows), 0), 4:] = 1
    smallest = []

    def train():
        model = zs.models.build("ae", shape=(8,), latents=2, hidden=(8,), seed=0)
        made = []
        monkeypatch.setattr(
            "zscope.training.loop.make_optimisers",
            lambda *given: made.append(make_optimisers(*given)) or made[0],
        )
        weights = zs.train(model, rows, steps=1200, batch=8, rate=1e-3).model.state_dict()
        moments = [state["exp_avg"].abs() for state in made[0]["main"].state.values()]
        smallest.append(min(float(each[each > 0].min()) for each in moments))
        return weights

    first = train()
    monkeypatch.setattr(torch, "set_flush_denormal", lambda mode: True)
    second = train()
    assert smallest[1] < 1e-38 <= smallest[0]
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    one, two, other = (zs.train(small(), ROWS, steps=20, seed=s) for s in (3, 3, 4))
    assert one.history == two.history
    assert same(weights(one), weights(two))
    assert not same(weights(one), weights(other))


def test_every_epoch_is_a_permutation_and_epochs_differ():
    config = TrainConfig(steps=100, batch=10, seed=1)
    epochs = [
        np.concatenate([batch_rows(config, 50, step) for step in range(start, start + 5)])
        for start in (0, 5)
    ]
    assert all(sorted(rows) == list(range(50)) for rows in epochs)
    assert not np.array_equal(*epochs)


def test_processes_share_a_batch_without_overlap():
    config = TrainConfig(steps=1, batch=10, devices=2)
    parts = [batch_rows(config, 50, 3, rank) for rank in (0, 1)]
    whole = batch_rows(TrainConfig(steps=1, batch=10), 50, 3)
    assert sorted(np.concatenate(parts)) == sorted(whole)


def test_epochs_count_passes_over_the_data():
    assert zs.train(small(), ROWS, epochs=2, batch=64).config["steps"] == 8


def test_a_batch_larger_than_the_data_takes_all_of_them():
    assert zs.train(small(), ROWS[:20], steps=2, batch=64).config["batch"] == 20


@pytest.mark.parametrize(
    ("settings", "step", "expected"),
    [
        ({"schedule": "linear"}, 50, 0.5),
        ({"schedule": "cosine"}, 50, 0.5),
        ({"schedule": "cosine"}, 0, 1),
        ({"schedule": "halving", "halve_every": 30}, 65, 0.25),
        ({"warmup": 10}, 4, 0.5),
        ({}, 99, 1),
    ],
)
def test_schedules_have_their_closed_form(settings, step, expected):
    assert TrainConfig(steps=100, rate=1, **settings).rate_at(step) == pytest.approx(expected)


def test_adagrad_and_clipping_change_what_is_learned():
    plain = zs.train(small(), ROWS, steps=10)
    adagrad = zs.train(small(), ROWS, steps=10, optimiser="adagrad")
    # Adam ignores the scale of the gradient; AdaGrad does not forget the first large one
    clipped = zs.train(small(), ROWS, steps=10, clip=1e-3)
    assert not same(weights(plain), weights(adagrad))
    assert not same(weights(plain), weights(clipped))


def test_a_run_on_disk_holds_what_the_design_says(tmp_path):
    run = zs.train(small(), ROWS, steps=120, out=tmp_path / "run", snapshots=[50])
    files = {str(f.relative_to(tmp_path / "run")) for f in (tmp_path / "run").rglob("*.*")}
    assert files == {
        "run.json",
        "model.safetensors",
        "history.jsonl",
        "checkpoints/step-000000050.safetensors",
    }
    assert json.loads((tmp_path / "run" / "run.json").read_text())["format"] == 1
    assert all(row["format"] == 1 for row in run.history)
    loaded = zs.load(tmp_path / "run")
    assert same(loaded.state_dict(), weights(run))
    assert not loaded.training


SHORT = {"steps": 30, "log_every": 4, "checkpoint_every": 10, "rate": 1e-2, "batch": 32}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return zs.train(small(), ROWS, out=tmp_path_factory.mktemp("whole") / "run", **SHORT)


@pytest.mark.parametrize("killed_at", [1, 7, 10, 23, 29])
def test_a_run_stopped_anywhere_and_resumed_equals_one_never_stopped(tmp_path, whole, killed_at):
    class Killed(Exception):
        pass

    model = small()
    losses, calls = model.losses, []

    def counted(x, generator):
        if len(calls) == killed_at:
            raise Killed
        calls.append(1)
        return losses(x, generator)

    model.losses = counted
    with pytest.raises(Killed):
        zs.train(model, ROWS, out=tmp_path / "cut", **SHORT)
    with (tmp_path / "cut" / "history.jsonl").open("a") as file:
        file.write('{"format": 1, "step": 2')  # a torn last line
    cut = zs.train(small(), ROWS, out=tmp_path / "cut", resume=True, **SHORT)
    histories = [(run.path / "history.jsonl").read_bytes() for run in (cut, whole)]
    assert histories[0] == histories[1]
    assert same(weights(cut), weights(whole))


def test_resuming_a_finished_run_does_nothing(tmp_path):
    first = zs.train(small(), ROWS, steps=10, out=tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    again = zs.train(small(), ROWS, steps=10, out=tmp_path, resume=True)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before
    assert same(weights(first), weights(again))


def test_resuming_where_nothing_is_saved_starts_at_the_beginning(tmp_path):
    run = zs.train(small(), ROWS, steps=10, out=tmp_path / "new", resume=True)
    assert run.history == zs.train(small(), ROWS, steps=10).history


def test_a_folder_with_a_run_or_with_other_things_is_not_overwritten(tmp_path):
    zs.train(small(), ROWS, steps=5, out=tmp_path / "run")
    with pytest.raises(
        RunError, match="already contains a run \\(finished, step 5 of 5\\).*resume"
    ):
        zs.train(small(), ROWS, steps=5, out=tmp_path / "run")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("x")
    with pytest.raises(RunError, match="not empty and contains no run"):
        zs.train(small(), ROWS, steps=5, out=tmp_path / "notes")


def test_a_resumed_run_refuses_other_settings(tmp_path):
    zs.train(small(), ROWS, steps=5, out=tmp_path)
    with pytest.raises(ConfigError, match="started with rate=0.0001, but resumed with rate=0.5"):
        zs.train(small(), ROWS, steps=5, rate=0.5, out=tmp_path, resume=True)
    with pytest.raises(
        ConfigError, match="started with model.options.seed=0, but resumed with .*seed=9"
    ):
        zs.train(small(seed=9), ROWS, steps=5, out=tmp_path, resume=True)


class Breaking(zs.Trainable):
    """A model whose divergence becomes infinite at a chosen step."""

    latents = 2

    def __init__(self, step):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.when, self.calls = step, 0

    def encode(self, x, auxiliary=None):
        return Posterior(x[:, :2] * self.weight[:2], torch.ones(len(x), 2))

    def decode(self, z):
        return torch.cat([z, z], 1)

    def losses(self, x, generator):
        divergence = self.weight.square().sum() / (0.0 if self.calls == self.when else 1.0)
        self.calls += 1
        reconstruction = self.weight.sum() * 0 + 1
        terms = {"reconstruction": reconstruction, "divergence": divergence}
        return Losses(divergence + reconstruction, terms)


def test_an_infinite_loss_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(
        TrainingError,
        match="'divergence' became NaN or infinite at step 25 .*divergence = inf.*step-000000020",
    ):
        zs.train(Breaking(25), ROWS, steps=100, out=tmp_path, checkpoint_every=10)
    assert store.open_run(tmp_path).status == "failed"
    [(before, _), (step, file)] = store.checkpoints(tmp_path)
    assert (before, step) == (10, 20)
    tensors, _ = store.read_tensors(file)
    assert tensors["model.weight"].isfinite().all()
    assert not (tmp_path / "model.safetensors").exists()


def test_weights_that_overflow_are_not_saved(tmp_path):
    class Overflowing(Breaking):
        def losses(self, x, generator):
            # a finite loss whose gradient is infinite
            root = (self.weight - self.weight.detach()).abs().sum().sqrt()
            return Losses(root + 1, {"reconstruction": root + 1})

    with pytest.raises(TrainingError, match="'reconstruction'|weights 'weight' contain NaN"):
        zs.train(Overflowing(0), ROWS, steps=3, out=tmp_path, checkpoint_every=1)
    assert store.checkpoints(tmp_path) == []


def test_unfit_models_data_and_settings_are_refused():
    with pytest.raises(InterfaceError, match="Wrapped has no losses"):
        zs.train(zs.wrap(lambda x: x, lambda z: z), ROWS, steps=1)
    with pytest.raises(ConfigError, match="steps=None and epochs=None"):
        zs.train(small(), ROWS)
    with pytest.raises(ConfigError, match="takes observations of shape \\(4,\\).*has \\(3,\\)"):
        zs.train(small(), ROWS[:, :3], steps=1)
    with pytest.raises(ConfigError, match="train: rate: .*greater than 0.*got -1"):
        zs.train(small(), ROWS, steps=1, rate=-1.0)
    with pytest.raises(ConfigError, match="no such setting. Did you mean schedule"):
        zs.train(small(), ROWS, steps=1, shedule="cosine")
    with pytest.raises(ConfigError, match="log_every.*less than or equal to 100"):
        zs.train(small(), ROWS, steps=1, log_every=1000)
    with pytest.raises(ConfigError, match="device 'cuda:99' cannot be used"):
        zs.train(small(), ROWS, steps=1, device="cuda:99")
    bad = ROWS.copy()
    bad[:] = np.nan
    with pytest.raises(zs.ZscopeError, match="nan in row 0"):
        zs.train(small(), bad, steps=1)
    with pytest.raises(zs.ZscopeError, match="NaN or infinite"):
        zs.train(small(), zs.data.Dataset("bad", bad), steps=1)


SCRIPT = """
import os, signal, sys, numpy as np, torch, zscope as zs
from zscope.training.keeping import History
torch.set_num_threads(1)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a script as well
rows = np.load(sys.argv[1])
model = zs.models.build("vae", shape=(4,), latents=2, hidden=(8,), seed=0)
torch.optim.Adam(model.parameters())  # imports more, once for all runs
for line in sys.stdin:
    steps, killed_at, out = line.rstrip().split(" ", 2)
    if child := os.fork():
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.dup2(os.open(out + ".said", os.O_WRONLY | os.O_CREAT), 2)
    plain = History.add

    def add(self, row):
        plain(self, row)
        # Killed by itself, so that no machine is too fast for it.
        if self.file.read_bytes().count(b"\\n") == int(killed_at):
            os.kill(os.getpid(), signal.SIGKILL)

    History.add = add
    zs.train(model, rows, steps=int(steps), out=out, resume=True, log_every=7,
             checkpoint_every=20, batch=32)
    sys.exit()
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Begin a run in a process of its own, forked from one that has imported everything.

    Gives the number of the process, and a function that waits for its exit code.
    """
    folder = tmp_path_factory.mktemp("apart")
    np.save(folder / "rows.npy", ROWS)
    (folder / "script.py").write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, folder / "script.py", folder / "rows.npy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:

        def begin(out, steps, killed_at=0):
            process.stdin.write(f"{steps} {killed_at} {out}\n")
            process.stdin.flush()
            return int(process.stdout.readline()), lambda: int(process.stdout.readline())

        yield begin
        process.stdin.close()


def wait_for_rows(out, count):
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        if (out / "history.jsonl").exists() and (out / "history.jsonl").read_text().count(
            "\n"
        ) > count:
            return
        time.sleep(0.005)
    raise AssertionError("training did not begin")


def test_a_run_killed_twice_and_resumed_has_the_history_of_one_never_killed(tmp_path, start):
    out = tmp_path / "run"
    settings = {"steps": 120, "log_every": 7, "checkpoint_every": 20, "batch": 32}
    for rows in (5, 12):
        _, exit_code = start(out, settings["steps"], rows)
        assert exit_code() == -signal.SIGKILL
        assert len(store.open_run(out).history) == rows
        assert store.open_run(out).status == "running"
    zs.train(small(), ROWS, out=out, resume=True, **settings)
    whole = zs.train(small(), ROWS, out=tmp_path / "whole", **settings)
    assert store.open_run(out).history == whole.history
    assert (out / "history.jsonl").read_bytes() == (
        tmp_path / "whole" / "history.jsonl"
    ).read_bytes()
    assert same(zs.load(out).state_dict(), weights(whole))


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_saves_and_says_how_to_resume(tmp_path, start, asked):
    out = tmp_path / "run"
    process, exit_code = start(out, 200_000)
    wait_for_rows(out, 3)
    os.kill(process, asked)
    assert exit_code() != 0
    said = (tmp_path / "run.said").read_text()
    assert ("Terminated: " in said) == (asked != signal.SIGINT)
    assert "stopped and saved after step" in said
    assert "resume=True" in said  # the data are an array, which no command can make
    run = store.open_run(out)
    assert run.status == "interrupted"
    assert store.checkpoints(out)[-1][0] == run.step
    with pytest.raises(RunError, match=f"not finished \\(interrupted, step {run.step} of 200000"):
        zs.load(out)
    assert zs.load(store.checkpoints(out)[-1][1]).latents == 2


def test_rows_of_a_model_with_batch_statistics_are_all_of_one_kind():
    pictures = np.random.default_rng(0).random((64, 1, 8, 8), np.float32)
    options = {"backbone": "consistency", "depth": 2, "filters": 4, "pools": 1}
    made = [zs.models.build("ae", shape=(1, 8, 8), latents=2, **options) for _ in range(2)]
    short, long = (
        zs.train(model, pictures, steps=steps, batch=16, rate=1e-2, log_every=5)
        for model, steps in zip(made, (5, 10), strict=True)
    )
    # The last row of a run is the row of that step in a longer one.
    assert short.history[-1] == long.history[1]
    counts = [b for name, b in made[0].named_buffers() if "num_batches" in name]
    assert counts
    assert all(count == 5 for count in counts)


def test_the_way_to_go_on_names_what_is_needed():
    config = TrainConfig(steps=9, model={"name": "vae", "shape": [4], "latents": 2},
                         data={"name": "digits"})  # fmt: skip
    command = how_to_resume(Path("my runs/one"), config, "/data")
    assert command == "zscope train --out 'my runs/one' --resume --root /data"
    own = how_to_resume(Path("one"), TrainConfig(steps=9), None)
    assert "zs.train with out='one' and resume=True" in own
    assert how_to_resume(None, config, None) is None


def test_a_failed_run_is_not_offered_to_be_gone_on_with(tmp_path):
    with pytest.raises(TrainingError):
        zs.train(Breaking(25), ROWS, steps=40, batch=16, out=tmp_path / "run")
    with pytest.raises(RunError, match=r"failed, step .*fail again: choose another folder"):
        zs.train(Breaking(25), ROWS, steps=40, batch=16, out=tmp_path / "run")


def test_a_run_refused_before_its_first_step_is_not_in_the_way_of_the_next(tmp_path):
    labels = zs.data.from_arrays(ROWS, np.arange(256) % 3, factor_kinds=["categorical"])
    pairs = zs.models.build("pcl", shape=(4,), latents=2, hidden=(8,))
    with pytest.raises(zs.ZscopeError, match="pairs of neighbours"):
        zs.train(pairs, labels, steps=2, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="cuda:99"):
        zs.train(small(), ROWS, steps=2, device="cuda:99", out=tmp_path / "run")
    assert zs.train(small(), ROWS, steps=2, out=tmp_path / "run").finished

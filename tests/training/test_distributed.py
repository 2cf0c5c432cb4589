"""Two processes that share each batch do what one process does on the whole."""

import json
import shutil

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import store
from zscope.errors import ConfigError, TrainingError

ROWS = np.random.default_rng(1).normal(size=(128, 4)).astype(np.float32)


def build(name="ae", seed=0):
    return zs.models.build(name, shape=(4,), latents=2, hidden=(8,), seed=seed)


class Append:
    """Writes the steps to a file, from whatever process."""

    def __init__(self, file):
        self.file = file

    def __call__(self, values, step):
        with self.file.open("a") as file:
            file.write(f"{step}\n")


def test_two_processes_make_the_updates_of_one_also_of_a_causal_block_of_one_unit(tmp_path):
    """A deterministic model sees no noise, so that only the order of additions differs.

    A causal block of one unit has no weights, for whose gradients the processes would wait.
    """
    settings = {"steps": 60, "batch": 32, "rate": 1e-2, "log_every": 10}

    def train(**more):
        model = zs.models.build("xae", shape=(4,), latents=1, hidden=(8,), seed=0)
        return zs.train(model, ROWS, **settings, **more)

    one, two = train(), train(devices=2, log=Append(tmp_path / "rows.txt"))
    # Only the first of them logs.
    steps = [int(line) for line in (tmp_path / "rows.txt").read_text().split()]
    assert steps == [row["step"] for row in one.history]
    assert two.finished
    assert [row["step"] for row in two.history] == [row["step"] for row in one.history]
    losses = [[row["loss"] for row in run.history] for run in (one, two)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    for a, b in zip(one.model.state_dict().values(), two.model.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.slow
def test_a_run_of_two_processes_is_kept_and_goes_on_with_the_same_bits(tmp_path):
    """Two players with an optimiser each, and noise: what new processes repeat, they share."""
    helix = zs.data.load("helix")
    options = {"shape": (3,), "latents": 2, "hidden": (8,), "discriminator": (8, 8), "seed": 0}

    def build():
        return zs.models.build("factor-vae", **options)

    def train(name, **more):
        settings = {"steps": 16, "batch": 16, "log_every": 4, "checkpoint_every": 4}
        settings |= {"snapshots": [4], "devices": 2, "out": tmp_path / name}
        return zs.train(build(), helix, **settings, **more)

    whole = train("whole")
    assert [row["step"] for row in whole.history] == [0, 4, 8, 12, 16]
    assert {"active", "passive", "discriminator", "total_correlation"} <= whole.history[0].keys()
    assert store.open_run(tmp_path / "whole").config["devices"] == 2
    assert train("whole", resume=True).finished
    # The same run as it would have been left by a crash before the second checkpoint.
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "cut" / "model.safetensors").unlink()
    record = json.loads((tmp_path / "cut" / "run.json").read_text())
    del record["sha256"]
    (tmp_path / "cut" / "run.json").write_text(json.dumps({**record, "status": "running"}))
    [(step, _)] = store.checkpoints(tmp_path / "cut")
    assert step == 4
    cut = train("cut", resume=True)
    assert cut.history == whole.history
    one, two, start = (model.state_dict() for model in (whole.model, cut.model, build()))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert all(not torch.equal(one[key], start[key]) for key in one if key.endswith("weight"))


def test_what_one_process_finds_wrong_is_said_once(tmp_path):
    rows = ROWS.copy()
    rows[64:] = 1e30
    with pytest.raises(TrainingError, match="'reconstruction' became NaN or infinite at step"):
        zs.train(build(), rows, steps=20, batch=32, devices=2, out=tmp_path / "run")
    assert store.open_run(tmp_path / "run").status == "failed"


def test_a_batch_that_cannot_be_shared_is_refused():
    with pytest.raises(ConfigError, match="batch 33 cannot be split evenly over 2 devices"):
        zs.train(build(), ROWS, steps=1, batch=33, devices=2)

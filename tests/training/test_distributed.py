"""Two processes that share each batch do what one process does on the whole."""

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import store
from zscope.errors import ConfigError, TrainingError

ROWS = np.random.default_rng(1).normal(size=(128, 4)).astype(np.float32)


def build(name="ae", seed=0):
    return zs.models.build(name, shape=(4,), latents=2, hidden=(8,), seed=seed)


def test_two_processes_make_the_updates_of_one_also_of_a_causal_block_of_one_unit():
    """A deterministic model sees no noise, so that only the order of additions differs.

    A causal block of one unit has no weights, for whose gradients the processes would wait.
    """
    settings = {"steps": 60, "batch": 32, "rate": 1e-2, "log_every": 10}

    def train(**more):
        model = zs.models.build("xae", shape=(4,), latents=1, hidden=(8,), seed=0)
        return zs.train(model, ROWS, **settings, **more)

    one, two = train(), train(devices=2)
    assert two.finished
    assert [row["step"] for row in two.history] == [row["step"] for row in one.history]
    losses = [[row["loss"] for row in run.history] for run in (one, two)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    for a, b in zip(one.model.state_dict().values(), two.model.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_a_run_of_two_processes_is_kept_repeats_and_resumes(tmp_path):
    helix = zs.data.load("helix")

    def train(steps, out, **more):
        model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,), seed=0)
        return zs.train(model, helix, steps=steps, out=out, devices=2, log_every=5, **more)

    first = train(20, tmp_path / "one", checkpoint_every=10)
    again = train(20, tmp_path / "two", checkpoint_every=10)
    assert first.history == again.history
    assert first.history[-1]["step"] == 20
    assert {"active", "passive"} <= first.history[0].keys()
    done = train(20, tmp_path / "one", checkpoint_every=10, resume=True)
    assert done.finished
    assert store.open_run(tmp_path / "one").config["devices"] == 2


def test_what_one_process_finds_wrong_is_said_once(tmp_path):
    rows = ROWS.copy()
    rows[64:] = 1e30
    with pytest.raises(TrainingError, match="'reconstruction' became NaN or infinite at step"):
        zs.train(build(), rows, steps=20, batch=32, devices=2, out=tmp_path / "run")
    assert store.open_run(tmp_path / "run").status == "failed"


def test_a_batch_that_cannot_be_shared_is_refused():
    with pytest.raises(ConfigError, match="batch 33 cannot be split evenly over 2 devices"):
        zs.train(build(), ROWS, steps=1, batch=33, devices=2)

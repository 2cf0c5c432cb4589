"""Training several seeds together gives each the run it would have alone."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import zscope as zs
from zscope import store
from zscope.errors import ConfigError, InterfaceError, RunError
from zscope.training.loop import Interrupts

ROWS = np.random.default_rng(2).normal(size=(200, 3)).astype(np.float32)
SEEDS = [0, 3, 11]


def build(seed, name="vae"):
    return zs.models.build(name, shape=(3,), latents=2, hidden=(8, 8), seed=seed)


@pytest.mark.parametrize("name", ["ae", "vae", "beta-vae"])
@pytest.mark.parametrize("settings", [{}, {"clip": 0.5, "optimiser": "adagrad", "warmup": 5}])
def test_members_have_the_losses_of_runs_alone(name, settings):
    settings = {"steps": 12, "batch": 32, "rate": 1e-2, "log_every": 4, **settings}
    together = zs.train_ensemble(lambda s: build(s, name).double(), ROWS, seeds=SEEDS, **settings)
    for seed, run in zip(SEEDS, together, strict=True):
        alone = zs.train(build(seed, name).double(), ROWS, seed=seed, **settings)
        for row, other in zip(run.history, alone.history, strict=True):
            assert row.keys() == other.keys()
            assert list(row.values()) == pytest.approx(list(other.values()), rel=1e-9)
        pairs = zip(run.model.parameters(), alone.model.parameters(), strict=True)
        assert all(torch.allclose(a, b, rtol=1e-8) for a, b in pairs)


def test_members_differ_from_each_other():
    runs = zs.train_ensemble(build, ROWS, seeds=SEEDS, steps=20)
    assert len({run.history[-1]["loss"] for run in runs}) == 3


def test_members_are_written_as_runs_of_their_own(tmp_path):
    runs = zs.train_ensemble(build, ROWS, seeds=SEEDS, steps=20, out=tmp_path)
    for seed, run in zip(SEEDS, runs, strict=True):
        loaded = zs.load(tmp_path / f"seed-{seed}")
        assert torch.equal(loaded.encoder.head.weight, run.model.encoder.head.weight)
        assert run.history[-1]["step"] == 20


def test_pictures_train_together_too():
    images = (ROWS[:, :1, None] > 0).repeat(8, 1).repeat(8, 2).astype(np.uint8)[:, None] * 255

    def build_conv(seed):
        return zs.models.build("vae", shape=(1, 8, 8), latents=2, backbone="locatello", seed=seed)

    runs = zs.train_ensemble(build_conv, images, seeds=[1, 2], steps=3, batch=8)
    alone = zs.train(build_conv(2), images, seed=2, steps=3, batch=8)
    assert runs[1].history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-4)


def test_what_cannot_be_stacked_is_refused():
    with pytest.raises(InterfaceError, match="different architectures"):
        zs.train_ensemble(
            lambda s: zs.models.build("vae", shape=(3,), latents=2, hidden=(8 + s,)),
            ROWS,
            seeds=[0, 1],
            steps=1,
        )

    def with_statistics(seed):
        model = build(seed)
        model.decoder.add_module("norm", nn.BatchNorm1d(3))
        return model

    with pytest.raises(InterfaceError, match="running statistics"):
        zs.train_ensemble(with_statistics, ROWS, seeds=[0], steps=1)
    with pytest.raises(ConfigError, match="without repeats"):
        zs.train_ensemble(build, ROWS, seeds=[1, 1], steps=1)
    with pytest.raises(ConfigError, match="one device"):
        zs.train_ensemble(build, ROWS, seeds=[1], steps=1, devices=2)


def test_a_member_that_breaks_stops_the_ensemble():
    with pytest.raises(zs.ZscopeError, match="'reconstruction' became NaN or infinite at step"):
        zs.train_ensemble(build, ROWS * 1e25, seeds=[0, 1], steps=50)


def test_an_interrupted_ensemble_says_that_it_cannot_be_resumed(tmp_path, monkeypatch):
    @contextmanager
    def at_once():
        asked = Interrupts()
        asked.set()
        yield asked

    monkeypatch.setattr("zscope.training.ensemble.watch_interrupts", at_once)
    rows = np.zeros((20, 3), np.float32)
    make = partial(zs.models.build, "ae", shape=(3,), latents=1, hidden=(4,))
    with pytest.raises(KeyboardInterrupt, match="after step 1 of 9.*cannot be resumed.*delete"):
        zs.train_ensemble(lambda seed: make(seed=seed), rows, seeds=[1, 2], steps=9, out=tmp_path)
    assert {store.open_run(tmp_path / f"seed-{k}").status for k in (1, 2)} == {"interrupted"}
    with pytest.raises(
        RunError, match="seed-1 already contains a run .*neither be resumed.*delete"
    ):
        zs.train_ensemble(lambda seed: make(seed=seed), rows, seeds=[1, 2], steps=9, out=tmp_path)


def test_weights_that_are_not_trained_do_not_stop_an_ensemble():
    rows = np.random.default_rng(0).random((20, 3), np.float32)
    make = partial(zs.models.build, "xae", shape=(3,), latents=1, hidden=(4,))
    runs = zs.train_ensemble(lambda seed: make(seed=seed), rows, seeds=[1, 2], steps=3)
    alone = zs.train(make(seed=1), rows, steps=3, seed=1)
    assert runs[0].history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-5)

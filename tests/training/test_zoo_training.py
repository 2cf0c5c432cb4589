"""Every model trains, stops and goes on; two players keep an optimiser each."""

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import store
from zscope.models.composed import Composed

RNG = np.random.default_rng(3)
FACTORS = zs.data.grid_factors([4, 4, 4])
DATA = zs.data.from_arrays(
    (FACTORS @ RNG.normal(size=(3, 4)) * 0.5).astype(np.float32), FACTORS,
    factor_names=["a", "b", "c"],
)  # fmt: skip


PICTURES = RNG.random((64, 1, 8, 8), np.float32)


def build(name, seed=0, **options):
    if name == "spatial-vae":
        small = {"channels": 2, "filters": 16}
        return zs.models.build(name, shape=(1, 8, 8), seed=seed, **small, **options)
    usual = {"hidden": (8,), "discriminator": (8, 8)} if name == "factor-vae" else {"hidden": (8,)}
    return zs.models.build_for(name, DATA, latents=4, seed=seed, **usual, **options)


@pytest.mark.parametrize("name", zs.models.names())
def test_a_stopped_run_goes_on_with_the_same_bits(name, tmp_path, monkeypatch):
    settings = {"steps": 12, "batch": 48, "rate": 1e-2, "log_every": 5, "checkpoint_every": 4}
    data = PICTURES if name == "spatial-vae" else DATA
    whole = zs.train(build(name), data, out=tmp_path / "whole", **settings)
    assert whole.history[-1]["loss"] < whole.history[0]["loss"]

    class Killed(Exception):
        pass

    plain, calls = Composed.losses, []

    def counted(self, *given, **more):
        calls.append(0)
        if len(calls) == 11:
            raise Killed
        return plain(self, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Composed, "losses", counted)
        with pytest.raises(Killed):
            zs.train(build(name), data, out=tmp_path / "cut", **settings)
    cut = zs.train(build(name), data, out=tmp_path / "cut", resume=True, **settings)
    assert cut.history == whole.history
    one, two = whole.model.state_dict(), cut.model.state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    loaded = zs.load(tmp_path / "cut").state_dict()
    assert all(torch.equal(loaded[key], one[key]) for key in one)


def test_both_optimisers_are_kept_in_a_checkpoint(tmp_path):
    model = build("factor-vae")
    zs.train(model, DATA, steps=20, batch=16, out=tmp_path, checkpoint_every=10, snapshots=[10])
    [(step, file)] = store.checkpoints(tmp_path)
    assert step == 10
    tensors, _ = store.read_tensors(file)
    kept = {key.split(".")[1] for key in tensors if key.startswith("optimiser.")}
    assert kept == {"main", "discriminator"}
    counts = {key: t.item() for key, t in tensors.items() if key.endswith(".step")}
    assert set(counts.values()) == {10.0}
    mine = sum(1 for key in counts if ".discriminator." in key)
    assert mine == len(list(model.objective.discriminator.parameters()))


def test_each_player_moves_at_its_own_rate():
    """The first step of Adam moves every weight by its rate: here 1e-2 and 1e-3."""
    model = build("factor-vae", discriminator_rate=1e-3)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    zs.train(model, DATA, steps=1, batch=16, rate=1e-2)
    for key, value in model.state_dict().items():
        moved = (value - before[key]).abs()
        rate = 1e-3 if "discriminator" in key else 1e-2
        assert moved.max().item() == pytest.approx(rate, rel=1e-3), key


def test_a_schedule_slows_both_players():
    model = build("factor-vae", discriminator_rate=1e-3)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    zs.train(model, DATA, steps=1, batch=16, rate=1e-2, warmup=10)
    for key, value in model.state_dict().items():
        rate = 1e-4 if "discriminator" in key else 1e-3
        assert (value - before[key]).abs().max().item() == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "factor-vae",
        "annealed-vae",
        "beta-tcvae",
        "wae",
        "avae",
        "ivae",
        "slow-vae",
        "cae-i",
        "xcae-i",
        "spatial-vae",
    ],
)
def test_members_of_an_ensemble_have_the_losses_of_runs_alone(name):
    data = PICTURES.astype(np.float64) if name == "spatial-vae" else DATA
    settings = {"steps": 6, "batch": 16, "rate": 1e-2, "log_every": 2, "clip": 5.0}
    seeds = [0, 5]
    together = zs.train_ensemble(lambda s: build(name, s).double(), data, seeds=seeds, **settings)
    for seed, run in zip(seeds, together, strict=True):
        alone = zs.train(build(name, seed).double(), data, seed=seed, **settings)
        for row, other in zip(run.history, alone.history, strict=True):
            assert row.keys() == other.keys()
            assert list(row.values()) == pytest.approx(list(other.values()), rel=1e-8)

"""Training with a frozen half, and from the weights of another run."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

import zscope as zs
from zscope import store
from zscope.autoencoder import Losses, Posterior
from zscope.cli import main
from zscope.errors import ConfigError, RunError
from zscope.training.freezing import frozen

ROWS = np.random.default_rng(0).normal(size=(128, 4)).astype(np.float32)
HALVES = ("encoder", "decoder")


def build(name="vae", **options):
    settings = {"shape": (4,), "latents": 2, "hidden": (8,), "seed": 0} | options
    return zs.models.build(name, **settings)


def bits(modules):
    """Parameters and buffers, to the bit."""
    return [tensor.clone() for module in modules for tensor in module.state_dict().values()]


def same(one, two):
    return all(map(torch.equal, one, two))


class Normed(zs.Trainable):
    """Batch norm in both halves."""

    latents = 2

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.encoder = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
            self.decoder = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))

    def encode(self, x, auxiliary=None):
        return Posterior(self.encoder(x))

    def decode(self, z):
        return self.decoder(z)

    def losses(self, x, generator=None):
        return Losses((self.decode(self.encode(x).mean) - x).square().sum(1).mean())


MODELS = {
    "vae": build,
    "learned variance": lambda: build(likelihood="gaussian", gamma="learned"),
    "causal block": lambda: build("xcae-i"),
    "rival": lambda: build("factor-vae"),
    "batch norm": Normed,
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", MODELS)
def test_the_frozen_half_stays_the_same_and_the_other_does_not(name, half):
    model = MODELS[name]()
    other = HALVES[1 - HALVES.index(half)]
    before = {each: bits(model.halves[each]) for each in HALVES}
    zs.train(model, ROWS, steps=5, rate=1e-2, freeze=half)
    assert same(before[half], bits(model.halves[half]))
    assert not same(before[other], bits(model.halves[other]))
    assert all(parameter.requires_grad for parameter in model.parameters())  # again
    assert not any(module.training for module in model.modules())


def test_without_freeze_batch_norm_moves_in_both_halves():
    model = Normed()
    before = {each: bits(model.halves[each]) for each in HALVES}
    zs.train(model, ROWS, steps=5)
    for half in HALVES:
        assert not same(before[half], bits(model.halves[half]))


def test_the_block_and_the_learned_variance_belong_to_the_decoder():
    block = build("xcae-i")
    assert block.block in block.halves["decoder"]
    variance = build(likelihood="gaussian", gamma="learned")
    assert variance.likelihood in variance.halves["decoder"]
    for model in (block, variance):
        parts = [
            parameter for half in HALVES for m in model.halves[half] for parameter in m.parameters()
        ]
        assert {id(p) for p in parts} == {id(p) for p in model.parameters()}


def test_only_what_is_trained_is_in_the_optimiser():
    from zscope.training import TrainConfig
    from zscope.training.loop import make_optimisers

    model = build()
    with frozen(model, "encoder"):
        (optimiser,) = make_optimisers(model, TrainConfig(steps=1)).values()
    trained = {id(p) for group in optimiser.param_groups for p in group["params"]}
    assert trained == {id(p) for p in model.decoder.parameters()}


def test_a_bare_loop_on_the_decoder_gives_the_same_bits():
    run = zs.train(build("ae"), ROWS, steps=20, batch=128, rate=3e-3, freeze="encoder")
    model = build("ae")
    optimiser = torch.optim.Adam(model.decoder.parameters(), lr=3e-3, fused=True)
    from zscope.training import TrainConfig
    from zscope.training.feeding import batch_rows

    config = TrainConfig(steps=20, batch=128)
    for step in range(20):
        loss = model.losses(torch.from_numpy(ROWS[batch_rows(config, 128, step)])).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert same(bits([run.model]), bits([model]))


def test_freezing_what_a_model_does_not_have_is_refused():
    labels = zs.data.from_arrays(ROWS, np.arange(128) % 2)
    classifier = zs.models.build_for("classifier", labels, latents=2)
    with pytest.raises(ConfigError, match="has no decoder with weights.*Leave freeze out"):
        zs.train(classifier, labels, steps=1, freeze="decoder")

    class Tied(Normed):
        def __init__(self):
            super().__init__()
            self.decoder[1] = self.encoder[1]

    with pytest.raises(ConfigError, match="2 of the 6 weights .* are the same tensors"):
        zs.train(Tied(), ROWS, steps=1, freeze="encoder")
    with pytest.raises(ConfigError, match="freeze.*'encoder' or 'decoder'.*got 'both'"):
        zs.train(build(), ROWS, steps=1, freeze="both")
    with pytest.raises(ConfigError, match="train_ensemble: freeze='encoder'"):
        zs.train_ensemble(
            lambda seed: build(seed=seed), ROWS, seeds=[0, 1], steps=1, freeze="encoder"
        )


def test_a_run_without_freeze_and_start_is_stored_as_before(tmp_path):
    zs.train(build(), ROWS, steps=1, out=tmp_path / "run")
    assert (
        not {"freeze", "start"}
        & json.loads((tmp_path / "run/run.json").read_text())["config"].keys()
    )


# A branch


@pytest.fixture(scope="module", name="parent")
def _parent(tmp_path_factory):
    return zs.train(
        build(), ROWS, steps=10, rate=1e-2, out=tmp_path_factory.mktemp("runs") / "parent"
    )


def test_a_branch_starts_from_the_final_weights_with_a_new_optimiser(parent):
    branch = zs.train(build(seed=5), ROWS, steps=3, rate=1e-2, seed=7, start=parent.path)
    by_hand = build()
    by_hand.load_state_dict(zs.load(parent.path).state_dict())
    expected = zs.train(by_hand, ROWS, steps=3, rate=1e-2, seed=7)
    assert same(bits([branch.model]), bits([expected.model]))
    assert branch.history[0] == expected.history[0]


@pytest.mark.parametrize("half", [None, "encoder"])
def test_a_stopped_branch_goes_on_with_the_same_bits(parent, tmp_path, half, monkeypatch):
    settings = {"steps": 9, "checkpoint_every": 4, "start": parent, "freeze": half, "rate": 1e-2}
    whole = zs.train(build(), ROWS, **settings, out=tmp_path / "whole")
    write = store.write_checkpoint

    def fail(path, step, *rest):
        write(path, step, *rest)
        if step == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(store, "write_checkpoint", fail)
    with pytest.raises(KeyboardInterrupt):
        zs.train(build(), ROWS, **settings, out=tmp_path / "cut")
    monkeypatch.undo()
    cut = zs.train(build(), ROWS, **settings, out=tmp_path / "cut", resume=True)
    assert same(bits([cut.model]), bits([whole.model]))
    assert cut.history == whole.history


def test_what_cannot_be_started_from_is_refused(parent, tmp_path):
    with pytest.raises(RunError, match="no run to start from"):
        zs.train(build(), ROWS, steps=1, start=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="a run in memory"):
        zs.train(build(), ROWS, steps=1, start=zs.train(build(), ROWS, steps=1))
    with pytest.raises(RunError, match="do not fit the model"):
        zs.train(build(latents=3), ROWS, steps=1, start=parent)
    copy = store.open_run(parent.path)
    copy.path, copy.status = tmp_path / "stopped", "interrupted"
    copy.path.mkdir()
    copy.save()
    with pytest.raises(RunError, match="interrupted at step 10 of 10.*finish it first"):
        zs.train(build(), ROWS, steps=1, start=copy.path)


def test_a_start_that_was_trained_again_is_refused(tmp_path):
    first = zs.train(build(), ROWS, steps=2, out=tmp_path / "first")
    branch = zs.train(build(), ROWS, steps=2, start=first, out=tmp_path / "branch")
    config = branch.config["start"]
    weights = {name: tensor + 1 for name, tensor in first.model.state_dict().items()}
    store.write_tensors(tmp_path / "first/model.safetensors", weights, {"step": 2})
    with pytest.raises(RunError, match="its weights are others"):
        zs.train(build(), ROWS, steps=2, start=config)


def test_a_branch_sees_tables_in_the_units_of_its_start(tmp_path):
    np.save(tmp_path / "old.npy", ROWS)
    np.save(tmp_path / "new.npy", 3 * ROWS + 1)
    old, new = (zs.data.load(tmp_path / f"{name}.npy") for name in ("old", "new"))
    first = zs.train(build(), old, steps=2, out=tmp_path / "first")
    branch = zs.train(build(), new, steps=2, start=first)
    assert branch.model.scaling == first.model.scaling
    assert zs.train(build(), new, steps=2).model.scaling != first.model.scaling


def test_the_command_freezes_starts_and_resumes(tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "rows.npy", ROWS)
    common = ["vae", str(tmp_path / "rows.npy"), "--latents", "2", "--steps", "4", "--quiet"]

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["zscope", "train", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0, capsys.readouterr().err

    run(*common, "--out", str(tmp_path / "a"))
    branch = ["--start", str(tmp_path / "a"), "--freeze", "encoder"]
    run(*common, *branch, "--out", str(tmp_path / "b"))
    run("--out", str(tmp_path / "b"), "--resume")
    run("--config", str(tmp_path / "b" / "run.json"), "--out", str(tmp_path / "c"))
    a, b, c = (zs.load(tmp_path / name) for name in "abc")
    assert same(bits(a.halves["encoder"]), bits(b.halves["encoder"]))
    assert not same(bits(a.halves["decoder"]), bits(b.halves["decoder"]))
    assert same(bits([b]), bits([c]))

"""Runs on disk: written whole or not at all, versioned, validated."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import store
from zscope.errors import ConfigError, RunError
from zscope.results import Result
from zscope.training import read_config

ROWS = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)


def train(out, **settings):
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,), seed=0)
    return zs.train(model, ROWS, out=out, **({"steps": 5} | settings))


def test_tensors_come_back_as_they_were(tmp_path):
    tied = torch.arange(6.0)
    tensors = {
        "a": tied,
        "b": tied,
        "image": torch.arange(48.0).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last),
        "count": torch.tensor(3),
    }
    store.write_tensors(tmp_path / "t.safetensors", tensors, {"step": 4})
    back, about = store.read_tensors(tmp_path / "t.safetensors")
    assert about == {"format": 1, "step": 4}
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)


def test_a_checkpoint_restores_weights_and_optimiser(tmp_path):
    def made():
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.Adam(model.parameters(), lr=0.1, fused=True)

    def step(model, optimiser):
        optimiser.zero_grad()
        model(torch.ones(1, 3)).square().sum().backward()
        optimiser.step()

    with torch.random.fork_rng():
        (model, optimiser), (other, fresh) = made(), made()
    step(model, optimiser)
    file = store.write_checkpoint(tmp_path, 1, model, {"main": optimiser})
    assert store.read_checkpoint(file, other, {"main": fresh}) == 1
    step(model, optimiser)
    step(other, fresh)
    assert torch.equal(model.weight, other.weight)


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_damaged_weights_are_refused(tmp_path, damage):
    train(tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes({"cut": content[:-10], "empty": b"", "text": b"x" * 200}[damage])
    with pytest.raises(RunError, match="model.safetensors cannot be read"):
        zs.load(tmp_path / "run")


def test_a_run_written_half_is_recognised(tmp_path):
    train(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(RunError, match="is marked as finished, but model.safetensors is missing"):
        zs.load(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 1, "status"')
    with pytest.raises(RunError, match=r"run\.json cannot be read"):
        zs.load(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 1, "status": "finished"}')
    with pytest.raises(RunError, match="lacks step, config"):
        zs.load(tmp_path)


def test_another_format_is_refused(tmp_path):
    train(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(content | {"format": 99}))
    with pytest.raises(RunError, match="format 99; this zscope reads format 1"):
        zs.load(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path):
    train(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    content["config"]["model"]["latents"] = 7
    del content["sha256"]
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match="do not fit the model.*size mismatch"):
        zs.load(tmp_path)


def test_a_run_with_a_model_of_ones_own_says_how_to_load_it(tmp_path):
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,), seed=0)
    model.recipe = None
    zs.train(model, ROWS, steps=2, out=tmp_path)
    with pytest.raises(RunError, match="model of your own.*weights="):
        zs.load(tmp_path)


@dataclass(frozen=True, eq=False)
class Example(Result):
    size: float
    matrix: torch.Tensor


def test_results_are_kept_with_the_run(tmp_path):
    run = train(tmp_path)
    run.save_result("example", Example(size=0.5, matrix=torch.eye(2)))
    kept = store.open_run(tmp_path).results()
    assert kept == {"example": {"kind": "Example", "size": 0.5, "matrix": [[1, 0], [0, 1]]}}
    assert json.loads((tmp_path / "assays" / "example.json").read_text())["format"] == 1
    with pytest.raises(RunError, match="only in memory"):
        train(None).save_result("example", Example(0.5, torch.eye(2)))


def test_large_parts_of_a_result_come_back_from_their_own_file(tmp_path):
    run = train(tmp_path)
    large = torch.arange(10_000.0).reshape(100, 100)
    run.save_result("example", Example(size=0.5, matrix=large))
    assert (tmp_path / "assays" / "example.npz").is_file()
    assert (tmp_path / "assays" / "example.json").stat().st_size < 1000
    assert np.array_equal(run.results()["example"]["matrix"], large.numpy())
    run.save_result("example", Example(size=0.5, matrix=torch.eye(2)))
    assert not (tmp_path / "assays" / "example.npz").exists()
    assert run.results()["example"]["matrix"] == [[1, 0], [0, 1]]


def test_a_result_with_nan_is_never_kept(tmp_path):
    run = train(tmp_path)
    with pytest.raises(zs.Undefined, match="contains NaN"):
        run.save_result("example", Example(size=float("nan"), matrix=torch.eye(2)))
    assert run.results() == {}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rate": "fast"}, "rate: .*valid number.*got 'fast'"),
        ({"steps": 0}, "steps: .*greater than or equal to 1.*got 0"),
        ({"optimiser": "sgd"}, "optimiser: .*'adam' or 'adagrad'.*got 'sgd'"),
        ({"bacth": 3}, "bacth: no such setting. Did you mean batch"),
        ({"model": {"name": "vae", "shape": [3]}}, "model.latents: Field required"),
        ({"schedule": "halving"}, "'halving' and halve_every must be set together"),
    ],
)
def test_a_configuration_names_the_field_that_is_wrong(tmp_path, change, match):
    content = {"format": 1, "config": {"steps": 5} | change}
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=match):
        read_config(tmp_path / "run.json")


def test_configurations_that_are_not_there_or_not_json_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("steps = 5")
    with pytest.raises(ConfigError, match="is not JSON"):
        read_config(tmp_path / "bad.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ConfigError, match="contains a list"):
        read_config(tmp_path / "list.json")


def test_a_finished_run_without_its_weights_says_what_can_be_done(tmp_path):
    train(tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(RunError, match="Restore it, or repeat the run.*--out NEW"):
        store.open_run(tmp_path / "run")


@pytest.mark.parametrize("change", [{"config": []}, {"step": "x"}, {"status": None}])
def test_a_run_that_was_edited_is_refused_by_what_is_wrong(tmp_path, change):
    content = {"format": 1, "status": "finished", "step": 3, "config": {}, **change}
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match=f"has {next(iter(change))}=.*edited"):
        store.open_run(tmp_path)


def test_settings_of_another_format_are_refused(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"format": 2, "config": {"steps": 3}}))
    with pytest.raises(ConfigError, match="has format 2"):
        read_config(tmp_path)


def test_a_place_where_no_folder_can_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write to .*Not a directory.*another place"):
        train(tmp_path / "file" / "run")

"""Getting a model from wherever it is."""

import sys

import pytest
import torch
from torch import nn

import zscope as zs
from zscope.adapters.weights import load_weights
from zscope.errors import InterfaceError, RunError

MODULE = """
import torch
from torch import nn
import zscope as zs

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)

class Methods(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
    def encode(self, x):
        return x * self.weight, x * 0
    def decode(self, z):
        return z

def both():
    return (lambda x: x[:, :2]), (lambda z: torch.cat([z, z], 1))

def demanding(path):
    return both()

wrapped = zs.wrap(*both())
number = 3
"""


@pytest.fixture(autouse=True)
def users_module(tmp_path, monkeypatch):
    (tmp_path / "usermodel.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with torch.random.fork_rng():
        yield tmp_path
    sys.modules.pop("usermodel", None)


X = torch.linspace(0, 1, 12).reshape(3, 4)


@pytest.mark.parametrize(
    ("target", "latents", "prior"),
    [
        ("usermodel:Pair", 2, None),
        ("usermodel:Methods", 4, "normal"),
        ("usermodel:both", 2, None),
        ("usermodel:wrapped", 2, None),
        ("usermodel.py:both", 2, None),
    ],
)
def test_a_model_is_found_by_its_import_path_in_any_of_the_usual_forms(target, latents, prior):
    model = zs.load(target)
    model.encode(X)
    assert (model.latents, model.prior) == (latents, prior)
    assert model.decode(model.encode(X).mean).shape == X.shape


def test_files_of_one_name_in_two_folders_are_two_models(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder, factor in (("one", 2), ("two", 3)):
        (tmp_path / folder).mkdir()
        text = f"both = (lambda x: {factor} * x, lambda z: z / {factor})\n"
        (tmp_path / folder / "samename.py").write_text(text)
    scales = [
        zs.load(f"{tmp_path / folder / 'samename.py'}:both").encode(X).mean[0, 3] / X[0, 3]
        for folder in ("one", "two", "one")
    ]
    assert [round(float(scale)) for scale in scales] == [2, 3, 2]
    sys.modules.pop("samename", None)


def test_an_autoencoder_is_returned_as_it_is():
    model = zs.wrap(lambda x: x, lambda z: z)
    assert zs.load(model) is model


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_weights_of_ones_own_are_filled_in(users_module, suffix):
    from safetensors.torch import save_file
    from usermodel import Pair

    trained = Pair().state_dict()
    file = users_module / f"weights.{suffix}"
    torch.save(trained, file) if suffix == "pt" else save_file(trained, file)
    model = zs.load("usermodel:Pair", weights=file)
    assert torch.equal(model.encoder.weight, trained["encoder.weight"])


def test_a_checkpoint_with_a_state_dict_inside_is_understood(users_module):
    module = nn.Linear(2, 2)
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, users_module / "last.pt")
    other = nn.Linear(2, 2)
    load_weights(other, users_module / "last.pt")
    assert torch.equal(other.weight, module.weight)


class Evil:
    def __reduce__(self):
        return (print, ("code was run",))


def test_code_in_a_weights_file_is_never_run(users_module, capsys):
    torch.save(Evil(), users_module / "evil.pt")
    with pytest.raises(InterfaceError, match="could not be read as a state dict.*never code"):
        zs.load("usermodel:Pair", weights=users_module / "evil.pt")
    assert "code was run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("nowhere.at.all:model", "importing 'nowhere.at.all' raised ModuleNotFoundError"),
        ("usermodel:both_of_them", "no 'both_of_them'. Did you mean both"),
        ("usermodel:number", "a int is neither an Autoencoder"),
        ("usermodel:demanding", "without arguments raised TypeError.*small function"),
        ("missing.py:model", "no file missing.py"),
    ],
)
def test_what_cannot_be_loaded_is_said_with_a_way_forward(target, match):
    with pytest.raises(InterfaceError, match=match):
        zs.load(target)


def test_a_place_without_a_run_is_refused(users_module):
    with pytest.raises(RunError, match="there is no run at nothing.*zscope train"):
        zs.load("nothing")
    with pytest.raises(RunError, match="contains no run.json"):
        zs.load(users_module)


def test_weights_that_do_not_fit_are_refused(users_module):
    torch.save(nn.Linear(3, 3).state_dict(), users_module / "other.pt")
    with pytest.raises(InterfaceError, match="do not fit Pair"):
        zs.load("usermodel:Pair", weights="other.pt")
    with pytest.raises(InterfaceError, match="weights= needs a torch module"):
        zs.load("usermodel:both", weights="other.pt")
    with pytest.raises(InterfaceError, match="no file gone.pt"):
        zs.load("usermodel:Pair", weights="gone.pt")
    (users_module / "text.pt").write_text("hello")
    with pytest.raises(InterfaceError, match="could not be read"):
        zs.load("usermodel:Pair", weights="text.pt")


def test_a_run_object_is_loaded_with_its_model_or_from_its_folder(tmp_path):
    data = zs.data.load("digits")
    model = zs.models.build("vae", shape=data.shape, latents=2, hidden=(8,), backbone="mlp", seed=0)
    memory = zs.train(model, data, steps=2, progress=False)
    assert zs.load(memory) is memory.model
    run = zs.train(model, data, steps=2, out=tmp_path / "run", progress=False)
    opened = zs.store.open_run(tmp_path / "run")
    assert opened.model is None
    x = data.batch(range(3))
    assert torch.equal(zs.load(opened).encode(x).mean, zs.load(run).eval().encode(x).mean)
    by_object = zs.assay(run, names="effective-rank", samples=100)
    by_folder = zs.assay(tmp_path / "run", names="effective-rank", samples=100)
    assert by_object.results["effective-rank"].score == by_folder.results["effective-rank"].score
    assert len(zs.assay(memory, data, names="effective-rank", samples=50).results) == 1


@pytest.mark.parametrize("words", [("compare", "codes.npy", "codes.npy"), ("explore", "codes.npy")])
def test_a_file_of_codes_is_no_model_and_the_error_says_what_takes_it(words, tmp_path, monkeypatch):
    import numpy as np
    from typer.testing import CliRunner

    from zscope.cli import app

    monkeypatch.chdir(tmp_path)
    np.save("codes.npy", np.eye(3))
    error = CliRunner().invoke(app, [*words]).exception
    assert isinstance(error, InterfaceError)
    assert "codes.npy is a file of codes" in str(error)
    assert "zscope assay codes.npy" in str(error)
    assert "--out" not in str(error)


def test_the_folder_of_checkpoints_is_not_taken_for_a_run(tmp_path):
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(4,))
    helix = zs.data.load("helix")
    zs.train(model, helix, steps=3, batch=16, out=tmp_path / "run", snapshots=[1, 2])
    zs.train(model, helix, steps=1, batch=16, out=tmp_path / "bare")
    folder = tmp_path / "run" / "checkpoints"
    names = sorted(file.name for file in folder.iterdir())
    with pytest.raises(RunError, match="holds 2 checkpoints of a run.*Name one of them") as caught:
        zs.load(folder)
    assert all(name in str(caught.value) for name in names)
    assert "zscope train" not in str(caught.value)
    assert zs.load(folder / names[-1]).latents == 2  # as the message advises
    with pytest.raises(RunError, match="there are none.*--snapshot"):
        zs.load(tmp_path / "bare" / "checkpoints")
    # Any other folder is still told from a run.
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(RunError, match="there is no run at"):
        zs.load(tmp_path / "checkpoints")

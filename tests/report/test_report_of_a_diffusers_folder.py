"""zscope report FOLDER --data pictures/ of a model that diffusers saved (a small stand-in)."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import map_reports as worlds
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

from zscope.cli import app
from zscope.report.card import TITLE

CONFIG = {"_class_name": "AutoencoderKL", "_diffusers_version": "0.35.0", "scaling_factor": 0.18215}
WEIGHTS = "diffusion_pytorch_model.safetensors"


class ModelMixin(nn.Module):
    """What every model of the library is; nothing else is loaded from a folder."""


class AutoencoderKL(ModelMixin):
    """Average pooling with posteriors, and a fourth channel that is noise."""

    def __init__(self, config):
        super().__init__()
        self.config = SimpleNamespace(**config)
        self.log_variance = nn.Parameter(torch.empty(4, 1, 1))

    def encode(self, x):
        small = F.avg_pool2d(x, 4)
        mean = torch.cat([small, 0 * small[:, :1]], 1)
        log_variance = self.log_variance.expand_as(mean)
        return SimpleNamespace(latent_dist=SimpleNamespace(mean=mean, logvar=log_variance))

    def decode(self, z):
        return SimpleNamespace(sample=F.interpolate(z[:, :3], scale_factor=4, mode="nearest"))

    @classmethod
    def load_config(cls, folder):
        return json.loads(Path(folder, "config.json").read_text())

    @classmethod
    def from_config(cls, config):
        return cls(config)

    @classmethod
    def from_pretrained(cls, folder, **options):
        assert options["local_files_only"]
        assert options["use_safetensors"]
        model = cls(cls.load_config(folder))
        model.load_state_dict(load_file(f"{folder}/{WEIGHTS}"))
        return model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a model, and one of pictures."""
    from PIL import Image

    library = ModuleType("diffusers")
    library.ModelMixin, library.AutoencoderKL = ModelMixin, AutoencoderKL
    monkeypatch.setitem(sys.modules, "diffusers", library)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vae").mkdir()
    (tmp_path / "pictures").mkdir()
    (tmp_path / "vae" / "config.json").write_text(json.dumps(CONFIG))
    weights = {"log_variance": torch.tensor([-6.0, -6.0, -6.0, 0.0]).reshape(4, 1, 1)}
    save_file(weights, tmp_path / "vae" / WEIGHTS)
    x = (worlds.pictures(32) / 8 + 0.5).clamp(0, 1)
    for k, each in enumerate(x):
        pixels = (255 * each).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{k:02}.png")
    return tmp_path


def test_a_folder_and_pictures_are_enough_for_a_page_about_channels(folder):
    done = CliRunner().invoke(app, ["report", "vae", "--data", "pictures/", "-o", "page.html"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{TITLE}  2 problems")
    assert lines[1].startswith("  problem  Channel 3 of 4 carries nothing: lower the KL weight")
    assert "With scaling_factor 0.18215 these latents have std" in lines[2]
    assert any(line.strip().startswith('"scaling_factor": ') for line in lines)
    text = (folder / "page.html").read_text()
    assert text.index('id="ready"') < text.index('id="findings"')
    assert 'id="latents"' not in text
    numbers = json.loads((folder / "page.json").read_text())
    assert numbers["about"]["model"]["layout"] == [4, 8, 8]
    assert numbers["about"]["model"]["scaling"] == {"scaling_factor": 0.18215}
    assert numbers["card"]["checks"][0]["rule"] == "dead channel"


def test_pictures_of_a_size_that_the_model_refuses_are_one_clear_line(folder):
    from PIL import Image

    for file in (folder / "pictures").iterdir():
        with Image.open(file) as picture:
            small = picture.resize((2, 2))  # less than one place
        small.save(file)
    done = CliRunner().invoke(app, ["report", "vae", "--data", "pictures/", "-o", "page.html"])
    assert done.exit_code == 1
    assert not (folder / "page.html").exists()
    assert "encoder" in str(done.exception)

"""The autoencoders of diffusers: spatial latents, flattened for zscope and restored."""

import json

import pytest
import torch
from small_hub import keep

import zscope as zs
from zscope.adapters import from_diffusers
from zscope.errors import InterfaceError

diffusers = pytest.importorskip("diffusers", reason="needs diffusers: make test-adapters")

X = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def vae():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return diffusers.AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            block_out_channels=(8, 8),
            latent_channels=2,
            norm_num_groups=4,
            sample_size=8,
        ).eval()


def test_spatial_latents_are_flattened_channel_by_channel_and_restored(vae):
    model = zs.load(vae)
    posterior = model.encode(X)
    with torch.no_grad():
        law = vae.encode(2 * X - 1).latent_dist
        decoded = (vae.decode(law.mean).sample + 1) / 2
    assert (model.latents, model.prior, model.name) == (2 * 4 * 4, "normal", "AutoencoderKL")
    assert torch.allclose(posterior.mean, law.mean.flatten(1), atol=1e-6)
    assert torch.allclose(posterior.std, law.std.flatten(1), rtol=1e-4)
    assert torch.allclose(model.decode(posterior.mean), decoded, atol=1e-5)


def test_observations_from_minus_one_to_one_are_left_as_they_are(vae):
    model = from_diffusers(vae, symmetric=False)
    with torch.no_grad():
        assert torch.allclose(model.encode(X).mean, vae.encode(X).latent_dist.mean.flatten(1))


def test_a_saved_folder_is_read_from_disk(vae, tmp_path):
    vae.save_pretrained(tmp_path)
    assert torch.allclose(zs.load(tmp_path).encode(X).mean, zs.load(vae).encode(X).mean)
    (tmp_path / "diffusion_pytorch_model.safetensors").write_bytes(b"")
    with pytest.raises(InterfaceError, match="could not be read"):
        zs.load(tmp_path)


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "model.bin", r"..\\outside.safetensors"]
)
def test_an_index_that_names_other_files_is_refused(vae, tmp_path, name):
    folder = tmp_path / "model"
    vae.save_pretrained(folder)
    for place in (tmp_path / "outside.safetensors", folder / "model.bin"):
        place.write_bytes((folder / "diffusion_pytorch_model.safetensors").read_bytes())
    (folder / "diffusion_pytorch_model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(vae.state_dict(), name)}
    (folder / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InterfaceError, match="not a safetensors file beside it"):
        zs.load(folder)


def test_the_autoencoder_of_a_pipeline_on_the_hub(vae, tmp_path, monkeypatch):
    vae.save_pretrained(tmp_path / "pipeline" / "vae")
    (tmp_path / "pipeline" / "model_index.json").write_text("{}")
    (tmp_path / "pipeline" / "vae" / "diffusion_pytorch_model.bin").write_bytes(b"a pickle")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    keep(tmp_path / "cache", "org/pipeline", tmp_path / "pipeline")
    for target in ("hf:org/pipeline", "hf:org/pipeline/vae", "org/pipeline"):
        assert torch.allclose(zs.load(target).encode(X).mean, zs.load(vae).encode(X).mean)


def test_a_class_of_diffusers_that_is_no_model_is_refused(vae, tmp_path):
    vae.save_pretrained(tmp_path)
    settings = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(settings.replace("AutoencoderKL", "DiffusionPipeline"))
    with pytest.raises(InterfaceError, match="DiffusionPipeline is not a model of diffusers"):
        zs.load(tmp_path)


def test_channels_can_be_taken_as_variables(vae):
    model = zs.load(vae)
    recording = zs.record(model, X.repeat(4, 1, 1, 1))
    groups = torch.arange(32).reshape(2, 16).tolist()
    matrix = zs.assays.response_matrix(model, recording.posterior, groups=groups)
    assert matrix.matrix.shape == (2, 2)


def test_what_is_no_autoencoder_is_refused():
    unet = diffusers.ModelMixin()
    with pytest.raises(InterfaceError, match="pipeline.vae"):
        from_diffusers(unet)


@pytest.mark.parametrize("command", ["assay", "report", "explore"])
def test_a_folder_without_data_is_asked_for_data(vae, tmp_path, monkeypatch, capsys, command):
    from zscope.cli import main

    vae.save_pretrained(tmp_path)
    monkeypatch.setattr("sys.argv", ["zscope", command, str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert "Name them with --data" in " ".join(capsys.readouterr().err.split())


def test_a_folder_is_measured_by_the_command_line(vae, tmp_path, monkeypatch, capsys):
    import numpy as np

    from zscope.cli import main

    vae.save_pretrained(tmp_path / "vae")
    np.save(tmp_path / "x.npy", X.repeat(4, 1, 1, 1).numpy())
    words = ["assay", tmp_path / "vae", "latent-divergence", "--data", tmp_path / "x.npy"]
    monkeypatch.setattr("sys.argv", ["zscope", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert not end.value.code, said.err
    assert "latent-divergence" in said.out
    assert "48" in said.out  # rows, all of them encoded

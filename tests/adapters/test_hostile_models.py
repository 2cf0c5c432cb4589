"""Models of others that announce too much, are damaged, or reach for other files."""

import json
import os

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import adapters, files
from zscope.adapters.weights import load_weights
from zscope.errors import InterfaceError, ResourceError


def linear(size):
    with torch.random.fork_rng():
        return torch.nn.Linear(size, size)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_only_regular_files_are_weights(tmp_path, suffix):
    os.mkfifo(tmp_path / f"w{suffix}")
    with pytest.raises(InterfaceError, match=f"w{suffix} is a pipe, not a file"):
        load_weights(linear(2), tmp_path / f"w{suffix}")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_weights_larger_than_the_memory_are_not_read(tmp_path, suffix):
    with (tmp_path / f"w{suffix}").open("wb") as file:
        file.truncate(4 * 10**12)
    with pytest.raises(ResourceError, match=f"w{suffix} needs 4.0 TB of memory"):
        load_weights(linear(2), tmp_path / f"w{suffix}")


def test_a_flipped_bit_in_saved_weights_is_noticed(tmp_path):
    layer = linear(64)
    torch.save(layer.state_dict(), tmp_path / "w.pt")
    content = bytearray((tmp_path / "w.pt").read_bytes())
    content[content.index(layer.weight.detach().numpy().tobytes()[:64]) + 5000] ^= 4
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(InterfaceError, match="w.pt could not be read.*Bad CRC|another checksum"):
        load_weights(layer, tmp_path / "w.pt")


def test_an_error_without_a_message_is_still_an_error_of_one_line(tmp_path):
    (tmp_path / "w.pt").write_bytes(b"")
    with pytest.raises(InterfaceError, match="w.pt could not be read as a state dict"):
        load_weights(linear(2), tmp_path / "w.pt")


@pytest.mark.parametrize("text", ["[" * 10**5, "\xff", '{"_diffusers_version": '])
def test_settings_that_cannot_be_read_are_an_error_that_names_them(tmp_path, text):
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(InterfaceError, match="config.json cannot be read as JSON"):
        zs.load(tmp_path)


def onnx_file(path, location):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[6, 3])
    weights.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "72")):
        weights.external_data.add(key=key, value=value)
    given, output = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in (("x", 6), ("y", 3))
    )
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "part", [given], [output], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    assert onnx
    return path


def test_onnx_weights_in_other_files_must_be_files_in_the_same_folder(tmp_path):
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(72))
    path = onnx_file(folder / "e.onnx", "../secret")
    with pytest.raises(InterfaceError, match=r"has weights in ../secret, which is not a file in"):
        zs.load(f"{path},{path}")
    os.mkfifo(folder / "pipe")
    onnx_file(path, "pipe")
    with pytest.raises(InterfaceError, match="pipe is a pipe, not a file"):
        zs.load(f"{path},{path}")
    np.ones((6, 3), np.float32).tofile(folder / "weights")
    onnx_file(path, "weights")
    model = adapters.from_onnx(path, path)
    assert model.encode(torch.ones(2, 6)).mean.tolist() == [[6.0] * 3] * 2
    os.mkfifo(tmp_path / "x.onnx")
    with pytest.raises(InterfaceError, match="x.onnx is a pipe"):
        adapters.from_onnx(tmp_path / "x.onnx", path)


def test_a_pythae_folder_with_absurd_sizes_is_refused(tmp_path):
    pytest.importorskip("pythae")
    from pythae.models import VAE, VAEConfig

    with torch.random.fork_rng():
        VAE(VAEConfig(input_dim=(1, 4, 4), latent_dim=2)).save(str(tmp_path))
    file = tmp_path / "model_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "latent_dim": 10**9}))
    with pytest.raises(ResourceError, match="from_pythae: a VAE of these sizes needs .* TB"):
        zs.load(tmp_path)


def test_a_diffusers_folder_with_absurd_sizes_is_refused(tmp_path, monkeypatch):
    diffusers = pytest.importorskip("diffusers")
    with torch.random.fork_rng():
        diffusers.AutoencoderKL(
            block_out_channels=(4,), latent_channels=1, norm_num_groups=2, sample_size=4
        ).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["block_out_channels"] = [10**6]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ResourceError, match="a AutoencoderKL of these sizes needs .* TB"):
        zs.load(tmp_path)


@pytest.mark.parametrize(
    "sizes",
    [
        {"latents": 10**9, "shape": (784,)},
        {"latents": 10, "shape": (784,), "hidden": 10**9},
        {"latents": 10, "shape": (784,), "hidden": [2 * 10**9, 2 * 10**9]},
        {"latents": 10, "shape": (3, 64, 64), "backbone": "structural", "filters": 10**9},
        {"latents": 10**6, "shape": (3, 64, 64), "block": "causal"},
    ],
)
def test_a_model_that_does_not_fit_into_memory_is_never_allocated(sizes):
    recipe = {"name": "vae", "shape": list(sizes.pop("shape")), "latents": sizes.pop("latents")}
    with pytest.raises(ResourceError, match="models: .*(TB of memory|too large to be built)"):
        zs.models.from_recipe({**recipe, "options": sizes})


def test_a_model_is_compared_with_the_memory_that_is_free(monkeypatch):
    zs.models.build("vae", shape=(4,), latents=2, hidden=8)
    monkeypatch.setattr(files, "available_memory", lambda: 100)
    with pytest.raises(ResourceError, match=r"models: vae with latents=2 \(1.4e\+02 weights\) nee"):
        zs.models.build("vae", shape=(4,), latents=2, hidden=8)


def test_a_model_of_absurdly_many_layers_is_refused():
    with pytest.raises(zs.errors.ConfigError, match="depth=1000000000; .*at most 1000"):
        zs.models.build("vae", shape=(3, 64, 64), latents=2, backbone="structural", depth=10**9)

"""The blocks of docs/guide/own-model.md that need other libraries, each taken from the page.

What a library lacks here is skipped: pythae and diffusers, scvi-tools, JAX and Keras have
environments of their own (make test-adapters).
"""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import zscope as zs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "own-model.md"
MARK = "<!-- run by tests/adapters/test_own_model_page.py -->"
SECTIONS = {
    section.partition("\n")[0]: re.findall(rf"{MARK}\n```python\n(.*?)```", section, re.DOTALL)
    for section in PAGE.read_text().split("\n## ")[1:]
}
X = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
BASIS = torch.linalg.qr(torch.randn(6, 3, generator=torch.Generator().manual_seed(1))).Q.numpy()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the block of a section; returns the names it leaves behind and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run_section(section, names, only=None):
        (code,) = SECTIONS[section]
        lines = [line for line in code.splitlines() if line and not line.startswith("import ")]
        assert len(lines) <= 5
        if only:
            assert code.endswith("x))\n")
            code = code.replace("x))\n", f"x, names={only}))\n")
        exec(compile(code, f"own-model.md, {section}", "exec"), names)
        return names, capsys.readouterr().out

    with torch.random.fork_rng():  # these libraries draw from the global state
        torch.manual_seed(0)
        yield run_section


def scores(output):
    """The scores of a printed report, by name."""
    lines = re.findall(r"^([a-z][\w-]*)(?:,.*?)? {2,}(-?[\d.]+)(?: |$)", output, re.MULTILINE)
    return {name: float(value) for name, value in lines}


def test_every_block_of_the_page_is_run_here():
    """A section that is added has a test below, named after it."""
    text = Path(__file__).read_text()
    asked = {section for section, blocks in SECTIONS.items() if blocks}
    assert asked == set(re.findall(r'run\(\s*"([\w-]+)"', text)) >= {"Lightning", "ONNX", "JAX"}


@pytest.mark.filterwarnings("ignore")
def test_lightning(run, tmp_path):
    pl = pytest.importorskip("lightning.pytorch")

    class LitVAE(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(2, 6)

        def encode(self, x):
            return self.encoder(x).chunk(2, dim=1)

        def decode(self, z):
            return self.decoder(z)

        def training_step(self, batch, _):
            return (self.decode(self.encode(batch)[0]) - batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 1e-2)

    module = LitVAE()
    trainer = pl.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(X, batch_size=30))
    trainer.save_checkpoint("last.ckpt")
    names, output = run("Lightning", {"LitVAE": LitVAE, "x": X}, only=["latent-divergence"])
    assert names["autoencoder"].prior == "normal"
    assert torch.equal(names["autoencoder"].encode(X).mean, module.encode(X)[0])
    mean, log_variance = module.encode(X)
    divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum(1).mean() / 2
    assert scores(output)["latent-divergence"] == pytest.approx(divergence.item(), rel=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_pythae(run):
    pytest.importorskip("pythae", reason="needs pythae: make test-adapters")
    from pythae.models import VAE, AutoModel, VAEConfig

    theirs = VAE(VAEConfig(input_dim=(1, 4, 4), latent_dim=3))
    theirs.save("my_vae/final_model")
    x = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    names, output = run("pythae", {"x": x}, only=["latent-divergence"])
    assert scores(output)["latent-divergence"] > 0
    opened = zs.load(AutoModel.load_from_folder("my_vae/final_model"))  # named below the block
    assert torch.equal(names["autoencoder"].encode(x).mean, opened.encode(x).mean)


@pytest.mark.filterwarnings("ignore")
def test_diffusers(run):
    diffusers = pytest.importorskip("diffusers", reason="needs diffusers: make test-adapters")
    vae = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8), latent_channels=2, norm_num_groups=4, sample_size=16,
    )  # fmt: skip
    vae.save_pretrained("my_vae")
    pictures = torch.rand(64, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    _, output = run("diffusers", {"pictures": pictures})
    assert "Ready for diffusion" in output


def test_onnx(run):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    for name, weights in (("encoder", BASIS), ("decoder", BASIS.T)):
        wide, narrow = weights.shape
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", wide])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", narrow])],
            [numpy_helper.from_array(np.ascontiguousarray(weights), "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        onnx.save(model, f"{name}.onnx")
    names, output = run("ONNX", {"x": X}, only=["interventional-consistency"])
    assert torch.allclose(names["autoencoder"].encode(X).mean, X @ torch.from_numpy(BASIS))
    assert scores(output)["interventional-consistency"] == pytest.approx(1)  # orthonormal


@pytest.mark.filterwarnings("ignore")
def test_scvi_tools(run):
    scvi = pytest.importorskip("scvi", reason="make test-adapters", exc_type=ImportError)
    anndata = pytest.importorskip("anndata")
    draw = np.random.default_rng(0)
    adata = anndata.AnnData(draw.poisson(3, size=(200, 12)).astype(np.float32))
    adata.obs["batch"] = draw.integers(0, 2, 200).astype(str)
    scvi.model.SCVI.setup_anndata(adata, batch_key="batch")
    theirs = scvi.model.SCVI(adata, n_latent=3, n_hidden=16)
    theirs.train(max_epochs=2, accelerator="cpu", enable_progress_bar=False)
    theirs.save("my_model")
    names, output = run("scvi-tools", {"adata": adata})
    assert scores(output)["latent-divergence"] > 0
    assert scores(output)["mig"] < 0.1  # the batch was drawn at random
    one = zs.load(zs.adapters.from_scvi(names["model"], batch=0))  # named below the block
    assert one.decode(torch.zeros(2, 3)).shape == (2, 12)


def test_jax(run):
    pytest.importorskip("jax", reason="needs jax: make test-adapters")

    class Linear:
        """A layer as those of Flax: no weights inside."""

        def apply(self, weights, x):
            return x @ weights

    names = {
        "encoder": Linear(),
        "decoder": Linear(),
        "weights": {"encoder": BASIS, "decoder": BASIS.T},
        "x": X.numpy(),
    }
    _, output = run("JAX", names)
    assert scores(output)["interventional-consistency"] == pytest.approx(1)
    assert "central differences" in output


@pytest.mark.filterwarnings("ignore")
def test_keras(run, monkeypatch):
    if "keras" not in sys.modules:
        monkeypatch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "jax"))
    keras = pytest.importorskip("keras", reason="needs keras: make test-adapters")
    start = keras.Input((6,))
    mean, log_variance = keras.layers.Dense(3)(start), keras.layers.Dense(3)(start)
    encoder = keras.Model(start, [mean, log_variance, mean])
    decoder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(6)])
    encoder.save("encoder.keras")
    decoder.save("decoder.keras")
    names, output = run("Keras", {"x": X.numpy()})
    expected = np.asarray(encoder(X.numpy())[0])
    assert np.allclose(names["autoencoder"].encode(X).mean.numpy(), expected, atol=1e-6)
    assert names["autoencoder"].prior == "normal"
    assert scores(output)["latent-divergence"] > 0

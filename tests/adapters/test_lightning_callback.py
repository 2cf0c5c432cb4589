"""The Lightning callback: what it logs while a model is trained."""

import math

import pytest
import torch
from torch import nn

import zscope as zs
from zscope.errors import ConfigError

pl = pytest.importorskip("lightning.pytorch")

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))


def module():
    class Model(pl.LightningModule):
        """A variational autoencoder whose third latent is noise by construction."""

        def __init__(self):
            super().__init__()
            self.into, self.back = nn.Linear(4, 3), nn.Linear(3, 4)

        def encode(self, x):
            kept = torch.tensor([1.0, 1.0, 0.0])
            return self.into(x) * kept, torch.tensor([-6.0, -6.0, 0.0]).expand(len(x), 3)

        def decode(self, z):
            return self.back(z)

        def training_step(self, batch, _):
            return (self.decode(self.encode(batch)[0]) - batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 1e-2)

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Model()


def fit(tmp_path, monitor):
    """The trainer and the model after two epochs."""
    model = module()
    with torch.random.fork_rng():
        trainer = pl.Trainer(
            max_epochs=2,
            callbacks=[monitor],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            default_root_dir=tmp_path,
        )
        trainer.fit(model, torch.utils.data.DataLoader(X, batch_size=32))
    return trainer, model


@pytest.mark.filterwarnings("ignore")
def test_the_values_of_a_monitor_are_logged_after_each_epoch(tmp_path):
    monitor = zs.adapters.LatentMonitor(X, responses=32)
    trainer, model = fit(tmp_path, monitor)
    assert [row["epoch"] for row in monitor.history] == [0, 1]
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert logged["latents/active"] == 2
    assert logged["latents/passive"] == 1
    assert logged["latents/variance"] == pytest.approx(1 + 2 * math.exp(-6), rel=1e-4)
    assert logged["response/2"] == 0
    assert model.training
    # The same as a monitor of one's own, for the weights at the end.
    own = zs.Monitor(model, X, responses=32).measure()
    assert monitor.history[-1] == {"epoch": 1, **own}
    assert logged == pytest.approx(own, rel=1e-6)  # in single precision


@pytest.mark.filterwarnings("ignore")
def test_the_callback_measures_some_epochs_under_names_of_ones_own(tmp_path):
    monitor = zs.adapters.LatentMonitor(X, every=2, prefix="z/", build=zs.load)
    trainer, _ = fit(tmp_path, monitor)
    assert [row["epoch"] for row in monitor.history] == [1]
    assert "z/kl/total" in trainer.callback_metrics
    with pytest.raises(ConfigError, match="every=0"):
        zs.adapters.LatentMonitor(X, every=0)

"""Lightning: a callback that monitors the latents of a model during training.

    Trainer(callbacks=[zs.adapters.LatentMonitor(x_validation)])

After every epoch it encodes some data and logs how many latents are active, mixed and
passive, the sum of their mean posterior variances (for variational models), how many
latents are causal, and the response of each latent to a change of itself (the diagonal of
the relative response matrix; conditional models have none). The numbers are those of
`zs.assay` on the same data with the same seed and number of samples. It changes neither the
model nor the global random state.
"""

from collections.abc import Callable
from typing import Any

from zscope.adapters import MissingPackage
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError
from zscope.monitor import Monitor

__all__ = ["LatentMonitor"]

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # type: ignore[assignment]
    except ImportError:
        raise MissingPackage("LatentMonitor", "lightning") from None


class LatentMonitor(Monitor, Callback):
    """Logs the state of the latents; `history` is the list of what was logged.

    `data` is an array, a tensor or a Dataset. `build` makes an Autoencoder of the
    LightningModule, by default as `zs.load` does: from its encode and decode, or its encoder
    and decoder.
    """

    def __init__(
        self,
        data: Any,
        *,
        every: int = 1,
        samples: int = 1000,
        responses: int = 256,
        seed: int = 0,
        prefix: str = "latents/",
        build: Callable[[Any], Autoencoder] | None = None,
    ) -> None:
        super().__init__(data, samples=samples, responses=responses, seed=seed, build=build)
        if every < 1:
            raise ConfigError(f"LatentMonitor: every={every} epochs; expected at least 1.")
        self.every, self.prefix = every, prefix
        self.history: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if (trainer.current_epoch + 1) % self.every or not trainer.is_global_zero:
            return
        values = self.measure(pl_module)
        self.history.append({"epoch": trainer.current_epoch, **values})
        prefixed = {f"{self.prefix}{key}": value for key, value in values.items()}
        pl_module.log_dict(prefixed, rank_zero_only=True)

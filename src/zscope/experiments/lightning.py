"""Lightning: a callback that monitors the latents of a model during training.

    Trainer(callbacks=[zs.adapters.LatentMonitor(x_validation)])

After every epoch it logs what `zs.Monitor` measures: how many latents are active, mixed and
passive, their KL, the response of each to a change of itself, the explained variance and the
share of the prior in holes. The numbers are those of `zs.assay` on the same data with the same
seed and number of samples. It changes neither the model nor the global random state.
"""

from collections.abc import Callable
from typing import Any

from zscope.adapters import MissingPackage
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError
from zscope.loading import load
from zscope.monitor import Monitor

__all__ = ["LatentMonitor"]

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # type: ignore[assignment]
    except ImportError:
        raise MissingPackage("LatentMonitor", "lightning") from None


class LatentMonitor(Callback):
    """Logs the state of the latents after every `every`th epoch, under names that `prefix` begins.

    `data`, `samples`, `responses` and `seed` are those of `zs.Monitor`, which is `monitor` from
    the first measurement on; `history` is the list of what was logged, a dict for each epoch.
    `build` makes an Autoencoder of the LightningModule, by default as `zs.load` does: from its
    encode and decode, or its encoder and decoder.
    """

    def __init__(
        self,
        data: Any,
        *,
        every: int = 1,
        samples: int = 512,
        responses: int | None = None,
        seed: int = 0,
        prefix: str = "",
        build: Callable[[Any], Autoencoder] | None = None,
    ) -> None:
        super().__init__()
        if every < 1:
            raise ConfigError(f"LatentMonitor: every={every} epochs; expected at least 1.")
        self.data, self.every, self.prefix, self.build = data, every, prefix, build
        self._options: dict[str, Any] = {"samples": samples, "responses": responses, "seed": seed}
        self.monitor: Monitor | None = None
        self.history: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if (trainer.current_epoch + 1) % self.every or not trainer.is_global_zero:
            return
        if self.monitor is None:
            autoencoder = (self.build or load)(pl_module)
            self.monitor = Monitor(autoencoder, self.data, **self._options)
        values = self.monitor.measure()
        self.history.append({"epoch": trainer.current_epoch, **values})
        prefixed = {f"{self.prefix}{name}": value for name, value in values.items()}
        pl_module.log_dict(prefixed, rank_zero_only=True)

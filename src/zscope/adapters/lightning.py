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
from zscope.assays.regime.types import variable_types
from zscope.assays.responses.matrix import response_matrix
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError
from zscope.recording import record
from zscope.training.monitor import counts

__all__ = ["LatentMonitor"]

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # type: ignore[assignment]
    except ImportError:
        raise MissingPackage("LatentMonitor", "lightning") from None


class LatentMonitor(Callback):
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
        super().__init__()
        if every < 1:
            raise ConfigError(f"LatentMonitor: every={every} epochs; expected at least 1.")
        self.data, self.every, self.samples = data, every, samples
        self.responses, self.seed, self.prefix, self.build = responses, seed, prefix, build
        self.history: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if (trainer.current_epoch + 1) % self.every or not trainer.is_global_zero:
            return
        values = self.measure(pl_module)
        self.history.append({"epoch": trainer.current_epoch, **values})
        prefixed = {f"{self.prefix}{key}": value for key, value in values.items()}
        pl_module.log_dict(prefixed, rank_zero_only=True)

    def measure(self, module: Any) -> dict[str, float]:
        """The values to log for a module in its present state."""
        from zscope.loading import load

        autoencoder = (self.build or load)(module)
        recording = record(autoencoder, self.data, samples=self.samples, seed=self.seed)
        values: dict[str, float] = {}
        if not recording.posterior.deterministic:
            values |= {
                key: float(value) for key, value in counts(variable_types(recording)).items()
            }
        if autoencoder.needs_auxiliary:  # it cannot encode what it decodes
            return values
        matrix = response_matrix(recording, samples=self.responses)
        values["causal"] = float(len(matrix.causal))
        diagonal = matrix.relative.diagonal().tolist()
        return values | {f"response/{latent}": value for latent, value in enumerate(diagonal)}

"""Lightning: a callback that watches the latents of a model while it is trained.

    Trainer(callbacks=[zs.adapters.LatentMonitor(x_validation)])

After every epoch it encodes some data and logs how many latents are active, mixed and
passive, the sum of their mean posterior variances (for variational models), how many
latents are causal, and how much of a change made to each comes back (the diagonal of the
relative response matrix). It changes neither the model nor the global random state.
"""

from collections.abc import Callable
from typing import Any

import torch

from zscope.adapters import MissingPackage
from zscope.assays.responses.matrix import response_matrix
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError
from zscope.recording import record
from zscope.training.monitor import regime

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # type: ignore[assignment]
    except ImportError:
        raise MissingPackage("LatentMonitor", "lightning") from None


class LatentMonitor(Callback):
    """Logs the state of the latents; `history` keeps what was logged, one dict each time.

    `data` is an array, a tensor or a Dataset. `build` makes an Autoencoder of the
    LightningModule, by default as `zs.load` does: of its encode and decode, or its encoder
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
            raise ConfigError(f"LatentMonitor: every={every} epochs; at least 1 is needed.")
        self.data, self.every, self.samples = data, every, samples
        self.responses, self.seed, self.prefix, self.build = responses, seed, prefix, build
        self.history: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if (trainer.current_epoch + 1) % self.every or not trainer.is_global_zero:
            return
        found = self.measure(pl_module)
        self.history.append({"epoch": trainer.current_epoch, **found})
        named = {f"{self.prefix}{key}": value for key, value in found.items()}
        pl_module.log_dict(named, rank_zero_only=True)

    def measure(self, module: Any) -> dict[str, float]:
        """The numbers that are logged, of a module as it is."""
        from zscope.loading import load

        autoencoder = (self.build or load)(module)
        recording = record(autoencoder, self.data, samples=self.samples, seed=self.seed)
        found: dict[str, float] = {}
        if not recording.posterior.deterministic:
            counts = regime(recording.posterior.variance)
            found |= {key: float(value) for key, value in counts.items()}
        matrix = response_matrix(
            autoencoder,
            recording.posterior,
            samples=self.responses,
            generator=torch.Generator().manual_seed(self.seed),
        )
        found["causal"] = float(len(matrix.causal))
        diagonal = matrix.relative.diagonal().tolist()
        return found | {f"response/{latent}": value for latent, value in enumerate(diagonal)}

"""The latents during training: a few cheap measurements for any training loop.

`regime` takes the posterior variances of a batch; `zs.train` writes it into every row of the
history. `Monitor` takes a model, which it encodes some data with:

    monitor = Monitor(x_validation)
    monitor.measure(model)
"""

from collections.abc import Callable
from typing import Any

from zscope.assays.regime.types import VariableTypes, variable_types
from zscope.assays.responses.matrix import response_matrix
from zscope.autoencoder import Autoencoder
from zscope.loading import load
from zscope.recording import record
from zscope.types import Codes

__all__ = ["Monitor", "regime"]


def regime(variances: Codes) -> dict[str, Any]:
    """Counts of latents by type, and the sum of their mean variances, over one batch.

    Of latents that are maps, `zs.train` gives the places as rows and the channels as columns.
    """
    return counts(variable_types(variances))


def counts(types: VariableTypes) -> dict[str, Any]:
    """How many latents are of each type, and the sum of their mean variances.

    `variance` is FONDUE's criterion (Bonheme 2023, section 8.1): near 0 when every latent
    is active, near the number of latents when all are passive.
    """
    return {
        "active": len(types.active),
        "mixed": len(types.mixed),
        "passive": len(types.passive),
        "variance": float(types.mean_variance.sum()),
    }


class Monitor:
    """Counts of latents by type, causal latents, and the response of each latent to itself.

    `data` is an array, a tensor or a Dataset. `build` makes an Autoencoder of the model, by
    default as `zs.load` does. The numbers are those of `zs.assay` on the same data with the
    same seed and number of samples; neither the model nor the global random state changes.
    """

    def __init__(
        self,
        data: Any,
        *,
        samples: int = 1000,
        responses: int = 256,
        seed: int = 0,
        build: Callable[[Any], Autoencoder] | None = None,
    ) -> None:
        self.data, self.samples, self.responses = data, samples, responses
        self.seed, self.build = seed, build

    def measure(self, model: Any) -> dict[str, float]:
        """The values for a model in its present state.

        Deterministic models have no types of latents, and conditional ones no responses: they
        cannot encode what they decode.
        """
        autoencoder = (self.build or load)(model)
        recording = record(autoencoder, self.data, samples=self.samples, seed=self.seed)
        values: dict[str, float] = {}
        if not recording.posterior.deterministic:
            values |= {
                key: float(value) for key, value in counts(variable_types(recording)).items()
            }
        if autoencoder.needs_auxiliary:
            return values
        matrix = response_matrix(recording, samples=self.responses)
        values["causal"] = float(len(matrix.causal))
        diagonal = matrix.relative.diagonal().tolist()
        return values | {f"response/{latent}": value for latent, value in enumerate(diagonal)}

"""scvi-tools: variational autoencoders of single-cell counts.

The input are counts; the output is the expected count of each gene, without dropouts, at
the same library size for all cells: the geometric mean of those the model was set up with.
All cells are assumed to be of the first batch, without further covariates.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import InterfaceError
from zscope.wrapping import wrap

__all__ = ["from_scvi"]


def from_scvi(model: Any) -> Autoencoder:
    """A model of scvi-tools with a Gaussian posterior, such as SCVI."""
    module: Any = getattr(model, "module", None)
    if not all(callable(getattr(module, name, None)) for name in ("inference", "generative")):
        raise InterfaceError(
            f"from_scvi: a {type(model).__name__} has no module with inference and generative. "
            "Give the model itself, for instance scvi.model.SCVI(adata)."
        )
    totals = np.asarray(model.adata.X.sum(axis=1)).ravel()
    size = float(np.log(np.maximum(totals, 1)).mean())
    autoencoder = wrap(_Encoder(module), _Decoder(module, size))
    autoencoder.name = type(model).__name__
    return autoencoder


class _Encoder(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module: Any = module

    def forward(self, x: Tensor) -> Posterior:
        # It also draws a code, which is not used: the global random state is restored.
        # Rounding may leave a decoded count slightly below 0, where log(1 + x) is undefined.
        with torch.random.fork_rng(devices=[]):
            posterior = self.module.inference(x.clamp_min(0), batch_index=_first_batch(x))["qz"]
        return Posterior(posterior.loc, posterior.scale)


class _Decoder(nn.Module):
    def __init__(self, module: nn.Module, size: float) -> None:
        super().__init__()
        self.module: Any = module
        self.size = size

    def forward(self, z: Tensor) -> Tensor:
        library = z.new_full((len(z), 1), self.size)
        law = self.module.generative(z=z, library=library, batch_index=_first_batch(z))["px"]
        # `mu` is without dropouts; likelihoods without dropouts have only the mean.
        x: Tensor = law.mu if hasattr(law, "mu") else law.mean
        return x


def _first_batch(like: Tensor) -> Tensor:
    return torch.zeros(len(like), 1, device=like.device)

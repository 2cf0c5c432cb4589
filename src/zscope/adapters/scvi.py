"""scvi-tools: variational autoencoders of single-cell counts.

Counts go in; what comes out is the expected count of each gene at one library size for
all cells, the geometric mean of those the model was set up with, and without
dropouts. Cells are taken to be of the first batch, with no further covariates.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import InterfaceError
from zscope.wrapping import wrap


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
        # It draws a code as well, which is not used: the global random state is put back.
        # Rounding may leave a decoded count a little below 0, where log(1 + x) has no value.
        with torch.random.fork_rng(devices=[]):
            law = self.module.inference(x.clamp_min(0), batch_index=_first_batch(x))["qz"]
        return Posterior(law.loc, law.scale)


class _Decoder(nn.Module):
    def __init__(self, module: nn.Module, size: float) -> None:
        super().__init__()
        self.module: Any = module
        self.size = size

    def forward(self, z: Tensor) -> Tensor:
        library = z.new_full((len(z), 1), self.size)
        found = self.module.generative(z=z, library=library, batch_index=_first_batch(z))["px"]
        # `mu` leaves dropouts out, `rate` is what other likelihoods call it.
        return found.mu if hasattr(found, "mu") else found.mean


def _first_batch(like: Tensor) -> Tensor:
    return torch.zeros(len(like), 1, device=like.device)

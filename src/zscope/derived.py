"""A model made of another one: it shares weights, prior and place with it."""

import torch
from jaxtyping import Float
from torch import Tensor

from zscope.autoencoder import Autoencoder, Posterior, Prior
from zscope.errors import InterfaceError
from zscope.types import Codes


class Derived(Autoencoder):
    """Another view of `original`; what it decodes is the original's at `seen(z)`."""

    def __init__(self, original: Autoencoder, latents: int) -> None:
        super().__init__()
        self.original, self.latents = original, latents
        likelihood = getattr(original, "likelihood", None)
        if likelihood is not None:
            self.likelihood = likelihood
        if hasattr(original, "output"):
            self.output = self._output  # what the likelihood reads
        self.needs_auxiliary = getattr(original, "needs_auxiliary", False)

    def seen(self, z: Float[Tensor, "samples own"]) -> Codes:
        """The codes that the original's decoder gets for these."""
        raise InterfaceError(f"{type(self).__name__}: a derived model must define seen(z).")

    @property
    def prior(self) -> Prior:  # type: ignore[override]
        return self.original.prior

    @property
    def place(self) -> tuple[torch.device, torch.dtype]:
        return self.original.place

    def decode(self, z: Codes) -> Tensor:
        return self.original.decode(self.seen(z))

    def _encoded(self, x: Tensor, auxiliary: Tensor | None) -> Posterior:
        return self.original.encode(x) if auxiliary is None else self.original.encode(x, auxiliary)

    def _output(self, z: Codes) -> Tensor:
        return self.original.output(self.seen(z))  # type: ignore[operator]

"""AE: an autoencoder without noise and without a prior.

    loss = -log p(x | z),      z = encoder(x)

Nothing is asked of the codes but that the observation can be had back, so any invertible
change of the latents that the networks can express leaves the loss as it is. With linear
networks and squared error the latents span the first principal directions, in no
particular basis. Rumelhart, Hinton & Williams, Nature 323, 1986; Baldi & Hornik, Neural
Networks 2, 1989.
"""

from typing import Any

from torch import Tensor, nn

from zscope.autoencoder import Autoencoder, Posterior
from zscope.models.entry import Entry
from zscope.models.objectives import Likelihood, Losses, check_observations
from zscope.randomness import Source
from zscope.types import Codes


class AE(Autoencoder):
    """`encoder` gives the latents of an observation, `decoder` what `likelihood` reads."""

    prior = None
    recipe: dict[str, Any] | None = None

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        shape: tuple[int, ...],
        latents: int,
        likelihood: Likelihood,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.likelihood = encoder, decoder, likelihood
        self.observation_shape, self.latents = shape, latents

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        return Posterior(self.encoder(x).to(x.dtype))

    def decode(self, z: Codes) -> Tensor:
        return self.likelihood.mean(self.decoder(z))

    def losses(self, x: Tensor, generator: Source = None) -> Losses:
        reconstruction = self.likelihood.nll(self.decoder(self.encode(x).mean), x).mean()
        return Losses(reconstruction, {"reconstruction": reconstruction})

    def check_observations(self, x: Tensor) -> None:
        check_observations(x, self.observation_shape, self.likelihood)


ENTRY = Entry(
    name="ae",
    title="AE: an autoencoder without noise and without a prior",
    formula="-log p(x | z), z = encoder(x)",
    paper="Rumelhart, Hinton & Williams, Nature 323, 1986",
    summary=__doc__ or "",
    model=AE,
    outputs=lambda latents: latents,
    options={},
)

"""VAE: an autoencoder with a noisy code, paid for by its divergence from a prior.

    loss = E_q[ -log p(x | z) ] + KL( q(z | x) || N(0, I) )

an upper bound of -log p(x), the negative ELBO. q(z | x) is a Gaussian with a mean and a
variance for each latent; the expectation is estimated with one draw z = mean + std * noise
for each observation. Kingma & Welling, ICLR 2014, arXiv:1312.6114, eq. 10.
"""

from typing import Any

from torch import Tensor, nn

from zscope.autoencoder import Autoencoder, Posterior
from zscope.models.entry import Entry
from zscope.models.objectives import (
    Likelihood,
    Losses,
    check_observations,
    gaussian_posterior,
    kl_to_standard_normal,
)
from zscope.randomness import Source
from zscope.types import Codes


class VAE(Autoencoder):
    """`encoder` gives the means, then the log-variances; `decoder` what `likelihood` reads."""

    prior = "normal"
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
        return gaussian_posterior(self.encoder(x), x)

    def decode(self, z: Codes) -> Tensor:
        return self.likelihood.mean(self.decoder(z))

    def losses(self, x: Tensor, generator: Source = None) -> Losses:
        posterior = self.encode(x)
        output = self.decoder(posterior.sample(generator))
        reconstruction = self.likelihood.nll(output, x).mean()
        divergence = kl_to_standard_normal(posterior).mean()
        terms = {"reconstruction": reconstruction, "divergence": divergence}
        return Losses(reconstruction + divergence, terms, posterior)

    def check_observations(self, x: Tensor) -> None:
        check_observations(x, self.observation_shape, self.likelihood)


ENTRY = Entry(
    name="vae",
    title="VAE: an autoencoder with a noisy code, paid for by its divergence from a prior",
    formula="E_q[-log p(x | z)] + KL(q(z | x) || N(0, I))",
    paper="Kingma & Welling, ICLR 2014, arXiv:1312.6114, eq. 10",
    summary=__doc__ or "",
    model=VAE,
    outputs=lambda latents: 2 * latents,
    options={},
)

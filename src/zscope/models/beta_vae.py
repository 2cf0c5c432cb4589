"""β-VAE: a VAE that pays β times the usual price for information.

    loss = E_q[ -log p(x | z) ] + β KL( q(z | x) || N(0, I) )

Both terms are summed over dimensions and averaged over samples, so β = 1 is the VAE
whatever the size of the picture. Published values of β are for Bernoulli pixels; with
`mse` or `gaussian` the balance is β γ against the variances of the data, and a latent that
explains less than β γ is not used (γ = 1/2 for `mse`). Higgins et al., ICLR 2017,
openreview:Sy2fzU9gl, eq. 4.
"""

from typing import Any

from torch import Tensor, nn

from zscope.autoencoder import Autoencoder, Posterior
from zscope.models.entry import Entry, Option, not_negative
from zscope.models.objectives import (
    Likelihood,
    Losses,
    check_observations,
    gaussian_posterior,
    kl_to_standard_normal,
)
from zscope.randomness import Source
from zscope.types import Codes


class BetaVAE(Autoencoder):
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
        beta: float = 4.0,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.likelihood = encoder, decoder, likelihood
        self.observation_shape, self.latents, self.beta = shape, latents, beta

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
        return Losses(reconstruction + self.beta * divergence, terms, posterior)

    def check_observations(self, x: Tensor) -> None:
        check_observations(x, self.observation_shape, self.likelihood)


ENTRY = Entry(
    name="beta-vae",
    title="β-VAE: a VAE that pays β times the usual price for information",
    formula="E_q[-log p(x | z)] + β KL(q(z | x) || N(0, I))",
    paper="Higgins et al., ICLR 2017, openreview:Sy2fzU9gl, eq. 4",
    summary=__doc__ or "",
    model=BetaVAE,
    outputs=lambda latents: 2 * latents,
    options={"beta": Option(4.0, "Weight of the divergence; 1 is the VAE.", not_negative)},
)

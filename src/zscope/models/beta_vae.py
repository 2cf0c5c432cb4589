"""β-VAE: a VAE whose loss weights the divergence from the prior by β.

    loss = E_q[ -log p(x | z) ] + β KL( q(z | x) || N(0, I) )

Both terms are summed over dimensions and averaged over samples, so β = 1 is the VAE
whatever the size of the picture. Published values of β are for Bernoulli pixels; with
`mse` or `gaussian`, β γ competes with the variances of the data, and a latent that explains
less variance than β γ is not used (γ = 1/2 for `mse`). Higgins et al., ICLR 2017,
openreview:Sy2fzU9gl, eq. 4.
"""

from zscope.autoencoder import Losses
from zscope.models.composed import Batch
from zscope.models.entry import Entry, Option, not_negative
from zscope.models.objectives import kl_to_standard_normal
from zscope.models.vae import POINT
from zscope.types import Number

__all__ = ["BETA", "beta_vae"]


def beta_vae(batch: Batch, *, beta: Number) -> Losses:
    reconstruction, divergence = batch.reconstruction, kl_to_standard_normal(batch.posterior).mean()
    terms = {"reconstruction": reconstruction, "divergence": divergence}
    return Losses(reconstruction + beta * divergence, terms, batch.posterior)


BETA = Option(4.0, "Weight of the divergence; 1 is the VAE.", not_negative)

ENTRY = Entry(
    name="beta-vae",
    title="β-VAE: a VAE whose loss weights the divergence from the prior by β",
    formula="E_q[-log p(x | z)] + β KL(q(z | x) || N(0, I))",
    paper="Higgins et al., ICLR 2017, openreview:Sy2fzU9gl, eq. 4",
    summary=__doc__ or "",
    objective=beta_vae,
    divergence_weight="beta",
    refuses={"point": POINT},
    options={"beta": BETA},
)

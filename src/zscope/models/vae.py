"""VAE: an autoencoder with noisy codes and a penalty on their divergence from a prior.

    loss = E_q[ -log p(x | z) ] + KL( q(z | x) || N(0, I) )

an upper bound of -log p(x), the negative ELBO. q(z | x) is a Gaussian with a mean and a
variance for each latent; the expectation is estimated with one draw z = mean + std * noise
for each observation. Kingma & Welling, ICLR 2014, arXiv:1312.6114, eq. 10.
"""

from zscope.autoencoder import Losses
from zscope.models.composed import Batch
from zscope.models.entry import Entry
from zscope.models.objectives import kl_to_standard_normal

__all__ = ["POINT", "vae"]


def vae(batch: Batch) -> Losses:
    reconstruction, divergence = batch.reconstruction, kl_to_standard_normal(batch.posterior).mean()
    terms = {"reconstruction": reconstruction, "divergence": divergence}
    return Losses(reconstruction + divergence, terms, batch.posterior)


POINT = "the divergence of a deterministic code from the prior is infinite"

ENTRY = Entry(
    name="vae",
    title="VAE: an autoencoder with noisy codes and a penalty on their divergence from a prior",
    formula="E_q[-log p(x | z)] + KL(q(z | x) || N(0, I))",
    paper="Kingma & Welling, ICLR 2014, arXiv:1312.6114, eq. 10",
    summary=__doc__ or "",
    objective=vae,
    divergence_weight=1.0,
    refuses={"point": POINT},
    options={},
)

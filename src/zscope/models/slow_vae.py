"""SlowVAE: a VAE for pairs of neighbouring observations that differ in few latents.

    loss = sum over both of E_q[ -log p(x | z) ]  +  β mean over both of KL( q || N(0, I) )
         + s [ KL( q(z_1) || Laplace(μ_2, r) ) + KL( q(z_2) || Laplace(μ_1, r) ) ]

The Laplace density r/2 exp(-r |z - μ|) around the mean of the partner allows a few latents
to differ much and penalises all other changes. Its divergence from a Gaussian with standard
deviation σ at distance δ is, for each latent,

    r ( σ sqrt(2/π) exp(-δ²/2σ²) + δ erf(δ / (σ sqrt 2)) ) + log(2/r) - 1/2 log(2πe σ²)

Pairs come from the data: neighbours in the grid of factors, or consecutive rows. Klindt et
al., ICLR 2021, arXiv:2007.10930, eq. 7 and appendix; s = 10, r = 6 there. (The authors'
program subtracts the entropy of q once for both directions; here each direction is a
divergence.)
"""

import math

import torch

from zscope.autoencoder import Losses, Posterior
from zscope.errors import InterfaceError
from zscope.models.composed import Batch
from zscope.models.entry import Entry, Option, not_negative, positive
from zscope.models.objectives import kl_to_standard_normal, logarithm
from zscope.models.vae import POINT
from zscope.types import Codes, Number, PerSample

__all__ = ["kl_to_laplace", "partner_of", "slow_vae"]


def slow_vae(batch: Batch, *, beta: Number, slowness: Number, laplace_rate: Number) -> Losses:
    first, second = batch.x, partner_of(batch, "slow-vae")
    both = torch.cat([first, second])
    posterior = batch.model.encode(both)
    output = batch.output(posterior.sample(batch.generator))
    reconstruction = 2 * batch.nll(output, both).mean()
    divergence = kl_to_standard_normal(posterior).mean()
    swapped = torch.cat([posterior.mean[len(first) :], posterior.mean[: len(first)]])
    change = 2 * kl_to_laplace(posterior, swapped, laplace_rate).mean()
    terms = {"reconstruction": reconstruction, "divergence": divergence, "change": change}
    total = reconstruction + beta * divergence + slowness * change
    return Losses(total, terms, posterior[: len(first)])


def kl_to_laplace(posterior: Posterior, centre: Codes, rate: Number) -> PerSample:
    """KL( N(μ, σ²) || Laplace(centre, rate) ), summed over the latents."""
    assert posterior.std is not None
    std, offset = posterior.std, posterior.mean - centre
    scaled = offset / (std * math.sqrt(2))
    distance = std * math.sqrt(2 / math.pi) * (-scaled.square()).exp() + offset * scaled.erf()
    entropy = std.log() + 0.5 * math.log(2 * math.pi * math.e)
    return (rate * distance + logarithm(2 / rate) - entropy).sum(1)


def partner_of(batch: Batch, who: str) -> torch.Tensor:
    if batch.partner is None:
        raise InterfaceError(
            f"{who}: the loss is defined for pairs, and no partners were given. zs.train takes "
            "them from the data; otherwise: model.losses(x, partner=neighbours_of_x)."
        )
    return batch.partner


ENTRY = Entry(
    name="slow-vae",
    title="SlowVAE: a VAE for pairs of neighbouring observations that differ in few latents",
    formula="2 E_q[-log p(x | z)] + β KL + s (KL(q || Laplace around the partner), both ways)",
    paper="Klindt et al., ICLR 2021, arXiv:2007.10930",
    summary=__doc__ or "",
    objective=slow_vae,
    refuses={
        "point": POINT,
        "full": "the divergence from a Laplace density is defined for each latent alone",
    },
    needs=frozenset({"partner"}),
    options={
        "beta": Option(1.0, "Weight of the divergence from N(0, I).", not_negative),
        "slowness": Option(10.0, "s, weight of the divergence from the partner.", not_negative),
        "laplace_rate": Option(
            6.0,
            "r, rate of the Laplace density: large values penalise small changes more.",
            positive,
        ),
    },
)

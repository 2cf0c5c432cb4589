"""AVAE: a VAE whose encoder must recognise what its own decoder generates.

    loss = E_q[ -log p(x | z) ] + KL + E_q KL( q(z̃ | g(z)) || N(ρ z, (1 - ρ²) I) )

g(z) is the decoded mean of a drawn code z, and q(z̃ | g(z)) the posterior of that mean.
The last term is 0 exactly when it is N(ρ z, (1 - ρ²) I), a small step from z that leaves
the prior unchanged. It does not train the decoder: g(z) is treated as data. ρ near 1
demands precise recognition. Cemgil et al., "The autoencoding variational autoencoder",
NeurIPS 2020, arXiv:2012.03715.
"""

from typing import Any

from zscope.autoencoder import Losses, Posterior
from zscope.models.composed import Batch
from zscope.models.entry import Entry, Option
from zscope.models.objectives import kl_to_gaussian, kl_to_standard_normal
from zscope.models.vae import POINT
from zscope.types import Codes, Number, Scalar

__all__ = ["avae", "self_consistency"]


def avae(batch: Batch, *, rho: Number) -> Losses:
    code = batch.code
    output = batch.output(code)
    likelihood = batch.model.likelihood
    reconstruction = batch.nll(output, batch.x).mean()
    divergence = kl_to_standard_normal(batch.posterior).mean()
    again = batch.model.encode(likelihood.mean(output).detach())
    recognition = self_consistency(again, code, rho)
    terms = {
        "reconstruction": reconstruction,
        "divergence": divergence,
        "recognition": recognition,
    }
    return Losses(reconstruction + divergence + recognition, terms, batch.posterior)


def self_consistency(again: Posterior, code: Codes, rho: Number) -> Scalar:
    """KL( q(z̃ | g(z)) || N(ρ z, (1 - ρ²) I) ), in nats per sample."""
    return kl_to_gaussian(again, rho * code, 1 - rho**2).mean()


def _correlation(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 1.0
    if isinstance(value, bool) or not -1 < number < 1:
        raise ValueError("expected a correlation between -1 and 1, both excluded")
    return number


ENTRY = Entry(
    name="avae",
    title="AVAE: a VAE whose encoder must recognise what its own decoder generates",
    formula="E_q[-log p(x | z)] + KL + KL(q(z̃ | g(z)) || N(ρ z, (1 - ρ²) I))",
    paper="Cemgil et al., NeurIPS 2020, arXiv:2012.03715",
    summary=__doc__ or "",
    objective=avae,
    refuses={"point": POINT},
    options={"rho": Option(0.975, "ρ, how precise recognition must be.", _correlation)},
)

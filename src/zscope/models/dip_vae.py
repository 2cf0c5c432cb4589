"""DIP-VAE: a VAE with a penalty on the covariance of its codes.

    loss = E_q[ -log p(x | z) ] + KL + λ_od sum_{i≠j} K_ij² + λ_d sum_i (K_ii - 1)²

    DIP-VAE-I     K = Cov[ μ ]                             the means alone
    DIP-VAE-II    K = Cov[ μ ] + mean over x of diag(σ²)   the sampled codes

with the covariance over the batch (divided by its size). The penalty is 0 exactly when K
is the identity. Kumar, Sattigeri & Balakrishnan, ICLR 2018, arXiv:1711.00848, eq. 6 and 7.
"""

import torch

from zscope.autoencoder import Losses, Posterior
from zscope.models.composed import Batch
from zscope.models.entry import Entry, Option, not_negative
from zscope.models.objectives import kl_to_standard_normal
from zscope.models.vae import POINT
from zscope.types import Codes, Matrix, Number, Scalar

__all__ = [
    "FIRST", "SECOND", "aggregate_covariance", "covariance", "covariance_penalty", "dip_vae_i",
    "dip_vae_ii",
]  # fmt: skip


def dip_vae_i(batch: Batch, *, offdiagonal: Number, diagonal: Number) -> Losses:
    penalty = covariance_penalty(covariance(batch.posterior.mean), offdiagonal, diagonal)
    return _with_penalty(batch, penalty)


def dip_vae_ii(batch: Batch, *, offdiagonal: Number, diagonal: Number) -> Losses:
    penalty = covariance_penalty(aggregate_covariance(batch.posterior), offdiagonal, diagonal)
    return _with_penalty(batch, penalty)


def covariance(codes: Codes) -> Matrix:
    """Cov over the rows, divided by their number."""
    centred = codes - codes.mean(0)
    return centred.T @ centred / len(codes)


def aggregate_covariance(posterior: Posterior) -> Matrix:
    """The covariance of a code drawn from the posterior of an observation drawn at random."""
    return covariance(posterior.mean) + torch.diag(posterior.variance.mean(0))


def covariance_penalty(K: Matrix, offdiagonal: Number, diagonal: Number) -> Scalar:
    """λ_od sum_{i≠j} K_ij² + λ_d sum_i (K_ii - 1)²."""
    variances = K.diagonal()
    covariances = K.square().sum() - variances.square().sum()
    return offdiagonal * covariances + diagonal * (variances - 1).square().sum()


def _with_penalty(batch: Batch, penalty: Scalar) -> Losses:
    reconstruction, divergence = batch.reconstruction, kl_to_standard_normal(batch.posterior).mean()
    terms = {"reconstruction": reconstruction, "divergence": divergence, "penalty": penalty}
    return Losses(reconstruction + divergence + penalty, terms, batch.posterior)


FORMULA = "E_q[-log p(x | z)] + KL + λ_od sum_{i≠j} K_ij² + λ_d sum_i (K_ii - 1)²"
PAPER = "Kumar, Sattigeri & Balakrishnan, ICLR 2018, arXiv:1711.00848"
REFUSES = {
    "point": POINT,
    "full": "the penalty uses the variance of each latent alone",
    "maps": "the covariances of hundreds of latents cannot be estimated from batches",
}
OFFDIAGONAL = Option(10.0, "λ_od, weight of the covariances.", not_negative)
DIAGONAL = "λ_d, weight of the variances."

FIRST = Entry(
    name="dip-vae-i",
    title="DIP-VAE-I: a VAE with a penalty on the covariance of its means",
    formula=FORMULA,
    paper=PAPER,
    summary=__doc__ or "",
    objective=dip_vae_i,
    refuses=REFUSES,
    options={
        "offdiagonal": OFFDIAGONAL,
        "diagonal": Option(100.0, DIAGONAL, not_negative),
    },
)
SECOND = Entry(
    name="dip-vae-ii",
    title="DIP-VAE-II: a VAE with a penalty on the covariance of its codes",
    formula=FORMULA,
    paper=PAPER,
    summary=__doc__ or "",
    objective=dip_vae_ii,
    refuses=REFUSES,
    options={
        "offdiagonal": OFFDIAGONAL,
        "diagonal": Option(10.0, DIAGONAL, not_negative),
    },
)

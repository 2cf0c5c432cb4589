"""DIP-VAE: a VAE with a penalty on the covariance of its codes.

    loss = E_q[ -log p(x | z) ] + KL + λ_od sum_{i≠j} K_ij² + λ_d sum_i (K_ii - 1)²

    DIP-VAE-I     K = Cov[ μ ]                             the means alone
    DIP-VAE-II    K = Cov[ μ ] + mean over x of diag(σ²)   the sampled codes

with the covariance over the batch (divided by its size). The penalty is 0 exactly when K
is the identity. Kumar, Sattigeri & Balakrishnan, ICLR 2018, arXiv:1711.00848, eq. 6 and 7.
"""

from collections.abc import Callable

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


def _entry(number: str, of: str, objective: Callable[..., Losses], diagonal: float) -> Entry:
    return Entry(
        name=f"dip-vae-{number.lower()}",
        title=f"DIP-VAE-{number}: a VAE with a penalty on the covariance of its {of}",
        formula="E_q[-log p(x | z)] + KL + λ_od sum_{i≠j} K_ij² + λ_d sum_i (K_ii - 1)²",
        paper="Kumar, Sattigeri & Balakrishnan, ICLR 2018, arXiv:1711.00848",
        summary=__doc__ or "",
        objective=objective,
        refuses={
            "point": POINT,
            "full": "the penalty uses the variance of each latent alone",
            "maps": "the covariances of hundreds of latents cannot be estimated from batches",
        },
        options={
            "offdiagonal": Option(10.0, "λ_od, weight of the covariances.", not_negative),
            "diagonal": Option(diagonal, "λ_d, weight of the variances.", not_negative),
        },
    )


FIRST = _entry("I", "means", dip_vae_i, 100.0)
SECOND = _entry("II", "codes", dip_vae_ii, 10.0)

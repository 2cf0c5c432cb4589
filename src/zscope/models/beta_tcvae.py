"""β-TCVAE: a VAE whose loss weights the dependence between latents by β.

    loss = E_q[ -log p(x | z) ] + KL + (β - 1) TC
    TC   = E_q(z) log q(z) - sum_j log q(z_j),      q(z) = mean over the data of q(z | x)

β = 1 is the VAE. TC is estimated from the M posteriors of a batch, out of N observations:

    weighted     q(z_i) ≈ 1/M sum_k q(z_i | x_k)
    stratified   q(z_i) ≈ 1/N q(z_i | x_i) + (N - 1)/(N (M - 1)) sum_{k not i} q(z_i | x_k)

and the same for each latent. The stratified weights make the density unbiased: its mean
over all batches that contain x_i is q(z_i). (Chen et al. give the weight (N - M + 1) /
(N (M - 1)) to one neighbour and 1/(M - 1) to the rest, which has the same mean and a larger
variance.) The weighted form is theirs without the constant factor 1/N, which has no gradient
and would add (latents - 1) log N to TC.

The logarithm of an unbiased estimate is biased. Both are accurate only where posteriors
overlap: with two latents and posterior standard deviations above .6, within a few
hundredths; with precise posteriors, or many latents, the posterior of x_i itself outweighs
all others and the estimate is near (latents - 1) log(1/M) or worse. Use them for training,
and `total_correlation` or FactorVAE's discriminator for reporting.

Chen et al., NeurIPS 2018, arXiv:1802.04942, eq. 2, 4 and appendix C.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from zscope.autoencoder import Losses, Posterior
from zscope.errors import ConfigError
from zscope.models.composed import Batch
from zscope.models.entry import Entry, Option, not_negative, one_of
from zscope.models.objectives import kl_to_standard_normal
from zscope.models.vae import POINT
from zscope.types import Codes, Number, Scalar

__all__ = ["beta_tcvae", "log_densities", "stratified_weights", "total_correlation"]


def beta_tcvae(batch: Batch, *, beta: Number, estimator: str) -> Losses:
    reconstruction, divergence = batch.reconstruction, kl_to_standard_normal(batch.posterior).mean()
    dependence = total_correlation(
        batch.code, batch.posterior, estimator=estimator, samples=batch.samples
    )
    terms = {
        "reconstruction": reconstruction,
        "divergence": divergence,
        "total_correlation": dependence,
    }
    total = reconstruction + divergence + (beta - 1) * dependence
    return Losses(total, terms, batch.posterior)


def total_correlation(
    z: Codes, posterior: Posterior, *, estimator: str = "weighted", samples: int | None = None
) -> Scalar:
    """TC of the average posterior, from draws `z` of the posteriors of a batch.

    `samples` is N, the size of the whole data, which the stratified estimator needs.
    """
    log_weights: Tensor | float = -math.log(len(z))
    if estimator == "stratified":
        if samples is None:
            raise ConfigError(
                "beta-tcvae: the stratified estimator needs samples=, the number of observations "
                "in the whole data. zs.train passes it; otherwise: model.losses(x, samples=N)."
            )
        weights = stratified_weights(len(z), samples)
        log_weights = weights.log().to(z.device, z.dtype).unsqueeze(-1)
    density = log_densities(z, posterior)
    joint = (density.sum(2, keepdim=True) + log_weights).logsumexp(1).squeeze(-1)
    marginals = (density + log_weights).logsumexp(1).sum(1)
    return (joint - marginals).mean()


def log_densities(z: Codes, posterior: Posterior) -> Float[Tensor, "draws posteriors latents"]:
    """log q(z_ij | x_k) of every draw i under every posterior k, for each latent j."""
    assert posterior.std is not None
    distance = (z.unsqueeze(1) - posterior.mean) / posterior.std
    return -0.5 * distance.square() - posterior.std.log() - 0.5 * math.log(2 * math.pi)


def stratified_weights(batch: int, samples: int) -> Float[Tensor, "draws posteriors"]:
    """The weight of each posterior of a batch in the density of each draw; rows add up to 1."""
    if not 1 < batch <= samples:
        raise ConfigError(
            f"beta-tcvae: the batch has {batch} of {samples} observations; the stratified "
            "estimator needs at least 2, and at most all of them. Use another batch size."
        )
    other = (samples - 1) / (samples * (batch - 1))
    weights = torch.full((batch, batch), other, dtype=torch.float64)
    return weights.fill_diagonal_(1 / samples)


ENTRY = Entry(
    name="beta-tcvae",
    title="β-TCVAE: a VAE whose loss weights the dependence between latents by β",
    formula="E_q[-log p(x | z)] + KL + (β - 1) TC(q(z))",
    paper="Chen et al., NeurIPS 2018, arXiv:1802.04942, eq. 4",
    summary=__doc__ or "",
    objective=beta_tcvae,
    refuses={
        "point": POINT,
        "full": "the estimate of TC needs the density of each latent alone",
        "maps": "the total correlation of hundreds of latents cannot be estimated from batches",
    },
    needs=frozenset({"samples"}),
    options={
        "beta": Option(6.0, "Weight of the total correlation; 1 is the VAE.", not_negative),
        "estimator": Option(
            "weighted",
            "How TC is estimated: weighted or stratified.",
            one_of(["weighted", "stratified"]),
        ),
    },
)

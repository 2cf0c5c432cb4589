"""WAE: an autoencoder with a penalty on how far its codes as a whole are from the prior.

    loss = -log p(x | z) + λ MMD²( codes, N(0, I) ),      z = encoder(x)

    MMD² = E k(z, z') + E k(n, n') - 2 E k(z, n),   n ~ N(0, I)
    k(a, b) = sum_s C_s / (C_s + ||a - b||²),       C_s = 2 d s,  s in {.1, .2, .5, 1, 2, 5, 10}

estimated from the batch and as many draws of the prior, without bias (pairs of a code
with itself are left out), so it can be slightly negative. Only the distribution of the
codes is penalised, not single codes. The encoder is deterministic; `posterior=gaussian`
gives the random one of the paper. Tolstikhin et al., ICLR 2018, arXiv:1711.01558, algorithm 2.
"""

import torch

from zscope.autoencoder import Losses
from zscope.errors import ConfigError
from zscope.models.composed import Batch
from zscope.models.entry import Entry, Option, not_negative
from zscope.randomness import normal
from zscope.types import Codes, Number, Scalar

__all__ = ["SCALES", "mmd", "wae"]

SCALES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def wae(batch: Batch, *, weight: Number) -> Losses:
    reconstruction, codes = batch.reconstruction, batch.code
    discrepancy = mmd(codes, normal(codes, batch.generator))
    terms = {"reconstruction": reconstruction, "discrepancy": discrepancy}
    posterior = None if batch.posterior.deterministic else batch.posterior
    return Losses(reconstruction + weight * discrepancy, terms, posterior)


def mmd(codes: Codes, draws: Codes) -> Scalar:
    """MMD² between two samples of equal size, with gradients."""
    count, latents = codes.shape
    if count < 2:
        raise ConfigError(
            f"wae: the batch has {count} observation, but the discrepancy compares pairs of codes. "
            "Train with --batch 2 or more (64 is usual)."
        )
    both = torch.cat([codes, draws])
    squares = both.square().sum(1)
    distances = (squares[:, None] + squares - 2 * both @ both.T).clamp_min(0)
    kernel = torch.zeros_like(distances)
    for scale in SCALES:
        width = 2 * latents * scale
        kernel = kernel + width / (width + distances)
    within = kernel[:count, :count].sum() + kernel[count:, count:].sum()
    # Each sample has `count` pairs of a point with itself, where every kernel is 1.
    within = within - 2 * count * len(SCALES)
    return within / (count * (count - 1)) - 2 * kernel[:count, count:].mean()


ENTRY = Entry(
    name="wae",
    title="WAE: an autoencoder with a penalty on how far its codes as a whole are from the prior",
    formula="-log p(x | z) + λ MMD²(codes, N(0, I))",
    paper="Tolstikhin et al., ICLR 2018, arXiv:1711.01558, algorithm 2",
    summary=__doc__ or "",
    objective=wae,
    posterior="point",
    refuses={"maps": "pairs of maps are all about equally far apart, so that MMD tells nothing"},
    options={"weight": Option(10.0, "λ, weight of the discrepancy.", not_negative)},
)

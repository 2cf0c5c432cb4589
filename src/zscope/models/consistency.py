"""Consistency training: penalties on interventions that decoding and encoding change.

N are latent vectors, I_m sets unit m of all of them to one value v taken from the codes of
the batch, N' and N'_I are the responses (posterior means), Z the causes (N itself without a
causal block). With n units, T vectors and J values for each unit,

    invariance     L_INV = mean_I  1/(nT) sum_k sum_{i not m} ||N'_I,i - N'_i||²
    equivariance   L_EQV = mean_I  1/(nT) sum_k sum_i         ||(Z(N'_I) - Z(I_m(N')))_i||²

L_EQV also demands that the value itself is recovered. N are draws of the prior for
variational models, hybrids of the batch's codes for all others. All interventions are
decoded and encoded in one pass, on the same N: T (1 + nJ) rows besides those of the batch.
The units of latents that are maps are their channels: v is the map of another picture, and N
are hybrids of channels, as draws of the prior would be noise without any shape.
Values and hybrids are taken from the batch without repeats, so J, and for hybrids T, are at
most its number of rows. Neither N nor v carries gradients: they are samples, and shrinking
the codes must not lower the penalty.

"On the interventional consistency of autoencoders", algorithms 1 and 2, eq. 12; the sum of
L_EQV includes m, as in eq. 12 (without it, and without a block, it would equal L_INV).

The networks of the paper are backbone="consistency", with depth=6 for its size S (table 3
prints 12, but the counts of table 4 are those of 6) and filters=100, depth=16 for CelebA.
They have the published number of weights, to the last one, for AE, XAE, VAE and XVAE. The
paper shows three linear layers and blocks of convolution, Mish and batch norm; the sizes of
the dense layers, a batch norm after those of the decoder, a last convolution among the
picture's own channels, and means and variances that are linear in as many numbers as there
are latents, are inferred from those counts. (A block of 32 units has 9,968 weights, printed:
9,472.) The published SAE has exactly 1,584 weights for each latent more than the AE (319,477 in
size S, where the table repeats the count of the XSAE, and 442,267 in Standard), so the dense
layers of its decoder remain, and with units of four numbers they take all 4 n: start="dense".
Two hidden layers with width=(10, 20) have 1,584 weights; the printed sizes are not known. Our
default, as in the paper on structural autoencoders, has a constant in their place (249,365 and
409,499).
"""

import torch
from torch import Tensor

from zscope.autoencoder import Losses
from zscope.groups import membership, partition
from zscope.models.composed import Batch
from zscope.models.entry import Option, not_negative, whole
from zscope.randomness import normal
from zscope.types import Number

__all__ = ["OPTIONS", "PENALTIES", "draw", "equivariance", "invariance"]

OPTIONS = {
    "consistency_weight": Option(4.0, "Weight of the consistency penalty.", not_negative),
    "interventions": Option(
        1, "Values given to each unit in a step; at most one for each row of the batch.", whole(1)
    ),
    "vectors": Option(
        8,
        "Latent vectors that each intervention is made on; for deterministic encoders and for "
        "maps, at most one for each row of the batch.",
        whole(1),
    ),
}


def invariance(
    batch: Batch, *, consistency_weight: Number, interventions: int, vectors: int
) -> Losses:
    noises, values, member = draw(batch, interventions, vectors)
    before, after = _responses(batch, noises, values, member)
    change = torch.where(member, 0, after - before)
    penalty = change.square().sum() / (len(member) * len(noises) * len(member) * len(values))
    return Losses(consistency_weight * penalty, {"invariance": penalty})


def equivariance(
    batch: Batch, *, consistency_weight: Number, interventions: int, vectors: int
) -> Losses:
    noises, values, member = draw(batch, interventions, vectors)
    before, after = _responses(batch, noises, values, member)
    expected = torch.where(member, values[:, None], before)
    causes, expected_causes = batch.causes(torch.cat([after, expected]).flatten(0, 2)).chunk(2)
    change = causes - expected_causes
    penalty = change.square().sum() / (len(member) * len(noises) * len(member) * len(values))
    return Losses(consistency_weight * penalty, {"equivariance": penalty})


PENALTIES = {"invariance": invariance, "equivariance": equivariance}


def draw(batch: Batch, interventions: int, vectors: int) -> tuple[Tensor, Tensor, Tensor]:
    """Latent vectors (T x latents), values for all units (J x latents), and which latents
    belong to which unit (units x 1 x 1 x latents)."""
    codes, layout = batch.code.detach(), batch.model.layout
    groups = batch.model.groups
    if layout is not None:
        groups = [list(range(*layout.ends(channel))) for channel in range(layout.channels)]
    units = partition(groups, codes.shape[1], "consistency")
    member = membership(units, codes.shape[1]).to(codes.device)
    unit_of_latent = member.long().argmax(0)

    def shuffle(count: int) -> Tensor:
        """Rows of codes whose units come from different rows, none twice."""
        order = normal(codes[:, : len(units)], batch.generator).argsort(0)[:count]
        return codes.gather(0, order[:, unit_of_latent])

    if batch.posterior.deterministic or layout is not None:
        noises = shuffle(vectors)
    else:
        noises = normal(codes[:1].expand(vectors, -1), batch.generator)
    return noises, shuffle(interventions), member[:, None, None]


def _responses(
    batch: Batch, noises: Tensor, values: Tensor, member: Tensor
) -> tuple[Tensor, Tensor]:
    """N' (T x latents) and N'_I (units x J x T x latents)."""
    changed = torch.where(member, values[:, None], noises)
    rows = torch.cat([noises, changed.flatten(0, 2)])
    means = batch.response(rows).mean
    return means[: len(noises)], means[len(noises) :].reshape(changed.shape)

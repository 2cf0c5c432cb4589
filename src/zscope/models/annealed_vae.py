"""Annealed VAE: a VAE whose latents have a capacity that grows during training.

    loss = E_q[ -log p(x | z) ] + α | KL - C(t) |,     C(t) = C_max min(1, t / T)

KL is the mean over the batch, in nats; | · | is applied to that mean. C(t) nats of
information in the latents cost nothing; each nat above or below costs α, so a larger C_max
regularises less. Burgess et al., arXiv:1804.03599, eq. 8.
"""

from zscope.autoencoder import Losses
from zscope.models.composed import Batch
from zscope.models.entry import Entry, Option, not_negative, whole
from zscope.models.objectives import kl_to_standard_normal
from zscope.models.vae import POINT
from zscope.types import Number

__all__ = ["annealed_vae", "capacity_at"]


def capacity_at(step: int, capacity: Number, capacity_steps: int) -> Number:
    """C(t), in nats."""
    return capacity * min(1.0, step / capacity_steps)


def annealed_vae(batch: Batch, *, alpha: Number, capacity: Number, capacity_steps: int) -> Losses:
    reconstruction, divergence = batch.reconstruction, kl_to_standard_normal(batch.posterior).mean()
    allowed = capacity_at(batch.step, capacity, capacity_steps)
    terms = {"reconstruction": reconstruction, "divergence": divergence}
    total = reconstruction + alpha * (divergence - allowed).abs()
    return Losses(total, terms, batch.posterior)


ENTRY = Entry(
    name="annealed-vae",
    title="Annealed VAE: a VAE whose latents have a capacity that grows during training",
    formula="E_q[-log p(x | z)] + α |KL - C(t)|, C(t) = C_max min(1, t/T)",
    paper="Burgess et al., arXiv:1804.03599, eq. 8",
    summary=__doc__ or "",
    objective=annealed_vae,
    refuses={"point": POINT},
    needs=frozenset({"step"}),
    options={
        "alpha": Option(1000.0, "Cost of a nat above or below the capacity.", not_negative),
        "capacity": Option(25.0, "C_max, the capacity at the end, in nats.", not_negative),
        "capacity_steps": Option(100_000, "T, the steps until C_max is reached.", whole(1)),
    },
)

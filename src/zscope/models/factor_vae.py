"""FactorVAE: a VAE that pays for what a discriminator can tell of the dependence of latents.

    loss = E_q[ -log p(x | z) ] + KL + α TC,      TC ≈ E_q(z)[ D_0(z) - D_1(z) ]

D is a network with two logits that learns, at the same time, to tell codes (0) from codes
whose latents were shuffled over the batch, each latent by itself (1):

    discriminator loss = 1/2 CE( D(z), 0 ) + 1/2 CE( D(shuffled z), 1 )

At its best the difference of its logits is log q(z) / prod_j q(z_j), whose mean is TC. The
two players move in the same step: the first loss leaves the weights of D alone, the second
all others. D has an optimiser of its own, Adam with decays .5 and .9. Shuffled codes come
from the same batch (the paper takes a second one).

Kim & Mnih, ICML 2018, arXiv:1802.05983, algorithm 2; the discriminator has six hidden layers
of 1000 units, leaky ReLU of slope 0.2.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zscope.models.composed import Batch, Rival
from zscope.models.entry import Entry, Option, not_negative, positive, sizes
from zscope.models.objectives import Losses, kl_to_standard_normal
from zscope.models.vae import POINT
from zscope.randomness import Source, normal
from zscope.types import Codes


class FactorVAE(nn.Module):
    """The objective, with its discriminator."""

    def __init__(
        self,
        *,
        latents: int,
        alpha: float,
        discriminator: Sequence[int],
        discriminator_rate: float,
    ) -> None:
        super().__init__()
        self.alpha, self.rate = alpha, discriminator_rate
        self.discriminator = Discriminator(latents, discriminator)

    @property
    def rivals(self) -> dict[str, Rival]:
        return {"discriminator": Rival(self.discriminator, self.rate, (0.5, 0.9))}

    def forward(self, batch: Batch) -> Losses:
        reconstruction = batch.reconstruction
        divergence = kl_to_standard_normal(batch.posterior).mean()
        logits = self.discriminator(batch.code, frozen=True)
        dependence = (logits[:, 0] - logits[:, 1]).mean()
        total = reconstruction + divergence + self.alpha * dependence
        own = self.discriminator.loss(batch.code.detach(), batch.generator)
        terms = {
            "reconstruction": reconstruction,
            "divergence": divergence,
            "total_correlation": dependence,
            "discriminator": own,
        }
        return Losses(total, terms, batch.posterior, opponent=own)


class Discriminator(nn.Module):
    """Two logits for each code: drawn as it is, or put together of several."""

    def __init__(self, latents: int, hidden: Sequence[int]) -> None:
        super().__init__()
        widths = [latents, *hidden, 2]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, z: Codes, *, frozen: bool = False) -> Tensor:
        """`frozen`: gradients reach the codes and not the weights."""
        for number, layer in enumerate(self.layers):
            z = z if number == 0 else F.leaky_relu(z, 0.2)
            weights: Any = (layer.weight, layer.bias)
            z = F.linear(z, *(w.detach() for w in weights) if frozen else weights)
        return z

    def loss(self, z: Codes, source: Source) -> Tensor:
        """The mean of both cross-entropies; log 2 if nothing can be told."""
        logits = self(torch.cat([z, shuffled(z, source)]))
        # Cross-entropy of two logits is the softplus of their difference.
        lead = logits[:, 1] - logits[:, 0]
        return 0.5 * (F.softplus(lead[: len(z)]).mean() + F.softplus(-lead[len(z) :]).mean())


def shuffled(z: Codes, source: Source) -> Codes:
    """The codes with every latent shuffled over the rows by itself."""
    return z.gather(0, normal(z, source).argsort(0))


ENTRY = Entry(
    name="factor-vae",
    title="FactorVAE: a VAE that pays for what a discriminator can tell of dependence",
    formula="E_q[-log p(x | z)] + KL + α TC, TC ≈ E[D_0(z) - D_1(z)]",
    paper="Kim & Mnih, ICML 2018, arXiv:1802.05983, algorithm 2",
    summary=__doc__ or "",
    objective=FactorVAE,
    refuses={"point": POINT},
    options={
        "alpha": Option(35.0, "Weight of the total correlation (γ in the paper).", not_negative),
        "discriminator": Option([1000] * 6, "Sizes of the discriminator's layers.", sizes),
        "discriminator_rate": Option(1e-4, "Learning rate of the discriminator.", positive),
    },
)

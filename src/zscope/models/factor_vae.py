"""FactorVAE: a VAE with a penalty on dependent latents, estimated by a discriminator.

    loss = E_q[ -log p(x | z) ] + KL + α TC,      TC ≈ E_q(z)[ D_0(z) - D_1(z) ]

D is a network with two logits that learns, at the same time, to tell codes (0) from codes
whose latents were shuffled over the batch, each latent independently (1):

    discriminator loss = 1/2 CE( D(z), 0 ) + 1/2 CE( D(shuffled z), 1 )

For the best D the difference of its logits is log q(z) / prod_j q(z_j), whose mean is TC.
Both are updated in the same step: the first loss has no gradient for the weights of D, the
second none for all others. D has an optimiser of its own, Adam with decays .5 and .9.
Shuffled codes come from the same batch (the paper takes a second one).

Kim & Mnih, ICML 2018, arXiv:1802.05983, algorithm 2; appendix A: on pictures of 64 x 64 the
discriminator has six hidden layers of 1000 units, leaky ReLU of slope 0.2, and a rate of 1e-4.
With discriminator=published it has them on all data. By default the layers are as wide as the
observations are large: 1000 units for each 64 x 64 places of a picture (or features of a row), at
least 128 and at most 1000. The rate grows as the layers shrink, 0.1 / width, as Adam needs for
layers of any width to learn equally fast (Yang et al., NeurIPS 2021, arXiv:2203.03466).
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zscope.autoencoder import Losses, Rival
from zscope.models.composed import Batch, StatefulObjective
from zscope.models.entry import Entry, Option, not_negative, positive, sizes
from zscope.models.objectives import kl_to_standard_normal
from zscope.models.vae import POINT
from zscope.randomness import Source, normal
from zscope.types import Codes, Number, Scalar

__all__ = ["Discriminator", "FactorVAE", "shuffle"]

SLOPE = 0.2
PUBLISHED = (1000,) * 6
PUBLISHED_PLACES = 64 * 64
NARROWEST = 128
PUBLISHED_RATE = 1e-4


class FactorVAE(nn.Module, StatefulObjective):
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
    def numbers(self) -> dict[str, float]:
        return {"alpha": self.alpha}

    @property
    def rivals(self) -> dict[str, Rival]:
        return {"discriminator": Rival(self.discriminator, self.rate, (0.5, 0.9))}

    def forward(self, batch: Batch, *, alpha: Number | None = None) -> Losses:
        reconstruction = batch.reconstruction
        divergence = kl_to_standard_normal(batch.posterior).mean()
        dependence, own = self.discriminator.contest(batch.code, batch.generator)
        weight = self.alpha if alpha is None else alpha
        total = reconstruction + divergence + weight * dependence
        terms = {
            "reconstruction": reconstruction,
            "divergence": divergence,
            "total_correlation": dependence,
            "discriminator": own,
        }
        return Losses(total, terms, batch.posterior, opponent=own)


class Discriminator(nn.Module):
    """Two logits for each code: a true one, or shuffled."""

    def __init__(self, latents: int, hidden: Sequence[int]) -> None:
        super().__init__()
        widths = [latents, *hidden, 2]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, z: Codes) -> Tensor:
        for number, layer in enumerate(self.layers):
            z = layer(z if number == 0 else F.leaky_relu(z, SLOPE))
        return z

    def contest(self, z: Codes, source: Source) -> tuple[Scalar, Scalar]:
        """TC as the discriminator estimates it, with gradients for the codes alone, and the
        discriminator's loss (log 2 when guessing), with gradients for its weights alone."""
        both = torch.cat([z, shuffle(z.detach(), source)])
        weights: list[Any] = [w for layer in self.layers for w in (layer.weight, layer.bias)]
        contest: Any = _Contest.apply  # which torch leaves untyped
        dependence, loss, *_ = contest(both, *weights)
        return dependence, loss


class _Contest(torch.autograd.Function):
    """The gradients of both losses from one pass through the discriminator.

    With l_i = D_1 - D_0 of row i, TC is -mean l_i over the codes, and the loss a function
    of all l_i. The gradient of l_i is computed once, row by row; the codes use it as it is,
    the weights use it times the slope of the loss. Two passes of autograd, one for each
    loss, would take half as long again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(both: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        hidden = [both]
        for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            hidden.append(F.leaky_relu(F.linear(hidden[-1], weight, bias), SLOPE))
        logits = F.linear(hidden[-1], weights[-2], weights[-1])
        difference = logits[:, 1] - logits[:, 0]
        real, fake = difference.chunk(2)
        # Cross-entropy of two logits is the softplus of their difference.
        loss = 0.5 * (F.softplus(real).mean() + F.softplus(-fake).mean())
        return -real.mean(), loss, difference, *hidden[1:]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(*inputs, *output[2:])
        ctx.tensors = len(inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, ...]:
        both, *weights = ctx.saved_tensors[: ctx.tensors]
        difference, *hidden = ctx.saved_tensors[ctx.tensors :]
        hidden = [both, *hidden]
        count = len(both) // 2
        real = torch.arange(len(both), device=both.device) < count
        wrong = torch.sigmoid(torch.where(real, difference, -difference))
        slope = slopes[1] * torch.where(real, wrong, -wrong) * (0.5 / count)  # dloss / dl_i
        last = slope @ hidden[-1]
        gradients = [torch.stack([-slope.sum(), slope.sum()]), torch.stack([-last, last])]
        jacobian = (weights[-2][1] - weights[-2][0]).expand_as(hidden[-1])  # dl_i / dhidden
        for layer in reversed(range(len(hidden) - 1)):
            jacobian = jacobian * torch.where(hidden[layer + 1] > 0, 1.0, SLOPE)
            weighted = slope.unsqueeze(1) * jacobian
            gradients += [weighted.sum(0), weighted.T @ hidden[layer]]
            jacobian = jacobian @ weights[2 * layer]
        codes = torch.where(real.unsqueeze(1), -slopes[0] / count * jacobian, 0.0)
        return codes, *reversed(gradients)


def shuffle(z: Codes, source: Source) -> Codes:
    """The codes with every latent shuffled over the rows independently."""
    return z.gather(0, normal(z, source).argsort(0))


def layers(value: Any) -> list[int]:
    """Reads the sizes of a discriminator's layers, or the word for those of the paper."""
    if value == "published":
        return list(PUBLISHED)
    try:
        return sizes(value)
    except ValueError as error:
        raise ValueError(f"{error}, or 'published'") from None


def fit(shape: tuple[int, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """The discriminator for observations of a shape, where it is not given, and its rate."""
    chosen, rate = options["discriminator"], options["discriminator_rate"]
    width = PUBLISHED[0]
    if chosen is None:
        width = width * math.prod(shape[-2:]) // PUBLISHED_PLACES
        width = min(max(width, NARROWEST), PUBLISHED[0])
        chosen = [width] * len(PUBLISHED)
    return {
        "discriminator": chosen,
        "discriminator_rate": PUBLISHED_RATE * PUBLISHED[0] / width if rate is None else rate,
    }


ENTRY = Entry(
    name="factor-vae",
    title="FactorVAE: a VAE with a penalty on dependent latents, estimated by a discriminator",
    formula="E_q[-log p(x | z)] + KL + α TC, TC ≈ E[D_0(z) - D_1(z)]",
    paper="Kim & Mnih, ICML 2018, arXiv:1802.05983, algorithm 2",
    summary=__doc__ or "",
    objective=FactorVAE,
    refuses={
        "point": POINT,
        "maps": "the total correlation of hundreds of latents cannot be estimated from batches",
    },
    options={
        "alpha": Option(35.0, "Weight of the total correlation (γ in the paper).", not_negative),
        "discriminator": Option(
            None,
            "Sizes of the discriminator's layers, or published: 6 of 1000. Default: 6 of 1000 for "
            "pictures of 64 x 64 and more; on smaller ones narrower, by their places.",
            layers,
        ),
        "discriminator_rate": Option(
            None,
            "Its learning rate. Default: 1e-4; with the default layers 0.1 / width.",
            positive,
        ),
    },
    fit=fit,
)

"""iVAE: a VAE whose prior depends on an observed auxiliary variable u.

    loss = E_q[ -log p(x | z) ] + KL( q(z | x, u) || N(μ†(u), diag σ†(u)) )

    KL_j = 1/2 ( (σ_j + (μ_j - μ†_j)²) / σ†_j - log σ_j + log σ†_j - 1 )     (σ: variances)

σ† comes from a network of u (three hidden layers of 50, leaky ReLU of slope 0.1; its
logarithm is clamped to ±10); μ† is 0, or comes from another such network
(`prior_mean=learned`). The encoder gets u concatenated to the last features of its trunk,
with one more hidden layer for both. u are the factors of the data: numbers scaled to
[0, 1], categories one-hot. Learning both μ† and σ† leaves no stationary point other than a
plain autoencoder (Bonheme 2023, theorem 5.2.1).

Khemakhem et al., AISTATS 2020, arXiv:1907.04809, eq. 8; networks as in Bonheme 2023,
appendix A.2.
"""

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from zscope.autoencoder import Losses, Posterior
from zscope.errors import InterfaceError
from zscope.models.composed import Batch, StatefulObjective
from zscope.models.entry import Entry, Option, one_of, whole
from zscope.models.layers import Encoder, check_shape, dense
from zscope.models.objectives import kl_to_standard_normal
from zscope.models.vae import POINT

__all__ = ["IVAE", "ConditionalEncoder", "Scaling"]

Column = int | Sequence[float]  # a number of categories, or the range (least, most)
LARGEST = 10.0  # of |log σ†|


class IVAE(nn.Module, StatefulObjective):
    """The objective, with its prior."""

    def __init__(self, *, latents: int, auxiliary: Sequence[Column], prior_mean: str) -> None:
        super().__init__()
        self.scaling = Scaling(auxiliary)
        self.log_variance = _network(self.scaling.width, latents)
        self.mean = _network(self.scaling.width, latents) if prior_mean == "learned" else None

    def forward(self, batch: Batch) -> Losses:
        relative = batch.posterior.relative_to(self.prior(batch.factors))
        reconstruction, divergence = batch.reconstruction, kl_to_standard_normal(relative).mean()
        terms = {"reconstruction": reconstruction, "divergence": divergence}
        return Losses(reconstruction + divergence, terms, relative)

    def check_factors(self, factors: Tensor) -> None:
        self.scaling(factors)

    def prior(self, auxiliary: Tensor | None) -> Posterior:
        """N(μ†(u), diag σ†(u)) for each row of u."""
        scaled = self.scaling(auxiliary)
        log_variance = self.log_variance(scaled).clamp(-LARGEST, LARGEST)
        mean = torch.zeros_like(log_variance) if self.mean is None else self.mean(scaled)
        return Posterior(mean, (log_variance / 2).exp())


class Scaling(nn.Module):
    """Factors as inputs of a network: numbers scaled to [0, 1], categories one-hot."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.columns = list(columns)
        self.width = sum(column if isinstance(column, int) else 1 for column in self.columns)

    def forward(self, auxiliary: Tensor | None) -> Tensor:
        if auxiliary is None or auxiliary.ndim != 2 or auxiliary.shape[1] != len(self.columns):
            got = "none" if auxiliary is None else f"shape {tuple(auxiliary.shape)}"
            raise InterfaceError(
                f"ivae: the encoder and the prior need the auxiliary variable, {len(self.columns)} "
                f"factors for each observation; got {got}. Use data with factors, and "
                "encode(x, factors). Decoded observations have no factors, so assays that encode "
                "them again cannot be used."
            )
        parts = []
        for place, column in enumerate(self.columns):
            values = auxiliary[:, place : place + 1]
            if isinstance(column, int):
                known = torch.arange(column, device=values.device)
                parts.append((values == known).to(values.dtype))
            else:
                low, high = column
                parts.append((values - low) / ((high - low) or 1.0))
        return torch.cat(parts, 1)


class ConditionalEncoder(nn.Module):
    """An encoder that gets u concatenated to the last features of its trunk."""

    def __init__(
        self, encoder: Encoder, columns: Sequence[Column], *, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.shape, self.trunk, self.scaling = encoder.shape, encoder.trunk, Scaling(columns)
        width = encoder.head.in_features + self.scaling.width
        linear = not any(isinstance(m, nn.Linear | nn.Conv2d) for m in encoder.trunk.modules())
        self.joint = nn.Sequential(*[] if linear else dense([width, width], activation))
        self.head = nn.Linear(width, encoder.head.out_features)

    def forward(self, x: Tensor, auxiliary: Tensor | None) -> Tensor:
        features = self.features(x)
        scaled = self.scaling(auxiliary).to(features.dtype)
        output: Tensor = self.head(self.joint(torch.cat([features, scaled], 1)))
        return output

    def features(self, x: Tensor) -> Tensor:
        check_shape(x, self.shape)
        features: Tensor = self.trunk(x)
        return features


def _network(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before in (inputs, 50, 50):
        layers += [nn.Linear(before, 50), nn.LeakyReLU(0.1)]
    return nn.Sequential(*layers, nn.Linear(50, outputs))


def _columns(value: Any) -> list[int | list[float]]:
    """Read a number of columns in [0, 1], or a list of numbers of categories and ranges."""
    if isinstance(value, Integral | str) and not isinstance(value, bool):
        return [[0.0, 1.0] for _ in range(whole(1)(value))]
    try:
        columns: list[int | list[float]] = [
            whole(1)(column) if isinstance(column, Integral) else [float(end) for end in column]
            for column in value
        ]
        # Written so that it also refuses NaN, for which every comparison is false.
        fits = all(
            isinstance(column, int)
            or (len(column) == 2 and -math.inf < column[0] <= column[1] < math.inf)
            for column in columns
        )
    except (TypeError, ValueError):
        fits, columns = False, []
    if not columns or not fits:
        raise ValueError(
            "expected the columns of the auxiliary variable, a finite [least, most] or a number of "
            "categories for each; zs.models.build_for(name, data, latents=...) finds them"
        )
    return columns


ENTRY = Entry(
    name="ivae",
    title="iVAE: a VAE whose prior depends on an observed auxiliary variable",
    formula="E_q[-log p(x | z)] + KL(q(z | x, u) || N(μ†(u), diag σ†(u)))",
    paper="Khemakhem et al., AISTATS 2020, arXiv:1907.04809, eq. 8",
    summary=__doc__ or "",
    objective=IVAE,
    refuses={
        "point": POINT,
        "full": "its prior has independent latents",
        "maps": "factors belong to whole observations and have no places",
    },
    needs=frozenset({"factors"}),
    conditional=True,
    prior=None,
    divergence_weight=1.0,
    options={
        "auxiliary": Option(
            None, "The columns of u; taken from the factors of the data.", _columns
        ),
        "prior_mean": Option("fixed", "μ†: fixed at 0, or learned.", one_of(["fixed", "learned"])),
    },
)

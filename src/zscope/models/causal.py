"""Explicit causal latent block: from independent noises to dependent causes.

    Z_i = f_i( M_i ⊙ Z_1..Z_{i-1}, N_i ),      i = 1..n

The encoder gives the noises N; the decoder gets the causes Z. f_i is a small network with
two hidden layers of 10 units (so that a block of 6 has 1,011 weights and one of 12 has
2,418, as published; the published block of 32 has 9,472, ours 9,968: the difference, 496, is
the number of its gates). Each cause may have several numbers (`size`), its noise has one.

M_i are gates on the parents, one for each edge. While training they are relaxed Bernoulli
variables, sigmoid((logit + logistic noise) / temperature), drawn once a step, with a
temperature that falls from 1 to 0.1; otherwise a gate is open where its logit is positive.
Edges run from lower to higher units only, so the graph has no cycles.

An intervention on a noise changes its cause and all its descendants; one on a cause removes
the influence of its parents and its noise.

"On the interventional consistency of autoencoders", section 2.2; Maddison, Mnih & Teh,
ICLR 2017, arXiv:1611.00712, for the relaxation.
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool
from torch import Generator, Tensor, nn

from zscope.errors import ConfigError
from zscope.randomness import Source, normal
from zscope.types import Codes

__all__ = ["TEMPERATURES", "CausalBlock", "logistic"]

HIDDEN = 10
OPEN = 1.0  # initial logit: every edge is open until training closes it
TEMPERATURES = (1.0, 0.1)


class CausalBlock(nn.Module):
    """`units` noises in, `units` causes of `size` numbers each out (samples x units * size)."""

    def __init__(self, units: int, *, size: int = 1, steps: int = 10_000) -> None:
        super().__init__()
        self.units, self.size, self.steps = units, size, steps
        self.functions = nn.ModuleList(_function(child, size) for child in range(units))
        # The gates of unit 1, then those of unit 2, …
        edges = units * (units - 1) // 2
        # A single unit has no edges; an unused parameter would make distributed training wait.
        self.logits = nn.Parameter(torch.empty(edges), requires_grad=edges > 0)

    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        self.logits.fill_(OPEN)

    def forward(
        self,
        noise: Codes,
        gates: Tensor | None = None,
        *,
        fixed: Mapping[int, Tensor | float] | None = None,
    ) -> Tensor:
        """The causes of some noises; `fixed` maps units to the values an intervention sets."""
        wrong = [unit for unit in fixed or {} if not 0 <= unit < self.units]
        if wrong:
            raise ConfigError(
                f"causal block: an intervention on unit {wrong[0]}, but there are {self.units} "
                f"units. Choose one of 0 to {self.units - 1}."
            )
        gates = self.open_gates().to(noise) if gates is None else gates
        causes: list[Tensor] = []
        for child, function in enumerate(self.functions):
            if fixed is not None and child in fixed:
                value = torch.as_tensor(fixed[child]).to(noise)
                causes.append(value.expand(len(noise), self.size))
                continue
            inputs = noise[:, child : child + 1]
            if child:
                open_edges = gates[self._edges(child)].repeat_interleave(self.size)
                inputs = torch.cat([torch.cat(causes, 1) * open_edges, inputs], 1)
            causes.append(function(inputs))
        return torch.cat(causes, 1)

    def draw_gates(self, step: int, source: Source) -> Tensor:
        """Gates for one training step, between 0 and 1."""
        noise = logistic(normal(self.logits, source))
        return torch.sigmoid((self.logits + noise) / self.temperature(step))

    def temperature(self, step: int) -> float:
        first, last = TEMPERATURES
        return float(first * (last / first) ** min(1.0, step / self.steps))

    def open_gates(self) -> Bool[Tensor, " edges"]:
        return self.logits.detach() > 0

    @property
    def adjacency(self) -> Bool[Tensor, "parents children"]:
        """True where there is an edge from a parent to a child: upper triangular."""
        matrix = torch.zeros(self.units, self.units, dtype=torch.bool)
        gates = self.open_gates().cpu()
        for child in range(1, self.units):
            matrix[:child, child] = gates[self._edges(child)]
        return matrix

    @property
    def density(self) -> float:
        """The share of the possible edges that are open; 0 for a single unit."""
        return float(self.open_gates().double().mean()) if self.units > 1 else 0.0

    @staticmethod
    def _edges(child: int) -> slice:
        return slice(child * (child - 1) // 2, child * (child + 1) // 2)


def logistic(normals: Tensor) -> Tensor:
    """Logistic noise computed from standard normal noise: log Φ(n) - log Φ(-n).

    Φ of normal noise is uniform, and the logit of uniform noise is logistic.
    """
    half = normals / math.sqrt(2)
    return torch.erfc(-half).log() - torch.erfc(half).log()


def _function(child: int, size: int) -> nn.Module:
    inputs = child * size + 1
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.Mish(), nn.Linear(HIDDEN, HIDDEN), nn.Mish(),
        nn.Linear(HIDDEN, size),
    )  # fmt: skip

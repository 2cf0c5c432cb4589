"""Explicit causal latent block: from independent noises to dependent causes.

    Z_i = f_i( M_i ⊙ Z_1..Z_{i-1}, N_i ),      i = 1..n

The encoder gives the noises N; the decoder gets the causes Z. f_i is a small network with
two hidden layers of 10 units (so that a block of 6 has 1,011 weights and one of 12 has
2,418, as published; the published block of 32 has 9,472, ours 9,968: the difference, 496, is
the number of its gates). Each cause may have several numbers (`size`), its noise has one.

M_i are gates on the parents, one for each edge. While training they are relaxed Bernoulli
variables, sigmoid((logit + logistic noise) / temperature), drawn once a step, with a
temperature that falls from 1 to 0.1 (`gate_temperature`) within `gate_steps`; otherwise a gate
is open where its logit is positive. Logits start at `gate_start` and learn `gate_rate` times
as fast as the other weights. Edges run from lower to higher units only, so the graph has no
cycles.

Nothing in the loss closes an edge that does no harm, but for the noise that an uncertain gate
adds. `edge_cost` > 0, which the paper does not have, adds so many nats for each edge that is
expected to be open,

    edge_cost · sum_edges sigmoid(logit)

(Louizos, Welling & Kingma, ICLR 2018, arXiv:1712.01312, for such penalties).

An intervention on a noise changes its cause and all its descendants; one on a cause removes
the influence of its parents and its noise.

"On the interventional consistency of autoencoders", section 2.2; Maddison, Mnih & Teh,
ICLR 2017, arXiv:1611.00712, for the relaxation.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from zscope.autoencoder import Interventions
from zscope.errors import ConfigError
from zscope.models.entry import Option, finite, not_negative, positive, whole
from zscope.randomness import Source, normal
from zscope.types import Codes

__all__ = ["OPTIONS", "TEMPERATURES", "CausalBlock", "logistic"]

HIDDEN = 10
TEMPERATURES = (1.0, 0.1)
OPTIONS = {
    "unit": Option(1, "Numbers in each cause of the causal block.", whole(1)),
    "gate_steps": Option(10_000, "Steps until the gates reach their final temperature.", whole(1)),
    "gate_start": Option(
        1.0, "Logit of the gates at first; above 0, every edge is open at first.", finite
    ),
    "gate_rate": Option(1.0, "Learning rate of the gates, relative to other weights.", positive),
    "gate_temperature": Option(TEMPERATURES[1], "Final temperature of the gates.", positive),
    "edge_cost": Option(0.0, "Nats that each open edge of the block costs.", not_negative),
}


class CausalBlock(nn.Module):
    """`units` noises in, `units` causes of `size` numbers each out (samples x units * size)."""

    def __init__(
        self,
        units: int,
        *,
        size: int = 1,
        steps: int = 10_000,
        start: float = 1.0,
        rate: float = 1.0,
        temperature: float = TEMPERATURES[1],
        cost: float = 0.0,
    ) -> None:
        super().__init__()
        self.units, self.size, self.steps = units, size, steps
        self.start, self.rate, self.cost = start, rate, cost
        self.temperatures = TEMPERATURES[0], temperature
        self.functions = nn.ModuleList(_function(child, size) for child in range(units))
        # The gates of unit 1, then those of unit 2, … in units of 1/rate: an optimiser whose
        # steps do not depend on the size of the gradient moves the logits `rate` times as far.
        edges = units * (units - 1) // 2
        # A single unit has no edges; an unused parameter would make distributed training wait.
        self.logits = nn.Parameter(torch.empty(edges), requires_grad=edges > 0)

    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        self.logits.fill_(self.start / self.rate)

    def forward(
        self,
        noise: Codes,
        gates: Tensor | None = None,
        *,
        fixed: Interventions = None,
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
        return torch.sigmoid((self.rate * self.logits + noise) / self.temperature(step))

    def temperature(self, step: int) -> float:
        first, last = self.temperatures
        return float(first * (last / first) ** min(1.0, step / self.steps))

    def probabilities(self) -> Float[Tensor, " edges"]:
        """The probability of each gate to be open in a step, sigmoid(logit)."""
        return torch.sigmoid(self.rate * self.logits)

    def open_gates(self) -> Bool[Tensor, " edges"]:
        return self.logits.detach() > 0

    @property
    def adjacency(self) -> Bool[Tensor, "parents children"]:
        """True where there is an edge from a parent to a child: upper triangular."""
        return self.matrix(self.open_gates())

    def matrix(self, edges: Tensor) -> Tensor:
        """Values of edges as a matrix of parents x children, 0 where none is possible."""
        matrix = torch.zeros(self.units, self.units, dtype=edges.dtype)
        for child in range(1, self.units):
            matrix[:child, child] = edges.detach().cpu()[self._edges(child)]
        return matrix

    def gates_of(self, matrix: Tensor) -> Tensor:
        """The inverse of `matrix`: the values of the edges, in their order."""
        return torch.cat([matrix[:child, child] for child in range(self.units)])

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

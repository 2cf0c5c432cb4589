"""Decoders that take their latents one after another, and the matching ladder encoder.

The latents U are split evenly into g variables. From a learned constant S_0,

    structural   S_i = blocks_i( α_i S_{i-1} + β_i ),   (log α_i, β_i) = MLP_i(U_i)
    adaptive     the same, with (log α_i, β_i) = MLP_i(U): every layer gets all latents
    ladder       S_i = blocks_i( S_{i-1} + β_i ),       β_i = MLP_i(U_i)

α_i and β_i are one number for each channel, the same at every pixel; each MLP has three
hidden layers. U_i enters at step i only, so it does not affect S_1..S_{i-1}.
Initially α_i = 1 and β_i = 0 exactly (weights and biases of the last layer are 0), so that
a structural decoder gives the same observation whatever the latents.

The ladder has a matching encoder: variable U_i is computed, by three hidden layers, from the
features that are followed by i - 1 more rungs of the encoder, so that early variables use
the whole depth. Adding β_i before a convolution is equivalent to concatenating features,
with fewer weights.

For hybrid samples and interventions the variables are U_1..U_g, and single latents in an
adaptive decoder (section 3.1).

With `start="dense"`, S_0 is computed from all latents by the dense layers of an hourglass, and
the statement about U_i no longer holds; see `consistency.py` for why this exists.

Printed: twelve blocks, three hidden layers, 1 to 1.2 million weights at 64 x 64 and 6 to 7
million at 128 x 128, ladders the most, structural and adaptive decoders about 5 % fewer, an
hourglass almost as many as those. Chosen here, since it is not printed: 48 units in each hidden
layer (96 from 128 pixels up), 128 units before the codes, 64 in the decoder of an hourglass, and
what the rungs read of the features: the last one all of them, the others together as many
channels. At 64 x 64 with 12 latents a structural decoder then has 5 to 6 % fewer weights than
a ladder of as many variables, and 4 % fewer (2 variables) to 6 % more (12) than an hourglass.

Leeb et al., "Structure by architecture", ICLR 2023, sections 2.1 and A.2; Zhao, Song &
Ermon, ICML 2017, arXiv:1702.08396, for the ladder.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from zscope.models.layers import (
    Block,
    Shape,
    ZeroLinear,
    check_latents,
    check_shape,
    dense,
    join,
)

__all__ = ["Constant", "LadderEncoder", "Shift", "StructuralDecoder", "Transform", "split_evenly"]


class StructuralDecoder(nn.Module):
    """One of the three decoders; `blocks` are split evenly among the variables.

    `start` is the shape of S_0, which is constant, or is computed by `head` from the latents.
    """

    def __init__(
        self,
        latents: int,
        variables: int,
        start: Shape,
        blocks: list[Block],
        last: Block,
        *,
        kind: str,
        hidden: Sequence[int],
        activation: str,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.latents, self.size = latents, latents // variables
        self.all_latents = kind == "adaptive"
        self.start = Constant(start) if head is None else head
        stages = split_evenly(blocks, variables)
        inputs = latents if self.all_latents else self.size
        channels = _channels(start, stages)
        layer = Shift if kind == "ladder" else Transform
        self.transforms = nn.ModuleList(
            layer(inputs, each, hidden, activation) for each in channels
        )
        self.stages = nn.ModuleList(nn.Sequential(*join(stage)) for stage in stages)
        self.last = nn.Sequential(*last)

    def forward(self, z: Tensor) -> Tensor:
        output: Tensor = self.last(self.states(z)[-1])
        return output

    def states(self, z: Tensor) -> list[Tensor]:
        """S_1, S_2, … S_g."""
        check_latents(z, self.latents)
        states = []
        state = self.start(len(z)) if isinstance(self.start, Constant) else self.start(z)
        parts = torch.split(z, self.size, dim=1)
        for part, transform, stage in zip(parts, self.transforms, self.stages, strict=True):
            state = stage(transform(state, z if self.all_latents else part))
            states.append(state)
        return states


class Constant(nn.Module):
    """The learned features that a decoder starts from."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.empty(shape))

    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        self.value.normal_(generator=generator)

    def forward(self, count: int) -> Tensor:
        return self.value.expand(count, *self.value.shape)


class Transform(nn.Module):
    """Scale and shift each channel, computed from latents; initially the identity."""

    def __init__(self, latents: int, channels: int, hidden: Sequence[int], activation: str) -> None:
        super().__init__()
        layers = dense([latents, *hidden], activation)
        self.layers = nn.Sequential(*layers, ZeroLinear(hidden[-1], 2 * channels))

    def forward(self, features: Tensor, latents: Tensor) -> Tensor:
        outputs = self.layers(latents)
        outputs = outputs.reshape(*outputs.shape, *(1,) * (features.ndim - 2))
        log_scale, shift = outputs.chunk(2, dim=1)
        transformed: Tensor = features * log_scale.exp() + shift
        return transformed


class Shift(nn.Module):
    """Shift each channel, computed from latents."""

    def __init__(self, latents: int, channels: int, hidden: Sequence[int], activation: str) -> None:
        super().__init__()
        layers = dense([latents, *hidden], activation)
        self.layers = nn.Sequential(*layers, nn.Linear(hidden[-1], channels))

    def forward(self, features: Tensor, latents: Tensor) -> Tensor:
        shift: Tensor = self.layers(latents)
        return features + shift.reshape(*shift.shape, *(1,) * (features.ndim - 2))


class LadderEncoder(nn.Module):
    """Computes each variable at its own depth; `readings` outputs for each latent."""

    def __init__(
        self,
        shape: Shape,
        latents: int,
        variables: int,
        blocks: list[Block],
        *,
        readings: int,
        hidden: Sequence[int],
        activation: str,
    ) -> None:
        super().__init__()
        self.shape, self.readings = shape, readings
        stages = split_evenly(blocks, variables)
        self.stages = nn.ModuleList(nn.Sequential(*join(stage)) for stage in stages)
        outputs = readings * (latents // variables)
        shapes = _shapes(shape, self.stages)
        self.rungs = nn.ModuleList(
            _rung(features, outputs, hidden, activation, others=variables - 1, last=last)
            for features, last in zip(shapes, [False] * (variables - 1) + [True], strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        check_shape(x, self.shape)
        outputs = []
        for stage, rung in zip(self.stages, self.rungs, strict=True):
            x = stage(x)
            outputs.append(rung(x).chunk(self.readings, dim=1))
        # The deepest rung has the first variable; all means come first, then all log-variances.
        readings = zip(*outputs[::-1], strict=True)
        return torch.cat([part for reading in readings for part in reading], 1)

    def features(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x.flatten(1)


def _rung(
    features: Shape,
    outputs: int,
    hidden: Sequence[int],
    activation: str,
    *,
    others: int,
    last: bool,
) -> nn.Module:
    """From features to outputs. The last maps are read whole, by as many units as in an
    hourglass; the `others` are reduced to 4 x 4, and share the number of channels."""
    first: list[nn.Module] = []
    widths = [features[0], *hidden]
    if len(features) > 1 and last:
        first = [nn.Flatten()]
        widths = [math.prod(features), 128, *hidden[1:]]
    elif len(features) > 1:
        channels = max(1, features[0] // others)
        first = [nn.Conv2d(features[0], channels, 1), nn.AdaptiveAvgPool2d(4), nn.Flatten()]
        widths[0] = channels * 4 * 4
    return nn.Sequential(*first, *dense(widths, activation), nn.Linear(widths[-1], outputs))


def split_evenly(blocks: list[Block], variables: int) -> list[list[Block]]:
    """The blocks in as many consecutive groups as there are variables, as evenly as possible."""
    ends = [len(blocks) * place // variables for place in range(variables + 1)]
    return [blocks[begin:end] for begin, end in pairwise(ends)]


def _shapes(shape: Shape, stages: nn.ModuleList) -> list[Shape]:
    """The shape of the features after each stage; the modules are on the meta device."""
    shapes, x = [], torch.empty(2, *shape, device="meta")
    for stage in stages:
        x = stage(x)
        shapes.append(tuple(x.shape[1:]))
    return shapes


def _channels(start: Shape, stages: list[list[Block]]) -> list[int]:
    """The channels of each stage's input."""
    channels, x = [], torch.empty(2, *start, device="meta")
    for stage in stages:
        channels.append(x.shape[1])
        x = nn.Sequential(*join(stage))(x)
    return channels

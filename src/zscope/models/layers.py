"""The parts that all networks share, and their initial weights.

Modules are built on the meta device and filled by `initialise`, so that initial weights
depend on the seed alone.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from zscope.errors import InterfaceError
from zscope.seeds import seed_of

__all__ = [
    "ACTIVATIONS", "WEIGHTS", "Block", "Crop", "Decoder", "Encoder", "GroupNorm", "Shape",
    "ZeroLinear", "check_latents", "check_shape", "dense", "halvings", "initialise", "join",
]  # fmt: skip

WEIGHTS = 2**40  # separates this stream of random numbers from those of training steps

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky-relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "mish": nn.Mish,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}

Shape = tuple[int, ...]
Block = list[nn.Module]  # a few layers that belong together


class Encoder(nn.Module):
    """Observations in, a row of outputs for each out: a trunk and a linear head."""

    def __init__(self, shape: Shape, trunk: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.shape, self.trunk, self.head = shape, trunk, head

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.features(x))
        return output

    def features(self, x: Tensor) -> Tensor:
        """The input of the head, a row for each observation."""
        check_shape(x, self.shape)
        features: Tensor = self.trunk(x)
        return features


class Decoder(nn.Module):
    """Latents in, one observation for each out (for a Bernoulli likelihood: its logits)."""

    def __init__(self, latents: int, layers: nn.Module) -> None:
        super().__init__()
        self.latents, self.layers = latents, layers

    def forward(self, z: Tensor) -> Tensor:
        check_latents(z, self.latents)
        output: Tensor = self.layers(z)
        return output


class Crop(nn.Module):
    """The upper left part of a picture."""

    any_order = True  # of memory; see zscope.inference

    def __init__(self, size: Shape) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x[..., : self.size[0], : self.size[1]]

    def extra_repr(self) -> str:
        return f"size={self.size}"


class GroupNorm(nn.GroupNorm):
    """PyTorch's own fails under vmap on the channels-last order that convolutions return."""

    any_order = True

    def forward(self, x: Tensor) -> Tensor:
        if torch._C._functorch.is_functorch_wrapped_tensor(x):
            x = x.contiguous()
        return super().forward(x)


class ZeroLinear(nn.Linear):
    """A linear layer whose output is initially 0, whatever its input."""

    @torch.no_grad()
    def initialise(self, generator: Generator) -> None:
        self.weight.zero_()
        self.bias.zero_()


def check_shape(x: Tensor, shape: Shape) -> None:
    if tuple(x.shape[1:]) != shape:
        raise InterfaceError(
            f"encode: got a tensor of shape {tuple(x.shape)}, but this model takes batches of "
            f"{shape}. Is the batch axis missing, are the channels last, or was the "
            "model built for other data?"
        )


def check_latents(z: Tensor, latents: int) -> None:
    if z.ndim != 2 or z.shape[1] != latents:
        raise InterfaceError(
            f"decode: got a tensor of shape {tuple(z.shape)}, but this model has "
            f"{latents} latents. Give one row of latents for each sample."
        )


def initialise(model: nn.Module, *, seed: int, weights: str = "torch") -> None:
    """Allocate a model that was built on the meta device, and draw its initial weights.

        torch    weights and biases uniform within ±1/sqrt(inputs), PyTorch's own default
        xavier   weights uniform within ±sqrt(6/(inputs + outputs)), biases 0
                 (Glorot & Bengio, AISTATS 2010)

    Every child of the model (encoder, decoder, ...) has its own stream of random numbers, so
    the decoder of an AE starts with the weights of that of a VAE with the same seed. Norms
    start as the identity. A module with parameters of another kind defines
    `initialise(generator)`. Kernels are stored in channels-last order, the fastest for
    convolutions on a CPU.
    """
    _allocate(model)
    for number, part in enumerate(model.children()):
        generator = torch.Generator().manual_seed(seed_of(seed, WEIGHTS, number))
        for module in part.modules():
            _fill(module, generator, weights)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _allocate(model: nn.Module) -> None:
    """Empty tensors in place of those on the meta device.

    `model.to_empty` does the same by way of torch's compiler, which takes half as long to load as
    torch itself.
    """
    for module in model.modules():
        for name, own in list(module.named_parameters(recurse=False)):
            empty = torch.empty(own.shape, dtype=own.dtype)
            setattr(module, name, nn.Parameter(empty, requires_grad=own.requires_grad))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype))


@torch.no_grad()
def _fill(module: nn.Module, generator: Generator, weights: str) -> None:
    own = list(module.parameters(recurse=False)) + list(module.buffers(recurse=False))
    if callable(filler := getattr(module, "initialise", None)):
        filler(generator)
    elif isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
        if weights == "xavier":
            nn.init.xavier_uniform_(module.weight, generator=generator)
        else:
            nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
        if module.bias is not None:
            bound = 0 if weights == "xavier" else 1 / math.sqrt(module.weight[0].numel())
            module.bias.uniform_(-bound, bound, generator=generator)
    elif isinstance(module, nn.GroupNorm | nn.LayerNorm | nn.BatchNorm1d | nn.BatchNorm2d):
        module.reset_parameters()
    elif own:
        raise InterfaceError(
            f"initialise: {type(module).__name__} has {len(own)} tensors of its own and no "
            "initialise(generator) to fill them. Define it, so that they depend on the seed."
        )


def dense(widths: Sequence[int], activation: str) -> list[nn.Module]:
    """Linear layers between the given widths, each followed by the activation."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), ACTIVATIONS[activation]()]
    return layers


def halvings(size: Shape, times: int) -> list[Shape]:
    """The sides of a picture, and after each halving (rounded up)."""
    sides = [tuple(size)]
    for _ in range(times):
        sides.append(tuple(-(-side // 2) for side in sides[-1]))
    return sides


def join(blocks: Sequence[Block]) -> list[nn.Module]:
    """The layers of several blocks, in order."""
    return [layer for block in blocks for layer in block]

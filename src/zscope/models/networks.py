"""Backbones: the networks that a model's encoder and decoder are made of.

    mlp        fully connected, any number of layers
    linear     no hidden layer at all: the case whose answer is known in closed form
    locatello  four strided convolutions (Locatello et al., ICML 2019, arXiv:1811.12359)
    responses  convolutions, pooling and group norm (Leeb et al., arXiv:2106.16091, fig. 7-8)

Each takes observations of any shape, (features,) or (channels, height, width); the
convolutional ones need sides of 8 pixels or more, and any such size, odd or oblong, comes
back in its own shape. An encoder ends in a plain linear layer, a decoder too (logits, for
a Bernoulli likelihood). Without a choice, pictures get `locatello` and rows get `mlp`.

Modules are described here and filled by `initialise`, so that initial weights depend on
the seed alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn

from zscope.errors import InterfaceError
from zscope.models.entry import Option, one_of, sizes
from zscope.randomness import seed_of

SMALLEST_SIDE = 8
WEIGHTS = 2**40  # sets this stream of random numbers apart from those of training steps

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


class Encoder(nn.Module):
    """Observations in, `outputs` numbers for each out: a trunk and a linear head."""

    def __init__(self, shape: Shape, trunk: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.shape, self.trunk, self.head = shape, trunk, head

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.shape:
            raise InterfaceError(
                f"encode: got a tensor of shape {tuple(x.shape)}, but this model takes batches of "
                f"{self.shape}. Is the batch axis missing, are the channels last, or was the "
                "model built for other data?"
            )
        return self.head(self.trunk(x))


class Decoder(nn.Module):
    """Latents in, one observation for each out (for a Bernoulli likelihood: its logits)."""

    def __init__(self, latents: int, layers: nn.Module) -> None:
        super().__init__()
        self.latents, self.layers = latents, layers

    def forward(self, z: Tensor) -> Tensor:
        if z.ndim != 2 or z.shape[1] != self.latents:
            raise InterfaceError(
                f"decode: got a tensor of shape {tuple(z.shape)}, but this model has "
                f"{self.latents} latents. Give one row of latents for each sample."
            )
        return self.layers(z)


class Crop(nn.Module):
    """The upper left part of a picture."""

    def __init__(self, size: Shape) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x[..., : self.size[0], : self.size[1]]

    def extra_repr(self) -> str:
        return f"size={self.size}"


class GroupNorm(nn.GroupNorm):
    """PyTorch's, which under vmap refuses the channels-last order that convolutions give."""

    def forward(self, x: Tensor) -> Tensor:
        if torch._C._functorch.is_functorch_wrapped_tensor(x):
            x = x.contiguous()
        return super().forward(x)


def mlp_encoder(
    shape: Shape,
    outputs: int,
    *,
    hidden: Sequence[int] = (),
    activation: str = "relu",
    decoder_hidden: Sequence[int] | None = None,
    decoder_activation: str | None = None,
) -> Encoder:
    first = [nn.Flatten()] if len(shape) > 1 else []
    trunk = nn.Sequential(*first, *_dense([math.prod(shape), *hidden], activation))
    return Encoder(shape, trunk, nn.Linear([math.prod(shape), *hidden][-1], outputs))


def mlp_decoder(
    shape: Shape,
    latents: int,
    *,
    hidden: Sequence[int] = (),
    activation: str = "relu",
    decoder_hidden: Sequence[int] | None = None,
    decoder_activation: str | None = None,
) -> Decoder:
    mirrored = list(reversed(hidden)) if decoder_hidden is None else list(decoder_hidden)
    layers = _dense([latents, *mirrored], decoder_activation or activation)
    layers.append(nn.Linear([latents, *mirrored][-1], math.prod(shape)))
    if len(shape) > 1:
        layers.append(nn.Unflatten(1, shape))
    return Decoder(latents, nn.Sequential(*layers))


def locatello_encoder(
    shape: Shape, outputs: int, *, kernels: Sequence[int], activation: str
) -> Encoder:
    """Convolutions of stride 2 with 32, 32, 64, 64 channels, then 256 units.

    Padding is "same" as in TensorFlow, where the network comes from: a side of n pixels
    becomes ceil(n / 2), and an odd row is added below and to the right.
    """
    act, sides = ACTIVATIONS[activation], _halved(shape[1:], 4)
    layers: list[nn.Module] = []
    for (before, after), size, kernel in zip(
        pairwise([shape[0], 32, 32, 64, 64]), sides, kernels, strict=False
    ):
        height, width = (_same_padding(side, kernel) for side in size)
        even = height[0] == height[1] and width[0] == width[1]
        if not even:
            layers.append(nn.ZeroPad2d((*width, *height)))
        padding = (height[0], width[0]) if even else 0
        layers += [nn.Conv2d(before, after, kernel, stride=2, padding=padding), act()]
    layers += [nn.Flatten(), nn.Linear(64 * math.prod(sides[-1]), 256), act()]
    return Encoder(shape, nn.Sequential(*layers), nn.Linear(256, outputs))


def locatello_decoder(
    shape: Shape, latents: int, *, kernels: Sequence[int], activation: str
) -> Decoder:
    """256 units, a small map of 64 channels, then 4x4 deconvolutions of 64, 32, 32 and all
    channels; the sides are those of the encoder, backwards."""
    act, sides = ACTIVATIONS[activation], _halved(shape[1:], 4)[::-1]
    layers: list[nn.Module] = [nn.Linear(latents, 256), act()]
    layers += [nn.Linear(256, 64 * math.prod(sides[0])), act(), nn.Unflatten(1, (64, *sides[0]))]
    for (before, after), (small, large) in zip(
        pairwise([64, 64, 32, 32, shape[0]]), pairwise(sides), strict=True
    ):
        layers.append(nn.ConvTranspose2d(before, after, 4, stride=2, padding=1))
        if large != tuple(2 * side for side in small):
            layers.append(Crop(large))
        layers.append(act())
    return Decoder(latents, nn.Sequential(*layers[:-1]))


def responses_encoder(shape: Shape, outputs: int, *, activation: str) -> Encoder:
    """Blocks of convolution, pooling, group norm and ELU until the shorter side is 2, then 256
    and 128 units: five blocks at 64 x 64, four at 32 x 32 and 28 x 28."""
    act, sides = ACTIVATIONS[activation], _halved(shape[1:], _pooled_blocks(shape))
    layers: list[nn.Module] = []
    for block in range(len(sides) - 1):
        before, kernel = (shape[0], 5) if block == 0 else (64, 3)
        layers += [
            nn.Conv2d(before, 64, kernel, padding=kernel // 2),
            nn.MaxPool2d(2, ceil_mode=True),
            GroupNorm(8, 64),
            act(),
        ]
    layers += [nn.Flatten(), *_dense([64 * math.prod(sides[-1]), 256, 128], activation)]
    return Encoder(shape, nn.Sequential(*layers), nn.Linear(128, outputs))


def responses_decoder(shape: Shape, latents: int, *, activation: str) -> Decoder:
    """128 and 256 units, a small map of 16 channels (4 x 4 x 16 = 256 units at 64 x 64), one
    block of bilinear upsampling and convolution fewer than the encoder, and a last convolution.

    The paper prints four such blocks between 256 units and 64 x 64 pixels, which fixes the
    16 channels. It enlarges 28 x 28 data to 32 x 32; here the sizes are the encoder's.
    """
    act, sides = ACTIVATIONS[activation], _halved(shape[1:], _pooled_blocks(shape))[-2::-1]
    layers = _dense([latents, 128, 256, 16 * math.prod(sides[0])], activation)
    layers.append(nn.Unflatten(1, (16, *sides[0])))
    for block, size in enumerate(sides[1:]):
        layers += [
            nn.Upsample(size, mode="bilinear", align_corners=False),
            nn.Conv2d(16 if block == 0 else 64, 64, 3, padding=1),
            GroupNorm(8, 64),
            act(),
        ]
    return Decoder(latents, nn.Sequential(*layers, nn.Conv2d(64, shape[0], 3, padding=1)))


@dataclass(frozen=True)
class Backbone:
    """A pair of network builders: `encoder(shape, outputs, **options)` and
    `decoder(shape, latents, **options)`."""

    title: str
    encoder: Callable[..., nn.Module]
    decoder: Callable[..., nn.Module]
    options: Mapping[str, Option]
    pictures_only: bool = False


def _activation(default: str | None, of: str = "hidden layers") -> Option:
    known = ", ".join(ACTIVATIONS)
    return Option(default, f"Non-linearity of the {of}: {known}.", one_of(ACTIVATIONS))


def _kernels(value: Any) -> list[int]:
    if (read := sizes(value)) not in ([4, 4, 4, 4], [4, 4, 2, 2]):
        raise ValueError("(4, 4, 4, 4) or (4, 4, 2, 2) is needed")
    return read


BACKBONES = {
    "mlp": Backbone(
        "fully connected layers",
        mlp_encoder,
        mlp_decoder,
        {
            "hidden": Option([256, 256], "Sizes of the encoder's hidden layers.", sizes),
            "activation": _activation("relu"),
            "decoder_hidden": Option(
                None, "Sizes of the decoder's hidden layers; the encoder's backwards.", sizes
            ),
            "decoder_activation": _activation(None, "decoder, if not the encoder's"),
        },
    ),
    "linear": Backbone("no hidden layer: linear theory", mlp_encoder, mlp_decoder, {}),
    "locatello": Backbone(
        "four strided convolutions, 256 units",
        locatello_encoder,
        locatello_decoder,
        {
            "kernels": Option(
                [4, 4, 4, 4],
                "Kernel sizes of the encoder: 4,4,4,4, or 4,4,2,2 as in disentanglement_lib.",
                _kernels,
            ),
            "activation": _activation("relu"),
        },
        pictures_only=True,
    ),
    "responses": Backbone(
        "convolutions with pooling and group norm, about 500,000 weights at 64 x 64",
        responses_encoder,
        responses_decoder,
        {"activation": _activation("elu")},
        pictures_only=True,
    ),
}


def default_backbone(shape: Shape) -> str:
    """`locatello` for pictures of at least 8 x 8, `mlp` for everything else."""
    return "locatello" if len(shape) == 3 and min(shape[1:]) >= SMALLEST_SIDE else "mlp"


def initialise(model: nn.Module, *, seed: int, weights: str = "torch") -> None:
    """Give a model that was built on the meta device its memory and its initial weights.

        torch    weights and biases uniform within ±1/sqrt(inputs), PyTorch's own default
        xavier   weights uniform within ±sqrt(6/(inputs + outputs)), biases 0
                 (Glorot & Bengio, AISTATS 2010)

    Every child of the model (encoder, decoder, ...) has a stream of its own, so the decoder
    of an AE starts like that of a VAE with the same seed. Norms start as the identity. A
    module with parameters of another kind defines `initialise(generator)`. Kernels end up
    in channels-last order, the fastest for convolutions on a CPU.
    """
    model.to_empty(device="cpu")
    for number, part in enumerate(model.children()):
        generator = torch.Generator().manual_seed(seed_of(seed, WEIGHTS, number))
        for module in part.modules():
            _fill(module, generator, weights)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@torch.no_grad()
def _fill(module: nn.Module, generator: Generator, weights: str) -> None:
    own = list(module.parameters(recurse=False)) + list(module.buffers(recurse=False))
    if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
        if weights == "xavier":
            nn.init.xavier_uniform_(module.weight, generator=generator)
        else:
            nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5), generator=generator)
        if module.bias is not None:
            bound = 0 if weights == "xavier" else 1 / math.sqrt(module.weight[0].numel())
            module.bias.uniform_(-bound, bound, generator=generator)
    elif isinstance(module, nn.GroupNorm | nn.LayerNorm | nn.BatchNorm1d | nn.BatchNorm2d):
        module.reset_parameters()
    elif callable(filler := getattr(module, "initialise", None)):
        filler(generator)
    elif own:
        raise InterfaceError(
            f"initialise: {type(module).__name__} has {len(own)} tensors of its own and no "
            "initialise(generator) that fills them. Define it, so that the seed decides them."
        )


def _dense(widths: Sequence[int], activation: str) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), ACTIVATIONS[activation]()]
    return layers


def _halved(size: Shape, times: int) -> list[Shape]:
    """The sides of a picture, and after each halving (rounded up)."""
    sides = [tuple(size)]
    for _ in range(times):
        sides.append(tuple(-(-side // 2) for side in sides[-1]))
    return sides


def _pooled_blocks(shape: Shape) -> int:
    return math.ceil(math.log2(min(shape[1:]))) - 1


def _same_padding(side: int, kernel: int) -> tuple[int, int]:
    """Zeros before and after, so that stride 2 gives ceil(side / 2)."""
    total = max(2 * (-(-side // 2) - 1) + kernel - side, 0)
    return total // 2, total - total // 2

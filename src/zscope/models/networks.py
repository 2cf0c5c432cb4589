"""Backbones: the networks of encoders and decoders.

    mlp          fully connected, any number of layers
    linear       no hidden layer at all: the case whose answer is known in closed form
    locatello    four strided convolutions (Locatello et al., ICML 2019, arXiv:1811.12359)
    responses    convolutions, pooling and group norm (Leeb et al., arXiv:2106.16091, fig. 7-8)
    structural   twelve convolutions with group norm (Leeb et al., ICLR 2023, app. A.2)
    consistency  convolutions with batch norm ("On the interventional consistency of
                 autoencoders", app. A.3); depth=6 and 6 latents are its size S
    spatial      convolutions alone: the latents are maps, channels x places (`spatial.py`)

Each takes observations of any shape, (features,) or (channels, height, width); the
convolutional ones need sides of 8 pixels or more and restore any such size, odd or oblong
(`spatial`: sides that can be halved).
Encoders and decoders end in a plain linear layer (logits, for a Bernoulli likelihood). By
default pictures larger than 16 x 16 get `locatello`; smaller ones and rows get `mlp`; pictures
with a structural decoder, which needs many blocks, get `structural`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from zscope.errors import ConfigError
from zscope.layout import Layout
from zscope.models import convolutional, spatial
from zscope.models.entry import Option, one_of, sizes, whole
from zscope.models.layers import (
    ACTIVATIONS,
    WEIGHTS,
    Block,
    Decoder,
    Encoder,
    GroupNorm,
    Shape,
    dense,
    initialise,
)

__all__ = [
    "ACTIVATIONS", "BACKBONES", "SMALLEST_SIDE", "WEIGHTS", "Backbone", "Decoder", "Encoder",
    "GroupNorm", "default_backbone", "initialise", "mlp_decoder", "mlp_encoder",
]  # fmt: skip

SMALLEST_SIDE = 8
LARGEST_FOR_MLP = 16
"""Up to this side, four strided convolutions leave a single place of the picture."""
DEEPEST = 1000  # blocks


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
    trunk = nn.Sequential(*first, *dense([math.prod(shape), *hidden], activation))
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
    layers = dense([latents, *mirrored], decoder_activation or activation)
    layers.append(nn.Linear([latents, *mirrored][-1], math.prod(shape)))
    if len(shape) > 1:
        layers.append(nn.Unflatten(1, shape))
    return Decoder(latents, nn.Sequential(*layers))


def mlp_encoder_blocks(
    shape: Shape,
    *,
    hidden: Sequence[int],
    activation: str,
    decoder_hidden: Sequence[int] | None,
    decoder_activation: str | None,
) -> list[Block]:
    """A block for each hidden layer."""
    widths = [math.prod(shape), *hidden]
    layers = dense(widths, activation)
    blocks = [layers[2 * number : 2 * number + 2] for number in range(len(widths) - 1)]
    return [[nn.Flatten(), *blocks[0]], *blocks[1:]] if len(shape) > 1 else blocks


def mlp_decoder_blocks(
    shape: Shape,
    *,
    hidden: Sequence[int],
    activation: str,
    decoder_hidden: Sequence[int] | None,
    decoder_activation: str | None,
) -> tuple[Shape, list[Block], Block]:
    """A block for each hidden layer, from a vector as wide as the first."""
    widths = list(reversed(hidden)) if decoder_hidden is None else list(decoder_hidden)
    if not widths:
        raise ConfigError(
            "models: latents enter this decoder between its hidden layers, but hidden or "
            "decoder_hidden is empty. Give at least one size, for instance hidden=256."
        )
    layers = dense([widths[0], *widths], decoder_activation or activation)
    blocks = [layers[2 * number : 2 * number + 2] for number in range(len(widths))]
    last: Block = [nn.Linear(widths[-1], math.prod(shape))]
    return (widths[0],), blocks, [*last, nn.Unflatten(1, shape)] if len(shape) > 1 else last


@dataclass(frozen=True)
class Backbone:
    """A pair of network builders, `encoder(shape, outputs, **options)` and
    `decoder(shape, latents, **options)`, and their blocks, for models that combine them in
    another way: `encoder_blocks(shape, **options)` and `decoder_blocks(shape, **options)`,
    which returns the shape of its input features, the blocks, and the last layers. None
    where there are no blocks. `layout(shape, **options)` is that of the latents, if they are maps.
    """

    title: str
    encoder: Callable[..., Encoder | spatial.SpatialEncoder]
    decoder: Callable[..., Decoder | spatial.SpatialDecoder]
    encoder_blocks: Callable[..., list[Block]] | None
    decoder_blocks: Callable[..., tuple[Shape, list[Block], Block]] | None
    options: Mapping[str, Option]
    pictures_only: bool = False
    layout: Callable[..., Layout] | None = None


def _activation(default: str | None, of: str = "hidden layers") -> Option:
    known = ", ".join(ACTIVATIONS)
    return Option(default, f"Non-linearity of the {of}: {known}.", one_of(ACTIVATIONS))


def _kernels(value: Any) -> list[int]:
    if (kernels := sizes(value)) not in ([4, 4, 4, 4], [4, 4, 2, 2]):
        raise ValueError("expected (4, 4, 4, 4) or (4, 4, 2, 2)")
    return kernels


def _eights(value: Any) -> int:
    if (channels := whole(8)(value)) % 8:
        raise ValueError("expected a multiple of 8, the number of groups that are normalised")
    return channels


def _sixteens(value: Any) -> int:
    if (filters := whole(16)(value)) % 16:
        raise ValueError("expected a multiple of 16: half of them are normalised in 8 groups")
    return filters


BACKBONES = {
    "mlp": Backbone(
        "fully connected layers",
        mlp_encoder,
        mlp_decoder,
        mlp_encoder_blocks,
        mlp_decoder_blocks,
        {
            "hidden": Option([256, 256], "Sizes of the encoder's hidden layers.", sizes),
            "activation": _activation("relu"),
            "decoder_hidden": Option(
                None,
                "Sizes of the decoder's hidden layers; by default the encoder's in reverse.",
                sizes,
            ),
            "decoder_activation": _activation(None, "decoder, if it differs from the encoder's"),
        },
    ),
    "linear": Backbone(
        "no hidden layer, as in linear theory", mlp_encoder, mlp_decoder, None, None, {}
    ),
    "locatello": Backbone(
        "four strided convolutions, 256 units",
        convolutional.locatello_encoder,
        convolutional.locatello_decoder,
        convolutional.locatello_encoder_blocks,
        convolutional.locatello_decoder_blocks,
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
        convolutional.responses_encoder,
        convolutional.responses_decoder,
        convolutional.responses_encoder_blocks,
        convolutional.responses_decoder_blocks,
        {
            "layout": Option(
                "mirrored",
                "Decoder: mirrored (a block for each of the encoder's), or printed (one fewer).",
                one_of(["mirrored", "printed"]),
            ),
            "activation": _activation("elu"),
        },
        pictures_only=True,
    ),
    "structural": Backbone(
        "twelve blocks of convolution and group norm, about 1,100,000 weights at 64 x 64",
        convolutional.structural_encoder,
        convolutional.structural_decoder,
        convolutional.structural_encoder_blocks,
        convolutional.structural_decoder_blocks,
        {
            "depth": Option(
                None, "Blocks in each half; 12, or 16 from 128 pixels up.", whole(1, DEEPEST)
            ),
            "filters": Option(None, "Channels; 64, or 128 from 128 pixels up.", _eights),
            "activation": _activation("mish"),
        },
        pictures_only=True,
    ),
    "consistency": Backbone(
        "blocks of convolution and batch norm, 423,259 weights at 28 x 28 with 12 latents",
        convolutional.consistency_encoder,
        convolutional.consistency_decoder,
        convolutional.consistency_encoder_blocks,
        convolutional.consistency_decoder_blocks,
        {
            "depth": Option(
                12, "Blocks in each half; 6 in the published size S.", whole(1, DEEPEST)
            ),
            "filters": Option(32, "Channels of every block.", whole(1)),
            "pools": Option(None, "Halvings; 3, or 7 from 128 pixels up.", whole(1)),
            "head": Option(
                None,
                "Sizes of the dense layers; 256,128, or 128,64 for models with a variance.",
                sizes,
            ),
            "activation": _activation("mish"),
        },
        pictures_only=True,
    ),
    "spatial": Backbone(
        "convolutions alone: latents are maps, 162,507 weights at 32 x 32 with 4 channels",
        spatial.spatial_encoder,
        spatial.spatial_decoder,
        None,
        None,
        {
            "channels": Option(
                4, "Channels of the latents; there are channels x places latents.", whole(1)
            ),
            "halvings": Option(
                None,
                "Halvings of the sides; the most that leave "
                f"{spatial.FEWEST_PLACES} places: 8 x 8 at 32 and at 64 pixels.",
                whole(1, 20),
            ),
            "filters": Option(64, "Filters of every layer; half as many in the first.", _sixteens),
            "activation": _activation("silu"),
        },
        pictures_only=True,
        layout=spatial.layout_of,
    ),
}


def default_backbone(shape: Shape, *, many_blocks: bool = False) -> str:
    """The network for observations of this shape, if none is chosen.

    `structural` for pictures of at least 8 x 8 where many blocks are needed. Else `locatello`
    for pictures with both sides above 16, and `mlp` for everything else. On smaller pictures
    `locatello` is worse and slower. VAEs with 10 latents, rate 1e-4: on 8 x 8 digits all of its
    latents are passive after 5,000 steps, while `mlp` explains 61 % of the variance in a seventh
    of the time; on MNIST at 16 x 16, after 4,000 steps, it explains 12 % and `mlp` 53 %. At
    20 x 20 `mlp` is still ahead early in training (rate 3e-4, 1,500 steps, one seed: 60 % with 8
    latents used against 18 % with 5, in a fifth of the time); where they cross was not measured.
    """
    side = min(shape[1:]) if len(shape) == 3 else 0
    if many_blocks:
        return "structural" if side >= SMALLEST_SIDE else "mlp"
    return "locatello" if side > LARGEST_FOR_MLP else "mlp"

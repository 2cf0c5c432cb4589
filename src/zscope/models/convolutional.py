"""Convolutional backbones, as sequences of blocks.

Every backbone defines the blocks of its encoder, and those of its decoder with the shape of
the features they start from. An hourglass puts dense layers between the two; a structural
decoder (`structural.py`) feeds latents in between the blocks.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from zscope.models.layers import (
    ACTIVATIONS,
    Block,
    Crop,
    Decoder,
    Encoder,
    GroupNorm,
    Shape,
    dense,
    halvings,
    join,
)

__all__ = [
    "consistency_decoder", "consistency_decoder_blocks", "consistency_encoder",
    "consistency_encoder_blocks", "locatello_decoder", "locatello_decoder_blocks",
    "locatello_encoder", "locatello_encoder_blocks", "responses_decoder",
    "responses_decoder_blocks", "responses_encoder", "responses_encoder_blocks",
    "structural_decoder", "structural_decoder_blocks", "structural_encoder",
    "structural_encoder_blocks",
]  # fmt: skip


def _encoder(
    shape: Shape,
    blocks: list[Block],
    flat: int,
    hidden: Sequence[int],
    outputs: int,
    activation: str,
) -> Encoder:
    """The blocks, flattened, then dense layers and a linear head."""
    layers = [*join(blocks), nn.Flatten(), *dense([flat, *hidden], activation)]
    return Encoder(shape, nn.Sequential(*layers), nn.Linear([flat, *hidden][-1], outputs))


def _decoder(
    latents: int, hidden: Sequence[int], start: Shape, blocks: list[Block], last: Block, act: str
) -> list[nn.Module]:
    layers = dense([latents, *hidden, math.prod(start)], act)
    return [*layers, nn.Unflatten(1, start), *join(blocks), *last]


# Locatello et al., ICML 2019.


def locatello_encoder_blocks(
    shape: Shape, *, kernels: Sequence[int], activation: str
) -> list[Block]:
    """Convolutions of stride 2 with 32, 32, 64, 64 channels.

    Padding is "same" as in TensorFlow, for which the network was written: a side of n pixels
    becomes ceil(n / 2), and an odd row is added below and to the right.
    """
    blocks = []
    for (before, after), size, kernel in zip(
        pairwise([shape[0], 32, 32, 64, 64]), halvings(shape[1:], 4), kernels, strict=False
    ):
        height, width = (_same_padding(side, kernel) for side in size)
        even = height[0] == height[1] and width[0] == width[1]
        block: Block = [] if even else [nn.ZeroPad2d((*width, *height))]
        padding = (height[0], width[0]) if even else 0
        block += [nn.Conv2d(before, after, kernel, stride=2, padding=padding)]
        blocks.append([*block, ACTIVATIONS[activation]()])
    return blocks


def locatello_decoder_blocks(
    shape: Shape, *, kernels: Sequence[int], activation: str
) -> tuple[Shape, list[Block], Block]:
    """A small map of 64 channels, then 4x4 deconvolutions with 64, 32, 32 and the picture's
    channels; the sides are those of the encoder in reverse."""
    sides = halvings(shape[1:], 4)[::-1]
    blocks = []
    for (before, after), (small, large) in zip(
        pairwise([64, 64, 32, 32, shape[0]]), pairwise(sides), strict=True
    ):
        block: Block = [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1)]
        if large != tuple(2 * side for side in small):
            block.append(Crop(large))
        blocks.append([*block, ACTIVATIONS[activation]()])
    return (64, *sides[0]), blocks[:-1], blocks[-1][:-1]


def locatello_encoder(
    shape: Shape, outputs: int, *, kernels: Sequence[int], activation: str
) -> Encoder:
    """Four convolutions, then 256 units."""
    blocks = locatello_encoder_blocks(shape, kernels=kernels, activation=activation)
    flat = 64 * math.prod(halvings(shape[1:], 4)[-1])
    return _encoder(shape, blocks, flat, [256], outputs, activation)


def locatello_decoder(
    shape: Shape, latents: int, *, kernels: Sequence[int], activation: str
) -> Decoder:
    """256 units, then four deconvolutions."""
    parts = locatello_decoder_blocks(shape, kernels=kernels, activation=activation)
    return Decoder(latents, nn.Sequential(*_decoder(latents, [256], *parts, activation)))


# Leeb et al., "Interventional assays", arXiv:2106.16091.


def responses_encoder_blocks(
    shape: Shape, *, activation: str, layout: str = "mirrored"
) -> list[Block]:
    """Blocks of convolution, pooling, group norm and ELU until the shorter side is 2: five
    at 64 x 64, four at 32 x 32 and 28 x 28."""
    blocks: list[Block] = []
    for block in range(_pooled_blocks(shape)):
        before, kernel = (shape[0], 5) if block == 0 else (64, 3)
        blocks.append(
            [
                nn.Conv2d(before, 64, kernel, padding=kernel // 2),
                nn.MaxPool2d(2, ceil_mode=True),
                GroupNorm(8, 64),
                ACTIVATIONS[activation](),
            ]
        )
    return blocks


def responses_decoder_blocks(
    shape: Shape, *, activation: str, layout: str = "mirrored"
) -> tuple[Shape, list[Block], Block]:
    """Upsampling, convolution, group norm and ELU: as many blocks as in the encoder, from 64
    channels, or with the layout "printed" one fewer, from 16.

    Figure 8 of the paper shows four blocks between 256 units and 64 x 64 pixels, which implies
    the 16 channels (482,419 weights with 24 latents); the weights that the authors published
    have five, from 64 channels of 2 x 2 (547,123 with the dense layers that are printed, 513,716
    with theirs). The paper enlarges 28 x 28 data to 32 x 32; here the sizes are the encoder's.
    """
    printed = layout == "printed"
    sides = halvings(shape[1:], _pooled_blocks(shape))[-2 if printed else -1 :: -1]
    first = 16 if printed else 64
    blocks: list[Block] = []
    for block, size in enumerate(sides[1:]):
        blocks.append(
            [
                nn.Upsample(size, mode="bilinear", align_corners=False),
                nn.Conv2d(first if block == 0 else 64, 64, 3, padding=1),
                GroupNorm(8, 64),
                ACTIVATIONS[activation](),
            ]
        )
    return (first, *sides[0]), blocks, [nn.Conv2d(64, shape[0], 3, padding=1)]


def responses_encoder(
    shape: Shape, outputs: int, *, activation: str, layout: str = "mirrored"
) -> Encoder:
    """The blocks, then 256 and 128 units."""
    blocks = responses_encoder_blocks(shape, activation=activation)
    flat = 64 * math.prod(halvings(shape[1:], len(blocks))[-1])
    return _encoder(shape, blocks, flat, [256, 128], outputs, activation)


def responses_decoder(
    shape: Shape, latents: int, *, activation: str, layout: str = "mirrored"
) -> Decoder:
    """128 and 256 units, then the blocks."""
    parts = responses_decoder_blocks(shape, activation=activation, layout=layout)
    return Decoder(latents, nn.Sequential(*_decoder(latents, [128, 256], *parts, activation)))


# Leeb et al., "Structure by architecture", ICLR 2023.


def structural_encoder_blocks(
    shape: Shape, *, depth: int | None, filters: int | None, activation: str
) -> list[Block]:
    """Convolution, group norm and Mish; every third block of 12, from the first, pools."""
    depth, filters = _structural_size(shape, depth, filters)
    spacing = _spacing(depth)
    blocks: list[Block] = []
    for number in range(depth):
        before, kernel = (shape[0], 5) if number == 0 else (filters, 3)
        block: Block = [nn.Conv2d(before, filters, kernel, padding=kernel // 2)]
        if number % spacing == 0:
            block.append(nn.MaxPool2d(2, ceil_mode=True))
        blocks.append([*block, GroupNorm(8, filters), ACTIVATIONS[activation]()])
    return blocks


def structural_decoder_blocks(
    shape: Shape, *, depth: int | None, filters: int | None, activation: str
) -> tuple[Shape, list[Block], Block]:
    """As many blocks; upsampling precedes a convolution where the encoder pools after one."""
    depth, filters = _structural_size(shape, depth, filters)
    spacing = _spacing(depth)
    sides = halvings(shape[1:], -(-depth // spacing))[::-1]
    blocks: list[Block] = []
    for number in range(depth):
        grow: Block = []
        if number % spacing == 0:
            size = sides[number // spacing + 1]
            grow = [nn.Upsample(size, mode="bilinear", align_corners=False)]
        convolution = nn.Conv2d(filters, filters, 3, padding=1)
        blocks.append([*grow, convolution, GroupNorm(8, filters), ACTIVATIONS[activation]()])
    return (filters, *sides[0]), blocks, [nn.Conv2d(filters, shape[0], 3, padding=1)]


def structural_encoder(
    shape: Shape, outputs: int, *, depth: int | None, filters: int | None, activation: str
) -> Encoder:
    """The blocks, then 128 units."""
    size = {"depth": depth, "filters": filters, "activation": activation}
    blocks = structural_encoder_blocks(shape, **size)  # type: ignore[arg-type]
    channels = _structural_size(shape, depth, filters)[1]
    pools = -(-len(blocks) // _spacing(len(blocks)))
    flat = channels * math.prod(halvings(shape[1:], pools)[-1])
    return _encoder(shape, blocks, flat, [128], outputs, activation)


def structural_decoder(
    shape: Shape, latents: int, *, depth: int | None, filters: int | None, activation: str
) -> Decoder:
    """64 units, then the blocks."""
    parts = structural_decoder_blocks(shape, depth=depth, filters=filters, activation=activation)
    return Decoder(latents, nn.Sequential(*_decoder(latents, [64], *parts, activation)))


def _structural_size(shape: Shape, depth: int | None, filters: int | None) -> tuple[int, int]:
    large = min(shape[1:]) >= 128
    return depth or (16 if large else 12), filters or (128 if large else 64)


def _spacing(depth: int) -> int:
    """Blocks from one halving to the next: 3 up to 12 blocks, then a quarter of the depth.

    The paper says every third layer, of 12. With 16 blocks of 128 filters that would be six
    halvings, and 4.7 to 5 million weights instead of the printed 6 to 7; four halvings leave
    features of 8 x 8 and give the printed number.
    """
    return max(3, -(-depth // 4))


# "On the interventional consistency of autoencoders". The heads, and where the last layers
# lie, follow from the parameter counts of table 4, which these networks reproduce exactly.


def _consistency_block(before: int, after: int, activation: str) -> Block:
    convolution = nn.Conv2d(before, after, 3, padding=1)
    return [convolution, ACTIVATIONS[activation](), nn.BatchNorm2d(after)]


def consistency_encoder_blocks(
    shape: Shape, *, depth: int, filters: int, pools: int | None, activation: str, **_: Any
) -> list[Block]:
    """Convolution, Mish and batch norm, with pooling at regular intervals."""
    after = _pool_places(shape, depth, pools)
    blocks: list[Block] = []
    for number in range(depth):
        block = _consistency_block(filters if number else shape[0], filters, activation)
        blocks.append([*block, nn.MaxPool2d(2)] if number in after else block)
    return blocks


def consistency_decoder_blocks(
    shape: Shape, *, depth: int, filters: int, pools: int | None, activation: str, **_: Any
) -> tuple[Shape, list[Block], Block]:
    """The encoder in reverse: upsampling where it pools, to the same sizes; then a
    convolution from the picture's channels to themselves, with batch norm."""
    after = _pool_places(shape, depth, pools)
    sides = _floor_halvings(shape[1:], len(after))[::-1]
    upsampled = 0
    blocks: list[Block] = []
    for number in reversed(range(depth)):
        block: Block = []
        if number in after:
            upsampled += 1
            block = [nn.Upsample(sides[upsampled], mode="bilinear", align_corners=False)]
        channels = filters if number else shape[0]
        blocks.append([*block, *_consistency_block(filters, channels, activation)])
    last: Block = [nn.Conv2d(shape[0], shape[0], 3, padding=1), nn.BatchNorm2d(shape[0])]
    return (filters, *sides[0]), blocks, last


def consistency_encoder(
    shape: Shape,
    outputs: int,
    *,
    head: Sequence[int],
    bottleneck: int | None,
    filters: int,
    activation: str,
    **options: Any,
) -> Encoder:
    """The blocks, then the units of `head`: with the last, three linear layers. With a
    `bottleneck` the third gives so many numbers, and one more linear layer the outputs."""
    blocks = consistency_encoder_blocks(shape, filters=filters, activation=activation, **options)
    sides = _floor_halvings(shape[1:], len(_pool_places(shape, **options)))
    widths = [filters * math.prod(sides[-1]), *head]
    layers = [*join(blocks), nn.Flatten(), *dense(widths, activation)]
    if bottleneck is not None:
        layers.append(nn.Linear(widths[-1], bottleneck))
        widths.append(bottleneck)
    return Encoder(shape, nn.Sequential(*layers), nn.Linear(widths[-1], outputs))


def consistency_decoder(
    shape: Shape,
    latents: int,
    *,
    head: Sequence[int],
    activation: str,
    **options: Any,
) -> Decoder:
    """The units of `head` in reverse and batch norm, then the blocks."""
    start, blocks, last = consistency_decoder_blocks(shape, activation=activation, **options)
    layers = dense([latents, *reversed(head), math.prod(start)], activation)
    layers += [nn.BatchNorm1d(math.prod(start)), nn.Unflatten(1, start)]
    return Decoder(latents, nn.Sequential(*layers, *join(blocks), *last))


def _pool_places(shape: Shape, depth: int, pools: int | None) -> list[int]:
    """The blocks after which a picture is halved: evenly spaced, including the last."""
    count = pools or (7 if min(shape[1:]) >= 128 else 3)
    count = min(count, depth, int(math.log2(min(shape[1:]))))
    return [depth * (place + 1) // count - 1 for place in range(count)]


def _floor_halvings(size: Shape, times: int) -> list[Shape]:
    """The sides of a picture, and after each halving (rounded down)."""
    sides = [tuple(size)]
    for _ in range(times):
        sides.append(tuple(side // 2 for side in sides[-1]))
    return sides


def _pooled_blocks(shape: Shape) -> int:
    return math.ceil(math.log2(min(shape[1:]))) - 1


def _same_padding(side: int, kernel: int) -> tuple[int, int]:
    """Zeros before and after, so that stride 2 gives ceil(side / 2)."""
    total = max(2 * (-(-side // 2) - 1) + kernel - side, 0)
    return total // 2, total - total // 2

"""Clouds of latents that are maps: what is compared by their distribution.

    "place"      the channels at 4 random places of each picture, c numbers each
    "picture"    all latents of a picture, c x places numbers

both in units of the standard deviation of each channel. Vectors at places of one picture resemble
each other, so that tests keep them together (`mmd`). In the thousands of dimensions of whole maps
all distances are nearly equal and a test of few pictures would find nothing: 512 are the least.
"""

from typing import Literal

import torch
from torch import Generator, Tensor

from zscope.errors import ConfigError, Undefined
from zscope.layout import Layout
from zscope.types import Codes

__all__ = ["Cloud", "check_cloud", "cloud_of", "rows_of_each"]

Cloud = Literal["place", "picture"]
PLACES = 4
FEWEST_PICTURES = 512


def check_cloud(who: str, cloud: Cloud, layout: Layout | None, pictures: int) -> None:
    """Refuse clouds of whole maps of few pictures, and of vectors."""
    if cloud not in ("place", "picture"):
        raise ConfigError(f"{who}: cloud={cloud!r}; use 'place' or 'picture'.")
    if cloud == "place":
        return
    if layout is None:
        raise ConfigError(
            f"{who}: cloud='picture', but the latents are a vector, without places. Leave it out."
        )
    if pictures < FEWEST_PICTURES:
        raise Undefined(
            f"{who}: cloud='picture' with {pictures} pictures of {layout.latents:,} latents: "
            "distances between whole maps are nearly equal, and so few pictures show nothing. Use "
            f"samples={FEWEST_PICTURES} or more, or leave cloud out to compare channels at places."
        )


def rows_of_each(cloud: Cloud, layout: Layout) -> int:
    """How many rows of a cloud belong to one picture."""
    return 1 if cloud == "picture" else min(PLACES, layout.positions)


def cloud_of(
    codes: Codes, layout: Layout, scale: Tensor, cloud: Cloud, generator: Generator
) -> Tensor:
    """The rows of a cloud, those of a picture one after another."""
    unit = torch.where(scale > 0, scale, torch.inf).to(codes.device)
    maps = codes.double().reshape(len(codes), layout.channels, layout.positions) / unit[:, None]
    if cloud == "picture":
        return maps.flatten(1)
    order = torch.rand(
        len(codes), layout.positions, generator=generator, device=generator.device
    ).to(codes.device)
    places = order.topk(rows_of_each(cloud, layout), dim=1).indices
    chosen = maps.gather(2, places[:, None].expand(-1, layout.channels, -1))
    return chosen.transpose(1, 2).flatten(0, 1)

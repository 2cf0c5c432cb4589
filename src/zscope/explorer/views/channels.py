"""Channels: change the latent maps of a picture, and see what the decoder and encoder make of it.

With z the maps of a picture, m_k the mean map of channel k and sigma_k its standard deviation, o_k
and g_k its offset and gain, and e white noise,

    y  = z with patches of other pictures, + sigma_k times what was brushed
    z' = low_pass(m_k + g_k (y_k - m_k) + o_k sigma_k) + noise sigma_k e

and m_k itself for a channel that is muted. The order is ours.
"""

from base64 import b64encode
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from zscope.assays.diffusion.locality import REACHED
from zscope.assays.diffusion.spectrum import cut, low_pass
from zscope.assays.engine import decode_and_respond
from zscope.errors import ConfigError
from zscope.explorer.session import MapFacts, Session
from zscope.explorer.views.query import Index, Number, Query, Seed
from zscope.layout import Layout

__all__ = ["Channels", "channels"]

MOST_CHANNELS = 4096
MOST_NUMBERS = 12_000
"""In a list of brushed places or patches."""
LARGEST_BRUSH = 8
LARGEST_HALF = 65_504.0
PICTURE = 288
"""The largest side, in pixels, of a picture, as wide as it is shown: more would be slow to send."""

PerChannel = Annotated[list[Number], Field(min_length=1, max_length=MOST_CHANNELS)]


class Channels(Query):
    """A picture, and what to change in its latent maps."""

    sample: Index | None = None
    """The number of a recorded picture; by default the one nearest to the mean of all codes."""
    offset: PerChannel | None = None
    """What to add to each channel, in units of its standard deviation."""
    gain: PerChannel | None = None
    """What to multiply the difference of each channel from its mean map with."""
    mute: Annotated[list[Index], Field(min_length=1, max_length=MOST_CHANNELS)] | None = None
    """Channels to set to their mean maps, whatever else is asked."""
    brush: Annotated[list[Number], Field(min_length=1, max_length=MOST_NUMBERS)] | None = None
    """Places to change: for each a channel, the coordinates of the place, the side of the square
    around it (1 to 8 places, in one frame), and what to add there, in units of the channel's
    standard deviation. Where squares of a channel overlap, the last one counts."""
    paste: Annotated[list[Index], Field(min_length=1, max_length=MOST_NUMBERS)] | None = None
    """Patches of other pictures: for each the number of the picture, the coordinates of a place and
    the side of the square around it, which is replaced in all channels."""
    noise: Annotated[float, Field(ge=0, le=10)] = 0
    """The standard deviation of the noise to add, in units of each channel's."""
    seed: Seed = 0
    """The seed of the noise."""
    keep: Annotated[float, Field(gt=0, le=1)] = 1
    """The share of the lowest terms of the cosine transform to keep along each axis."""
    frame: Index = 0
    """The frame of a video to show."""
    exact: bool = False
    """Return all numbers instead of pictures and half precision."""

    @property
    def everywhere(self) -> bool:
        """Whether more than patches and brushed places may change."""
        return bool(self.offset or self.gain or self.mute or self.noise or self.keep < 1)


def channels(session: Session, query: Channels) -> dict[str, Any]:
    """The latent maps z of a picture after the changes, decoded and encoded again.

    `difference` is |D(z) - D(z0)|, from the picture without the changes, as a share of the range of
    the data; `displacement` is R(z) - z, `displaced` its root mean square in each channel, and
    `change` is R(z) - R(z0). Maps are in units of each channel's standard deviation, z from its
    mean, as /api/session has them; `half` is base64 of little-endian half-precision numbers.
    `rings` has the distance of each place from those that were brushed or pasted. If nothing else
    was changed, it also has `within`, the share of the squared change of the response up to each
    distance, `reach`, the distance up to which it is 90 %, and `gain`, how much of the change is
    preserved (1: all of it).
    """
    row, facts = session.row(query.sample), session.maps
    assert facts is not None  # else `Endpoint.reply` refuses
    frame = session.renderer.frame(query.frame)
    original = session.codes[row]
    local = _brushed(session, facts, query, row)
    z = _everywhere(session, facts, query, local)
    decoded0, response0 = session.reconstruction(row)
    decoded, response = decoded0, response0
    if not torch.equal(z, original):
        x, posterior = decode_and_respond(session.model, z[None])
        decoded, response = x, posterior.mean

    def maps(values: Tensor) -> dict[str, Any]:
        return _numbers(values.reshape(facts.layout.shape), query.exact)

    displacement = facts.scaled(response[0] - z)
    change = facts.scaled(response[0] - response0[0])
    difference = session.renderer.difference(decoded, decoded0, most=PICTURE, frame=frame)
    return {
        "sample": row,
        "frame": frame,
        "z": maps(facts.scaled(z - facts.mean.repeat_interleave(facts.layout.positions))),
        "displacement": maps(displacement),
        "displaced": displacement.reshape(facts.layout.channels, -1).square().mean(1).sqrt(),
        "change": maps(change),
        "decoded": session.renderer.render(
            decoded, most=PICTURE, exact=query.exact, frame=frame, long=False
        )[0],
        "difference": _numbers(difference, query.exact),
        "rings": _rings(facts, query, local - original, change),
    }


def _brushed(session: Session, facts: MapFacts, query: Channels, row: int) -> Tensor:
    """The code of a picture, with patches of others and what was brushed."""
    layout = facts.layout
    maps = layout.view(session.codes[row].clone())
    for number, *place, size in _groups(layout, query.paste or [], "paste", "picture", ("size",)):
        where = _square(layout, place, size, "paste")
        maps[:, *where] = layout.view(session.codes[session.row(int(number))])[:, *where]
    added = torch.zeros(layout.shape, dtype=torch.float64)
    groups = _groups(layout, query.brush or [], "brush", "channel", ("size", "amount"))
    for channel, *place, size, amount in groups:
        where = _square(layout, place, size, "brush")
        added[_channel(layout, channel, "brush")][where] = amount
    return layout.flat(maps.double() + _each(facts.sigma, layout) * added).to(session.codes)


def _everywhere(session: Session, facts: MapFacts, query: Channels, local: Tensor) -> Tensor:
    """A code after the changes that concern whole maps."""
    layout = facts.layout
    sigma, middle = _each(facts.sigma, layout), layout.view(facts.mean_map)
    maps = layout.view(local.double())
    if query.gain:
        maps = middle + _each(_of_channels(layout, query.gain, "gain"), layout) * (maps - middle)
    if query.offset:
        maps = maps + _each(_of_channels(layout, query.offset, "offset"), layout) * sigma
    if query.keep < 1:
        maps = low_pass(maps, cut(layout, query.keep))
    if query.noise:
        draws = torch.randn(
            layout.shape, generator=session.generator(query.seed), dtype=torch.float64
        )
        maps = maps + query.noise * sigma * draws
    if query.mute:
        muted = [_channel(layout, channel, "mute") for channel in query.mute]
        maps = maps.clone()
        maps[muted] = middle[muted]
    return layout.flat(maps).to(session.codes)


def _rings(facts: MapFacts, query: Channels, made: Tensor, change: Tensor) -> dict[str, Any] | None:
    """Where the response changes, by the Chebyshev distance from the places that were changed."""
    from scipy.ndimage import distance_transform_cdt

    layout = facts.layout
    changed = layout.view(made != 0).any(0)
    if not changed.any():
        return None
    distance = distance_transform_cdt(~changed.numpy(), metric="chessboard")
    rings: dict[str, Any] = {
        "distance": _numbers(torch.from_numpy(distance), query.exact),
        "within": None,
        "reach": None,
        "gain": None,
    }
    energy = layout.sums(change.square(), "place")
    applied = facts.scaled(made)
    if query.everywhere or not float(energy.sum()) > 0 or not float(applied.square().sum()) > 0:
        return rings
    by_ring = np.bincount(distance.flatten(), weights=energy.numpy())
    within = by_ring.cumsum() / by_ring.sum()
    rings["within"] = within
    rings["reach"] = int(np.argmax(within >= REACHED))
    rings["gain"] = float((change * applied).sum() / applied.square().sum())
    return rings


def _numbers(values: Tensor, exact: bool) -> dict[str, Any]:
    """{shape, half}: base64 of half-precision numbers, or with `exact` {shape, values}."""
    if exact:
        return {"shape": list(values.shape), "values": values.flatten()}
    half = values.double().clamp(-LARGEST_HALF, LARGEST_HALF).contiguous().numpy().astype("<f2")
    return {"shape": list(values.shape), "half": b64encode(half.tobytes()).decode()}


def _each(values: Tensor, layout: Layout) -> Tensor:
    """One number for each channel, to multiply maps with."""
    return values.reshape(-1, *[1] * len(layout.places))


def _of_channels(layout: Layout, values: list[float], what: str) -> Tensor:
    if len(values) != layout.channels:
        raise ConfigError(
            f"channels: {what} has {len(values)} numbers, but the model has {layout.channels} "
            "channels. Was the link made for another model? Give one for each channel, or none."
        )
    return torch.tensor(values, dtype=torch.float64)


def _channel(layout: Layout, channel: float, what: str) -> int:
    if channel != int(channel) or not 0 <= channel < layout.channels:
        raise ConfigError(
            f"channels: {what} names channel {channel:g}, but the model has {layout.channels} "
            f"channels (0 to {layout.channels - 1}). Was the link made for another model?"
        )
    return int(channel)


def _groups(
    layout: Layout, numbers: list[Any], what: str, first: str, last: tuple[str, ...]
) -> Iterator[list[float]]:
    """A flat list cut into its entries: `first`, the coordinates of a place, and `last`."""
    names = [first, *layout.names, *last]
    if len(numbers) % len(names):
        raise ConfigError(
            f"channels: {what} has {len(numbers)} numbers, which is not a multiple of "
            f"{len(names)}. Give {', '.join(names)} for each place."
        )
    for start in range(0, len(numbers), len(names)):
        yield numbers[start : start + len(names)]


def _square(layout: Layout, place: list[float], size: float, what: str) -> tuple[slice, ...]:
    """The square around a place, as far as it is in the map; of a video, in one frame."""
    if size != int(size) or not 1 <= size <= LARGEST_BRUSH:
        raise ConfigError(
            f"channels: {what} of size {size:g}; expected a whole number from 1 to {LARGEST_BRUSH}."
        )
    inside = all(
        at == int(at) and 0 <= at < length for at, length in zip(place, layout.places, strict=True)
    )
    if not inside:
        lengths = " x ".join(map(str, layout.places))
        raise ConfigError(
            f"channels: {what} at place {', '.join(f'{at:g}' for at in place)}, which is outside "
            f"the map of {lengths} places (numbered from 0). Was the link made for another model?"
        )
    sides = [int(size)] * len(place)
    if len(place) > 2:
        sides[0] = 1
    starts = [int(at) - (side - 1) // 2 for at, side in zip(place, sides, strict=True)]
    return tuple(
        slice(max(0, start), start + side) for start, side in zip(starts, sides, strict=True)
    )

"""Pictures of latents that are maps: as they are, and what the decoder makes of changed ones.

All come from a few of the base pictures of the recording, so that the passes of the model do not
depend on the size of the maps, and hardly on the number of channels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from zscope.assays.diffusion.equivariance import Equivariance, transformations_of
from zscope.assays.diffusion.statistics import LatentStatistics
from zscope.assays.pictures import Base, base_pictures, channel_scales, decode_like
from zscope.autoencoder import Autoencoder, evaluation
from zscope.layout import Layout
from zscope.map_summary import MapSummary, with_channels
from zscope.recording import Recording
from zscope.report import pictures
from zscope.report.channels import types_of
from zscope.results import Result

__all__ = ["GAINS", "OFFSETS", "SHOWN", "map_pictures"]

EXAMPLES = 8
"""Pictures whose maps are shown."""
TURNED = 2
"""Pictures that are shown transformed."""
SHOWN = 16
"""The largest number of channels with pictures of their own, the most important ones."""
OFFSETS = (-2, -1, 0, 1, 2)
"""Added to a channel everywhere, in its standard deviations."""
GAINS = (0, 0.5, 1, 1.5, 2)
"""Its difference from the mean is multiplied by these."""
LARGE, SMALL, LEAST = 96, 64, 48
"""Pixels of the longer side: of a picture, of a map, and of a picture if there are many."""
FEW = 8
"""Channels with strips of pictures, at most, which are not many."""
RANGE = 3.0
"""Standard deviations from the mean to the ends of the colours."""
Draw = Callable[[Tensor, int], str]
"""Draws observations as a row of pictures with such a side."""


def map_pictures(
    recording: Recording, results: Mapping[str, Result], channels: Sequence[int]
) -> dict[str, Any]:
    """Rows of pictures for the page, as data URLs; `channels` are in the order of the table.

    `examples` are rows of eight pictures: input, reconstruction, the channels, and the three
    largest modes of their covariance as red, green and blue. `rest` has the channels beyond the
    first `SHOWN`, of the first picture alone. `places` are mean, standard deviation and type by
    place of each channel; `strips` what is decoded when a channel is changed; `turned` pictures,
    the same transformed, and their transformed latents decoded.
    """
    summary = recording.map_summary
    layout, model = summary.layout, recording.autoencoder
    base = base_pictures(model, recording, "pictures of channels")
    mean, std = channel_scales(summary)
    rows = torch.linspace(0, len(base.codes) - 1, min(EXAMPLES, len(base.codes))).round().long()
    draw = _drawing(base.observations)
    shown, rest = list(channels[:SHOWN]), list(channels[SHOWN:])
    shape = (-1, *[1] * len(layout.places))
    scale = torch.where(std > 0, std, 1)
    centred = layout.view(base.codes.double()[rows]) - mean.reshape(shape)
    standard = centred / scale.reshape(shape) / RANGE

    def channel_row(maps: Tensor) -> str:
        return pictures.row(pictures.coloured(_plane(maps)), SMALL)

    examples = [
        ("input", draw(base.observations[rows], LARGE)),
        ("reconstruction", draw(base.decoded[rows], LARGE)),
        *((f"channel {k}", channel_row(standard[:, k])) for k in shown),
    ]  # fmt: skip
    if layout.channels > 1:
        examples.append(("main modes, as colours", pictures.row(_modes(summary, centred), SMALL)))
    return {
        "count": len(rows),
        "examples": [{"name": name, "picture": each} for name, each in examples],
        "rest": {"channels": rest, "picture": channel_row(standard[0, rest])} if rest else None,
        "places": _places(recording, results.get("latent-statistics"), mean, scale),
        "strips": _strips(model, base, layout, summary, draw, shown, int(rows[0])),
        "turned": _turned(model, base, layout, draw, results.get("equivariance"), rows[:TURNED]),
    }


def _plane(maps: Tensor) -> Tensor:
    """Maps as something flat to draw: of video the middle frame, of sound a line made visible."""
    if maps.ndim == 4:  # maps x time x height x width
        return maps[:, maps.shape[1] // 2]
    if maps.ndim == 2:
        return maps[:, None].expand(-1, max(1, maps.shape[1] // 8), -1)
    return maps


def _drawing(observations: Tensor) -> Draw:
    """A function that draws a row of observations, all on the same scale."""
    low, high = float(observations.min()), float(observations.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    flat = observations.ndim == 3  # sound: channels x time, drawn as values around 0

    def draw(some: Tensor, side: int) -> str:
        if flat:
            span = max(abs(low), abs(high)) or 1.0
            return pictures.row(pictures.coloured(_plane(some.double()[:, 0] / span)), side)
        if some.ndim == 5:  # video: colours x time x height x width
            some = some[:, :, some.shape[2] // 2]
        return pictures.row((some.double() - low) / ((high - low) or 1.0), side)

    return draw


def _modes(summary: MapSummary, centred: Tensor) -> Tensor:
    """The projections on the three largest modes of the covariance of channels, as colours."""
    mean = summary.moments()["m"]
    covariance = summary.products / summary.pictures - torch.outer(mean, mean)
    values, vectors = torch.linalg.eigh(covariance)
    values, vectors = values.flip(0)[:3], vectors.flip(1)[:, :3]
    # Of either sign, take the one whose largest entry is positive: the same on every machine.
    signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    parts = torch.einsum("nc...,cm->mn...", centred, vectors * signs)
    parts = parts / (RANGE * values.clamp_min(1e-30).sqrt()).reshape(-1, *[1] * (parts.ndim - 1))
    planes = torch.stack([_plane(part) for part in parts], 1)
    colours = torch.full((len(planes), 3, *planes.shape[2:]), 0.5, dtype=planes.dtype)
    colours[:, : planes.shape[1]] = (planes + 1) / 2
    return colours


def _places(
    recording: Recording, statistics: Any, mean: Tensor, scale: Tensor
) -> dict[int, dict[str, str]]:
    """Of each channel, mean and standard deviation at every place; its type, if it has one."""
    if not isinstance(statistics, LatentStatistics):
        return {}
    shape = (-1, *[1] * (statistics.mean_map.ndim - 1))
    means = (statistics.mean_map - mean.reshape(shape)) / scale.reshape(shape)
    stds = statistics.std_map / scale.reshape(shape) / 2
    maps = {"mean": pictures.coloured(_plane(means))}
    maps["std"] = pictures.coloured(_plane(stds), signed=False)
    if not recording.posterior.deterministic:
        types = types_of(recording).place_types
        assert types is not None
        maps["type"] = pictures.coloured(_plane(types / 2), signed=False)
    return {
        k: {name: pictures.row(each[k : k + 1], SMALL) for name, each in maps.items()}
        for k in range(len(mean))
    }


def _strips(
    model: Autoencoder, base: Base, layout: Layout, summary: MapSummary, draw: Draw,
    channels: Sequence[int], row: int,
) -> dict[int, dict[str, str]]:  # fmt: skip
    """What one picture decodes to while a channel is shifted, stretched, or removed."""
    mean, std = channel_scales(summary)
    mean_map = summary.place_sums[0] / summary.pictures + summary.centre[:, None]
    code = base.codes[row].double().reshape(layout.channels, -1)
    changed = []
    for k in channels:
        own = [code[k] + offset * std[k] for offset in OFFSETS if offset]
        own += [mean[k] + gain * (code[k] - mean[k]) for gain in GAINS if gain != 1]
        for channel in (*own, mean_map[k]):
            moved = code.clone()
            moved[k] = channel
            changed.append(moved.flatten())
    decoded = decode_like(model, torch.stack(changed).to(base.codes), base.observations)
    same, each = base.decoded[row : row + 1], len(decoded) // len(channels)
    strips, side = {}, SMALL if len(channels) <= FEW else LEAST
    for k, part in zip(channels, decoded.split(each), strict=True):
        shifted, stretched, removed = part.split([len(OFFSETS) - 1, len(GAINS) - 1, 1])
        middle, one = OFFSETS.index(0), GAINS.index(1)
        strips[k] = {
            "offset": draw(torch.cat([shifted[:middle], same, shifted[middle:]]), side),
            "gain": draw(torch.cat([stretched[:one], same, stretched[one:]]), side),
            "removed": draw(removed, side),
        }
    return strips


def _turned(
    model: Autoencoder, base: Base, layout: Layout, draw: Draw, result: Any, rows: Tensor
) -> list[dict[str, Any]]:
    """Pictures, the same transformed, and their transformed latents decoded."""
    if not isinstance(result, Equivariance):
        return []
    x, z = base.observations[rows], layout.view(base.codes[rows])
    ways, _ = transformations_of(layout, tuple(x.shape[2:]))
    device, dtype = model.place
    strips = []
    for name, each in result.transformations.items():
        way = ways[name]
        turned, maps = way.pictures(x), way.maps(z)
        if way.resizes:
            with evaluation(model):
                decoded = model.decode_any_size(maps.to(device, dtype)).to(x)
            decoded = with_channels(decoded, layout)
        else:
            decoded = decode_like(model, layout.flat(maps), x)
        cells = [_enlarge(part, x) for part in (x, turned, decoded)]
        order = torch.stack(cells, 1).flatten(0, 1)  # picture by picture
        strips.append({
            "name": name, "picture": draw(order, SMALL), "encoder": each.encoder,
            "decoder": each.decoder, "inside": each.inside, "ratio": each.ratio,
        })  # fmt: skip
    return strips


def _enlarge(part: Tensor, like: Tensor) -> Tensor:
    """Pictures of half the size in the middle of an empty one, to stand beside the others."""
    if part.shape == like.shape:
        return part
    whole = torch.full_like(like, float(like.max()))
    inner = whole
    for axis in range(2, like.ndim):
        start = (like.shape[axis] - part.shape[axis]) // 2
        inner = inner.narrow(axis, start, part.shape[axis])
    inner.copy_(part)
    return whole

"""Equivariance: when a picture is flipped, turned or shifted, do its latents do the same?

Latents that follow simple transformations of the picture are easier to model. With t a
transformation of pictures and, place by place, of maps, and i + 1 the next picture as reference,

    eps_E(t) = E|E(t x_i) - t E(x_i)|^2 / E|E(t x_i) - t E(x_{i+1})|^2       encoder
    eps_D(t) = E|D(t z_i) - t D(z_i)|^2 / E|D(t z_i) - t D(z_{i+1})|^2       decoder

with channels in units of their standard deviation: 0 is equivariant, 1 no nearer than to another
picture; it may exceed 1. Transformations are flips, quarter turns (of square maps), shifts by one
place (compared at least a quarter of the map from the seam), and halving the size (by means of
neighbours, on both sides) where the model accepts it. The score is 1 minus the mean eps_E over
those t that stay inside the data, and `kinds` has the means over flips, turns, shifts and scaling
apart: every convolution follows shifts, which would hide what the others say. t leaves the data if
transformed pictures are reconstructed with more than twice the error,

    ratio(t) = MSE(t x, D(E(t x))) / MSE(x, D(E(x))) > 2        over half of these pictures.

`decibels` is PSNR(x, D(z)) - PSNR(t x, D(t z)), what decoding transformed latents costs. Average
pooling with nearest upsampling has 0 for flips, turns and shifts; space-to-depth under a flip has
1 - rho, with rho the correlation of mirrored channels, if the mean picture is constant. Unchanged
by permuting, shifting and scaling channels. Over half of the base pictures, with intervals over
them. A constant channel has an error of 0.

After Kouzelis et al., "EQ-VAE", arXiv:2502.09509, who train the decibels down, by quarter turns and
scaling; the reference picture and the test for leaving the data are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import chunk_size, location
from zscope.assays.entry import Entry
from zscope.assays.pictures import (
    AT_ONCE,
    EXACT,
    FEWEST,
    Base,
    Maps,
    base_pictures,
    channel_scales,
    decode_like,
    encode_pictures,
    intervals,
    squares,
    summary_of,
    varying,
)
from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import InterfaceError, Undefined
from zscope.layout import Layout
from zscope.map_summary import all_axes, with_channels
from zscope.randomness import fresh
from zscope.results import Measure, Result, Scored

__all__ = ["Equivariance", "Transformed", "equivariance", "transformations_of"]

LEAVES = 2.0
"""Times the error of reconstructions at which transformed pictures are outside the data."""
KINDS = {
    "flip": "flips", "reverse": "reversal of time", "turn": "turns", "shift": "shifts",
    "half": "scaling",
}  # fmt: skip
"""By the first word of a transformation."""


@dataclass(frozen=True, eq=False)
class Transformed(Result):
    """What was measured of one transformation."""

    encoder: float  # eps_E
    decoder: float  # eps_D
    channels: list[float]  # eps_E of each channel
    ratio: float
    decibels: float
    inside: bool  # whether transformed pictures are still like the data


@dataclass(frozen=True, eq=False)
class Equivariance(Scored):
    """.score is 1 - mean eps_E over the transformations inside the data."""

    score: float | None  # None if every transformation leaves the data
    transformations: dict[str, Transformed]
    kinds: dict[str, float]  # mean eps_E over those inside the data: "flips", "turns", ...
    kind_intervals: dict[str, tuple[float, float]]
    left_out: dict[str, str]  # and why
    samples: int
    interval: tuple[float, float] | None
    no_interval: str

    why_no_chance = "by its definition unrelated latents have 0"
    score_fields: ClassVar[tuple[str, ...]] = ("transformations", "kind_intervals")

    @property
    def error(self) -> float | None:
        """The mean eps_E inside the data."""
        return None if self.score is None else 1 - self.score

    def measures(self) -> list[Measure]:
        if self.score is None:
            return []
        return [self.measure("", self.score, interval=self.interval, chance=0.0)]

    def summary(self) -> list[tuple[str, str]]:
        lines = [(f"mean of {name}", f"{error:.2f}") for name, error in self.kinds.items()]
        for name, each in self.transformations.items():
            outside = "" if each.inside else f"; outside the data (error x {each.ratio:.1f})"
            text = f"encoder {each.encoder:.2f}, decoder {each.decoder:.2f}{outside}"
            lines.append((name, text))
        return [*lines, *((name, f"left out: {why}") for name, why in self.left_out.items())]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        names = list(self.transformations)
        values = torch.tensor([self.transformations[name].encoder for name in names])
        inside = [k for k, name in enumerate(names) if self.transformations[name].inside]
        drawn = bars(values, names=names, marks=inside, y="error of the encoder", ax=ax)
        drawn.set_ylim(0, max(1.05, 1.05 * float(values.max())))  # 1: unrelated
        return drawn


@dataclass(frozen=True)
class Transformation:
    """A transformation of pictures and maps, and the places at which maps are compared."""

    pictures: Callable[[Tensor], Tensor]
    maps: Callable[[Tensor], Tensor]
    where: Tensor | None = None  # places; None: all
    where_pictures: Tensor | None = None
    resizes: bool = False


@accepts_recording
def equivariance(
    autoencoder: Autoencoder,
    maps: Maps,
    *,
    resamples: int = 200,
    generator: Generator | None = None,
) -> Equivariance:
    """Compare latents of transformed pictures with transformed latents, and the same decoded."""
    who = "equivariance"
    summary, source = summary_of(maps, who), fresh(generator)
    # With eight transformations, half of the pictures take as long as other assays do with all.
    base, layout = base_pictures(autoencoder, maps, who), summary.layout
    base = base.first(max(FEWEST, len(base.rows) // 2))
    x = base.observations
    if x.ndim != 2 + len(layout.places):
        raise Undefined(
            f"{who}: pictures of shape {tuple(x.shape[1:])} have latents of {layout}, with other "
            "axes, so that a transformation of one is none of the other. Reshape the data, or "
            "give the layout that fits them."
        )
    sigma = channel_scales(summary)[1]
    unit = torch.where(sigma > 0, sigma, torch.inf).to(x)
    unit = unit.reshape(-1, *[1] * len(layout.places))
    ways, left_out = transformations_of(layout, tuple(x.shape[2:]))
    own_error = squares(x, base.decoded) / x[0].numel()
    least = 1e-6 * float(varying(x, who).mean()) / x[0].numel()
    peak = base.limits.peak
    transformations: dict[str, Transformed] = {}
    parts: dict[str, tuple[Tensor, Tensor]] = {}  # of each picture: error and reference
    z = layout.view(base.codes)
    if not bool(((z - z.roll(-1, 0)) / unit).any()):
        raise Undefined(
            f"{who}: the {len(x)} base pictures have identical posterior means, so none is nearer "
            "to its own than to another's. Has the posterior collapsed?"
        )
    for name, way in ways.items():
        pictures = way.pictures(x)
        try:
            codes, decoded_again, decoded = _passes(autoencoder, layout, way, pictures, base)
        except InterfaceError:
            if not way.resizes:
                raise
            sides = "x".join(map(str, x.shape[2:]))
            left_out[name] = f"this model accepts {sides} only"
            continue
        errors, references = (
            _by_channel((codes - way.maps(other)) / unit, way.where) for other in (z, z.roll(-1, 0))
        )  # each pictures x channels
        parts[name] = errors.sum(1), references.sum(1)
        by_decoder, by_next = (
            _by_channel(decoded - way.pictures(other), way.where_pictures).sum()
            for other in (base.decoded, base.decoded.roll(-1, 0))
        )
        tried = len(decoded_again)
        after = squares(pictures[:tried], decoded_again) / pictures[0].numel()
        ratio = (float(after.mean()) + least) / (float(own_error[:tried].mean()) + least)
        lost = squares(pictures, decoded) / pictures[0].numel()
        transformations[name] = Transformed(
            encoder=_share(errors.sum(), references.sum()),
            decoder=_share(by_decoder, by_next),
            channels=[_share(*pair) for pair in zip(errors.sum(0), references.sum(0), strict=True)],
            ratio=ratio,
            decibels=float(_decibels(own_error, peak) - _decibels(lost, peak)),
            inside=ratio <= LEAVES,
        )
    inside = [name for name, each in transformations.items() if each.inside]
    kinds: dict[str, list[int]] = {}
    for number, name in enumerate(inside):
        kinds.setdefault(KINDS[name.split()[0]], []).append(number)
    values, ends, reason = None, None, "every transformation leaves the data"
    if inside:

        def statistic(rows: Tensor) -> Tensor:
            shares = [parts[name][0][rows].sum() / parts[name][1][rows].sum() for name in inside]
            errors = torch.stack(shares)
            return torch.stack([errors.mean(), *(errors[some].mean() for some in kinds.values())])

        values = statistic(torch.arange(len(x)))
        ends, reason = intervals(statistic, values, len(x), resamples, source, who)
    limits = [] if ends is None else [(float(low), float(high)) for low, high in ends]
    return Equivariance(
        score=None if values is None else 1 - float(values[0]),
        transformations=transformations,
        kinds={} if values is None else dict(zip(kinds, values[1:].tolist(), strict=True)),
        kind_intervals=dict(zip(kinds, limits[1:], strict=False)),
        left_out=left_out,
        samples=len(x),
        interval=None if not limits else (1 - limits[0][1], 1 - limits[0][0]),
        no_interval=reason,
    )


def _passes(
    autoencoder: Autoencoder, layout: Layout, way: Transformation, pictures: Tensor, base: Base
) -> tuple[Tensor, Tensor, Tensor]:
    """E(t x) as maps, D(E(t x)) of the first half, and D(t z)."""
    maps = way.maps(layout.view(base.codes))
    if way.resizes:
        return _passes_of_another_size(autoencoder, layout, pictures, maps, base)
    codes = encode_pictures(autoencoder, pictures, base)
    again = decode_like(autoencoder, codes[: len(codes) // 2], pictures)
    return layout.view(codes), again, decode_like(autoencoder, layout.flat(maps), pictures)


def _passes_of_another_size(
    autoencoder: Autoencoder, layout: Layout, pictures: Tensor, maps: Tensor, base: Base
) -> tuple[Tensor, Tensor, Tensor]:
    device, dtype = location(autoencoder, base.codes)
    # Rows are shown to the model as rows.
    given = pictures.flatten(1) if len(base.shape) == 1 else pictures
    size = chunk_size(autoencoder, base.codes[:2], len(maps))

    def decode_all(some: Tensor) -> Tensor:
        parts = [autoencoder.decode_any_size(each.to(device, dtype)) for each in some.split(size)]
        return with_channels(torch.cat(parts).to(pictures), layout)

    with evaluation(autoencoder):
        parts = [autoencoder.encode_any_size(each.to(device, dtype)) for each in given.split(size)]
        codes = torch.cat(parts).to(maps)
        if codes.shape != maps.shape:
            raise InterfaceError(
                "equivariance: pictures of half the size have latents of shape "
                f"{tuple(codes.shape[1:])}; expected {tuple(maps.shape[1:])}."
            )
        decoded, again = decode_all(maps), decode_all(codes[: len(codes) // 2])
    if decoded.shape != pictures.shape or not bool(
        decoded.isfinite().all() & codes.isfinite().all()
    ):
        raise InterfaceError(
            f"equivariance: latents of half the size decode to shape {tuple(decoded.shape[1:])} or "
            f"to NaN; expected {tuple(pictures.shape[1:])}."
        )
    return codes, again, decoded


def transformations_of(
    layout: Layout, sides: tuple[int, ...]
) -> tuple[dict[str, Transformation], dict[str, str]]:
    """The transformations of such maps and pictures, and why others are left out."""
    ways: dict[str, Transformation] = {}
    left_out: dict[str, str] = {}
    names = {"height": "flip vertically", "width": "flip horizontally", "time": "reverse time"}
    count = len(layout.places)
    for axis in range(count):
        # Counted from the end, axes are the same for maps and pictures.
        name = names.get(layout.names[axis], f"flip along {layout.names[axis]}")
        flip = _flip(axis - count)
        ways[name] = Transformation(flip, flip)
    space = all_axes(layout).get("space", (0,))
    if len(space) == 2:
        one, two = space
        if layout.places[one] == layout.places[two] and sides[one] == sides[two]:
            for quarter in (1, 2, 3):
                turn = _turn(quarter, (one - count, two - count))
                ways[f"turn by {90 * quarter}°"] = Transformation(turn, turn)
        else:
            left_out["turns by 90°"] = (
                f"maps of {layout.places[one]} x {layout.places[two]} places are not square"
            )
    for axis in range(count):
        length, side, name = layout.places[axis], sides[axis], f"shift along {layout.names[axis]}"
        if side % length or length < 4:
            left_out[name] = f"{length} places for {side} pixels allow no shift by whole places"
            continue
        step = side // length
        ways[name] = Transformation(
            _roll(step, axis - count), _roll(1, axis - count), _away(layout.places, axis, 1),
            _away(sides, axis, step),
        )  # fmt: skip
    if any(each[axis] % 2 for axis in space for each in (layout.places, sides)):
        left_out["half the size"] = "the places or pixels along an axis are an odd number"
    else:
        halve = _halve([axis - count for axis in space])
        ways["half the size"] = Transformation(halve, halve, resizes=True)
    return ways, left_out


def _flip(axis: int) -> Callable[[Tensor], Tensor]:
    return lambda maps: maps.flip(axis)


def _turn(quarter: int, axes: tuple[int, int]) -> Callable[[Tensor], Tensor]:
    return lambda maps: torch.rot90(maps, quarter, axes)


def _roll(step: int, axis: int) -> Callable[[Tensor], Tensor]:
    return lambda maps: maps.roll(step, axis)


def _halve(axes: list[int]) -> Callable[[Tensor], Tensor]:
    def means(maps: Tensor) -> Tensor:
        for axis in axes:
            place = maps.ndim + axis
            maps = maps.unflatten(place, (-1, 2)).mean(place + 1)
        return maps

    return means


def _away(places: tuple[int, ...], axis: int, seam: int) -> Tensor:
    """Places that are at least a quarter of the axis from the seam, going around the ends."""
    length = places[axis]
    distance = (torch.arange(length) + 0.5 - seam).abs()
    far = torch.minimum(distance, length - distance) >= length / 4
    return far.reshape([-1 if k == axis else 1 for k in range(len(places))]).expand(places)


def _by_channel(maps: Tensor, where: Tensor | None) -> Tensor:
    """The sum of squares over (some) places: pictures x channels."""
    values = maps if where is None else maps * where
    return torch.cat([each.double().square().flatten(2).sum(2) for each in values.split(AT_ONCE)])


def _share(error: Tensor, reference: Tensor) -> float:
    return float(error / reference) if float(reference) > 0 else 0.0


def _decibels(error: Tensor, peak: float) -> Tensor:
    return (10 * (peak**2 / error.clamp_min(EXACT * peak**2)).log10()).mean()


ENTRY = Entry(
    question="When a picture is flipped, turned or shifted, do its latents do the same?",
    meaning=(
        "1 if latents are flipped, turned and shifted just as the picture is, 0 if they are no "
        "nearer to that than to another picture's latents."
    ),
    figure=(
        "The encoder's error under each transformation, 0 for exact: grey ones lead out of the "
        "data and do not count."
    ),
    takes=("autoencoder", "maps"),
    needs=("layout",),
    maps="maps",
    passes="pictures + 12 * max(8, pictures // 2)",
    better="higher",
)

"""Equivariance: when a picture is flipped, turned or shifted, do its latents do the same?

Latents that follow simple transformations of the picture are easier to model. With t a
transformation of pictures and, place by place, of maps, and i + 1 the next picture as reference,

    eps_E(t) = E|E(t x_i) - t E(x_i)|^2 / E|E(t x_i) - t E(x_{i+1})|^2       encoder
    eps_D(t) = E|D(t z_i) - t D(z_i)|^2 / E|D(t z_i) - t D(z_{i+1})|^2       decoder

with channels in units of their standard deviation: 0 is equivariant, 1 no nearer than to another
picture; it may exceed 1. Transformations are flips, quarter turns (of square maps), shifts by one
place (compared at least a quarter of the map from the seam), and halving the size where the model
accepts it. The score is 1 minus the mean eps_E over those t that stay inside the data: t leaves it if
transformed pictures are reconstructed with more than twice the error,

    ratio(t) = MSE(t x, D(E(t x))) / MSE(x, D(E(x))) > 2.

`decibels` is PSNR(x, D(z)) - PSNR(t x, D(t z)), what decoding transformed latents costs. Average
pooling with nearest upsampling has 0 throughout. Unchanged by permuting, shifting and scaling
channels. Over the base pictures, with intervals over them.

After Kouzelis et al., "EQ-VAE", arXiv:2502.09509, who train the decibels down, by quarter turns and
scaling; the reference picture and the test for leaving the data are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.pictures import (
    EXACT,
    base_pictures,
    channel_scales,
    data_range,
    intervals,
    summary_of,
)
from zscope.assays.engine import decode
from zscope.assays.engine import encode as encode_rows
from zscope.assays.entry import Entry
from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import InterfaceError, Undefined
from zscope.layout import Layout
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import Measure, Scored

__all__ = ["Equivariance", "Transformed", "equivariance"]

LEAVES = 2.0
"""Times the error of reconstructions at which transformed pictures are outside the data."""


@dataclass(frozen=True)
class Transformed:
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
    left_out: dict[str, str]  # and why
    samples: int
    interval: tuple[float, float] | None
    no_interval: str

    why_no_chance = "by its definition unrelated latents have 0"
    score_fields: ClassVar[tuple[str, ...]] = ("transformations",)

    @property
    def error(self) -> float | None:
        """The mean eps_E inside the data."""
        return None if self.score is None else 1 - self.score

    def measures(self) -> list[Measure]:
        if self.score is None:
            return []
        return [self.measure("", self.score, interval=self.interval, chance=0.0)]

    def summary(self) -> list[tuple[str, str]]:
        lines = []
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
        return bars(
            values, names=names, marks=inside, y="error of the encoder (1: unrelated)", ax=ax
        )


@dataclass(frozen=True)
class _Way:
    """A transformation of pictures and maps, and the places at which maps are compared."""

    pictures: Callable[[Tensor], Tensor]
    maps: Callable[[Tensor], Tensor]
    where: Tensor | None = None  # places; None: all
    where_pictures: Tensor | None = None
    resizes: bool = False


@accepts_recording
def equivariance(
    autoencoder: Autoencoder,
    maps: Recording,
    *,
    resamples: int = 200,
    generator: Generator | None = None,
) -> Equivariance:
    """Compare latents of transformed pictures with transformed latents, and the same decoded."""
    who = "equivariance"
    summary, source = summary_of(maps, who), fresh(generator)
    base, layout = base_pictures(autoencoder, maps, who), summary.layout
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
    ways, left_out = _ways(layout, tuple(x.shape[2:]))
    own_error = _error(x, base.decoded)
    least = 1e-6 * float((x - x.mean(0)).square().mean())
    peak = data_range(maps)
    transformations: dict[str, Transformed] = {}
    parts: dict[str, tuple[Tensor, Tensor]] = {}  # of each picture: error and reference
    z = layout.view(base.codes)
    for name, way in ways.items():
        try:
            codes, decoded_again, decoded = _passes(autoencoder, layout, way, x, z)
        except InterfaceError as error:
            if not way.resizes:
                raise
            sides = "x".join(map(str, x.shape[2:]))
            left_out[name] = f"this model accepts {sides} only"
            del error
            continue
        moved, reference = way.maps(z), way.maps(z.roll(-1, 0))
        errors = [
            _squares((codes - other) / unit, way.where) for other in (moved, reference)
        ]  # each pictures x channels
        parts[name] = errors[0].sum(1), errors[1].sum(1)
        pictures, next_pictures = way.pictures(base.decoded), way.pictures(base.decoded.roll(-1, 0))
        by_decoder = [
            float(_squares(decoded - other, way.where_pictures).sum())
            for other in (pictures, next_pictures)
        ]
        after = _error(way.pictures(x), decoded_again)
        ratio = (float(after.mean()) + least) / (float(own_error.mean()) + least)
        lost = _error(way.pictures(x), decoded)
        transformations[name] = Transformed(
            encoder=_share(errors[0].sum(), errors[1].sum()),
            decoder=by_decoder[0] / by_decoder[1] if by_decoder[1] > 0 else 0.0,
            channels=[
                _share(a, b) for a, b in zip(errors[0].sum(0), errors[1].sum(0), strict=True)
            ],
            ratio=ratio,
            decibels=float(_decibels(own_error, peak) - _decibels(lost, peak)),
            inside=ratio <= LEAVES,
        )
    inside = [name for name, each in transformations.items() if each.inside]
    score, ends, reason = None, None, "every transformation leaves the data"
    if inside:

        def statistic(rows: Tensor) -> Tensor:
            shares = [parts[name][0][rows].sum() / parts[name][1][rows].sum() for name in inside]
            return 1 - torch.stack(shares).mean()

        score = 1 - sum(transformations[name].encoder for name in inside) / len(inside)
        ends, reason = intervals(statistic, torch.tensor(score), len(x), resamples, source, who)
    return Equivariance(
        score=score,
        transformations=transformations,
        left_out=left_out,
        samples=len(x),
        interval=None if ends is None else (float(ends[0]), float(ends[1])),
        no_interval=reason,
    )


def _passes(
    autoencoder: Autoencoder, layout: Layout, way: _Way, x: Tensor, z: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """E(t x) as maps, D(E(t x)) and D(t z)."""
    turned, maps = way.pictures(x), way.maps(z)
    if way.resizes:
        device, dtype = autoencoder.place
        with evaluation(autoencoder):
            codes = autoencoder.encode_any_size(turned.to(device, dtype))
            again, decoded = (
                autoencoder.decode_any_size(each.to(device, dtype)) for each in (codes, maps)
            )
        if codes.shape != maps.shape or decoded.shape != turned.shape:
            raise InterfaceError(
                f"equivariance: pictures of half the size have latents of shape "
                f"{tuple(codes.shape[1:])}; expected {tuple(maps.shape[1:])}."
            )
        return codes.to(x), again.to(x), decoded.to(x)
    rows = torch.arange(len(turned)).numpy()
    codes = encode_rows(autoencoder, lambda some: turned[some], rows).mean.to(z)
    again, decoded = decode(autoencoder, codes), decode(autoencoder, layout.flat(maps))
    return layout.view(codes), again, decoded


def _ways(layout: Layout, sides: tuple[int, ...]) -> tuple[dict[str, _Way], dict[str, str]]:
    """The transformations of such maps and pictures, and those that are left out, with the reason."""
    ways: dict[str, _Way] = {}
    left_out: dict[str, str] = {}
    names = {"height": "flip vertically", "width": "flip horizontally", "time": "reverse time"}
    axes = range(len(layout.places))
    for axis in axes:
        back = axis - len(layout.places)  # counted from the end, the same for maps and pictures
        name = names.get(layout.names[axis], f"flip {layout.names[axis]}")
        flip = _along(torch.flip, back)
        ways[name] = _Way(flip, flip)
    if len(layout.places) >= 2:
        if layout.places[-1] == layout.places[-2] and sides[-1] == sides[-2]:
            for quarter in (1, 2, 3):
                turn = _turn(quarter)
                ways[f"turn by {90 * quarter}°"] = _Way(turn, turn)
        else:
            places = " x ".join(map(str, layout.places))
            left_out["turns by 90°"] = f"maps of {places} places are not square"
    for axis in axes:
        back = axis - len(layout.places)
        length, side, word = layout.places[axis], sides[axis], layout.names[axis]
        name = f"shift along {word}"
        if side % length or length < 4:
            left_out[name] = (
                f"{length} places for {side} pixels do not allow shifts by whole places"
            )
            continue
        step = side // length
        ways[name] = _Way(
            _roll(step, back), _roll(1, back), _away(layout.places, axis, length, 1),
            _away(sides, axis, side, step),
        )  # fmt: skip
    if len(layout.places) == 2 and not any(side % 2 for side in (*layout.places, *sides)):
        ways["half the size"] = _Way(_halve, _halve, resizes=True)
    return ways, left_out


def _along(function: Callable[..., Tensor], axis: int) -> Callable[[Tensor], Tensor]:
    return lambda maps: function(maps, (axis,))


def _turn(quarter: int) -> Callable[[Tensor], Tensor]:
    return lambda maps: torch.rot90(maps, quarter, (-2, -1))


def _roll(step: int, axis: int) -> Callable[[Tensor], Tensor]:
    return lambda maps: maps.roll(step, axis)


def _halve(maps: Tensor) -> Tensor:
    return F.avg_pool2d(maps, 2)


def _away(places: tuple[int, ...], axis: int, length: int, seam: int) -> Tensor:
    """Places that are at least a quarter of the axis from the seam, going around the ends."""
    place = torch.arange(length) + 0.5
    distance = (place - seam).abs()
    far = torch.minimum(distance, length - distance) >= length / 4
    return far.reshape([-1 if k == axis else 1 for k in range(len(places))]).expand(places)


def _squares(maps: Tensor, where: Tensor | None) -> Tensor:
    """The sum of squares over (some) places: pictures x channels."""
    squares = maps.double().square()
    return (squares if where is None else squares * where).flatten(2).sum(2)


def _share(error: Tensor, reference: Tensor) -> float:
    return float(error / reference) if float(reference) > 0 else 0.0


def _error(x: Tensor, decoded: Tensor) -> Tensor:
    return (x - decoded).double().square().flatten(1).mean(1)


def _decibels(error: Tensor, peak: float) -> Tensor:
    return (10 * (peak**2 / error.clamp_min(EXACT * peak**2)).log10()).mean()


ENTRY = Entry(
    question="When a picture is flipped, turned or shifted, do its latents do the same?",
    takes=("autoencoder", "maps"),
    needs=("layout",),
    maps="maps",
    passes="pictures * 13",
    better="higher",
)

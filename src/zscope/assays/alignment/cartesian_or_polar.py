"""Cartesian or polar: do two latents encode two factors as x and y, or as angle and radius?

A VAE that entangles two factors often does so in a regular way: one factor, usually a
cyclic one such as hue, runs around the origin of two latents, the other along the radius.
All scores then call the latents entangled, although the plane is easy to interpret.

For two latents a, b (centred, divided by their standard deviations) two charts are compared,

    cartesian   (z_a, z_b)
    polar       (atan2(z_b, z_a), sqrt(z_a^2 + z_b^2))

by the mutual information gap of their coordinates: the information of the more informative
coordinate about factor k minus that of the other one, divided by the entropy of the factor,
with chance subtracted as in `mig`. Each coordinate is assigned the factor with the largest
gap among those for which it is the more informative one; the score of a chart is the mean
over its two coordinates. Range 0 to 1; the chart with the higher score is the verdict,
"neither" if both are below 0.1. Unchanged by shifting, scaling or flipping latents and by
relabelling factor values; permuting latents permutes the pairs. With more than a hundred
latents a random part of the rows is used (at least 1,000), as there are thousands of pairs.

The two kinds of embedding: Zietlow, PhD thesis, Tübingen 2022, section 4.3.6 (by visual
inspection). The comparison of charts is ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.active import codes_of
from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import decode
from zscope.assays.entry import Entry
from zscope.assays.information import BINS, Information, bins_for, information, quantile_bins
from zscope.assays.matrices import Array
from zscope.assays.sample import Variances, prepare, seed_from, used_latents
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined
from zscope.factors import Factors
from zscope.results import Result, listed

__all__ = [
    "CartesianOrPolar", "Pair", "PairTraversal", "Ring", "cartesian_or_polar", "pair_traversal",
    "rings",
]  # fmt: skip

THRESHOLD = 0.1  # below this score neither chart fits
MOST_NUMBERS, FEWEST_ROWS = 30_000_000, 1000  # pairs x rows; of more a part of the rows is used
MOST_RINGS = 50  # pairs to look at
MOST_OF_BOTH = 0.75  # of what two latents tell together, a coordinate tells that encodes a factor


@dataclass(frozen=True, eq=False)
class Pair(Result):
    """Two latents. `factors` are those of the coordinates of the better chart, -1 for none.

    The coordinates are x and y, or angle and radius, in this order; `names` are the names of
    their factors, "" for none.
    """

    latents: tuple[int, int]
    cartesian: float
    polar: float
    verdict: str  # cartesian, polar or neither
    factors: tuple[int, int]
    names: tuple[str, str] = ("", "")

    @property
    def angle(self) -> int | None:
        """The factor that the angle of a polar pair encodes; None for other pairs."""
        return self.factors[0] if self.verdict == "polar" and self.factors[0] >= 0 else None

    @property
    def radius(self) -> int | None:
        """The factor that the radius of a polar pair encodes; None for other pairs."""
        return self.factors[1] if self.verdict == "polar" and self.factors[1] >= 0 else None

    def __str__(self) -> str:
        """The latents and what their coordinates encode: "0-1 (angle: hue, radius: size)"."""
        coordinates = ("angle", "radius") if self.verdict == "polar" else ("", "")
        parts = [
            f"{coordinate}: {name}" if coordinate else name
            for coordinate, name in zip(coordinates, self.names, strict=True)
            if name
        ]
        return "-".join(map(str, self.latents)) + (f" ({', '.join(parts)})" if parts else "")


@dataclass(frozen=True, eq=False)
class CartesianOrPolar(Result):
    """All pairs of active latents, the clearest first."""

    pairs: list[Pair]
    active: list[int]
    samples: int
    flags: list[str]

    @property
    def cartesian(self) -> list[tuple[int, int]]:
        return [pair.latents for pair in self.pairs if pair.verdict == "cartesian"]

    @property
    def polar(self) -> list[tuple[int, int]]:
        return [pair.latents for pair in self.pairs if pair.verdict == "polar"]

    def summary(self) -> list[tuple[str, str]]:
        return [
            (f"{verdict} pairs", listed(p for p in self.pairs if p.verdict == verdict))
            for verdict in ("cartesian", "polar")
        ] + [
            ("active latents", str(len(self.active))),
        ]

    def plot(self, ax: Any = None) -> Any:
        """The difference polar - cartesian for every pair: red is polar, blue cartesian."""
        from zscope.plots import heatmap

        index = {j: k for k, j in enumerate(self.active)}
        matrix = np.zeros((len(index), len(index)))
        for pair in self.pairs:
            a, b = (index[j] for j in pair.latents)
            matrix[a, b] = matrix[b, a] = pair.polar - pair.cartesian
        names = [str(j) for j in self.active]
        return heatmap(
            matrix,
            rows=names,
            columns=names,
            x="latent",
            y="latent",
            title="polar (red) or cartesian (blue)",
            diverging=True,
            limit=1.0,
            ax=ax,
        )


@accepts_recording
def cartesian_or_polar(
    codes: Array,
    factors: Array,
    *,
    variances: Variances = None,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> CartesianOrPolar:
    """Compare the two charts for every pair of used latents."""
    who = "cartesian_or_polar"
    sample, flags = prepare(who, codes, factors, kinds)
    active, _, notes = used_latents(who, sample, variances)
    if len(active) < 2 or len(sample.columns) < 2:
        raise Undefined(
            f"{who}: {len(active)} latents in use and {len(sample.columns)} factors that vary; a "
            "chart needs two of each. See variable_types, and give data with more factors."
        )
    most = max(FEWEST_ROWS, MOST_NUMBERS // math.comb(len(active), 2))
    if len(sample) > most:
        rows = np.random.default_rng(seed_from(generator)).permutation(len(sample))[:most]
        flags.append(f"Measured at {most:,} of {len(sample):,} samples, drawn at random.")
        sample = sample.take(np.sort(rows))
    z = sample.codes - sample.codes.mean(0)
    spread = z.std(0)
    z = z / np.where(spread > 0, spread, 1)
    z = np.asfortranarray(z[:, [sample.latents.index(j) for j in active]])
    columns = [*sample.columns, -1]  # no factor: index -1 in _chart_scores, and -1 in the result
    words = [*(f"factor {w}" if w.isdigit() else w for w in sample.factor_words), ""]
    cartesian = _information(z, sample.labels)
    pairs = []
    for j, a in enumerate(active[:-1]):
        # All pairs with this latent at once: angles, then radii.
        x, y = z.T[j], z.T[j + 1 :]
        polar = _information(np.vstack([np.arctan2(y, x), np.hypot(x, y)]).T, sample.labels)
        others = np.arange(len(y))
        charts = {
            "cartesian": _chart_scores(cartesian, np.full_like(others, j), others + j + 1),
            "polar": _chart_scores(polar, others, others + len(others)),
        }
        for k, b in enumerate(active[j + 1 :]):
            scores = {name: float(chart[0][k]) for name, chart in charts.items()}
            winner = max(scores, key=lambda name: scores[name])
            first, second = charts[winner][1][k]
            pairs.append(
                Pair(
                    latents=(a, b),
                    **scores,
                    verdict=winner if scores[winner] >= THRESHOLD else "neither",
                    factors=(columns[first], columns[second]),
                    names=(words[first], words[second]),
                )
            )
    pairs.sort(key=lambda pair: -max(pair.cartesian, pair.polar))
    return CartesianOrPolar(pairs=pairs, active=active, samples=len(sample), flags=flags + notes)


def _information(coordinates: np.ndarray, labels: np.ndarray) -> Information:
    return information(quantile_bins(coordinates, bins_for(len(labels))), labels)


def _chart_scores(
    shared: Information, first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The score of each chart (pairs), and the factors of its two coordinates (-1: none)."""
    coordinates = np.stack([first, second])
    excess = shared.excess[coordinates]  # 2 x pairs x factors
    winner = excess.argmax(0)
    chance = np.take_along_axis(shared.chance[coordinates], winner[None], 0)[0]
    largest = np.maximum(shared.factor_entropy - chance, 1e-12)
    gaps = (excess.max(0) - excess.min(0)) / largest
    own = np.where(winner == np.arange(2)[:, None, None], gaps, 0.0)
    best = own.max(2)
    return best.sum(0) / 2, np.where(best > 0, own.argmax(2), -1).T


@dataclass(frozen=True, eq=False)
class Ring(Result):
    """Two latents whose angle around `centre`, in units of `scale`, encodes a factor."""

    latents: tuple[int, int]
    angle: int  # the factor
    radius: int  # the factor of the radius, -1 for none
    centre: tuple[float, float]
    scale: tuple[float, float]
    told: float  # share of the factor's entropy that the angle explains, beyond chance
    straight: float  # the same of the best straight coordinate, in any direction


def rings(charts: CartesianOrPolar, codes: Array, factors: Factors, *, margin: float) -> list[Ring]:
    """The polar pairs whose angle encodes a factor; stricter than the comparison of charts.

    In the charts, two factors on a turned grid look polar, and so do some clusters at random.
    An angle (or radius) encodes a factor if, in shares of its entropy, it explains `margin` more
    than the best straight coordinate in any direction of the plane and most of what both latents
    explain together. For an angle the factor must also follow it in order, once around; so no
    categorical factor is an angle or a radius.
    """
    sample, _ = prepare("rings", codes, factors, None)
    ordered = {
        k: place
        for place, (k, kind) in enumerate(zip(sample.columns, sample.kinds, strict=True))
        if kind != "categorical"
    }
    polar = [p for p in charts.pairs if p.verdict == "polar" and p.factors[0] in ordered]
    rings = []
    for pair in polar[:MOST_RINGS]:
        z = sample.codes[:, [sample.latents.index(j) for j in pair.latents]]
        centre, scale = z.mean(0), z.std(0)
        x, y = ((z - centre) / scale).T
        angle, radius = np.arctan2(y, x), np.hypot(x, y)
        turns = np.arange(0, np.pi, np.pi / 12)
        straight = np.outer(x, np.cos(turns)) + np.outer(y, np.sin(turns))
        shares = _information(np.column_stack([angle, radius, straight]), sample.labels).share
        side = max(2, min(BINS, int((len(z) / 10) ** 0.5)))
        cells = quantile_bins(z, side) @ [side, 1]
        both = information(cells[:, None], sample.labels).share[0]
        encodes = (shares[:2] >= shares[2:].max(0) + margin) & (shares[:2] >= MOST_OF_BOTH * both)
        first, second = (ordered.get(k, -1) for k in pair.factors)
        if not encodes[0, first] or not _in_order(angle, sample.labels[:, first]):
            continue
        rings.append(
            Ring(
                latents=pair.latents,
                angle=pair.factors[0],
                radius=pair.factors[1] if second >= 0 and encodes[1, second] else -1,
                centre=(float(centre[0]), float(centre[1])),
                scale=(float(scale[0]), float(scale[1])),
                told=float(shares[0, first]),
                straight=float(shares[2:, first].max()),
            )
        )
    return rings


def _in_order(angle: np.ndarray, labels: np.ndarray) -> bool:
    """Whether the mean direction turns one way as the factor grows (in up to 8 groups)."""
    groups = quantile_bins(labels[:, None], 8)[:, 0]
    point = np.exp(1j * angle)
    means = np.array([point[groups == g].mean() for g in np.unique(groups)])
    steps = np.angle(means[1:] / means[:-1])
    return bool(abs(steps.sum()) >= 0.8 * np.abs(steps).sum())


@dataclass(frozen=True, eq=False)
class PairTraversal(Result):
    """Decoded images over a plane of two latents: rows follow the second, columns the first."""

    latents: tuple[int, int]
    values: Float[Tensor, " steps"]
    images: Float[Tensor, "steps steps *shape"]  # the second latent decreases from row to row

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import image_grid

        first, second = self.latents
        return image_grid(self.images, x=f"latent {first}", y=f"latent {second}", ax=ax)


def pair_traversal(
    autoencoder: Autoencoder,
    codes: Posterior | Tensor | np.ndarray,
    latents: tuple[int, int],
    *,
    steps: int = 9,
    reach: float = 2.0,
) -> PairTraversal:
    """Decode `steps` x `steps` codes around the mean code, up to `reach` on each side.

    Shows whether a factor runs along an axis or around the centre.
    """
    means = codes_of(codes, "pair_traversal")
    first, second = (int(j) for j in latents)
    valid = range(means.shape[1])
    if first == second or first not in valid or second not in valid or steps < 2:
        raise ConfigError(
            f"pair_traversal: latents={tuple(latents)}, steps={steps}; two different latents from "
            f"0 to {means.shape[1] - 1} and at least 2 steps are needed."
        )
    if not 0 < reach < math.inf:
        raise ConfigError(f"pair_traversal: reach={reach}; expected a finite number above 0.")
    centre = means.mean(0)
    values = torch.linspace(-reach, reach, steps).to(centre)
    plane = centre.repeat(steps, steps, 1)
    plane[..., first] += values[None, :]
    plane[..., second] += values.flip(0)[:, None]
    images = decode(autoencoder, plane.flatten(0, 1)).cpu()
    return PairTraversal((first, second), values, images.unflatten(0, (steps, steps)))


ENTRY = Entry(
    question="Do two latents encode two factors as x and y, or as angle and radius?",
    meaning=(
        "Whether two latents encode two factors as x and y or as angle and radius: the chart with "
        "the higher score fits, and neither does if both are near 0."
    ),
    figure=(
        "One cell for each pair of latents: blue pairs encode their factors along the axes, red "
        "ones as angle and radius, faint ones neither way."
    ),
    takes=("codes", "factors", "variances=usage"),
    needs=("two factors", "two latents"),
    maps="pooled",
)

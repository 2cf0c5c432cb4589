"""Rate-distortion curve: is every model the best one for its β, and which family is better?

A model trained with β minimises D + β R, its distortion plus β times its rate. Models i and i + 1
of neighbouring β that are both optimal within one family satisfy

    D_i + β_i R_i <= D_i+1 + β_i R_i+1      and      D_i+1 + β_i+1 R_i+1 <= D_i + β_i+1 R_i

which together say that the slope of the curve lies between the two β:

    β_i  <=  -(D_i+1 - D_i) / (R_i+1 - R_i)  <=  β_i+1

Where it does not, one of the two models is not optimal: its neighbour has a lower loss at the β of
the other, by `excess` nats. So the curve checks the training of every model without knowing the
optimum. A violation says that a model is not at its optimum (too few steps, another local
minimum); the converse does not hold.

`area_between` compares two families at equal rate: with both curves interpolated linearly,

    area = integral of ( D_second(R) - D_first(R) ) dR     over the rates that both have

positive if the second curve lies above the first: it distorts more at the same rate.

For a linear decoder with noise of variance γ and eigenvalues λ of the data (m of them, a above βγ):

    R = 1/2 sum_active log(λ / βγ)    D = m/2 log 2πγ + (sum_passive λ + a β γ) / 2γ    dD/dR = -β

Alemi et al., "Fixing a broken ELBO", ICML 2018; Bonheme 2023, section 4.3.1 and figure 4.1. The
check of slopes and the area are ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from zscope.assays.matrices import Array, as_rows
from zscope.errors import ConfigError, Undefined
from zscope.results import Result, counted

__all__ = [
    "AreaBetween", "RateDistortionCurve", "RateDistortionPoint", "Slope", "area_between",
    "rate_distortion_curve",
]  # fmt: skip


class RateDistortionPoint(NamedTuple):
    """A model: its β and its seed, its rate and its distortion in nats per sample."""

    beta: float
    seed: int
    rate: float
    distortion: float

    def loss(self, beta: float) -> float:
        """Distortion plus β times the rate."""
        return self.distortion + beta * self.rate


class Slope(NamedTuple):
    """Between two models of one seed and neighbouring β.

    `excess` is by how many nats one of them is worse than the other at its own β, 0 if neither
    is; `worse` is the β of that model.
    """

    seed: int
    low: float  # the two β
    high: float
    slope: float | None  # None if both have the same rate
    excess: float
    worse: float | None

    @property
    def violated(self) -> bool:
        """Whether the slope does not lie between the two β."""
        return self.worse is not None


@dataclass(frozen=True, eq=False)
class RateDistortionCurve(Result):
    """Points by β and seed, the slopes between neighbours, and which of them are impossible."""

    points: list[RateDistortionPoint]  # by seed, then β
    slopes: list[Slope]
    tolerance: float
    name: str = ""

    @property
    def betas(self) -> list[float]:
        return sorted({point.beta for point in self.points})

    @property
    def seeds(self) -> list[int]:
        return sorted({point.seed for point in self.points})

    @property
    def violations(self) -> list[Slope]:
        """The slopes that do not lie between their two β, by more than the tolerance."""
        return [slope for slope in self.slopes if slope.violated]

    @property
    def means(self) -> list[tuple[float, float, float]]:
        """(β, mean rate, mean distortion) over the seeds, by β."""
        rows = []
        for beta in self.betas:
            own = [point for point in self.points if point.beta == beta]
            rate, distortion = (
                float(np.mean([getattr(point, part) for point in own]))
                for part in ("rate", "distortion")
            )
            rows.append((beta, rate, distortion))
        return rows

    def of_seed(self, seed: int) -> list[RateDistortionPoint]:
        """The points of one seed, by β."""
        return [point for point in self.points if point.seed == seed]

    def records(self) -> list[dict[str, Any]]:
        """A row for each point, with the slope to the next β and whether it is possible."""
        slopes = {(slope.seed, slope.low): slope for slope in self.slopes}
        rows = []
        for point in self.points:
            slope = slopes.get((point.seed, point.beta))
            rows.append(
                {
                    "curve": self.name,
                    **point._asdict(),
                    "elbo": -point.loss(1.0),
                    "next beta": slope and slope.high,
                    "slope": slope and slope.slope,
                    "violated": slope and slope.violated,
                    "excess": slope and slope.excess,
                    "worse": slope and slope.worse,
                }
            )
        return rows

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "name": self.name,
            "points": [point._asdict() for point in self.points],
            "slopes": [{**slope._asdict(), "violated": slope.violated} for slope in self.slopes],
            "violations": len(self.violations),
            "tolerance": self.tolerance,
        }

    def summary(self) -> list[tuple[str, str]]:
        lines = [
            (f"β = {beta:g}", f"rate {rate:.4g}, distortion {distortion:.4g}")
            for beta, rate, distortion in self.means
        ]
        if not self.slopes:
            return lines
        lines.append(
            ("slopes outside their two β", f"{len(self.violations)} of {len(self.slopes)}")
        )
        lines += [
            (f"seed {s.seed}, β {s.low:g} to {s.high:g}", _violation_text(s))
            for s in self.violations
        ]
        return lines

    def plot(self, ax: Any = None) -> Any:
        """Rate on x, distortion on y, with lines of equal ELBO."""
        from zscope.plots import rate_distortion_plane

        return rate_distortion_plane({self.name: self.points}, ax=ax)


def _violation_text(slope: Slope) -> str:
    size = "equal rates" if slope.slope is None else f"slope {slope.slope:.4g}"
    return f"{size}; the model of β = {slope.worse:g} is {slope.excess:.3g} nats above the other"


def rate_distortion_curve(
    betas: Array,
    rates: Array,
    distortions: Array,
    *,
    seeds: Array | None = None,
    tolerance: float = 0.0,
    name: str = "",
) -> RateDistortionCurve:
    """The curve of models with these β, rates and distortions, one of each for every model.

    `seeds` says which models belong together: slopes are taken between neighbouring β of one
    seed. Differences of loss up to `tolerance` nats are no violations.
    """
    who = "rate_distortion_curve"
    beta, rate, distortion = (
        _numbers(who, what, values)
        for what, values in (("betas", betas), ("rates", rates), ("distortions", distortions))
    )
    seed = np.zeros(len(beta)) if seeds is None else _numbers(who, "seeds", seeds)
    sizes = [len(beta), len(rate), len(distortion), len(seed)]
    if len(set(sizes)) > 1 or (beta <= 0).any() or not 0 <= tolerance < math.inf:
        raise ConfigError(
            f"{who}: {sizes[0]} betas from {beta.min():.3g}, {sizes[1]} rates, {sizes[2]} "
            f"distortions, {sizes[3]} seeds and tolerance={tolerance}; expected as many of each, "
            "β above 0, and a tolerance of 0 or more. Give one of each for every model."
        )
    if rate.min() < -1e-6:
        raise Undefined(
            f"{who}: a rate of {rate.min():.3g} nats; a divergence is never negative. Was a "
            "log-density or a loss passed as the rate?"
        )
    points = sorted(
        (
            RateDistortionPoint(float(b), int(s), float(r), float(d))
            for b, s, r, d in zip(beta, seed, rate, distortion, strict=True)
        ),
        key=lambda point: (point.seed, point.beta),
    )
    for first, second in pairwise(points):
        if first[:2] == second[:2]:
            raise ConfigError(
                f"{who}: two models have β = {first.beta:g} and seed {first.seed}. Do they differ "
                "in another setting? Then each belongs to a curve of its own; else give them "
                "different seeds."
            )
    slopes = [
        _slope(first, second, tolerance)
        for first, second in pairwise(points)
        if first.seed == second.seed
    ]
    return RateDistortionCurve(points, slopes, float(tolerance), name)


def _slope(first: RateDistortionPoint, second: RateDistortionPoint, tolerance: float) -> Slope:
    """Of two models by the losses: with equal rates, or rates in the wrong order, too."""
    change = first.rate - second.rate
    slope = (second.distortion - first.distortion) / change if change else None
    excess = {
        first.beta: first.loss(first.beta) - second.loss(first.beta),
        second.beta: second.loss(second.beta) - first.loss(second.beta),
    }
    worse = max(excess, key=lambda beta: excess[beta])
    # Rounding of the losses themselves is no violation.
    rounding = 1e-12 * max(abs(first.loss(second.beta)), abs(second.loss(second.beta)))
    violated = excess[worse] > max(tolerance, rounding)
    return Slope(
        first.seed, first.beta, second.beta, slope, excess[worse] if violated else 0.0,
        worse if violated else None,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class AreaBetween(Result):
    """The area between two curves, positive where the second lies above the first."""

    area: float  # nats squared, of the mean curves
    difference: float  # nats: the area divided by the width of the rates that both have
    rates: tuple[float, float]
    seeds: dict[int, float]  # the difference of each seed that both have, where rates overlap
    names: tuple[str, str] = ("", "")

    def summary(self) -> list[tuple[str, str]]:
        words = ("the first", "the second")
        first, second = (name or word for name, word in zip(self.names, words, strict=True))
        low, high = self.rates
        lines = [
            (f"distortion of {second} beyond {first}", f"{self.difference:.4g} nats on average"),
            ("rates", f"{low:.4g} to {high:.4g} nats"),
            ("area", f"{self.area:.4g}"),
        ]
        if self.seeds:
            values = ", ".join(f"{value:.3g}" for value in self.seeds.values())
            lines.append((f"by seed ({counted(len(self.seeds), 'seed')})", values))
        return lines


def area_between(first: RateDistortionCurve, second: RateDistortionCurve) -> AreaBetween:
    """How much more the second family of models distorts than the first, at equal rate.

    Of the curves of mean points, and of each seed that both have.
    """
    who = "area_between"
    curves = [_by_rate([(rate, d) for _, rate, d in curve.means]) for curve in (first, second)]
    area, low, high = _area(who, *curves)
    seeds = {}
    for seed in sorted({*first.seeds} & {*second.seeds}):
        own = [
            _by_rate([(point.rate, point.distortion) for point in curve.of_seed(seed)])
            for curve in (first, second)
        ]
        try:
            of_seed, start, end = _area(who, *own)
        except Undefined:
            continue
        seeds[seed] = of_seed / (end - start)
    names = first.name, second.name
    return AreaBetween(area, area / (high - low), (low, high), seeds, names)


def _by_rate(points: Sequence[tuple[float, float]]) -> np.ndarray:
    """Rates, ascending, with the mean distortion of models that have the same rate (2 x points)."""
    rates = sorted({rate for rate, _ in points})
    return np.array([rates, [np.mean([d for r, d in points if r == rate]) for rate in rates]])


def _area(who: str, first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """The area and the range of rates that both curves have."""
    low, high = max(first[0, 0], second[0, 0]), min(first[0, -1], second[0, -1])
    if not low < high:
        raise Undefined(
            f"{who}: the rates of the first curve run from {first[0, 0]:.3g} to "
            f"{first[0, -1]:.3g} nats, those of the second from {second[0, 0]:.3g} to "
            f"{second[0, -1]:.3g}: no range is common to both. Train both with more values of β."
        )
    inner = np.concatenate([first[0], second[0]])
    at = np.unique(np.concatenate([[low, high], inner[(inner > low) & (inner < high)]]))
    gaps = np.interp(at, *second) - np.interp(at, *first)
    return float(np.trapezoid(gaps, at)), float(low), float(high)


def _numbers(who: str, what: str, values: Array) -> np.ndarray:
    rows = as_rows(values, f"{who} ({what})")
    if rows.shape[1] > 1:
        raise Undefined(
            f"{who}: {what} of shape {tuple(rows.shape)}; expected one number for each model."
        )
    numbers: np.ndarray = rows.cpu().numpy()[:, 0]
    return numbers

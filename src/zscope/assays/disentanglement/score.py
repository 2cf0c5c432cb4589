"""A score with what makes it a measurement: definition, sample, chance level, interval.

`chance` is the same estimator on the same codes with their rows permuted, averaged over
a few permutations: what these latents would get if they knew nothing.

`interval` (with `resamples`) covers 95 % by half-sampling (`zscope.assays.halves`). Rows that
are learned from, and rows that are tested on, stay so in every half; still, a
predictor learned from another half errs on other rows, so that intervals of scores that
learn are up to sqrt(2) times too wide: on the safe side. A bootstrap would draw rows
twice: they make information look larger, and they leak from the training rows into the
test rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from torch import Generator

from zscope.assays.halves import Interval, reach
from zscope.assays.sample import Sample, seed_from
from zscope.errors import ConfigError, Undefined
from zscope.results import NOT_REQUESTED, Measure, Scored


@dataclass(frozen=True, eq=False)
class Score(Scored):
    """A disentanglement score. Rows of `matrix` and `per_latent` follow `active`, columns
    of `matrix` and `per_factor` follow `factors`."""

    why_no_interval = NOT_REQUESTED

    name: str
    score: float
    chance: float
    interval: tuple[float, float] | None
    flavour: str
    samples: int
    active: list[int]  # the latents used
    passive: list[int]  # those left out
    factors: list[int]  # the factors that were measured
    kinds: list[str]  # of those factors
    per_factor: np.ndarray
    per_latent: np.ndarray
    matrix: np.ndarray
    meaning: str  # of the entries of the matrix
    flags: list[str]
    shuffled: list[float]  # the score of each permutation; `chance` is their mean
    more: dict[str, tuple[float, Interval | None]]  # chance and interval of the other numbers
    factor_names: list[str] | None = field(default=None, kw_only=True)  # if known

    def measures(self) -> list[Measure]:
        others = [
            self.measure(name.replace("_", " "), getattr(self, name), chance=chance, interval=ends)
            for name, (chance, ends) in self.more.items()
        ]
        return [self.measure("", self.score), *others]

    def summary(self) -> list[tuple[str, str]]:
        latents = len(self.active) + len(self.passive)
        return [("latents used", f"{len(self.active)} of {latents}"), ("flavour", self.flavour)]

    def _title(self) -> str:
        return self.name

    def plot(self, ax: Any = None) -> Any:
        """The matrix behind the score."""
        from zscope.plots import heatmap

        if not self.matrix.size:
            raise Undefined(
                f"{self.name}: no latent was used, so there is no matrix to draw. The flags say "
                f"why: {' '.join(self.flags)}"
            )
        return heatmap(
            self.matrix,
            rows=[f"latent {j}" for j in self.active],
            columns=self.factor_names or [f"factor {k}" for k in self.factors],
            title=f"{self.name} {self.score:.3f}, chance {self.chance:.3f}",
            label=self.meaning,
            ax=ax,
        )


@dataclass(frozen=True, eq=False)
class Estimate:
    """What an estimator found in one sample."""

    score: float
    per_factor: np.ndarray
    per_latent: np.ndarray
    matrix: np.ndarray
    flags: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)  # further fields of the result


Estimator = Callable[[Sample, np.random.Generator], Estimate]
S = TypeVar("S", bound=Score)


def scored(
    kind: type[S],
    name: str,
    estimate: Estimator,
    sample: Sample,
    used: tuple[list[int], list[int], list[str]],
    flags: list[str],
    *,
    flavour: str,
    meaning: str,
    resamples: int,
    generator: Generator | None,
    permutations: int,
) -> S:
    """Run the estimator on the latents in use, on permuted rows, and on halves."""
    if resamples < 0 or resamples == 1:
        raise ConfigError(
            f"{name}: resamples={resamples} gives no interval; at least 2 are needed, 200 give "
            "steady ends. Leave it at 0 for no interval."
        )
    active, passive, found = used
    flags = [*flags, *found]
    seed = seed_from(generator)
    if active:
        sample = sample.keep(active).with_lots(np.random.default_rng([seed, 3]))
        result = estimate(sample, np.random.default_rng([seed, 0]))
        shuffles = _shuffled(estimate, sample, seed, permutations)
        parts = _halves(estimate, sample, seed, resamples)
    else:
        result = nothing(sample)
        shuffles, parts = [result], [result] * resamples
        flags.append(f"No latent is in use, so {name} is 0 by definition.")
    score, chance, interval = _measured("", result, shuffles, parts)
    numbers = [key for key, value in result.more.items() if isinstance(value, float)]
    return kind(
        name=name,
        score=score,
        chance=chance,
        interval=interval,
        flavour=flavour,
        samples=len(sample),
        active=active,
        passive=passive,
        factors=list(sample.columns),
        factor_names=list(sample.names) or None,
        kinds=list(sample.kinds),
        per_factor=result.per_factor,
        per_latent=result.per_latent,
        matrix=result.matrix,
        meaning=meaning,
        flags=[*flags, *result.flags],
        shuffled=[each.score for each in shuffles],
        more={key: _measured(key, result, shuffles, parts)[1:] for key in numbers},
        **result.more,
    )


def nothing(sample: Sample) -> Estimate:
    """What is found when no latent is in use."""
    factors = len(sample.columns)
    return Estimate(0.0, np.zeros(factors), np.zeros(0), np.zeros((0, factors)))


def _shuffled(estimate: Estimator, sample: Sample, seed: int, permutations: int) -> list[Estimate]:
    rows = np.random.default_rng([seed, 1])
    return [
        estimate(sample.permuted(rows.permutation(len(sample))), np.random.default_rng([seed, 0]))
        for _ in range(permutations)
    ]


def _halves(estimate: Estimator, sample: Sample, seed: int, resamples: int) -> list[Estimate]:
    rng = np.random.default_rng([seed, 2])
    half = len(sample) // 2
    found = []
    for _ in range(resamples):
        rows = rng.permutation(len(sample))[:half]
        part, own = sample.take(rows), np.random.default_rng(rng.integers(2**62))
        found.append(estimate(part, own) if part.columns else nothing(part))
    return found


def _measured(
    key: str, result: Estimate, shuffles: list[Estimate], parts: list[Estimate]
) -> tuple[float, float, Interval | None]:
    """(value, chance, interval) of the score, or of another number that the estimator gives."""

    def of(estimate: Estimate) -> float:
        return float(estimate.more.get(key, 0.0)) if key else estimate.score

    value, chance = of(result), float(np.mean([of(each) for each in shuffles]))
    if not parts:
        return value, chance, None
    far = reach([of(each) for each in parts])
    # No score leaves 0 to 1 by chance alone, so neither do the ends.
    return value, chance, (max(value - far, min(0.0, value)), min(value + far, max(1.0, value)))

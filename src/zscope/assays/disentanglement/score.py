"""A score with what makes it a measurement: definition, sample, chance level, interval.

`chance` is the same estimator on the same codes with their rows permuted, averaged over
a few permutations: what these latents would get if they knew nothing.

`interval` (with `resamples`) covers 95 % by half-sampling: the estimator is run on random
halves of the rows, without replacement, and the spread of those values around their
mean is laid around the score. The spread of a half-sample around the whole is just that
of the whole around the truth, as 1/(N/2) - 1/N = 1/N (Shao & Wu, Ann. Stat. 17(3), 1989).
Rows that are learned from, and rows that are tested on, stay so in every half; still, a
predictor learned from another half errs on other rows, so that intervals of scores that
learn are up to sqrt(2) times too wide: on the safe side. A bootstrap would draw rows
twice: they make information look larger, and they leak from the training rows into the
test rows.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from torch import Generator

from zscope.assays.disentanglement.sample import Sample, seed_from
from zscope.errors import ConfigError, Undefined
from zscope.results import Result


@dataclass(frozen=True, eq=False)
class Score(Result):
    """A disentanglement score. Rows of `matrix` and `per_latent` follow `active`, columns
    of `matrix` and `per_factor` follow `factors`."""

    name: str
    score: float
    chance: float
    interval: tuple[float, float] | None
    flavour: str
    samples: int
    active: list[int]  # the latents that were used
    passive: list[int]  # those left out
    factors: list[int]  # the factors that were measured
    kinds: list[str]  # of those factors
    per_factor: np.ndarray
    per_latent: np.ndarray
    matrix: np.ndarray
    meaning: str  # of the entries of the matrix
    flags: list[str]

    def summary(self) -> list[tuple[str, str]]:
        """The score beside chance, its other numbers, and on what it was measured."""
        ends = "" if self.interval is None else " ({:.3f} to {:.3f})".format(*self.interval)
        used = f"{len(self.active)} of {len(self.active) + len(self.passive)} latents"
        own = {f.name for f in dataclasses.fields(Score)}
        more = [
            (f.name.replace("_", " "), f"{getattr(self, f.name):.3f}")
            for f in dataclasses.fields(self)
            if f.name not in own and isinstance(getattr(self, f.name), float)
        ]
        return [
            ("score", f"{self.score:.3f}{ends}, chance {self.chance:.3f}"),
            *more,
            ("on", f"{used}, {self.samples} samples, flavour {self.flavour}"),
        ]

    def plot(self, ax: Any = None) -> Any:
        """The matrix from which the score was read."""
        from zscope.plots import heatmap

        if not self.matrix.size:
            raise Undefined(
                f"{self.name}: no latent was used, so there is no matrix to draw. The flags say "
                f"why: {' '.join(self.flags)}"
            )
        return heatmap(
            self.matrix,
            rows=[f"latent {j}" for j in self.active],
            columns=[f"factor {k}" for k in self.factors],
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
        chance = _chance(estimate, sample, seed, permutations)
        interval = _interval(estimate, sample, seed, resamples, result.score)
    else:
        result = nothing(sample)
        chance, interval = 0.0, (0.0, 0.0) if resamples else None
        flags.append(f"No latent is in use, so {name} is 0 by definition.")
    return kind(
        name=name,
        score=result.score,
        chance=chance,
        interval=interval,
        flavour=flavour,
        samples=len(sample),
        active=active,
        passive=passive,
        factors=list(sample.columns),
        kinds=list(sample.kinds),
        per_factor=result.per_factor,
        per_latent=result.per_latent,
        matrix=result.matrix,
        meaning=meaning,
        flags=[*flags, *result.flags],
        **result.more,
    )


def nothing(sample: Sample) -> Estimate:
    """What is found when no latent is in use."""
    factors = len(sample.columns)
    return Estimate(0.0, np.zeros(factors), np.zeros(0), np.zeros((0, factors)))


def _chance(estimate: Estimator, sample: Sample, seed: int, permutations: int) -> float:
    rows = np.random.default_rng([seed, 1])
    scores = [
        estimate(
            sample.permuted(rows.permutation(len(sample))), np.random.default_rng([seed, 0])
        ).score
        for _ in range(permutations)
    ]
    return float(np.mean(scores))


def _interval(
    estimate: Estimator, sample: Sample, seed: int, resamples: int, score: float
) -> tuple[float, float] | None:
    if not resamples:
        return None
    rng = np.random.default_rng([seed, 2])
    half = len(sample) // 2
    scores = []
    for _ in range(resamples):
        rows = rng.permutation(len(sample))[:half]
        part, own = sample.take(rows), np.random.default_rng(rng.integers(2**62))
        scores.append(estimate(part, own).score if part.columns else 0.0)
    low, high = np.quantile(np.array(scores) - np.mean(scores), [0.025, 0.975])
    # No score leaves 0 to 1 by chance alone, so neither do the ends.
    return max(float(score + low), min(0.0, score)), min(float(score + high), max(1.0, score))

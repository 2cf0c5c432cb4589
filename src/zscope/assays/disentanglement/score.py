"""Score: a number with its definition, sample, chance level and interval.

`chance` is the same estimator on the same codes with their rows permuted, averaged over
a few permutations: the score of these latents if they were unrelated to the factors.

`interval` (with `resamples`) covers 95 % by half-sampling (`zscope.assays.halves`). Training
rows and test rows are the same in every half; still, predictors trained on different halves
make different errors, so that the intervals of scores that train one are up to sqrt(2) times
too wide, which is conservative. The latents in use are those of the whole sample: that other
samples might lead to others is not in the interval. How often intervals cover the truth is
measured in docs/correctness.md. A bootstrap would draw some rows twice: this makes
information look larger, and copies of training rows get into the test rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from torch import Generator

from zscope.assays.halves import Interval, half_width
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    Variances,
    all_latents,
    prepare,
    seed_from,
    used_latents,
)
from zscope.errors import ConfigError, Undefined
from zscope.results import NOT_REQUESTED, Measure, Scored

__all__ = ["Estimate", "Score", "compute_score", "information_score", "require_two_factors"]

DRAWN = 32
"""Of more latents the figure of a score shows these."""


@dataclass(frozen=True, eq=False)
class Score(Scored):
    """A disentanglement score. Rows of `matrix` and `per_latent` follow `active`, columns
    of `matrix` and `per_factor` follow `factors`."""

    why_no_interval = NOT_REQUESTED
    not_written = ("halves",)  # the interval sums them up

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
    halves: dict[str, list[float]] = field(default_factory=dict, kw_only=True)  # see on_halves

    def on_halves(self) -> dict[str, list[float]]:
        return self.halves

    def measures(self) -> list[Measure]:
        others = [
            self.measure(name.replace("_", " "), getattr(self, name), chance=chance, interval=ends)
            for name, (chance, ends) in self.more.items()
        ]
        return [self.measure("", self.score), *others]

    def summary(self) -> list[tuple[str, str]]:
        latents = len(self.active) + len(self.passive)
        used = f"{len(self.active)} of {latents}"
        return [(f"{self.column}s used", used), ("flavour", self.flavour)]

    @property
    def column(self) -> str:
        """What `active` counts."""
        return "latent"

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
        rows = np.arange(len(self.matrix))
        title = f"{self.name} {self.score:.3f}, chance {self.chance:.3f}"
        if len(rows) > DRAWN:
            rows = np.sort(np.argsort(-self.matrix.max(1), kind="stable")[:DRAWN])
            title += (
                f"; {DRAWN} of {len(self.matrix)} {self.column}s, those with the largest entries"
            )
        return heatmap(
            self.matrix[rows],
            rows=[f"{self.column} {self.active[j]}" for j in rows],
            columns=self.factor_names or [f"factor {k}" for k in self.factors],
            title=title,
            label=self.meaning,
            ax=ax,
        )


@dataclass(frozen=True, eq=False)
class Estimate:
    """The result of an estimator on one sample."""

    score: float
    per_factor: np.ndarray
    per_latent: np.ndarray
    matrix: np.ndarray
    flags: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)  # further fields of the result
    # An unbiased score can leave [0, 1] by chance; it is clipped only after its spread over
    # halves is known.
    clip: bool = False


Estimator = Callable[[Sample, np.random.Generator], Estimate]
S = TypeVar("S", bound=Score)


def require_two_factors(name: str, sample: Sample) -> None:
    """Raise Undefined if only one factor varies, for scores that compare factors."""
    if len(sample.columns) == 1:
        raise Undefined(
            f"{name}: only factor {sample.factor_words[0]} varies, and with one factor this score "
            "is 1 whatever the codes. Are other factors missing, or constant in these rows? Give "
            "two or more factors, or measure one with mig, sap or explicitness."
        )


def compute_score(
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
    guess: float = 0.0,
) -> S:
    """Run the estimator on the latents in use, on permuted rows and on halves of the rows.

    Without a latent in use the score is that of guessing.
    """
    if resamples < 0 or resamples == 1:
        raise ConfigError(
            f"{name}: resamples={resamples} gives no interval; use at least 2, or 200 for a "
            "stable one. Leave it at 0 for no interval."
        )
    active, passive, latent_flags = used
    flags = [*flags, *latent_flags]
    seed = seed_from(generator)
    if active:
        sample = sample.keep(active).with_split_keys(np.random.default_rng([seed, 3]))
        result = estimate(sample, np.random.default_rng([seed, 0]))
        shuffles = _shuffled_estimates(estimate, sample, seed, permutations)
        parts = _half_estimates(estimate, sample, seed, resamples)
    else:
        result = empty_estimate(sample, guess)
        shuffles, parts = [result], [result] * resamples
        value = f"{guess:.3g}, that of guessing" if guess else "0 by definition"
        flags.append(f"No latent is in use, so the score is {value}.")
    score, chance, interval = _measurement("", result, shuffles, parts)
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
        more={key: _measurement(key, result, shuffles, parts)[1:] for key in numbers},
        halves={key.replace("_", " "): _values(key, parts) for key in ["", *numbers] if parts},
        **result.more,
    )


def information_score(
    name: str,
    corrected: Estimator,
    plain: Estimator,
    codes: Array,
    factors: Array,
    *,
    flavour: str,
    variances: Variances,
    kinds: str | Sequence[str] | None,
    resamples: int,
    generator: Generator | None,
    meaning: str = "",
) -> Score:
    """A score of the information between latents and factors: `corrected` for chance, of the
    latents in use ("zscope"), or `plain`, of all latents ("dlib")."""
    sample, flags = prepare(name, codes, factors, kinds)
    ours = flavour == "zscope"
    usual = "information above chance, nats" if ours else "plug-in information, nats"
    return compute_score(
        Score,
        name,
        corrected if ours else plain,
        sample,
        used_latents(name, sample, variances) if ours else all_latents(sample),
        flags + (sample.bin_flags() if ours else sample.class_flags()),
        flavour=flavour,
        meaning=meaning or usual,
        resamples=resamples,
        generator=generator,
        permutations=10,
    )


def empty_estimate(sample: Sample, score: float = 0.0) -> Estimate:
    """The estimate when no latent is in use."""
    factors = len(sample.columns)
    return Estimate(score, np.zeros(factors), np.zeros(0), np.zeros((0, factors)))


def _shuffled_estimates(
    estimate: Estimator, sample: Sample, seed: int, permutations: int
) -> list[Estimate]:
    rows = np.random.default_rng([seed, 1])
    return [
        estimate(sample.permute(rows.permutation(len(sample))), np.random.default_rng([seed, 0]))
        for _ in range(permutations)
    ]


def _half_estimates(
    estimate: Estimator, sample: Sample, seed: int, resamples: int
) -> list[Estimate]:
    rng = np.random.default_rng([seed, 2])
    half = len(sample) // 2
    estimates = []
    for _ in range(resamples):
        rows = rng.permutation(len(sample))[:half]
        part, part_rng = sample.take(rows), np.random.default_rng(rng.integers(2**62))
        estimates.append(estimate(part, part_rng) if part.columns else empty_estimate(part))
    return estimates


def _values(key: str, parts: list[Estimate]) -> list[float]:
    """The score, or `more[key]`, of each estimate."""
    return [float(each.more.get(key, 0.0)) if key else each.score for each in parts]


def _measurement(
    key: str, result: Estimate, shuffles: list[Estimate], parts: list[Estimate]
) -> tuple[float, float, Interval | None]:
    """(value, chance, interval) of the score, or of `more[key]`."""

    def bounded(estimate: Estimate) -> float:
        (value,) = _values(key, [estimate])
        return min(max(value, 0.0), 1.0) if estimate.clip and not key else value

    value, chance = bounded(result), float(np.mean([bounded(each) for each in shuffles]))
    if not parts:
        return value, chance, None
    width = half_width(_values(key, parts))
    # Scores lie between 0 and 1, so the interval does too, unless the value itself does not.
    low, high = max(value - width, min(0.0, value)), min(value + width, max(1.0, value))
    return value, chance, (low, high)

"""FactorVAE score: if one factor is fixed, does the latent that varies least identify it?

A batch of 64 rows shares the value of one factor, chosen at random. The latent with the
smallest variance in the batch, relative to its overall variance, casts a vote for that
factor. In 10,000 votes each latent is assigned the factor it votes for most; the score is
the share of 5,000 further votes that agree. Range 0 to 1; uninformative codes get about
1 / factors (see `chance`), and exactly this if no latent is in use. With one factor it is
undefined. Unchanged by the order and the scale of the latents and by relabelling values.

Rows are drawn from those that share the value, so that no renderer is needed and the
factors need not form a complete grid; factors that depend on the fixed one are fixed with
it. Values that occur in one row only cannot be fixed and are left out (flagged). A
continuous factor is fixed to one of 20 bins.

`flavour="zscope"`: latents in use; the fixed value is that of a random row.
`flavour="dlib"`: latents with a standard deviation of at least .05; every value of a factor
is fixed equally often.

Kim & Mnih, "Disentangling by factorising", ICML 2018, the disentanglement metric.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.score import Estimate, Score, compute_score, require_two_factors
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.assays.sample import Sample, Variances, order_of, prepare, used_latents
from zscope.errors import Undefined
from zscope.results import subject

__all__ = ["factor_vae_score"]

BATCH, TRAIN, TEST = 64, 10_000, 5_000
DLIB_STD = 0.05
AT_ONCE = 250  # votes drawn together


@dataclass(frozen=True, eq=False)
class Groups:
    """The rows, ordered so that those with the same value of a factor are contiguous."""

    rows: np.ndarray
    starts: np.ndarray
    counts: np.ndarray  # of values that can be fixed: in two rows or more
    small: int  # number of values that occur in one row only

    @classmethod
    def of(cls, labels: np.ndarray) -> "Groups":
        counts = np.bincount(labels)
        starts = np.cumsum(counts) - counts
        # In half of the rows there may be no two that share a value: each is then a group.
        usable = counts >= (2 if counts.max() >= 2 else 1)
        return cls(order_of(labels), starts[usable], counts[usable], int((counts == 1).sum()))

    def draw(self, groups: np.ndarray, each: int, rng: np.random.Generator) -> np.ndarray:
        """`each` random rows of every group, with replacement."""
        places = rng.random((len(groups), each)) * self.counts[groups, None]
        rows: np.ndarray = self.rows[self.starts[groups, None] + places.astype(np.int64)]
        return rows

    def pairs(self, groups: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Two different random rows of every group."""
        starts, counts = self.starts[groups], self.counts[groups]
        first = (rng.random(len(groups)) * counts).astype(np.int64)
        offset = 1 + (rng.random(len(groups)) * (counts - 1)).astype(np.int64)
        return self.rows[starts + first], self.rows[starts + (first + offset) % counts]


@accepts_recording
def factor_vae_score(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_factor (votes that agree), .matrix (share of a factor's votes by latent)."""
    sample, flags = prepare("factor_vae_score", codes, factors, kinds)
    require_two_factors("factor_vae_score", sample)
    flags += group_flags("factor_vae_score", sample)
    ours = flavour == "zscope"
    used = used_latents("factor_vae_score", sample, variances) if ours else _wide_latents(sample)
    return compute_score(
        Score,
        "factor_vae_score",
        lambda part, rng: _votes(part, rng, by_value=not ours),
        sample,
        used,
        flags,
        flavour=flavour,
        meaning="share of the factor's votes",
        resamples=resamples,
        generator=generator,
        permutations=2,
        guess=1 / len(sample.columns),
    )


def _wide_latents(sample: Sample) -> tuple[list[int], list[int], list[str]]:
    wide = sample.codes.std(0, ddof=1) >= DLIB_STD
    passive = [int(j) for j in np.flatnonzero(~wide)]
    flags = (
        [f"{subject('Latent', passive, 'has', 'have')} a standard deviation below {DLIB_STD}."]
        if passive
        else []
    )
    return [int(j) for j in np.flatnonzero(wide)], passive, flags


def group_flags(who: str, sample: Sample) -> list[str]:
    """Flags for values that cannot be fixed; Undefined if no value of a factor can."""
    flags = []
    for name, labels in zip(sample.factor_words, sample.labels.T, strict=True):
        groups = Groups.of(labels)
        if groups.counts.max() < 2:
            raise Undefined(
                f"{who}: no two of {len(sample)} rows share a value of factor {name}, so it "
                "cannot be fixed. Is it continuous? Say so with kinds=, or record more samples."
            )
        if groups.small:
            flags.append(
                f"{groups.small} values of factor {name} occur in one row only and were left out."
            )
    return flags


def _votes(sample: Sample, rng: np.random.Generator, *, by_value: bool) -> Estimate:
    factors, latents = len(sample.columns), sample.codes.shape[1]
    codes = sample.codes - sample.codes.mean(0)
    spread = codes.std(0)
    codes = codes / np.where(spread > 0, spread, 1)
    tables = np.zeros((2, factors, latents), dtype=np.int64)
    for phase, total in enumerate((TRAIN, TEST)):
        batches = np.bincount(rng.integers(factors, size=total), minlength=factors)
        for k, labels in enumerate(sample.labels.T):
            groups = Groups.of(labels)
            weights = None if by_value else groups.counts / groups.counts.sum()
            fixed = rng.choice(len(groups.counts), size=batches[k], p=weights)
            winners = _least_varying(codes, spread > 0, groups, fixed, rng)
            tables[phase, k] = np.bincount(winners, minlength=latents)
    train, test = tables
    assigned = train.argmax(0)
    agree = np.zeros(factors)
    np.add.at(agree, assigned, test[assigned, np.arange(latents)])
    votes = np.maximum(test.sum(1), 1)
    agreement = test[assigned, np.arange(latents)] / np.maximum(test.sum(0), 1)
    return Estimate(
        float(agree.sum() / test.sum()), agree / votes, agreement, (test / votes[:, None]).T
    )


def _least_varying(
    codes: np.ndarray,
    varies: np.ndarray,
    groups: Groups,
    fixed: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """For each fixed value, the latent with the smallest variance in a batch of its rows."""
    winners = np.empty(len(fixed), dtype=np.int64)
    # Single precision is enough for codes of standard size, and faster.
    powers = torch.from_numpy(np.hstack([codes, codes**2])).float()
    for start in range(0, len(fixed), AT_ONCE):
        part = fixed[start : start + AT_ONCE]
        rows = torch.from_numpy(groups.draw(part, BATCH, rng))
        means = torch.nn.functional.embedding_bag(rows, powers, mode="mean")  # copies no rows
        mean, square = np.split(means.numpy(), 2, axis=1)
        variance = square - mean**2
        variance[:, ~varies] = np.inf
        winners[start : start + AT_ONCE] = variance.argmin(1)
    return winners


ENTRY = Entry(
    question="If one factor is fixed, does the latent that varies least identify it?",
    meaning=(
        "How often the latent that varies least tells which factor was fixed: 1 for always; "
        "guessing gives about one over the number of factors."
    ),
    figure=(
        "Which latents (rows) are voted for when a factor (column) is fixed: one strong cell in "
        "each row lets the latent identify its factor."
    ),
    takes=("codes", "factors", "variances=usage"),
    needs=("two factors",),
    better="higher",
    title="FactorVAE score",
    maps="pooled",
)

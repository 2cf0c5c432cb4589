"""FactorVAE score: if one factor is held, does the steadiest code say which one it was?

A batch of 64 rows shares the value of one factor, chosen at random. The code whose
variance in the batch, divided by its variance overall, is smallest casts a vote for that
factor. From 10,000 votes each code is given the factor it voted for most; the score is
the share of 5,000 further votes that agree. Range 0 to 1; an uninformative set of codes
gets about 1 / factors (see `chance`). Unchanged by the order and the scale of the latents
and by relabelling values.

Rows are drawn from those that share the value, so that no renderer is needed and the
factors need not form a complete grid; where other factors go with the held one, they are
held as well. Values seen in one row only cannot be held and are left out (flagged). A
continuous factor is held within one of 20 bins.

`flavour="zscope"`: over the latents in use; the value held is that of a random row.
`flavour="dlib"`: over codes with a standard deviation of at least .05; every value of a
factor is held equally often.

Kim & Mnih, "Disentangling by factorising", ICML 2018, the disentanglement metric.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.score import Estimate, Score, scored
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.assays.sample import Sample, chosen, order_of, prepared, used_latents
from zscope.errors import Undefined

BATCH, TRAIN, TEST = 64, 10_000, 5_000
DLIB_STD = 0.05
AT_ONCE = 250  # votes whose rows fit a cache


@dataclass(frozen=True, eq=False)
class Groups:
    """The rows of a factor, ordered so that those sharing a value stand together."""

    rows: np.ndarray
    starts: np.ndarray
    counts: np.ndarray  # of values that can be held: two rows or more
    small: int  # values seen in one row only

    @classmethod
    def of(cls, labels: np.ndarray) -> "Groups":
        counts = np.bincount(labels)
        starts = np.cumsum(counts) - counts
        # In a half of the rows it may be that none share a value: each then stands for itself.
        held = counts >= (2 if counts.max() >= 2 else 1)
        return cls(order_of(labels), starts[held], counts[held], int((counts == 1).sum()))

    def draw(self, groups: np.ndarray, each: int, rng: np.random.Generator) -> np.ndarray:
        """`each` random rows of every one of the groups, with replacement."""
        places = rng.random((len(groups), each)) * self.counts[groups, None]
        rows: np.ndarray = self.rows[self.starts[groups, None] + places.astype(np.int64)]
        return rows

    def pairs(self, groups: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Two different random rows of every one of the groups."""
        starts, counts = self.starts[groups], self.counts[groups]
        first = (rng.random(len(groups)) * counts).astype(np.int64)
        apart = 1 + (rng.random(len(groups)) * (counts - 1)).astype(np.int64)
        return self.rows[starts + first], self.rows[starts + (first + apart) % counts]


@accepts_recording
def factor_vae_score(
    codes: Array,
    factors: Array,
    *,
    flavour: str = "zscope",
    variances: Array | None = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> Score:
    """.score, .per_factor (votes that agree), .matrix (share of a factor's votes by latent)."""
    chosen("factor_vae_score", "flavour", flavour, ("zscope", "dlib"))
    sample, flags = prepared("factor_vae_score", codes, factors, kinds)
    flags += held_flags("factor_vae_score", sample)
    ours = flavour == "zscope"
    used = used_latents("factor_vae_score", sample, variances) if ours else _spread(sample)
    return scored(
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
    )


def _spread(sample: Sample) -> tuple[list[int], list[int], list[str]]:
    wide = sample.codes.std(0, ddof=1) >= DLIB_STD
    passive = [int(j) for j in np.flatnonzero(~wide)]
    flags = [f"Latents {passive} have a standard deviation below {DLIB_STD}."] if passive else []
    return [int(j) for j in np.flatnonzero(wide)], passive, flags


def held_flags(who: str, sample: Sample) -> list[str]:
    """What is said about values that cannot be held; refused when that leaves none."""
    flags = []
    for k, labels in zip(sample.columns, sample.labels.T, strict=True):
        groups = Groups.of(labels)
        if groups.counts.max() < 2:
            raise Undefined(
                f"{who}: no two of {len(sample)} rows share a value of factor {k}, so it cannot "
                "be held. Is it continuous? Say so with kinds=, or record more samples."
            )
        if groups.small:
            flags.append(
                f"{groups.small} values of factor {k} are seen in one row only: never held."
            )
    return flags


def _votes(sample: Sample, rng: np.random.Generator, *, by_value: bool) -> Estimate:
    factors, latents = len(sample.columns), sample.codes.shape[1]
    codes = sample.codes - sample.codes.mean(0)
    spread = codes.std(0)
    codes = codes / np.where(spread > 0, spread, 1)
    tables = np.zeros((2, factors, latents), dtype=np.int64)
    for phase, total in enumerate((TRAIN, TEST)):
        shares = np.bincount(rng.integers(factors, size=total), minlength=factors)
        for k, labels in enumerate(sample.labels.T):
            groups = Groups.of(labels)
            weights = None if by_value else groups.counts / groups.counts.sum()
            held = rng.choice(len(groups.counts), size=shares[k], p=weights)
            winners = _steadiest(codes, spread > 0, groups, held, rng)
            tables[phase, k] = np.bincount(winners, minlength=latents)
    train, test = tables
    assigned = train.argmax(0)
    agree = np.zeros(factors)
    np.add.at(agree, assigned, test[assigned, np.arange(latents)])
    votes = np.maximum(test.sum(1), 1)
    cast = test.sum(0)
    right = test[assigned, np.arange(latents)] / np.maximum(cast, 1)
    return Estimate(
        float(agree.sum() / test.sum()), agree / votes, right, (test / votes[:, None]).T
    )


def _steadiest(
    codes: np.ndarray,
    moving: np.ndarray,
    groups: Groups,
    held: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """For each held value, the code with the least variance in a batch of its rows."""
    winners = np.empty(len(held), dtype=np.int64)
    for start in range(0, len(held), AT_ONCE):
        part = held[start : start + AT_ONCE]
        rows = groups.draw(part, BATCH, rng).ravel()
        drawn = np.take(codes, rows, axis=0).reshape(len(part), BATCH, -1)
        mean = np.einsum("vbj->vj", drawn) / BATCH
        variance = np.einsum("vbj,vbj->vj", drawn, drawn) / BATCH - mean**2
        variance[:, ~moving] = np.inf
        winners[start : start + AT_ONCE] = variance.argmin(1)
    return winners


ENTRY = Entry(
    question="If one factor is fixed, does the latent that varies least identify it?",
    takes=("codes", "factors", "variances=variances"),
    title="FactorVAE score",
)

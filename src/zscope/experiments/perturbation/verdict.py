"""Did the change work? The gap between the losses after the game, and without a change.

    gap = L_rec(entangled) - L_rec(disentangled)

If the two sides do not differ in MIG by more than chance gives, the gap says nothing about
entanglement, and the change is not called working whatever it is.

Both games see the same batches and the same noise, so that their gaps are compared round by
round, over the last rounds. The change worked if the gap is below 0, and below that of the game
with ε = 0, each with its whole 95 % interval. If the game with ε = 0 ends below 0 already, the
change must lower the gap by another tenth of it: any change, however small, moves the gap by
something, and shared batches make the difference very precise. The tenth is ours.

The weights of a round are those of the round before, a little changed, so that the gaps of
successive rounds are correlated, and a t-interval over rounds would be too narrow. The interval
is that of batch means: the last 50 rounds in 5 batches of 10, whose means are nearly independent,
with Student's t of 4 degrees of freedom. If correlations last for much less than 10 rounds, it
covers the mean in 95 % of cases. Of a sequence whose neighbours correlate by ρ (AR(1)) it covers

    ρ                          0      0.5    0.7    0.9
    batch means                95 %   95 %   92 %   80 %
    t-interval over rounds     95 %   76 %   59 %   31 %

so it is still too narrow where correlations last for tens of rounds, and of independent rounds it
is 1.3 times as wide as it need be. It is about the rounds of one game: restarts with other seeds
may end elsewhere.

Schmeiser, "Batch size effects in the analysis of simulation output", Operations Research 30(3),
1982.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zscope.experiments.perturbation.game import LOG_EVERY
from zscope.tables.statistics import mean_of

__all__ = ["Interval", "Verdict", "batch_interval", "judge"]

MARGIN = 0.1
BATCHES = 5
FEWEST = 25
"""Rounds that are judged: shorter batches than of 5 rounds would hardly be independent."""
REMEDY = (
    "Use a larger epsilon, more rounds or a larger modifier_rate, or other restarts (another seed, "
    "or more of them)."
)
OTHER_RESTARTS = (
    "Use restarts of which some disentangle and some do not: more of them or another seed, more "
    "steps, or another β."
)


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f} nats (95 % interval {self.low:+.2f} to {self.high:+.2f})"

    def to_list(self) -> list[float]:
        return [self.mean, self.low, self.high]


@dataclass(frozen=True)
class Verdict:
    """Whether the change worked, in a sentence, and the numbers that decided."""

    worked: bool
    sentence: str
    gap: Interval | None  # after the game; None for too few rounds
    unchanged: Interval | None  # after the same game with ε = 0
    difference: Interval | None  # of both, round by round

    def intervals(self) -> dict[str, Any]:
        """The numbers as lists: mean and 95 % interval."""
        names = ("gap", "unchanged", "difference")
        values = {name: getattr(self, name) for name in names}
        return {name: None if v is None else v.to_list() for name, v in values.items()}


def judge(
    history: list[dict[str, Any]],
    unchanged: list[dict[str, Any]],
    no_difference: str | None = None,
) -> Verdict:
    """The verdict on a game, from its rounds and those of the same game with ε = 0.

    `no_difference` says why the two sides of the game do not differ in entanglement, if so.
    """
    rounds = len(history)
    gaps, still = (
        np.array([row["gap"] for row in rows[-LOG_EVERY:]]) for rows in (history, unchanged)
    )
    if len(gaps) < FEWEST or len(gaps) != len(still):
        return Verdict(
            False,
            f"The change cannot be judged: {rounds} rounds are too few to tell a gap from chance, "
            f"which takes at least {FEWEST}. {REMEDY}",
            *(None, None, None),
        )
    gap, without, difference = (batch_interval(each) for each in (gaps, still, gaps - still))
    numbers = (gap, without, difference)
    after = (
        f"after {rounds:,} rounds the loss of the entangled model minus that of the disentangled "
        f"one is {gap}"
    )
    if no_difference is not None:
        return Verdict(
            False,
            f"The change cannot be judged: {no_difference}. For the record, {after}, and "
            f"{without.mean:+.2f} after the same game with ε = 0. {OTHER_RESTARTS}",
            *numbers,
        )
    if gap.high >= 0:
        reason = "the entangled model is not cheaper than the disentangled one"
        sentence = (
            f"The change failed: {reason}; {after}, and {without.mean:+.2f} after the same game "
            f"with ε = 0. {REMEDY}"
        )
        return Verdict(False, sentence, *numbers)
    margin = MARGIN * max(0.0, -without.mean)
    if difference.high >= -margin:
        reason = (
            "the entangled model is cheaper than the disentangled one, but not because of the "
            "change: the decoders gain as much by training longer"
        )
        sentence = (
            f"The change failed: {reason}; {after}, and {without.mean:+.2f} after the same game "
            f"with ε = 0, a difference of {difference} where at least {margin:.2g} would count. "
            f"{REMEDY}"
        )
        return Verdict(False, sentence, *numbers)
    return Verdict(
        True,
        f"The change worked: {after}, and {without.mean:+.2f} after the same game with ε = 0.",
        *numbers,
    )


def batch_interval(values: Sequence[float] | np.ndarray) -> Interval:
    """The mean of a correlated sequence with its 95 % interval, by batch means.

    Of a number of values that is not a multiple of the number of batches, the first are left out.
    """
    rows = np.asarray(values, dtype=float)
    batches = rows[len(rows) % BATCHES :].reshape(BATCHES, -1).mean(1)
    mean = mean_of(batches.tolist())
    assert mean is not None
    return Interval(mean.value, mean.low, mean.high)

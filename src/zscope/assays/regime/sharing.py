"""What columns share beyond chance: the result of assays whose score includes a floor."""

from typing import Any

from zscope.assays.halves import Interval
from zscope.results import Measure, Scored, plain

__all__ = ["Sharing"]


class Sharing(Scored):
    """A score in nats; `floor` is what independent columns would get with so many samples.

    Of maps, whose floor depends on how smooth they are, what is shared beyond it is a score of its
    own.
    """

    score: float
    floor: float
    samples: int
    interval: Interval | None
    no_interval: str  # the reason, if there is no interval
    together: int  # rows of each picture, which the floor keeps together

    @property
    def chance(self) -> float:
        return self.floor

    @property
    def excess(self) -> float:
        """What is shared beyond the floor."""
        return self.score - self.floor

    @property
    def excess_interval(self) -> Interval | None:
        if self.interval is None:
            return None
        low, high = self.interval
        return low - self.floor, high - self.floor

    def measures(self) -> list[Measure]:
        if self.together == 1:
            return super().measures()
        limits = self.excess_interval
        beyond = self.measure("beyond chance", self.excess, interval=limits, chance=0.0)
        return [*super().measures(), beyond]

    def to_dict(self) -> dict[str, Any]:
        """Of maps, with what is shared beyond chance."""
        values = super().to_dict()
        if self.together == 1:
            del values["together"]
            return values
        return {**values, "excess": self.excess, "excess_interval": plain(self.excess_interval)}

"""FONDUE with several seeds: how much does the number of latents depend on the seed?

Mean and standard deviation (N - 1) of the answers of the same search with different seeds, as
in the tables of the source: Bonheme 2023, tables 8.1 to 8.8, ten seeds. Searches that collapsed
have no answer; they are counted, and left out of the mean.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import mean, median_low, stdev
from typing import Any

from zscope.assays.dimension.fondue import BetaFondue, Fondue, StableFondue, Status
from zscope.errors import ConfigError, Undefined
from zscope.results import Measure, Scored

__all__ = ["RepeatedFondue", "repeat_fondue"]

Search = Fondue | StableFondue | BetaFondue


@dataclass(frozen=True, eq=False)
class RepeatedFondue(Scored):
    """Mean and standard deviation of the answers, and the search of each seed.

    `status` is "collapsed" when every search did (the mean is then 0), "limit" when one of them
    reached its limit, so that the mean is a lower bound, and "found" otherwise.
    """

    mean: float
    sd: float | None  # None for a single answer
    status: Status
    searches: dict[int, Search]  # seed -> search

    why_no_interval = "the standard deviation over seeds is given instead"
    why_no_chance = Fondue.why_no_chance
    score_fields = ("mean", "sd")

    @property
    def score(self) -> float:
        return self.mean

    @property
    def samples(self) -> int:
        """How many searches were run."""
        return len(self.searches)

    @property
    def answers(self) -> list[float]:
        """The answers of the searches that have one, in the order of the seeds."""
        return _answers(self.searches)

    @property
    def quantity(self) -> str:
        """What was searched for: "latents" or "beta"."""
        of_beta = any(isinstance(search, BetaFondue) for search in self.searches.values())
        return "beta" if of_beta else "latents"

    @property
    def median(self) -> float:
        """The median of the answers, the lower one of two; 0 if there is none."""
        return median_low(self.answers or [0.0])

    @property
    def latents(self) -> int:
        """The median answer of a search for latents."""
        return int(self.median)

    @property
    def beta(self) -> float:
        """The median answer of a search for β."""
        return self.median

    @property
    def stable(self) -> bool:
        """Whether no answer changed with longer training, if that was asked for."""
        return all(getattr(search, "stable", True) for search in self.searches.values())

    @property
    def flags(self) -> list[str]:
        """Warnings needed to read the answer."""
        flags = [flag for search in self.searches.values() for flag in search.flags]
        collapsed = [seed for seed, each in self.searches.items() if each.status == "collapsed"]
        if collapsed and self.answers:
            seeds = ", ".join(map(str, collapsed))
            flags.append(
                f"{len(collapsed)} of {len(self.searches)} searches collapsed (seed {seeds}), and "
                f"{'is' if len(collapsed) == 1 else 'are'} left out of the mean."
            )
        return list(dict.fromkeys(flags))

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), self.quantity: self.median, "flags": self.flags}

    def measures(self) -> list[Measure]:
        rest = [] if self.sd is None else [self.measure("standard deviation", self.sd)]
        return [self.measure("", self.mean), *rest]

    def summary(self) -> list[tuple[str, str]]:
        lines: list[tuple[str, str]] = [("status", self.status)]
        for seed, search in self.searches.items():
            lines.append((f"seed {seed}", f"{search.score:.3g} ({search.status})"))
            lines += search.summary()[1:]
        return lines

    def plot(self, ax: Any = None) -> Any:
        """The gaps of every search, one line for each seed, with the mean answer."""
        from zscope.plots import step_lines

        searches = {
            f"seed {seed}": search.last if isinstance(search, StableFondue) else search
            for seed, search in self.searches.items()
        }
        series = {name: search.gaps() for name, search in searches.items()}
        of_beta = self.quantity == "beta"
        ax = step_lines(series, x="β" if of_beta else "latents", y="gap", ax=ax)
        first = next(iter(searches.values()))
        first.scale(ax)
        first.mark(ax, self.mean)
        return ax


def repeat_fondue(search: Callable[[int], Search], seeds: Iterable[int]) -> RepeatedFondue:
    """Run `search(seed)` for every seed."""
    searches = {seed: _checked(search(seed), seed) for seed in seeds}
    if not searches:
        raise ConfigError(
            "repeat_fondue: no seeds, so nothing was searched. Give at least one, for instance "
            "range(3)."
        )
    answers = _answers(searches)
    limited = any(each.status == "limit" for each in searches.values())
    return RepeatedFondue(
        mean=mean(answers) if answers else 0.0,
        sd=stdev(answers) if len(answers) > 1 else None,
        status="limit" if limited else "found" if answers else "collapsed",
        searches=searches,
    )


def _checked(search: Search, seed: int) -> Search:
    if not isinstance(search, Search):
        raise Undefined(
            f"repeat_fondue: search({seed}) returned a {type(search).__name__}; expected the "
            "result of a FONDUE."
        )
    return search


def _answers(searches: dict[int, Search]) -> list[float]:
    return [float(each.score) for each in searches.values() if each.status != "collapsed"]

"""FONDUE with several seeds: how much does the number of latents depend on the seed?

Mean and standard deviation (N - 1) of the answers of the same search with different seeds, as
in the tables of the source: Bonheme 2023, tables 8.1 to 8.8, ten seeds. Searches that collapsed
have no answer; they are counted, and left out of the mean.

`replay_fondue` runs a search on trials that were made before: every size is trained once, and all
searches (any start, bisection, any threshold) can be compared on the same models.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean, median_low, stdev
from typing import Any, Literal

from zscope.assays.dimension.fondue import (
    BetaFondue,
    Evaluation,
    Fondue,
    StableFondue,
    Status,
    Trial,
    add_trials,
    binary_fondue,
    fondue,
    read_evaluation,
)
from zscope.errors import ConfigError, Undefined
from zscope.results import Measure, Scored, listed
from zscope.sampling import whole

__all__ = ["RepeatedFondue", "fondue_trials", "repeat_fondue", "replay_fondue"]

Search = Fondue | StableFondue | BetaFondue


@dataclass(frozen=True, eq=False)
class RepeatedFondue(Scored):
    """Mean and standard deviation of the answers, and the search of each seed.

    `status` is "collapsed" when every search did (the mean is then 0), "limit" when one of them
    reached its limit, so that the mean is a lower bound, and "found" otherwise; `statuses` has
    that of each seed.
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
    def statuses(self) -> dict[int, Status]:
        """The status of the search of each seed."""
        return {seed: search.status for seed, search in self.searches.items()}

    def records(self) -> list[dict[str, Any]]:
        """Every trial of every seed: gap, gap for each latent, types, latents in use and KL.

        `needed` is whether the search of this seed trained it, `answer` whether it is its answer.
        """
        return [
            row
            for seed, search in self.searches.items()
            for row in _records(seed, search.last if isinstance(search, StableFondue) else search)
        ]

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
        reversed_seeds = [s for s, each in self.searches.items() if each.status == "not monotone"]
        if reversed_seeds:
            flags.append(
                f"In {len(reversed_seeds)} of {len(self.searches)} searches the gap is not "
                f"monotone (seed {listed(reversed_seeds)}): it falls below the threshold again "
                "with more latents, so the answer depends on the start."
            )
        return list(dict.fromkeys(flags))

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), self.quantity: self.median, "flags": self.flags}

    def measures(self) -> list[Measure]:
        rest = [] if self.sd is None else [self.measure("standard deviation", self.sd)]
        return [self.measure("", self.mean), *rest]

    def summary(self) -> list[tuple[str, str]]:
        counts = Counter(self.statuses.values())
        lines: list[tuple[str, str]] = [("status", self.status)]
        if len(counts) > 1:
            lines.append(("searches", ", ".join(f"{n} {name}" for name, n in counts.items())))
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


def _records(seed: int, search: Fondue | BetaFondue) -> list[dict[str, Any]]:
    others = search.others if isinstance(search, Fondue) else []
    rows = []
    for trial in sorted([*search.trials, *others]):
        size = trial[0]
        answer = search.status != "collapsed" and size == search.score
        row = {"seed": seed, "latents" if isinstance(trial, Trial) else "beta": size}
        row |= {"gap": trial.value}
        if isinstance(trial, Trial):
            row["gap for each latent"] = trial.value / trial.latents
        row |= {} if trial.use is None else trial.use._asdict()
        rows.append({**row, "needed": trial in search.trials, "answer": answer})
    return rows


def replay_fondue(
    trials: Mapping[int, Evaluation],
    *,
    start: float | None = None,
    search: Literal["fondue", "binary"] = "fondue",
    threshold: float = 1.0,
    limit: int | None = None,
    trace: bool = False,
) -> Fondue:
    """What a search would have answered, and which sizes it would have trained.

    `trials` are the gaps by size, {n: gap} or {n: (gap, use)}. `limit` is the largest size to
    try, by default the largest one that is given. "fondue" begins at `start`, usually the
    intrinsic dimension of the data; "binary" bisects 1 to `limit`. `.sizes` of the result are
    those it needs, in order; trials that it does not need decide whether the gap is monotone.
    """
    who = "replay_fondue"
    if not trials:
        raise ConfigError(f"{who}: no trials were given. Give the gap of each size: {{1: 0.2, …}}")
    known: dict[int, Evaluation] = {}
    for size, evaluation in trials.items():
        whole(who, 1, latents=size)
        known[int(size)] = evaluation
    limit = max(known) if limit is None else limit
    whole(who, 1, limit=limit)
    if (start is None) != (search == "binary"):
        raise ConfigError(
            f"{who}: search={search!r} with start={start}. The search fondue begins at a start, "
            "usually the intrinsic dimension of the data; the search binary has none."
        )

    def evaluate(n: int) -> Evaluation:
        if n not in known:
            raise Undefined(
                f"{who}: the search needs a model of {n} latents, and the trials are those of "
                f"{listed(sorted(known))}. Train that size too, or lower the limit ({limit})."
            )
        return known[n]

    if start is None:
        result = binary_fondue(evaluate, high=limit + 1, threshold=threshold, trace=trace)
    else:
        result = fondue(evaluate, start=start, threshold=threshold, limit=limit, trace=trace)
    others = {n: known[n] for n in sorted(known) if n not in result.sizes}
    return add_trials(result, fondue_trials(others))


def fondue_trials(evaluations: Mapping[int, Evaluation]) -> list[Trial]:
    """Evaluations by size as trials."""
    return [
        Trial(n, *read_evaluation(each, f"fondue: the trial of size {n}"))
        for n, each in evaluations.items()
    ]

"""FONDUE: how many latents can a model use before some of them are passive?

`evaluate(n)` trains a fresh model with n latents for a short while and returns the gap between
its samples and its means (`trace_gap`: the sum of the mean posterior variances, to which each
passive latent adds about 1). Starting from the intrinsic dimension of the data, n is doubled
while the gap is at most the threshold t, and bisected towards the last good size otherwise:

    l = 0; u = infinity; n = start
    until n = l:    gap(n) <= t:  l = n, n = min(2 n, u)     else:  u = n, n = floor((l + u) / 2)

The answer n has gap(n) <= t < gap(n + 1), as measured: each size is tried only once. With a
threshold below 1 all latents of the answer are active; a larger one tolerates about that many
passive latents. Many moderately precise latents also add up to a gap: 20 of mean variance
0.05 make 1.

The same search works with any gap that is below its threshold while all latents are used and
above it afterwards, and that converges early in training: `dimension_gap` (threshold 1),
`information_gap` (threshold -0.01).

Bonheme 2023, algorithm 1 and theorems 8.3.1 to 8.3.3 (FONDUE); algorithms 7 and 8
(`binary_fondue`); section 8.9 (`fondue_beta`). `fondue_types` is the variant in the published
code, with an upper limit added.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from zscope.assays.regime.types import VariableTypes
from zscope.errors import Undefined
from zscope.results import Scored

__all__ = [
    "BetaFondue",
    "BetaTrial",
    "Fondue",
    "StableFondue",
    "Trial",
    "binary_fondue",
    "fondue",
    "fondue_beta",
    "fondue_types",
    "stable_fondue",
]

Status = Literal["found", "limit", "collapsed"]
WHY_NO_INTERVAL = "it is the answer of one search; repeat it with other seeds to see its spread"
WHY_NO_CHANCE = "it is the size or the β of a model, not a property of codes"


class Trial(NamedTuple):
    """A trained model: its number of latents and its gap."""

    latents: int
    value: float


@dataclass(frozen=True, eq=False)
class Fondue(Scored):
    """The number of latents, and the models that were trained to find it.

    `status` is "found"; "limit" when the largest size allowed was still good (then the
    answer is a lower bound); "collapsed" when even the smallest has a gap that is too large
    (latents = 0).
    """

    latents: int
    trials: list[Trial]  # in the order of training
    threshold: float
    status: Status
    limit: int
    flags: list[str] = field(default_factory=list)  # warnings needed to read the answer

    why_no_interval = WHY_NO_INTERVAL
    why_no_chance = WHY_NO_CHANCE
    score_fields = ("latents",)

    @property
    def score(self) -> int:
        return self.latents

    @property
    def samples(self) -> int:
        """How many models were trained."""
        return len(self.trials)

    def summary(self) -> list[tuple[str, str]]:
        gaps = [(f"gap of {trial.latents}", f"{trial.value:.3f}") for trial in sorted(self.trials)]
        return [("status", self.status), ("threshold", f"{self.threshold:g}"), *gaps]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        curve = sorted(self.trials)
        ax = lines(
            {"": [trial.value for trial in curve]},
            at=[trial.latents for trial in curve],
            x="latents",
            y="gap",
            ax=ax,
        )
        mark_answer(ax, self.latents)
        mark_threshold(ax, self.threshold)
        return ax


def mark_threshold(ax: Any, threshold: float, *, left: bool = False) -> None:
    """A labelled line at the largest acceptable gap."""
    ax.axhline(threshold, linestyle=":", color="grey", linewidth=0.7)
    ax.annotate(
        f"threshold {threshold:g}",
        (0 if left else 1, threshold),
        xycoords=("axes fraction", "data"),
        xytext=(2 if left else -2, 2),
        textcoords="offset points",
        ha="left" if left else "right",
        fontsize="small",
    )


def mark_answer(ax: Any, latents: int) -> None:
    """A labelled line at the answer; ticks at whole numbers of latents."""
    _mark(ax, latents, f"{latents} latent{'' if latents == 1 else 's'}")
    ax.locator_params(axis="x", integer=True)


def _mark(ax: Any, place: float, name: str, *, left: bool = False) -> None:
    ax.axvline(place, linestyle="--", color="grey", linewidth=0.7)
    ax.annotate(
        name,
        (place, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if left else 3, -2),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        fontsize="small",
    )


def fondue(
    evaluate: Callable[[int], float],
    *,
    start: float,
    threshold: float = 1.0,
    limit: int = 512,
) -> Fondue:
    """Search for the number of latents; `start` is usually the data's intrinsic dimension."""
    _check_settings("fondue", threshold, start=start, limit=limit)
    gaps = _Gaps(evaluate, "fondue")
    low, high = 0, None
    n = min(limit, max(1, round(start)))
    while n != low:
        if gaps(n) <= threshold:
            low = n
            if high is None and n == limit:
                return gaps.result(low, threshold, "limit", limit)
            n = min(2 * n, limit if high is None else high)
        else:
            high = n
            n = (low + high) // 2
    return gaps.result(low, threshold, "found" if low else "collapsed", limit)


def binary_fondue(
    evaluate: Callable[[int], float],
    *,
    low: int = 1,
    high: int = 200,
    threshold: float = 1.0,
) -> Fondue:
    """The same by bisection of a range that must contain the answer, as a baseline.

    `high` itself is never tried: if all sizes are good, the answer is high - 1. If none is,
    the answer is 0: sizes below `low` are not tried.
    """
    _check_settings("binary_fondue", threshold, start=low, limit=high - low)
    gaps = _Gaps(evaluate, "binary_fondue")
    bottom, top = low, high
    while low < high:
        n = (low + high) // 2
        if gaps(n) <= threshold:
            low = n + 1
        else:
            high = n
    answer = low - 1
    if answer < bottom:
        return gaps.result(0, threshold, "collapsed", top)
    return gaps.result(answer, threshold, "limit" if answer == top - 1 else "found", top)


def _check_settings(who: str, threshold: float, *, start: float, limit: int) -> None:
    if not math.isfinite(start) or math.isnan(threshold) or limit < 1:
        raise Undefined(
            f"{who}: got start={start}, threshold={threshold} and {limit} sizes to try; expected "
            "finite numbers and at least one size. The usual start is the intrinsic dimension of "
            "the data, the usual threshold 1 and the usual limit 512."
        )


class _Gaps:
    """`evaluate` with a cache: no size is trained twice."""

    def __init__(self, evaluate: Callable[[int], float], who: str) -> None:
        self.evaluate, self.who = evaluate, who
        self.values: dict[int, float] = {}

    def __call__(self, n: int) -> float:
        if n not in self.values:
            self.values[n] = _number(self.evaluate(n), f"{self.who}: evaluate({n})")
        return self.values[n]

    def result(self, latents: int, threshold: float, status: Status, limit: int) -> Fondue:
        trials = [Trial(n, value) for n, value in self.values.items()]
        return Fondue(latents, trials, threshold, status, limit)


def _number(value: Any, who: str) -> float:
    if math.isnan(number := float(value)):
        raise Undefined(
            f"{who} returned NaN, which cannot be compared with the threshold. Did that model "
            "diverge? Lower its learning rate."
        )
    return number


class BetaTrial(NamedTuple):
    beta: float
    value: float


@dataclass(frozen=True, eq=False)
class BetaFondue(Scored):
    """The largest β with an acceptable gap, and the models that were trained to find it."""

    beta: float
    trials: list[BetaTrial]
    threshold: float
    status: Status
    flags: list[str] = field(default_factory=list)

    why_no_interval = WHY_NO_INTERVAL
    why_no_chance = WHY_NO_CHANCE
    score_fields = ("beta",)

    @property
    def score(self) -> float:
        return self.beta

    @property
    def samples(self) -> int:
        """How many models were trained."""
        return len(self.trials)

    def summary(self) -> list[tuple[str, str]]:
        gaps = [(f"gap at {trial.beta:.3g}", f"{trial.value:.3f}") for trial in sorted(self.trials)]
        return [("status", self.status), ("threshold", f"{self.threshold:g}"), *gaps]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        curve = sorted(self.trials)
        ax = lines(
            {"": [trial.value for trial in curve]},
            at=[trial.beta for trial in curve],
            x="β",
            y="gap",
            ax=ax,
        )
        ax.set_xscale("log", base=2)  # as the search proceeds
        ax.xaxis.set_major_formatter("{x:g}")
        if self.beta > 0:
            _mark(ax, self.beta, f"β = {self.beta:.3g}", left=True)
        mark_threshold(ax, self.threshold, left=True)
        return ax


def fondue_beta(
    evaluate: Callable[[float], float],
    *,
    start: float = 1.0,
    threshold: float = 1.0,
    tolerance: float = 0.05,
    low: float = 1e-3,
    high: float = 1e3,
) -> BetaFondue:
    """The strongest regularisation at which a model of fixed size has no passive latents.

    `evaluate(β)` trains and returns the gap, which grows with β. β is doubled or halved
    until the threshold is crossed, then bisected on a logarithmic scale to within the relative
    `tolerance`; the answer is the largest β tried that is good.
    """
    gaps: dict[float, float] = {}

    def good(beta: float) -> bool:
        if beta not in gaps:
            gaps[beta] = _number(evaluate(beta), f"fondue_beta: evaluate({beta:.3g})")
        return gaps[beta] <= threshold

    def result(beta: float, status: Status) -> BetaFondue:
        return BetaFondue(beta, [BetaTrial(*pair) for pair in gaps.items()], threshold, status)

    beta = min(max(start, low), high)
    while not good(beta):
        if beta <= low:
            return result(0.0, "collapsed")
        beta = max(low, beta / 2)
    below = above = beta  # the threshold is crossed between the two
    while good(above):
        below = above
        if above >= high:
            return result(below, "limit")
        above = min(high, 2 * above)
    while above / below > 1 + tolerance:
        middle = math.sqrt(below * above)
        if good(middle):
            below = middle
        else:
            above = middle
    return result(below, "found")


def fondue_types(
    evaluate: Callable[[int], VariableTypes],
    *,
    start: float,
    keep: Literal["used", "active"] = "used",
    limit: int = 512,
) -> Fondue:
    """Train with more latents than needed, and count those that are not passive.

    `evaluate(n)` returns the variable types of a model with n latents; n starts at twice the
    intrinsic dimension and is doubled until a passive latent appears, up to `limit`.
    """
    _check_settings("fondue_types", 0.0, start=start, limit=limit)
    n = min(limit, max(1, 2 * round(start)))
    trials = []
    while True:
        types = evaluate(n)
        trials.append(Trial(n, float(len(types.passive))))
        count = len(types.used if keep == "used" else types.active)
        if types.passive or n == limit:
            status: Status = "limit" if not types.passive else "found" if count else "collapsed"
            return Fondue(count, trials, 0.0, status, limit)
        n = min(limit, 2 * n)


@dataclass(frozen=True, eq=False)
class StableFondue(Scored):
    """The answer that no longer changes with longer training, and the steps it takes."""

    latents: int
    steps: int
    searches: dict[int, Fondue]  # steps -> search
    stable: bool

    why_no_interval = WHY_NO_INTERVAL
    why_no_chance = WHY_NO_CHANCE

    @property
    def score(self) -> int:
        return self.latents

    @property
    def samples(self) -> int:
        """How many models were trained, over all searches."""
        return sum(search.samples for search in self.searches.values())

    @property
    def last(self) -> Fondue:
        """The search with the longest training."""
        return self.searches[max(self.searches)]

    @property
    def status(self) -> Status:
        """The status of the last search."""
        return self.last.status

    @property
    def flags(self) -> list[str]:
        return self.last.flags

    def plot(self, ax: Any = None) -> Any:
        return self.last.plot(ax)

    def summary(self) -> list[tuple[str, str]]:
        lines = [(f"{steps} steps", f"{search.latents} latents")
                 for steps, search in self.searches.items()]  # fmt: skip
        return [("stable", "yes" if self.stable else "no"), *lines]


def stable_fondue(search: Callable[[int], Fondue], *, steps: int, rounds: int = 5) -> StableFondue:
    """Train twice as long until the answer repeats: `search(steps)` runs a whole FONDUE.

    `steps` of the result is the smallest number of steps that gave the final answer.
    """
    searches: dict[int, Fondue] = {}
    for _ in range(max(2, rounds)):
        before = list(searches.values())[-1:]
        searches[steps] = search(steps)
        if before and before[0].latents == searches[steps].latents:
            return StableFondue(searches[steps].latents, steps // 2, searches, True)
        steps *= 2
    last = list(searches)[-1]
    return StableFondue(searches[last].latents, last, searches, False)

"""FONDUE: how many latents can a model use before some of them are passive?

`evaluate(n)` trains a fresh model with n latents for a short while and returns the gap between
its samples and its means (`trace_gap`: the sum of the mean posterior variances, to which each
passive latent adds about 1). Starting from the intrinsic dimension of the data, n is doubled
while the gap is at most the threshold t, and bisected towards the last good size otherwise:

    l = 0; u = infinity; n = start
    until n = l:    gap(n) <= t:  l = n, n = min(2 n, u)     else:  u = n, n = floor((l + u) / 2)

The answer n has gap(n) <= t < gap(n + 1), as measured: each size is tried only once. The
threshold is about the number of passive latents that are tolerated, but does not tell types
apart. A latent that is active for a share w of the samples adds 1 - w (proposition 8.3.3), so
five active latents and one that is used for half of the samples have a gap of about .53: below
a threshold of 1, with a mixed latent. (Erratum: theorem 8.3.3 says that a threshold below 1
leaves active latents only, which proposition 8.3.3 refutes.) Many moderately precise latents
also add up: 20 of mean variance 0.05 make 1. So the types and the KL of each model are kept.

A model that uses no latent is no answer, however small its gap: one passive latent has a gap of
just under 1. It is not acceptable at any threshold, and a search in which no model is acceptable
is "collapsed". `evaluate` may return (gap, `Use`), with the latents that are used and their KL,
of which less than .1 nat is a collapse too; of a bare gap a model is collapsed if the gap exceeds
.9 for each latent (the limit of passive, section 6.4.1).

With `trace=True` the gap is known to be the trace gap in units of the prior: then a search is also
collapsed if the gaps of all its models exceed .9 for each latent, and a gap that exceeds the number
of latents is refused (10 % more are within the error of training), because the variances are not in
units of the prior.

A search sees only gaps that grow: it never tries a size below one that is good. Whether the gap
falls again at a larger size shows in trials of other searches (`add_trials`): the status is "not
monotone" if gap(n) > t and gap(n') <= t for some n < n'. The answer then depends on the start.

The same search works with any gap that is below its threshold while all latents are used and
above it afterwards, and that converges early in training: `dimension_gap` (threshold 1),
`information_gap` (threshold -0.01).

Bonheme 2023, algorithm 1 and theorems 8.3.1 to 8.3.3 (FONDUE); algorithms 7 and 8
(`binary_fondue`); section 8.9 (`fondue_beta`). `fondue_types` is the variant in the published
code, with an upper limit added.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from zscope.assays.regime.types import VariableTypes
from zscope.errors import ConfigError, Undefined
from zscope.results import Scored

__all__ = [
    "BetaFondue",
    "BetaTrial",
    "Fondue",
    "StableFondue",
    "Trial",
    "Use",
    "add_trials",
    "binary_fondue",
    "fondue",
    "fondue_beta",
    "fondue_types",
    "read_evaluation",
    "stable_fondue",
]

Status = Literal["found", "limit", "collapsed", "not monotone"]
WHY_NO_INTERVAL = "it is the answer of one search; repeat it with other seeds to see its spread"
WHY_NO_CHANCE = "it is the size or the β of a model, not a property of codes"


PASSIVE = 0.9  # mean posterior variance from which a latent is passive, with alpha = 0.1
LEAST_NATS = 0.1  # a model whose latents carry less together has collapsed
MOST = 1.1  # mean posterior variance of a latent, in units of the prior


class Use(NamedTuple):
    """How many latents of a trained model are used, and how much information they carry."""

    active: int
    mixed: int
    passive: int
    used: int  # those that count (`zscope.usage`)
    kl: float | None = None  # mean divergence of all latents together, in nats

    @classmethod
    def of(cls, types: VariableTypes) -> "Use":
        """From types alone, of which no more is known than that passive latents are not used."""
        counts = (len(types.active), len(types.mixed), len(types.passive))
        return cls(*counts, used=len(types.not_passive))

    @property
    def collapsed(self) -> bool:
        """Whether no latent is used, or all of them together carry less than 0.1 nats."""
        return self.used == 0 or (self.kl is not None and self.kl < LEAST_NATS)

    def __str__(self) -> str:
        kl = "" if self.kl is None else f", KL {self.kl:.2f} nats"
        return f"{self.active} active, {self.mixed} mixed, {self.passive} passive{kl}"


class Trial(NamedTuple):
    """A trained model: its number of latents, its gap, and its use of the latents if known."""

    latents: int
    value: float
    use: Use | None = None

    @property
    def collapsed(self) -> bool:
        """Whether the model uses none of its latents."""
        return self.at_the_prior if self.use is None else self.use.collapsed

    @property
    def at_the_prior(self) -> bool:
        """Whether the gap of each latent is that of a passive one, on average."""
        return self.value > PASSIVE * self.latents


Evaluation = float | tuple[float, Use]
"""What `evaluate` returns: the gap, or the gap and the use of the latents."""


@dataclass(frozen=True, eq=False)
class Fondue(Scored):
    """The number of latents, and the models that were trained to find it.

    `status` is "found"; "limit" when the largest size allowed was still good (then the
    answer is a lower bound); "collapsed" when no model is acceptable (latents = 0): even the
    smallest has a gap that is too large, or uses none of its latents; "not monotone" when another
    model has a smaller gap with more latents, so that another start may have another answer.
    """

    latents: int
    trials: list[Trial]  # in the order of training
    threshold: float
    status: Status
    limit: int
    flags: list[str] = field(default_factory=list)  # warnings needed to read the answer
    others: list[Trial] = field(default_factory=list)  # known, but not needed by this search
    trace: bool = False  # whether the gap is the trace gap: n if no latent is used

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

    @property
    def sizes(self) -> list[int]:
        """The sizes that the search trained, in this order."""
        return [trial.latents for trial in self.trials]

    @property
    def answer(self) -> Trial | None:
        """The trial of the answer; None if there is none, or if latents were counted instead."""
        return next((trial for trial in self.trials if trial.latents == self.latents), None)

    @property
    def reversals(self) -> list[tuple[int, int]]:
        """Sizes n < n' with gap(n) > threshold >= gap(n'), among all trials that are known."""
        gaps = {trial.latents: trial.value for trial in sorted([*self.others, *self.trials])}
        return [
            (n, more)
            for n, gap in gaps.items()
            for more, other in gaps.items()
            if n < more and gap > self.threshold >= other
        ]

    def summary(self) -> list[tuple[str, str]]:
        gaps = [(f"gap of {trial.latents}", _gap_text(trial)) for trial in sorted(self.trials)]
        return [("status", self.status), ("threshold", f"{self.threshold:g}"), *gaps]

    def to_dict(self) -> dict[str, Any]:
        tables = {"trials": self.trials, "others": self.others}
        return {
            **super().to_dict(),
            **{name: [_trial_dict(trial) for trial in each] for name, each in tables.items()},
        }

    def gaps(self) -> dict[float, float]:
        """The gap by the number of latents, ascending."""
        return {trial.latents: trial.value for trial in sorted(self.trials)}

    def plot(self, ax: Any = None) -> Any:
        """The gap against the number of latents."""
        from zscope.plots import step_lines

        ax = step_lines({"": self.gaps()}, x="latents", y="gap", ax=ax)
        self.scale(ax)
        self.mark(ax, self.latents)
        return ax

    def scale(self, ax: Any) -> None:
        """Ticks at whole numbers of latents."""
        ax.locator_params(axis="x", integer=True)

    def mark(self, ax: Any, answer: float) -> None:
        """Lines at the answer, if there is one, at the threshold and where no latent is used."""
        if answer > 0:
            mark_answer(ax, answer)
        mark_threshold(ax, self.threshold)
        if self.trace:
            mark_collapse(ax)


def _gap_text(trial: "Trial | BetaTrial") -> str:
    return f"{trial.value:.3f}" + ("" if trial.use is None else f" ({trial.use})")


def _trial_dict(trial: "Trial | BetaTrial") -> dict[str, Any]:
    """A trial as one row of a table."""
    row = trial._asdict()
    use = row.pop("use")
    return row if use is None else {**row, **use._asdict()}


def mark_threshold(ax: Any, threshold: float, *, left: bool = False) -> None:
    """A labelled line at the largest acceptable gap."""
    low, high = ax.get_ylim()
    margin = 0.05 * (max(high, threshold) - min(low, threshold))
    ax.set_ylim(min(low, threshold - margin), max(high, threshold + margin))
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


def mark_collapse(ax: Any) -> None:
    """A labelled line where the gap is the number of latents: all of them are passive."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    start, end = max(left, low, 0), min(right, high)
    if start >= end:  # all gaps are far below
        return
    ax.plot([start, end], [start, end], linestyle="-.", color="grey", linewidth=0.7, zorder=0)
    middle = start + 0.6 * (end - start)
    ax.annotate(
        "gap = latents", (middle, middle), (4, -1), textcoords="offset points", va="top",
        fontsize="small",
    )  # fmt: skip
    ax.set(xlim=(left, right), ylim=(low, high))


def latents_text(latents: float) -> str:
    """`1 latent`, `4 latents`, `1.5 latents`."""
    return f"{round(latents, 2):g} latent{'' if latents == 1 else 's'}"


def mark_answer(ax: Any, latents: float, what: str = "") -> None:
    """A labelled line at the answer; ticks at whole numbers of latents."""
    mark_place(ax, latents, f"{what}{latents_text(latents)}")
    ax.locator_params(axis="x", integer=True)


def mark_place(ax: Any, place: float, name: str, *, left: bool = False) -> None:
    """A labelled vertical line; the label is at its right, or at its left."""
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
    evaluate: Callable[[int], Evaluation],
    *,
    start: float,
    threshold: float = 1.0,
    limit: int = 512,
    trace: bool = False,
) -> Fondue:
    """Search for the number of latents; `start` is usually the data's intrinsic dimension.

    `trace` says that the gap is the trace gap, of which impossible values are refused.
    """
    _check_settings("fondue", threshold, start=start, limit=limit)
    trials = _Trials(evaluate, "fondue", threshold, trace=trace)
    low, high = 0, None
    n = min(limit, max(1, round(start)))
    while n != low:
        if trials.acceptable(n):
            low = n
            if high is None and n == limit:
                return trials.result(low, "limit", limit)
            n = min(2 * n, limit if high is None else high)
        else:
            high = n
            n = (low + high) // 2
    return trials.result(low, "found" if low else "collapsed", limit)


def binary_fondue(
    evaluate: Callable[[int], Evaluation],
    *,
    low: int = 1,
    high: int = 200,
    threshold: float = 1.0,
    trace: bool = False,
) -> Fondue:
    """The same by bisection of a range that must contain the answer, as a baseline.

    `high` itself is never tried: if all sizes are good, the answer is high - 1. If none is,
    the answer is 0: sizes below `low` are not tried.
    """
    _check_settings("binary_fondue", threshold, start=low, limit=high - low)
    trials = _Trials(evaluate, "binary_fondue", threshold, trace=trace)
    bottom, top = low, high
    while low < high:
        n = (low + high) // 2
        if trials.acceptable(n):
            low = n + 1
        else:
            high = n
    answer = low - 1
    if answer < bottom:
        return trials.result(0, "collapsed", top)
    return trials.result(answer, "limit" if answer == top - 1 else "found", top)


def _check_settings(who: str, threshold: float, *, start: float, limit: int) -> None:
    numbers = all(isinstance(each, int | float) for each in (start, threshold, limit))
    if not numbers or not math.isfinite(start) or math.isnan(threshold) or limit < 1:
        raise Undefined(
            f"{who}: got start={start}, threshold={threshold} and {limit} sizes to try; expected "
            "finite numbers and at least one size. The usual start is the intrinsic dimension of "
            "the data, the usual threshold 1 and the usual limit 512."
        )


class _Trials:
    """`evaluate` with a cache: no size is trained twice."""

    def __init__(
        self, evaluate: Callable[[int], Evaluation], who: str, threshold: float, *, trace: bool
    ) -> None:
        self.evaluate, self.who, self.threshold, self.trace = evaluate, who, threshold, trace
        self.trials: dict[int, Trial] = {}

    def acceptable(self, n: int) -> bool:
        """Whether a model of n latents has a small gap, and uses any latent at all."""
        if n not in self.trials:
            trial = Trial(n, *read_evaluation(self.evaluate(n), f"{self.who}: evaluate({n})"))
            if self.trace and trial.value > MOST * n:
                raise Undefined(
                    f"{self.who}: the gap of {latents_text(n)} is {trial.value:.3g}, more than the "
                    "number of latents. The posterior variances exceed those of the prior: are "
                    "they in units of the prior (recording.relative, for a model whose prior "
                    "depends on the factors), and did training converge?"
                )
            self.trials[n] = trial
        trial = self.trials[n]
        return trial.value <= self.threshold and not trial.collapsed

    def result(self, latents: int, status: Status, limit: int) -> Fondue:
        trials = list(self.trials.values())
        if self.trace and all(trial.at_the_prior for trial in trials):
            latents, status = 0, "collapsed"
        return Fondue(latents, trials, self.threshold, status, limit, trace=self.trace)


def add_trials(search: Fondue, trials: Iterable[Trial]) -> Fondue:
    """The search with what is known of other sizes, which may show that it is not monotone."""
    sizes = set(search.sizes)
    others = [trial for trial in trials if trial.latents not in sizes]
    search = replace(search, others=others)
    if search.status == "found" and search.reversals:
        return replace(search, status="not monotone")
    return search


def read_evaluation(evaluation: Evaluation, who: str) -> tuple[float, Use | None]:
    """The gap and the use of the latents, if there is one; anything else is refused."""
    gap, use = evaluation if isinstance(evaluation, tuple) else (evaluation, None)
    if not isinstance(gap, int | float | Tensor | np.generic) or not isinstance(use, Use | None):
        raise Undefined(
            f"{who} returned {evaluation!r}; expected the gap, a number, or the gap and the use of "
            "the latents."
        )
    if math.isnan(number := float(gap)):
        raise Undefined(
            f"{who} returned NaN, which cannot be compared with the threshold. Did that model "
            "diverge? Lower its learning rate."
        )
    return number, use


class BetaTrial(NamedTuple):
    """A model trained with this β: its gap, and its use of the latents if known."""

    beta: float
    value: float
    use: Use | None = None


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
        gaps = [(f"gap at {trial.beta:.3g}", _gap_text(trial)) for trial in sorted(self.trials)]
        return [("status", self.status), ("threshold", f"{self.threshold:g}"), *gaps]

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "trials": [_trial_dict(trial) for trial in self.trials]}

    def gaps(self) -> dict[float, float]:
        """The gap by β, ascending."""
        return {trial.beta: trial.value for trial in sorted(self.trials)}

    def plot(self, ax: Any = None) -> Any:
        """The gap against β."""
        from zscope.plots import step_lines

        ax = step_lines({"": self.gaps()}, x="β", y="gap", ax=ax)
        self.scale(ax)
        self.mark(ax, self.beta)
        return ax

    def scale(self, ax: Any) -> None:
        """A logarithmic axis, as the search proceeds."""
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")

    def mark(self, ax: Any, answer: float) -> None:
        """Lines at the answer, if there is one, and at the threshold."""
        if answer > 0:
            mark_place(ax, answer, f"β = {answer:.3g}", left=True)
        mark_threshold(ax, self.threshold, left=True)


FINEST = 1e-9
"""The smallest relative tolerance of β: floats have no finer steps to bisect for long."""


def fondue_beta(
    evaluate: Callable[[float], Evaluation],
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
    `tolerance`; the answer is the largest β tried that is good. A model that uses no latent is
    not good, which can be seen only if `evaluate` returns the `Use` of the latents too.
    """
    if not (start > 0 and 0 < low <= high < math.inf and tolerance >= FINEST):
        raise ConfigError(
            f"fondue_beta: start={start}, low={low}, high={high}, tolerance={tolerance}; expected "
            f"β above 0, low <= high, both finite, and a tolerance of at least {FINEST:g}. Other "
            "searches would not end."
        )
    trials: dict[float, BetaTrial] = {}

    def good(beta: float) -> bool:
        if beta not in trials:
            who = f"fondue_beta: evaluate({beta:.3g})"
            trials[beta] = BetaTrial(beta, *read_evaluation(evaluate(beta), who))
        trial = trials[beta]
        return trial.value <= threshold and (trial.use is None or not trial.use.collapsed)

    def result(beta: float, status: Status) -> BetaFondue:
        return BetaFondue(beta, list(trials.values()), threshold, status)

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
    evaluate: Callable[[int], VariableTypes | Use],
    *,
    start: float,
    keep: Literal["active+mixed", "active"] = "active+mixed",
    limit: int = 512,
) -> Fondue:
    """Train with more latents than needed, and count those that are not passive.

    `evaluate(n)` returns the variable types of a model with n latents; n starts at twice the
    intrinsic dimension and is doubled until a passive latent appears, up to `limit`. As published,
    types decide: `keep` says which are counted.
    """
    _check_settings("fondue_types", 0.0, start=start, limit=limit)
    n = min(limit, max(1, 2 * round(start)))
    trials: list[Trial] = []
    while True:
        types = evaluate(n)
        use = Use.of(types) if isinstance(types, VariableTypes) else types
        if not isinstance(use, Use):
            raise Undefined(
                f"fondue_types: evaluate({n}) returned a {type(types).__name__}; expected the "
                "variable_types of that model, or their counts."
            )
        trials.append(Trial(n, float(use.passive), use))
        count = use.active + (use.mixed if keep == "active+mixed" else 0)
        if trials[-1].collapsed or (use.passive and not count):
            return Fondue(0, trials, 0.0, "collapsed", limit)
        if use.passive or n == limit:
            return Fondue(count, trials, 0.0, "found" if use.passive else "limit", limit)
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
        lines = [(f"{steps} steps", latents_text(search.latents))
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
        if not isinstance(searches[steps], Fondue):
            raise Undefined(
                f"stable_fondue: search({steps}) returned a {type(searches[steps]).__name__}; "
                "expected a Fondue."
            )
        if before and before[0].latents == searches[steps].latents:
            return StableFondue(searches[steps].latents, steps // 2, searches, True)
        steps *= 2
    last = list(searches)[-1]
    return StableFondue(searches[last].latents, last, searches, False)

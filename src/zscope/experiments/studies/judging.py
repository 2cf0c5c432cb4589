"""Judge a claim: an interval over seeds against a limit that was fixed beforehand, and controls.

The statistic d has one value a seed (or other cluster: all paths, pairs or latents of a seed stay
together). Its mean has a bootstrap interval over n seeds with 10,000 draws, whose half-widths are
multiplied by

    sqrt(n / (n - 1)) t(0.975, n - 1) / 1.96

because the bootstrap of few seeds is too narrow: 1.87 for 4 seeds, 1.58 for 5, 1.29 for 8.

    holds           the interval is wholly on the claimed side of the limit
    does not hold   it is wholly on the other side
    undecided       it includes the limit; or the reason is given: fewer than 4 seeds, a control
                    that fails, something that the claim presupposes and that is not so

"Unchanged" is claimed as "within ± a margin": that the interval lies inside it. Values that are all
equal have no spread to judge by; as in tables of runs, six of them are needed.

Every undecided claim says what would decide it: what its study says, and what is missing of the
above. The number of seeds is that at which the interval would be short enough. More seeds cannot
make a claim hold while a control fails: then the control is named instead.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zscope.results import counted
from zscope.tables.statistics import ENOUGH as FEWEST
from zscope.tables.statistics import EQUAL, ROUNDING, rank_correlation

__all__ = [
    "FAILS",
    "HOLDS",
    "UNDECIDED",
    "Claim",
    "Control",
    "Expect",
    "Interval",
    "above",
    "below",
    "bootstrap",
    "bootstrap_correlation",
    "claim",
    "claim_of_parts",
    "compare_groups",
    "mean_interval",
    "nested_interval",
    "rank_correlation_interval",
    "within",
]  # fmt: skip

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
DRAWS = 10_000
ENOUGH = 4
"""Seeds from which a claim is judged."""
MOST_SEEDS = 200
"""Seeds that one could be asked to train in order to decide a claim."""
NO_NUMBERS = "figure only, no numbers"
DEFINED = 0.9
"""Share of the draws in which a statistic must be defined."""


@dataclass(frozen=True)
class Interval:
    """A statistic with its 95 % interval over n seeds."""

    value: float
    low: float
    high: float
    n: int
    equal: bool = False  # all values are the same, so that they show no spread
    uncut: tuple[float, float] | None = None  # the ends, where they were outside the range

    @property
    def is_flat(self) -> bool:
        """Whether it shows no spread, as that of equal values or one without length."""
        return self.equal or self.low == self.high

    def __str__(self) -> str:
        return f"{_number(self.value)} [{_number(self.low)}, {_number(self.high)}], n = {self.n}"


@dataclass(frozen=True)
class Expect:
    """What a claim says of the statistic: above or below a limit, or within ± the limit of 0."""

    kind: str
    limit: float = 0.0

    def __str__(self) -> str:
        limit = self.limit + 0.0  # which makes 0 of -0
        return f"within ±{limit:g}" if self.kind == "within" else f"{self.kind} {limit:g}"

    def verdict(self, interval: Interval) -> str:
        low, high, limit = interval.low, interval.high, self.limit
        if self.kind == "within":
            if -limit <= low and high <= limit:
                return HOLDS
            return FAILS if low > limit or high < -limit else UNDECIDED
        if low > limit:
            return HOLDS if self.kind == "above" else FAILS
        if high < limit:
            return FAILS if self.kind == "above" else HOLDS
        return UNDECIDED

    def side(self, value: float) -> str:
        """The verdict that an interval around the value would have if it were short enough."""
        return self.verdict(Interval(value, value, value, 0))


def above(limit: float = 0.0) -> Expect:
    return Expect("above", limit)


def below(limit: float = 0.0) -> Expect:
    return Expect("below", limit)


def within(margin: float) -> Expect:
    return Expect("within", margin)


@dataclass(frozen=True)
class Control:
    """Something that must be so for a claim to hold; `passed` is None where it cannot be tried.

    `measured` may be made of intervals of which some are None: they read "not measured".
    """

    sentence: str
    passed: bool | None
    measured: str = ""

    def __post_init__(self) -> None:
        if self.passed is not None:
            object.__setattr__(self, "passed", bool(self.passed))  # NumPy has one of its own
        object.__setattr__(self, "measured", re.sub(r"\bNone\b", "not measured", self.measured))

    def to_dict(self) -> dict[str, Any]:
        return {"control": self.sentence, "passed": self.passed, "measured": self.measured}


@dataclass(frozen=True)
class Claim:
    """A claim of a document with what was published, what was measured, and the verdict."""

    row: str  # the table or figure: "A-T2"
    name: str  # "c1"
    sentence: str
    source: str  # where the document says so: "table 2"
    published: str
    statistic: str  # what was computed
    expect: str
    interval: Interval | None
    verdict: str
    values: dict[str, float] = field(default_factory=dict)  # by seed
    reason: str = ""  # why it is undecided
    controls: tuple[Control, ...] = ()
    chosen: str = ""  # what was fixed or tuned before looking
    needs: str = ""  # what would decide it, or would have to change for it to hold
    ours: bool = False  # a claim of ours, not of the document
    parts: tuple["Claim", ...] = ()

    @property
    def verdict_text(self) -> str:
        return f"{self.verdict} ({self.reason})" if self.reason else self.verdict

    @property
    def measured(self) -> str:
        if self.parts:
            return "; ".join(f"{part.name}: {part.measured}" for part in self.parts)
        return "not measured" if self.interval is None else str(self.interval)

    def to_dict(self) -> dict[str, Any]:
        interval = self.interval
        return {
            "row": self.row,
            "name": self.name,
            "claim": self.sentence,
            "source": self.source,
            "published": self.published,
            "ours": self.ours,
            "statistic": self.statistic,
            "expected": self.expect,
            "measured": None if interval is None else round_to(interval.value),
            "interval": None if interval is None else [round_to(interval.low),
                                                       round_to(interval.high)],
            "seeds": 0 if interval is None else interval.n,
            "values": {key: round_to(value) for key, value in self.values.items()},
            "controls": [control.to_dict() for control in self.controls],
            "verdict": self.verdict,
            "reason": self.reason,
            "chosen": self.chosen,
            "needs": self.needs,
            **({"parts": [part.to_dict() for part in self.parts]} if self.parts else {}),
        }  # fmt: skip


def claim(
    row: str,
    name: str,
    sentence: str,
    *,
    source: str,
    expect: Expect,
    values: Mapping[Any, float | None] | Interval | None,
    statistic: str,
    published: str = NO_NUMBERS,
    controls: Sequence[Control] = (),
    presupposes: str = "",
    chosen: str = "",
    needs: str = "",
    ours: bool = False,
) -> Claim:
    """Judge a claim by one value a seed, or by an interval that was computed from them.

    `presupposes` says what the claim needs and is not so ("" if all is well). Seeds whose value is
    None, because the statistic is undefined there, are left out.
    """
    known: dict[str, float] = {}
    interval: Interval | None
    if isinstance(values, Mapping):
        known = {str(k): float(v) for k, v in values.items() if v is not None and math.isfinite(v)}
        interval = mean_interval(list(known.values()))
    else:
        interval = values
    verdict, reason = _judge(interval, expect, controls, presupposes)
    if verdict == UNDECIDED:
        needs = _what_would_decide(interval, expect, controls, presupposes, needs)
    return Claim(
        row, name, sentence, source, published, statistic, str(expect), interval, verdict, known,
        reason, tuple(controls), chosen, "" if verdict == HOLDS else needs, ours,
    )  # fmt: skip


def _judge(
    interval: Interval | None, expect: Expect, controls: Sequence[Control], presupposes: str
) -> tuple[str, str]:
    """The verdict, and why it is undecided where it is not the interval."""
    if interval is None:
        return UNDECIDED, presupposes or "not measured"
    if presupposes:
        return UNDECIDED, presupposes
    if interval.n < ENOUGH:
        return UNDECIDED, f"{counted(interval.n, 'seed')}; at least {ENOUGH} are needed"
    if interval.is_flat and interval.n < EQUAL:
        return UNDECIDED, f"{interval.n} values show no spread; at least {EQUAL} are needed"
    verdict = expect.verdict(interval)
    if verdict == HOLDS:
        broken = [each for each in controls if each.passed is not True]
        if broken:
            state = "failed; expected" if broken[0].passed is False else "could not be tried"
            return UNDECIDED, f"control {state}: {broken[0].sentence}"
    return verdict, ""


def _what_would_decide(
    interval: Interval | None,
    expect: Expect,
    controls: Sequence[Control],
    presupposes: str,
    needs: str,
) -> str:
    """What would decide an undecided claim: `needs`, as its study says, and what is missing."""
    if presupposes:
        return needs or f"runs where this is not so: {presupposes}"
    if interval is None:
        return needs or "runs in which it can be measured"
    if interval.n < ENOUGH:
        missing = f"at least {ENOUGH} seeds"
    elif interval.is_flat and interval.n < EQUAL:
        missing = f"at least {EQUAL} values"
    else:
        missing = _seeds_needed(interval, expect)
        if expect.side(interval.value) != FAILS:
            missing = _controls_needed(controls) or missing
    return "; ".join(filter(None, [needs, missing]))


def _controls_needed(controls: Sequence[Control]) -> str:
    """The controls without which a claim cannot hold, however many seeds there are."""
    parts = []
    for passed, state in ((False, "passes"), (None, "can be tried")):
        sentences = [each.sentence for each in controls if each.passed is passed]
        parts += [f"a control that {state}: {sentence}" for sentence in sentences]
    return "; ".join(parts)


def _seeds_needed(interval: Interval, expect: Expect) -> str:
    """How many seeds would decide a claim, if mean and spread stayed as they are.

    The interval shrinks as 1 / sqrt(n); it must be as short as the mean is far from the limit.
    """
    value, limit = interval.value, expect.limit
    low, high = interval.uncut or (interval.low, interval.high)
    down, up = value - low, high - value
    if expect.kind == "within":
        inside = abs(value) <= limit
        ends = [(limit - value, up), (value + limit, down)] if inside else [
            (value - limit, down) if value > 0 else (-limit - value, up)]  # fmt: skip
    else:
        ends = [(value - limit, down) if value > limit else (limit - value, up)]
    shares = [width / gap if gap > 0 else math.inf for gap, width in ends]
    needed = interval.n * max(shares) ** 2
    if needed > MOST_SEEDS:
        return f"more than {MOST_SEEDS} seeds: the mean is close to the limit"
    towards = " to show that it does not hold" if expect.side(value) == FAILS else ""
    count = max(interval.n + 1, math.ceil(needed))
    return f"about {count} seeds{towards}, if mean and spread stay the same"


def claim_of_parts(
    row: str, name: str, sentence: str, parts: Sequence[Claim], *, source: str, **about: Any
) -> Claim:
    """A claim about several cells: it holds if it holds in all, and not if it fails in one."""
    verdicts = [part.verdict for part in parts]
    verdict, reason = UNDECIDED, ""
    if verdicts and all(each == HOLDS for each in verdicts):
        verdict = HOLDS
    elif FAILS in verdicts:
        verdict = FAILS
    else:
        reason = _count_parts(len(verdicts), verdicts.count(HOLDS))
    published = about.pop("published", NO_NUMBERS)
    if published != NO_NUMBERS:
        parts = [replace(part, published="as above") if part.published == NO_NUMBERS else part
                 for part in parts]  # fmt: skip
    lacking: dict[str, list[str]] = {}  # what is needed -> the parts that need it
    for part in parts:
        if part.verdict == verdict and part.needs:
            lacking.setdefault(part.needs, []).append(part.name)
    needs = about.pop("needs", "") or "; ".join(
        f"{', '.join(names)}: {text}" for text, names in lacking.items()
    )
    if not parts:
        needs = needs or "runs in which it can be measured"
    return Claim(
        row, name, sentence, source, published,
        about.pop("statistic", "see its parts"), "in every part", None, verdict, {}, reason,
        parts=tuple(parts), needs="" if verdict == HOLDS else needs, **about,
    )  # fmt: skip


def _count_parts(count: int, held: int) -> str:
    """How many parts hold and how many are undecided, where none fails and not all hold."""
    if not count:
        return "not measured"
    if not held:
        every = {1: "its only part is", 2: "both parts are"}.get(count, f"all {count} parts are")
        return f"{every} undecided"
    rest = count - held
    hold, are = "holds" if held == 1 else "hold", "is" if rest == 1 else "are"
    return f"{held} of {count} parts {hold}, {rest} {are} undecided"


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The mean of one value a seed with its interval; None of no values."""
    array = np.asarray(values, dtype=float)
    count = len(array)
    if not count:
        return None
    value = float(array.mean())
    if count == 1:
        return Interval(value, value, value, 1)
    picks = np.random.default_rng([0, count]).integers(count, size=(DRAWS, count))
    return _interval(value, array[picks].mean(1), count)


def bootstrap(
    clusters: Sequence[Sequence[Any]], statistic: Callable[[list[Any]], float | None]
) -> Interval | None:
    """A statistic of all rows of all clusters, with its interval over clusters.

    A draw takes whole clusters. None where the statistic is undefined for the rows themselves, or
    for more than a tenth of the draws.
    """
    clusters = [list(cluster) for cluster in clusters if len(cluster)]
    count = len(clusters)
    value = statistic([row for cluster in clusters for row in cluster]) if count else None
    if value is None or not math.isfinite(value):
        return None
    if count == 1:
        return Interval(value, value, value, 1)
    picks = np.random.default_rng([0, count]).integers(count, size=(DRAWS, count))
    drawn = (statistic([row for k in pick for row in clusters[k]]) for pick in picks)
    draws = np.array([each for each in drawn if each is not None and math.isfinite(each)])
    return _interval(value, draws, count) if len(draws) >= DEFINED * DRAWS else None


def rank_correlation_interval(clusters: Sequence[Sequence[tuple[float, float]]]) -> Interval | None:
    """Spearman's correlation of all pairs of all clusters, with its interval over clusters.

    The same as `bootstrap`, a hundred times as fast: with n_j the number of times that a draw has
    pair j, the rank of x_i in it is sum_j n_j ([x_j < x_i] + [x_j = x_i] / 2), up to a constant.
    """
    clusters = [list(cluster) for cluster in clusters if len(cluster)]
    pairs = np.array([pair for cluster in clusters for pair in cluster], dtype=float)
    value = rank_correlation(*pairs.T) if len(pairs) else None
    count = len(clusters)
    if value is None:
        return None
    if count == 1:
        return Interval(value, value, value, 1)
    picks = np.random.default_rng([0, count]).integers(count, size=(DRAWS, count))
    times = np.stack([(picks == k).sum(1) for k in range(count)], 1).astype(float)
    n = np.repeat(times, [len(cluster) for cluster in clusters], axis=1)
    total, centred = n.sum(1, keepdims=True), []
    for x in pairs.T:
        lower = (x < x[:, None]) + (x == x[:, None]) / 2
        ranks = n @ lower.T
        centred.append(ranks - (n * ranks).sum(1, keepdims=True) / total)
    first, second = centred
    spread = np.sqrt((n * first**2).sum(1) * (n * second**2).sum(1))
    defined = (total[:, 0] >= FEWEST) & (spread > ROUNDING * total[:, 0] ** 3)
    draws = (n * first * second).sum(1)[defined] / spread[defined]
    return _cut(_interval(value, draws, count)) if len(draws) >= DEFINED * DRAWS else None


def _cut(interval: Interval) -> Interval:
    """The part of the interval of a correlation that is in its range, which widening may leave."""
    low, high = max(-1.0, interval.low), min(1.0, interval.high)
    if (low, high) == (interval.low, interval.high):
        return interval
    return replace(interval, low=low, high=high, uncut=(interval.low, interval.high))


def bootstrap_correlation(first: np.ndarray, second: np.ndarray) -> Interval | None:
    """Spearman's rank correlation of two arrays, with its interval over their entries."""
    return rank_correlation_interval([[pair] for pair in zip(first, second, strict=True)])


def nested_interval(groups: Mapping[Any, Sequence[float] | np.ndarray]) -> Interval | None:
    """The mean of group means, with its interval over groups and over the values inside each.

    A draw takes groups at random, and then values of each: the interval is about groups of the
    same kind, not about these. n is the number of groups.
    """
    arrays = [np.asarray(values, dtype=float) for values in groups.values() if len(values)]
    count = len(arrays)
    if not count:
        return None
    value = float(np.mean([array.mean() for array in arrays]))
    if count == 1:
        return Interval(value, value, value, 1)
    rng = np.random.default_rng([1, count])
    means = np.stack(
        [
            array[rng.integers(len(array), size=(DRAWS, count, len(array)))].mean(2)
            for array in arrays
        ]
    )
    picks = rng.integers(count, size=(DRAWS, count))
    places = np.arange(count)
    draws = means[picks, np.arange(DRAWS)[:, None], places].mean(1)
    return _interval(value, draws, count)


def compare_groups(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """The mean of `second` minus that of `first`, which share no seeds; n is the smaller count."""
    if len(first) < 2 or len(second) < 2:
        return None
    rng = np.random.default_rng([len(first), len(second)])
    means = []
    for values in (first, second):
        array = np.asarray(values, dtype=float)
        means.append(array[rng.integers(len(array), size=(DRAWS, len(array)))].mean(1))
    value = float(np.mean(second) - np.mean(first))
    return _interval(value, means[1] - means[0], min(len(first), len(second)))


def _interval(value: float, draws: np.ndarray, count: int) -> Interval:
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    low, high = np.quantile(draws, [0.025, 0.975])
    wider = math.sqrt(count / (count - 1)) * float(stdtrit(count - 1, 0.975)) / 1.96
    down, up = max(0.0, value - float(low)) * wider, max(0.0, float(high) - value) * wider
    equal = bool(np.ptp(draws) <= ROUNDING * max(1e-300, abs(value)))
    return Interval(value, value - down, value + up, count, equal)


def round_to(value: float, digits: int = 5) -> float:
    """A number with so many significant digits."""
    return float(f"{value:.{digits}g}")


def _number(value: float) -> str:
    return f"{value + 0.0:.3g}".replace("-", "\u2212")  # + 0.0 makes 0 of -0

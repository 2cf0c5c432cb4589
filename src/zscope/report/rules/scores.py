"""Rules about scores against known factors."""

from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from zscope.assays.disentanglement.dci import informativeness
from zscope.assays.disentanglement.score import Score
from zscope.errors import MissingExtra
from zscope.report.findings import Facts, Finding, and_list, table, title

__all__ = [
    "at_chance",
    "missing_factors",
    "polar_pairs",
    "shared_factors",
    "spread_over_latents",
]

LEAST_NATS = 0.2
"""With less information about a factor, a latent does not encode it."""
DEVIATIONS = 3
"""An uninformative score exceeds the mean of shuffled codes by more once in 700 times."""


def deviation_of(score: Score) -> float:
    """The standard deviation over shuffles; 0 if there are fewer than five."""
    return float(np.std(score.shuffled, ddof=1)) if len(score.shuffled) >= 5 else 0.0


def chance_text(score: Score) -> str:
    """The score of shuffled codes, with its standard deviation."""
    deviation = deviation_of(score)
    more = f" ± {deviation:.3f} over {len(score.shuffled)} shuffles" if deviation else ""
    return f"{score.chance:.3f}{more}"


def at_chance(facts: Facts, threshold: float) -> Iterable[Finding]:
    def is_near_chance(score: Score) -> bool:
        above = score.score - score.chance
        if deviation := deviation_of(score):
            return above < max(threshold, DEVIATIONS * deviation)
        below = score.interval is not None and score.interval[0] <= score.chance
        return below or above < threshold

    scores = {name: each for name, each in facts.results.items() if isinstance(each, Score)}
    uninformative = {name: each for name, each in scores.items() if each.chance > 0.95}
    chance = {
        name: each
        for name, each in scores.items()
        if name not in uninformative and is_near_chance(each)
    }
    if chance:
        one = len(chance) == 1
        them = "it" if one else "they"
        yield Finding(
            f"{and_list([title(name) for name in chance])} {'is' if one else 'are'} at chance",
            f"Measured on {max(each.samples for each in chance.values()):,} observations.",
            "check that factors and observations are in the same order before blaming the model"
            if len(chance) > (len(scores) - len(uninformative)) / 2
            else f"{them} cannot distinguish this model from an uninformative one; compare models "
            "by other scores",
            "note",
            0.3 + 0.2 * len(chance) / len(scores),
            table=table(
                ("score", "value", "shuffled codes"),
                [
                    (title(name), f"{each.score:.3f}", chance_text(each))
                    for name, each in chance.items()
                ],
            ),
        )
    if uninformative:
        one = len(uninformative) == 1
        names = and_list([title(name) for name in uninformative])
        yield Finding(
            f"{names} {'is' if one else 'are'} uninformative here",
            "Shuffled codes get nearly the largest possible score.",
            f"do not compare models by {'it' if one else 'them'}; measure the default flavour, or "
            "more factors",
            "note",
            0.1,
            table=table(
                ("score", "value", "shuffled codes"),
                [(title(name), each.score, each.chance) for name, each in uninformative.items()],
            ),
        )


def missing_factors(facts: Facts, threshold: float) -> Iterable[Finding]:
    dci, gap, factors = facts.get("dci"), facts.get("mig"), facts.recording.factors
    if dci is None and gap is not None and len(gap.factors) == 1:
        with suppress(MissingExtra):
            dci = informativeness(facts.recording)  # one factor has no disentanglement
    if dci is None or factors is None or not facts.used:
        return
    nats = {} if gap is None else dict(zip(gap.factors, gap.matrix.max(0, initial=0), strict=True))
    skills = np.zeros(len(dci.factors))  # of no latent, for scores that find none informative
    if dci.active:
        skills = dci.per_factor_informativeness.copy()
        for place, kind in enumerate(dci.informativeness_is):
            if kind == "accuracy":
                values = factors.values[:, dci.factors[place]]
                skills[place] = _above_majority(skills[place], values)
    rows = [
        (factors.names[k], max(0.0, float(skill)), float(nats.get(k, 0)))
        for k, skill in zip(dci.factors, skills, strict=True)
    ]
    # A third of the rows is held out; of few, a guess may look like some skill.
    limit = max(threshold, 1.5 / (dci.samples / 3) ** 0.5)
    missing = [row for row in rows if row[1] < limit]
    width = 3 if gap is not None else 2
    columns = ("factor", "skill of a prediction", "most in one latent, nats")[:width]
    shown = [row[:width] for row in rows]
    evidence = (
        f"Boosted trees that see all latents in use, on held-out rows: skill 0 is as good as a "
        f"constant guess, 1 perfect; {dci.samples:,} observations."
    )
    if missing:
        names, one = [row[0] for row in missing], len(missing) == 1
        yield Finding(
            f"The code does not encode {and_list(names)}"
            if one or len(missing) < len(rows)
            else "The code encodes none of the factors",
            evidence,
            f"if {'it matters' if one else 'they matter'}, train longer, with a smaller β or with "
            "more capacity; look at the reconstructions"
            if len(missing) < len(rows)
            else "check that factors and observations are in the same order",
            "problem",
            0.7,
            table=table(columns, shown),
        )
    else:
        yield Finding(
            f"The code encodes {'all ' * (len(rows) > 2)}{len(rows)} factors"
            if len(rows) > 1
            else f"The code encodes {rows[0][0]}",
            evidence,
            level="healthy",
            matters=0.65,
            table=table(columns, shown),
        )


def _above_majority(accuracy: float, values: np.ndarray) -> float:
    """An accuracy from 0 (always the most frequent value) to 1."""
    share = float(np.unique(values, return_counts=True)[1].max()) / len(values)
    return (accuracy - share) / max(1 - share, 1e-12)


def polar_pairs(facts: Facts, threshold: float) -> Iterable[Finding]:
    charts, factors = facts.get("cartesian-or-polar"), facts.recording.factors
    if charts is None or factors is None:
        return
    for pair in charts.pairs:
        angle, radius = pair.factors
        if pair.verdict != "polar" or angle < 0 or pair.polar < pair.cartesian + threshold:
            continue
        a, b = pair.latents
        and_radius = f" and {factors.names[radius]} as a radius" if radius >= 0 else ""
        yield Finding(
            f"Latents {a} and {b} encode {factors.names[angle]} as an angle{and_radius}",
            f"Share of information in the better coordinate: {pair.polar:.2f} with angle and "
            f"radius, {pair.cartesian:.2f} with the latents themselves; "
            f"{charts.samples:,} observations.",
            f"treat them as one variable: atan2(z{b}, z{a}) is the factor, single latents are not",
            "note",
            0.4,
        )


def shared_factors(facts: Facts, threshold: float) -> Iterable[Finding]:
    gap, factors, charts = (
        facts.get("mig"),
        facts.recording.factors,
        facts.get("cartesian-or-polar"),
    )
    if gap is None or factors is None or len(gap.active) < 2:
        return
    polar = (
        {}
        if charts is None
        else {pair.latents: pair.factors for pair in charts.pairs if pair.verdict == "polar"}
    )
    rows = []
    for k, shares in zip(gap.factors, gap.matrix.T, strict=True):
        first, second = (int(i) for i in np.argsort(-shares)[:2])
        pair = tuple(sorted((gap.active[first], gap.active[second])))
        if shares[first] < LEAST_NATS or shares[second] < threshold * shares[first]:
            continue
        if k in polar.get(pair, ()):
            continue  # said as such
        rows.append(
            (
                factors.names[k],
                gap.active[first],
                float(shares[first]),
                gap.active[second],
                float(shares[second]),
            )
        )
    if rows:
        names = [row[0] for row in rows]
        yield Finding(
            f"{and_list(names)} {'is' if len(rows) == 1 else 'are each'} encoded by two latents",
            f"Information above chance, in nats; {gap.samples:,} observations.",
            f"to change {'it' if len(rows) == 1 else 'one of them'}, move both of its latents; a "
            "larger β or a penalty on total correlation separates them",
            "note",
            0.32,
            table=table(("factor", "latent", "nats", "latent", "nats"), rows),
        )


def spread_over_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    explicit, gap = facts.get("explicitness"), facts.get("mig")
    if explicit is None or gap is None or explicit.score < 0.7:
        return
    evidence = (
        f"Explicitness {explicit.score:.2f} (chance {explicit.chance:.2f}), MIG {gap.score:.2f} "
        f"(chance {gap.chance:.2f}), {gap.samples:,} observations."
    )
    if gap.score < threshold:
        yield Finding(
            "The factors can be predicted from the codes, but each is spread over several latents",
            evidence,
            "predict them with a linear map, or train with a larger β or a penalty on total "
            "correlation",
            "note",
            0.35,
        )
    else:
        yield Finding(
            "The factors can be predicted from the codes, each mainly from one latent",
            evidence,
            level="healthy",
            matters=0.6,
        )

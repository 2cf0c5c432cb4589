"""Rules about scores against known factors."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from zscope.assays.alignment.cartesian_or_polar import MOST_OF_BOTH, Ring, rings
from zscope.assays.disentanglement.dci import factor_skills
from zscope.assays.disentanglement.score import Score
from zscope.assays.information import bins_for, entropy
from zscope.errors import MissingExtra
from zscope.report.findings import Facts, Finding, and_list, measures, table, title

__all__ = [
    "PART",
    "at_chance",
    "missing_factors",
    "polar_pairs",
    "spread_over_latents",
]

PART = 0.5
"""A factor that is predicted with less skill is encoded only in part."""
LEAST_SHARE = 0.1
"""A latent that explains less of a factor's entropy does not encode it alone."""
GAPS = {"mig", "mig-sup", "sap", "dcimig", "predictability-gap"}
"""Near 0 for a factor spread over latents too, or a latent that encodes several factors."""
MANY_REACH = 0.2
"""Share of shuffled codes with the same score or more that makes a score one of theirs."""
DEVIATIONS = 5
"""Without the largest of ten scores of shuffled codes, another one exceeds the mean of the rest by
more in 0.2 % of cases if they are Gaussian."""
RINGS_MARGIN = 0.1
SEVERAL = 8
"""Latents of a factor that the evidence names."""


@dataclass(frozen=True)
class Skills:
    """How well each factor is predicted from the latents in use, from 0 (a guess) to 1."""

    of: dict[int, float]
    rows: int

    def least(self, threshold: float) -> float:
        """The skill below which a factor is not encoded: more for so few rows that a guess may
        look like some skill. The standard error of a guess is up to 1 / sqrt(rows)."""
        return max(threshold, 3 / float(np.sqrt(self.rows)))

    def encoded(self, threshold: float = 0.1) -> list[int]:
        return [k for k, skill in self.of.items() if skill >= self.least(threshold)]


def skills_of(facts: Facts) -> Skills | None:
    """Of a recording with factors for which scores were asked; None without LightGBM."""
    recording = facts.recording
    factors = recording.factors
    scored = any(isinstance(result, Score) for result in facts.results.values())
    if factors is None or not facts.used or not scored:
        return None

    def measure() -> Skills | None:
        try:
            return Skills(*factor_skills(recording.codes, factors, facts.used, seed=recording.seed))
        except MissingExtra:
            return None

    skills: Skills | None = recording.share("factor skills", measure)
    return skills


def rings_of(facts: Facts, margin: float = RINGS_MARGIN) -> list[Ring]:
    """The pairs of latents that encode a factor as an angle, the best one of each factor.

    Two of many latents over which a factor is spread may tell some of it by their angle. So the
    two must predict it nearly as well as the whole code.
    """
    recording, charts = facts.recording, facts.get("cartesian-or-polar")
    factors, skills = recording.factors, skills_of(facts)
    if charts is None or factors is None:
        return []

    def measure() -> list[Ring]:
        best: dict[int, Ring] = {}
        found = rings(charts, recording.codes, factors, margin=margin)
        for ring in sorted(found, key=lambda each: -each.told):
            best.setdefault(ring.angle, ring)
        return [ring for ring in best.values() if skills is None or enough(ring, skills)]

    def enough(ring: Ring, skills: Skills) -> bool:
        pair, _ = factor_skills(recording.codes, factors, list(ring.latents), seed=recording.seed)
        return pair[ring.angle] >= MOST_OF_BOTH * skills.of[ring.angle]

    return list(recording.share(("rings", margin), measure))


def chance_text(score: Score) -> str:
    """The score of shuffled codes, with its standard deviation."""
    count = len(score.shuffled)
    if count < 5:
        return f"{score.chance:.3f}"
    return f"{score.chance:.3f} ± {np.std(score.shuffled, ddof=1):.3f} over {count} shuffles"


def is_near_chance(score: Score, threshold: float, encoded: bool) -> bool:
    """Whether shuffled codes reach the score; one of them may do so by accident.

    The spread over one or two shuffles is unknown. Then a code that encodes no factor is at chance.
    """
    if len(score.shuffled) < 5:
        below = score.interval is not None and score.interval[0] <= score.chance
        return below or not encoded or score.score - score.chance < threshold
    shuffled = np.sort(score.shuffled)
    rest = shuffled[:-1]
    likely = rest.mean() + max(threshold, DEVIATIONS * float(np.std(rest, ddof=1)))
    return bool(np.mean(shuffled >= score.score) >= MANY_REACH or score.score < likely)


def at_chance(facts: Facts, threshold: float) -> Iterable[Finding]:
    scores = {name: each for name, each in facts.results.items() if isinstance(each, Score)}
    if not scores:
        return
    skills = skills_of(facts)
    encoded = skills is None or bool(skills.encoded())
    uninformative = {name: each for name, each in scores.items() if each.chance > 0.95}
    chance = {
        name: each
        for name, each in scores.items()
        if name not in uninformative
        and is_near_chance(each, threshold, encoded)
        # Of a code that encodes factors, no gap means that latents share them.
        and not (name in GAPS and skills is not None and encoded)
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
    skills, factors, gap = skills_of(facts), facts.recording.factors, facts.get("mig")
    if skills is None or factors is None:
        return
    names = {k: factors.names[k] for k in skills.of}
    best = {} if gap is None else dict(zip(gap.factors, gap.matrix.max(0, initial=0), strict=True))
    columns = ("factor", "skill of a prediction", "most in one latent, nats")[: 3 if best else 2]
    rows = [
        (names[k], skill, float(best.get(k, 0)))[: len(columns)] for k, skill in skills.of.items()
    ]
    evidence = (
        f"Boosted trees that see all latents in use, on rows they were not trained on: skill 0 is "
        f"as good as a constant guess, 1 perfect; {skills.rows:,} observations."
    )
    encoded = skills.encoded(threshold)
    missing = [names[k] for k in names if k not in encoded]
    partly = [f"{names[k]} ({skills.of[k]:.2f})" for k in encoded if skills.of[k] < PART]
    everything = len(missing) == len(rows)
    if missing:
        yield Finding(
            "The code encodes none of the factors"
            if everything and len(rows) > 1
            else f"The code does not encode {and_list(missing)}",
            evidence,
            "check that factors and observations are in the same order"
            if everything
            else f"if {'it matters' if len(missing) == 1 else 'they matter'}, train longer, with a "
            "smaller β or with more capacity; look at the reconstructions",
            "problem",
            0.7,
            table=table(columns, rows),
        )
    if partly:
        yield Finding(
            f"The code encodes {and_list(partly)} only in part",
            f"In brackets the skill. {evidence}",
            f"predictions will miss much of {'it' if len(partly) == 1 else 'them'}; train "
            "longer, with a smaller β or with more capacity",
            "note",
            0.5,
            table=() if missing else table(columns, rows),
        )
    if not missing and not partly:
        yield Finding(
            f"The code encodes {'all ' * (len(rows) > 2)}{len(rows)} factors"
            if len(rows) > 1
            else f"The code encodes {rows[0][0]}",
            evidence,
            level="healthy",
            matters=0.65,
            table=table(columns, rows),
        )


def polar_pairs(facts: Facts, threshold: float) -> Iterable[Finding]:
    names = () if facts.recording.factors is None else facts.recording.factors.names
    for ring in rings_of(facts, threshold):
        a, b = ring.latents
        and_radius = f" and {names[ring.radius]} as a radius" if ring.radius >= 0 else ""
        # Signs as in a formula: z1 + 3.00 for a centre at -3.
        x, y = (
            f"(z{j} {'-' if centre >= 0 else '+'} {abs(centre):.3g}) / {scale:.3g}"
            for j, centre, scale in zip(ring.latents, ring.centre, ring.scale, strict=True)
        )
        yield Finding(
            f"Latents {a} and {b} encode {names[ring.angle]} as an angle{and_radius}",
            f"Shares of the entropy of {names[ring.angle]} that are explained, of "
            f"{len(facts.recording):,} observations.",
            f"treat them as one variable: read the factor from atan2({y}, {x}), not from single "
            "latents",
            "note",
            0.4,
            table=measures(
                ("by the angle", ring.told, "", ""),
                ("by the best straight direction in their plane", ring.straight, "", ""),
            ),
        )


def spread_over_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    gap, factors, skills = facts.get("mig"), facts.recording.factors, skills_of(facts)
    if gap is None or factors is None or skills is None or not gap.active:
        return
    polar = {k for ring in rings_of(facts) for k in (ring.angle, ring.radius)}  # said as such
    encoded = [k for k in skills.encoded() if k not in polar]
    single, several = [], []
    for k, nats in zip(gap.factors, gap.matrix.T, strict=True):
        if k not in encoded:
            continue
        order = np.argsort(-nats, kind="stable")
        sharing = [int(j) for j in order if nats[j] >= threshold * nats[order[0]]]
        alone = nats[order[0]] >= LEAST_SHARE * _entropy(factors.values[:, k])
        if alone and len(sharing) == 1:
            single.append((factors.names[k], gap.active[sharing[0]], float(nats[sharing[0]])))
        elif alone:
            rest = f" and {len(sharing) - SEVERAL} more" if len(sharing) > SEVERAL else ""
            latents = ", ".join(str(gap.active[j]) for j in sharing[:SEVERAL]) + rest
            amounts = ", ".join(f"{nats[j]:.2f}" for j in sharing[:SEVERAL])
            several.append((factors.names[k], latents, amounts))
        elif skills.of[k] >= PART:
            several.append((factors.names[k], "none alone", f"at most {nats[order[0]]:.2f}"))
    scores = f"MIG {gap.score:.2f} (chance {gap.chance:.2f})"
    if (explicit := facts.get("explicitness")) is not None:
        scores = f"Explicitness {explicit.score:.2f} (chance {explicit.chance:.2f}), {scores}"
    evidence = f"Information above chance, in nats; {gap.samples:,} observations. {scores}."
    if several:
        names = [row[0] for row in several]
        it = "it" if len(names) == 1 else "one"
        yield Finding(
            f"{and_list(names)} {'is' if len(names) == 1 else 'are each'} encoded by several "
            "latents",
            f"Latents with at least {100 * threshold:g} % of the information of the best one. "
            f"{evidence}",
            f"to change {it}, move these latents together; to read {it}, use all of them; a larger "
            "β or a penalty on total correlation may separate them",
            "note",
            0.35,
            table=table(("factor", "latents", "nats"), several),
        )
    elif single:
        names = [row[0] for row in single]
        if len(names) == 1:
            text = f"{names[0]} is encoded mainly by latent {single[0][1]}"
        elif len(names) == len(skills.of):
            text = "Each factor is encoded mainly by one latent"
        else:
            text = f"{and_list(names)} are each encoded mainly by one latent"
        yield Finding(
            text,
            evidence,
            level="healthy",
            matters=0.6,
            table=table(("factor", "latent", "nats"), single),
        )


def _entropy(values: np.ndarray) -> float:
    """Of a factor, in nats; of many values, at most that of the bins of a latent."""
    counts = np.unique(values, return_counts=True)[1]
    return min(float(entropy(counts)), float(np.log(bins_for(len(values)))))

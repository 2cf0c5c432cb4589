"""Rules about scores against known factors."""

from collections.abc import Iterable

import numpy as np

from zscope.assays.disentanglement.score import Score
from zscope.report.findings import Facts, Finding, and_list, title

__all__ = ["at_chance", "spread_over_latents"]

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
            "; ".join(
                f"{title(name)} {each.score:.3f}, shuffled codes {chance_text(each)}"
                for name, each in chance.items()
            )
            + f"; {max(each.samples for each in chance.values()):,} observations.",
            "check that factors and observations are in the same order before blaming the model"
            if len(chance) > (len(scores) - len(uninformative)) / 2
            else f"{them} cannot distinguish this model from an uninformative one; compare models "
            "by other scores",
            "note",
            0.3 + 0.2 * len(chance) / len(scores),
        )
    if uninformative:
        one = len(uninformative) == 1
        names = and_list([title(name) for name in uninformative])
        chances = [f"{each.chance:.2f} in {title(name)}" for name, each in uninformative.items()]
        yield Finding(
            f"{names} {'is' if one else 'are'} uninformative here",
            f"Shuffled codes get {'; '.join(chances)}.",
            f"do not compare models by {'it; it needs' if one else 'them; they need'} data with "
            "more factors",
            "note",
            0.1,
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

"""Rules about scores against known factors."""

from collections.abc import Iterable

import numpy as np

from zscope.assays.disentanglement.score import Score
from zscope.report.findings import Facts, Finding, listed, title

DEVIATIONS = 3
"""A score of nothing lies farther than this above the mean of shuffled codes once in 700 times."""


def spread(score: Score) -> float:
    """The standard deviation over shuffles; 0 where they are too few to tell."""
    return float(np.std(score.shuffled, ddof=1)) if len(score.shuffled) >= 5 else 0.0


def told(score: Score) -> str:
    """What shuffled codes get, and over how many shuffles that holds."""
    deviation = spread(score)
    more = f" ± {deviation:.3f} over {len(score.shuffled)} shuffles" if deviation else ""
    return f"{score.chance:.3f}{more}"


def at_chance(facts: Facts, threshold: float) -> Iterable[Finding]:
    def near(score: Score) -> bool:
        above = score.score - score.chance
        if deviation := spread(score):
            return above < max(threshold, DEVIATIONS * deviation)
        below = score.interval is not None and score.interval[0] <= score.chance
        return below or above < threshold

    scores = {name: each for name, each in facts.results.items() if isinstance(each, Score)}
    blunt = {name: each for name, each in scores.items() if each.chance > 0.95}
    chance = {name: each for name, each in scores.items() if name not in blunt and near(each)}
    if chance:
        one = len(chance) == 1
        it = "it" if one else "they"
        yield Finding(
            f"{listed([title(name) for name in chance])} {'is' if one else 'are'} at chance",
            "; ".join(
                f"{title(name)} {each.score:.3f}, shuffled codes {told(each)}"
                for name, each in chance.items()
            )
            + f"; {max(each.samples for each in chance.values()):,} observations.",
            "check that factors and observations are in the same order before blaming the model"
            if len(chance) > (len(scores) - len(blunt)) / 2
            else f"here {it} cannot tell this model from one that knows nothing; compare by others",
            "note",
            0.3 + 0.2 * len(chance) / len(scores),
        )
    if blunt:
        one = len(blunt) == 1
        yield Finding(
            f"{listed([title(name) for name in blunt])} {'says' if one else 'say'} nothing here",
            "Shuffled codes get "
            + "; ".join(f"{each.chance:.2f} in {title(name)}" for name, each in blunt.items())
            + ".",
            "leave it out of any comparison; it needs data with more factors"
            if one
            else "leave them out of any comparison; they need data with more factors",
            "note",
            0.1,
        )


def spread_over_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    read, gap = facts.get("explicitness"), facts.get("mig")
    if read is None or gap is None or read.score < 0.7:
        return
    evidence = (
        f"Explicitness {read.score:.2f} (chance {read.chance:.2f}), MIG {gap.score:.2f} (chance "
        f"{gap.chance:.2f}), {gap.samples:,} observations."
    )
    if gap.score < threshold:
        yield Finding(
            "The factors can be read off the codes, but no latent holds one to itself",
            evidence,
            "read them with a linear map, or train with a larger β or a penalty on total "
            "correlation",
            "note",
            0.35,
        )
    else:
        yield Finding(
            "The factors can be read off the codes, and latents hold them one by one",
            evidence,
            level="healthy",
            matters=0.6,
        )

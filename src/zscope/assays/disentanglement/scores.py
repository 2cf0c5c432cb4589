"""All disentanglement scores of one set of codes, side by side.

Each stands for another question, and none for all of them: a factor spread over two
codes has MIG 0 and disentanglement 1, a rotated code has explicitness 1 and modularity 0.
What each asks, its formula and its source are in the help of the function of its name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch
from torch import Generator

from zscope.assays.disentanglement.score import Score
from zscope.assays.matrices import Array
from zscope.assays.sample import seed_from
from zscope.errors import ConfigError, MissingExtra, Undefined, did_you_mean
from zscope.results import Measure, Scored

# name -> module
SCORES = {
    "mig": "mig",
    "dci": "dci",
    "sap": "sap",
    "irs": "irs",
    "modularity": "modularity",
    "explicitness": "explicitness",
    "factor_vae_score": "factor_vae",
    "beta_vae_score": "beta_vae",
    "predictability_gap": "predictability_gap",
    "mig_sup": "mig_sup",
    "jemmig": "jemmig",
    "dcimig": "dcimig",
    "mcc": "mcc",
}
OWN_FLAVOURS = ("predictability_gap", "mcc")  # that library does not have them


@dataclass(frozen=True, eq=False)
class Scores(Scored):
    """The scores by name; `skipped` says why a score is missing."""

    scores: dict[str, Score]
    skipped: dict[str, str]

    why_no_interval = Score.why_no_interval
    why_no_chance = "each score has its own"

    def __getitem__(self, name: str) -> Score:
        return self.scores[name]

    def measures(self) -> list[Measure]:
        return [
            replace(measure, name=f"{name}, {measure.name}" if measure.name else name)
            for name, score in self.scores.items()
            for measure in score.measures()
        ]

    def summary(self) -> list[tuple[str, str]]:
        return [(f"{name}, skipped", reason) for name, reason in self.skipped.items()]

    def plot(self, ax: Any = None) -> Any:
        """The scores side by side."""
        from zscope.plots import bars

        if not self.scores:
            raise Undefined(
                "disentanglement_scores: no score could be worked out, so there is nothing to "
                f"draw. Why: {' '.join(self.skipped.values())}"
            )
        values = [each.score for each in self.scores.values()]
        return bars(values, names=list(self.scores), y="score", ax=ax)


def disentanglement_scores(
    codes: Array,
    factors: Array,
    *,
    names: Sequence[str] | None = None,
    flavour: str = "zscope",
    variances: Array | None = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
    progress: Callable[[str], None] | None = None,
) -> Scores:
    """The named scores, or all of them; `progress(name)` is called before each.

    Scores that do not know the flavour are measured in their own. Each draws from a
    generator of its own, so that it does not depend on which others are asked for.
    """
    asked = [name.replace("-", "_") for name in names or SCORES]
    for name in asked:
        if name not in SCORES:
            raise ConfigError(
                f"disentanglement_scores: no score is called {name!r}. "
                f"{did_you_mean(name.replace('_', '-'), [n.replace('_', '-') for n in SCORES])}"
            )
    if flavour not in ("zscope", "dlib"):
        raise ConfigError(
            f"disentanglement_scores: flavour={flavour!r} is not common to these scores. Use "
            "zscope or dlib here; the help of each function names its own."
        )
    seed = seed_from(generator)
    scores, skipped = {}, {}
    for name in asked:
        if progress is not None:
            progress(name)
        function = getattr(import_module(f"{__package__}.{SCORES[name]}"), name)
        own = {} if flavour == "zscope" or name in OWN_FLAVOURS else {"flavour": flavour}
        try:
            scores[name] = function(
                codes,
                factors,
                variances=variances,
                resamples=resamples,
                kinds=kinds,
                generator=torch.Generator().manual_seed(seed),
                **own,
            )
        except (MissingExtra, Undefined) as error:
            if names:
                raise
            skipped[name] = str(error)
    if not scores:
        raise Undefined(next(iter(skipped.values())))
    return Scores(scores, skipped)

"""Factor place: in which of the ordered variables of a decoder is each factor?

The variables of a structural decoder enter one after another, i = 0 .. g - 1. With w_ik the
importance of the latents of variable i for factor k,

    place_k = sum_i i w_ik / sum_i w_ik,       0 <= place_k <= g - 1

so a factor that is in the first variable alone has place 0 and one in the last g - 1. Importance
that is spread evenly, or over variables in random order, gives (g - 1)/2, the chance level.
Reversing the order of the variables reverses the places; permuting the latents within a
variable changes nothing. A factor that was not learned has no place: those whose `skill` (how
well boosted trees predict it from the latents in use, 0 for a constant guess, 1 for always
right) is not above `least` are left out.

With `early` and `late`, two lists of factors, the score is how much later the late ones are,

    order = mean place of the late factors - mean place of the early ones

each mean weighted by skill, so that a factor that is hardly learned hardly counts.

The importance is that of DCI, or squared entries of a conditioned response matrix, which looks
at the decoder. Skills are of trees and not of the linear `explicitness`, for which a hue that is
encoded as a circle would not be learned.

Leeb et al., "Structure by architecture", ICLR 2023, section 4.1 and fig. 4, who read the order
off traversals: shape and orientation first, colours last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.dci import DCI, factor_skills
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.assays.responses.conditioned import ConditionedResponseMatrix
from zscope.errors import ConfigError, Undefined, did_you_mean
from zscope.factors import factors_of
from zscope.groups import Groups, membership, partition
from zscope.results import Measure, Scored, listed

__all__ = ["FactorPlace", "factor_place", "mean_place"]


@dataclass(frozen=True, eq=False)
class FactorPlace(Scored):
    """The place of each factor; None if it was not learned."""

    why_no_interval = "importance has none; compare models of several seeds"

    places: list[float | None]
    skills: list[float]  # how well each factor is predicted
    factor_names: list[str]
    groups: list[list[int]]
    early: list[str]
    late: list[str]
    order: float | None  # late minus early; None if it was not asked for, or none was learned
    least: float
    samples: int

    @property
    def chance(self) -> float:
        """The place of a factor that is in all variables alike."""
        return (len(self.groups) - 1) / 2

    def measures(self) -> list[Measure]:
        rows = [
            self.measure(f"place of {name}", place)
            for name, place in zip(self.factor_names, self.places, strict=True)
            if place is not None
        ]
        return (
            rows if self.order is None else [self.measure("order", self.order, chance=0.0), *rows]
        )

    def summary(self) -> list[tuple[str, str]]:
        pairs = zip(self.factor_names, self.places, strict=True)
        return [
            ("variables", str(len(self.groups))),
            ("not learned", listed([name for name, place in pairs if place is None])),
        ]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        known = [k for k, place in enumerate(self.places) if place is not None]
        if not known:
            raise Undefined("factor_place: no factor was learned, so there is no place to draw.")
        return bars(
            np.array([self.places[k] for k in known], float),
            names=[self.factor_names[k] for k in known],
            y="place among the variables",
            line=self.chance,
            ax=ax,
        )


@accepts_recording
def factor_place(
    importance: DCI | ConditionedResponseMatrix,
    codes: Array,
    factors: Array,
    *,
    model_groups: Groups | None = None,
    early: Sequence[str] | str | None = None,
    late: Sequence[str] | str | None = None,
    least: float = 0.05,
) -> FactorPlace:
    """The mean index of the variables that carry each factor.

    `importance` is the result of `dci` (without groups) or of `conditioned_response_matrix`.
    `model_groups` are the variables in the order in which they enter the decoder; by default
    those of the model, else single latents.
    """
    latents = np.asarray(codes).shape[1]
    groups = partition(model_groups, latents, "factor_place")
    weights, columns, names = _weights(importance, latents)
    ends = {"early": _words(early), "late": _words(late)}
    chosen = [_columns(words, names, option) for option, words in ends.items()]
    used = [j for j in range(latents) if weights[j].any()]
    table = factors_of(factors, who="factor_place")
    skills, samples = factor_skills(codes, table, used) if used else ({}, len(table))
    skill = np.array([skills.get(k, 0.0) for k in columns])
    sums = membership(groups, latents).double().numpy() @ weights
    places = [
        mean_place(sums[:, k]) if skill[k] > least and sums[:, k].any() else None
        for k in range(len(names))
    ]
    early_mean, late_mean = (_weighted_mean(places, skill, members) for members in chosen)
    return FactorPlace(
        places=places,
        skills=[float(each) for each in skill],
        factor_names=names,
        groups=groups,
        **ends,
        order=None if early_mean is None or late_mean is None else late_mean - early_mean,
        least=least,
        samples=samples,
    )


def mean_place(weights: Array) -> float:
    """The mean index under these weights."""
    values = np.asarray(weights, float)
    if values.ndim != 1 or (values < 0).any() or not values.sum() > 0:
        raise Undefined(
            f"mean_place: weights of shape {values.shape}, which add up to {values.sum():.3g}; "
            "expected one for each variable, none negative and not all 0. Was the factor learned?"
        )
    return float(np.arange(len(values)) @ values / values.sum())


def _weights(
    importance: DCI | ConditionedResponseMatrix, latents: int
) -> tuple[np.ndarray, list[int], list[str]]:
    """Latents x factors, the columns of the factors in the data, and their names."""
    if isinstance(importance, ConditionedResponseMatrix):
        weights = importance.matrix.double().cpu().numpy().T ** 2
        columns, names = list(range(weights.shape[1])), list(importance.factor_names)
    else:
        columns = importance.factors
        names = importance.factor_names or [f"factor {k}" for k in columns]
        weights = np.zeros((latents, len(columns)))
        if importance.groups is None and max([-1, *importance.active]) < latents:
            weights[importance.active] = importance.importance
    by_groups = importance.groups is not None and any(len(g) > 1 for g in importance.groups)
    if by_groups or len(weights) != latents:
        raise ConfigError(
            f"factor_place: the importance is that of groups or of another model; expected one "
            f"for each of {latents} latents. Measure it without groups."
        )
    return weights, columns, list(names)


def _weighted_mean(
    places: list[float | None], skill: np.ndarray, members: list[int]
) -> float | None:
    """The mean place of the learned ones of these factors; None if none was."""
    pairs = [(each, skill[k]) for k in members if (each := places[k]) is not None]
    return sum(p * w for p, w in pairs) / sum(w for _, w in pairs) if pairs else None


def _words(names: Sequence[str] | str | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or [])


def _columns(names: list[str], known: list[str], option: str) -> list[int]:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"factor_place: {option}={name!r} is no factor that varies. "
                f"{did_you_mean(name, known)}"
            )
    return [known.index(name) for name in names]


ENTRY = Entry(
    question="In which of the ordered variables of a decoder is each factor?",
    meaning=(
        "Where in the order of the decoder's variables each factor is encoded, from 0 for the "
        "first to the last; a factor spread over all of them lies in the middle."
    ),
    figure=(
        "One bar for each factor: the mean place, among the decoder's variables, of the latents "
        "that carry it."
    ),
    takes=("dci", "codes", "factors", "model_groups=model_groups"),
    needs=("two factors", "two latents"),
    uses=("importance=dci",),
    maps="pooled",
)

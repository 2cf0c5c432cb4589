"""Structure panel: do the latents that carry a factor also respond when it varies?

Four views of one model in one figure: its response matrix, the graph of its causal latents
(edges are clearly above the leaks, see `response_matrix`), its conditioned response matrix M*
and the importance R of each latent for each factor by DCI. The last two answer one question by
different routes, through the decoder and from the codes alone; `score` is how far they agree,

    Spearman's rank correlation of M*_mj and R_jm over all factors m and latents j,

from -1 to 1, where entries are rounded to hundredths of the largest one of their matrix: the
order of what is nearly 0 is noise. A latent that DCI leaves out as passive has importance 0.
`chance` is the mean of the same with the latents of M* permuted. Permuting latents or factors
changes neither.

The diagonal of the response matrix is near 0 or near 1 for a model that either uses a latent or
does not. `gap` is the largest gap between its sorted values, in relative units: (low, high);
the diagonal is `bimodal` if it is more than any other gap and 0.5 lies in it.

Of maps, the columns of both are channels: their responses are those of whole maps, and their
importance that of their means over places.

Leeb et al., "Interventional assays for the latent space of autoencoders", fig. 6 and 11. The
paper compares the matrices by eye.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.dci import DCI
from zscope.assays.entry import Entry
from zscope.assays.responses.conditioned import ConditionedResponseMatrix
from zscope.assays.responses.matrix import ResponseMatrix
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.results import Scored, name_units
from zscope.sampling import whole

__all__ = ["StructurePanel", "structure_panel"]


@dataclass(frozen=True, eq=False)
class StructurePanel(Scored):
    """How far the importance of latents and their responses to factors agree."""

    why_no_interval = "entries of one matrix are not independent samples"

    score: float
    chance: float
    samples: int  # those of the conditioned responses
    gap: tuple[float, float]
    bimodal: bool
    edges: list[tuple[int, int]]
    factor_names: list[str]
    importance: np.ndarray  # factors x latents
    responses: ResponseMatrix = field(repr=False)
    conditioned: ConditionedResponseMatrix = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Without the results that it shows, which have names of their own."""
        left_out = ("responses", "conditioned")
        return {name: value for name, value in super().to_dict().items() if name not in left_out}

    def summary(self) -> list[tuple[str, str]]:
        low, high = self.gap
        return [
            ("edges", str(len(self.edges))),
            ("largest gap of the diagonal", f"{low:.2f} to {high:.2f}"),
            ("bimodal", "yes" if self.bimodal else "no"),
        ]

    def plot(self, ax: Any = None) -> Any:
        """The four views; on `ax` the importance alone."""
        from zscope.plots import heatmap, structure_panel

        if ax is None:
            return structure_panel(self.responses, self.conditioned, self.importance)
        names = self.factor_names
        return heatmap(self.importance, rows=names, x="latent", label="importance", ax=ax)


@accepts_recording
def structure_panel(
    responses: ResponseMatrix,
    conditioned: ConditionedResponseMatrix,
    dci: DCI,
    *,
    permutations: int = 200,
    generator: Generator | None = None,
) -> StructurePanel:
    """The four views of a model, from the results of the three assays.

    `permutations` of the latents give the chance level.
    """
    whole("structure_panel", 1, permutations=permutations)
    response, latents = conditioned.matrix.double().numpy(), len(responses.groups)
    if response.shape[1] != latents or max([-1, *dci.active]) >= latents:
        raise ConfigError(
            f"structure_panel: {latents} latents respond, {response.shape[1]} to single factors, "
            f"and latents up to {max([-1, *dci.active])} have an importance. Give the three "
            "results of one model, without groups."
        )
    rows = [k for k in dci.factors if k < len(response)]
    importance = np.zeros_like(response)
    importance[np.ix_(rows, dci.active)] = dci.importance.T[[dci.factors.index(k) for k in rows]]
    if len(rows) == 0 or np.ptp(response[rows]) == 0 or np.ptp(importance[rows]) == 0:
        raise Undefined(
            "structure_panel: all responses, or all importances, are equal, so they have no order "
            "to compare. Has the posterior collapsed? See: zscope assay RUN variable-types"
        )
    score = _agreement(response[rows], importance[rows])
    generator = fresh(generator)
    orders = [torch.randperm(latents, generator=generator).numpy() for _ in range(permutations)]
    shuffled = [_agreement(response[rows][:, order], importance[rows]) for order in orders]
    gap, bimodal = _largest_gap(responses.relative.diagonal().double().numpy())
    panel = StructurePanel(
        score=score,
        chance=float(np.mean(shuffled)),
        samples=min(conditioned.samples),
        gap=gap,
        bimodal=bimodal,
        edges=responses.edges(),
        factor_names=conditioned.factor_names,
        importance=importance,
        responses=responses,
        conditioned=conditioned,
    )
    return name_units(panel, responses.unit, responses.unit_names)


def _agreement(first: np.ndarray, second: np.ndarray) -> float:
    from scipy.stats import spearmanr

    steps = [np.round(100 * each / each.max()).ravel() for each in (first, second)]
    return float(spearmanr(*steps).statistic)


def _largest_gap(diagonal: np.ndarray) -> tuple[tuple[float, float], bool]:
    """The largest gap of the sorted values, and whether it is the only one and contains 0.5."""
    values = np.sort(diagonal)
    if len(values) < 2:
        return (float(values[0]), float(values[0])), False
    gaps = np.diff(values)
    place = int(gaps.argmax())
    low, high = float(values[place]), float(values[place + 1])
    alone = bool((np.delete(gaps, place) < gaps[place]).all())
    return (low, high), alone and low < 0.5 < high


ENTRY = Entry(
    question="Do the latents that carry a factor also respond when it varies?",
    meaning=(
        "The score is the rank agreement (-1 to 1) of two answers to which latent carries which "
        "factor: one from the decoder's responses, one from the codes alone."
    ),
    figure=(
        "The response matrix, the graph of dependent latents, responses by factor, and importance "
        "by factor: the last two agree where the same cells are strong."
    ),
    takes=("response_matrix", "conditioned_response_matrix", "dci"),
    needs=("two factors",),
    uses=(
        "responses=response-matrix",
        "conditioned=conditioned-response-matrix",
        "dci=dci",
    ),
    on_request=True,
    maps="units on request",
)

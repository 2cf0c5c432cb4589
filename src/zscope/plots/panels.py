"""Several views of one model in one figure."""

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zscope.errors import ConfigError
from zscope.plots import theme
from zscope.plots.graphs import causal_graph
from zscope.plots.matrices import heatmap

if TYPE_CHECKING:
    from zscope.assays.responses.conditioned import ConditionedResponseMatrix
    from zscope.assays.responses.matrix import ResponseMatrix

__all__ = ["structure_panel"]

NUMBERED = 8
"""Larger matrices have no numbers in their cells."""


@theme.themed
def structure_panel(
    responses: "ResponseMatrix",
    conditioned: "ConditionedResponseMatrix",
    importance: Any,
    *,
    threshold: float | None = None,
    title: str = "",
) -> Figure:
    """Response matrix, graph of the causal latents, conditioned responses and importance.

    `importance` is factors x latents. `threshold` is that of the edges of the graph, by default
    just above the leaks. Latents that are causal are bold.
    """
    shares, answers = theme.array(importance), theme.array(conditioned.matrix)
    if shares.shape != answers.shape:
        raise ConfigError(
            f"structure_panel: an importance of shape {shares.shape}; expected factors x latents, "
            f"{answers.shape}. Is it transposed?"
        )
    factors, latents = shares.shape
    low = max(0.34, factors / latents)
    height = 0.95 + 2.75 * (1 + low)
    figure = plt.figure(figsize=(theme.PAGE, height), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=theme.LARGE)
    grid = figure.subplots(2, 2, height_ratios=[1, low + 0.08])
    axes: list[Axes] = [theme.axes(ax) for ax in grid.flat]
    names = conditioned.factor_names
    heatmap(
        responses.relative,
        x="observed latent",
        y="intervened latent",
        label="relative response",
        marks=responses.causal,
        numbered=NUMBERED,
        ax=axes[0],
    )
    options = {} if threshold is None else {"threshold": threshold}
    causal_graph(responses.graph(**options), pairs=responses.pairs, ax=axes[1])
    for ax, matrix, label in (
        (axes[2], answers, "response to the factor"),
        (axes[3], shares, "importance (DCI)"),
    ):
        heatmap(matrix, columns=range(latents), x="latent", label=label, ax=ax, numbered=NUMBERED)
        _name_rows(ax, names if ax is axes[2] else [""] * factors)
        _embolden(ax, responses.causal)
    for letter, ax in zip("abcd", axes, strict=True):
        ax.annotate(
            letter, (0, 1), (-4, 6), xycoords="axes fraction", textcoords="offset points",
            ha="right", va="bottom", fontsize=theme.LARGE, fontweight="bold",
        )  # fmt: skip
    return figure


def _name_rows(ax: Axes, names: Any) -> None:
    ax.set_yticks(np.arange(len(names)), list(names))


def _embolden(ax: Axes, latents: list[int]) -> None:
    """Show the names of causal latents in bold, of others in grey, as in the response matrix."""
    for text in ax.get_xticklabels():
        causal = text.get_text().isdigit() and int(text.get_text()) in latents
        text.set_color(theme.INK if causal else theme.GREY)
        text.set_fontweight("bold" if causal else "normal")

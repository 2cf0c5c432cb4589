"""The rate-distortion plane: families of models, and lines of equal ELBO."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from zscope.errors import ConfigError
from zscope.plots import theme
from zscope.plots.curves import end_labels

__all__ = ["rate_distortion_plane"]

MOST_LABELS = 12
LINES = 5


@theme.themed
def rate_distortion_plane(
    curves: Mapping[str, Sequence[tuple[float, int, float, float]]],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Rate on x, distortion on y: {name: (β, seed, rate, distortion) of each model}.

    A line joins the means over seeds of each β, which is written beside them; dots are single
    models. On each dotted line, of slope -1, all models have the ELBO that stands at its end.
    """
    tables = {name: np.array([tuple(point) for point in own]) for name, own in curves.items()}
    if not tables or any(t.ndim != 2 or not np.isfinite(t).all() for t in tables.values()):
        raise ConfigError(
            f"rate_distortion_plane: of {len(tables)} curves, some have no points or numbers that "
            "are not finite. Leave them out."
        )
    ax = theme.axes(ax, theme.COLUMN * 1.3, 3.1)
    colours = theme.categories(len(tables))
    several = len(tables) > 1
    for colour, (name, table) in zip(colours, tables.items(), strict=True):
        betas = np.unique(table[:, 0])
        means = np.array([table[table[:, 0] == beta, 2:].mean(0) for beta in betas])
        ax.plot(*table[:, 2:].T, "o", color=colour, markersize=2.5, alpha=0.5, markeredgewidth=0)
        ax.plot(*means.T, color=colour, marker="o", markersize=4, label=name)
        every = -(-len(betas) // MOST_LABELS)
        for beta, place in list(zip(betas, means, strict=True))[::every]:
            ax.annotate(
                f"{beta:g}" if several else f"β = {beta:g}", place, (4, 3),
                textcoords="offset points", fontsize=theme.SMALL, color=colour,
            )  # fmt: skip
    ax.set(xlabel="rate, nats", ylabel="distortion, nats")
    theme.title(ax, title)
    ax.margins(0.12)
    _equal_elbo(ax, np.concatenate([table[:, 2] + table[:, 3] for table in tables.values()]))
    if several and len(tables) <= 8:
        ax.legend(title="numbers: β", fontsize=theme.SMALL, title_fontsize=theme.SMALL)
    elif several:
        ax.legend(fontsize=theme.SMALL, loc="center left", bbox_to_anchor=(1.15, 0.5))
    return ax


def _equal_elbo(ax: Axes, losses: np.ndarray) -> None:
    """Dotted lines of distortion = loss - rate, within the axes, for a few values of the loss."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    spread = max(float(np.ptp(losses)), 0.05 * (high - low + right - left))
    middle = float(losses.min()) + np.linspace(0, spread, LINES)
    labels = []
    for loss in middle:
        start, end = max(left, loss - high), min(right, loss - low)
        if start < end:
            line = np.array([start, end])
            ax.plot(line, loss - line, ":", color=theme.GREY, linewidth=0.8, zorder=0)
            text = f"ELBO {-loss:.4g}"
            if end >= right:
                labels.append((end, loss - end, text, theme.GREY))
                continue
            # Along its upper end: several beside each other would overlap, and curves lie below.
            ax.text(
                start, loss - start, f" {text}", fontsize=theme.SMALL, color=theme.GREY, ha="left",
                va="bottom", rotation=-45, rotation_mode="anchor", transform_rotates_text=True,
            )  # fmt: skip
    ax.set(xlim=(left, right), ylim=(low, high))
    end_labels(ax, labels)

"""Curves over training: what becomes of the latents."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from zscope.errors import ConfigError
from zscope.plots import theme
from zscope.plots.curves import step_lines

__all__ = ["training_curves"]

TYPES = ("active", "mixed", "passive")
MOST = 12
"""Single latents that are drawn, those that end highest."""


@theme.themed
def training_curves(history: Sequence[Mapping[str, Any]], *, title: str = "") -> Figure:
    """Types of latents, rate, distortion and the rest against the step, a panel each.

    `history` are the rows of `run.history` or of `zs.Monitor.history`; what they do not have gets
    no panel.
    """
    panels = [panel for panel in _panels(history) if panel[1]]
    if not panels:
        raise ConfigError(
            f"training_curves: none of {len(history)} rows has something to draw. Pass run.history "
            "of a training, or the history of a monitor that has measured."
        )
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure, grid = theme.panels(down, across, theme.PAGE * min(1, 0.36 * across), 2.0 * down)
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)
    for ax, (name, lines) in zip(grid.flat, panels, strict=False):
        step_lines(lines, x="step", apart=name == "latents", ax=ax)
        ax.set_title(name, fontsize=theme.NORMAL)
    if title:
        figure.suptitle(title, fontsize=theme.LARGE)
    return figure


def _panels(history: Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[str, dict[int, float]]]]:
    """Names of panels, with named lines: {position: value}."""

    def line(*names: str) -> dict[int, float]:
        """The values of the first of these names that a row has."""
        return {
            int(row["step"]): float(row[name])
            for row in history
            for name in [next((each for each in names if each in row), "")]
            if name
        }

    def single(name: str) -> dict[str, dict[int, float]]:
        units = dict.fromkeys(
            key
            for row in history
            for key in row
            if key.startswith(f"{name}/") and key[-1].isdigit()
        )
        lines = {key.rpartition("/")[2]: line(key) for key in units}
        highest = sorted(lines, key=lambda unit: -[*lines[unit].values()][-1])[:MOST]
        return {unit: lines[unit] for unit in lines if unit in highest}

    def one(*names: str) -> dict[str, dict[int, float]]:
        return {"": found} if (found := line(*names)) else {}

    rate, distortion = one("kl/total", "divergence"), one("reconstruction")
    explained = one("explained_variance")
    types = {name: line(f"latents/{name}", name) for name in TYPES}
    return [
        ("latents", {name: found for name, found in types.items() if found}),
        ("rate: KL (nats)", rate),
        ("distortion (nats)", distortion),
        ("loss", {} if rate or distortion or explained else one("loss")),
        ("explained variance", explained),
        ("KL of each latent (nats)", single("kl")),
        ("response of each latent", single("response")),
        ("share of the prior in holes", one("hole_share")),
    ]

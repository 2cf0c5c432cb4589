"""Differences between two models, in units of what chance explains."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from zscope.errors import ConfigError
from zscope.plots import theme

__all__ = ["clear_differences"]

FARTHEST = 30.0


@theme.themed
def clear_differences(
    clarity: Mapping[str, float], first: str, second: str, *, ax: Axes | None = None
) -> Axes:
    """How clear differences are: {score: difference / half of its 95 % interval}.

    Positive if the second model is better. Within the band, from -1 to 1, a difference may be
    chance. The axis is linear in the band and logarithmic beyond it.
    """
    values = np.array(list(clarity.values()), dtype=float)
    if not len(values) or not np.isfinite(values).all():
        raise ConfigError(
            f"clear_differences: {len(values)} differences, of which some are not finite. Leave "
            "those out."
        )
    ax = theme.axes(ax, theme.COLUMN * 1.5, 0.6 + 0.24 * len(values))
    places = np.arange(len(values))[::-1]
    colours = theme.categories(2)
    ax.axvspan(-1, 1, color="0.9", zorder=0, linewidth=0)
    ax.axvline(0, color="0.6", linewidth=0.8, zorder=1)
    for place, value in zip(places, values.clip(-FARTHEST, FARTHEST), strict=True):
        colour = "0.5" if abs(value) <= 1 else colours[int(value > 0)]
        ax.plot([0, value], [place, place], color=colour, linewidth=1.4, zorder=2)
        ax.plot(value, place, "o", color=colour, markersize=4.5, zorder=3)
    reach = max(3.0, 1.4 * float(np.abs(values.clip(-FARTHEST, FARTHEST)).max()))
    ax.set_xscale("symlog", linthresh=1.0, linscale=0.7)
    ticks = [each for each in (1, 3, 10, 30) if each <= reach]
    ax.set_xticks([*(-each for each in reversed(ticks)), 0, *ticks])
    ax.set_xticklabels([*(str(each) for each in reversed(ticks)), "0", *map(str, ticks)])
    ax.minorticks_off()
    ax.set(xlim=(-reach, reach), ylim=(-0.6, len(values) - 0.4))
    ax.set_yticks(places, list(clarity))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("difference / half its interval")
    ax.set_title(f"← {first} better", loc="left", fontsize=theme.SMALL)
    ax.set_title(f"{second} better →", loc="right", fontsize=theme.SMALL)
    return ax

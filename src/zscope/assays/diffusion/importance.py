"""Unit importance: what does the decoder lose without a channel?

With EV the share of the variance of the pictures that reconstructions explain,

    EV = 1 - E|x - D(z)|^2 / E|x - mean x|^2

    importance of channel k       EV - EV with channel k at its mean map
    alone                         EV with all other channels at their mean maps

Channels that share information have small importances and large EV alone. With patches of pictures
encoded by their principal components, importance and EV alone are both lambda_k / sum of all
lambda. A channel that the decoder would do better without has a negative importance. Unchanged by
permuting, shifting and scaling channels, if the decoder undoes it. Over the base pictures, with
intervals over them; mean maps are over all pictures that were encoded.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.pictures import (
    Maps,
    base_pictures,
    decode_like,
    intervals,
    squares,
    summary_of,
    varying,
)
from zscope.autoencoder import Autoencoder
from zscope.randomness import fresh
from zscope.results import Measure, Scored

__all__ = ["UnitImportance", "unit_importance"]


@dataclass(frozen=True, eq=False)
class UnitImportance(Scored):
    """A number for each channel; .score is the largest importance."""

    score: float
    importance: Tensor
    alone: Tensor
    explained: float  # EV with all channels
    importance_interval: Tensor | None  # channels x 2
    alone_interval: Tensor | None
    share_interval: Tensor | None  # of alone / explained; None unless something is explained
    samples: int
    interval: tuple[float, float] | None
    no_interval: str

    why_no_chance = "a channel that encodes nothing has an importance of 0"

    def measures(self) -> list[Measure]:
        best = int(self.importance.argmax())
        name = f"importance of channel {best}"
        return [self.measure(name, self.score, interval=self.interval)]

    def summary(self) -> list[tuple[str, str]]:
        order = self.importance.argsort(descending=True)[:8].tolist()
        texts = [f"channel {k} {float(self.importance[k]):.2g}" for k in order]
        alone = [f"channel {k} {float(self.alone[k]):.2g}" for k in order]
        return [
            ("explained variance", f"{self.explained:.3f}"),
            ("importance", ", ".join(texts)),
            ("alone", ", ".join(alone)),
        ]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        return bars(self.importance, x="channel", y="explained variance lost", ax=ax)


@accepts_recording
def unit_importance(
    autoencoder: Autoencoder,
    maps: Maps,
    *,
    resamples: int = 200,
    generator: Generator | None = None,
) -> UnitImportance:
    """How much less is explained without each channel, and how much by each channel alone."""
    who = "unit_importance"
    summary = summary_of(maps, who)
    base, layout = base_pictures(autoencoder, maps, who), summary.layout
    x, variance = base.observations, varying(base.observations, who)
    mean = (summary.place_sums[0] / summary.pictures + summary.centre[:, None]).flatten()
    mean, channel = mean.to(base.codes), layout.unit_of("channel")

    def error(keep: Tensor) -> Tensor:
        return squares(decode_like(autoencoder, torch.where(keep, base.codes, mean), x), x)

    whole = squares(base.decoded, x)
    without = torch.stack([error(channel != k) for k in range(layout.channels)])
    alone = torch.stack([error(channel == k) for k in range(layout.channels)])

    some = bool(whole.sum() < variance.sum())

    def numbers(rows: Tensor) -> Tensor:
        total = variance[rows].sum()
        lost = (without[:, rows].sum(1) - whole[rows].sum()) / total
        own, explained = 1 - alone[:, rows].sum(1) / total, 1 - whole[rows].sum() / total
        return torch.cat([lost, own, own / explained] if some else [lost, own])

    value = numbers(torch.arange(len(x)))
    ends, reason = intervals(numbers, value, len(x), resamples, fresh(generator), who)
    c = layout.channels
    best = int(value[:c].argmax())
    return UnitImportance(
        score=float(value[best]),
        importance=value[:c],
        alone=value[c : 2 * c],
        explained=float(1 - whole.sum() / variance.sum()),
        importance_interval=None if ends is None else ends[:c],
        alone_interval=None if ends is None else ends[c : 2 * c],
        share_interval=None if ends is None or not some else ends[2 * c :],
        samples=len(x),
        interval=None if ends is None else (float(ends[best, 0]), float(ends[best, 1])),
        no_interval=reason,
    )


ENTRY = Entry(
    question="What does the decoder lose without a channel?",
    meaning=(
        "How much of the explained variance is lost if a channel is replaced by its mean: 0 for a "
        "channel that the decoder can do without."
    ),
    figure="One bar for each channel: the explained variance that goes with it.",
    takes=("autoencoder", "maps"),
    needs=("layout",),
    maps="maps",
    passes="pictures * (2 * channels + 1)",
)

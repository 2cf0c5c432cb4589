"""How like data are codes, and the observations decoded from them?

    distance(q) = mean distance of q from its 5 nearest rows of data
                  / mean distance of these rows from their own 5 nearest

so distances are in units of the spacing of the data where q lies, and a new row of the same
kind is at about 1 (after the local outlier factor: Breunig et al., SIGMOD 2000). A code is
compared with posterior samples, in the latents that count; a decoded observation with
observations. Beyond `limit` is farther than 99 % of held-out posterior samples, or of what is
decoded from them.

A code may be self-consistent, R(z) = z, and yet decode to something unlike any data: a model
that decodes an empty picture to the code of an empty picture is consistent.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.engine import Recorded, decode, posterior_of
from zscope.autoencoder import Autoencoder
from zscope.randomness import named_generator
from zscope.recording import Recording
from zscope.types import Codes

__all__ = ["Likeness", "NearestRows", "likeness"]

NEIGHBOURS = 5
REFERENCE = 1000
HELD_OUT = 512
FAR = 0.99


@dataclass(frozen=True, eq=False)
class NearestRows:
    """Rows of data, from which distances are measured."""

    rows: Float[Tensor, "reference columns"]
    spacing: Float[Tensor, " reference"]  # mean distance of each row from its nearest others
    limit: float  # farther than 99 % of held-out rows

    def distance(self, queries: Tensor) -> Float[Tensor, " queries"]:
        """The distance of each query, in units of the spacing of its nearest rows."""
        return _distance(self.rows, self.spacing, queries)


@dataclass(frozen=True, eq=False)
class Likeness:
    """Codes and observations of data, to compare others with."""

    codes: NearestRows
    observations: NearestRows | None  # None if only codes were recorded
    used: list[int]
    unit: Float[Tensor, " used"]

    def code_distance(self, codes: Codes) -> Float[Tensor, " codes"]:
        """How far codes are from those of data, in units of their spacing."""
        return self.codes.distance(_scale(codes, self.used, self.unit))

    def data_distance(self, decoded: Tensor) -> Float[Tensor, " codes"] | None:
        """How far decoded observations are from data, in units of their spacing."""
        return None if self.observations is None else self.observations.distance(decoded)


def likeness(
    autoencoder: Autoencoder,
    recorded: Recorded,
    used: list[int],
    unit: Tensor,
    generator: Generator,
) -> Likeness:
    """What up to 1,000 posterior samples and observations say about others.

    Computed once for a recording. Of fewer, a fifth is held out.
    """
    if isinstance(recorded, Recording):
        own = named_generator(recorded.seed, "likeness")
        key = ("likeness", tuple(used), tuple(unit.tolist()))
        shared: Likeness = recorded.share(
            key, lambda: _likeness(autoencoder, recorded, used, unit, own)
        )
        return shared
    return _likeness(autoencoder, recorded, used, unit, generator)


def _likeness(
    autoencoder: Autoencoder,
    recorded: Recorded,
    used: list[int],
    unit: Tensor,
    generator: Generator,
) -> Likeness:
    posterior = posterior_of(recorded, "likeness")
    order = torch.randperm(len(posterior), generator=generator, device=generator.device).cpu()
    count = min(REFERENCE, len(order) - max(1, len(order) // 5))
    rows, others = order[:count], order[count : count + HELD_OUT]
    draws = posterior[torch.cat([rows, others]).to(posterior.mean.device)].sample(generator)
    scaled = _scale(draws, used, unit)
    codes = _nearest_rows(scaled[:count], scaled[count:])
    observations = None
    if isinstance(recorded, Recording) and recorded.dataset is not None:
        data = recorded.data.batch(rows.tolist())
        decoded = decode(autoencoder, draws[count:])
        if data[0].numel() == decoded[0].numel():
            observations = _nearest_rows(data, decoded)
    return Likeness(codes, observations, used, unit)


def _scale(codes: Codes, used: list[int], unit: Tensor) -> Tensor:
    return codes.double().cpu()[:, used] / unit


def _nearest_rows(rows: Tensor, held_out: Tensor) -> NearestRows:
    rows = rows.detach().cpu().flatten(1)
    rows = rows if rows.dtype == torch.float64 else rows.float()
    count = min(NEIGHBOURS, len(rows) - 1)
    spacing = torch.cat(
        [
            # The nearest is the row itself.
            torch.cdist(part, rows).topk(count + 1, largest=False).values[:, 1:].mean(1)
            for part in rows.split(256)
        ]
    ).double()
    # Repeated observations have no distance from each other.
    spread = float((rows - rows.mean(0)).double().square().sum(1).mean().sqrt())
    least = max(0.05 * float(spacing.median()), 1e-6 * spread, torch.finfo(torch.float32).tiny)
    spacing = spacing.clamp_min(least)
    limit = torch.quantile(_distance(rows, spacing, held_out), FAR)
    return NearestRows(rows, spacing, float(limit))


def _distance(rows: Tensor, spacing: Tensor, queries: Tensor) -> Tensor:
    count = min(NEIGHBOURS, len(rows) - 1)
    parts = []
    for part in queries.detach().cpu().flatten(1).to(rows.dtype).split(256):
        near, index = torch.cdist(part, rows).topk(count, largest=False)
        parts.append(near.double().mean(1) / spacing[index].mean(1))
    return torch.cat([spacing[:0], *parts])

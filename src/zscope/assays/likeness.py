"""How like data are codes, and the observations decoded from them?

    distance(q) = mean distance of q from its 5 nearest rows of data
                  / mean spacing of these rows

so distances are in units of the spacing of the data where q lies (after the local outlier
factor: Breunig et al., SIGMOD 2000). A code is compared with posterior samples, in the latents
that count; a decoded observation with observations.

The spacing of a row is its mean distance from its own 5 nearest rows. Data on a grid of factors
are near along some factors and far along others, and what lies between distant ones is like
data too: the middle of a square of data is 1/√2 of its side from the corners. So where 1/√2 of
the steps around rows is typically (in the median) more than 1.5 times that mean distance, the
spacing is the larger of the two. Steps join rows whose codes are neighbours: no third code is
nearer to both (the relative neighbourhood graph: Toussaint, Pattern Recognition 12, 1980). Of
those at the 20 rows nearest to a row the 90 % quantile counts: one step to a separate cluster
does not.

Beyond `limit` is unlike data: farther than one spacing, and farther than 99 % of held-out
posterior samples, or of what is decoded from them. Spacings are taken from data and their codes
alone: half way between two codes a decoder may decode nothing. See
docs/decisions/0011-what-is-like-data.md.

Of latents that are maps only decoded observations are compared, with the base pictures as those
that are held out: among thousands of latents all distances between codes are nearly the same. 95 %
of held-out pictures are the limit where there are fewer than 1,000. Spacings are mean distances
from the 5 nearest, without steps between neighbours, which would be found by distances of codes.

A code may be self-consistent, R(z) = z, and yet decode to something unlike any data: a model
that decodes an empty picture to the code of an empty picture is consistent.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from zscope.assays.engine import Recorded, decode, posterior_of
from zscope.assays.pictures import base_pictures
from zscope.autoencoder import Autoencoder
from zscope.errors import Undefined
from zscope.randomness import named_generator
from zscope.recording import Recording
from zscope.types import Codes

__all__ = ["Likeness", "NearestRows", "likeness", "likeness_of_maps"]

NEIGHBOURS = 5
REFERENCE = 1000
HELD_OUT = 512
FAR = 0.99
AROUND = 20
STEP = 0.9
COARSE = 1.5
FAR_OF_FEW = 0.95
MANY = 1000
"""Held out, for which the 99 % quantile is that of more than a few."""
PICTURE_BYTES = 32 * 2**20
COPY_BYTES = 16 * 2**20
"""Of rows in double precision at once."""
FEWEST_PICTURES = 64
"""To compare with, however large they are."""


@dataclass(frozen=True, eq=False)
class NearestRows:
    """Rows of data, from which distances are measured."""

    rows: Float[Tensor, "reference columns"]
    spacing: Float[Tensor, " reference"]
    limit: float  # farther is unlike data

    def distance(self, queries: Tensor) -> Float[Tensor, " queries"]:
        """The distance of each query, in units of the spacing of its nearest rows."""
        return _distance(self.rows, self.spacing, queries)


@dataclass(frozen=True, eq=False)
class Likeness:
    """Codes and observations of data, to compare others with."""

    codes: NearestRows | None  # None of maps
    observations: NearestRows | None  # None if only codes were recorded
    used: list[int]
    unit: Float[Tensor, " used"]

    def code_distance(self, codes: Codes) -> Float[Tensor, " codes"] | None:
        """How far codes are from those of data, in units of their spacing."""
        if self.codes is None:
            return None
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


def likeness_of_maps(
    autoencoder: Autoencoder, recorded: Recorded, used: list[int], unit: Tensor
) -> Likeness:
    """What the recorded pictures say about others; nothing without pictures.

    The base pictures are held out, or a fifth if there are few; up to 1,000 others of at most 32 MB
    are compared with. They are decoded already.
    """
    if not isinstance(recorded, Recording) or recorded.dataset is None:
        return Likeness(None, None, used, unit)

    def find() -> NearestRows | None:
        base = base_pictures(autoencoder, recorded, "hole_score")
        held_out = min(len(base.rows), max(1, len(recorded) // 5))
        size = base.observations[0].numel()
        most = min(REFERENCE, max(FEWEST_PICTURES, PICTURE_BYTES // (4 * size)))
        rows = recorded.picture_order[held_out : held_out + most]
        if len(rows) < 2 or base.decoded[0].numel() != size:
            return None
        far = FAR if held_out >= MANY else FAR_OF_FEW
        pictures = recorded.data.batch(rows.numpy())
        return _nearest_rows(pictures, base.decoded[:held_out], None, far)

    return Likeness(None, recorded.share("likeness of maps", find), used, unit)


def _likeness(
    autoencoder: Autoencoder,
    recorded: Recorded,
    used: list[int],
    unit: Tensor,
    generator: Generator,
) -> Likeness:
    posterior = posterior_of(recorded, "hole_score")
    if len(posterior) < 3:
        raise Undefined(
            f"hole_score: {len(posterior)} posteriors were recorded; at least 3 are needed, two to "
            "compare with and one held out. Record more observations."
        )
    order = torch.randperm(len(posterior), generator=generator, device=generator.device).cpu()
    count = min(REFERENCE, len(order) - max(1, len(order) // 5))
    rows, others = order[:count], order[count : count + HELD_OUT]
    draws = posterior[torch.cat([rows, others]).to(posterior.mean.device)].sample(generator)
    scaled = _scale(draws, used, unit)
    neighbours = _Neighbours.of(_scale(posterior.mean[rows], used, unit))
    codes = _nearest_rows(scaled[:count], scaled[count:], neighbours)
    observations = None
    if isinstance(recorded, Recording) and recorded.dataset is not None:
        data = recorded.data.batch(rows.tolist())
        decoded = decode(autoencoder, draws[count:])
        if data[0].numel() == decoded[0].numel():
            observations = _nearest_rows(data, decoded, neighbours)
    return Likeness(codes, observations, used, unit)


def _scale(codes: Codes, used: list[int], unit: Tensor) -> Tensor:
    return codes.double().cpu()[:, used] / unit


@dataclass(frozen=True, eq=False)
class _Neighbours:
    """Which rows are neighbours, by their codes."""

    pairs: Int[Tensor, "pairs 2"]
    around: Int[Tensor, "reference around"]  # the rows nearest to each, itself among them

    @classmethod
    def of(cls, codes: Tensor) -> "_Neighbours":
        """The relative neighbourhood graph of the codes."""
        apart = torch.cdist(codes, codes)
        apart = torch.maximum(apart, apart.T)  # equal but for rounding, which would break ties
        around = apart.topk(min(AROUND, len(codes)), largest=False).indices
        # The nearest rows exclude nearly all pairs; the rest are compared with every row.
        free = torch.ones_like(apart, dtype=torch.bool).triu(1)
        for third in around.T:
            free &= torch.maximum(apart.gather(1, third[:, None]), apart[third]) >= apart
        pairs = free.nonzero()
        kept = [
            part[torch.maximum(apart[part[:, 0]], apart[part[:, 1]]).amin(1) >= apart[*part.T]]
            for part in pairs.split(1024)
        ]
        return cls(torch.cat([pairs[:0], *kept]), around)

    def steps(self, rows: Tensor) -> Float[Tensor, " reference"]:
        """The size of the steps around each row."""
        first, second = self.pairs.T
        size = max(1, COPY_BYTES // (8 * rows[0].numel()))
        ends = zip(first.split(size), second.split(size), strict=True)
        length = torch.cat([(rows[a] - rows[b]).double().norm(dim=1) for a, b in ends])
        row, order = torch.cat([first, second]).sort()
        length = torch.cat([length, length])[order]
        steps = length.split(torch.bincount(row, minlength=len(rows)).tolist())
        near = [torch.cat([steps[k] for k in some]) for some in self.around.tolist()]
        padded = torch.nn.utils.rnn.pad_sequence(near, batch_first=True, padding_value=torch.nan)
        return torch.cat([part.nanquantile(STEP, dim=1) for part in padded.split(256)])


def _nearest_rows(
    rows: Tensor, held_out: Tensor, neighbours: _Neighbours | None, share: float = FAR
) -> NearestRows:
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
    if neighbours is not None:
        steps = neighbours.steps(rows) / 2**0.5
        if 2 * int((steps > COARSE * spacing).sum()) > len(rows):
            spacing = torch.maximum(spacing, steps)
    # Repeated observations have no distance from each other.
    mean = rows.mean(0)
    parts = rows.split(max(1, COPY_BYTES // (8 * rows[0].numel())))
    squares = torch.cat([(part - mean).double().square().sum(1) for part in parts])
    spread = float(squares.mean().sqrt())
    least = max(0.05 * float(spacing.median()), 1e-6 * spread, torch.finfo(torch.float32).tiny)
    spacing = spacing.clamp_min(least)
    far = _distance(rows, spacing, held_out)
    limit = float(torch.quantile(far, share)) if len(far) else 1.0
    return NearestRows(rows, spacing, max(1.0, limit))


def _distance(rows: Tensor, spacing: Tensor, queries: Tensor) -> Tensor:
    count = min(NEIGHBOURS, len(rows) - 1)
    parts = []
    for part in queries.detach().cpu().flatten(1).to(rows.dtype).split(256):
        near, index = torch.cdist(part, rows).topk(count, largest=False)
        parts.append(near.double().mean(1) / spacing[index].mean(1))
    return torch.cat([spacing[:0], *parts])

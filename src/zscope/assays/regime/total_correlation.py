"""Total correlation: how many nats would the latents share if they were Gaussian?

With C the covariance and R the correlation matrix of the codes,

    TC = 1/2 ( sum_j log C_jj - log det C ) = -1/2 log det R,        0 <= TC < infinity

0 when the latents are uncorrelated; undefined (infinite) when one is a linear combination
of the others, or there are fewer samples than latents + 2. Unchanged by shifting or
scaling any latent and by the order of the latents, so a passive latent whose means hardly
vary counts as much as any other. Changed by rotation. Latents that do not vary, up to
rounding in the float type of the codes, are left out and listed. Independent columns add
nothing beyond the bias of the estimate, about d (d-1) / (4 N): compare with `floor`.

Of latents that are maps, rows are places and columns are channels. Places of one picture are not
independent, so that they stay `together` in intervals, and the floor is the mean of 20 tables in
which the pictures of each channel have an order of their own. `excess` is the score less the floor:
what is shared beyond chance.

Watanabe, IBM J. Res. Dev. 4(1), 1960; Bonheme 2023, equation 6.3 and theorem 6.4.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.halves import Interval, check_together, halves_interval, shuffle_apart
from zscope.assays.matrices import Array, as_rows
from zscope.assays.regime.sharing import Sharing
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.results import subject
from zscope.sampling import whole
from zscope.types import Matrix

__all__ = ["TotalCorrelation", "covariance_total_correlation", "total_correlation"]

SHUFFLES = 20
CONSTANT = 4  # a latent that varies by at most so many roundings of its largest code does not vary


@dataclass(frozen=True, eq=False)
class TotalCorrelation(Sharing):
    """In nats; `floor` is what independent columns would get with so many samples."""

    score_fields = ("floor", "together")

    score: float
    floor: float
    dropped: list[int]  # latents that do not vary
    latents: int  # those that do
    samples: int
    interval: Interval | None
    no_interval: str  # the reason, if there is no interval
    together: int = 1  # rows of each picture, which the floor keeps together

    @property
    def flags(self) -> list[str]:
        dropped = self.dropped
        return [f"{subject('Latent', dropped)} constant and left out."] if dropped else []


@accepts_recording
def total_correlation(
    codes: Array,
    *,
    columns: Sequence[int] | None = None,
    together: int = 1,
    resamples: int = 0,
    generator: Generator | None = None,
) -> TotalCorrelation:
    """Gaussian total correlation of the codes (means, or sampled), or of some columns.

    `resamples` halves of the rows give an interval. So many consecutive rows belong `together`:
    the places of a picture.
    """
    rows = as_rows(codes, "total_correlation", least=2)
    chosen = list(range(rows.shape[1])) if columns is None else list(columns)
    whole("total_correlation", **{f"columns[{k}]": j for k, j in enumerate(chosen)})
    if not chosen or any(not 0 <= j < rows.shape[1] for j in chosen):
        raise ConfigError(
            f"total_correlation: columns={chosen} of codes with {rows.shape[1]} columns; expected "
            f"numbers from 0 to {rows.shape[1] - 1}."
        )
    rows = rows[:, chosen]
    centred = rows - rows.mean(0)
    span = centred.abs().amax(0)
    constant = span <= CONSTANT * _precision(codes) * rows.abs().amax(0)
    varying = (~constant).nonzero().flatten()
    scaled = centred[:, varying] / span[varying]
    n, d = len(rows), len(varying)
    if d > 1 and n < d + 2:
        raise Undefined(
            f"total_correlation: {n} samples of {d} latents always look linearly dependent. Record "
            f"at least {d + 2}, and thousands for a reliable value."
        )
    score = covariance_total_correlation(torch.cov(scaled.T).reshape(d, d))
    if math.isinf(score):
        raise Undefined(
            f"total_correlation: the {d} latents of {n} samples are linearly dependent, so it is "
            "infinite. Is a latent a copy of another? See the correlations of the codes: "
            "np.corrcoef(codes.T)"
        )

    def score_of_half(half: Matrix) -> float:
        covariance = torch.cov(half.T).reshape(d, d)
        varies = covariance.diagonal() > 0
        return covariance_total_correlation(covariance[varies][:, varies])

    floor, source = d * (d - 1) / (4 * n), fresh(generator)
    if check_together(rows, together, "total_correlation") < n and d > 1:
        orders = (shuffle_apart(scaled, together, source) for _ in range(SHUFFLES))
        floors = [covariance_total_correlation(torch.cov(each.T)) for each in orders]
        floor = sum(floors) / SHUFFLES
    interval, no_interval = halves_interval(
        score_of_half, scaled, score, resamples, source, "total_correlation", together
    )
    return TotalCorrelation(
        score=score,
        interval=interval,
        no_interval=no_interval,
        floor=floor,
        dropped=[chosen[int(j)] for j in constant.nonzero().flatten()],
        latents=d,
        samples=n,
        together=together,
    )


def _precision(codes: Array) -> float:
    """The rounding error of one code, relative to it."""
    if isinstance(codes, Tensor):
        return torch.finfo(codes.dtype if codes.is_floating_point() else torch.float64).eps
    kind = np.asarray(codes).dtype
    return float(np.finfo(kind if kind.kind == "f" else np.float64).eps)


def covariance_total_correlation(covariance: Matrix) -> float:
    """The same from a covariance matrix: exact if the matrix is."""
    covariance = covariance.double()
    if len(covariance) < 2:
        return 0.0
    spread = covariance.diagonal()
    if (spread <= 0).any():
        raise Undefined(
            "total_correlation: a variance on the diagonal of the covariance is not positive, so "
            "there is no correlation. Leave that latent out."
        )
    # Cholesky of the correlation matrix: the scales of the latents then cost no precision.
    root = spread.sqrt()
    factor, failed = torch.linalg.cholesky_ex(covariance / root / root[:, None])
    diagonal: Tensor = factor.diagonal()
    if int(failed) or float(diagonal.min()) ** 2 < 1e-14 * len(covariance):
        return math.inf
    return float(-diagonal.log().sum()) + 0.0


ENTRY = Entry(
    question="How many nats would the latents share if they were Gaussian?",
    meaning=(
        "What all latents share, in nats, if they were Gaussian: 0 for uncorrelated latents; "
        "compare it with the floor that samples of this number have by chance."
    ),
    takes=("codes", "together=together"),
    needs=("two latents",),
    maps="places",
)

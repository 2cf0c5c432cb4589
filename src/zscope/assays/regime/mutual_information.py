"""Mutual information: how much information do two latents share, on average?

    MI = 1 / (d (d-1))  sum_{i != j}  I(z_i; z_j),      0 <= MI <= log(bins)

I is the plug-in estimate in nats, from histograms with bins of equal width between the
smallest and the largest code of each latent. Unchanged by shifting, flipping or scaling any
latent and by their order; a latent that does not vary shares nothing. Two latents that share
c nats among d - 2 others that share none give 2 c / (d^2 - d).

For independent latents the estimate is about (K_i - 1)(K_j - 1) / (2 N) nats, K being the
number of occupied bins: `floor` is the mean of that (0.018 for 20 full bins and 10,000
samples). Do not compare values from different numbers of samples. `permutations` estimates
the floor from shuffled columns instead, which also holds for latents with long tails.

Of latents that are maps, rows are places and columns are channels. Places of one picture are not
independent: they stay `together` in intervals and in shuffled columns, from which the floor comes
(5 of them, unless `permutations` says otherwise). `excess` is the score less the floor: what is
shared beyond chance.

Bonheme 2023, equations 6.9 and 6.10, theorem 6.4.2; 20 bins as in the library of
Locatello et al. For the bias: Miller, "Note on the bias of information estimates", 1955.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.halves import (
    Interval,
    check_together,
    halves_interval,
    shuffle_apart,
    size_flag,
)
from zscope.assays.matrices import Array, as_rows
from zscope.assays.regime.sharing import Sharing
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.results import subject
from zscope.types import Matrix

__all__ = ["MutualInformation", "mutual_information"]

SHUFFLES = 5


@dataclass(frozen=True, eq=False)
class MutualInformation(Sharing):
    """The mean over pairs, in nats; `floor` is what independent latents would get."""

    score_fields = ("floor", "together")

    score: float
    floor: float
    matrix: Matrix  # I(z_i; z_j); on the diagonal the entropy of each latent
    bins: int
    samples: int
    interval: Interval | None
    no_interval: str  # the reason, if there is no interval
    together: int = 1  # rows of each picture, which the floor keeps together

    @property
    def flags(self) -> list[str]:
        constant = (self.matrix.diagonal() == 0).nonzero().flatten().tolist()
        flags = [f"{subject('Latent', constant)} constant, sharing nothing."] if constant else []
        if self.interval is not None:
            flags.append(size_flag(self.samples, "both include the floor, which falls"))
        return flags

    @property
    def corrected(self) -> float:
        """The score above the floor, at least 0."""
        return max(0.0, self.excess)

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        return heatmap(self.matrix, rows="latent", columns="latent", label="nats", ax=ax)


@accepts_recording
def mutual_information(
    codes: Array,
    *,
    columns: Sequence[int] | None = None,
    bins: int = 20,
    permutations: int = 0,
    together: int = 1,
    resamples: int = 0,
    generator: Generator | None = None,
) -> MutualInformation:
    """Mean mutual information of the codes (means, or sampled), or of some columns.

    `resamples` halves of the rows give an interval; like the score, it includes the floor. So
    many consecutive rows belong `together`: the places of a picture.
    """
    rows = as_rows(codes, "mutual_information", least=2)
    rows = rows if columns is None else rows[:, list(columns)]
    n, d = rows.shape
    if d < 2:
        raise Undefined(
            f"mutual_information: {d} latent; at least 2 are needed to share information."
        )
    if bins < 2:
        raise ConfigError(f"mutual_information: bins={bins}; at least 2 are needed (20 is usual).")
    labels = histogram_bins(rows, bins)
    matrix = pairwise_information(labels, bins)
    occupied = torch.tensor([len(column.unique()) for column in labels.T], dtype=torch.float64)
    pairs = (occupied - 1) * (occupied - 1)[:, None] / (2 * n)
    floor = off_diagonal_mean(pairs)
    source = fresh(generator)
    if check_together(rows, together, "mutual_information") < n:
        permutations = permutations or SHUFFLES
    if permutations:
        floors = []
        for _ in range(permutations):
            if together > 1:
                shuffled = shuffle_apart(labels, together, source)
            else:
                order = torch.stack([torch.randperm(n, generator=source) for _ in range(d)], 1)
                shuffled = labels.gather(0, order.to(labels.device))
            floors.append(off_diagonal_mean(pairwise_information(shuffled, bins)))
        floor = sum(floors) / permutations
    score = off_diagonal_mean(matrix)

    def mean_of_half(half: Matrix) -> float:
        return off_diagonal_mean(pairwise_information(half.long(), bins))

    interval, no_interval = halves_interval(
        mean_of_half, labels.double(), score, resamples, source, "mutual_information", together
    )
    return MutualInformation(
        score=score,
        floor=floor,
        matrix=matrix,
        bins=bins,
        samples=n,
        interval=interval,
        no_interval=no_interval,
        together=together,
    )


def histogram_bins(rows: Matrix, bins: int) -> Tensor:
    """The bin of each entry, column by column; 0 throughout a column that does not vary."""
    low, high = rows.amin(0), rows.amax(0)
    width = torch.where(high > low, high - low, torch.ones_like(low))
    return ((rows - low) / width * bins).long().clamp(max=bins - 1)


def pairwise_information(labels: Tensor, bins: int) -> Matrix:
    """Plug-in mutual information of every pair of columns of integers below `bins`."""
    n, d = labels.shape
    columns = labels.T.contiguous()
    # Counts are integers up to n, so n log n is looked up rather than computed for every cell.
    sizes = torch.arange(n + 1, dtype=torch.float64, device=labels.device)
    table = torch.special.xlogy(sizes, sizes)
    # Column by column: the cells of one pair fit into the fastest cache.
    cells = columns + (torch.arange(d, device=labels.device) * bins * bins)[:, None]
    joint = torch.zeros(d, d, dtype=torch.float64, device=labels.device)  # sum of n log n
    for i in range(d):
        pairs = cells[i:] + (columns[i] - i * bins) * bins
        counts = torch.bincount(pairs.flatten(), minlength=(d - i) * bins * bins)
        joint[i, i:] = joint[i:, i] = table[counts].reshape(d - i, -1).sum(1)
    single = joint.diagonal()
    matrix = (joint - single - single[:, None]) / n + math.log(n)
    # Entropies that cancel leave about 1e-15 nats.
    return torch.where(matrix > 1e-12, matrix, 0.0)


def off_diagonal_mean(matrix: Matrix) -> float:
    d = len(matrix)
    return float((matrix.sum() - matrix.diagonal().sum()) / (d * (d - 1)))


ENTRY = Entry(
    question="How much information do two latents share, on average?",
    meaning=(
        "What two latents tell about each other, in nats, averaged over all pairs: compare it with "
        "the floor, which is what independent latents would seem to share."
    ),
    figure="The nats that each pair of latents shares: strong cells are latents that say the same.",
    takes=("codes", "together=together"),
    needs=("two latents",),
    maps="places",
)

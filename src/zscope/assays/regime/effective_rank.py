"""Effective rank: over how many directions is the variance of the codes spread?

With s_k the singular values of the covariance of the codes and p_k = s_k / sum s,

    erank = exp( - sum_k p_k log p_k ),        1 <= erank <= latents

erank = k when k directions share the variance equally and the rest have none. Unchanged by
rotating, shifting or uniformly scaling the codes. In a VAE with passive latents, the
effective rank of the means is about the number of the other latents; that of samples, in
which passive latents are noise of variance 1, is full.

`of="data"` uses the singular values of the centred codes themselves, as in the original
definition of the rank of a matrix: small directions get more weight.

Of latents that are maps, rows are places and columns are channels; the places of a picture stay
`together` in intervals.

Roy & Vetterli, EUSIPCO 2007; Bonheme 2023, section 6.4.2.3 (its published code uses the
covariance).
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.halves import Interval, halves_interval
from zscope.assays.matrices import Array, as_rows, centre, unit_scale
from zscope.errors import Undefined
from zscope.results import Scored
from zscope.types import Matrix, Spectrum

__all__ = ["EffectiveRank", "effective_rank", "matrix_rank", "spectral_rank"]


@dataclass(frozen=True, eq=False)
class EffectiveRank(Scored):
    why_no_chance = "it counts directions, and codes of pure noise fill all of them"

    score: float
    spectrum: Spectrum  # largest first
    latents: int
    samples: int
    interval: Interval | None
    no_interval: str  # the reason, if there is no interval

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        return bars(self.spectrum, x="principal direction", y="singular value", ax=ax)


@accepts_recording
def effective_rank(
    codes: Array,
    *,
    of: Literal["covariance", "data"] = "covariance",
    together: int = 1,
    resamples: int = 0,
    generator: Generator | None = None,
) -> EffectiveRank:
    """Effective rank of the codes (means, or sampled); `resamples` halves give an interval.

    So many consecutive rows belong `together`: the places of a picture.
    """
    rows = as_rows(codes, "effective_rank", least=2)
    centred = centre(rows)
    scaled = unit_scale(centred)
    values = torch.linalg.svdvals(scaled)
    if float(values[0]) == 0:
        raise Undefined(
            f"effective_rank: all {len(rows)} codes are identical, so there is no variance to "
            "distribute. Has the posterior collapsed? See: zscope assay RUN variable-types"
        )
    spectrum = values.square() / len(rows) if of == "covariance" else values
    unit = float(centred.abs().max() / scaled.abs().max())

    def rank_of_half(half: Matrix) -> float:
        values = torch.linalg.svdvals(half - half.mean(0))
        return spectral_rank(values.square() if of == "covariance" else values)

    score = spectral_rank(spectrum)
    interval, no_interval = halves_interval(
        rank_of_half, scaled, score, resamples, generator, "effective_rank", together
    )
    return EffectiveRank(
        score=score,
        interval=interval,
        no_interval=no_interval,
        spectrum=spectrum * (unit**2 if of == "covariance" else unit),
        latents=rows.shape[1],
        samples=len(rows),
    )


def spectral_rank(spectrum: Spectrum) -> float:
    """exp of the entropy of the singular values, normalised to sum to 1."""
    share = spectrum.double() / spectrum.double().sum()
    return float(torch.special.entr(share).sum().exp())


def matrix_rank(matrix: Matrix) -> float:
    """Effective rank of a matrix as it is, such as a known covariance."""
    return spectral_rank(torch.linalg.svdvals(matrix.double()))


ENTRY = Entry(
    question="Over how many directions is the variance of the codes spread?",
    meaning=(
        "Over how many directions the variance of the codes is spread: as many as there are "
        "latents if all vary equally and independently, 1 if the codes lie on a line."
    ),
    figure=(
        "The singular values of the codes, largest first: where the bars fall to 0, further "
        "directions are unused."
    ),
    takes=("codes", "together=together"),
    maps="places",
)

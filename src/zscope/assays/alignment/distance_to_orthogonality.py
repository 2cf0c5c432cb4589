"""Distance to orthogonality (DtO): does the decoder stretch space along its latent axes?

With J the decoder's Jacobian at a code and J = U S V^T, the columns of V are the directions
in latent space that the decoder stretches most, second most, … If they are the axes, V is a
signed permutation:

    DtO = mean over codes of | V - P(V) |_F,      P(V) the nearest signed permutation

0 when every direction of V is an axis; at most sqrt(2d). `chance` is what a random V gets
(0.548 for 2 active latents, 2.85 for 10): compare only models with the same number of
active latents, or use `relative` = distance / chance. Unchanged by permuting or flipping
latents and by shifting, scaling or rotating the decoded observations; changed by rotating
the latents.

The source finds P by a mixed-integer program in the entrywise L1 norm. That program is a
linear assignment: choosing entry (i, π(i)) with its sign changes the L1 distance by
1 - 2|V_i,π(i)|, and the squared Frobenius distance by the same, so both are smallest where
S = sum_i |V_i,π(i)| is largest, and |V - P|_F = sqrt(2d - 2S).

Only active latents count (`active.py`). Where two singular values are (nearly) equal, any
rotation of their directions fits equally well and V is arbitrary: codes with a relative gap
min_k (s_k - s_k+1) / s_1 below 0.001 are counted in `degenerate` and flagged. The alignment
gap, which does not have this problem, is reported too.

Zietlow, PhD thesis, Tübingen 2022, eq. 3.25-3.29; Rolinek, Zietlow & Martius, "Variational
autoencoders pursue PCA directions (by accident)", CVPR 2019. The assignment is ours.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.active import (
    AtPlace,
    Columns,
    Place,
    Rule,
    Singles,
    check_two_active,
    choose_columns,
    standard_error,
)
from zscope.assays.alignment.column_product import log_column_ratio
from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded
from zscope.assays.entry import Entry
from zscope.assays.halves import FEWEST, half_means
from zscope.assays.jacobian import (
    Likelihood,
    Linearised,
    Method,
    PerSample,
    Spectra,
    Squares,
    metric_of,
)
from zscope.autoencoder import Autoencoder
from zscope.errors import Undefined
from zscope.results import Scored
from zscope.types import as_tensor

__all__ = [
    "DistanceToOrthogonality", "chance", "distance_of", "distance_to_orthogonality",
    "nearest_signed_permutation", "random_orthogonal", "relative_gaps",
]  # fmt: skip

DEGENERATE = 1e-3
DRAWN_BYTES = 16 * 2**20
"""Of orthogonal matrices that are drawn at once."""


@dataclass(frozen=True, eq=False)
class DistanceToOrthogonality(AtPlace, Scored):
    """The mean distance, that of each code, and the singular vectors behind it."""

    distance: float
    standard_error: float | None  # None for a single code
    samples: int  # codes
    chance: float  # mean for a uniformly random V of this size
    active: list[int]
    passive: list[int]
    alignment_gap: float  # 0 when the columns of J are orthogonal, whatever V is
    degenerate: int  # codes where singular values are (nearly) equal
    metric: str  # of the columns: pixels or Fisher information
    method: str
    per_sample: PerSample
    gaps: PerSample  # relative distance of the two closest singular values
    spectra: Spectra  # singular values of each J, largest first
    directions: Squares  # V: rows are active latents, columns follow the spectrum
    flags: list[str]

    why_no_interval = "there is only one code"
    score_fields = ("distance",)
    needs_equal_sizes = True

    def on_halves(self) -> dict[str, list[float]]:
        return {"": half_means(self.per_sample)} if self.samples >= FEWEST else {}

    @property
    def score(self) -> float:
        return self.distance

    @property
    def relative(self) -> float:
        """The distance in units of chance: 0 aligned, 1 random."""
        return self.distance / self.chance

    @property
    def overlap(self) -> Float[Tensor, "latents directions"]:
        """Mean squared share of each active latent in each singular direction."""
        return self.directions.square().mean(0)

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        return heatmap(
            self.overlap,
            rows=[str(j) for j in self.active],
            columns=[str(k + 1) for k in range(len(self.active))],
            x="singular direction",
            y="latent",
            title=f"DtO = {self.distance:.2f} ({self.metric}; chance {self.chance:.2f})",
            ax=ax,
        )


@accepts_recording
def distance_to_orthogonality(
    autoencoder: Autoencoder,
    codes: Recorded,
    *,
    active: Rule = "used",
    place: Place = None,
    latents: Singles = None,
    samples: int = 256,
    likelihood: Likelihood = "gaussian",
    method: Method = "auto",
    generator: Generator | None = None,
) -> DistanceToOrthogonality:
    """DtO, averaged over at most `samples` of the codes (of a posterior, its means).

    `active` selects the latents: by default those in use (`zscope.usage`). Latents that are maps
    are measured at a place, by default another one for each picture, and `active` selects
    channels; `latents` lists single ones instead.
    `likelihood="bernoulli"` weights each pixel by the cost of an error in it (the source does
    not). Raises `Undefined` for fewer than two active latents.
    """
    who = "distance_to_orthogonality"
    columns = choose_columns(
        who,
        autoencoder,
        codes,
        active=active,
        place=place,
        latents=latents,
        samples=samples,
        generator=generator,
    )
    check_two_active(who, columns)
    local = columns.linearise(likelihood=likelihood, method=method)
    distances = distance_of(local.directions)
    gaps = relative_gaps(local.spectra)
    degenerate = int((gaps < DEGENERATE).sum())
    result = DistanceToOrthogonality(
        distance=float(distances.mean()),
        standard_error=standard_error(distances),
        samples=len(distances),
        chance=chance(len(columns.active)),
        active=columns.active,
        passive=columns.passive,
        alignment_gap=float(log_column_ratio(local.triangle, local.precision).mean()),
        degenerate=degenerate,
        metric=metric_of(likelihood),
        method=local.method,
        per_sample=distances,
        gaps=gaps,
        spectra=local.spectra,
        directions=local.directions,
        flags=[*local.flags, *_warnings(local, columns, degenerate)],
        place=columns.place,
    )
    return columns.name(result)


def _warnings(local: Linearised, columns: Columns, degenerate: int) -> list[str]:
    flags = []
    count = len(local.triangle)
    if degenerate:
        flags.append(
            f"At {degenerate} of {count} codes two singular values are equal within "
            f"{DEGENERATE:g}: there V is arbitrary and the distance has no meaning. Use the "
            "alignment gap, or average over seeds."
        )
    flat = (local.lengths <= local.precision * local.spectra[:, :1]).all(0)
    ignored = [j for j, is_flat in zip(columns.active, flat.tolist(), strict=True) if is_flat]
    if ignored:
        flags.append(
            f"The decoder ignores {columns.unit}s {', '.join(map(str, ignored))}, which the rule "
            "counts as active; each is a singular direction of its own and lowers the distance."
        )
    return flags


def nearest_signed_permutation(V: Squares | np.ndarray) -> Squares:
    """The signed permutation nearest to each V, in entrywise L1 and in the Frobenius norm."""
    from scipy.optimize import linear_sum_assignment

    V = as_tensor(V, "nearest_signed_permutation")
    if V.ndim != 3 or V.shape[1] != V.shape[2] or not V.is_floating_point():
        raise Undefined(
            f"nearest_signed_permutation: got shape {tuple(V.shape)} and type {V.dtype}; expected "
            "floats, matrices x rows x as many columns. For one matrix: V[None]"
        )
    if not V.isfinite().all():
        raise Undefined(
            f"nearest_signed_permutation: {int((~V.isfinite()).sum())} of {V.numel()} entries are "
            "NaN or infinite. Are the derivatives of the decoder finite?"
        )
    nearest = torch.zeros_like(V)
    for permutation, matrix in zip(nearest, V, strict=True):
        rows, columns = linear_sum_assignment(-matrix.abs().numpy())
        negative = matrix[rows, columns] < 0
        permutation[rows, columns] = torch.where(negative, -1.0, 1.0).to(V)
    return nearest


def distance_of(V: Squares) -> PerSample:
    """|V - P(V)|_F for orthogonal matrices."""
    V = V.double().cpu()
    overlap = (nearest_signed_permutation(V) * V).sum((1, 2))
    return (2 * V.shape[1] - 2 * overlap).clamp(min=0).sqrt()


def relative_gaps(spectra: Spectra) -> PerSample:
    """min_k (s_k - s_k+1) / s_1; 0 where all singular values are 0."""
    differences = (spectra[:, :-1] - spectra[:, 1:]).amin(1)
    return torch.where(spectra[:, 0] > 0, differences / spectra[:, 0], 0.0)


@cache
def chance(latents: int) -> float:
    """The mean distance of a uniformly random orthogonal matrix (Haar measure).

    For two latents exactly (16 sqrt(2) / π)(1 - cos π/8) = 0.5483; for more latents the mean
    of seeded draws, with a standard error of at most 0.005.
    """
    if latents == 2:
        return 16 * math.sqrt(2) / math.pi * (1 - math.cos(math.pi / 8))
    draws = max(40, min(4000, 4_000_000 // latents**2))  # more latents vary less
    parts = random_orthogonal(draws, latents, seed=latents)
    return float(torch.cat([distance_of(part) for part in parts]).mean())


def random_orthogonal(count: int, latents: int, *, seed: int = 0) -> Iterator[Squares]:
    """Orthogonal matrices drawn from the Haar measure, a few megabytes at a time.

    All directions are equally likely.
    """
    generator = torch.Generator().manual_seed(seed)
    # A multiple of 16 numbers, so that the draws are those that would be made at once.
    least = 16 // math.gcd(16, latents**2)
    size = least * max(1, DRAWN_BYTES // (least * 8 * latents**2))
    for start in range(0, count, size):
        shape = min(size, count - start), latents, latents
        gaussian = torch.randn(shape, generator=generator, dtype=torch.float64)
        Q, R = torch.linalg.qr(gaussian)
        yield Q * R.diagonal(dim1=1, dim2=2).sign()[:, None]


ENTRY = Entry(
    question="Does the decoder stretch space along its latent axes?",
    meaning=(
        "0 if the directions that the decoder stretches most are the latent axes; compare it with "
        "chance, the value of axes that are rotated at random."
    ),
    figure=(
        "Which latent (row) each singular direction of the decoder (column) consists of: one "
        "strong cell in each column means that the axes are aligned."
    ),
    takes=("decoder", "recording"),
    needs=("two latents",),
    passes="samples * latents",
    most=4_000,
    better="lower",
    maps="place",
)

"""Distance to orthogonality (DtO): does the decoder stretch space along its latent axes?

With J the decoder's Jacobian at a code and J = U S V^T, the columns of V are the steps in
latent space that the decoder stretches most, second most, … If they are the axes, V is a
signed permutation:

    DtO = mean over codes of | V - P(V) |_F,      P(V) the nearest signed permutation

0 when every direction of V is an axis; at most sqrt(2d). `chance` is what a random V gets
(0.548 for 2 active latents, 2.85 for 10): compare only models with equally many active
latents, or look at `relative` = distance / chance. Unchanged by permuting or flipping
latents, by shifting, scaling or rotating what is decoded; changed by rotating the latents.

The source finds P by a mixed-integer program in the entrywise L1 norm. That program is a
linear assignment: choosing entry (i, π(i)) with its sign changes the L1 distance by
1 - 2|V_i,π(i)|, and the squared Frobenius distance by the same, so both are least where
S = sum_i |V_i,π(i)| is largest, and |V - P|_F = sqrt(2d - 2S).

Only active latents count (`active.py`). Where two singular values are (nearly) equal, any
rotation of their directions is as good and V says nothing: codes with a relative gap
min_k (s_k - s_k+1) / s_1 below 0.001 are counted in `degenerate` and flagged. The alignment
gap, which does not suffer from this, stands beside the distance.

Zietlow, PhD thesis, Tübingen 2022, eq. 3.25-3.29; Rolinek, Zietlow & Martius, "Variational
autoencoders pursue PCA directions (by accident)", CVPR 2019. The assignment is ours.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.active import (
    Rule,
    active_latents,
    at_least_two,
    codes_of,
    some_rows,
    standard_error,
)
from zscope.assays.alignment.column_product import log_column_ratio
from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.jacobian import (
    Linearised,
    PerSample,
    Spectra,
    Squares,
    linearise,
)
from zscope.autoencoder import Autoencoder, Posterior
from zscope.results import Scored

DEGENERATE = 1e-3


@dataclass(frozen=True, eq=False)
class DistanceToOrthogonality(Scored):
    """The mean distance, that of each code, and the singular vectors behind it."""

    distance: float
    standard_error: float | None  # None for a single code
    samples: int  # codes
    chance: float  # mean for a uniformly random V of this size
    active: list[int]
    passive: list[int]
    alignment_gap: float  # 0 when the columns of J are orthogonal, whatever V is
    degenerate: int  # codes where singular values are (nearly) equal
    method: str
    per_sample: PerSample
    gaps: PerSample  # relative distance of the two closest singular values
    spectra: Spectra  # singular values of each J, largest first
    directions: Squares  # V: rows are active latents, columns follow the spectrum
    flags: list[str]

    why_no_interval = "there is only one code"
    score_fields = ("distance",)

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
            title=f"DtO = {self.distance:.2f} (chance {self.chance:.2f}): share of each latent",
            ax=ax,
        )


@accepts_recording
def distance_to_orthogonality(
    autoencoder: Autoencoder,
    codes: Posterior | Tensor,
    *,
    active: Rule | None = None,
    samples: int = 256,
    likelihood: str = "gaussian",
    method: str = "auto",
    generator: Generator | None = None,
) -> DistanceToOrthogonality:
    """DtO at (at most `samples` of) the codes, or the means of a posterior.

    `active` chooses the latents: by default those whose codes spread by more than 0.5, or
    all where the model has no prior. `likelihood="bernoulli"` weighs each pixel by what it
    costs to get it wrong (the source does not). Raises `Undefined` for fewer than two
    active latents.
    """
    who = "distance_to_orthogonality"
    chosen = active_latents(who, autoencoder, codes, active)
    means = codes_of(codes, who)
    at_least_two(who, chosen, means.shape[1])
    rows = some_rows(len(means), samples, generator, who).to(means.device)
    local = linearise(
        autoencoder,
        means[rows],
        latents=chosen,
        likelihood=likelihood,
        method=method,
    )
    distances = distance_of(local.directions)
    gaps = relative_gaps(local.spectra)
    degenerate = int((gaps < DEGENERATE).sum())
    return DistanceToOrthogonality(
        distance=float(distances.mean()),
        standard_error=standard_error(distances),
        samples=len(distances),
        chance=chance(len(chosen)),
        active=chosen,
        passive=[j for j in range(means.shape[1]) if j not in chosen],
        alignment_gap=float(log_column_ratio(local.triangle, local.precision).mean()),
        degenerate=degenerate,
        method=local.method,
        per_sample=distances,
        gaps=gaps,
        spectra=local.spectra,
        directions=local.directions,
        flags=[*local.flags, *_warnings(local, degenerate)],
    )


def _warnings(local: Linearised, degenerate: int) -> list[str]:
    flags = []
    count = len(local.triangle)
    if degenerate:
        flags.append(
            f"At {degenerate} of {count} codes two singular values are equal within "
            f"{DEGENERATE:g}: there V is arbitrary and the distance says nothing. Look at the "
            "alignment gap, or average over seeds."
        )
    still = (local.lengths <= local.precision * local.spectra[:, :1]).all(0)
    silent = [j for j, flat in zip(local.latents, still.tolist(), strict=True) if flat]
    if silent:
        flags.append(
            f"The decoder ignores latents {', '.join(map(str, silent))}, which the rule counts as "
            "active; each is a singular direction of its own and lowers the distance."
        )
    return flags


def nearest_signed_permutation(V: Squares) -> Squares:
    """The signed permutation nearest to each V, in entrywise L1 and in the Frobenius norm."""
    from scipy.optimize import linear_sum_assignment

    nearest = torch.zeros_like(V)
    for found, matrix in zip(nearest, V, strict=True):
        rows, columns = linear_sum_assignment(-matrix.abs().numpy())
        picked = matrix[rows, columns]
        found[rows, columns] = torch.where(picked < 0, -1.0, 1.0).to(V)
    return nearest


def distance_of(V: Squares) -> PerSample:
    """|V - P(V)|_F for orthogonal matrices."""
    V = V.double().cpu()
    picked = (nearest_signed_permutation(V) * V).sum((1, 2))
    return (2 * V.shape[1] - 2 * picked).clamp(min=0).sqrt()


def relative_gaps(spectra: Spectra) -> PerSample:
    """min_k (s_k - s_k+1) / s_1, 0 where the decoder does not move at all."""
    differences = (spectra[:, :-1] - spectra[:, 1:]).amin(1)
    return torch.where(spectra[:, 0] > 0, differences / spectra[:, 0], 0.0)


@cache
def chance(latents: int) -> float:
    """The mean distance of a uniformly random orthogonal matrix (Haar measure).

    For two latents exactly (16 sqrt(2) / π)(1 - cos π/8) = 0.5483; for more the mean of
    seeded draws, with a standard error of 0.005 or less.
    """
    if latents == 2:
        return 16 * math.sqrt(2) / math.pi * (1 - math.cos(math.pi / 8))
    draws = max(100, min(4000, 80_000 // latents))
    return float(distance_of(random_orthogonal(draws, latents, seed=latents)).mean())


def random_orthogonal(count: int, latents: int, *, seed: int = 0) -> Squares:
    """Matrices drawn from the Haar measure: no direction is likelier than another."""
    generator = torch.Generator().manual_seed(seed)
    gaussian = torch.randn(count, latents, latents, generator=generator, dtype=torch.float64)
    Q, R = torch.linalg.qr(gaussian)
    rotations: Tensor = Q * R.diagonal(dim1=1, dim2=2).sign()[:, None]
    return rotations


ENTRY = Entry(
    question="Does the decoder stretch space along its latent axes?",
    takes=("autoencoder", "posterior"),
    needs=("two latents",),
    passes="samples * latents",
    most=4_000,
)

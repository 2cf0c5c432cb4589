"""Intrinsic dimension: how many numbers would it take to say where a sample lies?

With T_j the distance from a sample to its j-th nearest neighbour,

    mle     d_i = [ 1/(k-2) sum_{j<k} log(T_k / T_j) ]^-1,  averaged over the samples
    twonn   d   = slope through the origin of -log(1 - F) against log(T_2 / T_1), over the
                  lowest 90 % of the ratios in ascending order, F = 0/N, 1/N, 2/N, …

Both are unchanged by rotating, shifting or uniformly scaling the samples, and positive.
They fall short of the truth from about ten dimensions on, for want of samples: with 5,000
Gaussian samples a true 20 reads 16. TwoNN reads too high with outliers; where the two
disagree, trust mle, and trust it more where its value hardly depends on k (`curve`).

The forms in use, all available: `normaliser="k-1"` (the likelihood's own maximum, 7 % too
high at k = 20) or "k-2" (without that bias); `average="arithmetic"` (Levina & Bickel) or
"harmonic" (MacKay & Ghahramani, and scikit-dimension, which also takes k-1); for TwoNN
`first_rank=1` starts F at 1/N (Facco's text, and scikit-dimension from 0.5). Any estimator
of scikit-dimension can be named as the method (lPCA, CorrInt, GRIDE, …) if it is installed.

Equal samples count once: see `nearest_neighbours`. All samples are asked, not a random
share of them as in some published tables.

Levina & Bickel, NIPS 2004, equation 8; MacKay & Ghahramani, "Comments on 'Maximum
likelihood estimation of intrinsic dimension'", 2005; Facco et al., Scientific Reports 7,
2017; Bonheme 2023, equations 8.2 to 8.6.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.assays.neighbours import Neighbours, nearest_neighbours
from zscope.errors import MissingExtra, Undefined, did_you_mean
from zscope.results import Scored

PerSample = Float[Tensor, " samples"]
Normaliser = Literal["k-1", "k-2"]
SCIKIT_DIMENSION = {
    name.lower(): name
    for name in ("CorrInt", "DANCo", "ESS", "FisherS", "GRIDE", "KNN", "lPCA", "MADA",
                 "MiND_ML", "MOM", "PH", "TLE")
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class IntrinsicDimension(Scored):
    """An estimate with its standard error (None where the method gives none)."""

    dimension: float
    standard_error: float | None
    method: str
    neighbours: int
    samples: int  # distinct ones
    duplicates: int
    columns: int
    local: PerSample | None  # mle: the estimate at each sample; infinite where all T are equal
    curve: dict[int, float]  # mle: the value at each number of neighbours

    why_no_interval = "this method gives no standard error"
    why_no_chance = "it counts dimensions, and codes of pure noise fill all latents"
    score_fields = ("dimension",)

    @property
    def score(self) -> float:
        return self.dimension

    @property
    def interval(self) -> tuple[float, float] | None:
        """About 95 %, from sampling alone: the bias in high dimension is not included."""
        if self.standard_error is None:
            return None
        reach = 1.96 * self.standard_error
        return self.dimension - reach, self.dimension + reach

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        if not self.curve:
            return super().plot(ax)
        return lines(
            {self.method: list(self.curve.values())},
            at=list(self.curve),
            x="neighbours",
            y="intrinsic dimension",
            ax=ax,
        )


@accepts_recording
def intrinsic_dimension(
    codes: Array | Neighbours,
    *,
    method: str = "mle",
    neighbours: int = 20,
    normaliser: Normaliser = "k-2",
    average: Literal["arithmetic", "harmonic"] = "arithmetic",
    discard: float = 0.1,
    first_rank: Literal[0, 1] = 0,
) -> IntrinsicDimension:
    """The dimension of samples x columns, or of neighbours already found.

    To have several methods for one distance pass, find the neighbours first:

        near = zs.assays.nearest_neighbours(codes, 20)
        zs.assays.intrinsic_dimension(near), zs.assays.intrinsic_dimension(near, method="twonn")
    """
    if method not in ("mle", "twonn") and method.lower() not in SCIKIT_DIMENSION:
        raise Undefined(
            f"intrinsic_dimension: no method is called {method!r}. "
            + did_you_mean(method, {"mle", "twonn", *SCIKIT_DIMENSION})
        )
    wanted = neighbours if method == "mle" else 2
    if method == "mle" and neighbours < 3:
        raise Undefined(
            f"intrinsic_dimension: neighbours={neighbours}; the maximum likelihood estimate "
            "compares distances within a neighbourhood and needs at least 3 (20 is usual)."
        )
    near = codes if isinstance(codes, Neighbours) else nearest_neighbours(codes, wanted)
    if near.count < wanted:
        raise Undefined(
            f"intrinsic_dimension: {wanted} neighbours are needed, and only {near.count} were "
            f"found before. Call nearest_neighbours(codes, {wanted})."
        )
    if method == "mle":
        return _likelihood(near, neighbours, normaliser, average)
    if method == "twonn":
        return _two_neighbours(near, discard, first_rank)
    return _scikit_dimension(near, method)


def local_dimensions(
    distances: Float[Tensor, "samples neighbours"], *, normaliser: Normaliser = "k-2"
) -> PerSample:
    """The estimate at each sample from the distances to its neighbours, nearest first.

    Infinite where all distances are equal.
    """
    logs = distances.double().log()
    k = logs.shape[1]
    divisor = k - 1 if normaliser == "k-1" else k - 2
    return divisor / (logs[:, -1:] - logs[:, :-1]).sum(1)


def _likelihood(
    near: Neighbours, k: int, normaliser: Normaliser, average: str
) -> IntrinsicDimension:
    curve = {}
    for size in range(3, k + 1):
        local = local_dimensions(near.distances[:, :size], normaliser=normaliser)
        if local.isfinite().any():
            curve[size] = _averaged(local, average)[0]
    # `local` is that of the last size, k itself.
    if not local.isfinite().any():
        raise Undefined(
            f"intrinsic_dimension: every one of the {len(near)} samples is equally far from its "
            f"{k} neighbours, as on a regular grid, so distances say nothing about dimension. "
            "Use more neighbours, or samples that are not on a grid."
        )
    dimension, error = _averaged(local, average)
    return IntrinsicDimension(
        dimension=dimension,
        standard_error=error,
        method="mle",
        neighbours=k,
        samples=len(near),
        duplicates=near.duplicates,
        columns=near.values.shape[1],
        local=local,
        curve=curve,
    )


def _averaged(local: Tensor, average: str) -> tuple[float, float]:
    """Mean and standard error over the samples.

    Neighbourhoods overlap, yet the plain standard error of the mean agrees with the
    spread over repeated draws to within a fifth (tests/assays/dimension).
    """
    finite = local[local.isfinite()]
    if average == "harmonic":
        inverse = 1 / local  # a tie counts as 0, as in the pooled likelihood
        value = 1 / inverse.mean()
        spread = inverse.std(correction=0) * value.square()
    else:
        value, spread = finite.mean(), finite.std(correction=0)
    return float(value), float(spread) / len(local) ** 0.5


def _two_neighbours(near: Neighbours, discard: float, first_rank: int) -> IntrinsicDimension:
    if not 0 <= discard < 1:
        raise Undefined(
            f"intrinsic_dimension: discard={discard} of the ratios; a share from 0 to below 1 is "
            "needed (0.1 is usual)."
        )
    dimension = twonn_slope(
        near.distances[:, 1] / near.distances[:, 0], discard=discard, first_rank=first_rank
    )
    return IntrinsicDimension(
        dimension=dimension,
        # The likelihood's own error is d / sqrt(N); the slope has 1.2 times that, measured
        # over repeated draws in 2 to 10 dimensions (tests/assays/dimension).
        standard_error=1.2 * dimension / len(near) ** 0.5,
        method="twonn",
        neighbours=2,
        samples=len(near),
        duplicates=near.duplicates,
        columns=near.values.shape[1],
        local=None,
        curve={},
    )


def twonn_slope(ratios: PerSample, *, discard: float = 0.1, first_rank: int = 0) -> float:
    """The dimension from the ratios T_2 / T_1 alone."""
    n = len(ratios)
    keep = int(n * (1 - discard))
    x = ratios.double().sort().values[:keep].log()
    rank = torch.arange(first_rank, keep + first_rank, dtype=torch.float64, device=x.device)
    share = rank / n
    inside = share < 1  # with discard=0 the last rank of 1 would be log 0
    x, y = x[inside], -torch.log1p(-share[inside])
    if float(x @ x) == 0:
        raise Undefined(
            f"intrinsic_dimension: the first and second neighbours of all {keep} samples are "
            "equally far, as on a regular grid, so their ratio says nothing. Use method='mle'."
        )
    return float((x @ y) / (x @ x))


def _scikit_dimension(near: Neighbours, method: str) -> IntrinsicDimension:
    name = SCIKIT_DIMENSION[method.lower()]
    try:
        from skdim import id as estimators
    except ImportError:
        raise MissingExtra("intrinsic_dimension", "scikit-dimension", "dimension") from None
    values = near.values.double().cpu().numpy()
    try:
        with np.errstate(all="ignore"):  # it divides by eigenvalues of 0 and means it
            dimension = float(getattr(estimators, name)().fit(values).dimension_)
    except Exception as reason:
        raise Undefined(
            f"intrinsic_dimension: {name} of scikit-dimension stopped on {len(near)} samples of "
            f"{values.shape[1]} numbers: {reason}. Samples too few or too regular do that. Use "
            "more samples, or method='mle'."
        ) from reason
    if not np.isfinite(dimension):
        raise Undefined(
            f"intrinsic_dimension: {name} of scikit-dimension gives {dimension} for {len(near)} "
            f"samples of {values.shape[1]} numbers. Samples too few or too regular do that. Use "
            "more samples, or method='mle'."
        )
    return IntrinsicDimension(
        dimension=dimension,
        standard_error=None,
        method=name,
        neighbours=0,  # the method's own default
        samples=len(near),
        duplicates=near.duplicates,
        columns=near.values.shape[1],
        local=None,
        curve={},
    )


ENTRY = Entry(
    question="How many numbers would it take to describe where a code lies?",
    takes=("codes",),
)

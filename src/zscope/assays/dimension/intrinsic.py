"""Intrinsic dimension: how many numbers would it take to describe where a code lies?

With T_j the distance from a sample to its j-th nearest neighbour,

    mle     d_i = [ 1/(k-2) sum_{j<k} log(T_k / T_j) ]^-1,  averaged over the samples
    twonn   d   = slope through the origin of -log(1 - F) against log(T_2 / T_1), over the
                  lowest 90 % of the ratios in ascending order, F = 0/N, 1/N, 2/N, …

Both are unchanged by rotating, shifting or uniformly scaling the samples, and positive.
They are too low above about ten dimensions, because the samples do not suffice: for 5,000
Gaussian samples in 20 dimensions the estimate is 16. TwoNN is too high with outliers; if the
two disagree, trust mle, the more so if its value hardly depends on k (`curve`).

All common variants are available: `normaliser="k-1"` (the maximum of the likelihood, 7 % too
high at k = 20) or "k-2" (without that bias); `average="arithmetic"` (Levina & Bickel) or
"harmonic" (MacKay & Ghahramani, and scikit-dimension, which also uses k-1); for TwoNN
`first_rank=1` starts F at 1/N (the text of Facco et al., and scikit-dimension since 0.5). Any
estimator of scikit-dimension can be the method (lPCA, CorrInt, GRIDE, …) if it is installed.

Equal samples count once: see `nearest_neighbours`. Up to 10,000 samples all are used, not a
random subset as in some published tables. Of more, so many are drawn at random, and their
neighbours looked for among all: the estimate is that of all samples, as the neighbours are as near
as they are, with the error of 10,000. Comparing all pairs would take time that grows with the
square of the samples. (Methods of scikit-dimension get the 10,000 alone.) The result says so.

Levina & Bickel, NIPS 2004, equation 8; MacKay & Ghahramani, "Comments on 'Maximum
likelihood estimation of intrinsic dimension'", 2005; Facco et al., Scientific Reports 7,
2017; Bonheme 2023, equations 8.2 to 8.6.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.halves import size_flag
from zscope.assays.matrices import Array
from zscope.assays.neighbours import Neighbours, nearest_neighbours
from zscope.errors import ConfigError, MissingExtra, Undefined, did_you_mean
from zscope.results import Scored
from zscope.sampling import whole

__all__ = ["IntrinsicDimension", "intrinsic_dimension"]

PerSample = Float[Tensor, " samples"]
Normaliser = Literal["k-1", "k-2"]
SAMPLES = 10_000
"""Samples at which the dimension is measured."""
SCIKIT_DIMENSION = {
    name.lower(): name
    for name in ("CorrInt", "DANCo", "ESS", "FisherS", "GRIDE", "KNN", "lPCA", "MADA",
                 "MiND_ML", "MOM", "PH", "TLE")
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class IntrinsicDimension(Scored):
    """An estimate with its standard error (None if the method gives none)."""

    dimension: float
    standard_error: float | None
    method: str
    neighbours: int
    samples: int  # distinct ones, at which the dimension was measured
    duplicates: int
    columns: int
    local: PerSample | None  # mle: the estimate at each sample; infinite where all T are equal
    curve: dict[int, float]  # mle: the value at each number of neighbours
    of: str = "codes"
    all_samples: int = 0  # distinct ones, including those at which it was not measured

    why_no_interval = "this method gives no standard error"
    why_no_chance = "it counts dimensions, and codes of pure noise fill all latents"
    score_fields = ("dimension",)

    @property
    def score(self) -> float:
        return self.dimension

    def to_dict(self) -> dict[str, Any]:
        """Without the number of all samples, where these are all."""
        values = super().to_dict()
        if self.all_samples <= self.samples:
            del values["all_samples"]
        return values

    def summary(self) -> list[tuple[str, str]]:
        """Likewise."""
        few = self.all_samples > self.samples
        return [line for line in super().summary() if few or line[0] != "all samples"]

    @property
    def flags(self) -> list[str]:
        flags = []
        if self.method == "mle":
            reason = "neighbours of few samples are far, which biases it"
            flags.append(size_flag(self.all_samples or self.samples, reason))
        if self.all_samples > self.samples:
            alone = self.method not in ("mle", "twonn")
            rest = "the others were left out" if alone else "their neighbours are those among all"
            given = f"{self.samples:,} of {self.all_samples:,} samples"
            flags.append(f"Measured at {given}, drawn at random; {rest}.")
        return flags

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % for the mean estimate of so many samples: its bias is not included (flagged)."""
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
    of: Literal["codes", "observations"] = "codes",
    observations: Array | Callable[[], Array] | None = None,
    method: str = "mle",
    neighbours: int = 20,
    normaliser: Normaliser = "k-2",
    average: Literal["arithmetic", "harmonic"] = "arithmetic",
    discard: float = 0.1,
    first_rank: Literal[0, 1] = 0,
    samples: int = SAMPLES,
    generator: Generator | None = None,
) -> IntrinsicDimension:
    """The dimension of samples x columns, or from the result of `nearest_neighbours`.

    `of="observations"` measures the observations of a recording, flattened, instead of the codes
    that a model made of them: where a search for the number of latents begins. It is measured at
    `samples` samples at most.

    To compute the distances only once for several methods, find the neighbours first:

        near = zs.assays.nearest_neighbours(codes, 20)
        zs.assays.intrinsic_dimension(near), zs.assays.intrinsic_dimension(near, method="twonn")
    """
    if method not in ("mle", "twonn") and method.lower() not in SCIKIT_DIMENSION:
        raise ConfigError(
            f"intrinsic_dimension: no method is called {method!r}. "
            + did_you_mean(method, {"mle", "twonn", *SCIKIT_DIMENSION})
        )
    if of == "observations":
        observed = observations() if callable(observations) else observations
        if observed is None:
            raise Undefined(
                "intrinsic_dimension: of='observations', but only codes were given. Give a "
                "recording of a model on data, or the observations in place of the codes."
            )
        codes = observed
    near = _neighbours_of(codes, method, neighbours, samples, generator)
    if method == "mle":
        result = _likelihood(near, neighbours, normaliser, average)
    elif method == "twonn":
        result = _two_neighbours(near, discard, first_rank)
    else:
        result = _scikit_dimension(near, method)
    result = replace(result, all_samples=near.among)
    return result if of == "codes" else replace(result, of=of)


def _neighbours_of(
    codes: Array | Neighbours,
    method: str,
    neighbours: int,
    samples: int,
    generator: Generator | None,
) -> Neighbours:
    required = neighbours if method == "mle" else 2
    if method == "mle" and neighbours < 3:
        raise ConfigError(
            f"intrinsic_dimension: neighbours={neighbours}; the maximum likelihood estimate "
            "compares distances within a neighbourhood and needs at least 3 (20 is usual)."
        )
    if not isinstance(codes, Neighbours):
        whole("intrinsic_dimension", 1, samples=samples)
        return nearest_neighbours(codes, required, most=samples, generator=generator)
    if codes.count < required:
        raise Undefined(
            f"intrinsic_dimension: expected {required} neighbours per sample, got {codes.count}. "
            f"Call nearest_neighbours(codes, {required})."
        )
    return codes


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
            curve[size] = _mean_and_error(local, average)[0]
    # `local` is now that of the last size, k.
    if not local.isfinite().any():
        raise Undefined(
            f"intrinsic_dimension: every one of the {len(near)} samples is equally far from its "
            f"{k} neighbours, as on a regular grid, so distances say nothing about dimension. "
            "Use more neighbours, or samples that are not on a grid."
        )
    dimension, error = _mean_and_error(local, average)
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


def _mean_and_error(local: Tensor, average: str) -> tuple[float, float]:
    """Mean and standard error over the samples.

    Neighbourhoods overlap, but the plain standard error of the mean agrees with the standard
    deviation over repeated draws to within a fifth (tests/assays/dimension).
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
        raise ConfigError(
            f"intrinsic_dimension: discard={discard}; expected a share of the ratios, from 0 to "
            "below 1 (0.1 is usual)."
        )
    dimension = twonn_slope(
        near.distances[:, 1] / near.distances[:, 0], discard=discard, first_rank=first_rank
    )
    return IntrinsicDimension(
        dimension=dimension,
        # The error of the maximum likelihood is d / sqrt(N); that of the slope is 1.2 times
        # as large, measured over repeated draws in 2 to 10 dimensions (tests/assays/dimension).
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
    inside = share < 1  # with discard=0 the last share is 1, whose logarithm is infinite
    x, y = x[inside], -torch.log1p(-share[inside])
    if float(x @ x) == 0:
        raise Undefined(
            f"intrinsic_dimension: the first and second neighbours of all {keep} samples are "
            "equally far, as on a regular grid, so their ratio says nothing about dimension. Use "
            "method='mle'."
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
        with np.errstate(all="ignore"):  # some estimators divide by eigenvalues of 0 on purpose
            dimension = float(getattr(estimators, name)().fit(values).dimension_)
    except Exception as reason:
        raise Undefined(
            f"intrinsic_dimension: {name} of scikit-dimension failed on {len(near)} samples of "
            f"{values.shape[1]} numbers: {reason}. There may be too few samples, or they are too "
            "regular. Use more samples, or method='mle'."
        ) from reason
    if not np.isfinite(dimension):
        raise Undefined(
            f"intrinsic_dimension: {name} of scikit-dimension gives {dimension} for {len(near)} "
            f"samples of {values.shape[1]} numbers. There may be too few samples, or they are too "
            "regular. Use more samples, or method='mle'."
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
    meaning=(
        "The number of dimensions in which the codes are spread locally, usually below the number "
        "of latents; estimates above about ten are too low."
    ),
    figure=(
        "The estimate against the number of neighbours it looks at: trust it where the curve is "
        "flat."
    ),
    takes=("codes", "observations=read_observations"),
    maps="flat",
)

"""Mutual information: how much does each latent tell about each factor, beyond chance?

Codes are binned, and their mutual information with a factor is computed from the table of
counts (the plug-in estimate, in nats),

    I(z; y) = H(z) + H(y) - H(z, y),       0 <= I <= min(H(z), H(y)).

On N rows this is biased upwards by about (bins - 1)(values - 1) / 2N, also for independent
variables. The mean over *all* permutations of the rows, I0, is known in closed form
from the two margins alone (the counts of a table are then hypergeometric):

    I0 = sum_ij sum_n P(n) (n / N) ln(N n / (a_i b_j)),   n ~ Hypergeometric(N, a_i, b_j)

(Vinh, Epps & Bailey, "Information theoretic measures for clusterings comparison", JMLR 11,
2010, the expected mutual information), so no permutation has to be drawn.
`excess` is I - I0, or 0 where that is negative. Its sampling variance is about

    2 (I - I0) / N + (bins - 1)(values - 1) / 2N^2,

that of a noncentral chi-square variable over 2N, which 2 N I tends to; for latents that
determine a factor this is an upper bound.

Quantile bins are unchanged by any increasing map of a latent; one far outlier moves at most
one row to another bin. Equal-width bins (`flavour="dlib"`) do not have this property.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

__all__ = [
    "BINS", "Information", "bins_for", "entropy", "expected_information", "information",
    "quantile_bins", "ratio", "width_bins",
]  # fmt: skip

BINS = 20
LEVEL = 0.01  # probability that any latent of a set of noise codes is classified as informative


def quantile_bins(values: np.ndarray, bins: int = BINS) -> np.ndarray:
    """The bin of each value, column by column: equal counts, equal values in the same bin.

    In a column with at most `bins` distinct values each value is a bin.
    """
    samples = len(values)
    result = np.empty(values.shape, dtype=np.int64, order="F")
    distinct = _bin_starts((bins * (np.arange(samples) + 0.5) / samples).astype(np.int64))
    for column, numbers in enumerate(np.ascontiguousarray(values.T)):
        ordered, (starts, places) = np.sort(numbers), distinct
        repeated = ordered[1:] == ordered[:-1]
        if samples <= bins or repeated.any():
            first = np.flatnonzero(np.append(True, ~repeated))
            ordered, place = ordered[first], np.arange(len(first))
            if len(first) > bins:  # equal values share their middle rank
                middle = first + np.diff(first, append=samples) / 2
                place = (bins * middle / samples).astype(np.int64)
            starts, places = _bin_starts(place)
        # Comparing with the smallest value of each bin is faster than sorting the rows.
        reached = numbers >= ordered[starts, None]
        result[:, column] = places[reached.sum(0, dtype=np.min_scalar_type(bins)) - 1]
    return result


def _bin_starts(place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the bins of ordered values change, and these bins."""
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    return starts, place[starts]


def width_bins(values: np.ndarray, bins: int = BINS) -> np.ndarray:
    """The equal-width bin of each value between the minimum and maximum of its column, from 0.

    The maximum is in the last bin, a constant column in the middle one.
    """
    result = np.empty(values.shape, dtype=np.int64, order="F")
    for column in range(values.shape[1]):
        low, high = values[:, column].min(), values[:, column].max()
        if low == high:
            low, high = low - 0.5, high + 0.5
        # np.histogram has the same edges, but fails if the range has fewer floats than bins.
        edges = np.linspace(low, high, bins + 1)
        result[:, column] = np.digitize(values[:, column], edges[:-1]) - 1
    return result


def bins_for(samples: int) -> int:
    """20, or fewer if a bin would have fewer than 10 rows."""
    return max(2, min(BINS, samples // 10))


@dataclass(frozen=True, eq=False)
class Information:
    """Mutual information of every latent with every factor (latents x factors), in nats."""

    plain: np.ndarray  # the plug-in estimate
    chance: np.ndarray  # its mean over all permutations of the rows
    threshold: np.ndarray  # exceeded by any latent of a set of noise codes in 1 % of cases
    code_entropy: np.ndarray
    factor_entropy: np.ndarray
    variance: np.ndarray  # of `plain` over samples of the same size, approximately

    @property
    def excess(self) -> np.ndarray:
        """Information above chance, at least 0."""
        excess: np.ndarray = np.maximum(self.plain - self.chance, 0)
        return excess

    @property
    def share(self) -> np.ndarray:
        """(I - I0) / (H(factor) - I0): 1 if the latent determines the factor, 0 at chance."""
        return ratio(self.excess, self.factor_entropy - self.chance)

    @property
    def informative(self) -> np.ndarray:
        """Which latents have more information about at least one factor than noise."""
        return np.asarray((self.plain > self.threshold).any(1))


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """numerator / denominator, and 0 where the denominator is 0."""
    safe = denominator > 1e-12
    return np.where(safe, numerator / np.where(safe, denominator, 1), 0)


def entropy(counts: np.ndarray) -> np.ndarray:
    """The plug-in entropy of counts along the last axis, in nats."""
    total = counts.sum(-1)
    logs = np.log(np.where(counts > 0, counts, 1))
    return np.asarray(np.log(total) - (counts * logs).sum(-1) / total)


def information(bins: np.ndarray, labels: np.ndarray, *, chance: bool = True) -> Information:
    """Information from the bins of the codes and the value indices of the factors.

    With `chance=False` the expectation under independence and the variance are not computed
    and are 0.
    """
    latents, factors = bins.shape[1], labels.shape[1]
    height = int(bins.max(initial=0)) + 1
    code_counts = np.stack([np.bincount(bins[:, j], minlength=height) for j in range(latents)])
    code_entropy = entropy(code_counts)
    margins = [counts.tobytes() for counts in np.sort(code_counts, 1)]
    shape = (latents, factors)
    plain, expected, threshold = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    variance = np.zeros(shape)
    factor_entropy = np.zeros(factors)
    cache: dict[tuple[bytes, int], float] = {}
    for k in range(factors):
        values = int(labels[:, k].max()) + 1
        label = np.ascontiguousarray(labels[:, k])
        tables = np.stack(
            [
                np.bincount(bins[:, j] * values + label, minlength=height * values)
                for j in range(latents)
            ]
        )
        factor_counts = np.bincount(label, minlength=values)
        factor_entropy[k] = entropy(factor_counts)
        estimate = code_entropy + factor_entropy[k] - entropy(tables)
        plain[:, k] = np.where(estimate > 1e-12, estimate, 0)
        if not chance:
            continue
        for j in range(latents):
            # Quantile bins of continuous codes all have the same counts.
            key = (margins[j], k)
            if key not in cache:
                cache[key] = expected_information(code_counts[j], factor_counts)
            expected[j, k] = cache[key]
        freedom = ((code_counts > 0).sum(1) - 1) * (np.count_nonzero(factor_counts) - 1)
        threshold[:, k] = expected[:, k] * _chi_square_ratio(LEVEL / plain.size, freedom)
        excess = np.maximum(plain[:, k] - expected[:, k], 0)
        variance[:, k] = 2 * excess / len(bins) + freedom / (2 * len(bins) ** 2)
    return Information(plain, expected, threshold, code_entropy, factor_entropy, variance)


def _chi_square_ratio(tail: float, freedom: np.ndarray) -> np.ndarray:
    """The value that a chi-square variable exceeds with probability `tail`, over its mean.

    2 N I of independent variables tends to a chi-square variable. Only its shape is used;
    the mean comes from the permutations, so that the rule is safe for sparse tables, whose
    information varies less than that.
    """
    from scipy.special import chdtri

    safe = np.maximum(freedom, 1)
    ratios: np.ndarray = np.asarray(chdtri(safe, tail)) / safe
    return ratios


def expected_information(first: np.ndarray, second: np.ndarray) -> float:
    """The mean mutual information over all permutations of rows with these two margins."""
    samples = int(first.sum())
    a, a_times = np.unique(first[first > 0], return_counts=True)
    b, b_times = np.unique(second[second > 0], return_counts=True)
    a, b = (grid.ravel() for grid in np.meshgrid(a, b, indexing="ij"))
    times = np.outer(a_times, b_times).ravel()
    mean = a * b / samples
    spread = np.sqrt(mean * (1 - a / samples) * (1 - b / samples) * samples / max(1, samples - 1))
    # Beyond 12 standard deviations (and 30 counts, for small skewed ones) P(n) is negligible.
    reach = 12 * spread + 30
    low = np.maximum(np.maximum(1, a + b - samples), np.floor(mean - reach)).astype(np.int64)
    high = np.minimum(np.minimum(a, b), np.ceil(mean + reach)).astype(np.int64)
    width = np.maximum(high - low + 1, 0)
    cell = np.repeat(np.arange(len(a)), width)
    n = np.arange(len(cell)) - np.repeat(np.cumsum(width) - width, width) + low[cell]
    log = _log_factorials(samples)
    fixed = log[a] + log[b] + log[samples - a] + log[samples - b] - log[samples]
    a, b = a[cell], b[cell]
    weight = fixed[cell] - log[n] - log[a - n] - log[b - n] - log[samples - a - b + n]
    terms = np.exp(weight) * n / samples * np.log(samples * n / (a * b))
    return max(0.0, float((times[cell] * terms).sum()))


@lru_cache(maxsize=4)
def _log_factorials(largest: int) -> np.ndarray:
    from scipy.special import gammaln

    return np.asarray(gammaln(np.arange(largest + 1) + 1.0))

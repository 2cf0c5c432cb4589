"""Independence: are the latents independent of each other?

    MMD^2( aggregate posterior, its hybridised version )

Hybrids take every variable from another sample: they have the marginals of the codes and
no dependence between variables, so the two distributions agree exactly when the variables
are independent. Near 0 (possibly just below: the estimate is unbiased) for independent
latents; at most 14 with these kernels (see `mmd`), whose width follows the mean variance
of the latents. Unchanged by permuting the latents or scaling all of them together.

One half of the samples is compared with hybrids of the other half, so that the two clouds
share no values and the p-value is exact.

"On the interventional consistency of autoencoders", ICLR 2021 submission: fig. 8.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, base_samples
from zscope.assays.entry import Entry
from zscope.assays.responses.mmd import mmd
from zscope.errors import Undefined
from zscope.groups import Groups, partition
from zscope.randomness import fresh
from zscope.results import Scored
from zscope.sampling import whole
from zscope.types import Matrix

__all__ = ["Independence", "independence"]


@dataclass(frozen=True, eq=False)
class Independence(Scored):
    """MMD^2 between codes and hybrids of other codes."""

    score: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float | None  # of "the variables are independent"
    groups: list[list[int]]
    samples: int  # in each of the two clouds
    correlation: Matrix  # of ranks, latents x latents: the monotone part of the dependence
    chance: float = 0.0  # of independent variables

    def summary(self) -> list[tuple[str, str]]:
        return [("p-value", "not requested" if self.p_value is None else f"{self.p_value:.3g}")]

    def plot(self, ax: Any = None) -> Any:
        """Rank correlations between latents; there may be other forms of dependence."""
        from zscope.plots import heatmap

        matrix = self.correlation.abs().fill_diagonal_(0)
        ax = heatmap(matrix, x="latent", y="latent", label="|rank correlation|", ax=ax)
        for number in ax.texts:  # the correlation of a latent with itself
            if number.get_position()[0] == number.get_position()[1]:
                number.set_text("")
        return ax


@accepts_recording
def independence(
    codes: Recorded,
    *,
    samples: int = 2048,
    groups: Groups | None = None,
    permutations: int = 200,
    generator: Generator | None = None,
) -> Independence:
    """How far the codes are from codes with independent variables.

    At most `samples` codes in each cloud; from a `Posterior`, draws. `groups` are the
    variables to compare; there may be dependence within a group.
    """
    from scipy.stats import rankdata

    whole("independence", samples=samples)
    whole("independence", 0, permutations=permutations)
    generator = fresh(generator)
    base = base_samples(codes, 2 * samples, "independence", generator).double()
    lists = partition(groups, base.shape[1], "independence")
    half = len(base) // 2
    if len(lists) < 2 or half < 4:
        raise Undefined(
            f"independence: {len(lists)} variable(s) and {len(base)} codes; at least 2 variables "
            "and 8 codes are needed to measure dependence. Record more, or give other groups."
        )
    cloud, rest = base[:half], base[half : 2 * half]
    hybrids = torch.empty_like(rest)
    for group in lists:
        order = torch.randperm(half, generator=generator, device=generator.device)
        hybrids[:, group] = rest[order.to(rest.device)][:, group]
    variance = float(base.var(0, correction=0).mean())
    discrepancy = mmd(
        cloud, hybrids, variance=variance, permutations=permutations, generator=generator
    )
    # Equal numbers share a rank: with ties broken by row, codes of few values would look
    # dependent if the rows were sorted.
    ranks = torch.from_numpy(rankdata(base.cpu().numpy(), axis=0)).to(base)
    varies = base.amin(0) < base.amax(0)  # a constant latent is correlated with nothing
    correlation = torch.where(varies & varies[:, None], torch.corrcoef(ranks.T), 0.0)
    return Independence(
        score=discrepancy.value,
        standard_error=discrepancy.standard_error,
        interval=discrepancy.interval,
        p_value=discrepancy.p_value,
        groups=lists,
        samples=half,
        correlation=correlation.cpu(),
        chance=discrepancy.chance,
    )


ENTRY = Entry(
    question="Are the latents independent of each other?",
    takes=("recording",),
    maps="places",
)

"""Independence: are the latents independent of each other?

    MMD^2( aggregate posterior, its hybridised version )

Hybrids take every variable from another sample: they have the marginals of the codes and
no dependence between variables, so the two distributions agree exactly when the variables
are independent. Near 0 (possibly just below: the estimate is unbiased) for independent
latents; at most 14 with these kernels (see `mmd`), whose width follows the mean variance
of the latents. Unchanged by permuting the latents or scaling all of them together.

One half of the samples is compared with hybrids of the other half, so that the two clouds
share no values and the p-value is exact.

Of latents that are maps, variables are channels and codes are posterior means of pictures. Hybrids
have whole channels of other pictures, and compared are vectors of channels at 4 random places of
each picture, in units of the standard deviation of each channel: the dependence of channels at the
same place. The standard error and the p-value are over whole pictures: permuting places, which
resemble each other, would find dependence where there is none. `cloud="picture"` compares whole
maps (see `clouds`).

"On the interventional consistency of autoencoders", ICLR 2021 submission: fig. 8.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, base_samples, posterior_of
from zscope.assays.entry import Entry
from zscope.assays.pictures import channel_scales, summary_of
from zscope.assays.responses.clouds import Cloud, check_cloud, cloud_of, rows_of_each
from zscope.assays.responses.mmd import mmd
from zscope.assays.units import Units, UnitsOption, units_of
from zscope.errors import ConfigError, Undefined
from zscope.groups import Groups
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import Scored, name_units
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
    samples: int  # in each of the two clouds; of maps, pictures
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
    units: UnitsOption = "auto",
    groups: Groups | None = None,
    cloud: Cloud = "place",
    permutations: int = 200,
    generator: Generator | None = None,
) -> Independence:
    """How far the codes are from codes with independent variables.

    At most `samples` codes in each cloud; from a `Posterior`, draws. `units` (or `groups`) are the
    variables to compare: single latents or, of maps, channels. There may be dependence within
    one. `cloud` is what is compared of maps.
    """
    who = "independence"
    whole(who, samples=samples)
    whole(who, 0, permutations=permutations)
    generator = fresh(generator)
    base = base_samples(codes, 2 * samples, who, generator).double()
    layout = posterior_of(codes, who).layout
    chosen = units_of(who, units, groups, base.shape[1], layout)
    half = len(base) // 2
    if len(chosen) < 2 or half < 4:
        raise Undefined(
            f"independence: {len(chosen)} variable(s) and {len(base)} codes; at least 2 variables "
            "and 8 codes are needed to measure dependence. Record more, or give other groups."
        )
    check_cloud(who, cloud, layout, half)
    first, rest = base[:half], base[half : 2 * half]
    hybrids = torch.empty_like(rest)
    for group in chosen.lists:
        order = torch.randperm(half, generator=generator, device=generator.device)
        hybrids[:, group] = rest[order.to(rest.device)][:, group]
    together = 1
    if layout is not None:
        _check_units(chosen, cloud)
        known = codes if isinstance(codes, Recording) else posterior_of(codes, who)
        scale = channel_scales(summary_of(known, who))[1]
        first, hybrids = (
            cloud_of(each, layout, scale, cloud, generator) for each in (first, hybrids)
        )
        base = cloud_of(base, layout, scale, "place", generator)
        together = rows_of_each(cloud, layout)
    variance = float(base.var(0, correction=0).mean())
    discrepancy = mmd(
        first,
        hybrids,
        variance=variance,
        permutations=permutations,
        together=together,
        generator=generator,
    )
    result = Independence(
        score=discrepancy.value,
        standard_error=discrepancy.standard_error,
        interval=discrepancy.interval,
        p_value=discrepancy.p_value,
        groups=chosen.lists,
        samples=half,
        correlation=_rank_correlation(base),
        chance=discrepancy.chance,
    )
    return result if layout is None else name_units(result, "channel", layout.unit_names())


def _check_units(units: Units, cloud: Cloud) -> None:
    """Refuse to look for dependence between places in vectors at single places."""
    if cloud == "place" and units.unit not in ("channel", "group"):
        raise ConfigError(
            f"independence: units={units.unit!r} with vectors at single places, which do not show "
            "dependence between places. Use cloud='picture', or units='channel'."
        )


def _rank_correlation(rows: Tensor) -> Matrix:
    from scipy.stats import rankdata

    # Equal numbers share a rank: with ties broken by row, codes of few values would look
    # dependent if the rows were sorted.
    ranks = torch.from_numpy(rankdata(rows.cpu().numpy(), axis=0)).to(rows)
    varies = rows.amin(0) < rows.amax(0)  # a constant latent is correlated with nothing
    return torch.where(varies & varies[:, None], torch.corrcoef(ranks.T), 0.0).cpu()


ENTRY = Entry(
    question="Are the latents independent of each other?",
    meaning=(
        "0 if the latents are independent of each other; larger values (and a small p-value) mean "
        "that a code with each latent from another sample is unlike any real code."
    ),
    figure=(
        "The rank correlation of every pair of latents, without sign: strong cells are latents "
        "that vary together."
    ),
    takes=("recording",),
    maps="units",
    map_options={"samples": 512},
)

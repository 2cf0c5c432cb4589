"""Variable types: which latents are used, which are noise, and which are used only for some inputs?

With S the posterior variances (samples x latents), S̄_j and Var(S_j) the mean and the
population variance of column j over the samples,

    passive   |S̄_j - 1| <= alpha  and  Var(S_j) <= alpha     the posterior is the prior
    active     S̄_j      <= alpha  and  Var(S_j) <= alpha     the posterior is narrow
    mixed      everything else                               active for some samples only

Every latent has exactly one type. Unchanged by the order of the samples; the latents
keep their indices. An ideal mixture, active for a share w of the samples, counts as
active if w >= 1 - alpha and as passive if w <= alpha. A latent with a constant variance
such as 0.5 is "mixed" by this rule although it is not a mixture: it is listed in
`intermediate`.

For a prior other than N(0, I) give the divergences too, as in `variable_types_by_kl`; for
a recording of an iVAE this happens automatically. A latent that equals the prior given the factors
is passive, even if it encodes the factors. Which latents count is `recording.used`.

Of latents that are maps, there is one type for each channel: the rows are all places of all
pictures that were encoded. `place_types` has the type of each place of a channel, by the same rule
over pictures (0 passive, 1 mixed, 2 active), and `place_shares` how many places have it.

Bonheme, "The Polarised Regime of Variational Autoencoders", PhD thesis, University of
Kent, 2023: definition 6.3.1 and the detector of section 6.4.1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array, as_rows
from zscope.assays.pictures import check_pictures
from zscope.errors import ConfigError, Undefined
from zscope.factors import Factors
from zscope.map_summary import MapSummary
from zscope.results import Result

__all__ = [
    "PerLatent", "VariableTypes", "VarianceMoments", "variable_types", "variable_types_by_kl",
]  # fmt: skip

PerLatent = Float[Tensor, " latents"]
CHUNK = 1 << 16
"""Numbers at once: of more, in double precision, each chunk waits for new pages of memory."""
# The limits are inclusive, also for 0.1 in float32, which is slightly more than 0.1.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class VariableTypes(Result):
    """The type of each latent; `active`, `mixed` and `passive` together contain each index once."""

    active: list[int]
    mixed: list[int]
    passive: list[int]
    intermediate: list[int]  # those of `mixed` whose variance hardly varies: no real mixture
    mean_variance: PerLatent
    variance_of_variance: PerLatent
    samples: int
    alpha: float
    rule: str = "variance"  # or "kl"
    place_types: Tensor | None = None  # of maps: channels x places

    @property
    def place_shares(self) -> dict[str, list[float]]:
        """Of each channel of maps, the share of places that are passive, mixed and active."""
        if self.place_types is None:
            return {}
        kinds = enumerate(("passive", "mixed", "active"))
        flat = self.place_types.flatten(1)
        return {name: (flat == kind).double().mean(1).tolist() for kind, name in kinds}

    def summary(self) -> list[tuple[str, str]]:
        lines = super().summary()
        for name, shares in self.place_shares.items():
            text = ", ".join(f"{100 * share:.0f} %" for share in shares[:8])
            lines.append((f"places that are {name}", text + (", …" if len(shares) > 8 else "")))
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Without the places of latents that are no maps."""
        values = super().to_dict()
        if self.place_types is None:
            del values["place_types"]
        return values

    @property
    def latents(self) -> int:
        return len(self.mean_variance)

    @property
    def not_passive(self) -> list[int]:
        """All others, in order. Which latents count is another question: `recording.used`."""
        return sorted(self.active + self.mixed)

    @property
    def labels(self) -> list[str]:
        """The type of latent 0, 1, 2, …"""
        passive, active = set(self.passive), set(self.active)
        return [
            "passive" if j in passive else "active" if j in active else "mixed"
            for j in range(self.latents)
        ]

    @property
    def trace(self) -> float:
        """The sum of the mean variances: Tr Var[z] - Tr Var[mean] in expectation (FONDUE)."""
        return float(self.mean_variance.sum())

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        # Grey bars are passive latents; at 1 the posterior is as wide as the prior.
        return bars(
            self.mean_variance,
            x="latent",
            y="mean variance",
            marks=self.not_passive,
            line=1.0,
            ax=ax,
        )


class VarianceMoments:
    """Mean and variance of each latent's posterior variance, computed batch by batch.

    Memory does not grow with the number of samples. Batches are combined by the exact update of
    Chan, Golub & LeVeque (Am. Stat. 37(3), 1983), so any split gives the same numbers
    up to rounding.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.mean = torch.zeros(0, dtype=torch.float64)
        self._squares = torch.zeros(0, dtype=torch.float64)  # summed squared deviations

    def add(self, variances: Array) -> "VarianceMoments":
        """Add a batch of variances (samples x latents); returns itself."""
        rows = max(1, CHUNK // max(1, prod(np.shape(variances[:1])[1:])))
        for start in range(0, max(1, len(variances)), rows):
            self._add(_variance_rows(variances[start : start + rows]))
        return self

    def _add(self, rows: Tensor) -> None:
        mean = rows.mean(0)
        squares = (rows - mean).square_().sum(0).cpu()
        count, mean = len(rows), mean.cpu()
        if self.samples == 0:
            self.samples, self.mean, self._squares = count, mean, squares
            return
        if len(mean) != len(self.mean):
            raise Undefined(
                f"variable_types: a batch has {len(mean)} latents, earlier batches had "
                f"{len(self.mean)}. All batches must come from one model."
            )
        total, gap = self.samples + count, mean - self.mean
        self.mean = self.mean + gap * (count / total)
        self._squares = self._squares + squares + gap.square() * (self.samples * count / total)
        self.samples = total

    @property
    def variance(self) -> PerLatent:
        return self._squares / max(1, self.samples)

    def types(self, *, alpha: float = 0.1) -> VariableTypes:
        """The types according to the batches so far."""
        if self.samples == 0:
            raise Undefined(
                "variable_types: no variances were given, so no latent has a type. Is the batch "
                "or the iterator empty (an iterator can be read only once)?"
            )
        if not 0 < alpha < 0.5:
            raise ConfigError(
                f"variable_types: alpha={alpha} must lie between 0 and 0.5, or a latent could be "
                "active and passive at once. The published value is 0.1."
            )
        limit = alpha + ROUNDING
        steady = self.variance <= limit
        passive = steady & ((self.mean - 1).abs() <= limit)
        active = steady & (self.mean <= limit)
        between = steady & (self.mean > limit) & (self.mean < 1 - limit)
        return VariableTypes(
            active=_indices(active),
            mixed=_indices(~active & ~passive),
            passive=_indices(passive),
            intermediate=_indices(between),
            mean_variance=self.mean,
            variance_of_variance=self.variance,
            samples=self.samples,
            alpha=alpha,
        )

    @classmethod
    def of_maps(cls, summary: MapSummary) -> "VarianceMoments":
        """Of each channel, over all places of all pictures."""
        own, moments = cls(), summary.moments()
        own.samples = summary.pictures * summary.layout.positions
        own.mean = moments["v"]
        own._squares = (moments["v2"] - moments["v"].square()).clamp_min(0) * own.samples
        return own

    @classmethod
    def of_places(cls, summary: MapSummary) -> "VarianceMoments":
        """Of each channel and place, over all pictures."""
        own = cls()
        _, _, first, second = summary.place_sums.flatten(1) / summary.pictures
        own.samples, own.mean = summary.pictures, first
        own._squares = (second - first.square()).clamp_min(0) * own.samples
        return own


def _types_of_maps(summary: MapSummary, alpha: float) -> VariableTypes:
    check_pictures(summary.pictures, "variable_types")
    types = VarianceMoments.of_maps(summary).types(alpha=alpha)
    single = VarianceMoments.of_places(summary).types(alpha=alpha)
    places = torch.ones(summary.layout.latents, dtype=torch.long)
    places[single.passive], places[single.active] = 0, 2
    return replace(types, place_types=places.reshape(summary.layout.shape))


@accepts_recording
def variable_types(
    variances: Array | Iterable[Any] | MapSummary, *, alpha: float = 0.1, kl: Array | None = None
) -> VariableTypes:
    """The type of each latent, from posterior variances (not log-variances), in one pass.

    `variances` is samples x latents, a tensor, an array or a memory map of any length; or
    an iterable of such batches. Memory use does not depend on the number of samples. With
    `kl`, the divergence of each latent from a prior other than N(0, I), the variances are in
    units of the prior's variance, and the rule is that of `variable_types_by_kl`.
    """
    if isinstance(variances, MapSummary):
        return _types_of_maps(variances, alpha)
    if isinstance(variances, list) and all(isinstance(row, list) for row in variances):
        variances = as_rows(variances, "variable_types")  # rows of numbers, not batches
    if kl is not None:
        if not isinstance(variances, Tensor | np.ndarray | Factors):
            variances = torch.cat([as_rows(batch, "variable_types") for batch in variances])
        return variable_types_by_kl(kl, variances, alpha=alpha)
    batches = [variances] if isinstance(variances, Tensor | np.ndarray | Factors) else variances
    moments = VarianceMoments()
    for batch in batches:
        moments.add(batch)
    return moments.types(alpha=alpha)


def variable_types_by_kl(
    kl: Array, ratios: Array | None = None, *, alpha: float = 0.1, margin: float = 0.1
) -> VariableTypes:
    """The type of each latent under any prior, from each latent's divergence (samples x latents).

    `kl` is KL(q(z_j|x) || p(z_j)) in nats and `ratios`, where both are Gaussian, the
    posterior variance divided by the prior's (as in an iVAE, whose prior depends on x):

        passive   mean KL_j <= margin
        active    mean ratio_j <= alpha  and  Var(ratio_j) <= alpha
        mixed     everything else

    Without ratios (a mixture prior, Gumbel-softmax) a latent that is not passive is active
    when KL_j > margin for at least a share 1 - alpha of the samples. Then `mean_variance`
    is the mean of exp(-2 KL): roughly the ratio at which a Gaussian with the prior's mean has
    that divergence.

    The source leaves the rule for iVAEs open (section 6.6). This one agrees with the rule
    on variances for N(0, I) up to the margin: variance 0.9 and squared mean 0.1 give 0.053.
    """
    rows = as_rows(kl, "variable_types_by_kl")
    if (rows < -1e-4).any():
        raise Undefined(
            f"variable_types_by_kl: a divergence of {float(rows.min()):.3g} nats; a KL is never "
            "negative. Was a log-density, or a sampled estimate of the KL, passed?"
        )
    moments = VarianceMoments()
    if ratios is None:
        moments.add((-2 * rows.clamp(min=0)).exp())
        active = (rows > margin).double().mean(0) >= 1 - alpha
    else:
        moments.add(ratios)
        if moments.samples != len(rows) or len(moments.mean) != rows.shape[1]:
            raise Undefined(
                f"variable_types_by_kl: {tuple(rows.shape)} divergences but "
                f"{(moments.samples, len(moments.mean))} ratios; both must be of the same samples "
                "and latents."
            )
        active = (moments.mean <= alpha + ROUNDING) & (moments.variance <= alpha + ROUNDING)
    passive = rows.mean(0).cpu() <= margin
    active = active.cpu() & ~passive
    steady = moments.variance <= alpha + ROUNDING
    mixed = ~active & ~passive
    return VariableTypes(
        active=_indices(active),
        mixed=_indices(mixed),
        passive=_indices(passive),
        intermediate=_indices(mixed & steady),
        mean_variance=moments.mean,
        variance_of_variance=moments.variance,
        samples=moments.samples,
        alpha=alpha,
        rule="kl",
    )


def _variance_rows(variances: Array) -> Tensor:
    rows = as_rows(variances, "variable_types")
    if (low := float(rows.min())) < 0:
        share = float((rows < 0).double().mean())
        raise Undefined(
            f"variable_types: {share:.0%} of the variances are negative (smallest: {low:.3g}), "
            "which is impossible. These are probably log-variances: pass their exponential, or "
            "posterior.variance."
        )
    return rows


def _indices(mask: Tensor) -> list[int]:
    return [int(j) for j in mask.nonzero().flatten()]


ENTRY = Entry(
    question="Which latents are used, which are noise, and which are used only for some inputs?",
    meaning=(
        "Active latents are encoded precisely for every input, passive ones are noise that the "
        "decoder ignores, and mixed ones are used only for some inputs."
    ),
    figure=(
        "The mean posterior variance of each latent: near 0 it is used, at the line (1) it is as "
        "wide as the prior and carries nothing; grey bars are passive."
    ),
    takes=("variances_or_summary", "kl=conditional_kl"),
    needs=("variances",),
    maps="every place",
)

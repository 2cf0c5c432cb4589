"""Usage: which latents count? One answer, for every assay, finding and count.

**Variational models** (and arrays with posterior variances). Latent j is in use if it has
room for at least 0.1 nats about the observations:

    I_j = 1/2 ( log( Var_x mean_j + E_x variance_j ) - E_x log variance_j )  >=  0.1 nats

This is the mean divergence of q(z_j | x) from the nearest Gaussian, whatever its mean and
variance: an upper bound on the mutual information of z_j and x. It is 0 when all posteriors of
the latent are equal, and unchanged by shifting or rescaling it. The divergence from the prior is
I_j plus the distance of that Gaussian from the prior, which says nothing about x: a latent
whose posterior is N(3, 1) for every x is far from the prior and carries nothing. So the rule does
not look at the prior, not even at one that depends on the factors (iVAE): a latent that equals
such a prior has a divergence of 0, but may be all that the decoder knows of the factors. A latent
of variance 0.95 whose means have a standard deviation of 0.45 lies at the limit, close to the
rule of Zietlow (PhD thesis, Tübingen 2022, section 3.3.2: above 0.5).

**Deterministic models**. A latent is in use if the decoder uses it: when its value is replaced
by that of another code, the decoded observation changes by at least 1 % of the change when all
latents are replaced (root mean squares). Unchanged by rescaling a latent, if the decoder
undoes it.

**Codes alone**, encoders without a decoder, deterministic models with more than 1,024 latents, and
those whose decoder gives NaN (the assays that decode say so): a latent is in use if it varies.

**Latents with channels and places** are asked about by channel. Its information is the mean over
places of I at each place, and it varies if it does at some place: what is the same for all
pictures, such as a ramp from left to right, tells nothing about them. The decoded observation is
that of a map whose channel was replaced at all places.

Other questions have other answers. `variable_types` keeps the published rule of Bonheme, which
also says how a latent is used: it calls a latent mixed when the posterior variance differs between
observations, even if it hardly tells them apart. Types, divergences, `polarisation` and
`trace_gap` are against the prior of the model: a latent of an iVAE may be passive and in use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from zscope.autoencoder import Posterior
from zscope.layout import Layout
from zscope.map_summary import TINY, MapSummary
from zscope.types import Codes

__all__ = ["Usage", "usage_of_codes", "usage_of_decoder", "usage_of_maps", "usage_of_posterior"]

NATS = 0.1
EFFECT = 0.01
ROUNDING = 1e-6
PASSES = 8192
"""Codes that are decoded to find the effect of each latent; fewer than 8 for each are too few."""


@dataclass(frozen=True, eq=False)
class Usage:
    """The latents in use, the others, and the measure that decided."""

    used: list[int]
    unused: list[int]
    measure: Literal["information", "effect", "spread"]
    values: Tensor  # of each latent: nats; relative change; standard deviation


def usage_of_posterior(posterior: Posterior) -> Usage:
    """By information; by spread for a deterministic posterior."""
    if posterior.deterministic:
        return usage_of_codes(posterior.mean)
    mean, variance = posterior.mean.double(), posterior.variance.double()
    total = mean.var(0, correction=0) + variance.mean(0)
    # In units of the total: a latent of any scale, and one of a spread of 0, have finite values.
    share = variance / total.clamp_min(torch.finfo(torch.float64).tiny)
    information = -0.5 * share.clamp_min(1e-30).log().mean(0)
    information = torch.where(total > 0, information, 0).cpu()
    return _usage("information", information, information >= NATS)


def usage_of_codes(codes: Codes) -> Usage:
    """By spread: all that are not constant, up to rounding."""
    rows = codes.double()
    spread = rows.std(0, correction=0).cpu()
    return _usage("spread", spread, spread > ROUNDING * rows.abs().amax(0).cpu())


def usage_of_maps(summary: MapSummary) -> Usage:
    """Of channels: by information; by spread for a deterministic posterior."""
    spread = summary.spread()
    if summary.deterministic:
        std, largest = spread.mean(1).sqrt(), torch.maximum(summary.low.abs(), summary.high.abs())
        return _usage("spread", std, std > ROUNDING * largest)
    variance = summary.place_sums[2] / summary.pictures
    total = (spread + variance).clamp_min(TINY).log().mean(1)
    information = (0.5 * (total - summary.moments()["log_v"])).clamp_min(0)
    return _usage("information", information, information >= NATS)


def usage_of_decoder(
    codes: Codes,
    decode: Callable[[Codes], Tensor],
    layout: Layout | None = None,
    decoded: Tensor | None = None,
) -> Usage:
    """By effect on the decoded observation; `codes` are in random order. Of maps, by channel.

    `decoded` are the decoded codes, if they are known.
    """
    latents = codes.shape[1] if layout is None else layout.channels
    columns = [j if layout is None else slice(*layout.ends(j)) for j in range(latents)]
    count = min(len(codes), PASSES // latents, 64)
    if count < 8:
        return _without_decoder(codes, layout)
    base, others = codes[:count], codes[:count].roll(1, 0)
    before = (decode(base) if decoded is None else decoded[:count]).double()

    def change(after: Tensor) -> float:
        return float((after.double() - before.reshape(after.shape)).square().mean().sqrt())

    # Vectors are decoded once more in another order, so that their numbers stay as they were.
    whole = change(decode(others) if layout is None else before.roll(1, 0))
    effects = []
    for column in columns:
        vectors = base.clone()
        vectors[:, column] = others[:, column]
        effects.append(change(decode(vectors)))
    effect = torch.tensor([whole, *effects], dtype=torch.float64)
    if not bool(effect.isfinite().all()):
        return _without_decoder(codes, layout)
    effect = effect[1:]
    effect = effect / whole if whole > 0 else torch.zeros_like(effect)
    return _usage("effect", effect, effect >= EFFECT)


def _without_decoder(codes: Codes, layout: Layout | None) -> Usage:
    """By spread, where effects cannot be measured."""
    if layout is None:
        return usage_of_codes(codes)
    return usage_of_maps(MapSummary.of(Posterior(codes, layout=layout)))


def _usage(
    measure: Literal["information", "effect", "spread"], values: Tensor, counts: Tensor
) -> Usage:
    return Usage(
        used=[int(j) for j in counts.nonzero().flatten()],
        unused=[int(j) for j in (~counts).nonzero().flatten()],
        measure=measure,
        values=values,
    )

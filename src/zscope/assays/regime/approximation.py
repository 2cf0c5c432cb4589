"""Polarisation: are latents either fully used or not at all?

How well is the divergence approximated by that of fully precise active latents alone?

    L_KL  = 1/2 sum_j (mean_j^2 + variance_j - log variance_j - 1)      over all latents
    L_~KL = 1/2 sum_{j active} (mean_j^2 - log variance_j - 1)          no variance term
    gap   = |L_KL - L_~KL| / L_KL                                       averages over the data

0 in the polarised limit. Exactly, L_KL - L_~KL = 1/2 sum_active variance_j + sum_passive
KL_j. Results proved in that limit (such as the alignment with principal directions) apply
to a real VAE if the gap is below 3 % for most of training: `settled_fraction` gives the
fraction of training after the last time it was not.

A latent is active if it is in use (`rule="used"`, see `zscope.usage`). The source has two
rules of its own: its means vary over the data (`rule="mean"`: standard deviation above 0.5),
or its posteriors are narrow (`rule="variance"`: mean variance below 0.8).

For a recording of a model whose prior depends on the factors (iVAE) everything is in units of
that prior, also the rule: only latents that tell more than the factors do have a divergence to
approximate. Others are passive here, although they may be in `recording.used`.

Of latents that are maps, rows are places and columns are channels; the standard error is that of
pictures, whose places belong `together`.

Zietlow, "An Analysis of the Inner Workings of Variational Autoencoders", dissertation,
Tübingen, 2022: definition 1, equations 3.5 and 3.38, section 3.3.2; chapter 4 for the
second rule.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.halves import check_together
from zscope.assays.regime.types import PerLatent
from zscope.autoencoder import Posterior
from zscope.errors import Undefined
from zscope.results import Scored
from zscope.usage import Usage, usage_of_posterior

__all__ = ["Polarisation", "polarisation", "settled_fraction"]


@dataclass(frozen=True, eq=False)
class Polarisation(Scored):
    """The relative gap, and the latents that count as active."""

    why_no_interval = "there is only one observation"
    why_no_chance = (
        "uninformative posteriors have zero divergence, so the relative gap is undefined"
    )
    score_fields = ("gap",)

    gap: float
    standard_error: float | None  # for these active latents; None for a single observation
    samples: int
    active: list[int]
    passive: list[int]
    divergence: float
    approximation: float
    per_latent: PerLatent
    rule: str

    @property
    def score(self) -> float:
        return self.gap

    def over_pruned(self, needed: int) -> bool:
        """Whether fewer latents are active than the data have factors."""
        return len(self.active) < needed


@accepts_recording
def polarisation(
    posterior: Posterior,
    *,
    rule: Literal["used", "mean", "variance"] = "used",
    together: int = 1,
    usage: Usage | None = None,
) -> Polarisation:
    """The relative gap for a posterior with diagonal covariance.

    So many consecutive rows belong `together`: the places of a picture. `usage` says which latents
    are in use; by default the posterior does.
    """
    if posterior.std is None:
        raise Undefined(
            f"polarisation: the {len(posterior)} posteriors have no diagonal covariance, which "
            "the approximation assumes. It applies to variational models with independent noise."
        )
    if len(posterior) == 0:
        raise Undefined("polarisation: got 0 posteriors; expected at least one. Record some data.")
    mean, variance = posterior.mean.double(), posterior.variance.double()
    narrow, spread = variance.mean(0) < 0.8, mean.std(0, correction=0) > 0.5
    used = torch.zeros_like(narrow)
    used[(usage_of_posterior(posterior) if usage is None else usage).used] = True
    active = {"used": used, "mean": spread, "variance": narrow}[rule]
    each = posterior.to("cpu").kl().double()
    kl = each.mean(0)
    total = float(kl.sum())
    if not math.isfinite(total):
        raise Undefined(
            f"polarisation: the divergence of {len(posterior)} posteriors is {total}: a std is 0, "
            "negative or not finite, or a mean is not. Has training diverged?"
        )
    if total <= 1e-12:
        raise Undefined(
            f"polarisation: all {posterior.latents} latents have zero divergence, so the "
            "relative gap is undefined. The posterior has collapsed: lower β, or see "
            "variable_types."
        )
    terms = 0.5 * (mean.square() - variance.log() - 1).cpu()
    approximation = float(terms[:, active.cpu()].sum(1).mean())
    gap = (total - approximation) / total
    # A ratio of two means over the same samples: its error to first order.
    residual = (each.sum(1) - terms[:, active.cpu()].sum(1) - gap * each.sum(1)) / total
    if check_together(residual, together, "polarisation") < len(residual):
        residual = residual.unflatten(0, (-1, together)).mean(1)
    return Polarisation(
        gap=abs(gap),
        standard_error=float(residual.std()) / math.sqrt(len(residual))
        if len(residual) > 1
        else None,
        samples=len(residual),
        active=[int(j) for j in active.nonzero().flatten()],
        passive=[int(j) for j in (~active).nonzero().flatten()],
        divergence=total,
        approximation=approximation,
        per_latent=kl,
        rule=rule,
    )


def settled_fraction(gaps: Sequence[float], *, limit: float = 0.03) -> float:
    """The fraction of training after the last time the gap was at least `limit`.

    `gaps` are values at equal steps (every 500 batches in the source), in order: 1 when
    all are below the limit, 0 when the last is not.
    """
    if len(gaps) == 0:
        raise Undefined(
            "settled_fraction: no gaps were given; measure polarisation during training."
        )
    above = [k for k, gap in enumerate(gaps) if gap >= limit]
    return 1.0 if not above else (len(gaps) - 1 - above[-1]) / len(gaps)


ENTRY = Entry(
    question="Are latents either fully used or not at all?",
    meaning=(
        "The share of the KL that is not explained by fully precise active latents alone: below 3 "
        "% latents are either fully used or not at all, as the theory of principal directions "
        "assumes."
    ),
    takes=("relative", "together=together", "usage=usage_of_places"),
    needs=("variances",),
    maps="places",
)

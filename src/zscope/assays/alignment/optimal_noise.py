"""Optimal noise: is the encoder's precision distributed over latents as theory says it should be?

A posterior with variances σ_j^2 has a precision budget C = sum_j -log σ_j^2, whose cost is
in the KL term. To first order the noise costs sum_j |c_j|^2 σ_j^2 in squared error
(c_j the columns of the decoder's Jacobian). For a fixed budget over d active latents

    best noise      σ_j^2 = 1/|c_j|^2 (prod_k |c_k|^2)^(1/d) e^(-C/d)
    its cost        d (prod_j |c_j|^2)^(1/d) e^(-C/d)
    best rotation   d (prod_k s_k^2)^(1/d) e^(-C/d)            s_k the singular values of J

so the actual cost exceeds the lowest possible one by two factors, here as logarithms:

    log cost - log lowest = misspent + misaligned
    misspent   = log( mean_j |c_j|^2 σ_j^2 / geometric mean )  >= 0     noise in the wrong latents
    misaligned = 2/d a(J)  >= 0                                         columns not orthogonal

Both are 0 exactly where every J has orthogonal columns and |c_j|^2 σ_j^2 is the same for
all j (theorem 1). `efficiency` = exp(-misspent) lies in (0, 1]. `slope` is that of log σ_j^2
over -log |c_j|^2 within codes: 1 if the precision follows the decoder as it should, 0 if it
ignores the decoder; None if the columns of every code are equally long. `chance` is the
efficiency of equal noise in all latents. Unchanged by permuting or flipping latents and by
scaling observations.

Zietlow, PhD thesis, Tübingen 2022, eq. 3.14-3.19 and 5.11, corollary 1, theorem 1.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator

from zscope.assays.active import (
    AtPlace,
    Place,
    Rule,
    Singles,
    check_two_active,
    choose_columns,
    standard_error,
)
from zscope.assays.alignment.column_product import log_column_ratio
from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, posterior_of
from zscope.assays.entry import Entry
from zscope.assays.jacobian import (
    Likelihood,
    Method,
    PerSample,
    Spectra,
    likelihood_of,
    metric_of,
)
from zscope.autoencoder import Autoencoder
from zscope.errors import Undefined
from zscope.results import Scored

__all__ = ["OptimalNoise", "optimal_noise"]


@dataclass(frozen=True, eq=False)
class OptimalNoise(AtPlace, Scored):
    efficiency: float  # exp(-misspent): least cost over actual cost at fixed columns
    misspent: float  # nats
    interval: tuple[float, float] | None  # of the efficiency, 95 %; None for a single code
    chance: float  # efficiency of equal noise in all latents
    samples: int  # codes
    misaligned: float  # nats
    slope: float | None
    budget: float  # C, averaged over codes, nats
    active: list[int]
    passive: list[int]
    likelihood: str
    metric: str  # of the cost of noise: pixels or Fisher information
    method: str
    per_sample: dict[str, PerSample]  # misspent, misaligned, budget
    actual: Spectra  # variances of the active latents
    best: Spectra  # what is optimal in theory with the same budget
    flags: list[str]

    why_no_interval = "there is only one code"
    score_fields = ("efficiency",)

    @property
    def score(self) -> float:
        return self.efficiency

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        theory = self.best.log10().mean(0)
        order = theory.argsort().tolist()
        axes = lines(
            {"encoder": self.actual.log10().mean(0)[order], "theory": theory[order]},
            x="active latent, most precise first",
            y="log₁₀ variance",
            title=f"efficiency {self.efficiency:.2f} ({self.metric})",
            markers=True,
            ax=ax,
        )
        if len(order) <= 16:
            axes.set_xticks(range(len(order)), [str(self.active[k]) for k in order])
        return axes


@accepts_recording
def optimal_noise(
    autoencoder: Autoencoder,
    posterior: Recorded,
    *,
    active: Rule = "used",
    place: Place = None,
    latents: Singles = None,
    samples: int = 256,
    likelihood: Likelihood | Literal["auto"] = "auto",
    method: Method = "auto",
    generator: Generator | None = None,
) -> OptimalNoise:
    """Compare the noise of at most `samples` posteriors with the best noise of equal budget.

    With the likelihood "bernoulli" the cost of noise is measured by the cross-entropy of
    pixels, to second order; "auto" is the likelihood the model was trained with, or the best
    guess. Other options as for `distance_to_orthogonality`.
    """
    who = "optimal_noise"
    recorded, posterior = posterior, posterior_of(posterior, who)
    if posterior.std is None:
        raise Undefined(
            f"{who}: the {len(posterior)} posteriors have no independent noise; the theory "
            "assumes diagonal covariances. It applies to variational models with a std per latent."
        )
    columns = choose_columns(
        who,
        autoencoder,
        recorded,
        active=active,
        place=place,
        latents=latents,
        samples=samples,
        generator=generator,
    )
    check_two_active(who, columns)
    part = columns.posterior
    if not bool((columns.of(part.variance) > 0).all()):
        raise Undefined(
            f"{who}: some of the {len(part)} posteriors have a variance of 0, which no finite "
            "budget of noise allows. Has training collapsed the noise?"
        )
    likelihood = likelihood_of(autoencoder, part.mean) if likelihood == "auto" else likelihood
    local = columns.linearise(likelihood=likelihood, method=method)
    flat = local.lengths.amin(1) <= local.precision * local.lengths.amax(1)
    if flat.all():
        raise Undefined(
            f"{who}: at all {len(flat)} codes the decoder ignores an active {columns.unit}, whose "
            f"best variance is then unbounded. List the used {columns.unit}s with active=[…]."
        )
    flags = list(local.flags)
    if flat.any():
        flags.append(
            f"Left out {int(flat.sum())} codes where the decoder ignores a {columns.unit}."
        )
    log_variance = columns.of(part.variance).double().cpu().log()[~flat]
    log_square = 2 * local.lengths[~flat].log()
    count = len(columns.active)
    budget = -log_variance.sum(1)
    best = (log_square.sum(1) - budget)[:, None] / count - log_square
    log_cost = (log_square + log_variance).logsumexp(1) - math.log(count)
    misspent = log_cost - (log_square + log_variance).mean(1)
    equal = log_square.logsumexp(1) - math.log(count) - log_square.mean(1)
    misaligned = 2 / count * log_column_ratio(local.triangle[~flat], local.precision)
    result = OptimalNoise(
        efficiency=math.exp(-float(misspent.mean())),
        misspent=float(misspent.mean()),
        interval=_interval(misspent),
        chance=math.exp(-float(equal.mean())),
        samples=len(misspent),
        misaligned=float(misaligned.mean()),
        slope=_slope(-log_square, log_variance),
        budget=float(budget.mean()),
        active=columns.active,
        passive=columns.passive,
        likelihood=likelihood,
        metric=metric_of(likelihood),
        method=local.method,
        per_sample={"misspent": misspent, "misaligned": misaligned, "budget": budget},
        actual=log_variance.exp(),
        best=best.exp(),
        flags=flags,
        place=columns.place,
    )
    return columns.name(result)


def _interval(misspent: PerSample) -> tuple[float, float] | None:
    """The 95 % interval of exp(-mean misspent), at most 1."""
    error = standard_error(misspent)
    if error is None:
        return None
    mean, reach = float(misspent.mean()), 1.96 * error
    return math.exp(-mean - reach), min(1.0, math.exp(reach - mean))


def _slope(x: Spectra, y: Spectra) -> float | None:
    """Slope of y over x within rows; None if x does not vary."""
    x = x - x.mean(1, keepdim=True)
    y = y - y.mean(1, keepdim=True)
    weight = float(x.square().sum())
    if weight <= torch.finfo(torch.float32).eps * x.numel():
        return None
    return float((x * y).sum()) / weight


ENTRY = Entry(
    question="Is the encoder's precision distributed over latents as theory says it should be?",
    meaning=(
        "An efficiency of 1 means that the encoder spends its precision on the latents where it "
        "lowers the error most; below 1, some latents are too precise and others too vague."
    ),
    figure=(
        "The variance of each active latent beside the best one for the same budget: lines that "
        "coincide waste nothing."
    ),
    takes=("decoder", "recording"),
    needs=("variances", "two latents"),
    passes="samples * latents",
    most=4_000,
    maps="place on request",
)

"""IMA curve: how much likelihood does a diagonal posterior cost, at each decoder precision?

The decoder f with a prior N(0, I) and a Gaussian likelihood of precision γ² (variance 1/γ²),

    log p(x)        the log-likelihood
    ELBO*(x)        the largest ELBO that a Gaussian posterior with a diagonal covariance has
    c = sum_j log |J[:, j]| - 1/2 log det J^T J  >= 0     the contrast of independent mechanism
                    analysis (the alignment gap), J the Jacobian of f at the code of x

`gap` = log p - ELBO* >= 0. As γ² grows the gap tends to c, so ELBO* to the regularised
log-likelihood log p - c: training a VAE of high precision prefers decoders with orthogonal
columns. For a linear decoder W, exactly and at every γ²,

    gap = 1/2 ( sum_j log(1 + γ² |w_j|^2) - log det(I + γ² W^T W) )

which is 0 for all γ² if the columns are orthogonal. Unchanged by shifting or rotating what is
decoded and by permuting or flipping latents; rotating latents leaves log p as it is and changes
ELBO* and c.

By default x = f(z) at codes z of data, or at the points given; other observations may be given.
Linear decoders are measured exactly; others by sampling (`marginal_likelihood.py`). Points whose
effective sample size is below 50 at any γ² are left out, and counted.

Reizinger et al., "Embrace the gap: VAEs perform independent mechanism analysis", NeurIPS 2022;
Gresele et al., NeurIPS 2021; Zietlow, PhD thesis, Tübingen 2022, section 7.6. γ² is the precision,
as there; elsewhere in zscope γ is the variance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.active import (
    AtPlace,
    Place,
    Rule,
    Singles,
    check_two_active,
    choose_columns,
    codes_of,
)
from zscope.assays.alignment.column_product import log_column_ratio
from zscope.assays.alignment.marginal_likelihood import (
    Likelihoods,
    Local,
    linear_likelihoods,
    linear_weights,
    sampled_likelihoods,
)
from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded
from zscope.assays.entry import Entry
from zscope.assays.jacobian import Method, PerSample, linearise
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.results import Measure, Scored
from zscope.sampling import whole
from zscope.types import Codes, Matrix, as_tensor

__all__ = ["IMACurve", "ima_curve"]

FEWEST = 50  # effective samples
KEPT = 0.5  # share of points that must be left
Curve = Float[Tensor, " precisions"]
Curves = Float[Tensor, "precisions samples"]


@dataclass(frozen=True, eq=False)
class IMACurve(AtPlace, Scored):
    """Curves over the precision γ², as means over points, in nats."""

    precisions: list[float]  # γ², ascending
    log_likelihood: Curve
    regularised: Curve  # log p - c
    elbo: Curve  # ELBO*
    gap: Curve  # log p - ELBO*
    contrast: float  # c
    samples: int  # points
    exact: bool  # whether the decoder is linear
    effective: Curve | None  # the smallest effective sample size of a point; None: exact
    draws: int  # 0: exact
    active: list[int]
    passive: list[int]
    method: str  # of the Jacobians
    per_sample: dict[str, Curves]  # log likelihood, elbo
    contrasts: PerSample
    flags: list[str]

    why_no_interval = "points differ, so their own values are in per_sample"
    why_no_chance = "it belongs to the decoder, whatever its codes know"
    score_fields = ("contrast",)

    @property
    def score(self) -> float:
        """The gap at the highest precision."""
        return float(self.gap[-1])

    def measures(self) -> list[Measure]:
        """The gap at each precision, the highest as the score, and the contrast."""
        highest = self.measure("", self.score)
        named = [
            self.measure(f"gap at γ² = {precision:g}", value)
            for precision, value in zip(self.precisions[:-1], self.gap[:-1].tolist(), strict=True)
        ]
        return [highest, *named, self.measure("contrast", self.contrast)]

    def summary(self) -> list[tuple[str, str]]:
        lines = [("highest γ²", f"{self.precisions[-1]:g}"), *super().summary()]
        if self.effective is not None:
            lines.append(("smallest effective sample size", f"{self.effective.min():.0f}"))
        return lines

    def plot(self, ax: Any = None) -> Any:
        """The three curves, and beside them the gap with the contrast; with `ax` the gap alone."""
        from zscope.plots import curves_and_gap

        return curves_and_gap(
            {"log p": self.log_likelihood, "log p − c": self.regularised, "ELBO*": self.elbo},
            self.gap,
            at=self.precisions,
            level=self.contrast,
            x="decoder precision γ²",
            y="nats",
            gap_name="log p − ELBO*",
            level_name="c",
            ax=ax,
        )


@accepts_recording
def ima_curve(
    decoder: Autoencoder | Matrix | np.ndarray | Callable[[Tensor], Tensor],
    points: Recorded,
    *,
    precisions: Sequence[float] = (1.0, 10.0, 100.0, 1000.0),
    observations: Tensor | np.ndarray | None = None,
    active: Rule = "used",
    place: Place = None,
    latents: Singles = None,
    samples: int = 32,
    draws: int = 1000,
    noise: int = 32,
    steps: int = 30,
    method: Method = "auto",
    generator: Generator | None = None,
) -> IMACurve:
    """log p, log p - c and ELBO* at each precision γ², averaged over at most `samples` points.

    `decoder` is a model, a function of codes, or the weights of a linear decoder (features x
    latents). `points` are codes, and `observations` what they stand for, by default the decoded
    codes. `active`, `place` and `latents` select latents, as in `distance_to_orthogonality`; the
    others stay fixed: at a place of a map, the likelihoods are given the other places.
    For a decoder that is not linear, `draws` importance samples estimate log p, and `noise`
    draws and at most `steps` steps find ELBO*. Raises `Undefined` if fewer than half of the
    points have an effective sample size of 50.
    """
    who = "ima_curve"
    levels = _check(who, precisions, draws=draws, noise=noise, steps=steps)
    model = _as_model(who, decoder, points)
    codes = codes_of(points, who).detach().cpu()
    codes = codes.double() if isinstance(model, _Function) else codes
    rule = "all" if isinstance(model, _Function) and active == "used" else active
    generator = fresh(generator)
    columns = choose_columns(
        who,
        model,
        points,
        active=rule,
        place=place,
        latents=latents,
        samples=samples,
        generator=generator,
    )
    check_two_active(who, columns)
    rows, own, unit = columns.rows, columns.latents, columns.unit
    x = None if observations is None else as_tensor(observations, who)
    if x is not None and (x.ndim == 0 or len(x) != len(codes)):
        raise Undefined(
            f"{who}: {len(codes)} points and observations of shape {tuple(x.shape)}; row i of both "
            "must belong together. Leave observations out to use the decoded points."
        )
    near = linearise(model, codes[rows], latents=own, method=method)
    full = near.spectra[:, -1] > near.precision * near.spectra[:, 0]
    if not full.any():
        raise Undefined(
            f"{who}: at all {len(full)} points the columns of {near.triangle.shape[1]} {unit}s are "
            f"linearly dependent, so c is infinite. Two {unit}s have the same effect, or one has "
            "none: list others with active=[…]"
        )
    flags = list(near.flags)
    if not full.all():
        flags.append(f"Left out {int((~full).sum())} of {len(full)} points where c is infinite.")
    rows, own = rows[full], own if isinstance(own, list) else own[full]
    seen = None if x is None else x.detach().cpu()[rows]
    local = Local(model, codes[rows], own, seen, method=method, batch=near.batch)
    linear = _linear_parts(local, generator)
    options = {"draws": draws, "noise": noise, "steps": steps}
    curves = _curves(local, linear, levels, options, generator)
    kept, more = _reliable(who, curves, levels, draws)
    contrasts = log_column_ratio(near.triangle[full], near.precision)[kept]
    log_likelihood = torch.stack([each.log_likelihood[kept] for each in curves])
    elbo = torch.stack([each.elbo[kept] for each in curves])
    sizes = [each.effective[kept].min() for each in curves if each.effective is not None]
    result = IMACurve(
        precisions=levels,
        log_likelihood=log_likelihood.mean(1),
        regularised=(log_likelihood - contrasts).mean(1),
        elbo=elbo.mean(1),
        gap=(log_likelihood - elbo).mean(1),
        contrast=float(contrasts.mean()),
        samples=len(contrasts),
        exact=linear is not None,
        effective=torch.stack(sizes) if sizes else None,
        draws=draws if linear is None else 0,
        active=columns.active,
        passive=columns.passive,
        method=near.method,
        per_sample={"log likelihood": log_likelihood, "elbo": elbo},
        contrasts=contrasts,
        flags=[*flags, *more],
        place=columns.place,
    )
    return columns.name(result)


class _Function(Autoencoder):
    """A decoder alone, on double-precision numbers."""

    def __init__(self, function: Callable[[Tensor], Tensor], latents: int) -> None:
        super().__init__()
        self.function, self.latents = function, latents

    def decode(self, z: Codes) -> Tensor:
        return self.function(z)


def _as_model(who: str, decoder: Any, points: Recorded) -> Autoencoder:
    if isinstance(decoder, Autoencoder):
        return decoder
    latents = codes_of(points, who).shape[1]
    if not isinstance(decoder, Tensor | np.ndarray):
        return _Function(decoder, latents)
    W = as_tensor(decoder, who).detach().cpu()
    if W.ndim != 2 or W.shape[1] != latents or W.is_complex() or not W.isfinite().all():
        raise Undefined(
            f"{who}: weights of shape {tuple(W.shape)} and type {W.dtype} for points with "
            f"{latents} latents; expected finite numbers, features x latents. Transpose them?"
        )
    W = W.double()
    return _Function(lambda z: z @ W.to(z).T, latents)


def _check(who: str, precisions: Sequence[float], **counts: int) -> list[float]:
    whole(who, 2, **counts)
    levels = sorted(float(each) for each in precisions)
    if not levels or not all(0 < each < float("inf") for each in levels):
        raise ConfigError(
            f"{who}: precisions={list(precisions)}; expected γ² of the likelihood, finite numbers "
            "above 0, such as [1, 10, 100]."
        )
    return levels


def _linear_parts(local: Local, generator: Generator) -> list[tuple[Tensor, Matrix]] | None:
    """Rows with the weights that they share, for a linear decoder; None for another one."""
    parts: list[tuple[Tensor, Matrix]] = []
    for rows in local.alike():
        W = linear_weights(local[rows], generator)
        if W is None:
            return None
        parts.append((rows, W))
    return parts


def _linear_likelihoods(
    local: Local, parts: list[tuple[Tensor, Matrix]], level: float
) -> Likelihoods:
    both = torch.empty(2, len(local.codes), dtype=torch.float64)
    for rows, W in parts:
        each = linear_likelihoods(local[rows], W, level)
        both[:, rows] = torch.stack([each.log_likelihood, each.elbo])
    return Likelihoods(both[0], both[1], None, 0)


def _curves(
    local: Local,
    linear: list[tuple[Tensor, Matrix]] | None,
    levels: list[float],
    options: dict[str, int],
    generator: Generator,
) -> list[Likelihoods]:
    if linear is not None:
        return [_linear_likelihoods(local, linear, level) for level in levels]
    curves: list[Likelihoods] = []
    start = local.points
    for level in reversed(levels):  # at the highest precision the point itself is nearly best
        each, start = sampled_likelihoods(local, level, start, generator=generator, **options)
        curves.insert(0, each)
    return curves


def _reliable(
    who: str, curves: list[Likelihoods], levels: list[float], draws: int
) -> tuple[Tensor, list[str]]:
    """The points with enough effective samples at every precision, and what to say of others."""
    kept = torch.ones(len(curves[0].elbo), dtype=torch.bool)
    sizes = [each.effective for each in curves if each.effective is not None]
    if not sizes:
        return kept, []
    smallest, at = torch.stack(sizes).min(0)
    kept = smallest >= FEWEST
    if float(kept.double().mean()) < KEPT:
        worst = int(smallest.argmin())
        raise Undefined(
            f"{who}: at {int((~kept).sum())} of {len(kept)} points fewer than {FEWEST} of {draws} "
            f"importance samples are effective (the least: {float(smallest.min()):.3g}, at γ² = "
            f"{levels[int(at[worst])]:g}): the posterior is far from a Gaussian. Give higher "
            "precisions or more draws."
        )
    flags = []
    if not kept.all():
        flags.append(
            f"Left out {int((~kept).sum())} of {len(kept)} points with fewer than {FEWEST} "
            "effective importance samples."
        )
    if unsettled := sum(each.unsettled for each in curves):
        flags.append(
            f"In {unsettled} of {len(kept) * len(levels)} cases the search for ELBO* has not "
            "ended, so that the gap is too large: raise steps."
        )
    return kept, flags


ENTRY = Entry(
    question="How much likelihood does a diagonal posterior cost, at each decoder precision?",
    meaning=(
        "How many nats of likelihood a diagonal posterior costs at each precision of the decoder; "
        "0 everywhere if the decoder's columns are orthogonal."
    ),
    figure=(
        "Log-likelihood and the best ELBO against the decoder's precision: the distance between "
        "the curves is the gap."
    ),
    takes=("decoder", "recording"),
    needs=("two latents", "prior"),
    passes="samples * (latents + 4 * (6 * latents * (noise + 2 * latents) + 2 * draws))",
    most=1_000_000,
    fewest=1,
    on_request=True,
    maps="place",
)

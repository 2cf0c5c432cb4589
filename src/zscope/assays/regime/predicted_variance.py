"""Predicted variance: does the decoder explain how precise the encoder is?

At the optimum of a VAE with Gaussian likelihood of variance γ, the posterior covariance
at code z is

    Sigma(z) = ( I + J^T J / γ )^-1,      J = Jacobian of the decoder at z

Its diagonal lies between 0 and 1: 1 for a latent the decoder ignores. Comparing it with the
encoder's variances shows whether the encoder is as precise as it should be. With the diagonal
covariance most VAEs use, the optimum is 1 / (1 + (J^T J)_jj / γ) (`diagonal=True`, and the
default for such posteriors). A loss that weights the divergence by β has the optimum of β γ.
Rotating or flipping the latents rotates or flips the covariance; shifting the decoded
observations changes nothing.

Given a posterior instead of codes, `ratio` is the median over codes of encoder / predicted
for each latent (1: as predicted), and `correlation` is that of the logarithms over all codes
and latents.

Kumar & Poole, "On implicit regularization in β-VAEs", ICML 2020; Bonheme 2023, equation
7.13. Squared error |x - decoded|^2 has γ = 1/2. For a Bernoulli likelihood J^T J is the Fisher
information of the pixels and γ = 1. β is that of the model (`divergence_weight`).
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.active import AtPlace, Place, choose_columns, codes_of, used_units
from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, posterior_of
from zscope.assays.entry import Entry
from zscope.assays.halves import Interval, halves_interval
from zscope.assays.jacobian import Likelihood, Method, likelihood_of
from zscope.autoencoder import Autoencoder
from zscope.errors import Undefined
from zscope.results import Measure, Scored
from zscope.types import Codes, Matrix

__all__ = ["PredictedVariance", "predicted_variance"]

RESAMPLES = 100
ROUNDING = 1e12  # of the largest squared derivative in units of gamma


@dataclass(frozen=True, eq=False)
class PredictedVariance(AtPlace, Scored):
    score_fields = ("correlation",)

    variance: Codes  # samples x latents
    gamma: float  # times β
    beta: float  # 1 if gamma was given
    diagonal: bool  # whether the best diagonal covariance is predicted
    likelihood: str
    method: str  # of the Jacobians
    actual: Codes | None  # variances of the encoder, if a posterior was given
    ratio: Float[Tensor, " latents"] | None
    used: list[int] | None  # those in use (`zscope.usage`), whose ratios are printed
    correlation: float | None
    flags: list[str]
    interval: Interval | None  # of the correlation
    no_interval: str  # the reason, if there is no interval
    chance: float = 0.0  # the correlation of unrelated variances

    def measures(self) -> list[Measure]:
        """The correlation, if there is one."""
        if self.correlation is None:
            return []
        count = len(self.variance)
        return [
            self.measure("correlation", self.correlation, interval=self.interval, samples=count)
        ]

    def summary(self) -> list[tuple[str, str]]:
        lines = super().summary()
        if self.ratio is None or self.used is None:
            return lines
        # Passive latents, whose variance is 1 in any case, say nothing.
        if not self.used:
            return [("encoder / predicted", "no latent is used"), *lines]
        ratios = self.ratio[self.used]
        low, middle, high = ratios.quantile(torch.tensor([0, 0.5, 1]).double()).tolist()
        several = f" (median; {low:.2f} to {high:.2f} for {len(ratios)} used latents)"
        text = f"{middle:.2f}" + (several if len(ratios) > 1 else " (one used latent)")
        return [("encoder / predicted", text), *lines]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars, lines

        if self.actual is None:
            return bars(self.variance.mean(0), x="latent", y="predicted variance", ax=ax)
        predicted = self.variance.mean(0)
        order = predicted.argsort().tolist()
        means = {"encoder": self.actual.mean(0)[order], "decoder's prediction": predicted[order]}
        precise = "latent, most precise first"
        axes = lines(means, x=precise, y="mean variance", markers=True, ax=ax)
        if len(order) <= 16:
            axes.set_xticks(range(len(order)), [str(j) for j in order])
        return axes


@accepts_recording
def predicted_variance(
    autoencoder: Autoencoder,
    codes: Recorded,
    *,
    gamma: float | None = None,
    diagonal: bool | None = None,
    likelihood: Likelihood | Literal["auto"] = "auto",
    place: Place = None,
    samples: int = 256,
    method: Method = "auto",
    generator: Generator | None = None,
) -> PredictedVariance:
    """The optimal variance of each latent, predicted from the decoder's Jacobian at each code.

    `gamma` is the variance of the likelihood times β. By default β is that of the model (1 if
    unknown, which is flagged), and the variance 1/2 (squared error), that of the model's
    gaussian likelihood, or 1 for the likelihood "bernoulli". `diagonal`: predict the best
    diagonal covariance; by default, if the posterior given has one. The likelihood "auto" is
    Gaussian if gamma is given, else the one the model was trained with (or the best guess). At
    most `samples` of the codes are used, at random. Of latents that are maps, the channels at a
    place are predicted, the other places being what they are: `place`, or by default another one
    of each picture.
    """
    who = "predicted_variance"
    posterior, means = posterior_of(codes, who), codes_of(codes, who)
    if likelihood == "auto":
        likelihood = likelihood_of(autoencoder, means) if gamma is None else "gaussian"
    flags = []
    beta = 1.0
    if gamma is None:
        variance = autoencoder.likelihood_variance or 0.5
        beta = 1.0 if autoencoder.divergence_weight is None else autoencoder.divergence_weight
        gamma = beta * (1.0 if likelihood == "bernoulli" else variance)
        if autoencoder.divergence_weight is None:
            flags.append(
                "The weight β of the divergence is not known, and taken to be 1. Set "
                "divergence_weight of the model, or gamma= (variance of the likelihood times β)."
            )
    if diagonal is None:
        diagonal = not posterior.deterministic and posterior.scale_tril is None
    if gamma <= 0:
        raise Undefined(f"{who}: gamma={gamma}; the variance of the likelihood must be > 0.")
    columns = choose_columns(
        who,
        autoencoder,
        codes,
        active="all",
        place=place,
        samples=samples,
        generator=generator,
    )
    local = columns.linearise(likelihood=likelihood, method=method)
    if diagonal:
        predicted = 1 / (1 + local.lengths.square() / gamma)
    else:
        largest = float(local.lengths.max()) ** 2
        if not largest <= ROUNDING * gamma:
            raise Undefined(
                f"{who}: gamma={gamma:.3g} is too small beside squared derivatives of up to "
                f"{largest:.3g}: rounding hides the prior. Give a larger gamma, or diagonal=True."
            )
        gram = local.triangle.mT @ local.triangle / gamma
        eye = torch.eye(gram.shape[1], dtype=torch.float64)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram + eye))
        predicted = inverse.diagonal(dim1=1, dim2=2)
    actual = ratio = used = correlation = interval = None
    no_interval = ""
    if not posterior.deterministic:
        actual = columns.of(columns.posterior.variance).cpu().double()
        ratio = (actual / predicted).median(0).values
        if ratio.isnan().any():
            raise Undefined(
                f"{who}: the variances are {float(actual.min()):.3g} to {float(actual.max()):.3g}, "
                f"those predicted {float(predicted.min()):.3g} to {float(predicted.max()):.3g}: "
                "they cannot be compared. Has training diverged?"
            )
        used = used_units(autoencoder, codes, who)
        pairs = torch.stack([actual.log().flatten(), predicted.log().flatten()])
        if pairs.shape[1] > 1 and bool((pairs.std(1) > 1e-9).all()):
            correlation = float(torch.corrcoef(pairs)[0, 1])
            both = torch.cat([actual.log(), predicted.log()], 1)
            interval, no_interval = halves_interval(
                _correlation, both, correlation, RESAMPLES, generator, who
            )
    result = PredictedVariance(
        variance=predicted,
        gamma=float(gamma),
        beta=float(beta),
        diagonal=diagonal,
        likelihood=likelihood,
        method=local.method,
        actual=actual,
        ratio=ratio,
        used=used,
        correlation=correlation,
        flags=[*flags, *local.flags],
        interval=interval,
        no_interval=no_interval,
        place=columns.place,
    )
    return columns.name(result)


def _correlation(both: Matrix) -> float:
    """The correlation of the left half of the columns with the right half."""
    pairs = torch.stack([part.flatten() for part in both.chunk(2, 1)])
    return float(torch.corrcoef(pairs)[0, 1])


ENTRY = Entry(
    question="Does the decoder explain how precise the encoder is?",
    meaning=(
        "How well the decoder's derivatives explain the encoder's variances: a correlation of 1 "
        "means that the encoder is as precise as the decoder makes it worthwhile."
    ),
    figure=(
        "The encoder's variance of each latent beside what the decoder predicts for it: the two "
        "lines agree in a model at its optimum."
    ),
    takes=("decoder", "recording"),
    needs=("variances",),
    passes="samples * latents",
    most=4_000,
    maps="place on request",
)

"""Rate and distortion: how many nats do the latents use, and how well do they reconstruct?

    distortion = E[ -log p(x | z) ],  z drawn from q(z | x)
    rate       = E[ KL( q(z | x) || N(0, I) ) ],        ELBO = -(distortion + rate)
                 (or from the prior given the factors of x, for a model that has one)

in nats per sample, summed over dimensions. Raising β moves a model along one curve
of rate against distortion; another architecture has another curve.

The rate is an upper bound on the information of the latents about the observation,

    information = rate - KL( q(z) || N(0, I) )  <=  rate,   at most log(samples)

q(z) being the average of the posteriors of the given samples. Where the prior depends on the
factors u (iVAE), the rate bounds the information given u only: what the codes tell about u costs
nothing. The information includes it, and may exceed the rate; its bound is the mean divergence
from the nearest Gaussian with independent latents (sum of I_j in `zscope.usage`), which holds for
any prior:

    information = I(z; u) + I(z; x | u),    I(z; x | u) <= rate,    information <= sum_j I_j

`likelihood="bernoulli"` treats the decoded observation as probabilities;
"gaussian" uses |x - decoded|^2, a Gaussian of variance 1/2 without its constant.

Alemi et al., "Fixing a broken ELBO", ICML 2018; Hoffman & Johnson, "ELBO surgery", 2016;
Bonheme 2023, section 4.3.1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import check_size, encode
from zscope.assays.entry import Entry
from zscope.assays.jacobian import Likelihood
from zscope.autoencoder import Autoencoder, Posterior, evaluation
from zscope.errors import ConfigError, InterfaceError, Undefined
from zscope.randomness import fresh
from zscope.results import Measure, Scored
from zscope.sampling import whole
from zscope.types import Codes, Observations, as_tensor
from zscope.usage import usage_of_posterior

__all__ = ["RateDistortion", "carried_information", "negative_log_likelihood", "rate_distortion"]

CHUNK_BYTES = 16 << 20
INCLUDES_FACTORS = (
    "The prior depends on the factors: the information includes what the codes tell about them, "
    "the rate does not."
)


@dataclass(frozen=True, eq=False)
class RateDistortion(Scored):
    """In nats per sample. A model that ignores the observation has rate and information 0."""

    why_no_interval = "there is only one observation"
    why_no_chance = "there is no other observation whose code could be decoded instead"
    score_fields = ("distortion", "rate", "information", "ignorance")

    distortion: float
    rate: float
    information: float | None  # None for posteriors with a full covariance
    likelihood: str
    samples: int
    standard_errors: dict[str, float] = field(default_factory=dict)
    ignorance: float | None = None  # the distortion with the codes of other observations
    flags: list[str] = field(default_factory=list)

    def measures(self) -> list[Measure]:
        chances = {"distortion": self.ignorance, "rate": 0.0, "information": 0.0}
        return [
            self.measure(
                name,
                getattr(self, name),
                standard_error=self.standard_errors.get(name),
                chance=chance,
            )
            for name, chance in chances.items()
            if getattr(self, name) is not None
        ]

    @property
    def elbo(self) -> float:
        return -(self.distortion + self.rate)


@accepts_recording
def rate_distortion(
    autoencoder: Autoencoder,
    observations: Observations | np.ndarray,
    *,
    posterior: Posterior | None = None,
    kl: Codes | None = None,
    likelihood: Likelihood | Literal["auto"] = "auto",
    samples: int = 2000,
    batch: int = 256,
    generator: Generator | None = None,
) -> RateDistortion:
    """Rate and distortion of a model on some observations, with one draw of z for each.

    `posterior` is the recorded posterior of the observations; without it they are encoded. `kl`
    is the divergence of each latent from a prior that depends on the factors.

    At most `samples` observations are used, evenly spaced. The likelihood "auto" is the one
    the model was trained with if it states one (zscope's models do, with its variance), else
    Bernoulli if all observations lie between 0 and 1, else Gaussian.
    """
    whole("rate_distortion", 1, samples=samples, batch=batch)
    observations = as_tensor(observations, "rate_distortion").detach()
    if observations.ndim < 2 or len(observations) == 0 or observations.is_complex():
        raise Undefined(
            f"rate_distortion: observations of shape {tuple(observations.shape)} and type "
            f"{observations.dtype}; expected real numbers, at least one row."
        )
    if posterior is not None and len(posterior) != len(observations):
        raise ConfigError(
            f"rate_distortion: {len(observations)} observations and {len(posterior)} posteriors. "
            "Give the posterior of these observations, in the same order."
        )
    if samples < len(observations):
        rows = torch.linspace(0, len(observations) - 1, samples).long()
        observations = observations[rows]
        posterior = None if posterior is None else posterior[rows]
        kl = None if kl is None else kl[rows]
    if posterior is None:
        every = np.arange(len(observations))
        posterior = encode(autoencoder, lambda rows: observations[rows], every)
    source = fresh(generator)
    name, loss = _likelihood(autoencoder, observations, likelihood)
    device, dtype = autoencoder.place
    losses, unrelated = [], []
    with evaluation(autoencoder):
        for start in range(0, len(observations), batch):
            x = observations[start : start + batch].to(device, dtype)
            z = posterior[start : start + batch].sample(source).to(device, dtype)
            losses.append(loss(z, x).double().cpu())
            if len(x) > 1:
                unrelated.append(loss(z, x.roll(1, 0)).double().cpu())
    nats = posterior.kl() if kl is None else kl
    terms = {"distortion": torch.cat(losses), "rate": nats.double().sum(1)}
    for term, each in terms.items():
        if not each.isfinite().all():
            raise InterfaceError(
                f"rate_distortion: the {term} of {int((~each.isfinite()).sum())} of {len(each)} "
                "observations is NaN or infinite. Are the weights finite, and the data scaled as "
                "in training?"
            )
    rate = float(terms["rate"].mean())
    information = None
    if posterior.std is not None:
        terms["information"] = log_density_ratios(posterior, source)
        information = information_of(terms["information"])
        bound = rate if kl is None else float(usage_of_posterior(posterior).values.sum())
        information = min(bound, information)
    count = len(observations)
    return RateDistortion(
        distortion=float(terms["distortion"].mean()),
        rate=rate,
        information=information,
        likelihood=name,
        samples=count,
        standard_errors={
            name: float(each.std()) / count**0.5 for name, each in terms.items() if count > 1
        },
        ignorance=float(torch.cat(unrelated).mean()) if unrelated else None,
        flags=[] if kl is None else [INCLUDES_FACTORS],
    )


def negative_log_likelihood(decoded: Tensor, x: Tensor, likelihood: Likelihood) -> Tensor:
    """-log p(x | z) of each sample, summed over its dimensions, in float64."""
    check_size(decoded, x, "rate_distortion")
    decoded, x = decoded.flatten(1).double(), x.flatten(1).double()
    if likelihood == "gaussian":
        return (x - decoded).square().sum(1)
    if float(decoded.min()) < 0 or float(decoded.max()) > 1:
        raise Undefined(
            f"rate_distortion: decoded values run from {float(decoded.min()):.3g} to "
            f"{float(decoded.max()):.3g}, which are not probabilities. Does the decoder return "
            "logits? Add a sigmoid to it, or use likelihood='gaussian'."
        )
    # A float32 sigmoid reaches 0 and 1 exactly, where one wrong pixel would cost infinity.
    p = decoded.clamp(1e-7, 1 - 1e-7)
    return -(x * p.log() + (1 - x) * torch.log1p(-p)).sum(1)


def carried_information(posterior: Posterior, *, generator: Generator | None = None) -> float:
    """E[ log q(z|x) - log q(z) ]: nats that a sampled code carries about its observation.

    q(z) is the average of the given posteriors, so the value lies between 0 and the
    logarithm of their number.
    """
    if posterior.std is None:
        raise Undefined(
            "carried_information: the posteriors have no diagonal covariance; the encoder is "
            "deterministic or has a full covariance. Use a variational model with a std per latent."
        )
    return information_of(log_density_ratios(posterior.detach(), fresh(generator)))


def information_of(terms: Tensor) -> float:
    if not (len(terms) and terms.isfinite().all()):
        raise Undefined(
            f"carried_information: the densities of {int((~terms.isfinite()).sum())} of "
            f"{len(terms)} posteriors are not finite. Give at least one, with a std that is "
            "neither 0 nor infinite."
        )
    return min(max(0.0, float(terms.mean())), math.log(len(terms)))


def log_density_ratios(posterior: Posterior, generator: Generator) -> Tensor:
    """log q(z|x) - log q(z) for one draw from each posterior."""
    mean, variance = posterior.mean.double(), posterior.variance.double()
    z = posterior.sample(generator).double()
    n = len(mean)
    log_norm = variance.log().sum(1)
    own = -0.5 * (((z - mean).square() / variance).sum(1) + log_norm)
    log_q = _log_sum_of_densities(z, mean, variance, log_norm) - math.log(max(1, n))
    return own - log_q


def _log_sum_of_densities(z: Tensor, mean: Tensor, variance: Tensor, log_norm: Tensor) -> Tensor:
    """log sum_j exp( -((z - mean_j)^2 / variance_j + log_norm_j) / 2 ) for each row of z."""
    n, d = mean.shape
    if n == 0:
        return torch.empty(0, dtype=torch.float64)
    precision = 1 / variance
    centre = mean.mean(0)
    near, weighted = z - centre, (mean - centre) * precision
    constants = ((mean - centre) * weighted).sum(1) + log_norm
    sums, step = torch.empty(len(z), dtype=torch.float64), max(1, CHUNK_BYTES // (8 * n))
    for start in range(0, len(z), step):
        part = near[start : start + step]
        squares = part.square() @ precision.T
        logits = -0.5 * (squares - 2 * part @ weighted.T + constants)
        largest = float(squares.max())
        if largest > 1e5:
            # Sharp posteriors: the three terms cancel, which would cost more than 1e-10 nats.
            # Differences are taken for the few densities that count, within a factor exp(-100).
            least = logits.amax(1, keepdim=True) - (100 + 1e-14 * largest)
            for some in (logits > least).nonzero().split(max(1, CHUNK_BYTES // (8 * d))):
                i, j = some.T
                gaps = ((z[start + i] - mean[j]).square() * precision[j]).sum(1)
                logits[i, j] = -0.5 * (gaps + log_norm[j])
        sums[start : start + step] = torch.logsumexp(logits, 1)
    return sums


def _likelihood(
    autoencoder: Autoencoder, observations: Tensor, likelihood: str
) -> tuple[str, Callable[[Tensor, Tensor], Tensor]]:
    """The name of the likelihood, and the function (codes, observations) -> nats per sample."""
    if likelihood == "auto" and autoencoder.likelihood_name is not None:
        return autoencoder.likelihood_name, autoencoder.negative_log_likelihood
    inside = float(observations.min()) >= 0 and float(observations.max()) <= 1
    usual: Likelihood = "bernoulli" if inside else "gaussian"
    chosen: Any = usual if likelihood == "auto" else likelihood
    return chosen, lambda z, x: negative_log_likelihood(autoencoder.decode(z), x, chosen)


ENTRY = Entry(
    question="How many nats do the latents use, and how well do they reconstruct?",
    meaning=(
        "Rate is what the codes cost in nats, distortion what their reconstructions lose: their "
        "sum is the negative ELBO, and β trades one for the other."
    ),
    maps="flat on request",
    takes=("decoder", "observations", "posterior=posterior", "kl=conditional_kl"),
    needs=("variances",),
    passes="2 * samples",
)

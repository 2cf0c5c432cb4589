"""Objectives: what training minimises, as functions of tensors.

All losses are in nats per sample: summed over pixels and latents, averaged over the
batch. So β = 1 is the ELBO whatever the size of the picture, and a loss does not depend
on the size of the batch.

A likelihood describes how an observation differs from its reconstruction:

    bernoulli   -log p(x|z) = sum_i softplus(a_i) - x_i a_i         x̂ = sigmoid(a)
    gaussian    -log p(x|z) = 1/2 sum_i (x_i - a_i)²/γ + log(2πγ)    x̂ = a
    mse                       sum_i (x_i - a_i)²                     x̂ = a

with a the output of the decoder. `mse` has the gradients of `gaussian` with γ = 1/2.
(Kingma & Welling, ICLR 2014, arXiv:1312.6114, eq. 10 and appendix C.)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from zscope.autoencoder import Posterior
from zscope.errors import ConfigError, DataError
from zscope.types import Number, PerSample

__all__ = [
    "LIKELIHOODS", "POSTERIORS", "Bernoulli", "Gaussian", "Likelihood", "MeanSquare",
    "bernoulli_nll", "check_observations", "default_likelihood", "full_latents",
    "full_posterior", "gaussian_nll", "gaussian_posterior", "kl_to_gaussian",
    "kl_to_standard_normal", "logarithm", "point_posterior", "squared_error",
]  # fmt: skip


def bernoulli_nll(logits: Tensor, x: Tensor) -> PerSample:
    """-log p(x | z) for pixels in [0, 1], from logits: sum_i softplus(a_i) - x_i a_i.

    For grey pixels this is the cross-entropy, whose minimum is not 0 but the sum of the
    pixels' own entropies.
    """
    if logits.shape != x.shape:
        raise DataError(
            f"bernoulli_nll: logits of shape {tuple(logits.shape)} for observations of shape "
            f"{tuple(x.shape)}; expected one for each pixel. Does the decoder fit the data?"
        )
    # binary_cross_entropy_with_logits is taken apart into many more operations in an ensemble.
    # Above 40, softplus(a) is a to the last bit of a double.
    logits = logits.to(x.dtype)
    softplus = F.softplus(logits, threshold=40)
    return torch.addcmul(softplus, x, logits, value=-1).sum(_feature_axes(x))


def gaussian_nll(mean: Tensor, x: Tensor, gamma: Number) -> PerSample:
    """-log N(x; mean, γ I), the constant included."""
    constant = math.prod(x.shape[1:]) * (math.log(2 * math.pi) + logarithm(gamma))
    return 0.5 * (squared_error(mean, x) / gamma + constant)


def logarithm(number: Number) -> Number:
    return number.log() if isinstance(number, Tensor) else math.log(number)


def squared_error(mean: Tensor, x: Tensor) -> PerSample:
    """||x - mean||², without the 1/2."""
    return (mean.to(x.dtype) - x).square().sum(_feature_axes(x))


def kl_to_standard_normal(posterior: Posterior) -> PerSample:
    """KL(q(z|x) || N(0, I)), summed over the latents; see `Posterior.kl`."""
    return posterior.kl().sum(1)


def kl_to_gaussian(posterior: Posterior, mean: Tensor, variance: Tensor | float) -> PerSample:
    """KL(q(z|x) || N(mean, diag variance)), summed over the latents.

    1/2 sum_j (Σ_jj + (μ_j - mean_j)²) / v_j - 1 - log L_jj²/v_j
    """
    std = torch.as_tensor(variance, dtype=mean.dtype, device=mean.device).sqrt()
    return kl_to_standard_normal(posterior.relative_to(Posterior(mean, std.expand_as(mean))))


def point_posterior(output: Tensor, x: Tensor) -> Posterior:
    """Read an encoder's output as the latents themselves."""
    return Posterior(output.to(x.dtype))


def gaussian_posterior(output: Tensor, x: Tensor) -> Posterior:
    """Read an encoder's output as means, then log-variances.

    In the precision of the observations: the divergence subtracts nearly equal numbers,
    which mixed precision must not round first.
    """
    mean, log_variance = output.to(x.dtype).chunk(2, dim=1)
    return Posterior(mean, (log_variance / 2).exp())


def full_posterior(output: Tensor, x: Tensor) -> Posterior:
    """Read an encoder's output as means, log-diagonals of L, and the entries of L below.

    Covariance L Lᵀ: L is lower triangular with a positive diagonal, so every full
    covariance has exactly one. (Zietlow 2022, section 3.2.7.)
    """
    latents = full_latents(output.shape[1])
    mean, diagonal, below = torch.split(
        output.to(x.dtype), [latents, latents, latents * (latents - 1) // 2], dim=1
    )
    # Gathered rather than written in place: entry (i, j) takes its number, or a zero.
    place = torch.zeros(latents, latents, dtype=torch.long, device=output.device)
    rows, columns = torch.tril_indices(latents, latents, -1, device=output.device)
    place[rows, columns] = torch.arange(1, 1 + len(rows), device=output.device)
    padded = torch.cat([torch.zeros_like(mean[:, :1]), below], dim=1)
    lower = padded[:, place.flatten()].reshape(-1, latents, latents)
    return Posterior(mean, scale_tril=lower + torch.diag_embed(diagonal.exp()))


def full_latents(outputs: int) -> int:
    """The number n of latents with n + n (n + 1) / 2 outputs."""
    return (math.isqrt(9 + 8 * outputs) - 3) // 2


@dataclass(frozen=True)
class Reading:
    """How to read the output of an encoder as a posterior."""

    outputs: Callable[[int], int]  # number of latents -> outputs for each observation
    read: Callable[[Tensor, Tensor], Posterior]


POSTERIORS = {
    "point": Reading(lambda latents: latents, point_posterior),
    "gaussian": Reading(lambda latents: 2 * latents, gaussian_posterior),
    "full": Reading(lambda latents: latents + latents * (latents + 1) // 2, full_posterior),
}


@runtime_checkable
class Likelihood(Protocol):
    """p(x | z): how to read the output of a decoder."""

    def nll(self, output: Tensor, x: Tensor) -> PerSample:
        """-log p(x | z) of each sample, in nats."""

    def mean(self, output: Tensor) -> Tensor:
        """The mean of p(x | z): the decoded observation."""

    def check(self, x: Tensor) -> None:
        """Raise if this likelihood cannot have produced such observations."""


class Bernoulli(nn.Module):
    """Pixels that are on with the decoded probability; grey ones are weighted in proportion."""

    def nll(self, output: Tensor, x: Tensor) -> PerSample:
        return bernoulli_nll(output, x)

    def mean(self, output: Tensor) -> Tensor:
        return output.sigmoid()

    def check(self, x: Tensor) -> None:
        least, most = x.min().item(), x.max().item()
        if least < 0 or most > 1:
            raise DataError(
                f"bernoulli likelihood: the observations range from {least:.4g} to {most:.4g}, but "
                "a Bernoulli pixel lies between 0 and 1; the loss would have no lower bound. "
                "Divide bytes by 255, turn standardising off (--data-option standardise=false), or "
                "build the model with likelihood='mse' or 'gaussian'."
            )


class MeanSquare(nn.Module):
    """Squared error: a Gaussian with variance 1/2 on every pixel, without its constant."""

    def nll(self, output: Tensor, x: Tensor) -> PerSample:
        return squared_error(output, x)

    def mean(self, output: Tensor) -> Tensor:
        return output

    def check(self, x: Tensor) -> None:
        pass


class Gaussian(nn.Module):
    """A Gaussian with one variance γ for all pixels, given or learned (starting at 1)."""

    def __init__(self, gamma: float | Literal["learned"] = 1.0) -> None:
        super().__init__()
        self._fixed_gamma = 1.0 if gamma == "learned" else gamma
        self.log_gamma = nn.Parameter(torch.zeros(())) if gamma == "learned" else None

    @property
    def gamma(self) -> Tensor | float:
        return self._fixed_gamma if self.log_gamma is None else self.log_gamma.exp()

    def initialise(self, generator: Generator) -> None:
        if self.log_gamma is not None:
            self.log_gamma.data.zero_()

    def nll(self, output: Tensor, x: Tensor) -> PerSample:
        return gaussian_nll(output, x, self.gamma)

    def mean(self, output: Tensor) -> Tensor:
        return output

    def check(self, x: Tensor) -> None:
        pass


LIKELIHOODS: dict[str, type[nn.Module]] = {
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
    "mse": MeanSquare,
}


def default_likelihood(shape: tuple[int, ...]) -> str:
    """`bernoulli` for pictures, `mse` for rows."""
    return "bernoulli" if len(shape) == 3 else "mse"


def check_observations(x: Tensor, shape: tuple[int, ...], likelihood: Likelihood) -> None:
    """Raise if a model for this shape and likelihood cannot learn from such observations."""
    if tuple(x.shape[1:]) != tuple(shape):
        raise ConfigError(
            f"models: the observations have shape {tuple(x.shape[1:])}, but the model was built "
            f"for {tuple(shape)}. Build it with shape=data.shape."
        )
    bad = int((~x.isfinite()).flatten(1).any(1).sum())
    if bad:
        raise DataError(
            f"models: {bad} of {len(x)} observations contain NaN or infinite numbers, so every "
            "loss would be NaN. Leave these rows out or fill the gaps first."
        )
    likelihood.check(x)


def _feature_axes(x: Tensor) -> tuple[int, ...]:
    return tuple(range(1, x.ndim))

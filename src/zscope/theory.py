"""Linear VAEs and iVAEs in closed form: the exact values that measurements should give.

The decoder is x = W z + b + noise of variance γ, the prior N(0, I). For fixed W and γ
the posterior that maximises  E_q[log p(x|z)] - β KL  is Gaussian with

    full       Sigma = (W^T W / (βγ) + I)^-1       diagonal   sigma_j = 1 / ((W^T W)_jj / (βγ) + 1)
    mean       mu = (W^T W + βγ I)^-1 W^T (x - b)

With β = 1 and the full covariance the ELBO is the log-likelihood of probabilistic PCA.
With the diagonal one it is at most that, with equality exactly when the columns of W are
orthogonal: rotating the latents lowers it, permuting and flipping them does not.

Optimised over W too, with λ_1 >= λ_2 >= … the eigenvalues of the data covariance,

    |w_j|^2 = max(λ_j - βγ, 0)      sigma_j = min(1, βγ / λ_j)      Var(mu_j) = 1 - sigma_j

so latent j is active exactly when λ_j > βγ, and its mean divergence is -1/2 log sigma_j.

zscope's Gaussian loss |x - decoded|^2 + β KL has γ = 1/2.

Lucas et al., "Don't blame the ELBO!", NeurIPS 2019; Bonheme 2023, equations 4.1 to 4.24
(where 4.12 and 4.13 print W W^T for W^T W) and section 5.2 for iVAEs.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import Undefined
from zscope.results import Result
from zscope.types import Codes, Matrix, PerSample, Spectrum, as_tensor

__all__ = [
    "LinearOptimum", "LinearVAE", "MixedLatent", "fit_linear_vae", "ivae_prior", "ivae_variance",
    "ivae_variance_path", "linear_ivae_posterior", "linear_vae", "linear_vae_optimum",
    "mixed_latent",
]  # fmt: skip

Rows = Float[Tensor, "samples features"]


@dataclass(frozen=True, eq=False)
class LinearVAE(Result):
    """A linear decoder with the best encoder for it. All numbers are float64."""

    weights: Matrix  # features x latents
    bias: Float[Tensor, " features"]
    gamma: float
    beta: float
    diagonal: bool

    @property
    def covariance(self) -> Matrix:
        """Posterior covariance: the same for every observation."""
        scaled = self.weights.T @ self.weights / (self.beta * self.gamma)
        if self.diagonal:
            return torch.diag(1 / (scaled.diagonal() + 1))
        eye = torch.eye(len(scaled), dtype=torch.float64)
        return torch.cholesky_inverse(torch.linalg.cholesky(scaled + eye))

    @property
    def variance(self) -> Spectrum:
        """Posterior variance of each latent."""
        return self.covariance.diagonal()

    def mean(self, x: Rows) -> Codes:
        """Posterior mean of each observation."""
        W, centred = self.weights, x.double() - self.bias
        features, latents = W.shape
        noise = self.beta * self.gamma
        if latents <= features:
            inner = W.T @ W + noise * torch.eye(latents, dtype=torch.float64)
            mean: Tensor = torch.linalg.solve(inner, W.T @ centred.T).T
            return mean
        outer = W @ W.T + noise * torch.eye(features, dtype=torch.float64)
        weights: Tensor = torch.linalg.solve(outer, centred.T)
        return weights.T @ W

    def posterior(self, x: Rows) -> Posterior:
        mean = self.mean(x)
        if self.diagonal:
            return Posterior(mean, self.variance.sqrt().expand_as(mean).clone())
        root = torch.linalg.cholesky(self.covariance)
        return Posterior(mean, scale_tril=root.expand(len(mean), *root.shape).clone())

    def reconstruction(self, x: Rows) -> PerSample:
        """E_q[ log p(x | z) ], exactly."""
        residual = x.double() - self.bias - self.mean(x) @ self.weights.T
        noise = float((self.weights @ self.covariance * self.weights).sum())
        error = residual.square().sum(1) + noise
        return -0.5 * (x.shape[1] * math.log(2 * math.pi * self.gamma) + error / self.gamma)

    def elbo(self, x: Rows) -> PerSample:
        """E_q[ log p(x | z) ] - KL of each observation (β does not enter)."""
        return self.reconstruction(x) - self.posterior(x).kl().sum(1)

    def objective(self, x: Rows) -> PerSample:
        """E_q[ log p(x | z) ] - β KL: what the encoder maximises."""
        return self.reconstruction(x) - self.beta * self.posterior(x).kl().sum(1)

    def log_likelihood(self, x: Rows) -> PerSample:
        """log p(x) under the decoder: a Gaussian of covariance W W^T + γ I."""
        features = len(self.bias)
        C = self.weights @ self.weights.T + self.gamma * torch.eye(features, dtype=torch.float64)
        law: Any = torch.distributions.MultivariateNormal(self.bias, C)
        nats: Tensor = law.log_prob(x.double())
        return nats

    def autoencoder(self) -> Autoencoder:
        """The same as an Autoencoder, for any assay."""
        return _LinearAutoencoder(self)


class _LinearAutoencoder(Autoencoder):
    def __init__(self, linear: LinearVAE) -> None:
        super().__init__()
        self.linear = linear
        self.latents = linear.weights.shape[1]
        self.likelihood_name = "gaussian"
        self.divergence_weight = linear.beta

    @property
    def likelihood_variance(self) -> float:
        return self.linear.gamma

    @property
    def place(self) -> tuple[torch.device, torch.dtype]:
        return torch.device("cpu"), torch.float64

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        return self.linear.posterior(x.flatten(1))

    def decode(self, z: Codes) -> Tensor:
        return z @ self.linear.weights.to(z.dtype).T + self.linear.bias.to(z.dtype)

    def negative_log_likelihood(self, z: Codes, x: Tensor) -> PerSample:
        error = (x.flatten(1).double() - self.decode(z)).square().sum(1) / self.linear.gamma
        constant = len(self.linear.bias) * math.log(2 * math.pi * self.linear.gamma)
        return 0.5 * (error + constant)


def linear_vae(
    weights: Matrix,
    *,
    gamma: float,
    bias: Float[Tensor, " features"] | None = None,
    beta: float = 1.0,
    diagonal: bool = True,
) -> LinearVAE:
    """The best encoder for a linear decoder (features x latents) with noise of variance γ."""
    _positive("linear_vae", gamma=gamma, beta=beta)
    W = as_tensor(weights, "linear_vae").detach()
    if W.ndim != 2 or 0 in W.shape or W.is_complex() or not W.isfinite().all():
        raise Undefined(
            f"linear_vae: weights of shape {tuple(W.shape)} and type {W.dtype}; expected finite "
            "numbers, features x latents. Are they the weight of a torch.nn.Linear decoder?"
        )
    W = W.double()
    offset = torch.zeros(len(W), dtype=torch.float64)
    if bias is not None:
        offset = as_tensor(bias, "linear_vae").detach().double()
        if offset.shape != (len(W),):
            raise Undefined(
                f"linear_vae: a bias of shape {tuple(offset.shape)} for {len(W)} features. Give "
                "one number for each feature."
            )
    return LinearVAE(W, offset, float(gamma), float(beta), diagonal)


def fit_linear_vae(x: Rows, *, latents: int, gamma: float, beta: float = 1.0) -> LinearVAE:
    """The linear β-VAE with the best decoder for data: weights along principal directions."""
    _positive("fit_linear_vae", gamma=gamma, beta=beta)
    centre = x.double().mean(0)
    _, values, directions = torch.linalg.svd(x.double() - centre, full_matrices=False)
    count = min(latents, len(values))
    eigenvalues = values[:count].square() / len(x)
    weights = torch.zeros(x.shape[1], latents, dtype=torch.float64)
    lengths = (eigenvalues - beta * gamma).clamp(min=0).sqrt()
    weights[:, :count] = directions[:count].T * lengths
    return linear_vae(weights, gamma=gamma, bias=centre, beta=beta)


@dataclass(frozen=True, eq=False)
class LinearOptimum(Result):
    """The optimum of a linear β-VAE, latent by latent; largest eigenvalue first."""

    squared_weights: Spectrum
    variance: Spectrum  # of the posterior
    variance_of_means: Spectrum
    kl: Spectrum  # mean divergence
    active: list[int]
    passive: list[int]
    threshold: float  # βγ: eigenvalues above it are encoded

    @property
    def trace_gap(self) -> float:
        """What FONDUE measures: the sum of the posterior variances."""
        return float(self.variance.sum())

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        return bars(self.variance, x="latent", y="posterior variance", ax=ax)


def linear_vae_optimum(
    eigenvalues: Spectrum, *, gamma: float, beta: float = 1.0, latents: int | None = None
) -> LinearOptimum:
    """What a linear β-VAE with `latents` latents learns from data with these eigenvalues."""
    _positive("linear_vae_optimum", gamma=gamma, beta=beta)
    values = eigenvalues.double().sort(descending=True).values
    n = len(values) if latents is None else latents
    values = torch.cat([values, values.new_zeros(max(0, n - len(values)))])[:n]
    noise = beta * gamma
    variance = (noise / values.clamp(min=noise)).clamp(max=1)
    active = values > noise
    return LinearOptimum(
        squared_weights=(values - noise).clamp(min=0),
        variance=variance,
        variance_of_means=1 - variance,
        kl=-0.5 * variance.log(),
        active=[int(j) for j in active.nonzero().flatten()],
        passive=[int(j) for j in (~active).nonzero().flatten()],
        threshold=noise,
    )


def linear_ivae_posterior(
    x: Rows, weights: Matrix, *, gamma: float, prior_mean: Codes, prior_variance: Codes
) -> Posterior:
    """The posterior of a linear iVAE, whose prior N(prior_mean, diag(prior_variance)) may
    differ from sample to sample.

        Sigma = (W^T W / γ + P^-1)^-1        mu = Sigma (W^T x / γ + P^-1 prior_mean)
    """
    _positive("linear_ivae_posterior", gamma=gamma)
    W, x = weights.double(), x.double()
    precision = 1 / prior_variance.double()
    inner = W.T @ W / gamma + torch.diag_embed(precision)
    target = x @ W / gamma + precision * prior_mean.double()
    mean = torch.linalg.solve(inner, target.unsqueeze(-1)).squeeze(-1)
    covariance = torch.cholesky_inverse(torch.linalg.cholesky(inner))
    return Posterior(mean, scale_tril=torch.linalg.cholesky(covariance))


def ivae_prior(posterior: Posterior, groups: Tensor, *, learn_mean: bool) -> tuple[Codes, Codes]:
    """The best prior for given posteriors: (mean, variance), one row per sample.

    variance = E[ sigma + (mu - prior mean)^2 | u ], prior mean = E[ mu | u ] or 0, with
    averages over the samples of one group (one value of the auxiliary u).
    """
    mu, variance = posterior.mean.double(), posterior.variance.double()
    _, member = torch.unique(groups, return_inverse=True)
    count = torch.bincount(member).double().unsqueeze(1)

    def average(values: Tensor) -> Tensor:
        total = torch.zeros(len(count), values.shape[1], dtype=torch.float64)
        return (total.index_add_(0, member, values) / count)[member]

    mean = average(mu) if learn_mean else torch.zeros_like(mu)
    return mean, average(variance + (mu - mean).square())


def ivae_variance(strength: float, *, gamma: float, squared_mean: float) -> float:
    """Posterior variance of a latent of a linear iVAE with prior mean 0, at its fixed point.

    With A = (W^T W)_jj the variance solves sigma = 1 / (A/γ + 1 / (sigma + mu^2)):

        sigma = mu^2 / 2 ( sqrt(1 + 4 γ / (A mu^2)) - 1 )

    It tends to γ / A for small γ; the prior variance is then about mu^2 and the divergence
    1/2 log(1 + mu^2 / sigma).
    """
    _positive("ivae_variance", strength=strength, gamma=gamma, squared_mean=squared_mean)
    return squared_mean / 2 * (math.sqrt(1 + 4 * gamma / (strength * squared_mean)) - 1)


def ivae_variance_path(
    strength: float, *, gamma: float, start: float = 1.0, steps: int = 100
) -> list[float]:
    """The variance after each update when prior mean and variance are both learned.

    sigma_t = 1 / (1/sigma_0 + t A/γ), for t = 0 to `steps`: it tends to 0, there is no
    fixed point, and the model becomes a plain autoencoder (theorem 5.2.1).
    """
    _positive("ivae_variance_path", gamma=gamma, start=start)
    path = [start]
    for _ in range(steps):
        path.append(1 / (strength / gamma + 1 / path[-1]))
    return path


@dataclass(frozen=True, eq=False)
class MixedLatent(Result):
    """A latent that is active for a share w of the samples and passive for the rest."""

    variance_of_means: float
    variance_of_samples: float
    gap: float


def mixed_latent(share: float, *, mean: float, variance: float) -> MixedLatent:
    """Var(mean), Var(sample) and their difference, where the active samples have means of
    the given mean and variance: w (1-w) a^2 + w v, and 1 - w more."""
    if not 0 <= share <= 1:
        raise Undefined(f"mixed_latent: share={share}; expected a number between 0 and 1.")
    of_means = share * (1 - share) * mean**2 + share * variance
    return MixedLatent(of_means, of_means + 1 - share, 1 - share)


def _positive(who: str, **values: float) -> None:
    for name, value in values.items():
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise Undefined(f"{who}: {name}={value!r}; expected a number above 0, and finite.")


def __dir__() -> list[str]:
    return sorted(__all__)

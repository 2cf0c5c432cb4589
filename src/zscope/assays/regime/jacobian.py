"""Predicted variance: does the decoder explain how precise the encoder is?

At the optimum of a VAE with Gaussian likelihood of variance γ, the posterior covariance
at code z is

    Sigma(z) = ( I + J^T J / γ )^-1,      J = Jacobian of the decoder at z

Its diagonal lies between 0 and 1: 1 for a latent the decoder ignores. Compared with the
variances the encoder gives, it says whether the encoder is honest. With the diagonal
covariance most VAEs use, the optimum is 1 / (1 + (J^T J)_jj / γ) (`diagonal=True`).
Turning or flipping the latents turns or flips the covariance alike; shifting the decoded
observations changes nothing.

Kumar & Poole, "On implicit regularization in β-VAEs", ICML 2020; Bonheme 2023, equation
7.13. zscope's Gaussian likelihood |x - decoded|^2 has γ = 1/2; β multiplies γ.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import jacfwd, vmap

from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import Undefined
from zscope.results import Result
from zscope.types import Codes


@dataclass(frozen=True, eq=False)
class PredictedVariance(Result):
    variance: Codes  # samples x latents
    gamma: float

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        return bars(self.variance.mean(0), x="latent", y="predicted variance", ax=ax)


def predicted_variance(
    autoencoder: Autoencoder, codes: Codes, *, gamma: float = 0.5, diagonal: bool = False
) -> PredictedVariance:
    """The variance of each latent that the decoder's Jacobian at each code calls for."""
    if gamma <= 0:
        raise Undefined(
            f"predicted_variance: gamma={gamma}; the variance of the likelihood is > 0."
        )
    device, dtype = autoencoder.place

    def decode(z: Tensor) -> Tensor:
        return autoencoder.decode(z[None])[0].flatten()

    parts = []
    with evaluation(autoencoder, gradients=True):
        for part in codes.detach().to(device, dtype).split(32):
            J = vmap(jacfwd(decode))(part).detach().double()
            gram = J.transpose(1, 2) @ J / gamma
            if diagonal:
                parts.append(1 / (1 + gram.diagonal(dim1=1, dim2=2)))
            else:
                eye = torch.eye(gram.shape[1], dtype=torch.float64, device=gram.device)
                inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram + eye))
                parts.append(inverse.diagonal(dim1=1, dim2=2))
    return PredictedVariance(variance=torch.cat(parts).cpu(), gamma=gamma)

"""Rotate the latents of a model: the same model, seen along other axes.

    encoder_U = U encoder,      decoder_U = decoder ∘ U^T,      U orthogonal

Reconstructions and likelihood stay as they are, and so does the ELBO with a full posterior
covariance: mean -> U mean, covariance -> U Σ U^T. So nothing in the likelihood asks for any
particular axes. The objective as it is implemented, with a diagonal covariance, does ask:
after rotation the noise of a diagonal model is no longer diagonal. `diagonal=True` forces it
back, to the diagonal Gaussian nearest in KL(q_diagonal || q),

    1 / σ_j^2 = (Σ^-1)_jj,

which for a linear decoder is the best diagonal noise of the rotated model; the loss then
rises by G(W) (`zscope.assays.rotation_excess`).

Zietlow, PhD thesis, Tübingen 2022, eq. 3.3-3.4, propositions 2 and 3, section 5.1.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from zscope.autoencoder import Autoencoder, Posterior
from zscope.derived import Derived
from zscope.errors import InterfaceError
from zscope.types import Codes, Matrix


class Rotated(Derived):
    """A model with rotated latents; made by `rotate_latents`."""

    U: Tensor

    def __init__(self, autoencoder: Autoencoder, U: Tensor, diagonal: bool) -> None:
        super().__init__(autoencoder, len(U))
        self.diagonal = diagonal
        self.register_buffer("U", U)

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        before = self._encoded(x, auxiliary)
        U = self.U.to(before.mean)
        mean = before.mean @ U.T
        if before.deterministic:
            return Posterior(mean)
        if self.diagonal:
            return Posterior(mean, _precisions(before, U).rsqrt())
        root = before.scale_tril
        root = torch.diag_embed(before.std) if root is None else root  # type: ignore[arg-type]
        # R^T R = U L L^T U^T for the triangle R of (U L)^T: a Cholesky factor that loses no
        # digits by squaring. Its diagonal may come out negative; a sign for a row is free.
        upper = torch.linalg.qr((U @ root).mT, mode="r").R
        signs = torch.where(upper.diagonal(dim1=1, dim2=2) < 0, -1.0, 1.0).to(upper)
        return Posterior(mean, scale_tril=(signs[..., None] * upper).mT)

    def seen(self, z: Float[Tensor, "samples own"]) -> Codes:
        return z @ self.U.to(z)

    def causes(self, noise: Codes) -> Codes:
        U = self.U.to(noise)
        return self.original.causes(noise @ U) @ U.T


def rotate_latents(autoencoder: Autoencoder, U: Matrix, *, diagonal: bool = False) -> Autoencoder:
    """The model with latents z' = U z. The original is not changed, and shares its weights.

    A posterior with independent noise becomes one with full covariance, unless `diagonal`
    asks for the nearest independent one.
    """
    latents = autoencoder.latents
    if tuple(U.shape) != (latents, latents):
        raise InterfaceError(
            f"rotate_latents: U has shape {tuple(U.shape)}, but the model has {latents} latents: "
            f"({latents}, {latents}) is needed."
        )
    if getattr(autoencoder, "needs_auxiliary", False):
        raise InterfaceError(
            "rotate_latents: the prior of this model depends on factors, latent by latent. Rotated "
            "it would no longer be independent, and nothing could be measured against it. Rotate a "
            "model whose prior is N(0, I)."
        )
    U = U.detach().double().cpu()
    off = float((U @ U.T - torch.eye(latents, dtype=torch.float64)).abs().max())
    if not off < 1e-5:
        raise InterfaceError(
            f"rotate_latents: U is not orthogonal (U Uᵀ differs from the identity by {off:.2g}). A "
            "model would change with it. Take Q of torch.linalg.qr(matrix)."
        )
    return Rotated(autoencoder, U, diagonal)


def _precisions(posterior: Posterior, U: Tensor) -> Codes:
    """Diagonal of (U Σ U^T)^-1 = U Σ^-1 U^T."""
    if posterior.std is not None:
        return posterior.std.square().reciprocal() @ U.square().T
    assert posterior.scale_tril is not None
    turned = U.T.expand(len(posterior), -1, -1)
    return torch.linalg.solve_triangular(posterior.scale_tril, turned, upper=False).square().sum(1)

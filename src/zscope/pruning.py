"""Prune: take latents away from a model without changing what its decoder sees.

A passive latent is noise that the decoder ignores. `prune(autoencoder, keep)` gives a
model that presents the kept latents alone and fills in a constant for the others when it
decodes: 0, the mean of the prior, unless told otherwise. Where the decoder ignores the
others, reconstructions stay the same.

The original keeps all its weights, and the two share them. Works for any model, also for
posteriors with a full covariance, whose kept part is the marginal of the kept latents.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from zscope.autoencoder import Autoencoder, Posterior
from zscope.derived import Derived
from zscope.errors import InterfaceError
from zscope.types import Codes


class Pruned(Derived):
    """A model with fewer latents; made by `prune`."""

    keep: Tensor
    fill: Tensor

    def __init__(self, autoencoder: Autoencoder, keep: Tensor, fill: Tensor) -> None:
        super().__init__(autoencoder, len(keep))
        self.register_buffer("keep", keep)
        self.register_buffer("fill", fill)

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        whole = self._encoded(x, auxiliary)
        keep = self.keep.to(whole.mean.device)
        mean = whole.mean[:, keep]
        if whole.scale_tril is not None:
            covariance = whole.scale_tril @ whole.scale_tril.transpose(1, 2)
            part = covariance[:, keep][:, :, keep]
            return Posterior(mean, scale_tril=torch.linalg.cholesky(part))
        return Posterior(mean, None if whole.std is None else whole.std[:, keep])

    def seen(self, z: Float[Tensor, "samples own"]) -> Codes:
        """All latents of the original: the given ones in their places, constants elsewhere."""
        if z.shape[1] != self.latents:
            raise InterfaceError(
                f"prune: decode got {z.shape[1]} latents, but {self.latents} were kept "
                f"(of {len(self.fill)}): {self.keep.tolist()}. Give one column for each of these."
            )
        whole = self.fill.to(z).expand(len(z), -1)
        return whole.index_copy(1, self.keep.to(z.device), z)

    def prior_given(self, auxiliary: Tensor) -> Posterior | None:
        """The prior of the kept latents, where it depends on factors."""
        given = getattr(self.original, "prior_given", lambda _: None)(auxiliary)
        if given is None:
            return None
        keep = self.keep.to(given.mean.device)
        return Posterior(given.mean[:, keep], given.std[:, keep])

    def causes(self, noise: Codes) -> Codes:
        return self.original.causes(self.seen(noise))[:, self.keep.to(noise.device)]


def prune(
    autoencoder: Autoencoder,
    keep: Sequence[int] | Tensor,
    *,
    fill: Tensor | Sequence[float] | float = 0.0,
) -> Autoencoder:
    """A model that presents the kept latents alone, in the given order.

    `keep` lists indices, for instance `variable_types(...).used`. `fill` is what the
    decoder gets for the others: one number for all, or one for each latent of the original
    (for instance the mean of its codes; the values of kept latents are not used).
    The original is not changed, and shares its weights with the result.
    """
    total = autoencoder.latents
    chosen = [int(j) for j in keep]
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0 or max(chosen) >= total:
        raise InterfaceError(
            f"prune: keep={chosen} must list one or more different latents from 0 to {total - 1}. "
            + ("Are all latents passive? Then the model encodes nothing." if not chosen else "")
        )
    values = torch.as_tensor(fill, dtype=torch.float32).flatten()
    if len(values) not in (1, total):
        raise InterfaceError(
            f"prune: fill has {len(values)} values; give one number, or one for each of the "
            f"{total} latents of the original."
        )
    return Pruned(autoencoder, torch.tensor(chosen), values.expand(total).clone())

"""Models made of another model, whose weights they share: pruned and rotated ones.

**Prune**: remove latents from a model whose decoder stays as it is. A passive
latent is noise that the decoder ignores. `prune(autoencoder, keep)` gives a model with the
kept latents alone, which fills in a constant for the others when it decodes: 0, the mean of
the prior, by default. Where the decoder ignores the others, reconstructions stay the same.
Works for any model, also for posteriors with a full covariance: the kept part is the
marginal of the kept latents. Of latents that are maps, channels can be removed and single places
cannot: `prune(autoencoder, units=[1, 2, 3], fill=recording.codes.mean(0))` keeps these channels,
and the decoder gets their mean maps for the others. There is no default for maps, whose mean may be
far from 0.

**Rotate** the latents: the same model, seen along other axes.

    encoder_U = U encoder,      decoder_U = decoder ∘ U^T,      U orthogonal

Reconstructions and likelihood stay as they are, and so does the ELBO with a full posterior
covariance: mean -> U mean, covariance -> U Σ U^T. So nothing in the likelihood prefers any
particular axes. The objective as it is implemented, with a diagonal covariance, does prefer
some: after rotation the noise of a diagonal model is no longer diagonal. `diagonal=True`
replaces it by the diagonal Gaussian nearest in KL(q_diagonal || q),

    1 / σ_j^2 = (Σ^-1)_jj,

which for a linear decoder is the best diagonal noise of the rotated model; the loss then
rises by G(W) (`zscope.assays.rotation_excess`).

Of latents that are maps, U mixes the channels, in the same way at every place; the noise stays
independent, as the nearest diagonal Gaussian.

Zietlow, PhD thesis, Tübingen 2022, eq. 3.3-3.4, propositions 2 and 3, section 5.1.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import index
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from zscope.autoencoder import Autoencoder, Posterior, Prior
from zscope.errors import InterfaceError
from zscope.layout import Layout
from zscope.types import Codes, Matrix, PerSample, as_tensor

__all__ = ["prune", "rotate_latents"]

MEAN_MAPS = "fill=recording.codes.mean(0)"
"""What stands for removed channels."""
OwnCodes = Float[Tensor, "samples own"]


class Derived(Autoencoder):
    """Another view of `original`, which decodes `original_codes(z)` where this decodes z.

    Passes on all that the interface declares of any `Autoencoder`. A derived model is
    measured, not trained, and offers neither a causal block nor features.
    """

    safe_inputs = True

    def __init__(self, original: Autoencoder, latents: int) -> None:
        super().__init__()
        self.original, self.latents = original, latents
        self.observation_shape = original.observation_shape
        self.needs_auxiliary = original.needs_auxiliary
        self.decodes = original.decodes
        self.likelihood_name = original.likelihood_name
        self.divergence_weight = original.divergence_weight
        self.scaling = original.scaling

    def original_codes(self, z: OwnCodes) -> Codes:
        """The codes that the original's decoder gets for these."""
        raise InterfaceError(
            f"{type(self).__name__}: a derived model must define original_codes(z)."
        )

    @property
    def prior(self) -> Prior:  # type: ignore[override]
        return self.original.prior

    @property
    def likelihood_variance(self) -> float | None:
        return self.original.likelihood_variance

    @property
    def place(self) -> tuple[torch.device, torch.dtype]:
        return self.original.place

    def decode(self, z: Codes) -> Tensor:
        return self.original.decode(self.original_codes(z))

    def negative_log_likelihood(self, z: Codes, x: Tensor) -> PerSample:
        return self.original.negative_log_likelihood(self.original_codes(z), x)

    def _encode_original(self, x: Tensor, auxiliary: Tensor | None) -> Posterior:
        return self.original.encode(x) if auxiliary is None else self.original.encode(x, auxiliary)


class Pruned(Derived):
    """A model with fewer latents; made by `prune`."""

    keep: Tensor
    fill: Tensor

    def __init__(self, autoencoder: Autoencoder, keep: Tensor, fill: Tensor) -> None:
        super().__init__(autoencoder, len(keep))
        self.register_buffer("keep", keep)
        self.register_buffer("fill", fill)
        layout, scaling, positions = autoencoder.layout, autoencoder.latent_scaling, 1
        if layout is not None:
            positions = layout.positions
            self.layout = replace(layout, channels=len(keep) // positions)
        if scaling is not None:
            channels = (keep[::positions] // positions).tolist()
            self.latent_scaling = scaling.of_channels(channels, autoencoder.latents // positions)

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        return self._marginal(self._encode_original(x, auxiliary))

    def original_codes(self, z: OwnCodes) -> Codes:
        """All latents of the original: the given ones in their places, constants elsewhere."""
        if z.shape[1] != self.latents:
            raise InterfaceError(
                f"prune: decode got {z.shape[1]} latents, but {self.latents} were kept "
                f"(of {len(self.fill)}): {self.keep.tolist()}. Give one column for each of these."
            )
        return self.fill.to(z).expand(len(z), -1).index_copy(1, self.keep.to(z.device), z)

    def prior_given(self, auxiliary: Tensor) -> Posterior | None:
        prior = self.original.prior_given(auxiliary)
        return None if prior is None else self._marginal(prior)

    def causes(self, noise: Codes) -> Tensor:
        return self.original.causes(self.original_codes(noise))[:, self.keep.to(noise.device)]

    def _marginal(self, posterior: Posterior) -> Posterior:
        """The posterior of the kept latents alone."""
        keep = self.keep.to(posterior.mean.device)
        mean = posterior.mean[:, keep]
        if posterior.scale_tril is not None:
            covariance = posterior.scale_tril @ posterior.scale_tril.mT
            part = covariance[:, keep][:, :, keep]
            return Posterior(mean, scale_tril=torch.linalg.cholesky(part))
        std = None if posterior.std is None else posterior.std[:, keep]
        return Posterior(mean, std, layout=self.layout)


class Rotated(Derived):
    """A model with rotated latents; made by `rotate_latents`."""

    U: Tensor

    def __init__(self, autoencoder: Autoencoder, U: Tensor, diagonal: bool) -> None:
        super().__init__(autoencoder, len(U))
        self.diagonal = diagonal
        self.register_buffer("U", U)

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        before = self._encode_original(x, auxiliary)
        U = self.U.to(before.mean)
        mean = before.mean @ U.T
        if before.deterministic:
            return Posterior(mean)
        if self.diagonal:
            return Posterior(mean, _precisions(before, U).rsqrt())
        root = before.scale_tril
        root = torch.diag_embed(cast(Tensor, before.std)) if root is None else root
        # R^T R = U L L^T U^T for the triangle R of (U L)^T: a Cholesky factor that loses no
        # digits by squaring. Its diagonal may come out negative; the sign of each row is free.
        upper = torch.linalg.qr((U @ root).mT, mode="r").R
        signs = torch.where(upper.diagonal(dim1=1, dim2=2) < 0, -1.0, 1.0).to(upper)
        return Posterior(mean, scale_tril=(signs[..., None] * upper).mT)

    def original_codes(self, z: OwnCodes) -> Codes:
        return z @ self.U.to(z)

    def causes(self, noise: Codes) -> Tensor:
        return self.original.causes(self.original_codes(noise)) @ self.U.to(noise).T


class RotatedChannels(Derived):
    """A model whose channels are rotated at every place; made by `rotate_latents`."""

    U: Tensor

    def __init__(self, autoencoder: Autoencoder, layout: Layout, U: Tensor) -> None:
        super().__init__(autoencoder, layout.latents)
        self.layout: Layout = layout
        self.register_buffer("U", U)
        if autoencoder.latent_scaling is not None:
            self.latent_scaling = autoencoder.latent_scaling.mixed()

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        before = self._encode_original(x, auxiliary)
        U = self.U.to(before.mean)
        mean, std = self._mix(before.mean, U), None
        if before.std is not None:
            std = self._mix(before.std.square().reciprocal(), U.square()).rsqrt()
        return Posterior(mean, std, layout=self.layout)

    def original_codes(self, z: OwnCodes) -> Codes:
        return self._mix(z, self.U.to(z).T)

    def _mix(self, codes: Codes, matrix: Tensor) -> Codes:
        """The matrix applied to the channels at every place."""
        maps = codes.reshape(len(codes), self.layout.channels, -1)
        return torch.einsum("jk,ikp->ijp", matrix, maps).flatten(1)


class ChannelOffsets(Derived):
    """The channels of maps as latents: what is added to each at all places.

        decode(u) = original.decode( base + scale_k u_k at every place )
        encode(x) = mean over places of ( original.encode(x) - base )_k / scale_k

    `base` is one code of the original, `scale` the unit of each channel. There is no prior.
    """

    base: Tensor
    scale: Tensor

    def __init__(
        self, autoencoder: Autoencoder, layout: Layout, base: Tensor, scale: Tensor
    ) -> None:
        super().__init__(autoencoder, layout.channels)
        self.maps = layout
        # A constant channel has no unit of its own, and stays where it is.
        self.register_buffer("scale", scale.double())
        self.register_buffer("base", base.detach().double())

    @property
    def prior(self) -> Prior:  # type: ignore[override]
        return None

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        return Posterior(self.offsets(self._encode_original(x, auxiliary).mean))

    def original_codes(self, z: OwnCodes) -> Codes:
        everywhere = (z * self.scale.to(z)).repeat_interleave(self.maps.positions, 1)
        return self.base.to(z) + everywhere

    def offsets(self, codes: Codes) -> OwnCodes:
        """Codes of the original as offsets of each channel."""
        change = (codes - self.base.to(codes)).reshape(len(codes), self.latents, -1).mean(2)
        scale = self.scale.to(codes)
        return torch.where(scale > 0, change / scale.clamp_min(torch.finfo(scale.dtype).tiny), 0)


def prune(
    autoencoder: Autoencoder,
    keep: Sequence[int] | Tensor | None = None,
    *,
    units: Sequence[int] | Tensor | None = None,
    fill: Tensor | Sequence[float] | float | None = None,
) -> Autoencoder:
    """A model with the kept latents alone, in the given order.

    `keep` lists indices, for instance `recording.used`. `fill` is what the decoder gets for the
    others: one number for all (by default 0), or one for each latent of the original
    (for instance the mean of its codes; the values of kept latents are not used).
    Of latents that are maps, `units` lists the channels to keep, and `fill` is needed if others are
    removed: their mean maps, `recording.codes.mean(0)`, or a number for each channel. The original
    is not changed, and shares its weights with the result.
    """
    total, layout = autoencoder.latents, autoencoder.layout
    if (keep is None) == (units is None):
        raise InterfaceError(
            "prune: expected either keep=, the latents to keep, or units=, the channels of maps; "
            f"got {'neither' if keep is None else 'both'}. For instance zs.prune(autoencoder, "
            "recording.used)"
        )
    if layout is not None and units is None:
        few = ", ".join(map(str, range(1, layout.channels))) or "0"
        raise InterfaceError(
            f"prune: the latents are maps ({layout}); channels can be removed, single places "
            f"cannot: prune(autoencoder, units=[{few}], {MEAN_MAPS})"
        )
    if layout is None and units is not None:
        raise InterfaceError(
            f"prune: units={units!r}, but the {total} latents are a vector, without channels. List "
            "the latents to keep: zs.prune(autoencoder, recording.used). If they are maps, the "
            "model has to say so: autoencoder.layout = zs.Layout(channels, places)"
        )
    if layout is not None and units is not None:
        keep, fill = _channels(layout, units, fill)
    assert keep is not None
    try:
        chosen = [index(j) for j in keep]
        values = torch.as_tensor(0.0 if fill is None else fill, dtype=torch.float32).flatten()
    except (TypeError, ValueError, RuntimeError):
        raise InterfaceError(
            f"prune: keep={keep!r}, fill={fill!r}; expected a list of latents, for instance "
            "recording.used, and a number to fill in for the others."
        ) from None
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0 or max(chosen) >= total:
        raise InterfaceError(
            f"prune: keep={chosen} must list one or more different latents from 0 to {total - 1}. "
            + ("Is no latent in use? Then the model encodes nothing." if not chosen else "")
        )
    if len(values) not in (1, total):
        raise InterfaceError(
            f"prune: fill has {len(values)} values; give one number, or one for each of the "
            f"{total} latents of the original."
        )
    return Pruned(autoencoder, torch.tensor(chosen), values.expand(total).clone())


def _channels(
    layout: Layout, units: Sequence[int] | Tensor, fill: Tensor | Sequence[float] | float | None
) -> tuple[list[int], Tensor | Sequence[float] | float | None]:
    """The latents of these channels, and a number for each latent where there is one a channel."""
    try:
        chosen = [index(k) for k in units]
    except TypeError:
        chosen = []
    if (
        not chosen
        or len(set(chosen)) < len(chosen)
        or not 0 <= min(chosen) <= max(chosen) < (layout.channels)
    ):
        raise InterfaceError(
            f"prune: units={units!r} must list one or more different channels from 0 to "
            f"{layout.channels - 1}."
        )
    if fill is None and len(chosen) < layout.channels:
        raise InterfaceError(
            f"prune: {layout.channels - len(chosen)} of {layout.channels} channels are removed, "
            "and what the decoder gets for them was not given. Give their mean maps: "
            f"prune(autoencoder, units={chosen}, {MEAN_MAPS})"
        )
    if fill is not None:
        values = torch.as_tensor(fill, dtype=torch.float32).flatten()
        if len(values) == layout.channels:
            fill = values.repeat_interleave(layout.positions)
    return [j for k in chosen for j in range(*layout.ends(k))], fill


def rotate_latents(autoencoder: Autoencoder, U: Matrix, *, diagonal: bool = False) -> Autoencoder:
    """The model with latents z' = U z. The original is not changed, and shares its weights.

    A posterior with independent noise becomes one with full covariance, unless `diagonal`
    asks for the nearest independent one. Of latents that are maps, U is channels x channels and is
    applied at every place; their noise always stays independent.
    """
    layout = autoencoder.layout
    latents = autoencoder.latents if layout is None else layout.channels
    U = as_tensor(U, "rotate_latents").detach()
    if U.is_complex():
        raise InterfaceError("rotate_latents: U is complex; expected a real, orthogonal matrix.")
    if tuple(U.shape) != (latents, latents):
        raise InterfaceError(
            f"rotate_latents: U has shape {tuple(U.shape)}, but the model has {latents} "
            f"{'latents' if layout is None else 'channels'}: expected ({latents}, {latents})."
        )
    if autoencoder.needs_auxiliary:
        raise InterfaceError(
            "rotate_latents: the prior of this model depends on factors, with independent latents. "
            "Rotated, it would no longer be independent, and nothing could be measured against it. "
            "Rotate a model whose prior is N(0, I)."
        )
    U = U.double().cpu()
    error = float((U @ U.T - torch.eye(latents, dtype=torch.float64)).abs().max())
    if not error < 1e-5:
        raise InterfaceError(
            f"rotate_latents: U is not orthogonal (U Uᵀ differs from the identity by {error:.2g}), "
            "so it would change the model. Take Q of torch.linalg.qr(matrix)."
        )
    if layout is not None:
        return RotatedChannels(autoencoder, layout, U)
    return Rotated(autoencoder, U, diagonal)


def _precisions(posterior: Posterior, U: Tensor) -> Codes:
    """Diagonal of (U Σ U^T)^-1 = U Σ^-1 U^T."""
    if posterior.std is not None:
        return posterior.std.square().reciprocal() @ U.square().T
    assert posterior.scale_tril is not None
    rotation = U.T.expand(len(posterior), -1, -1)
    whitened: Tensor = torch.linalg.solve_triangular(posterior.scale_tril, rotation, upper=False)
    return whitened.square().sum(1)

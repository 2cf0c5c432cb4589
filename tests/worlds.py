"""Autoencoders and codes whose assays have known answers."""

import math

import numpy as np
import torch
from scipy import integrate
from torch import Tensor

import zscope as zs


class World(zs.Autoencoder):
    """An autoencoder of two functions on double-precision numbers; notes every batch it sees."""

    def __init__(self, decoder, encoder, latents, *, prior=None, std=None):
        super().__init__()
        self.decoder, self.encoder, self.latents = decoder, encoder, latents
        self.prior, self.std = prior, std
        self.decoded: list[Tensor] = []

    def decode(self, z):
        self.decoded.append(z)
        return self.decoder(z)

    def encode(self, x, auxiliary=None):
        mean = self.encoder(x)
        if self.std is None:
            return zs.Posterior(mean)
        return zs.Posterior(mean, torch.as_tensor(self.std, dtype=mean.dtype).expand_as(mean))


def identity(latents, **options):
    return responding(lambda z: z, latents, **options)


def responding(response, latents, **options):
    """Decodes every code as it is; the response is the given function."""
    return World(lambda z: z, response, latents, **options)


def constant(latents, value=0.25, **options):
    """Whatever is decoded, the encoder says the same."""
    return responding(lambda z: torch.full_like(z, value), latents, **options)


def linear(decoder: Tensor, **options):
    """x = z W, encoded by the pseudoinverse: the response projects on the row space of W Wᵀ."""
    inverse = torch.linalg.pinv(decoder)
    return World(lambda z: z @ decoder.to(z), lambda x: x @ inverse.to(x), len(decoder), **options)


def turning(rotation: Tensor, **options):
    """The response is a rotation: R(z) = Q z."""
    return responding(lambda z: z @ rotation.T.to(z), len(rotation), **options)


def ignoring(latents, ignored, **options):
    """The decoder does not look at the ignored latents; the encoder returns 0 for them."""
    keep = torch.ones(latents, dtype=torch.float64)
    keep[ignored] = 0
    return World(lambda z: z * keep.to(z), lambda x: x, latents, **options)


def rescaled(world: World, scale: Tensor):
    """The same model with every latent measured in other units: z_k times scale_k."""
    return World(
        lambda z: world.decoder(z / scale.to(z)),
        lambda x: world.encoder(x) * scale.to(x),
        world.latents,
        prior=world.prior,
        std=None if world.std is None else world.std * scale,
    )


def permuted(world: World, order: list[int]):
    """The same model with its latents in another order: new latent k is old latent order[k]."""
    back = torch.argsort(torch.tensor(order))
    return World(
        lambda z: world.decoder(z[:, back]),
        lambda x: world.encoder(x)[:, order],
        world.latents,
        prior=world.prior,
    )


def curved(latents, seed=0, **options):
    """A smooth response with every latent acting on every other, for comparisons by hand."""
    mix = torch.randn(latents, latents, generator=seeded(seed), dtype=torch.float64)
    return responding(lambda z: torch.tanh(z @ mix.to(z)) + 0.3 * z, latents, **options)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian_codes(samples, latents, seed=0, scale=1.0):
    codes = torch.randn(samples, latents, generator=seeded(seed), dtype=torch.float64)
    return codes * torch.as_tensor(scale, dtype=torch.float64)


def random_rotation(latents, seed=0):
    matrix = torch.randn(latents, latents, generator=seeded(seed), dtype=torch.float64)
    q, r = torch.linalg.qr(matrix)
    return q * r.diagonal().sign()


def expected_kernel(squared_shift: float, variance: float, latents: int, kernel_latents=None):
    """E k(a, b) of the IMQ kernels for a - b ~ N(shift, variance I), by quadrature.

    C / (C + r) is C times the integral of exp(-u (C + r)) over u > 0, and the expectation
    of exp(-u |a - b|^2) of a Gaussian is known. Nothing is shared with `mmd`.
    """
    total = 0.0
    for s in (0.1, 0.2, 0.5, 1, 2, 5, 10):
        width = 2 * (kernel_latents or latents) * s

        def integrand(t, width=width):
            u = t / (1 - t)
            wider = 1 + 2 * u * variance
            value = math.exp(-u * width - u * squared_shift / wider) * wider ** (-latents / 2)
            return width * value / (1 - t) ** 2

        total += integrate.quad(integrand, 0, 1, limit=200)[0]
    return total


def expected_mmd(latents: int, variance: float, shift: float = 0.0) -> float:
    """MMD^2 between N(0, I) and N(shift in every latent, variance I)."""
    return (
        expected_kernel(0, 2, latents)
        + expected_kernel(0, 2 * variance, latents)
        - 2 * expected_kernel(latents * shift**2, 1 + variance, latents)
    )


def grid(*sizes: int) -> np.ndarray:
    """Every combination of factor values."""
    return np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).reshape(-1, len(sizes))

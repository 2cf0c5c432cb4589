"""Autoencoders of latent maps whose answers are known (no training)."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import zscope as zs


def power_law(pictures: int, side: int, alpha: float, seed: int = 0, colours: int = 1):
    """Gaussian pictures whose power falls as 1 / frequency^alpha, periodic, unit variance."""
    generator = torch.Generator().manual_seed(seed)
    white = torch.randn(pictures, colours, side, side, generator=generator, dtype=torch.float64)
    frequency = torch.fft.fftfreq(side, dtype=torch.float64) * side
    radius = (frequency[:, None].square() + frequency.square()).sqrt()
    radius[0, 0] = 1
    shaped = torch.fft.ifft2(torch.fft.fft2(white) * radius ** (-alpha / 2)).real
    return (shaped / shaped.std()).float()


class Identity(nn.Module):
    def forward(self, x):
        return x.clone()


def identity():
    return zs.wrap(Identity(), Identity(), prior=None)


def average_pooling(size: int = 2):
    return zs.wrap(
        lambda x: F.avg_pool2d(x, size),
        lambda z: F.interpolate(z, scale_factor=size, mode="nearest"),
        prior=None,
    )


def space_to_depth(size: int = 2):
    return zs.wrap(
        lambda x: F.pixel_unshuffle(x, size), lambda z: F.pixel_shuffle(z, size), prior=None
    )


def box_blur():
    kernel = torch.full((1, 1, 3, 3), 1 / 9)
    return zs.wrap(lambda x: x.clone(), lambda z: F.conv2d(z, kernel, padding=1), prior=None)


class PatchPCA:
    """Patches of pictures, encoded by their first principal components."""

    def __init__(self, pictures, size: int, channels: int, *, whiten: bool = False):
        self.size, self.colours = size, pictures.shape[1]
        self.mean = pictures.mean(0, keepdim=True)
        patches = self._patches(pictures - self.mean).transpose(1, 2).flatten(0, 1).double()
        covariance = patches.T @ patches / len(patches)
        values, vectors = torch.linalg.eigh(covariance)
        self.all_variances = values.flip(0).clamp_min(0)
        self.variances = self.all_variances[:channels]
        self.basis = vectors.flip(1)[:, :channels].float()
        self.unit = self.variances.sqrt().float() if whiten else torch.ones(channels)

    def _patches(self, x):
        return F.unfold(x, self.size, stride=self.size)

    def encode(self, x):
        side = x.shape[-1] // self.size
        codes = torch.einsum("fc,nfp->ncp", self.basis, self._patches(x - self.mean))
        return (codes / self.unit[:, None]).reshape(len(x), -1, side, side)

    def decode(self, z):
        patches = torch.einsum("fc,ncp->nfp", self.basis, z.flatten(2) * self.unit[:, None])
        side = z.shape[-1] * self.size
        return F.fold(patches, (side, side), self.size, stride=self.size) + self.mean

    def model(self):
        return zs.wrap(self.encode, self.decode, prior=None)


@pytest.fixture(scope="session")
def pictures():
    """96 smooth pictures of 16 x 16, without a mean picture."""
    x = power_law(96, 16, 2.0)
    return x - x.mean(0)


@pytest.fixture(scope="session")
def patch_pca(pictures):
    return PatchPCA(pictures, 4, 3)


def spread_of(x) -> float:
    return math.sqrt(float(x.var(correction=0)))

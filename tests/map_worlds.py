"""Autoencoders of latent maps whose answers are known (no training), and pictures for them."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import zscope as zs
from zscope.data.dataset import Dataset


def power_law(pictures: int, side: int, alpha: float, seed: int = 0, colours: int = 1):
    """Gaussian pictures whose power falls as 1 / frequency^alpha, periodic, unit variance."""
    generator = torch.Generator().manual_seed(seed)
    white = torch.randn(pictures, colours, side, side, generator=generator, dtype=torch.float64)
    frequency = torch.fft.fftfreq(side, dtype=torch.float64) * side
    radius = (frequency[:, None].square() + frequency.square()).sqrt()
    radius[0, 0] = 1
    shaped = torch.fft.ifft2(torch.fft.fft2(white) * radius ** (-alpha / 2)).real
    return (shaped / shaped.std()).float()


def autoregressive(pictures, places, rho, generator):
    """Lines whose neighbouring places have the correlation rho."""
    lines = torch.empty(pictures, places, dtype=torch.float64)
    noise = torch.randn(pictures, places, generator=generator, dtype=torch.float64)
    lines[:, 0] = noise[:, 0]
    for k in range(1, places):
        lines[:, k] = rho * lines[:, k - 1] + math.sqrt(1 - rho**2) * noise[:, k]
    return lines


def sines(clips: int, length: int = 64, seed: int = 0):
    """Sums of three sine waves of random frequency and phase: clips x 1 x time."""
    generator = torch.Generator().manual_seed(seed)
    frequency = 1 + 5 * torch.rand(clips, 3, 1, generator=generator)
    phase = 2 * math.pi * torch.rand(clips, 3, 1, generator=generator)
    time = torch.arange(length) / length
    return (2 * math.pi * frequency * time + phase).sin().sum(1, keepdim=True) / 3


def moving_squares(clips: int, frames: int = 8, side: int = 16, seed: int = 0):
    """A bright square of 4 x 4 pixels that moves one pixel a frame: clips x 1 x time x h x w."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.randint(side, (clips, 2), generator=generator)
    step = 2 * torch.randint(2, (clips, 2), generator=generator) - 1
    video = torch.zeros(clips, 1, frames, side, side)
    for clip in range(clips):
        for frame in range(frames):
            row, column = (corner[clip] + frame * step[clip]).tolist()
            rows = [(row + k) % side for k in range(4)]
            columns = [(column + k) % side for k in range(4)]
            video[clip, 0, frame][np.ix_(rows, columns)] = 1
    return video


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


def sound_pooling(size: int = 4):
    """Means and slopes of `size` neighbouring samples: 2 channels x time, by convolutions."""
    slope = torch.linspace(-1, 1, size)
    kernels = torch.stack([torch.full((size,), 1 / size), slope / slope.square().sum()])[:, None]
    back = torch.stack([torch.ones(size), slope])[:, None]
    return zs.wrap(
        lambda x: F.conv1d(x, kernels.to(x), stride=size),
        lambda z: F.conv_transpose1d(z, back.to(z), stride=size),
        prior=None,
    )


def video_pooling(size: int = 2):
    """Frames averaged over squares of pixels: 1 channel x time x height x width."""
    return zs.wrap(
        lambda x: F.avg_pool3d(x, (1, size, size)),
        lambda z: F.interpolate(z, scale_factor=(1, size, size), mode="nearest"),
        prior=None,
    )


class Tokens(nn.Module):
    """Windows of `size` samples as tokens, which attend to one another: tokens x channels."""

    def __init__(self, size: int = 4, channels: int = 3, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.size = size
        self.embed = torch.randn(size, channels, generator=generator) / math.sqrt(size)

    def forward(self, x):
        tokens = x.unflatten(1, (-1, self.size)) @ self.embed.to(x)
        weights = (tokens @ tokens.transpose(1, 2)).softmax(2)
        return tokens + 0.5 * weights @ tokens

    def decode(self, z):
        return (z @ torch.linalg.pinv(self.embed).to(z)).flatten(1)


def tokens(**options):
    module = Tokens()
    return zs.wrap(module, module.decode, prior=None, **options)


class PatchPCA:
    """Patches of pictures, encoded by their first principal components.

    `whiten` gives channels of variance 1; `factors` multiplies them, and `std` is the deviation of
    a Gaussian posterior. A factor of 0 makes a dead channel, which the decoder cannot use.
    """

    def __init__(self, pictures, size: int, channels: int, *, whiten=False, factors=None, std=None):
        self.size, self.colours, self.std = size, pictures.shape[1], std
        self.mean = pictures.double().mean(0, keepdim=True)
        patches = self._patches(pictures.double() - self.mean).transpose(1, 2).flatten(0, 1)
        covariance = patches.T @ patches / len(patches)
        values, vectors = torch.linalg.eigh(covariance)
        self.all_variances = values.flip(0).clamp_min(0)
        self.variances = self.all_variances[:channels]
        self.basis = vectors.flip(1)[:, :channels]
        scale = torch.ones(channels) if factors is None else torch.as_tensor(factors)
        self.scale = scale.double() / (self.variances.sqrt() if whiten else 1)

    def _patches(self, x):
        return F.unfold(x, self.size, stride=self.size)

    def encode(self, x):
        side = x.shape[-1] // self.size
        codes = torch.einsum("fc,nfp->ncp", self.basis.to(x), self._patches(x - self.mean.to(x)))
        codes = (codes * self.scale.to(x)[:, None]).reshape(len(x), -1, side, side)
        if self.std is None:
            return codes
        return codes, torch.full_like(codes, 2 * math.log(self.std))

    def decode(self, z):
        inverse = torch.where(self.scale == 0, 0, 1 / torch.where(self.scale == 0, 1, self.scale))
        maps = z.flatten(2) * inverse.to(z)[:, None]
        patches = torch.einsum("fc,ncp->nfp", self.basis.to(z), maps)
        side = z.shape[-1] * self.size
        return F.fold(patches, (side, side), self.size, stride=self.size) + self.mean.to(z)

    def model(self):
        return zs.wrap(self.encode, self.decode, prior=None)


class Counting:
    """A wrapped model that counts what is decoded and encoded."""

    def __init__(self, encode, decode):
        self.decodings = self.encodings = 0
        self._encode, self._decode = encode, decode
        self.model = zs.wrap(self.encode, self.decode, prior=None)

    def encode(self, x):
        self.encodings += len(x)
        return self._encode(x)

    def decode(self, z):
        self.decodings += len(z)
        return self._decode(z)


def dataset(observations) -> Dataset:
    return Dataset("world", np.ascontiguousarray(observations.float().numpy()))

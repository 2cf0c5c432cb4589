"""Autoencoders of latent maps with one thing wrong, or nothing: no training, known answers.

All start from average pooling of periodic pictures with three independent colours, which is as
healthy as latents can be: equally scaled channels, as smooth as the pictures, equivariant, local.
"""

import torch
import torch.nn.functional as F

import zscope as zs
from zscope.assays.run import measure
from zscope.layout import LatentScaling
from zscope.report.channels import channel_table
from zscope.report.findings import Facts
from zscope.report.rules import RULES

SIZE, SIDE = 4, 8
MAP_RULES = [rule for rule in RULES if rule.latents == "maps"]


def pictures(count=96, side=SIDE, seed=0):
    """Gaussian pictures whose power falls as 1 / frequency^2, of mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(seed)
    pixels = SIZE * side
    white = torch.randn(count, 3, pixels, pixels, generator=generator, dtype=torch.float64)
    frequency = torch.fft.fftfreq(pixels, dtype=torch.float64) * pixels
    radius = (frequency[:, None].square() + frequency.square()).sqrt()
    radius[0, 0] = 1
    x = torch.fft.ifft2(torch.fft.fft2(white) / radius).real
    x = x - x.mean(0)
    return (x / x.std()).float()


def encode(x):
    return F.avg_pool2d(x, SIZE)


def decode(z):
    return F.interpolate(z, scale_factor=SIZE, mode="nearest")


def declare(model, data):
    """The model, whose configuration has the right scale."""
    statistics = zs.assays.latent_statistics(zs.record(model, data), resamples=0)
    model.latent_scaling = LatentScaling(statistics.scaling_factor, statistics.shift_factor)
    return model


def model_of(data, change=lambda z: z, undo=lambda z: z, noise=None):
    """Average pooling whose latents are changed, with the right scale in its configuration."""

    def encoder(x):
        z = change(encode(x))
        return z if noise is None else (z, torch.full_like(z, noise).square().log())

    return declare(zs.wrap(encoder, lambda z: decode(undo(z)), prior=None), data)


def healthy(data):
    return model_of(data)


def dead(data):
    return model_of(data, lambda z: torch.cat([0 * z[:, :1], z], 1), lambda z: z[:, 1:])


def passive(data):
    def encoder(x):
        z = torch.cat([0 * x[:, :1, ::SIZE, ::SIZE], encode(x)], 1)
        std = torch.tensor([1.0, 0.1, 0.1, 0.1]).reshape(-1, 1, 1).expand_as(z)
        return z, std.square().log()

    return declare(zs.wrap(encoder, lambda z: decode(z[:, 1:])), data)


def unused(data, spread=1e-3):
    """A constant channel whose posterior is far narrower than the prior (a tiny KL weight)."""

    def encoder(x):
        z = torch.cat([0 * x[:, :1, ::SIZE, ::SIZE], encode(x)], 1)
        return z, torch.full_like(z, spread).square().log()

    return declare(zs.wrap(encoder, lambda z: decode(z[:, 1:])), data)


def misscaled(data):
    model = model_of(data)
    model.latent_scaling = LatentScaling(0.18215)
    return model


TEN = torch.tensor([10.0, 1.0, 1.0]).reshape(-1, 1, 1)


def unequal(data):
    return model_of(data, lambda z: TEN * z, lambda z: z / TEN)


def shifted(data):
    by = torch.tensor([-1.0, 0.0, 1.0]).reshape(-1, 1, 1)
    return model_of(data, lambda z: z + by, lambda z: z - by)


def declared_by_channel(data):
    """Unequal channels, of which the configuration knows."""
    model = unequal(data)
    statistics = zs.assays.latent_statistics(zs.record(model, data), resamples=0)
    mean, std = tuple(statistics.latents_mean), tuple(statistics.latents_std)
    model.latent_scaling = LatentScaling(1.0, None, mean, std)
    return model


def one_colour(data):
    """To be measured on pictures whose first colour is ten times as strong."""
    return model_of(data, lambda z: z / TEN, lambda z: z * TEN)


def spots(data):
    """The pictures, with two bright spots each: a few latents far from the others."""
    generator = torch.Generator().manual_seed(1)
    maps = torch.zeros(len(data), 3, SIDE * SIDE)
    for row in maps:
        row[:, torch.randperm(SIDE * SIDE, generator=generator)[:2]] = 8.0
    bright = decode(maps.reshape(len(data), 3, SIDE, SIDE))
    return data + bright - bright.mean()


def whiten(z, power):
    """Maps whose spectrum is multiplied by a power of the frequency."""
    frequency = torch.fft.fftfreq(z.shape[-1], dtype=torch.float64) * z.shape[-1]
    radius = (frequency[:, None].square() + frequency.square()).sqrt().clamp_min(1)
    return torch.fft.ifft2(torch.fft.fft2(z.double()) * radius**power).real.to(z)


def rough(data):
    return model_of(data, lambda z: whiten(z, 1), lambda z: whiten(z, -1))


def handed(z):
    """Two channels change their sign with the side on which the other one is brighter."""
    half = z.shape[-1] // 2
    across = (z[:, 1, :, :half] - z[:, 1, :, half:]).mean((1, 2)).sign()
    down = (z[:, 1, :half] - z[:, 1, half:]).mean((1, 2)).sign()
    signs = torch.stack([across, torch.ones_like(across), down], 1)
    return z * signs[:, :, None, None]


def mirrored(data):
    return model_of(data, handed, handed)


def fragile(data):
    """Two channels that differ by a tenth of the second colour, which the decoder amplifies."""

    def mix(z):
        return torch.stack([z[:, 0], z[:, 0] + 0.1 * z[:, 1], z[:, 2]], 1)

    def split(z):
        return torch.stack([z[:, 0], 10 * (z[:, 1] - z[:, 0]), z[:, 2]], 1)

    return model_of(data, mix, split)


def far(data):
    """The decoder moves everything by half a map."""
    return model_of(data, undo=lambda z: z.roll((SIDE // 2, SIDE // 2), (2, 3)))


def mixing(data):
    """The decoder mixes two channels, and the encoder does not undo it."""
    mixture = torch.tensor([[1.0, 0.6, 0.0], [0.6, 1.0, 0.0], [0.0, 0.0, 1.0]])
    return model_of(data, undo=lambda z: torch.einsum("jk,nkyx->njyx", mixture, z))


def map_facts(model, data, names=("diffusion",)):
    """What rules may look at, with the response matrix of the channels."""
    recording = zs.record(model, data)
    measurements = measure(recording, names, resamples=40)
    assert not measurements.missing
    assert not measurements.failed
    matrix = zs.assays.response_matrix(model, recording.posterior)
    results = {**measurements.results, "response-matrix": matrix}
    return Facts(recording, results, [], None, channel_table(recording, results))


def checks(model, data, **options):
    """The findings of all rules about maps."""
    facts = map_facts(model, data, **options)
    return [finding for rule in MAP_RULES for finding in rule(facts)]

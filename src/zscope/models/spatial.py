"""Spatial latents: a convolutional autoencoder whose latents are maps, channels x places.

    picture  ->  [strided convolution, residual block] x halvings  ->  channels x places
    channels x places  ->  [residual block, transposed convolution] x halvings  ->  picture

No layer is dense: every place of the maps depends on the pixels around it (and, through the
group norms, on the mean and the variance of all), and pictures of other sizes have maps of other
sizes (`encode_any_size`), as in the autoencoders of latent diffusion (Rombach et al., CVPR 2022,
arXiv:2112.10752). The strided convolutions have 4 x 4 weights and halve the sides; a residual
block is x + convolution(activation(group norm(x))).
The latents are numbered channel by channel, so their number is channels x places: for pictures
of 32 x 32 and of 64 x 64 pixels the defaults give 4 x 8 x 8 = 256, for 28 x 28 pixels 4 x 7 x 7.

`spatial-vae` is a β-VAE with these networks, the squared error and a small β. The divergence is
summed over all channels and places and the error over all pixels, so β means the same at every
size: a latent is used at a place where it explains more than β/2 of the squared error of the
pixels around it. The default, 0.003, keeps all channels in use and the maps near the scale of the
prior: after 600 steps of 32 pictures (rate 0.002, one seed) on `rooms` at 32 x 32 pixels, PSNR is
24.0 dB and a latent has 3 nats on average (2 to 4 in the four channels). With β = 1 two channels
are passive, at 0.2 nats and 18.4 dB. With β = 0 nothing keeps the noise from shrinking.

Other objectives take these networks with backbone=spatial. AE, VAE, β-VAE, AnnealedVAE (its
capacity is that of all places together), AVAE and SlowVAE add up what single latents contribute,
and are unchanged. Consistency penalties intervene on whole channels: an intervention sets a
channel to the map of another picture, in hybrids of the channels of the batch. What treats the
latents of an observation as one vector is refused: total correlations (β-TCVAE, FactorVAE),
covariances (DIP-VAE) and discrepancies (WAE) of hundreds of latents cannot be estimated from a
batch; full covariances, causal blocks, structural decoders, the dense layers of iVAE and PCL,
and the logits of a classifier have no places.
"""

import math
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from zscope.errors import ConfigError, InterfaceError
from zscope.layout import Layout
from zscope.models.layers import ACTIVATIONS, GroupNorm, Shape, check_latents, check_shape

__all__ = ["FEWEST_PLACES", "SpatialDecoder", "SpatialEncoder", "layout_of", "spatial_decoder",
           "spatial_encoder"]  # fmt: skip

FEWEST_PLACES = 7
"""Along the shorter side, as long as the number of halvings is not chosen."""


class Residual(nn.Module):
    """x + convolution(activation(group norm(x)))."""

    any_order = True

    def __init__(self, filters: int, activation: str) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            GroupNorm(8, filters),
            ACTIVATIONS[activation](),
            nn.Conv2d(filters, filters, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.layers(x)
        return x + change


class SpatialEncoder(nn.Module):
    """Pictures in, a row of outputs for each out: maps, channel by channel."""

    def __init__(self, shape: Shape, trunk: nn.Module, head: nn.Conv2d, halvings: int) -> None:
        super().__init__()
        self.shape, self.trunk, self.head, self.halvings = shape, trunk, head, halvings

    def forward(self, x: Tensor) -> Tensor:
        check_shape(x, self.shape)
        return self.maps(x).flatten(1)

    def maps(self, x: Tensor) -> Tensor:
        """The outputs as maps, for pictures of any size that can be halved as often."""
        step = 2**self.halvings
        fits = x.ndim == 4 and x.shape[1] == self.shape[0]
        if not fits or any(side < step or side % step for side in x.shape[2:]):
            raise InterfaceError(
                f"encode: got pictures of shape {tuple(x.shape[1:])}; this model takes "
                f"{self.shape[0]} colours and sides that are multiples of {step}, which it halves "
                f"{self.halvings} times. Crop or pad the pictures."
            )
        output: Tensor = self.head(self.trunk(x))
        return output

    def features(self, x: Tensor) -> Tensor:
        """The last hidden layer, averaged over the places."""
        check_shape(x, self.shape)
        features: Tensor = self.trunk(x)
        return features.mean((2, 3))


class SpatialDecoder(nn.Module):
    """Rows of latents in, pictures out (for a Bernoulli likelihood: their logits)."""

    def __init__(self, layout: Layout, layers: nn.Module) -> None:
        super().__init__()
        self.layout, self.layers = layout, layers

    def forward(self, z: Tensor) -> Tensor:
        check_latents(z, self.layout.latents)
        return self.maps(self.layout.view(z))

    def maps(self, maps: Tensor) -> Tensor:
        """The pictures of maps of any size."""
        if maps.ndim != 4 or maps.shape[1] != self.layout.channels:
            raise InterfaceError(
                f"decode: got maps of shape {tuple(maps.shape)}; expected samples x "
                f"{self.layout.channels} channels x height x width."
            )
        output: Tensor = self.layers(maps)
        return output


def layout_of(
    shape: Shape, *, channels: int, halvings: int | None, who: str = "models", **_: Any
) -> Layout:
    """Channels and places of the latents of such pictures."""
    sides = shape[1:]
    most = next((k for k in range(32) if any(side % 2 ** (k + 1) for side in sides)), 0)
    size = " x ".join(map(str, sides))
    if most == 0:
        raise ConfigError(
            f"{who}: pictures of {size} pixels have an odd side, so their sides cannot be halved. "
            "Crop or pad them, best to multiples of 8."
        )
    if halvings is None:
        roomy = [k for k in range(1, most + 1) if min(sides) >= FEWEST_PLACES * 2**k]
        halvings = max(roomy, default=1)
    if halvings > most or min(sides) < 2 ** (halvings + 1):
        least = f"and leave 2 places or more, {2 ** (halvings + 1)} pixels at least"
        raise ConfigError(
            f"{who}: halvings={halvings} for pictures of {size} pixels; sides must be multiples of "
            f"{2**halvings} {least}. Use halvings={_fitting(sides, most)} or less, or pictures of "
            "another size."
        )
    return Layout(channels, tuple(side // 2**halvings for side in sides))


def _fitting(sides: Shape, most: int) -> int:
    """The most halvings that leave two places along each side."""
    return max((k for k in range(1, most + 1) if min(sides) >= 2 ** (k + 1)), default=1)


def _widths(layout: Layout, shape: Shape, filters: int) -> list[int]:
    """The filters after each halving: half as many after the first, where pictures are large."""
    halvings = round(math.log2(shape[1] // layout.places[0]))
    return [filters // 2, *[filters] * (halvings - 1)]


def spatial_encoder(
    shape: Shape, outputs: int, *, filters: int, activation: str, **sizes: Any
) -> SpatialEncoder:
    """Strided convolutions, each before a residual block; then group norm and one convolution."""
    layout = layout_of(shape, **sizes)
    widths = [shape[0], *_widths(layout, shape, filters)]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 4, stride=2, padding=1), Residual(after, activation)]
    layers += [GroupNorm(8, widths[-1]), ACTIVATIONS[activation]()]
    head = nn.Conv2d(widths[-1], outputs // layout.positions, 1)
    return SpatialEncoder(shape, nn.Sequential(*layers), head, len(widths) - 1)


def spatial_decoder(
    shape: Shape, latents: int, *, filters: int, activation: str, **sizes: Any
) -> SpatialDecoder:
    """One convolution, then the encoder in reverse, with transposed convolutions."""
    layout = layout_of(shape, **sizes)
    widths = [shape[0], *_widths(layout, shape, filters)][::-1]
    layers: list[nn.Module] = [nn.Conv2d(layout.channels, widths[0], 1)]
    for before, after in pairwise(widths):
        grow = nn.ConvTranspose2d(before, after, 4, stride=2, padding=1)
        layers += [Residual(before, activation), grow]
    layers[-1:] = [GroupNorm(8, widths[-2]), ACTIVATIONS[activation](), layers[-1]]
    return SpatialDecoder(layout, nn.Sequential(*layers))

"""How much does a response map cost on top of decoding and encoding its points?

A map of 100 x 100 points is 10,000 codes: decoding and encoding them in the same chunks is
the bare work. The map (field, divergence, curvature) may take at most 1.15 times as long, for a
convolutional model and for a small MLP, compared with the fastest of several chunk sizes.

    python benchmarks/maps.py
"""

import sys

import torch
from ratios import Ratio, agreement, finish, released, turns
from torch import nn

import zscope as zs
from zscope.assays.engine import chunk_size
from zscope.assays.responses.maps import ResponseMap, response_map

LIMIT = 1.15
LATENTS = 10
CODES = 10_000
REPEATS = 12


class Model(zs.Autoencoder):
    latents = LATENTS

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def encode(self, x: torch.Tensor, auxiliary: torch.Tensor | None = None) -> zs.Posterior:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        return zs.Posterior(mean, (log_variance / 2).exp())

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return self.decoder(z)


def convolutional() -> Model:
    """32 x 32 pictures, three strided convolutions each way."""
    encoder = [nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU()]
    decoder = [nn.Linear(LATENTS, 512), nn.ReLU(), nn.Unflatten(1, (32, 4, 4))]
    for _ in range(2):
        encoder += [nn.Conv2d(32, 32, 4, 2, 1), nn.ReLU()]
        decoder += [nn.ConvTranspose2d(32, 32, 4, 2, 1), nn.ReLU()]
    encoder += [nn.Flatten(), nn.Linear(512, 2 * LATENTS)]
    decoder += [nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Sigmoid()]
    return Model(nn.Sequential(*encoder), nn.Sequential(*decoder))


def dense(pixels: int = 784, hidden: int = 256) -> Model:
    return Model(
        nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, 2 * LATENTS)),
        nn.Sequential(nn.Linear(LATENTS, hidden), nn.ReLU(), nn.Linear(hidden, pixels)),
    )


def bare(model: Model, codes: torch.Tensor, size: int) -> torch.Tensor:
    """The codes of what the codes decode to."""
    with torch.no_grad():
        parts = codes.split(size)
        return torch.cat([model.encode(model.decode(part)).mean for part in parts])


def compare(name: str, model: Model) -> Ratio:
    """The map against the bare work in the chunks that are fastest for it."""
    model.eval()
    codes = torch.randn(CODES, LATENTS)
    default = chunk_size(model, codes[:2], CODES)
    sizes = {size: lambda size=size: bare(model, codes, size) for size in (default, 250, 1000)}
    trial = turns(sizes, 2)
    fastest = min(sizes, key=lambda size: min(trial[size]))

    def draw() -> ResponseMap:
        return response_map(model, codes[0], (0, 1), codes=codes)

    seconds = turns({"map": draw, "bare": sizes[fastest]}, REPEATS)
    plane = draw()
    points = plane.base.expand(CODES, -1).clone()
    points[:, :2] = torch.cartesian_prod(*plane.axes)
    field = (bare(model, points, fastest) - points)[:, :2]
    return Ratio(
        f"response map, {name}", "passes", seconds["map"], seconds["bare"],
        baseline=f"{CODES:,} plain eager passes in chunks of {fastest:,}",
        version=released("torch"), at_most=LIMIT,
        agreement=agreement(
            "the field at all points with that of the plain passes",
            plane.field.flatten(0, 1), field, 1e-5,
        ),
    )  # fmt: skip


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cases = {"convolutional": convolutional(), "perceptron": dense()}
    return finish("maps", [compare(name, model) for name, model in cases.items()])


if __name__ == "__main__":
    sys.exit(main())

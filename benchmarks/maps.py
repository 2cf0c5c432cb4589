"""How much does a response map cost on top of decoding and encoding its points?

A map of 100 x 100 points is 10,000 codes: decoding and encoding them in the same chunks is
the bare work. The map (field, divergence, curvature) may take at most 1.15 times as long, for a
convolutional model and for a small MLP, also when compared with the fastest of several chunk
sizes. The time is the shortest processor time of interleaved repeats on one thread, which
depends little on other programs.

    python benchmarks/maps.py
"""

import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import zscope as zs
from zscope.assays.engine import chunk_size
from zscope.assays.responses.maps import response_map

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


def bare(model: Model, codes: torch.Tensor, size: int) -> Callable[[], None]:
    def work() -> None:
        with torch.no_grad():
            for start in range(0, len(codes), size):
                model.encode(model.decode(codes[start : start + size]))

    return work


def compare(name: str, model: Model) -> float:
    """The fastest map divided by the fastest bare work, all interleaved in one run."""
    model.eval()
    codes = torch.randn(CODES, LATENTS)
    default = chunk_size(model, codes[:2], CODES)
    sizes = (default, 250, 1000)
    works = {f"bare, chunks of {size:,}": bare(model, codes, size) for size in sizes}
    works["map"] = lambda: response_map(model, codes[0], (0, 1), codes=codes)
    times: dict[str, list[float]] = {key: [] for key in works}
    for _ in range(REPEATS):
        for key, work in works.items():
            start = time.process_time()
            work()
            times[key].append(time.process_time() - start)
    fastest = {key: min(values) for key, values in times.items()}
    print(name)
    for key, seconds in fastest.items():
        print(f"    {key:24} {1000 * seconds:8.1f} ms   map / this {fastest['map'] / seconds:.3f}")
    return fastest["map"] / min(seconds for key, seconds in fastest.items() if key != "map")


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    worst = max(compare("convolutional", convolutional()), compare("mlp", dense()))
    print(f"worst ratio {worst:.3f}, at most {LIMIT}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())

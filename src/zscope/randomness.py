"""Random numbers: they all come from a generator that the caller can pass.

Nothing in zscope reads or sets the global seed. `generator=None` means a new generator with
seed 0, so that a plain call is repeatable.

Training draws with `normal`, which also accepts a `Tape`: a list of numbers drawn
beforehand. Under `torch.func.vmap` no generator can be used, so an ensemble draws each
member's numbers first, exactly as in a run of its own, and replays them.
"""

import torch
from torch import Generator, Tensor

from zscope.seeds import named_seed

__all__ = [
    "Shapes",
    "Source",
    "Tape",
    "fresh",
    "named_generator",
    "normal",
]


class Tape:
    """Random tensors drawn beforehand, returned in order."""

    def __init__(self, draws: list[Tensor]):
        self._draws = iter(draws)

    def next(self) -> Tensor:
        return next(self._draws)


class Shapes:
    """Records the shape and type of every draw, and returns zeros."""

    def __init__(self) -> None:
        self.draws: list[Tensor] = []

    def next(self, like: Tensor) -> Tensor:
        self.draws.append(torch.empty_like(like))
        return torch.zeros_like(like)


Source = Generator | Tape | Shapes | None


def fresh(generator: Generator | None, device: torch.device | str = "cpu") -> Generator:
    """The given generator, or a new one with seed 0 on `device`."""
    return torch.Generator(device).manual_seed(0) if generator is None else generator


def named_generator(seed: int, name: str) -> Generator:
    """The generator of one assay: made from the seed and the name of the assay alone.

    So the result of an assay does not depend on which others are run, or in which order.
    """
    return torch.Generator().manual_seed(named_seed(seed, name))


def normal(like: Tensor, source: Source = None) -> Tensor:
    """Standard normal numbers in the shape, dtype and device of `like`."""
    if isinstance(source, Tape):
        return source.next()
    if isinstance(source, Shapes):
        return source.next(like)
    source = fresh(source, like.device)
    noise = torch.randn(like.shape, generator=source, dtype=like.dtype, device=source.device)
    return noise.to(like.device)

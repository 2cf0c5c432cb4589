"""Hybridisation: what does each latent of one sample do in another?

A base N¹ and an alternative N²: the base is decoded with unit i taken from the
alternative, for every unit i. In the double form there is a second alternative N³, and
picture (i, j) has unit i of N² and unit j of N³ (on the diagonal: unit i of N² alone).
A unit is a latent or, with `groups`, several.

"On the interventional consistency of autoencoders", ICLR 2021 submission: fig. 34, 35.
Structure by architecture uses the same grids for segments of latents (fig. 6a).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.responses.engine import BUDGET, decode
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined
from zscope.groups import Groups, membership, partition
from zscope.randomness import fresh
from zscope.results import Result
from zscope.sampling import posterior as posterior_samples
from zscope.sampling import recorded_codes
from zscope.types import Codes


@dataclass(frozen=True, eq=False)
class Hybridisation(Result):
    """Decoded hybrids: (units, ...) or, in the double form, (units, units, ...)."""

    sources: Codes  # base, alternative and, in the double form, second alternative
    decoded_sources: Tensor
    codes: Float[Tensor, "*grid latents"]
    decoded: Tensor
    groups: list[list[int]]
    change: Float[Tensor, "*grid"]  # root mean square difference from the decoded base

    @property
    def double(self) -> bool:
        return len(self.sources) == 3

    def to_dict(self) -> dict[str, Any]:
        """Without the pictures."""
        pictures = ("decoded", "decoded_sources")
        return {name: value for name, value in super().to_dict().items() if name not in pictures}

    def summary(self) -> list[tuple[str, str]]:
        unit = self.change if not self.double else self.change.diagonal()
        largest = int(unit.argmax())
        return [
            ("units", str(len(self.groups))),
            ("largest change", f"{float(unit[largest]):.4g} (unit {largest})"),
            ("smallest change", f"{float(unit.min()):.4g} (unit {int(unit.argmin())})"),
        ]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import hybrid_grid

        return hybrid_grid(self.decoded, self.decoded_sources, ax=ax)


def hybridisation(
    autoencoder: Autoencoder,
    codes: Posterior | Tensor | np.ndarray,
    *,
    double: bool = False,
    groups: Groups | None = None,
    generator: Generator | None = None,
    budget: int = BUDGET,
) -> Hybridisation:
    """Decode the base with each unit of the alternative(s) in turn.

    Exactly two codes (three for `double`) are base and alternative(s), in this order; of
    more, they are drawn at random.
    """
    generator = fresh(generator)
    if isinstance(codes, Posterior):
        codes = codes.mean
    codes = recorded_codes(codes, "hybridisation")
    needed = 3 if double else 2
    if len(codes) < needed:
        raise Undefined(
            f"hybridisation: {len(codes)} code(s); {needed} are needed: a base and "
            f"{needed - 1} alternative(s). Give more codes."
        )
    if len(codes) > needed:
        codes = posterior_samples(Posterior(codes), needed, generator=generator)
    lists = partition(groups, codes.shape[1], "hybridisation")
    member = membership(lists, codes.shape[1]).to(codes.device)
    hybrids = torch.where(member, codes[1], codes[0])
    if double:
        # The first alternative is put in last: it has the diagonal for itself.
        hybrids = torch.where(member[None], codes[2], codes[0])
        hybrids = torch.where(member[:, None], codes[1], hybrids)
    flat = torch.cat([codes, hybrids.flatten(0, -2)])
    decoded = decode(autoencoder, flat, budget=budget)
    sources, grid = decoded[:needed], decoded[needed:]
    change = (grid - sources[0]).flatten(1).double().square().mean(1).sqrt()
    shape = hybrids.shape[:-1]
    if not change.isfinite().all():
        raise ConfigError("hybridisation: a decoded picture is too large to be squared.")
    return Hybridisation(
        sources=codes,
        decoded_sources=sources,
        codes=hybrids,
        decoded=grid.unflatten(0, shape),
        groups=lists,
        change=change.reshape(shape),
    )

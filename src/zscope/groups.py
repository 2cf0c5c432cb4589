"""Groups of latents: variables of more than one latent.

A group may be a two-dimensional variable, a variable of a structural autoencoder or a unit
of a causal block. Assays treat a group as one: interventions change all its members, and
its response is the Euclidean norm over them.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from zscope.errors import ConfigError

__all__ = ["Groups", "membership", "partition", "sums"]

Groups = Sequence[Sequence[int]]


def partition(groups: Groups | None, latents: int, who: str = "groups") -> list[list[int]]:
    """The groups as lists of indices, every latent once; single latents when None."""
    if groups is None:
        return [[latent] for latent in range(latents)]
    try:
        lists = [[int(latent) for latent in group] for group in groups]
    except (TypeError, ValueError):
        raise ConfigError(
            f"{who}: groups={groups!r}; expected lists of latents. List every latent exactly once, "
            "for instance groups=[[0, 1], [2]]."
        ) from None
    members = sorted(latent for group in lists for latent in group)
    rule = "List every latent exactly once, for instance groups=[[0, 1], [2]]."
    outside = [latent for latent in members if not 0 <= latent < latents]
    if outside:
        raise ConfigError(
            f"{who}: the groups name latent {outside[0]}, but the model has {latents} latents "
            f"(0 to {latents - 1}). {rule}"
        )
    repeated = [a for a, b in pairwise(members) if a == b]
    if repeated:
        raise ConfigError(f"{who}: latent {repeated[0]} is in more than one group. {rule}")
    missing = sorted(set(range(latents)) - set(members))
    if missing:
        raise ConfigError(
            f"{who}: the groups leave out {len(missing)} of {latents} latents, the first is "
            f"{missing[0]}. {rule}"
        )
    if not all(lists):
        raise ConfigError(f"{who}: group {lists.index([])} is empty. {rule}")
    return lists


def membership(groups: list[list[int]], latents: int) -> Tensor:
    """True where a latent belongs to a group (groups x latents)."""
    member = torch.zeros(len(groups), latents, dtype=torch.bool)
    for row, group in zip(member, groups, strict=True):
        row[group] = True
    return member


def sums(values: Tensor, member: Tensor) -> Tensor:
    """Columns summed within each group (samples x groups)."""
    singles = torch.eye(len(member), dtype=torch.bool, device=member.device)
    if torch.equal(member, singles):
        return values
    return values @ member.T.to(values)

"""Which latents enter a measure of alignment: the active ones.

A passive latent has a column of zeros in the decoder's Jacobian; if it were included, it
would be its own singular direction and look perfectly aligned. By default the latents in use
count, as in all other assays (`zscope.usage`). The source has two rules of its own:

    "used"       the latents in use (`recording.used`)
    "mean"       the standard deviation of its codes is above 0.5 (chapter 3)
    "variance"   its posterior variance is below 0.8 on average (chapter 4)
    "all"        every latent
    [0, 3, 4]    the listed latents

Zietlow, PhD thesis, Tübingen 2022, sections 3.3.2 and 4.3.4.
"""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from zscope.assays.engine import Recorded, posterior_of, used_latents
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, Undefined, did_you_mean
from zscope.randomness import fresh
from zscope.sampling import recorded_codes
from zscope.types import Codes

__all__ = [
    "Rule", "active_latents", "check_two_active", "codes_of", "random_rows", "standard_error",
]  # fmt: skip

RULES = ("used", "mean", "variance", "all")
Rule = str | Sequence[int]
"""One of RULES, or the latents themselves."""


def active_latents(
    who: str, autoencoder: Autoencoder | None, codes: Recorded, active: Rule
) -> list[int]:
    """The latents to use, by one of the rules above."""
    posterior = posterior_of(codes, who)
    mean = codes_of(posterior, who)
    latents = mean.shape[1]
    if active == "used":
        return used_latents(autoencoder, codes, who)
    if active == "all":
        return list(range(latents))
    if active == "mean":
        return _indices(mean.double().std(0, correction=0) > 0.5)
    if active == "variance":
        if posterior.deterministic:
            raise ConfigError(
                f"{who}: active='variance' needs the variances of the posterior. Give "
                "recording.posterior of a variational model instead of codes."
            )
        return _indices(posterior.variance.double().mean(0) < 0.8)
    if isinstance(active, str):
        raise ConfigError(f"{who}: active={active!r}. {did_you_mean(active, RULES)}")
    chosen = [int(j) for j in active]
    if len(set(chosen)) < len(chosen) or any(not 0 <= j < latents for j in chosen):
        raise ConfigError(
            f"{who}: active={chosen} must list different latents from 0 to {latents - 1}."
        )
    return chosen


def check_two_active(who: str, active: list[int], latents: int) -> None:
    if len(active) < 2:
        raise Undefined(
            f"{who}: {len(active)} of {latents} latents are active, but angles need two. Has the "
            "posterior collapsed (β too large)? See variable_types; active='all' uses all."
        )


def codes_of(codes: Recorded, who: str) -> Codes:
    """The means, after checking that they are finite rows of latents."""
    return recorded_codes(posterior_of(codes, who).mean, who)


def random_rows(count: int, samples: int, generator: Generator | None, who: str) -> Tensor:
    """At most `samples` of `count` rows at random, without repeats, in ascending order."""
    if samples < 1:
        raise ConfigError(f"{who}: samples={samples}; at least one code is needed.")
    if samples >= count:
        return torch.arange(count)
    generator = fresh(generator)
    return torch.randperm(count, generator=generator, device=generator.device)[:samples].sort()[0]


def standard_error(values: Tensor) -> float | None:
    """Standard error of the mean of one value per code; None for a single code."""
    return float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else None


def _indices(mask: Tensor) -> list[int]:
    return [int(j) for j in mask.nonzero().flatten()]

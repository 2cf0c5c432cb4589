"""New latent vectors: from the prior, the aggregate posterior, hybrids, or a box.

    prior       z ~ N(0, I)
    posterior   z ~ q(z | x) for an observation x drawn at random
    hybrid      each variable of z is drawn independently from its recorded values
    uniform     each latent of z is uniform between the extremes of its recorded values

A variable is a single latent, or one of `groups` (a partition of the latents); of latents that are
maps, a channel, if their posterior or recording is given, which knows the layout. Hybrid
samples have the marginals of the recorded codes but independent variables (Leeb et al.,
"Structure by architecture", sec. 2.2). The paper stores 128 codes to draw from:
`store=128`; by default all recorded codes are used.

`codes` may be a tensor, an array, or a `Posterior`, of which one draw for each observation
is used; a `Recording` stands for its posterior.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined
from zscope.groups import Groups, partition
from zscope.randomness import fresh
from zscope.types import Codes, as_tensor

__all__ = ["hybrid", "posterior", "prior", "uniform"]

MOST = 10**9
"""Larger counts are mistakes: nothing so large can be drawn or measured."""


@runtime_checkable
class Recorded(Protocol):
    """What has posteriors: a `Recording`, which this module must not import."""

    @property
    def posterior(self) -> Posterior: ...


def prior(
    autoencoder: Autoencoder | int, samples: int, *, generator: Generator | None = None
) -> Codes:
    """Draws from N(0, I), for an autoencoder that has this prior or for a number of latents."""
    if isinstance(autoencoder, Autoencoder) and autoencoder.prior is None:
        raise Undefined(
            f"sampling.prior: {type(autoencoder).__name__} has no prior to draw from. Draw hybrids "
            "of its codes instead: zs.sampling.hybrid(codes, samples)"
        )
    latents = autoencoder.latents if isinstance(autoencoder, Autoencoder) else autoencoder
    whole("sampling.prior", 1, latents=latents)
    generator = fresh(generator)
    return torch.randn(
        _count(samples, latents), latents, generator=generator, device=generator.device
    )


def posterior(
    recorded: Posterior | Recorded, samples: int, *, generator: Generator | None = None
) -> Codes:
    """Draws from the aggregate posterior; no observation is used twice before all are used."""
    generator = fresh(generator)
    recorded = recorded.posterior if isinstance(recorded, Recorded) else recorded
    if len(recorded) == 0:
        raise Undefined("sampling.posterior: 0 posteriors were given. Record some data first.")
    rounds = -(-_count(samples) // len(recorded))
    rows = torch.cat([_order(len(recorded), generator) for _ in range(rounds)])[:samples]
    return recorded[rows.to(recorded.mean.device)].sample(generator)


def hybrid(
    codes: Posterior | Recorded | Tensor | np.ndarray,
    samples: int,
    *,
    groups: Groups | None = None,
    store: int | None = None,
    base: Tensor | np.ndarray | None = None,
    vary: Sequence[int] | None = None,
    generator: Generator | None = None,
) -> Codes:
    """Codes whose variables come from different recorded codes.

    With `base` (one code) only the groups listed in `vary` are drawn, and the rest stay as
    in the base.
    """
    generator = fresh(generator)
    stored = recorded_codes(codes, "sampling.hybrid", generator)
    lists = _variables(codes, groups, stored.shape[1])
    if store is not None:
        whole("sampling.hybrid", 1, store=store)
        stored = stored[_order(len(stored), generator)[:store].to(stored.device)]
    if (base is None) != (vary is None):
        raise ConfigError(
            "sampling.hybrid: base= and vary= go together: the code to start from, and the list of "
            "groups to draw."
        )
    new = stored.new_empty(_count(samples), stored.shape[1])
    if vary is not None and not set(vary) <= set(range(len(lists))):
        raise ConfigError(
            f"sampling.hybrid: vary={list(vary)} names groups that do not exist; there are "
            f"{len(lists)} (0 to {len(lists) - 1}). Give the numbers of those to draw."
        )
    if base is not None:
        base = as_tensor(base)
        if base.numel() != stored.shape[1]:
            raise ConfigError(
                f"sampling.hybrid: the base has {base.numel()} numbers, but the codes have "
                f"{stored.shape[1]} latents. Give one code, for instance base=codes[0]."
            )
        new[:] = base.detach().reshape(1, -1).to(new)
    for index, group in enumerate(lists):
        # Every variable is drawn, so that `vary` does not change the draws of the others.
        rows = torch.randint(
            len(stored), (samples,), generator=generator, device=generator.device
        ).to(stored.device)
        if vary is None or index in vary:
            new[:, group] = stored[rows][:, group]
    return new


def uniform(
    codes: Posterior | Recorded | Tensor | np.ndarray,
    samples: int,
    *,
    generator: Generator | None = None,
) -> Codes:
    """Codes drawn uniformly from the smallest box that contains all recorded ones."""
    generator = fresh(generator)
    stored = recorded_codes(codes, "sampling.uniform", generator)
    low, high = stored.amin(0), stored.amax(0)
    share = torch.rand(
        _count(samples),
        stored.shape[1],
        generator=generator,
        dtype=stored.dtype,
        device=generator.device,
    )
    return low + (high - low) * share.to(stored.device)


def recorded_codes(
    codes: Posterior | Recorded | Tensor | np.ndarray, who: str, generator: Generator | None = None
) -> Codes:
    """Codes as a finite tensor; of a posterior, one draw for each observation."""
    codes = codes.posterior if isinstance(codes, Recorded) else codes
    posterior: Posterior | None = codes if isinstance(codes, Posterior) else None
    tensor = as_tensor(codes if posterior is None else posterior.sample(generator)).detach()
    if tensor.ndim != 2 or tensor.numel() == 0 or not tensor.is_floating_point():
        raise Undefined(
            f"{who}: the codes have shape {tuple(tensor.shape)} and type {tensor.dtype}; expected "
            "floats, one row of latents for each sample. Use recording.codes or a Posterior."
        )
    bad = ~tensor.isfinite().all(1)
    if bad.any():
        row = int(bad.nonzero()[0, 0])
        layout = None if posterior is None else posterior.layout
        where = "" if layout is None else f", in {layout.first(~tensor[row].isfinite())}"
        raise Undefined(
            f"{who}: {int(bad.sum())} of {len(tensor)} codes contain NaN or infinite numbers, the "
            f"first is row {row}{where}. Has training diverged, or were the data not scaled as in "
            "training?"
        )
    return tensor


def _variables(codes: Any, groups: Groups | None, latents: int) -> list[list[int]]:
    """The latents of each variable."""
    posterior = codes.posterior if isinstance(codes, Recorded) else codes
    layout = posterior.layout if isinstance(posterior, Posterior) else None
    if groups is None and layout is not None:
        return [list(range(*layout.ends(channel))) for channel in range(layout.channels)]
    return partition(groups, latents, "sampling.hybrid")


def _order(count: int, generator: Generator) -> Tensor:
    return torch.randperm(count, generator=generator, device=generator.device)


def whole(who: str, least: int | None = None, **options: Any) -> None:
    """Raise if options are not whole numbers, or are below `least`.

    Without this they would fail deep inside, or be rounded silently.
    """
    for name, value in options.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise ConfigError(
                f"{who}: {name}={value!r}; expected a whole number. If it was computed, round it: "
                f"{name}=int(...)."
            )
        if least is not None and value < least:
            raise ConfigError(f"{who}: {name}={value}; expected a whole number, at least {least}.")


def _count(samples: int, latents: int = 1) -> int:
    whole("sampling", 1, samples=samples)
    if int(samples) * int(latents) > MOST:
        raise ConfigError(
            f"sampling: samples={samples} of {latents} latents; expected at most {MOST:,} numbers, "
            "which fit in memory."
        )
    return int(samples)


def __dir__() -> list[str]:
    return sorted(__all__)

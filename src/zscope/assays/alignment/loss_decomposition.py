"""Loss decomposition: how much of the reconstruction error is caused by noise in the latents?

With z = mean + noise drawn from the posterior of x, and x̂ = decode(mean),

    reconstruction = E | decode(z) - x |^2         what a VAE with squared error minimises
    deterministic  = | x̂ - x |^2                   the error of an autoencoder without noise
    stochastic     = E | decode(z) - x̂ |^2         what noise adds
    cross          = 2 (x̂ - x)^T (E decode(z) - x̂)

    reconstruction = deterministic + stochastic + cross

summed over pixels, averaged over observations. The source leaves out the cross term, which
is 0 when E decode(z) = x̂, as for a linear decoder. To first order

    stochastic ~ linearised = sum_j |c_j|^2 σ_j^2 = |J L|_F^2

(J the decoder's Jacobian at the mean, L L^T the posterior covariance), exact for a linear
decoder. This is the term that depends on the rotation of the latents. Draws come in pairs of
opposite noise, so that terms linear in the noise cancel exactly. Where latents are maps, all of
them get noise, and `linearised` is estimated from one draw of random signs e for each channel:
sum_k |J (σ e on channel k)|^2 (see `assays.jacobian`). It is always squared error
that is decomposed, also for a model with another likelihood (flagged). Unchanged by
permuting or flipping latents and by shifting or rotating observations.

Zietlow, PhD thesis, Tübingen 2022, eq. 3.6-3.10, 3.13 and 5.18.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.assays.active import map_layout, random_rows
from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import encode_alone
from zscope.assays.entry import Entry
from zscope.assays.jacobian import (
    Method,
    PerSample,
    Walk,
    channel_steps,
    decode,
    likelihood_of,
    linearise,
    metric_of,
    random_signs,
)
from zscope.autoencoder import Autoencoder, Posterior, evaluation
from zscope.errors import ConfigError, Undefined
from zscope.layout import Layout
from zscope.randomness import fresh, normal
from zscope.results import Scored
from zscope.types import as_tensor

__all__ = ["LossDecomposition", "loss_decomposition"]

DECODED_BYTES = 16 * 2**20
"""Of decoded codes in double precision at once."""


@dataclass(frozen=True, eq=False)
class LossDecomposition(Scored):
    """The parts of the squared error; `reconstruction` is their sum without `linearised`."""

    reconstruction: float
    deterministic: float
    stochastic: float
    cross: float
    linearised: float
    samples: int
    draws: int
    method: str  # of the Jacobians behind `linearised`
    metric: str  # of the errors: pixels
    per_sample: dict[str, PerSample]
    flags: list[str]

    why_no_interval = "there is only one observation"
    why_no_chance = (
        "it is a share of this model's own error, with which uninformative codes cannot be compared"
    )

    @property
    def score(self) -> float:
        """The share of the error that is due to noise."""
        return self.stochastic / self.reconstruction

    @property
    def standard_error(self) -> float | None:
        """Of the share, a ratio of two means over the observations (delta method)."""
        if self.samples < 2:
            return None
        gap = self.per_sample["stochastic"] - self.score * self.per_sample["reconstruction"]
        return float(gap.std()) / math.sqrt(self.samples) / self.reconstruction

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        names = ["reconstruction", "deterministic", "stochastic", "cross", "linearised"]
        values = [getattr(self, name) for name in names]
        return bars(values, names=names, y="squared error", ax=ax)


@accepts_recording
def loss_decomposition(
    autoencoder: Autoencoder,
    observations: Tensor | np.ndarray,
    *,
    posterior: Posterior | None = None,
    samples: int = 64,
    draws: int = 64,
    method: Method = "auto",
    generator: Generator | None = None,
) -> LossDecomposition:
    """The parts of the squared error on at most `samples` of the observations.

    `posterior` is the recorded posterior of the observations; without it they are encoded.
    `draws` (an even number) of each posterior are decoded.
    """
    who = "loss_decomposition"
    observations = as_tensor(observations, who)
    if observations.ndim < 2 or observations.is_complex():
        raise Undefined(
            f"{who}: observations of shape {tuple(observations.shape)} and type "
            f"{observations.dtype}; expected real numbers, a row for each observation."
        )
    if draws < 2 or draws % 2:
        raise ConfigError(f"{who}: draws={draws}; an even number is needed, ideally 64 or more.")
    if posterior is not None and len(posterior) != len(observations):
        raise ConfigError(
            f"{who}: {len(observations)} observations and {len(posterior)} posteriors. Give the "
            "posterior of these observations, in the same order."
        )
    generator = fresh(generator)
    rows = random_rows(len(observations), samples, generator, who)
    x = observations[rows.to(observations.device)].detach()
    if posterior is None:
        device, dtype = autoencoder.place
        with evaluation(autoencoder):
            posterior = encode_alone(autoencoder, x.to(device, dtype)).detach()
    else:
        posterior = posterior[rows.to(posterior.mean.device)].detach()
    if posterior.deterministic:
        raise Undefined(
            f"{who}: the encoder is deterministic, so there is no noise to measure. It applies to "
            "variational models."
        )
    posterior = posterior.to("cpu")
    layout = map_layout(autoencoder, posterior, who)
    if layout is None:
        noisy = _with_noise(who, autoencoder, posterior, x, draws, method, generator)
    else:
        noisy = _with_noisy_maps(who, autoencoder, posterior, x, layout, draws, method, generator)
    parts = noisy.parts
    flags = []
    if likelihood_of(autoencoder, posterior.mean) == "bernoulli":
        flags.append(
            "This decomposes squared error in pixels, but the likelihood of the model is "
            "Bernoulli: its own loss is divided in other proportions."
        )
    parts["reconstruction"] = parts["deterministic"] + parts["stochastic"] + parts["cross"]
    if bad := sum(int((~part.isfinite()).sum()) for part in parts.values()):
        raise Undefined(
            f"{who}: {bad} of {5 * len(x)} squared errors overflow; the observations go up to "
            f"{float(x.abs().max()):.3g}. Are they scaled as in training?"
        )
    return LossDecomposition(
        **{name: float(part.mean()) for name, part in parts.items()},
        samples=len(x),
        draws=draws,
        method=noisy.method,
        metric=metric_of("gaussian"),
        per_sample=parts,
        flags=[*flags, *noisy.flags],
    )


@dataclass(frozen=True, eq=False)
class _Noisy:
    """What noise in the latents does to decoded observations."""

    parts: dict[str, PerSample]  # deterministic, stochastic, cross, linearised
    method: str
    flags: list[str]


def _with_noise(
    who: str,
    autoencoder: Autoencoder,
    posterior: Posterior,
    x: Tensor,
    draws: int,
    method: Method,
    generator: Generator,
) -> _Noisy:
    local = linearise(autoencoder, posterior.mean, method=method)
    root = _root(posterior)
    shape = (draws // 2, *posterior.mean.shape)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
    steps = torch.einsum("nij,pnj->npi", root, noise.cpu())
    deterministic, stochastic, cross = [], [], []
    most = DECODED_BYTES // (8 * x[0].numel())  # in double precision
    for rows in torch.arange(len(x)).split(max(1, min(local.batch, most) // (draws + 1))):
        mean = posterior.mean[rows].double()[:, None]
        codes = torch.cat([mean, mean + steps[rows], mean - steps[rows]], 1)
        flat = codes.to(posterior.mean.dtype).flatten(0, 1)
        decoded = _as_rows(who, decode(autoencoder, flat, batch=local.batch), x)
        decoded = decoded.unflatten(0, codes.shape[:2])
        change = decoded[:, 1:] - decoded[:, :1]
        error = decoded[:, 0] - x[rows].flatten(1).double().cpu()
        deterministic.append(error.square().sum(1))
        stochastic.append(change.square().sum(2).mean(1))
        cross.append(2 * (error * change.mean(1)).sum(1))
    parts = {
        "deterministic": torch.cat(deterministic),
        "stochastic": torch.cat(stochastic),
        "cross": torch.cat(cross),
        "linearised": (local.triangle @ root).square().sum((1, 2)),
    }
    return _Noisy(parts, local.method, local.flags)


def _with_noisy_maps(
    who: str,
    autoencoder: Autoencoder,
    posterior: Posterior,
    x: Tensor,
    layout: Layout,
    draws: int,
    method: Method,
    generator: Generator,
) -> _Noisy:
    """The same for maps: draw by draw, as all draws of large pictures would not fit in memory."""
    assert posterior.std is not None  # a posterior with a layout has no other covariance
    names = "deterministic", "stochastic", "cross", "linearised"
    parts = {name: torch.zeros(len(x), dtype=torch.float64) for name in names}
    probe = channel_steps(layout, posterior.std * random_signs(posterior.std, generator))
    walk = Walk(autoencoder, posterior.mean, probe, method=method, count=layout.channels)
    batch = walk.size * (layout.channels + 1)
    for rows, decoded, J in walk:
        mean, std = posterior.mean[rows].double(), posterior.std[rows].double()
        before = _as_rows(who, decoded, x)
        mean_change = torch.zeros_like(before)
        for _ in range(draws // 2):
            step = std * normal(mean, generator)
            for codes in (mean + step, mean - step):
                after = decode(autoencoder, codes.to(posterior.mean.dtype), batch=batch)
                change = _as_rows(who, after, x) - before
                parts["stochastic"][rows] += change.square().sum(1) / draws
                mean_change += change / draws
        error = before - x[rows].flatten(1).double().cpu()
        parts["deterministic"][rows] = error.square().sum(1)
        parts["cross"][rows] = 2 * (error * mean_change).sum(1)
        parts["linearised"][rows] = J.double().square().sum((1, 2)).cpu()
    return _Noisy(parts, walk.method, walk.flags)


def _as_rows(who: str, decoded: Tensor, x: Tensor) -> Tensor:
    """Decoded codes as rows of as many numbers as the observations have."""
    rows = decoded.flatten(1).double().cpu()
    if rows.shape[1] != math.prod(x.shape[1:]):
        raise ConfigError(
            f"{who}: observations of shape {tuple(x.shape[1:])} are decoded to "
            f"{rows.shape[1]} numbers. Give the observations that the model was trained on."
        )
    return rows


def _root(posterior: Posterior) -> Tensor:
    """L of each covariance L L^T, samples x latents x latents."""
    if posterior.scale_tril is not None:
        return posterior.scale_tril.double()
    assert posterior.std is not None
    return torch.diag_embed(posterior.std.double())


ENTRY = Entry(
    question="How much of the reconstruction error is caused by noise in the latents?",
    meaning=(
        "How the reconstruction error divides into what the mean code loses and what noise in the "
        "latents adds."
    ),
    figure=(
        "The parts of the squared error: the deterministic one is what an autoencoder without "
        "noise would have."
    ),
    takes=("decoder", "observations", "posterior=posterior"),
    needs=("variances",),
    passes="samples * (latents + draws)",
    most=5_000,
    maps="place on request",
    map_options={"draws": 4},
)

"""The engine under every response assay: decode, encode again, in chunks that fit memory.

    R(z) = mean of q(z' | decoder(z))

(Leeb et al., "Interventional assays for the latent space of autoencoders", eq. 2.)

`respond` answers for codes that exist. `responses` answers for codes that are built
while they are needed: d interventions on each of N samples are d N codes, but only one
chunk of them is ever in memory. The model runs in evaluation mode, without gradients,
on its own device; what comes back is on the device and in the dtype of the codes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Generator, Tensor, nn

from zscope.autoencoder import Autoencoder, Posterior, evaluation
from zscope.errors import ConfigError, InterfaceError, Undefined
from zscope.recording import Recording, join_posteriors
from zscope.recording import base_samples as draw_base_samples
from zscope.sampling import recorded_codes, whole
from zscope.types import Codes

Recorded = Recording | Posterior | Tensor | np.ndarray
"""What was recorded of a model: a whole recording, posteriors, or codes."""

_BUDGET = ContextVar("bytes that one chunk may take", default=256 * 2**20)

Build = Callable[[int, int], Tensor]
"""Codes of the rows from start up to (not including) stop."""

# Alive at once in a layer without gradients: its input, its output, and the copies that
# convolutions make of both.
_ALIVE = 4
# Where the layers cannot be seen (plain functions): a wide layer against an observation.
_UNSEEN = 32
# Larger chunks than this gain no speed, even for networks of a few units.
_LARGEST = 8192
# What one processor core works through fast; convolutions over four times as much take
# twice as long, for everything has to come from memory.
_CACHED = 32 * 2**20


def memory_budget() -> int:
    """Bytes that one chunk may take while it is decoded and encoded: 256 MB unless set."""
    return _BUDGET.get()


@contextmanager
def use_memory(budget: int) -> Iterator[None]:
    """Within this block, let a chunk of codes take at most so many bytes."""
    if budget <= 0:
        raise ConfigError(
            f"use_memory: a memory budget of {budget} bytes leaves no room for a single code. "
            f"The default is {2**28} bytes (256 MB)."
        )
    token = _BUDGET.set(budget)
    try:
        yield
    finally:
        _BUDGET.reset(token)


def posterior_of(recorded: Recorded, who: str) -> Posterior:
    """The posterior of a recording; codes alone are points."""
    if isinstance(recorded, Recording):
        return recorded.posterior
    return recorded if isinstance(recorded, Posterior) else Posterior(recorded_codes(recorded, who))


def base_samples(recorded: Recorded, samples: int, who: str, generator: Generator) -> Codes:
    """Draws from the aggregate posterior in random order, each observation at most once.

    Those of a recording are the first of `recording.base_samples`, the same for all assays;
    others are drawn with the generator.
    """
    whole(who, samples=samples)
    posterior = posterior_of(recorded, who)
    count = min(samples, len(posterior))
    least = max(2, min(8, posterior.latents))
    if count < least:
        raise Undefined(
            f"{who}: {count} samples for {posterior.latents} latents "
            f"({len(posterior)} recorded, samples={samples}); at least {least} are needed for "
            "spreads and replacements to mean anything. Record more observations: "
            "zs.record(autoencoder, data, samples=N)"
        )
    if isinstance(recorded, Recording):
        draws = recorded.base_samples
    else:
        draws = draw_base_samples(posterior, generator)
    return recorded_codes(draws[:count], who)


def base_responses(autoencoder: Autoencoder, recorded: Recorded, base: Codes) -> Posterior:
    """The posteriors of the decoded base samples; computed once for a recording."""
    if not isinstance(recorded, Recording):
        return respond_posterior(autoencoder, base)
    done: list[Posterior] = recorded.share("base responses", list)
    known = sum(map(len, done))
    if known < len(base):
        done.append(respond_posterior(autoencoder, base[known:]))
        done[:] = [join_posteriors(done)]
    return done[0][: len(base)]


def respond(autoencoder: Autoencoder, codes: Codes) -> Codes:
    """The response R(z) of each code: the posterior mean of what was decoded."""
    parts = responses(autoencoder, len(codes), lambda a, b: codes[a:b])
    return torch.cat([codes[:0].detach(), *(posterior.mean for _, _, posterior in parts)])


def respond_posterior(autoencoder: Autoencoder, codes: Codes) -> Posterior:
    """The whole posterior of the decoded codes, from which responses can be sampled (eq. 3)."""
    if len(codes) == 0:
        raise ConfigError("response: 0 codes were given. Give at least one row of latents.")
    build = lambda a, b: codes[a:b]  # noqa: E731
    parts = [part for _, _, part in responses(autoencoder, len(codes), build)]
    return join_posteriors(parts)


def decode(autoencoder: Autoencoder, codes: Codes) -> Tensor:
    """The decoded codes, on the device of the codes."""
    size = chunk_size(autoencoder, codes[:2], len(codes))
    with evaluation(autoencoder):
        parts = [_decode(autoencoder, codes[a : a + size], a) for a in range(0, len(codes), size)]
    return torch.cat([part.to(codes.device) for part in parts])


def decode_and_respond(autoencoder: Autoencoder, codes: Codes) -> tuple[Tensor, Posterior]:
    """What a few codes decode to, and the posterior of that: one pass, in a single chunk.

    For answers that someone is waiting for: nothing is tried out first to choose a chunk.
    """
    with evaluation(autoencoder):
        x = _decode(autoencoder, codes, 0)
        return x, _encode(autoencoder, x, codes, 0)


def encode(
    autoencoder: Autoencoder,
    batch: Callable[[np.ndarray], Tensor],
    rows: np.ndarray,
) -> Posterior:
    """The posteriors of some rows of data, on the CPU; `batch(rows)` reads them."""
    example = batch(rows[:2])
    size = max(2, min(_LARGEST, memory_budget() * len(example) // (_UNSEEN * example.nbytes)))
    device, dtype = autoencoder.place
    parts = []
    for start in range(0, len(rows), size):
        x = batch(rows[start : start + size])
        if any(p.is_floating_point() for p in autoencoder.parameters()):
            x = x.to(device, dtype)
        with evaluation(autoencoder):
            part = autoencoder.encode(x).detach()
        bad = ~(part.mean.isfinite() & part.variance.isfinite()).all(1)
        if bad.any():
            row = int(rows[start + int(bad.nonzero()[0, 0])])
            raise InterfaceError(
                f"response: the encoder gave NaN or infinite numbers for {int(bad.sum())} of "
                f"{len(x)} observations, the first at row {row}. Are the data scaled as in "
                "training, and are the weights finite?"
            )
        parts.append(part.to("cpu"))
    return join_posteriors(parts)


def causes(autoencoder: Autoencoder, noises: Codes) -> Tensor:
    """The causes that noises give rise to; the noises themselves without a causal block."""
    if type(autoencoder).causes is Autoencoder.causes:
        return noises
    size = max(1, min(_LARGEST, memory_budget() // (_UNSEEN * 8 * noises.shape[1])))
    device, dtype = location(autoencoder, noises)
    parts = []
    for start in range(0, len(noises), size):
        part = noises[start : start + size]
        with evaluation(autoencoder):
            came = autoencoder.causes(part.detach().to(device, dtype))
        if len(came) != len(part) or came.shape[1] % noises.shape[1]:
            raise InterfaceError(
                f"response: {len(part)} x {noises.shape[1]} noises gave causes of shape "
                f"{tuple(came.shape)}. The causal block must give one row for each vector of "
                "noises, and equally many causes for each noise."
            )
        if not came.sum().isfinite():
            _refuse("causal block", came, part, start)
        parts.append(came.detach().to(noises.device, noises.dtype))
    return torch.cat(parts)


def responses(
    autoencoder: Autoencoder, count: int, build: Build
) -> Iterator[tuple[int, int, Posterior]]:
    """(start, stop, posterior) for `count` codes that `build` makes chunk by chunk."""
    if count == 0:
        return
    size = chunk_size(autoencoder, build(0, min(2, count)), count)
    for start in range(0, count, size):
        stop = min(start + size, count)
        yield start, stop, _respond(autoencoder, build(start, stop), start)


def chunk_size(autoencoder: Autoencoder, example: Codes, count: int) -> int:
    """How many codes to decode and encode at once, so that the budget is kept.

    The example (one or two codes) is run the first time a model is asked, and the largest
    input or output of any layer is noted. On a processor chunks are kept as small as its
    caches like them, however large the budget. Chunks are of nearly equal size, so that
    none is a lonely code.
    """
    if len(example) == 0:
        raise ConfigError("response: 0 codes were given. Give at least one row of latents.")
    place, budget = location(autoencoder, example), memory_budget()
    if place[0].type == "cpu":
        budget = min(budget, _CACHED * torch.get_num_threads())
    most = max(1, min(_LARGEST, int(budget / _needed(autoencoder, example, place))))
    chunks = -(-count // most)
    return -(-count // chunks)


# Bytes that a code needs, by model and where it is: assays ask again and again.
_KNOWN: WeakKeyDictionary[Autoencoder, dict[Any, float]] = WeakKeyDictionary()


def _needed(
    autoencoder: Autoencoder, example: Codes, place: tuple[torch.device, torch.dtype]
) -> float:
    known = _KNOWN.setdefault(autoencoder, {})
    if place not in known:
        with evaluation(autoencoder), _watching(autoencoder) as seen:
            x = _decode(autoencoder, example, 0)
            _encode(autoencoder, x, example, 0)
        factor = _ALIVE if seen else _UNSEEN
        known[place] = max(_ALIVE * max(seen, default=0), factor * x.nbytes) / len(example)
    return known[place]


def _respond(autoencoder: Autoencoder, codes: Codes, start: int) -> Posterior:
    with evaluation(autoencoder):
        return _encode(autoencoder, _decode(autoencoder, codes, start), codes, start)


def _decode(autoencoder: Autoencoder, codes: Codes, start: int) -> Tensor:
    """One chunk, checked. To be called in evaluation mode, which takes a while to set."""
    device, dtype = location(autoencoder, codes)
    x = autoencoder.decode(codes.detach().to(device, dtype))
    if x.ndim == 0 or len(x) != len(codes):
        raise InterfaceError(
            f"response: the decoder was given {len(codes)} codes and returned shape "
            f"{tuple(x.shape)}; it must return one observation for each code. Does it squeeze, "
            "sum or repeat its batch?"
        )
    # A sum is a single pass without memory; it is finite unless an entry is not (or the
    # sum itself overflows, which the closer look settles).
    if not x.sum().isfinite():
        _refuse("decoder", x, codes, start)
    return x


def _encode(autoencoder: Autoencoder, x: Tensor, codes: Codes, start: int) -> Posterior:
    """The same for what was decoded of the codes."""
    posterior = autoencoder.encode(x)
    if posterior.mean.shape != codes.shape:
        raise InterfaceError(
            f"response: codes of shape {tuple(codes.shape)} came back from the encoder as "
            f"{tuple(posterior.mean.shape)}. The encoder must give as many latents as the decoder "
            "takes, one row for each observation; it must not squeeze or average its batch."
        )
    for part in (posterior.mean, posterior.std, posterior.scale_tril):
        if part is not None and not part.sum().isfinite():
            _refuse("encoder", part, codes, start)
    return posterior.detach().to(codes.device, codes.dtype)


def _refuse(role: str, came: Tensor, codes: Codes, start: int) -> None:
    bad = ~came.flatten(1).isfinite().all(1)
    if not bad.any():
        return
    row = int(bad.nonzero()[0, 0])
    values = ", ".join(f"{value:.4g}" for value in codes[row, :12].tolist())
    more = f", … ({codes.shape[1]} latents)" if codes.shape[1] > 12 else ""
    cause = (
        "This code itself is not finite: check where it comes from."
        if not codes[row].isfinite().all()
        else "Is the code far outside what the model has seen, or are its weights not finite?"
    )
    raise InterfaceError(
        f"response: the {role} gave NaN or infinite numbers for {int(bad.sum())} of {len(codes)} "
        f"codes, first at latent vector {start + row}: [{values}{more}]. {cause} Try that vector "
        "alone with autoencoder.decode and autoencoder.encode."
    )


def location(autoencoder: Autoencoder, codes: Codes) -> tuple[torch.device, torch.dtype]:
    """Where the weights are; a model without weights takes the codes as they come."""
    if any(parameter.is_floating_point() for parameter in autoencoder.parameters()):
        return autoencoder.place
    return codes.device, codes.dtype


@contextmanager
def _watching(autoencoder: Autoencoder) -> Iterator[list[int]]:
    """Collects the size in bytes of every layer's inputs and outputs."""
    seen: list[int] = []

    def note(module: nn.Module, given: Any, came: Any) -> None:
        for tensors in (given, came):
            group = tensors if isinstance(tensors, tuple | list) else (tensors,)
            seen.extend(tensor.nbytes for tensor in group if isinstance(tensor, Tensor))

    hooks = [module.register_forward_hook(note) for module in autoencoder.modules()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()

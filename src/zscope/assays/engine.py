"""The engine behind all response assays: decode and encode again, in chunks that fit memory.

    R(z) = mean of q(z' | decoder(z))

(Leeb et al., "Interventional assays for the latent space of autoencoders", eq. 2.)

`respond` takes existing codes. `responses` builds them on demand: d interventions on each
of N samples are d N codes, of which only one chunk is in memory at a time. The model runs
in evaluation mode, without gradients, on its own device; the results have the device and
dtype of the codes.
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
from zscope.errors import ConfigError, DataError, InterfaceError, Undefined
from zscope.layout import Layout
from zscope.recording import Recording, join_posteriors, where_of, with_layout
from zscope.recording import base_samples as draw_base_samples
from zscope.sampling import recorded_codes, whole
from zscope.types import Codes, as_tensor, at_least_single

__all__ = [
    "Recorded", "base_responses", "base_samples", "bytes_at_once", "causes", "check_finite",
    "check_size", "chunk_size", "decode", "decode_and_respond", "encode", "layer_sizes", "location",
    "memory_budget", "points_of", "posterior_of", "respond", "respond_posterior", "responses",
    "use_memory", "used_latents",
]  # fmt: skip

Recorded = Recording | Posterior | Tensor | np.ndarray
"""What was recorded of a model: a whole recording, posteriors, or codes."""

CONDITIONAL = (
    "the encoder of this model is conditional: it needs factors, and decoded observations have "
    "none. Use assays of its codes or of its decoder"
)
"""Why an assay that encodes decoded observations does not apply to a conditional model."""

_BUDGET = ContextVar("bytes that one chunk may take", default=256 * 2**20)

Build = Callable[[int, int], Tensor]
"""Codes of the rows from start up to (not including) stop."""

# Tensors in memory at once in a layer without gradients: its input, its output, and the
# copies that convolutions make of both.
_TENSORS_PER_LAYER = 4
# For models whose layers cannot be inspected (plain functions): bytes of a wide layer, in
# units of the observation.
_OPAQUE_FACTOR = 32
# Larger chunks than this are no faster, even for networks of a few units.
_LARGEST_CHUNK = 8192
# Four times the largest tensor. Convolutions over four times as much take twice as long: the C
# library returns the memory of large tensors to the system, and every pass waits for new pages.
_CACHE_BYTES = 16 * 2**20


def memory_budget() -> int:
    """Bytes that one chunk may take while it is decoded and encoded (default: 256 MB)."""
    return _BUDGET.get()


@contextmanager
def use_memory(budget: int) -> Iterator[None]:
    """Within this block, limit a chunk of codes to `budget` bytes."""
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
    """The posterior of a recording; plain codes become a posterior without variance."""
    if isinstance(recorded, Recording):
        return recorded.posterior
    return recorded if isinstance(recorded, Posterior) else Posterior(recorded_codes(recorded, who))


def used_latents(autoencoder: Autoencoder | None, recorded: Recorded, who: str) -> list[int]:
    """The latents that count (`zscope.usage`), of a recording or of a model and its posterior."""
    posterior = posterior_of(recorded, who)
    if len(posterior) == 0:
        raise Undefined(f"{who}: 0 posteriors were given. Record some observations.")
    if not isinstance(recorded, Recording):
        recorded = Recording(autoencoder, posterior)
    return recorded.used


def base_samples(recorded: Recorded, samples: int, who: str, generator: Generator) -> Codes:
    """Draws from the aggregate posterior in random order, each observation at most once.

    For a recording, the first of `recording.base_samples`, which all assays share; otherwise
    drawn with the generator. Of maps, posterior means: what their assays start from are pictures.
    """
    whole(who, samples=samples)
    posterior = posterior_of(recorded, who)
    count = min(samples, len(posterior))
    of_maps = posterior.layout is not None
    least = 8 if of_maps else max(2, min(8, posterior.latents))
    if count < least:
        what = "pictures" if of_maps else f"samples for {posterior.latents} latents"
        more = "Record more observations: zs.record(autoencoder, data, samples=N)"
        if len(posterior) >= least:
            more = f"Take more of them: samples={least}"
        raise Undefined(
            f"{who}: {count} {what} "
            f"({len(posterior)} recorded, samples={samples}); at least {least} are needed to "
            f"estimate spreads and draw replacements. {more}"
        )
    if of_maps and isinstance(recorded, Recording):
        draws = recorded.codes[recorded.picture_order[:count]]
    elif of_maps:
        draws = posterior.mean[torch.randperm(len(posterior), generator=generator)[:count]]
    elif isinstance(recorded, Recording):
        draws = recorded.base_samples
    else:
        draws = draw_base_samples(posterior, generator)
    return recorded_codes(draws[:count], who)


def points_of(recorded: Recorded, who: str) -> Posterior:
    """What new vectors are made of: the posteriors; of maps only their means, as base samples."""
    posterior = posterior_of(recorded, who)
    if posterior.layout is None or posterior.deterministic:
        return posterior
    return Posterior(posterior.mean, layout=posterior.layout)


def base_responses(autoencoder: Autoencoder, recorded: Recorded, base: Codes) -> Posterior:
    """The posteriors of the decoded base samples; computed once for a recording."""
    if not isinstance(recorded, Recording):
        return respond_posterior(autoencoder, base)
    parts: list[Posterior] = recorded.share("base responses", list)
    count = sum(map(len, parts))
    if count < len(base):
        parts.append(respond_posterior(autoencoder, base[count:]))
        parts[:] = [join_posteriors(parts)]
    return parts[0][: len(base)]


def respond(autoencoder: Autoencoder, codes: Codes | np.ndarray) -> Codes:
    """The response R(z) of each code: the posterior mean of the decoded code."""
    codes = _real(codes)
    parts = responses(autoencoder, len(codes), lambda a, b: codes[a:b])
    return torch.cat([codes[:0].detach(), *(posterior.mean for _, _, posterior in parts)])


def _real(codes: Codes | np.ndarray) -> Codes:
    codes = as_tensor(codes, "response")
    if codes.is_complex() or codes.ndim == 0:
        raise DataError(
            f"response: got codes of shape {tuple(codes.shape)} and type {codes.dtype}; expected "
            "real numbers, a row of latents for each code."
        )
    return codes


def respond_posterior(autoencoder: Autoencoder, codes: Codes | np.ndarray) -> Posterior:
    """The whole posterior of the decoded codes, from which responses can be sampled (eq. 3)."""
    codes = _real(codes)
    if len(codes) == 0:
        raise ConfigError("response: 0 codes were given. Give at least one row of latents.")
    build = lambda a, b: codes[a:b]  # noqa: E731
    parts = [part for _, _, part in responses(autoencoder, len(codes), build)]
    return join_posteriors(parts)


def decode(autoencoder: Autoencoder, codes: Codes) -> Tensor:
    """The decoded codes, at least float32, on the device of the codes."""
    size = chunk_size(autoencoder, codes[:2], len(codes))
    with evaluation(autoencoder):
        parts = [_decode(autoencoder, codes[a : a + size], a) for a in range(0, len(codes), size)]
    return torch.cat([at_least_single(part.to(codes.device)) for part in parts])


def decode_and_respond(autoencoder: Autoencoder, codes: Codes) -> tuple[Tensor, Posterior]:
    """A few decoded codes and their posterior, in one pass and one chunk.

    For interactive use: no trial pass to choose a chunk size.
    """
    with evaluation(autoencoder):
        x = _decode(autoencoder, codes, 0)
        return at_least_single(x), _encode(autoencoder, x, codes, 0)


def encode(
    autoencoder: Autoencoder,
    batch: Callable[[np.ndarray], Tensor],
    rows: np.ndarray,
) -> Posterior:
    """The posteriors of some rows of data, on the CPU; `batch(rows)` reads them."""
    example = batch(rows[:2])
    size = max(
        2, min(_LARGEST_CHUNK, memory_budget() * len(example) // (_OPAQUE_FACTOR * example.nbytes))
    )
    device, dtype = autoencoder.place
    parts = []
    for start in range(0, len(rows), size):
        x = batch(rows[start : start + size])
        if any(p.is_floating_point() for p in autoencoder.parameters()):
            x = x.to(device, dtype)
        with evaluation(autoencoder):
            part = encode_alone(autoencoder, x).detach()
        bad = ~(part.mean.isfinite() & part.variance.isfinite()).all(1)
        if bad.any():
            first = int(bad.nonzero()[0, 0])
            row, where = int(rows[start + first]), where_of(part[first : first + 1])
            raise InterfaceError(
                f"response: the encoder gave NaN or infinite numbers for {int(bad.sum())} of "
                f"{len(x)} observations, the first at row {row}{where}. Are the data scaled as in "
                "training, and are the weights finite?"
            )
        parts.append(part.to("cpu"))
    return join_posteriors(parts)


def encode_alone(autoencoder: Autoencoder, x: Tensor) -> Posterior:
    """The posterior of observations whose factors are not known; `Undefined` if it needs them."""
    if autoencoder.needs_auxiliary:
        raise Undefined(f"response: {CONDITIONAL}.")
    return with_layout(autoencoder.encode(x), autoencoder, "response")


def causes(autoencoder: Autoencoder, noises: Codes) -> Tensor:
    """The causes that follow from the noises; the noises themselves without a causal block."""
    if type(autoencoder).causes is Autoencoder.causes:
        return noises
    size = max(1, min(_LARGEST_CHUNK, memory_budget() // (_OPAQUE_FACTOR * 8 * noises.shape[1])))
    device, dtype = location(autoencoder, noises)
    parts = []
    for start in range(0, len(noises), size):
        part = noises[start : start + size]
        with evaluation(autoencoder):
            output = autoencoder.causes(part.detach().to(device, dtype))
        if len(output) != len(part) or output.shape[1] % noises.shape[1]:
            raise InterfaceError(
                f"response: {len(part)} x {noises.shape[1]} noises gave causes of shape "
                f"{tuple(output.shape)}. The causal block must return one row for each vector of "
                "noises, and equally many causes for each noise."
            )
        if not output.sum().isfinite():
            check_finite("causal block", output, part, start)
        parts.append(output.detach().to(noises.device, noises.dtype))
    return torch.cat(parts)


def responses(
    autoencoder: Autoencoder, count: int, build: Build
) -> Iterator[tuple[int, int, Posterior]]:
    """(start, stop, posterior) for `count` codes, built chunk by chunk by `build`."""
    if count == 0:
        return
    size = chunk_size(autoencoder, build(0, min(2, count)), count)
    for start in range(0, count, size):
        stop = min(start + size, count)
        yield start, stop, _respond(autoencoder, build(start, stop), start)


def chunk_size(autoencoder: Autoencoder, example: Codes, count: int) -> int:
    """How many codes to decode and encode at once within the memory budget.

    The first time a model is used, the example (one or two codes) is run to find the largest
    input or output of any layer. On a CPU, chunks also have to fit the caches, however large
    the budget. Chunks have nearly equal sizes, so that none consists of a single code.
    """
    if len(example) == 0:
        raise ConfigError("response: 0 codes were given. Give at least one row of latents.")
    place, budget = location(autoencoder, example), memory_budget()
    if place[0].type == "cpu":
        budget = min(budget, _CACHE_BYTES * torch.get_num_threads())
    most = max(1, min(_LARGEST_CHUNK, int(budget / _bytes_per_code(autoencoder, example, place))))
    chunks = -(-count // most)
    return -(-count // chunks)


# Bytes per code, by model and its device and dtype: every assay needs them again.
_BYTES_PER_CODE: WeakKeyDictionary[Autoencoder, dict[Any, float]] = WeakKeyDictionary()


def _bytes_per_code(
    autoencoder: Autoencoder, example: Codes, place: tuple[torch.device, torch.dtype]
) -> float:
    sizes = _BYTES_PER_CODE.setdefault(autoencoder, {})
    if place not in sizes:
        with evaluation(autoencoder), layer_sizes(autoencoder) as layers:
            x = _decode(autoencoder, example, 0)
            if not autoencoder.needs_auxiliary:  # else it can only decode
                _encode(autoencoder, x, example, 0)
        # Codes count too: those of maps may have more numbers than the pictures.
        largest = max(bytes_at_once(layers, x), _TENSORS_PER_LAYER * example.nbytes)
        sizes[place] = largest / len(example)
    return sizes[place]


def _respond(autoencoder: Autoencoder, codes: Codes, start: int) -> Posterior:
    with evaluation(autoencoder):
        return _encode(autoencoder, _decode(autoencoder, codes, start), codes, start)


def _decode(autoencoder: Autoencoder, codes: Codes, start: int) -> Tensor:
    """Decode and check one chunk. The caller sets evaluation mode, which is slow to set."""
    device, dtype = location(autoencoder, codes)
    x = autoencoder.decode(codes.detach().to(device, dtype))
    if x.ndim == 0 or len(x) != len(codes):
        raise InterfaceError(
            f"response: the decoder was given {len(codes)} codes and returned shape "
            f"{tuple(x.shape)}; it must return one observation for each code. Does it squeeze, "
            "sum or repeat its batch?"
        )
    # A sum needs one pass and no memory. It is finite unless an entry is not, or the sum
    # itself overflows, which the exact check sorts out.
    if not x.sum().isfinite():
        check_finite("decoder", x, codes, start)
    return x


def check_size(decoded: Tensor, x: Tensor, who: str) -> None:
    """Raise unless there is a decoded number for each number of the observations."""
    sizes = [tuple(each.flatten(1).shape) if each.ndim else () for each in (decoded, x)]
    if sizes[0] != sizes[1]:
        raise InterfaceError(
            f"{who}: the decoder returned shape {tuple(decoded.shape)} for observations of shape "
            f"{tuple(x.shape)}. Do the data belong to this model?"
        )


def _encode(autoencoder: Autoencoder, x: Tensor, codes: Codes, start: int) -> Posterior:
    """Encode and check one chunk of decoded codes. The caller sets evaluation mode."""
    posterior = encode_alone(autoencoder, x)
    if posterior.mean.shape != codes.shape:
        raise InterfaceError(
            f"response: codes of shape {tuple(codes.shape)} were encoded again to shape "
            f"{tuple(posterior.mean.shape)}. The encoder must return as many latents as the "
            "decoder takes, one row for each observation; it must not squeeze or average its batch."
        )
    for part in (posterior.mean, posterior.std, posterior.scale_tril):
        if part is not None and not part.sum().isfinite():
            check_finite("encoder", part, codes, start, posterior.layout)
    return posterior.detach().to(codes.device, codes.dtype)


def check_finite(
    role: str, output: Tensor, codes: Codes, start: int, layout: Layout | None = None,
    who: str = "response",
) -> None:  # fmt: skip
    """Raise an error that names the first code whose output is not finite, and where it is not.

    `layout` is that of the output, if it has latents that are maps.
    """
    bad = ~output.flatten(1).isfinite().all(1)
    if not bad.any():
        return
    row = int(bad.nonzero()[0, 0])
    values = ", ".join(f"{value:.4g}" for value in codes[row, :12].tolist())
    more = f", … ({codes.shape[1]} latents)" if codes.shape[1] > 12 else ""
    cause = (
        "This code itself is not finite: check where it comes from."
        if not codes[row].isfinite().all()
        else "Is the code far outside the training data, or are the model's weights not finite?"
    )
    marked = ~output[row].isfinite()
    where = _number(marked) if layout is None else layout.first(marked)
    raise InterfaceError(
        f"{who}: the {role} gave NaN or infinite numbers for {int(bad.sum())} of {len(codes)} "
        f"codes, first in {where} for latent vector {start + row}: [{values}{more}]. {cause} Try "
        "that vector alone with autoencoder.decode and autoencoder.encode."
    )


def _number(marked: Tensor) -> str:
    """Where the first number is that is marked: of pictures and video, colour and pixel."""
    first = marked.nonzero()[0].tolist()
    if len(first) not in (3, 4):
        return f"number {', '.join(map(str, first))} of its output"
    colour, *frame, y, x = first
    return f"colour {colour}{f' of frame {frame[0]}' if frame else ''} at pixel {y}, {x}"


def location(autoencoder: Autoencoder, codes: Codes) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the weights; those of the codes for a model without weights."""
    if any(parameter.is_floating_point() for parameter in autoencoder.parameters()):
        return autoencoder.place
    return codes.device, codes.dtype


@contextmanager
def layer_sizes(autoencoder: Autoencoder) -> Iterator[list[int]]:
    """Collects the size in bytes of every layer's inputs and outputs."""
    sizes: list[int] = []

    def add_sizes(module: nn.Module, inputs: Any, outputs: Any) -> None:
        for tensors in (inputs, outputs):
            group = tensors if isinstance(tensors, tuple | list) else (tensors,)
            sizes.extend(tensor.nbytes for tensor in group if isinstance(tensor, Tensor))

    hooks = [module.register_forward_hook(add_sizes) for module in autoencoder.modules()]
    try:
        yield sizes
    finally:
        for hook in hooks:
            hook.remove()


def bytes_at_once(layers: list[int], x: Tensor) -> int:
    """Memory of one pass, from the sizes of the layers and the decoded observations x."""
    factor = _TENSORS_PER_LAYER if layers else _OPAQUE_FACTOR
    return max(_TENSORS_PER_LAYER * max(layers, default=0), factor * x.nbytes)

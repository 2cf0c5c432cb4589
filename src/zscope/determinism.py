"""Is a model a function? The same input, passed twice and alone, must give the same output.

A model that draws its own random numbers, that keeps state from call to call, or whose output
depends on the rest of the batch (batch norm that never leaves training mode) is measured as it
is, but a response to an intervention then contains its noise. `notes_on` tries a few
observations and says what it saw, also that a decoder gives no numbers. Outputs count as equal
when they differ by less than a thousandth of their standard deviation, or by rounding (the root
of the float type's epsilon, relative to the largest output).
"""

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from zscope.autoencoder import Autoencoder

__all__ = ["FEW", "NO_NUMBERS", "TOLERANCE", "notes_on"]

FEW = 4
"""Observations that are tried."""
TOLERANCE = 1e-3
"""Largest difference between equal outputs, in standard deviations."""
NO_NUMBERS = "The decoder gives NaN or infinite numbers"
"""How a note begins that is not about functions."""


def notes_on(autoencoder: Autoencoder, x: Tensor, auxiliary: Tensor | None) -> tuple[str, ...]:
    """What keeps the encoder and the decoder from being functions of numbers; () if nothing does.

    `x` are a few observations. The caller sets evaluation mode. The global random state is
    put back, so that a model with noise of its own draws the same numbers afterwards.
    """

    def encode(rows: slice) -> Tensor:
        extra = [] if auxiliary is None else [auxiliary[rows]]
        posterior = autoencoder.encode(x[rows], *extra)
        parts = (posterior.mean, posterior.std, posterior.scale_tril)
        return torch.cat([part.flatten(1) for part in parts if part is not None], 1)

    def decode(rows: slice) -> Tensor:
        return autoencoder.decode(codes[rows]).flatten(1)

    with torch.random.fork_rng(devices=[]):
        codes = encode(slice(None))[:, : autoencoder.latents]
        notes = [_note(encode, "encoder", "observation", "encoded", len(x))]
        # Of a decoder that fails or is missing, the assays say so.
        with suppress(Exception):
            notes.append(_note(decode, "decoder", "code", "decoded", len(x)))
            if bad := int((~decode(slice(None)).isfinite()).any(1).sum()):
                notes.append(f"{NO_NUMBERS} for {bad} of {len(x)} codes.")
    return tuple(filter(None, notes))


def _note(call: Callable[[slice], Tensor], part: str, thing: str, done: str, count: int) -> str:
    first, again = call(slice(None)), call(slice(None))
    if different := _difference(first, again):
        return (
            f"The {part} is not a function: the same {count} {thing}s, {done} twice, gave results "
            f"that differ by {different}. It draws random numbers or keeps state from call to call."
        )
    if count == 1:
        return ""
    try:
        alone = call(slice(0, 1))
    except Exception as error:  # whatever foreign code raises
        cause = error.__cause__ or error
        message = (str(cause).strip().splitlines() or ["(no message)"])[0]
        return (
            f"The {part} takes batches only: one {thing} alone raised {type(cause).__name__}: "
            f"{message[:160]}. Does it normalise over its batch?"
        )
    if different := _difference(first[:1], alone, spread=_spread(first)):
        return (
            f"The {part} depends on the batch: one {thing}, {done} alone and among {count}, gave "
            f"results that differ by {different}. Does it normalise over its batch?"
        )
    return ""


def _difference(first: Tensor, second: Tensor, spread: float | None = None) -> str:
    """How two outputs for the same input differ; "" if they are equal up to rounding."""
    if first.shape != second.shape:
        return f"their shapes, {tuple(first.shape)} and {tuple(second.shape)}"
    spread = _spread(first) if spread is None else spread
    precision = torch.finfo(first.dtype).eps ** 0.5
    if not first.numel():
        return ""
    finite = first.isfinite()
    if not torch.equal(finite, second.isfinite()):
        return "numbers that are NaN or infinite"
    # Those that are in both are equal.
    first, second = (torch.where(finite, each, 0) for each in (first, second))
    gap = float((first.double() - second.double()).abs().max())
    if gap <= max(TOLERANCE * spread, precision * float(first.abs().max())):
        return ""
    return f"up to {gap:.3g} (their standard deviation is {spread:.3g})"


def _spread(outputs: Tensor) -> float:
    """The largest standard deviation of an output over the batch."""
    if not outputs.numel():
        return 0.0
    return float(outputs.nan_to_num(0, 0, 0).double().std(0, correction=0).max())

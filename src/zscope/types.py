"""Tensors named by their shape: one word for one thing, everywhere.

The annotations are read by people and by the test suite, which checks every call
against them; in normal use they cost nothing.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from zscope.errors import DataError, NoGradients

__all__ = [
    "HALF",
    "Codes",
    "Factors",
    "Matrix",
    "Number",
    "Observations",
    "PerSample",
    "Scalar",
    "Spectrum",
    "array_of",
    "as_tensor",
    "at_least_single",
    "needs_gradients",
]

Codes = Float[Tensor, "samples latents"]
Factors = Shaped[Tensor, "samples factors"]
Observations = Shaped[Tensor, "samples *shape"]
PerSample = Float[Tensor, " samples"]
Scalar = Float[Tensor, ""]
Number = Scalar | float  # an option of a loss, in which models that train together may differ
Spectrum = Float[Tensor, " directions"]
Matrix = Float[Tensor, "rows columns"]


def as_tensor(values: Any, who: str = "array") -> Tensor:
    """An array, a list or a data frame as a tensor of its type; a tensor as it is."""
    if isinstance(values, Tensor):
        return values
    try:
        array = np.asarray(values)
        if array.dtype.name == "bfloat16":  # of JAX; NumPy has no such type, nor torch this one
            array = array.astype(np.float32)
        # Data frames and memory maps may be read-only and views reversed, which tensors cannot be.
        plain = array.flags.writeable and min(array.strides, default=0) >= 0
        return torch.from_numpy(array if plain else array.copy())
    except (TypeError, ValueError) as error:
        what = f"a {type(values).__name__}"
        if isinstance(values, np.ndarray):
            what = f"an array of shape {values.shape} and type {values.dtype}"
        raise DataError(
            f"{who}: got {what}, which is no table of numbers ({error}). Give one row of numbers "
            "for each sample; number words: np.unique(words, return_inverse=True)[1]"
        ) from None


def needs_gradients(tensor: Tensor) -> bool:
    """Whether somebody differentiates what is computed with this tensor."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor) or (
        torch.is_grad_enabled() and tensor.requires_grad
    )


def array_of(tensor: Tensor, who: str) -> np.ndarray:
    """The values of a tensor as an array, for libraries without gradients."""
    if needs_gradients(tensor):
        raise NoGradients(
            f"{who}: an assay needs gradients, and this model is not written in torch. Assays that "
            "need gradients cannot be used with it; all others can."
        )
    return tensor.detach().cpu().numpy()


HALF = (torch.float16, torch.bfloat16)


def at_least_single(values: Any) -> Any:
    """A tensor or an array of half precision as float32; anything else as it is."""
    if isinstance(values, Tensor):
        return values.float() if values.dtype in HALF else values
    if isinstance(values, np.ndarray):
        return values.astype(np.float32) if values.dtype == np.float16 else values
    return values

"""Tensors named by their shape: one word for one thing, everywhere.

The annotations are read by people and by the test suite, which checks every call
against them; in normal use they cost nothing.
"""

from jaxtyping import Float, Shaped
from torch import Tensor

Codes = Float[Tensor, "samples latents"]
Factors = Shaped[Tensor, "samples factors"]
Observations = Shaped[Tensor, "samples *shape"]
PerSample = Float[Tensor, " samples"]
Scalar = Float[Tensor, ""]
Spectrum = Float[Tensor, " directions"]
Matrix = Float[Tensor, "rows columns"]

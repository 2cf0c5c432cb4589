"""Traversal responses: where along a traversal does the encoder fail to recover the code?

Latent m of a base vector is moved over its range while the others are fixed; for every step

    error[m, step, i] = N_i - N'_i

is the signed difference between the decoded vector and its response. A traversal may look
fine and still be encoded wrongly: a consistent model has lines at 0. A collapsed latent does
not respond, so its own line rises with the traversal. There are n plots of n lines. Permuting
the latents permutes the plots and their lines.

"On the interventional consistency of autoencoders", ICLR 2021 submission: fig. 2, A.4.2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import respond
from zscope.assays.entry import Entry
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError
from zscope.results import Result
from zscope.sampling import recorded_codes, whole

__all__ = ["TraversalResponses", "traversal_responses"]


@dataclass(frozen=True, eq=False)
class TraversalResponses(Result):
    """The error of every latent along the traversal of each."""

    base: Float[Tensor, " latents"]
    values: Float[Tensor, "latents steps"]  # the values given to latent m
    error: Float[Tensor, "latents steps latents"]  # moved, step, observed: N - N'

    @property
    def largest(self) -> Float[Tensor, " latents"]:
        """The largest error, of any latent, along each traversal."""
        return self.error.abs().amax((1, 2))

    def summary(self) -> list[tuple[str, str]]:
        worst = int(self.largest.argmax())
        return [
            ("mean error", f"{float(self.error.abs().mean()):.4g}"),
            ("largest error", f"{float(self.largest[worst]):.4g} (moving latent {worst})"),
        ]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import traversal_errors

        return traversal_errors(self.values, self.error, ax=ax)


@accepts_recording
def traversal_responses(
    autoencoder: Autoencoder,
    codes: Posterior | Tensor | np.ndarray,
    *,
    base: Tensor | np.ndarray | None = None,
    steps: int = 21,
    range: float = 0.99,
) -> TraversalResponses:
    """The signed errors as each latent is moved over the central `range` of its codes.

    `base` is the vector to change; by default the recorded code nearest to the mean.
    """
    if isinstance(codes, Posterior):
        codes = codes.mean
    codes = recorded_codes(codes, "traversal_responses")
    latents = codes.shape[1]
    whole("traversal_responses", steps=steps)
    if steps < 2 or not 0 < range <= 1:
        raise ConfigError(
            f"traversal_responses: steps={steps}, range={range}; at least 2 steps are needed, over "
            "a share of the codes between 0 and 1."
        )
    if base is None:
        base = codes[(codes - codes.mean(0)).norm(dim=1).argmin()]
    base = torch.as_tensor(base)
    if base.numel() != latents:
        raise ConfigError(
            f"traversal_responses: the base has {base.numel()} numbers, but the codes have "
            f"{latents} latents. Give one code, for instance base=codes[0]."
        )
    base = base.detach().reshape(-1).to(codes)
    # numpy: torch.quantile refuses more than 16 million numbers.
    ends = np.quantile(codes.cpu().double().numpy(), [(1 - range) / 2, (1 + range) / 2], axis=0)
    share = torch.linspace(0, 1, steps, dtype=torch.float64)
    low, high = torch.from_numpy(ends)
    values = (low[:, None] + (high - low)[:, None] * share).to(codes)
    vectors = base.repeat(latents, steps, 1)
    index = torch.arange(latents)
    vectors[index, :, index] = values
    flat = vectors.flatten(0, 1)
    error = flat - respond(autoencoder, flat)
    return TraversalResponses(base, values, error.unflatten(0, (latents, steps)))


ENTRY = Entry(
    question="Where along a traversal does the encoder fail to recover the code?",
    takes=("autoencoder", "codes"),
    passes="steps * latents",
    most=4_000,
    scales="steps",
)

"""Traversal responses: where along a traversal does the encoder fail to recover the code?

Latent m of a sample from the aggregate posterior is moved over its range while its other
latents are fixed; for every step

    error[m, sample, step, i] = N_i - N'_i

is the signed difference between the decoded vector and its response. A traversal may look
fine and still be encoded wrongly: a consistent model has lines at 0. A collapsed latent does
not respond, so its own lines rise with the traversal. For each moved latent there is a panel
for every observed latent, with one line a sample. Permuting the latents permutes the panels.

Two numbers sum this up, the means of |N_i - N'_i| over all traversals

    moved       of the latent that is moved, i = m
    untouched   of all other latents, i != m

both 0 for a consistent model. Relative errors are divided by the standard deviation of latent i
over the codes, so that models whose latents differ in scale can be compared. The paper shows
`samples=12` lines over the whole range of the codes, `range=1`.

"On the interventional consistency of autoencoders", ICLR 2021 submission: fig. 2, A.4.2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, base_samples, respond
from zscope.assays.entry import Entry
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError
from zscope.randomness import fresh
from zscope.results import Measure, Scored
from zscope.sampling import whole
from zscope.types import Matrix, as_tensor

__all__ = ["TraversalResponses", "traversal_responses"]


SHOWN = 12  # latents in the figure of all


@dataclass(frozen=True, eq=False)
class TraversalResponses(Scored):
    """The errors of every latent along the traversals of each."""

    why_no_interval = "it describes the few samples that are drawn"
    why_no_chance = "a model that ignores a latent has the errors of its whole range"
    further_plots = ("plot_all",)

    base: Float[Tensor, "samples latents"]  # the vectors that are changed
    values: Float[Tensor, "latents steps"]  # the values given to latent m
    error: Float[Tensor, "latents samples steps latents"]  # moved, sample, step, observed: N - N'
    scale: Float[Tensor, " latents"]  # standard deviation of each latent over the codes

    @property
    def mean_error(self) -> Matrix:
        """The mean absolute error: moved latent x observed latent."""
        return self.error.abs().double().mean((1, 2)).cpu()

    @property
    def relative_error(self) -> Matrix:
        """The same in units of the standard deviation of the observed latent; 0 if that is 0."""
        scale = self.scale.double().cpu()
        return torch.where(scale > 0, self.mean_error / scale.clamp_min(1e-300), 0)

    @property
    def moved(self) -> float:
        """The mean absolute error of the latent that is moved."""
        return float(self.mean_error.diagonal().mean())

    @property
    def untouched(self) -> float | None:
        """The mean absolute error of all other latents; None if there is no other."""
        return _off_diagonal(self.mean_error)

    def measures(self) -> list[Measure]:
        rows = {
            "mean error, untouched": self.untouched,
            "mean error, moved": self.moved,
            "relative error, untouched": _off_diagonal(self.relative_error),
            "relative error, moved": float(self.relative_error.diagonal().mean()),
        }
        samples = len(self.base)
        return [
            self.measure(name, value, samples=samples)
            for name, value in rows.items()
            if value is not None
        ]

    @property
    def largest(self) -> Float[Tensor, " latents"]:
        """The largest error, of any sample and latent, along each traversal."""
        return self.error.abs().amax((1, 2, 3))

    @property
    def change(self) -> Float[Tensor, " latents"]:
        """How much an error, of any sample and latent, changes along each traversal.

        An error that stays as it was comes from the sample, not from the latent that is moved.
        """
        return (self.error.amax(2) - self.error.amin(2)).amax((1, 2))

    def summary(self) -> list[tuple[str, str]]:
        worst = int(self.change.argmax())
        return [
            ("largest error", f"{float(self.largest.max()):.4g}"),
            ("largest change", f"{float(self.change[worst]):.4g} (moving latent {worst})"),
        ]

    def plot(self, ax: Any = None, *, latent: int | None = None) -> Any:
        """A panel for every observed latent as `latent` is moved: one line a sample.

        By default the latent that changes an error most is moved. On `ax`, only the observed latent
        with the largest error is drawn.
        """
        from zscope.plots import traversal_errors

        moved = int(self.change.argmax()) if latent is None else latent
        if not 0 <= moved < len(self.error):
            raise ConfigError(
                f"traversal_responses: there is no latent {moved}: the model has "
                f"{len(self.error)} (0 to {len(self.error) - 1})."
            )
        return traversal_errors(self.values[moved], self.error[moved], moved=moved, ax=ax)

    def plot_all(self) -> Any:
        """A panel for each moved latent (rows) and each observed one (columns).

        Of more than 12 latents, those whose traversals change an error most.
        """
        from zscope.plots import traversal_panels

        latents = sorted(self.change.argsort(descending=True, stable=True)[:SHOWN].tolist())
        return traversal_panels(
            self.values[latents], self.error[latents][..., latents], names=latents
        )


@accepts_recording
def traversal_responses(
    autoencoder: Autoencoder,
    posterior: Recorded,
    *,
    samples: int = 8,
    base: Tensor | np.ndarray | None = None,
    steps: int = 15,
    range: float = 0.99,
    generator: Generator | None = None,
) -> TraversalResponses:
    """The signed errors as each latent is moved over the central `range` of its samples.

    `samples` of the aggregate posterior are changed, or the vectors `base` (one or several).
    """
    whole("traversal_responses", 1, steps=steps, samples=samples)
    if steps < 2 or not 0 < range <= 1:
        raise ConfigError(
            f"traversal_responses: steps={steps}, range={range}; at least 2 steps are needed, over "
            "a share of the codes between 0 and 1."
        )
    # All draws for the range, the first of them as samples.
    draws = base_samples(posterior, 2**62, "traversal_responses", fresh(generator))
    latents = draws.shape[1]
    vectors = draws[:samples]
    if base is not None:
        given = as_tensor(base, "traversal_responses: base").detach()
        vectors = given.reshape(-1, given.shape[-1] if given.ndim else 1).to(draws)
    if vectors.shape[1] != latents:
        raise ConfigError(
            f"traversal_responses: the base has {vectors.shape[1]} numbers, but the codes have "
            f"{latents} latents. Give one code, for instance base=codes[0], or several."
        )
    # numpy: torch.quantile refuses more than 16 million numbers.
    ends = np.quantile(draws.cpu().double().numpy(), [(1 - range) / 2, (1 + range) / 2], axis=0)
    share = torch.linspace(0, 1, steps, dtype=torch.float64)
    low, high = torch.from_numpy(ends)
    values = (low[:, None] + (high - low)[:, None] * share).to(draws)
    codes = vectors[:, None].repeat(latents, 1, steps, 1)
    index = torch.arange(latents)
    codes[index, :, :, index] = values[:, None]
    flat = codes.flatten(0, 2)
    error = flat - respond(autoencoder, flat)
    scale = draws.std(0, correction=0)
    return TraversalResponses(vectors, values, error.reshape(codes.shape), scale)


def _off_diagonal(matrix: Matrix) -> float | None:
    """The mean of all entries but the diagonal; None if there are none."""
    count = len(matrix) * (len(matrix) - 1)
    return float((matrix.sum() - matrix.trace()) / count) if count else None


ENTRY = Entry(
    question="Where along a traversal does the encoder fail to recover the code?",
    meaning=(
        "The mean error, in standard deviations, between the codes of a traversal and what the "
        "encoder recovers: of the latent that is moved, and of those that should stay where they "
        "are."
    ),
    figure=(
        "One line for each sample as a latent is moved: at 0 the encoder recovers the code, a line "
        "that rises with the traversal is a change that is lost."
    ),
    takes=("autoencoder", "recording"),
    passes="samples * steps * latents",
    most=4_000,
    fewest=1,
    maps="offsets",
)

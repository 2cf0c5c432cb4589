"""Correlation tracking: do passive latents correlate with others, and since when?

For snapshots M_1 … M_T of the means of the same samples during training,

    rho_t = |correlation matrix of M_t|
    count_j = number of snapshots where some off-diagonal |rho_t[j, k]| > threshold

The count lies between 0 and T. Unchanged by shifting or scaling any latent in any snapshot.
A latent that does not vary in a snapshot correlates with nothing there.

Bonheme 2023, section 6.5: passive latents have the highest counts, and their correlations
with active ones fluctuate strongly.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from zscope.assays.matrices import Array, as_rows
from zscope.errors import Undefined
from zscope.results import Result

__all__ = ["CorrelationTracking", "correlation_tracking"]


@dataclass(frozen=True, eq=False)
class CorrelationTracking(Result):
    """Correlations over training; `correlations[t]` keeps the sign."""

    counts: list[int]
    correlations: Float[Tensor, "snapshots latents latents"]
    threshold: float
    snapshots: int

    def series(self, first: int, second: int) -> list[float]:
        """The correlation of two latents, snapshot after snapshot."""
        return [float(value) for value in self.correlations[:, first, second]]

    @property
    def fluctuation(self) -> list[float]:
        """How much the correlations of each latent vary: their mean standard deviation."""
        spread = self.correlations.std(0, correction=0)
        latents = max(2, len(spread))
        return [float(row.sum()) / (latents - 1) for row in spread]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        return bars(self.counts, x="latent", y=f"snapshots with |ρ| > {self.threshold:g}", ax=ax)


def correlation_tracking(
    snapshots: Iterable[Array], *, threshold: float = 0.2
) -> CorrelationTracking:
    """Follow the correlations between latents over snapshots of the means (samples x latents)."""
    matrices = []
    for step, snapshot in enumerate(snapshots):
        rows = as_rows(snapshot, f"correlation_tracking (snapshot {step})", least=2)
        matrices.append(correlations(rows))
        if matrices[-1].shape != matrices[0].shape:
            raise Undefined(
                f"correlation_tracking: snapshot {step} has {rows.shape[1]} latents, the first "
                f"{len(matrices[0])}. Snapshots must come from one model."
            )
    if not matrices:
        raise Undefined(
            "correlation_tracking: no snapshots were given. Train with checkpoints and record "
            "the means at each of them."
        )
    stack = torch.stack(matrices)
    counts = (stack.abs() > threshold).any(2).sum(0)
    return CorrelationTracking(
        counts=[int(count) for count in counts],
        correlations=stack,
        threshold=threshold,
        snapshots=len(matrices),
    )


def correlations(rows: Float[Tensor, "samples latents"]) -> Float[Tensor, "latents latents"]:
    """Correlation matrix with zeros on the diagonal and for latents that do not vary."""
    centred = rows - rows.mean(0)
    norms = torch.linalg.vector_norm(centred, dim=0)
    unit = torch.where(norms > 1e-12, centred / norms.clamp(min=1e-300), torch.zeros_like(centred))
    matrix = (unit.T @ unit).clamp(-1, 1)
    return matrix.fill_diagonal_(0).cpu()

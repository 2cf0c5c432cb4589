"""What the studies of the polarised regime share: strengths, means and samples, cells of tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.assays.regime.mutual_information import mutual_information
from zscope.assays.regime.total_correlation import total_correlation
from zscope.errors import Undefined
from zscope.experiments.studies.judging import Interval, mean_interval
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.trained import Trained
from zscope.recording import Recording

__all__ = [
    "COLOURS",
    "OBJECTIVES",
    "above_floor",
    "codes_of_types",
    "levels",
    "mean_text",
    "recorded",
    "shared_nats",
    "strength",
    "together",
]

OBJECTIVES = {
    "beta-vae": ("β-VAE", "beta", "β"),
    "beta-tcvae": ("β-TCVAE", "beta", "β"),
    "dip-vae-ii": ("DIP-VAE-II", "offdiagonal", "λ"),
    "factor-vae": ("FactorVAE", "alpha", "γ"),
    "annealed-vae": ("annealed VAE", "capacity", "C"),
}
"""model -> its name, the option that is its strength, and the letter of it."""
COLOURS = {"passive": "#8a8a8a", "mixed": "#E69F00", "active": "#0072B2"}


def strength(run: Trained) -> float:
    """The β, λ, γ or C of a run."""
    return float(run[OBJECTIVES[run["model"]][1]])


def recorded(run: Trained, model: Any = None) -> Recording:
    """What a model makes of the data: all 8,192 sprites, at most 10,000 observations."""
    return run.recording(model, samples=400 if run.tiny else 10_000)


def codes_of_types(recording: Recording, labels: Sequence[str], *types: str) -> list[int]:
    """The latents of these types."""
    return [j for j, label in enumerate(labels) if label in types]


def shared_nats(codes: Tensor, columns: Sequence[int] | None = None) -> dict[str, float | None]:
    """Total correlation and mutual information of codes with their floors; None if undefined."""
    answer: dict[str, float | None] = {"tc": None, "tc_floor": None, "mi": None, "mi_floor": None}
    for name, measure in (("tc", total_correlation), ("mi", mutual_information)):
        try:
            result = measure(codes.double(), columns=columns)
        except Undefined:
            continue
        answer |= {name: result.score, f"{name}_floor": result.floor}
    return answer


def above_floor(values: Mapping[str, float | None], name: str) -> float | None:
    """A measurement minus what independent latents get; None if it is undefined."""
    value, floor = values.get(name), values.get(f"{name}_floor")
    return None if value is None or floor is None else value - floor


def levels(
    rows: Rows, of: str | Callable[[Mapping[str, Any]], Any], along: str = "strength"
) -> dict[float, list[float]]:
    """The values of each level, one a seed: what `lines_over` draws."""
    answer = {}
    for level, own in rows.by(along).items():
        values = [row.get(of) if isinstance(of, str) else of(row) for row in own]
        known = [float(value) for value in values if value is not None]
        if known and level is not None:
            answer[float(level)] = known
    return answer


def mean_text(values: Iterable[float | None], digits: int = 2) -> str:
    """Mean ± standard deviation over seeds."""
    known = [value for value in values if value is not None]
    return f"{np.mean(known):.{digits}f} ± {np.std(known):.{digits}f}" if known else ""


def together(
    values: Mapping[Any, float | None], other: Mapping[Any, float | None]
) -> tuple[Interval | None, Interval | None]:
    """The intervals of two families of values, one a seed."""
    first, second = (
        mean_interval([value for value in each.values() if value is not None])
        for each in (values, other)
    )
    return first, second


def noise_like(codes: Tensor, seed: int = 0) -> Tensor:
    """Independent Gaussian noise with the mean and the variance of each column."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(codes.shape, generator=generator, dtype=codes.dtype)
    return codes.mean(0) + noise * codes.std(0, correction=0)

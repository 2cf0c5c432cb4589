"""What the studies of the polarised regime share: strengths, means and samples, cells of tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from zscope.assays.regime.mutual_information import mutual_information
from zscope.assays.regime.total_correlation import total_correlation
from zscope.errors import Undefined
from zscope.experiments.studies.judging import HOLDS, Control, Expect, mean_interval
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.trained import Trained
from zscope.recording import Recording

__all__ = [
    "COLOURS",
    "DATA",
    "DSPRITES",
    "OBJECTIVES",
    "above_floor",
    "apart",
    "bounded",
    "levels",
    "minus",
    "noise_like",
    "per_seed",
    "recorded",
    "shared_nats",
    "strength",
]

OBJECTIVES = {
    "beta-vae": ("β-VAE", "beta", "β"),
    "beta-tcvae": ("β-TCVAE", "beta", "β"),
    "dip-vae-ii": ("DIP-VAE-II", "offdiagonal", "λ"),
    "factor-vae": ("FactorVAE", "alpha", "γ"),
    "annealed-vae": ("annealed VAE", "capacity", "C"),
}
"""model -> its name, the option that is its strength, and the letter of it."""
DATA = {
    "dsprites": "dSprites", "sprites": "sprites", "sprites-color": "coloured sprites",
    "sprites-noisy": "noisy sprites", "sprites-background": "sprites on a background",
    "smallnorb": "SmallNORB", "cars3d": "Cars3D", "rooms": "rooms",
}  # fmt: skip
"""Datasets by name, as people call them."""
DSPRITES = ("dsprites", "sprites")
"""dSprites, and what stands for it at scale small."""
COLOURS = {"passive": "#8a8a8a", "mixed": "#E69F00", "active": "#0072B2"}


def strength(run: Trained) -> float:
    """The β, λ, γ or C of a run."""
    return float(run[OBJECTIVES[run["model"]][1]])


def recorded(run: Trained, model: Any = None) -> Recording:
    """What a model makes of the data: all 8,192 sprites, at most 10,000 observations."""
    return run.recording(model, samples=400 if run.tiny else 10_000)


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


def per_seed(
    rows: Iterable[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], float | None]
) -> dict[int, float]:
    """The mean over the runs of each seed of a function of a row, where it has a value."""
    return Rows({**row, "_value": value(row)} for row in rows).per_seed("_value")


def minus(first: float | None, second: float | None) -> float | None:
    """The difference, None if one of them is unknown."""
    return None if first is None or second is None else first - second


def apart(sentence: str, effect: Mapping[Any, float], control: Mapping[Any, float]) -> Control:
    """A control whose effect must be smaller: its interval lies wholly below that of the effect."""
    shown, other = mean_interval(list(effect.values())), mean_interval(list(control.values()))
    passed = None if shown is None or other is None else other.high < shown.low
    return Control(sentence, passed, f"control {other}; here {shown}")


def bounded(sentence: str, values: Mapping[Any, float], expect: Expect) -> Control:
    """A control whose interval must lie as expected."""
    interval = mean_interval(list(values.values()))
    passed = None if interval is None else expect.verdict(interval) == HOLDS
    return Control(sentence, passed, str(interval))


def noise_like(codes: Tensor, seed: int = 0) -> Tensor:
    """Independent Gaussian noise with the mean and the variance of each column."""
    if codes.numel() == 0:  # no latents of that type
        return codes
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(codes.shape, generator=generator, dtype=codes.dtype)
    return codes.mean(0) + noise * codes.std(0, correction=0)

"""Double helix: two intertwined strands in three dimensions.

    x = [A1 cos(pi (w t + n)), A2 sin(pi (w t + n)), A3 t] + noise
    t ~ U(-1, 1),   n = 0 or 1 with equal chance,   noise ~ N(0, s^2 I)

1,024 points with A1 = A2 = A3 = w = 1 and s = 0.1 in Leeb, Bauer, Schölkopf,
"Interventional assays for the latent space of autoencoders" (arXiv:2106.16091, eq. 10).
Factors: t along the strand (continuous), and the strand n (categorical).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zscope import files
from zscope.data.dataset import Dataset
from zscope.data.source import Factor, Source, factor_arguments, whole
from zscope.errors import ConfigError
from zscope.randomness import seed_of

__all__ = ["HELIX", "load", "strand"]

FACTORS = (Factor("t", 0, "continuous"), Factor("strand", 2, "categorical"))


def strand(
    t: np.ndarray | float,
    n: np.ndarray | int,
    *,
    amplitude: float | Sequence[float] = 1.0,
    frequency: float = 1.0,
) -> np.ndarray:
    """The noise-free points of strand n at t, of the shape of t and n with a last axis of 3.

    The ground truth for decoded paths and reconstructions.
    """
    t, n = np.broadcast_arrays(np.asarray(t, np.float64), np.asarray(n))
    angle = np.pi * (frequency * t + n)
    points: np.ndarray = np.stack([np.cos(angle), np.sin(angle), t], axis=-1) * np.asarray(
        amplitude
    )
    return points


def amplitudes(value: Any) -> list[float]:
    """A1, A2 and A3, from one number, three, or their text."""
    parts = value.split(",") if isinstance(value, str) else np.ravel(value).tolist()
    try:
        numbers = [float(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) not in (1, 3):
        raise ConfigError(
            f"helix: amplitude={value!r}; expected 1 or 3 numbers, for instance amplitude=1,1,2."
        )
    return numbers * (3 // len(numbers))


def load(
    folder: Path,
    *,
    samples: int = 1024,
    noise: float = 0.1,
    amplitude: float | str | Sequence[float] = 1.0,
    frequency: float = 1.0,
    seed: int = 0,
) -> Dataset:
    """Random points on both strands."""
    samples = whole("helix", "samples", samples, "a number of points", 1024)
    if noise < 0:
        raise ConfigError(
            f"helix: noise={noise}, amplitude={amplitude}; expected a noise of at least 0, and 1 "
            "or 3 amplitudes, for instance amplitude=1,1,2."
        )
    files.check_memory("helix", 150 * samples, f"samples={samples}")
    random = np.random.default_rng(seed_of(seed, 3))
    t, n = random.uniform(-1, 1, samples), random.integers(0, 2, samples)
    x = strand(t, n, amplitude=amplitudes(amplitude), frequency=frequency)
    x = x + noise * random.standard_normal(x.shape)
    return Dataset(
        "helix", x.astype(np.float32), np.stack([t, n], axis=1), **factor_arguments(FACTORS)
    )


HELIX = Source(
    name="helix",
    title="Double helix",
    summary="Points on two intertwined strands in three dimensions, with noise",
    cite="Leeb, Bauer, Schölkopf, Interventional assays, arXiv:2106.16091, sec. 5",
    load=load,
    options={
        "samples": "number of points (1024)",
        "noise": "standard deviation of the noise (0.1)",
        "amplitude": "A, one number or three (1)",
        "frequency": "w, half turns per unit of t (1)",
        "seed": "random seed of points and noise (0)",
    },
    forms={"amplitude": amplitudes},
    samples=1024,
    shape=(3,),
    factors=FACTORS,
)

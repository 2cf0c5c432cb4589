"""Double helix: two intertwined strands in three dimensions.

    x = [A1 cos(pi (w t + n)), A2 sin(pi (w t + n)), A3 t] + noise
    t ~ U(-1, 1),   n = 0 or 1 with equal chance,   noise ~ N(0, s^2 I)

1,024 points with A1 = A2 = A3 = w = 1 and s = 0.1 in Leeb, Bauer, Schölkopf,
"Interventional assays for the latent space of autoencoders" (arXiv:2106.16091, eq. 10).
Factors: t along the strand (continuous), and the strand n (categorical).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zscope import files
from zscope.data.dataset import Dataset
from zscope.data.source import Factor, Source, factor_arguments, whole
from zscope.errors import ConfigError
from zscope.seeds import seed_of

__all__ = ["HELIX", "StrandPaths", "follow_strands", "load", "strand"]

PIECES = 500
"""Of a strand, to measure distances from it: they are too small by 2e-5 at most."""
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


class StrandPaths(NamedTuple):
    """Which strand each point of some paths is on; leading axes are those of the paths."""

    nearest: np.ndarray  # the strand that each point is nearest to, 0 or 1
    changes: np.ndarray  # how often that changes along each path
    distance: np.ndarray  # of each point from the strand that the path should follow

    @property
    def share_changed(self) -> float:
        """The share of the paths that change strand at all."""
        return float((self.changes > 0).mean())

    @property
    def farthest(self) -> np.ndarray:
        """The largest distance of each path from the strand that it should follow."""
        return np.asarray(self.distance.max(-1))


def follow_strands(
    points: Any,
    n: np.ndarray | int | None = None,
    *,
    amplitude: float | str | Sequence[float] = 1.0,
    frequency: float = 1.0,
) -> StrandPaths:
    """Where paths in the space of the data run: points x 3, or paths x points x 3.

    For instance the decoded frames of a `manifold_path` between two codes of one strand. `n` is
    the strand that each path should follow, by default the one that its first point is nearest
    to. Distances are from the noise-free strand with -1 <= t <= 1.
    """
    paths = np.asarray(points, np.float64)
    if paths.ndim < 2 or paths.shape[-1] != 3 or 0 in paths.shape:
        raise ConfigError(
            f"follow_strands: got points of shape {paths.shape}; expected paths of points in three "
            "dimensions: points x 3, or paths x points x 3. Are these codes? Decode them first."
        )
    shape: dict[str, Any] = {"amplitude": amplitudes(amplitude), "frequency": frequency}
    t = np.linspace(-1, 1, 1 + PIECES)
    both = np.stack([_distance(paths, strand(t, number, **shape)) for number in (0, 1)])
    nearest = both.argmin(0)
    expected = nearest[..., 0] if n is None else np.broadcast_to(n, paths.shape[:-2])
    distance = np.where(expected[..., None] == 0, both[0], both[1])
    changes = np.asarray((np.diff(nearest, axis=-1) != 0).sum(-1))
    return StrandPaths(nearest, changes, distance)


def _distance(points: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """The distance of each point from a curve of straight pieces."""
    start, step = curve[:-1], np.diff(curve, axis=0)
    flat = points.reshape(-1, 3)
    least = np.empty(len(flat))
    for first in range(0, len(flat), 1024):
        away = flat[first : first + 1024, None] - start
        share = np.clip((away * step).sum(-1) / (step**2).sum(-1), 0, 1)
        gaps = np.linalg.norm(away - share[..., None] * step, axis=-1)
        least[first : first + 1024] = gaps.min(1)
    return least.reshape(points.shape[:-1])


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

"""A square of two uniform factors, embedded by a rotation or by a random network.

w ~ U[0, 1]^2, 50,000 points (Zietlow, PhD thesis, Tübingen 2022, sec. 3.3.1).

square-linear: x = R (rho w1, w2, 0), with R a rotation by 45 degrees about (1, -1, 1). The
covariance has eigenvalues rho^2/12, 1/12 and 0, and its principal directions are the
factors. At rho = 1 they are degenerate: any two orthogonal directions of the plane are
principal.

square-nonlinear: x = tanh(B tanh(A w + a) + b), a random network from 2 to 10 to 6 with
weights and biases from N(0, 1). A model can recover w only if the directions in which x
changes most and least are those of w1 and w2 and differ clearly in length. So the network
is fixed: its seed is the first for which, with J = dx/dw = U S V^T at 500 uniform points,

    the mean distance of V to the nearest signed permutation is below 0.15,
    s1 / s2 is above 2 at 95 % of the points, and s2 is above 0.1 at all of them

(for random orthogonal V the distance is 0.55; 10 of the first 3,000 seeds pass). Its
weights come from numpy's RandomState, whose numbers never change.

square-wave: x = (2 w1, w2, epsilon sin k (w1 + w2)), a plane with small ripples across both
factors. J^T J = diag(4, 1) + c 1 1^T with c = (epsilon k cos k (w1 + w2))^2, so the principal
directions are turned by arctan(2c / 3) / 2 from the factors, however small epsilon is beside 1:
a change that hardly adds variance (epsilon^2 / 2 of 5/12) turns them by up to 45 degrees. An
illustration, ours, of figure 4.1 of the source.

With `grid`, all three are on a regular grid of grid x grid points, as `dataset_alignment` needs.
"""

import math
from pathlib import Path

import numpy as np

from zscope import files
from zscope.data.dataset import Dataset
from zscope.data.source import Factor, Source, factor_arguments, whole
from zscope.errors import ConfigError
from zscope.seeds import seed_of

__all__ = [
    "LINEAR", "NONLINEAR", "WAVE", "load_linear", "load_nonlinear", "load_wave", "network",
    "rotation", "wave", "wave_jacobian", "weights",
]  # fmt: skip

FACTORS = (Factor("w1", 0, "continuous"), Factor("w2", 0, "continuous"))
SCREENED = 385
SAMPLES = 50_000


def rotation() -> np.ndarray:
    """The rotation by 45 degrees about (1, -1, 1), by Rodrigues' formula."""
    x, y, z = np.array([1.0, -1.0, 1.0]) / math.sqrt(3)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    turn = math.pi / 4
    matrix: np.ndarray = np.eye(3) + math.sin(turn) * cross + (1 - math.cos(turn)) * cross @ cross
    return matrix


def weights(seed: int = SCREENED) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A, a, B and b of the random network."""
    random = np.random.RandomState(seed)
    shapes = ((10, 2), (10,), (6, 10), (6,))
    first, first_bias, second, second_bias = (random.standard_normal(shape) for shape in shapes)
    return first, first_bias, second, second_bias


def network(w: np.ndarray, *, seed: int = SCREENED) -> np.ndarray:
    """The random network: points (samples x 6) from factors (samples x 2)."""
    first, first_bias, second, second_bias = weights(seed)
    x: np.ndarray = np.tanh(np.tanh(w @ first.T + first_bias) @ second.T + second_bias)
    return x


def wave(w: np.ndarray, *, epsilon: float, wave_number: float) -> np.ndarray:
    """The rippled plane: points (samples x 3) from factors (samples x 2)."""
    ripple = epsilon * np.sin(wave_number * w.sum(1))
    return np.stack([2 * w[:, 0], w[:, 1], ripple], axis=1)


def wave_jacobian(w: np.ndarray, *, epsilon: float, wave_number: float) -> np.ndarray:
    """dx/dw of the rippled plane, samples x 3 x 2."""
    slope = epsilon * wave_number * np.cos(wave_number * w.sum(1))
    jacobian = np.zeros((len(w), 3, 2))
    jacobian[:, 0, 0], jacobian[:, 1, 1], jacobian[:, 2] = 2, 1, slope[:, None]
    return jacobian


def load_linear(
    folder: Path,
    *,
    samples: int = SAMPLES,
    rho: float = 2.0,
    seed: int = 0,
    grid: int | None = None,
) -> Dataset:
    """The square, stretched by rho and rotated in three dimensions."""
    if rho <= 0:
        raise ConfigError(f"square-linear: rho={rho}; expected a length above 0, usually 1 to 2.")
    w = _square("square-linear", samples, seed, grid)
    x = w * [rho, 1] @ rotation()[:, :2].T
    return Dataset("square-linear", x.astype(np.float32), w, **factor_arguments(FACTORS))


def load_nonlinear(
    folder: Path,
    *,
    samples: int = SAMPLES,
    network_seed: int = SCREENED,
    seed: int = 0,
    grid: int | None = None,
) -> Dataset:
    """The square, mapped to 6 dimensions by the random network."""
    w = _square("square-nonlinear", samples, seed, grid)
    x = network(w, seed=network_seed)
    return Dataset("square-nonlinear", x.astype(np.float32), w, **factor_arguments(FACTORS))


def load_wave(
    folder: Path,
    *,
    samples: int = SAMPLES,
    epsilon: float = 0.1,
    wave_number: float = 10.0,
    seed: int = 0,
    grid: int | None = None,
) -> Dataset:
    """The square, stretched to length 2, with ripples in the third dimension."""
    if not (math.isfinite(epsilon) and math.isfinite(wave_number)):
        raise ConfigError(
            f"square-wave: epsilon={epsilon}, wave_number={wave_number}; expected finite numbers, "
            "for instance 0.1 and 10."
        )
    w = _square("square-wave", samples, seed, grid)
    x = wave(w, epsilon=epsilon, wave_number=wave_number)
    return Dataset("square-wave", x.astype(np.float32), w, **factor_arguments(FACTORS))


def _square(who: str, samples: int, seed: int, grid: int | None) -> np.ndarray:
    """Factors drawn at random, or on a regular grid from 0 to 1."""
    if grid is not None:
        side = whole(who, "grid", grid, "a number of points a side", 33)
        if samples != SAMPLES:
            raise ConfigError(
                f"{who}: samples={samples} and grid={side}, which has {side**2} points. Leave one "
                "of them out."
            )
        files.check_memory(who, 200 * side**2, f"grid={side}")
        line = np.linspace(0, 1, side)
        return np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    samples = whole(who, "samples", samples, "a number of points", SAMPLES)
    files.check_memory(who, 200 * samples, f"samples={samples}")
    return np.random.default_rng(seed_of(seed, 4)).uniform(size=(samples, 2))


GRID = {"grid": "points a side of a regular grid, in place of random points (none)"}
CITE = "Zietlow, PhD thesis, Tübingen 2022, sec. 3.3.1"
LINEAR = Source(
    name="square-linear",
    title="Square, linear",
    summary="Two uniform factors as a rotated rectangle in 3 dimensions: PCA recovers them",
    cite=CITE,
    load=load_linear,
    options={
        "samples": "number of points (50000)",
        "rho": "length of the first side; at 1 PCA is degenerate (2)",
        "seed": "random seed of the points (0)",
        **GRID,
    },
    samples=SAMPLES,
    shape=(3,),
    factors=FACTORS,
)
NONLINEAR = Source(
    name="square-nonlinear",
    title="Square, nonlinear",
    summary="Two uniform factors through a fixed random network into 6 dimensions",
    cite=CITE,
    load=load_nonlinear,
    options={
        "samples": "number of points (50000)",
        "network_seed": f"random seed of the network's weights ({SCREENED}, chosen as described)",
        "seed": "random seed of the points (0)",
        **GRID,
    },
    samples=SAMPLES,
    shape=(6,),
    factors=FACTORS,
)
WAVE = Source(
    name="square-wave",
    title="Square with ripples",
    summary="Two uniform factors as a plane with small ripples, which turn its local directions",
    cite="Zietlow, PhD thesis, Tübingen 2022, fig. 4.1",
    load=load_wave,
    options={
        "samples": "number of points (50000)",
        "epsilon": "height of the ripples (0.1)",
        "wave_number": "their wave number k, in radians a unit of the factors (10)",
        "seed": "random seed of the points (0)",
        **GRID,
    },
    samples=SAMPLES,
    shape=(3,),
    factors=FACTORS,
)

"""Perturbed datasets: x' = x + change, |x' - x| <= epsilon in every pixel, same factors.

The change is a function of the rows: uniform noise, or a trained modifier of
`zscope.experiments.perturbation`. This module applies it within range and bounds and
writes the result to disk.

Range: values are reflected at 0 and 1, x' - 2 relu(x' - 1) + 2 relu(-x'), which never moves
them further from x. (Zietlow, PhD thesis, Tübingen 2022, section 4.3.1, prints x for x' on
the right-hand side.) Data with values outside 0 to 1 are not reflected.

Bounds: bytes stay bytes and are rounded towards the original, so that the change never
exceeds 255 epsilon levels (epsilon = 0.1: at most 25 of 255). An epsilon below one level would
be rounded to no change, and is refused. float32 stays float32, moved
back by one unit in the last place where rounding exceeded epsilon. After writing, the file
is read again and the largest change is checked.

Controls: uniform noise of the same epsilon (`write_noisy`), and changes of any shape whose
amplitude is chosen so that x' - x has as much variance as that of another change
(`write_scaled`). The variance of the data themselves may rise or fall by more: a change is a
function of the factors, as the data are, so the two are correlated (Var x' = Var x + Var d +
2 Cov(x, d)), and reflection darkens white and lightens black.

The file is an .npz with images, factors, their names and kinds, the names of features, and
the provenance as JSON: `zs.data.load("perturbed.npz")` reads it like any other.
"""

import json
import math
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from zscope import files
from zscope.data.dataset import Dataset
from zscope.data.own import GUESSED, LABELS, load_path
from zscope.data.unpacking import PIECE
from zscope.errors import ConfigError, DataError
from zscope.seeds import seed_of

__all__ = [
    "Change", "ChangeSize", "centred_variance", "change_size", "check_epsilon", "largest_change",
    "noise_of", "perturb_rows", "reflect", "some_rows", "within_unit_range", "write_noisy",
    "write_perturbed", "write_scaled",
]  # fmt: skip

NOISE = 6  # number of this stream of random numbers
LEVEL = 1 / 255  # the smallest change of a byte
FEW = 4_000_000  # numbers in the rows that directions and amplitudes are found from

Change = Callable[[np.ndarray], np.ndarray]
"""Maps row numbers to what is added to their observations, on the scale 0 to 1."""
Progress = Callable[[int, int], None]
"""Called with the number of rows done and of all rows."""


@dataclass(frozen=True)
class ChangeSize:
    """How much a dataset was changed; bytes count as 0 to 1."""

    largest: float  # max |x' - x|
    rms: float  # root mean square of x' - x over all values
    variance: float  # of x' - x about its mean observation, summed over features
    relative_variance: float | None  # the same, in units of the variance of the data
    added_variance: float | None  # variance of x' minus that of x, in the same units; may be < 0
    first_direction: float | None  # share of the first principal direction in that variance
    rows: int  # observations from which the first direction was found

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_epsilon(data: Dataset, epsilon: float) -> None:
    """Refuse a bound that is not above 0, or that rounding to bytes would erase."""
    if not epsilon > 0:
        raise ConfigError(f"perturb: epsilon={epsilon}; expected a change above 0, such as 0.1.")
    if np.dtype(data.images.dtype) == np.uint8 and epsilon < LEVEL:
        raise ConfigError(
            f"perturb: epsilon={epsilon:g}, but {data.name} is stored as bytes, whose smallest "
            f"change is 1/255 = {LEVEL:.6f}: rounding would undo all of it. Use an epsilon of at "
            "least 0.004, or floats: zs.data.from_arrays(images.astype('float32') / 255, factors)"
        )


def reflect(x: Any) -> Any:
    """Reflect values at 0 and 1; for arrays and tensors with values from -1 to 2."""
    return 1 - abs(1 - abs(x))


def within_unit_range(data: Dataset) -> bool:
    """Whether all observations lie from 0 to 1 (bytes always do)."""
    if np.dtype(data.images.dtype) == np.uint8:
        return True
    return all(
        float(part.min()) >= 0 and float(part.max()) <= 1 for _, part in _pieces(data.images)
    )


def perturb_rows(
    original: np.ndarray, change: np.ndarray, epsilon: float, *, fold: bool
) -> np.ndarray:
    """x' in the type of x, at most epsilon away from it; `fold` reflects it at 0 and 1."""
    scale = 255 if original.dtype == np.uint8 else 1
    x = original.astype(np.float64) / scale
    target = x + np.clip(change, -epsilon, epsilon)
    target = reflect(target) if fold else target
    if original.dtype == np.uint8:
        # The factor above 1 keeps rounding of the double from losing a whole level.
        levels = np.trunc((target - x) * 255 * (1 + 1e-12)).astype(np.int64)
        return np.asarray(original + levels, np.uint8)
    rounded: np.ndarray = target.astype(np.float32)
    over = np.abs(rounded.astype(np.float64) - x) > epsilon
    rounded[over] = np.nextafter(rounded[over], original[over])
    return rounded


def write_perturbed(
    path: str | Path,
    data: Dataset,
    change: Change,
    *,
    epsilon: float,
    about: dict[str, Any],
    progress: Progress | None = None,
) -> Dataset:
    """Write the perturbed dataset to an .npz file, check it, and load it.

    A crash at any moment leaves the old file or none.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ConfigError(f"perturb: {path} must end in .npz to be loaded by its path. Rename it.")
    check_epsilon(data, epsilon)
    fold = within_unit_range(data)

    def pieces() -> Iterator[np.ndarray]:
        for rows, part in _pieces(data.images):
            yield perturb_rows(part, change(rows), epsilon, fold=fold)
            if progress is not None:
                progress(int(rows[-1]) + 1, len(data))

    arrays: dict[str, np.ndarray] = {}
    if data.feature_names:
        arrays["feature_names"] = np.array(data.feature_names)
    if data.factors is not None:
        arrays["factors"] = np.asarray(data.factors)
        arrays["factor_names"] = np.array(data.factor_names)
        arrays["factor_kinds"] = np.array(data.factor_kinds)
    provenance: dict[str, Any] = {
        "made_from": data.recipe or data.name,
        "epsilon": epsilon,
        **about,
    }
    if data.factors is not None:
        provenance[LABELS] = {name: list(each) for name, each in data.factor_labels.items()}
        provenance[GUESSED] = list(data.guessed_kinds)
    arrays["provenance"] = np.array(json.dumps(provenance))
    size = math.prod(data.images.shape) * np.dtype(data.images.dtype).itemsize
    files.check_disk("perturb", path.parent, size, path.name)
    files.sweep(path.parent)
    try:
        with files.writing(path) as file:
            _write(file, data, pieces(), arrays)
            file.flush()
            largest = largest_change(data, load_path(Path(file.name)))
            if largest > epsilon:
                raise DataError(
                    f"perturb: a value was changed by {largest:.6g}, more than epsilon={epsilon}. "
                    "This is a fault in zscope: please report it with the dataset and the settings."
                )
    except OSError as error:
        raise DataError(
            f"perturb: {path} could not be written ({error.strerror or error}). "
            f"{files.likely_cause(error)} No partial file is left."
        ) from error
    from zscope.data import load

    return load(str(path))


def write_noisy(
    path: str | Path,
    data: Dataset,
    *,
    epsilon: float,
    seed: int = 0,
    progress: Progress | None = None,
) -> Dataset:
    """The control: uniform noise from -epsilon to epsilon on every value.

    Zietlow 2022, section 4.3.3. The noise of a row depends on the seed and its number only.
    """

    shape = noise_of(data, seed)
    about = {"change": "uniform noise", "seed": seed}
    return write_perturbed(
        path,
        data,
        lambda rows: epsilon * shape(rows),
        epsilon=epsilon,
        about=about,
        progress=progress,
    )


def noise_of(data: Dataset, seed: int) -> Change:
    """Uniform noise from -1 to 1; that of a row depends on the seed and its number only."""

    def noise(rows: np.ndarray) -> np.ndarray:
        draws = [np.random.default_rng(seed_of(seed, int(row), NOISE)) for row in rows]
        return np.stack([draw.uniform(-1, 1, data.shape) for draw in draws])

    return noise


def write_scaled(
    path: str | Path, data: Dataset, shape: Change, like: Dataset, *, about: dict[str, Any]
) -> Dataset:
    """A control: x + a shape, with `a` such that x' - x has as much variance as `like` - x.

    `shape` returns values from -1 to 1. The amplitude `a` may exceed the largest change of
    `like`; it is at most 1 for data from 0 to 1. Variances are compared after reflecting and
    rounding, on some of the rows.
    """
    rows = some_rows(data)
    part, fold = np.asarray(data.images[rows]), within_unit_range(data)
    pattern = shape(rows)
    target = centred_variance(_difference(part, np.asarray(like.images[rows])))

    def variance(amplitude: float) -> float:
        changed = perturb_rows(part, amplitude * pattern, amplitude, fold=fold)
        return centred_variance(_difference(part, changed))

    low, high = 0.0, 1.0
    while not fold and variance(high) < target and high < 1e6:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if variance(middle) < target else (low, middle)
    amplitude = max(high, LEVEL if part.dtype == np.uint8 else 1e-12)
    return write_perturbed(
        path,
        data,
        lambda rows: amplitude * shape(rows),
        epsilon=amplitude,
        about={**about, "amplitude": amplitude},
    )


def change_size(original: Dataset, changed: Dataset) -> ChangeSize:
    """The size of a change and the shape of its spread, over all observations."""
    largest = largest_change(original, changed)
    first = np.asarray(original.images[np.arange(1)]).astype(np.float64)
    sums = {name: np.zeros(original.shape) for name in ("d", "dd", "x", "xx", "xd")}
    scale = 255.0 if np.dtype(original.images.dtype) == np.uint8 else 1.0
    for rows, part in _pieces(original.images):
        d = _difference(part, np.asarray(changed.images[rows]))
        x = (part.astype(np.float64) - first) / scale  # less rounding in the variance below
        for name, values in (("d", d), ("dd", d * d), ("x", x), ("xx", x * x), ("xd", x * d)):
            sums[name] += values.sum(0)
    means = {name: total / len(original) for name, total in sums.items()}
    variance = float((means["dd"] - means["d"] ** 2).clip(min=0).sum())
    of_data = float((means["xx"] - means["x"] ** 2).clip(min=0).sum())
    covariance = float((means["xd"] - means["x"] * means["d"]).sum())
    rows = some_rows(original)
    d = _difference(np.asarray(original.images[rows]), np.asarray(changed.images[rows]))
    spectrum = np.linalg.svd((d - d.mean(0)).reshape(len(rows), -1), compute_uv=False) ** 2
    total = float(spectrum.sum())
    return ChangeSize(
        largest=largest,
        rms=float(np.sqrt(means["dd"].mean())),
        variance=variance,
        relative_variance=variance / of_data if of_data > 0 else None,
        added_variance=(variance + 2 * covariance) / of_data if of_data > 0 else None,
        first_direction=float(spectrum[0]) / total if total > 0 else None,
        rows=len(rows),
    )


def _difference(original: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """x' - x as float64; bytes count as 0 to 1."""
    scale = 255 if original.dtype == np.uint8 else 1
    difference: np.ndarray = (changed.astype(np.float64) - original.astype(np.float64)) / scale
    return difference


def centred_variance(change: np.ndarray) -> float:
    """The variance of a change about its mean observation, summed over features."""
    return float(change.var(0).sum())


def some_rows(data: Dataset) -> np.ndarray:
    """All rows, or as many at random as fit into memory a few times; in ascending order."""
    count = min(len(data), max(2, min(2000, FEW // math.prod(data.shape))))
    chosen = np.random.default_rng(0).choice(len(data), count, replace=False)
    return np.sort(chosen)


def largest_change(original: Dataset, changed: Dataset) -> float:
    """max |x' - x| over all observations; bytes count as 0 to 1."""
    if changed.images.shape != original.images.shape:
        raise DataError(
            f"perturb: cannot compare observations of {changed.images.shape} and "
            f"{original.images.shape}. Give two datasets with the same rows in the same order."
        )
    largest = 0.0
    for rows, part in _pieces(original.images):
        difference = _difference(part, np.asarray(changed.images[rows]))
        largest = max(largest, float(np.abs(difference).max()))
    return largest


def _pieces(images: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row numbers and their observations, some at a time."""
    row = 8 * int(np.prod(images.shape[1:]))  # as doubles
    step = max(1, PIECE // row)
    for start in range(0, len(images), step):
        rows = np.arange(start, min(start + step, len(images)))
        yield rows, np.asarray(images[rows])


def _write(
    file: IO[bytes], data: Dataset, pieces: Iterator[np.ndarray], arrays: dict[str, np.ndarray]
) -> None:
    """Write an uncompressed .npz, which can be memory-mapped, its images piece by piece."""
    header = {
        "descr": np.dtype(data.images.dtype).str,
        "fortran_order": False,
        "shape": tuple(int(n) for n in data.images.shape),
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        with archive.open("images.npy", "w", force_zip64=True) as out:
            np.lib.format.write_array_header_1_0(out, header)
            for piece in pieces:
                out.write(np.ascontiguousarray(piece).data)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                np.lib.format.write_array(out, array, allow_pickle=False)

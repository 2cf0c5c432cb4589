"""Options of any dataset that make a control of it: a background that follows factors, or
factors that no longer belong to the pictures.

background_by   x' = x + b(w) (1 - x): a grey level b behind the picture, which covers it where it
                is white. With w scaled to 0 to 1 and amplitude A, b = A w grows with one factor:
                it is aligned with the factors, since it moves along one of them only. With
                `background_wave` = k and w of mean 0 and standard deviation 1 over the data,

                    b = A (1 + sin k (w_1 + w_2 + …)) / 2

                moves along the sum of the factors and turns the local principal directions away
                from them. The amplitude is `background`, or chosen such that x' - x has the
                `background_variance` about its mean, summed over pixels (from 0 to 1).
shuffled        the rows of the factors in a random order, so that they say nothing about the
                pictures: a classifier can only learn them by heart.

These are controls for changes of a dataset (`zscope.experiments.perturbation`): is a score lower
because directions were turned, or because of any change of this size? Ours.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from zscope.data.columns import comma_separated
from zscope.data.dataset import Dataset, Rows
from zscope.data.rendering import InMemory
from zscope.data.unpacking import LARGE
from zscope.errors import ConfigError, DataError, did_you_mean
from zscope.seeds import seed_of

__all__ = ["FORMS", "OPTIONS", "background_level", "modify"]

SHUFFLE = 10  # number of this stream of random numbers
NEAR = 41  # amplitudes within one level of a byte that are tried
FORMS = {"background_by": comma_separated}
OPTIONS = {
    "background_by": "factors that set a grey level behind the pictures, a,b,c (none)",
    "background": "largest level of that background, 0 to 1",
    "background_variance": "in place of background: the variance of the change, summed over pixels",
    "background_wave": "wave number of a level that is a sine of the sum of the factors (0: none)",
    "shuffled": "random seed, from 1, of an order of the factors that does not fit the data (0)",
}


def modify(
    data: Dataset,
    *,
    background_by: Any = None,
    background: float | None = None,
    background_variance: float | None = None,
    background_wave: float = 0.0,
    shuffled: int = 0,
) -> Dataset:
    """The dataset with a background that follows factors, or with its factors shuffled."""
    names = comma_separated(background_by)
    sizes = {"background": background, "background_variance": background_variance}
    given = {option: size for option, size in sizes.items() if size is not None}
    if names:
        data = _with_background(data, names, given, background_wave)
    elif given or background_wave:
        option, size = next(iter([*given.items(), ("background_wave", background_wave)]))
        raise ConfigError(
            f"{data.name}: {option}={size} has no effect without background_by, the factors that "
            "the level follows. Add for instance background_by=scale."
        )
    return _shuffle(data, shuffled) if shuffled else data


def background_level(data: Dataset, names: list[str], wave: float = 0.0) -> np.ndarray:
    """The level of each row for amplitude 1, from 0 to 1."""
    columns = [_column(data, name) for name in names]
    if wave:
        total = np.sum([(w - w.mean()) / w.std() for w in columns], axis=0)
        return np.asarray((1 + np.sin(wave * total)) / 2)
    return np.asarray(np.mean([(w - w.min()) / np.ptp(w) for w in columns], axis=0))


class WithBackground:
    """Pictures of bytes on a grey level that differs from row to row."""

    def __init__(self, rows: Rows, level: np.ndarray) -> None:
        self._rows, self._level = rows, level

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._rows.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> np.ndarray:
        return blend(np.asarray(self._rows[rows]), self._level[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


def blend(pictures: np.ndarray, level: np.ndarray) -> np.ndarray:
    """x + level (1 - x) in bytes, rounded to the nearest."""
    x = pictures.astype(np.float32)
    x += np.asarray(level, np.float32)[..., None, None, None] * (255 - x)
    return np.rint(x).astype(np.uint8)


def _with_background(
    data: Dataset, names: list[str], given: Mapping[str, float], wave: float
) -> Dataset:
    if len(data.shape) != 3 or np.dtype(data.images.dtype) != np.uint8:
        raise DataError(
            f"{data.name}: background_by needs pictures of bytes; these are observations of shape "
            f"{data.shape} and type {data.images.dtype}. Use a dataset of pictures, or add the "
            "level to your array."
        )
    if len(given) != 1:
        raise ConfigError(
            f"{data.name}: background_by={','.join(names)} with "
            f"{' and '.join(given) or 'no size'}; expected one of background (the largest level, "
            "such as 0.1) and background_variance."
        )
    level = background_level(data, names, wave)
    if "background" in given:
        amplitude, reached = float(given["background"]), None
        if not 0 < amplitude <= 1:
            raise ConfigError(
                f"{data.name}: background={amplitude:g}; expected a level above 0, at most 1, for "
                "instance 0.1."
            )
    else:
        amplitude, reached = _amplitude(data, level, float(given["background_variance"]))
    images: Rows = WithBackground(data.images, amplitude * level)
    if math.prod(images.shape) <= LARGE:
        images = InMemory(images)
    facts = {"by": names, "wave": wave, "amplitude": amplitude, "variance": reached}
    return replace(data, images=images, provenance={**data.provenance, "background": facts})


def _amplitude(data: Dataset, level: np.ndarray, variance: float) -> tuple[float, float]:
    """The amplitude for a variance of the change, and the variance after rounding to bytes.

    The variance is the amplitude squared times that of level (1 - x); amplitudes close to this are
    tried too, because a flat level of few values is rounded everywhere alike.
    """
    from zscope.data.perturbed import centred_variance, some_rows

    rows = some_rows(data)
    pictures = np.asarray(data.images[rows])
    x = pictures / 255
    of_one = centred_variance(level[rows][:, None, None, None] * (1 - x))
    amplitude = math.sqrt(variance / of_one) if variance > 0 and of_one > 0 else math.nan
    if not amplitude <= 1:
        raise ConfigError(
            f"{data.name}: background_variance={variance:g}; expected a number above 0 and at most "
            f"{of_one:.4g}, the variance of a background that is white at its lightest. The "
            "variance is summed over pixels, for values from 0 to 1."
        )
    tried = np.clip(amplitude + np.linspace(-1, 1, NEAR) / 255, 1e-6, 1)
    reached = [centred_variance(blend(pictures, a * level[rows]) / 255 - x) for a in tried]
    best = int(np.argmin(np.abs(np.array(reached) - variance)))
    return float(tried[best]), reached[best]


def _column(data: Dataset, name: str) -> np.ndarray:
    """The values of a factor that has an order and varies."""
    if data.factors is None or name not in data.factor_names:
        raise ConfigError(
            f"{data.name}: background_by={name!r} is no factor. "
            + (did_you_mean(name, data.factor_names) if data.factor_names else "It has none.")
        )
    place = data.factor_names.index(name)
    values: np.ndarray = data.factors[:, place].astype(np.float64)
    if data.factor_kinds[place] == "categorical" or np.ptp(values) == 0:
        reason = "the same in all rows" if np.ptp(values) == 0 else "categorical, without an order"
        raise ConfigError(
            f"{data.name}: background_by={name!r} is {reason}, so no level can follow it. Choose "
            "another factor."
        )
    return values


def _shuffle(data: Dataset, seed: int) -> Dataset:
    if data.factors is None:
        raise ConfigError(
            f"{data.name}: shuffled={seed}, but there are no factors to shuffle. Leave it out."
        )
    order = np.random.default_rng(seed_of(seed, SHUFFLE)).permutation(len(data))
    provenance = {**data.provenance, "shuffled": seed}
    return replace(data, factors=data.factors[order], provenance=provenance)

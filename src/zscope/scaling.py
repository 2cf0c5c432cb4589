"""Scaling: the units in which a model sees the features of vectors.

    seen = (x - mean) / scale

Features of a table come in their own units (age in years, a dose of 0.01 to 0.1), and a loss
that sums squared errors is about the one with the largest numbers alone. So a model is trained
on features of mean 0 and standard deviation 1, measured on its training data. Features that
are constant there are only shifted. Those of a category (0 or 1) stay as they are: together
they vary by less than 1, whereas a rare value in units of its own standard deviation would
outweigh everything else.

A trained model carries its scaling (`model.scaling`), a run stores it, and `zs.record` applies
it to all data, which are given in their original units. `restore` turns what the model decodes
back into these.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zscope.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

__all__ = ["Scaling", "feature_name"]

PIECE = 2**22  # numbers to read at a time
CONSTANT = 1e-7  # a smaller standard deviation, relative to the mean, is rounding


def feature_name(column: str, value: str) -> str:
    """The name of the feature that is 1 where a category has this value."""
    return f"{column}={value}"


@dataclass(frozen=True)
class Scaling:
    """Mean and scale of each feature, with their names and categories where there are any."""

    mean: Sequence[float]
    scale: Sequence[float]
    names: Sequence[str] = ()
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("mean", "scale", "names"):  # lists, where they are read from JSON
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def of(
        cls, rows: Any, names: Sequence[str] = (), categories: Mapping[str, Sequence[str]] = {}
    ) -> "Scaling":
        """The scaling that standardises these rows (samples x features)."""
        import numpy as np

        count = len(rows)
        mean, variance = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        for part in _pieces(rows):
            mean += part.sum(0) / count
        for part in _pieces(rows):
            variance += np.square(part - mean).sum(0) / count
        spread = np.sqrt(variance)
        scale = np.where(spread > CONSTANT * np.abs(mean), spread, 1.0)
        hot = {feature_name(column, value) for column in categories for value in categories[column]}
        for k, name in enumerate(names):
            if name in hot:
                mean[k], scale[k] = 0.0, 1.0
        return cls(mean.tolist(), scale.tolist(), names, dict(categories))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; `Scaling(**values)` is the same again."""
        return {
            "mean": list(self.mean),
            "scale": list(self.scale),
            "names": list(self.names),
            "categories": {name: list(values) for name, values in self.categories.items()},
        }

    def __len__(self) -> int:
        return len(self.mean)

    def apply(self, rows: "np.ndarray") -> "np.ndarray":
        """Rows of features in original units, as the model sees them."""
        import numpy as np

        mean, scale = self._arrays
        with np.errstate(over="ignore"):
            seen: np.ndarray = (rows - mean) / scale
        if not np.isfinite(seen).all():
            raise DataError(
                f"scaling: features of up to {np.abs(rows).max():.3g} cannot be expressed in the "
                "units of training. Are these the same features, in the same units?"
            )
        return seen

    def restore(self, x: "Tensor") -> "Tensor":
        """What the model sees or decodes (... x features), in original units."""
        import torch

        mean, scale = (torch.from_numpy(part).to(x) for part in self._arrays)
        return x * scale + mean

    def columns_in(
        self, names: Sequence[str], categories: Mapping[str, Sequence[str]]
    ) -> list[int]:
        """For each feature its place among others by name, -1 for a value that does not occur.

        Raises DataError if a feature is missing, or a category has a value it did not have.
        """
        for column, values in self.categories.items():
            new = sorted(set(categories.get(column, ())) - set(values))
            if new:
                raise DataError(
                    f"scaling: the category {column!r} has the value {new[0]!r}, but the model was "
                    f"trained with {', '.join(values)}. Leave those rows out, or train again."
                )
        absent = {
            feature_name(column, value)
            for column in categories
            for value in self.categories.get(column, ())
        }
        at = {name: k for k, name in enumerate(names)}
        missing = [name for name in self.names if name not in at and name not in absent]
        if missing:
            raise DataError(
                f"scaling: {len(missing)} of the {len(self)} features that the model was trained "
                f"on are missing, the first is {missing[0]!r}; the data have "
                f"{', '.join(names[:8])}{', …' if len(names) > 8 else ''}. Are the columns named "
                "as in training?"
            )
        return [at.get(name, -1) for name in self.names]

    @cached_property
    def _arrays(self) -> "tuple[np.ndarray, np.ndarray]":
        import numpy as np

        return np.array(self.mean, np.float32), np.array(self.scale, np.float32)


def _pieces(rows: Any) -> "Iterator[np.ndarray]":
    import numpy as np

    step = max(1, PIECE // rows.shape[1])
    for start in range(0, rows.shape[0], step):
        yield np.asarray(rows[start : start + step], np.float64)

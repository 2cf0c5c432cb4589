"""What a report keeps of single observations, so that two models can be compared row by row."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from zscope.assays.halves import FEWEST, Interval, half_width, halves
from zscope.recording import Recording

__all__ = ["RowErrors", "Traces", "traces_of"]

SOME = 64
"""Observations that tell whether two models have seen the same."""
KEY = "row errors"


@dataclass(frozen=True, eq=False)
class RowErrors:
    """How well some observations are reconstructed, one by one, and a few of them to look at."""

    errors: np.ndarray  # |x - decoded|^2 of each
    spreads: np.ndarray  # |x - mean|^2 of each
    originals: Tensor
    decoded: Tensor

    @classmethod
    def of(cls, observations: Tensor, decoded: Tensor, few: int = 8) -> "RowErrors":
        """From observations and what is decoded of them; a few are kept, evenly spaced."""
        x, made = observations.double(), decoded.double()
        rows = np.linspace(0, len(x) - 1, min(few, len(x))).round().astype(int)
        squares = row_squares(x - made), row_squares(x - x.mean(0))
        return cls(*squares, observations[rows], decoded[rows])

    @property
    def explained(self) -> float | None:
        """The explained variance, 1 - |x - decoded|^2 / |x - mean|^2."""
        total, lost = float(self.spreads.sum()), float(self.errors.sum())
        return 1 - lost / total if total > 0 and np.isfinite(lost) else None

    @property
    def interval(self) -> Interval | None:
        """Its 95 % interval over observations; None of too few."""
        value, parts = self.explained, self.on_halves()
        if value is None or not parts:
            return None
        width = half_width(parts, len(self.errors))
        return value - width, min(1.0, value + width)

    def on_halves(self) -> list[float]:
        """The explained variance of halves of the observations; of the same ones in every model."""
        count = len(self.errors)
        if count < FEWEST or self.explained is None:
            return []
        parts = [(self.errors[half].sum(), self.spreads[half].sum()) for half in halves(count)]
        return [float(1 - lost / total) for lost, total in parts if total > 0]

    def keep(self, recording: Recording) -> None:
        """Keep them with the recording that they are of."""
        recording.shared[KEY] = self


@dataclass(frozen=True, eq=False)
class Traces:
    """The rows that a report is about."""

    rows: Tensor | None
    codes: Tensor
    factors: np.ndarray | None
    some: np.ndarray | None  # the first observations, in original units
    row_errors: RowErrors | None

    @property
    def explained_interval(self) -> Interval | None:
        return None if self.row_errors is None else self.row_errors.interval

    def differs_from(self, other: "Traces") -> str:
        """What shows that the rows of another report are not the same; "" if nothing does."""
        if len(self.codes) != len(other.codes):
            return f"{len(self.codes):,} and {len(other.codes):,} rows"
        if self.rows is not None and other.rows is not None and not self.rows.equal(other.rows):
            return "other rows of the data"
        if self.factors is None or other.factors is None:
            if self.factors is not other.factors:
                return "factors in one of them only"
        elif not np.array_equal(self.factors, other.factors):
            return "other values of the factors"
        return _difference(self.some, other.some)


def _difference(one: np.ndarray | None, other: np.ndarray | None) -> str:
    """What is different about the first observations; codes alone have none."""
    if one is None or other is None:
        return ""
    if one.shape != other.shape:
        shapes = (" x ".join(map(str, each.shape[1:])) for each in (one, other))
        return f"observations of shape {' and '.join(shapes)}"
    scale = float(np.abs(one).max()) or 1.0
    return "" if np.allclose(one, other, rtol=1e-3, atol=1e-3 * scale) else "other observations"


def row_squares(values: Tensor) -> np.ndarray:
    """The sum of squares of each row."""
    squares: np.ndarray = values.flatten(1).square().sum(1).numpy()
    return squares


def traces_of(recording: Recording) -> Traces:
    """The traces of a recording, with its reconstructions if there are any by now."""
    some = None
    if recording.dataset is not None:
        few = recording.dataset.batch(slice(0, SOME)).double()
        some = recording.dataset.original(few.flatten(1)).numpy().reshape(few.shape)
    factors = None if recording.factors is None else np.asarray(recording.factors.values)
    codes = recording.codes
    kept = recording.shared.get(KEY)
    return Traces(recording.rows, codes, factors, some, kept)

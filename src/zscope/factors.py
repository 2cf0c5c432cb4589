"""Known factors of variation: one row per sample, one column per factor, with names and kinds.

A factor is `categorical` (values without order), `ordinal` (ordered, discrete) or
`continuous`. Scores treat the three differently, so the kind is passed along with the values: from
the dataset to the recording to the score. Where nobody stated it, it is guessed and marked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from zscope.errors import ConfigError, DataError, did_you_mean

__all__ = ["KINDS", "Factors", "Kind", "factors_of", "guess_kind", "kinds_of"]

Kind = Literal["categorical", "ordinal", "continuous"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FEW_VALUES = 64


@dataclass(frozen=True, eq=False)
class Factors:
    """Values (samples x factors) with the names and kinds of the columns.

    It can be used wherever an array is expected: `np.asarray(factors)` gives the values.
    """

    values: np.ndarray
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    guessed: tuple[str, ...] = ()  # names of the factors whose kind was guessed
    labels: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # names of values, by factor

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        columns = zip(self.names, self.kinds, strict=True)
        named = ", ".join(
            f"{name} ({kind}{', guessed' if name in self.guessed else ''})"
            for name, kind in columns
        )
        return f"Factors({len(self)} samples: {named})"

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def rows(self, index: Any) -> "Factors":
        """The same factors for some of the samples."""
        return Factors(self.values[index], self.names, self.kinds, self.guessed, self.labels)


def factors_of(
    values: Any,
    *,
    kinds: str | Sequence[str | None] | None = None,
    names: Sequence[str] | None = None,
    labels: Mapping[str, Sequence[Any]] | None = None,
    who: str = "factors",
) -> Factors:
    """Factors of an array or data frame (samples x factors); kinds not stated are guessed."""
    if isinstance(values, Factors):
        if kinds is None:
            return values
        names, labels, values = values.names, values.labels, values.values
    if names is None:
        names = [name for name in getattr(values, "columns", ()) if isinstance(name, str)]
    table = _numbers(values, who)
    count = table.shape[1]
    columns = tuple(map(str, names)) or tuple(f"factor{k}" for k in range(count))
    if len(columns) != count or len(set(columns)) != count:
        raise ConfigError(
            f"{who}: {len(columns)} names ({', '.join(columns)}) for {count} factors. Give one "
            "name for each factor, all different."
        )
    stated = kinds_of(kinds, count, who)
    resolved = tuple(kind or guess_kind(table[:, k]) for k, kind in enumerate(stated))
    guessed = tuple(name for name, kind in zip(columns, stated, strict=True) if kind is None)
    return Factors(table, columns, resolved, guessed, labels or {})


def _numbers(values: Any, who: str) -> np.ndarray:
    """Samples x factors, finite numbers; words have to be numbered by the caller."""
    if hasattr(values, "detach"):  # a tensor, perhaps with gradients or in bfloat16
        plain = values.detach().cpu()
        values = (plain.float() if plain.is_floating_point() else plain).numpy()
    try:
        table = np.asarray(values)
        table = table[:, None] if table.ndim == 1 else table
        fit = table.ndim == 2 and 0 not in table.shape and table.dtype.kind in "biuf"
    except ValueError:
        table, fit = np.zeros((0, 0)), False
    if not fit:
        raise DataError(
            f"{who}: factors of shape {table.shape} and type {table.dtype}; expected one row of "
            "numbers for each sample. Number words: np.unique(words, return_inverse=True)[1]"
        )
    finite = np.isfinite(table).all(1)
    if not finite.all():
        raise DataError(
            f"{who}: {int((~finite).sum())} of {len(table)} rows of factors hold NaN or infinite "
            f"numbers, the first is row {int(np.flatnonzero(~finite)[0])}. Leave those rows out."
        )
    return table


def kinds_of(
    kinds: str | Sequence[str | None] | None, count: int, who: str
) -> tuple[Kind | None, ...]:
    """The stated kind of each factor, one for all or one for each; None where none is stated."""
    stated = [kinds] * count if kinds is None or isinstance(kinds, str) else list(kinds)
    known: dict[str | None, Kind | None] = {None: None, **{kind: kind for kind in KINDS}}
    unknown = [kind for kind in stated if kind not in known]
    if unknown:
        raise ConfigError(
            f"{who}: kinds={kinds!r}: {unknown[0]!r} is not a kind of factor. "
            f"{did_you_mean(str(unknown[0]), KINDS)}"
        )
    if len(stated) != count:
        raise ConfigError(
            f"{who}: kinds={kinds!r} does not describe {count} factors. Give one of "
            f"{', '.join(KINDS)} for all, or a list with one for each factor."
        )
    return tuple(known[kind] for kind in stated)


def guess_kind(values: np.ndarray) -> Kind:
    """The kind that a column of numbers looks like.

    Whole numbers are categorical with at most 64 different values, ordinal with more. Other
    numbers are ordinal when at most 64 values occur ten times each on average, and
    continuous otherwise.
    """
    low, high = values.min(), values.max()
    whole = bool((values == np.round(values)).all())
    if whole and high - low <= 4 * len(values):  # counting is faster than sorting
        different = int((np.bincount((values - low).astype(np.int64)) > 0).sum())
    else:
        different = len(np.unique(values))
    if whole:
        return "categorical" if different <= FEW_VALUES else "ordinal"
    often = different <= FEW_VALUES and len(values) >= 10 * different
    return "ordinal" if often else "continuous"

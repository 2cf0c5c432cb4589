"""Known factors of variation: one row per sample, one column per factor, with names and kinds.

A factor is `categorical` (values without order), `ordinal` (ordered, discrete) or
`continuous`. Scores treat the three differently, so the kind is passed along with the values: from
the dataset to the recording to the score. Where nobody stated it, it is guessed and marked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from zscope.errors import ConfigError, DataError, did_you_mean

__all__ = [
    "KINDS", "Factors", "Kind", "Kinds", "complete_kinds", "factors_of",
    "guess_kind", "kinds_of", "read_kinds",
]  # fmt: skip

Kind = Literal["categorical", "ordinal", "continuous"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Kinds = str | Sequence[str | None] | Mapping[str, str | None] | None
"""How a user states kinds; see `kinds_of`."""
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

    def rows_with(self, chosen: Mapping[str, Sequence[Any]]) -> np.ndarray:
        """A mask of the samples in which some factor has one of the chosen values."""
        masks = [np.isin(self.values[:, self.names.index(name)], chosen[name]) for name in chosen]
        mask: np.ndarray = np.logical_or.reduce(masks)
        return mask

    def choose(self, given: Mapping[str, Any], who: str = "factors") -> dict[str, list[Any]]:
        """The values that are meant, by factor and in ascending order.

        One value or a list of them for each factor: the name of a category or a number.
        """
        if not isinstance(given, Mapping) or not given:
            raise DataError(
                f"{who}: {given!r:.60} for values of factors; expected them by name, for instance "
                "{'shape': ['sphere']}."
            )
        return {name: self._choose(name, values, who) for name, values in given.items()}

    def _choose(self, name: str, given: Any, who: str) -> list[Any]:
        if name not in self.names:
            raise DataError(
                f"{who}: there is no factor {name!r}. {did_you_mean(str(name), self.names)}"
            )
        place = self.names.index(name)
        if self.kinds[place] == "continuous":
            raise DataError(
                f"{who}: the factor {name} is continuous, so that hardly two samples have the "
                "same value. Choose values of a categorical or ordinal factor."
            )
        labels = [str(label) for label in self.labels.get(name, ())]
        known = [value.item() for value in np.unique(self.values[:, place])]
        chosen = set()
        for value in given if isinstance(given, list | tuple | np.ndarray) else [given]:
            number = labels.index(value) if value in labels else value
            if number not in known:
                words = labels or [f"{each:g}" for each in known]
                raise DataError(
                    f"{who}: no sample has {name}={value!r}. {did_you_mean(str(value), words)}"
                )
            chosen.add(int(number) if number == int(number) else number)
        return sorted(chosen)


def factors_of(
    values: Any,
    *,
    kinds: Kinds = None,
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
    table = table.astype(np.uint8) if table.dtype == bool else table
    count = table.shape[1]
    if not isinstance(names, Iterable):
        raise ConfigError(f"{who}: names={names!r}; expected one name for each factor.")
    columns = tuple(map(str, names)) or tuple(f"factor{k}" for k in range(count))
    if len(columns) != count or len(set(columns)) != count:
        raise ConfigError(
            f"{who}: {len(columns)} names ({', '.join(columns)}) for {count} factors. Give one "
            "name for each factor, all different."
        )
    stated = kinds_of(kinds, columns, who)
    guessed = tuple(name for name, kind in zip(columns, stated, strict=True) if kind is None)
    return Factors(table, columns, complete_kinds(stated, table), guessed, labels or {})


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


def kinds_of(kinds: Kinds, names: Sequence[str], who: str) -> tuple[Kind | None, ...]:
    """The stated kind of each factor, None where none is stated.

    Kinds are stated by one word for all factors, one for each in order, or some by name, as a
    mapping or as words (dose=continuous); words may be separated by commas.
    """
    if kinds is None:
        return (None,) * len(names)
    stated = read_kinds(kinds, who)
    if isinstance(stated, str):
        stated = dict.fromkeys(names, stated)
    elif isinstance(stated, list):
        if len(stated) != len(names):
            raise ConfigError(
                f"{who}: {len(stated)} kinds for {len(names)} factors ({', '.join(names)}). Give "
                "one for each, or name them: dose=continuous."
            )
        stated = dict(zip(names, stated, strict=True))
    for name, kind in stated.items():
        if name not in names:
            raise ConfigError(f"{who}: kinds names {name!r}. {did_you_mean(name, names)}")
        if kind is not None and kind not in KINDS:
            raise ConfigError(
                f"{who}: the kind of {name} is {kind!r}. {did_you_mean(str(kind), KINDS)}"
            )
    return tuple(stated.get(name) for name in names)


def read_kinds(kinds: Kinds, who: str = "factors") -> Any:
    """What `kinds` means, however it was written: one word, a list in order, or by name."""
    if kinds is None or isinstance(kinds, Mapping):
        return kinds if kinds is None else dict(kinds)
    words = kinds.split(",") if isinstance(kinds, str) else kinds
    if not isinstance(words, Iterable):
        raise ConfigError(
            f"{who}: kinds={kinds!r}; expected a word for each factor: {', '.join(KINDS)}."
        )
    listed = [word.strip() if isinstance(word, str) else word for word in words]
    if any("=" in str(word) for word in listed):
        return dict(str(word).partition("=")[::2] for word in listed)
    return listed[0] if isinstance(kinds, str) and len(listed) == 1 else listed


def complete_kinds(stated: Sequence[Kind | None], values: np.ndarray) -> tuple[Kind, ...]:
    """The kind of each column: as stated, else guessed."""
    return tuple(kind or guess_kind(values[:, k]) for k, kind in enumerate(stated))


def guess_kind(values: np.ndarray) -> Kind:
    """The kind that a column of numbers looks like.

    Whole numbers are categorical with at most 64 different values, ordinal with more. Other
    numbers are ordinal when at most 64 values occur ten times each on average, and
    continuous otherwise.
    """
    low, high = values.min(), values.max()
    whole = bool((values == np.round(values)).all())
    exact = values.dtype.kind in "biu"
    span = int(high) - int(low) if exact else high - low
    if whole and span <= 4 * len(values):  # counting is faster than sorting
        # Differences of small types (int8) would wrap around; those of uint64 never do.
        large = values if values.dtype.kind in "fu" else values.astype(np.int64)
        different = int((np.bincount((large - large.min()).astype(np.int64)) > 0).sum())
    else:
        different = len(np.unique(values))
    if whole:
        return "categorical" if different <= FEW_VALUES else "ordinal"
    often = different <= FEW_VALUES and len(values) >= 10 * different
    return "ordinal" if often else "continuous"

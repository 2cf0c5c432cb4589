"""Dataset: observations and, where known, the factors that generated them.

`images` holds either pictures, samples x channels x height x width, as uint8 (0 to 255)
or float32, or plain rows, samples x features, as float32; also video, samples x channels x
time x height x width, like pictures, and sound, samples x channels x time, like rows. Anything
that has `shape`, `dtype`, `len()` and can be indexed by a slice or an array of rows will do: an
array, a memory map, or pictures rendered on demand. Large data are never converted to floats all
at once: `batch` converts only the requested rows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, runtime_checkable

import numpy as np

from zscope.errors import ConfigError, DataError, did_you_mean
from zscope.factors import KINDS, Factors, Kind, complete_kinds
from zscope.results import html_table, is_tensor, text_table
from zscope.scaling import Scaling
from zscope.seeds import seed_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "Dataset", "Kind", "Rows", "SelectedRows", "as_dataset", "from_arrays",
    "grid_factors",
]  # fmt: skip

MOST_ROWS = 12  # factors in a printed dataset


@runtime_checkable
class Rows(Protocol):
    """Observations that can be read by row without loading the rest."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Dataset:
    """Observations with their factors.

    `factors` is samples x factors (integers for categorical and ordinal factors, real
    numbers if any is continuous) or None. `factor_sizes` counts the values of each factor,
    0 for a continuous one. Kinds that are not stated are guessed, and `guessed_kinds` names
    those factors; `factor_labels` says what the values 0, 1, … of a factor stand for.
    `factors_with_kinds` has all of it. `feature_names` names the features of rows, where they have
    names; `categories` lists the values of each column of a table that became several of them.
    `paths` are the files of the observations, where each has its own.
    `recipe` holds the arguments with which `zs.data.load` makes the dataset again.

    `images` are in their original units. With `standardise`, a model that is trained on these
    rows sees features of mean 0 and standard deviation 1. With a `scaling`, `batch` returns
    what such a model sees.
    """

    name: str
    images: Rows
    factors: np.ndarray | None = None
    factor_names: tuple[str, ...] = ()
    factor_sizes: tuple[int, ...] = ()
    factor_kinds: tuple[Kind, ...] = ()
    feature_names: tuple[str, ...] = ()
    recipe: dict[str, Any] | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    factor_labels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    guessed_kinds: tuple[str, ...] = ()
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    standardise: bool = False
    scaling: Scaling | None = None
    paths: np.ndarray | None = None  # of texts

    def __post_init__(self) -> None:
        shape, dtype = tuple(self.images.shape), np.dtype(self.images.dtype)
        known = dtype in (np.dtype(np.uint8), np.dtype(np.float32))
        if len(shape) not in (2, 3, 4, 5) or not known:
            raise DataError(
                f"{self.name}: observations of shape {shape} and type {dtype}; expected pictures "
                "(samples, channels, height, width), rows (samples, features), sound (samples, "
                "channels, time) or video (samples, channels, time, height, width), as uint8 or "
                "float32. Convert them, or read them with zs.data.load('file.npy')."
            )
        if 0 in shape:
            raise DataError(
                f"{self.name}: {shape[0]} samples of shape {shape[1:]}. The file or the selection "
                "is empty, so there is nothing to train on or to encode. Select at least one row "
                "and one column."
            )
        if len(shape) <= 3 and dtype != np.dtype(np.float32):
            kind = "rows" if len(shape) == 2 else "sound"
            raise DataError(
                f"{self.name}: {kind} of type {dtype}; expected float32. Convert them with "
                ".astype('float32'), scaled as the model expects."
            )
        self._check_features(shape)
        if self.factors is None:
            if self.factor_names:
                raise DataError(
                    f"{self.name}: {len(self.factor_names)} factor names but no factors. "
                    "Give the values too, or leave the names out."
                )
            return
        values = np.asarray(self.factors)
        if values.ndim != 2 or len(values) != shape[0]:
            raise DataError(
                f"{self.name}: factors of shape {values.shape} for {shape[0]} samples; expected "
                f"one row for each sample, ({shape[0]}, number of factors)."
            )
        if not np.issubdtype(values.dtype, np.number) or not np.isfinite(values).all():
            raise DataError(
                f"{self.name}: factors must be finite numbers, got type {values.dtype}"
                f"{' with NaN or infinite entries' if values.dtype.kind == 'f' else ''}. Number "
                "the categories 0, 1, 2, … and leave out rows with missing values."
            )
        names = self.factor_names or tuple(f"factor{k}" for k in range(values.shape[1]))
        kinds = self.factor_kinds or complete_kinds((None,) * values.shape[1], values)
        guessed = self.guessed_kinds if self.factor_kinds else names
        sizes = self.factor_sizes or tuple(
            0 if kind == "continuous" else len(np.unique(column))
            for column, kind in zip(values.T, kinds, strict=False)
        )
        if not len(names) == len(kinds) == len(sizes) == values.shape[1]:
            raise DataError(
                f"{self.name}: {values.shape[1]} factors, but {len(names)} names, {len(sizes)} "
                f"sizes and {len(kinds)} kinds. Give one of each for every factor."
            )
        self._check_unique("factors", names)
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown:
            raise DataError(
                f"{self.name}: {unknown[0]!r} is not a kind of factor. "
                f"{did_you_mean(str(unknown[0]), KINDS)}"
            )
        for field_name, value in (
            ("factors", values),
            ("factor_names", tuple(names)),
            ("factor_kinds", tuple(kinds)),
            ("factor_sizes", tuple(int(size) for size in sizes)),
            ("guessed_kinds", tuple(guessed)),
        ):
            object.__setattr__(self, field_name, value)

    def _check_features(self, shape: tuple[int, ...]) -> None:
        object.__setattr__(self, "feature_names", tuple(self.feature_names))
        if self.feature_names and len(self.feature_names) != (shape[1] if len(shape) == 2 else 0):
            raise DataError(
                f"{self.name}: {len(self.feature_names)} feature names for observations of shape "
                f"{shape[1:]}. Give one for each feature of a row, or none; pictures have none."
            )
        self._check_unique("features", self.feature_names)
        if self.standardise and len(shape) != 2:
            raise DataError(
                f"{self.name}: standardise is for vectors, but the observations are pictures of "
                f"shape {shape[1:]}, whose pixels have one unit. Leave it out."
            )
        if self.scaling is not None and (len(self.scaling),) != shape[1:]:
            raise DataError(
                f"{self.name}: observations of shape {shape[1:]}, but the scaling is for "
                f"{len(self.scaling)} features. Are these the features that the model was trained "
                "on?"
            )

    def _check_unique(self, what: str, names: Sequence[str]) -> None:
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise DataError(
                f"{self.name}: {len(names)} {what}, several of them called {twice[0]!r}. Results "
                "are listed by name, so one would hide the other. Give each its own name."
            )

    def __len__(self) -> int:
        return int(self.images.shape[0])

    def __repr__(self) -> str:
        return "\n".join(filter(None, [self._title(), text_table(self._factor_table(), left=2)]))

    def _repr_html_(self) -> str:
        table = html_table(self._factor_table(), left=2)
        return f"<div><strong>{escape(self._title())}</strong>{table}</div>"

    def _title(self) -> str:
        shape = " x ".join(map(str, self.shape))
        factors = "" if self.factor_names else ", no factors"
        return f"Dataset {self.name}: {len(self):,} observations of {shape}{factors}"

    def _factor_table(self) -> list[list[str]]:
        rows = [
            [name, kind, str(size or "")]
            for name, kind, size in zip(
                self.factor_names, self.factor_kinds, self.factor_sizes, strict=True
            )
        ]
        more = [[f"… {len(rows) - MOST_ROWS} more", "", ""]] if len(rows) > MOST_ROWS else []
        return [["factor", "kind", "values"], *rows[:MOST_ROWS], *more] if rows else []

    @property
    def factors_with_kinds(self) -> Factors | None:
        """The factors with their names, kinds and labels, and which kinds were guessed."""
        if self.factors is None:
            return None
        return Factors(
            self.factors,
            self.factor_names,
            self.factor_kinds,
            self.guessed_kinds,
            self.factor_labels,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return tuple(int(n) for n in self.images.shape[1:])

    def batch(
        self, rows: Sequence[int] | np.ndarray | slice, device: "torch.device | str" = "cpu"
    ) -> "Tensor":
        """Some observations as float32 on `device`; bytes are scaled to 0 to 1.

        Bytes are converted on the device, so that less is copied. Pictures of bytes get the
        channels-last memory format, the fastest for convolutions. Rows with a `scaling` are
        those that the model sees; `original` turns them back.
        """
        import torch

        part = np.ascontiguousarray(self.images[rows])
        if self.scaling is not None:
            part = self.scaling.apply(part)
        if not part.flags.writeable:
            part = part.copy()
        x = torch.from_numpy(part).to(device)
        if x.dtype == torch.uint8:
            layout = torch.channels_last if x.ndim == 4 else torch.preserve_format
            return x.to(torch.float32, memory_format=layout).mul_(1 / 255)
        return x

    def original(self, x: "Tensor") -> "Tensor":
        """Observations in their original units, from what `batch` returns or a model decodes."""
        return x if self.scaling is None else self.scaling.restore(x)

    def in_units(self, scaling: Scaling | None) -> "Dataset":
        """The same observations in the units of a model (`model.scaling`).

        Features with names are found by name: others are left out, and a value of a category
        that does not occur is 0 in every row.
        """
        if scaling is None or not (scaling.names and self.feature_names):
            return replace(self, scaling=scaling)
        if scaling.names == self.feature_names:
            return replace(self, scaling=scaling, categories=scaling.categories)
        columns = scaling.columns_in(self.feature_names, self.categories)
        return replace(
            self,
            images=SelectedColumns(self.images, np.array(columns)),
            feature_names=tuple(scaling.names),
            categories=scaling.categories,
            scaling=scaling,
        )

    def units_for_training(self) -> Scaling | None:
        """The scaling in which to train on these observations, if any."""
        if self.scaling is not None or not self.standardise:
            return self.scaling
        return Scaling.of(self.images, self.feature_names, self.categories)

    def subset(self, rows: Sequence[int] | np.ndarray) -> "Dataset":
        """Some of the samples, in the given order; the observations are not copied."""
        rows = np.asarray(rows)
        if rows.shape == (0,):
            rows = rows.astype(np.int64)
        if rows.dtype == bool and rows.shape == (len(self),):
            rows = np.flatnonzero(rows)
        if rows.dtype.kind not in "iu" or rows.ndim != 1:
            raise DataError(
                f"{self.name}: subset by {rows.dtype} of shape {rows.shape}; expected a list of "
                f"row numbers, or a mask with one entry for each of the {len(self)} samples. Was "
                "the mask made for other data?"
            )
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise DataError(
                f"{self.name}: subset of rows {rows.min()} to {rows.max()}, but there are "
                f"{len(self)} samples (0 to {len(self) - 1}). Choose rows in that range."
            )
        factors = None if self.factors is None else self.factors[rows]
        paths = None if self.paths is None else self.paths[rows]
        images = SelectedRows(self.images, rows)
        return replace(self, images=images, factors=factors, recipe=None, paths=paths)

    def leave_out(self, values: Mapping[str, Any], *, missing_ok: bool = False) -> "Dataset":
        """Without the rows in which a factor has one of the named values.

        Values are given by factor, one or a list: the name of a category, or the number that
        stands in `factors`: `rooms.leave_out({"shape": "sphere", "orientation": [0, 14]})`.
        With `missing_ok` no row needs to have them, as in a small part of the data.
        """
        factors = self.factors_with_kinds
        if factors is None:
            raise DataError(
                f"{self.name}: it has no factors, so no values of them can be left out. Use data "
                "with factors, or name those of your own file (factors=)."
            )
        chosen = dict(values) if missing_ok else factors.choose(values, self.name)
        rows = factors.rows_with(chosen)
        if rows.all():
            listed = ", ".join(f"{name}={each}" for name, each in chosen.items())
            raise DataError(
                f"{self.name}: all of {len(self):,} rows have {listed}, so leaving them out would "
                "leave nothing. Leave out fewer values."
            )
        part = self.subset(~rows)
        if self.recipe is None or "leave_out" in self.recipe:
            return part
        return replace(part, recipe={**self.recipe, "leave_out": chosen})

    def split(
        self,
        fractions: Sequence[float] | np.ndarray = (0.7, 0.1, 0.2),
        *,
        seed: SupportsIndex = 0,
    ) -> tuple["Dataset", ...]:
        """Disjoint random parts of the given sizes; the same seed gives the same parts.

        The rows of each part are in ascending order, so that reading a memory map stays
        cheap. Rows left over by rounding go to the first part.
        """
        try:
            shares = [float(fraction) for fraction in fractions]
            seed = index(seed)
        except (TypeError, ValueError):
            shares = []
        # Written so that NaN, for which every comparison is false, is refused too.
        if not shares or not (min(shares) > 0 and sum(shares) <= 1 + 1e-9):
            raise DataError(
                f"{self.name}: split into {fractions!r} with seed={seed!r}; fractions must be "
                "positive and add up to at most 1, for instance (0.8, 0.1, 0.1), and the seed a "
                "whole number."
            )
        order = np.random.default_rng(seed_of(seed, 1)).permutation(len(self))
        sizes = [int(fraction * len(self) + 1e-9) for fraction in shares]
        if sum(shares) > 1 - 1e-9:
            sizes[0] = len(self) - sum(sizes[1:])
        if min(sizes) == 0:
            raise DataError(
                f"{self.name}: {len(self)} samples split into {tuple(shares)} leave a part "
                "without samples. Use fewer or larger parts."
            )
        ends = np.cumsum(sizes)
        parts = []
        for part, (end, size) in enumerate(zip(ends, sizes, strict=True)):
            subset = self.subset(np.sort(order[end - size : end]))
            # A recipe is followed in its order: split, then leave out.
            if self.recipe is not None and not {"split", "leave_out"} & {*self.recipe}:
                split = {"fractions": shares, "seed": seed, "part": part}
                subset = replace(subset, recipe={**self.recipe, "split": split})
            parts.append(subset)
        return tuple(parts)


class SelectedRows:
    """A selection of rows by index, read on demand."""

    def __init__(self, rows: Rows, index: np.ndarray) -> None:
        if isinstance(rows, SelectedRows):
            index = rows._index[index]
            rows = rows._rows
        self._rows: Rows = rows
        self._index: np.ndarray = np.asarray(index, dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._index), *self._rows.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self._rows.dtype)

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self._rows[self._index[rows]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


class SelectedColumns:
    """Some columns of rows by index, read on demand; -1 is a column of zeros."""

    dtype = np.dtype(np.float32)

    def __init__(self, rows: Rows, columns: np.ndarray) -> None:
        self._rows, self._columns = rows, columns

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._rows), len(self._columns))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> np.ndarray:
        selected: np.ndarray = self._rows[rows][..., self._columns]
        selected[..., self._columns < 0] = 0
        return selected

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


def grid_factors(sizes: Sequence[int]) -> np.ndarray:
    """Every combination of factor values, the last factor running fastest."""
    return np.stack(np.unravel_index(np.arange(int(np.prod(sizes))), tuple(sizes)), axis=1)


def from_arrays(
    images: Any,
    factors: Any = None,
    *,
    name: str = "array",
    factor_names: Sequence[str] = (),
    factor_kinds: Sequence[Kind] = (),
    feature_names: Sequence[str] = (),
    standardise: bool = False,
) -> Dataset:
    """A dataset of an array or tensor in any usual layout, or of a data frame of numbers.

    Pictures may be samples x height x width (grey), x channels x height x width, or
    x height x width x channels (recognised when the last axis has 1, 3 or 4 entries and
    the second has not). Sound is samples x channels x time, with one or two channels; video is
    samples x channels x time x height x width. Numbers other than bytes become float32. NaN and
    infinity are refused: at once, or in large data when they are read. Vectors are trained on as
    they are, or with `standardise` in units of their standard deviations, as those of files are.
    The columns of a data frame name the features.
    """
    if not isinstance(name, str):
        raise ConfigError(f"from_arrays: name={name!r}; expected a word, as name='my data'.")
    if hasattr(images, "columns") and hasattr(images, "to_numpy"):  # pandas, polars
        feature_names = feature_names or [str(column) for column in images.columns]
        images = images.to_numpy()
    if is_tensor(images) or isinstance(images, list | tuple):
        images = _as_array(images, name, "observations")
    if not hasattr(images, "shape") or not hasattr(images, "dtype"):
        raise DataError(
            f"{name}: observations of type {type(images).__name__}; expected an array or tensor, "
            "samples first. A dataset is loaded by name with zs.data.load(name)."
        )
    if images.dtype == object or np.dtype(images.dtype).kind not in "biuf":
        raise DataError(
            f"{name}: observations of type {images.dtype} are not numbers. Are they text, or rows "
            "of different lengths? Give one numeric array with samples first."
        )
    if len(images.shape) < 2:
        raise DataError(
            f"{name}: observations of shape {tuple(images.shape)}; expected samples x features. "
            "For a single feature use x.reshape(-1, 1)."
        )
    if len(images.shape) == 3 and not 1 <= images.shape[1] <= 2 < images.shape[2]:
        images = images[:, None]
    if len(images.shape) == 4 and images.shape[3] in (1, 3, 4) and images.shape[1] not in (1, 3, 4):
        images = images.transpose(0, 3, 1, 2)
    pictures_of_bytes = len(images.shape) >= 4 and images.dtype == np.uint8
    if not pictures_of_bytes and len(images):
        from zscope.data.own import float32_rows  # own.py imports this module

        images = float32_rows(images, name)
    if factors is not None:
        factors = _as_array(factors, name, "factors")
        factors = factors[:, None] if factors.ndim == 1 else factors
    words = {
        "factor_names": factor_names,
        "factor_kinds": factor_kinds,
        "feature_names": feature_names,
    }
    for option, value in words.items():
        if not isinstance(value, Iterable):
            raise ConfigError(
                f"{name}: {option}={value!r}; expected a list of words, one for each."
            )
    return Dataset(
        name=name,
        images=images,
        factors=factors,
        factor_names=tuple(factor_names),
        factor_kinds=tuple(factor_kinds),
        feature_names=tuple(feature_names),
        standardise=standardise,
    )


def as_dataset(data: Any) -> Dataset:
    """A Dataset as it is; an array or tensor as a Dataset without factors."""
    return data if isinstance(data, Dataset) else from_arrays(data)


def _as_array(values: Any, name: str, what: str) -> np.ndarray:
    try:
        if is_tensor(values):
            import torch

            values = values.detach().cpu()
            # NumPy has no bfloat16.
            values = values.float() if values.dtype == torch.bfloat16 else values
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name}: {what} given as a {type(values).__name__} cannot be read as one array "
            f"({str(error).splitlines()[0]}). Do all rows have the same length? Give one dense "
            "array with samples first."
        ) from error
    if array.dtype.kind == "c":
        raise DataError(
            f"{name}: {what} are complex numbers; expected real ones. Give their real and "
            "imaginary parts as two columns."
        )
    return array

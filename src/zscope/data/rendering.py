"""Pictures of a grid of factors, drawn on first use and cached on disk.

A full grid of sprites or rooms is gigabytes of pixels, of which a model reads a few
thousand pictures a second and a sub-grid only a part. So pictures are drawn in batches, by
their row in the full grid, and written to a sparse file that is memory-mapped. A sub-grid
is a selection of rows of the full grid and shares its file. So is a random subset, which is
small enough to be held in memory: batches are then read from an array.
"""

import errno
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from zscope.data.dataset import Dataset, Kind, Rows, SelectedRows, grid_factors
from zscope.data.source import Factor, factor_arguments, pixels, whole
from zscope.data.unpacking import LARGE
from zscope.errors import ConfigError, DataError, did_you_mean
from zscope.seeds import seed_of

__all__ = [
    "SUBSET_OPTIONS", "Axis", "Choice", "InMemory", "Painter", "Rendered", "check_resolution",
    "checksums", "choices_of", "choose", "draws", "grid_dataset", "random_rows", "scramble",
    "uniform",
]  # fmt: skip

CHUNK_BYTES = 8 * 2**20  # pixels drawn or read at a time
NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SUBSET = 8  # number of this stream of random numbers
RANGE = re.compile(r"(\d+)\.\.(\d+)(?::([1-9]\d*))?")  # 2..12 or 0..30:2, both ends included

SUBSET_OPTIONS = {
    "pictures": "how many pictures to draw at random, once, and hold in memory (all)",
    "subset_seed": "random seed of that choice (0)",
}

Choice = int | str | Sequence[int | str] | None


@dataclass(frozen=True)
class Axis:
    """One factor of a grid: the value at each of its positions. A cyclic one has no ends."""

    name: str
    values: tuple[float, ...] | tuple[str, ...]
    kind: Kind = "ordinal"
    cyclic: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def factor(self, picks: Sequence[int] | np.ndarray) -> Factor:
        """The catalogue entry of this factor, restricted to these positions."""
        names = tuple(value for value in self.values if isinstance(value, str))
        values = tuple(names[pick] for pick in picks) if names else ()
        return Factor(self.name, len(picks), self.kind, values)


@runtime_checkable
class Painter(Protocol):
    """Draws pictures of a full grid by their rows. Equal keys mean equal pictures."""

    @property
    def key(self) -> str: ...
    @property
    def axes(self) -> tuple[Axis, ...]: ...
    @property
    def shape(self) -> tuple[int, int, int]: ...
    def __call__(self, rows: np.ndarray) -> np.ndarray: ...


def grid_dataset(
    name: str,
    painter: Painter,
    folder: Path,
    choices: Mapping[str, Choice],
    *,
    pictures: int | None = None,
    subset_seed: int = 0,
) -> Dataset:
    """The dataset of all pictures of a grid, or of a sub-grid of chosen factor values.

    With `pictures`, that many of them, drawn at random and held in memory. The first 20,000
    of a seed are among its first 23,000, so that others can be held out.
    """
    axes = painter.axes
    picks = [choose(name, axis, choices.get(axis.name)) for axis in axes]
    images: Rows = Rendered(painter, folder)
    if any(not np.array_equal(p, np.arange(len(a))) for p, a in zip(picks, axes, strict=True)):
        rows = np.ravel_multi_index(np.ix_(*picks), tuple(len(axis) for axis in axes))
        images = SelectedRows(images, rows.ravel())
    pairs = list(zip(axes, picks, strict=True))
    fields = factor_arguments([axis.factor(pick) for axis, pick in pairs])
    values = {axis.name: [axis.values[k] for k in pick] for axis, pick in pairs}
    provenance: dict[str, Any] = {"pictures": painter.key, "values": values}
    factors = grid_factors(fields["factor_sizes"])
    if pictures is not None:
        rows = random_rows(name, len(images), pictures, subset_seed)
        images, factors = SelectedRows(images, rows), factors[rows]
        if len(rows) * int(np.prod(painter.shape)) <= LARGE:
            images = InMemory(images)
        provenance["subset"] = {"pictures": len(rows), "seed": subset_seed}
    elif subset_seed != 0:
        raise ConfigError(
            f"{name}: subset_seed={subset_seed} has no effect without pictures, the number to draw "
            f"of {len(images):,}. Add for instance pictures={min(20_000, len(images))}."
        )
    return Dataset(name, images, factors, **fields, provenance=provenance)


def random_rows(who: str, available: int, count: int, seed: int) -> np.ndarray:
    """The first `count` rows of a random order that the seed fixes, in ascending order."""
    count = whole(who, "pictures", count, "a number of pictures", 20_000)
    if count > available:
        raise ConfigError(
            f"{who}: pictures={count}, but the chosen factor values have {available:,} "
            "combinations. Give a smaller number, choose more values, or leave it out for all."
        )
    order = np.random.default_rng(seed_of(seed, SUBSET)).permutation(available)
    return np.sort(order[:count])


def choose(who: str, axis: Axis, choice: Choice) -> np.ndarray:
    """The positions of the chosen values of an axis.

    None chooses all. A count chooses that many: evenly spaced with both ends (a count of 1:
    the middle), around the cycle of a cyclic axis, or the first ones of a categorical axis.
    A list chooses exactly those, by position or by the name of a category. On the command
    line: orientation=10, orientation=0,10,20, shape=square,heart, or a range with both ends,
    orientation=2..12, and by steps of 2, position_x=0..30:2.
    """
    size = len(axis)
    if choice is None:
        return np.arange(size)
    if isinstance(choice, str):
        parts = [part.strip() for part in choice.split(",") if part.strip()]
        if len(parts) == 1 and parts[0].isdigit() and "," not in choice:
            return choose(who, axis, int(parts[0]))
        choice = [position for part in parts for position in _expand(part)]
    if isinstance(choice, int) and not isinstance(choice, bool):
        if not 1 <= choice <= size:
            raise ConfigError(
                f"{who}: {axis.name}={choice}, but {axis.name} has {size} values. Give a count "
                f"from 1 to {size}, or a list of positions from 0 to {size - 1}."
            )
        if axis.cyclic:
            return np.arange(choice) * size // choice
        if axis.kind == "categorical":
            return np.arange(choice)
        if choice == 1:
            return np.array([size // 2])
        return np.floor(np.linspace(0, size - 1, choice) + 0.5).astype(np.int64)
    items = [choice] if isinstance(choice, bool) else list(choice)
    picks = [_position(who, axis, item) for item in items]
    if not picks or len(set(picks)) < len(picks):
        raise ConfigError(
            f"{who}: {axis.name}={items} "
            f"{'names a value twice' if picks else 'is an empty list'}. Give each chosen position "
            f"(0 to {size - 1}) once, or a count from 1 to {size}."
        )
    return np.array(picks)


def choices_of(who: str, axes: Sequence[Axis]) -> dict[str, Callable[[Any], list[int]]]:
    """The `forms` of a source whose options choose values of axes: the chosen positions."""

    def positions(axis: Axis, choice: Any) -> list[int]:
        picks: list[int] = choose(who, axis, choice).tolist()
        return picks

    return {axis.name: partial(positions, axis) for axis in axes}


def _expand(part: str) -> list[str]:
    """The positions of a range such as 2..12 or 0..30:2; any other text alone."""
    match = RANGE.fullmatch(part)
    if match is None:
        return [part]
    first, last, step = (int(number or 1) for number in match.groups())
    return [str(position) for position in range(first, last + 1, step)]


def _position(who: str, axis: Axis, item: Any) -> int:
    if isinstance(item, str) and item in axis.values:
        return axis.values.index(item)
    if not isinstance(item, bool) and str(item).isdigit() and int(item) < len(axis):
        return int(item)
    names = [value for value in axis.values if isinstance(value, str)]
    raise ConfigError(
        f"{who}: {axis.name} has no value {item!r}; it has {len(axis)} values, at positions 0 "
        f"to {len(axis) - 1}. " + (did_you_mean(str(item), names) if names else "Give positions.")
    )


def check_resolution(who: str, resolution: int) -> int:
    """The resolution, which must be a number of pixels that can be drawn."""
    resolution = pixels(who, "resolution", resolution)
    if not 8 <= resolution <= 1024:
        raise ConfigError(
            f"{who}: resolution={resolution}; expected 8 to 1024 pixels per side. "
            "The networks of the literature expect 64."
        )
    return resolution


class Rendered:
    """The pictures of a full grid as an array, indexed by row, slice, list of rows or mask.

    Rows that are not on disk are drawn and written; the others are read from the memory
    map. Each row has a checksum in a second file, written after the pixels, and is drawn
    again if the checksum does not match, for instance after a crash. Any number of
    processes may read and write at once, since a row has only one possible content. If the
    folder cannot be written, pictures are drawn each time. A pickle does not contain the
    pixels.
    """

    def __init__(self, painter: Painter, folder: Path) -> None:
        self.painter: Painter = painter
        self.shape: tuple[int, ...] = (
            int(np.prod([len(axis) for axis in painter.axes])),
            *painter.shape,
        )
        self.dtype: np.dtype = np.dtype(np.uint8)
        side = painter.shape[-1]
        code = hashlib.sha256(painter.key.encode()).hexdigest()[:12]
        self._path: Path = Path(folder) / f"{side}px-{code}.pixels"
        self._bytes: int = int(np.prod(painter.shape))
        # Rows start at multiples of 8 bytes, so that checksums can use 64-bit words.
        self._stride: int = -(-self._bytes // 8) * 8
        self._maps: tuple[np.ndarray, np.ndarray] | None = None
        self._cached: bool = True
        self._writable: bool = True

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Rendered({self.painter.key}, shape={self.shape})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": None, "_cached": True, "_writable": True}

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, int | np.integer):
            return np.asarray(self._read(self._rows(np.array([rows])))[0])
        return self._read(self._rows(rows))

    def _rows(self, rows: Any) -> np.ndarray:
        count = len(self)
        if isinstance(rows, slice):
            return np.arange(*rows.indices(count))
        rows = np.asarray(rows)
        if rows.dtype == bool:
            if rows.shape != (count,):
                raise IndexError(f"a mask of shape {rows.shape} for {count} pictures")
            return np.flatnonzero(rows)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise IndexError(f"expected a list of rows, got {rows.dtype} of shape {rows.shape}")
        rows = rows.astype(np.int64)
        if rows.size and (rows.min() < -count or rows.max() >= count):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {count} pictures")
        return np.asarray(np.where(rows < 0, rows + count, rows))

    def _read(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), self._stride), np.uint8)
        step = max(1, CHUNK_BYTES // self._stride)
        for start in range(0, len(rows), step):
            part, block = rows[start : start + step], out[start : start + step]
            missing = self._from_disk(part, block)
            if missing.size:
                new = np.zeros((len(missing), self._stride), np.uint8)
                new[:, : self._bytes] = self.painter(part[missing]).reshape(-1, self._bytes)
                block[missing] = new
                self._to_disk(part[missing], new)
        return out[:, : self._bytes].reshape(len(rows), *self.shape[1:])

    def _from_disk(self, rows: np.ndarray, block: np.ndarray) -> np.ndarray:
        """Fill the block with the rows that are on disk; returns the positions of the others."""
        maps = self._open()
        if maps is None:
            return np.arange(len(rows))
        pixels, sums = maps
        stored = sums[rows]
        present = np.flatnonzero(stored)  # 0 in the file means not written yet
        if present.size == len(rows):
            np.take(pixels, rows, axis=0, out=block, mode="clip")
        elif present.size:
            block[present] = pixels[rows[present]]
        trusted = (stored != 0) & (stored == checksums(rows, block))
        return np.flatnonzero(~trusted)

    def _to_disk(self, rows: np.ndarray, block: np.ndarray) -> None:
        if self._maps is None or not self._writable:
            return
        order = np.argsort(rows, kind="stable")
        rows, block = rows[order], block[order]
        runs = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
        try:
            _write(self._path, rows, block, runs)
            _write(_sums(self._path), rows, checksums(rows, block)[:, None].view(np.uint8), runs)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise self._no_space(error) from error
            self._writable = False

    def _no_space(self, error: OSError) -> DataError:
        return DataError(
            f"data: no space for more pictures in {self._path.parent} ({error.strerror}). The disk "
            f"or your quota is full; all {len(self)} pictures take "
            f"{len(self) * self._stride / 1e9:.3g} GB. Free some space there, or choose another "
            "folder: ZSCOPE_DATA=/path"
        )

    def _open(self) -> tuple[np.ndarray, np.ndarray] | None:
        if self._maps is None and self._cached:
            count, sums = len(self), _sums(self._path)
            try:
                _prepare(self._path, count * self._stride, sparse=True)
                # Not sparse: checksums are read before they are written, and on memory-backed
                # file systems even reading a hole takes space.
                _prepare(sums, count * 8, sparse=False)
                # Read-only maps: pixels are written through the file, because writing to a map on
                # a full disk ends the process by a signal instead of raising an error.
                self._maps = (
                    np.memmap(self._path, np.uint8, "r", shape=(count, self._stride)),
                    np.memmap(sums, np.uint64, "r", shape=(count,)),
                )
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in NO_SPACE - {errno.EFBIG}:
                    raise self._no_space(error) from error
                self._cached = False
        return self._maps


class InMemory:
    """Rows that are read as a whole on first use, and from an array after that.

    A pickle does not contain the pixels.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows: Rows = rows
        self._array: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._rows.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self._rows.dtype)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> np.ndarray:
        if self._array is None:
            self._array = self._rows[:]
            self._array.flags.writeable = False
        return np.asarray(self._array[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {"_rows": self._rows, "_array": None}


def checksums(rows: np.ndarray, block: np.ndarray) -> np.ndarray:
    """A 64-bit checksum per row, over its words and its number, with fixed odd weights."""
    words = block.view(np.uint64)
    weights = _weights(words.shape[1] + 1)
    sums: np.ndarray = np.einsum("rw,w->r", words, weights[1:])
    return np.asarray(sums + (rows.astype(np.uint64) + 1) * weights[0])


def scramble(counters: np.ndarray) -> np.ndarray:
    """A random 64-bit word for each counter, always the same for the same counter.

    The splitmix64 generator, evaluated at given positions instead of in sequence (Steele,
    Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
    """
    z = (counters + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def draws(seed: int, rows: np.ndarray, count: int) -> np.ndarray:
    """`count` random 64-bit words for each row, which depend on seed and row only."""
    streams = scramble(scramble(np.array([seed], np.uint64)) + rows.astype(np.uint64))
    return scramble(streams[:, None] + np.arange(count, dtype=np.uint64))


def uniform(words: np.ndarray) -> np.ndarray:
    """64-bit words as numbers from 0 to 1."""
    return (words >> np.uint64(11)) * 2.0**-53


@lru_cache(maxsize=16)
def _weights(count: int) -> np.ndarray:
    return scramble(np.arange(count, dtype=np.uint64)) | np.uint64(1)


def _sums(path: Path) -> Path:
    return path.with_suffix(".sums")


def _prepare(path: Path, size: int, *, sparse: bool) -> None:
    """Create a file of zeros of that size, unless there is a file of that size already."""
    if path.is_file() and path.stat().st_size == size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as file:
        if sparse or file.seek(0, os.SEEK_END) > size:
            file.truncate(size)
        while (left := size - file.seek(0, os.SEEK_END)) > 0:
            file.write(bytes(min(left, 2**20)))


def _write(path: Path, rows: np.ndarray, block: np.ndarray, runs: np.ndarray) -> None:
    """Write runs of consecutive rows to their positions in the file."""
    stride = block.shape[1]
    with open(path, "r+b", buffering=0) as file:
        for start, end in zip(runs, [*runs[1:], len(rows)], strict=True):
            file.seek(int(rows[start]) * stride, os.SEEK_SET)
            part = memoryview(block[start:end].tobytes())
            while part:
                part = part[file.write(part) :]

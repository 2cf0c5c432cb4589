"""Read tables of one's own: .csv (or .tsv) and .parquet files.

Columns are features of the observations, except those named as factors. Tables are read
some rows at a time.
"""

import csv
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np

from zscope.data.columns import parse_column
from zscope.data.own import Contents
from zscope.data.unpacking import LARGE, cached_memory_map
from zscope.errors import ConfigError, DataError, MissingExtra, did_you_mean

__all__ = ["CsvTable", "ParquetTable", "open_table", "read_table", "table_columns"]

CELLS = 2**20  # read at a time


@dataclass(frozen=True)
class Part:
    """Some rows: features as numbers, factors by column as numbers or words."""

    features: np.ndarray
    factors: dict[str, np.ndarray]


def open_table(path: Path) -> "CsvTable | ParquetTable":
    return ParquetTable(path) if path.suffix.lower() == ".parquet" else CsvTable(path)


def table_columns(path: Path) -> dict[str, np.ndarray]:
    """All columns of a table by name, as numbers or words."""
    table = open_table(path)
    parts = [part.factors for part in table.parts([], table.columns)]
    if not parts:
        raise DataError(f"{path}: the table has {len(table.columns)} columns but no rows.")
    return {
        column: parse_column(np.concatenate([part[column] for part in parts]), column, path)
        for column in table.columns
    }


def read_table(
    path: Path,
    *,
    factors: list[str] | None = None,
    features: list[str] | None = None,
    **_: Any,
) -> Contents:
    """Observations and factors of a table; large ones become a memory map."""
    table, name = open_table(path), path.name
    for option, columns in (("factors", factors), ("features", features)):
        for column in columns or ():
            if column not in table.columns:
                raise ConfigError(
                    f"{name}: {option} names {column!r}, but there is no such column. "
                    f"{did_you_mean(column, table.columns)}"
                )
    used = features or [column for column in table.columns if column not in (factors or ())]
    if not used:
        raise ConfigError(
            f"{name}: all {len(table.columns)} columns are factors, so no observations are left. "
            "Name fewer factors."
        )
    shape = (table.rows(), len(used))
    if shape[0] == 0:
        raise DataError(f"{path}: the table has {len(table.columns)} columns but no rows.")
    collected: dict[str, list[np.ndarray]] = {column: [] for column in factors or ()}

    def pieces() -> Iterator[np.ndarray]:
        for part in table.parts(used, list(collected)):
            for column, cells in part.factors.items():
                collected[column].append(cells)
            yield part.features

    values: np.ndarray
    if shape[0] * shape[1] * 4 > LARGE:
        values = cached_memory_map(path, ",".join(used), shape, np.dtype(np.float32), pieces())
        if not all(collected.values()):  # the memory map was written by an earlier call
            for part in table.parts([], list(collected)):
                for column, cells in part.factors.items():
                    collected[column].append(cells)
    else:
        values = np.concatenate(list(pieces()))
    factor_columns = {
        column: parse_column(np.concatenate(parts), column, name)
        for column, parts in collected.items()
    }
    return Contents(values, factor_columns or None, feature_names=used)


class CsvTable:
    """Values separated by commas (by tabs in .tsv, by semicolons where there are no commas).

    The first line names the columns, unless it consists of numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
        self._delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        if self._delimiter not in first and ";" in first:
            self._delimiter = ";"
        if not first.strip():
            raise DataError(f"{path}: the first line is empty. Is the file complete?")
        start = next(csv.reader([first], delimiter=self._delimiter), [])
        self._headed = not all(_is_number(cell) for cell in start)
        self.columns = [cell.strip() for cell in start]
        if not self._headed:
            self.columns = [f"column{k}" for k in range(len(start))]
        twice = {column for column in self.columns if self.columns.count(column) > 1}
        if twice or "" in self.columns:
            raise DataError(
                f"{path}: {'two columns are' if twice else 'a column is'} called "
                f"{min(twice, default='')!r} in the first line. Give each column its own name."
            )

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        """The number of each line and its cells."""
        with self.path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=self._delimiter)
            if self._headed:
                next(reader)
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(self.columns):
                    raise DataError(
                        f"{self.path}: line {reader.line_num} has {len(cells)} values, the first "
                        f"has {len(self.columns)}. Is there a stray or missing {self._delimiter!r}?"
                    )
                yield reader.line_num, cells

    def rows(self) -> int:
        return sum(1 for _ in self.lines())

    def parts(self, features: Sequence[str], factors: Sequence[str]) -> Iterator[Part]:
        at = [self.columns.index(column) for column in features]
        lines = self.lines()
        while chunk := list(itertools.islice(lines, _step(self.columns))):
            rows = [[cells[k] for k in at] for _, cells in chunk]
            try:
                with np.errstate(over="ignore"):  # refused later, with the row
                    numbers = np.array(rows, dtype=np.float64).astype(np.float32)
            except ValueError:
                self._refuse(chunk, at)
            yield Part(
                numbers,
                {
                    column: np.array(
                        [cells[self.columns.index(column)].strip() for _, cells in chunk]
                    )
                    for column in factors
                },
            )

    def _refuse(self, chunk: list[tuple[int, list[str]]], at: list[int]) -> NoReturn:
        line, k = next((n, k) for n, cells in chunk for k in at if not _is_number(cells[k]))
        cell = dict(chunk)[line][k]
        _not_a_number(self.path, self.columns[k], cell, f"line {line}")


class ParquetTable:
    """The columns of a .parquet file."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtra("data", "pyarrow", "files") from error
        self.path = path
        self._file = pyarrow.parquet.ParquetFile(path)
        self.columns = list(self._file.schema_arrow.names)

    def rows(self) -> int:
        return int(self._file.metadata.num_rows)

    def parts(self, features: Sequence[str], factors: Sequence[str]) -> Iterator[Part]:
        done = 0
        for batch in self._file.iter_batches(_step(self.columns), columns=[*features, *factors]):
            numbers = np.empty((len(batch), len(features)), np.float32)
            for k, column in enumerate(features):
                values = _plain(batch.column(column))
                if values.dtype.kind not in "biuf":
                    _not_a_number(self.path, column, values[0], f"row {done}")
                with np.errstate(over="ignore"):
                    numbers[:, k] = values
            yield Part(numbers, {column: _plain(batch.column(column)) for column in factors})
            done += len(batch)


def _step(columns: list[str]) -> int:
    return max(1, CELLS // len(columns))


def _plain(column: Any) -> np.ndarray:
    """A column of a parquet file as numbers (missing ones as NaN) or words."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return cast(np.ndarray, column.to_numpy(zero_copy_only=False))
    if pa.types.is_boolean(column.type) and column.null_count == 0:
        return cast(np.ndarray, column.to_numpy(zero_copy_only=False))
    return np.array(["" if word is None else str(word) for word in column.to_pylist()])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _not_a_number(path: Path, column: str, cell: Any, place: str) -> NoReturn:
    what = f"the word {str(cell)!r}" if str(cell).strip() else "nothing"
    raise DataError(
        f"{path}: column {column!r} holds {what} in {place}; observations must be numbers. "
        f"If it is a factor, use factors={column}; else choose columns with features=, or fill in "
        "the missing value."
    )

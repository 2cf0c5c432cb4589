"""Read tables of one's own: .csv (or .tsv) and .parquet files.

Columns are features of the observations, except those named as factors. A column of words is
a category and becomes one feature for each of its values, 1 where the row has it and 0
elsewhere: plate=x, plate=y. Missing cells are refused with their place, or filled in by
request. Tables are read some rows at a time, once to see what the columns hold and once for
their values.
"""

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np

from zscope import files
from zscope.data import folder as datasets
from zscope.data.columns import MISSING, parse_column
from zscope.data.own import Contents
from zscope.data.unpacking import LARGE, cached_memory_map
from zscope.errors import ConfigError, DataError, MissingExtra, did_you_mean
from zscope.scaling import feature_name

__all__ = ["CsvTable", "ParquetTable", "open_table", "read_table", "table_columns"]

CELLS = 2**20  # read at a time
MOST_LINE = 2**24  # characters
MOST_VALUES = 100  # of a category; a column with more is an identifier or free text
IMPUTE = ("median", "mean")

Fill = Mapping[str, float | str]  # by column, the number or word that replaces missing cells


def open_table(path: Path) -> "CsvTable | ParquetTable":
    return ParquetTable(path) if path.suffix.lower() == ".parquet" else CsvTable(path)


def table_columns(path: Path) -> dict[str, np.ndarray]:
    """All columns of a table by name, as numbers or words."""
    table = open_table(path)
    chunks: list[CsvChunk | ParquetChunk] = [*table.chunks(table.columns)]
    if not chunks:
        raise DataError(f"{path}: the table has {len(table.columns)} columns but no rows.")
    return {
        column: parse_column(
            np.concatenate([chunk.column(column) for chunk in chunks]), column, path
        )
        for column in table.columns
    }


def read_table(
    path: Path,
    *,
    factors: list[str] | None = None,
    features: list[str] | None = None,
    categories: list[str] | None = None,
    impute: Any = None,
    **_: Any,
) -> Contents:
    """Observations and factors of a table; large ones become a memory map."""
    table, name = open_table(path), path.name
    used = _feature_columns(table, factors, features, categories)
    survey = _survey(table, used, categories or [])
    if survey.rows == 0:
        raise DataError(f"{path}: the table has {len(table.columns)} columns but no rows.")
    fill: Fill = {}
    if impute is not None:
        fill = _fill(table, survey, impute)
        for column, words in survey.categories.items():  # the word may occur in no other cell
            if column in survey.missing and fill.get(column, words[0]) not in words:
                survey.categories[column] = sorted([*words, str(fill[column])])
    unfilled = [column for column in survey.missing if column not in fill]
    if unfilled:
        _refuse_missing(path, survey, unfilled)
    collected: dict[str, list[np.ndarray]] = {column: [] for column in factors or ()}

    def pieces() -> Iterator[np.ndarray]:
        for chunk in table.chunks([*used, *collected]):
            for column, parts in collected.items():
                parts.append(chunk.column(column))
            yield survey.features(chunk, fill)

    values: np.ndarray
    shape = (survey.rows, len(survey.names))
    if shape[0] * shape[1] * 4 > LARGE:
        key = ",".join(survey.names) + repr(sorted(fill.items()))
        values = cached_memory_map(path, key, shape, np.dtype(np.float32), pieces())
        if not all(collected.values()):  # the memory map was written by an earlier call
            for chunk in table.chunks(list(collected)):
                for column, parts in collected.items():
                    parts.append(chunk.column(column))
    else:
        values = np.concatenate(list(pieces()))
    factor_columns = {
        column: parse_column(np.concatenate(parts), column, name)
        for column, parts in collected.items()
    }
    return Contents(
        values,
        factor_columns or None,
        {"imputed": dict(fill)} if fill else {},
        feature_names=survey.names,
        categories=survey.categories,
    )


def _feature_columns(
    table: "CsvTable | ParquetTable",
    factors: list[str] | None,
    features: list[str] | None,
    categories: list[str] | None,
) -> list[str]:
    """The columns of the observations; columns that do not exist are refused."""
    known, name = set(table.columns), table.path.name
    named = {"factors": factors, "features": features, "categories": categories}
    for option, columns in named.items():
        for column in columns or ():
            if column not in known:
                raise ConfigError(
                    f"{name}: {option} names {column!r}, but there is no such column. "
                    f"{did_you_mean(column, table.columns)}"
                )
    apart = set(factors or ())
    used = features or [column for column in table.columns if column not in apart]
    if not used:
        raise ConfigError(
            f"{name}: all {len(table.columns)} columns are factors, so no observations are left. "
            "Name fewer factors."
        )
    return used


@dataclass
class Survey:
    """What the feature columns of a table hold."""

    used: list[str]
    rows: int = 0
    categories: dict[str, list[str]] = field(default_factory=dict)  # column -> its words
    missing: dict[str, tuple[int, str]] = field(default_factory=dict)  # count, and first place

    @property
    def names(self) -> list[str]:
        """The features: a column of numbers, or one for each value of a category."""
        return [
            name
            for column in self.used
            for name in (
                [feature_name(column, value) for value in self.categories[column]]
                if column in self.categories
                else [column]
            )
        ]

    @property
    def numeric(self) -> list[str]:
        return [column for column in self.used if column not in self.categories]

    def add_missing(self, column: str, count: int, place: str) -> None:
        before, first = self.missing.get(column, (0, place))
        self.missing[column] = (before + count, first)

    def features(self, chunk: "CsvChunk | ParquetChunk", fill: Fill) -> np.ndarray:
        """The features of some rows, with missing cells filled in."""
        numeric = self.numeric
        numbers = chunk.numbers(numeric)
        if np.isnan(numbers).any():
            row = np.array([fill.get(column, np.nan) for column in numeric], np.float64)
            numbers = np.where(np.isnan(numbers), row, numbers)
        with np.errstate(over="ignore"):  # refused later, with the row
            numbers = numbers.astype(np.float32)
        if not self.categories:
            return numbers
        parts: list[np.ndarray] = []
        done = 0  # columns of numbers; those in between categories stay together
        for place, column in enumerate(self.used):
            if column not in self.categories:
                continue
            before = place - len(parts) // 2  # numbers to the left of this category
            words = chunk.words(column)
            words = np.where(words == "", str(fill.get(column, "")), words)
            hot = words[:, None] == np.array(self.categories[column])
            parts += [numbers[:, done:before], hot.astype(np.float32)]
            done = before
        return np.concatenate([*parts, numbers[:, done:]], axis=1)


def _survey(table: "CsvTable | ParquetTable", used: list[str], categories: list[str]) -> Survey:
    """Which columns are categories, and where cells are missing."""
    survey = Survey(used)
    stated = set(categories)
    numeric = [column for column in used if column not in stated]
    first_words: dict[str, tuple[str, str]] = {}  # column -> word and place
    for chunk in table.chunks(used):
        survey.rows += len(chunk)
        try:
            numbers = chunk.numbers(numeric)
        except ValueError:
            for column in numeric:
                if (word := chunk.first_word(column)) is not None:
                    first_words[column] = word
            numeric = [column for column in numeric if column not in first_words]
            numbers = chunk.numbers(numeric)
        empty = np.isnan(numbers)
        for k in np.flatnonzero(empty.any(0)):
            place = chunk.place(int(np.argmax(empty[:, k])))
            survey.add_missing(numeric[k], int(empty[:, k].sum()), place)
    numbers_alone = set(numeric)
    words = [column for column in used if column not in numbers_alone]
    for column in words:  # its empty cells are counted again, as words
        survey.missing.pop(column, None)
    if words:
        _survey_words(table, survey, words, first_words)
    return survey


def _survey_words(
    table: "CsvTable | ParquetTable",
    survey: Survey,
    columns: list[str],
    first_words: Mapping[str, tuple[str, str]],
) -> None:
    """Find the values of categories; refuse columns that are none."""
    counts: dict[str, Counter[str]] = {column: Counter() for column in columns}
    for chunk in table.chunks(columns):
        for column, counter in counts.items():
            cells = chunk.words(column)
            counter.update(cells.tolist())
            if (empty := cells == "").any():
                survey.add_missing(column, int(empty.sum()), chunk.place(int(np.argmax(empty))))
    for column, counter in counts.items():
        counter.pop("", None)
        numbers = sum(count for word, count in counter.items() if _is_number(word))
        if column in first_words and 2 * numbers > counter.total():
            _not_a_number(table.path, column, *first_words[column])
        if len(counter) > MOST_VALUES or not counter:
            what = f"{len(counter)} different words, such as {min(counter)!r}" if counter else ""
            raise DataError(
                f"{table.path}: column {column!r} holds {what or 'nothing in any row'}; a category "
                f"has 1 to {MOST_VALUES} values. Is it an identifier, a date or free text? Leave "
                f"it out with features=, or use it as a factor: factors={column}"
            )
        survey.categories[column] = sorted(counter)


def _fill(table: "CsvTable | ParquetTable", survey: Survey, impute: Any) -> Fill:
    """What replaces missing cells, for every column: later tables may lack others."""
    if isinstance(impute, Mapping):
        return dict(impute)
    if impute not in IMPUTE:
        raise ConfigError(
            f"{table.path.name}: impute={impute!r}; expected median or mean (of each column; a "
            "category gets its most frequent value). Leave it out to refuse missing cells."
        )
    average = np.nanmedian if impute == "median" else np.nanmean
    fill: dict[str, float | str] = {}
    numeric = survey.numeric
    step = max(1, LARGE // (8 * survey.rows))
    for start in range(0, len(numeric), step):
        group = numeric[start : start + step]
        values = np.concatenate([chunk.numbers(group) for chunk in table.chunks(group)])
        for k, column in enumerate(group):
            if not np.isnan(values[:, k]).all():
                fill[column] = float(average(values[:, k]))
    if survey.categories:
        counts: dict[str, Counter[str]] = {column: Counter() for column in survey.categories}
        for chunk in table.chunks(list(counts)):
            for column, counter in counts.items():
                counter.update(word for word in chunk.words(column).tolist() if word)
        fill |= {c: max(sorted(count), key=count.__getitem__) for c, count in counts.items()}
    return fill


def _refuse_missing(path: Path, survey: Survey, columns: list[str]) -> NoReturn:
    first, place = columns[0], survey.missing[columns[0]][1]
    cells = sum(survey.missing[column][0] for column in columns)
    more = "" if cells == 1 else f" ({cells} cells of {len(columns)} columns are empty)"
    if survey.missing[first][0] == survey.rows:
        raise DataError(
            f"{path}: column {first!r} holds nothing in any of {survey.rows} rows{more}. Leave it "
            "out with features=."
        )
    raise DataError(
        f"{path}: column {first!r} holds nothing in {place}{more}; observations must be complete. "
        "Fill in the missing values or leave those rows out; or ask for impute=median (or mean), "
        "which fills in the median of the column, and the most frequent value of a category."
    )


class CsvTable:
    """Values separated by commas (by tabs in .tsv, by semicolons where there are no commas).

    The first line names the columns, unless it consists of numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as file:
            first = next(_lines(file, path), "")
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
        twice = [column for column, count in Counter(self.columns).items() if count > 1]
        if twice or "" in self.columns:
            raise DataError(
                f"{path}: {'two columns are' if twice else 'a column is'} called "
                f"{min(twice, default='')!r} in the first line. Give each column its own name."
            )
        self.at = {column: k for k, column in enumerate(self.columns)}

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(files.open_regular(self.path), encoding="utf-8-sig", newline="")

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        """The number of each line and its cells."""
        with self._open() as file:
            reader = csv.reader(_lines(file, self.path), delimiter=self._delimiter)
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

    def chunks(self, columns: Sequence[str]) -> Iterator["CsvChunk"]:
        """Some rows at a time; those of a .csv file have all columns."""
        lines = self.lines()
        while chunk := list(itertools.islice(lines, _step(self.columns))):
            yield CsvChunk(self.at, chunk)


class CsvChunk:
    """Some lines of a .csv file."""

    def __init__(self, at: Mapping[str, int], lines: list[tuple[int, list[str]]]) -> None:
        self._at, self._lines = at, lines

    def __len__(self) -> int:
        return len(self._lines)

    def place(self, row: int) -> str:
        return f"line {self._lines[row][0]}"

    def column(self, column: str) -> np.ndarray:
        """The cells of a column."""
        k = self._at[column]
        return np.array([cells[k].strip() for _, cells in self._lines])

    words = column

    def numbers(self, columns: Sequence[str]) -> np.ndarray:
        """Rows x columns, NaN where a cell is empty; ValueError where one is a word."""
        at = [self._at[column] for column in columns]
        whole = at == list(range(len(self._at)))
        rows = [cells if whole else [cells[k] for k in at] for _, cells in self._lines]
        try:
            return np.array(rows, dtype=np.float64).reshape(len(rows), len(at))
        except ValueError:
            filled = [["nan" if _is_missing(cell) else cell for cell in cells] for cells in rows]
            return np.array(filled, dtype=np.float64)

    def first_word(self, column: str) -> tuple[str, str] | None:
        """The first cell of a column that is neither a number nor empty, and its place."""
        k = self._at[column]
        for row, (_, cells) in enumerate(self._lines):
            if not _is_number(cells[k]) and not _is_missing(cells[k]):
                return cells[k].strip(), self.place(row)
        return None


class ParquetTable:
    """The columns of a .parquet file."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtra("data", "pyarrow", "files") from error
        files.require_regular(path)
        self.path = path
        self._file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
        self.columns = list(self._file.schema_arrow.names)
        # Equal rows take next to no space in the file.
        needed = 4 * self._file.metadata.num_rows * len(self.columns)
        if needed > LARGE:
            files.check_disk("data", datasets(), needed, path.name)

    def chunks(self, columns: Sequence[str]) -> Iterator["ParquetChunk"]:
        done = 0
        for batch in self._file.iter_batches(_step(self.columns), columns=list(columns)):
            yield ParquetChunk(batch, done)
            done += len(batch)


class ParquetChunk:
    """Some rows of a .parquet file."""

    def __init__(self, batch: Any, start: int) -> None:
        self._columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self._rows, self._start = len(batch), start

    def __len__(self) -> int:
        return self._rows

    def place(self, row: int) -> str:
        return f"row {self._start + row} (counting from 0)"

    def column(self, column: str) -> np.ndarray:
        """A column as numbers (missing ones as NaN) or words."""
        return _plain(self._columns[column])

    def words(self, column: str) -> np.ndarray:
        """The cells of a column as words; "" for a missing one."""
        cells = ["" if cell is None else str(cell) for cell in self._columns[column].to_pylist()]
        return np.array(["" if cell == "nan" else cell.strip() for cell in cells])

    def numbers(self, columns: Sequence[str]) -> np.ndarray:
        """Rows x columns, NaN where a cell is empty; ValueError for a column of words."""
        values = np.empty((self._rows, len(columns)))
        for k, column in enumerate(columns):
            cells = self.column(column)
            if cells.dtype.kind not in "biuf":
                raise ValueError(column)
            values[:, k] = cells
        return values

    def first_word(self, column: str) -> tuple[str, str] | None:
        """The first word of a column and its place, if it is a column of words."""
        if self.column(column).dtype.kind in "biuf":
            return None
        words = self.words(column)
        row = int(np.argmax(words != ""))
        return str(words[row]), self.place(row)


def _lines(file: io.TextIOWrapper, path: Path) -> Iterator[str]:
    """The lines of a file; one without end is refused before it fills the memory."""
    for line in iter(partial(file.readline, MOST_LINE), ""):
        if len(line) == MOST_LINE:
            raise DataError(
                f"{path}: a line has more than {MOST_LINE:,} characters. Is it a table, a row on "
                "each line? Save wide ones as arrays with np.save."
            )
        yield line


def _step(columns: list[str]) -> int:
    return max(1, CELLS // len(columns))


def _plain(column: Any) -> np.ndarray:
    """A column of a parquet file as numbers (missing ones as NaN) or words."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_boolean(column.type) and column.null_count:
        column = column.cast(pa.uint8())
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if any(
        test(column.type)
        for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    ):
        return cast(np.ndarray, column.to_numpy(zero_copy_only=False))
    if pa.types.is_null(column.type):  # nothing in any row
        return np.full(len(column), np.nan)
    return np.array(["" if word is None else str(word) for word in column.to_pylist()])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _not_a_number(path: Path, column: str, word: str, place: str) -> NoReturn:
    raise DataError(
        f"{path}: column {column!r} holds the word {word!r} in {place}, but mostly numbers. Is it "
        f"a typing error? Correct it; or use the column as a category (categories={column}) or as "
        f"a factor (factors={column}), or choose columns with features=."
    )

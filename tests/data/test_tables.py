"""Tables: categories, missing cells, wide files."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import zscope as zs
from zscope.data import tables
from zscope.errors import ConfigError, DataError

TABLE = "age,colour,dose\n20,red,0.1\n30,blue,0.2\n40,red,0.3\n50,green,0.4\n"
BOTH = pytest.mark.parametrize("kind", [".csv", ".parquet"])


def write(path, text=TABLE):
    if path.suffix == ".parquet":
        from pyarrow.csv import read_csv

        pq.write_table(read_csv(io.BytesIO(text.encode())), path)
    else:
        path.write_text(text)
    return path


@BOTH
def test_a_category_becomes_one_feature_for_each_value_in_its_place(tmp_path, kind):
    data = zs.data.load(write(tmp_path / f"x{kind}"))
    assert data.feature_names == ("age", "colour=blue", "colour=green", "colour=red", "dose")
    assert data.categories == {"colour": ["blue", "green", "red"]}
    expected = [[20, 0, 0, 1, 0.1], [30, 1, 0, 0, 0.2], [40, 0, 0, 1, 0.3], [50, 0, 1, 0, 0.4]]
    assert np.asarray(data.images) == pytest.approx(np.array(expected))


@BOTH
def test_numbers_are_a_category_by_request(tmp_path, kind):
    data = zs.data.load(write(tmp_path / f"x{kind}"), features="age,dose", categories="age")
    assert data.feature_names == ("age=20", "age=30", "age=40", "age=50", "dose")
    assert np.asarray(data.images)[:, :4].tolist() == np.eye(4).tolist()


def test_a_word_among_numbers_is_a_typing_error_with_its_line(tmp_path):
    lines = [f"{k},{k}" for k in range(9)]
    path = write(tmp_path / "x.csv", "\n".join(["a,b", *lines, "10,1o"]))
    with pytest.raises(DataError, match=r"'b' holds the word '1o' in line 11.*categories=b"):
        zs.data.load(path)


@BOTH
def test_identifiers_are_no_category(tmp_path, kind):
    lines = [f"{k},person{k}" for k in range(101)]
    path = write(tmp_path / f"x{kind}", "\n".join(["a,name", *lines]))
    with pytest.raises(DataError, match=r"'name' holds 101 different words.*features="):
        zs.data.load(path)
    path = write(tmp_path / f"x{kind}", "\n".join(["a,name", *lines[:100]]))
    assert zs.data.load(path).shape == (101,)


GAPS = "age,colour\n20,red\n,blue\n40,red\n90,\n"


@BOTH
def test_missing_cells_are_refused_with_their_place_and_number(tmp_path, kind):
    place = "line 3" if kind == ".csv" else "row 1"
    path = write(tmp_path / f"x{kind}", GAPS)
    with pytest.raises(DataError, match=rf"'age' holds nothing in {place}.*2 cells of 2 columns"):
        zs.data.load(path)


@BOTH
@pytest.mark.parametrize(("how", "filled"), [("median", 40), ("mean", 50)])
def test_missing_cells_are_imputed_by_request(tmp_path, kind, how, filled):
    data = zs.data.load(write(tmp_path / f"x{kind}", GAPS), impute=how)
    assert np.asarray(data.images)[:, 0].tolist() == [20, filled, 40, 90]
    assert np.asarray(data.images)[3, 1:].tolist() == [0, 1]  # red, the most frequent
    # A later table gets the same values, also where this one had no gap.
    later = write(tmp_path / f"later{kind}", "age,colour\n10,blue\n,blue\n")
    fill = json.loads(json.dumps(data.recipe))["options"]["impute"]
    assert np.asarray(zs.data.load(later, impute=fill).images)[1, 0] == filled
    other = write(tmp_path / f"other{kind}", "age,colour\n10,blue\n11,\n")
    assert zs.data.load(other, impute=fill).feature_names == ("age", "colour=blue", "colour=red")


def test_other_ways_to_impute_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="impute='zero'; expected median or mean"):
        zs.data.load(write(tmp_path / "x.csv", GAPS), impute="zero")


def test_a_column_without_values_cannot_be_imputed(tmp_path):
    path = write(tmp_path / "x.csv", "a,b\n1,\n2,\n")
    with pytest.raises(DataError, match=r"'b' holds nothing in any of 2 rows.*features="):
        zs.data.load(path, impute="mean")


def test_words_and_gaps_are_found_across_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CELLS", 4)  # two rows at a time
    path = write(tmp_path / "x.csv", "a,b\n1,1\n2,2\n3,x\n4,y\n,x\n6,y\n")
    data = zs.data.load(path, impute="median")
    assert data.categories == {"b": ["1", "2", "x", "y"]}
    assert np.asarray(data.images)[:, 0].tolist() == [1, 2, 3, 4, 3, 6]


def test_a_wide_table_costs_a_few_looks_at_each_name(tmp_path, monkeypatch):
    """With 60,000 columns, comparing each name with all others would take 3.6e9 looks."""
    looks = 0

    class Name(str):
        def strip(self):
            return self

        def __eq__(self, other):
            nonlocal looks
            looks += 1
            return str.__eq__(self, other)

        def __hash__(self):
            nonlocal looks
            looks += 1
            return str.__hash__(self)

    class Names:
        """The csv module, with names that count how often they are looked at."""

        @staticmethod
        def reader(lines, **options):
            return ([Name(c) for c in cells] for cells in csv.reader(lines, **options))

    width = 1000
    path = tmp_path / "wide.csv"
    rows = [",".join(f"gene{k}" for k in range(width)), *[",".join(["1.5"] * width)] * 2]
    path.write_text("\n".join(rows))
    with monkeypatch.context() as patched:
        patched.setattr(tables, "csv", Names)
        table = tables.CsvTable(path)
    monkeypatch.setattr(tables, "open_table", lambda path: table)
    assert all(type(column) is Name for column in table.columns)
    assert zs.data.load(path).shape == (width,)
    assert len(tables.table_columns(path)) == width
    assert looks < 50 * width

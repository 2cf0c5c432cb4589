"""Files of codes, variances and factors as named columns."""

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zscope.data.columns import array_names, factor_table, numbers, read_columns
from zscope.errors import ConfigError, DataError

CODES = np.random.default_rng(0).normal(size=(6, 3))
FACTORS = np.array([[0, 3], [1, 5], [2, 3], [0, 5], [1, 3], [2, 5]])


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name, text):
    with open(name, "w") as file:
        file.write(text)
    return name


def write_h5(name, **arrays):
    with h5py.File(name, "w") as file:
        for label, values in arrays.items():
            file[label] = values


def test_every_kind_of_file_gives_the_same_codes():
    np.save("codes.npy", CODES)
    np.savez("named.npz", codes=CODES, factors=FACTORS)
    np.savez_compressed("unnamed.npz", CODES)
    np.savetxt("codes.csv", CODES, delimiter=",")
    np.savetxt("codes.tsv", CODES, delimiter="\t", header="a\tb\tc", comments="")
    pq.write_table(pa.table({f"z{k}": CODES[:, k] for k in range(3)}), "codes.parquet")
    write_h5("codes.h5", codes=CODES, factors=FACTORS)
    expected = {
        "codes.npy": ["0", "1", "2"],
        "named.npz": ["0", "1", "2"],
        "unnamed.npz": ["0", "1", "2"],
        "codes.h5": ["0", "1", "2"],
        "codes.csv": ["column0", "column1", "column2"],
        "codes.tsv": ["a", "b", "c"],
        "codes.parquet": ["z0", "z1", "z2"],
    }
    for file, names in expected.items():
        columns = read_columns(file)
        assert list(columns) == names
        assert numbers(columns, file) == pytest.approx(CODES, abs=1e-12)


def test_every_kind_of_file_gives_the_same_factors():
    names = np.array(["shape", "size"])
    shapes = np.array(["cube", "ball", "disk"])[FACTORS[:, 0]]
    np.savez("numbers.npz", codes=CODES, factors=FACTORS, factor_names=names)
    np.savez("words.npz", factors=np.column_stack([shapes, FACTORS[:, 1]]), factor_names=names)
    write_h5("words.h5", factors=np.column_stack([shapes, FACTORS[:, 1]]).astype("S"))
    write(
        "words.csv",
        "shape,size\n" + "".join(f"{a},{b}\n" for a, b in zip(shapes, FACTORS[:, 1], strict=True)),
    )
    pq.write_table(pa.table({"shape": shapes, "size": FACTORS[:, 1]}), "words.parquet")
    table = factor_table(read_columns("numbers.npz", role="factors"))
    assert table.names == ("shape", "size")
    assert np.array_equal(table.values, FACTORS)
    assert table.kinds == (None, None)  # not stated: whoever needs them has to guess
    for file in ("words.npz", "words.csv", "words.parquet", "words.h5"):
        table = factor_table(read_columns(file, role="factors"))
        assert table.names == (("0", "1") if file == "words.h5" else ("shape", "size"))
        assert table.values[:, 0].tolist() == [1, 0, 2, 1, 0, 2]  # alphabetical
        assert table.values[:, 1].tolist() == FACTORS[:, 1].tolist()
        assert table.values.dtype == np.float64
        assert table.kinds == ("categorical", None)
        assert table.categories == {table.names[0]: ["ball", "cube", "disk"]}


def test_the_names_of_arrays_say_whether_a_file_holds_both():
    np.savez("both.npz", codes=CODES, factors=FACTORS)
    np.save("codes.npy", CODES)
    assert array_names("both.npz") == ["codes", "factors"]
    assert array_names("codes.npy") == []


def test_the_only_array_of_a_file_is_not_taken_for_codes_and_factors_alike():
    np.savez("factors.npz", factors=FACTORS)
    np.savez("empty.npz")
    np.savez("odd.npz", first=np.ones(3), second=np.ones(3))
    np.savez("one.npz", positions=np.ones(3))
    with pytest.raises(DataError, match="holds factors, and which of them are the codes is not"):
        read_columns("factors.npz")
    with pytest.raises(DataError, match="holds no array"):
        read_columns("empty.npz", role="factors")
    with pytest.raises(DataError, match="holds first, second.*variances is not clear.*np.savez"):
        read_columns("odd.npz", role="variances")
    assert list(read_columns("one.npz")) == list(read_columns("one.npz", role="factors")) == ["0"]


def test_kinds_can_be_stated_for_all_for_each_or_by_name():
    columns = {"dose": np.array([0.5, 0.1, 0.5]), "plate": np.array([1, 2, 1])}
    assert factor_table(columns).kinds == (None, None)
    assert factor_table(columns, "ordinal").kinds == ("ordinal", "ordinal")
    assert factor_table(columns, ["continuous", "ordinal"]).kinds == ("continuous", "ordinal")
    assert factor_table(columns, "plate=categorical").kinds == (None, "categorical")
    stated = factor_table(columns, "dose=ordinal")
    assert stated.values[:, 0].tolist() == [1, 0, 1]
    assert stated.categories == {"dose": [0.1, 0.5]}
    with pytest.raises(ConfigError, match=r"x.csv: 3 kinds for 2 factors \(dose, plate\)"):
        factor_table(columns, "ordinal,ordinal,ordinal", name="x.csv")
    with pytest.raises(ConfigError, match="word is continuous, but it holds words such as 'a'"):
        factor_table({"word": np.array(["a", "b"])}, "continuous")


@pytest.mark.parametrize("marker", ["NA", " n/a", "?", "None", "null", "-"])
def test_a_mark_for_a_missing_number_is_no_category(marker):
    write("sizes.csv", f"size\n1\n2\n{marker}\n4\n")
    for role in ("factors", "codes"):
        with pytest.raises(DataError, match=r"^sizes.csv: no value of size in row 2"):
            read_columns("sizes.csv", role=role)
    write("hats.csv", "hat\nbowler\nnone\nbowler\n")
    assert factor_table(read_columns("hats.csv")).categories == {"hat": ["bowler", "none"]}


@pytest.mark.parametrize("text", ["shape,size\na,1\n,2\n", "shape,size\na,1\nb,\n"])
def test_empty_cells_are_refused_with_their_row(text):
    with pytest.raises(DataError, match=r"gaps.csv: no value of (shape|size) in row 1"):
        read_columns(write("gaps.csv", text), role="factors")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_factors_that_are_not_finite_are_refused_with_their_row(value):
    np.save("factors.npy", np.array([[0.0, 1.0], [0.0, value]]))
    with pytest.raises(DataError, match=f"^f: factor 1 is {value} in row 1 .*Leave out"):
        factor_table(read_columns("factors.npy", role="factors"), name="f")


def test_words_are_no_codes():
    columns = read_columns(write("words.csv", "size,shape\n1,a\n2,b\n"))
    with pytest.raises(DataError, match="^words.csv: column shape.*'a'.*CODES FACTORS"):
        numbers(columns, "words.csv")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((5, 5, 5)), r"got shape \(5, 5, 5\).*reshape"),
        (np.float64(1), r"got shape \(\)"),
        (np.ones((3, 2), complex), "complex128 are not single numbers"),
        (np.zeros(3, [("a", "f4"), ("b", "i4")]), "are not single numbers"),
        (np.array([1, "a", None], dtype=object), "pickled Python objects"),
        (np.ones((3, 0)), "no samples"),
    ],
)
def test_arrays_of_other_forms_are_refused(array, message):
    np.save("x.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=f"^x.npy: .*{message}"):
        read_columns("x.npy")


def test_names_must_fit_the_factors():
    np.savez("few.npz", factors=FACTORS, factor_names=np.array(["shape"]))
    with pytest.raises(DataError, match=r"few.npz: 1 names \(shape\) for 2 columns"):
        read_columns("few.npz", role="factors")
    np.savez("twice.npz", factors=FACTORS, factor_names=np.array(["shape", "shape"]))
    with pytest.raises(DataError, match=r"twice.npz: some of the 2 names .* its own name"):
        read_columns("twice.npz", role="factors")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".csv", ".parquet"])
def test_files_that_cannot_be_read_are_refused_in_one_line(suffix):
    name = f"x{suffix}"
    with pytest.raises(DataError, match=f"^{name}: there is no such file"):
        read_columns(name)
    write(name, "")
    with pytest.raises(DataError, match=f"^{name}: the file is empty"):
        read_columns(name)
    with open(name, "wb") as file:
        file.write(b"\x80\x02 something\nelse\xff" * 50)
    with pytest.raises(DataError, match=f"^{name}: cannot be read as {suffix}") as caught:
        read_columns(name)
    assert "\n" not in str(caught.value)


def test_other_suffixes_and_tables_without_rows_are_refused():
    with pytest.raises(DataError, match=r"a file ending in .txt cannot .*expected .npy.*\.parquet"):
        read_columns(write("codes.txt", "1 2 3"))
    with pytest.raises(DataError, match="2 columns but no rows"):
        read_columns(write("x.csv", "a,b\n"))

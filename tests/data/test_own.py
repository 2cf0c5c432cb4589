"""One's own arrays, tables and pictures."""

import io
import pickle
import subprocess
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import zscope.data
from zscope.data import own, unpacking
from zscope.data.own import Float32Rows, load_path
from zscope.errors import ConfigError, DataError


@pytest.fixture
def draw():
    return np.random.default_rng(0)


# Arrays


@pytest.mark.parametrize("shape", [(20, 5), (20, 8, 8), (20, 3, 8, 8), (20, 8, 8, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int16, bool])
def test_a_npy_file_of_any_usual_layout_and_type(tmp_path, draw, shape, dtype):
    values = draw.integers(0, 2 if dtype is bool else 200, shape).astype(dtype)
    np.save(tmp_path / "x.npy", values)
    data = load_path(tmp_path / "x.npy")
    same = zscope.data.from_arrays(values)  # the same arrangement, from memory
    assert data.shape == same.shape
    assert data.images.dtype == same.images.dtype
    assert np.array_equal(data.images[:], same.images)


def test_bytes_and_float32_stay_memory_maps_of_the_file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((5, 3, 8, 8), np.uint8))
    np.save(tmp_path / "b.npy", np.zeros((5, 4), np.float32))
    for name in ("a.npy", "b.npy"):
        assert isinstance(load_path(tmp_path / name).images, np.memmap)


def test_a_path_can_be_given_in_place_of_a_name(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.eye(3, dtype=np.float32))
    monkeypatch.chdir(tmp_path)
    data = zscope.data.load("x.npy")
    assert data.recipe == {"name": str(tmp_path / "x.npy"), "options": {}}
    again = zscope.data.from_recipe(data.recipe)
    assert np.array_equal(again.images, np.eye(3))
    with pytest.raises(ConfigError, match=r"x.npy has no option 'factor'. Did you mean factors"):
        zscope.data.load("x.npy", factor="a")


def test_a_second_npy_file_holds_the_factors(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    np.save(tmp_path / "y.npy", np.array([[0, 0.5], [1, 0.1], [0, 0.3], [1, 0.2]]))
    data = load_path(tmp_path / "x.npy", factors="y.npy", names="side,dose")
    assert data.factor_names == ("side", "dose")
    assert data.factor_kinds == ("categorical", "continuous")
    assert data.factor_sizes == (2, 0)
    with pytest.raises(ConfigError, match=r"the path of another .npy"):
        load_path(tmp_path / "x.npy", factors="side")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("name", ["images", "imgs", "x", "data", "arr_0", "my_only_table"])
def test_an_npz_file_with_usual_names(tmp_path, draw, save, name):
    values = draw.integers(0, 256, (6, 4, 4), dtype=np.uint8)
    save(tmp_path / "x.npz", **{name: values})
    data = load_path(tmp_path / "x.npz")
    assert np.array_equal(data.images[:, 0], values)
    assert data.factors is None


@pytest.mark.parametrize("kind", ["npz", "h5"])
def test_files_of_arrays_may_hold_factors_and_their_names(tmp_path, draw, kind):
    path = tmp_path / f"x.{kind}"
    arrays = {
        "images": draw.normal(size=(6, 4)),
        "factors": np.array([[0, 1], [1, 1], [2, 1], [0, 3], [1, 3], [0, 9]]),
    }
    if kind == "npz":
        np.savez(path, **arrays, factor_names=np.array(["shape", "size"]))
    else:
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
            file["factor_names"] = ["shape", "size"]
    data = load_path(path, kinds="shape=categorical")
    assert data.images[:] == pytest.approx(arrays["images"])
    assert np.array_equal(data.factors, arrays["factors"])
    assert data.factor_names == ("shape", "size")
    assert data.factor_kinds == ("categorical", "categorical")
    assert data.factor_sizes == (3, 3)  # an incomplete grid: 6 of 9 combinations


def test_files_of_arrays_may_name_the_features(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 2)), feature_names=np.array(["height", "width"]))
    assert load_path(tmp_path / "x.npz").feature_names == ("height", "width")
    np.savez(tmp_path / "y.npz", x=np.zeros((4, 3)), feature_names=np.array(["height", "width"]))
    with pytest.raises(DataError, match=r"2 feature names for observations of shape \(3,\)"):
        load_path(tmp_path / "y.npz")


def test_one_column_of_labels_is_named_after_its_array(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 2)), y=np.array(["b", "a", "b", "c"]))
    data = load_path(tmp_path / "x.npz")
    assert data.factor_names == ("y",)
    assert data.factor_kinds == ("categorical",)
    assert data.factors[:, 0].tolist() == [1, 0, 1, 2]
    assert data.factor_labels == {"y": ["a", "b", "c"]}


def test_several_arrays_can_be_named_as_factors(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2)), a=[0, 1, 2], b=[0.5, 0.1, 0.2])
    data = load_path(tmp_path / "x.npz", factors="a,b")
    assert data.factor_names == ("a", "b")
    assert data.factor_kinds == ("categorical", "continuous")


def test_an_uncompressed_npz_is_read_in_place(tmp_path, draw):
    values = draw.normal(size=(50, 7)).astype(np.float32)
    np.savez(tmp_path / "x.npz", first=np.zeros(3), images=values)
    images = load_path(tmp_path / "x.npz").images
    assert isinstance(images, np.memmap)
    assert str(images.filename) == str(tmp_path / "x.npz")
    assert np.array_equal(images, values)


@pytest.mark.parametrize("options", [{}, {"chunks": (3, 4), "compression": "gzip"}])
def test_hdf5_in_either_storage(tmp_path, draw, options):
    values = draw.normal(size=(10, 4)).astype(np.float32)
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file.create_dataset("images", data=values, **options)
        file["labels"] = np.arange(10) % 3
    data = load_path(tmp_path / "x.hdf5")
    assert np.array_equal(data.images, values)
    assert data.factor_sizes == (3,)
    assert isinstance(data.images, np.memmap) == (not options)


def test_which_array_is_meant_can_be_said_and_must_be_if_unclear(tmp_path):
    np.savez(tmp_path / "x.npz", one=np.zeros((3, 2)), two=np.ones((3, 4)))
    with pytest.raises(DataError, match=r"one \(3, 2\), two \(3, 4\); which .* array=NAME"):
        load_path(tmp_path / "x.npz")
    assert load_path(tmp_path / "x.npz", array="two").shape == (4,)
    with pytest.raises(ConfigError, match="array='three', but the file holds one"):
        load_path(tmp_path / "x.npz", array="three")


@pytest.mark.parametrize("kind", ["npz", "h5"])
def test_large_packed_arrays_are_written_once_to_a_memory_map(tmp_path, draw, monkeypatch, kind):
    for module in (own, unpacking, zscope.data.arrays):
        monkeypatch.setattr(module, "LARGE", 1000)
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path / "cache"))
    values = draw.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    path = tmp_path / f"x.{kind}"
    if kind == "npz":
        np.savez_compressed(path, images=values)
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("images", data=values, compression="gzip")
    images = load_path(path).images
    assert isinstance(images, np.memmap)
    assert np.array_equal(images[:, 0], values)
    (cached,) = (tmp_path / "cache" / "own").iterdir()
    before = cached.stat().st_mtime_ns
    load_path(path)
    assert cached.stat().st_mtime_ns == before


# Numbers that are not bytes


def test_rows_are_converted_when_they_are_read(draw):
    values = draw.normal(size=(10, 3))
    real = Float32Rows(values, "x")
    assert real.dtype == np.float32
    assert real.shape == (10, 3)
    assert len(real) == 10
    for rows in (slice(2, 5), np.array([7, 1, 1]), np.arange(10) > 6, 4, -1):
        assert np.array_equal(real[rows], values[rows].astype(np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize(
    "rows",
    [slice(None), slice(5, 10), slice(None, None, -1), np.array([0, 7]), np.arange(10) == 7, 7, -3],
    ids=str,
)
def test_numbers_that_are_not_finite_are_refused_with_their_row(value, rows):
    values = np.zeros((10, 3))
    values[7, 1] = value
    with pytest.raises(DataError, match=r"x.npy: .* in row 7 \(counting from 0\)"):
        Float32Rows(values, "x.npy")[rows]
    assert Float32Rows(values, "x.npy")[:7].shape == (7, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_small_files_are_checked_at_once_large_ones_when_read(tmp_path, monkeypatch, dtype):
    values = np.zeros((1000, 4), dtype)
    values[123, 2] = np.nan
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(DataError, match=r"x.npy: nan in row 123"):
        load_path(tmp_path / "x.npy")
    monkeypatch.setattr(own, "LARGE", 1000)
    data = load_path(tmp_path / "x.npy")
    assert data.batch(slice(0, 123)).shape == (123, 4)
    with pytest.raises(DataError, match=r"x.npy: nan in row 123"):
        data.batch(np.array([5, 123]))
    with pytest.raises(DataError, match=r"x.npy: nan in row 123"):
        data.subset(np.arange(100, 200)).batch(np.array([22, 23]))


MEASURE = """
import sys
import numpy as np
import zscope.data

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024

data = zscope.data.load(sys.argv[1])
zscope.data.load(sys.argv[1]).batch(slice(0, 1024))
before, peak, rows = anonymous(), 0, np.random.default_rng(0).permutation(len(data))
for start in range(0, len(data), 1024):
    data.batch(slice(start, start + 1024))
    data.batch(np.sort(rows[start : start + 256]))
    peak = max(peak, anonymous())
print(len(data), peak - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc to measure memory")
@pytest.mark.slow
def test_a_large_file_of_doubles_is_never_converted_as_a_whole(tmp_path):
    path = tmp_path / "large.npy"
    # 600 MB that take no room on disk; converted at once they would take 300 MB of memory.
    np.lib.format.open_memmap(path, "w+", np.float64, (75_000, 1000)).flush()
    assert path.stat().st_size > 600e6
    process = subprocess.run(
        [sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True
    )
    rows, growth = process.stdout.split()
    assert int(rows) == 75_000
    assert float(growth) < 60  # MB


# Tables

TABLE = "a,b,dose,plate\n1,2.5,0.1,x\n3,4,0.2,y\n5,-6e1,0.1,x\n"


def write_parquet(path, text=TABLE):
    from pyarrow import csv

    pq.write_table(csv.read_csv(io.BytesIO(text.encode())), path)


def write_table(path, text=TABLE):
    if path.suffix == ".parquet":
        write_parquet(path, text)
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_columns_are_features_except_the_factors(tmp_path, kind):
    data = load_path(write_table(tmp_path / f"x{kind}"), factors="dose,plate")
    assert data.images.dtype == np.float32
    assert data.images.tolist() == [[1, 2.5], [3, 4], [5, -60]]
    assert data.factor_names == ("dose", "plate")
    assert data.factor_kinds == ("continuous", "categorical")
    assert data.factors[:, 0] == pytest.approx([0.1, 0.2, 0.1])
    assert data.factors[:, 1].tolist() == [0, 1, 0]
    assert data.factor_labels == {"plate": ["x", "y"]}
    assert data.feature_names == ("a", "b")


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_numbers_that_are_not_whole_can_be_ordinal(tmp_path, kind):
    path = write_table(tmp_path / f"x{kind}")
    data = load_path(path, factors=["dose"], features=["b"], kinds="ordinal")
    assert data.images.tolist() == [[2.5], [4], [-60]]
    assert data.factors[:, 0].tolist() == [0, 1, 0]
    assert data.factors.dtype == np.int64
    assert data.factor_labels == {"dose": [0.1, 0.2]}
    assert data.factor_sizes == (2,)


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_unknown_columns_get_the_nearest_known_ones(tmp_path, kind):
    path = write_table(tmp_path / f"x{kind}")
    with pytest.raises(
        ConfigError, match=r"'plates', but there is no such column. Did you mean plate"
    ):
        load_path(path, factors="plates")
    with pytest.raises(ConfigError, match="all 4 columns are factors"):
        load_path(path, factors="a,b,dose,plate")
    with pytest.raises(ConfigError, match="plate is continuous, but it holds words such as 'x'"):
        load_path(path, factors="plate", features="a", kinds="continuous")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", r"line 3 has 1 values, the first has 2"),
        ("a,b\n1,2\n3,\n", r"column 'b' holds nothing in line 3"),
        ("a,b\n1,2\n3,nan\n", r"column 'b' holds nothing in line 3"),
        ("a,a\n1,2\n", r"two columns are called 'a'"),
        ("a,b\n", r"2 columns but no rows"),
    ],
)
def test_faulty_lines_are_named(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load_path(write_table(tmp_path / "x.csv", text))


def test_missing_factors_are_refused_with_their_row(tmp_path):
    for kind in (".csv", ".parquet"):
        path = write_table(tmp_path / f"x{kind}", "a,f,g\n1,u,1\n2,,\n3,v,3\n")
        with pytest.raises(DataError, match=r"no value of [fg] in row 1|is nan in row 1"):
            load_path(path, factors="f", features="a")
        with pytest.raises(DataError, match=r"no value of [fg] in row 1|is nan in row 1"):
            load_path(path, factors="g", features="a")


def test_missing_numbers_in_a_parquet_file_are_refused_with_their_row(tmp_path):
    pq.write_table(pa.table({"a": [1, None, 3], "b": [1.0, 2.0, 3.0]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"'a' holds nothing in row 1 \(counting from 0\)"):
        load_path(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", "1,2\n3,4\n"),
        ("x.tsv", "a\tb\n1\t2\n3\t4\n"),
        ("x.csv", "a;b\n1;2\n3;4\n"),
        ("x.csv", '\ufeff"a","b"\r\n1,2\r\n\r\n3,4\r\n'),
    ],
)
def test_usual_dialects_of_tables(tmp_path, name, text):
    (tmp_path / name).write_bytes(text.encode())
    assert load_path(tmp_path / name).images.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_large_tables_become_memory_maps(tmp_path, draw, monkeypatch, kind):
    from zscope.data import tables

    monkeypatch.setattr(tables, "LARGE", 1000)
    monkeypatch.setattr(tables, "CELLS", 256)
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path / "cache"))
    values = draw.normal(size=(500, 3)).round(3)
    text = "a,b,c,d\n" + "\n".join(f"{a},{b},{c},{k % 7}" for k, (a, b, c) in enumerate(values))
    path = write_table(tmp_path / f"x{kind}", text)
    for _ in range(2):  # made, then found
        data = load_path(path, factors="d")
        assert isinstance(data.images, np.memmap)
        assert data.images[:] == pytest.approx(values.astype(np.float32))
        assert data.factors[:, 0].tolist() == [k % 7 for k in range(500)]


# Pictures


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def test_a_folder_of_pictures_in_the_order_of_their_names(tmp_path, draw):
    pixels = draw.integers(0, 256, (3, 6, 8, 3), dtype=np.uint8)
    for name, picture in zip(("b.png", "c.bmp", "a.png"), pixels, strict=True):
        save(tmp_path / name, picture)
    (tmp_path / "notes.txt").write_text("not a picture")
    data = load_path(tmp_path)
    assert data.images.dtype == np.uint8
    assert np.array_equal(data.images, pixels[[2, 0, 1]].transpose(0, 3, 1, 2))
    assert data.factors is None


def test_sub_folders_are_classes(tmp_path, draw):
    for name in ("cats/1.png", "cats/more/2.png", "dogs/1.png"):
        save(tmp_path / name, draw.integers(0, 256, (4, 4), dtype=np.uint8))
    data = zscope.data.load(str(tmp_path))
    assert data.shape == (1, 4, 4)
    assert data.factors[:, 0].tolist() == [0, 0, 1]
    assert data.factor_names == ("class",)
    assert data.factor_kinds == ("categorical",)
    assert data.factor_labels == {"class": ["cats", "dogs"]}
    save(tmp_path / "stray.png", np.zeros((4, 4), np.uint8))
    with pytest.raises(DataError, match="1 pictures are next to sub-folders with 3 more"):
        load_path(tmp_path)


def test_pictures_of_several_sizes_need_a_resolution(tmp_path):
    wide = np.zeros((10, 30), np.uint8)
    wide[:, 10:20] = 200
    save(tmp_path / "a.png", wide)
    save(tmp_path / "b.png", np.full((20, 20), 100, np.uint8))
    with pytest.raises(DataError, match=r"2 sizes.*a.png 30 x 10 and b.png 20 x 20.*resolution"):
        load_path(tmp_path)
    data = load_path(tmp_path, resolution=5)
    assert data.shape == (1, 5, 5)
    assert (data.images[0] == 200).all()  # the middle square of the wide one
    assert (data.images[1] == 100).all()


def test_grey_and_colour_together_become_colour_and_transparency_goes(tmp_path):
    save(tmp_path / "a.png", np.full((2, 2), 7, np.uint8))
    save(tmp_path / "b.png", np.full((2, 2, 4), 9, np.uint8))
    data = load_path(tmp_path)
    assert data.shape == (3, 2, 2)
    assert (data.images[0] == 7).all()
    assert (data.images[1] == 9).all()


def test_sixteen_bits_are_scaled_not_cut_off(tmp_path):
    save(tmp_path / "a.png", np.array([[0, 256, 65535]], np.uint16))
    assert load_path(tmp_path).images.ravel().tolist() == [0, 1, 255]


def test_photographs_are_turned_as_their_camera_says(tmp_path):
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[:, 3] = 255
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned by a quarter clockwise
    save(tmp_path / "a.png", pixels, exif=turned)
    data = load_path(tmp_path)
    assert data.shape == (3, 4, 2)
    assert (data.images[0, :, 3] == 255).all()
    assert (data.images[0, :, :3] == 0).all()


def test_large_folders_become_memory_maps(tmp_path, draw, monkeypatch):
    from zscope.data import pictures

    monkeypatch.setattr(pictures, "LARGE", 100)
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path / "cache"))
    for k in range(5):
        save(tmp_path / "p" / f"{k}.png", np.full((6, 6), k, np.uint8))
    assert isinstance(load_path(tmp_path / "p").images, np.memmap)
    save(tmp_path / "p" / "2.png", np.full((6, 6), 99, np.uint8))
    assert load_path(tmp_path / "p").images[:, 0, 0, 0].tolist() == [0, 1, 99, 3, 4]


@pytest.mark.parametrize("large", [False, True])
def test_arrays_of_pictures_can_be_resized(tmp_path, draw, monkeypatch, large):
    if large:
        monkeypatch.setattr(own, "LARGE", 100)
        monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path / "cache"))
    pixels = draw.integers(0, 256, (4, 1, 8, 8), dtype=np.uint8)
    for name, values in (("a.npy", pixels), ("b.npy", pixels.astype(np.float64))):
        np.save(tmp_path / name, values)
        data = load_path(tmp_path / name, resolution=16)
        assert data.shape == (1, 16, 16)
        assert isinstance(data.images, np.memmap) == large
        expected = torch.nn.functional.interpolate(
            torch.from_numpy(pixels).float(), (16, 16), mode="bilinear"
        )
        assert np.abs(data.images[:].astype(float) - expected.numpy()).max() < 0.51
    np.save(tmp_path / "rows.npy", np.zeros((4, 3)))
    with pytest.raises(ConfigError, match="rows of 3 numbers, not pictures"):
        load_path(tmp_path / "rows.npy", resolution=16)


# What cannot be read


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".csv", ".tsv", ".parquet"])
def test_missing_empty_and_damaged_files_are_errors_that_say_so(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    with pytest.raises(DataError, match="there is no such file or folder"):
        load_path(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"empty \(0 bytes\)"):
        load_path(path)
    path.write_bytes(b"\x80\x02 this is, something\nelse\xff" * 50)
    with pytest.raises(DataError, match=f"x{suffix}: "):
        load_path(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".parquet"])
def test_cut_files_are_refused(tmp_path, draw, suffix):
    path, values = tmp_path / f"x{suffix}", draw.normal(size=(500, 4))
    if suffix == ".npy":
        np.save(path, values)
    elif suffix == ".npz":
        np.savez_compressed(path, images=values)
    elif suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["images"] = values
    else:
        pq.write_table(pa.table({"a": values[:, 0], "b": values[:, 1]}), path)
    load_path(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(DataError, match="cannot be read as|should have 16,000 bytes"):
        load_path(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickled_objects_are_never_opened(tmp_path, suffix):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was opened",))

    objects = np.array([Trap(), 1], dtype=object)
    if suffix == ".npy":
        np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    else:
        np.savez(tmp_path / "x.npz", images=objects)
    with pytest.raises(DataError, match="pickled Python objects"):
        load_path(tmp_path / f"x{suffix}")
    (tmp_path / "y.npy").write_bytes(pickle.dumps([1, 2, 3]))
    with pytest.raises(DataError, match=r"cannot be read as .npy"):
        load_path(tmp_path / "y.npy")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((0, 4)), "no samples"),
        (np.zeros((4, 0)), "no samples"),
        (np.float64(3.0), "shape \\(\\); expected samples x features"),
        (np.zeros(4), "expected samples x features"),
        (np.zeros((2, 2, 2, 2, 2, 2)), "expected pictures"),
        (np.array(["a", "b"]), "are not numbers"),
        (np.zeros((3, 2), complex), "are not numbers"),
        (np.zeros((3, 2, 5, 2), [("r", "u1"), ("g", "u1")]), "are not numbers"),
    ],
)
def test_arrays_of_no_use_are_refused(tmp_path, values, message):
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(DataError, match=message):
        load_path(tmp_path / "x.npy")


def test_other_suffixes_and_folders_without_pictures_are_refused(tmp_path):
    (tmp_path / "x.mat").write_text("something")
    with pytest.raises(
        DataError, match=r"a file ending in .mat cannot be read.*a folder of pictures"
    ):
        load_path(tmp_path / "x.mat")
    with pytest.raises(DataError, match=r"no pictures in this folder .*\(which hold x.mat\)"):
        load_path(tmp_path)
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"broken.png: cannot be read as a picture"):
        load_path(tmp_path)


def test_a_whole_disk_is_no_folder_of_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr("zscope.data.pictures.OTHERS", 20)
    for k in range(30):
        (tmp_path / f"{k}.txt").touch()
    (tmp_path / "one.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"1 pictures among the first 32 .*whole disk.*Give the"):
        load_path(tmp_path)
    for k in range(3):  # more than a tenth: pictures with other files beside them
        (tmp_path / f"{k}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"0.png: cannot be read as a picture"):
        load_path(tmp_path)


def test_factors_that_do_not_fit_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), y=np.zeros(4))
    with pytest.raises(DataError, match=r"factors of shape \(4, 1\) for 3 samples"):
        load_path(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.zeros((3, 2)), y=np.zeros((3, 2)))
    with pytest.raises(ConfigError, match=r"1 names \(one\) for 2 factors"):
        load_path(tmp_path / "b.npz", names="one")
    with pytest.raises(ConfigError, match="3 kinds for 2 factors"):
        load_path(tmp_path / "b.npz", kinds="ordinal,ordinal,ordinal")
    with pytest.raises(ConfigError, match=r"kind of factor0 is 'ordnal'. Did you mean ordinal"):
        load_path(tmp_path / "b.npz", kinds="factor0=ordnal")
    with pytest.raises(ConfigError, match="kinds names 'shape'"):
        load_path(tmp_path / "b.npz", kinds={"shape": "ordinal"})
    np.save(tmp_path / "c.npy", np.zeros((3, 2)))
    with pytest.raises(ConfigError, match="kinds are given, but there are no factors"):
        load_path(tmp_path / "c.npy", kinds="ordinal")
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2)), y=[0.0, np.nan, 1.0])
    with pytest.raises(DataError, match="factor y is nan in row 1"):
        load_path(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("x.npy", {"array": "a"}, "array='a' does not apply to .npy"),
        ("x.npy", {"features": "a"}, "features='a' does not apply to .npy"),
        ("x.npy", {"factors": "a.npy,b.npy"}, "2 files of factors"),
        ("x.npz", {"features": "a"}, "does not apply to .npz"),
        ("x.npz", {"names": "a,a"}, "not all different"),
    ],
)
def test_what_would_be_passed_over_is_refused(tmp_path, file, options, message):
    x, y = np.zeros((4, 3), np.float32), np.arange(8).reshape(4, 2)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", images=x, factors=y)
    with pytest.raises(ConfigError, match=message):
        load_path(tmp_path / file, **options)


def test_factors_of_one_name_do_not_hide_each_other(tmp_path):
    x, y = np.zeros((4, 3), np.float32), np.arange(8).reshape(4, 2)
    np.savez(tmp_path / "x.npz", images=x, factors=y, factor_names=["a", "a"])
    with pytest.raises(DataError, match="its own name"):
        load_path(tmp_path / "x.npz")
    with pytest.raises(DataError, match="several of them called 'a'.*its own name"):
        zscope.data.from_arrays(x, y, factor_names=("a", "a"))


@pytest.mark.parametrize("kinds", [["ordinal"], ["ordinal"] * 3])
def test_kinds_in_a_file_that_do_not_match_its_factors_are_refused(tmp_path, kinds):
    file = tmp_path / "x.npz"
    factors = np.arange(12).reshape(6, 2)
    np.savez(file, images=np.zeros((6, 4)), factors=factors, factor_kinds=np.array(kinds))
    with pytest.raises(DataError, match=f"{len(kinds)} factor_kinds .* for 2 factors"):
        zscope.data.load(file)
    data = zscope.data.load(file, kinds="continuous,ordinal")
    assert data.factor_kinds == ("continuous", "ordinal")


def test_a_file_of_factors_that_is_not_there_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((6, 4)))
    with pytest.raises(DataError, match="factors='nowhere.npy', but there is no such file"):
        zscope.data.load(tmp_path / "x.npy", factors="nowhere.npy")


def test_a_side_that_is_infinite_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((6, 1, 8, 8), np.uint8))
    with pytest.raises(ConfigError, match="whole number of pixels"):
        zscope.data.load(tmp_path / "x.npy", resolution=float("inf"))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbers_in_tables_beyond_float32_are_refused_by_row(tmp_path, suffix):
    file = tmp_path / f"x.{suffix}"
    if suffix == "csv":
        file.write_text("a,b\n1,2\n3,1e300\n")
    else:
        pq.write_table(pa.table({"a": [1.0, 3.0], "b": [2.0, 1e300]}), file)
    with pytest.raises(DataError, match="inf in row 1 .*fit float32"):
        zscope.data.load(file)

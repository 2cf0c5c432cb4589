"""MNIST and Fashion-MNIST from the publishers' idx files."""

import gzip
import shutil

import numpy as np
import pytest
import torch

import zscope.data
from zscope.data import mnist
from zscope.data.fetching import cache_folder, fetch, fetch_source, state
from zscope.errors import ConfigError, DataError


def idx(values):
    values = np.asarray(values, np.uint8)
    header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    return header + values.tobytes()


def write(folder, name, values):
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / name, "wb") as out:
        out.write(idx(values))


@pytest.fixture
def tiny():
    return mnist.build(
        "tiny",
        factor="digit",
        classes=[str(digit) for digit in range(10)],
        counts={"train": 20, "t10k": 10},
        title="",
        summary="",
        cite="",
        homepage="http://home",
    )


@pytest.fixture
def files(tmp_path):
    draw = np.random.default_rng(0)
    folder = tmp_path / "files"
    arrays = {}
    for part, count in (("train", 20), ("t10k", 10)):
        arrays[part] = draw.integers(0, 256, (count, 28, 28)), draw.integers(0, 10, count)
        write(folder, mnist.images_file(part), arrays[part][0])
        write(folder, mnist.labels_file(part), arrays[part][1])
    return folder, arrays


def test_each_part_holds_its_own_pictures_and_labels(tiny, files):
    folder, arrays = files
    for part, names in (("train", ["train"]), ("test", ["t10k"]), ("all", ["train", "t10k"])):
        data = tiny.load(folder, part=part)
        pictures = np.concatenate([arrays[name][0] for name in names])
        labels = np.concatenate([arrays[name][1] for name in names])
        assert data.images.dtype == np.uint8
        assert np.array_equal(data.images[:, 0], pictures)
        assert np.array_equal(data.factors[:, 0], labels)
    assert data.factor_names == ("digit",)
    assert data.factor_kinds == ("categorical",)
    assert len(tiny.load(folder)) == 20


def test_pictures_are_a_memory_map_made_once(tiny, files):
    folder, _ = files
    first = tiny.load(folder).images
    assert isinstance(first, np.memmap)
    cache = cache_folder(folder)
    files = {path: path.stat().st_mtime_ns for path in cache.glob("*.npy")}
    assert len(files) == 1
    tiny.load(folder)
    assert {path: path.stat().st_mtime_ns for path in cache.glob("*.npy")} == files


def test_resizing_is_bilinear_and_kept_apart(tiny, files):
    folder, arrays = files
    data = tiny.load(folder, resolution=32)
    assert data.shape == (1, 32, 32)
    plain = torch.from_numpy(arrays["train"][0]).float()[:, None]
    expected = torch.nn.functional.interpolate(plain, (32, 32), mode="bilinear")
    assert np.abs(data.images[:].astype(float) - expected.numpy()).max() <= 0.51
    assert tiny.load(folder).shape == (1, 28, 28)
    assert tiny.load(folder, resolution="32").shape == (1, 32, 32)


def test_shrinking_keeps_the_mean(tiny, files):
    folder, arrays = files
    small = tiny.load(folder, resolution=7).images[:].astype(float)
    assert small.mean() == pytest.approx(arrays["train"][0].mean(), abs=1)
    assert small.std() < arrays["train"][0].std() / 3


@pytest.mark.parametrize("wrong", [{"part": "training"}, {"resolution": 0}, {"resolution": "x"}])
def test_wrong_options_are_refused(tiny, files, wrong):
    with pytest.raises(ConfigError, match=f"tiny: {next(iter(wrong))}="):
        tiny.load(files[0], **wrong)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("train-images-idx3-ubyte.gz", np.zeros((19, 28, 28)), r"got \(19, 28, 28\)"),
        ("train-labels-idx1-ubyte.gz", np.full(20, 11), "labels from 0 to 9, got 11"),
        ("t10k-labels-idx1-ubyte.gz", np.zeros((10, 1)), r"got \(10, 1\)"),
    ],
)
def test_without_a_hash_the_structure_is_checked(tiny, files, tmp_path, name, values, message):
    write(files[0], name, values)
    with pytest.raises(DataError, match=message):
        fetch_source(tiny, tmp_path / "target", files[0])
    assert not (tmp_path / "target").exists()


def test_other_and_cut_files_are_refused(tiny, files, tmp_path):
    folder, _ = files
    whole = (folder / "train-images-idx3-ubyte.gz").read_bytes()
    (folder / "train-images-idx3-ubyte.gz").write_bytes(whole[:-200])
    with pytest.raises(DataError, match=r"train-images.*cannot be read.*EOFError"):
        fetch_source(tiny, tmp_path / "target", folder)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match="starts with 736f6d65, but an idx file"):
        fetch_source(tiny, tmp_path / "target", folder)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(DataError, match="BadGzipFile"):
        fetch_source(tiny, tmp_path / "target", folder)


@pytest.fixture(scope="session")
def imported(real_data, tmp_path_factory):
    root = tmp_path_factory.mktemp("real")
    for name in ("mnist", "fashion-mnist"):
        fetch(name, root=root, from_dir=real_data)
    return root


def test_the_real_mnist_has_its_published_counts_and_mean(imported):
    data = zscope.data.load("mnist", root=imported)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.factors[:, 0]).tolist() == counts
    assert data.images[:].mean() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert data.recipe == {"name": "mnist", "options": {}}
    assert len(zscope.data.load("mnist", root=imported, part="test")) == 10_000
    assert len(zscope.data.load("mnist", root=imported, part="all")) == 70_000


def test_the_real_fashion_mnist_has_its_published_counts_and_mean(imported):
    data = zscope.data.load("fashion-mnist", root=imported)
    assert np.bincount(data.factors[:, 0]).tolist() == [6000] * 10
    assert data.images[:].mean() / 255 == pytest.approx(0.2860, abs=5e-5)
    assert data.factor_labels["class"][9] == "Ankle boot"
    test = zscope.data.load("fashion-mnist", root=imported, part="test")
    assert np.bincount(test.factors[:, 0]).tolist() == [1000] * 10


def test_batches_of_the_real_mnist_are_between_0_and_1(imported):
    x = zscope.data.load("mnist", root=imported).batch(np.arange(256))
    assert x.shape == (256, 1, 28, 28)
    assert x.dtype == torch.float32
    assert (x.min(), x.max()) == (0, 1)


@pytest.mark.parametrize("damage", ["truncated", "altered"])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_a_damaged_real_file_is_refused_and_nothing_kept(real_data, tmp_path, name, damage):
    there = tmp_path / "from"
    shutil.copytree(real_data / name, there)
    file = there / "t10k-images-idx3-ubyte.gz"
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    else:
        content[1000] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)
    message = {"truncated": "bytes, the publisher's has", "altered": "has sha256"}
    with pytest.raises(DataError, match=message[damage]):
        fetch(name, root=tmp_path, from_dir=there)
    assert not (tmp_path / name).exists()
    assert state(zscope.data.source(name), tmp_path / name) == "can be fetched"

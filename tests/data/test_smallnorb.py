"""Small NORB from the publisher's binary matrices."""

import gzip

import numpy as np
import pytest

from zscope.data import smallnorb
from zscope.errors import DataError

MAGIC = {np.dtype("u1"): 0x1E3D4C55, np.dtype("<i4"): 0x1E3D4C54}


def matrix(values):
    """The publisher's format: magic number, rank, at least three sizes, then the numbers."""
    sizes = list(values.shape) + [1] * (3 - values.ndim)
    header = np.array([MAGIC[values.dtype], values.ndim, *sizes], "<u4")
    return header.tobytes() + values.tobytes()


def write(folder, part, dat, cat, info):
    folder.mkdir(exist_ok=True)
    for content, values, dtype in (("dat", dat, "u1"), ("cat", cat, "<i4"), ("info", info, "<i4")):
        packed = gzip.compress(matrix(np.ascontiguousarray(values, dtype)))
        (folder / smallnorb.file_name(part, content)).write_bytes(packed)


@pytest.fixture
def views(tmp_path):
    draw = np.random.default_rng(0)
    arrays = {}
    for part, toys in (("train", [4, 6, 7, 8, 9]), ("test", [0, 1, 2, 3, 5])):
        info = np.stack(
            [
                draw.permutation(np.repeat(toys, 4)),
                draw.integers(0, 9, 20),
                2 * draw.integers(0, 18, 20),
                draw.integers(0, 6, 20),
            ],
            axis=1,
        )
        dat = draw.integers(0, 256, (20, 2, 96, 96))
        arrays[part] = dat, draw.integers(0, 5, 20), info
        write(tmp_path / "d", part, *arrays[part])
    return tmp_path / "d", arrays


@pytest.fixture
def tiny():
    return smallnorb.build({"train": 20, "test": 20})


def test_all_views_of_the_first_camera_with_their_factors(tiny, views):
    folder, arrays = views
    data = tiny.load(folder)
    assert isinstance(data.images, np.memmap)
    assert data.images.shape == (40, 1, 96, 96)
    for start, part in ((0, "train"), (20, "test")):
        dat, cat, info = arrays[part]
        rows = slice(start, start + 20)
        assert np.array_equal(data.images[rows, 0], dat[:, 0])
        assert np.array_equal(data.factors[rows, 0], cat)
        assert np.array_equal(data.factors[rows, 1:3], info[:, :2])
        assert np.array_equal(2 * data.factors[rows, 3], info[:, 2])
        assert np.array_equal(data.factors[rows, 4], info[:, 3])
    assert data.factor_sizes == (5, 10, 9, 18, 6)
    assert data.factor_names[3] == "azimuth"


def test_the_toys_of_a_part_are_numbered_from_0_and_keep_their_names(tiny, views):
    folder, arrays = views
    data = tiny.load(folder, part="train")
    assert data.factor_sizes[1] == 5
    names = np.array(data.factor_labels["instance"], int)
    assert np.array_equal(names[data.factors[:, 1]], arrays["train"][2][:, 0])
    assert data.factor_labels["category"][4] == "car"


def test_pictures_can_be_brought_to_64(tiny, views):
    assert tiny.load(views[0], resolution=64).shape == (1, 64, 64)


def test_another_shape_or_format_is_refused(tiny, views):
    folder, arrays = views
    write(folder, "train", arrays["train"][0][:19], *arrays["train"][1:])
    with pytest.raises(DataError, match=r"training-dat.mat.gz: .*got \(\(19, 2, 96, 96\)"):
        tiny.load(folder)
    (folder / smallnorb.file_name("train", "dat")).write_bytes(gzip.compress(b"MATLAB 5.0 MAT"))
    with pytest.raises(DataError, match="not the header of a binary matrix"):
        tiny.load(folder)


def test_a_cut_matrix_is_refused(tiny, views):
    folder, arrays = views
    whole = matrix(np.ascontiguousarray(arrays["train"][0], "u1"))
    (folder / smallnorb.file_name("train", "dat")).write_bytes(gzip.compress(whole[:-5000]))
    with pytest.raises(DataError, match="ends in row 19 of 20"):
        tiny.load(folder)


def test_the_published_files_are_known_by_size_and_hash(views):
    assert smallnorb.SMALLNORB.samples == 48_600
    assert len(smallnorb.SMALLNORB.files) == 6
    with pytest.raises(DataError, match="the publisher's has 131,896,188"):
        smallnorb.SMALLNORB.load(views[0])

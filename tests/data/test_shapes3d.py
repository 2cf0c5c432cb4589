"""3D Shapes from the publisher's HDF5 file."""

import h5py
import numpy as np
import pytest

from zscope.data import grid_factors, shapes3d
from zscope.errors import DataError

SIZES = (2, 3, 1, 2, 4, 2)
COUNT = 96


@pytest.fixture
def pictures():
    return np.random.default_rng(0).integers(0, 256, (COUNT, 64, 64, 3), dtype=np.uint8)


def write(folder, images, labels=None, **options):
    folder.mkdir(exist_ok=True)
    values = grid_factors(SIZES) / 10 - 0.3  # published are values, not positions
    with h5py.File(folder / shapes3d.FILE, "w") as file:
        file.create_dataset("images", data=images, **options)
        file["labels"] = values if labels is None else labels
    return folder


@pytest.mark.parametrize("options", [{}, {"chunks": (7, 2, 64, 1), "compression": "gzip"}])
def test_pictures_are_unpacked_channels_first_whatever_the_storage(tmp_path, pictures, options):
    data = shapes3d.build(SIZES).load(write(tmp_path / "d", pictures, **options))
    assert isinstance(data.images, np.memmap)
    assert data.images.flags.c_contiguous
    assert np.array_equal(data.images, pictures.transpose(0, 3, 1, 2))
    assert np.array_equal(data.factors, grid_factors(SIZES))
    assert data.factor_names == shapes3d.NAMES
    assert data.factor_kinds[4] == "categorical"


def test_batches_have_the_right_pixels(tmp_path, pictures):
    x = shapes3d.build(SIZES).load(write(tmp_path / "d", pictures)).batch([5, 3])
    assert x.shape == (2, 3, 64, 64)
    assert x[1, 2, 10, 20].item() == pytest.approx(pictures[3, 10, 20, 2] / 255)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((95, 64, 64, 3), np.uint8), None, r"expected images .* got \(95, 64, 64, 3\)"),
        (np.zeros((96, 64, 64, 3)), None, "images of bytes, got float64"),
        (
            np.zeros((96, 64, 64, 3), np.uint8),
            np.zeros((96, 5)),
            r"expected labels .* got \(96, 5\)",
        ),
        (np.zeros((96, 64, 64, 3), np.uint8), np.zeros((96, 6)), "not in the published order"),
    ],
)
def test_another_structure_is_refused(tmp_path, images, labels, message):
    with pytest.raises(DataError, match=message):
        shapes3d.build(SIZES).load(write(tmp_path / "d", images, labels))


def test_a_file_that_is_no_hdf5_is_refused(tmp_path):
    (tmp_path / shapes3d.FILE).write_bytes(b"not HDF5" * 100)
    with pytest.raises(DataError, match=r"3dshapes.h5 \(800 bytes\) cannot be read \(OSError"):
        shapes3d.build(SIZES).load(tmp_path)


def test_the_published_file_is_known_by_size_and_hash(tmp_path, pictures):
    assert shapes3d.SHAPES3D.samples == 480_000
    with pytest.raises(DataError, match="the publisher's has 267,573,662"):
        shapes3d.SHAPES3D.load(write(tmp_path / "d", pictures))

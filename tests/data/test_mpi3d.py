"""MPI3D from the publisher's npz files."""

import numpy as np
import pytest

from zscope.data import grid_factors, mpi3d
from zscope.data.fetching import fetch_source, state
from zscope.errors import DataError

SIZES = (2, 3, 2, 1, 3, 2, 2)
COUNT = 144


@pytest.fixture
def tiny():
    return mpi3d.build("toy", "mpi3d_toy.npz", summary="", sizes=SIZES)


@pytest.fixture
def pictures():
    return np.random.default_rng(0).integers(0, 256, (COUNT, 64, 64, 3), dtype=np.uint8)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_pictures_come_in_the_order_of_the_grid(tmp_path, tiny, pictures, save):
    save(tmp_path / "mpi3d_toy.npz", images=pictures)
    data = tiny.load(tmp_path)
    assert isinstance(data.images, np.memmap)
    assert np.array_equal(data.images, pictures.transpose(0, 3, 1, 2))
    assert np.array_equal(data.factors, grid_factors(SIZES))
    # The publisher's own rule: reshape to one axis for each factor.
    grid = pictures.reshape(*SIZES, 64, 64, 3)
    row = np.flatnonzero((data.factors == (1, 2, 0, 0, 1, 1, 0)).all(1))
    assert np.array_equal(data.images[row[0]], grid[1, 2, 0, 0, 1, 1, 0].transpose(2, 0, 1))
    assert data.factor_labels["object_shape"] == ["cone", "cube", "cylinder"]


def test_an_import_writes_down_the_hash_for_want_of_a_public_one(tmp_path, tiny, pictures):
    assert state(tiny, tmp_path / "t") == "by hand"
    np.savez(tmp_path / "mpi3d_toy.npz", images=pictures)
    fetched = fetch_source(tiny, tmp_path / "t", tmp_path)
    assert fetched["mpi3d_toy.npz"].checked == "structure"
    assert state(tiny, tmp_path / "t") == "here"


@pytest.mark.parametrize(
    "arrays",
    [
        {"pictures": np.zeros((COUNT, 64, 64, 3), np.uint8)},
        {"images": np.zeros((COUNT - 1, 64, 64, 3), np.uint8)},
        {"images": np.zeros((COUNT, 64, 64, 3), np.float32)},
    ],
)
def test_another_structure_is_refused(tmp_path, tiny, arrays):
    np.savez(tmp_path / "mpi3d_toy.npz", **arrays)
    with pytest.raises(DataError, match=r"mpi3d_toy.npz: expected images of \(\(144, 64, 64, 3"):
        tiny.load(tmp_path)


def test_an_altered_byte_within_the_archive_is_noticed(tmp_path, tiny, pictures):
    np.savez(tmp_path / "mpi3d_toy.npz", images=pictures)
    content = bytearray((tmp_path / "mpi3d_toy.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "mpi3d_toy.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"BadZipFile.*CRC"):
        tiny.load(tmp_path)


def test_there_are_three_variants_of_a_million_pictures():
    assert [s.name for s in (mpi3d.TOY, mpi3d.SIM, mpi3d.REAL)] == [
        "mpi3d-toy", "mpi3d-sim", "mpi3d-real",
    ]  # fmt: skip
    assert mpi3d.REAL.samples == 1_036_800

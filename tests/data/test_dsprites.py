"""dSprites from the publisher's npz file."""

import numpy as np
import pytest

from zscope.data import dsprites, grid_factors
from zscope.data.fetching import fetch_source, require_files
from zscope.errors import DataError

SIZES = (3, 2, 4, 2, 3)
COUNT = 144


@pytest.fixture
def pictures():
    return np.random.default_rng(0).integers(0, 2, (COUNT, 64, 64), dtype=np.uint8)


def write(folder, imgs, *, classes=None, **more):
    """A file as published, down to the pickled metadata that we must not open."""
    folder.mkdir(exist_ok=True)
    grid = np.column_stack([np.zeros(COUNT, int), grid_factors(SIZES)])
    arrays = {
        "metadata": np.array({"author": "someone"}, dtype=object),
        "imgs": imgs,
        "latents_classes": grid if classes is None else classes,
        "latents_values": grid.astype(float),
    }
    np.savez_compressed(folder / dsprites.FILE, **{**arrays, **more})
    return folder


def test_pictures_become_bytes_from_0_to_255_with_their_factors(tmp_path, pictures):
    data = dsprites.build(SIZES).load(write(tmp_path / "d", pictures))
    assert isinstance(data.images, np.memmap)
    assert data.shape == (1, 64, 64)
    assert np.array_equal(data.images[:, 0], pictures * 255)
    assert np.array_equal(data.factors, grid_factors(SIZES))
    assert data.factor_names == ("shape", "scale", "orientation", "position_x", "position_y")
    assert data.factor_kinds == ("categorical", *["ordinal"] * 4)
    assert data.factor_sizes == SIZES
    assert set(np.unique(data.batch(slice(0, 5)))) == {0, 1}


def test_a_smaller_resolution_averages_the_pixels(tmp_path, pictures):
    small = dsprites.build(SIZES).load(write(tmp_path / "d", pictures), resolution=16)
    assert small.shape == (1, 16, 16)
    assert small.images[:].mean() == pytest.approx(pictures.mean() * 255, abs=2)


def test_an_import_checks_the_structure_where_no_hash_is_known(tmp_path, pictures):
    fetched = fetch_source(
        dsprites.build(SIZES), tmp_path / "d", write(tmp_path / "from", pictures)
    )
    assert fetched[dsprites.FILE].checked == "structure"
    with pytest.raises(DataError, match=r"imgs of \(\(288, 64, 64\).*got \(\(144, 64, 64\)"):
        fetch_source(dsprites.build((3, 2, 4, 4, 3)), tmp_path / "e", tmp_path / "from")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"imgs": np.zeros((COUNT, 64, 64), np.float32)}, "expected imgs of"),
        ({"latents_values": np.zeros((COUNT, 5))}, "expected latents_values of"),
        ({"classes": np.zeros((COUNT, 6), int)}, "not in the published order"),
    ],
)
def test_another_structure_is_refused(tmp_path, pictures, wrong, message):
    folder = write(tmp_path / "d", **{"imgs": pictures, **wrong})
    with pytest.raises(DataError, match=message):
        require_files(dsprites.build(SIZES), folder)


def test_pixels_other_than_0_and_1_are_refused_and_leave_no_cache(tmp_path, pictures):
    folder = write(tmp_path / "d", pictures * 255)
    with pytest.raises(DataError, match="0 and 1, got 255"):
        dsprites.build(SIZES).load(folder)
    assert not [path for path in folder.iterdir() if "images" in path.name]


def test_a_cut_archive_is_refused(tmp_path, pictures):
    folder = write(tmp_path / "d", pictures)
    content = (folder / dsprites.FILE).read_bytes()
    (folder / dsprites.FILE).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"cannot be read \(BadZipFile"):
        dsprites.build(SIZES).load(folder)


def test_the_published_file_is_known_by_its_md5(tmp_path, pictures):
    assert dsprites.DSPRITES.samples == 737_280
    with pytest.raises(DataError, match=r"has md5 .*7da33b31b13a06f4b04a70402ce90c2e"):
        dsprites.DSPRITES.load(write(tmp_path / "d", pictures))

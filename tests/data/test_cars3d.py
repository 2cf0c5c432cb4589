"""Cars3D from the publisher's archive of MATLAB files."""

import io
import tarfile

import numpy as np
import pytest
from scipy.io import savemat

from zscope.data import cars3d
from zscope.data.fetching import fetch_source
from zscope.errors import DataError

NAMES = ["car_002_mesh", "car_010_mesh", "car_001_mesh"]


def archive(folder, cars, *, other=True):
    """The archive as published: cars, a list of them, and other data."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / cars3d.FILE, "w:gz", compresslevel=1) as tar:

        def add(name, content):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))

        if other:
            add("data/shapes48.mat", b"something else")
            add("data/cars/._car_002_mesh.mat", b"left by another system")
        add("data/cars/list.txt", "\n".join(cars).encode())
        for name, pictures in cars.items():
            content = io.BytesIO()
            savemat(content, {"im": pictures}, do_compression=True)
            add(f"data/cars/{name}.mat", content.getvalue())
    return folder


@pytest.fixture(scope="module")
def cars():
    draw = np.random.default_rng(0)
    return {name: draw.integers(0, 256, (128, 128, 3, 24, 4), dtype=np.uint8) for name in NAMES}


@pytest.fixture(scope="module")
def packed(tmp_path_factory, cars):
    """The folder with an archive of all cars."""
    return archive(tmp_path_factory.mktemp("packed"), cars)


def test_every_picture_carries_its_model_azimuth_and_elevation(packed, cars):
    data = cars3d.build(3).load(packed)
    assert data.images.shape == (3 * 96, 3, 128, 128)
    assert data.factor_names == ("elevation", "azimuth", "model")
    assert data.factor_sizes == (4, 24, 3)
    assert len(np.unique(data.factors, axis=0)) == 288
    for row in (0, 1, 95, 96, 150, 287):
        elevation, azimuth, model = data.factors[row]
        picture = cars[NAMES[model]][:, :, :, azimuth, elevation]
        assert np.array_equal(data.images[row], picture.transpose(2, 0, 1))
    assert cars3d.build(3).load(packed, resolution=64).shape == (3, 64, 64)


def test_a_missing_car_is_noticed(tmp_path, packed):
    with pytest.raises(DataError, match="expected 4 cars in data/cars, got 3"):
        fetch_source(cars3d.build(4), tmp_path / "t", packed)
    assert not (tmp_path / "t").exists()


def test_pictures_of_another_shape_are_refused(tmp_path):
    cars = {"car_010_mesh": np.zeros((128, 128, 3, 23, 4), np.uint8)}
    with pytest.raises(DataError, match=r"car_010_mesh.mat .*got \(128, 128, 3, 23, 4\)"):
        cars3d.build(1).load(archive(tmp_path / "d", cars))


def test_a_cut_archive_is_refused(tmp_path, packed):
    content = (packed / cars3d.FILE).read_bytes()
    (tmp_path / cars3d.FILE).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="cannot be read"):
        cars3d.build(3).load(tmp_path)


def test_the_published_archive_is_known_by_its_md5():
    assert cars3d.CARS3D.samples == 17_568
    assert cars3d.CARS3D.can_be_fetched

"""SYMSOL from the publisher's archive."""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

from zscope.data import symsol
from zscope.data.fetching import require_files
from zscope.errors import ConfigError, DataError

COUNTS = {"train": 3, "test": 2}
SYMMETRIES = {"tet": 12, "cube": 24, "icosa": 60, "cone": 360, "cyl": 720}


def png(brightness):
    pixels = np.full((224, 224, 3), brightness, np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


@pytest.fixture
def archive(tmp_path):
    """Pictures whose brightness is 30 x shape + number, and the rotations of each."""
    draw = np.random.default_rng(0)
    turns = {}
    with zipfile.ZipFile(tmp_path / symsol.FILE, "w") as out:
        for part, count in COUNTS.items():
            arrays = {}
            for k, shape in enumerate(symsol.SHAPES):
                many = SYMMETRIES.get(shape, 1)
                drawn = Rotation.random(count * many, random_state=draw).as_matrix()
                arrays[shape] = drawn.reshape(count, many, 3, 3)
                for number in range(count):
                    out.writestr(symsol.picture(part, shape, number), png(30 * k + number))
            turns[part] = arrays
            content = io.BytesIO()
            np.savez_compressed(content, **arrays)
            out.writestr(f"{part}/rotations.npz", content.getvalue())
    return tmp_path, turns


@pytest.mark.parametrize("part", ["train", "test"])
def test_each_picture_has_its_shape_and_the_rotation_it_was_rendered_with(archive, part):
    folder, turns = archive
    data = symsol.build(COUNTS).load(folder, part=part)
    count = COUNTS[part]
    assert data.images.shape == (8 * count, 3, 64, 64)
    shapes, numbers = np.divmod(np.arange(8 * count), count)
    assert np.array_equal(data.images[:, 0, 0, 0], 30 * shapes + numbers)
    assert np.array_equal(data.factors[:, 0], shapes)
    expected = np.concatenate([turns[part][shape][:, 0] for shape in symsol.SHAPES])
    assert Rotation.from_rotvec(data.factors[:, 1:]).as_matrix() == pytest.approx(expected)
    assert data.factor_sizes == (8, 0, 0, 0)
    assert data.factor_kinds == ("categorical", *["continuous"] * 3)


@pytest.mark.parametrize("shapes", ["cube,sphereX", ["sphereX", "cube"]])
def test_some_shapes_can_be_chosen(archive, shapes):
    data = symsol.build(COUNTS).load(archive[0], shapes=shapes)
    assert sorted(set(data.factors[:, 0])) == [0, 1]
    assert data.factor_labels["shape"] == ["cube", "marked sphere"]
    assert np.array_equal(data.images[:][:, 0, 0, 0], [30, 31, 32, 210, 211, 212])
    assert data.factor_sizes[0] == 2


def test_the_two_published_groups_have_names(archive):
    source = symsol.build(COUNTS)
    assert source.load(archive[0], shapes="symsol1").factor_sizes[0] == 5
    assert source.load(archive[0], shapes="symsol2").factor_sizes[0] == 3
    with pytest.raises(ConfigError, match=r"symsol: shapes='cubes'. Did you mean cube"):
        source.load(archive[0], shapes="cubes")


def test_pictures_can_be_had_as_published(archive):
    assert symsol.build(COUNTS).load(archive[0], resolution=224).shape == (3, 224, 224)


def test_missing_pictures_or_rotations_are_noticed(archive):
    with pytest.raises(DataError, match=r"1 of 4 pictures of tet are missing.*tet_00003.png"):
        require_files(symsol.build({"train": 4, "test": 2}), archive[0])
    with pytest.raises(DataError, match="expected 16 rotations in train, got 24"):
        require_files(symsol.build({"train": 2, "test": 2}), archive[0])


def test_the_published_archive_is_known_by_size_and_hash(archive):
    assert symsol.SYMSOL.samples == 360_000
    with pytest.raises(DataError, match="the publisher's has 3,328,555,013"):
        require_files(symsol.SYMSOL, archive[0])

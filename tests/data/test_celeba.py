"""CelebA from the publisher's archive, attributes and partition."""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from zscope.data import celeba
from zscope.data.fetching import cache_folder, fetch_source
from zscope.errors import ConfigError, DataError

COUNT = 12
PARTITION = [0] * 7 + [1] * 2 + [2] * 3


def jpeg(number):
    """A grey frame around a square of 148 whose brightness is the number of the picture."""
    pixels = np.full((218, 178, 3), 255, np.uint8)
    pixels[35:183, 15:163] = 10 * number
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "jpeg", quality=100, subsampling=0)
    return content.getvalue()


@pytest.fixture
def attributes():
    return np.random.default_rng(0).choice([-1, 1], (COUNT, 40))


@pytest.fixture
def folder(tmp_path, attributes):
    folder = tmp_path / "d"
    folder.mkdir()
    with zipfile.ZipFile(folder / celeba.ARCHIVE, "w") as archive:
        for number in reversed(range(1, COUNT + 1)):
            archive.writestr(f"img_align_celeba/{number:06}.jpg", jpeg(number))
    lines = [str(COUNT), celeba.HEADER + " "]
    for k, row in enumerate(attributes):
        lines.append(f"{k + 1:06}.jpg " + " ".join(f"{value:2}" for value in row))
    (folder / celeba.ATTRIBUTES).write_text("\n".join(lines) + "\n")
    rows = [f"{k + 1:06}.jpg {part}" for k, part in enumerate(PARTITION)]
    (folder / celeba.PARTITION).write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture
def tiny():
    return celeba.build(count=COUNT, training=7)


def test_the_middle_is_cut_out_and_resized(tiny, folder):
    data = tiny.load(folder, part="all")
    assert data.images.shape == (COUNT, 3, 64, 64)
    # None of the white frame is left: each picture has the brightness of its number.
    means = data.images[:].mean(axis=(1, 2, 3))
    assert means == pytest.approx(10 * np.arange(1, COUNT + 1), abs=1.5)
    assert data.images[3].max() < 60


def test_a_wider_cut_shows_the_frame(tiny, folder):
    wide = tiny.load(folder, part="all", crop=178, resolution=89)
    assert wide.shape == (3, 89, 89)
    assert wide.images[3].max() == 255


@pytest.mark.parametrize(
    ("part", "rows"), [("train", (0, 7)), ("valid", (7, 9)), ("test", (9, 12))]
)
def test_parts_follow_the_publishers_partition(tiny, folder, attributes, part, rows):
    data = tiny.load(folder, part=part)
    assert len(data) == rows[1] - rows[0]
    assert np.array_equal(data.factors, attributes[slice(*rows)] > 0)
    assert data.images[0].mean() == pytest.approx(10 * (rows[0] + 1), abs=1.5)
    assert data.factor_names[:2] == ("5_o_clock_shadow", "arched_eyebrows")
    assert data.factor_sizes == (2,) * 40


def test_all_parts_share_one_memory_map(tiny, folder):
    for part in ("train", "valid", "test", "all"):
        assert isinstance(tiny.load(folder, part=part).images, np.memmap)
    assert len(list(cache_folder(folder).glob("images-*.npy"))) == 1


def test_the_unpacked_folder_serves_in_place_of_the_archive(tiny, folder, tmp_path):
    with zipfile.ZipFile(folder / celeba.ARCHIVE) as archive:
        archive.extractall(tmp_path / "from")
    for name in (celeba.ATTRIBUTES, celeba.PARTITION):
        (folder / name).rename(tmp_path / "from" / name)
    fetched = fetch_source(tiny, tmp_path / "t", tmp_path / "from")
    assert fetched[celeba.ARCHIVE].checked == "structure"
    assert len(tiny.load(tmp_path / "t")) == 7


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (celeba.ATTRIBUTES, "12\n", "13\n", "12 rows, but its first line says 13"),
        (
            celeba.ATTRIBUTES,
            "Bald",
            "Bold",
            "expected 12 rows of the 40 published .*got 12 rows of 40 others",
        ),
        (celeba.ATTRIBUTES, "000003.jpg", "000003.jpg 7", "cannot be read"),
        (celeba.PARTITION, "000001.jpg 0", "000001.jpg 2", "first those of train"),
        (celeba.PARTITION, "000001.jpg 0\n", "", "expected 12 rows.*got 11"),
    ],
)
def test_lists_of_another_form_are_refused(tiny, folder, file, old, new, message):
    text = (folder / file).read_text()
    (folder / file).write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        tiny.load(folder)


def test_an_archive_without_all_pictures_is_refused(folder):
    with pytest.raises(
        DataError, match=r"expected 13 pictures, named 000001.jpg to 000013.*got 12"
    ):
        celeba.build(count=13, training=7).load(folder)


def test_a_cut_wider_than_the_picture_is_refused(tiny, folder):
    with pytest.raises(ConfigError, match="crop=200; the pictures are 178"):
        tiny.load(folder, crop=200)


def test_the_published_files_are_known_but_come_by_hand():
    assert not celeba.CELEBA.can_be_fetched
    assert all(file.sha256 for file in celeba.CELEBA.files)

"""Data roots are only read; what is made of their files is in the user's own folder, once."""

import errno
import hashlib
import json
import os
import time

import numpy as np
import pytest

import zscope.data
from zscope.data import fetching, mpi3d, unpacking
from zscope.data.fetching import (
    RECORD,
    cache_folder,
    fetch_source,
    records,
    require_files,
    state,
)
from zscope.data.source import File, Source
from zscope.errors import DataError, ResourceError

SIZES = (2, 1, 1, 1, 1, 2, 2)
SOURCE = mpi3d.build("toy", "toy.npz", summary="", sizes=SIZES)
IMAGES = np.random.default_rng(0).integers(0, 256, (8, 64, 64, 3)).astype(np.uint8)


@pytest.fixture
def root(tmp_path):
    """A folder of publishers' files."""
    (tmp_path / "root" / SOURCE.name).mkdir(parents=True)
    np.savez_compressed(tmp_path / "root" / SOURCE.name / "toy.npz", images=IMAGES)
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path / "own"))
    return tmp_path / "own"


def listing(folder):
    return {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def read_only(monkeypatch, folder):
    """Writing below a folder fails as on a read-only file system, also for root."""

    def guard(module, name, writes):
        real = getattr(module, name)

        def guarded(path, *args, **kwargs):
            below = isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(
                str(folder)
            )
            if below and writes(*args):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(module, name, guarded)

    guard(os, "mkdir", lambda *args: True)
    guard(os, "open", lambda flags, *_: flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def test_nothing_is_written_beside_publishers_files(root, own, monkeypatch):
    before = listing(root)
    read_only(monkeypatch, root)
    data = zscope.data.load_source(SOURCE, root, {"resolution": 32})
    assert data.shape == (3, 32, 32)
    data = zscope.data.load_source(SOURCE, root, {})
    assert isinstance(data.images, np.memmap)
    assert np.array_equal(data.images[:], IMAGES.transpose(0, 3, 1, 2))
    assert listing(root) == before
    made = sorted(
        path.name.partition("-")[0] for path in cache_folder(root / SOURCE.name).iterdir()
    )
    assert made == ["images", "images", RECORD]
    assert cache_folder(root / SOURCE.name).is_relative_to(own)
    assert state(SOURCE, root / SOURCE.name) == "here"


def test_the_real_files_are_left_alone(real_data):
    before = listing(real_data)
    assert len(zscope.data.load("mnist", root=real_data, part="test")) == 10_000
    assert listing(real_data) == before


def test_built_in_data_are_drawn_to_the_own_folder(root, own):
    before = listing(root)
    options = {"scale": 1, "orientation": 1, "position_x": 2, "position_y": 2}
    zscope.data.load("sprites", root=root, **options).batch([0])
    assert listing(root) == before
    assert (own / "sprites").is_dir()


def test_files_fetched_to_another_root_have_their_records_in_the_own_folder(root, tmp_path):
    fetch_source(SOURCE, tmp_path / "new" / SOURCE.name, root)
    assert [path.name for path in (tmp_path / "new" / SOURCE.name).iterdir()] == ["toy.npz"]
    assert state(SOURCE, tmp_path / "new" / SOURCE.name) == "here"
    zscope.data.load_source(SOURCE, tmp_path / "new", {})
    assert [path.name for path in (tmp_path / "new" / SOURCE.name).iterdir()] == ["toy.npz"]


def test_files_in_the_own_folder_keep_their_arrays_beside_them(root, own):
    fetch_source(SOURCE, own / SOURCE.name, root)
    zscope.data.load_source(SOURCE, own, {})
    assert {path.suffix for path in (own / SOURCE.name).iterdir()} == {".npz", ".json", ".npy"}


def test_without_a_folder_to_write_to_small_data_are_decoded_to_memory(root, own, monkeypatch):
    own.mkdir()
    for place in (root, own):
        read_only(monkeypatch, place)
    data = zscope.data.load_source(SOURCE, root, {})
    assert np.array_equal(data.images[:], IMAGES.transpose(0, 3, 1, 2))
    assert [*own.iterdir()] == []
    monkeypatch.setattr(unpacking, "LARGE", 1000)
    with pytest.raises(DataError, match="GB have to be unpacked, but .* cannot .* ZSCOPE_DATA"):
        zscope.data.load_source(SOURCE, root, {})


HOSTILE = [
    "[" * 10**5, "null", '{"format": 1}', '{"format": 1, "files": 3}', "NaN", "\xff", "9" * 10**5,
    {"sha256": "../" * 4 + "x"}, {"sha256": None}, {"bytes": "x"}, {"modified": float("nan")},
    {"origin": ["x"]}, {"more": 1},
]  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_records_are_not_believed(root, content):
    folder = root / SOURCE.name
    require_files(SOURCE, folder)
    file = cache_folder(folder) / RECORD
    if isinstance(content, dict):
        saved = json.loads(file.read_text())
        saved["files"]["toy.npz"].update(content)
        content = json.dumps(saved)
    file.write_text(content, encoding="latin-1")
    assert records(folder) == {}
    assert len(zscope.data.load_source(SOURCE, root, {})) == 8


def test_records_beside_publishers_files_are_not_believed(root):
    """They could vouch for a file that was altered."""
    path = root / SOURCE.name / "toy.npz"
    require_files(SOURCE, root / SOURCE.name)
    record = (cache_folder(root / SOURCE.name) / RECORD).read_bytes()
    (cache_folder(root / SOURCE.name) / RECORD).unlink()
    (root / SOURCE.name / RECORD).write_bytes(record)
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DataError, match="toy.npz"):
        require_files(SOURCE, root / SOURCE.name)


def test_a_full_disk_is_noticed_before_anything_is_fetched(root, tmp_path, monkeypatch):
    from zscope import files

    monkeypatch.setattr(
        files.shutil, "disk_usage", lambda place: files.shutil._ntuple_diskusage(9, 0, 9)
    )
    with pytest.raises(ResourceError, match="mpi3d-toy: the dataset needs .* has 9 bytes left"):
        fetch_source(SOURCE, tmp_path / "new", root)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ResourceError, match="the disk of"):
        zscope.data.load_source(SOURCE, root, {})


def fork(function, *args):
    """The number of a process that calls the function and ends."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            function(*args)
            code = 0
        finally:
            os._exit(code)
    return child


@pytest.mark.parametrize("what", ["fetch", "unpack"])
def test_of_two_processes_one_works_and_the_other_waits(own, what, tmp_path):
    (own / "published").mkdir(parents=True)
    (own / "published" / "a.bin").write_bytes(b"x")

    def work(*_):
        with (tmp_path / "log").open("a") as lines:
            lines.write("worked\n")
        time.sleep(0.5)

    def pieces():
        work()
        yield np.ones((2, 3), np.uint8)

    def run():
        if what == "fetch":
            fetch_source(tiny(File("a.bin", work)), own / "tiny", own / "published")
        else:
            target = own / "x" / "a.npy"
            unpacking.memory_map("x", target, (2, 3), np.dtype(np.uint8), pieces())

    workers = [fork(run) for _ in range(2)]
    assert [os.waitpid(worker, 0)[1] for worker in workers] == [0, 0]
    assert (tmp_path / "log").read_text() == "worked\n"
    assert not [*own.rglob(".*")]


def tiny(*files):
    return Source("tiny", "", "", "", lambda folder: None, files=files)


def test_a_download_without_end_is_stopped():
    file = File("a.bin", lambda path: None, size=100)
    progress = fetching._PoochProgress(tiny(file), file, lambda count: None)
    progress.update(2**20)
    with pytest.raises(DataError, match="a.bin should have 100 bytes, and the server sends more"):
        progress.update(2**20)


def test_the_digest_of_a_root_is_of_its_path(root, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(root)
    assert cache_folder(link / SOURCE.name) == cache_folder(root / SOURCE.name)
    digest = hashlib.sha256(os.fsencode((root / SOURCE.name).resolve())).hexdigest()[:12]
    assert cache_folder(root / SOURCE.name).name == f"mpi3d-toy-{digest}"

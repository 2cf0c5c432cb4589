"""Files that announce too much, are no files, or try to reach other files: one line, at once."""

import gzip
import io
import json
import os
import socket
import struct
import tarfile
import time
import zipfile
import zlib

import h5py
import numpy as np
import pytest
from PIL import Image

import zscope as zs
from zscope import files
from zscope.data import arrays, cars3d, celeba, mnist, smallnorb, tables, unpacking
from zscope.data.columns import read_columns
from zscope.data.own import load_path
from zscope.errors import ConfigError, DataError, ResourceError

HUGE = 4 * 10**12
SMALL_DISK = files.shutil._ntuple_diskusage(10**7, 0, 10**7)


@pytest.fixture(autouse=True)
def quick():
    """Refused before anything is read: a hang or an allocation would take longer."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 20


def npy(shape, dtype="<f8", content=b""):
    out = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(out, header)
    return out.getvalue() + content


def test_hdf5_that_announces_4_tb_is_refused_before_it_is_unpacked(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("images", (HUGE // 4096, 64, 64), "u1", chunks=(1, 64, 64))
    assert (tmp_path / "x.h5").stat().st_size < 10_000
    with pytest.raises(ResourceError, match=r"x.h5: array.npy.* needs 4.0 TB, and the disk of"):
        load_path(tmp_path / "x.h5")


def test_hdf5_strings_and_chunks_that_do_not_fit_are_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("images", (HUGE,), h5py.string_dtype(), chunks=(100,))
        file.create_dataset("z", (HUGE, 10), "u1", chunks=(10**8, 10), compression="gzip")
    with pytest.raises(ResourceError, match="images in x.h5 needs 64.0 TB of memory"):
        load_path(tmp_path / "x.h5")
    with pytest.raises(ResourceError, match="needs 40.0 TB"):
        load_path(tmp_path / "x.h5", array="z")


@pytest.mark.parametrize("how", ["link", "external", "virtual"])
def test_hdf5_values_in_other_files_are_not_opened(tmp_path, how):
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        if how == "link":
            file["images"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/images")
        elif how == "external":
            place = [(str(tmp_path / "pipe"), 0, 80)]
            file.create_dataset("images", (10, 1), "f8", external=place)
        else:
            layout = h5py.VirtualLayout((10, 1), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "pipe"), "images", (10, 1))
            file.create_virtual_dataset("images", layout)
    with pytest.raises(DataError, match="x.h5: the values of images are in other files"):
        load_path(tmp_path / "x.h5")


def test_a_header_of_more_values_than_the_file_has_is_refused(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy((10**15,), content=b"0" * 80))
    with pytest.raises(DataError, match=r"x.npy: the array should have 8,000,000,000,000,000 byt"):
        load_path(tmp_path / "x.npy")
    (tmp_path / "y.npy").write_bytes(npy((2**62, 8, 8), content=b"0" * 512))  # 0 in 64 bits
    with pytest.raises(DataError, match="y.npy: the array should have"):
        load_path(tmp_path / "y.npy")
    (tmp_path / "z.npy").write_bytes(npy((-1, -5), content=b"0" * 40))
    with pytest.raises(DataError, match=r"z.npy.*a shape of \(-1, -5\)"):
        load_path(tmp_path / "z.npy")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_of_an_npz_that_announces_more_than_it_has_is_refused(tmp_path, method):
    """Stored members are mapped: the map would go on into the next one."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as archive:
        archive.writestr("images.npy", npy((10, 4), content=b"0" * 160))
        archive.writestr("more.npy", npy((100,), content=b"1" * 800))
    with pytest.raises(DataError, match=r"x.npz: images should have 320 bytes .*, and 160 are"):
        load_path(tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as archive:
        archive.writestr("images.npy", npy((10**12,)))
    with pytest.raises(DataError, match=r"images should have 8,000,000,000,000 bytes"):
        load_path(tmp_path / "x.npz")


def test_an_npz_bomb_is_compared_with_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "LARGE", 10**6)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda place: SMALL_DISK)
    np.savez_compressed(tmp_path / "x.npz", images=np.zeros((10**6, 4)))
    assert (tmp_path / "x.npz").stat().st_size < 10**5
    with pytest.raises(ResourceError, match=r"x.npz: array.npy.* needs 32.0 MB, and the disk"):
        load_path(tmp_path / "x.npz")
    assert not [*(zs.data.folder() / "own").glob("x-*")]


def test_flipped_bits_in_a_stored_npz_are_noticed(tmp_path):
    np.savez(tmp_path / "x.npz", images=np.ones((5000, 4)))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[100_000] ^= 1
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match="x.npz.*Bad CRC-32"):
        load_path(tmp_path / "x.npz")


def test_the_checksum_of_a_compressed_member_is_compared(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, images=np.random.default_rng(0).random((5000, 4)))
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("images.npy")
    content = bytearray(path.read_bytes())
    for start in (b"PK\x01\x02", b"PK\x03\x04"):  # the checksum is written twice
        at = content.index(start) + (16 if start[2] == 1 else 14)
        assert content[at : at + 4] == struct.pack("<I", member.CRC)
        content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="x.npz.*Bad CRC-32"):
        load_path(path)


def test_members_hidden_by_a_damaged_list_are_missed(tmp_path):
    np.savez(tmp_path / "x.npz", images=np.ones((4, 2)), factors=np.arange(4))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[content.index(b"PK\x01\x02") + 33] = 4  # a comment of 1,024 bytes
    (tmp_path / "x.npz").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        assert archive.namelist() == ["images.npy"]
    with pytest.raises(DataError, match="1 members are listed, and 2 announced"):
        load_path(tmp_path / "x.npz")


def test_a_damaged_header_of_an_npy_file_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content.replace(b")", b"("))
    with pytest.raises(DataError, match="x.npy: cannot be read"):
        load_path(tmp_path / "x.npy")


def test_the_checksum_of_a_gzipped_matrix_is_compared(tmp_path):
    header = struct.pack("<5i", 0x1E3D4C54, 1, 5, 1, 1)
    content = bytearray(gzip.compress(header + np.arange(5, dtype="<i4").tobytes()))
    (tmp_path / "x.gz").write_bytes(content)
    assert np.concatenate([*smallnorb.matrix_rows(tmp_path / "x.gz")]).tolist() == [0, 1, 2, 3, 4]
    content[-6] ^= 1
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(gzip.BadGzipFile, match="CRC check failed"):
        [*smallnorb.matrix_rows(tmp_path / "x.gz")]


def test_two_arrays_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("images.npy", npy((1, 1), content=bytes(8)))
        archive.writestr("images", npy((1, 1), content=b"1" * 8))
    with pytest.raises(DataError, match="x.npz: there are two arrays called 'images'"):
        load_path(tmp_path / "x.npz")


def test_a_header_that_inflates_without_end_is_not_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        start = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2 * 10**7)
        archive.writestr("images.npy", start + b" " * 2 * 10**7)
    with pytest.raises(DataError, match="a header of 20,000,000 bytes"):
        load_path(tmp_path / "x.npz")


def test_a_picture_bomb_is_one_clear_error(tmp_path):
    (tmp_path / "bomb").mkdir()
    Image.new("1", (16, 16)).save(tmp_path / "bomb" / "x.png")
    content = bytearray((tmp_path / "bomb" / "x.png").read_bytes())
    content[16:24] = struct.pack(">II", 50_000, 50_000)  # width and height
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    (tmp_path / "bomb" / "x.png").write_bytes(content)
    for options in ({}, {"resolution": 8}):
        with pytest.raises(DataError, match=r"x.png: the picture has more than 89,\d+,\d+ pixels"):
            load_path(tmp_path / "bomb", **options)
    with pytest.raises(DataError, match="x.png: the picture has more than"):
        zs.data.load("sprites-background", image=str(tmp_path / "bomb" / "x.png"))


def test_a_picture_is_never_given_to_another_program(tmp_path):
    """Pillow starts Ghostscript for PostScript, whatever the name of the file."""
    (tmp_path / "all").mkdir()
    content = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
    (tmp_path / "all" / "x.png").write_bytes(content)
    with pytest.raises(DataError, match="x.png: cannot be read as a picture .UnidentifiedImage"):
        load_path(tmp_path / "all")


def test_an_archive_that_announces_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "available_memory", lambda: 10**6)
    with tarfile.open(tmp_path / cars3d.FILE, "w:gz") as archive:
        member = tarfile.TarInfo("data/cars/car.mat")
        member.size = 10**7
        archive.addfile(member, io.BytesIO(bytes(10**7)))
    with pytest.raises(ResourceError, match="cars3d: data/cars/car.mat in .* needs 10.0 MB"):
        next(cars3d.cars(tmp_path / cars3d.FILE))
    with zipfile.ZipFile(tmp_path / celeba.ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("000001.jpg", bytes(10**7))
    with pytest.raises(ResourceError, match="000001.jpg in the archive needs 10.0 MB"):
        celeba.check_archive(tmp_path / celeba.ARCHIVE, count=1)


def test_members_with_names_of_other_places_write_nothing(tmp_path):
    picture = io.BytesIO()
    Image.new("RGB", (178, 218)).save(picture, "jpeg")
    (tmp_path / "a" / "b").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "a" / "b" / celeba.ARCHIVE, "w") as archive:
        archive.writestr("../../000001.jpg", picture.getvalue())
        archive.writestr(f"{tmp_path}/000002.jpg", picture.getvalue())
    celeba.check_archive(tmp_path / "a" / "b" / celeba.ARCHIVE, count=2)
    assert [path.name for path in tmp_path.rglob("*.jpg")] == []


def test_a_gzip_bomb_is_read_up_to_its_announced_size(tmp_path):
    path = tmp_path / "x.gz"
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(b"\0\0\x08\1" + (5).to_bytes(4, "big"))
        for _ in range(20):
            out.write(bytes(10**6))
    with pytest.raises(DataError, match=r"has more than \(5,\) numbers"):
        mnist.check_idx(path, shape=(5,))
    with pytest.raises(ResourceError, match="one row of"):
        next(unpacking.read_rows(io.BytesIO(), (2, 10**14), np.uint8, "x"))


def test_a_line_without_end_is_not_read(tmp_path):
    for start in (b"", b"a,b\n1,2\n"):
        with (tmp_path / "x.csv").open("wb") as file:
            file.write(start)
            file.truncate(HUGE)
        with pytest.raises(DataError, match="x.csv: a line has more than 16,777,216 characters"):
            load_path(tmp_path / "x.csv")


def test_a_parquet_file_of_absurdly_many_rows_is_refused_by_its_header(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": np.zeros(10**7)}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 10**5
    monkeypatch.setattr(tables, "LARGE", 10**6)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda place: SMALL_DISK)
    with pytest.raises(ResourceError, match=r"x.parquet needs 40.0 MB, and the disk"):
        load_path(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("helix", {"samples": 10**12}),
        ("square-linear", {"samples": 10**12}),
        ("square-nonlinear", {"samples": 10**12}),
        ("helix", {"samples": 10**400}),
        ("sprites", {"resolution": 10**6}),
        ("rooms", {"resolution": 10**400}),
    ],
)
def test_absurd_sizes_of_built_in_data_are_refused(name, options):
    with pytest.raises((ResourceError, ConfigError), match=f"{name}: {next(iter(options))}="):
        zs.data.load(name, **options)


def test_pictures_too_large_to_resize_are_refused_and_others_resized_in_pieces(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8), np.uint8))
    with pytest.raises(ResourceError, match="needs"):
        load_path(tmp_path / "x.npy", resolution=10**6)
    pieces = [*unpacking.resized(iter([np.zeros((20, 1, 28, 28), np.uint8)]), 1024)]
    assert sum(map(len, pieces)) == 20
    assert max(piece.nbytes for piece in pieces) <= unpacking.PIECE


KINDS = ["pipe", "socket", "device", "folder"]


def make(path, kind):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(os.path.relpath(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".csv", ".parquet"])
def test_only_regular_files_are_data_or_codes(tmp_path, monkeypatch, suffix, kind):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / f"x{suffix}", kind)
    for read in (load_path, read_columns):
        with pytest.raises(DataError, match=f"x{suffix} is a {kind}, not a file"):
            read(tmp_path / f"x{suffix}")


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_factors_backgrounds_and_publishers_files(
    tmp_path, monkeypatch, kind
):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones((4, 2)))
    make(tmp_path / "y.npy", kind)
    refused = f"is a {kind}, not a file"
    with pytest.raises(DataError, match=refused):
        load_path(tmp_path / "x.npy", factors="y.npy")
    with pytest.raises(DataError, match=refused):
        zs.data.load("sprites-background", image="y.npy")
    (tmp_path / "mpi3d-toy").mkdir()
    make(tmp_path / "mpi3d-toy" / "mpi3d_toy.npz", kind)
    with pytest.raises(DataError, match=refused):
        zs.data.load("mpi3d-toy", root=tmp_path)
    with pytest.raises(DataError, match=refused):
        zs.data.fetching.fetch("mpi3d-toy", root=tmp_path / "new", from_dir=tmp_path)


def test_a_link_to_a_regular_file_is_read(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    (tmp_path / "y.npy").symlink_to("x.npy")
    assert len(load_path(tmp_path / "y.npy")) == 4


DEEP = "[" * 10**5 + "]" * 10**5
HOSTILE = [
    DEEP, "NaN", '{"categories": 5, "guessed_kinds": 7}', '{"categories": {"shape": 1}}',
    '{"categories": {"other": ["a"]}, "guessed_kinds": ["other"]}', '{"epsilon": NaN}',
    '{"root": "/elsewhere", "imputed": {"a": 1}, "path": "/etc/passwd"}', "1" * 10**5,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_provenance_in_a_file_does_no_harm(tmp_path, text):
    path = tmp_path / "x.npz"
    np.savez(path, images=np.ones((4, 3, 3)), factors=np.arange(4), provenance=np.array(text))
    data = zs.data.load(path)
    assert data.provenance["path"] == str(path)
    assert "root" not in data.provenance
    assert data.recipe["options"] == {}
    json.dumps(data.provenance, allow_nan=False)

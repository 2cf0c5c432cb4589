"""Files are downloaded or imported whole and right, or not at all."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import zscope.data
from zscope import files
from zscope.data.fetching import RECORD, fetch, fetch_source, records, require_files, state
from zscope.data.source import File, Source
from zscope.errors import DataError

GOOD = {"a.bin": b"the first file" * 1000, "b.bin": b"the second file" * 1000}


def refuse_without_the(path):
    if not path.read_bytes().startswith(b"the "):
        raise DataError(f"{path.name}: does not start with 'the'.")


def known(content):
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def source_of(files):
    return Source("tiny", "Tiny", "", "", lambda folder: None, files=files, homepage="http://home")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """What is made of the files is kept with them, in the user's own folder of datasets."""
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path))


@pytest.fixture
def confirmed():
    return source_of(
        tuple(File(name, refuse_without_the, **known(data)) for name, data in GOOD.items())
    )


@pytest.fixture
def unconfirmed():
    return source_of(tuple(File(name, refuse_without_the) for name in GOOD))


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    for name, content in GOOD.items():
        (folder / name).write_bytes(content)
    return folder


def everything_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_an_import_brings_the_files_and_writes_down_what_came(confirmed, published, tmp_path):
    folder = tmp_path / "tiny"
    assert state(confirmed, folder) == "by hand"
    fetched = fetch_source(confirmed, folder, published)
    assert everything_in(folder) == ["a.bin", "b.bin", RECORD]
    assert (folder / "b.bin").read_bytes() == GOOD["b.bin"]
    assert fetched["a.bin"].checked == "sha256"
    assert fetched["a.bin"].sha256 == known(GOOD["a.bin"])["sha256"]
    assert json.loads((folder / RECORD).read_text())["format"] == 1
    assert state(confirmed, folder) == "here"


def test_files_are_also_found_in_a_folder_with_the_name_of_the_dataset(confirmed, tmp_path):
    (tmp_path / "all" / "tiny").mkdir(parents=True)
    for name, content in GOOD.items():
        (tmp_path / "all" / "tiny" / name).write_bytes(content)
    fetch_source(confirmed, tmp_path / "here", tmp_path / "all")
    assert state(confirmed, tmp_path / "here") == "here"


def test_without_a_public_checksum_the_structure_is_checked_and_the_hash_kept(
    unconfirmed, published, tmp_path
):
    fetched = fetch_source(unconfirmed, tmp_path / "tiny", published)
    assert {record.checked for record in fetched.values()} == {"structure"}
    assert fetched["b.bin"].sha256 == hashlib.sha256(GOOD["b.bin"]).hexdigest()
    (published / "b.bin").write_bytes(b"other content")
    with pytest.raises(DataError, match="does not start with 'the'"):
        fetch_source(unconfirmed, tmp_path / "other", published)
    assert everything_in(tmp_path / "other") == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:100], r"has 100 bytes, the publisher's has 15,000. An interrupted"),
        (lambda data: data[:50] + b"X" + data[51:], r"has sha256 \w{64}, the publisher's has \w"),
        (lambda data: data + b"more", r"has 15,004 bytes.*Another version"),
    ],
    ids=["truncated", "altered", "longer"],
)
def test_a_wrong_file_is_refused_and_nothing_of_the_dataset_is_kept(
    confirmed, published, tmp_path, damage, message
):
    (published / "b.bin").write_bytes(damage(GOOD["b.bin"]))
    with pytest.raises(DataError, match=message):
        fetch_source(confirmed, tmp_path / "tiny", published)
    assert everything_in(tmp_path / "tiny") == []
    assert state(confirmed, tmp_path / "tiny") == "by hand"


def test_a_failed_import_leaves_what_was_there_before_untouched(confirmed, published, tmp_path):
    folder = tmp_path / "tiny"
    before = fetch_source(confirmed, folder, published)
    (published / "a.bin").write_bytes(b"the wrong")
    with pytest.raises(DataError):
        fetch_source(confirmed, folder, published)
    assert require_files(confirmed, folder) == before


def test_md5_is_used_where_it_is_all_that_is_public(published, tmp_path):
    good = hashlib.md5(GOOD["a.bin"]).hexdigest()
    right = source_of((File("a.bin", refuse_without_the, md5=good),))
    fetched = fetch_source(right, tmp_path / "tiny", published)
    assert fetched["a.bin"].checked == "md5"
    assert fetched["a.bin"].sha256 == known(GOOD["a.bin"])["sha256"]
    wrong = source_of((File("a.bin", refuse_without_the, md5="0" * 32),))
    with pytest.raises(DataError, match="has md5"):
        fetch_source(wrong, tmp_path / "other", published)


def test_files_put_in_by_hand_are_checked_before_their_first_use(confirmed, published, tmp_path):
    with pytest.raises(DataError, match=r"a.bin, b.bin.*by hand from http://home.*--from DIR"):
        require_files(confirmed, tmp_path / "nothing")
    assert state(confirmed, published) == "by hand"
    assert set(require_files(confirmed, published)) == set(GOOD)
    assert state(confirmed, published) == "here"


def test_a_file_that_changes_later_is_noticed(confirmed, published):
    require_files(confirmed, published)
    (published / "a.bin").write_bytes(b"X" * len(GOOD["a.bin"]))
    assert state(confirmed, published) == "by hand"
    with pytest.raises(DataError, match=r"sha256.*Replace .*a.bin"):
        require_files(confirmed, published)


def test_records_of_another_format_or_torn_are_not_trusted(confirmed, published):
    require_files(confirmed, published)
    written = (published / RECORD).read_text()
    (published / RECORD).write_text(written.replace('"format": 1', '"format": 99'))
    assert records(published) == {}
    (published / RECORD).write_text(written[: len(written) // 2])
    assert records(published) == {}
    assert set(require_files(confirmed, published)) == set(GOOD)


def test_a_missing_file_is_named_with_where_it_was_looked_for(confirmed, published, tmp_path):
    (published / "b.bin").unlink()
    with pytest.raises(DataError, match=r"tiny: b.bin is neither in .*published nor in"):
        fetch_source(confirmed, tmp_path / "tiny", published)
    (published / "a.bin").unlink()
    with pytest.raises(DataError, match=r"tiny: a.bin, b.bin is neither in .*published nor in"):
        fetch_source(confirmed, tmp_path / "tiny", published)
    with pytest.raises(DataError, match=r"elsewhere, which is not a folder"):
        fetch_source(confirmed, tmp_path / "tiny", tmp_path / "elsewhere")
    assert not (tmp_path / "tiny").exists()


def test_a_place_that_cannot_be_written_is_an_error_with_a_way_out(confirmed, published, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write to .*ZSCOPE_DATA"):
        fetch_source(confirmed, tmp_path / "file" / "tiny", published)


def test_caches_made_from_old_files_go_when_new_ones_come(confirmed, published, tmp_path):
    folder = tmp_path / "tiny"
    fetch_source(confirmed, folder, published)
    np.save(folder / "images-old.npy", np.zeros(3))
    fetch_source(confirmed, folder, published)
    assert everything_in(folder) == ["a.bin", "b.bin", RECORD]


def test_what_a_killed_unpacking_left_is_removed_by_the_next(tmp_path):
    from zscope.data.unpacking import memory_map

    left = tmp_path / f".part-{'0' * 16}.npy"
    left.write_bytes(b"half")
    with files.writing(tmp_path / "b.npy") as working:  # by a process that is alive
        array = memory_map(
            "x", tmp_path / "a.npy", (2, 3), np.dtype(np.uint8), iter([np.ones((2, 3))])
        )
        assert array.tolist() == [[1, 1, 1], [1, 1, 1]]
        assert not left.exists()
        assert os.path.exists(working.name)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_memory_map_with_too_few_or_many_rows_is_not_kept(tmp_path, rows):
    from zscope.data.unpacking import memory_map

    pieces = iter([np.ones((rows, 3), np.uint8)])
    with pytest.raises(DataError, match=f"expected 2 samples, the files have {rows}"):
        memory_map("x", tmp_path / "a.npy", (2, 3), np.dtype(np.uint8), pieces)
    assert everything_in(tmp_path) == []


STOPPED = """
import os, signal, sys, time
from pathlib import Path
from zscope.data.fetching import fetch_source
from zscope.data.source import File, Source

# Whatever started the tests in the background may have told them to ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
published, *folders = sys.argv[1:]
for folder in folders:
    if importer := os.fork():
        print(importer, flush=True)
        continue

    def slow(path):
        Path(folder + ".reached").touch()
        time.sleep(60)

    files = (File("a.bin", lambda path: None), File("b.bin", slow))
    source = Source("tiny", "", "", "", lambda folder: None, files=files)
    sys.exit(fetch_source(source, Path(folder), published))
for _ in folders:
    os.wait()
"""


@pytest.mark.slow
def test_an_import_stopped_halfway_leaves_nothing_that_looks_complete(
    unconfirmed, published, tmp_path
):
    folders = {number: tmp_path / number.name for number in (signal.SIGKILL, signal.SIGINT)}
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, published, *folders.values()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    importers = {number: int(process.stdout.readline()) for number in folders}
    deadline = time.monotonic() + 200
    while not all(folder.with_suffix(".reached").exists() for folder in folders.values()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    for number, importer in importers.items():
        os.kill(importer, number)
    process.communicate()
    for number, folder in folders.items():
        assert state(unconfirmed, folder) == "by hand"
        assert not [*folder.glob("[!.]*")]
        if number == signal.SIGINT:
            assert not folder.exists()
        else:
            (lock, part) = sorted(path.name for path in folder.iterdir())
            assert lock == ".lock"
            assert part.startswith(".part-")
        with pytest.raises(DataError, match="2 of 2 files are not in"):
            require_files(unconfirmed, folder)
        fetch_source(unconfirmed, folder, published)
        assert everything_in(folder) == ["a.bin", "b.bin", RECORD]


@pytest.fixture
def server(monkeypatch):
    """A web server on this machine: /good/NAME, /short/NAME, /broken/NAME."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            _, place, name = self.path.split("/")
            if place == "broken":
                self.send_error(503)
                return
            content = GOOD[name] if place == "good" else GOOD[name][:-1]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    requests = []
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    running.requests = requests
    running.address = f"http://127.0.0.1:{running.server_port}"
    yield running
    running.shutdown()
    running.server_close()


def at(source, address, *places):
    """The source with its files at the given places of the server."""
    files = []
    for file in source.files:
        urls = [f"{address}/{place}/{file.name}" for place in places]
        files.append(replace(file, url=urls[0], mirrors=tuple(urls[1:])))
    return replace(source, files=tuple(files))


def test_a_download_is_checked_and_done_once(confirmed, server, tmp_path):
    source = at(confirmed, server.address, "good")
    assert state(source, tmp_path / "tiny") == "can be fetched"
    fetched = fetch_source(source, tmp_path / "tiny")
    assert fetched["a.bin"].origin == f"{server.address}/good/a.bin"
    assert (tmp_path / "tiny" / "b.bin").read_bytes() == GOOD["b.bin"]
    assert fetch_source(source, tmp_path / "tiny") == fetched
    assert server.requests == ["/good/a.bin", "/good/b.bin"]


def test_a_mirror_is_asked_when_the_first_address_fails(confirmed, server, tmp_path):
    fetch_source(at(confirmed, server.address, "broken", "good"), tmp_path / "tiny")
    assert server.requests[:2] == ["/broken/a.bin", "/good/a.bin"]


def test_a_truncated_download_is_refused_and_nothing_kept(confirmed, server, tmp_path):
    with pytest.raises(DataError, match="has 13,999 bytes, the publisher's has 14,000"):
        fetch_source(at(confirmed, server.address, "short"), tmp_path / "tiny")
    assert everything_in(tmp_path / "tiny") == []


def test_an_address_out_of_reach_is_an_error_with_another_way(confirmed, server, tmp_path):
    with pytest.raises(DataError, match=r"could not be downloaded from .*HTTPError.*--from DIR"):
        fetch_source(at(confirmed, server.address, "broken"), tmp_path / "tiny")
    assert everything_in(tmp_path / "tiny") == []


def test_an_address_without_a_checksum_is_never_downloaded_from(unconfirmed, server, tmp_path):
    source = at(unconfirmed, server.address, "good")
    assert state(source, tmp_path / "tiny") == "by hand"
    with pytest.raises(DataError, match="no stable address"):
        fetch_source(source, tmp_path / "tiny")
    assert server.requests == []


def test_a_folder_is_taken_in_place_of_the_archive_it_came_from(tmp_path):
    (tmp_path / "from" / "faces").mkdir(parents=True)
    (tmp_path / "from" / "faces" / "1.txt").write_text("one")
    members = []

    def check(path):
        import zipfile

        with zipfile.ZipFile(path) as archive:
            members.extend(archive.namelist())

    source = source_of((File("faces.zip", check, folder="faces", sha256="0" * 64, size=5),))
    fetched = fetch_source(source, tmp_path / "tiny", tmp_path / "from")
    assert members == ["faces/1.txt"]
    assert fetched["faces.zip"].checked == "structure"
    assert set(require_files(source, tmp_path / "tiny")) == {"faces.zip"}


def test_built_in_data_need_no_fetching(tmp_path):
    assert fetch_source(source_of(()), tmp_path / "tiny") == {}
    assert not (tmp_path / "tiny").exists()


def test_names_are_looked_up_in_the_catalogue(tmp_path):
    with pytest.raises(DataError, match="Did you mean mnist"):
        fetch("mnits", root=tmp_path)
    with pytest.raises(DataError, match=rf"mpi3d_toy.npz.*{tmp_path}/mpi3d-toy"):
        fetch("mpi3d-toy", root=tmp_path)


REAL = [
    "mnist", "fashion-mnist", "dsprites", "shapes3d", "mpi3d-toy", "mpi3d-sim", "mpi3d-real",
    "cars3d", "smallnorb", "celeba", "symsol",
]  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_every_real_dataset_says_what_it_is_and_what_to_do_without_it(name, tmp_path):
    source = zscope.data.source(name)
    assert source.name == name
    assert source.files
    assert source.homepage
    assert source.cite
    assert source.samples
    assert len(source.shape) == 3
    assert source.factors
    for file in source.files:
        # An address is of use only with a hash to hold the file against.
        assert file.url is None or file.sha256 or file.md5
        assert len(file.sha256 or "0" * 64) == 64
        assert len(file.md5 or "0" * 32) == 32
    with pytest.raises(DataError, match=f"{name}: .* not in .*zscope data fetch {name}"):
        zscope.data.load(name, root=tmp_path)


def test_the_progress_bar_is_shown_on_stderr_or_not_at_all(
    capsys, monkeypatch, tmp_path, confirmed, published
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    fetch_source(confirmed, tmp_path / "loud", published, progress=True)
    output = capsys.readouterr()
    assert output.out == ""
    assert "a.bin" in output.err
    fetch_source(confirmed, tmp_path / "quiet", published, progress=False)
    assert capsys.readouterr().err == ""

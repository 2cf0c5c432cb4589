"""Files are complete or absent, and a folder has one writer."""

import errno
import json
import os
import subprocess
import sys
import time

import pytest

from zscope import files
from zscope.errors import DataError, ResourceError, RunError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def full_disk(*args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_locks(*args):
    raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_writing_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch, call):
    file = tmp_path / "x.json"
    files.write_whole(file, b"old")
    monkeypatch.setattr(files.os, call, full_disk)
    with pytest.raises(RunError, match="x.json could not be written .No space left.*disk is full"):
        files.write_whole(file, b"new and longer")
    assert file.read_bytes() == b"old"
    assert names(tmp_path) == ["x.json"]


def test_any_error_while_writing_leaves_nothing(tmp_path):
    def interrupted():
        with files.writing(tmp_path / "x") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == []


def test_a_line_is_added_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "history.jsonl"
    files.append(file, b"one\n")

    class HalfFull(files.io.FileIO):
        def write(self, line):
            return super().write(line[: len(line) // 2])  # as a disk with room for a few bytes

    monkeypatch.setattr(files.io, "FileIO", HalfFull)
    with pytest.raises(RunError, match=r"a row could not be added to .*history.jsonl \(No space"):
        files.append(file, b"a second line\n")
    monkeypatch.undo()
    assert file.read_bytes() == b"one\n"
    files.append(file, b"two\n")
    assert file.read_bytes() == b"one\ntwo\n"


def test_names_may_be_as_long_as_the_file_system_allows(tmp_path):
    name = "é" * 125 + ".json"  # 255 bytes
    files.write_whole(tmp_path / name, b"x")
    assert names(tmp_path) == [name]
    with pytest.raises(RunError, match="File name too long.*Choose a shorter name"):
        files.write_whole(tmp_path / ("x" * 300), b"x")
    assert names(tmp_path) == [name]


WRITER = """
import os, signal, sys
from pathlib import Path
from zscope import files
with files.writing(Path(sys.argv[1])) as file, files.partial_folder(Path(sys.argv[1]).parent):
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_partial_files_are_swept_when_their_writer_is_dead(tmp_path):
    (tmp_path / ".part-of-something-else").write_text("not ours")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "x.npz")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout.readline() == b"writing\n"
    files.sweep(tmp_path)
    assert len(names(tmp_path)) == 3  # the writer lives
    writer.communicate(b"!")
    assert len(names(tmp_path)) == 3
    files.sweep(tmp_path)
    assert names(tmp_path) == [".part-of-something-else"]


def test_where_there_are_no_locks_partial_files_are_swept_after_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    new, old = tmp_path / f".part-{'0' * 16}.json", tmp_path / f".part-{'1' * 16}"
    new.touch()
    old.touch()
    os.utime(old, (0, 0))
    files.sweep(tmp_path)
    assert names(tmp_path) == [new.name]


def test_a_folder_has_one_writer(tmp_path):
    with files.lock(tmp_path / "run", "train"):
        owner = rf"process {os.getpid()} on {files.socket.gethostname()} since"
        with (
            pytest.raises(RunError, match=rf"train: .*run is being written by {owner}.*another"),
            files.lock(tmp_path / "run", "train"),
        ):
            pass
        with files.lock(tmp_path / "other", "train"):
            pass
    assert names(tmp_path) == []  # nothing was written, so nothing is left
    with files.lock(tmp_path / "run", "train"):
        (tmp_path / "run" / "x").touch()
    assert names(tmp_path / "run") == ["x"]


HOLDER = """
import sys
from pathlib import Path
from zscope import files
with files.lock(Path(sys.argv[1]), "train"):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_lock_ends_with_its_process(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"locked\n"
    refused = rf"being written by process {holder.pid} "
    with pytest.raises(RunError, match=refused), files.lock(tmp_path, "train"):
        pass
    holder.kill()
    holder.communicate()
    assert names(tmp_path) == [".lock"]  # the file is left, the lock is not
    with files.lock(tmp_path, "train"):
        pass
    assert names(tmp_path) == []


COUNT = """
import sys
from pathlib import Path
from zscope import files
if sys.argv[2] == "by name":
    def flock(*args):
        raise OSError(95, "Operation not supported")
    files.fcntl.flock = flock
for _ in range(50):
    with files.lock(Path(sys.argv[1]), "test", wait=True):
        number = Path(sys.argv[1], "number")
        number.write_text(str(int(number.read_text()) + 1))
"""


@pytest.mark.parametrize("kind", ["by the kernel", "by name"])
def test_those_who_wait_take_turns(tmp_path, kind):
    (tmp_path / "number").write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path), kind]
    counters = [subprocess.Popen(command) for _ in range(3)]
    assert [counter.wait() for counter in counters] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "150"


def test_without_locks_a_file_shows_that_the_writer_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    monkeypatch.setattr(files, "HEARTBEAT", 0.05)
    monkeypatch.setattr(files, "DEAD", 0.5)
    with files.lock(tmp_path, "train"):
        time.sleep(0.8)  # it would be taken for dead but for its heartbeat
        with pytest.raises(RunError, match="being written by process"), files.lock(tmp_path, "a"):
            pass
    (tmp_path / ".lock-file").write_text(json.dumps({"host": "gone", "process": 1, "since": 0}))
    with pytest.raises(RunError, match="process 1 on gone"), files.lock(tmp_path, "train"):
        pass
    os.utime(tmp_path / ".lock-file", (0, 0))
    with files.lock(tmp_path, "train"):
        pass
    assert [name for name in names(tmp_path) if name != ".lock"] == []


def test_a_folder_that_may_not_be_written_is_refused_in_one_line(tmp_path, monkeypatch):
    def read_only(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files.os, "open", read_only)
    refused = r"train: cannot write to .* \(Read-only file system\). You may not write there"
    with pytest.raises(RunError, match=refused), files.lock(tmp_path, "train"):
        pass


def test_only_regular_files_are_opened(tmp_path):
    pipe = tmp_path / "codes.csv"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="codes.csv is a pipe, not a file. Only regular"):
        files.open_regular(pipe)
    with pytest.raises(RunError, match="run: .*null is a device"):
        files.open_regular("/dev/null", "run", RunError)
    (tmp_path / "x").write_bytes(b"x")
    with files.open_regular(tmp_path / "x") as file:
        assert file.read() == b"x"
    with pytest.raises(FileNotFoundError):
        files.open_regular(tmp_path / "nothing")


def test_sizes_are_compared_with_what_is_free(tmp_path):
    files.check_disk("data", tmp_path / "not" / "yet", 1, "x.h5")
    files.check_memory("data", 1, "x")
    with pytest.raises(ResourceError, match=r"data: x.h5 needs 4.0 TB, and the disk of .* left"):
        files.check_disk("data", tmp_path, 4 * 10**12, "x.h5")
    with pytest.raises(ResourceError, match=r"models: weights needs 1,000.0 TB of memory, and"):
        files.check_memory("models", 10**15, "weights")
    assert 0 < files.available_memory() < 10**13


def test_the_next_writer_sweeps_what_a_dead_one_left(tmp_path):
    left = [tmp_path / f".part-{'0' * 16}.html", tmp_path / ".lock"]
    for path in left:
        path.write_text("half")
    files.write_whole(tmp_path / "report.html", b"whole")
    assert names(tmp_path) == ["report.html"]
    with files.lock(tmp_path, "train"):
        files.write_whole(tmp_path / "report.html", b"whole")
        assert names(tmp_path) == [".lock", "report.html"]  # its owner lives


def test_pipes_in_place_of_locks_and_partial_files_block_nobody(tmp_path):
    for name in (".part-0123456789abcdef", "sub/.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
        files.sweep((tmp_path / name).parent)
        assert (tmp_path / name).exists()  # not ours to delete
    with (
        pytest.raises(RunError, match=r"lock: .*sub/\.lock is a pipe"),
        files.lock(tmp_path / "sub", "test"),
    ):
        pass

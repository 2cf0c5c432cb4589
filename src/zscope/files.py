"""Files that are complete or absent, and folders that have one writer.

- `writing` and `write_whole`: a file appears under its name only when all of it is on disk. A
  crash at any moment leaves the old file or the new one, and perhaps a file `.part-…`, which
  `sweep` deletes once its writer is dead; whoever writes to the folder next calls it.
- `append`: a line is added whole or not at all.
- `lock`: one process writes to a folder. The kernel keeps the lock (flock) and drops it when
  the process dies. On file systems without locks it is a file that its owner touches every few
  seconds.
- `open_regular`, `check_disk`, `check_memory`: nothing is opened that could block for ever, and
  nothing is unpacked or allocated for which there is no room.

Temporary names are random: containers that share a folder have the same process numbers.
"""

import errno
import io
import json
import os
import re
import secrets
import shutil
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from zscope.errors import ConfigError, DataError, Locked, ResourceError, RunError, ZscopeError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "PARTIAL", "append", "as_path", "check_disk", "check_memory", "lock", "locked_by",
    "open_regular", "partial_folder", "require_regular", "sweep", "sync", "write_whole", "writing",
]  # fmt: skip

PARTIAL = ".part-"  # followed by random letters
LOCK = ".lock"
HEARTBEAT = 5.0  # seconds between two signs of life of a lock that is only a file
DEAD = 60.0  # seconds without one
DAY = 86_400.0  # partial files older than this are swept where there are no locks

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A new file, renamed to `path` when the block ends; deleted if it ends with an error."""
    if "\0" in str(path):  # Python raises a ValueError, which nobody expects of a file
        raise OSError(errno.EINVAL, "a name with a null byte")
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    partial, file = _new_partial(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    _sync_folder(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: a crash at any moment leaves the old file or the new one."""
    try:
        with writing(path) as file:
            file.write(content)
    except OSError as error:
        raise RunError(
            f"store: {path} could not be written ({error.strerror or error}). {likely_cause(error)}"
            " No partial file was left behind."
        ) from error


def likely_cause(error: OSError) -> str:
    """Why a file could not be written, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk is full: free some space and start again."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "You may not write there: choose another folder."
    if error.errno == errno.ENAMETOOLONG:
        return "Choose a shorter name."
    if error.errno == errno.EINVAL:
        return "Choose another name."
    return "Is the disk full, or the folder read-only? Choose another place."


def append(path: Path, line: bytes) -> None:
    """Add a line to a file, whole or not at all."""
    try:
        with io.FileIO(path, "ab") as file:
            size = os.fstat(file.fileno()).st_size
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except BaseException:
                with suppress(OSError):
                    file.truncate(size)
                raise
    except OSError as error:
        raise RunError(
            f"store: a row could not be added to {path} ({error.strerror or error}). "
            f"{likely_cause(error)} The rows before it are kept."
        ) from error


def sync(path: Path) -> None:
    """Make what was added to a file survive a power failure."""
    try:
        with io.FileIO(path, "ab") as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(
            f"store: {path} could not be written ({error.strerror or error}). {likely_cause(error)}"
        ) from error


@contextmanager
def partial_folder(parent: Path) -> Iterator[Path]:
    """A folder for files that are not complete yet; deleted when the block ends."""
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = parent / f"{PARTIAL}{secrets.token_hex(8)}"
        folder.mkdir()
        # Between two of these lines `sweep` may have taken it for abandoned.
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            if _try_flock(handle) is not False and folder.exists():
                break
            os.close(handle)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def sweep(folder: Path) -> None:
    """Delete partial files and folders, and a lock, whose owners are dead."""
    with suppress(OSError):  # a folder that may not be read or written has nothing of ours
        for path in [*sorted(folder.glob(f"{PARTIAL}*")), folder / LOCK]:
            ours = re.fullmatch(r"[0-9a-f]{16}(\..+)?", path.name.removeprefix(PARTIAL))
            if ours or path.name == LOCK:
                _delete_if_dead(path)


def _new_partial(path: Path) -> tuple[Path, IO[bytes]]:
    """A new locked file beside `path`, with its ending, so that it can be tried by readers."""
    ending = path.suffix if len(path.suffix.encode()) <= 16 else ""
    while True:
        partial = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}{ending}")
        file = partial.open("xb")
        # Between these two lines `sweep` may have taken it for abandoned.
        if _try_flock(file.fileno()) is not False and partial.exists():
            return partial, file
        file.close()


def _delete_if_dead(path: Path) -> None:
    with suppress(OSError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return  # not ours; opening a pipe would wait for ever
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            locked = _try_flock(handle)
            old = time.time() - os.fstat(handle).st_mtime > DAY
            if locked or (locked is None and old):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        finally:
            os.close(handle)


def _try_flock(handle: int) -> bool | None:
    """Whether the lock was free and is ours now; None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _sync_folder(path: Path) -> None:
    """Make a rename survive a power failure."""
    with suppress(OSError):  # the file is in place; not every file system can do more
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def lock(folder: Path, who: str, *, wait: bool = False) -> Iterator[None]:
    """Be the only process that writes to `folder`.

    If another one does, Locked; with `wait`, wait until it has finished. A folder that does
    not exist is created, and deleted if it is still empty in the end.
    """
    file = folder / LOCK
    waited = 0.0
    try:
        created = not folder.exists()
        if not created and not folder.is_dir():
            raise RunError(f"{who}: {folder} is a file, not a folder. Choose another folder.")
        folder.mkdir(parents=True, exist_ok=True)
        while (held := _acquire(file)) is None:
            owner = _owner(file)
            if not wait:
                raise Locked(
                    f"{who}: {folder} is being written by {owner}. Two writers would mix up their "
                    "files: wait until it has finished, or choose another folder."
                )
            if 1.95 < waited < 2.05:
                print(f"{who}: waiting for {owner}, which writes {folder}", file=sys.stderr)
            time.sleep(0.1)
            waited += 0.1
    except OSError as error:
        raise RunError(
            f"{who}: cannot write to {folder} ({error.strerror or error}). {likely_cause(error)}"
        ) from error
    try:
        yield
    finally:
        held.release()
        if created:
            with suppress(OSError):
                folder.rmdir()


def locked_by(folder: Path) -> str | None:
    """Who writes to `folder`, for messages; None if nobody alive does."""
    file = folder / LOCK
    for name in (file, file.with_name(f"{LOCK}-file")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            about = json.loads(name.read_bytes())
            if about["host"] == socket.gethostname():
                return _owner(file) if _is_alive(int(about["process"])) else None
            if name == file and _is_flocked(file):
                return _owner(file)
            if name != file and _age(name) <= DEAD:
                return _owner(file)
    return None


def _is_alive(process: int) -> bool:
    """Whether a process of this machine runs; one that was killed may wait to be noticed."""
    try:
        os.kill(process, 0)
    except PermissionError:  # that of another user
        return True
    except (OSError, OverflowError):
        return False
    with suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _is_flocked(file: Path) -> bool:
    """Whether a process has the lock of this file. Asking takes it for an instant, so a process
    that wants it just then is refused: nothing may depend on that."""
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        return _try_flock(handle) is False
    finally:
        os.close(handle)


class _Held:
    """A lock that is ours: by the kernel, or by a file that is touched every few seconds."""

    def __init__(self, path: Path, handle: int, *, heartbeat: bool) -> None:
        self._path, self._handle = path, handle
        self._done = threading.Event()
        about = {"host": socket.gethostname(), "process": os.getpid(), "since": time.time()}
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps(about).encode())
        if heartbeat:
            threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self._done.wait(HEARTBEAT):
            with suppress(OSError):
                os.utime(self._handle if os.utime in os.supports_fd else self._path)

    def release(self) -> None:
        self._done.set()
        with suppress(OSError):
            self._path.unlink()  # before the lock is dropped: the next one makes its own file
        os.close(self._handle)


def _acquire(path: Path) -> _Held | None:
    """The lock at `path`, or None if another process has it."""
    for file in (path, path.with_name(f"{path.name}-file")):
        require_regular(file, "lock", RunError)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    locked = _try_flock(handle)
    if locked:
        # The file may have been deleted by its former owner after it was opened here.
        with suppress(OSError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return _Held(path, handle, heartbeat=False)
        os.close(handle)
        return _acquire(path)
    os.close(handle)
    return None if locked is False else _acquire_by_name(path.with_name(f"{path.name}-file"))


def _acquire_by_name(path: Path) -> _Held | None:
    """The same where the file system has no locks: whoever creates the file has the lock."""
    with suppress(FileNotFoundError):
        seen = path.read_bytes()
        if _age(path) > DEAD:
            aside = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
            os.rename(path, aside)
            if aside.read_bytes() != seen:  # not the dead one: its successor was faster
                with suppress(OSError):
                    os.link(aside, path)
            aside.unlink()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    return _Held(path, handle, heartbeat=True)


def _age(path: Path) -> float:
    """Seconds since a file was touched, by the clock of its file system."""
    probe = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
    probe.touch()
    try:
        return probe.stat().st_mtime - path.stat().st_mtime
    finally:
        probe.unlink()


def _owner(path: Path) -> str:
    """Who holds a lock, for messages."""
    for file in (path, path.with_name(f"{path.name}-file")):
        with suppress(OSError, ValueError, TypeError, KeyError, OverflowError):
            about = json.loads(file.read_bytes())
            since = datetime.fromtimestamp(float(about["since"]))
            return f"process {int(about['process'])} on {about['host']} since {since:%d %b %H:%M}"
    return "another process"


def as_path(who: str, path: object) -> Path:
    """A path; ConfigError for what cannot be one."""
    try:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"a {type(path).__name__}")
        place = Path(path)
        os.stat(place)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return place
    except (TypeError, ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{who}: {path!r:.60} is not a path ({reason}). Give the name of a file or a folder."
        ) from None
    return place


def require_regular(
    path: str | Path, who: str = "data", error: type[ZscopeError] = DataError
) -> None:
    """Refuse what is not a regular file: a pipe or a device may block for ever.

    Says nothing about a file that does not exist; whoever opens it does.
    """
    with suppress(OSError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise error(
                f"{who}: {path} is {_kind(mode)}, not a file. Only regular files are read, since "
                "others may have no end: save the content to a file and pass that."
            )


def open_regular(
    path: str | Path, who: str = "data", error: type[ZscopeError] = DataError
) -> IO[bytes]:
    """A regular file, opened for reading."""
    require_regular(path, who, error)
    # Not blocking: the file may have become a pipe since it was looked at.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    return os.fdopen(handle, "rb")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "something else")


def check_disk(who: str, folder: Path, needed: int, what: str) -> None:
    """Refuse to write `needed` bytes to a disk that has less room."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return
    if needed > free:
        raise ResourceError(
            f"{who}: {what} needs {_size(needed)}, and the disk of {folder} has {_size(free)} left."
            " Is the file damaged, or made to fill the disk? If it is right, free some space or "
            "use another disk; nothing was written."
        )


def check_memory(who: str, needed: int, what: str) -> None:
    """Refuse to allocate `needed` bytes where there is less memory."""
    free = available_memory()
    if free is not None and needed > free:
        raise ResourceError(
            f"{who}: {what} needs {_size(needed)} of memory, and {_size(free)} are available. Is "
            "the size a mistake, or the file damaged? If it is right, use a machine with more "
            "memory; nothing was allocated."
        )


def available_memory() -> int | None:
    """Bytes that this process may still allocate; None if that is not known."""
    limits = []
    with suppress(OSError, ValueError, IndexError):
        for row in Path("/proc/meminfo").read_text().splitlines():
            if row.startswith("MemAvailable:"):
                limits.append(int(row.split()[1]) * 1024)
    with suppress(OSError, ValueError, KeyError):  # a container
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        counts = dict(row.split() for row in (group / "memory.stat").read_text().splitlines())
        limits.append(limit - used + int(counts["inactive_file"]))  # which can be dropped
    if not limits:
        with suppress(OSError, ValueError, AttributeError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(0, min(limits)) if limits else None


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def __dir__() -> list[str]:
    return sorted(__all__)

"""Places where a process can die: before and after each change of a file, and in its middle.

`arm` replaces, in this process, the functions that change files. Each call of one of them is a
point, numbered from 0. At a chosen one the process kills itself as a SIGKILL from outside would:
no handler runs, and what was not yet given to the kernel is lost.
"""

import io
import os
import signal
from collections.abc import Callable
from typing import Any

CHANGES = ("replace", "rename", "fsync", "unlink", "remove", "mkdir", "rmdir", "link", "ftruncate")
MOMENTS = ("before", "after", "half")  # half: only some of the bytes are written


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(at: int | None = None, moment: str = "before") -> list[str]:
    """Die at point number `at`; the list grows by the name of each point that is passed."""
    points: list[str] = []

    def passing(name: str, call: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        here = len(points) == at
        points.append(name)
        if here and moment == "before":
            die()
        if here and moment == "half" and half is not None:
            half()
            die()
        try:
            return call()
        finally:  # also where there is nothing to delete, or the folder is there already
            if here:
                die()

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            return passing(name, lambda: function(*args, **options))

        return call

    for name in CHANGES:
        setattr(os, name, counted(name, getattr(os, name)))
    # A killed process leaves the same with and without fsync, which takes most of the time.
    os.fsync = counted("fsync", lambda handle: None)

    write, open_handle = os.write, os.open

    def write_handle(handle: int, content: bytes) -> int:
        half = content[: len(content) // 2]
        return passing("write", lambda: write(handle, content), lambda: write(handle, half))

    def open_counted(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if not flags & os.O_CREAT:
            return open_handle(path, flags, *args, **options)
        return passing("create", lambda: open_handle(path, flags, *args, **options))

    os.write, os.open = write_handle, open_counted

    plain, raw = io.open, io.FileIO

    class Raw(raw):
        def write(self, content: Any) -> int:
            whole = super().write
            half = memoryview(content).cast("B")[: len(content) // 2]
            return passing("write", lambda: whole(content), lambda: whole(half))

    class Buffered(io.BufferedWriter):
        def write(self, content: Any) -> int:
            content = memoryview(content).cast("B")
            whole = super().write

            def half() -> None:
                whole(content[: len(content) // 2])
                self.flush()

            return passing("write", lambda: whole(content), half)

    def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        binary = mode.replace("b", "").replace("t", "")
        if binary not in ("w", "x", "a") or isinstance(file, int):
            return plain(file, mode, *args, **options)
        stream = passing("create", lambda: Buffered(raw(file, binary)))
        encoding = options.get("encoding", "utf-8")
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding=encoding)

    io.FileIO, io.open = Raw, open_file
    __builtins__["open"] = open_file
    return points

"""Places to write to are tried before anything is loaded or measured; results are printed."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from zscope.errors import ConfigError

if TYPE_CHECKING:
    from zscope.errors import ZscopeError
    from zscope.results import Result

__all__ = ["print_with_figure", "save_figures", "try_figure", "try_file", "try_folder"]


def try_figure(option: str, path: Path | None) -> None:
    """Refuse the file of a figure that could not be written, or whose format is unknown."""
    if path is not None:
        from zscope.plots.theme import check_format

        check_format(path)
        try_file(option, path)


def save_figures(figures: "dict[Path, Result]") -> "tuple[list[Path], ZscopeError | None]":
    """Draw results into files; those that were saved, and why the next one was not."""
    from zscope.errors import RunError, Undefined
    from zscope.plots import save

    saved: list[Path] = []
    for file, result in figures.items():
        try:
            save(result.plot(), file)
        # The disk is full, say, or there is nothing to draw: the numbers are still printed.
        except (RunError, Undefined) as error:
            return saved, error
        saved.append(file)
    return saved, None


def print_with_figure(
    result: "Result", figure: Path | None, *, json: bool, csv: bytes | None = None
) -> None:
    """Print a result for people, as JSON or as the CSV that is given, and draw it."""
    saved, unsaved = save_figures({} if figure is None else {figure: result})
    if csv is not None:
        print(csv.decode(), end="")
    elif json:
        from json import dumps

        print(dumps({**result.to_dict(), "figure": str(saved[0]) if saved else None}))
    else:
        print(result)
        for file in saved:
            print(f"figure: {file}")
    if unsaved is not None:
        raise unsaved


OURS = ("run.json", "scores.json", "sweep.json", "history.jsonl", "model.safetensors")
"""Files of runs and sweeps, which no output may replace."""


def try_file(option: str, path: Path) -> None:
    """Refuse a file that could not be written; what is there is not touched.

    Partial files that dead processes left beside it are deleted.
    """
    with _refusals(option, path):
        with suppress(FileNotFoundError, NotADirectoryError):
            mode = os.stat(path).st_mode  # refuses names that are too long
            if not stat.S_ISREG(mode):
                kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
                raise ConfigError(f"{option} {path} is {kind}. Name a file.")
            if path.name in OURS:
                raise ConfigError(
                    f"{option} would replace {path}, which belongs to a run or a sweep. Choose "
                    "another name."
                )
        _try(path.parent)


def try_folder(option: str, folder: Path) -> None:
    """Refuse a folder to which nothing could be written; nothing is left behind."""
    with _refusals(option, folder):
        _try(folder)


@contextmanager
def _refusals(option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        from zscope.files import likely_cause

        raise ConfigError(
            f"{option} {path} cannot be written ({error.strerror or error}). {likely_cause(error)}"
        ) from None


def _try(folder: Path) -> None:
    """Write a file to a folder, which is created if need be, and delete both again."""
    from zscope.files import sweep, writing

    class Tried(Exception):
        pass

    created: list[Path] = []
    try:
        for each in reversed((folder, *folder.parents)):
            if not os.path.lexists(each):
                each.mkdir()
                created.append(each)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        sweep(folder)
        with suppress(Tried), writing(folder / "tried") as file:
            file.write(bytes(4096))
            file.flush()
            raise Tried  # so that it never gets its name
    finally:
        for each in reversed(created):
            with suppress(OSError):
                each.rmdir()

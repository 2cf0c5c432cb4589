"""Get a publisher's files: download them or import them from a folder, and check them.

Files are first written to a temporary folder. When all files of the dataset have passed
their checks they are moved to their final place, and their hashes are written to
`provenance.json` last. A file that is found in place without such a record (put there by
hand, or left by a killed import) is checked before its first use.

What zscope makes of the files (their records, and the arrays that were decoded from them) is
written to the user's own folder of datasets, never beside files that lie elsewhere: such a
folder may be read-only, and a record in it may come from anyone.
"""

import csv
import errno
import hashlib
import json
import lzma
import math
import os
import re
import struct
import sys
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from zscope import files
from zscope.data.source import File, Source
from zscope.errors import DataError, RunError
from zscope.notebook import Line, in_notebook

__all__ = [
    "UNREADABLE", "Record", "State", "cache_folder", "disk_errors", "fetch", "fetch_source",
    "progress_bar", "records", "require_files", "state", "writing_cache",
]  # fmt: skip

RECORD = "provenance.json"
FORMAT = 1
BLOCK = 2**20
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)

# Errors that readers of the file formats raise for a damaged file or one of another format.
UNREADABLE = (
    OSError, ValueError, EOFError, LookupError, TypeError, RuntimeError, ArithmeticError,
    AttributeError, AssertionError, MemoryError, SyntaxError, csv.Error, lzma.LZMAError,
    struct.error, tarfile.TarError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

State = Literal["built in", "here", "can be fetched", "by hand"]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Record:
    """What is known of a file that has been fetched and checked."""

    bytes: int
    sha256: str
    checked: str  # how: "sha256", "md5" or "structure"
    origin: str
    date: str
    modified: int  # modification time in nanoseconds: a changed file is checked again


def fetch(
    name: str,
    root: str | Path | None = None,
    from_dir: str | Path | None = None,
    progress: bool | None = None,
) -> dict[str, Record]:
    """Download or import the files of a dataset: `zscope data fetch NAME [--from DIR]`.

    With `from_dir` they are imported from there (or from its subfolder NAME), else missing
    files are downloaded. If a file is not the publisher's, it is refused and no file is
    kept. `progress=None` shows a progress bar on a terminal.
    """
    from zscope.data import folder, source

    return fetch_source(source(name), folder(root) / name, from_dir, progress)


def fetch_source(
    source: Source,
    folder: Path,
    from_dir: str | Path | None = None,
    progress: bool | None = None,
) -> dict[str, Record]:
    if source.built_in:
        return {}
    before = records(folder)
    wanted = [f for f in source.files if from_dir or not _is_recorded(folder, f, before)]
    places = _places(source, folder, wanted, from_dir) if wanted else {}
    with ExitStack() as stack:
        if wanted:
            stack.enter_context(disk_errors(source.name, folder))
            stack.enter_context(_lock(source.name, folder))
            saved = records(folder)
            if saved != before:  # another process has fetched some of them in the meantime
                wanted = [file for file in wanted if not _is_recorded(folder, file, saved)]
        if wanted:
            files.check_disk(source.name, folder, _total(wanted, places), "the dataset")
            incoming = stack.enter_context(files.partial_folder(folder))
            fetched = {
                file.name: _get_file(source, file, places[file.name], incoming, progress)
                for file in wanted
            }
            for file in wanted:
                os.replace(incoming / file.name, folder / file.name)
            with writing_cache(source.name, cache_folder(folder), held=folder) as writable:
                if writable:
                    for stale in cache_folder(folder).glob("*.npy"):
                        stale.unlink()
                    _write_records(source, folder, {**saved, **fetched})
    return require_files(source, folder)


def require_files(source: Source, folder: Path) -> dict[str, Record]:
    """The records of a dataset's files; a DataError if one is missing or not the publisher's.

    Files that have no record yet are checked first.
    """
    for file in source.files:
        files.require_regular(folder / file.name, source.name)
    missing = [file.name for file in source.files if not (folder / file.name).is_file()]
    if missing:
        raise DataError(_how_to_get(source, folder, missing))
    saved = records(folder)
    if not all(_is_recorded(folder, file, saved) for file in source.files):
        with writing_cache(source.name, cache_folder(folder)) as writable:
            saved = records(folder)  # another process may have checked them in the meantime
            for file in source.files:
                if not _is_recorded(folder, file, saved):
                    path = folder / file.name
                    size, hashes = _read(path, _hashes(file), title=f"checking {file.name}")
                    record = _check(source, file, path, size, hashes, origin="put in by hand")
                    saved[file.name] = record
            if writable:
                _write_records(source, folder, saved)
    return {file.name: saved[file.name] for file in source.files}


def state(source: Source, folder: Path) -> State:
    """Whether a dataset can be loaded now, and if not, how to get it."""
    if source.built_in:
        return "built in"
    saved = records(folder)
    if all(_is_recorded(folder, file, saved) for file in source.files):
        return "here"
    return "can be fetched" if source.can_be_fetched else "by hand"


def records(folder: Path) -> dict[str, Record]:
    """The records of the files in a folder; empty if there are none, or unreadable ones."""
    try:
        with files.open_regular(cache_folder(folder) / RECORD) as file:
            content = json.loads(file.read(BLOCK))
        if content["format"] != FORMAT:
            return {}
        saved = {name: Record(**fields) for name, fields in content["files"].items()}
    except (DataError, *UNREADABLE):
        return {}  # unreadable or of another version: the files are checked again
    return saved if all(_is_sound(record) for record in saved.values()) else {}


def _is_sound(record: Record) -> bool:
    """Whether the fields have their types; the hash becomes part of the names of files."""
    return (
        all(isinstance(number, int) for number in (record.bytes, record.modified))
        and all(isinstance(word, str) for word in (record.checked, record.origin, record.date))
        and re.fullmatch("[0-9a-f]{64}", str(record.sha256)) is not None
    )


def cache_folder(folder: Path) -> Path:
    """Where to keep what is made of the files in a folder: there, if it is in the user's own
    folder of datasets, else in a folder of that."""
    from zscope.data import folder as datasets

    own, place = datasets().absolute().resolve(), folder.absolute().resolve()
    if place.is_relative_to(own):
        return folder
    digest = hashlib.sha256(os.fsencode(place)).hexdigest()[:12]
    return datasets() / "elsewhere" / f"{folder.name[:50]}-{digest}"


@contextmanager
def writing_cache(who: str, folder: Path, *, held: Path | None = None) -> Iterator[bool]:
    """Be the only process that writes to a cache. False if the user may not write there.

    `held` is a folder that this process has locked already.
    """
    writable = True
    with disk_errors(who, folder), ExitStack() as stack:
        if folder != held:
            try:
                stack.enter_context(_lock(who, folder))
            except OSError as error:
                if error.errno not in READ_ONLY:
                    raise
                writable = False
        yield writable


@contextmanager
def _lock(who: str, folder: Path) -> Iterator[None]:
    """Lock a folder, waiting for other processes, and delete what dead ones left."""
    with ExitStack() as stack:
        try:
            stack.enter_context(files.lock(folder, who, wait=True))
        except RunError as error:
            raise (error.__cause__ or error) from None
        files.sweep(folder)
        yield


@contextmanager
def disk_errors(who: str, folder: Path) -> Iterator[None]:
    """Turn errors of a full or read-only disk into a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"{who}: the disk of {folder} is full. Free some space, or keep datasets "
                "elsewhere: set ZSCOPE_DATA or give --root."
            ) from error
        if error.errno in (*READ_ONLY, errno.ENAMETOOLONG):
            raise DataError(
                f"{who}: cannot write to {folder} ({error.strerror}). Keep datasets elsewhere: "
                "set ZSCOPE_DATA or give --root."
            ) from error
        raise


@contextmanager
def progress_bar(
    title: str | None, total: int | None, *, show: bool | None = None
) -> Iterator[Advance]:
    """A progress bar in bytes; without a terminal or notebook, nothing unless asked for."""
    live = sys.stderr.isatty() or in_notebook()
    if title is None or not (live if show is None else show):
        yield lambda count: None
        return
    if in_notebook():
        yield _bar_of_notebook(title, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)


def _bar_of_notebook(title: str, total: int | None) -> Advance:
    line, done = Line(), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        whole = "" if total is None else f" of {total / 1e6:.1f}"
        share = None if total is None else min(1.0, done / max(1, total))
        line.show(f"{title}: {done / 1e6:.1f}{whole} MB", share, last=done == total)

    return advance


def _places(
    source: Source, folder: Path, wanted: list[File], from_dir: str | Path | None
) -> dict[str, Path | str]:
    """Where to get each file from: a path, or an address."""
    if from_dir is None:
        missing = [file.name for file in wanted if not (file.url and (file.sha256 or file.md5))]
        if missing:
            raise DataError(_how_to_get(source, folder, missing))
        return {file.name: str(file.url) for file in wanted}
    start = Path(from_dir).expanduser()
    if not start.is_dir():
        raise DataError(
            f"{source.name}: cannot import from {start}, which is not a folder. Is the path right?"
        )
    places: dict[str, Path | str] = {}
    for file in wanted:
        for place in (start / source.name, start):
            if file.folder and (place / file.folder).is_dir():
                places[file.name] = place / file.folder
            files.require_regular(place / file.name, source.name)
            if (place / file.name).is_file():
                places[file.name] = place / file.name
    missing = [file.name for file in wanted if file.name not in places]
    if missing:
        raise DataError(
            f"{source.name}: {', '.join(missing)} is neither in {start} nor in "
            f"{start / source.name}. Put the files there with these names, as published at "
            f"{source.homepage}."
        )
    return places


def _get_file(
    source: Source, file: File, place: Path | str, incoming: Path, progress: bool | None
) -> Record:
    target = incoming / file.name
    if isinstance(place, str):
        size, hashes = _download(source, file, target, progress)
    elif place.is_dir():
        _pack(place, target, title=file.name, show=progress)
        size, hashes = _read(target, _hashes(file), title=None)
        # An archive packed again here has the publisher's content, but other bytes.
        file = File(file.name, file.check)
    else:
        with target.open("wb") as copy:
            size, hashes = _read(place, _hashes(file), title=file.name, show=progress, copy=copy)
            copy.flush()
            os.fsync(copy.fileno())
    return _check(source, file, target, size, hashes, origin=str(place))


def _download(
    source: Source, file: File, target: Path, progress: bool | None
) -> tuple[int, dict[str, str]]:
    import pooch
    import requests

    failures = []
    for url in (file.url, *file.mirrors):
        try:
            with (
                target.open("wb") as copy,
                progress_bar(file.name, file.size, show=progress) as advance,
            ):
                pooch.HTTPDownloader(
                    progressbar=_PoochProgress(source, file, advance), chunk_size=BLOCK, timeout=60
                )(url, copy, None)
                copy.flush()
                os.fsync(copy.fileno())
            return _read(target, _hashes(file), title=None)
        except requests.RequestException as error:
            failures.append(f"{url} ({type(error).__name__})")
    raise DataError(
        f"{source.name}: {file.name} could not be downloaded from {', '.join(failures)}. Is there "
        "a network connection? Try again, or get the file another way and import it: "
        f"zscope data fetch {source.name} --from DIR"
    )


class _PoochProgress:
    """The interface of a progress bar that pooch expects, passed on to ours.

    Ends a download that is longer than the file, and may have no end.
    """

    total = 0

    def __init__(self, source: Source, file: File, advance: Advance) -> None:
        self._source, self._file, self._advance = source, file, advance
        self._left = math.inf if file.size is None else file.size + BLOCK

    def update(self, count: int) -> None:
        self._advance(count)
        self._left -= count
        if self._left < 0:
            raise DataError(
                f"{self._source.name}: {self._file.name} should have {self._file.size:,} bytes, "
                "and the server sends more. Another version? Get the file from "
                f"{self._source.homepage}; nothing was stored."
            )

    def reset(self) -> None:
        # pooch fills the bar again at the end.
        self._advance, self._left = (lambda count: None), math.inf

    def close(self) -> None:
        pass


def _hashes(file: File) -> tuple[str, ...]:
    """Which hashes to compute: sha256 for the record, md5 where only that is published."""
    return ("sha256", "md5") if file.md5 and not file.sha256 else ("sha256",)


def _read(
    path: Path, hashes: tuple[str, ...], *, title: str | None, show: bool | None = None,
    copy: Any = None,
) -> tuple[int, dict[str, str]]:  # fmt: skip
    """The size and hashes of a file, read once; with `copy`, its bytes are written there."""
    digests = {name: hashlib.new(name, usedforsecurity=False) for name in hashes}
    size = 0
    with (
        files.open_regular(path) as content,
        progress_bar(title, path.stat().st_size, show=show) as advance,
    ):
        while block := content.read(BLOCK):
            size += len(block)
            for digest in digests.values():
                digest.update(block)
            if copy is not None:
                copy.write(block)
            advance(len(block))
    return size, {name: digest.hexdigest() for name, digest in digests.items()}


def _check(
    source: Source, file: File, path: Path, size: int, hashes: dict[str, str], *, origin: str
) -> Record:
    """The record of a file; a DataError if it is not the publisher's."""
    remedy = f"Get the file again from {file.url or source.homepage}; nothing was stored."
    if origin == "put in by hand":
        remedy = f"Replace {path} by the file from {file.url or source.homepage}."
    if file.size is not None and size != file.size:
        raise DataError(
            f"{source.name}: {file.name} has {size:,} bytes, the publisher's has {file.size:,}. "
            f"{'An interrupted download?' if size < file.size else 'Another version?'} {remedy}"
        )
    checked = "sha256" if file.sha256 else "md5" if file.md5 else "structure"
    if checked == "structure":
        try:
            file.check(path)
        except UNREADABLE as error:
            raise DataError(
                f"{source.name}: {file.name} ({size:,} bytes) cannot be read "
                f"({type(error).__name__}: {error}). Truncated, or not the publisher's? {remedy}"
            ) from error
    elif hashes[checked] != getattr(file, checked):
        raise DataError(
            f"{source.name}: {file.name} ({size:,} bytes) has {checked} {hashes[checked]}, the "
            f"publisher's has {getattr(file, checked)}. Damaged in transfer, or altered? {remedy}"
        )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(size, hashes["sha256"], checked, origin, now, path.stat().st_mtime_ns)


def _is_recorded(folder: Path, file: File, saved: dict[str, Record]) -> bool:
    """Whether a file is in place and has not changed since it was checked."""
    try:
        now = (folder / file.name).stat()
    except OSError:
        return False
    record = saved.get(file.name)
    return record is not None and (now.st_size, now.st_mtime_ns) == (
        record.bytes,
        record.modified,
    )


def _write_records(source: Source, folder: Path, saved: dict[str, Record]) -> None:
    names = {file.name for file in source.files}
    facts = {name: asdict(record) for name, record in saved.items() if name in names}
    content = {"format": FORMAT, "dataset": source.name, "folder": str(folder), "files": facts}
    with files.writing(cache_folder(folder) / RECORD) as out:
        out.write(json.dumps(content, indent=2).encode(errors="surrogateescape"))


def _pack(unpacked: Path, target: Path, *, title: str, show: bool | None) -> None:
    """Pack a folder into an archive; pictures are compressed already, so the archive is not."""
    members = sorted(path for path in unpacked.rglob("*") if path.is_file())
    total = sum(path.stat().st_size for path in members)
    with (
        zipfile.ZipFile(target, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive,
        progress_bar(title, total, show=show) as advance,
    ):
        for path in members:
            archive.write(path, Path(unpacked.name) / path.relative_to(unpacked))
            advance(path.stat().st_size)


def _total(wanted: list[File], places: dict[str, Path | str]) -> int:
    """Bytes of the files to fetch, as far as they are known."""
    total = 0
    for file in wanted:
        place = places[file.name]
        if isinstance(place, str):
            total += file.size or 0
        else:
            inside = place.rglob("*") if place.is_dir() else [place]
            total += sum(path.stat().st_size for path in inside if path.is_file())
    return total


def _how_to_get(source: Source, folder: Path, missing: list[str]) -> str:
    """The error for missing files: which to get, and where to put them."""
    names = ", ".join(missing)
    start = f"{source.name}: {len(missing)} of {len(source.files)} files are not in {folder}: "
    by_hand = (
        f"put {'it' if len(missing) == 1 else 'them'} into {folder}, or import from where "
        f"{'it is' if len(missing) == 1 else 'they are'}: "
        f"zscope data fetch {source.name} --from DIR"
    )
    if source.can_be_fetched:
        return f"{start}{names}. Download with: zscope data fetch {source.name} (or {by_hand})"
    return (
        f"{start}{names}. There is no stable address to download from: get "
        f"{'it' if len(missing) == 1 else 'them'} by hand from {source.homepage}, then {by_hand}"
    )

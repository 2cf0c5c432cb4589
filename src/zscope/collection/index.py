"""What is read of each run, and an index of it, so that thousands are read once.

The index is an SQLite file, `.index.sqlite`, in the folder of the runs. It is never the truth: a
run whose files have another time, size or inode than when they were read is read again, and an
index that is damaged, of another version or not to be written is done without. A new index
replaces the old one by a rename and is never changed in place, so that it needs no locks:
several processes may read and write it at once, on network file systems too.
"""

import hashlib
import json
import math
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from zscope.documents import Damaged, read_json, read_run_file
from zscope.errors import RunError, ZscopeError
from zscope.files import open_regular, require_regular, writing

__all__ = ["FILE", "LEFT_OUT", "cell", "fields_of", "read_all", "stamps_below", "stamps_of"]

Record = dict[str, Any]

FILE = ".index.sqlite"
VERSION = 3
DEPTH = 4
"""How many folders deep runs are looked for."""
MOST = 20_000
"""Folders without a run that are looked into."""
WORTH = 50
"""Fewer runs are read as fast as their index."""
TAIL = 65_536
"""Bytes at the end of a history that are read for its last row."""
ENTRY = ("assay", "options", "asked", "samples", "used", "seed", "scores", "missing", "zscope",
         "source", "time")  # fmt: skip
"""What is read of a measurement."""
SKIPPED = ("scaling", "snapshots", "model", "data")
LEFT_OUT = frozenset({"snapshots", "snapshot_every", "checkpoint_every", "device", "scaling"})
"""Settings that do not make another run: they are no part of its address."""


def stamps_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The state of the files of each named run, for those that exist."""
    root = str(folder)
    stamps = ((name, _stamp(f"{root}/{name}")) for name in names)
    return {name: stamp for name, stamp in stamps if stamp is not None}


def stamps_below(folder: Path) -> dict[str, str]:
    """The same for every run below a folder, by its place in it."""
    stamps: dict[str, str] = {}
    level, looked_into = [""], 0
    for _ in range(DEPTH):
        deeper = []
        for place in level:
            for name, linked in _folders(folder / place):
                below = f"{place}{name}"
                stamp = _stamp(f"{folder}/{below}")
                if stamp is not None:
                    stamps[below] = stamp
                elif not linked:  # a link may lead back to where it lies
                    deeper.append(f"{below}/")
        looked_into += len(deeper)
        if looked_into > MOST:
            raise RunError(
                f"runs: more than {MOST:,} folders below {folder} are no runs. Is it the right "
                "folder? Name one that is nearer to the runs."
            )
        level = deeper
    return dict(sorted(stamps.items()))


def _folders(folder: Path) -> Iterator[tuple[str, bool]]:
    """The names of the folders in a folder, and whether each is a link."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir():
                    yield entry.name, entry.is_symlink()
    except OSError:  # not to be read, or deleted meanwhile
        return


def _stamp(path: str) -> str | None:
    """The times, sizes and inodes of the files of a run; None if it is no run."""
    try:
        state = os.stat(f"{path}/run.json")
    except OSError:
        return None
    parts = [f"{state.st_mtime_ns} {state.st_size} {state.st_ino}"]
    for name in ("scores.json", "history.jsonl"):
        try:
            state = os.stat(f"{path}/{name}")
            parts.append(f"{state.st_mtime_ns} {state.st_size} {state.st_ino}")
        except OSError:
            parts.append("")
    return "|".join(parts)


def read_all(folder: Path, stamps: Mapping[str, str], *, whole: bool) -> dict[str, Record]:
    """The records of runs with these stamps, from the index of the folder where it has them.

    `whole`: there are no other runs in the folder, so that the index forgets all others.
    """
    if len(stamps) < WORTH:
        return {name: read_record(folder / name) for name in stamps}
    index = _load(folder / FILE)
    records: dict[str, Record] = {}
    lines: dict[str, tuple[str, str]] = {} if whole else dict(index)
    changed = 0
    for name, stamp in stamps.items():
        line = index.get(name)
        record = _decode(line[1]) if line is not None and line[0] == stamp else None
        if record is None:
            changed += 1
            record = read_record(folder / name)
            lines[name] = stamp, json.dumps(record, separators=(",", ":"))
        else:
            lines[name] = line  # type: ignore[assignment]
        records[name] = record
    # A few runs that change all the time are read again sooner than a large index is written.
    if changed > len(stamps) // 100:
        _save(folder / FILE, lines)
    return records


def _load(path: Path) -> dict[str, tuple[str, str]]:
    """The stamp and the record of each run in an index; {} if it is damaged or there is none."""
    with suppress(sqlite3.Error, OSError, ValueError, ZscopeError):
        require_regular(path, "runs", RunError)
        if not path.is_file():
            return {}
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as index:
            if index.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                return {}
            rows = index.execute("SELECT name, stamp, record, checksum FROM runs").fetchall()
        if all(zlib.crc32(f"{n}{s}{r}".encode()) == checksum for n, s, r, checksum in rows):
            return {name: (stamp, record) for name, stamp, record, _ in rows}
    return {}


def _save(path: Path, lines: Mapping[str, tuple[str, str]]) -> None:
    """Replace an index, if the folder may be written."""
    rows = (
        (name, stamp, record, zlib.crc32(f"{name}{stamp}{record}".encode()))
        for name, (stamp, record) in lines.items()
    )
    with (
        suppress(sqlite3.Error, OSError, AttributeError),
        closing(sqlite3.connect(":memory:")) as index,
    ):
        index.execute(f"PRAGMA user_version = {VERSION}")
        index.execute(
            "CREATE TABLE runs (name TEXT PRIMARY KEY, stamp TEXT, record TEXT, checksum INT)"
        )
        index.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", rows)
        index.commit()
        with writing(path) as file:
            file.write(index.serialize())


def _decode(text: str) -> Record | None:
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def read_record(path: Path) -> Record:
    """What a table may show of a run; of a damaged one, what is wrong with it."""
    problems: list[str] = []
    try:
        run = read_run_file(path)
    except (ZscopeError, OSError) as error:
        return {"status": "damaged", "problems": [str(error)]}
    record: Record = {
        "status": run["status"],
        "step": run["step"],
        "fields": {key: cell(value) for key, value in fields_of(run["config"]).items()},
        "environment": _environment(run["environment"]),
        **_identity(run),
    }
    for name, read in (("entries", _entries), ("last", _last_row)):
        try:
            record[name] = read(path)
        except (ZscopeError, OSError) as error:
            problems.append(str(error))
    return {**record, "problems": problems} if problems else record


def _identity(run: Mapping[str, Any]) -> Record:
    """What tells whether two runs are the same one: the address that a sweep has given it, and a
    hash of its configuration. A model or data of one's own have none."""
    config, address = run["config"], run["environment"].get("address")
    identity = {"address": address} if isinstance(address, str) else {}
    if config.get("model") and config.get("data"):
        plain = {key: value for key, value in config.items() if key not in LEFT_OUT}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        identity["config"] = hashlib.sha256(text.encode()).hexdigest()[:32]
    return identity


def fields_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run as one level, by the names that a plan uses: options.beta."""
    model, data = config.get("model") or {}, config.get("data") or {}
    start = config.get("start") or {}
    split = dict(data.get("split") or {})
    fields = {
        "model": model.get("name"),
        "data": data.get("name"),
        "latents": model.get("latents"),
        **{f"options.{key}": value for key, value in (model.get("options") or {}).items()},
        **{f"data.options.{key}": value for key, value in (data.get("options") or {}).items()},
        "split": split.pop("fractions", None),
        **{f"data.split.{key}": value for key, value in split.items()},
        "leave_out": data.get("leave_out"),
        "shape": model.get("shape"),
        **{key: value for key, value in config.items() if key not in SKIPPED},
        "start": start.get("about") or start.get("run"),
    }
    fields["snapshots"] = config.get("snapshots") or None
    return {key: value for key, value in fields.items() if value is not None}


def cell(value: Any) -> Any:
    """A setting as a number, a truth value or a text."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list):
        return ",".join(str(cell(item)) for item in value)
    return json.dumps(value, sort_keys=True)


def _environment(environment: dict[str, Any]) -> dict[str, Any]:
    """What could change the bits of a run."""
    known = ("zscope", "torch", "numpy", "python", "machine", "threads", "device")
    about = {key: str(environment[key]) for key in known if key in environment}
    members = environment.get("ensemble")
    return {**about, "trained": "in an ensemble" if members else "alone"}


def _entries(path: Path) -> list[dict[str, Any]]:
    """The scores that were measured of a run, oldest first."""
    file = path / "scores.json"
    if not file.exists():
        return []
    content = read_json(file).get("entries")
    if not isinstance(content, list) or not all(map(_is_entry, content)):
        raise Damaged(
            f"runs: {file} has no list of entries with an assay and its scores. Was it edited? "
            "Delete it and measure again: zscope assay RUN."
        )
    entries = [{k: entry[k] for k in ENTRY if k in entry} for entry in content]
    for entry in entries:
        entry["source"] = str(entry.get("source"))[:12]
    return sorted(entries, key=lambda entry: float(entry.get("time") or 0))


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("assay"), str)
        and isinstance(entry.get("scores") or {}, dict)
        and isinstance(entry.get("time") or 0, int | float)
    )


def _last_row(path: Path) -> dict[str, Any]:
    """The numbers in the last complete row of the history."""
    file = path / "history.jsonl"
    if not file.exists():
        return {}
    with open_regular(file, "runs", RunError) as stream:
        size = stream.seek(0, os.SEEK_END)
        for length in (TAIL, size):
            stream.seek(max(0, size - length))
            lines = stream.read().split(b"\n")[:-1]  # the last one is incomplete, or empty
            if len(lines) > 1 or length >= size:
                break
    if not lines:
        return {}
    try:
        row = json.loads(lines[-1])
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise Damaged(
            f"runs: the last row of {file} cannot be read: {lines[-1][:60]!r}. Was it changed by "
            "another program? Restore it from a copy; the scores of the run are not affected."
        )
    aside = ("format", "step")
    return {key: value for key, value in row.items() if key not in aside and _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

"""JSON files with a format version and a checksum, and what a run.json must have in it.

They are read without loading torch: a table of many runs needs nothing else.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from zscope.errors import RunError
from zscope.files import open_regular, write_whole

__all__ = [
    "CHECKSUM", "FORMAT", "REPORT_FORMAT", "Damaged", "checksum_of", "damage_text", "is_run",
    "read_json", "read_run_file", "schema_address", "verify", "write_json",
]  # fmt: skip

FORMAT = 1
"""Of the files of runs."""
REPORT_FORMAT = 2
"""Of reports and results as JSON: report.json, and what --json prints; see `zscope schema`."""
CHECKSUM = "sha256"

# What the entries of run.json are, as far as they are there; {} nests, and may be absent (null).
Kinds = dict[str, Any]
HISTORY: Kinds = {"bytes": int, "sha256": str}
KINDS: Kinds = {
    "status": str, "step": int, "config": dict, "environment": dict, "history": HISTORY,
}  # fmt: skip
CONFIG: Kinds = {
    "model": {"name": str, "shape": [int], "latents": int, "options": dict},
    "data": {
        "name": str,
        "options": dict,
        "split": {"fractions": [float], "seed": int, "part": int},
        "leave_out": dict,
    },
    "scaling": {"mean": [float], "scale": [float], "names": [str], "categories": dict},
    "start": {"run": str},
}


def schema_address(name: str) -> str:
    """What files name as their schema, and the schema as its own: urn:zscope:schema:report:2."""
    return f"urn:zscope:schema:{name}:{REPORT_FORMAT}"


class Damaged(RunError):
    """A file of a run is not as it was written."""


def is_run(path: str | Path) -> bool:
    """Whether this folder is a run of zscope."""
    try:
        return (Path(path) / "run.json").is_file()
    except OSError:  # a name that is too long
        return False


def read_run_file(path: Path) -> dict[str, Any]:
    """The content of the run.json of a run, whose entries are what they must be."""
    if not is_run(path):
        if path.is_dir() and any(path.iterdir()):
            raise RunError(
                f"store: {path} contains no run.json. It is not a run, or one that was stopped "
                f"before training began. Start it again: zscope train ... --out {path}"
            )
        raise RunError(
            f"store: there is no run at {path}. Train one with: zscope train MODEL DATASET "
            f"--out {path}"
        )
    content = read_json(path / "run.json")
    missing = [key for key in ("status", "step", "config") if key not in content]
    if missing:
        raise RunError(
            f"store: {path / 'run.json'} lacks {', '.join(missing)}. It was edited, or written "
            "by another program. Restore it, or train again."
        )
    content = {"environment": {}, "history": None, **content}
    _check_kinds(path / "run.json", content, KINDS)
    _check_kinds(path / "run.json", content["config"], CONFIG, "config.")
    return content


def _check_kinds(path: Path, content: dict[str, Any], kinds: Kinds, place: str = "") -> None:
    """Refuse a file whose entries are not what they must be."""
    for key, kind in kinds.items():
        value = content.get(key)
        nested = isinstance(kind, dict)
        if key not in content and (nested or kind is dict or not place):
            continue
        if nested and isinstance(value, dict):
            _check_kinds(path, value, kind, f"{place}{key}.")
        elif not _is_kind(value, kind):
            name = "a list" if isinstance(kind, list) else "dict" if nested else kind.__name__
            raise RunError(
                f"store: {path} has {place}{key}={_short(value)}; expected {name}. Was it edited? "
                "Restore it, or train again."
            )


def _is_kind(value: Any, kind: Any) -> bool:
    if isinstance(kind, dict):
        return value is None
    if isinstance(kind, list):
        return isinstance(value, list) and all(_is_kind(item, kind[0]) for item in value)
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:60]}…"


def write_json(path: Path, content: dict[str, Any], *, indent: int | None = 2) -> None:
    """Write a JSON file with its format and its checksum."""
    plain = {"format": FORMAT, **json.loads(json.dumps(content))}
    text = json.dumps({**plain, CHECKSUM: checksum_of(plain)}, indent=indent)
    write_whole(path, f"{text}\n".encode())


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file of zscope; raises RunError if it is damaged or too new."""
    try:
        with open_regular(path, "store", RunError) as file:
            content = json.loads(file.read())
    except (ValueError, OSError, RecursionError) as error:
        raise Damaged(
            f"store: {path} cannot be read ({error}). It is damaged or truncated; restore it "
            "from a copy, or create it again."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        version = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise RunError(
            f"store: {path} has format {version!r}; this zscope reads format {FORMAT}. Was it "
            "written by another version, or by hand? Update zscope, or create the file again."
        )
    verify(path, content)
    return content


def verify(path: Path, content: dict[str, Any]) -> None:
    """Take the checksum out of the content of a JSON file; Damaged if it is not its own."""
    checksum = content.pop(CHECKSUM, None)
    if checksum is not None and checksum != checksum_of(content):
        raise Damaged(
            f"store: {path} does not agree with its own checksum. It is damaged, or was edited: "
            f"restore it from a copy or, if you edited it on purpose, delete its {CHECKSUM} entry."
        )


def checksum_of(content: dict[str, Any]) -> str:
    """The checksum of values that come from JSON, whatever their order and spacing."""
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def damage_text(path: Path, seen: str) -> str:
    return (
        f"store: {path} is damaged: {seen}. Was it changed by another program, or the disk at "
        "fault? Restore it from a copy, or create it again."
    )

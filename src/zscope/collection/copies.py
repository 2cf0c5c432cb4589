"""Runs that are there more than once: in two sweeps, or in a folder and its copy.

A mean over runs that counts one of them twice has an interval that is too narrow.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Copy", "merge_copies"]

Record = Mapping[str, Any]


class Copy(NamedTuple):
    """A run that is left out because another one is the same."""

    of: str
    agrees: bool  # whether it has the same numbers: on another machine rounding may differ


def merge_copies(records: Mapping[str, Record]) -> tuple[dict[str, Record], dict[str, Copy]]:
    """Finished runs once each, and for each copy the one that is kept.

    The first by name is kept, with the entries of assays that only a copy has.
    """
    addresses = {
        record["config"]: record["address"]
        for record in records.values()
        if "config" in record and "address" in record
    }
    first: dict[str, str] = {}
    kept, copies = dict(records), dict[str, Copy]()
    for name in sorted(records):
        record = records[name]
        config = record.get("config")
        key = record.get("address") or addresses.get(config, config)
        if key is None or record["status"] != "finished":
            continue
        if (original := first.setdefault(key, name)) != name:
            copies[name] = Copy(original, _agree(records[original], record))
            kept[original] = _merge(kept[original], kept.pop(name))
    return kept, copies


def _merge(record: Record, copy: Record) -> Record:
    own = record.get("entries", [])
    measured = {entry["assay"] for entry in own}
    more = [entry for entry in copy.get("entries", ()) if entry["assay"] not in measured]
    return {**record, "entries": [*own, *more]} if more else record


def _agree(record: Record, copy: Record) -> bool:
    """Whether what was measured of both, and the last loss, are the same."""
    first, second = _numbers(record), _numbers(copy)
    return all(first[key] == second[key] for key in first.keys() & second.keys())


def _numbers(record: Record) -> dict[tuple[Any, ...], Any]:
    asked = ("assay", "options", "asked", "seed")
    numbers = {
        tuple(entry.get(key) for key in asked): entry.get("scores")
        for entry in record.get("entries", ())
    }
    return {**numbers, ("loss",): record.get("last", {}).get("loss")}

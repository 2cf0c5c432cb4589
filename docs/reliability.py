"""The page on reliability: python docs/reliability.py writes docs/reliability.md.

Its numbers are those of tests/reference/reliability/, which the slow tests of tests/faults/ count.
"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COUNTS = HERE.parent / "tests" / "reference" / "reliability"
PAGE = HERE / "reliability.md"
INTRO = """# Reliability

What was tried to lose work, or to get a wrong answer or a crash, and what came of it. The numbers
are counts of the last complete run of each test below `tests/faults/`; the default tests repeat
a small part of each, and `make test-slow TESTS=tests/faults` all of it, which with
ZSCOPE_RECORD=1 writes this page's numbers anew (then `python docs/reliability.py`).
"""
# Each file of counts: the title of its part, what was done, and what was allowed to happen.
PARTS = {
    "kills": (
        "Killed processes",
        "Processes that train (every kind of model, ensembles), unpack and fetch data, perturb, "
        "search with FONDUE, measure and write reports were killed (SIGKILL) at random moments and "
        "before and after each write, rename, fsync and deletion. Allowed: every file complete or "
        "absent, and the same command again ends with the same bytes as if nothing had happened, "
        "with no left-overs.",
    ),
    "sweeps": (
        "Sweeps under fire",
        "Three processes, one with two workers of its own, worked on one sweep of 40 runs, and "
        "about every second one of them or a worker was killed (SIGKILL) and started again until "
        "all was done. Allowed: every run trained to its end once, going on from its last "
        "checkpoint, and every file equal to that of a sweep that nobody disturbed, apart from "
        "times.",
    ),
    "run_files": (
        "Damaged files of a run",
        "Every file of a run was cut, flipped, overwritten, exchanged, replaced by a folder or a "
        "pipe, or given hostile values. Allowed: the right answer, or an error naming the file.",
    ),
    "files.data": (
        "Damaged and hostile data",
        "The same for files of every format that is read: arrays, tables, pictures, publishers' "
        "archives, weights of other libraries. Allowed: the right answer; other values, where the "
        "format has no checksum (a flipped pixel is a pixel); or an error that names the file. "
        "No crash, no hang, no memory beyond the limit.",
    ),
    "api": (
        "Hostile arguments",
        "Every public function was called with arguments drawn by hypothesis: shapes, types, "
        "strides, NaN, constants, duplicates, scales from 1e-30 to 1e30, one row, one latent, more "
        "latents than rows, and models that misbehave. Allowed: an answer that is finite and the "
        "same when repeated, or an error that says what to do; the caller's arrays, the model and "
        "the global random state stay as they were.",
    ),
    "commands": (
        "Commands at bad places",
        "Every command with every kind of terminal, environment and path: full and closed output, "
        "ASCII, folders that may not be written, names of 300 letters. Allowed: at most one line "
        "on stderr and the right exit code.",
    ),
}

# What was found while a test was written, where its own file of counts does not say so.
FOUND: dict[str, dict[str, Any]] = {
    "api": {
        "failures_before": 274,
        "how": "70 and 184 calls failed in a first pass over half of the functions each, searches "
        "of fondue_beta did not end, and 20 calls failed in a second pass over all, with other "
        "draws. The counts are of one run of all, after the repairs. Arguments that could not "
        "be made (a Posterior that was refused, say) are no calls.",
    },
    "files.data": {
        "failures_before": 345,
        "how": "Before the repairs, 345 of 10,702 files failed; the counts are of a later run of "
        "fewer files.",
        "repaired": [
            "flipped bits in uncompressed .npz arrays, .pt weights and the gzip files of smallNORB "
            "were loaded: their checksums were never compared",
            "a damaged directory of a zip file hid arrays, so that factors or their names vanished",
            "files that announce more than the disk or the memory holds were unpacked or allocated",
            "pipes and devices were opened, and blocked for ever",
            "damaged headers of .npy files ended in a foreign exception",
            "errors of archives and of a damaged config.json did not name the file",
        ],
    },
}


def read(name: str) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads((COUNTS / f"{name}.json").read_text())
    return {"tries": counts.get("files"), **counts}


def text() -> str:
    """The whole page."""
    rows = ["| what | tries | failures before | failures now |", "| --- | ---: | ---: | ---: |"]
    parts = []
    for name, (title, done) in PARTS.items():
        counts = {**FOUND.get(name, {}), **read(name)}
        before = counts.get("failures_before")
        shown = "not counted" if before is None else f"{before:,}"
        rows.append(f"| {title} | {counts['tries']:,} | {shown} | {counts['failures']:,} |")
        parts.append(f"## {title}\n\n{done}\n\n{details(counts)}")
    return "\n".join([INTRO, *rows, "", *parts])


def details(counts: dict[str, Any]) -> str:
    """The counts of each kind of try, and what was repaired."""
    lines = []
    if note := counts.get("how"):
        lines += [note if isinstance(note, str) else "\n".join(f"- {each}" for each in note), ""]
    kinds = counts.get("by_work") or counts.get("by_door") or counts.get("outcomes") or {}
    if kinds:
        columns = sorted({key for each in kinds.values() for key in each})
        lines += [f"| | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
        for kind, each in kinds.items():
            lines.append(f"| {kind} | {' | '.join(f'{each.get(key, 0):,}' for key in columns)} |")
        lines.append("")
    if repaired := counts.get("repaired"):
        lines += [
            "What broke, and was repaired:",
            "",
            *(f"- {one_line(item)}" for item in repaired),
        ]
        lines.append("")
    return "\n".join(lines)


def one_line(item: Any) -> str:
    return item if isinstance(item, str) else f"{item['broke']}: {item['repaired']}"


if __name__ == "__main__":
    PAGE.write_text(text())

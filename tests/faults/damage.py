"""Ways in which a file can be damaged, or replaced by a hostile one."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

NESTED = "[" * 100_000 + "]" * 100_000
HOSTILE = [
    None, True, False, 0, -1, 1.5, 10**30, -(10**30), float("nan"), float("inf"), 1e308, "", "x",
    "../../../etc/passwd", "/dev/zero", "é\u0000\n", "9" * 5000, "x" * 100_000, [], [[]], {},
    [None], {"": None}, {"name": "../.."}, [1, "x", None], list(range(1000)), "NESTED",
]  # fmt: skip
HUGE = (10**30, "9" * 5000)  # sizes of models are checked elsewhere


def _span(draw: random.Random, content: bytes) -> tuple[int, int]:
    start = draw.randrange(len(content))
    return start, min(len(content), start + draw.choice((1, 2, 8, 64, 512, 4096)))


def truncated(draw: random.Random, content: bytes) -> bytes:
    places = [0, 1, 7, 8, 9, len(content) // 2, len(content) - 1, draw.randrange(len(content))]
    return content[: draw.choice(places)]


def flipped(draw: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 10))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def overwritten(draw: random.Random, content: bytes) -> bytes:
    start, end = _span(draw, content)
    return content[:start] + draw.randbytes(end - start) + content[end:]


def zeroed(draw: random.Random, content: bytes) -> bytes:
    start, end = _span(draw, content)
    return content[:start] + bytes(end - start) + content[end:]


def doubled(draw: random.Random, content: bytes) -> bytes:
    start, end = _span(draw, content)
    return content[:end] + content[start:]


def shortened(draw: random.Random, content: bytes) -> bytes:
    start, end = _span(draw, content)
    return content[:start] + content[end:]


def swapped(draw: random.Random, content: bytes) -> bytes:
    (a, b), (c, d) = sorted([_span(draw, content), _span(draw, content)])
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def lengthened(draw: random.Random, content: bytes) -> bytes:
    return content + draw.randbytes(draw.choice((1, 100, 5000)))


CONTENTS: list[Callable[[random.Random, bytes], bytes]] = [
    truncated, flipped, flipped, overwritten, zeroed, doubled, shortened, swapped, lengthened,
]  # fmt: skip


def replaced(draw: random.Random, file: Path) -> str:
    """Put something there that is not a file, or an empty one."""
    kind = draw.choice(("folder", "pipe", "empty", "loop", "nowhere", "device", "itself a folder"))
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "itself a folder":
        file.mkdir()
        (file / file.name).write_text("x")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "empty":
        file.touch()
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "nowhere":
        file.symlink_to("nowhere")
    else:
        file.symlink_to("/dev/zero")
    return kind


def exchanged(draw: random.Random, file: Path, others: list[Path]) -> str:
    other = draw.choice([each for each in others if each != file])
    aside = file.with_name("aside")
    shutil.move(file, aside)
    shutil.move(other, file)
    shutil.move(aside, other)
    return f"exchanged with {other.name}"


def hostile_json(draw: random.Random, content: Any, protected: tuple[str, ...] = ()) -> str:
    """The text of a JSON value with one entry replaced, deleted, added or of another length."""
    places: list[tuple[Any, Any, tuple[Any, ...]]] = []

    def visit(value: Any, path: tuple[Any, ...]) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            places.append((value, key, (*path, key)))
            if isinstance(item, dict | list):
                visit(item, (*path, key))

    visit(content, ())
    owner, key, path = draw.choice(places)
    value = draw.choice(HOSTILE)
    action = draw.choice(("set", "set", "set", "delete", "add"))
    if action == "delete":
        del owner[key]
    elif action == "add" and isinstance(owner, list):
        owner.append(value)
    elif action == "add":
        owner[draw.choice(("x", "", "../x", "__class__", "format"))] = value
    elif not (value in HUGE and set(protected) & set(path)):
        owner[key] = value
    return json.dumps(content).replace('"NESTED"', NESTED)

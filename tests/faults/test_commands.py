"""Every command with every bad terminal, place and name: one line, no traceback, nothing left.

The numbers of the last complete run are in tests/reference/reliability/commands.json; with
ZSCOPE_RECORD=1 this test writes them.
"""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from forked import Commands

NUMBERS = Path(__file__).parents[1] / "reference" / "reliability" / "commands.json"

LONG, SURROGATE = "a" * 300, os.fsdecode(b"\xff\xfe")
BAD_PATHS = ["", "missing/none", "taken/none", "taken", "folder", "/dev/null/x", "/proc/nonesuch",
             LONG, SURROGATE, "two\nlines", "\x1b[31m", ".", "/", "loop"]  # fmt: skip

# Commands that print and are quick.
PRINTING = [
    ("--help",),
    ("--version",),
    (),
    ("data", "list"),
    ("data", "list", "--json"),
    ("data", "info", "helix"),
    ("data", "info", "codes.npy"),
    ("data", "fetch", "helix"),
    ("models", "list"),
    ("models", "info", "beta-tcvae"),
    ("models", "info", "beta-tcvae", "--json"),
    ("models", "presets"),
    ("study", "list"),
    ("assay", "--list"),
    ("assay", "codes.npy", "effective-rank"),
    ("assay", "both.npz", "mig", "--csv"),
    ("assay", "run", "variable-types", "--samples", "60"),
    ("assay", "run", "variable-types", "--samples", "60", "--json"),
    ("report", "codes.npy", "effective-rank", "-o", "out/page.csv"),
    ("score", "both.npz", "--only", "mig"),
    ("score", "both.npz", "--only", "mig", "--json"),
    ("compare", "run", "run", "--samples", "60", "--extractor", "none"),
    ("sweep", "plan", "plan.toml", "--out", "out/sweep", "--no-timing"),
    ("sweep", "run", "plan.toml", "--out", "out/sweep", "--jobs", "1", "--quiet"),
    ("sweep", "status", "out/sweep"),
    ("table", "run"),
    ("nonesuch",),
    ("assay", "nonesuch"),
    ("assay",),
]
TERMINALS = {
    "full": {"stdout": "/dev/full"},
    "both full": {"stdout": "/dev/full", "stderr": "/dev/full"},
    "closed stdout": {"stdout": None},
    "closed stderr": {"stderr": None},
    "both closed": {"stdout": None, "stderr": None},
    "closed pipe": {"stdout": "closed pipe"},
    "closed pipes": {"stdout": "closed pipe", "stderr": "closed pipe"},
    "ascii": {"encoding": "ascii"},
    "latin": {"encoding": "latin-1"},
    "one column": {"environment": {"COLUMNS": "1", "LINES": "1"}},
    "many columns": {"environment": {"COLUMNS": "1000000"}},
    "columns of letters": {"environment": {"COLUMNS": "wide", "TERM": "dumb", "NO_COLOR": "1"}},
    "no home": {"environment": {"HOME": None, "TERM": None}},
    "home is a file": {"environment": {"HOME": "/dev/null", "MPLCONFIGDIR": "/dev/null/x"}},
    "data is a file": {"environment": {"ZSCOPE_DATA": "/dev/null"}},
    "data is a long name": {"environment": {"ZSCOPE_DATA": f"/{LONG}"}},
    "no temporary folder": {"environment": {"TMPDIR": "/dev/null/x"}},
    "deleted folder": {"deleted": True},
    "nobody": {"nobody": True},
    "full disk": {"file_size": 4096},
}
# Commands with a path that is bad, in place of PATH.
WITH_PATHS = [
    ("assay", "PATH", "effective-rank"),
    ("assay", "codes.npy", "effective-rank", "--factors", "PATH"),
    ("assay", "codes.npy", "effective-rank", "--variances", "PATH"),
    ("assay", "codes.npy", "effective-rank", "--figures", "PATH"),
    ("assay", "run", "variable-types", "--samples", "60", "--data", "PATH"),
    ("assay", "run", "variable-types", "--samples", "60", "--weights", "PATH"),
    ("assay", "run", "variable-types", "--samples", "60", "--root", "PATH"),
    ("report", "PATH", "-o", "out/page.html"),
    ("report", "codes.npy", "effective-rank", "-o", "PATH"),
    ("report", "codes.npy", "effective-rank", "-o", "PATH.html"),
    ("score", "PATH"),
    ("score", "codes.npy", "PATH"),
    ("compare", "PATH", "run"),
    ("compare", "run", "PATH"),
    ("compare", "--by", "seed", "PATH"),
    ("dynamics", "PATH", "types"),
    ("dynamics", "run", "types", "--figure", "PATH"),
    ("select", "PATH"),
    ("compare", "run", "run", "--figure", "PATH"),
    ("compare", "run", "run", "--samples", "60", "--extractor", "PATH"),
    ("explore", "PATH", "--no-browser"),
    ("data", "info", "PATH"),
    ("data", "fetch", "mnist", "--from", "PATH"),
    ("data", "list", "--root", "PATH"),
    ("train", "vae", "PATH"),
    ("train", "--config", "PATH"),
    ("train", "--resume", "--out", "PATH"),
    ("fondue", "PATH"),
    ("demo", "--out", "taken/PATH"),
    ("study", "run", "PATH"),
    ("study", "run", "pca-degenerate", "--out", "taken/PATH"),
    ("data", "perturb", "PATH", "--epsilon", "0.1"),
    ("sweep", "plan", "PATH", "--out", "out/sweep", "--no-timing"),
    ("sweep", "plan", "plan.toml", "--out", "PATH", "--no-timing"),
    ("sweep", "run", "PATH", "--out", "out/sweep"),
    ("sweep", "run", "plan.toml", "--jobs", "1", "--out", "taken/PATH"),
    ("sweep", "run", "plan.toml", "--jobs", "1", "--out", "out/sweep", "--runs", "taken/PATH"),
    ("sweep", "status", "PATH"),
    ("table", "PATH"),
    ("table", "run", "--out", "PATH"),
]


PLAN = """
train = {{steps = {steps}, latents = 2, options.hidden = [4], model = "vae", data = "helix"}}
grid = {{seed = [0, 1]}}
"""


def cases():
    for words in PRINTING:
        for terminal, setup in TERMINALS.items():
            yield terminal, words, setup
    for words in WITH_PATHS:
        for path in BAD_PATHS:
            yield "path", tuple(word.replace("PATH", path) for word in words), {}


def fault(ended, setup):
    """What is wrong with the end of a command; nothing if all is well."""
    printed = ended.stderr + ended.stdout
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    usage = ended.code == 2 and re.search(r"^(Error|Usage): ", ended.stderr, re.MULTILINE)
    wrong = {
        "traceback": "Traceback" in printed,
        "ignored exception": "Exception ignored" in printed,
        "fault": "a fault in zscope" in printed,
        f"exit code {ended.code}": ended.code not in (0, 1, 2, 141),
        "more than one line": len(lines) > 1 and not usage,
        "silent": ended.code == 1 and not lines and "stderr" not in setup,
        "lost the output": setup.get("stdout", "") in ("/dev/full", None) and ended.code == 0,
        "slow": ended.seconds > 30,
    }
    return next((what for what, true in wrong.items() if true), "")


def try_all(commands, folder):
    """(terminal, words, fault) of the cases that end badly, and how many there are."""
    bad, tries = [], 0
    for terminal, words, setup in cases():
        (folder / "taken").write_bytes(b"mine")
        shutil.rmtree(folder / "missing", ignore_errors=True)  # a folder of figures, say
        ended = commands.run(*words, folder=folder, **setup)
        tries += 1
        wrong = fault(ended, setup)
        if (folder / "taken").read_bytes() != b"mine":
            wrong = wrong or "touched a file"
        if any(folder.rglob(".part-*")):
            wrong = wrong or "left partial files"
        if wrong:
            bad.append((terminal, words, wrong, ended.stderr[-500:]))
    return bad, tries


STOPPED = [
    ("assay", "run", "--samples", "1000", "--fresh", "--figures", "out"),
    ("report", "run", "--samples", "1000", "--fresh", "-o", "out/page.html"),
    ("compare", "run", "run", "--samples", "2000", "--figure", "out/map.png"),
    ("explore", "run", "--no-browser"),
    ("train", "vae", "helix", "--steps", "100000", "--out", "out/run"),
    ("fondue", "helix", "--steps", "5000", "--out", "out/fondue"),
    ("data", "perturb", "sprites", "--epsilon", "0.1", "--data-option", "resolution=8", "--out",
     "out/perturbed"),
    ("study", "run", "pca-degenerate", "--out", "out/study"),
    ("sweep", "run", "long.toml", "--jobs", "1", "--out", "out/long"),
    ("sweep", "run", "long.toml", "--jobs", "2", "--no-ensemble", "--out", "out/alone"),
]  # fmt: skip
DELAYS = (0.05, 0.3, 0.8, 1.5, 2.5, 4.0)


def stop_all(commands, folder):
    """(words, delay, fault) of commands that do not end well on SIGTERM, and how many there are."""
    bad, tries, slowest = [], 0, 0.0
    for words in STOPPED:
        for delay in DELAYS:
            ended = commands.run(*words, folder=folder, kill_after=delay)
            tries += 1
            late = ended.seconds - delay
            slowest = max(slowest, late)
            lines = ended.stderr.splitlines()
            wrong = {
                "traceback": "Traceback" in ended.stderr,
                f"exit code {ended.code}": ended.code != 143 and late > 0,
                "silent": not lines and words[0] != "explore" and late > 0,
                "slow": late > 10,
                "left files": any(folder.rglob(".part-*")) or any(folder.rglob(".lock")),
            }
            if what := next((name for name, true in wrong.items() if true), ""):
                bad.append((words, delay, what, ended.stderr[-500:]))
    return bad, tries, slowest


@pytest.fixture
def folder():
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    for name in ("folder", "out"):
        (place / name).mkdir()
    os.symlink("loop", place / "loop")
    values = np.random.default_rng(0).integers(3, size=(60, 2))
    np.save(place / "codes.npy", values.astype(float))
    np.savez(place / "both.npz", codes=values.astype(float), factors=values)
    for name, steps in (("plan.toml", 3), ("long.toml", 100_000)):
        (place / name).write_text(PLAN.format(steps=steps))
    yield place
    shutil.rmtree(place)


@pytest.fixture
def commands(folder):
    started = Commands(HOME=str(folder), ZSCOPE_DATA=str(folder / "data"))
    words = ("train", "beta-vae", "helix", "--latents", "2", "--steps", "3", "--out", "run")
    assert started.run(*words, "--set", "hidden=16", folder=folder).code == 0
    yield started
    started.close()


def record(**numbers):
    """Write the numbers of this run down, if that is asked for."""
    if os.environ.get("ZSCOPE_RECORD"):
        content = json.loads(NUMBERS.read_text()) if NUMBERS.is_file() else {}
        NUMBERS.write_text(json.dumps({**content, **numbers}, indent=1) + "\n")


@pytest.mark.slow
def test_every_command_with_every_terminal_and_place(commands, folder):
    bad, tries = try_all(commands, folder)
    assert tries >= 500
    record(tries=tries, failures=len(bad))
    assert bad == []


@pytest.mark.slow
def test_every_command_ends_on_sigterm(commands, folder):
    bad, tries, slowest = stop_all(commands, folder)
    record(signals=tries, signal_failures=len(bad), slowest_seconds=round(slowest, 1))
    assert bad == []

"""The record that every benchmark writes: what was compared with what, and whether both agree.

A ratio is ours / baseline, so that below 1 zscope is cheaper. Ours and the baseline run in turn,
and each turn has a ratio of its own, since a shared machine is faster in one minute than in the
next; the median of the ratios counts, and the quartiles are their spread. There is no ratio
without agreement of the values that both computed.

    from ratios import Ratio, agreement, finish, turns

    seconds = turns({"ours": ours, "plain": plain}, repeats=7)
    ratio = Ratio(
        "response matrix, perceptron", "passes", seconds["ours"], seconds["plain"],
        baseline="plain eager passes in the same chunks", version="torch 2.13.0", at_most=1.0,
        agreement=agreement("all 100 responses", ours(), plain(), tolerance=1e-5),
    )
    sys.exit(finish("responses", [ratio]))

`finish` prints a line for each ratio, writes .bench/results/SCRIPT.json and returns 1 if a goal is
missed. `python benchmarks/collect.py` (`make bench`) puts those of all scripts on one page.
"""

import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / ".bench" / "results"
GROUPS = {
    "passes": "Assays that decode and encode",
    "report": "A whole report",
    "training": "Training",
    "starting": "Starting",
    "scores": "Scores of codes and factors, similarity, dimension",
    "data": "Data, tables and runs on disk",
    "peers": "Other libraries",
    "memory": "Memory",
    "choices": "Choices that are kept under watch",
}
"""What a user waits for, in the order of the page."""
PEERS = {
    "pythae": ("torch==2.13.0", "pythae==0.1.2"),
    "scikit-dimension": ("scikit-dimension==0.5.0",),
    "latentverse": ("torch==2.13.0", "latentverse==0.3.5"),
    "stochman": ("torch==2.13.0", "stochman==0.3.0"),
}
"""What is installed for each peer, one package at a time: torch first and alone, or pip may choose
another build of it."""


@dataclass(frozen=True)
class Agreement:
    """How far the values of both sides are apart, and how far they may be."""

    compared: str  # which values, with what, and how: "200 codes, largest difference"
    difference: float
    tolerance: float

    def __post_init__(self) -> None:
        if not self.compared.strip():
            raise ValueError(
                "Agreement: got no text for which values were compared. A ratio of times means "
                "nothing unless both sides compute the same. Say what was compared with what"
            )

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance  # not so for NaN

    def __str__(self) -> str:
        state = "" if self.holds else ", DIFFERS"
        return f"{self.compared}: {self.difference:.3g} (at most {self.tolerance:.3g}){state}"


@dataclass(frozen=True)
class Ratio:
    """Ours over the baseline, turn by turn."""

    name: str
    group: str  # one of GROUPS
    ours: Sequence[float]  # one number for each turn, seconds unless `unit` says otherwise
    theirs: Sequence[float]  # of the baseline; a limit is a baseline too: [5.0] for 5 s
    baseline: str
    version: str  # of the baseline, e.g. "torch 2.13.0"
    agreement: Agreement
    at_most: float | None = None  # the goal; None: for information
    unit: str = "s"

    def __post_init__(self) -> None:
        where = f"Ratio {self.name!r}"
        if not isinstance(self.agreement, Agreement):
            raise TypeError(
                f"{where}: agreement is {self.agreement!r}. No ratio is written unless the values "
                "of both sides were compared. Use agreement(what, ours, theirs, tolerance)"
            )
        if self.group not in GROUPS:
            raise ValueError(f"{where}: group {self.group!r} is none of {', '.join(GROUPS)}")
        if not self.ours or len(self.theirs) not in (1, len(self.ours)):
            raise ValueError(
                f"{where}: {len(self.ours)} turns of ours and {len(self.theirs)} of the baseline. "
                "Ratios are taken turn by turn. Run both in turn, with turns()"
            )
        numbers = [*self.ours, *self.theirs]
        if not all(math.isfinite(number) for number in numbers) or min(numbers) <= 0:
            raise ValueError(
                f"{where}: measured {list(self.ours)} and {list(self.theirs)} {self.unit}. A "
                "clock that does not advance, or an empty turn? Measure more work in each turn"
            )

    @property
    def by_turn(self) -> list[float]:
        theirs = list(self.theirs) * (len(self.ours) // len(self.theirs))
        return [a / b for a, b in zip(self.ours, theirs, strict=True)]

    @property
    def median(self) -> float:
        return quantile(self.by_turn, 0.5)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the ratios."""
        return quantile(self.by_turn, 0.25), quantile(self.by_turn, 0.75)

    @property
    def missed(self) -> bool:
        """A goal that is not reached, or values that differ."""
        slow = self.at_most is not None and not self.median <= self.at_most
        return slow or not self.agreement.holds

    def __str__(self) -> str:
        low, high = self.spread
        goal = "" if self.at_most is None else f", at most {self.at_most:.3g}"
        values = f"{quantile(self.ours, 0.5):.4g} / {quantile(self.theirs, 0.5):.4g} {self.unit}"
        return (
            f"{'MISSED' if self.missed else 'ok':6} {self.name}: {self.median:.3g} "
            f"[{low:.3g}, {high:.3g}] of {self.baseline} ({self.version}{goal}; {values}, "
            f"{len(self.ours)} turns); {self.agreement}"
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Ratio":
        return cls(**{**content, "agreement": Agreement(**content["agreement"])})


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile, linear between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def agreement(
    compared: str, ours: Any, theirs: Any, tolerance: float, *, relative: bool = False
) -> Agreement:
    """The largest difference of two arrays, or relative to the largest value of the baseline."""
    import numpy as np

    a, b = (np.asarray(values, dtype=float) for values in (ours, theirs))
    if a.shape != b.shape or not a.size:
        raise ValueError(
            f"agreement: {compared} have shapes {a.shape} and {b.shape}. Both sides compute "
            "different things, or in another order. Compare the same values"
        )
    difference = float(np.abs(a - b).max())
    scale = float(np.abs(b).max()) if relative else 1.0
    words = "largest relative difference" if relative else "largest difference"
    return Agreement(f"{compared}, {words}", difference / scale, tolerance)


def turns(
    works: Mapping[str, Callable[[], object]],
    repeats: int,
    *,
    warm: bool = True,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Seconds of each work, all in turn, with the order reversed from turn to turn.

    Processor time of this process, which depends little on other programs; for work in new
    processes see `children`. Each work runs once before, unless `warm` is False.
    """
    for work in works.values() if warm else ():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(repeats):
        for name in list(works)[:: -1 if number % 2 else 1]:
            start = clock()
            works[name]()
            seconds[name].append(clock() - start)
    return seconds


def children() -> float:
    """A clock of processor time of this process and of those that it has waited for."""
    from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage  # os.times counts hundredths

    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def command(*words: str) -> str:
    """Run a command on one thread and return what it prints; time it with clock=children."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if process.returncode:
        last = (process.stderr.strip() or process.stdout.strip() or "nothing").splitlines()[-1]
        raise RuntimeError(f"{' '.join(words)[:200]} ended with {process.returncode}: {last}")
    return process.stdout


def released(*packages: str) -> str:
    """Names and versions of installed packages, without what names a build: "torch 2.13.0"."""
    return ", ".join(f"{package} {version(package).split('+')[0]}" for package in packages)


def machine() -> dict[str, str]:
    """What the figures were measured on, without its name."""
    facts = {
        "processor": processor(),
        "cores": str(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()),
        "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
        "python": platform.python_version(),
    }
    for package in ("torch", "numpy", "scipy", "scikit-learn", "lightgbm"):
        try:
            facts[package] = version(package).split("+")[0]
        except PackageNotFoundError:
            continue
    return facts


def peer(name: str) -> str:
    """The interpreter of an environment with a released peer, made on first use under .bench/.

    ZSCOPE_PYTHAE=path/to/python (and so on) names one that is there already.
    """
    if path := os.environ.get(f"ZSCOPE_{name.upper().replace('-', '_')}"):
        return path
    folder = ROOT / ".bench" / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"Setting up {' and '.join(PEERS[name])} in .bench/{name} …", flush=True)
        command(sys.executable, "-m", "venv", "--clear", str(folder))
        for package in PEERS[name]:
            command(str(python), "-m", "pip", "install", "--quiet", package)
        (folder / "ready").touch()
    return str(python)


def processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


def finish(
    script: str, ratios: Sequence[Ratio], notes: Sequence[str] = (), folder: Path = RESULTS
) -> int:
    """Print the ratios of a script, write them down whole, and return its exit code.

    The notes stand below the tables: what was not compared, and why.
    """
    for line in (*ratios, *notes):
        print(line, flush=True)
    rows = [ratio.to_dict() for ratio in ratios]
    record(script, {"machine": machine(), "ratios": rows, "notes": list(notes)}, folder)
    return int(any(ratio.missed for ratio in ratios))


def record(script: str, content: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Write what is known of a script, all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{script}.json.{os.getpid()}"
    partial.write_text(json.dumps({"script": script, **content}, indent=2) + "\n")
    partial.replace(folder / f"{script}.json")

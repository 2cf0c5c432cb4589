"""Run the benchmarks and write all their ratios on one page, benchmarks/RESULTS.md.

    python benchmarks/collect.py                      all of them: make bench
    python benchmarks/collect.py maps paths           some, with what is known of the others
    python benchmarks/collect.py --page               none, only the page

Each script is a process of its own with one thread. One that fails, or that takes too long, is
listed with its last line, and the others go on. A ratio that misses its goal is listed first.
`benchmarks/scaling.py` takes longer and is not one of them: its results are in docs/scale.md.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratios import GROUPS, RESULTS, ROOT, Ratio, record

HERE = Path(__file__).resolve().parent
NOT_RUN = ("collect", "ratios", "scaling")
LONGEST = 1200
"""Seconds that one script may take."""


def scripts() -> list[str]:
    return [path.stem for path in sorted(HERE.glob("*.py")) if path.stem not in NOT_RUN]


def run(script: Path, folder: Path = RESULTS, longest: float = LONGEST) -> None:
    """Run a script; if it fails to write its ratios, write down why."""
    written = folder / f"{script.stem}.json"
    written.unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, str(script)], text=True, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        output = process.communicate(timeout=longest)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output = f"{process.communicate()[0]}\nstopped after {longest:g} seconds"
    print(output, flush=True)
    if not written.exists():
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        last = lines[-1] if lines else f"ended with {process.returncode} and printed nothing"
        record(script.stem, {"failed": last.replace(str(ROOT), ".")}, folder)


@dataclass(frozen=True)
class Results:
    """What all scripts have written."""

    ratios: list[Ratio] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # the last line of a script
    notes: list[str] = field(default_factory=list)
    machines: list[dict[str, str]] = field(default_factory=list)

    @property
    def missed(self) -> list[Ratio]:
        return [ratio for ratio in self.ratios if ratio.missed]


def read(expected: Sequence[str], folder: Path = RESULTS) -> Results:
    """The records of some scripts."""
    results = Results()
    for script in sorted(expected):
        path = folder / f"{script}.json"
        if not path.exists():
            results.failed[script] = "was not run"
            continue
        content: dict[str, Any] = json.loads(path.read_text())
        if "failed" in content:
            results.failed[script] = content["failed"]
            continue
        results.ratios.extend(Ratio.from_dict(row) for row in content["ratios"])
        results.notes.extend(content["notes"])
        if content["machine"] not in results.machines:
            results.machines.append(content["machine"])
    order = list(GROUPS)
    results.ratios.sort(key=lambda ratio: order.index(ratio.group))
    return results


def times(ratio: float) -> str:
    """A ratio with three digits, and what it means if it is small."""
    faster = f" ({1 / ratio:.0f} times as fast)" if ratio < 0.1 else ""
    return f"{ratio:.3g}{faster}"


def amount(values: Sequence[float], unit: str) -> str:
    value = sorted(values)[len(values) // 2]
    if unit == "s" and value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def facts(machine: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in machine.items())


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def table(ratios: Sequence[Ratio]) -> list[str]:
    lines = [
        "| | zscope / baseline | quartiles | goal | zscope | baseline | of what | agreement |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for ratio in ratios:
        low, high = ratio.spread
        cells = (
            ratio.name,
            f"**{times(ratio.median)}**{', missed' if ratio.missed else ''}",
            f"{low:.3g} to {high:.3g}, {len(ratio.ours)} turns"
            if len(ratio.ours) > 1
            else "one turn",
            "none" if ratio.at_most is None else f"at most {ratio.at_most:.3g}",
            amount(ratio.ours, ratio.unit),
            amount(ratio.theirs, ratio.unit),
            f"{ratio.baseline} ({ratio.version})",
            str(ratio.agreement),
        )
        lines.append(f"| {' | '.join(map(cell, cells))} |")
    return lines


def page(results: Results) -> str:
    """The page, which depends on the records only."""
    goals = [ratio for ratio in results.ratios if ratio.at_most is not None]
    reached = sum(not ratio.missed for ratio in goals)
    lines = [
        "# Results of the benchmarks",
        "",
        "Written by `make bench`; not edited by hand. Each number is what zscope needs, divided by "
        "what the baseline needs for the same work in the same run: below 1 zscope is cheaper. "
        "Both sides run in turn, each turn has its own ratio, and the median counts; the quartiles "
        "of the turns are the spread. Each row says which values of both sides were compared, how "
        "far they are apart, and how far they may be. How costs grow with samples, latents and "
        "pixels is measured by `benchmarks/scaling.py`, in [docs/scale.md](../docs/scale.md).",
        "",
        *(f"Measured on: {facts(machine)}." for machine in results.machines),
        "",
        "![Every ratio with its spread and its goal](results.svg)",
        "",
        "## Goals",
        "",
        f"{reached} of {len(goals)} goals reached; {len(results.failed)} scripts failed.",
        "",
    ]
    lines += [f"- Missed: {cell(str(ratio)[6:].strip())}" for ratio in results.missed]
    lines += [
        f"- Failed: `benchmarks/{script}.py`: {last}" for script, last in results.failed.items()
    ]
    for group, title in GROUPS.items():
        if rows := [ratio for ratio in results.ratios if ratio.group == group]:
            lines += ["", f"## {title}", "", *table(rows)]
    if results.notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in results.notes)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def figure(results: Results, path: Path) -> None:
    """Every ratio as a dot with its quartiles, its goal as a tick, and a line at 1."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    good, bad, plain = "#1b6ca8", "#c0392b", "#555555"
    places: list[float] = []
    titles: list[tuple[float, str]] = []
    place, group = 0.0, ""
    for ratio in results.ratios:
        if ratio.group != group:
            group = ratio.group
            place += 1.6
            titles.append((place - 1.0, GROUPS[group]))
        places.append(place)
        place += 1
    # The same records give the same bytes: no date, no random names.
    with mpl.rc_context({"svg.hashsalt": "zscope", "font.size": 8, "font.family": "DejaVu Sans"}):
        height = 1.0 + 0.17 * (place + 1)
        plot = Figure(figsize=(7.2, height), layout="constrained")
        axes = plot.add_subplot()
        axes.set_xscale("log")
        axes.axvline(1, color="black", linewidth=0.8, zorder=1)
        for at, ratio in zip(places, results.ratios, strict=True):
            color = bad if ratio.missed else plain if ratio.at_most is None else good
            axes.plot(ratio.spread, [at, at], color=color, linewidth=1.6, alpha=0.5, zorder=2)
            axes.plot(ratio.median, at, "o", color=color, markersize=3.6, zorder=3)
            if ratio.at_most is not None:
                axes.plot(ratio.at_most, at, "|", color="black", markersize=7, zorder=2)
        for at, title in titles:
            axes.text(
                -0.01, at, title, transform=axes.get_yaxis_transform(), ha="right", va="center",
                weight="bold", fontsize=8,
            )  # fmt: skip
        labels = [
            f"{ratio.name}, {ratio.version}" if ratio.group == "peers" else ratio.name
            for ratio in results.ratios
        ]
        axes.set_yticks(places, labels, fontsize=7)
        axes.set_ylim(place, -0.4)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", which="major", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.set_xlabel("zscope / baseline (logarithmic; left of 1 zscope is cheaper)")
        handles = [
            axes.plot([], [], mark, color=color, markersize=size)[0]
            for mark, color, size in (
                ("o", good, 3.6), ("o", bad, 3.6), ("o", plain, 3.6), ("|", "black", 7),
            )
        ]  # fmt: skip
        words = ["goal reached", "goal missed", "no goal", "goal (at most)"]
        plot.legend(handles, words, loc="outside upper center", ncols=4, frameon=False)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        plot.savefig(path, metadata=metadata, dpi=150)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", choices=[*scripts(), []], metavar="SCRIPT")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    options = parser.parse_args()
    for script in () if options.page else options.scripts or scripts():
        start = time.monotonic()
        print(f"{script} …", flush=True)
        run(HERE / f"{script}.py")
        print(f"{script}: {time.monotonic() - start:.0f} s\n", flush=True)
    results = read(scripts())
    (HERE / "RESULTS.md").write_text(page(results))
    figure(results, HERE / "results.svg")
    figure(results, RESULTS / "results.png")  # to look at
    print(
        f"{len(results.ratios)} ratios in benchmarks/RESULTS.md, {len(results.missed)} missed, "
        f"{len(results.failed)} scripts failed"
    )
    return int(bool(results.missed or results.failed))


if __name__ == "__main__":
    sys.exit(main())

"""How long does it take to read many runs, the first time and with an index?

Simulated run folders (run.json, scores.json, history.jsonl; no weights) are read by `zs.runs` in
new processes: without an index, with one, and by a whole `zscope table`. Required: with 10,000
runs the second `zscope table` takes less than 5 s of processor time, which other programs do not
change as much as that of a clock.

    python benchmarks/index.py [--runs 100 1000 10000] [--large]     # --large: 100,000 too
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from zscope.documents import checksum_of

MODELS = ("beta-vae", "beta-tcvae", "factor-vae", "dip-vae")
BETAS = (1, 2, 4, 8, 16)
LIMIT = 5.0
"""Seconds that the second `zscope table` of 10,000 runs may take."""
READ = "import zscope as zs, sys; print(len(zs.runs(sys.argv[1])))"
COMMAND = "from zscope.cli import main; main()"


def document(content: dict[str, Any]) -> str:
    content = {"format": 1, **content}
    return json.dumps({**content, "sha256": checksum_of(content)}, indent=2) + "\n"


def write_run(folder: Path, number: int) -> None:
    """A run as training and a sweep leave it; not flushed to the disk, to save time."""
    model = MODELS[number % len(MODELS)]
    beta = BETAS[number // len(MODELS) % len(BETAS)]
    seed = number // (len(MODELS) * len(BETAS))
    options = {
        "backbone": "mlp", "likelihood": "bernoulli", "weights": "torch", "seed": seed,
        "hidden": [256, 256], "activation": "relu", "beta": beta,
    }  # fmt: skip
    config = {
        "model": {"name": model, "shape": [1, 32, 32], "latents": 10, "options": options},
        "data": {"name": "sprites", "options": {"resolution": 32}, "split": None},
        "steps": 20_000, "batch": 64, "rate": 0.001, "seed": seed, "optimiser": "adam",
        "schedule": "constant", "halve_every": None, "warmup": 0, "clip": None,
        "precision": "auto", "device": "auto", "devices": 1, "log_every": 100,
        "checkpoint_every": 1000, "snapshots": [], "snapshot_every": None, "scaling": None,
    }  # fmt: skip
    environment = {"zscope": "0.1.0", "torch": "2.13.0", "machine": "x86_64", "threads": 1}
    content = {"status": "finished", "step": 20_000, "config": config, "environment": environment}
    scores = {
        "mig": {"": 0.2 + seed % 7 / 100},
        "dci": {"disentanglement": 0.5, "completeness": 0.4, "informativeness": 0.9},
        "variable-types": {"active": 6, "mixed": 1, "passive": 3},
        "structure-score": {"": 0.7},
    }
    about = {
        "options": "[]", "asked": 5000, "samples": 5000, "seed": 0, "resamples": 0, "missing": None,
        "zscope": "0.1.0", "source": "0" * 64, "weights": "0" * 64, "time": 1.7e9, "intervals": {},
    }  # fmt: skip
    entries = [{"assay": assay, "scores": each, **about} for assay, each in scores.items()]
    path = folder / f"{model}-sprites-b{beta}-s{seed}-{number:012x}"
    path.mkdir()
    (path / "run.json").write_text(document({**content, "history": None}))
    (path / "scores.json").write_text(document({"entries": entries}))
    row = {"format": 1, "loss": 30.5, "reconstruction": 20.25, "divergence": 10.25, "passive": 3}
    lines = (json.dumps({**row, "step": step}) for step in range(100, 20_001, 100))
    (path / "history.jsonl").write_text("\n".join(lines) + "\n")


def seconds(*words: str) -> float:
    """Processor time of a new process, in Python and in the kernel."""
    before = os.times()
    subprocess.run([sys.executable, "-c", *words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def measure(count: int) -> dict[str, float]:
    """Seconds of the first and the second reading, and of a table, of `count` runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(count):
            write_run(folder, number)
        first, second = seconds(READ, name), seconds(READ, name)
        start = time.perf_counter()
        table = seconds(COMMAND, "table", name)
        clock = time.perf_counter() - start
        size = (folder / ".index.sqlite").stat().st_size / 1e6
    cells = f"{first:>7.2f}  {second:>7.2f}  {table:>7.2f}  {clock:>8.2f}  {size:>9.1f}"
    print(f"{count:>9,}  {cells}", flush=True)
    return {"first": first, "second": second, "table": table, "clock": clock, "megabytes": size}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    counts = [*options.runs, *([100_000] if options.large else [])]
    print("processor seconds, each in a new process; seconds by the clock of the table")
    print("     runs    first   second    table  by clock  index, MB")
    figures = {count: measure(count) for count in counts}
    return int(10_000 in figures and figures[10_000]["table"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())

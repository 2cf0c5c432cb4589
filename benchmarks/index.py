"""How long does it take to read many runs, the first time and with an index?

Simulated run folders (run.json, scores.json, history.jsonl; no weights) are read by `zs.runs` in
new processes, without an index and with one, and by a whole `zscope table`. Required: the index
pays, and with 10,000 runs `zscope table` takes less than 5 s of processor time.

    python benchmarks/index.py [--runs 100 1000 10000 100000]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ratios import Agreement, Ratio, children, command, finish, released, turns

from zscope.documents import checksum_of

MODELS = ("beta-vae", "beta-tcvae", "factor-vae", "dip-vae")
BETAS = (1, 2, 4, 8, 16)
LIMIT = 5.0
"""Seconds that the second `zscope table` of 10,000 runs may take."""
READ = """
import hashlib, sys
import zscope as zs
print(hashlib.sha256(zs.runs(sys.argv[1]).to_frame().to_csv().encode()).hexdigest())
"""
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


def read(folder: str) -> str:
    return command(sys.executable, "-c", READ, folder)


def measure(count: int, repeats: int) -> list[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(count):
            write_run(folder, number)
        answers: dict[str, str] = {}

        def first() -> None:
            for file in folder.glob(".index.sqlite*"):
                file.unlink()
            answers["first"] = read(name)

        def second() -> None:
            answers["second"] = read(name)

        pairs = [
            turns({"first": first, "second": second}, 1, warm=False, clock=children)
            for _ in range(repeats)
        ]  # the second needs the index of the first
        by = {key: [pair[key][0] for pair in pairs] for key in pairs[0]}
        table = [sys.executable, "-c", COMMAND, "table", name]
        tables = turns({"table": lambda: command(*table)}, repeats, clock=children)["table"]
        size = (folder / ".index.sqlite").stat().st_size / 1e6
    print(f"{count:,} runs: an index of {size:.1f} MB", flush=True)
    same = Agreement(
        f"checksums of the table of {count:,} runs, with and without the index (1 = they differ)",
        float(answers["first"] != answers["second"]), 0,
    )  # fmt: skip
    zscope = released("zscope")
    return [
        Ratio(
            f"{count:,} runs, read with an index", "data", by["second"], by["first"],
            baseline="reading them without an index", version=zscope, agreement=same, at_most=1,
        ),
        Ratio(
            f"zscope table of {count:,} runs", "data", tables, [LIMIT],
            baseline=f"the limit of {LIMIT:g} s", version=zscope, agreement=same,
            at_most=1 if count <= 10_000 else None,
        ),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[10_000])
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    return finish("index", [each for n in options.runs for each in measure(n, options.turns)])


if __name__ == "__main__":
    sys.exit(main())

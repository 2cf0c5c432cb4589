"""Does a wide table load in time proportional to its size?

40 rows of 6,000 and of 60,000 columns, one thread: the wide one has ten times the cells. Both are
loaded in turn; the fastest of several turns counts. Required: at most 20 times the time, where
looking up each name among all others would take 100 times.

    python benchmarks/tables.py [--turns 3]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import zscope as zs

ROWS, NARROW, WIDE, MOST = 40, 6_000, 60_000, 20


def write(path: Path, columns: int) -> Path:
    values = np.random.default_rng(0).normal(size=(ROWS, columns))
    lines = [",".join(f"gene{k}" for k in range(columns))]
    lines += [",".join(f"{value:.3f}" for value in row) for row in values]
    path.write_text("\n".join(lines))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as folder:
        files = {n: write(Path(folder) / f"{n}.csv", n) for n in (NARROW, WIDE)}
        times: dict[int, list[float]] = {NARROW: [], WIDE: []}
        for turn in range(turns + 1):  # the first imports what is needed
            for columns, file in files.items():
                start = time.perf_counter()
                assert zs.data.load(file).shape == (columns,)
                times[columns] += [time.perf_counter() - start] if turn else []
    narrow, wide = min(times[NARROW]), min(times[WIDE])
    print(
        f"{NARROW:,} columns {narrow:.2f} s, {WIDE:,} columns {wide:.2f} s: {wide / narrow:.1f} x"
    )
    return int(wide > MOST * narrow)


if __name__ == "__main__":
    sys.exit(main())

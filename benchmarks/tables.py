"""Does a wide table load in time proportional to its size?

40 rows of 6,000 and of 60,000 columns, one thread: the wide one has ten times the cells. Both are
loaded in turn. Required: at most 20 times the time, so at most twice that of ten narrow ones, where
looking up each name among all others would take ten times.

    python benchmarks/tables.py [--turns 3]
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from ratios import Ratio, agreement, finish, released, turns

import zscope as zs

ROWS, NARROW, WIDE, MOST = 40, 6_000, 60_000, 2


def write(path: Path, columns: int) -> Path:
    values = np.random.default_rng(0).normal(size=(ROWS, columns))
    lines = [",".join(f"gene{k}" for k in range(columns))]
    lines += [",".join(f"{value:.3f}" for value in row) for row in values]
    path.write_text("\n".join(lines))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = {n: write(Path(folder) / f"{n}.csv", n) for n in (NARROW, WIDE)}
        seconds = turns(
            {n: lambda file=file: zs.data.load(file) for n, file in files.items()}, options.turns
        )
        loaded = zs.data.load(files[WIDE])
    values = np.random.default_rng(0).normal(size=(ROWS, WIDE))
    ratio = Ratio(
        f"a table of {WIDE:,} columns", "data", seconds[WIDE], [10 * s for s in seconds[NARROW]],
        baseline=f"ten tables of {NARROW:,}", version=released("zscope"), at_most=MOST,
        agreement=agreement(
            "its cells with the numbers written, to 3 digits",
            loaded.batch(range(ROWS)), values, 6e-4,
        ),
    )  # fmt: skip
    return finish("tables", [ratio])


if __name__ == "__main__":
    sys.exit(main())

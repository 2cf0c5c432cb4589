"""How fast is intrinsic dimension, compared with the same estimators of scikit-dimension?

    python benchmarks/dimension.py

scikit-dimension 0.5.0 runs in a separate process, in the interpreter given by --peer (this one by
default).

10,000 samples of 4,096 numbers (a curved surface of 8 dimensions with a little noise),
float32. MLE with 20 neighbours and TwoNN: zscope computes the distances once for both,
scikit-dimension once for each. Values must agree to 1e-6, and zscope must take at most a third
of the time. Runs alternate; the fastest of each counts.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SAMPLES, COLUMNS = 10_000, 4_096
SPEEDUP = 3.0

PEER = """
import json, sys, time
import numpy as np
from skdim.id import MLE, TwoNN
X = np.load(sys.argv[1])
start = time.perf_counter()
mle = MLE().fit(X, n_neighbors=20).dimension_
twonn = TwoNN().fit(X).dimension_
print(json.dumps({"mle": mle, "twonn": twonn, "seconds": time.perf_counter() - start}))
"""


def make_data(samples: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    coordinates = rng.standard_normal((samples, 8)).astype(np.float32)
    surface = np.concatenate([coordinates, np.sin(2 * coordinates)], 1)
    mixing = rng.standard_normal((16, COLUMNS)).astype(np.float32)
    return surface @ mixing + 0.05 * rng.standard_normal((samples, COLUMNS)).astype(np.float32)


def ours(X: np.ndarray) -> dict[str, float]:
    from zscope.assays import intrinsic_dimension, nearest_neighbours

    start = time.perf_counter()
    neighbours = nearest_neighbours(X, 20)
    mle = intrinsic_dimension(neighbours, normaliser="k-1", average="harmonic").dimension
    twonn = intrinsic_dimension(neighbours, method="twonn", first_rank=1).dimension
    return {"mle": mle, "twonn": twonn, "seconds": time.perf_counter() - start}


def theirs(python: str, file: Path) -> dict[str, float]:
    process = subprocess.run(
        [python, "-W", "ignore", "-c", PEER, str(file)], capture_output=True, text=True, check=True
    )
    return json.loads(process.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    X = make_data(SAMPLES)
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.npy"
        np.save(file, X)
        for _ in range(options.repeats):
            for name, run in (("scikit-dimension", theirs), ("zscope", ours)):
                trial = run(options.peer, file) if run is theirs else run(X)
                if name not in best or trial["seconds"] < best[name]["seconds"]:
                    best[name] = trial
    for name, row in best.items():
        print(f"{name:17} mle {row['mle']:.6f}  twonn {row['twonn']:.6f}  {row['seconds']:.1f} s")
    a, b = best["zscope"], best["scikit-dimension"]
    ratio = b["seconds"] / a["seconds"]
    equal = all(abs(a[k] / b[k] - 1) < 1e-6 for k in ("mle", "twonn"))
    print(f"ratio {ratio:.1f} (required: {SPEEDUP:g}), values {'equal' if equal else 'DIFFER'}")
    return 0 if ratio >= SPEEDUP and equal else 1


if __name__ == "__main__":
    sys.exit(main())

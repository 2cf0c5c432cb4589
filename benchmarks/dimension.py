"""How fast is intrinsic dimension, against scikit-dimension's same estimators?

    python benchmarks/dimension.py

The peer runs in a process of its own, by the interpreter given with --peer (this one, unless
said otherwise), which must have scikit-dimension 0.5.0.

10,000 samples of 4,096 numbers (a curved surface of 8 dimensions with a little noise),
float32. MLE with 20 neighbours and TwoNN: ours share one pass over the distances, the
peer's make one each. Values must agree to 1e-6, and ours must take at most a third of the
time. Runs alternate; the fastest of each counts.
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
PROMISED = 3.0

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


def world(samples: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((samples, 8)).astype(np.float32)
    bent = np.concatenate([flat, np.sin(2 * flat)], 1)
    mixing = rng.standard_normal((16, COLUMNS)).astype(np.float32)
    return bent @ mixing + 0.05 * rng.standard_normal((samples, COLUMNS)).astype(np.float32)


def ours(X: np.ndarray) -> dict[str, float]:
    from zscope.assays import intrinsic_dimension, nearest_neighbours

    start = time.perf_counter()
    near = nearest_neighbours(X, 20)
    mle = intrinsic_dimension(near, normaliser="k-1", average="harmonic").dimension
    twonn = intrinsic_dimension(near, method="twonn", first_rank=1).dimension
    return {"mle": mle, "twonn": twonn, "seconds": time.perf_counter() - start}


def theirs(python: str, file: Path) -> dict[str, float]:
    done = subprocess.run(
        [python, "-W", "ignore", "-c", PEER, str(file)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    X = world(SAMPLES)
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.npy"
        np.save(file, X)
        for _ in range(options.repeats):
            for name, run in (("scikit-dimension", theirs), ("zscope", ours)):
                took = run(options.peer, file) if run is theirs else run(X)
                if name not in best or took["seconds"] < best[name]["seconds"]:
                    best[name] = took
    for name, took in best.items():
        print(
            f"{name:17} mle {took['mle']:.6f}  twonn {took['twonn']:.6f}  {took['seconds']:.1f} s"
        )
    a, b = best["zscope"], best["scikit-dimension"]
    ratio = b["seconds"] / a["seconds"]
    equal = all(abs(a[k] / b[k] - 1) < 1e-6 for k in ("mle", "twonn"))
    print(f"ratio {ratio:.1f} (promised {PROMISED:g}), values {'equal' if equal else 'DIFFER'}")
    return 0 if ratio >= PROMISED and equal else 1


if __name__ == "__main__":
    sys.exit(main())

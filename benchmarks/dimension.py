"""How fast is intrinsic dimension, compared with the same estimators of scikit-dimension?

    python benchmarks/dimension.py [--turns 3]

scikit-dimension 0.5.0 runs in an environment of its own, which is made on first use under .bench/.

Samples of a curved surface of 8 dimensions with a little noise, float32: 10,000 pictures of 4,096
numbers, and 10,000 codes of 10 latents. MLE with 20 neighbours and TwoNN: zscope computes the
distances once for both, scikit-dimension once for each. Values must agree to 1e-6. Required: at
most a third of the time for pictures, and no more time for codes. Processor time of one thread,
measured in each process around the estimators alone, in turn.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from ratios import Ratio, agreement, command, finish, peer

SAMPLES = 10_000
COLUMNS = {"pictures of 4,096 numbers": (4096, 1 / 3), "codes of 10 latents": (10, 1.0)}

PEER = """
import json, sys, time
import numpy as np
from skdim.id import MLE, TwoNN
X = np.load(sys.argv[1])
MLE().fit(X[:500], n_neighbors=20), TwoNN().fit(X[:500])
start = time.process_time()
mle = MLE().fit(X, n_neighbors=20).dimension_
twonn = TwoNN().fit(X).dimension_
print(json.dumps({"values": [mle, twonn], "seconds": time.process_time() - start}))
"""


def make_data(columns: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    coordinates = rng.standard_normal((SAMPLES, 8)).astype(np.float32)
    surface = np.concatenate([coordinates, np.sin(2 * coordinates)], 1)
    mixing = rng.standard_normal((16, columns)).astype(np.float32)
    return surface @ mixing + 0.05 * rng.standard_normal((SAMPLES, columns)).astype(np.float32)


def ours(X: np.ndarray) -> dict:
    from zscope.assays import intrinsic_dimension, nearest_neighbours

    start = time.process_time()
    neighbours = nearest_neighbours(X, 20)
    mle = intrinsic_dimension(neighbours, normaliser="k-1", average="harmonic").dimension
    twonn = intrinsic_dimension(neighbours, method="twonn", first_rank=1).dimension
    return {"values": [mle, twonn], "seconds": time.process_time() - start}


def compare(name: str, turns: int) -> Ratio:
    columns, limit = COLUMNS[name]
    X = make_data(columns)
    ours(X[:500])  # imports
    trials: dict[str, list[dict]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.npy"
        np.save(file, X)
        for number in range(turns):
            for side in ("ours", "theirs")[:: -1 if number % 2 else 1]:
                trials[side].append(
                    ours(X) if side == "ours" else json.loads(
                        command(peer("scikit-dimension"), "-W", "ignore", "-c", PEER, str(file))
                    )
                )  # fmt: skip
    a, b = (trials[side][0]["values"] for side in trials)
    return Ratio(
        f"intrinsic dimension of {SAMPLES:,} {name}", "peers",
        [trial["seconds"] for trial in trials["ours"]],
        [trial["seconds"] for trial in trials["theirs"]],
        baseline="MLE and TwoNN", version="scikit-dimension 0.5.0", at_most=limit,
        agreement=agreement("MLE and TwoNN", np.divide(a, b), [1, 1], 1e-6),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    note = (
        "scikit-dimension's other estimators (lPCA, CorrInt, DANCo, ...) have no counterpart here: "
        "zs.assays.intrinsic_dimension(method=...) calls them, so their time is its own."
    )
    return finish("dimension", [compare(name, options.turns) for name in COLUMNS], [note])


if __name__ == "__main__":
    sys.exit(main())

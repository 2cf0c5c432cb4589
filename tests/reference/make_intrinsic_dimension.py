"""Others' intrinsic dimensions of a few small samples, written to intrinsic_dimension.json.

Run with scikit-dimension 0.5.0 in an environment of its own:

    python -m venv peer && peer/bin/pip install scikit-dimension==0.5.0
    peer/bin/python tests/reference/make_intrinsic_dimension.py

The samples are drawn by NumPy's PCG64, whose stream is the same on every machine; the
test draws them again with `samples` of this file.
"""

import json
from pathlib import Path

import numpy as np


def samples(name: str) -> np.ndarray:
    """Gaussian of `d` dimensions turned into 30 columns; or a curved surface."""
    generator = np.random.default_rng(7)
    if name == "roll":
        angle, height = generator.uniform(4, 14, 600), generator.uniform(0, 20, 600)
        return np.stack([angle * np.cos(angle), height, angle * np.sin(angle)], 1)
    d = int(name.removeprefix("gauss"))
    turn = np.linalg.qr(generator.standard_normal((30, 30)))[0][:d]
    return generator.standard_normal((800, d)) @ turn


NAMES = ("gauss2", "gauss5", "gauss10", "roll")

if __name__ == "__main__":
    import skdim
    from skdim.id import MLE, TwoNN

    numbers = {"version": skdim.__version__}
    for name in NAMES:
        X = samples(name)
        numbers[name] = {
            "mle k-1 harmonic": MLE().fit(X, n_neighbors=20).dimension_,
            "mle k-1 arithmetic": MLE().fit(X, n_neighbors=20, comb="mean").dimension_,
            "mle k-2 harmonic": MLE(unbiased=True).fit(X, n_neighbors=20).dimension_,
            "mle k-2 arithmetic": MLE(unbiased=True).fit(X, n_neighbors=20, comb="mean").dimension_,
            "mle k-1 harmonic 5": MLE().fit(X, n_neighbors=5).dimension_,
            "twonn": TwoNN().fit(X).dimension_,
        }
    target = Path(__file__).with_name("intrinsic_dimension.json")
    target.write_text(json.dumps(numbers, indent=1) + "\n")

"""Digits: the 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn.

Grey levels 0 to 16 become bytes 0 to 255. The test part of the "Optical recognition of
handwritten digits" data, Alpaydin and Kaynak, UCI Machine Learning Repository, 1998.
"""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from zscope.data.dataset import Dataset
from zscope.data.source import Factor, Source, factor_arguments

__all__ = ["DIGITS", "load"]

FACTORS = (Factor("digit", 10, "categorical", tuple("0123456789")),)


def load(folder: Path) -> Dataset:
    """All digits, in the order of scikit-learn."""
    table = _table()
    images = np.rint(table[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    return Dataset("digits", images, table[:, -1:].astype(np.int64), **factor_arguments(FACTORS))


def _table() -> np.ndarray:
    """A row of 64 pixels and the digit for each picture.

    Read from the file of scikit-learn, which takes longer to import than torch.
    """
    package = find_spec("sklearn")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            with gzip.open(file) as lines:
                return np.loadtxt(lines, delimiter=",")
    from sklearn.datasets import load_digits  # of a version that keeps them elsewhere

    table = load_digits()
    return np.column_stack([table.data, table.target])


DIGITS = Source(
    name="digits",
    title="Handwritten digits",
    summary="8 x 8 pixels, from scikit-learn: small enough to train on in seconds",
    cite="Alpaydin, Kaynak, Optical recognition of handwritten digits, UCI, 1998",
    load=load,
    licence="CC BY 4.0 (part of scikit-learn)",
    homepage="https://archive.ics.uci.edu/dataset/80",
    samples=1797,
    shape=(1, 8, 8),
    factors=FACTORS,
)

"""Digits: the 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn.

Grey levels 0 to 16 become bytes 0 to 255. The test part of the "Optical recognition of
handwritten digits" data, Alpaydin and Kaynak, UCI Machine Learning Repository, 1998.
"""

from pathlib import Path

import numpy as np

from zscope.data.dataset import Dataset
from zscope.data.source import Factor, Source, factor_arguments

__all__ = ["DIGITS", "load"]

FACTORS = (Factor("digit", 10, "categorical", tuple("0123456789")),)


def load(folder: Path) -> Dataset:
    """All digits, in the order of scikit-learn."""
    from sklearn.datasets import load_digits

    table = load_digits()
    images = np.rint(table.images[:, None] * (255 / 16)).astype(np.uint8)
    return Dataset(
        "digits", images, table.target[:, None].astype(np.int64), **factor_arguments(FACTORS)
    )


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

"""Logistic regression as scikit-learn fits it, for any number of classes."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def logistic_regression(
    points: np.ndarray, labels: np.ndarray, *, strength: float = 1.0, steps: int = 100
) -> Any:
    """A fitted classifier; with a single class in the labels, one that always says it.

    The defaults are the library's own. A fit that has not converged after `steps` is
    used as it is: its score on other rows says how good it is.
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression

    if (labels == labels[0]).all():
        return DummyClassifier().fit(points, labels)
    with quiet():
        return LogisticRegression(C=strength, max_iter=steps).fit(points, labels)


@contextmanager
def quiet() -> Iterator[None]:
    """Without what scikit-learn warns of and a score takes into account.

    A fit that has not converged is judged by its score on other rows; factors with a value
    for almost every row are named in the flags.
    """
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        yield

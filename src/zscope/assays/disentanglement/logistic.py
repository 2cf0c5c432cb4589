"""Logistic regression as scikit-learn fits it, for any number of classes."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["ignore_fit_warnings", "logistic_regression"]


def logistic_regression(
    points: np.ndarray, labels: np.ndarray, *, strength: float = 1.0, steps: int = 100
) -> Any:
    """A fitted classifier; with a single class in the labels, one that always predicts it.

    The defaults are those of scikit-learn. A fit that has not converged after `steps` is
    used anyway: its score on held-out rows shows how good it is.
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression

    if (labels == labels[0]).all():
        return DummyClassifier().fit(points, labels)
    with ignore_fit_warnings():
        return LogisticRegression(C=strength, max_iter=steps).fit(points, labels)


@contextmanager
def ignore_fit_warnings() -> Iterator[None]:
    """Silence the warnings of scikit-learn that a score takes into account.

    A fit that has not converged shows in its score on held-out rows; a flag names factors
    with a value for almost every row.
    """
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        yield

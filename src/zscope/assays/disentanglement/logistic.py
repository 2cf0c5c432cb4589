"""Logistic regression as scikit-learn fits it, for any number of classes."""

import warnings
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
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if (labels == labels[0]).all():
        return DummyClassifier().fit(points, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=strength, max_iter=steps).fit(points, labels)

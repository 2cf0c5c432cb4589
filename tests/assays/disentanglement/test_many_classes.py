"""DCI with classes: one tree for each class and round."""

import numpy as np
import pytest

from zscope.assays import dci
from zscope.errors import Undefined


def test_continuous_factors_are_no_classes():
    factors = np.random.default_rng(0).normal(size=(1500, 2))
    with pytest.raises(Undefined, match=r"1,500 values.*a tenth.*flavour='zscope'"):
        dci(factors, factors, flavour="dlib")


def test_a_few_classes_of_few_rows_are_accepted():
    factors = np.random.default_rng(0).integers(6, size=(30, 2))
    assert dci(factors.astype(float), factors, flavour="dlib").score > 0

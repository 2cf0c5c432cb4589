"""scikit-learn's digits, as bytes."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import zscope as zs


def test_the_digits_are_those_of_scikit_learn_scaled_to_bytes():
    data, table = zs.data.load("digits"), load_digits()
    assert data.images.shape == (1797, 1, 8, 8)
    assert data.images.dtype == np.uint8
    assert set(np.unique(data.images[table.images[:, None] == 16])) == {255}
    assert set(np.unique(data.images[table.images[:, None] == 0])) == {0}
    assert np.abs(data.images[:, 0] - table.images * 255 / 16).max() <= 0.5


def test_the_factor_is_the_digit():
    data = zs.data.load("digits")
    assert (data.factors[:, 0] == load_digits().target).all()
    assert data.factor_names == ("digit",)
    assert data.factor_sizes == (10,)
    assert data.factor_kinds == ("categorical",)


def test_the_file_of_scikit_learn_is_read_without_importing_it(monkeypatch):
    known = zs.data.load("digits")
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda: pytest.fail("sklearn was used"))
    again = zs.data.load("digits")
    assert (again.images == known.images).all()
    assert (again.factors == known.factors).all()


def test_digits_that_lie_elsewhere_are_found_by_scikit_learn(monkeypatch):
    known = zs.data.load("digits")
    monkeypatch.setattr("zscope.data.digits.find_spec", lambda name: None)
    again = zs.data.load("digits")
    assert (again.images == known.images).all()
    assert (again.factors == known.factors).all()

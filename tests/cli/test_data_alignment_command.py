"""zscope data alignment, on data whose answer is known."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from zscope.cli import app
from zscope.errors import DataError


def run(*words):
    result = CliRunner().invoke(app, ["data", "alignment", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.fixture(name="turned")
def _turned(tmp_path):
    """Factors that move the data along directions turned by 45 degrees against the axes."""
    first, second = (part.ravel() for part in np.meshgrid(range(6), range(5), indexing="ij"))
    w = np.stack([first / first.std(), second / second.std()], 1)
    half = np.sqrt(0.5)
    x = w @ (np.diag([2, 1]) @ np.array([[half, -half], [half, half]])).T
    np.savez(tmp_path / "turned.npz", images=x, factors=w + 0.5)
    return tmp_path / "turned.npz"


def test_a_turned_generator_has_its_closed_form(turned, tmp_path):
    answer = json.loads(run(str(turned), "--json", "--figure", str(tmp_path / "figure.png")))
    assert answer["distance"] == pytest.approx(1.0824, abs=1e-3)
    assert answer["gap"] == pytest.approx(0.2231, abs=1e-3)
    assert (tmp_path / "figure.png").is_file()


def test_a_square_is_aligned_and_printed():
    answer = json.loads(run("square-linear?grid=9", "--json"))
    assert answer["distance"] == pytest.approx(0, abs=1e-6)
    assert "chance" in run("square-linear?grid=9")


def test_data_without_factors_are_refused_with_a_way_forward(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((20, 3)) + np.arange(20)[:, None])
    with pytest.raises(DataError, match="has no factors.*--data-option factors="):
        run(str(tmp_path / "rows.npy"))

"""Experiment trackers: the blocks of docs/guide/elsewhere.md, and what they leave in files."""

import re
from pathlib import Path

import pytest
import torch

import zscope as zs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "elsewhere.md"
X = torch.randn(100, 6, generator=torch.Generator().manual_seed(0))


def block(title):
    """The code of a section of the page."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Runs the block, then trains with its `log`, and with a monitor beside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    def train(title):
        names = {"zs": zs}
        exec(compile(block(title), f"{PAGE.name}, {title}", "exec"), names)
        model = zs.models.build("vae", shape=(6,), latents=2, hidden=(8,))
        monitor = zs.Monitor(model, X, every=4, samples=64)

        def log(values, step):
            names["log"](values | monitor(step), step)

        run = zs.train(model, X, steps=8, log_every=2, log=log)
        return names, run.history, monitor.history

    return train


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_every_value_of_every_row(trained, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is only in .venv-adapters")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    names, history, monitored = trained("TensorBoard")
    names["writer"].close()
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    for rows in (history, monitored):
        for name in set(rows[-1]) - {"format", "step"}:
            expected = [(row["step"], row[name]) for row in rows if name in row]
            found = [(event.step, event.value) for event in board.Scalars(name)]
            assert [step for step, _ in found] == [step for step, _ in expected], name
            values = [value for _, value in expected]
            assert [value for _, value in found] == pytest.approx(values, rel=1e-6), name


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_every_value_of_every_row_in_its_files(trained, tmp_path):
    reason = "needs mlflow-skinny 3, which goes into .venv-adapters"
    mlflow = pytest.importorskip("mlflow", minversion="3", reason=reason, exc_type=ImportError)
    _, history, monitored = trained("MLflow")
    run = mlflow.active_run().info.run_id
    mlflow.end_run()
    client = mlflow.MlflowClient(f"file:{tmp_path / 'mlruns'}")
    for rows in (history, monitored):
        for name in set(rows[-1]) - {"format", "step"}:
            expected = [(row["step"], row[name]) for row in rows if name in row]
            found = [(each.step, each.value) for each in client.get_metric_history(run, name)]
            assert sorted(found) == expected, name


def test_every_tracker_of_the_page_defines_log():
    for title in ("TensorBoard", "MLflow", "Weights & Biases", "trackio"):
        code = block(title)
        assert "def log(values, step):" in code, title
        assert len([line for line in code.splitlines() if line.strip()]) <= 6, title

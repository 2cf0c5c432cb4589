"""`log=` in `zs.train`: every row of the history goes to an experiment tracker."""

import numpy as np
import pytest
import torch
from torch import nn

import zscope as zs
from zscope import store
from zscope.errors import ConfigError, TrainingError
from zscope.training.keeping import check_log

ROWS = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
SETTINGS = {"steps": 12, "batch": 16, "log_every": 4, "checkpoint_every": 6}


class Normalised(zs.Trainable):
    """A model whose state also changes when it is only called, by batch norm."""

    latents = 2

    def __init__(self):
        super().__init__()
        self.norm, self.into, self.back = nn.BatchNorm1d(3), nn.Linear(3, 2), nn.Linear(2, 3)

    def encode(self, x, auxiliary=None):
        return zs.Posterior(self.into(self.norm(x)))

    def decode(self, z):
        return self.back(z)

    def losses(self, x, generator=None):
        error = (self.decode(self.encode(x).mean) - x).square().sum(1).mean()
        return zs.Losses(error, {"reconstruction": error}, self.encode(x))


def build():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Normalised()


def train(out=None, log=None, **settings):
    return zs.train(build(), ROWS, out=out, log=log, **(SETTINGS | settings))


def logged(rows):
    return [(row["step"], {k: v for k, v in row.items() if k not in ("step", "format")})
            for row in rows]  # fmt: skip


def test_log_gets_every_row_of_the_history_with_its_step():
    seen = []
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,))
    run = zs.train(model, ROWS, log=lambda values, step: seen.append((step, values)), **SETTINGS)
    assert [step for step, _ in seen] == [0, 4, 8, 12]
    assert seen == logged(run.history)
    assert {"loss", "reconstruction", "divergence", "active", "passive"} <= set(seen[0][1])


def test_log_is_called_on_the_model_of_its_row():
    model, seen = build(), []
    first = model.into.weight.detach().clone()

    def log(values, step):
        seen.append(torch.equal(model.into.weight, first))

    zs.train(model, ROWS, log=log, **SETTINGS)
    assert seen == [True, False, False, False]


@pytest.mark.parametrize("failing", [0, 8])
def test_a_run_whose_log_raises_is_saved_and_goes_on_with_the_same_bytes(tmp_path, failing):
    whole = train(tmp_path / "whole")
    seen = []

    def log(values, step):
        if step == failing:
            raise ConnectionError("the server is away")
        seen.append(step)

    with pytest.raises(
        TrainingError, match=f"ConnectionError at step {failing}: the server is aw"
    ) as e:
        train(tmp_path / "run", log)
    assert f"saved after step {failing + 1}. Resume with: " in str(e.value)
    assert isinstance(e.value.__cause__, ConnectionError)
    assert store.open_run(tmp_path / "run").status == "interrupted"
    before = list(seen)
    run = train(tmp_path / "run", log, resume=True)
    assert run.finished
    assert seen == [step for step in (0, 4, 8, 12) if step != failing]
    assert before == [step for step in (0, 4) if step < failing]
    for file in ("history.jsonl", "model.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (whole.path / file).read_bytes()


def test_a_run_whose_last_row_cannot_be_logged_is_finished(tmp_path):
    def log(values, step):
        assert step < 12, "quota exceeded"

    with pytest.raises(TrainingError, match=r"quota exceeded.*The run itself is finished"):
        train(tmp_path / "run", log)
    run = store.open_run(tmp_path / "run")
    assert run.finished
    assert run.history[-1]["step"] == 12
    with pytest.raises(TrainingError, match="The run was in memory only"):
        train(log=lambda values, step: 1 / 0)


def test_what_cannot_be_called_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(ConfigError, match=r"log='runs/board' cannot be called"):
        check_log("runs/board", devices=1)
    with pytest.raises(ConfigError, match=r"another process, because devices=2"):
        train(tmp_path / "run", lambda values, step: None, devices=2, device="cpu")
    assert not (tmp_path / "run").exists()

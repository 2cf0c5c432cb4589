"""What is said of the latents while a model trains."""

import pytest
import torch

import zscope as zs
from zscope.training.monitor import regime
from zscope.training.progress import sentence


def test_latents_are_counted_by_type_and_their_mean_variances_added():
    half = torch.tensor([0.0, 1.0]).repeat(32)
    S = torch.stack([torch.full((64,), 0.05), half, torch.ones(64), torch.full((64,), 0.95)], 1)
    found = regime(S)
    assert found == {"active": 1, "mixed": 1, "passive": 2, "variance": pytest.approx(2.5)}


def test_a_row_of_the_history_is_the_regime_of_its_batch_after_that_step():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    model = zs.models.build("vae", shape=(3,), latents=4, hidden=(8,))
    with torch.no_grad():
        before = model.encode(x).variance
    run = zs.train(model, x, steps=30, rate=1e-2, batch=64)
    rows = {row["step"]: row for row in run.history}
    with torch.no_grad():
        after = run.model.encode(x).variance
    for step, variance in ((0, before), (30, after)):
        counts = regime(variance)  # every batch is all of the data, in some order
        assert {key: rows[step][key] for key in counts} == pytest.approx(counts, rel=1e-5)


def test_an_autoencoder_without_noise_has_no_regime():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    run = zs.train(zs.models.build("ae", shape=(3,), latents=2, hidden=(8,)), x, steps=2)
    assert "passive" not in run.history[0]


def test_a_person_is_told_the_counts_and_the_sum():
    row = {"format": 1, "step": 3, "loss": 1.23456, "divergence": 0.5, "active": 4, "mixed": 1,
           "passive": 5, "variance": 5.678}  # fmt: skip
    assert sentence(row) == "loss 1.235  KL 0.5  4 active, 1 mixed, 5 passive  Σσ² 5.68"
    assert sentence({"format": 1, "step": 3, "loss": 2.0}) == "loss 2"

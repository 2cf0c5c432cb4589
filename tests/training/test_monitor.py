"""What is said of the latents while a model trains."""

import pytest
import torch

import zscope as zs
from zscope.training.monitor import collapse_warning, regime
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


@pytest.mark.parametrize(
    ("active", "mixed", "passive", "words"),
    [
        (0, 0, 3, "All 3 latents are passive after 5,000 steps"),
        (0, 0, 1, "The only latent is passive"),
        (1, 0, 2, None),
        (0, 1, 2, None),
        (3, 0, 0, None),
    ],
)
def test_a_warning_is_given_when_every_latent_is_passive(active, mixed, passive, words):
    row = {"step": 5000, "loss": 1.0, "active": active, "mixed": mixed, "passive": passive}
    warning = collapse_warning(row)
    assert (warning is None) == (words is None)
    assert words is None or words in warning


def test_a_model_without_noise_is_never_called_collapsed():
    assert collapse_warning({"step": 5, "loss": 2.0}) is None


@pytest.mark.parametrize(
    ("scale", "progress", "warned"),
    [(0.01, None, True), (0.01, False, False), (3.0, None, False)],
)
def test_training_ends_with_the_warning(scale, progress, warned, capsys):
    x = scale * torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    model = zs.models.build("vae", shape=(4,), latents=2, backbone="linear")
    zs.train(model, x, steps=40, rate=5e-2, progress=progress)
    assert ("All 2 latents are passive after 40 steps" in capsys.readouterr().err) == warned


@pytest.mark.slow
def test_the_default_network_learns_small_pictures():
    digits = zs.data.load("digits")
    for seed in (0, 1):
        model = zs.models.build_for("vae", digits, latents=10, seed=seed)
        last = zs.train(model, digits, steps=2000, seed=seed, progress=False).history[-1]
        assert last["passive"] < 10
        assert last["divergence"] > 1

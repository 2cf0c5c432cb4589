"""What is said of the latents while a model trains."""

import math
import pickle
from inspect import signature

import pytest
import torch
from torch import nn

import zscope as zs
from zscope.monitor import Monitor, regime
from zscope.training.progress import collapse_warning, sentence


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


def test_what_is_measured_comes_in_as_a_callable():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))

    def train(function, **settings):
        model = zs.models.build("vae", shape=(3,), latents=4, hidden=(8,))
        return function(model, x, steps=4, batch=16, log_every=2, **settings).history

    def without(rows, *keys):
        return [{key: value for key, value in row.items() if key not in keys} for row in rows]

    history = train(zs.train)
    counts = regime(torch.ones(2, 4)).keys()
    assert all(counts <= row.keys() for row in history)
    # The loop alone measures nothing, and a measurement changes nothing in it.
    assert train(zs.training.train) == without(history, *counts)
    assert train(zs.train, monitor=None) == without(history, *counts)
    shapes = train(zs.train, monitor=lambda variances: {"rows": len(variances)})
    assert [row["rows"] for row in shapes] == [16, 16, 16]
    assert without(shapes, "rows") == without(history, *counts)


def test_every_member_of_an_ensemble_is_measured():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))

    def train(function):
        def build(seed):
            return zs.models.build("vae", shape=(3,), latents=4, hidden=(8,), seed=seed)

        return function(build, x, seeds=[0, 1], steps=2)

    for run in train(zs.train_ensemble):
        assert all({"active", "mixed", "passive", "variance"} <= row.keys() for row in run.history)
    for run in train(zs.training.train_ensemble):
        assert not any("active" in row for row in run.history)


def test_training_keeps_its_signature_and_can_be_sent_to_workers():
    for name in ("train", "train_ensemble"):
        function = getattr(zs, name)
        assert signature(function) == signature(getattr(zs.training, name))
        assert pickle.loads(pickle.dumps(function)) is function


class Plain(nn.Module):
    """A variational autoencoder of no library, whose third latent is noise by construction."""

    def __init__(self):
        super().__init__()
        self.back = nn.Linear(3, 3)

    def encode(self, x):
        kept = torch.tensor([1.0, 1.0, 0.0])
        return x * kept, torch.tensor([-6.0, -6.0, 0.0]).expand(len(x), 3)

    def decode(self, z):
        return self.back(z)


def test_a_monitor_has_the_numbers_of_the_assays_and_changes_nothing():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Plain()
        state = torch.random.get_rng_state()
        values = Monitor(x, responses=64).measure(model)
        assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training
    options = {"response-matrix": {"samples": 64}}
    report = zs.assay(model, x, names=["response-matrix", "trace-gap"], options=options)
    matrix = report.results["response-matrix"]
    assert (values["active"], values["mixed"], values["passive"]) == (2, 0, 1)
    assert values["variance"] == pytest.approx(1 + 2 * math.exp(-6), rel=1e-4)
    assert values["variance"] == pytest.approx(report.results["trace-gap"].score)
    assert values["causal"] == len(matrix.causal)
    assert [values[f"response/{k}"] for k in range(3)] == matrix.relative.diagonal().tolist()


def test_a_monitor_counts_no_types_of_a_model_without_noise():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    model = zs.models.build("ae", shape=(3,), latents=2, hidden=(8,))
    values = Monitor(x, responses=32).measure(model)
    assert set(values) == {"causal", "response/0", "response/1"}


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

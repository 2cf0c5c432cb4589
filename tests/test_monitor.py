"""What is said of the latents while a model trains."""

import math
import pickle
import random
import re
from inspect import signature

import numpy as np
import pytest
import torch
from torch import nn

import zscope as zs
from zscope.errors import ConfigError
from zscope.monitor import regime
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


X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))


class Plain(nn.Module):
    """A variational autoencoder of no library, with batch norm; its third latent is noise."""

    def __init__(self):
        super().__init__()
        self.norm, self.into, self.back = nn.BatchNorm1d(4), nn.Linear(4, 3), nn.Linear(3, 4)
        self.into.weight.grad = torch.ones(3, 4)

    def encode(self, x):
        kept = torch.tensor([1.0, 1.0, 0.0])
        return self.into(self.norm(x)) * kept, torch.tensor([-6.0, -6.0, 0.0]).expand(len(x), 3)

    def decode(self, z):
        return self.back(z)


def plain():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Plain()


def same(before, after):
    return all(torch.equal(before[name], after[name]) for name in before | after)


def test_the_values_of_a_monitor_are_those_of_the_assays():
    """By `zs.assay`, with all it says; of its page, not of the monitor's own code."""
    model = plain()
    monitor = zs.Monitor(model, X, samples=150, responses=40, seed=3)
    values = monitor.measure()
    options = {"response-matrix": {"samples": 40}, "holes": {"samples": 150}}
    names = ["variable-types", "latent-divergence", "trace-gap", "response-matrix", "holes"]
    report = zs.assay(model, X, names=names, options=options, samples=150, seed=3)
    types, matrix = report.results["variable-types"], report.results["response-matrix"]
    kl = report.results["latent-divergence"]
    expected = {
        "latents/active": len(types.active),
        "latents/mixed": len(types.mixed),
        "latents/passive": len(types.passive),
        "latents/variance": report.results["trace-gap"].score,
        "latents/causal": len(matrix.causal),
        "latents/used": sum(row["used"] for row in report.latents),
        "kl/total": kl.score,
        **{f"kl/{k}": float(kl.per_latent[k]) for k in range(3)},
        **{f"response/{k}": float(matrix.relative[k, k]) for k in range(3)},
        "explained_variance": report.explained,
        "hole_share": report.results["holes"].score,
    }
    assert values == pytest.approx(expected, rel=1e-12)
    assert all(type(value) is float for value in values.values())
    assert monitor.missing == {}


def test_the_values_of_a_monitor_are_known_for_a_model_with_a_closed_form():
    values = zs.Monitor(plain(), X).measure()
    assert (values["latents/active"], values["latents/mixed"], values["latents/passive"]) == (
        2,
        0,
        1,
    )
    assert values["latents/variance"] == pytest.approx(1 + 2 * math.exp(-6), rel=1e-4)
    assert values["kl/2"] == 0  # it is N(0, 1)
    assert values["response/2"] == 0
    with torch.no_grad():
        model = plain().eval()
        mean = model.encode(X)[0]
        left = (X - model.decode(mean)).square().sum() / (X - X.mean(0)).square().sum()
        kl = (mean[:, 0].square() + math.exp(-6) - 1 + 6).mean() / 2
    assert values["explained_variance"] == pytest.approx(1 - float(left), rel=1e-5)
    assert values["kl/0"] == pytest.approx(float(kl), rel=1e-5)
    assert values["kl/total"] == pytest.approx(values["kl/0"] + values["kl/1"])


def test_a_monitor_changes_neither_the_model_nor_any_random_state():
    class Noisy(Plain):  # draws from every global state whenever it is used
        def encode(self, x):
            return super().encode(x + 0 * torch.randn(1) * np.random.rand() * random.random())

    with torch.random.fork_rng():
        model = Noisy()
        model.back.eval()  # modes may differ between layers
        before = {name: value.clone() for name, value in model.state_dict().items()}
        states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
        monitor = zs.Monitor(model, X, samples=64)
        monitor.measure()
        assert torch.equal(states[0], torch.random.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert states[2] == random.getstate()
    assert same(before, model.state_dict())
    assert model.training
    assert model.norm.training
    assert not model.back.training
    assert torch.equal(model.into.weight.grad, torch.ones(3, 4))
    assert model.back.weight.grad is None


def test_training_with_a_monitor_has_the_bits_of_training_without():
    def train(log):
        model = zs.models.build("vae", shape=(4,), latents=2, hidden=(8,))
        monitor = zs.Monitor(model, X, every=4, samples=32)
        run = zs.train(model, X, steps=8, log_every=2, log=log and (lambda _, step: monitor(step)))
        return run.history, model.state_dict(), monitor.history

    history, weights, seen = train(True)
    plain_history, plain_weights, _ = train(None)
    assert history == plain_history
    assert same(weights, plain_weights)
    assert [row["step"] for row in seen] == [0, 4, 8]


def test_a_monitor_measures_when_it_is_its_turn():
    monitor = zs.Monitor(plain(), X, every=3, samples=32)
    answers = [monitor(step) for step in range(7)]
    assert [bool(answer) for answer in answers] == [True, False, False, True, False, False, True]
    assert [row["step"] for row in monitor.history] == [0, 3, 6]
    assert monitor.history[1] == {"step": 3, **answers[3]}
    assert monitor.measure() == answers[0]  # nothing was trained, and nothing is added
    assert len(monitor.history) == 3
    frame = monitor.to_frame()
    assert list(frame["step"]) == [0, 3, 6]
    assert set(frame.columns) == {"step", *answers[0]}
    counted = zs.Monitor(plain(), X, every=2, samples=32)
    assert [bool(counted()) for _ in range(4)] == [True, False, True, False]


def test_a_monitor_sees_the_weights_that_are_trained():
    model = plain()
    monitor = zs.Monitor((model.encode, model.decode), X, samples=64)
    before = monitor.measure()
    with torch.no_grad():
        model.into.weight.mul_(3)
        model.into.bias.mul_(3)
    after = monitor.measure()
    squares = 2 * before["kl/0"] - math.exp(-6) + 1 - 6  # of the means, which are three times those
    assert after["kl/0"] - before["kl/0"] == pytest.approx(8 / 2 * squares, rel=1e-5)
    assert after == zs.Monitor(model, X, samples=64).measure()


def test_no_name_is_the_folder_of_another():
    """MLflow's files and other trackers make folders of what stands before a slash."""
    names = set(zs.Monitor(plain(), X, samples=64).measure())
    assert not {name.partition("/")[0] for name in names if "/" in name} & names


def counting(model):
    """The model, and a list of how many rows it encodes and decodes."""
    rows = {"encode": 0, "decode": 0}
    for name in rows:
        inner = getattr(model, name)

        def call(batch, *more, name=name, inner=inner):
            rows[name] += len(batch)
            return inner(batch, *more)

        setattr(model, name, call)
    return model, rows


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def linear(features, latents, log_variance=None):
    """An autoencoder whose latents are directions of the data, so that none is unused."""
    basis = torch.linalg.qr(normal(features, latents)).Q

    def encode(x):
        mean = x @ basis
        return mean if log_variance is None else (mean, torch.full_like(mean, log_variance))

    return zs.wrap(encode, lambda z: z @ basis.T)


def of_maps():
    """Channels that are invertible functions of those of the pictures, with little noise."""
    mix = torch.linalg.qr(normal(3, 3)).Q

    def encode(x):
        mean = torch.einsum("nchw,cd->ndhw", x, mix)
        return mean, torch.full_like(mean, -6.0)

    return zs.wrap(encode, lambda z: torch.einsum("ndhw,cd->nchw", z, mix))


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (linear(30, 5, -6.0), normal(700, 30)),
        (linear(30, 5), normal(700, 30)),
        (linear(250, 200, -6.0), normal(700, 250)),
        (of_maps(), normal(150, 3, 8, 8)),
    ],
    ids=["vae", "ae", "many", "maps"],
)
def test_the_stated_passes_are_those_that_are_made(model, x):
    monitor = zs.Monitor(model, x)
    _, rows = counting(monitor.autoencoder)
    assert "hole_share" in monitor.measure()
    passes = (rows["encode"] + rows["decode"]) / 2
    assert monitor.passes <= passes <= 1.1 * monitor.passes  # a few more see whether it is steady
    assert passes < 4000


def test_the_defaults_cost_less_than_two_percent_of_the_passes_of_a_default_loop():
    """A pass with gradients takes three times one without; seconds are in the benchmarks."""
    monitor = zs.Monitor(linear(30, 10, -6.0), normal(2000, 30))
    assert monitor.every == 1000
    assert monitor.passes < 0.02 * 3 * 64 * monitor.every
    assert f"{monitor.passes:,} passes" in repr(monitor)


def test_a_deterministic_model_has_neither_types_nor_kl_and_says_so():
    monitor = zs.Monitor(linear(4, 2), X)
    values = monitor.measure()
    assert {name.partition("/")[0] for name in values} == {
        "latents", "response", "explained_variance", "hole_share",
    }  # fmt: skip
    assert {"latents/causal", "latents/used", "response/0", "response/1"} <= set(values)
    assert set(monitor.missing) == {"variable-types", "latent-divergence"}
    assert "deterministic" in monitor.missing["variable-types"]


def test_a_conditional_model_has_no_responses():
    data = zs.data.from_arrays(X, factors=X[:, :2].numpy())
    model = zs.models.build_for("ivae", data, latents=2, hidden=(8,))
    monitor = zs.Monitor(model, data, samples=100)
    values = monitor.measure()
    assert {"latents/passive", "kl/total", "explained_variance"} <= set(values)
    assert not [name for name in values if name.startswith(("response", "hole"))]
    assert "conditional" in monitor.missing["response-matrix"]


def test_latents_that_are_maps_are_counted_by_channel():
    x, model = normal(40, 3, 8, 8), of_maps()
    monitor = zs.Monitor(model, x)
    values = monitor.measure()
    assert (values["latents/active"], values["latents/used"]) == (3, 3)
    assert "response/3" not in values
    report = zs.assay(model, x, names=["response-matrix", "holes", "latent-divergence"])
    matrix = report.results["response-matrix"].relative.diagonal().tolist()
    assert [values[f"response/{channel}"] for channel in range(3)] == matrix
    assert values["hole_share"] == report.results["holes"].score
    assert values["explained_variance"] == report.explained
    assert values["kl/total"] == report.results["latent-divergence"].score


def test_a_collapsed_model_does_not_stop_the_loop():
    def encode(x):
        return torch.zeros(len(x), 3), torch.zeros(len(x), 3)

    monitor = zs.Monitor((encode, lambda z: torch.nn.functional.pad(z, (0, 1))), X)
    values = monitor(0)
    assert values["latents/passive"] == 3
    assert values["kl/total"] == 0
    assert "hole_share" not in values
    assert "collapsed" in monitor.missing["holes"]


def test_hundreds_of_latents_have_responses_only_if_asked_for():
    model = zs.models.build("vae", shape=(4,), latents=600, hidden=(8,))
    monitor = zs.Monitor(model, X, samples=64)
    assert not [name for name in monitor.measure() if name.startswith("response")]
    assert "responses=8" in monitor.missing["response-matrix"]
    assert monitor.passes < 300
    asked = zs.Monitor(model, X, samples=64, responses=8)
    assert "response/599" in asked.measure()


@pytest.mark.parametrize("options", [{"every": 0}, {"samples": -1}, {"responses": 0}])
def test_a_monitor_refuses_what_it_cannot_use(options):
    name, value = next(iter(options.items()))
    with pytest.raises(ConfigError, match=f"Monitor: {name}={value}; expected a whole number"):
        zs.Monitor(plain(), X, **options)


def test_data_that_do_not_fit_are_refused_before_the_loop():
    with pytest.raises(zs.ZscopeError):
        zs.Monitor(plain(), torch.zeros(20, 7))


def test_a_monitor_shows_its_last_values_in_a_notebook():
    monitor = zs.Monitor(plain(), X, every=5, samples=64)
    assert "Plain: every 5 steps" in repr(monitor)
    assert "0 measurements" in repr(monitor)
    monitor(0)
    monitor(5)
    text, page = repr(monitor), monitor._repr_html_()
    assert "1 measurement" not in text.replace("2 measurements", "")
    assert "step 5" in text
    assert re.search(r"latents/passive +1\n", text)
    assert "<th" in page
    assert "step 5" in page


def panels(figure):
    return {ax.get_title(loc="left"): ax for ax in figure.axes if ax.get_visible()}


def test_the_curves_of_a_monitor_and_of_a_run_show_their_rows():
    monitor = zs.Monitor(plain(), X, every=1, samples=64)
    for step in range(3):
        monitor(step)
    drawn = panels(monitor.plot())
    assert set(drawn) == {
        "latents", "rate: KL (nats)", "explained variance", "KL of each latent (nats)",
        "response of each latent", "share of the prior in holes",
    }  # fmt: skip
    rate = drawn["rate: KL (nats)"].get_lines()[0].get_xydata()
    assert rate.tolist() == [[row["step"], row["kl/total"]] for row in monitor.history]
    assert len(drawn["response of each latent"].get_lines()) == 3
    run = zs.train(
        zs.models.build("vae", shape=(4,), latents=2, hidden=(8,)), X, steps=4, log_every=2
    )
    drawn = panels(run.plot())
    assert set(drawn) == {"latents", "rate: KL (nats)", "distortion (nats)"}
    distortion = drawn["distortion (nats)"].get_lines()[0].get_xydata()
    assert distortion.tolist() == [[row["step"], row["reconstruction"]] for row in run.history]
    with pytest.raises(ConfigError, match="none of 0 rows"):
        zs.Monitor(plain(), X).plot()


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

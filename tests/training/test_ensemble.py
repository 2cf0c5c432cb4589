"""Training several seeds together gives each the run it would have alone."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import zscope as zs
from zscope.autoencoder import Losses
from zscope.data.dataset import as_dataset
from zscope.errors import ConfigError, InterfaceError
from zscope.training import TrainConfig, can_train_together
from zscope.training.config import ModelRecipe
from zscope.training.stacking import Stack

ROWS = np.random.default_rng(2).normal(size=(200, 3)).astype(np.float32)
SEEDS = [0, 3, 11]
DATA = zs.data.from_arrays(ROWS, np.arange(200)[:, None] % 2)


def build(seed, name="vae"):
    return zs.models.build(name, shape=(3,), latents=2, hidden=(8, 8), seed=seed)


@pytest.mark.parametrize("name", ["ae", "beta-vae"])
@pytest.mark.parametrize("settings", [{}, {"clip": 0.5, "optimiser": "adagrad", "warmup": 5}])
def test_members_have_the_losses_of_runs_alone(name, settings):
    settings = {"steps": 12, "batch": 32, "rate": 1e-2, "log_every": 4, **settings}
    together = zs.train_ensemble(lambda s: build(s, name).double(), ROWS, seeds=SEEDS, **settings)
    for seed, run in zip(SEEDS, together, strict=True):
        alone = zs.train(build(seed, name).double(), ROWS, seed=seed, **settings)
        for row, other in zip(run.history, alone.history, strict=True):
            assert row.keys() == other.keys()
            assert list(row.values()) == pytest.approx(list(other.values()), rel=1e-9)
        pairs = zip(run.model.parameters(), alone.model.parameters(), strict=True)
        assert all(torch.allclose(a, b, rtol=1e-8) for a, b in pairs)


def test_members_differ_from_each_other():
    runs = zs.train_ensemble(build, ROWS, seeds=SEEDS, steps=20)
    assert len({run.history[-1]["loss"] for run in runs}) == 3


def test_members_are_written_as_runs_of_their_own(tmp_path):
    runs = zs.train_ensemble(build, ROWS, seeds=SEEDS, steps=20, out=tmp_path)
    for seed, run in zip(SEEDS, runs, strict=True):
        loaded = zs.load(tmp_path / f"seed-{seed}")
        assert torch.equal(loaded.encoder.head.weight, run.model.encoder.head.weight)
        assert run.history[-1]["step"] == 20


def test_pictures_train_together_too():
    images = (ROWS[:, :1, None] > 0).repeat(8, 1).repeat(8, 2).astype(np.uint8)[:, None] * 255

    def build_conv(seed):
        return zs.models.build("vae", shape=(1, 8, 8), latents=2, backbone="locatello", seed=seed)

    runs = zs.train_ensemble(build_conv, images, seeds=[1, 2], steps=3, batch=8)
    alone = zs.train(build_conv(2), images, seed=2, steps=3, batch=8)
    assert runs[1].history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-4)


def test_what_cannot_be_stacked_is_refused():
    with pytest.raises(InterfaceError, match="different architectures"):
        zs.train_ensemble(
            lambda s: zs.models.build("vae", shape=(3,), latents=2, hidden=(8 + s,)),
            ROWS,
            seeds=[0, 1],
            steps=1,
        )

    def with_statistics(seed):
        model = build(seed)
        model.decoder.add_module("norm", nn.BatchNorm1d(3))
        return model

    with pytest.raises(InterfaceError, match="running statistics"):
        zs.train_ensemble(with_statistics, ROWS, seeds=[0], steps=1)
    with pytest.raises(ConfigError, match="without repeats"):
        zs.train_ensemble(build, ROWS, seeds=[1, 1], steps=1)
    with pytest.raises(ConfigError, match="one device"):
        zs.train_ensemble(build, ROWS, seeds=[1], steps=1, devices=2)


def test_a_member_that_breaks_stops_the_ensemble():
    with pytest.raises(zs.ZscopeError, match="'reconstruction' became NaN or infinite at step"):
        zs.train_ensemble(build, ROWS * 1e25, seeds=[0, 1], steps=50)


# model, option, its value in each member, other options
CARRIED = [
    ("beta-vae", "beta", (0.5, 4.0, 4.0), {}),
    ("beta-tcvae", "beta", (1.0, 6.0, 3.0), {"estimator": "stratified"}),
    ("vae", "gamma", (0.1, 1.0, 2.0), {"likelihood": "gaussian"}),
    ("annealed-vae", "capacity", (1.0, 5.0, 25.0), {"capacity_steps": 6}),
    ("dip-vae-i", "offdiagonal", (0.0, 1.0, 10.0), {}),
    ("vae", "reconstruction_weight", (1.0, 16.0, 4.0), {}),
]
MORE = [
    ("beta-vae-full", "beta", (0.5, 4.0, 4.0), {}),
    ("avae", "rho", (0.5, 0.9, 0.975), {}),
    ("avae", "gamma", (0.1, 1.0, 2.0), {"likelihood": "gaussian"}),
    ("annealed-vae", "alpha", (1.0, 5.0, 25.0), {"capacity_steps": 6}),
    ("dip-vae-i", "diagonal", (0.0, 1.0, 10.0), {}),
    ("dip-vae-ii", "offdiagonal", (0.0, 1.0, 10.0), {}),
    ("dip-vae-ii", "diagonal", (0.0, 1.0, 10.0), {}),
    ("wae", "weight", (0.0, 1.0, 10.0), {}),
    ("slow-vae", "beta", (0.5, 1.0, 2.0), {}),
    ("slow-vae", "slowness", (1.0, 5.0, 10.0), {}),
    ("slow-vae", "laplace_rate", (1.0, 6.0, 2.0), {}),
    ("vlae-2", "beta", (0.5, 1.0, 2.0), {}),
    ("factor-vae", "alpha", (0.0, 10.0, 40.0), {"discriminator": (8, 8)}),
    ("factor-vae", "reconstruction_weight", (1.0, 16.0, 4.0), {"discriminator": (8, 8)}),
    ("vae", "consistency_weight", (0.5, 4.0, 1.0), {"consistency": "invariance"}),
]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in MORE]


@pytest.mark.parametrize(("name", "option", "values", "others"), [*CARRIED, *SLOW])
def test_members_may_differ_in_numbers_of_the_loss(name, option, values, others):
    def make(seed, value):
        options = {option: value, "hidden": (6,), "seed": seed, **others}
        return zs.models.build(name, shape=(3,), latents=2, **options).double()

    settings = {"steps": 4, "batch": 32, "rate": 1e-2, "log_every": 2}
    of_seed = dict(zip(SEEDS, values, strict=True))
    runs = zs.train_ensemble(lambda seed: make(seed, of_seed[seed]), ROWS, seeds=SEEDS, **settings)
    for (seed, value), run in zip(of_seed.items(), runs, strict=True):
        alone = zs.train(make(seed, value), ROWS, seed=seed, **settings)
        for row, other in zip(run.history, alone.history, strict=True):
            assert row == pytest.approx(other, rel=1e-9)
        assert run.model.numbers == alone.model.numbers
        assert run.model.divergence_weight == alone.model.divergence_weight
        assert run.model.likelihood_variance == alone.model.likelihood_variance
    # With the number of another member the loss would be another.
    wrong = zs.train(make(SEEDS[0], values[1]), ROWS, seed=SEEDS[0], **settings)
    assert runs[0].history[-1]["loss"] != pytest.approx(wrong.history[-1]["loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "settings"),
    [
        ("beta-vae", {}, {"schedule": "cosine", "warmup": 3}),
        ("beta-vae", {}, {"optimiser": "adagrad", "clip": 0.5}),
        ("factor-vae", {"discriminator": (4,)}, {}),
        ("annealed-vae", {"capacity_steps": 6}, {}),
    ],
    ids=["schedule", "adagrad", "rivals", "not traced"],
)
def test_members_may_have_rates_of_their_own(name, options, settings):
    def make(seed):
        return zs.models.build(
            name, shape=(3,), latents=2, hidden=(6,), seed=seed, **options
        ).double()

    settings = {"steps": 6, "batch": 32, "log_every": 2, **settings}
    rates = [1e-3, 3e-2, 1e-2]
    runs = zs.train_ensemble(make, ROWS, seeds=SEEDS, rate=rates, **settings)
    for seed, rate, run in zip(SEEDS, rates, runs, strict=True):
        alone = zs.train(make(seed), ROWS, seed=seed, rate=rate, **settings)
        for row, other in zip(run.history, alone.history, strict=True):
            assert row == pytest.approx(other, rel=1e-9)
        assert run.config["rate"] == rate
    wrong = zs.train(make(SEEDS[0]), ROWS, seed=SEEDS[0], rate=rates[1], **settings)
    assert runs[0].history[-1]["loss"] != pytest.approx(wrong.history[-1]["loss"], rel=1e-6)
    with pytest.raises(ConfigError, match="2 rates for 3 seeds"):
        zs.train_ensemble(make, ROWS, seeds=SEEDS, rate=rates[:2], **settings)


def test_every_number_of_a_loss_can_be_carried():
    """What is not in the table above has no numbers, or weights of its own."""
    numbers = {
        (name, option)
        for name in zs.models.CATALOGUE
        for option in zs.models.build_for(name, DATA, latents=2, hidden=(4,)).numbers
        if option != "reconstruction_weight"  # which is not one of the objective
    }
    assert numbers <= {(name, option) for name, option, *_ in [*CARRIED, *MORE]}
    assert not [name for name, _ in numbers if name in ("ivae", "pcl")]


def test_numbers_that_differ_are_no_constants_of_the_trace():
    models = [zs.models.build("beta-vae", shape=(3,), latents=2, hidden=(4,), beta=b)
              for b in (1, 4)]  # fmt: skip
    configs = [TrainConfig(steps=2, seed=seed, batch=8) for seed in (0, 1)]
    stack = Stack(models, as_dataset(ROWS), configs, torch.device("cpu"))
    assert stack.plain is not None
    losses = []
    for betas in ([1.0, 4.0], [2.0, 2.0]):
        stack.numbers = {"beta": torch.tensor(betas)}
        _, totals, terms, _ = stack.losses(0)
        expected = terms["reconstruction"] + torch.tensor(betas) * terms["divergence"]
        assert torch.allclose(totals, expected)
        losses.append(totals)
    assert (losses[0] != losses[1]).all()


def test_which_recipes_train_together():
    def recipe(name="beta-vae", latents=2, **options):
        options = {"hidden": (4,), **options} if "backbone" not in options else options
        shape = (1, 32, 32) if "backbone" in options else (3,)
        return zs.models.build(name, shape=shape, latents=latents, **options).recipe

    base = recipe()
    together = [recipe(seed=3), recipe(beta=1), recipe(beta=8, seed=2)]
    together += [recipe(reconstruction_weight=16), recipe(reconstruction_weight=4, beta=1)]
    assert all(can_train_together(base, other) for other in together)
    assert can_train_together(ModelRecipe(**base), ModelRecipe(**recipe(beta=2)))
    apart = [recipe(hidden=(5,)), recipe(activation="tanh"), recipe("vae"), recipe(latents=3), None]
    assert not any(can_train_together(base, other) for other in apart)
    gaussian = recipe("vae", likelihood="gaussian")
    assert can_train_together(gaussian, recipe("vae", likelihood="gaussian", gamma=0.5))
    assert not can_train_together(gaussian, recipe("vae", likelihood="gaussian", gamma="learned"))
    tcvae = recipe("beta-tcvae")
    assert not can_train_together(tcvae, recipe("beta-tcvae", estimator="stratified"))
    annealed = recipe("annealed-vae")
    assert can_train_together(annealed, recipe("annealed-vae", capacity=5))
    assert not can_train_together(annealed, recipe("annealed-vae", capacity_steps=5))
    factor = recipe("factor-vae")
    assert can_train_together(factor, recipe("factor-vae", seed=1))
    assert can_train_together(factor, recipe("factor-vae", alpha=1))
    assert not can_train_together(factor, recipe("factor-vae", discriminator_rate=1e-3))
    batch_norm = recipe("ae", backbone="consistency")
    assert not can_train_together(batch_norm, batch_norm)
    assert can_train_together(recipe("ae", backbone="locatello"),
                              recipe("ae", backbone="locatello", seed=1))  # fmt: skip


def test_settings_that_a_stack_cannot_carry_are_refused():
    def with_estimator(seed):
        options = {"estimator": ["weighted", "stratified"][seed], "hidden": (4,)}
        return zs.models.build("beta-tcvae", shape=(3,), latents=2, **options)

    with pytest.raises(InterfaceError, match="estimator='weighted' and another.*'stratified'"):
        zs.train_ensemble(with_estimator, ROWS, seeds=[0, 1], steps=1)

    class Own(zs.Trainable):
        latents, scale = 1, 1.0

        def __init__(self, seed):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 1))
            self.scale = float(seed)

        def losses(self, x, generator=None):
            return Losses(self.scale * (x @ self.weight).square().mean(), {})

    with pytest.raises(InterfaceError, match="scale=1.0 and another scale=2.0.*one by one"):
        zs.train_ensemble(Own, ROWS, seeds=[1, 2], steps=1)

    class Listed(Own):
        numbers = property(lambda self: {"scale": self.scale})

        def losses(self, x, generator=None, *, numbers=None):
            scale = (numbers or self.numbers)["scale"]
            return Losses(scale * (x @ self.weight).square().mean(), {})

    runs = zs.train_ensemble(Listed, ROWS, seeds=[1, 2], steps=1, batch=200)
    assert runs[1].history[0]["loss"] == pytest.approx(2 * runs[0].history[0]["loss"], rel=1e-5)


def test_a_learned_scalar_is_clipped_and_stacked():
    settings = {"steps": 4, "batch": 32, "rate": 1e-2, "log_every": 2, "clip": 0.1}
    make = partial(zs.models.build, "vae", shape=(3,), latents=2, hidden=(4,),
                   likelihood="gaussian", gamma="learned")  # fmt: skip
    runs = zs.train_ensemble(lambda seed: make(seed=seed).double(), ROWS, seeds=[1, 2], **settings)
    alone = zs.train(make(seed=2).double(), ROWS, seed=2, **settings)
    assert runs[1].history[-1] == pytest.approx(alone.history[-1], rel=1e-9)


def test_weights_that_are_not_trained_do_not_stop_an_ensemble():
    rows = np.random.default_rng(0).random((20, 3), np.float32)
    make = partial(zs.models.build, "xae", shape=(3,), latents=1, hidden=(4,))
    runs = zs.train_ensemble(lambda seed: make(seed=seed), rows, seeds=[1, 2], steps=3)
    alone = zs.train(make(seed=1), rows, steps=3, seed=1)
    assert runs[0].history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-5)


class Own(zs.Trainable):
    latents = 1

    def __init__(self, seed):
        super().__init__()
        start = torch.randn(3, 2, generator=torch.Generator().manual_seed(seed))
        self.weight, self.calls = nn.Parameter(start), 0


class Counting(Own):
    def losses(self, x, generator=None):
        self.calls += 1
        return Losses(self.calls * (x @ self.weight).square().mean(), {})


class Covariance(Own):
    """Has an operation that cannot be recorded."""

    def losses(self, x, generator=None):
        return Losses((torch.cov((x @ self.weight).T) - torch.eye(2)).square().sum(), {})


def test_a_model_that_counts_its_steps_is_refused():
    with pytest.raises(InterfaceError, match=r"attribute calls at every call.*Take `step`"):
        zs.train_ensemble(Counting, ROWS, seeds=[1, 2], steps=3)


def test_losses_that_cannot_be_traced_train_as_they_are():
    settings = {"steps": 5, "batch": 32, "rate": 1e-2}
    configs = [TrainConfig(seed=seed, **settings) for seed in (1, 2)]
    stack = Stack([Covariance(1), Covariance(2)], as_dataset(ROWS), configs, torch.device("cpu"))
    assert stack.plain is None
    runs = zs.train_ensemble(Covariance, ROWS, seeds=[1, 2], **settings)
    for seed, run in zip((1, 2), runs, strict=True):
        alone = zs.train(Covariance(seed), ROWS, seed=seed, **settings)
        assert run.history[-1]["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-5)

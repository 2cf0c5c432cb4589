"""iVAE: its divergence, its scaling of factors, and the closed forms of the linear case."""

import math

import numpy as np
import pytest
import torch
from test_linear_vae import crossed, sprung
from torch import distributions, nn
from worlds import seeded

import zscope as zs
from zscope.autoencoder import Posterior
from zscope.errors import ConfigError, InterfaceError
from zscope.models.ivae import Scaling
from zscope.models.objectives import kl_to_gaussian
from zscope.randomness import Tape


def column(*values):
    return torch.tensor([values], dtype=torch.float64).T


def minimised(parameters, loss, rounds=20):
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=100, history_size=50, tolerance_grad=1e-11,
        tolerance_change=1e-16, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure():
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(rounds):
        optimiser.step(closure)
    return loss().item()


def linear(auxiliary=((0.0, 1.0),), latents=2, features=4, gamma=0.5, **options):
    model = zs.models.build(
        "ivae", shape=(features,), latents=latents, backbone="linear", likelihood="gaussian",
        gamma=gamma, auxiliary=auxiliary, **options,
    )  # fmt: skip
    return model.double()


def set_constant(network, values):
    with torch.no_grad():
        network[-1].weight.zero_()
        network[-1].bias.copy_(torch.as_tensor(values))


def orthogonal(model, squares):
    """A decoder whose columns are orthogonal with these squared lengths; returns it."""
    noise = torch.randn(4, len(squares), generator=seeded(5), dtype=torch.float64)
    columns = torch.linalg.qr(noise).Q * torch.tensor(squares).double().sqrt()
    with torch.no_grad():
        model.decoder.layers[0].weight.copy_(columns)
        model.decoder.layers[0].bias.copy_(torch.tensor([0.3, -1.0, 0.0, 2.0]))
    return columns, model.decoder.layers[0].bias.detach()


# The divergence.


def test_the_divergence_at_a_known_point():
    """KL( N(1, 2) || N(0, 4) ) = .22157 (variances)."""
    posterior = Posterior(column(1.0), column(2.0).sqrt())
    found = kl_to_gaussian(posterior, column(0.0), column(4.0))
    assert found.item() == pytest.approx(0.22157, abs=1e-5)


def test_the_divergence_agrees_with_torch_distributions():
    means = torch.randn(2, 6, 3, generator=seeded(0), dtype=torch.float64)
    spreads = torch.randn(2, 6, 3, generator=seeded(1), dtype=torch.float64).exp()
    found = kl_to_gaussian(Posterior(means[0], spreads[0]), means[1], spreads[1].square())
    expected = distributions.kl_divergence(
        distributions.Normal(means[0], spreads[0]), distributions.Normal(means[1], spreads[1])
    ).sum(1)
    assert torch.allclose(found, expected)
    lower = torch.linalg.cholesky(
        torch.cov(torch.randn(3, 9, generator=seeded(2), dtype=torch.float64))
    ).expand(6, 3, 3)
    found = kl_to_gaussian(Posterior(means[0], scale_tril=lower), means[1], spreads[1].square())
    expected = distributions.kl_divergence(
        distributions.MultivariateNormal(means[0], scale_tril=lower),
        distributions.MultivariateNormal(means[1], torch.diag_embed(spreads[1].square())),
    )
    assert torch.allclose(found, expected)


def test_the_loss_is_reconstruction_and_the_divergence_from_the_prior_of_u():
    model = linear(auxiliary=[[0.0, 2.0], 3], prior_mean="learned")
    x = torch.randn(8, 4, generator=seeded(0), dtype=torch.float64)
    u = torch.tensor([[0.5, 2.0], [1.0, 0.0]]).double().repeat(4, 1)
    losses = model.losses(x, seeded(1), factors=u)
    posterior, prior = model.encode(x, u), model.objective.prior(u)
    expected = kl_to_gaussian(posterior, prior.mean, prior.variance).mean()
    assert losses.terms["divergence"].item() == pytest.approx(expected.item())
    reconstruction = model.likelihood.nll(model.output(posterior.sample(seeded(1))), x).mean()
    assert losses.total.item() == pytest.approx((reconstruction + expected).item())
    # What training watches is the posterior in units of its prior (σ/σ†).
    ratio = posterior.variance / prior.variance
    assert torch.allclose(losses.posterior.variance, ratio)
    assert losses.posterior.kl().sum(1).mean().item() == pytest.approx(expected.item())


# The linear case in closed form.


def test_the_best_posterior_under_a_fixed_prior_is_the_closed_form():
    """Σ = (WᵀW/γ + Σ†⁻¹)⁻¹, μ = Σ (Wᵀ(x - b)/γ + Σ†⁻¹ μ†), for orthogonal columns."""
    gamma, level, centre = (
        0.5,
        torch.tensor([2.0, 0.3]).double(),
        torch.tensor([1.0, -2.0]).double(),
    )
    model = linear(gamma=gamma, prior_mean="learned")
    columns, bias = orthogonal(model, [4.0, 0.7])
    set_constant(model.objective.log_variance, level.log())
    set_constant(model.objective.mean, centre)
    x = sprung([9.0, 4.0, 2.0, 1.0])[0]
    xs, noise = crossed(x, 2)
    u = torch.zeros(len(xs), 1).double()
    minimised(
        list(model.encoder.parameters()),
        lambda: model.losses(xs, Tape([noise]), factors=u).total,
    )
    variance = 1 / (columns.square().sum(0) / gamma + 1 / level)
    mean = variance * ((x - bias) @ columns / gamma + centre / level)
    posterior = model.encode(x, torch.zeros(len(x), 1).double())
    assert torch.allclose(posterior.variance, variance.expand_as(mean), rtol=1e-5)
    assert torch.allclose(posterior.mean, mean, atol=1e-5)


def test_the_best_prior_has_the_moments_of_each_group():
    """σ†(u) = E[ σ + (μ - μ†)² | u ] and μ†(u) = E[ μ | u ]."""
    model = linear(auxiliary=[3], prior_mean="learned")
    x = torch.randn(30, 4, generator=seeded(0), dtype=torch.float64)
    u = (torch.arange(30) % 3).double().unsqueeze(1)
    noise = torch.zeros(30, 2).double()
    prior_weights = [*model.objective.log_variance.parameters(), *model.objective.mean.parameters()]
    minimised(prior_weights, lambda: model.losses(x, Tape([noise]), factors=u).total, rounds=60)
    posterior = model.encode(x, u).detach()
    for group in range(3):
        rows = torch.arange(30) % 3 == group
        centre = posterior.mean[rows].mean(0)
        level = (posterior.variance[rows] + (posterior.mean[rows] - centre).square()).mean(0)
        prior = model.objective.prior(torch.tensor([[float(group)]]).double())
        assert torch.allclose(prior.mean[0], centre, atol=2e-3)
        assert torch.allclose(prior.variance[0], level, rtol=5e-3)


def test_with_the_mean_fixed_posterior_and_prior_meet_at_the_known_variance():
    """A = 2, γ = .5, μ² = 3: σ = (μ²/2)(sqrt(1 + 4γ/(Aμ²)) - 1) = .2320508, σ† = σ + μ²."""
    a, gamma, square = 2.0, 0.5, 3.0
    logs = torch.zeros(2, dtype=torch.float64, requires_grad=True)

    def loss():
        posterior = Posterior(column(math.sqrt(square)), (logs[0] / 2).exp().reshape(1, 1))
        divergence = kl_to_gaussian(posterior, column(0.0), logs[1].exp().reshape(1, 1))
        return 0.5 * a * logs[0].exp() / gamma + divergence.sum()

    minimised([logs], loss)
    variance, level = logs.detach().exp().tolist()
    assert variance == pytest.approx(0.2320508, abs=1e-7)
    assert variance == pytest.approx(square / 2 * (math.sqrt(1 + 4 * gamma / (a * square)) - 1))
    assert level == pytest.approx(variance + square)
    best = kl_to_gaussian(
        Posterior(column(math.sqrt(square)), column(variance).sqrt()), column(0.0), column(level)
    )
    assert best.item() == pytest.approx(0.5 * math.log(1 + square / variance))


def test_with_both_learned_there_is_no_end_to_the_sharpening():
    """Prior and posterior follow each other: σ_t = 1/(1/σ_0 + tA/γ), .00249377 after 100."""
    a, gamma, variance = 2.0, 0.5, 1.0
    for _ in range(100):
        level = variance  # the best prior: the posterior itself
        log_variance = torch.tensor(
            math.log(1 / (a / gamma + 1 / level)), dtype=torch.float64, requires_grad=True
        )
        posterior = Posterior(column(1.7), (log_variance / 2).exp().reshape(1, 1))
        divergence = kl_to_gaussian(posterior, column(1.7), column(level)).sum()
        loss = 0.5 * a * log_variance.exp() / gamma + divergence
        assert torch.autograd.grad(loss, log_variance)[0].item() == pytest.approx(0, abs=1e-12)
        variance = log_variance.exp().item()
    assert variance == pytest.approx(0.00249377, abs=1e-8)


# Networks and factors.


def test_the_published_networks():
    model = zs.models.build(
        "ivae", shape=(1, 64, 64), latents=30, auxiliary=5, prior_mean="learned"
    )
    assert [layer.out_features for layer in model.objective.mean if hasattr(layer, "weight")] == [
        50, 50, 50, 30,
    ]  # fmt: skip
    assert model.encoder.joint[0].out_features == 261
    assert model.encoder.head.in_features == 261


def test_factors_are_scaled_and_categories_spread_out():
    scaling = Scaling([[0, 4], 3, [-1, 1]])
    found = scaling(torch.tensor([[4.0, 2.0, 0.0], [1.0, 0.0, -1.0]]))
    assert found.tolist() == [[1, 0, 0, 1, 0.5], [0.25, 1, 0, 0, 0]]
    assert scaling.width == 5
    assert Scaling([[2, 2]])(torch.tensor([[2.0]])).item() == 0  # a factor with one value


def labelled():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    shade = rng.integers(5, size=200)
    x = rng.normal(size=(200, 4)) + labels[:, None] * [3, 0, -3, 0] + shade[:, None] * [0, 1, 0, 1]
    return zs.data.from_arrays(
        x.astype(np.float32),
        np.stack([labels, shade], 1),
        factor_names=["label", "shade"],
        factor_kinds=["categorical", "ordinal"],
    )


def test_it_trains_and_is_recorded_on_data_with_factors(tmp_path):
    data = labelled()
    model = zs.models.build_for("ivae", data, latents=2, hidden=(16,))
    assert model.recipe["options"]["auxiliary"] == [3, [0.0, 4.0]]
    run = zs.train(model, data, steps=150, batch=50, rate=1e-2, out=tmp_path / "run")
    assert run.history[-1]["loss"] < 0.5 * run.history[0]["loss"]
    recording = zs.record(zs.load(tmp_path / "run"), data)
    factors = torch.from_numpy(data.factors).float()
    expected = model.encode(torch.from_numpy(data.images), factors).mean
    assert torch.allclose(recording.codes, expected, atol=1e-6)
    other = model.encode(torch.from_numpy(data.images), factors.flip(0)).mean
    assert not torch.allclose(recording.codes, other, atol=1e-3)
    with pytest.raises(zs.ZscopeError, match="together with its factors"):
        zs.record(model, data.images)


def test_what_it_needs_is_said():
    with pytest.raises(ConfigError, match=r"ivae needs an auxiliary variable.*build_for"):
        zs.models.build("ivae", shape=(4,), latents=2)
    with pytest.raises(ConfigError, match="array has no factors to take it from"):
        zs.models.build_for("ivae", zs.data.from_arrays(np.zeros((9, 4))), latents=2)
    model = linear()
    with pytest.raises(InterfaceError, match=r"need the auxiliary variable, 1 factors.*got none"):
        model.encode(torch.zeros(3, 4).double())
    with pytest.raises(ConfigError, match="have no factors, which this encoder needs"):
        zs.models.build("ivae", shape=(4,), latents=2, auxiliary=1, consistency="invariance")
    with pytest.raises(ConfigError, match="a ladder uses features at every depth"):
        zs.models.build("ivae", shape=(4,), latents=2, auxiliary=1, decoder="ladder", variables=2)
    with pytest.raises(ConfigError, match=r"auxiliary=\[\[1\]\]; expected the columns"):
        zs.models.build("ivae", shape=(4,), latents=2, auxiliary=[[1]])
    with pytest.raises(zs.ZscopeError, match="array has none"):
        zs.train(model.float(), torch.zeros(64, 4), steps=1)


@pytest.mark.parametrize("column", [[float("nan"), 1], [0, float("inf")], [1, 0], [0, 1, 2], True])
def test_columns_that_are_no_range_are_refused(column):
    with pytest.raises(ConfigError, match="finite \\[least, most\\]"):
        zs.models.build("ivae", shape=(4,), latents=2, auxiliary=[column])


def test_the_layer_that_joins_features_and_u_has_the_activation_of_the_backbone():
    for activation, layer in (("relu", nn.ReLU), ("tanh", nn.Tanh)):
        model = zs.models.build("ivae", shape=(4,), latents=2, auxiliary=2, activation=activation)
        assert isinstance(model.encoder.joint[1], layer)

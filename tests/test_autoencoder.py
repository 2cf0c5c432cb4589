"""The interface: posteriors, wrapped models, evaluation without side effects."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

import zscope as zs
from zscope.autoencoder import (
    Autoencoder,
    Posterior,
    Trainable,
    WithCausalBlock,
    WithFeatures,
    evaluation,
)
from zscope.errors import InterfaceError, Undefined


def gaussians(seed, samples=7, latents=3):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(samples, latents, generator=generator, dtype=torch.float64)
    std = torch.rand(samples, latents, generator=generator, dtype=torch.float64) + 0.1
    lower = torch.randn(samples, latents, latents, generator=generator, dtype=torch.float64).tril(
        -1
    )
    return mean, std, lower + torch.diag_embed(std)


def test_divergence_of_known_gaussians():
    one = torch.ones(1, 2)
    assert zs.Posterior(torch.tensor([[2.0, -1.0]]), one).kl().sum() == pytest.approx(2.5)
    half = torch.full((1, 1), 0.5**0.5)
    assert zs.Posterior(torch.zeros(1, 1), half).kl().item() == pytest.approx(0.09657, abs=1e-5)


@given(seed=st.integers(0, 999))
def test_divergence_agrees_with_torch_for_diagonal_and_full_covariance(seed):
    mean, std, tril = gaussians(seed)
    prior = MultivariateNormal(torch.zeros(3).double(), torch.eye(3).double())
    full = MultivariateNormal(mean, scale_tril=tril)
    assert torch.allclose(
        zs.Posterior(mean, scale_tril=tril).kl().sum(1), kl_divergence(full, prior)
    )
    each = kl_divergence(Normal(mean, std), Normal(0.0, 1.0))
    assert torch.allclose(zs.Posterior(mean, std).kl(), each)


def test_a_deterministic_posterior_has_no_divergence_and_no_spread():
    posterior = zs.Posterior(torch.ones(4, 2))
    assert torch.equal(posterior.variance, torch.zeros(4, 2))
    assert posterior.sample() is posterior.mean
    with pytest.raises(zs.Undefined, match="4 posteriors have no variance.*deterministic"):
        posterior.kl()


def test_samples_have_the_moments_of_the_posterior():
    _, _, tril = gaussians(3, samples=1)
    mean = torch.tensor([[1.0, -2.0, 0.5]]).double()
    many = zs.Posterior(mean.repeat(100_000, 1), scale_tril=tril.repeat(100_000, 1, 1))
    drawn = many.sample(torch.Generator().manual_seed(1))
    covariance = tril[0] @ tril[0].T
    assert torch.allclose(drawn.mean(0), mean[0], atol=0.02)
    assert torch.allclose(torch.cov(drawn.T), covariance, atol=0.05)
    assert torch.allclose(many.variance[0], covariance.diagonal())


def test_samples_repeat_by_seed_and_plain_calls_repeat_themselves():
    posterior = zs.Posterior(torch.zeros(5, 2), torch.ones(5, 2))
    first = posterior.sample(torch.Generator().manual_seed(4))
    assert torch.equal(first, posterior.sample(torch.Generator().manual_seed(4)))
    assert not torch.equal(first, posterior.sample(torch.Generator().manual_seed(5)))
    assert torch.equal(posterior.sample(), posterior.sample())


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"mean": torch.zeros(3, 2, 2)}, "shape \\(3, 2, 2\\).*flatten"),
        ({"mean": torch.zeros(3, 2), "std": torch.zeros(3, 1)}, "std \\(3, 1\\)"),
        ({"mean": torch.zeros(3, 2), "scale_tril": torch.zeros(3, 2)}, "expected \\(3, 2, 2\\)"),
    ],
)
def test_a_posterior_of_unfit_shapes_is_refused(parts, match):
    with pytest.raises(InterfaceError, match=match):
        zs.Posterior(**parts)


X = torch.linspace(-1, 1, 40).reshape(8, 5)


def linear_pair():
    encoder, decoder = nn.Linear(5, 3), nn.Linear(3, 5)
    for module in (encoder, decoder):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    return encoder, decoder


@pytest.fixture(name="pair")
def _pair():
    with torch.random.fork_rng():
        return linear_pair()


MEAN = X[:, :3]
LOG_VARIANCE = X[:, 2:] - 1


@pytest.mark.parametrize(
    "returned",
    [
        (MEAN, LOG_VARIANCE),
        [MEAN, LOG_VARIANCE],
        zs.Posterior(MEAN, (LOG_VARIANCE / 2).exp()),
        Normal(MEAN, (LOG_VARIANCE / 2).exp()),
        Independent(Normal(MEAN, (LOG_VARIANCE / 2).exp()), 1),
        MultivariateNormal(MEAN, torch.diag_embed(LOG_VARIANCE.exp())),
        (MEAN.numpy(), LOG_VARIANCE.numpy()),
    ],
    ids=["pair", "list", "posterior", "normal", "independent", "multivariate", "numpy"],
)
def test_whatever_a_stochastic_encoder_returns_is_read_alike(returned):
    model = zs.wrap(lambda x: returned, lambda z: torch.zeros(len(z), 5), example=X)
    posterior = model.encode(X)
    assert torch.allclose(posterior.mean, MEAN)
    assert torch.allclose(posterior.variance, LOG_VARIANCE.exp())
    assert model.latents == 3
    assert model.prior == "normal"


def test_an_encoder_that_returns_codes_has_no_prior_unless_one_is_given(pair):
    assert zs.wrap(*pair, example=X).prior is None
    assert zs.wrap(*pair, example=X, prior="normal").prior == "normal"
    assert zs.wrap(lambda x: (x, x), lambda z: z, prior=None).prior is None


def test_latents_and_prior_are_unknown_before_first_use(pair):
    model = zs.wrap(*pair)
    with pytest.raises(InterfaceError, match="Encode a batch first.*example="):
        _ = model.latents
    with pytest.raises(InterfaceError, match="Encode a batch first"):
        _ = model.prior
    model.encode(X)
    assert (model.latents, model.prior) == (3, None)


def test_spatial_latents_are_flattened_and_restored():
    seen = []

    def decoder(z):
        seen.append(z.shape)
        return z.flatten(1)

    model = zs.wrap(
        lambda x: x.reshape(-1, 2, 2, 3),
        decoder,
        example=torch.rand(4, 12, generator=torch.Generator()),
    )
    assert model.latents == 12
    codes = model.encode(torch.arange(24.0).reshape(2, 12)).mean
    assert codes.shape == (2, 12)
    assert torch.equal(model.decode(codes), codes)
    assert seen[-1] == (2, 2, 2, 3)


@pytest.mark.parametrize(
    ("encoder", "decoder", "match"),
    [
        (lambda x: {"mu": x}, None, "dict with the keys 'mu'"),
        (lambda x: (x, x, x), None, "a tuple of 3 \\(a tensor"),
        (lambda x: x.mean(0), None, "got 8 observations and returned shape \\(5,\\)"),
        (lambda x: (x, x[:, :2]), None, "\\(8, 5\\) and \\(8, 2\\)"),
        (lambda x: x.long(), None, "torch.int64 codes"),
        (lambda x: x @ torch.zeros(3, 3), None, "encoder raised RuntimeError.*shape \\(8, 5\\)"),
        (lambda x: x, lambda z: z[:1], "got 8 codes and returned shape \\(1, 5\\)"),
        (lambda x: x, lambda z: z[:, :2], "shape \\(2,\\), but the encoder takes \\(5,\\)"),
        (lambda x: x, lambda z: z.round().int(), "returned torch.int32"),
        (lambda x: x, lambda z: "image", "output of the decoder is a builtins.str"),
    ],
)
def test_what_does_not_fit_is_said_with_what_came_back(encoder, decoder, match):
    with pytest.raises(InterfaceError, match=match):
        zs.wrap(encoder, decoder or (lambda z: z), example=X)


def test_a_wrong_number_of_latents_is_refused(pair):
    with pytest.raises(InterfaceError, match="returned 3 latents.*latents=4 was given"):
        zs.wrap(*pair, latents=4, example=X)
    with pytest.raises(InterfaceError, match="decode got \\(2, 7\\).*3 latents"):
        zs.wrap(*pair, example=X).decode(torch.zeros(2, 7))


def test_things_that_cannot_be_called_or_priors_unknown_are_refused(pair):
    with pytest.raises(InterfaceError, match="decoder is a int"):
        zs.wrap(pair[0], 3)
    with pytest.raises(InterfaceError, match="prior='gauss' is not known"):
        zs.wrap(*pair, prior="gauss")


class Moody(nn.Module):
    """Behaves differently while training, and has a part frozen in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.drop, self.frozen = nn.Dropout(0.5), nn.Dropout(0.5)
        self.frozen.eval()
        self.scale = nn.Parameter(torch.ones(()))

    def encode(self, x):
        if self.training:
            raise AssertionError("used in training mode")
        return self.drop(x) * self.scale

    def decode(self, z):
        return self.frozen(z) * self.scale


def test_measuring_leaves_every_submodule_in_the_mode_it_was_in():
    model = Moody()
    for wrapped in (zs.wrap(model.encode, model.decode), zs.load(model)):
        recording = zs.record(wrapped, X)
        assert torch.allclose(recording.codes, X)
        assert (model.training, model.drop.training, model.frozen.training) == (True, True, False)
        assert not recording.codes.requires_grad
    with pytest.raises(ZeroDivisionError), evaluation(model):
        raise ZeroDivisionError
    assert model.training


def test_gradients_are_tracked_only_when_asked_for():
    model = Moody()
    wrapped = zs.wrap(model.encode, model.decode)
    assert not wrapped.encode(X).mean.requires_grad
    x = X.clone().requires_grad_()
    wrapped.decode(wrapped.encode(x).mean).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    jacobian = torch.func.jacfwd(lambda z: wrapped.decode(z[None])[0])(torch.zeros(5))
    assert torch.equal(jacobian, torch.eye(5))


def test_inputs_are_moved_to_the_type_of_the_weights(pair):
    encoder, decoder = (part.double() for part in pair)
    model = zs.wrap(encoder, decoder, example=X)
    assert model.encode(X).mean.dtype == torch.float64
    assert zs.record(model, X.numpy()).codes.dtype == torch.float64


def test_a_model_may_be_two_numpy_functions():
    model = zs.wrap(lambda x: np.asarray(x) * 2, lambda z: np.asarray(z) / 2, example=X)
    assert torch.allclose(model.decode(model.encode(X).mean), X)


def test_no_codes_at_all_decode_to_no_observations():
    model = zs.wrap(lambda x: x[:, :2], lambda z: torch.cat([z, z], 1), example=torch.zeros(3, 4))
    assert model.decode(torch.zeros(0, 2)).shape == (0, 4)
    with pytest.raises(InterfaceError, match="has 2 latents"):
        model.decode(torch.zeros(0, 3))


def test_what_models_offer_is_declared_and_nowhere_guessed():
    """`getattr(model, "...")` would be an interface that no file declares."""
    declared = set()
    for kind in (Autoencoder, Trainable, WithCausalBlock, WithFeatures):
        declared |= {name for name in vars(kind) if not name.startswith("_")}
        declared |= set(kind.__annotations__) - {"name"}  # which many other things have too
    assert {"losses", "needs", "rivals", "recipe", "prior_given", "block", "groups"} <= declared
    guess = re.compile(rf'(?:get|has)attr\([\w.]+, "({"|".join(declared)})"')
    for file in Path(zs.__file__).parent.rglob("*.py"):
        assert not guess.search(file.read_text()), file


def test_only_a_model_with_losses_is_trained():
    with pytest.raises(InterfaceError, match="derive your class from zs.Trainable"):
        zs.train(Autoencoder(), X, steps=1)
    with pytest.raises(InterfaceError, match="a model that trains must define losses"):
        Trainable().losses(X)


def test_units_of_a_prior_leave_the_divergence_as_it_is():
    root = torch.tril(torch.ones(4, 2, 2)) * 0.5
    mean, prior = torch.ones(4, 2), Posterior(torch.zeros(4, 2), torch.full((4, 2), 2.0))
    expected = torch.distributions.kl_divergence(
        torch.distributions.MultivariateNormal(mean, scale_tril=root),
        torch.distributions.MultivariateNormal(prior.mean, torch.diag_embed(prior.variance)),
    )
    found = Posterior(mean, scale_tril=root).relative_to(prior).kl().sum(1)
    torch.testing.assert_close(found, expected)
    itself = prior.relative_to(prior)
    assert itself.mean.unique().item() == 0
    assert itself.std.unique().item() == 1
    with pytest.raises(Undefined, match="needs a std"):
        prior.relative_to(Posterior(mean))


class ViewEncoder(nn.Module):
    """The most common encoder: `.view` after a convolution, which needs plain strides."""

    def __init__(self, channels):
        super().__init__()
        self.convolution, self.last = nn.Conv2d(channels, 4, 4, 2, 1), nn.Linear(4 * 8 * 8, 6)

    def forward(self, x):
        self.strides = x.stride()
        return self.last(torch.relu(self.convolution(x)).view(x.size(0), -1)).chunk(2, 1)


class ViewDecoder(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.channels = nn.Linear(3, channels * 16 * 16), channels

    def forward(self, z):
        return torch.sigmoid(self.first(z)).view(z.size(0), self.channels, 16, 16)


class OwnClass(Trainable):
    """The same two modules in a class of one's own."""

    latents = 3

    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def encode(self, x, auxiliary=None):
        mean, log_variance = self.encoder(x)
        return Posterior(mean, (log_variance / 2).exp())

    def decode(self, z):
        return self.decoder(z)

    def losses(self, x, generator=None):
        error = (self.decode(self.encode(x).mean) - x).view(x.size(0), -1).square().sum(1).mean()
        return zs.Losses(error, {"reconstruction": error})


def pictures(channels, samples=16):
    draw = np.random.default_rng(0)
    return draw.integers(0, 256, (samples, channels, 16, 16), dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("made", [zs.wrap, OwnClass])
def test_pictures_reach_other_peoples_models_in_plain_strides(made, channels):
    with torch.random.fork_rng():
        encoder = ViewEncoder(channels)
        model = made(encoder, ViewDecoder(channels))
    recording = zs.record(model, pictures(channels))
    assert encoder.strides == (channels * 256, 256, 16, 1)
    assert recording.codes.shape == (16, 3)
    zs.assays.response_matrix(recording)
    # Whatever the strides of the tensor that a user or another model hands over.
    x = torch.from_numpy(pictures(channels)).float().to(memory_format=torch.channels_last)
    model.encode(x)
    assert encoder.strides == (channels * 256, 256, 16, 1)
    assert x.stride() != encoder.strides


def test_a_class_of_ones_own_is_trained_on_plain_strides():
    with torch.random.fork_rng():
        model = OwnClass(ViewEncoder(3), ViewDecoder(3))
    run = zs.train(model, pictures(3), steps=2, batch=8)
    assert run.model.encoder.strides == (3 * 256, 256, 16, 1)


def test_zscopes_own_networks_keep_channels_last():
    model = zs.models.build("vae", shape=(3, 16, 16), latents=2, backbone="locatello")
    seen = []
    model.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    zs.record(model, pictures(3))
    assert seen[0].stride() == (768, 1, 48, 3)


class Overwriting(nn.Module):
    """A module that begins with an in-place layer."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(inputs, outputs))

    def forward(self, x):
        return self.layers(x)


class Overwritten(Autoencoder):
    latents = 3

    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def encode(self, x, auxiliary=None):
        return Posterior(self.encoder(x))

    def decode(self, z):
        return self.decoder(z)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("made", [zs.wrap, Overwritten])
def test_a_model_cannot_change_the_data_or_the_codes(made, kind):
    data = np.random.default_rng(0).normal(size=(200, 6)).astype(kind)
    with torch.random.fork_rng():
        model = made(Overwriting(6, 3), Overwriting(3, 6)).to(getattr(torch, kind))
    before = data.copy()
    report = zs.assay(model, data, names=["response-matrix", "loss-decomposition", "holes"])
    assert np.array_equal(data, before)
    assert not report.failed
    tensor = torch.from_numpy(data)
    codes = model.encode(tensor).mean
    kept = codes.clone()
    x, _ = zs.assays.engine.decode_and_respond(model, codes)
    assert torch.equal(tensor, torch.from_numpy(before))
    assert torch.equal(codes, kept)
    assert (codes < 0).any()
    assert (x < 0).any()  # what was encoded again is returned as it was decoded

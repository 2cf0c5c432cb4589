"""Models made of others: pruned (fewer latents), rotated (the same ones, along other axes)."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from worlds import World, gaussian_codes, identity, random_rotation, seeded

import zscope as zs
from zscope.assays import distance_to_orthogonality, rotation_excess, variable_types
from zscope.assays.alignment.distance_to_orthogonality import distance_of
from zscope.errors import InterfaceError

seeds = st.integers(0, 10_000)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network(inputs: int, outputs: int, seed: int) -> nn.Module:
    layers = nn.Sequential(
        nn.utils.skip_init(nn.Linear, inputs, 16),
        nn.Tanh(),
        nn.utils.skip_init(nn.Linear, 16, outputs),
    )
    generator = torch.Generator().manual_seed(seed)
    for parameter in layers.parameters():
        parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator)
    return layers


def collapsed_model(ignored=(1, 3), value: float = 0.0) -> zs.Autoencoder:
    """A wrapped VAE of 5 latents, some of which are passive: N(value, 1), not decoded."""
    encoder, decoder = network(8, 10, seed=1), network(5, 8, seed=2)
    decoder[0].weight.data[:, list(ignored)] = 0

    def encode(x):
        mean, log_variance = encoder(x).chunk(2, 1)
        mean, log_variance = mean.clone(), log_variance - 6
        mean[:, list(ignored)], log_variance[:, list(ignored)] = value, 0.0
        return mean, log_variance

    return zs.wrap(encode, decoder, latents=5)


def test_reconstructions_stay_and_passive_latents_go():
    model, x = collapsed_model(), normal(64, 8)
    types = variable_types(model.encode(x).variance)
    assert types.passive == [1, 3]
    pruned = zs.prune(model, zs.record(model, x).used)
    assert (pruned.latents, pruned.prior) == (3, "normal")
    whole, part = model.encode(x), pruned.encode(x)
    torch.testing.assert_close(part.mean, whole.mean[:, [0, 2, 4]])
    torch.testing.assert_close(part.variance, whole.variance[:, [0, 2, 4]])
    torch.testing.assert_close(pruned.decode(part.mean), model.decode(whole.mean))
    # also for samples: the noise of the dropped latents was never seen
    generator = torch.Generator().manual_seed(3)
    z = whole.sample(generator)
    torch.testing.assert_close(pruned.decode(z[:, [0, 2, 4]]), model.decode(z))
    assert variable_types(pruned.encode(x).variance).passive == []


def test_dropping_a_latent_that_is_used_does_change_them():
    model, x = collapsed_model(), normal(64, 8)
    pruned = zs.prune(model, [0, 1])
    gap = (pruned.decode(pruned.encode(x).mean) - model.decode(model.encode(x).mean)).abs()
    assert gap.max() > 0.05


def test_dropped_latents_are_filled_with_the_given_values():
    model, x = collapsed_model(value=2.0), normal(64, 8)
    # The decoder does look at latents 1 and 3 now, and they always say 2.
    model.decoder[0].weight.data[:, [1, 3]] = 0.3
    expected = model.decode(model.encode(x).mean)
    by_mean = zs.prune(model, [4, 0, 2], fill=model.encode(x).mean.mean(0))
    torch.testing.assert_close(by_mean.decode(by_mean.encode(x).mean), expected)
    by_number = zs.prune(model, [0, 2, 4], fill=2.0)
    torch.testing.assert_close(by_number.decode(by_number.encode(x).mean), expected)
    zero = zs.prune(model, [0, 2, 4])
    assert (zero.decode(zero.encode(x).mean) - expected).abs().max() > 0.05


def test_a_pruned_model_is_a_model_like_any_other():
    model, x = collapsed_model(), normal(64, 8)
    pruned = zs.prune(model, [0, 2, 4])
    recording = zs.record(pruned, x)
    assert recording.codes.shape == (64, 3)
    twice = zs.prune(pruned, [1])
    torch.testing.assert_close(twice.encode(x).mean, model.encode(x).mean[:, [2]])
    assert set(map(id, pruned.parameters())) == set(map(id, model.parameters()))
    jacobian = torch.func.jacfwd(lambda z: pruned.decode(z[None])[0])(torch.zeros(3))
    assert jacobian.shape == (8, 3)
    torch.testing.assert_close(pruned.causes(normal(4, 3)), normal(4, 3))


@pytest.mark.parametrize("likelihood", ["bernoulli", "mse"])
def test_a_pruned_model_loses_what_the_original_loses(likelihood):
    model = zs.models.build("vae", shape=(4,), latents=3, hidden=(8,), likelihood=likelihood)
    model.decoder.layers[0].weight.data[:, 1] = 0  # the decoder ignores latent 1
    x = torch.rand(100, 4, generator=torch.Generator().manual_seed(0))
    whole = model.encode(x)
    pruned = zs.prune(model, [0, 2])
    turned = zs.rotate_latents(model, torch.eye(3))
    z = whole.sample(torch.Generator().manual_seed(1))
    for other, codes in ((pruned, z[:, [0, 2]]), (turned, z)):
        found = zs.assays.rate_distortion(other, x).likelihood
        assert found == zs.assays.rate_distortion(model, x).likelihood
        torch.testing.assert_close(other.decode(codes), model.decode(z))
        torch.testing.assert_close(other.negative_log_likelihood(codes, x),
                                   model.likelihood.nll(model.output(z), x))  # fmt: skip
    copied = copy.deepcopy(pruned)
    copied.original.decoder.layers[0].weight.data.zero_()
    nats = model.negative_log_likelihood(z, x)
    torch.testing.assert_close(pruned.negative_log_likelihood(z[:, [0, 2]], x), nats)
    assert (copied.negative_log_likelihood(z[:, [0, 2]], x) - nats).abs().max() > 1e-3


def test_a_model_that_is_told_factors_is_told_them_after_pruning_too():
    digits = zs.data.load("digits")
    model = zs.models.build_for("ivae", digits, latents=3, backbone="mlp", hidden=(8,))
    whole = zs.record(model, digits, samples=50)
    part = zs.record(zs.prune(model, [2, 0]), digits, samples=50)
    torch.testing.assert_close(part.codes, whole.codes[:, [2, 0]])
    # And so is its prior, which depends on them: posteriors are held against it.
    torch.testing.assert_close(part.relative.mean, whole.relative.mean[:, [2, 0]])
    torch.testing.assert_close(part.relative.std, whole.relative.std[:, [2, 0]])
    assert not torch.allclose(whole.relative.mean, whole.codes)


def test_the_kept_part_of_a_full_covariance_is_its_marginal():
    root = torch.tril(normal(6, 3, 3))
    root.diagonal(dim1=1, dim2=2).abs_().add_(0.1)
    model = zs.wrap(lambda x: zs.Posterior(x[:, :3], scale_tril=root), lambda z: z, latents=3)
    part = zs.prune(model, [2, 0]).encode(normal(6, 3))
    covariance = root @ root.transpose(1, 2)
    expected = covariance[:, [2, 0]][:, :, [2, 0]]
    torch.testing.assert_close(part.scale_tril @ part.scale_tril.transpose(1, 2), expected)


@pytest.mark.parametrize("keep", [[], [0, 0], [5], [-1]])
def test_impossible_choices_are_refused(keep):
    with pytest.raises(InterfaceError, match="different latents from 0 to 4"):
        zs.prune(collapsed_model(), keep)


def test_codes_and_fills_of_the_wrong_size_are_refused():
    with pytest.raises(InterfaceError, match=r"decode got 5 latents, but 2 were kept \(of 5\)"):
        zs.prune(collapsed_model(), [0, 1]).decode(torch.zeros(1, 5))
    with pytest.raises(InterfaceError, match="fill has 2 values"):
        zs.prune(collapsed_model(), [0, 1], fill=[1.0, 2.0])


# Rotation


class Full(zs.Autoencoder):
    """A curved model with a full covariance that depends on the observation."""

    latents = 3

    def decode(self, z):
        return torch.cat([torch.tanh(z), z.square()], 1)

    def encode(self, x, auxiliary=None):
        mean = x[:, :3] + 0.1
        scale = torch.eye(3, dtype=x.dtype) * (0.2 + x[:, 3:6, None].abs())
        scale = scale + torch.tril(0.1 * x[:, :3, None] * x[:, None, :3], -1)
        return zs.Posterior(mean, scale_tril=scale)


def curved(std=None):
    return World(
        lambda z: torch.cat([torch.tanh(z), z.square()], 1),
        lambda x: x[:, :3],
        3,
        prior="normal",
        std=std,
    )


@given(seed=seeds)
def test_reconstruction_and_divergence_stay_as_they_are(seed):
    U = random_rotation(3, seed)
    model = Full()
    rotated = zs.rotate_latents(model, U)
    x = gaussian_codes(20, 6, seed)
    before, after = model.encode(x), rotated.encode(x)
    torch.testing.assert_close(after.mean, before.mean @ U.T)
    torch.testing.assert_close(after.kl().sum(1), before.kl().sum(1), atol=1e-10, rtol=1e-10)
    covariance = U @ before.scale_tril @ before.scale_tril.mT @ U.T
    torch.testing.assert_close(after.scale_tril @ after.scale_tril.mT, covariance)
    assert (after.scale_tril.diagonal(dim1=1, dim2=2) > 0).all()
    assert after.scale_tril.triu(1).abs().max() == 0
    torch.testing.assert_close(rotated.decode(after.mean), model.decode(before.mean))


def test_samples_of_the_rotated_model_decode_alike():
    """The same noise in other coordinates: the expected reconstruction does not change."""
    model = curved(std=torch.tensor([0.1, 0.5, 1.0]).double())
    U = random_rotation(3, 2)
    rotated = zs.rotate_latents(model, U)
    x = gaussian_codes(4, 6)

    def error(model):
        draws = [model.decode(model.encode(x).sample(seeded(k))) for k in range(3000)]
        return torch.stack([(d - x).square().sum(1) for d in draws]).mean(0)

    torch.testing.assert_close(error(rotated), error(model), rtol=0.1, atol=0)


@pytest.mark.parametrize("degrees", [10, 20, 45])
def test_forced_back_to_independent_noise_a_linear_model_loses_its_excess(degrees):
    x = gaussian_codes(500, 3, scale=[2.0, 1.0, 0.1])
    beta = 0.3
    best = zs.theory.fit_linear_vae(x, latents=2, gamma=0.5, beta=beta)
    turn = math.radians(degrees)
    U = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]]).double()

    def loss(model):
        posterior = model.encode(x)
        scale = posterior.scale_tril
        scale = torch.diag_embed(posterior.std) if scale is None else scale
        columns = torch.stack([model.decode(e[None])[0] for e in torch.eye(2).double()], 1)
        columns = columns - model.decode(torch.zeros(1, 2).double()).T
        noise = (columns @ scale).square().sum((1, 2))
        error = (model.decode(posterior.mean) - x).square().sum(1) + noise
        return float((error + beta * posterior.kl().sum(1)).mean())

    model = best.autoencoder()
    assert loss(zs.rotate_latents(model, U)) == pytest.approx(loss(model), abs=1e-10)
    forced = loss(zs.rotate_latents(model, U, diagonal=True)) - loss(model)
    assert forced == pytest.approx(rotation_excess(best.weights @ U.T, beta=beta), rel=1e-8)
    assert forced > 0.005


def test_the_distance_to_orthogonality_is_that_of_the_rotation():
    J = torch.diag(torch.tensor([4.0, 2, 1]).double())
    model = World(lambda z: z @ J.to(z), lambda x: x, 3)
    U = random_rotation(3, 4)
    rotated = zs.rotate_latents(model, U)
    found = distance_to_orthogonality(rotated, gaussian_codes(5, 3))
    assert found.distance == pytest.approx(float(distance_of(U[None])[0]))
    assert distance_to_orthogonality(model, gaussian_codes(5, 3)).distance == pytest.approx(0)


def test_rotating_back_gives_the_model_again():
    model, U = Full(), random_rotation(3, 8)
    back = zs.rotate_latents(zs.rotate_latents(model, U), U.T)
    x = gaussian_codes(6, 6)
    torch.testing.assert_close(back.encode(x).scale_tril, model.encode(x).scale_tril)
    torch.testing.assert_close(back.encode(x).mean, model.encode(x).mean)
    point = zs.rotate_latents(identity(3), U)
    assert point.encode(x[:, :3]).deterministic


def test_causes_are_rotated_with_the_noises():
    class Causal(Full):
        def causes(self, noise):
            return noise.cumsum(1)

    U = random_rotation(3, 9)
    noise = gaussian_codes(4, 3)
    rotated = zs.rotate_latents(Causal(), U)
    torch.testing.assert_close(rotated.causes(noise @ U.T), Causal().causes(noise) @ U.T)


def test_other_matrices_are_refused():
    with pytest.raises(InterfaceError, match="not orthogonal.*torch.linalg.qr"):
        zs.rotate_latents(identity(2), torch.tensor([[1.0, 1], [0, 1]]))
    with pytest.raises(InterfaceError, match=r"expected \(3, 3\)"):
        zs.rotate_latents(identity(3), torch.eye(2))


def test_a_prior_that_depends_on_factors_is_not_rotated():
    digits = zs.data.load("digits")
    model = zs.models.build_for("ivae", digits, latents=3, backbone="mlp", hidden=(8,))
    with pytest.raises(InterfaceError, match="prior of this model depends on factors"):
        zs.rotate_latents(model, torch.eye(3))

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds import World, gaussian_codes, identity, random_rotation, seeded

import zscope as zs
from zscope.assays import distance_to_orthogonality, rotation_excess
from zscope.assays.alignment.distance_to_orthogonality import distance_of
from zscope.errors import InterfaceError

seeds = st.integers(0, 10_000)


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
    with pytest.raises(InterfaceError, match=r"\(3, 3\) is needed"):
        zs.rotate_latents(identity(3), torch.eye(2))


def test_a_prior_that_depends_on_factors_is_not_rotated():
    digits = zs.data.load("digits")
    model = zs.models.build_for("ivae", digits, latents=3, backbone="mlp", hidden=(8,))
    with pytest.raises(InterfaceError, match="prior of this model depends on factors"):
        zs.rotate_latents(model, torch.eye(3))

"""The decoder's Jacobian: against other routes to it, and decoders that have none."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian as by_autograd
from worlds import World, gaussian_codes, linear, seeded

import zscope as zs
from zscope.assays.engine import use_memory
from zscope.assays.jacobian import Walk, decoder_jacobian, linearise
from zscope.errors import ConfigError, InterfaceError, Undefined


def network(latents=3, seed=0):
    """A small convolutional decoder with a normalisation that only evaluation mode fixes."""
    with torch.random.fork_rng():
        parts = nn.Sequential(
            nn.Linear(latents, 32),
            nn.Tanh(),
            nn.Unflatten(1, (2, 4, 4)),
            nn.BatchNorm2d(2),
            nn.ConvTranspose2d(2, 3, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(3, 1, 3, padding=1),
        )
    for parameter in parts.parameters():
        parameter.data = 0.6 * torch.randn(parameter.shape, generator=seeded(seed + 1))
    return parts


def convolutional(latents=3, seed=0):
    decoder = network(latents, seed)
    return zs.wrap(lambda x: x.flatten(1)[:, :latents], decoder, latents=latents), decoder


def test_agrees_with_reverse_mode_code_by_code():
    model, decoder = convolutional()
    codes = gaussian_codes(5, 3).float()
    found = decoder_jacobian(model, codes)
    decoder.eval()
    for row, code in zip(found, codes, strict=True):
        expected = by_autograd(lambda z: decoder(z[None]).flatten(), code)
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-6)
    assert found.shape == (5, 64, 3)


def test_the_triangle_has_the_products_the_lengths_and_the_singular_values_of_the_jacobian():
    model, _ = convolutional()
    codes = gaussian_codes(4, 3).float()
    J = decoder_jacobian(model, codes).double()
    local = linearise(model, codes)
    torch.testing.assert_close(local.triangle.mT @ local.triangle, J.mT @ J, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(local.lengths, J.norm(dim=1), rtol=1e-5, atol=0)
    torch.testing.assert_close(local.spectra, torch.linalg.svdvals(J), rtol=1e-5, atol=0)
    stretched = (J @ local.directions).norm(dim=1)
    torch.testing.assert_close(stretched, local.spectra, rtol=1e-5, atol=0)
    assert local.method == "forward"
    assert local.flags == []


def test_chosen_latents_are_the_columns_of_the_whole():
    model, _ = convolutional()
    codes = gaussian_codes(4, 3).float()
    whole, part = linearise(model, codes), linearise(model, codes, latents=[2, 0])
    torch.testing.assert_close(part.lengths, whole.lengths[:, [2, 0]], rtol=1e-5, atol=0)


def test_the_size_of_chunks_changes_nothing():
    model, _ = convolutional()
    codes = gaussian_codes(11, 3).float()
    triangles, sizes = [], []
    for budget in (2**28, 20_000):
        with use_memory(budget):
            triangles.append(linearise(model, codes).triangle)
            sizes.append(Walk(model, codes, [0, 1, 2], method="auto").size)
    torch.testing.assert_close(*triangles, rtol=1e-4, atol=1e-5)
    assert sizes[0] > sizes[1]


def test_fewer_pixels_than_latents_leave_singular_values_of_zero():
    world = linear(torch.tensor([[1.0], [2.0], [2.0]], dtype=torch.float64))
    local = linearise(world, gaussian_codes(2, 3))
    torch.testing.assert_close(local.spectra[0], torch.tensor([3.0, 0, 0]).double())


def test_the_model_keeps_its_mode_and_its_gradients():
    model, decoder = convolutional()
    decoder.train()
    linearise(model, gaussian_codes(3, 3).float())
    assert decoder.training
    assert all(p.grad is None for p in decoder.parameters())


def test_central_differences_agree_with_the_derivative_and_say_what_they_are():
    model, decoder = convolutional()
    codes = gaussian_codes(6, 3)
    decoder.double()  # a smaller step, which crosses no kink of the ReLU
    exact, near = (linearise(model, codes, method=m) for m in ("forward", "differences"))
    assert near.method == "central differences"
    torch.testing.assert_close(near.spectra, exact.spectra, rtol=1e-7, atol=1e-8)
    assert near.precision > exact.precision
    decoder.float()
    exact, near = (linearise(model, codes.float(), method=m) for m in ("forward", "differences"))
    assert (near.spectra / exact.spectra - 1).abs().median() < 1e-3


def test_a_decoder_in_numpy_is_measured_by_differences():
    W = np.array([[3.0, 0, 0, 1], [0, 2.0, 0, 1]])
    model = zs.wrap(
        lambda x: x[:, :2], lambda z: torch.from_numpy(np.tanh(z.numpy() @ W)), latents=2
    )
    codes = gaussian_codes(7, 2)
    local = linearise(model, codes)
    assert local.method == "central differences"
    assert "cannot be differentiated" in local.flags[0]
    slope = (1 - np.tanh(codes.numpy() @ W) ** 2)[:, :, None] * W.T
    np.testing.assert_allclose(local.spectra, np.linalg.svd(slope)[1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("hidden", [[0, 1], [1]], ids=["all", "one latent"])
def test_a_decoder_that_detaches_its_input_is_found_out(hidden):
    def decode(z):
        shown = torch.stack([z[:, j].detach() if j in hidden else z[:, j] for j in range(2)], dim=1)
        return shown @ torch.tensor([[1.0, 0, 1], [0, 2.0, 1]], dtype=z.dtype)

    world = World(decode, lambda x: x[:, :2], 2)
    local = linearise(world, gaussian_codes(5, 2))
    assert local.method == "central differences"
    assert "detaches its input" in local.flags[0]
    expected = torch.tensor([2**0.5, 5**0.5]).double().expand(5, 2)
    torch.testing.assert_close(local.lengths, expected, rtol=1e-6, atol=0)


class Squared(torch.autograd.Function):
    """An operation of one's own with a forward derivative and no rule for vmap."""

    @staticmethod
    def forward(x):
        return x.square()

    @staticmethod
    def setup_context(context, inputs, output):
        context.x = inputs[0]

    @staticmethod
    def jvp(context, tangent):
        return 2 * context.x * tangent


def test_a_decoder_that_cannot_be_mapped_is_differentiated_latent_by_latent():
    codes = gaussian_codes(3, 2)
    local = linearise(World(Squared.apply, lambda x: x, 2), codes)
    assert local.method == "forward, latent by latent"
    torch.testing.assert_close(local.lengths, 2 * codes.abs())


def test_no_gradient_at_all_is_refused_with_a_way_forward():
    still = World(lambda z: torch.zeros(len(z), 3).to(z), lambda x: x, 2)
    with pytest.raises(Undefined, match="derivative of the decoder is zero.*ignores the latents"):
        linearise(still, gaussian_codes(4, 2))
    rounding = World(lambda z: (z * 1e-3).round(), lambda x: x, 2)
    with pytest.raises(Undefined, match="rounds its output"):
        linearise(rounding, gaussian_codes(4, 2))
    numpy = zs.wrap(lambda x: x, lambda z: torch.from_numpy(z.numpy()), latents=2)
    with pytest.raises(InterfaceError, match="cannot be differentiated.*method='differences'"):
        linearise(numpy, gaussian_codes(4, 2), method="forward")


def test_a_decoder_that_mixes_its_batch_is_refused():
    mixing = World(lambda z: z - z.mean(0), lambda x: x, 2)
    with pytest.raises(InterfaceError, match="alone differs from the same code in a batch"):
        linearise(mixing, gaussian_codes(4, 2))


def test_infinite_derivatives_and_empty_questions_are_refused():
    root = World(lambda z: z.abs().sqrt(), lambda x: x, 2)
    codes = torch.cat([gaussian_codes(3, 2), torch.zeros(1, 2).double()])
    with pytest.raises(InterfaceError, match="1 of . codes, first at row 3.*square root"):
        linearise(root, codes, method="forward")
    with pytest.raises(Undefined, match="0 codes"):
        linearise(root, codes[:0])
    with pytest.raises(Undefined, match="NaN"):
        linearise(root, codes / 0)
    with pytest.raises(ConfigError, match="method='reverse'.*Known: auto"):
        linearise(root, codes, method="reverse")
    with pytest.raises(ConfigError, match="Did you mean bernoulli"):
        linearise(root, codes, likelihood="bernouli")


def test_bernoulli_pixels_give_the_fisher_information():
    W = torch.tensor([[1.0, -2, 0.5], [0.3, 1, 4]], dtype=torch.float64)
    world = World(lambda z: torch.sigmoid(z @ W.to(z)), lambda x: x[:, :2], 2)
    codes = gaussian_codes(4, 2, seed=3)
    p = torch.sigmoid(codes @ W)
    # The Hessian of the cross-entropy in the logits is p (1 - p), whatever the pixels.
    fisher = torch.einsum("ip,np,jp->nij", W, p * (1 - p), W)
    local = linearise(world, codes, likelihood="bernoulli")
    torch.testing.assert_close(local.triangle.mT @ local.triangle, fisher, rtol=1e-6, atol=1e-9)
    with pytest.raises(Undefined, match="not probabilities.*logits"):
        linearise(World(lambda z: z @ W.to(z), lambda x: x, 2), codes, likelihood="bernoulli")

"""WAE: the discrepancy between codes and prior, against quadrature and by brute force."""

import pytest
import torch
from worlds import expected_mmd, gaussian_codes, seeded

import zscope as zs
from zscope.assays.responses.mmd import SCALES as MEASURED_SCALES
from zscope.models.wae import SCALES, mmd


def brute_force(x, y):
    """The sums written out pair by pair."""
    count, latents = x.shape

    def kernel(a, b):
        squared = float((a - b).square().sum())
        return sum(2 * latents * s / (2 * latents * s + squared) for s in SCALES)

    def within(cloud):
        pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
        return sum(kernel(cloud[i], cloud[j]) for i, j in pairs) / len(pairs)

    across = sum(kernel(a, b) for a in x for b in y) / count**2
    return within(x) + within(y) - 2 * across


def test_it_is_the_sum_over_pairs():
    x, y = gaussian_codes(7, 3), gaussian_codes(7, 3, seed=1, scale=0.5)
    assert mmd(x, y).item() == pytest.approx(brute_force(x, y), rel=1e-10)
    assert mmd(x, y).item() == pytest.approx(mmd(y, x).item(), rel=1e-10)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (0.5, 0.0), (1.0, 1.0)])
def test_its_mean_is_the_integral(scale, shift):
    draws = torch.stack(
        [
            mmd(gaussian_codes(100, 3, seed, scale) + shift, gaussian_codes(100, 3, seed + 1000))
            for seed in range(200)
        ]
    )
    error = draws.std().item() / len(draws) ** 0.5
    assert abs(draws.mean().item() - expected_mmd(3, scale**2, shift)) < 4 * error
    assert error < 0.02


def test_the_kernels_are_those_of_the_assay():
    assert SCALES == MEASURED_SCALES


def test_descending_it_brings_codes_to_the_prior():
    """A cloud N(a, b² I) that starts far away ends with a = 0 and b = 1."""
    generator = seeded(0)
    centre, scale = torch.full((2,), 2.0, requires_grad=True), torch.tensor(0.3, requires_grad=True)
    optimiser = torch.optim.Adam([centre, scale], lr=0.1)
    for step in range(100):
        for group in optimiser.param_groups:
            group["lr"] = 0.1 * (1 - step / 100)
        cloud = centre + scale * torch.randn(256, 2, generator=generator)
        loss = mmd(cloud, torch.randn(256, 2, generator=generator))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert centre.detach().abs().max() < 0.1
    assert scale.item() == pytest.approx(1, abs=0.05)


def test_the_loss_is_reconstruction_and_the_weighted_discrepancy():
    x = torch.rand(16, 5, generator=seeded(0))
    model = zs.models.build("wae", shape=(5,), latents=3, weight=7)
    losses = model.losses(x, seeded(1))
    codes = model.encode(x).mean
    expected = mmd(codes, torch.randn(16, 3, generator=seeded(1)))
    assert losses.terms["discrepancy"].item() == pytest.approx(expected.item())
    plain = zs.models.build("ae", shape=(5,), latents=3).losses(x).total
    assert losses.total.item() == pytest.approx((plain + 7 * expected).item())
    assert losses.posterior is None
    assert model.prior == "normal"


def test_a_random_encoder_is_an_option():
    model = zs.models.build("wae", shape=(5,), latents=3, posterior="gaussian")
    x = torch.rand(16, 5, generator=seeded(0))
    assert model.losses(x, seeded(1)).posterior is not None
    assert model.recipe["options"]["posterior"] == "gaussian"


def test_a_single_code_has_nothing_to_be_compared_with():
    with pytest.raises(zs.ZscopeError, match="--batch 2"):
        mmd(torch.zeros(1, 3), torch.zeros(1, 3))

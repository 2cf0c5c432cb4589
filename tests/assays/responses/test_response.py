import pytest
import torch
from worlds import constant, curved, gaussian_codes, identity, linear, permuted, seeded

import zscope as zs
from zscope.assays import response
from zscope.errors import ConfigError, Undefined


def test_an_identity_autoencoder_returns_every_code():
    codes = gaussian_codes(50, 4)
    found = response(identity(4), codes)
    assert torch.equal(found.response, codes)
    assert found.displacement.abs().max() == 0


def test_a_linear_autoencoder_projects_on_its_row_space():
    # The decoder maps three latents to two numbers: one direction of the latents is lost.
    decoder = torch.randn(3, 2, generator=seeded(3), dtype=torch.float64)
    codes = gaussian_codes(50, 3)
    basis = torch.linalg.qr(decoder)[0]
    found = response(linear(decoder), codes)
    torch.testing.assert_close(found.response, codes @ basis @ basis.T)
    lost = torch.linalg.cross(basis[:, 0], basis[:, 1])
    torch.testing.assert_close(found.distance, (codes @ lost).abs())


def test_permuting_the_latents_permutes_the_response():
    world, codes, order = curved(4), gaussian_codes(20, 4), [2, 0, 3, 1]
    there = response(permuted(world, order), codes[:, order]).response
    torch.testing.assert_close(there, response(world, codes).response[:, order])


def test_the_sampled_response_has_the_spread_of_the_encoder():
    codes = gaussian_codes(20_000, 2)
    found = response(identity(2, std=torch.tensor([0.5, 2.0])), codes, samples=20_000)
    noise = found.sampled - found.response
    assert noise.std(0).tolist() == pytest.approx([0.5, 2.0], rel=0.03)
    assert noise.mean(0).tolist() == pytest.approx([0, 0], abs=0.06)
    deterministic = response(identity(2), codes)
    assert torch.equal(deterministic.sampled, deterministic.response)


def test_of_a_posterior_draws_are_responded_to():
    posterior = zs.Posterior(torch.zeros(5000, 1), torch.full((5000, 1), 3.0))
    found = response(identity(1), posterior, samples=4000)
    assert len(found.codes) == 4000
    assert found.codes.std().item() == pytest.approx(3, rel=0.05)


def test_a_plain_call_repeats_itself_and_another_seed_does_not():
    posterior = zs.Posterior(torch.zeros(10, 1), torch.ones(10, 1))
    first, again = (response(constant(1), posterior).codes for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, response(constant(1), posterior, generator=seeded(1)).codes)


def test_codes_with_nan_are_refused_with_their_row():
    codes = gaussian_codes(9, 2)
    codes[4, 1] = torch.nan
    with pytest.raises(Undefined, match=r"1 of 9 codes contain NaN.*row 4"):
        response(identity(2), codes)


@pytest.mark.parametrize("samples", [0, -1])
def test_no_samples_are_not_all_of_them(samples):
    codes = gaussian_codes(10, 2)
    for given in (codes, zs.Posterior(codes)):
        with pytest.raises(ConfigError, match=f"response: samples={samples}.*at least 1"):
            response(identity(2), given, samples=samples)

import numpy as np
import pytest
import torch
from worlds import curved, gaussian_codes, identity, ignoring, permuted, responding

import zscope as zs
from zscope.assays import traversal_responses
from zscope.errors import ConfigError


def test_an_identity_autoencoder_makes_no_error():
    found = traversal_responses(identity(3), gaussian_codes(100, 3))
    assert found.error.abs().max() == 0


def test_the_error_is_decoded_minus_response_one_latent_at_a_time():
    world, codes, base = curved(3), gaussian_codes(100, 3), torch.tensor([0.3, -0.2, 0.5]).double()
    found = traversal_responses(world, codes, base=base, steps=7)
    for moved in range(3):
        for step in range(7):
            vector = base.clone()
            vector[moved] = found.values[moved, step]
            expected = vector - world.encoder(vector[None])[0]
            torch.testing.assert_close(found.error[moved, step], expected)


def test_an_ignored_latent_has_an_error_as_large_as_its_value():
    found = traversal_responses(ignoring(2, [1]), gaussian_codes(100, 2), base=torch.zeros(2))
    torch.testing.assert_close(found.error[1, :, 1], found.values[1])
    assert found.error[0].abs().max() == 0
    assert found.largest.argmax() == 1


def test_the_range_is_that_of_the_codes():
    codes = gaussian_codes(1000, 2, scale=[1, 5])
    found = traversal_responses(identity(2), codes, range=0.5, steps=3)
    low, middle, high = found.values[1].tolist()
    assert (low, high) == pytest.approx(np.quantile(codes[:, 1], [0.25, 0.75]))
    assert middle == pytest.approx((low + high) / 2)


def test_the_base_is_a_recorded_code_near_the_middle():
    codes = torch.tensor([[0.0, 0], [10, 10], [5, 4.5]]).double()
    assert torch.equal(traversal_responses(identity(2), codes).base, codes[2])
    posterior = zs.Posterior(codes, torch.ones_like(codes))
    assert torch.equal(traversal_responses(identity(2), posterior).base, codes[2])


def test_permuting_the_latents_permutes_plots_and_lines():
    world, codes, order = curved(3), gaussian_codes(60, 3), [2, 0, 1]
    here = traversal_responses(world, codes)
    there = traversal_responses(permuted(world, order), codes[:, order])
    torch.testing.assert_close(there.error, here.error[order][:, :, order])


def test_bad_options_are_refused():
    codes = gaussian_codes(20, 2)
    with pytest.raises(ConfigError, match="steps=1"):
        traversal_responses(identity(2), codes, steps=1)
    with pytest.raises(ConfigError, match=r"range=1\.5"):
        traversal_responses(identity(2), codes, range=1.5)
    with pytest.raises(ConfigError, match="base has 3 numbers"):
        traversal_responses(identity(2), codes, base=torch.zeros(3))
    with pytest.raises(zs.errors.InterfaceError, match="encoder gave NaN"):
        traversal_responses(responding(lambda z: z / z * torch.nan, 2), codes)

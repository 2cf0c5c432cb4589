"""The nonlinearity of variables where it is known."""

import math

import numpy as np
import pytest
import torch
from worlds import World, gaussian_codes, identity, linear, random_rotation

import zscope as zs
from zscope.assays import variable_nonlinearity
from zscope.errors import ConfigError, Undefined


def decoding(decoder, latents):
    """An autoencoder of this decoder; nothing is encoded."""
    return World(decoder, lambda x: x.new_zeros(len(x), latents), latents)


def test_a_linear_decoder_is_linear_in_every_variable():
    found = variable_nonlinearity(linear(random_rotation(4)[:3]), gaussian_codes(400, 3))
    assert found.nonlinearity == pytest.approx([0, 0, 0], abs=1e-9)
    assert found.unexplained == pytest.approx([0, 0, 0], abs=1e-9)
    assert sum(found.effect) == pytest.approx(1, abs=0.05)


def test_a_square_is_pi_over_four():
    """E (a-b)^2/4 = 1/2, and E |b^2 - a^2|/2 = (E |b-a|)(E |b+a|)/2 = 2/pi, as both are N(0, 2)."""
    square = decoding(lambda z: torch.stack([z[:, 0] ** 2, 3 * z[:, 1]], 1), 2)
    found = variable_nonlinearity(square, gaussian_codes(40_000, 2), samples=40_000)
    assert found.nonlinearity == pytest.approx([math.pi / 4, 0], abs=0.02)
    # Changes of a square are uncorrelated with those of a symmetric variable.
    assert found.unexplained == pytest.approx([1, 0], abs=0.01)
    assert found.effect == pytest.approx([2 / 11, 9 / 11], abs=0.02)


def test_an_interaction_is_linear_in_each_variable_but_not_explained():
    product = decoding(lambda z: z[:, :1] * z[:, 1:], 2)
    found = variable_nonlinearity(product, gaussian_codes(20_000, 2), samples=20_000)
    assert found.nonlinearity == pytest.approx([0, 0], abs=1e-9)
    assert found.unexplained == pytest.approx([1, 1], abs=0.01)


def test_agrees_with_a_loop_over_exchanges():
    world, codes = (
        decoding(lambda z: torch.sin(z @ random_rotation(3).to(z)), 3),
        gaussian_codes(40, 3),
    )
    found = variable_nonlinearity(world, codes, groups=[[0, 2], [1]], generator=None)
    order = torch.randperm(40, generator=zs.randomness.named_generator(0, "variable-nonlinearity"))
    a = codes[order]
    tops, bottoms = [], []
    for row in range(40):
        b = a[row].clone()
        b[[0, 2]] = a[(row + 1) % 40][[0, 2]]
        first, last, half = (world.decoder(z[None])[0] for z in (a[row], b, (a[row] + b) / 2))
        tops.append(float((half - (first + last) / 2).norm()))
        bottoms.append(float((last - first).norm()) / 2)
    assert found.nonlinearity[0] == pytest.approx(np.mean(tops) / np.mean(bottoms))


def test_an_unused_variable_is_masked_and_fakes_no_order():
    """Without the mask, 0/0 = 0 in the last variable would look like an order."""
    world = decoding(lambda z: torch.stack([z[:, 0] ** 2, z[:, 1] ** 2, 1e-3 * z[:, 2]], 1), 4)
    found = variable_nonlinearity(world, gaussian_codes(500, 4))
    assert found.nonlinearity[2:] == [None, None]
    assert found.order is None
    assert [measure.name for measure in found.measures()] == ["variable 0", "variable 1"]
    early = decoding(lambda z: torch.stack([z[:, 0] ** 2, z[:, 1]], 1), 2)
    assert variable_nonlinearity(early, gaussian_codes(500, 2)).order > 0.6
    late = decoding(lambda z: torch.stack([z[:, 0], z[:, 1] ** 2], 1), 2)
    assert variable_nonlinearity(late, gaussian_codes(500, 2)).order < -0.6


def test_a_linear_map_of_the_latents_of_a_variable_changes_nothing():
    mix = torch.tensor([[2.0, 1, 0], [0.5, -1, 0], [0, 0, 3]]).double()
    world = decoding(lambda z: torch.tanh(z @ random_rotation(3).to(z)), 3)
    mixed = decoding(lambda z: world.decoder(z @ mix.inverse().to(z)), 3)
    codes, groups = gaussian_codes(200, 3), [[0, 1], [2]]
    here = variable_nonlinearity(world, codes, groups=groups)
    there = variable_nonlinearity(mixed, codes @ mix, groups=groups)
    assert there.nonlinearity == pytest.approx(here.nonlinearity)
    assert there.unexplained == pytest.approx(here.unexplained)
    single = variable_nonlinearity(mixed, codes @ mix)  # but not across variables
    assert single.nonlinearity[0] != pytest.approx(
        variable_nonlinearity(world, codes).nonlinearity[0], rel=0.01
    )


def test_the_variables_of_the_model_are_the_default():
    world = identity(4)
    world.groups = [[0, 1], [2, 3]]
    recording = zs.record(world, gaussian_codes(50, 4).float())
    assert variable_nonlinearity(recording).groups == world.groups
    assert len(variable_nonlinearity(recording, groups=[[0], [1], [2, 3]]).effect) == 3


def test_a_constant_decoder_and_bad_options_are_refused():
    constant = decoding(torch.ones_like, 2)
    with pytest.raises(Undefined, match="same observation.*variable-types"):
        variable_nonlinearity(constant, gaussian_codes(50, 2))
    with pytest.raises(ConfigError, match="least=1"):
        variable_nonlinearity(identity(2), gaussian_codes(50, 2), least=1)
    with pytest.raises(Undefined, match="an exchange needs two"):
        variable_nonlinearity(identity(2), gaussian_codes(1, 2))

"""Like data: constructed worlds in which it is known what lies between data, and what beside."""

import math

import pytest
import torch
from worlds import World, gaussian_codes, identity, seeded

import zscope as zs
from zscope.assays import hole_score
from zscope.assays.likeness import _Neighbours

STEP = 0.5


def bumps(codes, *, vanishing=False, std=0.03):
    """Bumps on a line, decoded from their place and height without any error.

    A `vanishing` decoder is exact at places that are multiples of the step, and decodes an empty
    line half way between them.
    """
    places = torch.linspace(-4, 4, 32, dtype=torch.float64)

    def decoder(z):
        bump = torch.exp(-4 * (z[:, :1] - places).square()) * (2 + z[:, 1:])
        return bump * (torch.cos(math.pi * z[:, :1] / STEP).square() if vanishing else 1)

    def encoder(x):
        mass = x.sum(1, keepdim=True)
        place = (x * places).sum(1, keepdim=True) / mass.clamp_min(1e-9)
        return torch.cat([place, mass * (places[1] - places[0]) * 2 / math.pi**0.5 - 2], 1)

    world = World(decoder, encoder, 2, prior="normal", std=std)
    return world, zs.record(world, decoder(codes).float(), seed=3)


def uniform(count, seed=1):
    return 2 * torch.rand(count, 2, generator=seeded(seed), dtype=torch.float64) - 1


def unlike(world, recording, codes):
    """The shares that are far from codes, decoded to something far from data, and either."""
    score = hole_score(world, codes, recording)
    far = score.code_distance > score.code_limit, score.data_distance > score.data_limit
    return [float(far.double().mean()) for far in (*far, far[0] | far[1])]


COARSE = torch.cartesian_prod(torch.linspace(-1, 1, 5).double(), torch.linspace(-1, 1, 60).double())
DATA = {"coarse": COARSE, "dense": uniform(2500, 5)}


@pytest.mark.parametrize("data", DATA)
def test_what_lies_between_data_is_like_data(data):
    """Five places and sixty heights: most of the line between two places is far in heights."""
    assert unlike(*bumps(DATA[data]), uniform(400))[2] <= 0.04
    half = uniform(200, 2)
    half[:, 0] = STEP * (torch.arange(200) % 4 - 1.5)
    assert unlike(*bumps(DATA[data]), half)[2] <= 0.04


@pytest.mark.parametrize("data", DATA)
def test_codes_beside_those_of_data_are_unlike_data(data):
    beside = uniform(200, 2)
    beside[:, 0] += 2 * beside[:, 0].sign()
    assert unlike(*bumps(DATA[data]), beside) == [1, 1, 1]


def test_an_empty_picture_between_data_is_unlike_data():
    """The decoder must not set its own yardstick: all it decodes half way is empty."""
    half = uniform(200, 2)
    half[:, 0] = STEP * (torch.arange(200) % 4 - 1.5)
    codes, decoded, _ = unlike(*bumps(COARSE, vanishing=True), half)
    assert codes <= 0.04
    assert decoded == 1


@pytest.mark.parametrize("latents", [2, 8])
def test_the_gap_between_two_clusters_is_unlike_data(latents):
    """A few steps join the clusters; they do not make a grid of them."""
    inside = 0.3 * gaussian_codes(1500, latents, 1)
    apart = torch.zeros(latents).double()
    apart[0] = 2
    data = torch.cat([inside[::2] + apart, inside[1::2] - apart])
    recording = zs.record(identity(latents, prior="normal"), data.float())
    new = 0.3 * gaussian_codes(300, latents, 2)
    assert unlike(identity(latents, prior="normal"), recording, new)[2] >= 0.9
    assert unlike(identity(latents, prior="normal"), recording, new + apart)[2] <= 0.04


def test_neighbours_of_a_grid_are_the_ends_of_its_edges_whatever_their_lengths():
    grid = torch.cartesian_prod(torch.arange(4.0), 7 * torch.arange(3.0)).double()
    pairs = _Neighbours.of(grid).pairs.tolist()
    edges = [[k, k + 1] for k in range(12) if k % 3 < 2] + [[k, k + 3] for k in range(9)]
    assert pairs == sorted(edges)


@pytest.mark.parametrize(("count", "latents"), [(60, 3), (300, 6)])
def test_neighbours_have_no_third_code_nearer_to_both(count, latents):
    """Every pair compared with every third code, by distances without rounding i-j unlike j-i."""
    codes = gaussian_codes(count, latents, 4)
    apart = torch.cdist(codes, codes, compute_mode="donot_use_mm_for_euclid_dist")
    nearer = torch.maximum(apart[:, None], apart[None]) < apart[..., None]
    expected = (~nearer.any(2)).triu(1).nonzero()
    assert torch.equal(_Neighbours.of(codes).pairs, expected)

"""What a model is fed: rows, neighbours and factors, all functions of seed and step."""

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.errors import DataError
from zscope.training.config import TrainConfig
from zscope.training.feeding import Feed, Neighbours, batch_rows


def grid(sizes, kinds=None):
    """A dataset of every combination of factor values; an observation is its factors."""
    factors = zs.data.grid_factors(sizes)
    return zs.data.from_arrays(
        factors.astype(np.float32),
        factors,
        factor_kinds=kinds or ["ordinal"] * len(sizes),
        factor_names=[f"f{k}" for k in range(len(sizes))],
    )


def pairs(data, repeats=1, seed=0):
    rows = np.tile(np.arange(len(data)), repeats)
    found = Neighbours(data).of(rows, np.random.default_rng(seed))
    return data.factors[rows], data.factors[found]


def test_a_neighbour_differs_in_one_factor_by_one_step():
    before, after = pairs(grid([4, 3, 5]), repeats=20)
    changes = np.abs(after - before)
    assert (changes.sum(1) == 1).all()
    # every factor, in both directions, about equally often away from the edges
    inner = (before == [1, 1, 2]).all(1)
    assert inner.sum() == 20
    moves = {tuple(step) for step in (after - before)}
    assert len(moves) == 6


def test_categories_stay_and_ordinal_factors_move():
    before, after = pairs(grid([3, 4], ["categorical", "ordinal"]), repeats=5)
    assert (before[:, 0] == after[:, 0]).all()
    assert (np.abs(before - after)[:, 1] == 1).all()


def test_neighbours_are_found_in_part_of_a_grid_and_in_any_order():
    data = grid([6, 5, 4])
    part = data.split((0.5,), seed=3)[0]
    shuffled = part.subset(np.random.default_rng(0).permutation(len(part)))
    before, after = pairs(shuffled)
    steps = np.abs(after - before).sum(1)
    assert set(steps) <= {0, 1}
    assert (steps == 1).mean() > 0.9
    present = {tuple(row) for row in shuffled.factors}
    for row, step in zip(before, steps, strict=True):
        around = [tuple(row + way * unit) for unit in np.eye(3, dtype=int) for way in (1, -1)]
        assert step == int(any(one in present for one in around))


def test_rows_with_equal_factors_take_turns_as_neighbours():
    factors = np.repeat([[0], [1]], 50, axis=0)
    data = zs.data.from_arrays(np.zeros((100, 2)), factors)
    found = Neighbours(data).of(np.zeros(2000, dtype=int), np.random.default_rng(0))
    assert set(found) == set(range(50, 100))


def test_data_without_factors_are_a_sequence():
    data = zs.data.from_arrays(np.arange(6.0).reshape(6, 1))
    found = Neighbours(data).of(np.arange(6), np.random.default_rng(0))
    assert found.tolist() == [1, 2, 3, 4, 5, 4]


def test_categories_alone_have_no_neighbours():
    with pytest.raises(DataError, match=r"its factors \(f0\) are categories.*ordinal factors"):
        Neighbours(grid([10], ["categorical"]))


def test_what_is_fed_depends_on_seed_and_step_alone():
    data = grid([4, 3, 5])
    model = zs.models.build("slow-vae", shape=(3,), latents=2, hidden=(4,))

    def fed(seed, step):
        config = TrainConfig(steps=10, batch=16, seed=seed)
        x, more = Feed(model, data, torch.device("cpu")).at(config, step)
        return x, more["partner"]

    once, again, later, other = fed(1, 3), fed(1, 3), fed(1, 4), fed(2, 3)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not torch.equal(once[0], later[0])
    assert not torch.equal(once[1], other[1])
    assert ((once[0] - once[1]).abs().sum(1) == 1).all()


def test_a_model_gets_what_it_asks_for_and_no_more():
    data = grid([4, 3])
    config = TrainConfig(steps=10, batch=6)

    def keys(name, **options):
        model = zs.models.build_for(name, data, latents=4, hidden=(4,), **options)
        return set(Feed(model, data, torch.device("cpu")).at(config, 0)[1])

    assert keys("vae") == set()
    assert keys("annealed-vae") == {"step"}
    assert keys("xae") == {"step"}
    assert keys("beta-tcvae") == {"samples"}
    assert keys("ivae") == {"factors"}
    assert keys("classifier", factor=1) == {"factors"}
    assert keys("pcl") == {"partner"}
    model = zs.models.build("classifier", shape=(2,), latents=4)
    x, more = Feed(model, data, torch.device("cpu")).at(config, 3)
    assert torch.equal(more["factors"], x)  # here an observation is its factors
    rows = batch_rows(config, len(data), 3)
    assert torch.equal(x, torch.from_numpy(data.images[rows]))

"""PCL: the contrast at known points, and sources that it finds again."""

import math

import numpy as np
import pytest
import torch
from worlds import seeded

import zscope as zs
from zscope.assays import mcc
from zscope.errors import InterfaceError


def small(**options):
    return zs.models.build("pcl", shape=(4,), latents=2, **options)


def test_a_guess_costs_log_two():
    model = small(backbone="linear")
    torch.nn.init.zeros_(model.encoder.head.weight)
    torch.nn.init.zeros_(model.encoder.head.bias)
    x, y = torch.rand(2, 8, 4, generator=seeded(0))
    assert model.losses(x, seeded(1), partner=y).total.item() == pytest.approx(math.log(2))


def test_the_ratio_by_hand():
    objective = small().objective
    with torch.no_grad():
        objective.now.copy_(torch.tensor([1.0, 2.0]))
        objective.before.copy_(torch.tensor([-1.0, 0.5]))
        objective.shift.copy_(torch.tensor([0.5, 0.0]))
        objective.level.fill_(0.25)
    found = objective.ratio(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -2.0]]))
    # |1 - 3 + .5| + |4 - 1| = 4.5;  1 + 4 = 5;  5 - 4.5 + .25
    assert found.item() == pytest.approx(0.75)


def test_the_contrast_written_out():
    model = small(hidden=(8,)).double()
    x, y = torch.rand(2, 5, 4, generator=seeded(0), dtype=torch.float64)
    losses = model.losses(x, seeded(1), partner=y)
    h, g = model.encode(x).mean, model.encode(y).mean
    order = torch.randn(5, generator=seeded(1), dtype=torch.float64).argsort()
    true, false = model.objective.ratio(h, g), model.objective.ratio(h, g[order])
    labels = torch.tensor([1.0] * 5 + [0.0] * 5).double()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        torch.cat([true, false]), labels
    )
    assert losses.total.item() == pytest.approx(expected.item())


def test_sources_with_laplacian_changes_are_found():
    """Two AR(1) sources mixed by a matrix: the encoder undoes the mixing."""
    rng = np.random.default_rng(0)
    sources = np.zeros((6000, 2))
    for t in range(1, len(sources)):
        sources[t] = 0.7 * sources[t - 1] + rng.laplace(size=2) * 0.5
    mixed = sources @ np.array([[1.0, 0.6], [-0.5, 1.0]])
    data = zs.data.from_arrays(mixed.astype(np.float32))  # rows in the order of time
    model = zs.models.build("pcl", shape=(2,), latents=2, backbone="linear")
    run = zs.train(model, data, steps=250, batch=256, rate=3e-2, schedule="linear")
    assert run.history[-1]["loss"] < math.log(2) - 0.05
    codes = zs.record(model, data).codes.numpy()
    found = np.abs(np.corrcoef(codes.T, sources.T)[:2, 2:])
    assert min(found.max(0)) > 0.95
    start = np.abs(np.corrcoef(mixed.T, sources.T)[:2, 2:])
    assert min(start.max(0)) < 0.93  # it was not so before
    assert mcc(codes, sources).score > 0.95


def test_it_encodes_and_does_not_decode():
    model = small()
    assert model.prior is None
    assert model.encode(torch.zeros(3, 4)).deterministic
    with pytest.raises(InterfaceError, match="pcl has an encoder only"):
        model.decode(torch.zeros(3, 2))
    with pytest.raises(InterfaceError, match="pcl: the loss is defined for pairs"):
        model.losses(torch.zeros(3, 4))

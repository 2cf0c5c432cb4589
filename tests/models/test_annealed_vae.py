"""Annealed VAE: the capacity over time, and what a linear model does with it."""

import math

import pytest
import torch
from test_linear_vae import crossed, sprung

import zscope as zs
from zscope.models.annealed_vae import capacity_at
from zscope.randomness import Tape


@pytest.mark.parametrize(("step", "expected"), [(0, 0), (40_000, 10), (100_000, 25), (300_000, 25)])
def test_the_capacity_grows_and_then_stays(step, expected):
    assert capacity_at(step, 25.0, 100_000) == pytest.approx(expected)


@pytest.mark.parametrize("step", [0, 5, 10, 20])
def test_the_price_is_paid_above_and_below_the_capacity(step):
    model = zs.models.build(
        "annealed-vae", shape=(5,), latents=3, alpha=7, capacity=0.2, capacity_steps=10
    ).double()
    x = torch.rand(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses = model.losses(x, torch.Generator().manual_seed(1), step=step)
    allowed = 0.2 * min(1, step / 10)
    divergence = losses.terms["divergence"].item()
    assert 0 < divergence < 0.2  # so that both sides occur
    expected = losses.terms["reconstruction"].item() + 7 * abs(divergence - allowed)
    assert losses.total.item() == pytest.approx(expected)


def test_a_linear_model_spends_its_capacity_where_rate_distortion_theory_says():
    """Reverse water-filling: at a rate of C nats both latents are left with the variance
    τ = sqrt(λ_1 λ_2) exp(-C), the squared error is 2 τ, and no nearby model loses less."""
    eigenvalues, capacity = torch.tensor([4.0, 1.0]).double(), 1.5
    x, middle, directions = sprung(eigenvalues.tolist())
    left = math.sqrt(4.0) * math.exp(-capacity)
    model = zs.models.build(
        "annealed-vae", shape=(2,), latents=2, backbone="linear", alpha=1.5, capacity=capacity,
        capacity_steps=1,
    ).double()  # fmt: skip
    head, last = model.encoder.head, model.decoder.layers[0]
    lengths = (eigenvalues - left).sqrt()
    with torch.no_grad():
        last.weight.copy_(directions * lengths)
        last.bias.copy_(middle)
        head.weight[:2] = (directions * lengths / eigenvalues).T
        head.weight[2:] = 0
        head.bias[:2] = -head.weight[:2] @ middle
        head.bias[2:] = (left / eigenvalues).log()
    xs, noise = crossed(x, 2)

    def lost():
        with torch.no_grad():
            return model.losses(xs, Tape([noise]), step=1)

    best = lost()
    assert best.terms["divergence"].item() == pytest.approx(capacity)
    assert best.terms["reconstruction"].item() == pytest.approx(2 * left)
    assert best.total.item() == pytest.approx(2 * left)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        moves = [1e-3 * torch.randn(p.shape, generator=generator) for p in model.parameters()]
        for parameter, move in zip(model.parameters(), moves, strict=True):
            parameter.data += move
        assert lost().total.item() > best.total.item()
        for parameter, move in zip(model.parameters(), moves, strict=True):
            parameter.data -= move

"""FactorVAE: what its two players lose, and what the discriminator learns."""

import math

import pytest
import torch
from torch import nn
from worlds import seeded

import zscope as zs
from zscope.models.factor_vae import Discriminator, shuffle


def small(**options):
    options = {"discriminator": (16, 16), "hidden": (8,), **options}
    return zs.models.build("factor-vae", shape=(5,), latents=3, **options).double()


def rows(count, seed=0):
    return torch.rand(count, 5, generator=seeded(seed), dtype=torch.float64)


def test_a_discriminator_that_cannot_tell_costs_nothing_and_loses_log_two():
    model, x = small(), rows(8)
    nn.init.zeros_(model.objective.discriminator.layers[-1].weight)
    nn.init.zeros_(model.objective.discriminator.layers[-1].bias)
    losses = model.losses(x, seeded(1))
    vae = zs.models.build("vae", shape=(5,), latents=3, hidden=(8,)).double()
    assert losses.total.item() == pytest.approx(vae.losses(x, seeded(1)).total.item())
    assert losses.terms["total_correlation"].item() == 0
    assert losses.opponent.item() == pytest.approx(math.log(2))


def test_the_losses_written_out():
    model, x = small(alpha=3.0), rows(6)
    losses = model.losses(x, seeded(1))
    generator = seeded(1)
    z = model.encode(x).sample(generator)
    first, second, last = model.objective.discriminator.layers

    def logits(codes):
        hidden = nn.functional.leaky_relu(first(codes), 0.2)
        return last(nn.functional.leaky_relu(second(hidden), 0.2))

    tc = (logits(z)[:, 0] - logits(z)[:, 1]).mean()
    assert losses.terms["total_correlation"].item() == pytest.approx(tc.item())
    parts = losses.terms["reconstruction"] + losses.terms["divergence"] + 3 * tc
    assert losses.total.item() == pytest.approx(parts.item())
    mixed = shuffle(z, generator)
    real, false = (torch.log_softmax(logits(codes), 1) for codes in (z, mixed))
    expected = -0.5 * (real[:, 0].mean() + false[:, 1].mean())
    assert losses.opponent.item() == pytest.approx(expected.item())


def test_each_loss_reaches_the_weights_of_its_own_player_alone():
    model, x = small(), rows(8)
    losses = model.losses(x, seeded(1))
    mine = list(model.objective.discriminator.parameters())
    others = [*model.encoder.parameters(), *model.decoder.parameters()]
    for loss, reached, spared in (
        (losses.total, others, mine),
        (losses.opponent, mine, others),
    ):
        for parameter in reached:
            [slope] = torch.autograd.grad(loss, parameter, retain_graph=True)
            assert slope.abs().sum() > 0
        slopes = torch.autograd.grad(loss, spared, retain_graph=True, allow_unused=True)
        assert all(slope is None or (slope == 0).all() for slope in slopes)


def test_one_pass_gives_both_players_the_gradients_of_autograd():
    """Another route: the definitions of both losses, each differentiated by itself."""
    discriminator = small().objective.discriminator
    z = torch.randn(7, 3, generator=seeded(0), dtype=torch.float64, requires_grad=True)
    dependence, loss = discriminator.contest(z, seeded(1))
    mixed = shuffle(z.detach(), seeded(1))
    logits, others = discriminator(z), discriminator(mixed)
    tc = (logits[:, 0] - logits[:, 1]).mean()
    labels = torch.tensor([0] * 7 + [1] * 7)
    fresh = torch.cat([discriminator(z.detach()), others])
    cross_entropy = nn.functional.cross_entropy(fresh, labels)
    assert dependence.item() == pytest.approx(tc.item())
    assert loss.item() == pytest.approx(cross_entropy.item())
    weights = list(discriminator.parameters())
    ours = torch.autograd.grad(3 * dependence + 2 * loss, [z, *weights])
    expected = [
        *torch.autograd.grad(3 * tc, z),
        *torch.autograd.grad(2 * cross_entropy, weights),
    ]
    assert all(torch.allclose(a, b) for a, b in zip(ours, expected, strict=True))


def test_shuffling_keeps_every_latent_and_loses_their_dependence():
    first = torch.randn(4000, 1, generator=seeded(0), dtype=torch.float64)
    codes = torch.cat([first, first, -first], 1)
    mixed = shuffle(codes, seeded(1))
    assert torch.equal(mixed.sort(0).values, codes.sort(0).values)
    correlations = torch.corrcoef(mixed.T) - torch.eye(3)
    assert correlations.abs().max() < 4 / math.sqrt(4000)


@pytest.mark.parametrize("correlation", [0.0, 0.8])
@pytest.mark.parametrize(
    ("sizes", "rate", "steps"), [([32, 32], 5e-3, 300), ([128] * 6, 0.1 / 128, 120)],
    ids=["two layers", "the default for small observations"],
)  # fmt: skip
def test_a_trained_discriminator_recovers_the_total_correlation_of_a_gaussian(
    correlation, sizes, rate, steps
):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        discriminator = Discriminator(2, sizes)
    mixing = torch.tensor([[1.0, 0.0], [correlation, math.sqrt(1 - correlation**2)]])
    optimiser = torch.optim.Adam(discriminator.parameters(), lr=rate, betas=(0.5, 0.9))
    generator = seeded(0)

    def codes(count):
        return torch.randn(count, 2, generator=generator) @ mixing.T

    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - step / steps)
        optimiser.zero_grad()
        discriminator.contest(codes(512), generator)[1].backward()
        optimiser.step()
    with torch.no_grad():
        logits = discriminator(codes(20_000))
    found = (logits[:, 0] - logits[:, 1]).mean().item()
    assert found == pytest.approx(-0.5 * math.log(1 - correlation**2), abs=0.05)


def test_the_published_discriminator_has_six_layers_of_a_thousand():
    model = zs.models.build("factor-vae", shape=(5,), latents=10, discriminator="published")
    weights = sum(p.numel() for p in model.objective.discriminator.parameters())
    assert weights == 11 * 1000 + 5 * 1001 * 1000 + 1001 * 2
    rival = model.rivals["discriminator"]
    assert (rival.rate, rival.betas) == (1e-4, (0.5, 0.9))


@pytest.mark.parametrize(
    ("shape", "width"),
    [((3,), 128), ((784,), 191), ((1, 16, 16), 128), ((1, 28, 28), 191), ((3, 32, 32), 250),
     ((1, 64, 64), 1000), ((3, 128, 128), 1000)],
)  # fmt: skip
def test_the_discriminator_is_as_wide_as_the_observations_are_large(shape, width):
    recipe = zs.models.recipe_for("factor-vae", DataOf(shape))
    assert recipe["options"]["discriminator"] == [width] * 6
    assert recipe["options"]["discriminator_rate"] == pytest.approx(0.1 / width)


def test_a_discriminator_of_ones_own_has_the_published_rate_unless_it_is_given():
    def recipe(**options):
        return zs.models.recipe_for("factor-vae", DataOf((3,)), **options)["options"]

    assert recipe(discriminator="16,16")["discriminator_rate"] == 1e-4
    assert recipe(discriminator_rate=3e-3)["discriminator"] == [128] * 6
    assert recipe(discriminator_rate=3e-3)["discriminator_rate"] == 3e-3
    with pytest.raises(zs.ZscopeError, match="discriminator='large'; expected .* or 'published'"):
        recipe(discriminator="large")


class DataOf:
    factors = None

    def __init__(self, shape):
        self.shape = shape

"""The causal block: who depends on whom, gates, interventions, and its size."""

import math

import pytest
import torch
from worlds import seeded

import zscope as zs
from zscope.errors import ConfigError
from zscope.models.causal import TEMPERATURES, CausalBlock, logistic
from zscope.models.layers import initialise


def block(units=5, size=1, **options):
    with torch.device("meta"):
        holder = torch.nn.Sequential(CausalBlock(units, size=size, **options))
    initialise(holder, seed=1)
    return holder[0].double()


def noises(count=4, units=5, seed=0):
    return torch.randn(count, units, generator=seeded(seed), dtype=torch.float64)


def set_gates(made, adjacency):
    """Open exactly the given edges (parents x children)."""
    with torch.no_grad():
        for child in range(1, made.units):
            made.logits[made._edges(child)] = torch.where(
                adjacency[:child, child], 1.0, -1.0
            ).double()


@pytest.mark.parametrize("size", [1, 4])
def test_a_cause_depends_on_its_own_noise_and_on_those_before(size):
    made = block(size=size)

    def causes(noise):
        return made(noise[None])[0]

    jacobian = torch.func.jacrev(causes)(noises()[0])
    touched = jacobian.reshape(5, size, 5).abs().sum(1) > 0  # causes x noises
    assert torch.equal(touched, torch.ones(5, 5).tril().bool())
    assert made(noises()).shape == (4, 5 * size)


def test_the_adjacency_is_upper_triangular_and_says_which_edges_are_open():
    made = block()
    assert torch.equal(made.adjacency, torch.ones(5, 5).triu(1).bool())
    assert made.density == 1
    wanted = (torch.rand(5, 5, generator=seeded(0)) > 0.5).triu(1)
    set_gates(made, wanted)
    assert torch.equal(made.adjacency, wanted)
    assert made.density == pytest.approx(wanted.sum().item() / 10)


def test_a_closed_gate_cuts_the_edge_and_nothing_else():
    made = block()
    chain = torch.zeros(5, 5).bool()
    chain[0, 1] = chain[1, 3] = True
    set_gates(made, chain)
    jacobian = torch.func.jacrev(lambda noise: made(noise[None])[0])(noises()[0])
    reached = torch.eye(5).bool()
    reached[1, 0] = reached[3, 1] = reached[3, 0] = True  # causes x noises
    assert torch.equal(jacobian.abs() > 0, reached)


@pytest.mark.parametrize("size", [1, 3])
def test_an_intervention_on_a_cause_cuts_its_parents(size):
    made, noise = block(size=size), noises()
    value = torch.full((size,), 0.7, dtype=torch.float64)
    before = made(noise).unflatten(1, (5, size))
    after = made(noise, fixed={2: value}).unflatten(1, (5, size))
    assert (after[:, 2] == 0.7).all()
    assert torch.equal(after[:, :2], before[:, :2])
    assert not torch.allclose(after[:, 3:], before[:, 3:])
    # Neither its parents nor its own noise reach it any more, nor anything through it alone.
    other = noise.clone()
    other[:, 2] += 1
    assert torch.equal(made(other, fixed={2: value}), made(noise, fixed={2: value}))
    other[:, 0] += 1
    assert (made(other, fixed={2: value}).unflatten(1, (5, size))[:, 2] == 0.7).all()


def test_an_intervention_on_a_noise_reaches_what_follows():
    made, noise = block(), noises()
    changed = noise.clone()
    changed[:, 2] = 0.7
    before, after = made(noise), made(changed)
    assert torch.equal(before[:, :2], after[:, :2])
    assert (before[:, 2:] != after[:, 2:]).all()


def test_an_intervention_on_a_unit_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match=r"on unit 5, but there are 5 units.*0 to 4"):
        block()(noises(), fixed={5: 0.0})


@pytest.mark.parametrize(("units", "expected"), [(6, 1011), (12, 2418)])
def test_the_block_has_the_published_number_of_weights(units, expected):
    with torch.device("meta"):
        made = CausalBlock(units)
    assert sum(p.numel() for p in made.parameters()) == expected


# Table 4. Its size S has 6 blocks, though table 3 prints 12 for it.
MNIST = {
    ("ae", 12): 423_259, ("xae", 12): 425_677, ("ae", 6): 309_973, ("xae", 6): 310_984,
    ("vae", 12): 298_771, ("xvae", 12): 301_189, ("vae", 6): 186_025, ("xvae", 6): 187_036,
}  # fmt: skip
CELEBA = {
    ("ae", 1): 2_840_827, ("xae", 1): 2_850_299, ("xae", 4): 2_878_523,
    ("vae", 1): 2_763_707, ("xvae", 1): 2_773_179, ("xvae", 4): 2_795_259,
}  # fmt: skip


def count(name, **options):
    model = zs.models.build(name, backbone="consistency", **options)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "latents"), MNIST)
def test_models_for_mnist_have_the_published_number_of_weights(name, latents):
    found = count(name, shape=(1, 28, 28), latents=latents, depth=latents)
    assert found == MNIST[name, latents]


@pytest.mark.parametrize(("name", "expected"), [("xae", 313_936), ("xvae", 188_836)])
def test_so_have_models_with_causes_of_four_numbers(name, expected):
    assert count(name, shape=(1, 28, 28), latents=6, depth=6, unit=4) == expected


# Table 4 prints for the SAE of size S what it prints for the XSAE, whose block has 1,011.
SAE = {
    ("sae-6", 6): 320_488 - 1_011, ("xsae-6", 6): 320_488,
    ("sae-12", 12): 442_267, ("xsae-12", 12): 444_685,
}  # fmt: skip


@pytest.mark.parametrize(("name", "latents"), SAE)
def test_a_structural_autoencoder_can_have_the_published_number_of_weights(name, latents):
    options = {"shape": (1, 28, 28), "latents": latents, "depth": latents}
    found = count(name, **options, start="dense", width=(10, 20))
    assert found == SAE[name, latents]
    hourglass = {"sae": "ae", "xsae": "xae"}[name.split("-")[0]]
    assert found == count(hourglass, **options) + 1_584 * latents
    # With a constant in place of the dense layers there are fewer.
    assert count(name, **options) < found


@pytest.mark.parametrize(("name", "unit"), CELEBA)
def test_models_for_celeba_have_the_published_number_of_weights_besides_the_gates(name, unit):
    options = {"unit": unit} if name.startswith("x") else {}
    gates = 32 * 31 // 2 if name.startswith("x") else 0
    found = count(name, shape=(3, 128, 128), latents=32, depth=16, filters=100, **options)
    assert found == CELEBA[name, unit] + gates


def test_the_sizes_of_the_dense_layers_can_be_chosen():
    """Negative control for the counts: other sizes give other numbers."""
    small = count("vae", shape=(1, 28, 28), latents=6, depth=6, head="64,32")
    assert small < MNIST["vae", 6]


# Gates while training.


def test_the_temperature_falls_and_then_stays():
    made = block(steps=100)
    first, last = TEMPERATURES
    assert made.temperature(0) == first
    assert made.temperature(50) == pytest.approx(math.sqrt(first * last))
    assert made.temperature(100) == made.temperature(10_000) == pytest.approx(last)


def test_drawn_gates_are_relaxed_bernoulli_variables():
    """P(gate > 1/2) = sigmoid(logit), whatever the temperature; cold gates are near 0 or 1."""
    made = block(units=20, steps=10)  # 190 edges
    with torch.no_grad():
        made.logits.fill_(0.8)
    generator = seeded(0)
    warm = torch.stack([made.draw_gates(0, generator) for _ in range(40)])
    cold = torch.stack([made.draw_gates(10, generator) for _ in range(40)])
    expected = torch.sigmoid(torch.tensor(0.8)).item()
    for gates in (warm, cold):
        assert (gates > 0.5).double().mean().item() == pytest.approx(expected, abs=0.03)
        assert gates.isfinite().all()
        assert ((gates >= 0) & (gates <= 1)).all()
    between = ((cold > 0.05) & (cold < 0.95)).double().mean()
    assert between < 0.2 < ((warm > 0.05) & (warm < 0.95)).double().mean()


def test_logistic_noise_is_right_far_into_the_tails():
    normals = torch.tensor([-6.0, -3.0, -0.1, 0.0, 3.0, 6.0])
    exact = torch.special.log_ndtr(normals.double()) - torch.special.log_ndtr(-normals.double())
    assert torch.allclose(logistic(normals).double(), exact, rtol=1e-5)
    drawn = logistic(torch.randn(20_000, generator=seeded(0)))
    assert drawn.std().item() == pytest.approx(math.pi / math.sqrt(3), rel=0.02)


def test_gates_are_drawn_once_a_step_and_hard_when_measured():
    model = zs.models.build("xae", shape=(5,), latents=4)
    x = torch.rand(6, 5, generator=seeded(0))
    warm, other = (model.losses(x, seeded(seed), step=0).total.item() for seed in (1, 2))
    assert warm != other
    z = torch.randn(3, 4, generator=seeded(3))
    assert torch.equal(model.decode(z), model.decode(z))
    assert torch.equal(model.decode(z), model.likelihood.mean(model.decoder(model.block(z))))


def test_edges_have_gradients_and_can_be_closed_by_training():
    """A decoder that wants unit 1 not to see unit 0 closes the gate between them."""
    made = block(units=2, steps=200)
    optimiser = torch.optim.Adam(made.parameters(), lr=0.03)
    generator = seeded(0)
    with torch.no_grad():
        made.functions[1][0].weight[:, 0] = 3.0  # unit 0 spoils unit 1
    for parameter in made.functions.parameters():
        parameter.requires_grad_(False)
    for step in range(200):
        noise = torch.randn(64, 2, generator=generator, dtype=torch.float64)
        alone = noise.clone()
        wanted = made(alone, torch.zeros(1).double())[:, 1].detach()
        loss = (made(noise, made.draw_gates(step, generator))[:, 1] - wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert made.adjacency[0, 1].item() is False


def test_a_model_with_a_block_says_what_its_causes_are():
    model = zs.models.build("xvae", shape=(5,), latents=4, unit=3)
    noise = torch.randn(6, 4, generator=seeded(0))
    assert torch.equal(model.causes(noise), model.block(noise))
    assert model.causes(noise).shape == (6, 12)
    plain = zs.models.build("vae", shape=(5,), latents=4)
    assert plain.causes(noise) is noise


def test_the_consistency_assay_reads_a_model_with_a_block():
    model = zs.models.build("xvae", shape=(5,), latents=4, unit=3)
    codes = torch.randn(64, 4, generator=seeded(0))
    found = zs.assays.interventional_consistency(model, codes, interventions=2, samples=16)
    assert found.equivariance.shape == (4, 4)


# What can be set about the gates.


def test_gates_start_where_told_and_learn_as_fast_as_told():
    """With Adam, every logit moves by rate x gate_rate in the first step."""
    x = torch.rand(64, 5, generator=seeded(0))
    moved = {}
    for rate in (1.0, 10.0):
        model = zs.models.build("xae", shape=(5,), latents=3, gate_start=-0.5, gate_rate=rate)
        start = torch.full((3,), -0.5).sigmoid()
        assert torch.allclose(model.block.probabilities(), start)
        assert model.block.density == 0
        zs.train(model, x, steps=1, rate=1e-3, batch=64, progress=False)
        moved[rate] = (model.block.probabilities().logit() + 0.5).abs()
    assert torch.allclose(moved[1.0], torch.full((3,), 1e-3), rtol=0.02)
    assert torch.allclose(moved[10.0], torch.full((3,), 1e-2), rtol=0.02)


def test_an_open_edge_costs_what_was_said():
    x = torch.rand(8, 5, generator=seeded(0))
    free, dear = (
        zs.models.build("xae", shape=(5,), latents=3, gate_start=0.4, edge_cost=cost)
        for cost in (0.0, 2.5)
    )
    losses = [model.losses(x, seeded(1), step=0) for model in (free, dear)]
    expected = 3 * torch.tensor(0.4).sigmoid()
    assert torch.allclose(losses[1].total - losses[0].total, 2.5 * expected)
    assert torch.allclose(losses[1].terms["edges"], expected)
    assert "edges" not in losses[0].terms


def test_the_last_temperature_can_be_chosen():
    made = block(steps=100, temperature=0.5)
    assert made.temperature(0) == 1
    assert made.temperature(100) == pytest.approx(0.5)


def test_edges_as_a_matrix_and_back():
    made = block(units=4)
    edges = torch.arange(1.0, 7.0)
    matrix = made.matrix(edges)
    assert matrix[0, 1] == 1
    assert matrix[1, 3] == 5
    assert torch.equal(matrix, matrix.triu(1))
    assert torch.equal(made.gates_of(matrix), edges)

"""Consistency penalties: at points where they are known, and what training does to them."""

import pytest
import torch
from torch import nn
from worlds import random_rotation, seeded

import zscope as zs
from zscope.models import consistency
from zscope.models.composed import Batch


def linear(name="cae-i", latents=3, response=None, **options):
    """An autoencoder whose response is the given matrix: x = z, encoded as R x."""
    options = {"backbone": "linear", "likelihood": "mse", **options}
    model = zs.models.build(name, shape=(latents,), latents=latents, **options).double()
    response = torch.eye(latents).double() if response is None else response
    with torch.no_grad():
        model.decoder.layers[0].weight.copy_(torch.eye(latents))
        model.decoder.layers[0].bias.zero_()
        model.encoder.head.weight[:latents] = response
        model.encoder.head.bias.zero_()
    return model


def rows(count=16, latents=3, seed=0):
    return torch.randn(count, latents, generator=seeded(seed), dtype=torch.float64)


def by_loops(model, batch, interventions, vectors, equivariant):
    """Algorithms 1 and 2, one intervention after another."""
    noises, values, member = consistency.draw(batch, interventions, vectors)
    units = [m.flatten().nonzero().flatten().tolist() for m in member]
    n, found = len(units), []

    def respond(z):
        return model.encode(model.decode(z)).mean

    for unit in units:
        for value in values:
            total = 0.0
            for noise in noises:
                changed = noise.clone()
                changed[unit] = value[unit]
                before, after = respond(noise[None])[0], respond(changed[None])[0]
                if equivariant:
                    wanted = before.clone()
                    wanted[unit] = value[unit]
                    gap = model.causes(after[None]) - model.causes(wanted[None])
                    total += gap.square().sum().item()
                else:
                    gap = after - before
                    gap[unit] = 0
                    total += gap.square().sum().item()
            found.append(total / (n * len(noises)))
    return sum(found) / len(found)


@pytest.mark.parametrize("name", ["cae-i", "cae-e", "cvae-i", "csae-2-e", "xcae-e", "xcvae-i"])
def test_all_at_once_is_one_after_another(name):
    backbone = {"hidden": (8,), "backbone": "mlp"}
    model = zs.models.build(
        name, shape=(5,), latents=4, interventions=2, vectors=3, **backbone
    ).double()
    if model.block is not None:  # hard gates, as the loops have them
        model.block.draw_gates = lambda step, source: model.block.open_gates().double()
    x = torch.rand(9, 5, generator=seeded(0), dtype=torch.float64)
    term = "equivariance" if name.endswith("e") else "invariance"
    losses = model.losses(x, seeded(1), **({} if model.block is None else {"step": 0}))
    batch = Batch(model, x, seeded(1))
    _ = batch.code
    expected = by_loops(model, batch, 2, 3, term == "equivariance")
    assert losses.terms[term].item() == pytest.approx(expected, rel=1e-9)
    plain = losses.terms["reconstruction"] + losses.terms.get("divergence", 0)
    assert losses.total.item() == pytest.approx(plain.item() + 4 * expected)


@pytest.mark.parametrize("name", ["cae-i", "cae-e"])
def test_a_perfect_response_costs_nothing(name):
    losses = linear(name).losses(rows(), seeded(0))
    term = "invariance" if name == "cae-i" else "equivariance"
    assert losses.terms[term].item() == pytest.approx(0, abs=1e-20)


def test_a_response_that_scales_each_unit_is_invariant_and_not_equivariant():
    """R = 2 I: nothing else moves, but the value does not come back."""
    double = 2 * torch.eye(3).double()
    losses = linear("cae-i", response=double).losses(rows(), seeded(0))
    assert losses.terms["invariance"].item() == pytest.approx(0, abs=1e-20)
    model = linear("cae-e", response=double, vectors=4)
    values = {}

    def kept(batch, *counts, draw=consistency.draw):
        values["v"] = draw(batch, *counts)
        return values["v"]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(consistency, "draw", kept)
        found = model.losses(rows(), seeded(0)).terms["equivariance"].item()
    # N'_m - v = v for every vector and unit, each counted 1/n of the n units
    value = values["v"][1]
    assert found == pytest.approx((value.square().sum() / 9).item())


def test_a_rotation_has_the_penalty_of_its_off_diagonal():
    """R = Q: the change of unit m by δ moves unit i by Q_im δ."""
    turn = random_rotation(3, seed=2)
    model = linear("cae-i", response=turn, vectors=6)
    batch = Batch(model, rows(), seeded(0))
    noises, values, _ = consistency.draw(batch, 1, 6)
    outside = (turn - turn.diag().diag()).square().sum(0)  # over i, for each m
    change = (values - noises).square().mean(0)
    expected = (outside * change).sum() / 9
    found = model.losses(rows(), seeded(0)).terms["invariance"].item()
    assert found == pytest.approx(expected.item())
    assert found > 0.01


def test_deterministic_models_are_probed_with_hybrids_and_variational_ones_with_the_prior():
    codes = rows(50)
    model = linear("cae-i")
    noises, values, _ = consistency.draw(Batch(model, codes, seeded(0)), 5, 20)
    for drawn in (noises, values):
        for latent in range(3):
            column = set(drawn[:, latent].tolist())
            assert column <= set(codes[:, latent].tolist())
            assert len(column) == len(drawn)  # none twice
    rows_seen = {tuple(row) for row in codes.tolist()}
    assert not any(tuple(row) in rows_seen for row in noises.tolist())
    vae = zs.models.build("cvae-i", shape=(3,), latents=3, backbone="linear").double()
    noises, values, _ = consistency.draw(Batch(vae, codes, seeded(0)), 5, 4000)
    assert noises.shape == (4000, 3)
    assert torch.allclose(noises.T.cov(), torch.eye(3).double(), atol=0.1)
    assert values.shape == (5, 3)


def test_variables_of_a_structural_model_move_as_one():
    model = zs.models.build("csae-2-i", shape=(5,), latents=4, hidden=(8,))
    x = torch.rand(20, 5, generator=seeded(0))
    batch = Batch(model, x, seeded(0))
    noises, values, member = consistency.draw(batch, 3, 6)
    assert member.shape == (2, 1, 1, 4)
    codes = [tuple(row) for row in model.encode(x).mean.tolist()]
    for group in ([0, 1], [2, 3]):
        known = {tuple(row[latent] for latent in group) for row in codes}
        for drawn in (noises, values):
            assert all(tuple(row) in known for row in drawn[:, group].tolist())


def test_samples_and_values_carry_no_gradient():
    """Shrinking the codes would lower the penalty without making anything consistent."""
    model = linear("cae-i", response=random_rotation(3))
    drawn = consistency.draw(Batch(model, rows(), seeded(0)), 1, 4)
    assert not any(tensor.requires_grad for tensor in drawn)


def test_both_halves_are_trained_by_the_penalty():
    model = zs.models.build("cae-i", shape=(5,), latents=3, hidden=(8,))
    penalty = model.losses(torch.rand(9, 5, generator=seeded(0)), seeded(1)).terms["invariance"]
    slopes = torch.autograd.grad(penalty, list(model.parameters()), retain_graph=True)
    assert all(slope.abs().sum() > 0 for slope in slopes[:-1])


class Counting(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part, self.rows, self.calls = part, 0, 0

    def forward(self, x):
        self.rows, self.calls = self.rows + len(x), self.calls + 1
        return self.part(x)


def test_a_step_decodes_and_encodes_the_promised_number_of_rows_in_one_go():
    model = zs.models.build("cae-e", shape=(5,), latents=4, interventions=3, vectors=7)
    model.encoder, model.decoder = Counting(model.encoder), Counting(model.decoder)
    model.losses(torch.rand(32, 5, generator=seeded(0)), seeded(1))
    extra = 7 * (1 + 4 * 3)
    assert (model.encoder.rows, model.encoder.calls) == (32 + extra, 2)
    assert (model.decoder.rows, model.decoder.calls) == (32 + extra, 2)


def test_training_with_the_penalty_makes_interventions_survive():
    """A curved sheet in six dimensions: the same autoencoder with and without."""
    generator = seeded(0)
    mixing = torch.randn(2, 6, generator=generator)
    data = torch.tanh(torch.randn(512, 2, generator=generator) @ mixing)
    scores = {}
    for name in ("ae", "cae-i"):
        options = {"hidden": (32,), "activation": "tanh"}
        more = {"consistency_weight": 10.0} if name == "cae-i" else {}
        model = zs.models.build(name, shape=(6,), latents=4, **options, **more)
        run = zs.train(model, data, steps=300, batch=64, rate=1e-2)
        found = zs.assays.interventional_consistency(model, zs.record(model, data).posterior)
        scores[name] = found.means_with_collapsed["invariance"], run.history[-1]["reconstruction"]
    assert scores["cae-i"][0] > scores["ae"][0] + 0.03
    assert scores["cae-i"][1] < 0.01 * data.square().sum(1).mean().item()

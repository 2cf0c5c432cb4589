"""AVAE: the term of recognition is zero exactly where it should be."""

import math

import pytest
import torch
from torch import nn
from worlds import seeded

import zscope as zs
from zscope.autoencoder import Posterior
from zscope.models.avae import self_consistency


def recognising(rho, latents=3):
    """A linear AVAE whose decoder is the identity and whose encoder answers N(ρ x, 1 - ρ²)."""
    model = zs.models.build(
        "avae", shape=(latents,), latents=latents, backbone="linear", rho=rho
    ).double()
    with torch.no_grad():
        model.decoder.layers[0].weight.copy_(torch.eye(latents))
        model.decoder.layers[0].bias.zero_()
        model.encoder.head.weight.zero_()
        model.encoder.head.weight[:latents] = rho * torch.eye(latents)
        model.encoder.head.bias[:latents] = 0
        model.encoder.head.bias[latents:] = math.log(1 - rho**2)
    return model


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.975])
def test_the_term_is_zero_when_the_encoder_answers_with_the_coupling(rho):
    model = recognising(rho)
    x = torch.randn(16, 3, generator=seeded(0), dtype=torch.float64)
    losses = model.losses(x, seeded(1))
    assert losses.terms["recognition"].item() == pytest.approx(0, abs=1e-12)
    vae = losses.terms["reconstruction"] + losses.terms["divergence"]
    assert losses.total.item() == pytest.approx(vae.item())


@pytest.mark.parametrize("part", ["mean", "spread"])
def test_any_other_answer_costs_something(part):
    model = recognising(0.9)
    with torch.no_grad():
        if part == "mean":
            model.encoder.head.weight[0, 0] += 0.1
        else:
            model.encoder.head.bias[-1] += 0.1
    x = torch.randn(16, 3, generator=seeded(0), dtype=torch.float64)
    assert model.losses(x, seeded(1)).terms["recognition"].item() > 1e-3


def test_the_term_by_hand():
    """One latent: answer N(1, 4) to z = 2 with ρ = .5, so against N(1, .75)."""
    again = Posterior(torch.tensor([[1.0]]).double(), torch.tensor([[2.0]]).double())
    expected = 0.5 * (4 / 0.75 - 1 - math.log(4 / 0.75))
    code = torch.tensor([[2.0]]).double()
    assert self_consistency(again, code, 0.5).item() == pytest.approx(expected)
    further = self_consistency(again, code + 1, 0.5).item()
    assert further == pytest.approx(expected + 0.5 * 0.25 / 0.75)


def test_the_decoder_is_not_trained_by_recognition():
    model = zs.models.build("avae", shape=(5,), latents=3, hidden=(8,))
    losses = model.losses(torch.rand(8, 5, generator=seeded(0)), seeded(1))
    slopes = torch.autograd.grad(
        losses.terms["recognition"], list(model.decoder.parameters()), allow_unused=True,
        retain_graph=True,
    )  # fmt: skip
    assert all(slope is None for slope in slopes)
    for parameter in model.encoder.parameters():
        [slope] = torch.autograd.grad(losses.terms["recognition"], parameter, retain_graph=True)
        assert slope.abs().sum() > 0


def test_gradients_agree_with_finite_differences_when_what_is_decoded_is_held():
    """What was decoded counts as data, so for the comparison it is a constant."""
    model = zs.models.build("avae", shape=(3,), latents=2, hidden=(4,), activation="tanh").double()
    x = torch.rand(4, 3, generator=seeded(0), dtype=torch.float64)
    decoded = model.decode(model.encode(x).sample(seeded(1))).detach()

    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self):
            posterior = model.encode(x)
            code = posterior.sample(seeded(1))
            rest = model.likelihood.nll(model.output(code), x).mean() + posterior.kl().sum(1).mean()
            return rest + self_consistency(model.encode(decoded), code, 0.975)

    held = Held()
    keys, values = zip(*held.named_parameters(), strict=True)

    def total(*parameters):
        return torch.func.functional_call(held, dict(zip(keys, parameters, strict=True)), ())

    assert torch.autograd.gradcheck(total, values)
    losses = model.losses(x, seeded(1))
    assert losses.total.item() == pytest.approx(held().item())
    ours = torch.autograd.grad(losses.total, values)
    theirs = torch.autograd.grad(held(), values)
    assert all(torch.allclose(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_correlation_of_one_is_refused():
    with pytest.raises(zs.ZscopeError, match=r"rho=1; expected a correlation between -1 and 1"):
        zs.models.build("avae", shape=(5,), latents=3, rho=1)

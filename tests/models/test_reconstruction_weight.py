"""The weight of the reconstruction: what it equals, where it is shown, and what it leaves alone."""

import math

import pytest
import torch
from test_zoo import NAMES, extras, observed, rows, tiny
from worlds import seeded

import zscope as zs
from zscope.assays import predicted_variance
from zscope.autoencoder import Losses
from zscope.errors import ConfigError, InterfaceError

DECODING = [name for name in NAMES if zs.models.entry(name).decodes]
WEIGHT = 16.0


def loss_and_gradients(model, x):
    """Of a batch; structural decoders are moved away from their start, where slopes are 0."""
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=seeded(3)).double()
    losses = model.losses(x, seeded(1), **extras(model, x))
    parameters = [p for p in model.parameters() if p.requires_grad]
    slopes = torch.autograd.grad(losses.total, parameters, allow_unused=True)
    return losses, [slope for slope in slopes if slope is not None]


@pytest.mark.parametrize("name", DECODING)
def test_a_weight_is_a_smaller_variance_of_the_likelihood(name):
    """w/2 sum (x - a)²/γ is that of γ/w: the same slopes, and a loss that differs by constants."""
    gamma, x = 0.7, observed(tiny(name))
    options = {"likelihood": "gaussian", "gamma": gamma}
    weighted, slopes = loss_and_gradients(tiny(name, reconstruction_weight=WEIGHT, **options), x)
    smaller, expected = loss_and_gradients(tiny(name, **options | {"gamma": gamma / WEIGHT}), x)
    plain, others = loss_and_gradients(tiny(name, **options), x)
    assert len(slopes) == len(expected) > 3
    for one, two in zip(slopes, expected, strict=True):
        assert torch.allclose(one, two, rtol=1e-9, atol=1e-12)
    assert not all(torch.allclose(a, b) for a, b in zip(slopes, others, strict=True))
    each = 2 if name == "slow-vae" else 1  # reconstructions in its loss
    half = each * x[0].numel() / 2
    constant = WEIGHT * math.log(2 * math.pi * gamma) - math.log(2 * math.pi * gamma / WEIGHT)
    assert weighted.total.item() == pytest.approx(smaller.total.item() + half * constant)
    # The terms are shown without the weight.
    for term, value in weighted.terms.items():
        assert value.item() == pytest.approx(plain.terms[term].item()), term


SCALED = [
    ("ae", {}),
    ("beta-vae", {"beta": 4.0}),
    ("beta-vae-full", {"beta": 4.0}),
    ("vlae-2", {"beta": 4.0}),
    ("wae", {"weight": 10.0}),
    ("annealed-vae", {"alpha": 50.0}),
    ("slow-vae", {"beta": 2.0, "slowness": 10.0}),
    ("cae-i", {"consistency_weight": 4.0}),
]


@pytest.mark.parametrize(("name", "others"), SCALED)
@pytest.mark.parametrize("likelihood", ["bernoulli", "mse"])
def test_it_is_w_times_the_loss_with_all_other_weights_divided_by_w(name, others, likelihood):
    x, options = rows(), {"likelihood": likelihood}
    weighted, slopes = loss_and_gradients(
        tiny(name, reconstruction_weight=WEIGHT, **options, **others), x
    )
    divided = {key: value / WEIGHT for key, value in others.items()}
    plain, expected = loss_and_gradients(tiny(name, **options, **divided), x)
    assert weighted.total.item() == pytest.approx(WEIGHT * plain.total.item())
    for one, two in zip(slopes, expected, strict=True):
        assert torch.allclose(one, WEIGHT * two, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_recipes_without_a_weight_are_those_of_before(name):
    if name not in DECODING:
        with pytest.raises(ConfigError, match="no option 'reconstruction_weight'"):
            tiny(name, reconstruction_weight=2)
        assert "reconstruction_weight" not in zs.models.numbers_of_objective(name)
        return
    plain, one, two = tiny(name), tiny(name, reconstruction_weight=1), tiny(
        name, reconstruction_weight="2"
    )  # fmt: skip
    assert plain.recipe == one.recipe
    assert "reconstruction_weight" not in plain.recipe["options"]
    assert two.recipe["options"] == {**plain.recipe["options"], "reconstruction_weight": 2.0}
    assert zs.models.from_recipe(two.recipe).numbers["reconstruction_weight"] == 2
    assert "reconstruction_weight" in zs.models.numbers_of_objective(name)


@pytest.mark.parametrize("weight", [0, -1, "much", math.inf])
def test_a_weight_is_a_positive_number(weight):
    with pytest.raises(ConfigError, match="expected a positive number"):
        tiny("vae", reconstruction_weight=weight)


def test_the_variances_predicted_from_a_decoder_take_it_into_account():
    """The optimum of w NLL + β KL is that of NLL + β/w KL."""
    for likelihood in ("bernoulli", "mse"):
        weighted, divided, plain = (
            tiny("beta-vae", likelihood=likelihood, **options).double()
            for options in ({"beta": 4, "reconstruction_weight": 8}, {"beta": 0.5}, {"beta": 4})
        )
        assert weighted.divergence_weight == divided.divergence_weight == 0.5
        posterior = plain.encode(rows())
        variances = [predicted_variance(m, posterior) for m in (weighted, divided, plain)]
        assert torch.equal(variances[0].variance, variances[1].variance)
        assert variances[0].beta == 0.5
        assert (variances[0].variance < variances[2].variance).all()
    assert tiny("vae", reconstruction_weight=4).divergence_weight == 0.25
    assert tiny("beta-tcvae", reconstruction_weight=4).divergence_weight is None


def test_with_linear_networks_it_decides_which_latents_are_used():
    """A direction of variance v is used if v > βγ/w: with γ = 1/2, β = 1 and w = 1 those of
    variance 4 and 1, with w = 4 that of 1/4 too (closed form of a linear VAE)."""
    spreads = torch.tensor([2.0, 1.0, 0.5])
    x = spreads * torch.randn(512, 3, generator=seeded(0))
    options = {"backbone": "linear", "likelihood": "mse"}

    def build(seed):
        weight = (1, 4)[seed]
        return zs.models.build(
            "vae", shape=(3,), latents=3, reconstruction_weight=weight, **options
        )

    runs = zs.train_ensemble(
        build, x.numpy(), seeds=[0, 1], steps=500, batch=128, rate=3e-2, schedule="cosine"
    )
    used = [int((run.model.encode(x).kl().mean(0) > 0.02).sum()) for run in runs]
    assert used == [2, 3]


def test_an_objective_without_such_a_term_is_refused():
    model = tiny("ae", reconstruction_weight=2).double()
    model.objective = lambda batch: Losses(batch.reconstruction, {"error": batch.reconstruction})
    with pytest.raises(InterfaceError, match="no term called reconstruction, only error"):
        model.losses(rows())


def test_a_ladder_has_a_weight_of_the_divergence():
    x = rows()
    plain = tiny("vlae-2")
    assert "beta" not in plain.recipe["options"]
    assert plain.divergence_weight == 1
    assert tiny("vlae-2", beta=1).recipe == plain.recipe
    given = tiny("vlae-2", beta=0.25)
    assert given.recipe["options"]["beta"] == 0.25
    assert given.divergence_weight == 0.25
    assert zs.models.from_recipe(given.recipe).divergence_weight == 0.25
    losses, whole = (loss_and_gradients(model, x)[0] for model in (given, plain))
    terms = losses.terms
    assert losses.total.item() == pytest.approx(
        (terms["reconstruction"] + 0.25 * terms["divergence"]).item()
    )
    # Without one it is the VAE with a ladder.
    vae, _ = loss_and_gradients(tiny("vae", decoder="ladder", variables=2), x)
    assert torch.equal(vae.total, whole.total)

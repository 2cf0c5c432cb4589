"""AE, VAE and β-VAE: what they minimise, what they promise, what they refuse."""

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

import zscope as zs
from zscope.errors import ConfigError, DataError, ResourceError
from zscope.models.beta_vae import beta_vae
from zscope.models.composed import Composed
from zscope.models.networks import BACKBONES
from zscope.models.objectives import LIKELIHOODS, Bernoulli, bernoulli_nll
from zscope.randomness import Shapes, Tape

NAMES = ["ae", "vae", "beta-vae"]


def pictures(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def small(name, **options):
    if options.get("backbone") == "spatial":
        return zs.models.build(name, shape=(1, 8, 8), channels=1, filters=16, **options)
    return zs.models.build(name, shape=(1, 8, 8), latents=3, **options)


class Lost(nn.Module):
    """A model's total loss as a module's forward, for functional_call."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, noise):
        return self.model.losses(x, Tape([noise])).total


# The catalogue.


def test_every_name_builds_and_describes_itself():
    assert zs.models.names()[:3] == NAMES
    for name in zs.models.names():
        known = zs.models.entry(name)
        assert known.name == name
        assert known.title
        assert known.formula
        assert known.paper
        assert known.title.split(":")[0] in known.summary
        spatial = name == "spatial-vae"  # which fixes the backbone, and so the number of latents
        own = {"channels", "seed"} if spatial else {"backbone", "seed", "hidden"}
        assert own <= set(known.options)
        assert ("likelihood" in known.options) == known.decodes
        assert all(option.help for option in known.options.values())
        options = {"auxiliary": 2} if name == "ivae" else {}
        options |= {"channels": 1} if spatial else {"latents": 4, "backbone": "mlp"}
        model = zs.models.build(name, shape=(1, 8, 8), **options)
        assert isinstance(model, zs.Autoencoder)
        expected = 1 * 4 * 4 if spatial else 4
        assert (model.latents, model.observation_shape) == (expected, (1, 8, 8))
    assert zs.models.entry("beta-vae").options["beta"].default == 4
    assert "beta" not in zs.models.entry("vae").options


def test_only_the_variational_models_have_a_prior():
    assert [small(name).prior for name in NAMES] == [None, "normal", "normal"]
    assert [small(name).encode(pictures(2, 1, 8, 8)).deterministic for name in NAMES] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_recipe_survives_json_and_makes_the_same_model(backbone):
    model = small("beta-vae", backbone=backbone, seed=7, weights="xavier")
    recipe = json.loads(json.dumps(model.recipe))
    assert recipe == model.recipe
    again = zs.models.from_recipe(recipe)
    assert again.recipe == model.recipe
    assert type(again) is type(model)
    one, two = model.state_dict(), again.state_dict()
    assert list(one) == list(two)
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_recipe_holds_every_option_in_force():
    model = zs.models.build("beta-vae", shape=(5,), latents=2, hidden=(8,), beta=2)
    assert model.recipe == {
        "name": "beta-vae",
        "shape": [5],
        "latents": 2,
        "options": {
            "beta": 2.0,
            "backbone": "mlp",
            "likelihood": "mse",
            "weights": "torch",
            "seed": 0,
            "hidden": [8],
            "activation": "relu",
            "decoder_hidden": None,
            "decoder_activation": None,
        },
    }
    assert small("vae", backbone="responses").recipe["options"]["activation"] == "elu"
    assert small("vae", likelihood="gaussian").recipe["options"]["gamma"] == 1.0


def test_changing_a_recipe_does_not_change_the_defaults():
    small("vae").recipe["options"]["hidden"].append(9)
    assert small("vae").recipe["options"]["hidden"] == [256, 256]


def test_options_may_come_as_text_from_a_command_line():
    text = {"hidden": "8,6", "beta": "2.5", "seed": "3", "gamma": "0.1", "likelihood": "gaussian"}
    given = {"hidden": (8, 6), "beta": 2.5, "seed": 3, "gamma": 0.1, "likelihood": "gaussian"}
    one, two = (
        zs.models.build("beta-vae", shape=(5,), latents=2, **options) for options in (text, given)
    )
    assert one.recipe == two.recipe


# What is minimised.


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_beta_one_is_the_vae(likelihood):
    x = pictures(6, 1, 8, 8)
    vae = small("vae", likelihood=likelihood).losses(x, seeded())
    one = small("beta-vae", beta=1, likelihood=likelihood).losses(x, seeded())
    four = small("beta-vae", likelihood=likelihood).losses(x, seeded())
    assert one.total.item() == vae.total.item()
    assert set(one.terms) == {"reconstruction", "divergence"}
    assert one.terms == vae.terms
    reconstruction, divergence = one.terms["reconstruction"], one.terms["divergence"]
    assert four.total.item() == pytest.approx((reconstruction + 4 * divergence).item(), rel=1e-6)
    assert four.total.item() > one.total.item()


def test_the_vae_pays_for_reconstruction_of_a_draw_and_for_divergence():
    """The loss written out from the definition, for a network done by hand."""
    model, x = small("vae", backbone="linear").double(), pictures(6, 1, 8, 8).double()
    noise = torch.randn(6, 3, generator=seeded(), dtype=torch.float64)
    head, last = model.encoder.head, model.decoder.layers[0]
    output = x.flatten(1) @ head.weight.T + head.bias
    mean, variance = output[:, :3], output[:, 3:].exp()
    logits = (mean + variance.sqrt() * noise) @ last.weight.T + last.bias
    chance = torch.sigmoid(logits)
    pixels = x.flatten(1)
    reconstruction = -(pixels * chance.log() + (1 - pixels) * (1 - chance).log()).sum(1)
    divergence = 0.5 * (mean.square() + variance - 1 - variance.log()).sum(1)
    losses = model.losses(x, Tape([noise]))
    assert losses.terms["reconstruction"].item() == pytest.approx(reconstruction.mean().item())
    assert losses.terms["divergence"].item() == pytest.approx(divergence.mean().item())
    assert losses.total.item() == pytest.approx((reconstruction + divergence).mean().item())
    assert torch.equal(losses.posterior.mean, model.encode(x).mean)


def test_the_autoencoder_pays_for_reconstruction_alone_and_draws_nothing():
    model, x = small("ae"), pictures(6, 1, 8, 8)
    losses = model.losses(x, Tape([]))
    logits = torch.logit(model.decode(model.encode(x).mean).double())
    expected = bernoulli_nll(logits, x.double()).mean().item()
    assert losses.total.item() == pytest.approx(expected, rel=1e-5)
    assert list(losses.terms) == ["reconstruction"]
    assert losses.posterior is None


@pytest.mark.parametrize("name", NAMES)
def test_losses_do_not_depend_on_the_size_of_the_batch(name):
    model, x = small(name).double(), pictures(4, 1, 8, 8).double()
    noise = torch.randn(4, 3, generator=seeded(), dtype=torch.float64)
    once = model.losses(x, Tape([noise])).total.item()
    thrice = model.losses(x.repeat(3, 1, 1, 1), Tape([noise.repeat(3, 1)])).total.item()
    assert thrice == pytest.approx(once, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_generator_decides_the_noise(name):
    model, x = small(name), pictures(4, 1, 8, 8)
    one, same, other = (model.losses(x, seeded(seed)).total.item() for seed in (1, 1, 2))
    assert one == same
    assert (one != other) == (name != "ae")


def test_the_draws_are_announced_for_an_ensemble():
    shapes = Shapes()
    small("vae").losses(pictures(4, 1, 8, 8), shapes)
    assert [tuple(draw.shape) for draw in shapes.draws] == [(4, 3)]


def test_decoding_gives_the_mean_and_not_the_logits():
    z = 10 * torch.randn(50, 3, generator=seeded())
    model = small("vae")
    assert torch.equal(model.decode(z), model.decoder(z).sigmoid())
    plain = small("vae", likelihood="mse")
    assert torch.equal(plain.decode(z), plain.decoder(z))


# Derivatives.


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_agree_with_finite_differences(name, likelihood):
    options = {"gamma": "learned"} if likelihood == "gaussian" else {}
    model = zs.models.build(
        name,
        shape=(3,),
        latents=2,
        hidden=(4,),
        activation="tanh",
        likelihood=likelihood,
        **options,
    ).double()
    x = pictures(5, 3).double()
    noise = torch.randn(5, 2, generator=seeded(), dtype=torch.float64)
    lost = Lost(model)
    keys, values = zip(*lost.named_parameters(), strict=True)

    def total(*parameters):
        return functional_call(lost, dict(zip(keys, parameters, strict=True)), (x, noise))

    assert torch.autograd.gradcheck(total, values)
    assert ("model.likelihood.log_gamma" in keys) == (likelihood == "gaussian")


# Batch norm, in the backbone `consistency`, keeps statistics, which cannot be stacked.
@pytest.mark.parametrize(
    ("name", "backbone"),
    [*(("vae", backbone) for backbone in BACKBONES if backbone != "consistency"),
     *((name, "mlp") for name in NAMES if name != "vae")],
)  # fmt: skip
def test_stacked_models_lose_and_learn_as_they_do_alone(name, backbone):
    lost = [Lost(small(name, backbone=backbone, seed=seed)).double() for seed in range(2)]
    x = pictures(2, 4, 1, 8, 8).double()
    noise = torch.randn(2, 4, lost[0].model.latents, generator=seeded(), dtype=torch.float64)
    parameters, _ = stack_module_state(lost)

    def total(values, observed, drawn):
        return functional_call(lost[0], values, (observed, drawn))

    together = vmap(total)(parameters, x, noise)
    slopes = vmap(grad(total))(parameters, x, noise)
    for i, one in enumerate(lost):
        alone = one(x[i], noise[i])
        assert together[i].item() == pytest.approx(alone.item(), rel=1e-12)
        alone.backward()
        for key, parameter in one.named_parameters():
            assert torch.allclose(slopes[key][i], parameter.grad, rtol=1e-8, atol=1e-10)


def test_a_decoder_has_jacobians_in_forward_mode():
    for backbone in BACKBONES:
        model = small("vae", backbone=backbone).double().eval()
        z = torch.randn(model.latents, generator=seeded(), dtype=torch.float64)

        def decoded(code, model=model):
            return model.decode(code[None])[0]

        jacobian = torch.func.jacfwd(decoded)(z)
        step = 1e-6 * torch.eye(model.latents, dtype=torch.float64)
        rise = torch.stack([(decoded(z + e) - decoded(z - e)) / 2e-6 for e in step], dim=-1)
        assert torch.allclose(jacobian, rise, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_a_few_steps_of_training_lower_the_loss(name):
    model = small(name, backbone="mlp")
    x = (pictures(64, 1, 8, 8) < pictures(64, 1, 1, 1, seed=1)).float()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator, seen = seeded(), []
    for _ in range(60):
        losses = model.losses(x, generator)
        optimiser.zero_grad()
        losses.total.backward()
        optimiser.step()
        seen.append(losses.total.item())
    assert seen[0] == pytest.approx(64 * math.log(2), rel=0.05)
    assert sum(seen[-5:]) / 5 < 0.95 * seen[0]


def test_networks_come_from_outside():
    """A model takes any two modules and a likelihood, here the user's own."""
    with torch.random.fork_rng(devices=[]):
        encoder, decoder = nn.Linear(5, 4), nn.Linear(2, 5)
    model = Composed(
        encoder,
        decoder,
        shape=(5,),
        latents=2,
        likelihood=Bernoulli(),
        objective=partial(beta_vae, beta=3.0),
    )
    x = pictures(7, 5)
    losses = model.losses(x, seeded())
    assert model.recipe is None
    assert losses.total.item() == pytest.approx(
        (losses.terms["reconstruction"] + 3 * losses.terms["divergence"]).item()
    )


def test_mixed_precision_keeps_the_losses_whole():
    model, x = small("vae"), pictures(4, 1, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = model.losses(x, seeded())
    assert losses.total.dtype == losses.posterior.mean.dtype == torch.float32
    assert losses.total.item() == pytest.approx(model.losses(x, seeded()).total.item(), rel=0.01)


# What is refused.


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("beta_vea", {}, r"no model is called 'beta_vea'.*Did you mean beta-vae.*models list"),
        ("vae", {"beta": 2}, r"vae has no option 'beta'"),
        ("vae", {"hiden": (3,)}, r"no option 'hiden'. Did you mean hidden"),
        (
            "vae",
            {"shape": (1, 32, 32), "hidden": (3,)},
            r"hidden=\(3,\) has no effect with backbone='locatello' \(the",
        ),
        ("vae", {"gamma": 2}, r"gamma=2 has no effect.*choose likelihood=gaussian"),
        (
            "vae",
            {"shape": (1, 32, 32), "kernels": (3, 3, 3, 3)},
            r"expected \(4, 4, 4, 4\) or \(4, 4, 2, 2\)",
        ),
        ("vae", {"backbone": "resnet"}, r"backbone='resnet'; expected one of mlp, .*consistency"),
        ("vae", {"likelihood": "gaussian", "gamma": 0}, r"gamma=0; expected a positive number or"),
        ("vae", {"seed": -1}, r"seed=-1; expected a whole number, at least 0"),
        ("vae", {"seed": 1.5}, r"seed=1.5; expected a whole number"),
        ("beta-vae", {"beta": "much"}, r"beta='much'; expected a number that is 0 or more"),
        ("beta-vae", {"beta": math.nan}, r"beta=nan; expected a number that is 0 or more"),
        ("beta-vae", {"beta": True}, r"beta=True; expected a number that is 0 or more"),
        ("vae", {"latents": 0}, r"latents=0; expected a whole number, at least 1"),
        ("vae", {"shape": (28, 28)}, r"shape=\(28, 28\); expected.*without the batch.*data.shape"),
        ("vae", {"shape": (1, 0, 8)}, r"shape=\(1, 0, 8\); expected"),
        ("vae", {"shape": (3,), "backbone": "locatello"}, r"needs pictures.*backbone='mlp'"),
        ("vae", {"shape": (1, 7, 9), "backbone": "responses"}, r"at least 8 x 8.*\(1, 7, 9\)"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_way_forward(name, options, message):
    options = {"shape": (1, 8, 8), "latents": 3, **options}
    with pytest.raises(ConfigError, match=message):
        zs.models.build(name, **options)


def test_an_incomplete_recipe_is_refused():
    with pytest.raises(ConfigError, match=r"the recipe lacks latents, shape; it has name"):
        zs.models.from_recipe({"name": "vae"})


@pytest.mark.parametrize("name", NAMES)
def test_unscaled_pictures_are_refused_once_asked(name):
    with pytest.raises(DataError, match="Divide bytes by 255"):
        small(name).check_observations(255 * pictures(4, 1, 8, 8))
    small(name).check_observations(pictures(4, 1, 8, 8))
    small(name, likelihood="mse").check_observations(255 * pictures(4, 1, 8, 8))


def test_whole_numbers_are_read_to_the_last_digit_and_from_numpy():
    large = 2**53 + 1  # no float has this value
    for given in (large, np.int64(large), str(large)):
        assert small("vae", seed=given).recipe["options"]["seed"] == large
    options = {"beta": np.float32(3), "hidden": np.array([4, 5])}
    model = zs.models.build("beta-vae", shape=(4,), latents=2, **options)
    written = json.loads(json.dumps(model.recipe))["options"]
    assert (written["beta"], written["hidden"]) == (3, [4, 5])


@pytest.mark.parametrize("latents", [2**31, 10**400, True, 0, -1])
def test_numbers_of_latents_that_cannot_be_are_refused(latents):
    with pytest.raises(ConfigError, match="latents=.*whole number"):
        zs.models.build("vae", shape=(4,), latents=latents)


def test_a_seed_that_would_stand_for_another_is_refused():
    with pytest.raises(ConfigError, match="seed=.*at most"):
        small("vae", seed=2**64)


def test_a_model_that_no_memory_holds_is_refused_with_its_size():
    with pytest.raises(ResourceError, match="latents=2000000000 .* weights. needs .* TB of memory"):
        zs.models.build("vae", shape=(4,), latents=2_000_000_000, hidden=1_000_000)


def test_arguments_are_no_options_of_a_recipe():
    recipe = small("vae").recipe
    with pytest.raises(ConfigError, match="latents is not an option of a model; it is a setting"):
        zs.models.from_recipe({**recipe, "options": {**recipe["options"], "latents": 3}})

"""What all models of the catalogue have in common: recipes, gradients, stacking, names."""

import json

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from worlds import seeded

import zscope as zs
from zscope.errors import ConfigError
from zscope.models import consistency
from zscope.models.naming import parse
from zscope.models.objectives import LIKELIHOODS
from zscope.randomness import Shapes, Tape, normal

NAMES = zs.models.names()


def tiny(name, shape=(3,), latents=2, **options):
    """A small smooth model: tanh, few units."""
    if name == "spatial-vae":
        usual = {"activation": "tanh", "channels": 2, "filters": 16}
        return zs.models.build(name, shape=(1, 8, 8), **{**usual, **options})
    usual = {"hidden": (4,), "activation": "tanh", "backbone": "mlp"}
    if name == "factor-vae":
        usual["discriminator"] = (5, 5)
    if name == "ivae":
        usual["auxiliary"] = [[0.0, 2.0]]
    return zs.models.build(name, shape=shape, latents=latents, **{**usual, **options})


def extras(model, x, seed=7):
    """What training would hand over."""
    generator, found = seeded(seed), {}
    if "step" in model.needs:
        found["step"] = 5
    if "samples" in model.needs:
        found["samples"] = 100
    if "factors" in model.needs:
        found["factors"] = torch.randint(2, (len(x), 1), generator=generator).to(x)
    if "partner" in model.needs:
        found["partner"] = torch.rand(x.shape, generator=generator, dtype=x.dtype)
    return found


def rows(count=5, features=3, seed=0):
    return torch.rand(count, features, generator=seeded(seed), dtype=torch.float64)


def observed(model, count=5, seed=0):
    """Observations of the shape that the model takes."""
    return torch.rand(count, *model.observation_shape, generator=seeded(seed), dtype=torch.float64)


class Lost(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, generator, given, part="total"):
        return getattr(self.model.losses(x, generator, **given), part)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_survives_json_and_makes_the_same_model(name):
    model = tiny(name, seed=7, weights="xavier")
    recipe = json.loads(json.dumps(model.recipe))
    assert recipe == model.recipe
    again = zs.models.from_recipe(recipe)
    assert again.recipe == model.recipe
    one, two = model.state_dict(), again.state_dict()
    assert list(one) == list(two)
    assert all(torch.equal(one[key], two[key]) for key in one)


# AVAE holds what it decoded fixed, so finite differences need a loss of their own: see there.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "avae"])
def test_gradients_agree_with_finite_differences(name, monkeypatch):
    model = tiny(name).double()
    x = observed(model)
    with torch.no_grad():  # structural decoders start where some slopes are exactly 0
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=seeded(3)).double()
    lost, given = Lost(model), extras(model, x)
    if model.penalty is not None:
        # Latent vectors and values are samples, without gradients: hold them still.
        class Keeping:
            seen = None

        def kept(batch, *counts, draw=consistency.draw):
            Keeping.seen = Keeping.seen or draw(batch, *counts)
            return Keeping.seen

        monkeypatch.setattr(consistency, "draw", kept)
    rival = {id(p) for r in model.rivals.values() for p in r.module.parameters()}
    named = dict(lost.named_parameters())
    for part in ("total", "opponent") if model.rivals else ("total",):
        own = {
            key: value
            for key, value in named.items()
            if (id(value) in rival) == (part == "opponent")
        }

        def value(*parameters, own=own, part=part):
            given_ones = dict(zip(own, parameters, strict=True))
            return functional_call(lost, given_ones, (x, seeded(1), given, part))

        # In random directions: some networks have thousands of weights.
        assert torch.autograd.gradcheck(value, tuple(own.values()), fast_mode=True)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_every_objective_goes_with_every_likelihood(likelihood):
    x = rows()
    for name in (*zs.models.CATALOGUE, "adaae-2", "vlae-2", "xcsae-2-i", "xcvae-e"):
        if not zs.models.entry(name).decodes:
            continue
        model = tiny(name, likelihood=likelihood).double()
        losses = model.losses(x, seeded(1), **extras(model, x))
        assert losses.total.isfinite()
        decoded = model.decode(torch.zeros(2, 2).double())
        assert decoded.shape == (2, 3)
        assert likelihood != "bernoulli" or (decoded - 0.5).abs().max() <= 0.5


@pytest.mark.parametrize("backbone", ["locatello", "responses", "structural", "consistency"])
def test_every_kind_of_model_goes_with_every_convolutional_backbone(backbone):
    x = torch.rand(3, 1, 16, 16, generator=seeded(0))
    few = {"filters": 8, "depth": 2} if backbone in ("structural", "consistency") else {}
    for name in ("factor-vae", "ivae", "pcl", "classifier", "sae-2", "vlae-2", "xcsae-2-e"):
        options = few | ({"auxiliary": [[0.0, 2.0]]} if name == "ivae" else {})
        model = zs.models.build(name, shape=(1, 16, 16), latents=2, backbone=backbone, **options)
        given = extras(model, x)
        losses = model.losses(x, seeded(1), **given)
        losses.whole.backward()
        assert losses.total.isfinite()
        missing = [key for key, p in model.named_parameters() if p.grad is None]
        assert not missing


@pytest.mark.parametrize("name", NAMES)
def test_stacked_models_lose_as_they_do_alone(name):
    models = [tiny(name, seed=seed).double() for seed in range(2)]
    x = torch.stack([observed(models[0], seed=1), observed(models[0], seed=2)])
    given = [
        extras(model, each, seed=9 + n)
        for n, (model, each) in enumerate(zip(models, x, strict=True))
    ]
    numbers = {k: v for k, v in given[0].items() if not isinstance(v, torch.Tensor)}
    tensors = {k: torch.stack([g[k] for g in given]) for k in given[0] if k not in numbers}
    shapes = Shapes()
    models[0].losses(x[0], shapes, **given[0])
    draws = [
        torch.stack([normal(like, seeded(11 * member + place)) for member in range(2)])
        for place, like in enumerate(shapes.draws)
    ]
    lost = [Lost(model) for model in models]
    parameters, buffers = stack_module_state(lost)

    def total(own, constants, observed, drawn, told):
        inputs = (observed, Tape(list(drawn)), {**told, **numbers}, "whole")
        return functional_call(lost[0], (own, constants), inputs)

    together = vmap(total)(parameters, buffers, x, draws, tensors)
    for member, model in enumerate(models):
        tape = Tape([draw[member] for draw in draws])
        alone = model.losses(x[member], tape, **given[member]).whole
        assert together[member].item() == pytest.approx(alone.item(), rel=1e-10)


# Objectives that compare the rows of a batch with each other depend on which they are.
@pytest.mark.parametrize("name", ["annealed-vae", "avae", "ivae", "beta-vae-full", "slow-vae"])
def test_losses_do_not_depend_on_the_size_of_the_batch(name):
    model, x = tiny(name).double(), rows()
    given = extras(model, x)
    shapes = Shapes()
    model.losses(x, shapes, **given)
    draws = [normal(like, seeded(n)) for n, like in enumerate(shapes.draws)]
    once = model.losses(x, Tape(list(draws)), **given).total.item()
    halves = [draw.chunk(len(draw) // 5) for draw in draws]  # pairs are drawn for as one batch
    twice = [torch.cat([part for part in parts for _ in range(2)]) for parts in halves]
    more = {k: torch.cat([v, v]) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    again = model.losses(torch.cat([x, x]), Tape(twice), **more).total.item()
    assert again == pytest.approx(once, rel=1e-12)


def test_what_is_drawn_is_decided_by_the_generator():
    for name in NAMES:
        model = tiny(name)
        x = observed(model).float()
        given = extras(model, x)
        one, same = (model.losses(x, seeded(1), **given).whole.item() for _ in range(2))
        assert one == same


# Names.


@pytest.mark.parametrize(
    ("name", "objective", "parts"),
    [
        ("sae-4", "ae", {"decoder": "structural", "variables": 4}),
        ("adaae-12", "ae", {"decoder": "adaptive", "variables": 12}),
        ("vlae-3", "vae", {"decoder": "ladder", "variables": 3}),
        ("xae", "ae", {"block": "causal"}),
        ("xvae", "vae", {"block": "causal"}),
        ("cae-i", "ae", {"consistency": "invariance"}),
        ("cvae-e", "vae", {"consistency": "equivariance"}),
        ("xcae-i", "ae", {"block": "causal", "consistency": "invariance"}),
        (
            "xcsae-4-e",
            "ae",
            {
                "decoder": "structural",
                "variables": 4,
                "block": "causal",
                "consistency": "equivariance",
            },
        ),
    ],
)
def test_names_are_read_as_parts(name, objective, parts):
    found = parse(name)
    assert (found.objective, found.parts) == (objective, parts)
    known = zs.models.entry(name)
    assert not set(parts) & set(known.options)
    assert ("λ L_" in known.formula) == ("consistency" in parts)


@pytest.mark.parametrize(
    "name", ["ae", "cae", "ae-i", "xcae", "xvlae-2", "vlae-2-i", "sae", "sae-x", "xxae", "cxae-i"]
)
def test_other_names_are_not_read_so(name):
    assert parse(name) is None


def test_a_name_and_its_options_make_the_same_model():
    by_name = tiny("xcsae-2-i")
    by_option = tiny(
        "ae", decoder="structural", variables=2, block="causal", consistency="invariance"
    )
    x = rows().float()
    assert (
        by_name.losses(x, seeded(1), step=2).total == by_option.losses(x, seeded(1), step=2).total
    )
    assert by_option.recipe["options"]["decoder"] == "structural"
    assert "decoder" not in by_name.recipe["options"]


def test_any_objective_may_have_the_parts():
    x = rows().float()
    for name in ("beta-tcvae", "wae", "factor-vae", "dip-vae-ii"):
        model = tiny(
            name, decoder="adaptive", variables=2, block="causal", consistency="equivariance"
        )
        losses = model.losses(x, seeded(1), **extras(model, x))
        assert "equivariance" in losses.terms
        assert model.causes(torch.zeros(2, 2)).shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sae4", {}, r"no model is called 'sae4'. Did you mean sae-2"),
        ("cae", {}, r"no model is called 'cae'. Did you mean .*cae-i"),
        ("sae-0", {}, r"0 variables. Use at least 1"),
        ("sae-3", {}, r"2 latents cannot be split evenly into 3 variables.*latents=3"),
        ("sae-2", {"backbone": "linear"}, r"between its hidden layers.*linear has none"),
        ("sae-2", {"decoder": "hourglass"}, r"sae-2 has no option 'decoder'"),
        ("sae-2", {"decoder_hidden": (4,)}, r"mlp has 1 for this shape. Use 2 sizes in decoder_h"),
        ("ae", {"decoder": "structural"}, r"needs variables="),
        ("ae", {"variables": 2}, r"variables=2 has no effect with decoder='hourglass'"),
        ("ae", {"unit": 2}, r"unit=2 has no effect with block='none'.*choose block=causal"),
        ("ae", {"vectors": 2}, r"vectors=2 has no effect.*invariance or equivariance"),
        ("vae", {"posterior": "point"}, r"divergence of a deterministic code.*infinite"),
        ("ae", {"posterior": "gaussian"}, r"keeps the posterior variance from shrinking"),
        ("beta-tcvae", {"posterior": "full"}, r"the density of each latent alone"),
        ("vlae-2", {"posterior": "full"}, r"every rung has a posterior of its own"),
        ("pcl", {"block": "causal"}, r"pcl has no option 'block'"),
        ("vae", {"depth": 4}, r"depth=4 has no effect with backbone='mlp'.*structural or consist"),
        ("factor-vae", {"discriminator": "big"}, r"expected sizes of layers"),
    ],
)
def test_unfit_combinations_are_refused_with_the_reason(name, options, message):
    with pytest.raises(ConfigError, match=message):
        zs.models.build(name, shape=(3,), latents=2, **{"backbone": "mlp", **options})


def test_too_few_blocks_are_refused_with_a_way_forward():
    def build(name, **options):
        return zs.models.build(name, shape=(1, 16, 16), latents=12, **options)

    assert len(build("sae-12").decoder.stages) == 12
    with pytest.raises(ConfigError, match="locatello has 3 for this shape. Use backbone='structur"):
        build("sae-4", backbone="locatello")
    with pytest.raises(ConfigError, match="Use depth=6"):
        build("sae-6", backbone="structural", depth=3)
    with pytest.raises(ConfigError, match="filters=12; expected a multiple of 8"):
        build("sae-6", filters=12)
    assert build("sae-6", backbone="consistency", filters=12).decoder.start.value.shape[0] == 12
    # The last convolution is a block too: the published SAEs have as many variables as blocks.
    assert len(build("sae-12", backbone="consistency").decoder.stages) == 12

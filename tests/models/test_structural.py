"""Structural decoders: which latent can touch what, and where they start."""

import pytest
import torch
from worlds import seeded

import zscope as zs
from zscope.errors import ConfigError
from zscope.models.layers import initialise
from zscope.models.structural import Transform, split_evenly

SHAPES = [(1, 16, 16), (5,)]


def weights(module):
    return sum(parameter.numel() for parameter in module.parameters())


def build(name, shape=(1, 16, 16), latents=6, stirred=True, **options):
    """A small model whose transforms are no longer the identity, unless it is to be fresh."""
    options = {"filters": 8, "depth": 3, **options} if len(shape) == 3 else options
    model = zs.models.build(name, shape=shape, latents=latents, **options).double()
    if stirred:
        for transform in model.decoder.transforms:
            last = transform.layers[-1]
            torch.nn.init.normal_(last.weight, std=0.1, generator=seeded(3))
            torch.nn.init.normal_(last.bias, std=0.1, generator=seeded(4))
    return model


def codes(count=4, latents=6, seed=0):
    return torch.randn(count, latents, generator=seeded(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["sae-3", "adaae-3"])
def test_at_the_start_every_transform_is_the_identity(name, shape):
    model = build(name, shape, stirred=False)
    features = model.decoder.start(4)
    for transform in model.decoder.transforms:
        seen = model.latents if name == "adaae-3" else 2
        found = transform(features, 100 * codes(latents=seen))
        assert torch.equal(found, features)
    decoded = model.decode(100 * codes())
    assert torch.equal(decoded, decoded[:1].expand_as(decoded))


def test_with_zero_biases_alone_the_start_would_depend_on_the_latents():
    """Negative control: what the paper prints is not the identity."""
    model = build("sae-3", stirred=False)
    for transform in model.decoder.transforms:
        torch.nn.init.kaiming_uniform_(transform.layers[-1].weight, generator=seeded(0))
    decoded = model.decode(codes())
    assert not torch.allclose(decoded, decoded[:1].expand_as(decoded))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["sae-3", "vlae-3"])
def test_a_variable_leaves_all_earlier_states_untouched(name, shape):
    model = build(name, shape)
    z = codes()
    before = model.decoder.states(z)
    for variable, group in enumerate(model.groups):
        changed = z.clone()
        changed[:, group] += 1
        after = model.decoder.states(changed)
        for state in range(3):
            same = torch.equal(before[state], after[state])
            assert same == (state < variable)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_an_adaptive_decoder_every_latent_touches_every_state(shape):
    model = build("adaae-3", shape)
    z = codes()
    before = model.decoder.states(z)
    for latent in range(6):
        changed = z.clone()
        changed[:, latent] += 1
        after = model.decoder.states(changed)
        assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_transform_scales_and_shifts_every_pixel_alike():
    with torch.device("meta"):
        holder = torch.nn.Sequential(Transform(2, 3, [48, 48, 48], "mish"))
    initialise(holder, seed=0)
    transform = holder[0].double()
    torch.nn.init.normal_(transform.layers[-1].weight, generator=seeded(0))
    features = torch.randn(4, 3, 5, 5, generator=seeded(1), dtype=torch.float64)
    u = codes(latents=2)
    log_scale, shift = transform.layers(u).chunk(2, 1)
    found = transform(features, u)
    for sample in range(4):
        for channel in range(3):
            expected = (
                log_scale[sample, channel].exp() * features[sample, channel]
                + shift[sample, channel]
            )
            assert torch.allclose(found[sample, channel], expected)


def test_with_one_variable_and_one_latent_structural_and_adaptive_coincide():
    sae, adaae = (build(f"{kind}-1", (5,), 1) for kind in ("sae", "adaae"))
    z = codes(latents=1)
    assert torch.equal(sae.decode(z), adaae.decode(z))


def test_blocks_are_shared_out_evenly_and_in_order():
    blocks = [[torch.nn.Identity()] for _ in range(12)]
    for variables, sizes in ((3, [4, 4, 4]), (5, [2, 2, 3, 2, 3]), (12, [1] * 12)):
        runs = split_evenly(blocks, variables)
        assert [len(run) for run in runs] == sizes
        assert [block for run in runs for block in run] == blocks


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_ladder_reads_the_first_variable_from_the_whole_depth(shape):
    """The last variable is read after the first stage: later stages do not touch it."""
    model = build("vlae-3", shape)
    x = torch.rand(4, *shape, generator=seeded(0), dtype=torch.float64)
    before = model.encode(x)
    assert before.mean.shape == before.std.shape == (4, 6)
    for stage in range(3):
        changed = build("vlae-3", shape)
        with torch.no_grad():
            for parameter in changed.encoder.stages[stage].parameters():
                parameter.mul_(1.1)
        after = changed.encode(x)
        for variable, group in enumerate(model.groups):
            reads_after = 3 - variable  # stages
            touched = not torch.equal(before.mean[:, group], after.mean[:, group])
            assert touched == (stage < reads_after)
            spread = not torch.equal(before.std[:, group], after.std[:, group])
            assert spread == touched


@pytest.fixture
def counted(monkeypatch):
    """Models are built to be counted: their weights stay without memory and numbers."""
    monkeypatch.setattr("zscope.models.building.initialise", lambda model, **settings: None)


def test_small_pictures_have_the_published_number_of_weights(counted):
    """1 to 1.2 million at 64 x 64 x 3 with 12 latents, ladders the most, SAEs and AdaAEs about
    5 % fewer, an hourglass almost as many as these (section A.2)."""
    options = {"shape": (3, 64, 64), "latents": 12, "backbone": "structural"}
    hourglasses = [weights(zs.models.build(name, **options)) for name in ("ae", "vae", "wae")]
    for variables in (2, 3, 4, 6, 12):
        sae, adaae, vlae = (
            weights(zs.models.build(f"{kind}-{variables}", **options))
            for kind in ("sae", "adaae", "vlae")
        )
        for number in (sae, adaae, *hourglasses):
            assert 1_000_000 < number < vlae < 1_200_000
        assert 0.94 <= sae / vlae <= adaae / vlae <= 0.96
        for hourglass in hourglasses:
            assert 0.94 < hourglass / sae < 1.06


def test_large_pictures_have_the_published_number_of_weights(counted):
    """6 to 7 million at 128 x 128 x 3 with 32 latents."""
    options = {"shape": (3, 128, 128), "latents": 32, "backbone": "structural"}
    models = {
        name: zs.models.build(name, **options) for name in ("ae", "sae-16", "adaae-16", "vlae-16")
    }
    for name, model in models.items():
        assert 6_000_000 < weights(model) < 7_000_000, name
    assert max(models, key=lambda name: weights(models[name])) == "vlae-16"
    assert 0.94 < weights(models["sae-16"]) / weights(models["vlae-16"]) < 0.96
    assert 0.96 < weights(models["ae"]) / weights(models["sae-16"]) < 1.04
    assert len(models["sae-16"].decoder.stages) == 16
    assert models["sae-16"].decoder.start.value.shape == (128, 8, 8)


def test_the_width_of_the_transforms_is_an_option():
    narrow, wide = (build("sae-3", width=width) for width in (8, 100))
    assert weights(narrow.encoder) == weights(wide.encoder)
    assert weights(narrow.decoder) < weights(build("sae-3").decoder) < weights(wide.decoder)


def test_sizes_of_the_hidden_layers_are_an_option():
    decoder = build("sae-3", width=(10, 20)).decoder
    sizes = [layer.out_features for layer in decoder.transforms[0].layers[::2]]
    assert sizes == [10, 20, 2 * 8]
    alike = build("sae-3", width=48)
    assert weights(alike) == weights(build("sae-3", width="48,48,48")) == weights(build("sae-3"))
    assert build("sae-3", width="10,20").recipe["options"]["width"] == [10, 20]
    assert alike.recipe["options"]["width"] == 48
    with pytest.raises(ConfigError, match=r"width=\[\]; expected a size"):
        build("sae-3", width=[])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_rungs_of_a_ladder_have_sizes_of_their_own(shape):
    plain, given = build("vlae-3", shape), build("vlae-3", shape, rungs=(7, 5, 5, 5))
    assert weights(plain.decoder) == weights(given.decoder)
    linear = [layer for layer in given.encoder.rungs[0] if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in linear] == [7, 5, 5, 5, 4]
    assert "rungs" not in plain.recipe["options"]
    assert given.encode(torch.zeros(2, *shape).double()).mean.shape == (2, 6)
    with pytest.raises(ConfigError, match=r"rungs=8 has no effect with decoder='structural'"):
        build("sae-3", rungs=8)


def test_dense_layers_can_come_before_a_structural_decoder():
    """As many weights as those of an hourglass in place of the constant; now early states
    depend on late variables."""
    plain, dense, hourglass = (
        build(name, stirred=False, backbone="structural", **options)
        for name, options in (("sae-3", {}), ("sae-3", {"start": "dense"}), ("ae", {}))
    )
    head = weights(hourglass.decoder.layers[:4])
    constant = plain.decoder.start.value.numel()
    assert weights(dense) == weights(plain) - constant + head
    z = codes()
    moved = z.clone()
    moved[:, 4:] += 1
    for model, same in ((plain, True), (dense, False)):
        first, again = (model.decoder.states(each)[0] for each in (z, moved))
        assert torch.allclose(first, again) == same
    assert "start" not in plain.recipe["options"]
    assert zs.models.from_recipe(dense.recipe).recipe["options"]["start"] == "dense"
    with pytest.raises(ConfigError, match="the backbone mlp has no convolutions"):
        build("sae-3", (5,), start="dense")


def test_groups_are_the_segments_of_the_latents():
    assert build("sae-3").groups == [[0, 1], [2, 3], [4, 5]]
    assert build("vlae-3").groups == [[0, 1], [2, 3], [4, 5]]
    assert zs.models.build("vae", shape=(5,), latents=6).groups is None


def test_an_adaptive_decoder_hybridises_single_latents():
    """Section 3.1: each latent of a less structured model is a variable of its own."""
    model = build("adaae-3")
    assert model.groups is None
    store = codes(count=64)
    drawn = zs.sampling.hybrid(store, 200, groups=model.groups, generator=seeded(1))
    pairs = {tuple(row) for row in store[:, :2].tolist()}
    assert any(tuple(row) not in pairs for row in drawn[:, :2].tolist())
    kept = zs.sampling.hybrid(store, 200, groups=build("sae-3").groups, generator=seeded(1))
    assert all(tuple(row) in pairs for row in kept[:, :2].tolist())


@pytest.mark.parametrize("name", ["sae-3", "adaae-3", "vlae-3"])
def test_they_learn(name):
    generator = seeded(0)
    factors = torch.rand(256, 3, generator=generator)
    mixing = torch.randn(3, 8, generator=generator)
    rows = torch.tanh(factors @ mixing)
    model = zs.models.build(
        name, shape=(8,), latents=3, hidden=(32, 32), likelihood="gaussian", gamma=0.01
    )
    zs.train(model, rows, steps=200, batch=64, rate=3e-3)
    error = (model.decode(model.encode(rows).mean) - rows).square().sum(1).mean().item()
    assert error < 0.2 * rows.var(0).sum().item()


def test_a_mlp_gets_a_layer_for_every_variable():
    model = zs.models.build("sae-6", shape=(5,), latents=6, hidden=(8,))
    assert len(model.decoder.stages) == 6
    assert model.encoder.trunk[0].out_features == 8
    assert len(model.encoder.trunk) == 2  # the encoder stays as it was asked for

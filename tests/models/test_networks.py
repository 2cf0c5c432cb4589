"""Backbones: shapes, sizes, and where the first weights come from."""

import math

import pytest
import torch
from torch import nn

import zscope as zs
from zscope.errors import InterfaceError
from zscope.models.networks import (
    ACTIVATIONS,
    BACKBONES,
    WEIGHTS,
    GroupNorm,
    default_backbone,
    initialise,
    mlp_decoder,
    mlp_encoder,
)
from zscope.seeds import seed_of

# The sizes of maps, in the backbone `spatial`, follow from those of the pictures: test_spatial_vae.
OF_VECTORS = [name for name, backbone in BACKBONES.items() if backbone.layout is None]
SIZES = [(1, 8, 8), (2, 9, 13), (1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 96, 96), (1, 8, 31)]


def weights(module):
    return sum(parameter.numel() for parameter in module.parameters())


def pictures(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("backbone", OF_VECTORS)
def test_every_backbone_gives_back_the_shape_it_took(backbone, shape):
    model = zs.models.build("vae", shape=shape, latents=3, backbone=backbone)
    x = pictures(2, *shape)
    posterior = model.encode(x)
    assert posterior.mean.shape == posterior.std.shape == (2, 3)
    decoded = model.decode(posterior.mean)
    assert decoded.shape == x.shape
    assert 0 <= decoded.min() <= decoded.max() <= 1
    assert model.losses(x, torch.Generator().manual_seed(0)).total.isfinite()


@pytest.mark.parametrize("backbone", ["mlp", "linear"])
def test_rows_of_numbers_come_back_as_rows(backbone):
    model = zs.models.build("ae", shape=(7,), latents=3, backbone=backbone)
    assert model.decode(model.encode(torch.zeros(5, 7)).mean).shape == (5, 7)


@pytest.mark.parametrize("backbone", OF_VECTORS)
@pytest.mark.parametrize("shape", [(1, 9, 13), (2, 8, 8)], ids=str)
def test_every_pixel_is_seen_and_every_pixel_can_be_drawn(backbone, shape):
    """No row or column of an odd picture is dropped on the way in or left constant on the
    way out."""
    model = zs.models.build("vae", shape=shape, latents=4, backbone=backbone)
    x = pictures(8, *shape).requires_grad_()
    seen = torch.autograd.grad(model.encode(x).mean.square().sum(), x)[0]
    assert (seen.abs().sum(0) > 0).all()
    z = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    assert (model.decode(z).std(0) > 0).all()


def test_the_published_convolutions_have_the_published_number_of_weights():
    model = zs.models.build("vae", shape=(1, 64, 64), latents=10, backbone="locatello")
    convolutions = (1 * 32 + 32 * 32 + 32 * 64 + 64 * 64) * 16 + 32 + 32 + 64 + 64
    dense = (4 * 4 * 64 + 1) * 256
    assert weights(model.encoder) == convolutions + dense + 257 * 20
    deconvolutions = (64 * 64 + 64 * 32 + 32 * 32 + 32 * 1) * 16 + 64 + 32 + 32 + 1
    assert weights(model.decoder) == 11 * 256 + 257 * 1024 + deconvolutions
    assert weights(model) == 382_932 + 381_313


def test_smaller_kernels_are_an_option_of_the_encoder_alone():
    options = {"shape": (3, 64, 64), "latents": 10}
    model = zs.models.build("vae", **options, kernels=(4, 4, 2, 2))
    full = zs.models.build("vae", **options)
    assert weights(full.encoder) - weights(model.encoder) == (32 * 64 + 64 * 64) * 12
    assert weights(full.decoder) == weights(model.decoder)
    assert model.decode(model.encode(pictures(2, 3, 64, 64)).mean).shape == (2, 3, 64, 64)


def test_the_network_of_latent_responses_has_about_half_a_million_weights():
    options = {"shape": (3, 64, 64), "latents": 12, "backbone": "responses"}
    model = zs.models.build("vae", **options)
    encoder = 64 * (3 * 25 + 1) + 4 * 64 * (64 * 9 + 1) + 5 * 128
    encoder += (2 * 2 * 64 + 1) * 256 + 257 * 128 + 129 * 24
    assert weights(model.encoder) == encoder
    decoder = 13 * 128 + 129 * 256 + 257 * (2 * 2 * 64)
    decoder += 5 * 64 * (64 * 9 + 1) + 5 * 128 + 3 * (64 * 9 + 1)
    assert weights(model.decoder) == decoder
    assert 450_000 < weights(model) < 550_000
    printed = zs.models.build("vae", **options, layout="printed")
    assert weights(printed.encoder) == encoder
    decoder = 13 * 128 + 129 * 256 + 257 * (4 * 4 * 16)
    decoder += 64 * (16 * 9 + 1) + 3 * 64 * (64 * 9 + 1) + 4 * 128 + 3 * (64 * 9 + 1)
    assert weights(printed.decoder) == decoder
    assert printed.decode(torch.zeros(2, 12)).shape == (2, 3, 64, 64)


def test_the_network_of_latent_responses_with_24_latents():
    """547,123 weights with five blocks and the dense layers printed, 482,419 with four."""
    options = {"shape": (3, 64, 64), "latents": 24, "backbone": "responses"}
    assert weights(zs.models.build("vae", **options)) == 547_123
    assert weights(zs.models.build("vae", **options, layout="printed")) == 482_419


def test_the_network_of_latent_responses_drops_a_block_on_small_pictures():
    def count(shape, kind, **layout):
        model = zs.models.build("vae", shape=shape, latents=6, backbone="responses", **layout)
        return [
            sum(isinstance(module, kind) for module in part.modules())
            for part in (model.encoder, model.decoder)
        ]

    for shape, blocks in (((3, 64, 64), 5), ((1, 32, 32), 4), ((1, 28, 28), 4)):
        assert count(shape, nn.GroupNorm) == [blocks, blocks]
        assert count(shape, nn.GroupNorm, layout="printed") == [blocks, blocks - 1]


def test_a_fully_connected_network_of_any_shape():
    model = zs.models.build(
        "beta-vae",
        shape=(1, 64, 64),
        latents=5,
        backbone="mlp",
        hidden=(1200, 1200),
        decoder_hidden=(1200, 1200, 1200),
        decoder_activation="tanh",
    )
    assert weights(model.encoder) == 4097 * 1200 + 1201 * 1200 + 1201 * 10
    assert weights(model.decoder) == 6 * 1200 + 2 * 1201 * 1200 + 1201 * 4096
    kinds = [type(layer) for layer in model.decoder.layers]
    assert kinds.count(nn.Tanh) == 3
    assert nn.ReLU not in kinds
    assert isinstance(model.decoder.layers[-2], nn.Linear)  # logits: nothing after the last


def test_a_decoder_mirrors_the_encoder_unless_told():
    with torch.device("meta"):
        decoder = mlp_decoder((9,), 2, hidden=(60, 40, 20), activation="tanh")
    layers = [layer for layer in decoder.layers if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in layers] == [20, 40, 60, 9]


def test_a_linear_backbone_is_linear():
    model = zs.models.build("ae", shape=(2, 3, 3), latents=2, backbone="linear", likelihood="mse")
    a, b = torch.eye(2).unsqueeze(1)
    zero = model.decode(torch.zeros(1, 2))
    together = model.decode(2 * a - 3 * b) - zero
    apart = 2 * (model.decode(a) - zero) - 3 * (model.decode(b) - zero)
    assert torch.allclose(together, apart, atol=1e-6)
    assert weights(model) == 19 * 2 + 3 * 18


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_chosen_by_name(activation):
    model = zs.models.build(
        "ae", shape=(1, 8, 8), latents=2, backbone="locatello", activation=activation
    )
    assert sum(type(m) is ACTIVATIONS[activation] for m in model.modules()) == 10


@pytest.mark.parametrize(
    ("shape", "backbone"),
    [
        ((3, 64, 64), "locatello"),
        ((1, 17, 17), "locatello"),
        ((1, 16, 16), "mlp"),
        ((1, 16, 64), "mlp"),
        ((1, 8, 8), "mlp"),
        ((64,), "mlp"),
    ],
)
def test_the_default_backbone_follows_from_the_shape(shape, backbone):
    assert default_backbone(shape) == backbone
    assert zs.models.build("ae", shape=shape, latents=2).recipe["options"]["backbone"] == backbone


# Initial weights.


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_seed_decides_every_weight(backbone):
    def state(seed):
        model = zs.models.build("vae", shape=(1, 16, 16), backbone=backbone, seed=seed)
        return model.state_dict()

    one, same, other = state(1), state(1), state(2)
    assert all(torch.equal(one[key], same[key]) for key in one)
    drawn = [key for key in one if one[key].unique().numel() > 1]
    assert drawn
    assert not any(torch.equal(one[key], other[key]) for key in drawn)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_building_does_not_read_or_move_the_global_random_state(backbone):
    def state():
        return zs.models.build("vae", shape=(1, 16, 16), backbone=backbone).state_dict()

    before = torch.get_rng_state()
    one = state()
    assert torch.equal(before, torch.get_rng_state())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        two = state()
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_decoders_of_one_seed_start_alike_whatever_the_encoder_gives():
    options = {"shape": (1, 16, 16), "latents": 3, "seed": 5, "backbone": "locatello"}
    ae, vae = (zs.models.build(name, **options) for name in ("ae", "vae"))
    for one, two in zip(ae.decoder.parameters(), vae.decoder.parameters(), strict=True):
        assert torch.equal(one, two)
    assert not torch.equal(ae.decoder.layers[0].weight, ae.encoder.head.weight.T)


@pytest.mark.parametrize(
    "layer",
    [lambda: nn.Linear(7, 5), lambda: nn.Conv2d(3, 4, 5), lambda: nn.ConvTranspose2d(3, 4, 5)],
)
def test_initial_weights_are_pytorchs_own_to_the_bit(layer):
    """Another route: PyTorch's constructor, its global generator seeded like our stream."""
    with torch.device("meta"):
        ours = nn.Sequential(layer())
    initialise(ours, seed=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(3, WEIGHTS, 0))
        theirs = layer()
    assert torch.equal(ours[0].weight, theirs.weight)
    assert torch.equal(ours[0].bias, theirs.bias)


def test_xavier_weights_have_the_variance_of_the_formula_and_no_bias():
    model = zs.models.build(
        "ae", shape=(600,), latents=2, backbone="mlp", hidden=(400,), weights="xavier"
    )
    first = model.encoder.trunk[0]
    assert first.weight.abs().max().item() <= math.sqrt(6 / 1000)
    assert first.weight.var().item() == pytest.approx(2 / 1000, rel=0.02)
    assert (first.bias == 0).all()
    default = zs.models.build("ae", shape=(600,), latents=2, backbone="mlp", hidden=(400,))
    assert default.encoder.trunk[0].weight.var().item() == pytest.approx(1 / 1800, rel=0.02)


def test_norms_start_as_the_identity():
    model = zs.models.build("ae", shape=(1, 8, 8), latents=2, backbone="responses")
    norms = [module for module in model.modules() if isinstance(module, nn.GroupNorm)]
    assert norms
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in norms)


def test_kernels_lie_channels_last():
    model = zs.models.build("ae", shape=(3, 32, 32), latents=2)
    kernels = [parameter for parameter in model.parameters() if parameter.ndim == 4]
    assert len(kernels) == 8
    assert all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)


def test_a_module_that_cannot_be_initialised_is_refused():
    class Foreign(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

    with torch.device("meta"):
        foreign = nn.Sequential(Foreign())
    with pytest.raises(InterfaceError, match=r"Foreign has 1 tensors.*initialise\(generator\)"):
        initialise(foreign, seed=0)


# What is refused.


def test_observations_and_codes_of_the_wrong_shape_are_refused():
    model = zs.models.build("ae", shape=(1, 28, 28), latents=3)
    with pytest.raises(InterfaceError, match=r"\(4, 28, 28\).*batches of \(1, 28, 28\)"):
        model.encode(torch.zeros(4, 28, 28))
    with pytest.raises(InterfaceError, match=r"\(4, 5\).*3 latents"):
        model.decode(torch.zeros(4, 5))


@pytest.mark.parametrize(
    ("side", "covered"), [(8, [3, 4, 4, 3]), (9, [3, 4, 4, 4, 2])], ids=["even", "odd"]
)
def test_same_padding_is_that_of_tensorflow(side, covered):
    """Even sides get a zero at both ends, odd ones one before and two after: with all-one
    kernels on all-one pixels the output counts the pixels that each kernel covers."""
    model = zs.models.build("ae", shape=(1, side, side), latents=2, backbone="locatello")
    first = model.encoder.trunk[: 1 if side == 8 else 2]
    with torch.no_grad():
        first[-1].weight.fill_(1.0)
        first[-1].bias.fill_(0.0)
        counts = first(torch.ones(1, 1, side, side))[0, 0]
    assert torch.equal(counts, torch.outer(torch.tensor(covered), torch.tensor(covered)).float())


def test_group_norm_is_pytorchs():
    ours, theirs = GroupNorm(2, 4), nn.GroupNorm(2, 4)
    x = pictures(3, 4, 5, 5)
    assert torch.equal(ours(x), theirs(x))
    under_vmap = torch.func.vmap(ours)(x.unsqueeze(1).contiguous())[:, 0]
    assert torch.allclose(under_vmap, theirs(x), atol=1e-6)


def test_an_encoder_has_a_trunk_and_a_head():
    with torch.device("meta"):
        encoder = mlp_encoder((5,), 4, hidden=(7, 6))
        assert encoder.trunk(torch.zeros(2, 5)).shape == (2, 6)
    assert encoder.head.out_features == 4

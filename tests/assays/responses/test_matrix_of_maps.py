"""The response matrix, the conditioned one and the panel, of latents that are maps."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
from map_worlds import PatchPCA, average_pooling, box_blur, identity, power_law, space_to_depth

import zscope as zs
from zscope import assays as a
from zscope.data.dataset import from_arrays
from zscope.errors import ConfigError, Undefined


@pytest.fixture(scope="module")
def coloured():
    """40 smooth pictures of 8 x 8 with 3 colours."""
    return power_law(40, 8, 2.0, colours=3)


def recorded(model, x):
    return zs.record(model, x)


def eye(count: int):
    return torch.eye(count, dtype=torch.float64)


@pytest.mark.parametrize("alpha", [0.0, 2.0, 3.0])
@pytest.mark.parametrize("pictures", [8, 64])
def test_the_identity_has_exactly_the_identity_matrix_for_any_sample(alpha, pictures):
    found = a.response_matrix(recorded(identity(), power_law(pictures, 8, alpha, colours=3)))
    assert torch.allclose(found.relative, eye(3), atol=1e-12)
    assert (found.unit, found.unit_names) == ("channel", ("channel 0", "channel 1", "channel 2"))
    assert found.causal == [0, 1, 2]
    assert found.rule == "relative"


def test_the_standard_deviation_would_not_give_the_identity_matrix():
    """The negative control: sigma_k of the same pictures, as for vectors."""
    x = power_law(64, 8, 3.0, colours=3)
    found = a.response_matrix(recorded(identity(), x))
    sigma = x.double().var(0, correction=0).sum((1, 2)).sqrt()
    usual = found.matrix.diagonal() / (math.sqrt(2) * sigma)
    assert (usual - 1).abs().max() > 0.01


@pytest.mark.parametrize("units", ["place", "patch:2", "patch:4"])
def test_the_identity_has_the_identity_matrix_in_other_units(units):
    found = a.response_matrix(recorded(identity(), power_law(80, 8, 2.0, colours=2)), units=units)
    assert found.unit == units
    assert torch.allclose(found.relative, eye(len(found.unit_names)), atol=1e-12)


def test_lossless_models_have_the_identity_matrix(coloured):
    pictures = power_law(40, 16, 2.0)
    for model, x in (
        (average_pooling(), coloured),
        (space_to_depth(2), pictures),
        (PatchPCA(pictures, 4, 3).model(), pictures),
    ):
        found = a.response_matrix(recorded(model, x))
        count = len(found.relative)
        assert torch.allclose(found.relative, eye(count), atol=1e-5), model
        assert found.edges() == []


def test_a_blur_has_the_gain_of_its_transfer_function():
    """Responses are linear, so that M / A is the root of the share of the energy that is left."""
    x = power_law(48, 16, 1.0)
    found = a.response_matrix(recorded(box_blur(), x))
    order = recorded(box_blur(), x).picture_order
    change = x[order].roll(-1, 0) - x[order]
    left = F.conv2d(change, torch.full((1, 1, 3, 3), 1 / 9), padding=1)
    expected = math.sqrt(float(left.square().sum() / change.square().sum()))
    assert float(found.relative) == pytest.approx(expected, rel=1e-5)


def test_one_place_of_a_blur_keeps_a_ninth_of_its_energy_inside():
    """White change at one place: 1/9 of it at each of 9 places, so 1/9 of the energy is inside."""
    found = a.response_matrix(recorded(box_blur(), power_law(40, 16, 0.0)), patch=(5, 7, 1))
    assert float(found.inside) == pytest.approx(1 / 9, rel=1e-5)
    assert float(found.relative) == pytest.approx(1 / 3, rel=1e-5)  # nine places of 1/9 each
    assert found.patch == (5, 7, 1)
    assert "response inside the patch" in repr(found)


def test_a_patch_of_the_identity_keeps_everything_inside(coloured):
    found = a.response_matrix(recorded(identity(), coloured), patch=[2, 3, 4])
    assert torch.allclose(found.relative, eye(3), atol=1e-12)
    assert torch.equal(found.inside, eye(3))
    whole = a.response_matrix(recorded(identity(), coloured))
    assert (found.scale < whole.scale).all()
    assert whole.inside is None
    assert "inside" not in whole.to_dict()


def test_a_patch_of_maps_along_one_or_three_axes():
    generator = torch.Generator().manual_seed(0)
    for shape, patch in (((2, 12), (3, 4)), ((2, 4, 6, 6), (1, 2, 3, 3))):
        codes = torch.randn(20, math.prod(shape), generator=generator)
        posterior = zs.Posterior(codes, layout=zs.Layout(2, shape[1:]))
        found = a.response_matrix(identity(), posterior, patch=patch)
        assert torch.equal(found.inside, eye(2)), shape
        assert torch.allclose(found.relative, eye(2), atol=1e-12)


def mixing(matrix, shift=None):
    """A model whose response mixes the channels at each place."""
    shift = torch.zeros(len(matrix)) if shift is None else shift
    return zs.wrap(
        lambda x: torch.einsum("jk,nkhw->njhw", matrix, x) + shift[:, None, None],
        lambda z: z - shift[:, None, None],
        prior=None,
    )


def scaled(model_matrix, scale, shift, order):
    """The same model, with latents that are permuted, then scaled and shifted."""
    inverse = torch.argsort(order)

    def encode(x):
        z = torch.einsum("jk,nkhw->njhw", model_matrix, x)[:, order]
        return z * scale[:, None, None] + shift[:, None, None]

    def decode(z):
        return ((z - shift[:, None, None]) / scale[:, None, None])[:, inverse]

    return zs.wrap(encode, decode, prior=None)


def test_order_shift_and_scale_of_channels_change_nothing(coloured):
    mix = torch.tensor([[0.9, 0.3, 0.0], [0.0, 0.7, 0.0], [0.2, 0.0, 0.5]])
    plain = a.response_matrix(recorded(mixing(mix), coloured), patch=(1, 1, 5))
    order = torch.tensor([2, 0, 1])
    other = scaled(mix, torch.tensor([3.0, 0.2, 5.0]), torch.tensor([1.0, -2, 7]), order)
    found = a.response_matrix(recorded(other, coloured), patch=(1, 1, 5))
    for name in ("relative", "inside", "relative_low"):
        expected = getattr(plain, name)[order][:, order]
        assert torch.allclose(getattr(found, name), expected, atol=1e-4), name
    # The control: the matrix itself is in units of the latents.
    assert not torch.allclose(found.matrix, plain.matrix[order][:, order], rtol=0.1)
    assert plain.edges() == [(0, 2), (1, 0)]


def test_mixing_channels_changes_the_answer(coloured):
    """Not invariant to rotations of channels, which the docstring does not promise."""
    mix = torch.tensor([[1.0, 0, 0], [0, 0.3, 0], [0, 0, 0.3]])
    turn = torch.linalg.qr(torch.tensor([[1.0, 2, 0], [-1, 1, 1], [0, 1, 3]])).Q
    turned = zs.wrap(
        lambda x: torch.einsum("jk,nkhw->njhw", turn @ mix, x),
        lambda z: torch.einsum("jk,nkhw->njhw", turn.T, z),
        prior=None,
    )
    first, second = (a.response_matrix(recorded(m, coloured)) for m in (mixing(mix), turned))
    assert not torch.allclose(first.relative, second.relative, atol=0.1)


def test_a_channel_that_the_decoder_ignores_is_not_causal(coloured):
    lost = a.response_matrix(recorded(mixing(torch.diag(torch.tensor([1.0, 0.0, 0.6]))), coloured))
    assert lost.causal == [0, 2]
    assert lost.relative[1, 1] == 0
    assert lost.to_dict()["causal"] == [0, 2]


def test_causal_is_relative_whatever_the_prior():
    """Channels of scale 0.01: by the absolute rule none would be causal."""
    x = 0.01 * power_law(40, 8, 2.0, colours=2)
    std = torch.full_like(x[:1], 1e-4)
    model = zs.wrap(
        lambda x: zs.Posterior(
            x.flatten(1), std.expand(len(x), -1, -1, -1).flatten(1), layout=zs.Layout(2, (8, 8))
        ),
        lambda z: z.reshape(-1, 2, 8, 8),
        latents=128,
        prior="normal",
        layout=zs.Layout(2, (8, 8)),
    )
    found = a.response_matrix(recorded(model, x))
    assert found.causal == [0, 1]
    assert found.rule == "relative"
    noise = 1e-4 * 8 / (found.scale)  # 64 places
    assert torch.allclose(found.noise, noise, rtol=1e-4)
    absolute = a.response_matrix(recorded(model, x), rule="absolute")
    assert absolute.causal == []


def test_intervals_are_over_pictures_and_contain_the_identity_exactly(coloured):
    found = a.response_matrix(recorded(identity(), coloured), resamples=200)
    assert torch.allclose(found.relative_interval, eye(3).expand(2, 3, 3), atol=1e-12)
    low, high = found.interval
    assert ((low < found.matrix) & (found.matrix < high)).diagonal().all()


def test_json_has_no_members_of_channels(coloured):
    found = a.response_matrix(recorded(identity(), coloured))
    assert found.groups[1] == list(range(64, 128))
    assert "groups" not in found.to_dict()
    assert found.to_dict()["unit_names"] == ["channel 0", "channel 1", "channel 2"]
    own = [list(range(64)), list(range(64, 192))]
    partition = a.response_matrix(recorded(identity(), coloured), groups=own)
    assert partition.to_dict()["groups"] == own
    same = a.response_matrix(recorded(identity(), coloured), units=own)
    assert torch.equal(same.matrix, partition.matrix)


def test_texts_and_figures_speak_of_channels(coloured):
    import matplotlib

    matplotlib.use("agg")
    found = a.response_matrix(recorded(identity(), coloured))
    assert "causal channels" in repr(found)
    assert "latent" not in repr(found)
    assert found.plot().get_xlabel() == "observed channel"


def test_many_single_latents_are_refused_with_the_rounds():
    many = recorded(identity(), power_law(130, 16, 2.0, colours=4))
    with pytest.raises(
        ConfigError,
        match=r"response_matrix: 1,024 single latents would take 131,072 rounds. Use "
        r"units='channel' \(4\), or units='patch:2' \(64\).",
    ):
        a.response_matrix(many, units="latent")
    posterior = zs.Posterior(many.codes, layout=many.layout)
    with pytest.raises(ConfigError, match="1,024 single latents would take 131,072 rounds"):
        a.response_matrix(
            identity(), posterior, units="latent", generator=torch.Generator().manual_seed(0)
        )


def test_partitions_of_many_groups_are_refused_like_single_latents():
    many = recorded(identity(), power_law(130, 16, 2.0, colours=4))
    singles = [[j] for j in range(1024)]
    pairs = [[2 * j, 2 * j + 1] for j in range(512)]
    advice = r"Use units='channel' \(4\), or units='patch:2' \(64\)\."
    for options, rounds in (({}, "131,072"), ({"samples": 16}, "16,384")):
        with pytest.raises(
            ConfigError,
            match=f"response_matrix: 1,024 single latents would take {rounds} r.*{advice}",
        ):
            a.response_matrix(many, groups=singles, **options)
    with pytest.raises(ConfigError, match="513 groups would take 8,208 rounds"):
        a.response_matrix(many, groups=[*pairs[:-1], [1022], [1023]], samples=16)
    # Of a vector every latent may be changed.
    codes = many.codes[:, :600]
    vector = zs.record(zs.wrap(lambda x: x.clone(), lambda z: z.clone(), prior=None), codes)
    assert len(a.response_matrix(vector, groups=singles[:600], samples=8).groups) == 600


@pytest.mark.parametrize(
    "name",
    ["response-matrix", "conditioned-response-matrix", "variable-nonlinearity", "hybridisation"],
)
def test_refusals_state_what_the_units_would_take(name):
    """Each unit as much as one of fewer units does, of which the decodings are counted."""
    from zscope.assays import CATALOGUE

    world, assay = Counted(), CATALOGUE[name].load()
    values = torch.cartesian_prod(torch.arange(4), torch.arange(4)).repeat(4, 1)
    data = from_arrays(power_law(64, 16, 2.0, colours=4), values)
    recording = zs.record(zs.wrap(world.encode, world.decode, prior=None), data)
    options = {"causal": [0, 1]} if name.startswith("conditioned") else {}
    decoded = []
    assay(recording)  # which decodes the base pictures
    for units in ("patch:4", "patch:2"):  # 16 and 64
        world.decoded = 0
        assay(recording, units=units, **options)
        decoded.append(world.decoded)
    each = (decoded[1] - decoded[0]) / 48
    if options:  # also the matrix of all factors together
        each *= 4 / 5
    with pytest.raises(ConfigError, match=f"1,024 single latents would take {1024 * each:,.0f} r"):
        assay(recording, units="latent", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": (6, 6, 4)}, r"patch=\(6, 6, 4\) in maps of 8 x 8 places.*patch=\(2, 2, 4\)"),
        ({"patch": (1, 4)}, "expected the first place along each axis"),
        ({"patch": (1, 1, 0)}, "expected the first place"),
        ({"patch": (1, 1, 2), "units": "patch:4"}, "changed by units=.patch:4."),
        ({"units": "patch:3"}, "response_matrix: units='patch:3': 8 x 8 places cannot be divided"),
        ({"units": "chanel"}, "expected channel, place, latent or patch:N"),
        ({"units": "place", "groups": [[0]]}, "two names for the same thing"),
    ],
)
def test_bad_options_are_refused(coloured, options, message):
    with pytest.raises(ConfigError, match=message):
        a.response_matrix(recorded(identity(), coloured), **options)


def test_vectors_have_neither_patches_nor_channels():
    codes = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(lambda x: x.clone(), lambda z: z.clone(), prior=None)
    for options, message in (
        ({"patch": (0, 0, 1)}, "a vector, without places"),
        ({"units": "channel"}, "the 3 latents are a vector, without channels"),
    ):
        with pytest.raises(ConfigError, match=message):
            a.response_matrix(zs.record(model, codes), **options)


def test_few_pictures_are_refused_and_latents_are_not_counted(coloured):
    with pytest.raises(Undefined, match="response_matrix: 7 pictures.*at least 8"):
        a.response_matrix(recorded(identity(), coloured[:7]))
    with pytest.raises(Undefined, match=r"10 pictures for 16 units \(channel\); at least 16"):
        a.response_matrix(recorded(space_to_depth(4), power_law(10, 16, 2.0)))
    # 8 pictures of 192 latents are enough for 3 channels.
    assert a.response_matrix(recorded(identity(), coloured[:8])).samples == 8


def table(count: int):
    """Pictures of two factors: each scales the map of one channel."""
    values = torch.cartesian_prod(torch.arange(count), torch.arange(count)).repeat(2, 1)
    maps = power_law(2, 8, 2.0)[:, 0]
    return from_arrays((values[:, :, None, None] * maps).float(), values)


def test_a_factor_in_each_channel_is_found_by_the_conditioned_matrix():
    recording = zs.record(identity(), table(6))
    found = a.conditioned_response_matrix(recording, resamples=200)
    assert (found.disentanglement, found.completeness) == (1, 1)
    assert found.scaled
    assert found.unit_names == ("channel 0", "channel 1")
    # One factor alone makes the whole change of its channel, up to the few pairs that were drawn.
    assert found.matrix.diagonal().tolist() == pytest.approx([1, 1], abs=0.25)
    assert found.matrix[0, 1] == found.matrix[1, 0] == 0
    assert "groups" not in found.to_dict()
    mixed = zs.wrap(
        lambda x: torch.stack([x.sum(1), x[:, 0] - x[:, 1]], 1),
        lambda z: torch.stack([z.sum(1), z[:, 0] - z[:, 1]], 1) / 2,
        prior=None,
    )
    assert a.conditioned_response_matrix(zs.record(mixed, table(6))).disentanglement < 0.5


def halves(count: int):
    """Pictures of two factors: one scales the left half of a map, the other the right half."""
    values = torch.cartesian_prod(torch.arange(count), torch.arange(count)).repeat(2, 1)
    maps = power_law(1, 8, 2.0).repeat(2, 1, 1, 1)
    maps[0, :, :, 4:], maps[1, :, :, :4] = 0, 0
    return from_arrays(torch.einsum("nf,fchw->nchw", values.float(), maps), values)


def test_pictures_for_many_units_are_counted_where_they_were_recorded():
    """By default 32 of 72 pictures are taken for 64 places: more could not be recorded for that."""
    recording = zs.record(identity(), halves(6))
    found = a.conditioned_response_matrix(recording, units="place")
    left = found.matrix.reshape(2, 8, 8)[0]
    right = found.matrix.reshape(2, 8, 8)[1]
    assert (left[:, :4] > 0).all()
    assert (right[:, 4:] > 0).all()
    assert not left[:, 4:].any()
    assert not right[:, :4].any()
    assert found.disentanglement == pytest.approx(1)
    assert found.causal == list(range(64))
    assert max(found.samples) < 64
    with pytest.raises(Undefined, match=r"conditioned_response_matrix: 50 pictures for 64 units"):
        a.conditioned_response_matrix(zs.record(identity(), halves(5)), units="place")


@pytest.mark.parametrize("units", ["place", "auto"])
def test_few_samples_of_many_pictures_are_refused_with_more_of_them(units):
    recording = zs.record(identity(), halves(6))
    for assay in (a.conditioned_response_matrix, a.response_matrix, a.variable_nonlinearity):
        with pytest.raises(Undefined, match=rf"{assay.__name__}: .*samples=4.*: samples=8$"):
            assay(recording, units=units, samples=4)


def test_a_factor_is_found_in_a_patch_of_each_channel():
    both = [
        a.conditioned_response_matrix(zs.record(model, table(6)), patch=(2, 3, 1), causal=[0, 1])
        for model in (identity(), blur_of_channels())
    ]
    # With the same pairs of pictures (not those of the matrix that all assays share).
    whole = a.conditioned_response_matrix(zs.record(identity(), table(6)), rule="relative")
    for found, inside in zip(both, (1, 1 / 9), strict=True):
        assert found.inside.numpy() == pytest.approx(inside * eye(2).numpy(), rel=1e-5)
        assert found.patch == (2, 3, 1)
        assert found.disentanglement == pytest.approx(1)
    # A map that is scaled changes by the same share everywhere.
    assert torch.allclose(both[0].matrix, whole.matrix, rtol=1e-5)
    # Nine places of a ninth each.
    assert torch.allclose(both[1].matrix, both[0].matrix / 3, rtol=1e-5)
    assert (both[0].scale < whole.scale).all()
    assert not {"patch", "inside"} & whole.to_dict().keys()
    json.dumps(both[0].to_dict())
    with pytest.raises(
        ConfigError, match=r"conditioned_response_matrix: patch=\(7, 7, 3\) in maps"
    ):
        a.conditioned_response_matrix(zs.record(identity(), table(6)), patch=(7, 7, 3))


def blur_of_channels():
    kernel = torch.full((2, 1, 3, 3), 1 / 9)
    return zs.wrap(
        lambda x: x.clone(), lambda z: F.conv2d(z, kernel, padding=1, groups=2), prior=None
    )


def test_the_panel_of_maps_is_about_channels():
    found = a.structure_panel(zs.record(identity(), table(6)))
    assert found.unit == "channel"
    assert found.importance.shape == (2, 2)
    assert found.score > 0.9


class Counted:
    """The identity, of any size of maps, which counts what it decodes and encodes."""

    def __init__(self):
        self.decoded = self.encoded = 0

    def encode(self, x):
        self.encoded += len(x)
        return x.clone()

    def decode(self, z):
        self.decoded += len(z)
        return z.clone()


@pytest.mark.parametrize("name", ["response-matrix", "conditioned-response-matrix"])
def test_the_size_of_maps_does_not_change_the_number_of_rounds(name):
    from zscope.assays import CATALOGUE
    from zscope.assays.run import passes

    rounds = []
    for side in (8, 32):
        world = Counted()
        values = torch.cartesian_prod(torch.arange(4), torch.arange(8)).repeat(2, 1)
        data = from_arrays(power_law(64, side, 2.0, colours=3), values)
        recording = zs.record(zs.wrap(world.encode, world.decode, prior=None), data)
        if name != "response-matrix":
            a.response_matrix(recording)
        entry = CATALOGUE[name]
        stated = passes(entry, recording, {})
        world.decoded = world.encoded = 0
        entry.load()(recording)
        assert world.encoded == world.decoded
        assert world.decoded == pytest.approx(stated, rel=0.1, abs=2)
        rounds.append(world.decoded)
    assert rounds[0] == rounds[1]

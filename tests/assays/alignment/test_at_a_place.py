"""Alignment where latents are maps: at a place it is that of a model of one patch."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from worlds import gaussian_codes, linear, random_rotation, seeded

import zscope as zs
from zscope import assays as a
from zscope.assays import CATALOGUE
from zscope.assays.active import choose_columns
from zscope.assays.jacobian import Walk, channel_gains, decoder_jacobian, linearise
from zscope.assays.run import measure, passes
from zscope.errors import ConfigError, Undefined
from zscope.recording import Recording

SIDE = 4  # places along an axis
PATCH = 3  # pixels along the side of a patch
NEAR = 1e-5  # of numbers that were recorded, in single precision
WEIGHTS = gaussian_codes(PATCH**2, 3, seed=5)


class Patches(zs.Autoencoder):
    """Every place is decoded to a patch of its own, W z, and encoded by the inverse of W."""

    prior = "normal"

    def __init__(self, weights=WEIGHTS, side=SIDE, std=None, bend=False):
        super().__init__()
        self.weights, self.std, self.bend = weights, std, bend
        self.layout = zs.Layout(weights.shape[1], (side, side))
        self.latents = self.layout.latents
        self.decoded = 0

    def decode(self, z):
        derivatives = torch._C._functorch.maybe_current_level() is not None
        self.decoded += len(z) * (self.layout.channels if derivatives else 1)
        maps = self.layout.view(z).flatten(2)
        patches = torch.einsum("fc,ncp->nfp", self.weights.to(z), maps)
        patches = patches.sin() if self.bend else patches
        side = PATCH * self.layout.places[0]
        return F.fold(patches, (side, side), PATCH, stride=PATCH)

    def encode(self, x, auxiliary=None):
        inverse = torch.linalg.pinv(self.weights).to(x)
        codes = torch.einsum("cf,nfp->ncp", inverse, F.unfold(x, PATCH, stride=PATCH)).flatten(1)
        if self.std is None:
            return zs.Posterior(codes, layout=self.layout)
        return zs.Posterior(codes, self.noise(codes), layout=self.layout)

    def noise(self, codes):
        std = torch.as_tensor(self.std).to(codes).repeat_interleave(self.layout.positions)
        return std.expand_as(codes)


class Uneven(Patches):
    """The noise differs from place to place and from picture to picture."""

    def noise(self, codes):
        return super().noise(codes) * (1 + 0.5 * codes.sin())


class Decoding(zs.Autoencoder):
    """A decoder of maps; nothing is encoded."""

    prior = None

    def __init__(self, layout, decoder):
        super().__init__()
        self.layout, self.latents, self.decoder = layout, layout.latents, decoder

    def decode(self, z):
        return self.decoder(self.layout.view(z))


def recorded(model, pictures=40, seed=0):
    """A recording of pictures whose codes are white maps."""
    codes = gaussian_codes(pictures, model.latents, seed=3)
    return zs.record(model, model.decode(codes), seed=seed)


def patch_model(weights, std=None):
    """The same decoder for a single patch, as a vector model."""
    options = {} if std is None else {"std": torch.as_tensor(std, dtype=torch.float64)}
    return linear(weights.T.contiguous(), prior="normal", **options)


def orthogonal_weights(lengths=(3.0, 2.0, 0.5)):
    return random_rotation(PATCH**2)[:, :3] * torch.tensor(lengths, dtype=torch.float64)


# Closed forms


def test_orthogonal_columns_are_aligned_at_every_place():
    recording = recorded(Patches(orthogonal_weights(), std=[0.1, 0.2, 0.4]))
    distance, gap = a.distance_to_orthogonality(recording), a.alignment_gap(recording)
    assert distance.distance == pytest.approx(0, abs=1e-6)
    assert gap.gap == pytest.approx(0, abs=1e-12)
    assert gap.chance > 0.5
    assert distance.samples == 40
    torch.testing.assert_close(gap.lengths, torch.tensor([[3.0, 2, 0.5]] * 40).double())
    for result in (distance, gap):
        assert result.active == [0, 1, 2]
        assert result.unit == "channel"
        assert result.unit_names == ("channel 0", "channel 1", "channel 2")
        assert ("measured", "at a place, drawn in the interior of each map") in result.summary()
        assert "at a place" in repr(result)
        assert "latent" not in repr(result)
    assert distance.plot().get_ylabel() == "channel"


@pytest.mark.parametrize("place", [None, (1, 2)])
def test_mixed_channels_are_measured_like_a_vector_model_of_one_patch(place):
    std = [0.3, 0.2, 0.1]
    mixed = orthogonal_weights() @ random_rotation(3, seed=2)
    maps = recorded(Patches(mixed, std=std))
    patch, codes = patch_model(mixed), gaussian_codes(40, 3)
    posterior = zs.Posterior(codes, torch.tensor(std).double().expand_as(codes))
    for assay in ("distance_to_orthogonality", "alignment_gap", "optimal_noise"):
        found = getattr(a, assay)(maps, place=place)
        expected = getattr(a, assay)(patch, posterior)
        assert found.score == pytest.approx(expected.score, rel=NEAR)
        assert found.score > 0.1
        assert found.chance == pytest.approx(expected.chance, rel=NEAR)
    product = a.column_product(mixed)
    assert a.alignment_gap(maps, place=place).gap == pytest.approx(product.gap, rel=NEAR)


def test_noise_at_one_place_is_compared_with_the_decoder_there():
    """With noise that differs from place to place, the numbers are those of the codes there."""
    maps = recorded(Uneven(std=[0.3, 0.2, 0.1]))
    means, stds = (
        maps.posterior.layout.view(part)[:, :, 2, 1]
        for part in (maps.posterior.mean, maps.posterior.std)
    )
    patch = patch_model(WEIGHTS)
    options = {"likelihood": "gaussian"}
    found = a.optimal_noise(maps, place=(2, 1), **options)
    expected = a.optimal_noise(patch, zs.Posterior(means, stds), **options)
    for part in ("efficiency", "misspent", "misaligned", "slope", "budget"):
        assert getattr(found, part) == pytest.approx(getattr(expected, part), rel=1e-6)
    elsewhere = a.optimal_noise(maps, place=(1, 1), **options)
    assert elsewhere.efficiency != pytest.approx(found.efficiency, rel=1e-3)
    found = a.predicted_variance(maps, place=(2, 1), gamma=0.3)
    expected = a.predicted_variance(patch, zs.Posterior(means, stds), gamma=0.3)
    assert found.correlation == pytest.approx(expected.correlation, rel=1e-6)
    torch.testing.assert_close(found.ratio, expected.ratio)
    assert found.used == [0, 1, 2]
    assert "3 used channels" in repr(found)


def test_the_best_noise_is_predicted_exactly():
    weights, gamma = orthogonal_weights(), 0.2
    best = 1 / (1 + weights.square().sum(0) / gamma)
    recording = recorded(Patches(weights, std=best.sqrt()))
    found = a.predicted_variance(recording, gamma=gamma)
    torch.testing.assert_close(found.variance, best.expand(40, 3))
    torch.testing.assert_close(found.ratio, torch.ones(3).double())
    equal = recorded(Patches(weights, std=(0.1 / weights.norm(dim=0))))
    assert a.optimal_noise(equal).efficiency == pytest.approx(1, abs=1e-9)
    assert a.optimal_noise(recording).efficiency < 0.999


# Columns


def convolutional(seed=0):
    """A decoder of 2 x 4 x 4 latents whose places overlap in the picture."""
    with torch.random.fork_rng():
        decoder = nn.Sequential(
            nn.ConvTranspose2d(2, 3, 4, 2, 1), nn.Tanh(), nn.Conv2d(3, 1, 3, padding=1)
        )
    for parameter in decoder.parameters():
        parameter.data = 0.6 * torch.randn(parameter.shape, generator=seeded(seed + 1))
    return Decoding(zs.Layout(2, (4, 4)), decoder.double())


@pytest.mark.parametrize("method", ["forward", "differences"])
def test_at_a_place_j_has_the_columns_of_the_whole_jacobian(method):
    model, codes = convolutional(), gaussian_codes(5, 32)
    table = torch.tensor([[5, 21], [6, 22], [9, 25], [10, 26], [0, 31]])
    local = linearise(model, codes, latents=table, method=method)
    J = decoder_jacobian(model, codes)
    own = J.gather(2, table[:, None].expand(-1, J.shape[1], -1))
    gram = local.triangle.mT @ local.triangle
    torch.testing.assert_close(gram, own.mT @ own, rtol=1e-6, atol=1e-8)
    shifted = J.gather(2, (table[:, None] + 1).clamp(max=31).expand(-1, J.shape[1], -1))
    assert not torch.allclose(gram, shifted.mT @ shifted, rtol=1e-2)


def test_a_decoder_without_derivatives_is_measured_by_differences_at_a_place():
    model = Patches()
    numpy = Decoding(model.layout, lambda z: torch.from_numpy(model.decode(z.flatten(1)).numpy()))
    codes = gaussian_codes(6, model.latents)
    found = a.alignment_gap(numpy, zs.Posterior(codes, layout=model.layout))
    assert found.method == "central differences"
    assert found.gap == pytest.approx(a.column_product(WEIGHTS).gap, rel=1e-5)


def columns_of(layout, pictures=60, **options):
    codes = gaussian_codes(pictures, layout.latents)
    recording = Recording(None, zs.Posterior(codes, codes.abs() / 9 + 0.01, layout=layout))
    return choose_columns("test", None, recording, samples=64, generator=None, **options)


@pytest.mark.parametrize(
    ("places", "inside"),
    [
        ((8, 8), [range(2, 6)] * 2),
        ((4, 5), [range(1, 3), range(2, 3)]),
        ((3, 16), [range(3), range(4, 12)]),
        ((9,), [range(3, 6)]),
        ((2, 4, 6), [range(2), range(1, 3), range(2, 4)]),
    ],
)
def test_places_are_drawn_at_least_a_quarter_away_from_the_border(places, inside):
    layout = zs.Layout(3, places)
    columns = columns_of(layout)
    number = columns.latents % layout.positions
    assert (number == number[:, :1]).all()
    assert (columns.latents // layout.positions == torch.arange(3)).all()
    drawn = np.stack(np.unravel_index(number[:, 0].numpy(), places))
    for along, allowed in zip(drawn, inside, strict=True):
        assert set(along) == set(allowed)


def test_places_follow_from_the_seed_and_are_those_of_all_assays():
    layout = zs.Layout(2, (8, 8))
    codes = gaussian_codes(30, layout.latents)

    def table(seed):
        recording = Recording(None, zs.Posterior(codes, codes.abs(), layout=layout), seed=seed)
        return choose_columns("x", None, recording, samples=9, generator=None).latents

    assert torch.equal(table(1), table(1))
    assert not torch.equal(table(1), table(2))


def test_channels_that_carry_nothing_have_no_column():
    """The third channel is noise, and the decoder does not look at it."""
    weights = orthogonal_weights() @ random_rotation(3, seed=2)
    dead = torch.cat([weights[:, :2], torch.zeros(PATCH**2, 1).double()], 1)
    found = a.alignment_gap(recorded(Patches(dead, std=[0.1, 0.1, 1.0])))
    assert found.active == [0, 1]
    assert found.passive == [2]
    assert found.gap == pytest.approx(a.column_product(weights[:, :2]).gap, rel=NEAR)
    every = a.distance_to_orthogonality(recorded(Patches(dead, std=[0.1, 0.1, 1.0])), active="all")
    assert "ignores channels 2" in every.flags[-1]


def test_rules_for_active_channels_look_at_all_places():
    layout = zs.Layout(3, (4, 4))
    scale = torch.tensor([0.1, 1.0, 2.0]).repeat_interleave(16)
    codes = gaussian_codes(50, 48, scale=scale)
    std = torch.tensor([0.1, 1.0, 0.5]).double().repeat_interleave(16).expand_as(codes)
    posterior = zs.Posterior(codes, std, layout=layout)
    for rule, expected in {
        "mean": [1, 2], "variance": [0, 2], "all": [0, 1, 2], "used": [0, 1, 2],
    }.items():  # fmt: skip
        options = {"samples": 8, "generator": seeded(0), "active": rule}
        assert choose_columns("x", None, posterior, **options).active == expected
    options = {"samples": 8, "generator": seeded(0)}
    assert choose_columns("x", None, posterior, active=[2, 0], **options).active == [2, 0]
    with pytest.raises(ConfigError, match="different channels from 0 to 2"):
        choose_columns("x", None, posterior, active=[3], **options)
    with pytest.raises(ConfigError, match="needs the variances"):
        choose_columns("x", None, zs.Posterior(codes, layout=layout), active="variance", **options)


def test_single_latents_can_be_asked_for():
    """Two places of one channel do not overlap; two channels of one place do."""
    recording = recorded(Patches())
    apart = a.alignment_gap(recording, latents=[5, 10])
    assert apart.gap == pytest.approx(0, abs=1e-12)
    assert apart.active == [5, 10]
    assert apart.place == ""
    together = a.alignment_gap(recording, latents=[5, 21])
    assert together.gap == pytest.approx(a.column_product(WEIGHTS[:, :2]).gap, rel=NEAR)
    small = a.alignment_gap(recording, latents="all", samples=4)
    assert small.gap == pytest.approx(16 * a.column_product(WEIGHTS).gap, rel=NEAR)


def test_codes_of_a_model_with_a_layout_are_maps_too():
    model = Patches(std=[0.1, 0.2, 0.3])
    recording = recorded(model)
    whole = a.alignment_gap(recording)
    for given in (recording.posterior, recording.codes, recording.codes.numpy()):
        found = a.alignment_gap(model, given, samples=40)
        assert found.unit == "channel"
        assert found.gap == pytest.approx(whole.gap, rel=NEAR)
    own = a.alignment_gap(recording, generator=seeded(3))
    assert own.gap == pytest.approx(whole.gap, rel=NEAR)


# Whole channels


def test_gains_of_places_that_do_not_overlap_are_exact():
    model = Patches()
    codes = gaussian_codes(5, model.latents)
    expected = SIDE**2 * WEIGHTS.square().sum(0)
    found = channel_gains(model, codes, probes=1, generator=seeded(0))
    torch.testing.assert_close(found, expected.expand(5, 3))


def test_gains_of_overlapping_places_are_unbiased():
    """A box of 3 x 3 over 6 x 6 places: 16 squares of 1/81 of each inner place, fewer outside."""
    kernel = torch.full((1, 1, 3, 3), 1 / 9, dtype=torch.float64)
    blur = Decoding(zs.Layout(1, (6, 6)), lambda z: F.conv2d(z, kernel, padding=1))
    codes = gaussian_codes(400, 36)
    exact = decoder_jacobian(blur, codes[:1]).square().sum()
    assert float(exact) == pytest.approx(16**2 / 81)
    found = channel_gains(blur, codes, generator=seeded(1))[:, 0]
    error = float(found.std()) / math.sqrt(len(found))
    assert 0 < error < 0.05
    assert float(found.mean()) == pytest.approx(float(exact), abs=4 * error)


def test_gains_of_a_decoder_that_is_not_linear_are_those_of_its_jacobian():
    model, codes = convolutional(), gaussian_codes(3, 32)
    exact = decoder_jacobian(model, codes[:1]).square().sum(1).unflatten(1, (2, 16)).sum(2)[0]
    found = channel_gains(model, codes[:1].expand(300, -1), generator=seeded(2))
    error = found.std(0) / math.sqrt(300)
    assert ((found.mean(0) - exact).abs() < 4 * error).all()
    assert (error < 0.02 * exact).all()
    near = channel_gains(model, codes, probes=3, method="differences", generator=seeded(2))
    forward = channel_gains(model, codes, probes=3, generator=seeded(2))
    torch.testing.assert_close(near, forward, rtol=1e-6, atol=0)


def test_gains_need_maps():
    with pytest.raises(Undefined, match=r"3 latents and no layout"):
        channel_gains(patch_model(WEIGHTS), gaussian_codes(4, 3))
    with pytest.raises(Undefined, match=r"4 latents and a layout of 3 x 4 x 4"):
        channel_gains(Patches(), gaussian_codes(4, 4))


def test_the_noise_of_whole_maps_is_decomposed():
    std = torch.tensor([0.3, 0.2, 0.1]).double()
    model = Patches(std=std)
    recording = recorded(model, pictures=64)
    found = a.loss_decomposition(recording)
    expected = SIDE**2 * float((std.square() * WEIGHTS.square().sum(0)).sum())
    assert found.linearised == pytest.approx(expected, rel=NEAR)
    assert found.deterministic == pytest.approx(0, abs=1e-9)
    assert found.cross == pytest.approx(0, abs=1e-9)
    assert found.stochastic == pytest.approx(expected, rel=0.05)
    assert found.draws == 4
    assert found.score == pytest.approx(1, abs=1e-9)


def test_noise_of_maps_is_decomposed_as_that_of_a_vector():
    """The same model without a layout, by the way of all columns of J."""
    bent, flat = (Patches(std=[0.3, 0.2, 0.1], bend=True) for _ in range(2))
    layout, flat.layout = flat.layout, None
    flat.decode = bent.decode
    x = bent.decode(gaussian_codes(40, bent.latents))
    posterior = zs.Posterior(bent.encode(x).mean, bent.encode(x).std)
    maps = zs.Posterior(posterior.mean, posterior.std, layout=layout)
    options = {"samples": 40, "draws": 64}
    # Noise shrinks a sine, so that it matters which way the error points.
    found = a.loss_decomposition(bent, 2 * x, posterior=maps, **options)
    expected = a.loss_decomposition(flat, 2 * x, posterior=posterior, **options)
    for part in ("deterministic", "linearised"):
        assert getattr(found, part) == pytest.approx(getattr(expected, part), rel=1e-9)
    assert found.cross != pytest.approx(0, abs=0.1)
    for part in ("stochastic", "cross", "reconstruction"):
        assert getattr(found, part) == pytest.approx(getattr(expected, part), rel=0.05)


# Other questions about channels


def test_the_curve_of_likelihoods_at_a_place_is_that_of_one_patch():
    recording = recorded(Patches(std=[0.1, 0.1, 0.1]))
    options = {"precisions": [1.0, 100.0], "samples": 8}
    found = a.ima_curve(recording, **options)
    expected = a.ima_curve(patch_model(WEIGHTS), gaussian_codes(8, 3), **options)
    assert found.exact
    torch.testing.assert_close(found.gap, expected.gap, rtol=1e-6, atol=1e-9)
    assert found.contrast == pytest.approx(a.column_product(WEIGHTS).gap, rel=1e-6)
    assert float(found.gap[0]) < float(found.gap[1]) < found.contrast


def test_the_curve_of_a_bent_decoder_at_a_place_is_that_of_one_patch():
    weights = 0.5 * WEIGHTS[:, :2]
    model = Patches(weights, std=[0.1, 0.1], bend=True)
    codes = 0.5 * gaussian_codes(3, model.latents)
    posterior = zs.Posterior(codes, torch.full_like(codes, 0.1), layout=model.layout)
    options = {"precisions": [100.0], "draws": 400, "noise": 64, "active": "all"}
    found = a.ima_curve(model, posterior, place=(1, 2), **options)
    there = model.layout.view(codes)[:, :, 1, 2]
    expected = a.ima_curve(lambda z: (z @ weights.to(z).T).sin(), there, **options)
    assert not found.exact
    assert found.contrast == pytest.approx(expected.contrast, rel=1e-9)
    assert found.score == pytest.approx(expected.score, abs=0.02)


def test_channels_are_compared_with_the_principal_components_of_their_patches():
    recording = recorded(Uneven(orthogonal_weights(), std=[0.1, 0.2, 0.4]), pictures=200)
    layout, x = recording.layout, recording.observations.double()
    found = a.codes_against_pca(recording, place=(2, 1))
    patches = x[:, 0, 6:9, 3:6].flatten(1)
    at = [layout.view(part)[:, :, 2, 1] for part in (recording.codes, recording.posterior.std)]
    expected = a.codes_against_pca(patches, zs.Posterior(*at))
    assert found.axes == pytest.approx(expected.axes, rel=1e-6)
    assert found.order == expected.order == 1
    torch.testing.assert_close(found.canonical, expected.canonical)
    assert found.space == pytest.approx(1, abs=1e-6)
    drawn = a.codes_against_pca(recording)
    assert drawn.samples == 200
    assert drawn.space == pytest.approx(1, abs=1e-6)
    turned = recorded(Uneven(orthogonal_weights() @ random_rotation(3), std=[0.1] * 3), 200)
    mixed = a.codes_against_pca(turned)
    assert mixed.space == pytest.approx(1, abs=1e-6)
    assert mixed.axes < drawn.axes - 0.1


def test_sound_in_rows_is_that_of_one_channel():
    layout = zs.Layout(2, (4,))
    codes = gaussian_codes(40, 8)
    posterior = zs.Posterior(codes, codes.abs() / 9 + 0.1, layout=layout)
    rows = gaussian_codes(40, 16)
    one, two = (a.codes_against_pca(x, posterior, place=(1,)) for x in (rows, rows[:, None]))
    assert one.score == two.score


def test_pictures_that_no_place_divides_are_not_compared_with_patches():
    layout = zs.Layout(2, (4, 4))
    codes = gaussian_codes(20, 32)
    posterior = zs.Posterior(codes, codes.abs() / 9, layout=layout)
    with pytest.raises(Undefined, match="1 x 10 x 10 cannot be divided into 4 x 4 places"):
        a.codes_against_pca(torch.zeros(20, 1, 10, 10), posterior)


def test_channels_are_ranked_by_their_noise_and_moved_at_all_places():
    model = Patches(orthogonal_weights(), std=[0.4, 0.1, 0.2])
    recording = recorded(model)
    ranking = a.latent_ranking(recording)
    assert ranking.order == [1, 2, 0]
    assert ranking.variances.tolist() == pytest.approx([0.16, 0.01, 0.04], rel=1e-5)
    maps = recording.layout.view(recording.codes)
    assert ranking.spreads.tolist() == pytest.approx(
        [float(maps[:, k].double().var(correction=0)) for k in range(3)]
    )
    faces = a.nonlinear_eigenfaces(recording, shown=2)
    assert faces.latents == [1, 2]
    assert faces.images.shape == (2, 3, 1, 12, 12)
    spread = math.sqrt(float(ranking.spreads[1]) + 0.01)
    step = 2.5 * spread * model.weights[:, 1].reshape(PATCH, PATCH).repeat(SIDE, SIDE)
    change = (faces.images[0, 2] - faces.images[0, 1])[0].double()
    torch.testing.assert_close(change, step, rtol=1e-4, atol=1e-4)
    assert faces.plot().get_images()
    assert ranking.plot().get_xlabel() == "channel, most important first"


def test_channels_are_exchanged_whole():
    model = Patches(orthogonal_weights(), std=[0.1, 0.1, 0.1])
    recording = recorded(model, pictures=60)
    found = a.variable_nonlinearity(recording)
    assert found.nonlinearity == pytest.approx([0, 0, 0], abs=NEAR)
    assert found.unexplained == [None] * 3  # 60 exchanges of 16 numbers
    assert sum(found.effect) == pytest.approx(1, abs=0.1)
    assert found.effect[0] > found.effect[1] > found.effect[2]
    assert found.unit == "channel"
    assert [each.name for each in found.measures()] == ["order", *found.unit_names]
    more = a.variable_nonlinearity(recorded(model, pictures=80), samples=80)
    assert more.unexplained == pytest.approx([0, 0, 0], abs=NEAR)
    bent = Patches(orthogonal_weights(), bend=True)
    curved = a.variable_nonlinearity(bent, recording.codes)
    groups = [list(range(16 * k, 16 * k + 16)) for k in range(3)]
    expected = a.variable_nonlinearity(bent, recording.codes, groups=groups)
    assert curved.nonlinearity == expected.nonlinearity
    assert min(curved.nonlinearity) > 0.01
    # As many pictures were recorded as there are units, whatever number of them is taken.
    few = a.variable_nonlinearity(recording, units="place", least=0, samples=8)
    assert (few.samples, len(few.nonlinearity)) == (8, 16)
    patches = a.variable_nonlinearity(recording, units="patch:2", least=0)
    assert len(patches.effect) == 4


# Costs and refusals


PLACED = [
    name
    for name, entry in CATALOGUE.items()
    if entry.map_kind == "place" and entry.passes and not entry.on_request
]


@pytest.mark.parametrize("side", [4, 8])
@pytest.mark.parametrize("name", PLACED)
def test_the_stated_cost_does_not_depend_on_the_size_of_maps(name, side):
    model = Patches(side=side, std=[0.1, 0.2, 0.3])
    recording = recorded(model, pictures=200)
    entry = CATALOGUE[name]
    stated = passes(entry, recording, {})
    assert stated == 128 * (3 if name != "loss-decomposition" else 3 + 4)
    model.decoded = 0
    entry.load()(recording)
    # Two codes are differentiated to see whether it is possible, 16 decoded to guess a likelihood.
    assert model.decoded == pytest.approx(stated, abs=30)


def test_assays_of_one_recording_share_the_derivatives():
    model = Patches(std=[0.1, 0.2, 0.3])
    recording = recorded(model, pictures=200)
    a.distance_to_orthogonality(recording)
    model.decoded = 0
    gap = a.alignment_gap(recording)
    part = a.alignment_gap(recording, active=[2, 0])
    assert model.decoded == 0
    assert gap.gap == pytest.approx(a.column_product(WEIGHTS).gap)
    assert part.gap == pytest.approx(a.column_product(WEIGHTS[:, [2, 0]]).gap)
    a.alignment_gap(recording, place=(0, 0))
    assert model.decoded > 0


def test_thousands_of_columns_are_refused():
    model = Patches(side=64)
    codes = gaussian_codes(2, model.latents)
    posterior = zs.Posterior(codes, codes.abs(), layout=model.layout)
    reason = (
        r"distance_to_orthogonality: 12,288 columns; measured at a place instead. Pass "
        r"place=\(y, x\), or latents=\[...\] for fewer"
    )
    for latents in ("all", list(range(12_288))):
        with pytest.raises(Undefined, match=reason):
            a.distance_to_orthogonality(model, posterior, latents=latents)
    assert a.distance_to_orthogonality(model, posterior, active="all").active == [0, 1, 2]


def test_places_outside_and_of_vectors_are_refused():
    recording = recorded(Patches())
    with pytest.raises(
        ConfigError, match=r"place=\(4, 0\), and the map has 4 x 4 places.*\(3, 3\)"
    ):
        a.alignment_gap(recording, place=(4, 0))
    for place in ((1,), (1, 1, 1), (-1, 0)):
        with pytest.raises(ConfigError, match="the map has 4 x 4 places"):
            a.alignment_gap(recording, place=place)
    with pytest.raises(ConfigError, match="the latents have no places"):
        a.alignment_gap(patch_model(WEIGHTS), gaussian_codes(9, 3), place=(1, 1))
    with pytest.raises(ConfigError, match="latents= names single latents"):
        a.alignment_gap(recording, place=(1, 1), latents=[0, 1])


def test_one_channel_has_no_angles():
    model = Patches(WEIGHTS[:, :1], std=[0.1])
    recording = recorded(model)
    with pytest.raises(Undefined, match="channels"):
        a.alignment_gap(recording)
    with pytest.raises(Undefined, match="1 of 1 channels are active, but angles need two"):
        a.alignment_gap(model, recording.posterior)


def test_a_recording_of_maps_gets_every_assay_of_alignment():
    model = Patches(std=[0.1, 0.2, 0.3])
    model.divergence_weight = 1.0
    found = measure(recorded(model, pictures=64), ["alignment", "predicted-variance"])
    assert not found.failed
    assert set(found.results) >= {
        "alignment-gap", "distance-to-orthogonality", "optimal-noise", "loss-decomposition",
        "latent-ranking", "nonlinear-eigenfaces", "codes-against-pca", "predicted-variance",
    }  # fmt: skip
    for result in found.results.values():
        assert result.to_dict()
        assert "latent" not in repr(result).replace("LatentRanking", "")


def test_steps_are_made_for_the_codes_that_they_belong_to():
    """Whatever the size of the chunks, each code has the columns of its own row of the table."""
    model, codes = convolutional(), gaussian_codes(7, 32)
    table = torch.stack([torch.arange(7) * 3, 31 - torch.arange(7)], 1)
    whole = linearise(model, codes, latents=table).triangle
    walk = Walk(model, codes, table, method="auto")
    walk.size = 2
    parts = torch.cat([torch.linalg.qr(J.mT, mode="r").R for _, _, J in walk])
    torch.testing.assert_close(parts, whole)

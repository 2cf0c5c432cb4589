"""Latents that are maps, as assays of codes see them: places, channel means, and offsets."""

import json
import math

import numpy as np
import pytest
import torch
from map_worlds import power_law

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.assays.pictures import independent_places
from zscope.assays.views import rows_together, view_of
from zscope.derived import ChannelOffsets
from zscope.errors import ConfigError, InterfaceError, Undefined
from zscope.layout import LatentScaling

a = zs.assays
LAYOUT = zs.Layout(3, (4, 4))


def smooth_maps(pictures: int, channels: int, seed: int, *, side: int = 4, rho: float = 0.95):
    """Fields whose neighbours are correlated by `rho`, of channels that are independent."""
    distance = (torch.arange(side)[:, None] - torch.arange(side)).abs().double()
    root = torch.linalg.cholesky(rho**distance)
    white = torch.randn(
        pictures, channels, side, side, generator=torch.Generator().manual_seed(seed),
        dtype=torch.float64,
    )  # fmt: skip
    return torch.einsum("ij,nkjl,ml->nkim", root, white, root)


@pytest.fixture(scope="module")
def recording() -> zs.Recording:
    codes = smooth_maps(200, 3, 0)
    variances = torch.full_like(codes, 0.04)
    return zs.Recording.from_arrays(codes, variances=variances, layout=LAYOUT)


def test_rows_of_the_places_are_the_numbers_of_each_channel_at_one_place(recording):
    view = view_of(CATALOGUE["total-correlation"], recording)
    assert (len(view), view.latents, rows_together(view)) == (200 * 16, 3, 16)
    maps = LAYOUT.view(recording.codes)
    rows = view.codes.reshape(200, 16, 3)
    for picture in (0, 7, 199):
        expected = {tuple(row) for row in maps[picture].flatten(1).T.tolist()}
        assert {tuple(row) for row in rows[picture].tolist()} == expected


def test_many_pictures_give_equally_many_places_each():
    codes = torch.randn(3000, 2 * 64, generator=torch.Generator().manual_seed(0))
    recording = zs.Recording.from_arrays(codes, layout=zs.Layout(2, (8, 8)))
    view = view_of(CATALOGUE["total-correlation"], recording)
    assert rows_together(view) == 6
    assert len(view) == 18_000


def test_vectors_have_no_view(recording):
    vectors = zs.Recording.from_arrays(recording.codes)
    assert view_of(CATALOGUE["total-correlation"], vectors) is vectors


def test_chance_of_smooth_independent_channels_is_their_total_correlation():
    # With the textbook bias of independent rows, such maps would look dependent.
    excesses, textbook = [], []
    for seed in range(8):
        codes = smooth_maps(60, 4, seed, side=8)
        recording = zs.Recording.from_arrays(codes, layout=zs.Layout(4, (8, 8)))
        result = a.total_correlation(recording)
        excesses.append(result.excess)
        textbook.append(result.score - 4 * 3 / (4 * 60 * 64))
    error = np.std(excesses, ddof=1) / math.sqrt(8)
    assert abs(np.mean(excesses)) < 4 * error
    assert np.mean(textbook) > 4 * np.std(textbook, ddof=1) / math.sqrt(8)


def test_dependent_channels_share_more_than_chance():
    codes = smooth_maps(100, 2, 3)
    codes[:, 1] = 0.8 * codes[:, 0] + 0.6 * codes[:, 1]
    recording = zs.Recording.from_arrays(codes, layout=zs.Layout(2, (4, 4)))
    assert a.total_correlation(recording).excess == pytest.approx(-0.5 * math.log(0.36), abs=0.1)
    shared = a.mutual_information(recording)
    assert shared.corrected > 0.3
    apart = smooth_maps(100, 2, 3)
    alone = a.mutual_information(zs.Recording.from_arrays(apart, layout=zs.Layout(2, (4, 4))))
    assert alone.corrected < 0.15


@pytest.mark.parametrize("name", ["total_correlation", "mutual_information"])
def test_what_maps_share_beyond_chance_is_a_score_of_its_own(name):
    assay, layout = getattr(a, name), zs.Layout(2, (4, 4))
    codes = smooth_maps(100, 2, 3)
    codes[:, 1] = 0.8 * codes[:, 0] + 0.6 * codes[:, 1]
    dependent = assay(zs.Recording.from_arrays(codes, layout=layout), resamples=20)
    score, beyond = dependent.measures()
    assert (beyond.name, beyond.chance) == ("beyond chance", 0)
    assert beyond.value == dependent.excess == dependent.score - dependent.chance
    assert beyond.interval[0] > 0
    shift = [one - two for one, two in zip(score.interval, beyond.interval, strict=True)]
    assert shift == pytest.approx([dependent.chance] * 2)
    assert "beyond chance" in repr(dependent)
    stored = json.loads(json.dumps(dependent.to_dict()))
    assert stored["excess"] == beyond.value
    assert tuple(stored["excess_interval"]) == beyond.interval
    # Independent channels share nothing beyond it.
    apart = assay(zs.Recording.from_arrays(smooth_maps(100, 2, 3), layout=layout), resamples=20)
    low, high = apart.measures()[1].interval
    assert low < 0 < high
    alone = assay(zs.Recording.from_arrays(codes, layout=layout))
    assert alone.excess_interval is None
    assert "resamples=0" in alone.measures()[1].interval
    # Of vectors, nothing is new.
    rows = assay(codes.flatten(2).transpose(1, 2).flatten(0, 1), resamples=20)
    assert [each.name for each in rows.measures()] == [""]
    assert not {"together", "excess", "excess_interval"} & rows.to_dict().keys()
    assert "together" not in repr(rows)


def test_halves_keep_the_places_of_a_picture_together():
    codes = smooth_maps(100, 2, 5, side=8)
    layout = zs.Layout(2, (8, 8))
    by_pictures = a.effective_rank(
        zs.Recording.from_arrays(codes, layout=layout), resamples=100
    ).interval
    rows = codes.flatten(2).transpose(1, 2).flatten(0, 1)
    by_places = a.effective_rank(rows, resamples=100).interval
    width = [high - low for low, high in (by_pictures, by_places)]
    assert width[0] > 3 * width[1]


def test_rows_that_cannot_belong_together_are_refused():
    with pytest.raises(ConfigError, match=r"together=3, but there are 10 rows"):
        a.total_correlation(torch.eye(10)[:, :2], together=3)


def test_what_places_are_worth():
    pictures, side = 4000, 8
    white = torch.randn(pictures, 1, side, side, generator=torch.Generator().manual_seed(1))
    constant = torch.randn(pictures, 1, 1, 1, generator=torch.Generator().manual_seed(2))
    maps = torch.cat([white, constant.expand(-1, 1, side, side)], 1).double()
    maps = torch.cat([maps, smooth_maps(pictures, 1, 0, side=side, rho=0.8)], 1)
    recording = zs.Recording.from_arrays(maps, layout=zs.Layout(3, (side, side)))
    worth = independent_places(recording.map_summary)
    line = sum(0.8 ** abs(i - j) for i in range(8) for j in range(8)) / 64
    assert float(worth[0]) == pytest.approx(64, rel=0.1)
    assert float(worth[1]) == pytest.approx(1, abs=1e-6)
    assert float(worth[2]) == pytest.approx(1 / line**2, rel=0.1)
    assert "places of 2,500 pictures" not in repr(a.effective_rank(recording))
    assert "4,000 pictures, worth" in repr(a.effective_rank(recording))


def test_types_are_those_of_channels_over_all_places():
    shape = 50, 4, 4, 4
    variances = torch.ones(shape)
    variances[:, 1] = 0.01
    variances[:25, 2] = 0.01  # active for half of the pictures
    variances[:, 3, :, :2] = 0.01  # active at half of the places
    codes = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    layout = zs.Layout(4, (4, 4))
    recording = zs.Recording.from_arrays(codes, variances=variances, layout=layout)
    types = a.variable_types(recording)
    assert (types.passive, types.active, types.mixed) == ([0], [1], [2, 3])
    assert types.unit == "channel"
    assert types.unit_names[2] == "channel 2"
    assert types.samples == 50 * 16
    # The same numbers from rows of places.
    rows = variances.flatten(2).transpose(1, 2).flatten(0, 1)
    by_rows = a.variable_types(rows)
    assert torch.allclose(types.mean_variance, by_rows.mean_variance, atol=1e-12)
    assert torch.allclose(types.variance_of_variance, by_rows.variance_of_variance, atol=1e-12)
    assert types.place_shares["active"] == [0.0, 1.0, 0.0, 0.5]
    assert types.place_shares["mixed"] == [0.0, 0.0, 1.0, 0.0]
    assert types.place_types.shape == (4, 4, 4)
    assert types.to_dict()["unit"] == "channel"


def test_types_say_what_their_rows_are_worth():
    source = torch.Generator().manual_seed(0)
    white = torch.randn(400, 1, 4, 4, generator=source, dtype=torch.float64)
    same = torch.randn(400, 1, 1, 1, generator=source, dtype=torch.float64).expand(-1, 1, 4, 4)
    codes = torch.cat([white, same], 1)
    codes[:, 0] -= codes[:, 0].mean(0)
    recording = zs.Recording.from_arrays(
        codes, variances=torch.full_like(codes, 0.01), layout=zs.Layout(2, (4, 4))
    )
    types = a.variable_types(recording)
    rows = dict(types.lines())["rows"]
    assert rows.startswith("6,400 places of 400 pictures, worth 400 to 6,")
    assert rows in repr(types)
    vectors = zs.Recording.from_arrays(codes.flatten(1), variances=0.01 + 0 * codes.flatten(1))
    assert "rows" not in dict(a.variable_types(vectors).lines())


POOLED = [
    "total_correlation", "mutual_information", "effective_rank", "variable_types",
    "latent_histograms", "polarisation", "latent_divergence",
]  # fmt: skip


@pytest.mark.parametrize("name", POOLED)
def test_numbers_that_are_pooled_over_places_need_eight_pictures(name):
    codes = smooth_maps(8, 3, 0)

    def measure(pictures):
        some = codes[:pictures]
        variances = torch.full_like(some, 0.04)
        return getattr(a, name)(
            zs.Recording.from_arrays(some, variances=variances, layout=LAYOUT)
        )  # fmt: skip

    for pictures in (1, 3, 7):
        with pytest.raises(Undefined, match=f"{name}: {pictures} pictures.*at least 8.*Record"):
            measure(pictures)
    assert measure(8).unit == "channel"


def test_training_counts_types_however_few_pictures_a_batch_has():
    x = power_law(6, 16, 1.0).sigmoid()
    model = zs.models.build("spatial-vae", shape=(1, 16, 16), channels=2, filters=16)
    run = zs.train(model, x, steps=2, batch=2)
    assert sum(run.history[-1][kind] for kind in ("active", "mixed", "passive")) == 2


def test_divergence_of_channels_is_the_sum_over_places(recording):
    result = a.latent_divergence(recording)
    expected = LAYOUT.sums(recording.posterior.kl().double())
    assert torch.allclose(result.per_latent, expected.mean(0), rtol=1e-6)
    assert torch.allclose(result.per_place, expected.mean(0) / 16, rtol=1e-6)
    assert result.rate == pytest.approx(float(expected.sum(1).mean()))
    error = float(expected.sum(1).std()) / math.sqrt(200)
    assert result.standard_error == pytest.approx(error)
    assert result.samples == 200


def test_bits_per_pixel_count_every_number_of_the_picture():
    pool = torch.nn.AvgPool2d(2)
    autoencoder = zs.wrap(
        lambda x: (pool(x), torch.zeros(len(x), 1, 4, 4)),
        lambda z: torch.nn.functional.interpolate(z, scale_factor=2),
    )
    x = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    result = a.latent_divergence(zs.record(autoencoder, x))
    nats = 0.5 * pool(x).square().flatten(1).sum(1).mean()
    assert result.bits_per_pixel == pytest.approx(float(nats) / math.log(2) / 64, rel=1e-5)


def test_polarisation_has_the_error_of_pictures():
    codes = torch.randn(40, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    variances = torch.full_like(codes, 0.1)
    variances[:, 1] = 1 + codes[:, 1, :1, :1].square()  # the same at all places of a picture
    layout = zs.Layout(2, (4, 4))
    result = a.polarisation(zs.Recording.from_arrays(codes, variances=variances, layout=layout))
    assert result.samples == 40
    rows = [each.flatten(2).transpose(1, 2).flatten(0, 1) for each in (codes, variances)]
    alone = a.polarisation(zs.Posterior(rows[0], rows[1].sqrt()))
    assert result.gap == pytest.approx(alone.gap)
    assert result.standard_error > 1.5 * alone.standard_error


def factor_maps(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Maps whose channel means are two factors, the third channel is noise."""
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randint(5, (600, 2), generator=generator)
    noise = torch.randn(600, 3, 16, generator=generator)
    noise = noise - noise.mean(2, keepdim=True)
    codes = noise
    codes[:, :2] += factors[:, :, None]
    codes[:, 2] += torch.randn(600, 1, generator=generator)
    return codes.reshape(600, 3, 4, 4), factors


def test_scores_are_those_of_channel_means():
    codes, factors = factor_maps()
    recording = zs.Recording.from_arrays(codes, factors, kinds="categorical", layout=LAYOUT)
    result = a.mig(recording)
    pooled = a.mig(codes.double().flatten(2).mean(2).float(), factors, kinds="categorical")
    assert result.score == pytest.approx(pooled.score, abs=1e-6)
    assert result.score > 0.8
    assert result.unit == "channel"
    assert result.unit_names == ("mean of channel 0", "mean of channel 1", "mean of channel 2")
    assert "channels used" in repr(result)
    assert "latent" not in repr(result)
    assert "600 pictures; columns are means of channels over their places" in repr(result)


def test_standard_deviations_can_be_added_to_the_means():
    codes, factors = factor_maps()
    centred = codes - codes.flatten(2).mean(2)[..., None, None]
    hidden = centred * (1 + factors[:, :1, None, None])  # told by the spread alone
    recording = zs.Recording.from_arrays(hidden, factors, kinds="categorical", layout=LAYOUT)
    alone, both = a.explicitness(recording), a.explicitness(recording, pool="mean+std")
    assert both.unit_names[3] == "std of channel 0"
    assert dict(both.lines())["columns used"] == "6 of 6"  # of 3 channels
    assert both.score > alone.score + 0.2


def test_unknown_pools_and_pools_of_vectors_are_refused(recording):
    codes, factors = factor_maps()
    maps = zs.Recording.from_arrays(codes, factors, kinds="categorical", layout=LAYOUT)
    with pytest.raises(ConfigError, match=r"48 columns. Pool places: pool='mean' \(3 columns\)"):
        a.mig(maps, pool=None)
    vectors = zs.Recording.from_arrays(codes.flatten(1), factors, kinds="categorical")
    with pytest.raises(ConfigError, match="48 latents are a vector, without places"):
        a.mig(vectors, pool="mean")
    with pytest.raises(ConfigError, match="arrays were given"):
        a.mig(codes.flatten(1), factors, pool="mean")


def test_assays_of_vectors_say_why_they_do_not_apply(recording):
    with pytest.raises(Undefined, match=r"the latents are maps \(3 x 4 x 4\)"):
        a.trace_gap(recording)


def identity_maps(pictures: int = 40) -> tuple[zs.Autoencoder, torch.Tensor]:
    x = smooth_maps(pictures, 3, 7).float()
    return zs.wrap(lambda x: x, lambda z: z), x


def test_offsets_are_added_everywhere_and_found_again():
    autoencoder, x = identity_maps()
    recording = zs.record(autoencoder, x)
    view = view_of(CATALOGUE["drift"], recording)
    model = view.autoencoder
    assert isinstance(model, ChannelOffsets)
    assert model.latents == view.latents == 3
    offsets = torch.tensor([[0.5, 0.0, -2.0]])
    decoded = model.decode(offsets)
    change = decoded - model.decode(torch.zeros(1, 3))
    expected = (offsets * model.scale.float())[..., None, None].expand(1, 3, 4, 4)
    assert torch.allclose(change, expected, atol=1e-5)
    assert torch.allclose(model.encode(decoded).mean, offsets, atol=1e-5)
    assert model.prior is None
    own = model.offsets(recording.codes)
    assert torch.allclose(view.codes, own)


def test_pruned_channels_are_replaced_by_their_mean_maps():
    autoencoder, x = identity_maps()
    recording = zs.record(autoencoder, x)
    mean = recording.codes.mean(0)
    pruned = zs.prune(autoencoder, units=[0, 2], fill=mean)
    assert pruned.layout == zs.Layout(2, (4, 4))
    again = pruned.decode(pruned.encode(x).mean)
    assert torch.allclose(again[:, [0, 2]], x[:, [0, 2]])
    assert torch.allclose(again[:, 1], LAYOUT.view(mean)[1].expand(len(x), 4, 4))
    assert zs.record(pruned, x).layout == zs.Layout(2, (4, 4))
    by_channel = zs.prune(autoencoder, units=[0], fill=[0.0, 1.0, 2.0])
    filled = by_channel.decode(by_channel.encode(x).mean)
    assert bool((filled[:, 1] == 1).all())
    assert bool((filled[:, 2] == 2).all())


def test_channels_are_not_removed_without_what_takes_their_place():
    """Filled with 0, maps of a mean far from it would decode to pictures of no data."""
    autoencoder, x = identity_maps()
    zs.record(autoencoder, x)
    with pytest.raises(
        InterfaceError,
        match=r"prune: 2 of 3 channels are removed.*units=\[1\], fill=recording.codes.mean\(0\)\)",
    ):
        zs.prune(autoencoder, units=[1])
    # Nothing is removed, or 0 is meant.
    turned = zs.prune(autoencoder, units=[2, 0, 1])
    assert torch.allclose(turned.decode(turned.encode(x).mean), x)
    zero = zs.prune(autoencoder, units=[1], fill=0)
    assert not zero.decode(zero.encode(x).mean)[:, [0, 2]].any()


def test_the_declared_scaling_survives_pruning_and_what_fits_of_it_rotation():
    """Scaled latents of the pruned model are those of its channels before."""
    autoencoder, x = identity_maps()
    codes = LAYOUT.view(zs.record(autoencoder, x).codes).double()
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double()).Q
    own = LatentScaling(2.0, None, (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    for scaling, rotated in (
        (LatentScaling(0.5, 0.1), LatentScaling(0.5)),
        (LatentScaling(0.5), LatentScaling(0.5)),
        (own, None),
        (None, None),
    ):
        autoencoder.latent_scaling = scaling
        assert zs.rotate_latents(autoencoder, turn).latent_scaling == rotated
        pruned = zs.prune(autoencoder, units=[2, 0], fill=0)
        assert (pruned.latent_scaling is None) == (scaling is None)
        if scaling is not None:
            shift, factor = (each[:, None, None] for each in scaling.affine(3))
            expected = ((codes - shift) * factor)[:, [2, 0]]
            shift, factor = (each[:, None, None] for each in pruned.latent_scaling.affine(2))
            kept = LAYOUT.view(autoencoder.encode(x).mean).double()[:, [2, 0]]
            assert torch.allclose((kept - shift) * factor, expected)
    # Numbers of another model stay as wrong as they are.
    autoencoder.latent_scaling = LatentScaling(1.0, None, (0.0,) * 8, (1.0,) * 8)
    with pytest.raises(ConfigError, match="8 numbers as latents_mean"):
        zs.prune(autoencoder, units=[0], fill=0).latent_scaling.affine(1)


def test_latent_statistics_of_a_pruned_model_know_its_scaling():
    autoencoder, x = identity_maps()
    recording = zs.record(autoencoder, x)
    whole = a.latent_statistics(recording)
    mean, std = map(tuple, (whole.latents_mean, whole.latents_std))
    autoencoder.latent_scaling = LatentScaling(1.0, None, mean, std)
    pruned = zs.prune(autoencoder, units=[2, 1], fill=recording.codes.mean(0))
    found = a.latent_statistics(zs.record(pruned, x))
    assert found.declared_channel_std.tolist() == pytest.approx([1, 1], abs=1e-4)


def test_single_places_cannot_be_pruned():
    autoencoder, x = identity_maps()
    zs.record(autoencoder, x)
    with pytest.raises(InterfaceError, match=r"channels can be removed, single places cannot"):
        zs.prune(autoencoder, [0, 1, 2])
    with pytest.raises(InterfaceError, match=r"different channels from 0 to 2"):
        zs.prune(autoencoder, units=[3])
    with pytest.raises(InterfaceError, match="got neither"):
        zs.prune(autoencoder)
    vectors = zs.wrap(lambda x: x, lambda z: z, latents=4)
    with pytest.raises(InterfaceError, match="are a vector, without channels"):
        zs.prune(vectors, units=[0])


def test_rotated_channels_are_mixed_at_every_place():
    autoencoder, x = identity_maps()
    zs.record(autoencoder, x)
    U = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double()).Q
    rotated = zs.rotate_latents(autoencoder, U)
    codes = LAYOUT.view(rotated.encode(x).mean)
    expected = torch.einsum("jk,ikyx->ijyx", U.float(), x)
    assert torch.allclose(codes, expected, atol=1e-5)
    assert torch.allclose(rotated.decode(rotated.encode(x).mean), x, atol=1e-5)
    assert rotated.encode(x).layout == LAYOUT
    with pytest.raises(InterfaceError, match=r"3 channels: expected \(3, 3\)"):
        zs.rotate_latents(autoencoder, torch.eye(48))


def test_noise_of_rotated_channels_is_the_nearest_independent_one():
    std = torch.tensor([0.1, 0.2, 0.4])[:, None, None].expand(3, 4, 4)
    autoencoder = zs.wrap(
        lambda x: (x, 2 * std.log().expand(len(x), 3, 4, 4)), lambda z: z
    )  # fmt: skip
    x = smooth_maps(4, 3, 7).float()
    autoencoder.encode(x)
    U = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double()).Q
    found = LAYOUT.view(zs.rotate_latents(autoencoder, U).encode(x).std)[0, :, 0, 0]
    covariance = U @ torch.diag(std[:, 0, 0].double().square()) @ U.T
    expected = torch.linalg.inv(covariance).diagonal().rsqrt()
    assert torch.allclose(found.double(), expected, rtol=1e-5)


def test_cka_compares_channels_too():
    codes = smooth_maps(60, 3, 1)
    first = zs.Recording.from_arrays(codes, layout=LAYOUT)
    second = zs.Recording.from_arrays(codes[:, [2, 0]], layout=zs.Layout(2, (4, 4)))
    result = a.cka(first, second)
    assert result.by_channel.shape == (3, 2)
    assert float(result.by_channel[2, 0]) == pytest.approx(1)
    assert float(result.by_channel[0, 1]) == pytest.approx(1)
    assert abs(float(result.by_channel[1, 0])) < 0.3
    assert a.cka(first.codes, second.codes).by_channel is None


def test_udr_compares_channel_means():
    codes = smooth_maps(500, 3, 1)
    recordings = [
        zs.Recording.from_arrays(each, layout=LAYOUT) for each in (codes, codes[:, [2, 0, 1]])
    ]
    assert a.udr(recordings).score > 0.8


def test_usage_is_that_of_channels():
    codes = torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    variances = torch.full_like(codes, 0.01)
    variances[:, 1] = 1
    codes[:, 1] *= 0.01
    recording = zs.Recording.from_arrays(codes, variances=variances, layout=LAYOUT)
    assert recording.used == [0, 2]
    # Decoders decide for deterministic models: this one ignores channel 2.
    autoencoder = zs.wrap(lambda x: x, lambda z: z * torch.tensor([1.0, 1.0, 0.0])[:, None, None])
    assert zs.record(autoencoder, smooth_maps(50, 3, 0).float()).used == [0, 1]


def test_traversals_move_channels_or_are_refused():
    model = zs.wrap(lambda x: x.clone(), lambda z: z.clone(), prior=None)
    recording = zs.record(model, smooth_maps(20, 3, 0).float())
    assert len(a.traversal_responses(recording).values) == 3
    for maps in (recording, recording.posterior):
        with pytest.raises(ConfigError, match="not 48 single latents. Give the recording alone"):
            a.traversal_responses(model, maps)


def test_hybrids_name_the_channel_that_changes_most():
    model = zs.wrap(lambda x: x.clone(), lambda z: z.clone(), prior=None)
    maps = smooth_maps(20, 3, 0).float() * torch.tensor([1.0, 9.0, 3.0])[:, None, None]
    lines = dict(a.hybridisation(zs.record(model, maps)).summary())
    assert lines["largest change"].endswith("(channel 1)")

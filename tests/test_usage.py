"""Usage: closed forms, what leaves it unchanged, and every door gives the same latents."""

import math

import numpy as np
import pytest
import torch

import zscope as zs
from tests.map_worlds import Counting, power_law, sines, tokens
from tests.worlds import seeded
from zscope.usage import usage_of_codes, usage_of_decoder, usage_of_posterior


def posterior(stds, variances, count=20_000, seed=0):
    mean = torch.randn(count, len(stds), generator=seeded(seed), dtype=torch.float64)
    mean = (
        (mean - mean.mean(0)) / mean.std(0, correction=0) * torch.tensor(stds, dtype=torch.float64)
    )
    return zs.Posterior(mean, torch.tensor(variances, dtype=torch.float64).sqrt().expand_as(mean))


def test_information_has_its_closed_form():
    """1/2 log(1 + Var mean / variance) for a constant variance."""
    usage = usage_of_posterior(posterior([2.0, 0.3, 0.0], [0.1, 0.95, 1.0]))
    expected = [0.5 * math.log1p(4 / 0.1), 0.5 * math.log1p(0.09 / 0.95), 0.0]
    assert usage.values.tolist() == pytest.approx(expected, abs=1e-12)
    assert (usage.used, usage.unused, usage.measure) == ([0], [1, 2], "information")


def test_information_is_the_least_mean_kl_to_any_gaussian():
    """An independent route: minimise the mean divergence over mean and variance of a prior."""
    generator = seeded(3)
    mean = torch.randn(500, 1, generator=generator, dtype=torch.float64) + 2
    variance = torch.rand(500, 1, generator=generator, dtype=torch.float64) + 0.05

    def mean_kl(m, v):
        return 0.5 * (((mean - m) ** 2 + variance) / v - 1 - (variance / v).log()).mean()

    least = min(
        float(mean_kl(m, v)) for m in np.linspace(1.5, 2.5, 101) for v in np.linspace(0.5, 3, 126)
    )
    information = float(usage_of_posterior(zs.Posterior(mean, variance.sqrt())).values[0])
    assert information <= least
    assert information == pytest.approx(least, abs=1e-3)


def test_shifting_and_rescaling_latents_changes_nothing():
    before = posterior([1.0, 0.2], [0.2, 0.97])
    scale, shift = torch.tensor([1e-6, 1e4]), torch.tensor([3.0, -7.0])
    after = zs.Posterior(before.mean * scale + shift, before.std * scale)
    old, new = usage_of_posterior(before), usage_of_posterior(after)
    assert new.values.tolist() == pytest.approx(old.values.tolist(), rel=1e-6)
    assert new.used == old.used == [0]


def test_a_posterior_far_from_the_prior_that_is_always_the_same_is_not_used():
    same = zs.Posterior(torch.full((50, 1), 3.0), torch.full((50, 1), 0.1))
    assert float(same.kl().mean()) > 6
    assert zs.assays.variable_types(same.variance).active == [0]  # the published rule
    assert usage_of_posterior(same).used == []


def test_a_latent_that_is_mixed_in_name_only_is_not_used():
    """Mean variance .98, but of some observations 0.6 and of others 1.36: nothing to tell."""
    variance = torch.tensor([0.5, 1.46]).repeat(500)[:, None]
    nominal = zs.Posterior(torch.zeros(1000, 1), variance.sqrt())
    assert zs.assays.variable_types(variance).mixed == [0]
    assert usage_of_posterior(nominal).used == []
    mixture = torch.tensor([0.01, 1.0, 1.0, 1.0, 1.0]).repeat(200)[:, None]  # a fifth is active
    assert usage_of_posterior(zs.Posterior(torch.zeros(1000, 1), mixture.sqrt())).used == [0]


def test_spreads_of_zero_are_used_unless_nothing_varies():
    mean = torch.randn(40, 2, generator=seeded(1))
    mean[:, 1] = 5
    std = torch.zeros(40, 2)
    std[:, 0] = torch.tensor([0.0, 0.1]).repeat(20)
    usage = usage_of_posterior(zs.Posterior(mean, std))
    assert usage.used == [0]
    assert usage.values.isfinite().all()


def test_codes_alone_count_when_they_vary_whatever_their_scale():
    codes = torch.randn(100, 4, generator=seeded(2)) * torch.tensor([1e3, 1e-9, 0.0, 1.0])
    codes[:, 3] = 7.3
    assert usage_of_codes(codes).used == [0, 1]


def test_of_a_deterministic_model_the_decoder_decides():
    """Effects of a linear decoder in closed form: |column_j| sigma_j over the whole."""
    codes = torch.randn(4000, 3, generator=seeded(4), dtype=torch.float64)
    codes *= torch.tensor([1.0, 100.0, 1.0])
    weight = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.04, 0.0], [0.0, 0.0, 0.001]]).double()
    usage = usage_of_decoder(codes[:64], lambda z: z @ weight)
    assert usage.values.tolist() == pytest.approx([0.6, 0.8, 0.0002], rel=0.25)
    assert (usage.used, usage.measure) == ([0, 1], "effect")
    scaled = usage_of_decoder(codes[:64] * 1e-5, lambda z: z / 1e-5 @ weight)
    assert scaled.values.tolist() == pytest.approx(usage.values.tolist())
    assert usage_of_decoder(codes[:64], lambda z: torch.ones(len(z), 2)).used == []


LAYOUT = zs.Layout(4, (3, 4))


def maps(count=2000, seed=0):
    """A healthy channel, a ramp that is the same for all pictures, one of variances alone, and a
    channel in use at a third of its places."""
    mean = torch.randn(count, 4, 3, 4, generator=seeded(seed), dtype=torch.float64)
    variance = torch.full_like(mean, 0.1)
    mean[:, 1] = torch.linspace(-2, 2, 4)
    mean[:, 2], variance[:, 2] = 0, torch.logspace(-3, 0, 4)
    mean[:, 3, 1:], variance[:, 3, 1:] = 0, 1
    return mean, variance


def test_information_of_a_channel_is_the_mean_over_its_places():
    """Another route: that of every single latent."""
    mean, variance = maps()
    recording = zs.Recording.from_arrays(mean, variances=variance, layout=LAYOUT)
    single = usage_of_posterior(zs.Posterior(mean.flatten(1), variance.flatten(1).sqrt()))
    expected = LAYOUT.sums(single.values) / 12
    assert recording.usage.values.tolist() == pytest.approx(expected.tolist(), abs=1e-9)
    assert float(expected[0]) == pytest.approx(0.5 * math.log(11), abs=0.02)
    assert recording.used == [0, 3]


def test_what_all_pictures_have_in_common_is_no_information():
    mean, variance = maps()
    recording = zs.Recording.from_arrays(mean, variances=variance, layout=LAYOUT)
    assert recording.usage.values[1:3].tolist() == pytest.approx([0, 0], abs=1e-9)
    # Of precise posteriors, too, and where there are none.
    precise = zs.Recording.from_arrays(1e3 + mean, variances=variance * 1e-12, layout=LAYOUT)
    assert precise.used == [0, 3]
    assert zs.Recording.from_arrays(1e3 + mean, layout=LAYOUT).used == [0, 3]
    # Every other answer of the recording agrees.
    assert zs.assays.polarisation(recording).active == [0, 3]
    place = zs.assays.mig(
        zs.Recording.from_arrays(
            mean, mean[:, :2, 0, 0] > 0, variances=variance, layout=LAYOUT, kinds="categorical"
        )
    )
    assert place.active == [0, 3]


def test_a_channel_that_is_a_ramp_is_not_in_use_though_its_posterior_is_narrow():
    def encode(x):
        ramp = torch.linspace(-2, 2, 8)[:, None].expand(len(x), 1, 8, 8)
        maps = torch.cat([x, ramp], 1)
        return maps, torch.full_like(maps, -4.0)

    x = torch.randn(200, 2, 8, 8, generator=seeded(7))
    recording = zs.record(zs.wrap(encode, lambda z: z[:, :2]), x)
    assert zs.assays.variable_types(recording).active == [0, 1, 2]  # the published rule
    assert recording.used == zs.assays.response_matrix(recording).causal == [0, 1]
    by_spread = zs.assays.distance_to_orthogonality(recording, active="mean")
    assert by_spread.active == [0, 1]
    assert recording.usage.values[:2].numpy() == pytest.approx(
        0.5 * math.log1p(math.exp(4)), abs=0.05
    )


def test_shifting_and_rescaling_channels_changes_nothing():
    mean, variance = maps(200)
    scale, shift = torch.tensor([1e-6, 1e4, 1, 3]), torch.tensor([3.0, -7.0, 1e5, 0])
    scale, shift = (each.double()[:, None, None] for each in (scale, shift))
    before = zs.Recording.from_arrays(mean, variances=variance, layout=LAYOUT).usage
    after = zs.Recording.from_arrays(
        mean * scale + shift, variances=variance * scale**2, layout=LAYOUT
    ).usage
    assert after.values.tolist() == pytest.approx(before.values.tolist(), rel=1e-6, abs=1e-9)


def test_a_recording_decides_once_by_what_it_holds():
    generator = seeded(5)
    codes = torch.randn(300, 2, generator=generator)
    assert zs.Recording.from_arrays(codes).usage.measure == "spread"
    wide = zs.Recording.from_arrays(codes * torch.tensor([1.0, 0.1]), variances=codes * 0 + 0.9)
    assert (wide.usage.measure, wide.used) == ("information", [0])
    model = zs.wrap(lambda x: x, lambda z: z * torch.tensor([1.0, 0.0]))
    effect = zs.record(model, codes)
    assert (effect.usage.measure, effect.used) == ("effect", [0])
    assert effect.usage is effect.usage
    alone = zs.Autoencoder()
    alone.decodes = False
    encoder = zs.Recording(alone, zs.Posterior(codes))
    assert encoder.usage.measure == "spread"
    with pytest.raises(zs.Undefined, match="has no decoder"):
        zs.assays.response_matrix(encoder)


def test_the_base_pictures_are_not_decoded_again_to_find_the_channels_in_use():
    """Only channels that were replaced are decoded; the effects are those without base pictures."""

    def model(z):
        return 0.02 * z[:, :1] + z[:, 1:2] + 1e-3 * z[:, 2:3]

    usages, x = [], power_law(90, 8, 2.0, colours=3)
    for first in (True, False):
        world = Counting(lambda x: x.clone(), lambda z: model(z).expand(-1, 3, *z.shape[2:]))
        recording = zs.record(world.model, x)
        if first:
            zs.assays.response(recording)
        world.decodings = 0
        usages.append(recording.usage)
        assert world.decodings == 3 * 64 + (0 if first else 64)
    assert (usages[0].measure, usages[0].used) == ("effect", [0, 1])
    torch.testing.assert_close(usages[0].values, usages[1].values)
    # Another route: the change of the whole in the units of the data.
    maps = x[recording.picture_order[:64]].double()
    change = model(maps.roll(1, 0)) - model(maps)
    own = 1e-3 * (maps.roll(1, 0) - maps)[:, 2:3]
    expected = float((own.square().mean() / change.square().mean()).sqrt())
    assert float(usages[0].values[2]) == pytest.approx(expected, rel=1e-3)


def test_base_pictures_of_rows_are_those_that_were_decoded():
    """Of rows they are kept as sound, with an axis for its channel."""
    first, second = (zs.record(tokens(), sines(90)[:, 0]) for _ in range(2))
    zs.assays.response(first)
    torch.testing.assert_close(first.usage.values, second.usage.values)
    assert first.used == second.used == [0, 1, 2]


def test_the_scores_use_the_latents_that_the_recording_uses():
    generator = seeded(6)
    factors = torch.randint(0, 4, (800, 2), generator=generator)
    codes = torch.cat([factors.float(), 0.3 * torch.randn(800, 2, generator=generator)], 1)
    variances = torch.tensor([0.05, 0.05, 0.97, 0.9]).expand(800, 4)
    recording = zs.Recording.from_arrays(codes, factors, variances=variances, kinds="ordinal")
    assert recording.used == [0, 1]
    score = zs.assays.mig(recording)
    arrays = zs.assays.mig(codes, factors, variances=variances, kinds="ordinal")
    assert (score.active, arrays.active) == ([0, 1], [0, 1])

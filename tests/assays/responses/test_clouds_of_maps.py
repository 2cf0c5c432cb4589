"""Structure score and independence of latents that are maps: vectors at places, by pictures."""

import numpy as np
import pytest
import torch
from map_worlds import Counting, PatchPCA, autoregressive, identity, power_law

import zscope as zs
from zscope import assays as a
from zscope.assays import CATALOGUE
from zscope.assays.responses.clouds import cloud_of
from zscope.assays.responses.mmd import SCALES, mmd
from zscope.assays.run import passes
from zscope.errors import ConfigError, Undefined


def seeded(seed: int):
    return torch.Generator().manual_seed(seed)


def lines(pictures, channels, rho, generator, places=16):
    """Independent channels, each a line of places with the correlation rho of neighbours."""
    flat = autoregressive(pictures * channels, places, rho, generator)
    return flat.reshape(pictures, channels * places)


def test_rows_together_are_averaged_kernels_of_whole_pictures():
    generator = seeded(0)
    x, y = torch.randn(2, 6, 3, 2, generator=generator, dtype=torch.float64).numpy()

    def kernel(p, q):
        squared = ((p[:, None] - q[None]) ** 2).sum(-1)
        return sum(4 * s / (4 * s + squared) for s in SCALES).mean()

    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    terms = [
        kernel(x[i], x[j]) + kernel(y[i], y[j]) - kernel(x[i], y[j]) - kernel(y[i], x[j])
        for i, j in pairs
    ]
    found = mmd(x.reshape(18, 2), y.reshape(18, 2), together=3, permutations=0)
    assert found.value == pytest.approx(np.mean(terms), abs=1e-12)
    with pytest.raises(Undefined, match="at least 12 samples"):
        mmd(x.reshape(18, 2)[:17], y.reshape(18, 2)[:17], together=3)


def test_one_row_of_each_picture_is_the_usual_statistic():
    x, y = torch.randn(2, 40, 3, generator=seeded(1), dtype=torch.float64)
    usual, same = (mmd(x, y, generator=seeded(2), **o) for o in ({}, {"together": 1}))
    assert usual == same


def p_values(together: int, rho: float, repeats: int = 120):
    """Of two clouds from one distribution of AR(1) lines, with 4 places of each of 24 pictures."""
    layout, found = zs.Layout(2, (16,)), []
    for seed in range(repeats):
        generator = seeded(seed)
        clouds = [
            cloud_of(lines(24, 2, rho, generator), layout, torch.ones(2), "place", generator)
            for _ in range(2)
        ]
        options = {"permutations": 39, "generator": generator}
        found.append(mmd(*clouds, together=together, **options).p_value)
    return np.array(found)


def test_p_values_are_right_by_pictures_and_wrong_by_places():
    right, wrong = (p_values(together, 0.95) <= 0.1 for together in (4, 1))
    assert right.mean() == pytest.approx(0.1, abs=0.08)  # 3 standard errors of 120 repeats
    assert wrong.mean() > 0.3


def test_independent_channels_are_found_independent_at_the_nominal_rate():
    found = []
    for seed in range(80):
        codes = lines(48, 2, 0.95, seeded(seed)).float()
        posterior = zs.Posterior(codes, layout=zs.Layout(2, (16,)))
        found.append(a.independence(posterior, permutations=39, generator=seeded(seed)).p_value)
    assert (np.array(found) <= 0.1).mean() == pytest.approx(0.1, abs=0.1)


def test_dependent_channels_are_found():
    generator = seeded(0)
    one = lines(200, 1, 0.9, generator)
    other = 0.8 * one + 0.6 * lines(200, 1, 0.9, generator)
    posterior = zs.Posterior(torch.cat([one, other], 1).float(), layout=zs.Layout(2, (16,)))
    found = a.independence(posterior)
    assert found.p_value < 0.01
    assert found.samples == 100
    assert found.unit == "channel"
    assert float(found.correlation[0, 1]) == pytest.approx(0.8, abs=0.1)
    assert "groups" not in found.to_dict()
    # Shift and scale of the channels change nothing; their order only the draws.
    moved = torch.cat([100 * one - 3, 0.01 * other + 5], 1).float()
    again = a.independence(zs.Posterior(moved, layout=zs.Layout(2, (16,))))
    assert again.score == pytest.approx(found.score, rel=1e-3)
    swapped = zs.Posterior(torch.cat([other, one], 1).float(), layout=zs.Layout(2, (16,)))
    assert found.interval[0] < a.independence(swapped).score < found.interval[1]
    # The control: without units of each channel one of them would decide alone.
    raw = a.independence(zs.Posterior(moved))
    assert raw.score != pytest.approx(found.score, rel=0.2)


def test_the_identity_and_patch_pca_keep_the_distribution_of_hybrids():
    x = power_law(200, 16, 2.0)
    for model in (identity(), PatchPCA(x, 4, 3).model()):
        found = a.structure_score(zs.record(model, x))
        assert found.p_value > 0.01
        assert found.interval[0] < 0.01
        assert (found.distribution, found.places, found.unit) == ("hybrid", 4, "channel")
    assert found.latents == 3
    assert found.drawn.shape == (4 * 128, 3)


def test_a_decoder_that_averages_dependent_channels_has_structure():
    def mean(z):
        return z.mean(1, keepdim=True).expand_as(z)

    x = power_law(200, 8, 2.0).repeat(1, 2, 1, 1)
    model = zs.wrap(lambda x: x.clone(), lambda z: mean(z.reshape(-1, 2, 8, 8)), prior=None)
    found = a.structure_score(zs.record(model, x))
    assert found.p_value < 0.01
    assert found.score > 10 * found.standard_error


def test_scale_and_shift_of_channels_leave_the_structure_score():
    x = power_law(150, 8, 2.0, colours=2)
    scale, shift = torch.tensor([30.0, 0.1]), torch.tensor([4.0, -2.0])

    def model(scale, shift):
        scale, shift = scale[:, None, None], shift[:, None, None]
        return zs.wrap(lambda x: 0.5 * x * scale + shift, lambda z: (z - shift) / scale, prior=None)

    plain = a.structure_score(zs.record(model(torch.ones(2), torch.zeros(2)), x))
    moved = a.structure_score(zs.record(model(scale, shift), x))
    assert moved.score == pytest.approx(plain.score, rel=1e-3)
    assert plain.score > 0.1  # half of every code is lost


def test_only_causal_channels_are_compared():
    x = power_law(150, 8, 2.0, colours=2)

    def first(z):
        return torch.cat([z[:, :1], 0 * z[:, 1:]], 1)

    model = zs.wrap(lambda x: x.clone(), first, prior=None)
    recording = zs.record(model, x)
    whole, causal = a.structure_score(recording), a.causal_structure_score(recording)
    assert causal.causal == [0]
    assert (causal.drawn[:, 1] == 0).all()
    assert whole.p_value < 0.01 < causal.p_value
    with pytest.raises(ConfigError, match=r"causal=\[5\], but the model has 2 channels"):
        a.causal_structure_score(recording, causal=[5])
    nothing = zs.wrap(lambda x: x.clone(), lambda z: 0 * z, prior=None)
    with pytest.raises(Undefined, match="none of the 2 channels is causal"):
        a.causal_structure_score(zs.record(nothing, x))


def test_noise_of_the_posterior_is_in_both_clouds():
    """A collapsed channel is noise before and after, so collapse does not look like structure."""
    x = power_law(200, 8, 2.0, colours=2)

    def encode(x):
        mean = torch.cat([x[:, :1], 0 * x[:, 1:]], 1)
        std = torch.cat([0 * x[:, :1] - 12, 0 * x[:, 1:]], 1)
        return mean, std

    model = zs.wrap(encode, lambda z: torch.cat([z[:, :1], 0 * z[:, 1:]], 1))
    recording = zs.record(model, x)
    assert a.structure_score(recording).p_value > 0.01
    prior = a.structure_score(recording, base="prior")
    assert prior.distribution == "prior"
    mean = a.structure_score(recording, response="mean")
    assert mean.p_value > 0.01
    assert float(mean.drawn[:, 1].abs().max()) == 0


def test_whole_pictures_are_on_request_and_need_many():
    x = power_law(1100, 4, 2.0, colours=2)
    recording = zs.record(identity(), x)
    for assay in (a.structure_score, a.independence):
        found = assay(recording, cloud="picture", samples=512, permutations=20)
        assert found.samples == 512
        with pytest.raises(
            Undefined, match=r"cloud='picture' with 100 pictures of 32 latents.*samples=512"
        ):
            assay(recording, cloud="picture", samples=100)
    vector = zs.record(zs.wrap(lambda x: x.clone(), lambda z: z.clone(), prior=None), x.flatten(1))
    for assay in (a.structure_score, a.independence):
        with pytest.raises(ConfigError, match="the latents are a vector, without places"):
            assay(vector, cloud="picture")
    with pytest.raises(ConfigError, match="do not show dependence between places"):
        a.independence(recording, units="place")


def test_the_cost_is_that_stated_for_any_size_of_maps():
    counts = []
    for side in (8, 32):
        world = Counting(lambda x: x.clone(), lambda z: z.clone())
        recording = zs.record(world.model, power_law(150, side, 2.0, colours=4))
        stated = passes(CATALOGUE["structure-score"], recording, {})
        world.decodings = world.encodings = 0
        a.structure_score(recording)
        a.independence(recording)
        assert world.encodings == world.decodings == pytest.approx(stated, abs=2)
        counts.append(world.decodings)
    assert counts == [counts[0]] * 2

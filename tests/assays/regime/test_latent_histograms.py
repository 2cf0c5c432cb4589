"""Histograms of means, variances and samples: closed forms, types against the prior, figures."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy import stats
from worlds import gaussian_codes, seeded

import zscope as zs
from zscope.assays import latent_histograms, variable_types
from zscope.errors import ConfigError, Undefined


def passive(samples=2000, latents=1):
    zeros = torch.zeros(samples, latents, dtype=torch.float64)
    return zs.Posterior(zeros, zeros + 1)


def mixture(share, samples=1000):
    """Active (S = 0, means of variance 1) for the first observations, passive for the others."""
    on = (torch.arange(samples) < share * samples).double()[:, None]
    return zs.Posterior(on * gaussian_codes(samples, 1), (1 - on).clamp(min=1e-8))


def test_of_a_passive_latent_all_means_are_in_the_bin_of_0():
    result = latent_histograms(passive())
    edges, means = result.code_edges[0], result.fractions["M"][0]
    [full] = means.nonzero().flatten().tolist()
    assert means[full] == 1
    assert edges[full] <= 0 <= edges[full + 1]
    assert result.fractions["S"][0].count_nonzero() == 1
    assert result.labels == ["passive"]
    assert result.kl.tolist() == [0]
    assert result.kurtosis == [None]


def test_samples_of_the_prior_exceed_the_limit_in_5_percent_of_cases():
    posterior = passive(1500, 400)
    result = latent_histograms(posterior)
    assert result.limit == pytest.approx(1.36 / 1500**0.5)
    share = float((result.distance < result.limit).double().mean())
    assert share == pytest.approx(0.95, abs=0.035)
    # A latent that is narrower than the prior does exceed it.
    narrow = zs.Posterior(posterior.mean[:, :5], posterior.std[:, :5] * 0.8)
    assert (latent_histograms(narrow).distance > result.limit).all()


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_variances_of_a_mixture_fill_two_bins(share):
    result = latent_histograms(mixture(share))
    variances = result.fractions["S"][0]
    assert variances.nonzero().flatten().tolist() == [0, 59]
    assert [variances[0], variances[59]] == pytest.approx([share, 1 - share])
    assert result.labels == ["mixed"]
    # The spike: a share w of a Gaussian and 1 - w of zeros has the kurtosis 3 / w.
    assert result.kurtosis[0] == pytest.approx(3 / share - 3, rel=0.2)
    assert result.spread_of_means[0] == pytest.approx(share**0.5, rel=0.1)
    assert result.spread_of_samples[0] == pytest.approx(1, rel=0.1)


def test_a_posterior_that_equals_a_wide_prior_is_passive_though_its_variance_is_not_1():
    mean = torch.full((500, 2), 2.0).double()
    prior = zs.Posterior(mean, torch.full_like(mean, 3.0))
    result = latent_histograms(prior, prior=prior)
    assert result.labels == ["passive", "passive"]
    assert result.ratio.tolist() == pytest.approx([1, 1])
    assert result.kl.tolist() == pytest.approx([0, 0])
    assert (result.distance < 1.8 / 500**0.5).all()  # in units of the prior
    assert set(result.fractions) == {"M", "S", "Z", "M†", "S†", "S / S†"}
    # The negative control: the rule on raw variances calls it mixed.
    assert latent_histograms(prior).labels == ["mixed", "mixed"]
    assert variable_types(prior.variance).mixed == [0, 1]


def test_means_samples_and_prior_means_share_bins_whose_ends_are_open():
    mean = gaussian_codes(3000, 2, scale=[1.0, 5.0])
    mean[0, 0] = 1e6  # one outlier leaves the bins as they are
    prior = zs.Posterior(mean.roll(1, 0), torch.ones_like(mean))
    result = latent_histograms(zs.Posterior(mean, torch.full_like(mean, 0.1)), prior=prior)
    for name, fractions in result.fractions.items():
        assert fractions.sum(1).tolist() == pytest.approx([1, 1]), name
    together = torch.cat([mean, mean.roll(1, 0)])
    assert -5 < result.code_edges[0, 0] < together[:, 0].quantile(0.01)
    assert 2 < result.code_edges[0, -1] < 5


def test_numbers_agree_with_scipy():
    posterior = zs.Posterior(gaussian_codes(800, 3) ** 3, torch.full((800, 3), 0.2).double())
    result = latent_histograms(posterior, generator=seeded(4))
    z = posterior.sample(seeded(4))
    for j in range(3):
        expected = stats.kstest(z[:, j].numpy(), "norm").statistic
        assert result.distance[j] == pytest.approx(expected)
        expected = stats.kurtosis(posterior.mean[:, j].numpy())
        assert result.kurtosis[j] == pytest.approx(expected)
        edges = result.code_edges[j].numpy()
        counts = np.histogram(z[:, j].numpy(), edges)[0] / 800
        np.testing.assert_allclose(result.fractions["Z"][j, 1:-1].numpy(), counts[1:-1])
    assert result.labels == variable_types(posterior.variance).labels


def test_flipping_a_latent_mirrors_its_histogram_and_permuting_permutes():
    posterior = zs.Posterior(gaussian_codes(999, 2).exp(), torch.full((999, 2), 0.3).double())
    before = latent_histograms(posterior)
    flipped = zs.Posterior(-posterior.mean.flip(1), posterior.std)
    after = latent_histograms(flipped)
    assert after.kurtosis == pytest.approx(before.kurtosis[::-1])
    assert after.spread_of_means.tolist() == before.spread_of_means.flip(0).tolist()
    # Bins also depend on Z, whose noise is not flipped: compare the shape of M on its own bins.
    mirrored = after.fractions["M"][1].flip(0).cumsum(0)
    assert (mirrored - before.fractions["M"][0].cumsum(0)).abs().max() < 0.1
    assert (after.fractions["M"][1].cumsum(0) - mirrored).abs().max() > 0.3  # it is skewed


def test_figures_show_chosen_latents_or_some_of_many():
    many = zs.Posterior(gaussian_codes(200, 20), torch.linspace(0.05, 1, 20).expand(200, 20))
    result = latent_histograms(many)
    figure = result.plot()
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 8 * 3
    assert "8 of 20 latents" in figure.get_suptitle()
    one = result.plot(latents=[3])
    assert [ax.get_xlabel() for ax in one.axes] == ["mean M", "variance S", "sample Z"]
    assert one.axes[0].get_title(loc="left").startswith("latent 3: active")
    prior = zs.Posterior(many.mean, torch.ones_like(many.mean))
    assert len(latent_histograms(many, prior=prior).plot(latents=[0]).axes) == 4
    with pytest.raises(ConfigError, match="from 0 to 19"):
        result.plot(latents=[20])


def test_what_has_no_variances_is_refused():
    with pytest.raises(Undefined, match="50 posteriors, without variances"):
        latent_histograms(zs.Posterior(gaussian_codes(50, 2)))
    posterior = passive(50, 2)
    with pytest.raises(Undefined, match=r"shape \(50, 2\), and a prior of shape \(40, 2\)"):
        latent_histograms(posterior, prior=passive(40, 2))
    with pytest.raises(ConfigError, match="bins=1"):
        latent_histograms(posterior, bins=1)


def test_the_prior_of_a_conditional_model_comes_from_the_recording():
    class Conditional(zs.Autoencoder):
        """The prior is N(u, 9); the posterior equals it in latent 0 and is narrow in latent 1."""

        latents, prior, needs_auxiliary = 2, None, True

        def encode(self, x, auxiliary):
            mean = torch.cat([auxiliary[:, :1], x[:, :1]], 1)
            return zs.Posterior(mean, torch.tensor([3.0, 0.1]).expand_as(mean))

        def decode(self, z):
            return z

        def prior_given(self, auxiliary):
            mean = auxiliary[:, :1].expand(-1, 2)
            return zs.Posterior(mean, torch.full_like(mean, 3.0))

    u = torch.arange(600) % 3
    data = zs.data.from_arrays(u[:, None] + 0.1 * gaussian_codes(600, 2), u[:, None].numpy())
    recording = zs.record(Conditional(), data)
    result = latent_histograms(recording)
    assert result.labels == ["passive", "active"]
    assert result.conditional
    assert result.ratio.tolist() == pytest.approx([1, 0.01 / 9], rel=1e-4)
    assert recording.conditional_prior.mean[:, 0].tolist() == u.double().tolist()

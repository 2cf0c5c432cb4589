"""A prior that depends on the factors: everything measured against the prior uses that one."""

import numpy as np
import pytest
import torch
from torch import Tensor

import zscope as zs


class Shifted(zs.Autoencoder):
    """Its posteriors are N(x, diag(1, 1/4)), its prior N(3 u, diag(16, 1/4)); u is a factor.

    The codes of the second latent are 3 u, so that its posterior equals the prior.
    """

    latents = 2
    prior = None

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> zs.Posterior:
        return zs.Posterior(x, torch.tensor([1.0, 0.5]).to(x).expand_as(x))

    def decode(self, z: Tensor) -> Tensor:
        return z

    def prior_given(self, auxiliary: Tensor) -> zs.Posterior:
        mean = 3 * auxiliary.float().expand(-1, 2)
        return zs.Posterior(mean, torch.tensor([4.0, 0.5]).expand_as(mean))


@pytest.fixture(scope="module", name="recording")
def _recording() -> zs.Recording:
    factor = torch.arange(300)[:, None] % 4
    noise = torch.randn(300, 1, generator=torch.Generator().manual_seed(0))
    x = torch.cat([3 * factor + 4 * noise, 3 * factor], 1)
    data = zs.data.from_arrays(x, factor.numpy(), factor_kinds=["categorical"])
    return zs.record(Shifted(), data)


@pytest.fixture(scope="module", name="nats")
def _nats(recording) -> np.ndarray:
    """KL(N(m, 1) || N(3 u, 16)) of the first latent, by hand."""
    gap = recording.codes[:, 0].double().numpy() - 3 * recording.factors.values[:, 0]
    return 0.5 * ((1 + gap**2) / 16 - 1 + np.log(16))


def test_all_divergences_of_a_report_are_from_the_prior_given_the_factors(recording, nats):
    report = zs.assay(recording, names=["latent-divergence", "polarisation", "rate-distortion"])
    expected = pytest.approx(nats.mean(), rel=1e-5)
    assert report.results["latent-divergence"].rate == expected
    assert report.results["polarisation"].divergence == expected
    assert report.results["rate-distortion"].rate == expected
    assert sum(row["kl"] for row in report.latents) == expected
    assert report.results["polarisation"].passive == [1]


def test_the_information_may_exceed_a_rate_that_the_factors_lower(recording):
    """The second latent costs nothing, but its code says what the factor is."""
    means = recording.codes.clone()
    means[:, 0] = means[:, 1]  # the posterior of the first latent is around its prior's mean too
    result = zs.assays.rate_distortion(
        Shifted(), means, posterior=zs.Posterior(means, recording.posterior.std), kl=means * 0
    )
    assert result.rate == 0
    assert result.information > 1


def test_all_types_of_a_report_are_against_the_prior_given_the_factors(recording):
    types = zs.assays.variable_types(recording)
    assert (types.active, types.mixed, types.passive) == ([0], [], [1])
    subsets = {"full": [0, 1], "active": [0], "passive": [1], "active+mixed": [0]}
    subsets["active+passive"] = [0, 1]
    assert zs.assays.truncation(recording).subsets == subsets
    probe = zs.assays.type_probe(recording)
    assert set(probe.accuracy["mean"]) == set(subsets)


def test_the_trace_gap_counts_a_passive_latent_once(recording):
    gap = zs.assays.trace_gap(recording)
    assert gap.score == pytest.approx(1 / 16 + 1)
    assert gap.chance == 2


def test_posteriors_of_other_observations_are_refused(recording):
    with pytest.raises(zs.ZscopeError, match=r"300 observations and 10 posteriors\. Give the"):
        zs.assays.rate_distortion(
            Shifted(), recording.observations, posterior=recording.posterior[:10]
        )


def test_every_count_of_an_ivae_is_against_its_own_prior():
    """A trained iVAE with more latents than it can use: all assays and findings agree."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, 1500)
    z = rng.normal(size=(1500, 2)) * (0.5 + label[:, None]) + 2.0 * label[:, None]
    x = (z @ rng.normal(size=(2, 8))).astype(np.float32) / 6
    factors = np.stack([label, rng.integers(0, 3, 1500)], 1)
    data = zs.data.from_arrays(x, factors, factor_kinds=["categorical", "categorical"])
    model = zs.models.build_for("ivae", data, latents=6, hidden=(32,), seed=0)
    zs.train(model, data, steps=600, batch=64, rate=5e-3, seed=0, progress=False)
    recording = zs.record(model, data)
    unused = recording.usage.unused
    assert 0 < len(unused) < 6
    names = ["polarisation", "latent-divergence", "rate-distortion", "trace-gap", "mig", "sap"]
    report = zs.assay(recording, names=names)
    assert not report.failed
    results = report.results
    assert results["polarisation"].passive == unused
    assert results["mig"].passive == unused
    assert results["sap"].passive == unused
    assert sorted(row["latent"] for row in report.latents if not row["used"]) == unused
    assert any(
        finding.text.startswith(f"{len(unused)} of 6 latents") for finding in report.findings
    )
    rate = results["latent-divergence"].rate
    assert results["rate-distortion"].rate == pytest.approx(rate, rel=1e-5)
    assert results["polarisation"].divergence == pytest.approx(rate, rel=1e-5)
    assert results["trace-gap"].score <= 6
    # The divergence from N(0, I), which is not its prior, is another number.
    assert float(recording.posterior.kl().sum(1).mean()) != pytest.approx(rate, rel=0.1)

"""A prior that depends on the factors: everything measured against the prior uses that one."""

import numpy as np
import pytest
import torch
from torch import Tensor

import zscope as zs
from zscope.usage import usage_of_posterior


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
    # H(u) = log 4 nats are all that these codes can tell.
    assert 1 < result.information <= np.log(4)
    assert "information includes what the codes tell about them" in result.flags[0]
    posterior = zs.Posterior(means, recording.posterior.std)
    assert zs.assays.rate_distortion(Shifted(), means, posterior=posterior).flags == []


def test_the_information_is_at_most_that_of_the_single_latents():
    """One draw from each posterior estimates it with an error; the bound is exact."""
    x = 0.05 * torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
    posterior = zs.Posterior(x, torch.ones(40, 2))
    bound = float(usage_of_posterior(posterior).values.sum())
    assert 0 < bound < 0.01
    found = [
        zs.assays.rate_distortion(
            Shifted(), x, posterior=posterior, kl=x * 0, generator=torch.Generator().manual_seed(k)
        ).information
        for k in range(8)
    ]
    assert max(found) == pytest.approx(bound)  # some of the estimates lie above it
    assert min(found) < bound


class Told(Shifted):
    """Prior and posterior are N(3 u, 1) in the first latent, N(0, 1) in the second."""

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> zs.Posterior:
        return zs.Posterior(x, torch.ones_like(x))

    def prior_given(self, auxiliary: Tensor) -> zs.Posterior:
        mean = auxiliary.float() * torch.tensor([3.0, 0.0])
        return zs.Posterior(mean, torch.ones_like(mean))


def test_a_latent_that_tells_no_more_than_the_factors_is_in_use():
    factor = torch.arange(400)[:, None] % 4
    x = factor * torch.tensor([3.0, 0.0])
    recording = zs.record(Told(), zs.data.from_arrays(x, factor.numpy(), factor_kinds=["ordinal"]))
    assert zs.assays.latent_divergence(recording).per_latent.tolist() == [0, 0]
    assert zs.assays.variable_types(recording).passive == [0, 1]
    assert zs.assays.trace_gap(recording).score == 2
    assert (recording.used, recording.usage.unused) == ([0], [1])
    # 9 Var(u) = 11.25, and a posterior variance of 1.
    assert recording.usage.values.tolist() == pytest.approx([0.5 * np.log(1 + 11.25), 0])
    assert zs.assays.mcc(recording).score > 0.99
    alone = zs.Recording.from_arrays(recording.codes, variances=torch.ones(400, 2))
    assert alone.used == [0]  # whoever knows the posteriors alone says the same


def test_an_ivae_that_encodes_the_factors_alone_is_not_called_collapsed(capsys):
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 4, (600, 2))
    x = np.tanh((factors - 1.5) @ rng.normal(size=(2, 8))) + 0.05 * rng.normal(size=(600, 8))
    data = zs.data.from_arrays(x.astype(np.float32), factors, factor_kinds=["ordinal"] * 2)
    model = zs.models.build_for("ivae", data, latents=3, hidden=(32,), prior_mean="learned", seed=1)
    run = zs.train(model, data, steps=300, batch=64, rate=5e-3, seed=1)
    assert run.history[-1]["passive"] == 3
    warning = capsys.readouterr().err
    assert "no latent tells more than the factors do after 300 steps" in warning
    assert "say nothing about the data" not in warning
    recording = zs.record(model, data)
    report = zs.assay(recording, names=["variable-types", "trace-gap", "explicitness"])
    assert report.results["variable-types"].passive == [0, 1, 2]
    assert report.results["trace-gap"].score <= 3
    assert recording.used == [0, 1, 2]
    assert report.results["explicitness"].score > 0.8
    assert report.results["explicitness"].active == [0, 1, 2]
    texts = [finding.text for finding in report.findings]
    assert "All 3 latents carry information" in texts
    least = report.latents[-1]
    assert (
        least["information"]
        == min(row["information"] for row in report.latents)
        > 0.1
        > least["kl"]
    )


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
    zs.train(model, data, steps=300, batch=64, rate=1e-2, seed=0, progress=False)
    recording = zs.record(model, data)
    names = ["polarisation", "latent-divergence", "rate-distortion", "trace-gap", "mig", "sap"]
    report = zs.assay(recording, names=[*names, "variable-types"])
    assert not report.failed
    results = report.results
    # Five latents hardly tell more than the factors, but their scale tells the factors.
    passive = results["variable-types"].passive
    assert 0 < len(passive) < 6
    assert results["polarisation"].passive == passive
    assert [
        j for j, kl in enumerate(results["latent-divergence"].per_latent) if kl < 0.1
    ] == passive
    assert sorted(row["latent"] for row in report.latents if row["type"] == "passive") == passive
    assert recording.used == results["mig"].active == results["sap"].active == list(range(6))
    assert all(row["used"] for row in report.latents)
    assert any(finding.text == "All 6 latents carry information" for finding in report.findings)
    rate = results["latent-divergence"].rate
    assert results["rate-distortion"].rate == pytest.approx(rate, rel=1e-5)
    assert results["polarisation"].divergence == pytest.approx(rate, rel=1e-5)
    assert results["trace-gap"].score <= 6
    # The divergence from N(0, I), which is not its prior, is another number.
    assert float(recording.posterior.kl().sum(1).mean()) != pytest.approx(rate, rel=0.1)

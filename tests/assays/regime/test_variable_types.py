"""Variable types: the detector, its streaming form, and the rule on divergences."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import zscope as zs
from zscope.assays.regime.divergence import gaussian_kl, latent_divergence
from zscope.assays.regime.types import VarianceMoments, variable_types, variable_types_by_kl
from zscope.errors import ConfigError, Undefined
from zscope.report.latents import latent_table


def mixture(active_share: float, samples: int = 1000) -> torch.Tensor:
    """Variance 0 for a share of the samples and 1 for the rest."""
    column = torch.ones(samples, 1)
    column[: round(active_share * samples)] = 0
    return column


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.95, "active"), (0.9, "active"), (0.5, "mixed"), (0.1, "passive"), (0.05, "passive")],
)
def test_an_ideal_mixture_gets_the_type_of_its_share(share, expected):
    types = variable_types(mixture(share))
    assert types.labels == [expected]
    assert types.mean_variance[0] == pytest.approx(1 - share)
    assert types.variance_of_variance[0] == pytest.approx(share * (1 - share))
    assert types.intermediate == []


def test_a_constant_half_is_mixed_by_the_rule_and_flagged_as_no_mixture():
    types = variable_types(torch.full((50, 1), 0.5))
    assert (types.mixed, types.intermediate) == ([0], [0])


def test_a_collapsed_model_has_only_passive_latents():
    types = variable_types(torch.ones(20, 3))
    assert (types.active, types.mixed, types.passive) == ([], [], [0, 1, 2])
    assert types.trace == pytest.approx(3)


def test_the_borders_belong_to_the_pure_types():
    S = torch.tensor([[0.1, 0.9, 1.1, 0.1001, 0.8999]]).repeat(10, 1)
    types = variable_types(S)
    assert (types.active, types.passive, types.mixed) == ([0], [1, 2], [3, 4])


@given(seed=st.integers(0, 10_000), alpha=st.floats(0.01, 0.45))
def test_every_latent_has_exactly_one_type_whatever_the_order_of_samples(seed, alpha):
    generator = torch.Generator().manual_seed(seed)
    S = torch.rand(40, 6, generator=generator) * torch.rand(6, generator=generator) * 2
    types = variable_types(S, alpha=alpha)
    assert sorted(types.active + types.mixed + types.passive) == list(range(6))
    again = variable_types(S[torch.randperm(40, generator=generator)], alpha=alpha)
    assert again.labels == types.labels
    assert set(types.intermediate) <= set(types.mixed)


def test_a_shift_of_one_latent_is_not_ignored():
    S = torch.full((10, 1), 0.05)
    assert variable_types(S).active == [0]
    assert variable_types(S + 0.3).active == []


def test_streaming_equals_one_batch(tmp_path):
    generator = np.random.default_rng(0)
    S = generator.gamma(2.0, 0.2, size=(70_001, 4)).astype(np.float32) + 100  # offset: cancellation
    stored = np.memmap(tmp_path / "variances", np.float32, "w+", shape=S.shape)
    stored[:] = S
    whole = variable_types(stored)
    batches = variable_types(torch.from_numpy(S[k : k + 999]) for k in range(0, len(S), 999))
    for types in (whole, batches):
        assert types.samples == len(S)
        np.testing.assert_allclose(types.mean_variance, S.astype(float).mean(0), rtol=1e-12)
        np.testing.assert_allclose(types.variance_of_variance, S.astype(float).var(0), rtol=1e-10)


def test_log_variances_are_refused_with_a_way_forward():
    with pytest.raises(Undefined, match=r"negative.*log-variances.*posterior\.variance"):
        variable_types(torch.tensor([[0.2, -3.0]]))


def test_nothing_and_not_a_number_are_refused():
    with pytest.raises(Undefined, match="no variances were given"):
        variable_types(iter([]))
    with pytest.raises(Undefined, match="0 samples"):
        variable_types(torch.zeros(0, 3))
    with pytest.raises(Undefined, match=r"NaN or infinity.*row 1"):
        variable_types(torch.tensor([[0.1], [float("nan")]]))
    with pytest.raises(ConfigError, match=r"between 0 and 0\.5"):
        variable_types(torch.ones(3, 1), alpha=0.5)
    with pytest.raises(Undefined, match="2 latents, earlier batches had 3"):
        VarianceMoments().add(torch.ones(2, 3)).add(torch.ones(2, 2))


def test_the_rule_on_divergences_agrees_with_the_rule_on_variances_for_a_normal_prior():
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(500, generator=generator)
    off = mixture(0.5, 500)[:, 0]
    mean = torch.stack([normal, normal * (1 - off), torch.zeros(500)], 1)
    variance = torch.stack([torch.full((500,), 0.02), off * 0.98 + 0.01, torch.ones(500)], 1)
    by_variance = variable_types(variance)
    kl = gaussian_kl(mean, variance.log())
    assert by_variance.labels == ["active", "mixed", "passive"]
    assert variable_types_by_kl(kl, variance).labels == by_variance.labels
    assert variable_types_by_kl(kl).labels == by_variance.labels


def test_a_passive_latent_of_an_ivae_is_found_at_any_level_of_its_prior():
    # Proposition 5.2.2: passive means posterior = prior, here both with variance 0.001.
    prior = torch.full((100, 2), 1e-3)
    prior[:, 1] = 400.0
    mean = torch.zeros(100, 2)
    mean[:, 1] = torch.linspace(-20, 20, 100)
    variance = torch.full((100, 2), 1e-3)
    kl = gaussian_kl(mean, variance.log(), torch.zeros(100, 2), prior.log())
    assert variable_types_by_kl(kl, variance / prior).labels == ["active", "passive"][::-1]
    assert variable_types(variance).active == [0, 1]  # the plain rule cannot see it


def test_a_recorded_ivae_is_typed_by_its_own_prior():
    digits = zs.data.load("digits")
    model = zs.models.build_for("ivae", digits, latents=3, backbone="mlp", hidden=(8,))
    last = model.objective.log_variance[-1]
    last.weight.data.zero_()
    last.bias.data = torch.tensor([-6.9, 0.0, 6.0])
    model.encoder.head.weight.data.zero_()
    # Latent 0 is its prior, of variance 0.001; latent 1 far more precise than its own; latent
    # 2 is N(0, 1) under a prior of variance 400.
    model.encoder.head.bias.data = torch.tensor([0.0, 1.0, 0.0, -6.9, -6.9, 0.0])
    recording = zs.record(model, digits, samples=200)
    types = variable_types(recording)
    assert (types.rule, types.labels) == ("kl", ["passive", "active", "active"])
    assert variable_types(recording.posterior.variance).labels == ["active", "active", "passive"]
    nats = latent_divergence(recording).per_latent
    expected = gaussian_kl(
        recording.codes,
        recording.posterior.variance.log(),
        torch.zeros(1, 3),
        torch.tensor([[-6.9, 0.0, 6.0]]),
    ).mean(0)
    torch.testing.assert_close(nats, expected, rtol=1e-4, atol=1e-5)
    assert {row["latent"]: row["type"] for row in latent_table(recording)} == dict(
        enumerate(types.labels)
    )
    pruned = zs.record(zs.prune(model, [2, 0]), digits, samples=200)
    assert variable_types(pruned).labels == ["active", "passive"]


def test_a_model_with_the_usual_prior_is_typed_by_its_variances():
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,))
    recording = zs.record(model, torch.zeros(30, 3))
    assert recording.relative is recording.posterior
    assert variable_types(recording).rule == "variance"


def test_negative_divergences_are_refused():
    with pytest.raises(Undefined, match="never negative"):
        variable_types_by_kl(torch.tensor([[-1.0]]))
    with pytest.raises(Undefined, match="same samples"):
        variable_types_by_kl(torch.ones(3, 2), torch.ones(2, 2))

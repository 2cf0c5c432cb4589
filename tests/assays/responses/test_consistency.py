import inspect
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import (
    constant,
    curved,
    gaussian_codes,
    identity,
    ignoring,
    permuted,
    random_rotation,
    rescaled,
    responding,
    seeded,
    turning,
)

import zscope as zs
from zscope.assays import interventional_consistency
from zscope.assays.engine import use_memory
from zscope.assays.responses.consistency import self_consistency
from zscope.errors import ConfigError, Undefined
from zscope.results import NOT_REQUESTED

seeds = st.integers(0, 10_000)
few = {"interventions": 4, "samples": 32}


def test_an_identity_autoencoder_is_consistent_in_every_way():
    found = interventional_consistency(identity(3, prior="normal"), gaussian_codes(200, 3), **few)
    torch.testing.assert_close(found.invariance, 1 - torch.eye(3, dtype=torch.float64))
    assert (found.equivariance == 1).all()
    assert set(found.self_consistency) == {"prior", "posterior", "hybrid", "uniform"}
    assert all((score == 1).all() for score in found.self_consistency.values())
    assert found.collapsed == []
    assert found.means["invariance"] == 1
    assert found.means == found.means_with_collapsed


@settings(max_examples=8)
@given(seed=seeds)
def test_a_rotation_has_its_closed_form(seed):
    # N' - N'_I is column m of Q times (N_m - v): only its size and sigma remain.
    rotation, codes = random_rotation(3, seed), gaussian_codes(100, 3, seed)
    world = turning(rotation, prior="normal")
    found = interventional_consistency(world, codes, **few, generator=seeded(seed))
    noises = next(batch for batch in world.decoded if len(batch) == 32)
    spread = (noises @ rotation.T).std(0, correction=0)
    expected = 1 - rotation.T.abs() * spread[:, None] / spread[None, :]
    torch.testing.assert_close(found.invariance, expected)
    paper = interventional_consistency(
        turning(rotation, prior="normal"), codes, **few, generator=seeded(seed), flavour="paper"
    )
    torch.testing.assert_close(paper.invariance, 1 - rotation.T.abs() / spread[None, :])


def test_a_constant_encoder_is_invariant_and_reported_as_collapsed():
    found = interventional_consistency(constant(3, prior="normal"), gaussian_codes(50, 3), **few)
    assert (found.invariance == 1).all()
    assert (found.equivariance == 1).all()
    assert found.collapsed == [0, 1, 2]
    assert found.means == {}
    assert found.means_with_collapsed["invariance"] == 1
    assert found.to_dict()["self_consistency"]["prior"] == [["-inf"] * 3]


def by_hand(world, noises, values, *, paper=False):
    """Loops over units, interventions and samples, straight from the definitions."""
    units, each = values.shape[:2]

    def respond(z):
        return world.encoder(world.decoder(torch.from_numpy(z)[None]))[0].numpy()

    def causes(z):
        return world.causes(torch.from_numpy(z)[None])[0].numpy()

    before = np.array([respond(z) for z in noises])
    sigma = before.std(0)
    sigma_cause = np.array([causes(z) for z in before]).std(0)
    invariance, equivariance = np.zeros((units, units)), np.zeros((units, units))
    for m in range(units):
        for j in range(each):
            v = values[m, j, m]
            moved, strayed, effort = np.zeros(units), np.zeros(units), 0.0
            for z, r in zip(noises, before, strict=True):
                z_set, r_set = z.copy(), r.copy()
                z_set[m] = r_set[m] = v
                after = respond(z_set)
                moved += np.abs(r - after) / len(noises)
                strayed += np.abs(causes(after) - causes(r_set)) / len(noises)
                effort += abs(z[m] - v) / len(noises)
            effort = effort if paper else effort / sigma[m]
            invariance[m] += moved / (effort * sigma) / each
            equivariance[m] += strayed / (effort * sigma_cause) / each
    return 1 - invariance, 1 - equivariance


class Blocked(zs.Autoencoder):
    """Noises, and causes that are a lower-triangular function of them."""

    latents, prior = 3, "normal"

    def __init__(self):
        super().__init__()
        self.world, self.seen = curved(3), []
        self.encoder = self.world.encoder

    def causes(self, noise):
        second = noise[:, 1] + noise[:, 0].square()
        return torch.stack([noise[:, 0], second, noise[:, 2] - second], 1)

    def decoder(self, noise):
        return self.causes(noise)

    def decode(self, z):
        self.seen.append(z)
        return self.decoder(z)

    def encode(self, x, auxiliary=None):
        return zs.Posterior(self.encoder(x))


@pytest.mark.parametrize("flavour", ["scale-free", "paper"])
def test_agrees_with_loops_over_everything_for_a_model_with_a_causal_block(flavour):
    world, codes = Blocked(), gaussian_codes(60, 3, 5)
    found = interventional_consistency(world, codes, interventions=3, samples=7, flavour=flavour)
    noises = next(batch for batch in world.seen if len(batch) == 7).numpy()
    changed = next(batch for batch in world.seen if len(batch) == 63).numpy()
    values = changed.reshape(3, 3, 7, 3)[:, :, 0]
    for m in range(3):  # one value for the whole batch, from the recorded codes
        intervened = changed.reshape(3, 3, 7, 3)[m, :, :, m]
        assert (intervened == intervened[:, :1]).all()
        assert np.isin(intervened, codes[:, m].numpy()).all()
    invariance, equivariance = by_hand(world, noises, values, paper=flavour == "paper")
    assert found.invariance.numpy() == pytest.approx(invariance)
    assert found.equivariance.numpy() == pytest.approx(equivariance)
    assert not np.allclose(invariance, equivariance)


def test_several_causes_of_one_noise_are_one_unit():
    class Doubled(Blocked):
        def causes(self, noise):
            return noise.repeat_interleave(2, dim=1) * torch.tensor([3.0, 4, 3, 4, 3, 4]).to(noise)

        def decoder(self, noise):
            return noise

    plain = Blocked()
    plain.causes = lambda noise: noise
    plain.decoder = lambda noise: noise
    codes = gaussian_codes(60, 3)
    doubled = interventional_consistency(Doubled(), codes, **few)
    single = interventional_consistency(plain, codes, **few)
    torch.testing.assert_close(doubled.equivariance, single.equivariance)


def test_a_model_of_the_zoo_with_a_causal_block_is_measured_by_unit():
    model = zs.models.build("ae", shape=(6,), latents=3, block="causal", unit=4)
    found = interventional_consistency(model, gaussian_codes(50, 3).float(), **few)
    assert found.equivariance.shape == (3, 3)
    assert found.equivariance.isfinite().all()
    assert not torch.allclose(found.equivariance, found.invariance)


@settings(max_examples=8)
@given(seed=seeds)
def test_rescaling_latents_changes_nothing_but_the_paper_s_form(seed):
    codes, scale = gaussian_codes(80, 3, seed), torch.tensor([1.0, 10.0, 0.2]).double()
    world = curved(3, seed)
    here = interventional_consistency(world, codes, **few)
    there = interventional_consistency(rescaled(world, scale), codes * scale, **few)
    torch.testing.assert_close(there.invariance, here.invariance)
    torch.testing.assert_close(there.equivariance, here.equivariance)
    for name, scores in here.self_consistency.items():
        torch.testing.assert_close(there.self_consistency[name], scores)
    paper = interventional_consistency(world, codes, **few, flavour="paper")
    moved = interventional_consistency(
        rescaled(world, scale), codes * scale, **few, flavour="paper"
    )
    assert not torch.allclose(paper.invariance, moved.invariance)


def test_both_forms_agree_where_responses_have_unit_spread():
    codes, many = gaussian_codes(100, 2), {"interventions": 4, "samples": 20_000}
    ours, paper = (
        interventional_consistency(
            turning(random_rotation(2), prior="normal"), codes, **many, flavour=flavour
        )
        for flavour in ("scale-free", "paper")
    )
    torch.testing.assert_close(ours.invariance, paper.invariance, atol=0.02, rtol=0)


@settings(max_examples=8)
@given(seed=seeds)
def test_permuting_the_latents_permutes_the_scores(seed):
    world, codes = curved(3, seed), gaussian_codes(60, 3, seed)
    order = torch.randperm(3, generator=seeded(seed)).tolist()
    here = interventional_consistency(world, codes, **few, base="posterior")
    there = interventional_consistency(
        permuted(world, order), codes[:, order], **few, base="posterior"
    )
    torch.testing.assert_close(there.invariance, here.invariance[order][:, order])
    torch.testing.assert_close(there.equivariance, here.equivariance[order][:, order])


def test_collapsed_units_are_reported_and_left_out_of_the_means():
    codes, world = gaussian_codes(200, 3), ignoring(3, [2], prior="normal")
    found = interventional_consistency(world, codes, **few)
    assert found.collapsed == [2]
    assert found.means["invariance"] == 1
    assert found.means["equivariance"] == 1
    assert found.means["self-consistency (posterior)"] == 1
    assert found.means_with_collapsed["self-consistency (posterior)"] == -math.inf


@pytest.mark.parametrize(("answer", "collapsed"), [(0.2, []), (0.05, [2]), (1e-5, [2])])
def test_a_unit_is_collapsed_when_it_answers_with_less_than_a_tenth(answer, collapsed):
    def encoder(z):
        return z * torch.tensor([1, 1, answer]).to(z)

    found = interventional_consistency(responding(encoder, 3), gaussian_codes(200, 3), **few)
    assert found.collapsed == collapsed
    if answer > 1e-4:  # the diagonal says how much is lost
        assert found.invariance[2, 2].item() == pytest.approx(1 - answer)
    else:  # too faint to be told from rounding
        assert found.invariance[2, 2] == 1


def test_a_unit_that_moves_without_its_own_intervention_is_collapsed_by_its_diagonal():
    # Latent 1 answers to latent 0 alone: it varies, but nobody notices its interventions.
    def encoder(z):
        return z[:, [0, 0]]

    found = interventional_consistency(responding(encoder, 2), gaussian_codes(100, 2), **few)
    assert found.invariance[1, 1] == 1
    assert found.collapsed == [1]
    assert found.invariance[0, 1].item() == pytest.approx(0)


def test_groups_are_intervened_on_as_wholes():
    turned = torch.eye(3, dtype=torch.float64)
    turned[:2, :2] = random_rotation(2, 4)
    codes = gaussian_codes(200, 3)
    apart = interventional_consistency(turning(turned), codes, **few)
    together = interventional_consistency(turning(turned), codes, **few, groups=[[0, 1], [2]])
    assert apart.means["invariance"] < 0.9
    assert together.means["invariance"] == pytest.approx(1)
    assert together.invariance.shape == (2, 2)
    assert together.invariance.diagonal().tolist() == pytest.approx([0, 0], abs=1e-9)


def test_models_without_a_prior_start_from_hybrids_and_have_no_prior_score():
    found = interventional_consistency(identity(2), gaussian_codes(100, 2), **few)
    assert found.base == "hybrid"
    assert set(found.self_consistency) == {"posterior", "hybrid", "uniform"}
    chosen = interventional_consistency(identity(2), gaussian_codes(100, 2), **few, base="uniform")
    assert chosen.base == "uniform"


def test_self_consistency_has_its_closed_form():
    noises = gaussian_codes(500, 2)
    score = self_consistency(responding(lambda z: 0.5 * z, 2), noises)
    sigma = noises.std(0, correction=0)
    torch.testing.assert_close(score[0], 1 - noises.abs().mean(0) / sigma)


def test_levels_apply_the_response_again_and_again():
    noises = gaussian_codes(500, 1)
    scores = self_consistency(responding(lambda z: 0.5 * z, 1), noises, levels=3)
    sigma = 0.5 * noises.std(0, correction=0)
    lost = torch.tensor([[0.5], [0.75], [0.875]]).double()
    torch.testing.assert_close(scores, 1 - lost * noises.abs().mean(0) / sigma)
    found = interventional_consistency(identity(2), gaussian_codes(50, 2), **few, levels=3)
    assert found.self_consistency["posterior"].shape == (3, 2)


def test_hybrids_break_what_the_posterior_keeps():
    # The codes lie on a line, and the response projects on it.
    codes = gaussian_codes(300, 1).expand(300, 2).contiguous()
    world = responding(lambda z: z.mean(1, keepdim=True).expand_as(z), 2)
    means = interventional_consistency(world, codes, **few).means_with_collapsed
    assert means["self-consistency (posterior)"] == pytest.approx(1)
    assert means["self-consistency (hybrid)"] < 0.5
    assert means["self-consistency (uniform)"] < 0.5


def test_a_plain_call_repeats_itself():
    first, again = (
        interventional_consistency(curved(2), gaussian_codes(50, 2), **few) for _ in range(2)
    )
    assert torch.equal(first.invariance, again.invariance)


def test_the_largest_batch_is_set_by_the_budget():
    world = curved(4)
    with use_memory(100_000):
        interventional_consistency(world, gaussian_codes(100, 4))
    assert max(map(len, world.decoded)) <= 100_000 / (32 * 8 * 4)


def test_a_chunk_that_ends_inside_an_intervention_changes_nothing():
    codes = gaussian_codes(100, 3)
    whole = interventional_consistency(curved(3), codes, **few)
    with use_memory(37_000):
        parts = interventional_consistency(curved(3), codes, **few)
    torch.testing.assert_close(parts.invariance, whole.invariance)
    torch.testing.assert_close(parts.equivariance, whole.equivariance)


def test_bad_input_is_refused():
    codes, unchecked = gaussian_codes(50, 3), inspect.unwrap(interventional_consistency)
    with pytest.raises(Undefined, match=r"2 codes for 3 latents"):
        interventional_consistency(identity(3), codes[:2])
    with pytest.raises(ConfigError, match="interventions=0"):
        interventional_consistency(identity(3), codes, interventions=0)
    with pytest.raises(ConfigError, match="flavour='new'"):
        unchecked(identity(3), codes, flavour="new")
    with pytest.raises(Undefined, match="no prior to draw from"):
        interventional_consistency(identity(3), codes, base="prior")


def test_a_missing_interval_is_not_requested_or_of_too_many_units():
    def reasons(units, resamples):
        found = interventional_consistency(
            identity(units), gaussian_codes(400, units), samples=8, resamples=resamples
        )
        return {each.name: each.interval for each in found.measures() if each.name in found.means}

    assert set(reasons(3, 0).values()) == {NOT_REQUESTED}
    assert not any(isinstance(each, str) for each in reasons(3, 2).values())
    many = reasons(257, 2)
    assert "257, and at most 256" in many["invariance"]
    assert not isinstance(many["self-consistency (hybrid)"], str)
    assert set(reasons(257, 0).values()) == {NOT_REQUESTED}


@pytest.mark.parametrize("trials", [12, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_intervals_of_a_linear_response_hold_its_known_invariance(trials):
    """R(z) = A z: an intervention on m moves i by |A_im| |v - N_m|, so that 1 - INV is
    |A_im| s_m / s_i, with s_i the length of row i. All that is uncertain are the spreads."""
    matrix = torch.tensor([[1.0, 0.3, 0.0], [0.0, 0.7, 0.1], [0.2, 0.0, 0.5]]).double()
    world = responding(lambda z: z @ matrix.T.to(z), 3, prior="normal")
    length = matrix.norm(dim=1)
    error = matrix.T.abs() * length[:, None] / length
    truth = 1 - float((error.sum() - error.trace()) / 6)
    codes, inside = gaussian_codes(2000, 3).float(), 0
    for seed in range(trials):
        found = interventional_consistency(
            world, codes, interventions=8, resamples=50, generator=seeded(seed)
        )
        low, high = found.intervals["invariance"]
        inside += low <= truth <= high
    assert inside / trials > 0.87, inside


def test_means_of_all_units_and_the_count_of_collapsed_ones_are_scores():
    """Units that leak into each other, and one that does nothing, which raises the invariance."""
    leaking = responding(
        lambda z: torch.cat([z[:, :3] + 0.3 * z[:, [1, 2, 0]], 0 * z[:, 3:]], 1), 4
    )
    found = interventional_consistency(leaking, gaussian_codes(100, 4), samples=16)
    scores = {each.name: each.value for each in found.measures()}
    assert scores["collapsed units"] == 1
    for name, value in found.means_with_collapsed.items():
        if np.isfinite(value):
            assert scores[f"{name}, all units"] == value
    assert scores["invariance, all units"] > scores["invariance"] + 0.05


def test_scores_unit_by_unit():
    found = interventional_consistency(curved(3), gaussian_codes(100, 3), samples=16)
    by_hand = [
        np.mean([float(found.invariance[m, i]) for m in range(3) if m != i]) for i in range(3)
    ]
    assert found.by_unit("invariance").tolist() == pytest.approx(by_hand)
    assert found.by_unit("equivariance").mean() == pytest.approx(
        found.means_with_collapsed["equivariance"]
    )
    for name in found.self_consistency:
        title = f"self-consistency ({name})"
        assert found.by_unit(title).mean() == pytest.approx(found.means_with_collapsed[title])
    with pytest.raises(ConfigError, match="there is no 'invariant'"):
        found.by_unit("invariant")

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from worlds import World, constant, gaussian_codes, identity, rescaled, responding, seeded

import zscope as zs
from zscope.assays import hole_score, holes
from zscope.assays.engine import respond
from zscope.assays.responses.holes import hole_reference
from zscope.errors import ConfigError, Undefined


def ring(z):
    """A response that pulls every code to the circle of radius 2."""
    return 2 * z / z.norm(dim=1, keepdim=True)


def near_ring(samples, seed=0):
    directions = gaussian_codes(samples, 2, seed)
    noise = 1 + 0.05 * gaussian_codes(samples, 1, seed + 1)
    return 2 * directions / directions.norm(dim=1, keepdim=True) * noise


def test_a_code_far_from_self_consistent_ones_lies_in_a_hole():
    codes = torch.tensor([[2.0, 0], [0.1, 0], [5, 0]]).double()
    found = hole_score(responding(ring, 2), codes, near_ring(2000), samples=2000)
    assert found.holes == [1, 2]
    assert found.score == pytest.approx(2 / 3)
    assert found.percentile.tolist() == pytest.approx([0, 100, 100])
    assert found.ratio[0] == 0


def test_the_displacement_is_that_of_the_response_in_units_of_the_posterior_samples():
    codes = torch.tensor([[3.0, 0], [0, 1]]).double()
    model = responding(ring, 2, prior="normal")
    found = hole_score(model, codes, near_ring(2000), samples=2000)
    assert found.displacement.tolist() == pytest.approx([1, 1])
    # |2 noise| with noise of 0.05: its median is 0.6745 x 0.1.
    assert found.ratio[0].item() == pytest.approx(1 / 0.06745, rel=0.1)
    assert found.limit == pytest.approx(2.576 * 0.1, rel=0.1)


def test_posterior_samples_themselves_are_in_holes_as_rarely_as_the_quantile_says():
    found = hole_score(responding(ring, 2), near_ring(4000, 9), near_ring(4000), samples=4000)
    assert found.score == pytest.approx(0.01, abs=0.008)
    assert found.percentile.mean().item() == pytest.approx(50, abs=3)
    wide = hole_score(responding(ring, 2), near_ring(4000, 9), near_ring(4000), quantile=0.5)
    assert wide.score == pytest.approx(0.5, abs=0.05)


def test_the_prior_falls_into_the_middle_of_a_ring():
    found = holes(responding(ring, 2, prior="normal"), near_ring(2000))
    radius = torch.randn(20_000, 2, generator=seeded(0)).norm(dim=1)
    exact = ((radius - 2).abs() > found.limit).double().mean().item()
    assert found.source == "prior"
    assert found.score == pytest.approx(exact, abs=0.05)


def test_an_identity_autoencoder_has_no_holes():
    assert holes(identity(3, prior="normal"), gaussian_codes(500, 3)).score == 0
    rounding = responding(lambda z: z * (1 + 1e-9), 3, prior="normal")
    assert holes(rounding, gaussian_codes(500, 3, scale=0.5)).score == 0


def test_latents_that_the_decoder_ignores_do_not_count():
    def response(z):
        return torch.cat([ring(z[:, :2]), 0 * z[:, 2:]], 1)

    known = torch.cat([near_ring(2000), gaussian_codes(2000, 1)], 1)
    codes = torch.tensor([[2.0, 0, 50], [0.1, 0, 0]]).double()
    found = hole_score(responding(response, 3, prior="normal"), codes, known)
    assert found.ignored == [2]
    assert found.holes == [1]


@settings(max_examples=8)
@given(factor=st.floats(0.001, 1000))
def test_rescaling_a_latent_of_a_model_without_a_prior_changes_nothing(factor):
    scale = torch.tensor([1, factor]).double()
    codes = gaussian_codes(50, 2)
    here = hole_score(responding(ring, 2), codes, near_ring(300))
    there = hole_score(rescaled(responding(ring, 2), scale), codes * scale, near_ring(300) * scale)
    torch.testing.assert_close(there.ratio, here.ratio)
    assert there.holes == here.holes


def test_models_without_a_prior_are_asked_about_hybrids():
    found = holes(responding(ring, 2), near_ring(1000))
    assert found.source == "hybrid"
    assert found.score > 0.3


def test_a_model_that_answers_to_nothing_has_no_self_consistent_codes():
    with pytest.raises(Undefined, match=r"none of the 2 latents is in use.*response-matrix"):
        holes(constant(2, prior="normal"), gaussian_codes(100, 2))


def test_bad_input_is_refused():
    posterior = zs.Posterior(gaussian_codes(50, 2))
    with pytest.raises(ConfigError, match="quantile=1 must lie"):
        hole_score(identity(2), gaussian_codes(5, 2), posterior, quantile=1)
    with pytest.raises(Undefined, match="codes with 3 latents against posterior samples with 2"):
        hole_score(identity(2), gaussian_codes(5, 3), posterior)


def test_posterior_samples_measured_once_serve_many_vectors():
    model, posterior = responding(ring, 2), near_ring(500)
    reference = hole_reference(model, posterior, samples=500)
    for seed in (1, 2):
        codes = gaussian_codes(20, 2, seed)
        whole = hole_score(model, codes, posterior, samples=500)
        model.decoded.clear()
        part = reference.score(codes, answers=ring(codes))
        assert model.decoded == []  # the answers were given
        assert part.to_dict() == whole.to_dict()
    with pytest.raises(Undefined, match="codes with 3 latents against.* 2"):
        reference.score(gaussian_codes(2, 3))


def repeated_holes(trials, spread=0.6):
    """(score, ends of its interval) of repeated draws, and the true share.

    Where 0.9 z answers z, a hole is a long vector: shares are those of chi-squared, 3.
    """
    model = responding(lambda z: 0.9 * z, 3, prior="normal")
    found = [
        holes(model, spread * gaussian_codes(600, 3, seed), samples=600, generator=seeded(seed))
        for seed in range(trials)
    ]
    rows = np.array([(each.score, *each.interval) for each in found]).T
    return *rows, chi2.sf(spread**2 * chi2.ppf(0.99, 3), 3)


def test_the_interval_knows_that_the_limit_was_measured_too():
    scores, low, high, truth = repeated_holes(30)
    assert low.mean() < truth < high.mean()
    # As wide as the scores vary; as a share of a fixed limit it is half of that.
    assert 0.75 < (high - low).mean() / (2 * 1.96 * scores.std(ddof=1)) < 1.5


@pytest.mark.slow
def test_intervals_hold_the_true_share_of_holes_nearly_as_often_as_they_say():
    _, low, high, truth = repeated_holes(150)
    # 0.95 promised; as a share of a fixed limit it is 0.6.
    assert np.mean((low <= truth) & (truth <= high)) > 0.88


def test_rounding_leaves_an_exact_autoencoder_without_holes_and_its_interval_alone():
    model = responding(lambda z: z * (1 + 1e-9), 2, prior="normal")
    found = holes(model, gaussian_codes(500, 2), samples=500)
    assert found.score == found.chance == 0
    assert found.interval[0] == 0
    assert found.interval[1] < 0.01


class RingWithDeadLatents(zs.Autoencoder):
    """Two latents on a ring; seven whose posteriors are nearly the prior, ignored by the decoder.

    Their means are small functions of the observation (standard deviation 0.16 to 0.37), as
    those of passive latents in trained VAEs.
    """

    latents, prior = 9, "normal"

    def decode(self, z):
        return ring(z[:, :2])

    def encode(self, x, auxiliary=None):
        angle = torch.atan2(x[:, 1], x[:, 0])[:, None]
        order = torch.arange(1, 8).to(x)
        dead = 2**0.5 * torch.linspace(0.16, 0.37, 7).to(x) * torch.cos(order * angle)
        mean = torch.cat([x, dead], 1)
        std = torch.tensor([0.05, 0.05] + [0.98] * 7).to(x)
        return zs.Posterior(mean, std.expand_as(mean))


def test_pruning_dead_latents_leaves_the_score_as_it_was():
    model = RingWithDeadLatents()
    recording = zs.record(model, near_ring(3000).float())
    assert recording.used == [0, 1]
    whole = holes(recording)
    pruned = holes(zs.record(zs.prune(model, recording.used), near_ring(3000).float()))
    assert whole.ignored == list(range(2, 9))
    assert whole.score > 0.5
    assert whole.interval[0] <= pruned.score <= whole.interval[1]
    # The noise of the dead latents alone moves a code by more than most holes are deep.
    everything = respond(model, recording.base_samples[:500]) - recording.base_samples[:500]
    assert everything[:, 2:].norm(dim=1).median() > 2 * whole.limit


def blank(size=16):
    """Bumps on a line, each decoded from its place; beyond 1, nothing is decoded.

    The encoder answers an empty line with the code 3, which decodes to an empty line: codes
    from 1.5 up move to it and stay, self-consistent and empty.
    """
    places = torch.linspace(-1, 1, size, dtype=torch.float64)

    def decoder(z):
        bump = torch.exp(-32 * (z[:, :1] - places).square())
        return torch.where(z[:, :1].abs() <= 1.2, bump, 0.0)

    def encoder(x):
        mass = x.sum(1, keepdim=True)
        mean = (x * places).sum(1, keepdim=True) / mass.clamp_min(1e-9)
        return torch.where(mass > 0.1, mean, 3.0)

    world = World(decoder, encoder, 1, prior="normal")
    codes = 1.8 * torch.rand(1500, 1, generator=seeded(7), dtype=torch.float64) - 0.9
    return world, zs.record(world, decoder(codes).float(), seed=3)


def test_a_code_that_decodes_to_itself_may_be_unlike_data():
    """Codes at 0 and at 3 are both self-consistent, but 3 decodes to an empty line."""
    world, recording = blank()
    codes = torch.tensor([[0.0], [3.0], [0.5]]).double()
    found = hole_score(world, codes, recording)
    assert found.displacement[1].item() == pytest.approx(0, abs=1e-9)
    assert found.holes == []
    assert found.unlike_data == [1]
    assert found.data_distance[1] > 2 * found.data_limit
    assert found.code_distance[1] > 2 * found.code_limit
    assert (found.data_distance[[0, 2]] < found.data_limit).all()
    shares = dict(found.summary())
    assert shares["self-consistent, unlike data"] == "33.3 %"
    # The same from responses that are already known.
    known = hole_reference(world, recording).score(
        codes, answers=world.encoder(world.decoder(codes))
    )
    torch.testing.assert_close(known.data_distance, found.data_distance)


@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.parametrize("latents", [2, 6])
def test_new_data_are_unlike_data_as_rarely_as_the_limit_says(seed, latents):
    """Negative control: where the codes fill the prior, 1 % of the prior is far, by each rule."""
    x = gaussian_codes(3000, latents, seed).float()
    recording = zs.record(identity(latents, prior="normal"), x, seed=seed)
    found = holes(recording)
    for distance, limit in (
        (found.code_distance, found.code_limit),
        (found.data_distance, found.data_limit),
    ):
        assert (distance > limit).double().mean().item() == pytest.approx(0.01, abs=0.015)
        assert distance.median().item() == pytest.approx(1, abs=0.1)


def test_codes_beside_those_of_data_are_told_by_their_distance():
    """An identity has no holes wherever codes lie: only the distance tells."""
    recording = zs.record(identity(3), gaussian_codes(2000, 3, 5).float())
    shares = []
    for shift in (0, 2, 4):
        found = hole_score(identity(3), gaussian_codes(300, 3, 6) + shift, recording)
        assert found.score == 0
        shares.append(len(found.unlike_data) / 300)
    assert shares[0] < 0.05 < shares[1] < 0.95 < shares[2]


def test_repeated_observations_and_scales_do_no_harm():
    x = gaussian_codes(50, 2).float().repeat(8, 1)
    found = holes(zs.record(identity(2, prior="normal"), x))
    assert found.data_distance.isfinite().all()
    few = holes(identity(2, prior="normal"), gaussian_codes(8, 2))
    assert few.data_distance is None
    assert few.code_distance.isfinite().all()

import inspect

import pytest
import torch
from worlds import (
    constant,
    expected_kernel,
    expected_mmd,
    gaussian_codes,
    identity,
    ignoring,
    responding,
    seeded,
)

from zscope.assays import structure_score
from zscope.errors import ConfigError, Undefined


def test_an_identity_autoencoder_has_no_structure():
    found = structure_score(identity(4, prior="normal"))
    assert abs(found.score) < 4 * found.standard_error
    assert found.p_value > 0.01
    assert found.distribution == "prior"


@pytest.mark.parametrize("scale", [0.5, 0.8, 1.5])
def test_a_response_that_scales_has_the_exact_score_of_two_gaussians(scale):
    found = structure_score(responding(lambda z: scale * z, 3, prior="normal"))
    assert abs(found.score - expected_mmd(3, scale**2)) < 4 * found.standard_error
    assert found.p_value < 0.05


def test_a_constant_encoder_has_the_score_of_a_point():
    found = structure_score(constant(2, 0.0, prior="normal"))
    exact = expected_kernel(0, 2, 2) + 7 - 2 * expected_kernel(0, 1, 2)
    assert abs(found.score - exact) < 4 * found.standard_error


def test_a_collapsed_latent_is_no_structure_unless_means_are_asked_for():
    # Latent 1 is ignored; its posterior is the prior. Latent 0 is kept as it is.
    world = ignoring(2, [1], prior="normal", std=torch.tensor([1e-6, 1.0]))
    sampled = structure_score(world)
    assert abs(sampled.score) < 4 * sampled.standard_error
    means = structure_score(world, response="mean")
    assert means.score > 20 * means.standard_error
    assert (sampled.response, means.response) == ("sampled", "mean")


def test_the_two_clouds_use_independent_draws():
    found = structure_score(identity(2, prior="normal"), samples=500)
    correlation = torch.corrcoef(torch.cat([found.drawn, found.responses], 1).T)[:2, 2:]
    assert correlation.abs().max() < 0.2


def test_the_causal_score_looks_at_causal_latents_alone():
    # Latent 1 is ignored and answers with a point; latent 0 is perfect.
    world = ignoring(2, [1], prior="normal")
    everything = structure_score(world, gaussian_codes(1000, 2))
    causal = structure_score(world, gaussian_codes(1000, 2), only_causal=True)
    assert everything.score > 20 * everything.standard_error
    assert causal.causal == [0]
    assert abs(causal.score) < 4 * causal.standard_error
    assert causal.drawn[:, 1].abs().max() == 0
    assert causal.responses[:, 1].abs().max() == 0
    assert structure_score(world, only_causal=True).causal == [0]  # needs only a prior
    assert structure_score(world, only_causal=True, causal=[1]).causal == [1]


def test_without_causal_latents_there_is_no_causal_score():
    with pytest.raises(Undefined, match=r"none of the 3 latents is causal.*response-matrix"):
        structure_score(constant(3, prior="normal"), gaussian_codes(100, 3), only_causal=True)


def test_a_model_without_a_prior_is_compared_with_its_hybrids():
    correlated = gaussian_codes(2000, 1) @ torch.ones(1, 2).double()
    found = structure_score(identity(2), correlated)
    assert found.distribution == "hybrid"
    assert abs(found.score) < 4 * found.standard_error
    # The encoder maps every hybrid back to the line that the codes form.
    projecting = responding(lambda z: z.mean(1, keepdim=True).expand_as(z), 2)
    line = structure_score(projecting, correlated)
    assert line.score > 10 * line.standard_error
    # As one variable the pair is never torn apart, and stays on the line.
    together = structure_score(projecting, correlated, groups=[[0, 1]])
    assert abs(together.score) < 4 * together.standard_error


def test_scaling_all_latents_of_a_model_without_a_prior_changes_nothing():
    def shrink(z):
        return 0.5 * z

    codes = gaussian_codes(500, 2)
    small = structure_score(responding(shrink, 2), codes, samples=300)
    large = structure_score(responding(shrink, 2), 1000 * codes, samples=300)
    assert large.score == pytest.approx(small.score, rel=1e-9)


def test_a_model_without_prior_and_codes_is_refused():
    with pytest.raises(Undefined, match=r"no prior and no codes.*recording\.posterior"):
        structure_score(identity(2))


def test_the_biased_statistic_is_an_option():
    world = identity(2, prior="normal")
    assert structure_score(world, samples=100, statistic="biased").score > 0


def test_bad_options_are_refused():
    world, unchecked = identity(2, prior="normal"), inspect.unwrap(structure_score)
    with pytest.raises(Undefined, match="3 samples cannot tell"):
        structure_score(world, samples=3)
    with pytest.raises(ConfigError, match="response='median'"):
        unchecked(world, response="median")
    with pytest.raises(ConfigError, match=r"causal=\[2\], but the model has 2"):
        structure_score(world, only_causal=True, causal=[2])


def test_another_seed_gives_another_draw_of_the_same_quantity():
    world = responding(lambda z: 0.7 * z, 2, prior="normal")
    first, second = (structure_score(world, generator=seeded(s)) for s in (1, 2))
    assert first.score != second.score
    error = (first.standard_error**2 + second.standard_error**2) ** 0.5
    assert abs(first.score - second.score) < 4 * error


def test_the_clouds_are_left_out_of_the_json():
    values = structure_score(identity(2, prior="normal"), samples=50).to_dict()
    assert "drawn" not in values
    assert values["samples"] == 50

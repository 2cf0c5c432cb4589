"""What every score carries: samples, interval and chance, each held against a known answer."""

import re

import numpy as np
import pytest
import torch
from worlds import gaussian_codes, grid, identity, responding

import zscope as zs
from zscope.assays.halves import halves_interval
from zscope.errors import ConfigError
from zscope.results import NOT_REQUESTED, Measure


def by_name(result):
    return {each.name: each for each in result.measures()}


def test_the_interval_of_a_mean_by_halves_is_the_textbook_one():
    rows = gaussian_codes(4000, 1)
    ends, _ = halves_interval(
        lambda part: float(part.mean()), rows, float(rows.mean()), 400, None, "x"
    )
    reach = 1.96 * float(rows.std()) / 4000**0.5
    assert ends[0] == pytest.approx(float(rows.mean()) - reach, abs=0.25 * reach)
    assert ends[1] == pytest.approx(float(rows.mean()) + reach, abs=0.25 * reach)
    assert halves_interval(lambda part: 0.0, rows, 0.0, 0, None, "x") == (None, NOT_REQUESTED)
    with pytest.raises(ConfigError, match="resamples=1 gives no interval"):
        halves_interval(lambda part: 0.0, rows, 0.0, 1, None, "x")


@pytest.mark.parametrize("halves", [5, 20])
def test_few_halves_hold_the_truth_as_often_as_many(halves):
    """The truth is 0. The outermost of 5 values would hold it 7 times in 10."""
    held = 0
    for seed in range(400):
        rows = gaussian_codes(200, 1, seed)
        value, source = float(rows.mean()), torch.Generator().manual_seed(seed)
        ends, _ = halves_interval(lambda part: float(part.mean()), rows, value, halves, source, "x")
        held += ends[0] < 0 < ends[1]
    assert 0.925 < held / 400 < 0.975


@pytest.mark.parametrize("name", ["total_correlation", "mutual_information", "effective_rank"])
def test_intervals_cover_what_other_samples_give(name):
    """The spread over fresh samples is what the interval of one of them promises."""
    assay, mix = getattr(zs.assays, name), torch.tensor([[1.0, 0.6, 0.0], [0, 0.8, 0.3], [0, 0, 1]])
    found = [assay(gaussian_codes(800, 3, seed) @ mix.double()).score for seed in range(30)]
    ends = assay(gaussian_codes(800, 3, 99) @ mix.double(), resamples=100).interval
    assert ends[1] - ends[0] == pytest.approx(2 * 1.96 * np.std(found, ddof=1), rel=0.45)
    assert assay(gaussian_codes(800, 3) @ mix.double()).interval is None


def test_the_rate_has_its_standard_error_and_a_silent_encoder_has_none():
    mean = gaussian_codes(5000, 2)
    posterior = zs.Posterior(mean, torch.full_like(mean, 0.5))
    rate = zs.assays.latent_divergence(posterior).measures()[0]
    each = posterior.kl().double().sum(1)
    reach = 1.96 * float(each.std()) / 5000**0.5
    assert rate.interval == pytest.approx((float(each.mean()) - reach, float(each.mean()) + reach))
    assert rate.chance == 0
    silent = zs.Posterior(torch.zeros(50, 2), torch.ones(50, 2))
    assert zs.assays.latent_divergence(silent).rate == 0


def test_the_trace_gap_of_posteriors_that_are_the_prior_is_its_chance():
    silent = zs.assays.trace_gap(zs.Posterior(torch.zeros(50, 3), torch.ones(50, 3)))
    assert silent.score == silent.chance == 3


def test_distortion_is_held_against_codes_of_other_observations():
    x = (gaussian_codes(600, 3) > 0).double()
    model = identity(3, std=0.01, prior="normal")
    found = zs.assays.rate_distortion(model, x, likelihood="gaussian")
    # |x - y|^2 of two independent coins is 1/2 each.
    assert found.ignorance == pytest.approx(1.5, abs=0.15)
    measured = by_name(found)
    assert measured["distortion"].value < 0.01
    assert set(measured) == {"distortion", "rate", "information"}
    assert measured["rate"].chance == measured["information"].chance == 0


@pytest.mark.parametrize("biased", [False, True])
def test_chance_of_the_structure_score_is_what_equal_distributions_give(biased):
    model = identity(2, prior="normal")
    statistic = "biased" if biased else "unbiased"
    found = [
        zs.assays.structure_score(
            model, samples=200, statistic=statistic, generator=torch.Generator().manual_seed(seed)
        )
        for seed in range(12)
    ]
    error = np.std([each.score for each in found], ddof=1) / 12**0.5
    assert np.mean([each.score for each in found]) == pytest.approx(found[0].chance, abs=4 * error)
    assert (found[0].chance > 0) == biased


def test_one_in_a_hundred_posterior_samples_lies_beyond_the_limit_of_holes():
    noise = responding(lambda z: z + 0.1 * torch.randn(z.shape, generator=RANDOM).to(z), 2)
    found = zs.assays.holes(noise, gaussian_codes(2000, 2), samples=1000)
    assert found.measures()[0].chance == pytest.approx(0.01, abs=0.001)


RANDOM = torch.Generator().manual_seed(0)


def test_consistency_is_one_for_the_identity_and_near_chance_for_answers_of_other_codes():
    codes = gaussian_codes(1000, 3)
    perfect = by_name(zs.assays.interventional_consistency(identity(3), codes, resamples=50))
    assert perfect["invariance"].value == pytest.approx(1)
    assert perfect["invariance"].interval == pytest.approx((1, 1))
    # |a - b| of two codes over |a - v|, both 2 / sqrt(pi) on average.
    assert perfect["invariance"].chance == pytest.approx(0, abs=0.25)
    assert perfect["self-consistency (hybrid)"].chance == pytest.approx(1 - 2 / np.pi**0.5, abs=0.2)
    deaf = responding(lambda z: z.roll(1, 0), 3)
    found = by_name(zs.assays.interventional_consistency(deaf, codes, resamples=50))
    for name in ("self-consistency (hybrid)", "self-consistency (posterior)"):
        low, high = found[name].interval
        assert low < found[name].value < high
        assert found[name].value == pytest.approx(perfect[name].chance, abs=0.3)


def test_more_interventions_and_samples_narrow_the_intervals_of_consistency():
    leaky = responding(lambda z: z @ torch.tensor([[1, 0.4], [0.1, 1]]).to(z), 2)
    codes = gaussian_codes(1000, 2)

    def width(interventions, samples):
        found = by_name(
            zs.assays.interventional_consistency(
                leaky, codes, interventions=interventions, samples=samples, resamples=100
            )
        )
        low, high = found["equivariance"].interval
        assert low <= found["equivariance"].value <= high
        return high - low

    assert width(64, 512) < 0.7 * width(8, 64)


def test_conditioning_is_held_against_pairs_that_differ_in_everything():
    factors = grid(6, 6)
    x = torch.from_numpy((factors - factors.mean(0)) / factors.std(0)).double()
    found = by_name(
        zs.assays.conditioned_response_matrix(identity(2), x, factors, causal=[0, 1], resamples=20)
    )
    assert found["disentanglement"].value == pytest.approx(1)
    assert found["completeness"].value == pytest.approx(1)
    assert found["disentanglement"].chance == pytest.approx(0, abs=0.15)
    assert found["completeness"].chance == pytest.approx(0, abs=0.15)


def test_all_three_numbers_of_dci_have_chance_and_interval():
    factors = grid(8, 8, 8)
    codes = torch.from_numpy(factors).double() + 0.01 * gaussian_codes(512, 3)
    found = zs.assays.dci(codes, factors, kinds="ordinal", resamples=5)
    measured = by_name(found)
    assert set(measured) == {"", "completeness", "informativeness"}
    for each in measured.values():
        assert each.chance < 0.5
        assert 0.9 < each.interval[0] <= each.value
    assert len(found.shuffled) == 1
    assert found.chance == found.shuffled[0]


def test_the_probe_is_as_sure_as_its_held_out_rows_allow():
    factors = grid(2, 2).repeat(100, 0)
    mean = torch.from_numpy(factors).double() + 1.0 * gaussian_codes(400, 2)
    found = zs.assays.type_probe(
        zs.Posterior(mean, torch.full_like(mean, 0.1)), factors, penalties=2, folds=2
    )
    each = by_name(found)["mean, full"]
    assert each.samples == found.test
    assert each.chance == 0.5
    reach = 1.96 * (each.value * (1 - each.value) / (2 * found.test)) ** 0.5
    assert each.interval[1] - each.value == pytest.approx(reach, rel=0.3)


def test_what_is_not_there_is_said_in_its_place():
    rank = zs.assays.effective_rank(gaussian_codes(100, 3)).measures()[0]
    assert rank.to_dict()["interval"] is None
    assert rank.to_dict()["no_interval"] == NOT_REQUESTED
    assert "resamples=0" in NOT_REQUESTED
    assert "few" not in NOT_REQUESTED
    assert "pure noise" in rank.to_dict()["no_chance"]
    full = Measure("a", 1.0, 5, (0.0, 2.0), 0.5).to_dict()
    assert full == {"score": "a", "value": 1.0, "samples": 5, "interval": [0.0, 2.0], "chance": 0.5}


TOO_FEW = "too few samples (3); an interval needs at least 4"
BY_HALVES = ["mutual_information", "effective_rank"]


@pytest.mark.parametrize("resamples", [0, 20])
@pytest.mark.parametrize("name", BY_HALVES)
def test_three_samples_are_too_few_for_an_interval_whether_requested_or_not(name, resamples):
    result = getattr(zs.assays, name)(gaussian_codes(3, 2), resamples=resamples)
    assert result.interval is None
    assert f"no interval  {TOO_FEW}" in repr(result).splitlines()
    assert result.measures()[0].to_dict()["no_interval"] == TOO_FEW


@pytest.mark.parametrize("name", BY_HALVES)
def test_four_samples_have_an_interval_if_it_is_requested(name):
    assay = getattr(zs.assays, name)
    with_interval = assay(gaussian_codes(40, 2)[:4], resamples=20)
    assert with_interval.interval is not None
    assert "no interval" not in repr(with_interval)
    without = assay(gaussian_codes(40, 2)[:4])
    assert f"no interval  {NOT_REQUESTED}" in repr(without).splitlines()


def test_an_interval_whose_halves_have_no_score_says_so_and_is_not_called_unrequested():
    """One code differs from nine equal ones: every half without it has no variance."""
    codes = torch.zeros(10, 2).double()
    codes[0] = torch.tensor([1.0, 2.0])
    reason = zs.assays.effective_rank(codes, resamples=20).measures()[0].interval
    assert re.fullmatch("the score is undefined for [0-9]+ of 20 halves of the samples", reason)
    # Five of ten rows: a half leaves the first out with probability 1/2.
    assert 3 <= int(reason.split()[5]) <= 17
    assert zs.assays.effective_rank(codes).measures()[0].interval == NOT_REQUESTED
    # Two codes of two latents lie on a line.
    few = zs.assays.total_correlation(gaussian_codes(4, 2), resamples=20).no_interval
    assert few == "the score is undefined for 20 of 20 halves of the samples"


@pytest.mark.parametrize("resamples", [0, 5])
def test_scores_and_udr_lack_an_interval_only_if_it_was_not_requested(resamples):
    factors = grid(4, 5)  # 20 samples, the fewest that scores accept
    codes = torch.from_numpy(factors).double() + 0.01 * gaussian_codes(20, 2)
    for result in (
        zs.assays.mig(codes, factors, kinds="ordinal", resamples=resamples),
        zs.assays.udr([codes, codes.flip(1)], resamples=resamples),
    ):
        reasons = [each.interval for each in result.measures() if isinstance(each.interval, str)]
        assert reasons == ([] if resamples else [NOT_REQUESTED])

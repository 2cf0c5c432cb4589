"""Faults known from other implementations, each shown to be absent here.

Where `flavour="dlib"` has the fault by definition, it is shown there too: the negative
control that the trap is real.
"""

import numpy as np
import pytest
from known_codes import aligned, drawn, grid, normal, rotated, standardised

import zscope.assays as a
from zscope.assays.disentanglement.modularity import debiased_modularity, modularity_of_codes
from zscope.assays.run import measure
from zscope.errors import Undefined
from zscope.recording import Recording

SIZES = (3, 6, 40, 32, 32)


@pytest.fixture(scope="module")
def wide():
    """The setting in which the faults were measured: perfectly aligned codes."""
    factors = drawn(SIZES, 10_000)
    return aligned(factors), factors


def with_passive(codes, count):
    return np.column_stack([codes, 0.01 * normal((len(codes), count), 77)])


def test_noise_dimensions_are_not_modular(wide):
    _, factors = wide
    noise = normal((10_000, 10), 5)
    found = a.modularity(noise, factors)
    assert found.score == 0
    assert any("the score is 0 by definition" in flag for flag in found.flags)
    older = a.modularity(noise, factors, flavour="dlib")
    assert older.score == pytest.approx(0.66, abs=0.06)
    assert older.chance == pytest.approx(older.score, abs=0.06)


def test_modularity_of_latents_in_use_by_type_is_zero_when_they_only_look_so():
    factors = drawn((3, 4), 1000)
    found = a.modularity(normal((1000, 3)), factors, variances=np.full((1000, 3), 0.01))
    assert found.score == 0
    assert any("No latent is informative" in flag for flag in found.flags)


@pytest.mark.usefixtures("one_permutation")
@pytest.mark.parametrize("name", ["modularity", "mig", "mig_sup", "jemmig", "dcimig"])
def test_passive_dimensions_do_not_move_a_score(wide, name):
    codes, factors = wide
    score = getattr(a, name)
    plain, more = score(codes, factors), score(with_passive(codes, 20), factors)
    assert more.score == pytest.approx(plain.score, abs=1e-6)
    assert more.passive == list(range(5, 25))


@pytest.mark.usefixtures("one_permutation")
def test_twenty_passive_dimensions_take_the_older_modularity_from_one_to_three_quarters(wide):
    codes, factors = wide
    older = [
        a.modularity(part, factors, flavour="dlib").score
        for part in (codes, with_passive(codes, 5), with_passive(codes, 20))
    ]
    assert older == pytest.approx([1.0, 0.833, 0.735], abs=0.02)
    assert a.modularity(codes, factors).score > 0.9999


@pytest.mark.usefixtures("one_permutation")
def test_one_outlier_row_does_not_ruin_mig(wide):
    codes, factors = wide
    spoilt = codes.copy()
    spoilt[0] = 100
    plain, moved = a.mig(codes, factors), a.mig(spoilt, factors)
    assert moved.score == pytest.approx(plain.score, abs=0.002)
    older = [a.mig(part, factors, flavour="dlib").score for part in (codes, spoilt)]
    assert older[0] == pytest.approx(0.74, abs=0.01)
    assert older[1] < older[0] - 0.2


def test_mig_divides_by_the_entropy_of_the_factor_not_of_the_code():
    # A code that tells a binary factor fully, and much else besides.
    factor = drawn((2,), 1000)
    code = 10 * factor[:, 0] + np.random.default_rng(0).random(1000)
    assert a.mig(code, factor).score > 0.95
    assert a.mig(code, factor, flavour="dlib").score > 0.95


def test_mig_of_one_code_is_its_share():
    factor = drawn((4,), 1000)
    for flavour in ("zscope", "dlib"):
        assert a.mig(factor.astype(float), factor, flavour=flavour).score == pytest.approx(1)


def test_the_limit_of_twenty_bins_is_stated():
    factor = np.arange(8000)[:, None] % 40
    found = a.mig(factor.astype(float), factor)
    assert found.score == pytest.approx(np.log(20) / np.log(40), abs=0.01)
    assert any("40 values" in flag and "0.81" in flag for flag in found.flags)


def test_small_samples_do_not_look_informative():
    # With 20 bins and 100 rows, plug-in information is far from 0 for noise.
    factors = drawn((5, 5), 100)
    older = a.mig_sup(normal((100, 3)), factors, flavour="dlib")
    assert older.matrix.min() > 0.1
    assert a.mig_sup(normal((100, 3)), factors).score == 0


def test_irs_takes_the_true_maximum_by_default_and_reports_the_floor(wide):
    _, factors = wide
    noise = normal((10_000, 10), 5)
    in_use = np.full(noise.shape, 0.01)
    ours, older = a.irs(noise, factors, variances=in_use), a.irs(noise, factors, flavour="dlib")
    assert older.score == pytest.approx(0.365, abs=0.02)
    assert ours.score < older.score - 0.1
    assert ours.chance == pytest.approx(ours.score, abs=0.02)
    assert older.chance == pytest.approx(older.score, abs=0.02)


@pytest.mark.usefixtures("one_permutation")
def test_noise_codes_do_not_move_irs(wide):
    # They would have most of the weight: .96 without them, and .3 with them.
    codes, factors = wide
    plain, noisy = a.irs(codes, factors), np.column_stack([codes, 20 * normal((10_000, 5), 5)])
    assert a.irs(noisy, factors).score == plain.score
    assert a.irs(noisy, factors).passive == list(range(5, 10))
    assert a.irs(noisy, factors, flavour="dlib").score < plain.score - 0.2


def test_irs_never_merges_the_values_of_a_discrete_factor():
    factor = np.arange(4000)[:, None] % 40
    code = np.random.default_rng(0).permutation(40)[factor[:, 0]].astype(float)
    assert a.irs(code, factor).score == pytest.approx(1)
    assert a.irs(code, factor, flavour="dlib").score < 0.8


@pytest.mark.usefixtures("one_permutation")
def test_counts_are_counts(wide):
    codes, factors = wide
    found = a.irs(codes - 100, factors)
    assert len(found.active) == 5
    assert found.groups == sum(SIZES)
    kept = a.factor_vae_score(with_passive(codes, 3), factors, flavour="dlib")
    assert (len(kept.active), len(kept.passive)) == (5, 3)


def test_irs_leaves_out_values_seen_too_seldom():
    factors = np.concatenate([np.repeat([0, 1], 200), [2, 2, 2, 3]])[:, None]
    found = a.irs(normal(404), factors, variances=np.full((404, 1), 0.01))
    assert (found.groups, found.small_groups) == (2, 2)
    assert any("2 of 4 values" in flag and "fewer than 10 rows" in flag for flag in found.flags)


def test_irs_refuses_factors_that_cannot_be_held():
    with pytest.raises(Undefined, match="10 rows or more.*kinds='continuous'"):
        a.irs(normal(60), np.arange(60) // 4)
    assert a.irs(np.arange(200.0), np.arange(200), kinds="continuous").score > 0.8


@pytest.mark.usefixtures("one_permutation")
def test_dead_codes_do_not_raise_completeness():
    factors = drawn((2, 2), 1500)
    halves = np.column_stack([factors[:, 0] + normal(1500, s) for s in (1, 2)])
    codes = np.column_stack([halves, factors[:, 1] + 0.1 * normal(1500, 3)])
    plain = a.dci(codes, factors)
    more = a.dci(np.column_stack([codes, normal((1500, 12), 9)]), factors)
    assert more.passive == list(range(3, 15))
    assert more.completeness == plain.completeness
    assert plain.completeness < 0.8
    older = [
        a.dci(part[:300], factors[:300], flavour="dlib").completeness
        for part in (codes, np.column_stack([codes, np.zeros((1500, 12))]))
    ]
    assert older[1] > older[0] + 0.15


def test_completeness_of_one_code_is_flagged():
    factors = drawn((3, 3), 400)
    one_code = a.dci(aligned(factors)[:, :1], factors)
    assert one_code.completeness == 1
    assert any("completeness is 1 by definition" in flag for flag in one_code.flags)


@pytest.mark.parametrize("name", ["dci", "modularity", "factor_vae_score", "beta_vae_score"])
def test_scores_that_compare_factors_are_not_measurable_with_one(name):
    # With one factor all of them were 1, and so was chance.
    factors = drawn((3, 3), 400)
    for flavour in ("zscope", "dlib"):
        with pytest.raises(Undefined, match="only factor 0 varies.*1 whatever the codes.*mig"):
            getattr(a, name)(aligned(factors), factors[:, :1], flavour=flavour)
    constant = factors * [1, 0]
    with pytest.raises(Undefined, match="missing, or constant in these rows"):
        getattr(a, name)(aligned(factors), constant)


def test_one_factor_gives_one_reason_for_all_scores():
    factors = drawn((3, 3), 400)
    recording = Recording.from_arrays(aligned(factors), factors[:, :1], kinds="categorical")
    found = measure(recording, ["disentanglement"])
    assert set(found.missing) == {"dci", "modularity", "factor-vae-score", "beta-vae-score"}
    assert len(set(found.missing.values())) == 1
    assert found.results["mig"].score > 0.9


@pytest.mark.parametrize("name", ["factor_vae_score", "beta_vae_score"])
def test_votes_for_one_of_k_factors_agree_once_in_k_times_by_chance(name):
    for sizes in ((3, 4), (3, 4, 5), (2, 3, 4, 5)):
        noise, factors = normal((3000, 4)), drawn(sizes, 3000)
        found = getattr(a, name)(noise, factors, resamples=2)
        assert found.active == []
        assert found.score == found.chance == 1 / len(sizes)
        assert any("that of guessing" in flag for flag in found.flags)
        # Noise that counts as in use gets the same from its votes.
        used = getattr(a, name)(noise, factors, variances=np.full(noise.shape, 0.01))
        assert used.chance == pytest.approx(found.chance, abs=0.04)


def test_dci_says_that_it_depends_on_the_number_of_samples():
    factors = drawn((3, 4), 2500)
    codes = rotated(factors, noise=0.8)
    few, many = a.dci(codes[:400], factors[:400]), a.dci(codes, factors)
    assert few.score < many.score - 0.03
    assert "at equal n only (here n = 400)" in str(few)
    assert "at equal n only (here n = 2,500)" in str(many)
    assert any("depends on the number of samples" in flag for flag in few.flags)
    assert not any("depends on the number of samples" in flag for flag in many.flags)


def test_the_chance_of_explicitness_comes_from_enough_permutations():
    factors = drawn((3, 4), 400)
    found = a.explicitness(aligned(factors, noise=1.0), factors)
    spread = np.std(found.shuffled, ddof=1)
    assert spread > 0.015  # the error of a chance level from one permutation
    assert spread / np.sqrt(len(found.shuffled)) < 0.012
    assert found.chance == pytest.approx(np.mean(found.shuffled))


def test_the_limit_of_few_values_in_jemmig_is_stated():
    factors = np.column_stack([np.arange(6000) % 4, np.arange(6000) // 4 % 20])
    codes = np.random.default_rng(0).random((6000, 2)) * 0.9 + factors
    found = a.jemmig(codes, factors)
    limit = 2 * np.log(4) / (np.log(4) + np.log(20))
    assert found.per_factor == pytest.approx([limit, 1], abs=0.02)
    flags = [flag for flag in found.flags if "at most" in flag]
    assert flags == [
        "Factor 0 has 4 values, and the best latent has 20 bins: the score of a factor can then be "
        "at most 0.63."
    ]
    # Codes that have no other values than the factor can reach 1.
    exact = a.jemmig(factors.astype(float), factors)
    assert exact.score == pytest.approx(1)
    assert not any("at most" in flag for flag in exact.flags)


@pytest.mark.usefixtures("one_permutation")
def test_the_order_of_the_rows_hardly_moves_the_predictability_gap():
    factors = drawn((3, 4, 5), 400, 31)
    codes = aligned(factors, noise=0.8, seed=32)
    orders = [np.random.default_rng(seed).permutation(400) for seed in range(12)]

    def spread(**options):
        scores = [a.predictability_gap(codes[o], factors[o], **options).score for o in orders]
        return np.ptp(scores)

    assert spread() < 0.07
    assert spread(flavour="paper") > 0.1  # one split


@pytest.mark.parametrize("predictor", ["boosting", "linear"])
def test_a_dead_code_in_front_changes_nothing_in_dci(predictor):
    factors = drawn((3, 4), 600)
    codes = aligned(factors)
    dead = np.zeros((600, 1))
    last = a.dci(np.hstack([codes, dead]), factors, predictor=predictor)
    first = a.dci(np.hstack([dead, codes]), factors, predictor=predictor)
    assert last.score > 0.8
    assert first.score == pytest.approx(last.score)
    assert (last.active, first.active) == ([0, 1], [1, 2])


def test_dci_takes_continuous_factors_by_regression_and_names_what_it_reports():
    factors = np.column_stack([drawn((3,), 800)[:, 0], normal(800)])
    found = a.dci(factors + 0.0, factors)
    assert found.informativeness_is == ["accuracy", "R2"]
    assert found.per_factor_informativeness == pytest.approx([1, 1], abs=0.05)
    assert found.score > 0.99
    assert not any("error" in name for name in found.to_dict())


@pytest.mark.parametrize("predictor", ["boosting", "linear"])
def test_informativeness_does_not_depend_on_the_units_or_the_shape_of_a_factor(predictor):
    # 1 - 12 squared errors is right for factors uniform on 0 to 1 alone.
    factors = np.column_stack([normal(600), normal(600, 5)])
    codes = factors + 0.5 * normal((600, 2), 6)
    plain = a.dci(codes, factors, predictor=predictor)
    metres = a.dci(codes, 1000 * factors + 7, predictor=predictor)
    assert metres.per_factor_informativeness == pytest.approx(plain.per_factor_informativeness)
    # The best any predictor can do is the share of the variance that is no noise.
    assert plain.informativeness == pytest.approx(1 / 1.25, abs=0.08)


@pytest.mark.usefixtures("few_draws")
def test_the_older_dci_is_seeded_too():
    factors = drawn((2, 2), 150)
    codes = np.repeat(aligned(factors, noise=1.0), 2, axis=1)  # ties between equal codes
    first, again = (a.dci(codes, factors, flavour="dlib") for _ in range(2))
    assert np.array_equal(first.importance, again.importance)


@pytest.mark.usefixtures("one_permutation")
def test_dci_says_so_when_codes_tell_a_factor_only_together():
    one, other, unrelated = drawn((2, 2, 3), 1000).T
    codes = np.column_stack([one, other, normal(1000)]).astype(float)
    factors = np.column_stack([one ^ other, unrelated])
    found = a.dci(codes, factors)
    assert found.active == []
    assert any("[(0, 1)] are informative together" in flag for flag in found.flags)
    codes[:, 2] *= 0.1
    known = a.dci(codes, factors, variances=np.tile([0.01, 0.01, 1], (1000, 1)))
    assert known.active == [0, 1]
    assert known.per_factor_informativeness[0] == 1
    assert not any("informative together" in flag for flag in known.flags)
    # What the posteriors say is passive is passive, whatever its codes tell in pairs.
    wide = np.tile([9, 9, 0.001], (1000, 1))
    passive = a.dci(codes, factors, variances=wide)
    assert passive.passive == [0, 1]
    assert not any("informative together" in flag for flag in passive.flags)
    noise = a.dci(normal((1000, 3)), factors)
    assert not any("informative together" in flag for flag in noise.flags)


def test_explicitness_is_rescaled_from_chance_and_raw_on_request():
    factors = drawn((2, 3), 2000)
    noise = normal((2000, 3))
    assert a.explicitness(noise, factors).score == pytest.approx(0, abs=0.06)
    assert a.explicitness(noise, factors, flavour="raw").score == pytest.approx(0.5, abs=0.03)
    assert a.explicitness(noise, factors, flavour="raw").chance == pytest.approx(0.5, abs=0.03)


@pytest.mark.usefixtures("one_permutation")
@pytest.mark.parametrize("flavour", ["zscope", "raw", "dlib"])
def test_a_class_missing_from_a_split_is_handled(flavour):
    factor = np.concatenate([np.arange(300) % 3, [3, 4]])  # two values of one row each
    found = a.explicitness(aligned(factor[:, None], noise=0.01), factor, flavour=flavour)
    assert 0.9 < found.score <= 1
    assert any("missing from one part" in flag for flag in found.flags)


def test_sap_judges_on_rows_it_has_not_learned_from():
    # 64 pieces and 50 values leave much to learn by heart from 400 rows.
    factor = drawn((50,), 400)
    found = a.sap(normal((400, 2)), factor, variances=np.full((400, 2), 0.01))
    assert found.matrix.max() < 0.08
    assert found.score < 0.05


def test_sap_goes_by_the_kind_of_the_factor():
    # The middle of three values cannot be marked off by a straight line, thresholds can.
    factor = np.arange(900) % 3
    bent = np.array([0.0, 1.0, -1.0])[factor] + 0.05 * normal(900)
    # The axis is cut into 64 equally filled pieces, of which two may straddle a boundary.
    assert a.sap(bent, factor, kinds="categorical").matrix[0, 0] > 1 - 2 / 64
    assert a.sap(bent, factor, kinds="ordinal").matrix[0, 0] < 0.5


def test_factor_vae_score_prunes_by_usage_not_by_scale():
    factors = drawn((3, 4), 2000)
    codes = np.column_stack([0.01 * aligned(factors), 0.2 * normal(2000)])
    variances = np.tile([1e-6, 1e-6, 1.0], (2000, 1))
    found = a.factor_vae_score(codes, factors, variances=variances)
    assert found.active == [0, 1]
    assert found.score == pytest.approx(1)
    # Pruned by a standard deviation of .05 the small but perfect codes are lost.
    older = a.factor_vae_score(codes, factors, flavour="dlib")
    assert older.active == [2]
    assert older.score < 0.7


def test_a_dead_code_does_not_win_every_vote():
    factors = grid((3, 3), repeats=30)
    dead = np.column_stack([aligned(factors), np.full(len(factors), 3.0)])
    for flavour in ("zscope", "dlib"):
        assert a.factor_vae_score(dead, factors, flavour=flavour).score > 0.99


@pytest.mark.usefixtures("few_draws")
def test_values_of_a_single_row_are_never_held_and_said():
    factors = np.column_stack([np.append(np.arange(100) % 4, 9), np.arange(101) % 3])
    for score in (a.factor_vae_score, a.beta_vae_score):
        found = score(aligned(factors), factors)
        assert any("1 values of factor 0 occur in one row only" in f for f in found.flags)
        with pytest.raises(Undefined, match="no two of 50 rows share a value.*continuous"):
            score(normal(50), np.column_stack([np.arange(50), np.arange(50) % 2]))


def test_continuous_factors_given_as_classes_are_flagged():
    factors = np.random.default_rng(0).random((300, 1))
    found = a.mig(factors, factors, flavour="dlib")
    assert any("treats each value as a class" in flag for flag in found.flags)


def test_an_incomplete_grid_is_no_obstacle():
    # Two factors that go together, three combinations missing.
    factors = grid((3, 3), repeats=50)
    factors = factors[factors[:, 0] + factors[:, 1] < 4]
    for name in ("mig", "irs", "factor_vae_score", "beta_vae_score", "dci"):
        found = getattr(a, name)(aligned(factors), factors)
        assert found.score > found.chance + 0.2


@pytest.mark.parametrize("flavour", ["zscope", "dlib"])
def test_small_groups_do_not_tell_noise_which_factor_is_shared(flavour):
    # With itself as a partner one row in six, a row would give the factor of 60 values away.
    factors = drawn((2, 60), 360)
    noise = normal((360, 4))
    found = a.beta_vae_score(noise, factors, flavour=flavour, variances=np.full((360, 4), 0.01))
    assert found.score == pytest.approx(0.5, abs=0.1)
    assert found.chance == pytest.approx(0.5, abs=0.1)


def weak_codes(seed, weights, strength):
    """10,000 rows of three factors, a little of which is in each of four noisy codes."""
    factors = drawn((4, 4, 4), 10_000, seed)
    codes = strength * standardised(factors) @ weights + normal((10_000, 4), seed + 1)
    return codes, factors


EQUAL = np.ones((3, 4))
MODULAR = np.eye(3)[:, [0, 1, 2, 0]]


@pytest.mark.usefixtures("one_permutation")
def test_codes_that_tell_all_factors_equally_are_not_modular_however_weak():
    # .005 nats about each factor. Without correction .41 on average, and intervals such as
    # [.21, .62] that contain the true value, 0, in 5 % of draws.
    found = [a.modularity(*weak_codes(s, EQUAL, 0.1), resamples=10) for s in range(5000, 5006)]
    assert np.mean([each.score for each in found]) < 0.1
    assert sum(each.interval[0] == 0 for each in found) >= 5
    for each in found:
        assert any("standard error of their modularity" in flag for flag in each.flags)


@pytest.mark.usefixtures("one_permutation")
def test_weak_codes_of_one_factor_each_are_modular():
    found = a.modularity(*weak_codes(5000, MODULAR, 0.2), resamples=10)
    assert found.score > 0.99
    assert found.interval[0] > 0.9
    assert not any("standard error" in flag for flag in found.flags)


def debiased(information, error):
    """Modularity estimated from information with normal errors, and its true value."""
    information = np.array(information, dtype=float)
    observed = information + error * normal((4000, len(information)), 6000)
    rng = np.random.default_rng(0)
    each, errors = debiased_modularity(observed, np.full(observed.shape, error**2), rng)
    truth = 1 - (np.square(information).sum() - 1) / (len(information) - 1)
    return observed, each, errors, truth


@pytest.mark.parametrize(
    ("information", "error"),
    [([1, 1, 1], 0.05), ([1, 1, 1], 0.1), ([1, 0.5, 0], 0.1), ([1, 0, 0, 0], 0.15)],
)
def test_modularity_is_right_on_average(information, error):
    observed, each, errors, truth = debiased(information, error)
    assert each.mean() == pytest.approx(truth, abs=0.04)
    assert np.median(errors) == pytest.approx(each.std(), abs=0.06)
    if truth == 0:  # the negative control: the formula with the estimates as they are
        assert modularity_of_codes(observed).mean() > 0.1


def test_modularity_is_too_low_rather_than_too_high_where_the_best_factor_is_not_determined():
    for information in ([1, 1, 1], [1, 0.8, 0.8], [1, 0.9, 0]):
        _, each, errors, truth = debiased(information, 0.2)
        assert truth - 0.5 < each.mean() < truth
        if information[2]:  # the other one is .14 too low, and flagged in half of the draws
            assert np.mean(errors > 0.2) > 0.7

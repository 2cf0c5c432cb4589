"""Every score meets codes whose disentanglement is known."""

import numpy as np
import pytest
import torch
from known_codes import NAMES, PAIRS, aligned, drawn, grid, normal, rotated, score, standardised

import zscope.assays as a
from zscope.assays.run import measure
from zscope.recording import Recording
from zscope.results import Result

# What codes equal to the factors get: three values each, so 2/3 for SAP (a useless second
# code is right once in three times).
PERFECT = {"sap": 2 / 3}


@pytest.mark.parametrize("name", NAMES)
def test_codes_that_are_the_factors_score_one(name):
    # Held-out accuracies of useless codes have an error of 0.01 with so many rows.
    factors = grid(repeats=300)
    found = score(name, factors.astype(float), factors)
    assert found.score == pytest.approx(PERFECT.get(name, 1), abs=0.04)
    assert found.chance < 0.4
    assert found.active == [0, 1, 2]
    assert found.samples == len(factors)


@pytest.mark.parametrize("name", NAMES)
def test_constant_codes_score_what_guessing_would_and_say_so(name):
    found = score(name, np.ones((270, 3)), grid(repeats=10), resamples=2)
    guess = 1 / 3 if name in ("factor_vae_score", "beta_vae_score") else 0
    assert found.score == found.chance == guess
    assert found.interval == (guess, guess)
    assert found.active == []
    assert any("No latent is in use" in flag for flag in found.flags)


@pytest.mark.parametrize("name", NAMES)
def test_noise_scores_no_more_than_chance(name):
    factors = drawn((3, 4, 5), 3000)
    found = score(name, normal((3000, 5)), factors)
    assert found.score == pytest.approx(found.chance, abs=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_rotated_codes_score_between_noise_and_factors(name):
    factors = drawn((3, 4, 5), 3000)
    found = score(name, rotated(factors), factors)
    best = score(name, aligned(factors, noise=0.2), factors)
    assert found.score > found.chance + 0.05
    if name == "explicitness":  # a linear reader undoes a rotation
        assert found.score == pytest.approx(best.score, abs=0.05)
    else:
        assert found.score < best.score - 0.05


@pytest.mark.usefixtures("one_permutation")
@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_latents_changes_nothing(name):
    factors = drawn((3, 4, 5), 1500)
    codes = np.column_stack([aligned(factors, noise=0.4), normal((1500, 2))])
    plain = score(name, codes, factors)
    order = [4, 2, 0, 3, 1]
    moved = score(name, codes[:, order], factors)
    assert moved.score == pytest.approx(plain.score, abs=1e-9)
    assert sorted(order[j] for j in moved.active) == plain.active


@pytest.mark.usefixtures("one_permutation")
@pytest.mark.parametrize("name", [name for name in NAMES if name != "irs"])
def test_the_scale_and_offset_of_latents_change_nothing(name):
    factors = drawn((3, 4, 5), 1500)
    codes = aligned(factors, noise=0.4)
    plain = score(name, codes, factors)
    moved = score(name, codes * [1e-3, 1, 500] + [3, -1, 0], factors)
    assert moved.score == pytest.approx(plain.score, abs=1e-9)


def test_boosted_dci_goes_by_the_order_of_the_codes_alone():
    # Numbers near 0 have a bin of their own in LightGBM: codes on one side of it lose that bin.
    factors = drawn((3, 4, 5), 600)
    codes = rotated(factors)
    plain = a.dci(codes, factors)
    moved = a.dci(np.exp(codes), factors)
    assert moved.importance == pytest.approx(plain.importance, abs=1e-9)
    assert moved.informativeness == plain.informativeness


def test_irs_follows_the_scale_of_single_latents_but_not_a_common_one():
    factors = drawn((3, 4, 5), 1500)
    codes = np.column_stack([aligned(factors)[:, 0], standardised(aligned(factors, noise=2))[:, 1]])
    plain = a.irs(codes, factors).score
    assert a.irs(codes * 7 + 1, factors).score == pytest.approx(plain)
    assert a.irs(codes * [1, 100], factors).score < plain - 0.2


@pytest.mark.usefixtures("one_permutation")
@pytest.mark.parametrize("name", [name for name in NAMES if name != "mcc"])
def test_relabelling_categories_changes_nothing(name):
    factors = drawn((3, 4, 5), 1500)
    codes = aligned(factors, noise=0.3)
    plain = score(name, codes, factors)
    other = np.array([3, 0, 4, 1, 2])[factors]
    moved = score(name, codes, other)
    # Draws are made in the order of the labels, so that two scores vary by their own error.
    error = 0.02 if name in ("factor_vae_score", "beta_vae_score") else 1e-9
    assert moved.score == pytest.approx(plain.score, abs=error)


def test_mcc_does_depend_on_the_labels_and_says_so():
    factors = drawn((3, 4, 5), 1500)
    codes = aligned(factors, noise=0.05)
    plain = a.mcc(codes, factors)
    assert any("categorical but treated as ordered" in flag for flag in plain.flags)
    assert a.mcc(codes, np.array([3, 0, 4, 1, 2])[factors]).score < plain.score - 0.2


@pytest.mark.usefixtures("one_permutation")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mig", 0),
        ("sap", 0),
        ("predictability_gap", 0),
        ("jemmig", 0.5),
        ("mig_sup", 1),
        ("dcimig", 1),
        ("modularity", 1),
        ("dci", 1),
        ("mcc", 1),
        ("irs", 1),
    ],
)
def test_each_factor_written_into_two_codes(name, expected):
    factors = grid(repeats=40)
    codes = np.hstack([factors, factors]).astype(float)
    assert score(name, codes, factors).score == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_call_repeats_itself_and_a_generator_decides(name):
    factors = drawn((3, 4), 400)
    codes = aligned(factors, noise=1.0)
    first, again = score(name, codes, factors), score(name, codes, factors)
    assert (first.score, first.chance) == (again.score, again.chance)
    other = score(name, codes, factors, generator=torch.Generator().manual_seed(5))
    assert other.chance != first.chance or first.chance == 0


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(("name", "flavour"), PAIRS)
def test_a_result_says_what_it_measured(name, flavour):
    factors = grid((3, 2), repeats=20)
    found = score(name, aligned(factors), factors, flavour=flavour)
    assert isinstance(found, Result)
    assert found.flavour == flavour
    assert found.samples == 120
    assert found.matrix.shape == (len(found.active), len(found.factors))
    assert len(found.per_factor) == 2
    assert len(found.per_latent) == len(found.active)
    assert sorted(found.active + found.passive) == [0, 1]
    assert found.kinds == ["categorical", "categorical"]
    assert found.to_dict()["score"] == found.score


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("name", NAMES)
def test_results_draw_themselves(name):
    import matplotlib.pyplot as plt

    factors = grid((3, 3), repeats=20)
    axes = score(name, aligned(factors), factors).plot()
    assert name in axes.get_title(loc="left")
    plt.close("all")


# A predictor learned from another half errs on other rows: up to sqrt(2) times too wide.
@pytest.mark.usefixtures("one_permutation")
@pytest.mark.parametrize(
    ("name", "widest"), [("mig", 1), ("irs", 1), ("mcc", 1), ("predictability_gap", 2**0.5)]
)
@pytest.mark.slow
def test_the_interval_has_the_width_of_the_sampling_error(name, widest):
    def draw(seed):
        factors = drawn((3, 4), 400, seed)
        return aligned(factors, noise=0.8, seed=seed + 1), factors

    spread = np.std([score(name, *draw(seed)).score for seed in range(0, 100, 2)])
    widths = []
    for seed in range(4):
        found = score(name, *draw(1000 + seed), resamples=30)
        assert found.interval[0] < found.score < found.interval[1]
        widths.append(found.interval[1] - found.interval[0])
    assert 0.7 < np.mean(widths) / (2 * 1.96 * spread) < 1.3 * widest


def test_the_score_does_not_depend_on_whether_an_interval_is_asked_for():
    factors = drawn((3, 4), 400)
    codes = aligned(factors, noise=0.5)
    assert a.sap(codes, factors, resamples=5).score == a.sap(codes, factors).score


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("name", ["mig", "sap", "dci", "predictability_gap", "factor_vae_score"])
def test_passive_latents_are_found_from_codes_or_from_variances(name):
    factors = drawn((3, 4), 1000)
    codes = np.column_stack([aligned(factors), 0.01 * normal((1000, 2))])
    found = score(name, codes, factors)
    assert (found.active, found.passive) == ([0, 1], [2, 3])
    variances = np.tile([0.01, 0.01, 1.0, 1e-6], (1000, 1))
    found = score(name, codes, factors, variances=variances)
    assert (found.active, found.passive) == ([0, 1, 3], [2])
    deterministic = score(name, codes, factors, variances=np.zeros((1000, 4)))
    assert deterministic.active == [0, 1]


def test_all_scores_at_once_are_those_of_the_single_functions():
    factors = grid((3, 3), repeats=30)
    codes = aligned(factors)
    found = measure(Recording.from_arrays(codes, factors), ["disentanglement"]).results
    assert {name.replace("-", "_") for name in found} == set(NAMES)
    assert found["irs"].score == a.irs(codes, factors).score

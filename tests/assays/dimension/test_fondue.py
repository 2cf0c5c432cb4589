"""FONDUE and its variants on oracles, and the gaps they search with."""

import math

import pytest
import torch

from zscope import theory
from zscope.assays.dimension.fondue import (
    Fondue,
    Trial,
    Use,
    binary_fondue,
    fondue,
    fondue_beta,
    fondue_types,
    stable_fondue,
)
from zscope.assays.dimension.gaps import dimension_gap, information_gap, trace_gap
from zscope.assays.dimension.renyi import (
    kernel_matrix,
    matrix_entropy,
    renyi_entropy,
    renyi_information,
)
from zscope.assays.dimension.repeated_fondue import repeat_fondue, replay_fondue
from zscope.assays.regime.types import variable_types
from zscope.autoencoder import Posterior
from zscope.errors import ConfigError, Undefined
from zscope.experiments.elbows import (
    downstream_accuracy,
    elbow,
    similarity_preservation,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def step_at(answer: int, calls: list[int] | None = None):
    """An oracle that is good up to `answer` latents."""

    def evaluate(n: int) -> float:
        if calls is not None:
            calls.append(n)
        return 0.5 if n <= answer else 1.5

    return evaluate


@pytest.mark.parametrize(
    ("start", "answer", "trained"),
    [
        (4, 19, [4, 8, 16, 32, 24, 20, 18, 19]),
        (11, 10, [11, 5, 10]),
        (11, 11, [11, 22, 16, 13, 12]),
        (22, 33, [22, 44, 33, 38, 35, 34]),
        (200, 11, [200, 100, 50, 25, 12, 6, 9, 10, 11]),
    ],
)
def test_the_search_trains_these_sizes_and_no_other(start, answer, trained):
    calls = []
    result = fondue(step_at(answer, calls), start=start)
    assert (result.latents, result.status) == (answer, "found")
    assert calls == trained
    assert [trial.latents for trial in result.trials] == trained
    assert {trial.value for trial in result.trials} == {0.5, 1.5}


def test_not_even_one_latent_is_of_use():
    calls = []
    result = fondue(step_at(0, calls), start=1)
    assert (result.latents, result.status, calls) == (0, "collapsed", [1])


@pytest.mark.parametrize("share", [0.99, 0.998, 1.0])
@pytest.mark.parametrize("threshold", [1.0, 3.0])
def test_a_model_that_uses_no_latent_is_no_answer(share, threshold):
    """One passive latent has a gap below 1: within the threshold, and worth nothing."""

    def passive(n):
        return share * n

    result = fondue(passive, start=4, threshold=threshold)
    assert (result.latents, result.status) == (0, "collapsed")
    result = binary_fondue(passive, threshold=threshold, high=9)
    assert (result.latents, result.status) == (0, "collapsed")
    half_used = fondue(lambda n: 0.5 * n, start=4, threshold=threshold)
    assert (half_used.latents, half_used.status) == (2 * threshold, "found")


@pytest.mark.parametrize(("beta", "answer"), [(20, 1), (29, 0), (40, 0)])
def test_a_linear_model_whose_posterior_is_the_prior_has_collapsed(beta, answer):
    # The largest eigenvalue is 9, so with gamma = 0.3 nothing is encoded from beta = 30 on; at
    # 29 the only posterior that is not the prior has variance 0.97.
    eigenvalues = torch.tensor([9.0, 4, 2, 1, 0.5, 0.2, 0.1, 0.05])

    def evaluate(n):
        return theory.linear_vae_optimum(eigenvalues, gamma=0.3, beta=beta, latents=n).trace_gap

    for result in (fondue(evaluate, start=4), binary_fondue(evaluate, high=9)):
        assert (result.latents, result.status) == (answer, "found" if answer else "collapsed")


def test_any_gap_is_refused_of_a_model_that_uses_no_latent():
    """The gaps of dimension and information can be small in collapsed models."""

    def nothing_used(n):
        return -0.5, Use(0, 1, n - 1, used=0, kl=0.05)

    def one_used(n):
        return -0.5, Use(1, 0, n - 1, used=1, kl=2.0)

    for search in (
        lambda evaluate: fondue(evaluate, start=2, limit=4, threshold=-0.01),
        lambda evaluate: binary_fondue(evaluate, high=5, threshold=-0.01),
        lambda evaluate: fondue_beta(lambda beta: evaluate(2), threshold=-0.01),
    ):
        assert search(nothing_used).status == "collapsed"
        assert search(nothing_used).score == 0
        assert search(one_used).status == "limit"
    types = fondue_types(lambda n: nothing_used(n)[1], start=2)
    assert (types.latents, types.status) == (0, "collapsed")


def test_the_strongest_beta_is_one_at_which_the_only_latent_is_used():
    # The gap of one latent is never above 1.
    def evaluate(beta):
        variance = min(1.0, beta / 9)
        kl = -0.5 * math.log(variance)
        return variance, Use(0, int(kl > 0.1), int(kl <= 0.1), used=int(kl > 0.1), kl=kl)

    result = fondue_beta(evaluate, tolerance=1e-4)
    assert result.status == "found"
    assert result.beta == pytest.approx(9 * math.exp(-0.2), rel=1e-3)


def test_types_and_divergence_of_every_trial_are_kept_and_printed():
    def evaluate(n):
        return float(max(0, n - 3)), Use(min(n, 3), 0, max(0, n - 3), used=min(n, 3), kl=1.5)

    result = fondue(evaluate, start=2, threshold=0.5)
    assert result.latents == 3
    assert dict(result.summary())["gap of 4"] == (
        "1.000 (3 active, 0 mixed, 1 passive, KL 1.50 nats)"
    )
    first = result.to_dict()["trials"][0]
    assert first == {
        "latents": 2, "value": 0.0, "active": 2, "mixed": 0, "passive": 0, "used": 2, "kl": 1.5,
    }  # fmt: skip


def test_a_threshold_below_one_does_not_exclude_mixed_latents():
    """Proposition 8.3.3 against theorem 8.3.3: five active latents, one used half of the time."""
    variances = torch.full((1000, 6), 0.0049, dtype=torch.float64)
    variances[::2, 5] = 1.0
    gap = trace_gap(Posterior(torch.zeros(1000, 6, dtype=torch.float64), variances.sqrt()))
    types = variable_types(variances)
    assert gap.score == pytest.approx(0.527, abs=5e-4)
    assert (len(types.active), types.mixed) == (5, [5])
    result = fondue(lambda n: (gap.score, Use.of(types)), start=6, limit=6, threshold=0.6)
    assert (result.latents, result.trials[0].use.mixed) == (6, 1)


def test_a_search_with_several_seeds_gives_mean_and_deviation():
    answers = {0: 4, 1: 5, 2: 7}
    result = repeat_fondue(lambda seed: fondue(step_at(answers[seed]), start=4), range(3))
    assert (result.mean, result.sd) == (pytest.approx(16 / 3), pytest.approx(1.5275, abs=1e-4))
    assert (result.latents, result.status, result.samples, result.flags) == (5, "found", 3, [])
    assert [search.latents for search in result.searches.values()] == [4, 5, 7]
    assert dict(result.summary())["seed 2"] == "7 (found)"
    assert len(result.to_dict()["searches"]["2"]["trials"]) == len(result.searches[2].trials)
    single = repeat_fondue(lambda seed: fondue(step_at(3), start=4), [8])
    assert (single.mean, single.sd) == (3, None)
    with pytest.raises(ConfigError, match="no seeds"):
        repeat_fondue(lambda seed: fondue(step_at(3), start=4), [])


def test_collapsed_searches_are_counted_and_left_out_of_the_mean():
    def search(seed):
        return fondue(lambda n: float(n) if seed == 1 else 0.1 * n, start=4, limit=64)

    result = repeat_fondue(search, range(3))
    assert (result.mean, result.sd, result.status) == (10, 0, "found")
    assert result.flags == ["1 of 3 searches collapsed (seed 1), and is left out of the mean."]
    none = repeat_fondue(search, [1])
    assert (none.mean, none.latents, none.status, none.flags) == (0, 0, "collapsed", [])
    limited = repeat_fondue(lambda seed: fondue(step_at(99), start=4, limit=8), range(2))
    assert limited.status == "limit"


def test_the_search_never_goes_beyond_the_limit_and_says_so():
    calls = []
    result = fondue(step_at(10_000, calls), start=10, limit=64)
    assert (result.latents, result.status) == (64, "limit")
    assert calls == [10, 20, 40, 64]
    assert fondue(step_at(50, calls), start=10, limit=64).latents == 50
    assert fondue(step_at(5), start=1000, limit=64).trials[0].latents == 64


def test_the_start_is_rounded_and_at_least_one():
    assert fondue(step_at(3), start=0.2).trials[0].latents == 1
    assert fondue(step_at(3), start=3.7).trials[0].latents == 4


def test_a_gap_that_is_not_monotone_still_ends_at_a_crossing():
    noisy = {n: 0.9 + 0.15 * math.sin(7.0 * n) + 0.01 * n for n in range(1, 600)}
    result = fondue(noisy.__getitem__, start=6)
    assert noisy[result.latents] <= 1 < noisy[result.latents + 1]


def test_nan_is_refused():
    with pytest.raises(Undefined, match=r"evaluate\(4\) returned NaN.*diverge"):
        fondue(lambda n: math.nan, start=4)
    with pytest.raises(Undefined, match=r"evaluate\(1\) returned NaN.*diverge"):
        fondue_beta(lambda beta: math.nan)


@pytest.mark.parametrize(
    "search",
    [
        lambda: fondue(step_at(3), start=math.nan),
        lambda: fondue(step_at(3), start=4, limit=0),
        lambda: fondue(step_at(3), start=4, threshold=math.nan),
        lambda: binary_fondue(step_at(3), low=5, high=5),
        lambda: fondue_types(lambda n: variable_types(variances(n, 0)), start=3, limit=-1),
    ],
)
def test_searches_that_cannot_begin_are_refused(search):
    with pytest.raises(Undefined, match="at least one size"):
        search()


@pytest.mark.parametrize(("beta", "expected"), [(1, 4), (2, 3), (4, 2), (8, 2)])
def test_the_linear_oracle(beta, expected):
    eigenvalues = torch.tensor([9.0, 4, 2, 1, 0.5, 0.2, 0.1, 0.05])

    def evaluate(n):
        return theory.linear_vae_optimum(eigenvalues, gamma=0.3, beta=beta, latents=n).trace_gap

    assert fondue(evaluate, start=4).latents == expected
    assert binary_fondue(evaluate, high=9).latents == expected


def test_bisection_trains_these_sizes():
    calls = []
    result = binary_fondue(step_at(11, calls))
    assert (result.latents, result.status) == (11, "found")
    assert calls == [100, 50, 25, 13, 7, 10, 12, 11]
    assert binary_fondue(step_at(199)).latents == 199
    assert binary_fondue(step_at(10_000)).latents == 199
    assert binary_fondue(step_at(10_000)).status == "limit"
    assert binary_fondue(step_at(0)).status == "collapsed"
    below = binary_fondue(step_at(2), low=5, high=9)  # 4 was never tried, so it is no answer
    assert (below.latents, below.status) == (0, "collapsed")


def test_the_search_over_beta_finds_the_root_of_the_linear_oracle():
    eigenvalues = torch.tensor([9.0, 4, 2, 1, 0.5, 0.2, 0.1, 0.05])

    def evaluate(beta):
        return theory.linear_vae_optimum(eigenvalues, gamma=0.3, beta=beta, latents=3).trace_gap

    fine = fondue_beta(evaluate, tolerance=1e-5)
    assert fine.beta == pytest.approx(3.871, abs=5e-4)
    coarse = fondue_beta(evaluate, start=100.0)
    assert 3.871 / 1.05 < coarse.beta <= 3.871
    assert evaluate(coarse.beta) <= 1
    assert len(coarse.trials) < 20
    assert fondue_beta(lambda beta: 0.1).status == "limit"
    assert fondue_beta(lambda beta: 2.0).status == "collapsed"


def variances(active: int, passive: int) -> torch.Tensor:
    return torch.cat([torch.full((20, active), 0.01), torch.ones(20, passive)], 1)


def test_counting_types_doubles_until_a_passive_latent_appears():
    calls = []

    def evaluate(n):
        calls.append(n)
        return variable_types(variances(min(n, 9), max(0, n - 9)))

    result = fondue_types(evaluate, start=3)
    assert (result.latents, result.status, calls) == (9, "found", [6, 12])
    assert fondue_types(evaluate, start=3, keep="active").latents == 9


def test_counting_types_ends_when_no_passive_latent_ever_appears():
    result = fondue_types(lambda n: variable_types(variances(n, 0)), start=3, limit=40)
    assert (result.latents, result.status) == (40, "limit")
    collapsed = fondue_types(lambda n: variable_types(variances(0, n)), start=3)
    assert (collapsed.latents, collapsed.status) == (0, "collapsed")


def test_training_longer_until_the_answer_repeats():
    answers = {100: 3, 200: 5, 400: 5, 800: 9}
    result = stable_fondue(lambda steps: fondue(step_at(answers[steps]), start=4), steps=100)
    assert (result.latents, result.steps, result.stable) == (5, 200, True)
    restless = stable_fondue(
        lambda steps: fondue(step_at(steps // 50), start=4), steps=100, rounds=3
    )
    assert (restless.stable, restless.steps) == (False, 400)
    assert dict(restless.summary())["400 steps"] == "8 latents"
    collapsed = stable_fondue(lambda steps: fondue(step_at(0), start=4), steps=100)
    assert (collapsed.stable, collapsed.status) == (True, "collapsed")


# Gaps


def mixed_posterior(samples: int = 20_000) -> Posterior:
    """One active, one passive, one latent that is active for half of the samples."""
    on = (torch.arange(samples) % 2).double()
    mean = torch.stack(
        [normal(samples, seed=1), torch.zeros(samples), on * (1 + 0.5 * normal(samples, seed=2))], 1
    )
    std = torch.stack([torch.full((samples,), 0.01).double(), torch.ones(samples), 1 - on], 1)
    return Posterior(mean.double(), std.double().clamp(min=1e-6))


def test_the_trace_gap_counts_passive_latents_in_parts():
    posterior = mixed_posterior()
    assert trace_gap(posterior).score == pytest.approx(1.5, abs=1e-3)
    drawn = trace_gap(posterior, sampled=True, generator=torch.Generator().manual_seed(8))
    assert drawn.score == pytest.approx(1.5, abs=0.05)
    expected = theory.mixed_latent(0.5, mean=1, variance=0.25)
    assert posterior.mean[:, 2].var().item() == pytest.approx(expected.variance_of_means, abs=0.01)


def test_passive_latents_add_dimensions_to_the_samples_alone():
    n = 1500
    active = normal(n, 2, seed=1)
    mean = torch.cat([active, 1e-4 * active @ normal(2, 3, seed=2)], 1)
    std = torch.cat([torch.full((n, 2), 1e-4), torch.ones(n, 3)], 1).double()
    gap = dimension_gap(Posterior(mean, std))
    assert gap.means == pytest.approx(2, abs=0.15)
    assert gap.score == pytest.approx(3, abs=0.4)
    only_active = dimension_gap(Posterior(mean[:, :2], std[:, :2]))
    assert abs(only_active.score) < 0.1


def test_gaps_of_a_deterministic_encoder_are_refused():
    for gap in (trace_gap, dimension_gap):
        with pytest.raises(Undefined, match="no spread"):
            gap(Posterior(normal(5, 2)))


# Rényi


@pytest.mark.parametrize("order", [2.0, 1.01, 1.0, 0.5])
def test_entropy_of_the_extremes(order):
    h = 16
    assert matrix_entropy(torch.eye(h) / h, order) == pytest.approx(4, abs=1e-6)
    assert matrix_entropy(torch.ones(h, h) / h, order) == pytest.approx(0, abs=1e-6)


def test_order_two_needs_no_eigenvalues():
    A = kernel_matrix(normal(30, 2))
    eigenvalues = torch.linalg.eigvalsh(A)
    assert matrix_entropy(A) == pytest.approx(-math.log2(eigenvalues.square().sum().item()))
    assert A.trace().item() == pytest.approx(1)


def test_gaussian_codes_read_as_the_table_says():
    for latents, bits in ((4, 6.05), (8, 6.63), (16, 6.64)):
        assert renyi_entropy(normal(2000, latents)).score == pytest.approx(bits, abs=0.01)
    assert renyi_entropy(normal(2000, 16)).saturated
    assert not renyi_entropy(normal(2000, 4)).saturated


def test_entropy_ignores_scale_and_shift_and_equal_samples_have_none():
    x = normal(100, 3)
    assert renyi_entropy(5 * x + 1).score == pytest.approx(renyi_entropy(x).score)
    assert renyi_entropy(torch.ones(50, 3)).score == pytest.approx(0)


def test_information_is_of_what_is_shared():
    x = normal(500, 1)
    itself = renyi_information(x, x, bandwidth="median").score
    unrelated = renyi_information(x, normal(500, 1, seed=1), bandwidth="median").score
    assert itself > 4 * unrelated


def test_pictures_saturate_the_usual_kernel_but_not_the_median_one():
    x, unrelated, z = normal(300, 256), normal(300, 256, seed=1), normal(300, 4, seed=2)
    trap = information_gap(x, unrelated, z)
    assert trap.saturated
    assert trap.information == pytest.approx(trap.ceiling)  # of pictures that share nothing
    assert dict(trap.summary())["warning"].endswith("'median'")
    better = information_gap(x, unrelated, z, bandwidth="median")
    assert not better.saturated
    with pytest.raises(ConfigError, match="'silverman'"):
        renyi_entropy(x, bandwidth="scott")


def test_a_gap_of_one_hundredth_is_just_within_its_threshold():
    # Codes of 9 latents read 6.63 bits, saturated pictures log2(100) = 6.64.
    x, z = normal(500, 256), normal(500, 9, seed=2)
    gap = information_gap(x, x, z)
    assert (math.floor(100 * gap.entropy), math.floor(100 * gap.information)) == (663, 664)
    assert gap.score == -0.01
    assert gap.score <= -0.01  # in floats 6.63 - 6.64 is not


# Elbow


def test_the_elbow_of_a_curve_with_a_corner_is_the_corner():
    curve = {2: 18.4, 3: 13.3, 4: 13.25, 6: 13.2, 8: 13.2}
    result = elbow(curve)
    assert (result.knee, result.within) == (3, 3)
    scaled = elbow({n: 10 * v + 5 for n, v in curve.items()})
    assert scaled.knee == 3
    accuracy = elbow({n: -v for n, v in curve.items()}, better="higher")
    assert accuracy.knee == 3
    assert elbow({1: 2.0, 2: 2.0}).knee == 1
    with pytest.raises(Undefined, match="at least two sizes"):
        elbow({3: 1.0})


def test_a_straight_line_has_no_early_elbow_by_the_second_rule():
    assert elbow({n: 100.0 - n for n in range(1, 50)}).within == 48


def test_reconstructions_that_keep_all_angles_have_no_distance():
    x = normal(30, 5)
    assert similarity_preservation(x, x).score == pytest.approx(0, abs=1e-12)
    assert similarity_preservation(x, 3 * x).score == pytest.approx(0, abs=1e-12)
    a, b = torch.eye(2).double(), torch.tensor([[1.0, 0], [1, 0]]).double()
    assert similarity_preservation(a, b).score == pytest.approx(1.0)  # two pairs off by 1, h = 2
    assert similarity_preservation(a, b, pairs=True).score == pytest.approx(0.5)
    with pytest.raises(Undefined, match="1 of 2 samples are all zero"):
        similarity_preservation(a, torch.tensor([[0.0, 0], [1, 0]]))


def test_downstream_accuracy_is_that_of_the_labels_in_the_codes():
    label = (torch.arange(600) % 2).double()
    informed = torch.stack([label + 0.05 * normal(600), normal(600, seed=1)], 1)
    assert downstream_accuracy(informed, label[:, None]) > 0.98
    assert downstream_accuracy(normal(600, 2, seed=3), label[:, None]) < 0.62
    with pytest.raises(Undefined, match="none of the 1 factors varies"):
        downstream_accuracy(normal(30, 2), torch.zeros(30, 1))


def test_the_figure_marks_the_mean_that_the_text_states_and_tells_seeds_apart():
    use = Use(1, 0, 0, used=1)
    answers = {0: [Trial(1, 0.2, use), Trial(2, 1.4, use)], 1: [Trial(2, 0.6, use)]}
    searches = {
        seed: Fondue(trials[-1 if seed else 0].latents, trials, 1.0, "found", 4)
        for seed, trials in answers.items()
    }
    ax = repeat_fondue(lambda seed: searches[seed], [0, 1]).plot()
    assert "1.5 latents" in [text.get_text() for text in ax.texts]
    first, second = (line for line in ax.get_lines() if line.get_label().startswith("seed"))
    assert first.get_color() != second.get_color()


# Stored trials


LINEAR = torch.tensor([9.0, 4, 2, 1, 0.5, 0.2, 0.1, 0.05])


def linear_trials(beta: float, sizes: int = 12) -> dict[int, tuple[float, Use]]:
    """The gap and the use of the best linear model of every size."""
    trials = {}
    for n in range(1, sizes + 1):
        optimum = theory.linear_vae_optimum(LINEAR, gamma=0.3, beta=beta, latents=n)
        use = Use.of(variable_types(optimum.variance.expand(20, n)))
        used = int((optimum.kl > 0.1).sum())
        trials[n] = optimum.trace_gap, use._replace(used=used, kl=float(optimum.kl.sum()))
    return trials


@pytest.mark.parametrize(("beta", "expected"), [(1, 4), (2, 3), (4, 2), (8, 2)])
def test_every_search_has_the_same_answer_on_the_trials_of_a_linear_model(beta, expected):
    trials = linear_trials(beta)

    def search(start):
        if start == "binary":
            return replay_fondue(trials, search="binary", trace=True)
        return replay_fondue(trials, start=start, trace=True)

    result = repeat_fondue(search, [1, 2, 3, 5, 8, 12])
    assert (result.mean, result.sd, result.median) == (expected, 0, expected)
    assert set(result.statuses.values()) == {"found"}
    assert search("binary").latents == expected
    # The sizes are those that a search with training would have tried.
    tried = []

    def evaluate(n):
        tried.append(n)
        return trials[n]

    assert fondue(evaluate, start=8, limit=12).latents == expected
    assert search(8).sizes == tried
    rows = [row for row in result.records() if row["seed"] == 8]
    assert len(rows) == len(trials)
    assert [row["latents"] for row in rows if row["needed"]] == sorted(tried)
    (answer,) = [row for row in rows if row["answer"]]
    assert answer["gap for each latent"] == pytest.approx(trials[expected][0] / expected)
    assert (answer["active"], answer["mixed"], answer["passive"]) == trials[expected][1][:3]


@pytest.mark.parametrize("share", [0.95, 0.998, 1.0])
@pytest.mark.parametrize("search", [{"start": 3}, {"search": "binary"}])
def test_gaps_of_passive_latents_alone_are_a_collapse_whatever_else_is_said(share, search):
    bare = {n: share * n for n in range(1, 9)}
    assert replay_fondue(bare, **search).status == "collapsed"
    used = {n: (share * n, Use(0, n, 0, used=n, kl=2.0)) for n in bare}
    result = replay_fondue(used, trace=True, **search)
    assert (result.latents, result.status) == (0, "collapsed")
    assert replay_fondue(used, **search).status == "found"  # another gap may be near n


def test_a_divergence_below_a_tenth_of_a_nat_is_a_collapse():
    def trials(kl):
        return {n: (0.3 * n, Use(0, n, 0, used=n, kl=kl)) for n in range(1, 9)}

    assert replay_fondue(trials(0.099), start=2).status == "collapsed"
    assert replay_fondue(trials(0.101), start=2).latents == 3


def test_a_gap_above_the_number_of_latents_is_refused():
    """As of an iVAE whose variances are not in units of its prior."""
    with pytest.raises(Undefined, match="gap of 4 latents is 5, more than.*units of the prior"):
        replay_fondue({n: 1.25 * n for n in range(1, 9)}, start=4, trace=True)
    within = replay_fondue({n: 1.02 * n for n in range(1, 9)}, start=4, trace=True)
    assert within.status == "collapsed"


def test_a_gap_that_falls_again_is_not_monotone_and_its_answer_depends_on_the_start():
    gaps = {1: 0.2, 2: 0.5, 3: 1.4, 4: 0.8, 5: 0.9, 6: 2.0, 7: 3.0, 8: 4.0}
    low, high = replay_fondue(gaps, start=3), replay_fondue(gaps, start=4)
    assert (low.latents, high.latents) == (2, 5)
    assert low.status == high.status == "not monotone"
    assert low.reversals == [(3, 4), (3, 5)]
    assert low.sizes == [3, 1, 2]
    assert [trial.latents for trial in low.others] == [4, 5, 6, 7, 8]
    result = repeat_fondue(lambda start: replay_fondue(gaps, start=start), [3, 4])
    assert (result.mean, result.status) == (3.5, "found")
    assert "In 2 of 2 searches the gap is not monotone (seed 3, 4)" in result.flags[0]
    rising = {n: 0.3 * n for n in gaps}
    assert replay_fondue(rising, start=3).status == "found"
    assert replay_fondue(rising, start=3).reversals == []


def test_a_replay_needs_the_sizes_of_its_search():
    gaps = {n: 0.3 * n for n in (1, 2, 4)}
    with pytest.raises(Undefined, match="needs a model of 3 latents.*1, 2, 4.*Train that size"):
        replay_fondue(gaps, start=2)
    assert replay_fondue({n: 0.1 * n for n in (4, 8)}, start=4).status == "limit"
    with pytest.raises(ConfigError, match="no trials"):
        replay_fondue({}, start=2)
    with pytest.raises(ConfigError, match="binary has none"):
        replay_fondue(gaps, start=2, search="binary")
    with pytest.raises(Undefined, match="NaN"):
        replay_fondue({1: 0.1, 2: 2.0, 3: math.nan}, start=1)


def test_the_figure_shows_where_every_latent_is_passive():
    import matplotlib.pyplot as plt

    def lines_of(ax):
        return [line for line in ax.get_lines() if line.get_linestyle() == "-."]

    # With sizes 2, 3 and 4 all gaps are far below the number of latents: there is no room for it.
    assert not lines_of(replay_fondue(linear_trials(2), start=4, trace=True).plot())
    ax = replay_fondue(linear_trials(2), start=8, trace=True).plot()
    lines = lines_of(ax)
    assert len(lines) == 1
    assert (lines[0].get_xdata() == lines[0].get_ydata()).all()
    assert "gap = latents" in [text.get_text() for text in ax.texts]
    plt.close("all")

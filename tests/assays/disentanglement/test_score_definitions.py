"""The published definitions, worked out again by another route.

`flavour="dlib"` is checked against the formulas written down with scikit-learn, SciPy
and plain loops; only the split of the rows is taken from the library itself.
"""

from collections import Counter
from itertools import permutations
from math import log

import numpy as np
import pytest
from known_codes import aligned, drawn, grid, normal, rotated, standardised
from scipy.stats import entropy, spearmanr
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import balanced_accuracy_score, mutual_info_score, r2_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import zscope.assays as a
from zscope.assays.disentanglement.dci import (
    _lightgbm,
    _residuals_explained,
    disentanglement_of,
    weighted_mean,
)
from zscope.assays.disentanglement.predictability_gap import nearest
from zscope.assays.disentanglement.udr import relative_strength
from zscope.assays.sample import prepare, seed_from
from zscope.randomness import named_generator

SIZES = (3, 4, 6)


@pytest.fixture(scope="module")
def mixed():
    """Codes that are neither perfect nor useless, with a weak one among them."""
    factors = drawn(SIZES, 600)
    codes = np.column_stack([rotated(factors, noise=0.5), aligned(factors)[:, :1], normal(600)])
    return codes, factors


def split(name, samples, share=2 / 3):
    """The rows that a plain call of a score learns from and tests on."""
    lots = np.random.default_rng([seed_from(named_generator(0, name)), 3]).random(samples)
    order = np.argsort(lots)
    return order[: round(share * samples)], order[round(share * samples) :]


def histogram_information(codes, factors):
    binned = [np.digitize(z, np.histogram(z, 20)[1][:-1]) for z in codes.T]
    return np.array([[mutual_info_score(y, z) for y in factors.T] for z in binned])


def counted_entropy(*columns):
    counts = Counter(zip(*(column.tolist() for column in columns), strict=True))
    total = sum(counts.values())
    return -sum(n / total * log(n / total) for n in counts.values())


def equal_widths(code):
    low, high = code.min(), code.max()
    return np.minimum(((code - low) / (high - low) * 20).astype(int), 19)


def test_mig_dlib(mixed):
    codes, factors = mixed
    ordered = np.sort(histogram_information(codes, factors), axis=0)
    entropies = np.array([mutual_info_score(y, y) for y in factors.T])
    gaps = (ordered[-1] - ordered[-2]) / entropies
    found = a.mig(codes, factors, flavour="dlib")
    np.testing.assert_allclose(found.per_factor, gaps)
    assert found.score == pytest.approx(gaps.mean())


def test_mig_takes_off_what_permuted_rows_show():
    factors = drawn((4,), 300)
    codes = np.column_stack([factors[:, 0] + 0.7 * normal(300), factors[:, 0] + 2 * normal(300, 5)])
    found = a.mig(codes, factors)
    # The same with permutations made one by one, on bins made by ranking.
    bins = (codes.argsort(0).argsort(0) * 20 // 300).T
    rng = np.random.default_rng(0)
    chance = np.mean(
        [mutual_info_score(rng.permutation(factors[:, 0]), bins[0]) for _ in range(200)]
    )
    top, second = (mutual_info_score(factors[:, 0], z) - chance for z in bins)
    whole = counted_entropy(factors[:, 0]) - chance
    assert found.score == pytest.approx((top - second) / whole, abs=0.01)


def test_modularity_dlib(mixed):
    codes, factors = mixed
    each = []
    for row in histogram_information(codes, factors):
        best = max(row)
        others = sum(m**2 for m in row) - best**2
        each.append(1 - others / (best**2 * (len(row) - 1)))
    found = a.modularity(codes, factors, flavour="dlib")
    np.testing.assert_allclose(found.per_latent, each)
    assert found.score == pytest.approx(np.mean(each))


def test_mig_sup_dlib(mixed):
    codes, factors = mixed
    whole = [counted_entropy(y) for y in factors.T]
    gaps = []
    for row in histogram_information(codes, factors):
        first, second = sorted((m / h for m, h in zip(row, whole, strict=True)), reverse=True)[:2]
        gaps.append(first - second)
    assert a.mig_sup(codes, factors, flavour="dlib").score == pytest.approx(np.mean(gaps))


def test_jemmig_dlib(mixed):
    codes, factors = mixed
    matrix = histogram_information(codes, factors)
    each = []
    for k, y in enumerate(factors.T):
        second, first = np.argsort(matrix[:, k])[-2:]
        joint = counted_entropy(equal_widths(codes[:, first]), y)
        plain = joint - matrix[first, k] + matrix[second, k]
        each.append(1 - plain / (counted_entropy(y) + log(20)))
    assert a.jemmig(codes, factors, flavour="dlib").score == pytest.approx(np.mean(each))


def test_dcimig_dlib(mixed):
    codes, factors = mixed
    credit = dict.fromkeys(range(3), 0.0)
    for row in histogram_information(codes, factors):
        second, first = np.argsort(row)[-2:]
        credit[first] = max(credit[first], row[first] - row[second])
    whole = sum(counted_entropy(y) for y in factors.T)
    found = a.dcimig(codes, factors, flavour="dlib")
    assert found.score == pytest.approx(sum(credit.values()) / whole)


def test_irs_dlib(mixed):
    codes, factors = mixed
    largest = np.abs(codes - codes.mean(0)).max(0)
    matrix = np.zeros((codes.shape[1], 3))
    for k, y in enumerate(factors.T):
        held = np.digitize(y, np.histogram(y, 20)[1][:-1])
        for j, z in enumerate(codes.T):
            each = []
            for value in set(held):
                group = z[held == value]
                each.append(np.percentile(abs(group - group.mean()), 99))
            matrix[j, k] = 1 - np.mean(each) / largest[j]
    found = a.irs(codes, factors, flavour="dlib")
    np.testing.assert_allclose(found.matrix, matrix)
    assert found.score == pytest.approx(np.average(matrix.max(1), weights=largest))


def test_irs_by_hand():
    # Held at 0 the code is 1 away from its mean of -1, held at 1 it does not move: .5 on
    # average. Overall it gets as far as 3 from its mean of 1.
    factor = np.repeat([0, 1], 20)
    code = np.concatenate([np.tile([-2.0, 0.0], 10), np.full(20, 3.0)])
    found = a.irs(code, factor)
    assert found.score == pytest.approx(1 - 0.5 / 3)
    assert found.parents == [0]
    assert (found.groups, found.small_groups) == (2, 0)


def test_sap_dlib(mixed):
    codes, factors = mixed
    train, test = split("sap", 600)
    matrix = np.zeros((codes.shape[1], 3))
    for j in range(codes.shape[1]):
        for k in range(3):
            machine = LinearSVC(C=0.01, class_weight="balanced", random_state=0)
            machine.fit(codes[train, j : j + 1], factors[train, k])
            matrix[j, k] = machine.score(codes[test, j : j + 1], factors[test, k])
    ordered = np.sort(matrix, axis=0)
    found = a.sap(codes, factors, flavour="dlib")
    assert found.score == pytest.approx(np.mean(ordered[-1] - ordered[-2]))


def test_sap_dlib_takes_squared_correlations_of_continuous_factors():
    factors = normal((300, 2))
    codes = factors @ [[1, 0.5], [0.2, 1]] + 0.3 * normal((300, 2), 9)
    train, _ = split("sap", 300)
    matrix = np.corrcoef(codes[train].T, factors[train].T)[:2, 2:] ** 2
    expected = np.mean(matrix.max(0) - matrix.min(0))
    assert a.sap(codes, factors, flavour="dlib").score == pytest.approx(expected)


def test_sap_finds_thresholds_as_good_as_a_tree():
    factors = drawn((4,), 3000)
    code = factors[:, 0] + 0.4 * normal(3000)
    train, test = split("sap", 3000)
    tree = DecisionTreeClassifier(class_weight="balanced", min_samples_leaf=30, random_state=0)
    tree.fit(code[train, None], factors[train, 0])
    expected = balanced_accuracy_score(factors[test, 0], tree.predict(code[test, None]))
    found = a.sap(code, factors)
    assert found.matrix[0, 0] == pytest.approx(expected, abs=0.01)
    assert found.score == pytest.approx(found.matrix[0, 0] - 1 / 4)


def test_sap_of_a_continuous_factor_is_a_gap_of_held_out_r_squared():
    factor = normal(400)
    codes = np.column_stack([factor + 0.5 * normal(400, 7), factor + normal(400, 8)])
    train, test = split("sap", 400)
    fits = [
        r2_score(
            factor[test],
            LinearRegression().fit(z[train, None], factor[train]).predict(z[test, None]),
        )
        for z in codes.T
    ]
    found = a.sap(codes, factor)
    assert found.matrix[:, 0] == pytest.approx(fits)
    assert found.score == pytest.approx(fits[0] - fits[1])


@pytest.mark.usefixtures("one_permutation")
def test_dci_dlib():
    factors = drawn((2, 3), 240)
    codes = np.column_stack([rotated(factors, noise=0.4), normal(240)])
    train, test = split("dci", 240)
    importance, right = np.zeros((3, 2)), []
    for k in range(2):
        model = GradientBoostingClassifier(random_state=0).fit(codes[train], factors[train, k])
        importance[:, k] = model.feature_importances_
        right.append(model.score(codes[test], factors[test, k]))
    found = a.dci(codes, factors, flavour="dlib")
    np.testing.assert_allclose(found.importance, importance)
    each = [1 - entropy(row, base=2) for row in importance]
    share = importance.sum(1) / importance.sum()
    assert found.disentanglement == pytest.approx(np.dot(each, share))
    each = [1 - entropy(column, base=3) for column in importance.T]
    share = importance.sum(0) / importance.sum()
    assert found.completeness == pytest.approx(np.dot(each, share))
    assert found.informativeness == pytest.approx(np.mean(right))


def test_dci_of_known_importances():
    identity = np.eye(4)
    assert weighted_mean(disentanglement_of(identity), identity.sum(1)) == pytest.approx(1)
    halves = np.array([[0.5, 0.5, 0, 0]])
    assert disentanglement_of(halves)[0] == pytest.approx(1 - log(2) / log(4))
    two_of_five = np.array([[0.5], [0.5], [0], [0], [0]])
    assert disentanglement_of(two_of_five.T)[0] == pytest.approx(1 - log(2) / log(5))
    assert disentanglement_of(np.zeros((2, 3))).tolist() == [0, 0]


def test_fast_importances_agree_with_the_slow_ones():
    factors = drawn((2, 4), 600)
    codes = rotated(factors, noise=0.5) @ normal((2, 6), 11) + 0.5 * normal((600, 6), 12)
    fast = a.dci(codes, factors)
    train, _ = split("dci", 600)
    slow = [
        GradientBoostingClassifier(random_state=0)
        .fit(codes[train], factors[train, k])
        .feature_importances_
        for k in range(2)
    ]
    assert spearmanr(fast.importance.T.ravel(), np.ravel(slow)).statistic > 0.9


def test_boosted_dci_is_that_of_gradient_boosting_on_few_rows():
    # LightGBM's own gain counts the noise of late rounds, and so is lower: docs/decisions.
    factors = drawn((3, 4), 400, 70)
    scaled = standardised(factors)
    codes = np.hstack([scaled + noise * normal(scaled.shape, 71) for noise in (1.0, 0.5)])
    codes = np.column_stack([codes, normal((400, 2), 72)])
    slow, fast = (
        np.stack([importance / importance.sum() for importance in columns], 1)
        for columns in (
            [
                GradientBoostingClassifier(random_state=0).fit(codes, y).feature_importances_
                for y in factors.T
            ],
            [_lightgbm(codes, y, codes[:1], True)[0] for y in factors.T],
        )
    )
    expected = weighted_mean(disentanglement_of(slow), slow.sum(1))
    assert weighted_mean(disentanglement_of(fast), fast.sum(1)) == pytest.approx(expected, abs=0.03)


def test_reduced_residuals_of_a_regression_are_the_gain_of_lightgbm():
    import lightgbm

    codes, values = normal((300, 3)), normal(300, 5)
    data = lightgbm.Dataset(codes, values + codes[:, 0], params={"verbosity": -1})
    options = {"objective": "regression", "verbosity": -1, "num_leaves": 8, "num_threads": 1}
    model = lightgbm.train(options, data, 20)
    reduction, gain = _residuals_explained(model), model.feature_importance("gain")
    np.testing.assert_allclose(reduction / reduction.sum(), gain / gain.sum(), rtol=1e-3)


def test_linear_importances_are_the_weights():
    factors = normal((500, 2))
    codes = np.column_stack([2 * factors[:, 0], factors @ [0.3, 1], normal(500, 4)])
    found = a.dci(codes, factors, predictor="linear")
    assert found.per_factor_informativeness == pytest.approx([1, 1], abs=0.01)
    # y0 = z0 / 2; y1 = z1 - .3 y0 = z1 - .15 z0, on standardised codes.
    weights = np.array([0.15 * 2, np.sqrt(0.3**2 + 1)])
    assert found.importance[:, 0] == pytest.approx([1, 0], abs=0.02)
    assert found.importance[:, 1] == pytest.approx(weights / weights.sum(), abs=0.03)


@pytest.mark.usefixtures("one_permutation")
def test_explicitness_dlib(mixed):
    codes, factors = mixed
    train, test = split("explicitness", 600)
    mean, spread = codes[train].mean(0), codes[train].std(0)
    scaled = (codes - mean) / spread
    areas = []
    for y in factors.T:
        said = LogisticRegression().fit(scaled[train], y[train]).predict_proba(scaled[test])
        areas.append(
            np.mean([roc_auc_score(y[test] == v, said[:, v]) for v in range(said.shape[1])])
        )
    found = a.explicitness(codes, factors, flavour="dlib")
    assert found.per_factor == pytest.approx(areas, abs=1e-9)
    assert a.explicitness(codes, factors, flavour="raw").score == pytest.approx(np.mean(areas))
    assert a.explicitness(codes, factors).score == pytest.approx(2 * np.mean(areas) - 1)


def test_explicitness_of_a_continuous_factor_is_held_out_r_squared():
    factor = normal(300)
    codes = np.column_stack([factor + normal(300, 5), normal(300, 6)])
    train, test = split("explicitness", 300)
    model = LinearRegression().fit(codes[train], factor[train])
    expected = r2_score(factor[test], model.predict(codes[test]))
    assert a.explicitness(codes, factor).score == pytest.approx(expected)


def votes_one_by_one(codes, factors, seed):
    rng = np.random.default_rng(seed)
    spread = codes.var(0, ddof=1)
    train, test = (np.zeros((factors.shape[1], codes.shape[1])) for _ in range(2))
    for table, count in ((train, 2000), (test, 2000)):
        for _ in range(count):
            k = rng.integers(factors.shape[1])
            held = rng.choice(np.unique(factors[:, k]))
            batch = codes[rng.choice(np.flatnonzero(factors[:, k] == held), 64)]
            table[k, np.argmin(batch.var(0, ddof=1) / spread)] += 1
    named = train.argmax(0)
    return sum(test[named[j], j] for j in range(codes.shape[1])) / test.sum()


def test_factor_vae_score_dlib_is_the_share_of_votes_that_agree():
    factors = grid((2, 3, 4), repeats=40)
    codes = rotated(factors, noise=1.5)
    found = a.factor_vae_score(codes, factors, flavour="dlib")
    assert 0.4 < found.score < 0.9
    assert found.score == pytest.approx(votes_one_by_one(codes, factors, 0), abs=0.035)
    np.testing.assert_allclose(found.matrix.sum(0), 1)


def pairs_one_by_one(codes, factors, seed):
    rng = np.random.default_rng(seed)

    def points(count):
        labels = rng.integers(factors.shape[1], size=count)
        rows = []
        same = [[np.flatnonzero(y == value) for value in range(y.max() + 1)] for y in factors.T]
        for k in labels:
            first = rng.integers(len(codes), size=64)
            second = [rng.choice(same[k][value]) for value in factors[first, k]]
            rows.append(np.abs(codes[first] - codes[second]).mean(0))
        return np.array(rows), labels

    return LogisticRegression().fit(*points(500)).score(*points(500))


def test_beta_vae_score_dlib_is_the_accuracy_on_mean_differences():
    factors = drawn((2, 3, 4), 500)
    codes = rotated(factors, noise=1.5)
    found = a.beta_vae_score(codes, factors, flavour="dlib")
    assert 0.4 < found.score < 0.9
    assert found.score == pytest.approx(pairs_one_by_one(codes, factors, 0), abs=0.06)


def test_neighbours_on_a_line_are_those_of_a_search_tree():
    codes = np.column_stack([normal(280), normal(280, 5)])
    is_test = np.arange(280) % 7 < 2
    known = np.flatnonzero(~is_test)
    rows, near = nearest(codes, np.argsort(codes.T, 1), is_test)
    assert near.shape == (5, 2, 80)
    for latent, (tests, found) in enumerate(zip(rows, near.transpose(1, 2, 0), strict=True)):
        tree = KNeighborsRegressor(5).fit(codes[known, latent, None], known)
        expected = tree.kneighbors(codes[tests, latent, None], return_distance=False)
        assert np.array_equal(np.sort(tests), np.flatnonzero(is_test))
        assert np.array_equal(found, known[expected])  # the nearest first


def test_fewer_training_rows_than_neighbours_are_all_used():
    codes = normal(10)[:, None]
    _, near = nearest(codes, np.argsort(codes.T, 1), np.arange(10) >= 3)
    assert np.array_equal(np.sort(near[:, 0], 0), np.tile([[0], [1], [2]], 7))


def test_equal_codes_say_nothing_in_sorted_data():
    # Neighbouring rows have the same factor, and all codes are equal: a tie must not be broken
    # by the order of the rows.
    factors = np.repeat([[0], [1], [2]], 100, axis=0)
    codes = np.column_stack([np.zeros(300), normal(300)])
    found = a.predictability_gap(codes, factors, kinds="categorical", flavour="paper")
    constant = found.matrix[1].max()  # of noise
    assert found.matrix[0, 0] < constant + 0.5


def test_predictability_gap_paper():
    labels = drawn((3,), 500)[:, 0]
    values = normal(500, 4)
    factors = np.column_stack([labels, values])
    codes = np.column_stack(
        [labels + 0.6 * normal(500, 5), values + normal(500, 6), normal(500, 7)]
    )
    train, test = split("predictability-gap", 500, 0.8)
    constant = np.mean(labels[test] == np.bincount(labels[train]).argmax())
    accuracy, gain = [], []
    for z in codes.T:
        model = KNeighborsClassifier(5).fit(z[train, None], labels[train])
        accuracy.append(model.score(z[test, None], labels[test]))
        guess = KNeighborsRegressor(5).fit(z[train, None], values[train]).predict(z[test, None])
        error = np.sqrt(np.mean((guess - values[test]) ** 2))
        gain.append(max(0, values[test].std() - error))
    accuracy, gain = sorted(accuracy), sorted(gain)
    gap = (gain[-1] - gain[-2]) / values[test].std()
    kinds = ["categorical", "continuous"]
    found = a.predictability_gap(codes, factors, flavour="paper", kinds=kinds)
    assert found.per_factor == pytest.approx([(accuracy[-1] - accuracy[-2]) / constant, gap])


def test_predictability_gap_gives_a_tie_to_the_nearest_value():
    labels = drawn((3,), 500)[:, 0]
    codes = np.column_stack([labels + 0.6 * normal(500, 5), normal(500, 7)])

    def nearer_first(distances):  # each more than all further ones together
        return 1 + 0.1 * 0.5 ** np.arange(1, 6) + 0 * distances

    order = np.concatenate(split("predictability-gap", 500))
    gains = []
    for test in np.split(order, 5):  # every row is tested once
        train = np.setdiff1d(order, test)
        constant = np.mean(labels[test] == np.bincount(labels[train]).argmax())
        scores = [
            KNeighborsClassifier(5, weights=nearer_first)
            .fit(z[train, None], labels[train])
            .score(z[test, None], labels[test])
            for z in codes.T
        ]
        gains.append(np.maximum(np.array(scores) - constant, 0) / (1 - constant))
    found = a.predictability_gap(codes, labels, variances=np.full((500, 2), 0.01))
    first, second = np.mean(gains, axis=0)
    assert found.score == pytest.approx(first - second)
    swapped = a.predictability_gap(codes, 2 - labels, variances=np.full((500, 2), 0.01))
    assert swapped.score == found.score
    paper = [a.predictability_gap(codes, y, flavour="paper").score for y in (labels, 2 - labels)]
    assert paper[0] != paper[1]


def test_predictability_gap_of_a_square():
    # Perfect codes of continuous factors score 1 because gains are floored at 0; turned at
    # random they score .545 on average, with a standard deviation of .286.
    square = np.random.default_rng(0).random((1500, 2))
    assert a.predictability_gap(square, square).score > 0.99
    scores = []
    for angle in np.random.default_rng(1).random(40) * 2 * np.pi:
        turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        scores.append(a.predictability_gap(square @ turn, square).score)
    assert np.mean(scores) == pytest.approx(0.545, abs=0.12)
    assert np.std(scores) == pytest.approx(0.286, abs=0.08)


def test_predictability_gap_paper_exceeds_one_where_ours_is_bounded():
    factors = grid(repeats=20)
    codes = factors.astype(float)
    assert a.predictability_gap(codes, factors, flavour="paper").score > 1.5
    assert a.predictability_gap(codes, factors).score <= 1


def test_mcc_is_the_best_of_all_matchings():
    factors = normal((300, 3))
    codes = factors @ normal((3, 4), 5) + normal((300, 4), 6)
    for flavour, correlate in (("linear", np.corrcoef), ("rank", None)):
        if correlate is None:
            matrix = np.abs(spearmanr(codes, factors).statistic[:4, 4:])
        else:
            matrix = np.abs(np.corrcoef(codes.T, factors.T)[:4, 4:])
        best = max(
            sum(matrix[j, k] for k, j in enumerate(chosen)) / 3
            for chosen in permutations(range(4), 3)
        )
        found = a.mcc(codes, factors, flavour=flavour)
        assert found.score == pytest.approx(best)
        assert sorted(found.matching) == [0, 1, 2]


def test_rank_mcc_does_not_mind_monotone_maps_and_linear_mcc_does():
    factors = normal((500, 2))
    codes = np.exp(2 * factors[:, ::-1])
    assert a.mcc(codes, factors, flavour="rank").score == pytest.approx(1)
    assert a.mcc(codes, factors).score < 0.8
    assert a.mcc(codes, factors, flavour="rank").matching == {0: 1, 1: 0}


def test_a_factor_without_a_latent_counts_zero_in_mcc():
    factors = normal((500, 3))
    found = a.mcc(factors[:, :2], factors)
    assert found.score == pytest.approx(2 / 3, abs=0.02)
    assert any("Factor 2 has no latent" in flag for flag in found.flags)


def test_udr_of_models_that_agree_and_of_models_that_do_not():
    codes = normal((1000, 4))
    same = [codes, -3 * codes[:, [2, 0, 3, 1]] + 1, codes[:, ::-1]]
    found = a.udr(same, similarity="spearman")
    assert found.score == pytest.approx(1, abs=0.12)
    assert found.chance < 0.05
    # A Lasso with alpha = .1 shrinks a weight of 1 to .9.
    assert a.udr(same).scores == pytest.approx([0.9] * 3)
    turned = [codes, rotated(codes, 1, 0), rotated(codes, 7, 0)]
    assert a.udr(turned).score < 0.7


def test_udr_by_hand():
    matrix = np.array([[0.8, 0.2], [0.0, 0.5], [0.0, 0.0]])
    columns = [0.8**2 / 0.8, 0.5**2 / 0.7]
    rows = [0.8**2 / 1.0, 0.5**2 / 0.5, 0.0]
    assert relative_strength(matrix) == pytest.approx((sum(columns) + sum(rows)) / 5)
    expected = (np.mean(columns) + np.mean(rows)) / 2
    assert relative_strength(matrix, "dlib") == pytest.approx(expected)


def test_udr_medians_and_lasso_by_another_route():
    from sklearn.linear_model import Lasso

    models = [normal((400, 3)) @ normal((3, 3), s) for s in (5, 6, 7)]
    scaled = [(m - m.mean(0)) / m.std(0) for m in models]
    table = np.zeros((3, 3))
    for i, j in permutations(range(3), 2):
        weights = [np.abs(Lasso(alpha=0.1).fit(scaled[i], z).coef_) for z in scaled[j].T]
        table[i, j] = relative_strength(np.stack(weights, 1), "dlib")
    found = a.udr(models, flavour="dlib")
    np.testing.assert_allclose(found.pairwise, table, atol=1e-6)
    expected = [np.median([table[i, j] for i in range(3) if i != j]) for j in range(3)]
    assert found.scores == pytest.approx(expected)
    assert found.best == int(np.argmax(expected))


def test_udr_leaves_out_latents_without_divergence():
    codes = normal((500, 3))
    models = [np.column_stack([codes, normal(500, 8 + s)]) for s in range(3)]
    kl = [np.array([2.0, 1.0, 0.5, 0.001])] * 3
    plain, masked = a.udr(models), a.udr(models, kl=kl)
    assert masked.uninformative == [[3]] * 3
    assert masked.score > plain.score + 0.1
    assert masked.scores == a.udr([m[:, :3] for m in models]).scores
    variances = [np.column_stack([np.full((500, 3), 0.01), np.ones(500)])] * 3
    quiet = [m * [1, 1, 1, 0.01] for m in models]
    assert a.udr(quiet, variances=variances).uninformative == [[3]] * 3


def test_udr_refuses_what_it_cannot_compare():
    from zscope.errors import ConfigError, Undefined

    codes = normal((50, 2))
    with pytest.raises(Undefined, match="got 1 model.*seeds"):
        a.udr([codes])
    with pytest.raises(Undefined, match=r"\[50, 40\] rows"):
        a.udr([codes, codes[:40]])
    with pytest.raises(ConfigError, match="1 arrays of kl or variances for 2 models"):
        a.udr([codes, codes], kl=[np.ones(2)])
    with pytest.raises(Undefined, match="model 0 are not all positive.*log-variances"):
        a.udr([codes, codes], variances=[-np.ones((50, 2))] * 2)


def test_udr_has_an_interval_and_a_figure():
    import matplotlib.pyplot as plt

    codes = normal((300, 3))
    models = [codes + 0.5 * normal(codes.shape, s) for s in (11, 12, 13)]
    found = a.udr(models, similarity="spearman", resamples=20)
    assert found.interval[0] < found.score < found.interval[1]
    assert found.plot() is not None
    assert found.to_dict()["kind"] == "UDR"
    plt.close("all")


def test_the_split_is_two_thirds_and_keeps_its_rows_in_every_half():
    sample, _ = prepare("test", normal((300, 2)), grid()[:300], None)
    sample = sample.with_split_keys(np.random.default_rng(0))
    train, test = sample.split()
    assert len(train) == 200
    assert sorted([*train, *test]) == list(range(300))
    half = np.random.default_rng(1).permutation(300)[:150]
    learned = half[sample.take(half).split()[0]]
    assert len(set(learned) - set(train)) < 12

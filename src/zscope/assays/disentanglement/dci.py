"""DCI: do latents and factors correspond one to one, and how well are factors predicted?

One predictor per factor is trained on all latents; R_jk is the importance of latent j for
factor k. With the shares p_jk = R_jk / sum_k R_jk and q_jk = R_jk / sum_j R_jk,

    disentanglement_j = 1 - H_K(p_j.),    averaged with weights sum_k R_jk / sum R,
    completeness_k    = 1 - H_d(q_.k),    averaged with weights sum_j R_jk / sum R,
    informativeness_k = accuracy (categorical) or R^2 (ordinal, continuous) on held-out rows,

H_n an entropy with logarithms to base n, K factors, d latents. All range from 0 to 1;
`.score` is the disentanglement. Unchanged by the order of the latents; boosted trees also
by any increasing map of a latent. A factor in two equal latents keeps disentanglement 1.

`flavour="zscope"`: LightGBM (40 rounds, depth 3, rate 0.3, one thread, seeded), trained on the
latents in use only: passive latents can neither raise completeness nor get importance. The
importance is that of gradient boosting in scikit-learn: by how much the splits on a latent
reduce the sum of squared residuals, over all trees. (The gain that LightGBM reports is relative
to the curvature of the loss, which weighs late rounds, mostly noise, far more.) The settings
are those closest to gradient boosting; see docs/decisions and benchmarks/dci_settings.py. With
more than 100 latents in use, codes are cut into 63 bins instead of 255, for half the time.
`predictor="linear"` uses the |weights| of a Lasso or a logistic regression instead.
`flavour="dlib"`: scikit-learn's GradientBoostingClassifier at its defaults (seeded), every
factor as classes, all latents. Takes minutes for 10,000 rows and many values.

All three depend on the number of samples, as predictors trained on more rows use more of the
codes: for one model, disentanglement rose from .48 with 600 samples to .70 with 30,000. Compare
models at equal n; below 2,000 samples this is flagged.

With `groups`, a variable may consist of several latents: R_jk is then the sum of the importance
of the latents of variable j, d the number of variables with a latent in use, and `per_latent`,
`matrix`, `active` and `passive` are about variables. A factor in several latents of one variable
lowers completeness by latents and not by variables; two factors in one variable lower
disentanglement by variables and not by latents. groups="model" are the variables of a
structural decoder, and single latents for a model that has none.

With one factor disentanglement is undefined: it would be 1 whatever the codes. With one latent
completeness is 1 by definition (flagged). Of two exactly equal latents, trees give all the
importance to the first.

Eastwood & Williams, "A framework for the quantitative evaluation of disentangled
representations", ICLR 2018 (openreview:By-7dz-AZ), section 2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.explicitness import r_squared, standardise
from zscope.assays.disentanglement.logistic import ignore_fit_warnings, logistic_regression
from zscope.assays.disentanglement.score import Estimate, Score, compute_score, require_two_factors
from zscope.assays.entry import Entry
from zscope.assays.halves import size_flag
from zscope.assays.information import information, quantile_bins, ratio
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    Variances,
    all_latents,
    has_spread,
    prepare,
    used_latents,
)
from zscope.errors import ConfigError, MissingExtra, Undefined
from zscope.factors import Factors
from zscope.groups import Groups, partition

__all__ = ["DCI", "dci", "factor_skills"]

SETTINGS = {"learning_rate": 0.3, "num_iterations": 40}
FEW_SAMPLES = 2000
MANY_LATENTS, FEW_BINS = 100, 63
MOST_CLASSES = 50  # that are never too many
MOST_PAIRS, MOST_ROWS = 300, 20_000
SKILL_ROWS, SKILL_FOLDS = 3000, 3


@dataclass(frozen=True, eq=False)
class DCI(Score):
    """Disentanglement (also `.score`), completeness and informativeness of one sample."""

    completeness: float = 0.0
    informativeness: float = 0.0
    per_factor_informativeness: np.ndarray = field(default_factory=lambda: np.zeros(0))
    informativeness_is: list[str] = field(default_factory=list)  # accuracy or R2, per factor
    groups: list[list[int]] | None = None  # the variables, if they are not single latents

    @property
    def column(self) -> str:
        return "latent" if self.groups is None else "variable"

    def to_dict(self) -> dict[str, Any]:
        """Without the groups if there are none."""
        values = super().to_dict()
        return {name: each for name, each in values.items() if name != "groups" or each is not None}

    def summary(self) -> list[tuple[str, str]]:
        return [*super().summary(), ("compare", f"at equal n only (here n = {self.samples:,})")]

    @property
    def disentanglement(self) -> float:
        return self.score

    @property
    def importance(self) -> np.ndarray:
        """Active latents x factors; each column sums to 1 (to 0 if no latent was useful)."""
        return self.matrix


@accepts_recording
def dci(
    codes: Array,
    factors: Array,
    *,
    flavour: Literal["zscope", "dlib"] = "zscope",
    predictor: Literal["boosting", "linear"] = "boosting",
    groups: Groups | Literal["model"] | None = None,
    model_groups: Groups | None = None,
    variances: Variances = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> DCI:
    """.disentanglement .completeness .informativeness .importance; .per_factor (completeness)
    and .per_latent (disentanglement).

    `groups` are the latents of each variable, every latent once, or "model" for those of the
    model (`model_groups`, which a recording knows). By default each latent is a variable.
    """
    sample, flags = prepare("dci", codes, factors, kinds)
    lists = _groups(groups, model_groups, len(sample.latents))
    require_two_factors("dci", sample)
    if len(sample) < FEW_SAMPLES:
        flags.append(
            f"DCI depends on the number of samples, strongly below {FEW_SAMPLES:,}: compare it "
            f"only with values that are also from {len(sample)} samples."
        )
    if resamples:
        flags.append(size_flag(len(sample), "trees learn more from more rows"))
    ours = flavour == "zscope"
    used = used_latents("dci", sample, variances) if ours else all_latents(sample)
    if not ours:
        _refuse_many_classes(sample)
        flags += sample.class_flags()
    elif not has_spread(variances, "dci"):
        flags += _pair_flags(sample, used[1])
    learn = {"boosting": _lightgbm, "linear": _linear}[predictor] if ours else _sklearn
    result = compute_score(
        DCI,
        "dci",
        partial(_dci, learn=learn, as_classes=not ours, groups=lists),
        sample,
        used,
        flags,
        flavour=flavour,
        meaning="importance",
        resamples=resamples,
        generator=generator,
        permutations=1,
    )
    if lists is None:
        return result
    active = [k for k, group in enumerate(lists) if not set(group).isdisjoint(result.active)]
    passive = [k for k in range(len(lists)) if k not in active]
    return replace(result, active=active, passive=passive, groups=lists)


def _groups(
    groups: Groups | Literal["model"] | None, model_groups: Groups | None, latents: int
) -> list[list[int]] | None:
    """The latents of each variable; None if each latent is one."""
    if groups is None:
        return None
    if isinstance(groups, str):
        if model_groups is None:
            raise ConfigError(
                "dci: groups='model', but these are codes without a model. Record the model, or "
                "list the latents of each variable: groups=[[0, 1], [2]]."
            )
        groups = model_groups
    return partition(groups, latents, "dci")


def _refuse_many_classes(sample: Sample) -> None:
    """Boosting fits a tree for each class and round, so that time grows as rows x classes."""
    rows = 2 * len(sample) // 3  # the others are held out
    for k, column in enumerate(sample.columns):
        count = len(np.unique(sample.values[:, k]))
        if count > max(MOST_CLASSES, rows // 10):
            raise Undefined(
                f"dci: factor {column} has {count:,} values, and flavour='dlib' takes each for a "
                f"class, with {rows:,} training rows; expected at most a tenth as many classes as "
                "rows. Is the factor continuous? Use flavour='zscope', or bin the factor first."
            )


# (training codes, training values, test codes, classes) -> (importance, predicted test values)
Learner = Callable[[np.ndarray, np.ndarray, np.ndarray, bool], tuple[np.ndarray, np.ndarray]]


def _predict(
    sample: Sample, learn: Learner, as_classes: bool
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Importance (latents x factors), informativeness of each factor, and what that is."""
    train, test = sample.split()
    codes = standardise(sample.codes, train) if learn is _linear else sample.codes
    importance = np.zeros((codes.shape[1], len(sample.columns)))
    informativeness, measures = np.zeros(len(sample.columns)), []
    for k, kind in enumerate(sample.kinds):
        classes = as_classes or kind == "categorical"
        values = sample.values[:, k] if classes else sample.factors[:, k]
        raw, predicted = learn(codes[train], values[train], codes[test], classes)
        importance[:, k] = raw / raw.sum() if raw.sum() > 0 else 0
        informativeness[k] = (
            np.mean(predicted == values[test]) if classes else r_squared(values[test], predicted)
        )
        measures.append("accuracy" if classes else "R2")
    return importance, informativeness, measures


def _dci(
    sample: Sample,
    _: np.random.Generator,
    *,
    learn: Learner,
    as_classes: bool,
    groups: list[list[int]] | None = None,
) -> Estimate:
    importance, informativeness, measures = _predict(sample, learn, as_classes)
    noun = "latent"
    if groups is not None:
        noun, place = "variable", {latent: row for row, latent in enumerate(sample.latents)}
        rows = [[place[latent] for latent in group if latent in place] for group in groups]
        importance = np.stack([importance[members].sum(0) for members in rows if members])
    flags = []
    if len(importance) == 1:
        flags.append(f"Only one {noun} is in use: completeness is 1 by definition.")
    if not importance.any():
        flags.append("No predictor used any latent, so disentanglement is 0.")
    latents, factors = disentanglement_of(importance), disentanglement_of(importance.T)
    return Estimate(
        weighted_mean(latents, importance.sum(1)),
        factors,
        latents,
        importance,
        flags,
        {
            "completeness": weighted_mean(factors, importance.sum(0)),
            "informativeness": float(informativeness.mean()),
            "per_factor_informativeness": informativeness,
            "informativeness_is": measures,
        },
    )


def factor_skills(
    codes: Array, factors: Factors, latents: list[int], *, seed: int = 0
) -> tuple[dict[int, float], int]:
    """How well the boosted trees predict each factor from these latents, and of how many rows.

    0 is as good as a constant guess and 1 perfect: R^2, or for categories the accuracy above
    that of the most frequent value, over 1 minus that. Every row (of at most 3,000) is predicted
    by trees that did not see it. Unlike disentanglement it is defined for a single factor.
    """
    rng = np.random.default_rng(seed)
    sample, _ = prepare("factor_skills", codes, factors, None)
    sample = sample.take(rng.permutation(len(sample))[:SKILL_ROWS]).keep(latents)
    folds = sample.with_split_keys(rng).folds(SKILL_FOLDS)
    skills = {}
    for place, (k, kind) in enumerate(zip(sample.columns, sample.kinds, strict=True)):
        classes = kind == "categorical"
        values = (sample.values if classes else sample.factors)[:, place]
        predicted = np.empty(len(values), values.dtype if classes else np.float64)
        for train, test in folds:
            predicted[test] = _lightgbm(
                sample.codes[train], values[train], sample.codes[test], classes
            )[1]
        if classes:
            guess = float(np.bincount(values).max()) / len(values)
            skills[k] = max(0.0, (float(np.mean(predicted == values)) - guess) / (1 - guess))
        else:
            skills[k] = r_squared(values, predicted)
    return skills, len(sample)


def _pair_flags(sample: Sample, passive: list[int]) -> list[str]:
    """A flag for pairs of passive latents that are informative only together.

    Each pair is cut into 5 x 5 bins, whose information is compared with chance as that of
    one latent.
    """
    pairs = list(combinations(passive, 2))[:MOST_PAIRS]
    if not pairs:
        return []
    coarse = quantile_bins(sample.codes[:MOST_ROWS], 5)
    joint = np.stack([5 * coarse[:, i] + coarse[:, j] for i, j in pairs], 1)
    informative = information(joint, sample.labels[:MOST_ROWS]).informative
    together = [pair for pair, joined in zip(pairs, informative, strict=True) if joined]
    if not together:
        return []
    return [
        f"The pairs of latents {together} are informative together but not alone: they were left "
        "out. Pass variances= to decide by variable type instead."
    ]


def disentanglement_of(importance: np.ndarray) -> np.ndarray:
    """1 - entropy of the shares of each row, with logarithms to the base of their number.

    A row of zeros gives 0; with a single column every other row gives 1.
    """
    sums = importance.sum(1)
    if importance.shape[1] == 1:
        return np.where(sums > 0, 1.0, 0.0)
    shares = ratio(importance, sums[:, None])
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)
    return np.where(sums > 0, 1 - entropy / np.log(max(2, importance.shape[1])), 0)


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    """The mean of the values with these weights; 0 if the weights are all 0."""
    return float((values * weights).sum() / weights.sum()) if weights.sum() > 0 else 0.0


def _lightgbm(
    train: np.ndarray,
    values: np.ndarray,
    test: np.ndarray,
    classes: bool,
    settings: dict[str, Any] = SETTINGS,
) -> tuple[np.ndarray, np.ndarray]:
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtra("dci", "lightgbm", "boost") from error

    train, test = _ranks(train, test)
    # Of latents with equal gains the first one is used. Sorting the latents by the ranks of
    # two rows makes the result independent of their original order.
    order = np.lexsort([(train < train[row]).sum(0) for row in (0, -1)])
    train, test, back = train[:, order], test[:, order], np.argsort(order)
    binning = {"verbosity": -1, **({"max_bin": FEW_BINS} if len(order) > MANY_LATENTS else {})}
    options: dict[str, Any] = {
        "max_depth": 3,
        "num_leaves": 8,
        "min_data_in_leaf": 1,
        "verbosity": -1,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": 1,
        "seed": 0,
        **settings,
    }
    if not classes:
        mean, spread = values.mean(), values.std() or 1.0
        data = lightgbm.Dataset(train, (values - mean) / spread, params=binning)
        model = lightgbm.train(
            {**options, "objective": "regression"}, data, keep_training_booster=True
        )
        predicted = np.asarray(model.predict(test, num_threads=1))
        return _residuals_explained(model)[back], mean + spread * predicted
    names, labels = np.unique(values, return_inverse=True)
    if len(names) == 1:
        return np.zeros(train.shape[1]), np.full(len(test), names[0])
    binary = len(names) == 2
    task = (
        {"objective": "binary"} if binary else {"objective": "multiclass", "num_class": len(names)}
    )
    data = lightgbm.Dataset(train, labels, params=binning)
    model = lightgbm.train({**options, **task}, data, keep_training_booster=True)
    output = np.asarray(model.predict(test, num_threads=1))
    label = (output > 0.5).astype(np.int64) if binary else output.argmax(1)
    return _residuals_explained(model)[back], names[label]


def _residuals_explained(model: Any) -> np.ndarray:
    """By how much the splits on each latent reduce the sum of squared residuals.

    The residuals of a leaf add up to its value times its weight (the sum of the second
    derivatives), up to the learning rate, which is the same for all trees. A split of n rows
    with the sum s into a and b reduces the squares by s_a^2 / n_a + s_b^2 / n_b - s^2 / n.
    """
    reduction = np.zeros(model.num_feature())
    first_round = model.num_model_per_iteration()
    for number, text in enumerate(model.model_to_string().split("\nTree=")[1:]):
        lines = text.split("\nshrinkage", 1)[0].split("\n")[1:]
        tree = {
            name: numbers.split() for name, _, numbers in (line.partition("=") for line in lines)
        }
        latents = tree["split_feature"]
        if not latents:
            continue
        # The trees of the first round contain the mean from which training starts.
        start = float(tree["internal_value"][0]) if number < first_round else 0.0
        leaves = zip(tree["leaf_value"], tree["leaf_weight"], strict=True)
        leaf_sums = [(float(value) - start) * float(weight) for value, weight in leaves]
        # Children are nodes from 0 on, or leaves from -1 downwards; nodes come before their
        # children.
        sums = [0.0] * len(latents) + leaf_sums[::-1]
        counts = [0] * len(latents) + [int(count) for count in tree["leaf_count"]][::-1]
        for node in reversed(range(len(latents))):
            a, b = int(tree["left_child"][node]), int(tree["right_child"][node])
            sums[node], counts[node] = sums[a] + sums[b], counts[a] + counts[b]
            reduction[int(latents[node])] += (
                sums[a] ** 2 / counts[a] + sums[b] ** 2 / counts[b] - sums[node] ** 2 / counts[node]
            )
    return np.maximum(reduction, 0)


def _ranks(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each code as its rank among the distinct training values, starting at 1.

    Trees use the order only, but LightGBM has a separate bin for numbers near 0, so that the
    offset of a latent would matter.
    """
    ranks = np.empty(train.shape), np.empty(test.shape)
    for j, (numbers, sought) in enumerate(zip(train.T, test.T, strict=True)):
        distinct, index = np.unique(numbers, return_inverse=True)
        ranks[0][:, j] = index + 1
        below = np.searchsorted(distinct, sought)
        found = distinct[np.minimum(below, len(distinct) - 1)] == sought
        ranks[1][:, j] = below + np.where(found, 1, 0.5)  # between the ranks of two values
    return ranks


def _linear(
    train: np.ndarray, values: np.ndarray, test: np.ndarray, classes: bool
) -> tuple[np.ndarray, np.ndarray]:
    if classes:
        model = logistic_regression(train, values)
        if not hasattr(model, "coef_"):
            return np.zeros(train.shape[1]), model.predict(test)
        return np.abs(model.coef_).mean(0), model.predict(test)
    from sklearn.linear_model import LassoCV

    with ignore_fit_warnings():
        lasso = LassoCV(cv=5, random_state=0).fit(train, values)
    return np.abs(lasso.coef_), lasso.predict(test)


def _sklearn(
    train: np.ndarray, values: np.ndarray, test: np.ndarray, _: bool
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.ensemble import GradientBoostingClassifier

    if (values == values[0]).all():
        return np.zeros(train.shape[1]), np.full(len(test), values[0])
    with ignore_fit_warnings():
        model = GradientBoostingClassifier(random_state=0).fit(train, values)
    return np.abs(model.feature_importances_), model.predict(test)


ENTRY = Entry(
    question="Do latents and factors correspond one to one, and how well are factors predicted?",
    meaning=(
        "Disentanglement is 1 if each latent helps to predict one factor only, completeness is 1 "
        "if each factor needs one latent only, informativeness is how well the factors are "
        "predicted."
    ),
    figure=(
        "How much each latent (row) contributes to predicting each factor (column): one strong "
        "cell in a row is a disentangled latent."
    ),
    takes=("codes", "factors", "variances=usage", "model_groups=model_groups"),
    needs=("two factors",),
    better="higher",
    title="DCI",
    maps="pooled",
)

"""DCI: is each code about one factor, each factor in one code, and all of it there?

One predictor per factor learns from all codes; R_jk is how important code j was for factor
k. With the shares p_jk = R_jk / sum_k R_jk and q_jk = R_jk / sum_j R_jk,

    disentanglement_j = 1 - H_K(p_j.),    averaged with weights sum_k R_jk / sum R,
    completeness_k    = 1 - H_d(q_.k),    averaged with weights sum_j R_jk / sum R,
    informativeness_k = accuracy (categorical) or R^2 (ordinal, continuous) on held-out rows,

H_n an entropy with logarithms to base n, K factors, d latents. All range from 0 to 1;
`.score` is the disentanglement. Unchanged by the order of the latents; boosted trees also
by any increasing map of a latent. A factor in two equal codes keeps disentanglement 1.

`flavour="zscope"`: gain importances of LightGBM (100 rounds, depth 3, rate 0.1, one thread,
seeded), fed with the latents in use only: dead latents can neither raise completeness nor
draw importance to themselves.
`predictor="linear"` takes the |weights| of a Lasso or a logistic regression instead.
`flavour="dlib"`: scikit-learn's GradientBoostingClassifier at its defaults (seeded), every
factor as classes, all codes. Takes minutes for 10,000 rows and many values.

With one factor disentanglement, with one latent completeness is 1 by definition (flagged).
Trees give all the credit to one of two exactly equal codes, whichever they see first.

Eastwood & Williams, "A framework for the quantitative evaluation of disentangled
representations", ICLR 2018 (openreview:By-7dz-AZ), section 2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.explicitness import r_squared, standardised
from zscope.assays.disentanglement.logistic import logistic_regression, quiet
from zscope.assays.disentanglement.score import Estimate, Score, scored
from zscope.assays.entry import Entry
from zscope.assays.information import information, quantile_bins, ratio
from zscope.assays.matrices import Array
from zscope.assays.sample import (
    Sample,
    by_type,
    chosen,
    everything,
    prepared,
    used_latents,
)
from zscope.errors import MissingExtra

ROUNDS = 100
MOST_PAIRS, MOST_ROWS = 300, 20_000


@dataclass(frozen=True, eq=False)
class DCI(Score):
    """Disentanglement (also `.score`), completeness and informativeness of one sample."""

    completeness: float = 0.0
    informativeness: float = 0.0
    per_factor_informativeness: np.ndarray = field(default_factory=lambda: np.zeros(0))
    informativeness_is: list[str] = field(default_factory=list)  # accuracy or R2, per factor

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
    flavour: str = "zscope",
    predictor: str = "boosting",
    variances: Array | None = None,
    resamples: int = 0,
    kinds: str | Sequence[str] | None = None,
    generator: Generator | None = None,
) -> DCI:
    """.disentanglement .completeness .informativeness .importance; .per_factor (completeness)
    and .per_latent (disentanglement)."""
    chosen("dci", "flavour", flavour, ("zscope", "dlib"))
    chosen("dci", "predictor", predictor, ("boosting", "linear"))
    sample, flags = prepared("dci", codes, factors, kinds)
    ours = flavour == "zscope"
    used = used_latents("dci", sample, variances) if ours else everything(sample)
    if not ours:
        flags += sample.unbinned()
    elif not by_type(variances, "dci"):
        flags += _told_together(sample, used[1])
    learn = {"boosting": _boosted, "linear": _linear}[predictor] if ours else _forest
    return scored(
        DCI,
        "dci",
        partial(_dci, learn=learn, as_classes=not ours),
        sample,
        used,
        flags,
        flavour=flavour,
        meaning="importance",
        resamples=resamples,
        generator=generator,
        permutations=1,
    )


# Learns from (codes, values) to predict other codes' values: (importance, predicted).
Learner = Callable[[np.ndarray, np.ndarray, np.ndarray, bool], tuple[np.ndarray, np.ndarray]]


def _dci(sample: Sample, _: np.random.Generator, *, learn: Learner, as_classes: bool) -> Estimate:
    train, test = sample.split()
    codes = standardised(sample.codes, train) if learn is _linear else sample.codes
    importance = np.zeros((codes.shape[1], len(sample.columns)))
    told, told_is = np.zeros(len(sample.columns)), []
    for k, kind in enumerate(sample.kinds):
        classes = as_classes or kind == "categorical"
        values = sample.values[:, k] if classes else sample.factors[:, k]
        raw, predicted = learn(codes[train], values[train], codes[test], classes)
        importance[:, k] = raw / raw.sum() if raw.sum() > 0 else 0
        right = (
            np.mean(predicted == values[test]) if classes else r_squared(values[test], predicted)
        )
        told[k] = right
        told_is.append("accuracy" if classes else "R2")
    flags = []
    if len(sample.columns) == 1:
        flags.append("Only one factor varies: disentanglement is 1 by definition.")
    if len(sample.latents) == 1:
        flags.append("Only one latent is in use: completeness is 1 by definition.")
    if not importance.any():
        flags.append("No latent was of any importance to any predictor: disentanglement is 0.")
    latents, factors = disentanglement_of(importance), disentanglement_of(importance.T)
    return Estimate(
        weighted(latents, importance.sum(1)),
        factors,
        latents,
        importance,
        flags,
        {
            "completeness": weighted(factors, importance.sum(0)),
            "informativeness": float(told.mean()),
            "per_factor_informativeness": told,
            "informativeness_is": told_is,
        },
    )


def _told_together(sample: Sample, passive: list[int]) -> list[str]:
    """Two codes may tell nothing alone and much together: say so where it is seen.

    Pairs of passive codes are cut into 5 x 5 bins and held against chance like one code.
    """
    pairs = list(combinations(passive, 2))[:MOST_PAIRS]
    if not pairs:
        return []
    coarse = quantile_bins(sample.codes[:MOST_ROWS], 5)
    joint = np.stack([5 * coarse[:, i] + coarse[:, j] for i, j in pairs], 1)
    tell = information(joint, sample.labels[:MOST_ROWS]).informative
    found = [pair for pair, tells in zip(pairs, tell, strict=True) if tells]
    if not found:
        return []
    return [
        f"The pairs of latents {found} tell something together though each tells nothing alone: "
        "these were left out. Pass variances= to decide by variable type instead."
    ]


def disentanglement_of(importance: np.ndarray) -> np.ndarray:
    """1 - entropy of the shares of each row, to the base of their number.

    A row of zeros gives 0; with a single column there is nothing to share: 1.
    """
    sums = importance.sum(1)
    if importance.shape[1] == 1:
        return np.where(sums > 0, 1.0, 0.0)
    shares = ratio(importance, sums[:, None])
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)
    return np.where(sums > 0, 1 - entropy / np.log(max(2, importance.shape[1])), 0)


def weighted(values: np.ndarray, weights: np.ndarray) -> float:
    """The mean of the values with these weights; 0 when there is no weight."""
    return float((values * weights).sum() / weights.sum()) if weights.sum() > 0 else 0.0


def _boosted(
    train: np.ndarray, values: np.ndarray, test: np.ndarray, classes: bool
) -> tuple[np.ndarray, np.ndarray]:
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtra("dci", "lightgbm", "boost") from error

    train, test = _ranked(train, test)
    # Equal gains go to the first of the codes. Putting these in an order of their own, by
    # the ranks of two rows, makes the result independent of the order they came in.
    order = np.lexsort([(train < train[row]).sum(0) for row in (0, -1)])
    train, test, back = train[:, order], test[:, order], np.argsort(order)
    options: dict[str, Any] = {
        "learning_rate": 0.1,
        "max_depth": 3,
        "num_leaves": 8,
        "min_data_in_leaf": 1,
        "verbosity": -1,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": 0,
    }
    if not classes:
        mean, spread = values.mean(), values.std() or 1.0
        data = lightgbm.Dataset(train, (values - mean) / spread, params={"verbosity": -1})
        model = lightgbm.train({**options, "objective": "regression"}, data, ROUNDS)
        predicted = np.asarray(model.predict(test, num_threads=1))
        return model.feature_importance("gain")[back], mean + spread * predicted
    names, labels = np.unique(values, return_inverse=True)
    if len(names) == 1:
        return np.zeros(train.shape[1]), np.full(len(test), names[0])
    binary = len(names) == 2
    task = (
        {"objective": "binary"} if binary else {"objective": "multiclass", "num_class": len(names)}
    )
    data = lightgbm.Dataset(train, labels, params={"verbosity": -1})
    model = lightgbm.train({**options, **task}, data, ROUNDS)
    found = np.asarray(model.predict(test, num_threads=1))
    chosen_class = (found > 0.5).astype(np.int64) if binary else found.argmax(1)
    return model.feature_importance("gain")[back], names[chosen_class]


def _ranked(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each code as its place among the training rows, from 1 on.

    Trees go by order alone, but LightGBM keeps a bin of its own for numbers near 0, so that
    the offset of a code would matter.
    """
    ranks = np.empty(train.shape), np.empty(test.shape)
    for j, known in enumerate(np.sort(train, axis=0).T):
        different = known[np.concatenate([[True], known[1:] != known[:-1]])]
        for rows, places in zip((train, test), ranks, strict=True):
            below = np.searchsorted(different, rows[:, j])
            places[:, j] = (below + np.searchsorted(different, rows[:, j], side="right") + 1) / 2
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

    with quiet():
        lasso = LassoCV(cv=5, random_state=0).fit(train, values)
    return np.abs(lasso.coef_), lasso.predict(test)


def _forest(
    train: np.ndarray, values: np.ndarray, test: np.ndarray, _: bool
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.ensemble import GradientBoostingClassifier

    if (values == values[0]).all():
        return np.zeros(train.shape[1]), np.full(len(test), values[0])
    with quiet():
        model = GradientBoostingClassifier(random_state=0).fit(train, values)
    return np.abs(model.feature_importances_), model.predict(test)


ENTRY = Entry(
    question="Does each latent encode one factor, is each factor in one latent, and complete?",
    takes=("codes", "factors", "variances=variances"),
    title="DCI",
)

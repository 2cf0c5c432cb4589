"""Type probe: what can a linear probe predict from the latents of each type?

For each factor a logistic regression (features standardised, penalty chosen among ten
from 1e-4 to 1e4 by five-fold cross-validation on the training rows) predicts the factor
from the means, or from the samples, of all latents and of each type alone. The result is
the accuracy on held-out rows, averaged over the factors; `chance` is the same average of
1 / number of classes.

In the polarised regime passive samples are at chance level, while passive means are above
it: their small, correlated variations are informative once standardised. That is a reason
to drop them rather than keep them, because the decoder never uses them.

Bonheme 2023, section 6.4.1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array, as_rows
from zscope.assays.regime.truncation import type_subsets
from zscope.assays.regime.types import VariableTypes, variable_types
from zscope.assays.sample import MIN_SAMPLES
from zscope.assays.shares import wilson
from zscope.autoencoder import Posterior
from zscope.errors import Undefined
from zscope.randomness import fresh
from zscope.results import Measure, Scored, listed
from zscope.sampling import whole

__all__ = ["TypeProbe", "type_probe"]

MOST_CLASSES = 100


@dataclass(frozen=True, eq=False)
class TypeProbe(Scored):
    """`accuracy["mean" or "sampled"][subset]`, averaged over the factors."""

    accuracy: dict[str, dict[str, float]]
    per_factor: dict[str, dict[str, list[float]]]
    chance: float
    probed: list[int]  # the factors predicted: those with 2 to 100 values
    train: int  # samples
    test: int
    standard_error: dict[str, dict[str, float]]  # of `accuracy`

    def measures(self) -> list[Measure]:
        return [
            self.measure(
                f"{kind}, {subset}",
                value,
                interval=self._interval(value, self.standard_error[kind][subset]),
                samples=self.test,
            )
            for kind, row in self.accuracy.items()
            for subset, value in row.items()
        ]

    def _interval(self, accuracy: float, error: float) -> tuple[float, float]:
        """That of a share of as many independent cases as have this standard error.

        Several factors of a row count as one case or more, as far as they agree.
        """
        cases = accuracy * (1 - accuracy) / error**2 if error > 0 else self.test
        centre, reach = wilson(accuracy, cases)
        return centre - reach, centre + reach

    def summary(self) -> list[tuple[str, str]]:
        return [("factors probed", listed(self.probed)), ("training samples", str(self.train))]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        names = [f"{subset} {kind}" for kind, row in self.accuracy.items() for subset in row]
        values = [value for row in self.accuracy.values() for value in row.values()]
        return bars(values, names=names, y="accuracy", line=self.chance, ax=ax)


@accepts_recording
def type_probe(
    posterior: Posterior,
    factors: Array,
    *,
    types: VariableTypes | None = None,
    samples: int = 1500,
    penalties: int = 3,
    folds: int = 2,
    generator: Generator | None = None,
) -> TypeProbe:
    """Probe the posterior; two thirds of at most `samples` rows train, the rest test."""
    whole("type_probe", 1, samples=samples, penalties=penalties)
    whole("type_probe", 2, folds=folds)
    values = as_rows(factors, "type_probe").cpu().numpy()
    if len(values) != len(posterior):
        raise Undefined(
            f"type_probe: {len(posterior)} posteriors but {len(values)} rows of factors; row i of "
            "both must be the same sample."
        )
    if posterior.deterministic and types is None:
        raise Undefined(
            f"type_probe: the {len(posterior)} posteriors have no variance, so their latents have "
            "no types. It applies to variational models; for others give types=."
        )
    if len(values) < MIN_SAMPLES:
        raise Undefined(
            f"type_probe: only {len(values)} samples; expected at least {MIN_SAMPLES}, to train a "
            "probe on two thirds and test it on the others. Record more observations."
        )
    source = fresh(generator)
    types = variable_types(posterior.variance) if types is None else types
    order = torch.randperm(len(values), generator=source)[:samples].numpy()
    cut = 2 * len(order) // 3
    train, test = order[:cut], order[cut:]
    classes = [len(np.unique(column[order])) for column in values.T]
    probed = [k for k, count in enumerate(classes) if 1 < count <= MOST_CLASSES]
    if not probed or len(test) == 0:
        raise Undefined(
            f"type_probe: on the {len(order)} samples the {len(classes)} factors have {classes} "
            f"values; expected at least one with 2 to {MOST_CLASSES}. Factors that do not vary, or "
            "are continuous, are not classes to predict: cut continuous ones into bins."
        )
    seed = int(torch.randint(2**31 - 1, (1,), generator=source))
    kinds: dict[str, Tensor] = {"mean": posterior.mean}
    if not posterior.deterministic:
        kinds["sampled"] = posterior.sample(source)
    correct: dict[str, dict[str, np.ndarray]] = {}  # factors x held-out rows, true or false
    for kind, codes in kinds.items():
        rows = codes.double().cpu().numpy()
        correct[kind] = {}
        found: dict[tuple[int, ...], np.ndarray] = {}  # without mixed latents some are the same
        for name, columns in type_subsets(types).items():
            if tuple(columns) not in found:
                x = rows[:, columns]
                found[tuple(columns)] = np.stack([
                    _hits(x[train], values[train, k], x[test], values[test, k],
                          penalties, folds, seed)
                    for k in probed
                ])  # fmt: skip
            correct[kind][name] = found[tuple(columns)]
    return TypeProbe(
        accuracy={
            kind: {name: float(each.mean()) for name, each in row.items()}
            for kind, row in correct.items()
        },
        per_factor={
            kind: {name: each.mean(1).tolist() for name, each in row.items()}
            for kind, row in correct.items()
        },
        # Over rows: a row that is wrong for one factor is often wrong for others too.
        standard_error={
            kind: {name: float(each.mean(0).std() / len(test) ** 0.5) for name, each in row.items()}
            for kind, row in correct.items()
        },
        chance=float(np.mean([1 / classes[k] for k in probed])),
        probed=probed,
        train=len(train),
        test=len(test),
    )


def _hits(
    x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray,
    penalties: int, folds: int, seed: int,
) -> np.ndarray:  # fmt: skip
    """Which held-out rows are predicted correctly with the best penalty."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    _, y_codes = np.unique(np.concatenate([y, y_test]), return_inverse=True)
    y, y_test = y_codes[: len(y)], y_codes[len(y) :]
    if len(np.unique(y)) < 2:
        return np.asarray(y_test == y[0])
    # Standardised: otherwise the penalty would suppress the tiny means of passive latents.
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, tol=1e-3))
    splits = KFold(folds, shuffle=True, random_state=seed).split(x)
    # A rare class may be missing from one part of a split, which then has nothing to learn.
    both = [(part, rest) for part, rest in splits if len(np.unique(y[part])) > 1]
    if not both:
        return np.asarray(y_test == np.bincount(y).argmax())
    search = GridSearchCV(model, {"logisticregression__C": np.logspace(-4, 4, penalties)}, cv=both)
    with warnings.catch_warnings():
        # With weak penalties a separable factor has no optimum; the accuracy settles earlier.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        search.fit(x, y)
    return np.asarray(search.predict(x_test) == y_test)


ENTRY = Entry(
    question="What can a linear probe predict from the latents of each type?",
    meaning=(
        "The accuracy with which a linear classifier predicts the factors from the latents of each "
        "type; chance is what guessing gives."
    ),
    figure=(
        "One bar for each type of latents, from means and from samples: at the line a classifier "
        "does no better than guessing."
    ),
    takes=("posterior", "factors", "types=types"),
    needs=("variances",),
)

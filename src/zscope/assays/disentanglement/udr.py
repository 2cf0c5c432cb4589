"""UDR: do models that differ only in their seed learn the same latents?

Disentangled representations are alike; every entangled one is different. For two models a and
b, R_ij is the similarity of latent i of a and latent j of b; with r_i and r_j the largest
entries of row i and of column j, over the informative latents,

    UDR_ab = ( sum_j r_j^2 / sum_i R_ij  +  sum_i r_i^2 / sum_j R_ij ) / (d_a + d_b),

so that it is 1 if each latent is similar to exactly one of the other model. The UDR of a
model is the median over the other models; `.score` is the mean over models, `.scores` has them all.
Range 0 to 1. No factors are needed. Unchanged by the order, sign, scale and offset of
the latents of any model.

`similarity="lasso"`: |weights| of a Lasso (alpha = 0.1) that predicts each latent of one model
from those of the other, standardised; it shrinks a perfect weight to .9, so that .9 is its
best score.
`similarity="spearman"`: |rank correlation|.

Informative latents have a mean KL to the prior above 0.01 nats, the published rule (not
`recording.used`: it decides which latents enter the score), from `kl` (one array per
model: latents, or samples x latents) or `variances` (posterior variances, one array per
model). Without either, all latents that are not constant are used (flagged).

`flavour="zscope"` divides by d_a + d_b as printed; `flavour="dlib"` averages the mean over
the latents of a and the mean over those of b, which differs if d_a and d_b do.

Duan et al., "Unsupervised model selection for variational disentangled representation
learning", ICLR 2020 (arXiv:1905.12614), the definition of UDR.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.disentanglement.mcc import correlations
from zscope.assays.entry import Entry
from zscope.assays.halves import half_width
from zscope.assays.information import ratio
from zscope.assays.matrices import Array, as_rows
from zscope.assays.sample import MIN_SAMPLES, numbers_of, seed_from
from zscope.errors import ConfigError, Undefined
from zscope.results import NOT_REQUESTED, Scored, subject

__all__ = ["UDR", "udr"]

INFORMATIVE_KL = 0.01
LASSO_ALPHA = 0.1


@dataclass(frozen=True, eq=False)
class UDR(Scored):
    """How similar the models are; row a, column b of `pairwise` is UDR_ab, the diagonal 0."""

    score: float
    chance: float
    interval: tuple[float, float] | None
    flavour: str
    similarity: str
    samples: int
    informative: list[list[int]]  # latents of each model that were compared
    uninformative: list[list[int]]  # those left out
    scores: list[float]  # of each model
    pairwise: np.ndarray
    flags: list[str]

    why_no_interval = NOT_REQUESTED

    @property
    def best(self) -> int:
        """The model that agrees most with the others."""
        return int(np.argmax(self.scores))

    def plot(self, ax: Any = None) -> Any:
        """Which models agree."""
        from zscope.plots import heatmap

        names = [f"model {a}" for a in range(len(self.scores))]
        title = f"UDR = {self.score:.3f} (chance {self.chance:.3f})"
        others = [
            [None if a == b else float(value) for b, value in enumerate(row)]
            for a, row in enumerate(self.pairwise)
        ]
        return heatmap(others, rows=names, columns=names, title=title, empty="itself", ax=ax)


@accepts_recording
def udr(
    codes: Sequence[Array],
    *,
    kl: Sequence[Array] | None = None,
    variances: Sequence[Array] | None = None,
    similarity: Literal["lasso", "spearman"] = "lasso",
    flavour: Literal["zscope", "dlib"] = "zscope",
    resamples: int = 0,
    generator: Generator | None = None,
) -> UDR:
    """Codes of the same observations by two or more models, in the same order of rows."""
    if resamples == 1 or resamples < 0:
        raise ConfigError(
            f"udr: resamples={resamples} gives no interval; use at least 2, or 200 for a stable "
            "one. Leave it at 0 for no interval."
        )
    if kl is not None and variances is not None:
        raise ConfigError(
            "udr: got both kl and variances, which are alternatives. Give one of them."
        )
    models = [
        numbers_of(each, f"udr: model {a}", "codes", least=MIN_SAMPLES)
        for a, each in enumerate(codes)
    ]
    _check(models)
    masks, flags = _informative(models, kl, variances)
    informative = [rows[:, mask] for rows, mask in zip(models, masks, strict=True)]
    silent = [a for a, rows in enumerate(informative) if not rows.shape[1]]
    if silent:
        flags.append(
            f"{subject('Model', silent, 'has', 'have')} no informative latent and a UDR of 0."
        )
    pairwise = _pairwise(informative, similarity, flavour)
    scores = _medians(pairwise)
    score = float(np.mean(scores))
    seed = seed_from(generator)
    return UDR(
        score=score,
        chance=_chance(informative, similarity, flavour, seed),
        interval=_interval(informative, similarity, flavour, seed, resamples, score),
        flavour=flavour,
        similarity=similarity,
        samples=len(models[0]),
        informative=[[int(j) for j in np.flatnonzero(mask)] for mask in masks],
        uninformative=[[int(j) for j in np.flatnonzero(~mask)] for mask in masks],
        scores=scores,
        pairwise=pairwise,
        flags=flags,
    )


def _check(models: list[np.ndarray]) -> None:
    if len(models) < 2:
        raise Undefined(
            f"udr: got {len(models)} model, but the score compares models with each other. "
            "Train it with two seeds or more: zs.train_ensemble(build, data, seeds=[0, 1])"
        )
    lengths = [len(rows) for rows in models]
    if len(set(lengths)) > 1:
        raise Undefined(
            f"udr: the models have {lengths} rows; row i of all must be the same observation. "
            "Record all models with one seed on the same data."
        )


def _informative(
    models: list[np.ndarray], kl: Sequence[Array] | None, variances: Sequence[Array] | None
) -> tuple[list[np.ndarray], list[str]]:
    varying = [(rows != rows[0]).any(0) for rows in models]
    arrays = kl if kl is not None else variances
    if arrays is None:
        return varying, ["Neither kl nor variances were given: passive latents were not left out."]
    if len(arrays) != len(models):
        raise ConfigError(
            f"udr: {len(arrays)} arrays of kl or variances for {len(models)} models; give one for "
            "each model, in the same order."
        )
    masks = []
    for a, (rows, each) in enumerate(zip(models, arrays, strict=True)):
        numbers = as_rows(each, f"udr: model {a}").cpu().numpy()
        if kl is None:
            if (numbers <= 0).any():
                raise Undefined(
                    f"udr: the variances of model {a} are not all positive (smallest "
                    f"{numbers.min():.3g}). Were log-variances passed? Pass posterior.variance."
                )
            if numbers.shape != rows.shape:
                raise Undefined(
                    f"udr: model {a} has codes of shape {rows.shape}, but variances of shape "
                    f"{numbers.shape}. Pass posterior.variance of the same observations."
                )
            numbers = 0.5 * (np.square(rows) + numbers - 1 - np.log(numbers))
        divergence = numbers[:, 0] if np.ndim(each) == 1 else numbers.mean(0)
        if len(divergence) != rows.shape[1]:
            raise Undefined(
                f"udr: model {a} has {rows.shape[1]} latents, but kl or variances of "
                f"{len(divergence)}. Are the models in the same order?"
            )
        masks.append(varying[a] & (divergence > INFORMATIVE_KL))
    return masks, []


def _pairwise(models: list[np.ndarray], similarity: str, flavour: str) -> np.ndarray:
    scaled = [(rows - rows.mean(0)) / np.maximum(rows.std(0), 1e-300) for rows in models]
    table = np.zeros((len(models), len(models)))
    for a, first in enumerate(scaled):
        for b, second in enumerate(scaled):
            if a != b and first.shape[1] and second.shape[1]:
                matrix = (
                    _lasso(first, second)
                    if similarity == "lasso"
                    else correlations(first, second, ranks=True)
                )
                table[a, b] = relative_strength(matrix, flavour)
    return table


def relative_strength(matrix: np.ndarray, flavour: str = "zscope") -> float:
    """UDR_ab from a matrix of similarities: 1 for a permutation matrix."""
    columns = ratio(np.square(matrix.max(0)), matrix.sum(0))
    rows = ratio(np.square(matrix.max(1)), matrix.sum(1))
    if flavour == "dlib":
        return float((columns.mean() + rows.mean()) / 2)
    return float((columns.sum() + rows.sum()) / sum(matrix.shape))


def _lasso(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import Lasso

    weights = Lasso(alpha=LASSO_ALPHA, random_state=0).fit(first, second).coef_
    importances: np.ndarray = np.abs(np.atleast_2d(weights)).T
    return importances


def _medians(pairwise: np.ndarray) -> list[float]:
    """For each model the median of UDR_ba over the other models b."""
    return [float(np.median(np.delete(pairwise[:, a], a))) for a in range(len(pairwise))]


def _chance(models: list[np.ndarray], similarity: str, flavour: str, seed: int) -> float:
    """The score after permuting the rows of every model independently."""
    rng = np.random.default_rng([seed, 1])
    shuffled = [rows[rng.permutation(len(rows))] for rows in models]
    return float(np.mean(_medians(_pairwise(shuffled, similarity, flavour))))


def _interval(
    models: list[np.ndarray],
    similarity: str,
    flavour: str,
    seed: int,
    resamples: int,
    score: float,
) -> tuple[float, float] | None:
    """By half-sampling the observations, as for the other scores; the models are the same."""
    if not resamples:
        return None
    rng = np.random.default_rng([seed, 2])
    samples = len(models[0])
    scores = []
    for _ in range(resamples):
        half = rng.permutation(samples)[: samples // 2]
        pairs = _pairwise([m[half] for m in models], similarity, flavour)
        scores.append(float(np.mean(_medians(pairs))))
    return max(0.0, score - half_width(scores)), min(1.0, score + half_width(scores))


ENTRY = Entry(
    question="Do models that differ only in their seed learn the same latents?",
    meaning=(
        "1 if models that differ only in their seed learn the same latents, which needs no "
        "factors; entangled models each learn something else."
    ),
    figure=(
        "The agreement of each pair of models: strong cells are pairs that learn the same latents."
    ),
    takes=("codes",),
    compares=True,
    better="higher",
    title="UDR",
    maps="pooled",
)

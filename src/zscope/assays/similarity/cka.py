"""CKA: do two representations arrange the same samples in the same way?

With X and Y the centred activations (samples x features) and K = X X^T, L = Y Y^T,

    plain      |X^T Y|_F^2 / ( |X^T X|_F |Y^T Y|_F )                     0 <= CKA <= 1
    debiased   HSIC_1(K, L) / sqrt( HSIC_1(K, K) HSIC_1(L, L) )         -1 <= CKA <= 1

1 when Y is X rotated, shifted and uniformly scaled. Unchanged by any orthogonal map,
isotropic scaling and shift of either side, and by permuting the samples of both together;
not by other linear maps. Insensitive to changes in directions of little variance.

The plain form (also called the RV coefficient) is about p / (n + p) for unrelated Gaussian
features: .67 at 64 samples of 128. The debiased form, with the unbiased HSIC_1 of Song et al.,
is 0 there within its error, and can be slightly negative; it is the default. For linear
kernels

    n (n-3) HSIC_1 = |X^T Y|_F^2 - n / (n-2) sum_i |x_i|^2 |y_i|^2
                     + (sum_i |x_i|^2) (sum_i |y_i|^2) / ((n-1) (n-2))

so it costs no more than the plain form. It needs at least 4 samples, not all equally far from
each other: HSIC_1 of such a representation with itself is 0.

Of recordings whose latents are maps, the score is that of whole maps, and `by_channel` compares
every channel of one with every channel of the other, on up to 512 samples (for up to 16 channels;
0 for a constant one).

Kornblith et al., ICML 2019; Song et al., JMLR 13, 2012, equation 5; Robert & Escoufier
1976; Bonheme 2023, equation 2.2.
"""

import contextlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array, centre, same_rows, unit_scale
from zscope.errors import Undefined
from zscope.layout import Layout
from zscope.results import Scored
from zscope.types import Matrix

__all__ = ["CKA", "StreamingCKA", "cka"]

ROUNDING = 1e-12
FEW = 512
"""Samples for which channels are compared."""
MOST_CHANNELS = 16


@dataclass(frozen=True, eq=False)
class CKA(Scored):
    """The similarity, and the numbers of samples and features it depends on."""

    score: float
    debiased: bool
    samples: int
    features: tuple[int, int]
    by_channel: Matrix | None = None  # of maps: first x second

    why_no_interval = "it is not computed; the spread over pairs of runs says more"
    why_no_chance = "in the plain form it depends on the features; use debiased=True"

    @property
    def chance(self) -> float | None:
        """That of unrelated features: 0 in the debiased form."""
        return 0.0 if self.debiased else None

    def to_dict(self) -> dict[str, Any]:
        """Without what only maps have, for others."""
        values = super().to_dict()
        if self.by_channel is None:
            del values["by_channel"]
        return values

    def plot(self, ax: Any = None) -> Any:
        """Of maps: every channel of one against every channel of the other."""
        if self.by_channel is None:
            return super().plot(ax)
        from zscope.plots import heatmap

        return heatmap(
            self.by_channel, x="channel of the second", y="channel of the first", label="CKA", ax=ax
        )


@accepts_recording
def cka(
    x: Array, y: Array, *, debiased: bool = True, layouts: Sequence[Layout] | None = None
) -> CKA:
    """Linear CKA of two representations of the same samples, in the same order.

    `layouts` are the channels and places of both, where they are maps.
    """
    a, b = same_rows(x, y, "cka", least=4 if debiased else 2)
    a, b = unit_scale(centre(a)), unit_scale(centre(b))
    n, features = len(a), (a.shape[1], b.shape[1])
    norms_a, norms_b = a.square().sum(1), b.square().sum(1)
    _refuse_constant(float(norms_a.sum()), float(norms_b.sum()), n)
    pairs = ((a, b), (a, a), (b, b))
    if min(features) > n:
        # Many features: the Gram matrices are smaller and contain the same inner products.
        grams = {id(side): side @ side.T for side in (a, b)}
        products = [float((grams[id(p)] * grams[id(q)]).sum()) for p, q in pairs]
    else:
        products = [float((p.T @ q).square().sum()) for p, q in pairs]
    plain = products[1:]
    if debiased:
        norms = ((norms_a, norms_b), (norms_a, norms_a), (norms_b, norms_b))
        products = [_hsic_of(h, p, q, n) for h, (p, q) in zip(products, norms, strict=True)]
    score = _ratio(products[0], products[1:], plain, n, features)
    by_channel = None if layouts is None else _by_channel(x, y, layouts, debiased)
    return CKA(score=score, debiased=debiased, samples=n, features=features, by_channel=by_channel)


def _by_channel(x: Array, y: Array, layouts: Sequence[Layout], debiased: bool) -> Matrix | None:
    """CKA of every two channels; None for too many."""
    if len(layouts) != 2 or max(each.channels for each in layouts) > MOST_CHANNELS:
        return None
    a, b = (each[:FEW] for each in same_rows(x, y, "cka", least=2))
    matrix = torch.zeros(layouts[0].channels, layouts[1].channels, dtype=torch.float64)
    for j, k in itertools.product(*(range(each.channels) for each in layouts)):
        first, second = a[:, slice(*layouts[0].ends(j))], b[:, slice(*layouts[1].ends(k))]
        with contextlib.suppress(Undefined):  # a constant channel resembles nothing
            matrix[j, k] = cka(first, second, debiased=debiased).score
    return matrix


def _hsic_of(product: float, norms_a: Tensor, norms_b: Tensor, n: int) -> float:
    """n (n-3) HSIC_1 from |X^T Y|_F^2 and the squared norms of the centred rows."""
    return _hsic(product, float(norms_a @ norms_b), float(norms_a.sum()), float(norms_b.sum()), n)


def _hsic(product: float, paired: float, total_a: float, total_b: float, n: int) -> float:
    return product - paired * n / (n - 2) + total_a * total_b / ((n - 1) * (n - 2))


def _ratio(
    cross: float, own: list[float], plain: list[float], n: int, features: tuple[int, int]
) -> float:
    """cross / sqrt(own_a own_b). `plain` are the self-similarities before the bias is removed: a
    remainder as small as rounding errors is treated as 0."""
    for side, term, whole in zip(("first", "second"), own, plain, strict=True):
        if term <= ROUNDING * whole:
            raise Undefined(
                f"cka: all {n} samples of the {side} representation ({features} features) are "
                "equally far from each other, so its unbiased self-similarity is 0. The rows may "
                "be one-hot, or there are too few samples for so many features. Record more, or "
                "use the plain form: cka(x, y, debiased=False)."
            )
    return min(1.0, cross / math.sqrt(own[0]) / math.sqrt(own[1]))


def _refuse_constant(total_a: float, total_b: float, n: int) -> None:
    for side, total in (("first", total_a), ("second", total_b)):
        if total <= 0:
            raise Undefined(
                f"cka: the {side} representation is the same for all {n} samples, so there is "
                "nothing to compare. Has the layer collapsed? The variances of a linear VAE are "
                "constant, too."
            )


class StreamingCKA:
    """CKA of data that do not fit in memory: add batches, then get the result.

    Only sums over the samples are stored (features x features), so up to rounding the result
    is that of all samples at once, not an average over batches. The sums are taken about the
    mean of the first batch, which avoids cancellation, and in units of its largest deviation.
    """

    def __init__(self) -> None:
        self.samples = 0
        self._sides: list[_Side] = []

    def add(self, x: Array, y: Array) -> "StreamingCKA":
        """Add the next samples of both representations; returns itself."""
        a, b = same_rows(x, y, "StreamingCKA", least=1)
        if not self._sides:
            self._sides = [_Side(a, a), _Side(b, b), _Side(a, b)]
        for side, (left, right) in zip(self._sides, ((a, a), (b, b), (a, b)), strict=True):
            side.add(left, right)
        self.samples += len(a)
        return self

    def result(self, *, debiased: bool = True) -> CKA:
        least = 4 if debiased else 2
        if self.samples < least:
            raise Undefined(
                f"StreamingCKA: {self.samples} samples so far; expected at least {least}. Add more."
            )
        *own, cross = (side.product(debiased) for side in self._sides)
        plain = [side.product(False) for side in self._sides[:2]]
        side = self._sides[2]
        features = (len(side.sum_a), len(side.sum_b))
        _refuse_constant(self._sides[0].total_a, self._sides[1].total_a, self.samples)
        return CKA(
            score=_ratio(cross, own, plain, self.samples, features),
            debiased=debiased,
            samples=self.samples,
            features=features,
        )


class _Side:
    """Sums over samples from which |X^T Y|_F^2 and HSIC_1 of the centred rows follow."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        # For a constant column the value itself: its mean may differ by rounding.
        self.shift_a, self.shift_b = (
            torch.where((rows == rows[0]).all(0), rows[0], rows.mean(0)) for rows in (a, b)
        )
        self.scale_a, self.scale_b = (
            torch.frexp(span)[1] if (span := (rows - shift).abs().max()) > 0 else span.new_zeros(())
            for rows, shift in ((a, self.shift_a), (b, self.shift_b))
        )
        self.n = 0
        self.sum_a, self.sum_b = torch.zeros_like(a[0]), torch.zeros_like(b[0])
        self.cross = a.new_zeros(a.shape[1], b.shape[1])  # sum a b^T
        self.a_by_b, self.b_by_a = torch.zeros_like(a[0]), torch.zeros_like(b[0])  # sum a |b|^2
        self.squares_a = self.squares_b = self.paired = 0.0

    def add(self, a: Tensor, b: Tensor) -> None:
        if a.shape[1] != len(self.sum_a) or b.shape[1] != len(self.sum_b):
            raise Undefined(
                f"StreamingCKA: got a batch with {a.shape[1]} and {b.shape[1]} features; earlier "
                f"ones have {len(self.sum_a)} and {len(self.sum_b)}. Compare one layer at a time."
            )
        a = torch.ldexp(a - self.shift_a, -self.scale_a)
        b = torch.ldexp(b - self.shift_b, -self.scale_b)
        norms_a, norms_b = a.square().sum(1), b.square().sum(1)
        self.n += len(a)
        self.sum_a += a.sum(0)
        self.sum_b += b.sum(0)
        self.cross += a.T @ b
        self.a_by_b += norms_b @ a
        self.b_by_a += norms_a @ b
        self.squares_a += float(norms_a.sum())
        self.squares_b += float(norms_b.sum())
        self.paired += float(norms_a @ norms_b)

    @property
    def total_a(self) -> float:
        """Sum of the squared norms of the centred rows of the first representation."""
        return self.squares_a - float(self.sum_a.square().sum()) / self.n

    def product(self, debiased: bool) -> float:
        n, m, k = self.n, self.sum_a / self.n, self.sum_b / self.n
        centred = self.cross - torch.outer(self.sum_a, k)
        product = float(centred.square().sum())
        if not debiased:
            return product
        total_b = self.squares_b - n * float(k @ k)
        # sum_i |a_i - m|^2 |b_i - k|^2, multiplied out
        mm, kk = float(m @ m), float(k @ k)
        paired = (
            self.paired
            - 2 * float(self.b_by_a @ k)
            + kk * self.squares_a
            - 2 * float(self.a_by_b @ m)
            + 4 * float(m @ self.cross @ k)
            - 2 * kk * float(self.sum_a @ m)
            + mm * self.squares_b
            - 2 * mm * float(self.sum_b @ k)
            + n * mm * kk
        )
        return _hsic(product, paired, self.total_a, total_b, n)


ENTRY = Entry(
    question="Do two representations arrange the same samples in the same way?",
    meaning=(
        "1 if two models arrange the same samples in the same way, up to rotation and scale; 0 if "
        "their arrangements have nothing in common."
    ),
    figure="The similarity of each channel of one model with each channel of the other.",
    takes=("codes", "codes"),
    compares=True,
    title="CKA",
    maps="flat",
)

"""Similarity heatmap: which layers of two models, or of one model at two steps, are similar?

Cell (i, j) is the CKA of layer i of the first and layer j of the second model on the same
samples; with several runs of each, the mean over all pairs of runs. Top left compares
encoders, bottom right decoders. Absolute values of different kinds of layers are not
comparable; their changes are.

There are two controls. `null` is the same with the samples of the second model shuffled: the
level when nothing is shared. `control` is the same for a model that was never trained: layers
near the input are similar just because the input is the same.

All pairs cost one pass over the Gram matrices of the layers, block by block: each is computed
once, not once for every partner. Layers with more features than samples are stored as their
Gram matrix, which is smaller and sufficient for CKA. Gram matrices grow with the square of the
samples: of more than 10,000, so many are drawn at random (the result says so); the debiased form
is not biased by that.

Bonheme 2023, equation 7.9 and section 7.4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array
from zscope.errors import Undefined
from zscope.randomness import fresh
from zscope.results import Result
from zscope.sampling import whole
from zscope.types import Matrix, as_tensor

__all__ = ["Layer", "SimilarityHeatmap", "prepare_layers", "similarity_heatmap"]

SAMPLES = 10_000
BLOCK_BYTES, COPY_BYTES = 64 << 20, 16 << 20
ROUNDING = 1e-6  # a layer that varies by less than this, relative to its norm, is constant
NEGLIGIBLE = 1e-12  # the share of the variance of a layer that rounding in float32 can make up
EQUALLY_FAR = 1e-6  # rounding error in float32 of an unbiased self-similarity of 0


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer prepared for comparison: centred, scaled, and in the smaller of two forms."""

    rows: Float[Tensor, "samples features"] | None
    gram: Float[Tensor, "samples samples"] | None  # where there are more features than samples
    norms: Float[Tensor, " samples"]  # squared norms of the rows

    def __len__(self) -> int:
        return len(self.norms)

    def block(self, start: int, end: int) -> Tensor:
        """Rows `start` to `end` of the Gram matrix, from column `start` on."""
        if self.gram is not None:
            return self.gram[start:end, start:]
        assert self.rows is not None
        return self.rows[start:end] @ self.rows[start:].T

    def shuffle(self, order: Tensor) -> "Layer":
        return Layer(
            None if self.rows is None else self.rows[order],
            None if self.gram is None else self.gram[order][:, order],
            self.norms[order],
        )


Layers = Mapping[str, Array | Layer]


@dataclass(frozen=True, eq=False)
class SimilarityHeatmap(Result):
    """CKA of every layer of the first (rows) with every layer of the second (columns)."""

    matrix: Matrix
    null: Matrix | None
    control: Float[Tensor, "rows others"] | None  # its columns are control_columns
    rows: list[str]
    columns: list[str]
    control_columns: list[str]
    debiased: bool
    samples: int
    flags: list[str] = field(default_factory=list)

    @property
    def shared(self) -> list[str]:
        """The layers that both models have."""
        return [name for name in self.rows if name in self.columns]

    @property
    def diagonal(self) -> Tensor:
        """The similarity of each shared layer with the one of the same name."""
        rows = [self.rows.index(name) for name in self.shared]
        columns = [self.columns.index(name) for name in self.shared]
        return self.matrix[rows, columns]

    def summary(self) -> list[tuple[str, str]]:
        values = zip(self.shared, self.diagonal, strict=True)
        return [(name, f"{float(value):.3f}") for name, value in values]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        return heatmap(
            self.matrix.clamp(min=0),
            rows=self.rows,
            columns=self.columns,
            x="layers of the second model",
            y="layers of the first model",
            label="CKA",
            limit=1.0,
            ax=ax,
        )


@accepts_recording
def similarity_heatmap(
    first: Layers | Sequence[Layers],
    second: Layers | Sequence[Layers] | None = None,
    *,
    control: Layers | None = None,
    null: bool = False,
    debiased: bool = True,
    samples: int = SAMPLES,
    generator: Generator | None = None,
) -> SimilarityHeatmap:
    """Compare layers (name -> samples x features; see `activations`) of two models.

    Give a list of such mappings for several runs; without `second`, the first is compared
    with itself (several runs: each with every other). Constant layers have no similarity and
    are left out. At most `samples` samples are compared.
    """
    ours = [first] if isinstance(first, Mapping) else list(first)
    alone = second is None
    theirs = ours if second is None else [second] if isinstance(second, Mapping) else list(second)
    groups: list[Layers] = [*ours, *([] if alone else theirs)]
    if control is not None:
        groups.append(control)
    chosen, given = _draw(groups, samples, generator)
    prepared = [prepare_layers(group, chosen=chosen) for group in groups]
    _check(prepared)
    count = len(next(iter(prepared[0].values())))
    if null:
        order = torch.randperm(count, generator=fresh(generator))
        runs = prepared[: len(ours)] if alone else prepared[len(ours) : len(ours) + len(theirs)]
        prepared.append({name: layer.shuffle(order) for name, layer in runs[0].items()})
    table = _all_pairs(prepared, count, debiased)
    rows = [n for n in prepared[0] if all(n in g for g in prepared[: len(ours)])]
    start = 0 if alone else len(ours)
    columns = [
        n for n in prepared[start] if all(n in g for g in prepared[start : start + len(theirs)])
    ]
    pairs = [
        (i, start + j)
        for i in range(len(ours))
        for j in range(len(theirs))
        if not alone or len(ours) == 1 or i != j
    ]
    matrix = torch.stack([table(i, rows, j, columns) for i, j in pairs]).mean(0)
    control_at = start + len(theirs)
    control_columns = [] if control is None else list(prepared[control_at])
    return SimilarityHeatmap(
        matrix=matrix,
        null=table(0, rows, len(prepared) - 1, columns) if null else None,
        control=None if control is None else table(0, rows, control_at, control_columns),
        rows=rows,
        columns=columns,
        control_columns=control_columns,
        debiased=debiased,
        samples=count,
        flags=[]
        if chosen is None
        else [f"Compared on {count:,} of {given:,} samples, drawn at random."],
    )


def _draw(
    groups: list[Layers], samples: int, generator: Generator | None
) -> tuple[Tensor | None, int]:
    """Which rows to compare, if there are more than `samples` (None: all), and of how many.

    Also where layers are prepared already: whoever did that has chosen the samples.
    """
    whole("similarity_heatmap", 4, samples=samples)
    sizes = set()
    for layer in (layer for group in groups for layer in group.values()):
        if isinstance(layer, Layer):
            return None, 0
        sizes |= {*as_tensor(layer, "similarity_heatmap").shape[:1]}
    if len(sizes) != 1 or max(sizes) <= samples:
        return None, 0
    source = fresh(generator)
    order = torch.randperm(max(sizes), generator=source, device=source.device)
    return order[:samples].sort().values, max(sizes)


def prepare_layers(
    layers: Layers, *, narrow: bool = False, chosen: Tensor | None = None
) -> dict[str, Layer]:
    """The layers that vary, in the form that `similarity_heatmap` works on.

    `similarity_heatmap` does this itself; to compare several large models, prepare one after
    the other, so that only one model's activations are in memory at a time. With `narrow`,
    layers with more features than samples become rows with the same Gram matrix, which
    Procrustes needs. Of the rows only those `chosen` are taken.
    """
    prepared = {}
    for name, values in layers.items():
        layer = (
            values
            if isinstance(values, Layer)
            else _prepare(
                name, as_tensor(values, f"similarity_heatmap, layer {name!r}"), narrow, chosen
            )
        )
        if layer is not None:
            prepared[name] = layer
    return prepared


def _prepare(name: str, values: Tensor, narrow: bool, chosen: Tensor | None) -> Layer | None:
    """None for a constant layer."""
    if values.ndim == 0 or values.numel() == 0 or values.is_complex():
        raise Undefined(
            f"similarity_heatmap: the layer {name!r} has shape {tuple(values.shape)} and type "
            f"{values.dtype}; expected real numbers, a row for each sample."
        )
    rows = values.detach().reshape(len(values), -1)
    rows = rows if chosen is None else rows[chosen.to(rows.device)]
    rows = rows if rows.dtype == torch.float64 else rows.float()
    peak = float(torch.stack(torch.aminmax(rows)).abs().max())
    rows = rows / peak if 0 < peak < math.inf else rows.clone()
    raw = _size(rows)
    total = torch.stack([part.double().sum(0) for part in _parts(rows)]).sum(0)
    rows -= (total / len(rows)).to(rows.dtype)
    rows = rows.float().cpu()
    scale = _size(rows)
    if not math.isfinite(scale):
        raise Undefined(
            f"similarity_heatmap: the layer {name!r} contains NaN or infinite numbers. Has "
            "training diverged? Lower the learning rate, or use an earlier checkpoint."
        )
    if scale <= ROUNDING * raw:
        return None
    # Unit size: CKA does not depend on it, and float32 products cannot overflow.
    n = len(rows)
    rows *= n**0.5 / scale
    norms = torch.cat(
        [torch.linalg.vector_norm(part.double(), dim=1).square() for part in _parts(rows)]
    )
    if narrow and rows.shape[1] > n:
        rows = _narrow(rows)
    if rows.shape[1] <= n:
        return Layer(rows, None, norms)
    gram = torch.empty(n, n)
    for start in range(0, n, 512):
        part = rows[start : start + 512] @ rows[start:].T
        gram[start : start + 512, start:] = part
        gram[start:, start : start + 512] = part.T
    return Layer(None, gram, norms)


def _parts(rows: Tensor) -> tuple[Tensor, ...]:
    """Rows of which a copy in double precision fits."""
    parts: tuple[Tensor, ...] = rows.split(max(1, COPY_BYTES // (8 * rows.shape[1])))
    return parts


def _size(rows: Tensor) -> float:
    """The norm of all numbers together."""
    sizes = [torch.linalg.vector_norm(part.double()) for part in _parts(rows)]
    return float(torch.linalg.vector_norm(torch.stack(sizes)))


def _narrow(rows: Tensor) -> Tensor:
    """Rows with the same Gram matrix in at most as many columns as there are samples.

    The smallest directions are left out, up to a share of NEGLIGIBLE of the variance: by
    |<X, Y>| <= |X|_F |Y|_F that changes CKA and Procrustes by 1e-6 at most.
    """
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for part in rows.split(4096, dim=1):
        gram += part.double() @ part.double().T
    squares, vectors = torch.linalg.eigh(gram)
    squares = squares.clamp(min=0)
    first = int((squares.cumsum(0) <= NEGLIGIBLE * squares.sum()).sum())
    narrow: Tensor = (vectors[:, first:] * squares[first:].sqrt()).float()
    return narrow


def _check(groups: list[dict[str, Layer]]) -> None:
    sizes = sorted({len(layer) for group in groups for layer in group.values()})
    if not all(groups):
        raise Undefined(
            "similarity_heatmap: a model has no layer that varies over the samples. Is the input "
            "the same for all samples? Use other observations."
        )
    if len(sizes) != 1 or sizes[0] < 4:
        raise Undefined(
            f"similarity_heatmap: got layers of {sizes} samples; expected the same samples for all "
            "layers, at least 4. Compute the activations of both models on the same observations."
        )


class _Table:
    """Looks up the CKA of any two layers of any two groups."""

    def __init__(self, places: list[dict[str, int]], values: Tensor) -> None:
        self.places, self.values = places, values

    def __call__(self, i: int, rows: list[str], j: int, columns: list[str]) -> Tensor:
        first = torch.tensor([self.places[i][name] for name in rows])
        second = torch.tensor([self.places[j][name] for name in columns])
        return self.values[first][:, second]


def _all_pairs(groups: list[dict[str, Layer]], n: int, debiased: bool) -> _Table:
    places: list[dict[str, int]] = []
    layers: list[Layer] = []
    for group in groups:
        places.append({name: len(layers) + k for k, name in enumerate(group)})
        layers += group.values()
    norms = torch.stack([layer.norms for layer in layers])
    products = _gram_products(layers, n)
    plain = products.diagonal().clone()
    if debiased:
        paired, totals = norms @ norms.T, norms.sum(1)
        products = products - paired * n / (n - 2)
        products += torch.outer(totals, totals) / ((n - 1) * (n - 2))
    own = products.diagonal().clone()
    if (own <= EQUALLY_FAR * plain).any():
        names = [name for group in groups for name in group]
        raise Undefined(
            f"similarity_heatmap: all {n} samples are equally far from each other in the layer "
            f"{names[int((own / plain).argmin())]!r}, so its unbiased self-similarity is 0. Use "
            "more samples, or debiased=False."
        )
    return _Table(places, (products / own.sqrt() / own.sqrt()[:, None]).clamp(max=1))


def _gram_products(layers: list[Layer], n: int) -> Tensor:
    """<K_a, K_b> = |X_a^T X_b|_F^2 for all pairs, from blocks of rows of every K."""
    count = len(layers)
    block = max(16, min(n, BLOCK_BYTES // (12 * count * n)))
    total = torch.zeros(count, count, dtype=torch.float64)
    for start in range(0, n, block):
        end = min(start + block, n)
        # K is symmetric: the part right of the diagonal block counts twice.
        parts = torch.empty(count, end - start, n - start, dtype=torch.float64)
        for k, layer in enumerate(layers):
            parts[k] = layer.block(start, end)
        parts[:, :, end - start :] *= 2**0.5
        flat = parts.reshape(count, -1)
        total += flat @ flat.T
    return total


ENTRY = Entry(
    question="Which layers of two models, or of one model at two steps, are similar?",
    meaning=(
        "Which layers arrange the samples alike, between two models or two steps of one: 1 for the "
        "same arrangement; compare with untrained layers."
    ),
    figure=(
        "Rows are layers of the first model, columns of the second: a strong diagonal means that "
        "both compute similar things layer by layer."
    ),
    takes=("activations", "activations"),
    compares=True,
    maps="flat",
)

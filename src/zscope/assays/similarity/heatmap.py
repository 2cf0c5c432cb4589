"""Similarity heatmap: which layers of two models, or of one model at two times, agree?

Cell (i, j) is the CKA of layer i of the first and layer j of the second model on the same
samples; with several runs of each, the mean over all pairs of runs. Top left compares
encoders, bottom right decoders. Levels of different kinds of layers are not comparable;
their changes are.

Two controls stand beside it. `null` is the same for the second model with its samples
shuffled: what the numbers read when nothing is shared. `control` is the same for a model
that was never trained: layers near the input agree for no other reason than that the
input is the same.

All pairs cost one pass over the Gram matrices of the layers, taken block by block: each
is formed once, not once for every partner, and never kept.

Bonheme 2023, equation 7.9 and section 7.4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from zscope.assays.matrices import Array
from zscope.errors import Undefined
from zscope.randomness import fresh
from zscope.results import Result
from zscope.types import Matrix

BLOCK_BYTES = 128 << 20
ROUNDING = 1e-6  # a layer that varies by less than this share is the same for all samples
Layers = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class SimilarityHeatmap(Result):
    """CKA of every layer of the first (rows) with every layer of the second (columns)."""

    matrix: Matrix
    null: Matrix | None
    control: Matrix | None
    rows: list[str]
    columns: list[str]
    control_columns: list[str]
    debiased: bool
    samples: int

    def summary(self) -> list[tuple[str, str]]:
        shared = [name for name in self.rows if name in self.columns]
        return [
            (name, f"{float(self.matrix[self.rows.index(name), self.columns.index(name)]):.3f}")
            for name in shared
        ]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        return heatmap(
            self.matrix.clamp(min=0),
            rows=self.rows,
            columns=self.columns,
            x="layers of the second",
            y="layers of the first",
            label="CKA",
            limit=1.0,
            ax=ax,
        )


def similarity_heatmap(
    first: Layers | Sequence[Layers],
    second: Layers | Sequence[Layers] | None = None,
    *,
    control: Layers | None = None,
    null: bool = False,
    debiased: bool = True,
    generator: Generator | None = None,
) -> SimilarityHeatmap:
    """Compare layers (name -> samples x features; see `activations`) of two models.

    Give a list of such mappings for several runs; without `second`, the first is compared
    with itself (several runs: every run with every other). Layers that are the same for
    all samples have no similarity and are left out.
    """
    ours = [first] if isinstance(first, Mapping) else list(first)
    alone = second is None
    theirs = ours if second is None else [second] if isinstance(second, Mapping) else list(second)
    groups: list[Layers] = [*ours, *([] if alone else theirs)]
    if control is not None:
        groups.append(control)
    prepared = [_prepared(group) for group in groups]
    _check(prepared)
    samples = len(next(iter(prepared[0].values())))
    if null:
        order = torch.randperm(samples, generator=fresh(generator))
        runs = prepared[: len(ours)] if alone else prepared[len(ours) : len(ours) + len(theirs)]
        prepared.append({name: values[order] for name, values in runs[0].items()})
    table = _all_pairs(prepared, samples, debiased)
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
        samples=samples,
    )


def _prepared(layers: Layers) -> dict[str, Tensor]:
    """Centred float32 rows of the layers that vary."""
    kept = {}
    for name, values in layers.items():
        rows = torch.as_tensor(values).detach()
        rows = rows.reshape(len(rows), -1)
        raw = float(torch.linalg.vector_norm(rows, dtype=torch.float64))
        rows = (rows - rows.mean(0, dtype=torch.float64).to(rows.dtype)).float().cpu()
        if not rows.isfinite().all():
            raise Undefined(
                f"similarity_heatmap: the layer {name!r} holds NaN or infinite numbers. Has "
                "training diverged?"
            )
        scale = float(torch.linalg.vector_norm(rows, dtype=torch.float64))
        if scale > ROUNDING * raw:
            # Unit size: CKA does not depend on it, and float32 products cannot overflow.
            kept[name] = rows * (len(rows) ** 0.5 / scale)
    return kept


def _check(groups: list[dict[str, Tensor]]) -> None:
    sizes = sorted({len(rows) for group in groups for rows in group.values()})
    if not all(groups):
        raise Undefined(
            "similarity_heatmap: a model has no layer that varies over the samples. Is the input "
            "the same for all samples?"
        )
    if len(sizes) != 1 or sizes[0] < 4:
        raise Undefined(
            f"similarity_heatmap: layers of {sizes} samples; all must be of the same samples, at "
            "least 4. Take the activations of both models on the same observations."
        )


class _Table:
    """CKA of any two layers of any two groups, looked up."""

    def __init__(self, places: list[dict[str, int]], values: Tensor) -> None:
        self.places, self.values = places, values

    def __call__(self, i: int, rows: list[str], j: int, columns: list[str]) -> Tensor:
        first = torch.tensor([self.places[i][name] for name in rows])
        second = torch.tensor([self.places[j][name] for name in columns])
        return self.values[first][:, second]


def _all_pairs(groups: list[dict[str, Tensor]], n: int, debiased: bool) -> _Table:
    places: list[dict[str, int]] = []
    layers: list[Tensor] = []
    for group in groups:
        places.append({name: len(layers) + k for k, name in enumerate(group)})
        layers += group.values()
    norms = torch.stack([rows.double().square().sum(1) for rows in layers])
    products = _gram_products(layers, n)
    if debiased:
        paired, totals = norms @ norms.T, norms.sum(1)
        products = products - paired * n / (n - 2)
        products += torch.outer(totals, totals) / ((n - 1) * (n - 2))
    own = products.diagonal().clone()
    if (own <= 0).any():
        raise Undefined(
            f"similarity_heatmap: {n} samples are too few to tell a layer from noise (its "
            "unbiased self-similarity is not positive). Use more samples, or debiased=False."
        )
    return _Table(places, (products / own.sqrt() / own.sqrt()[:, None]).clamp(max=1))


def _gram_products(layers: list[Tensor], n: int) -> Tensor:
    """<K_a, K_b> = |X_a^T X_b|_F^2 for all pairs, from blocks of rows of every K."""
    count = len(layers)
    block = max(16, min(n, BLOCK_BYTES // (12 * count * n)))
    total = torch.zeros(count, count, dtype=torch.float64)
    for start in range(0, n, block):
        end = min(start + block, n)
        # K is symmetric: the part right of the diagonal block counts twice.
        parts = torch.empty(count, end - start, n - start, dtype=torch.float64)
        for k, rows in enumerate(layers):
            parts[k] = rows[start:end] @ rows[start:].T
        parts[:, :, end - start :] *= 2**0.5
        flat = parts.reshape(count, -1)
        total += flat @ flat.T
    return total

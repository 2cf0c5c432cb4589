"""Layers of two models by CKA and by Procrustes, and the smaller of both for each cell.

CKA overlooks directions of little variance, and Procrustes is large where there are few samples
and many features. Where they differ, the smaller of both is to be quoted: two layers are similar
if both say so.

Bonheme 2023, section 7.2 and equations 2.2 and 7.6 to 7.9.
"""

from dataclasses import dataclass

import torch

from zscope.assays.similarity.heatmap import Layer, Layers, prepare_layers, similarity_heatmap
from zscope.types import Matrix

__all__ = ["MEASURES", "PairOfModels", "blocks_of", "layer_similarities"]

MEASURES = ("cka", "procrustes", "smaller")
LATENTS = ("mean", "variance", "sampled")


@dataclass(frozen=True, eq=False)
class PairOfModels:
    """Every layer of one model (rows) with every layer of another (columns), by measure."""

    rows: list[str]
    columns: list[str]
    values: dict[str, Matrix]  # by MEASURES


def layer_similarities(first: Layers, second: Layers, *, debiased: bool = True) -> PairOfModels:
    """Compare layers (name -> samples x features) of two models on the same samples.

    To compare many models, prepare each of them once: `prepare_layers(layers, narrow=True)`.
    """
    ours, theirs = (prepare_layers(each, narrow=True) for each in (first, second))
    heatmap = similarity_heatmap(ours, theirs, debiased=debiased)
    procrustes = torch.zeros_like(heatmap.matrix)
    for column, name in enumerate(heatmap.columns):
        other = _rows(theirs[name])
        for row, own in enumerate(heatmap.rows):
            cross = other.T @ _rows(ours[own]) / len(other)
            procrustes[row, column] = torch.linalg.svdvals(cross).sum().clamp(max=1)
    values = {
        "cka": heatmap.matrix,
        "procrustes": procrustes,
        "smaller": torch.minimum(heatmap.matrix, procrustes),
    }
    return PairOfModels(heatmap.rows, heatmap.columns, values)


def blocks_of(layers: list[str]) -> dict[str, tuple[int, int]]:
    """The encoder, the latents and the decoder as ranges of layers in the order of the pass."""
    places = [k for k, name in enumerate(layers) if name in LATENTS]
    if not places:
        return {}
    ranges = {
        "encoder": (0, places[0]),
        "latents": (places[0], places[-1] + 1),
        "decoder": (places[-1] + 1, len(layers)),
    }
    return {name: (start, end) for name, (start, end) in ranges.items() if start < end}


def _rows(layer: Layer) -> torch.Tensor:
    """Rows in double precision; their squared norms add up to the number of samples."""
    assert layer.rows is not None, "prepare the layers with narrow=True"
    return layer.rows.double()

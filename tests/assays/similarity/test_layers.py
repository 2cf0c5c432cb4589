"""Layers by CKA and Procrustes, and the smaller of both."""

import math

import pytest
import torch

from zscope.assays.similarity.cka import cka
from zscope.assays.similarity.heatmap import prepare_layers, similarity_heatmap
from zscope.assays.similarity.layers import blocks_of, layer_similarities
from zscope.assays.similarity.procrustes import procrustes


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rotation(size: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(normal(size, size, seed=seed)).Q


def test_layers_that_are_rotated_scaled_and_shifted_are_the_same():
    first = {"narrow": normal(60, 5), "wide": normal(60, 200, seed=1)}
    second = {name: 7 * x @ rotation(x.shape[1], 3) + 2 for name, x in first.items()}
    pair = layer_similarities(first, second)
    for values in pair.values.values():
        torch.testing.assert_close(values.diagonal(), torch.ones(2).double(), atol=2e-6, rtol=0)
        assert values[0, 1] < 0.5


@pytest.mark.parametrize("debiased", [True, False])
def test_each_cell_is_the_smaller_of_two_assays(debiased):
    first = {
        "a": normal(50, 4),
        "b": normal(50, 90, seed=1),
        "low rank": normal(50, 3, seed=2) @ normal(3, 80),
    }
    stretched = first["a"] * torch.tensor([1.0, 2.0, 0.1, 1.0])
    second = {
        "a": stretched + 0.2 * normal(50, 4, seed=5),
        "b": first["b"] + normal(50, 90, seed=6),
    }
    pair = layer_similarities(first, second, debiased=debiased)
    assert (pair.rows, pair.columns) == (["a", "b", "low rank"], ["a", "b"])
    for i, one in enumerate(pair.rows):
        for j, other in enumerate(pair.columns):
            both = (cka(first[one], second[other], debiased=debiased).score,
                    procrustes(first[one], second[other]).score)  # fmt: skip
            cell = {name: float(values[i, j]) for name, values in pair.values.items()}
            assert (cell["cka"], cell["procrustes"]) == pytest.approx(both, abs=5e-6)
            assert cell["smaller"] == pytest.approx(min(both), abs=5e-6)
    assert 0.5 < pair.values["smaller"][0, 0] < 0.99  # a stretched layer is another one


def test_layers_that_are_prepared_once_serve_both_measures():
    layers = {"wide": normal(40, 300), "low rank": normal(40, 3, seed=2) @ normal(3, 80)}
    ready = prepare_layers(layers, narrow=True)
    assert ready["wide"].gram is None
    assert ready["low rank"].rows.shape == (40, 3)
    plain, again = (similarity_heatmap(each).matrix for each in (layers, ready))
    torch.testing.assert_close(plain, again, atol=1e-5, rtol=0)


def test_shuffled_samples_are_at_the_level_of_chance():
    first = {"a": normal(2000, 20)}
    second = {
        "a": (first["a"] @ rotation(20))[
            torch.randperm(2000, generator=torch.Generator().manual_seed(1))
        ]
    }
    values = {name: float(each) for name, each in layer_similarities(first, second).values.items()}
    assert values["cka"] == pytest.approx(0, abs=0.01)
    assert values["procrustes"] == pytest.approx(8 / (3 * math.pi) * math.sqrt(20 / 2000), rel=0.15)
    assert values["smaller"] == values["cka"]


def test_layers_belong_to_the_encoder_the_latents_or_the_decoder():
    layers = ["input", "encoder.0", "mean", "variance", "sampled", "decoder.0", "output"]
    assert blocks_of(layers) == {"encoder": (0, 2), "latents": (2, 5), "decoder": (5, 7)}
    assert blocks_of(["input", "mean"]) == {"encoder": (0, 1), "latents": (1, 2)}
    assert blocks_of(["a", "b"]) == {}

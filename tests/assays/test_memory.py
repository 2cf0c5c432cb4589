"""What is computed in parts, so that it fits in memory, is the same whatever the parts are."""

import math

import pytest
import torch
from map_worlds import PatchPCA, power_law
from worlds import World, gaussian_codes, grid, seeded

import zscope as zs
from zscope.assays.generation.extractors import random_features
from zscope.assays.regime.rate_distortion import carried_information
from zscope.data.dataset import from_arrays

a = zs.assays


def curved_recording():
    """A decoder of pictures that is not linear, and follows factors."""
    mixing = torch.randn(3, 64, generator=seeded(0))

    def decode(z):
        return (z.float() @ mixing).tanh().reshape(-1, 1, 8, 8)

    def encode(x):
        return x.flatten(1).clamp(-0.999, 0.999).atanh() @ torch.linalg.pinv(mixing)

    model = World(decode, encode, 3, prior="normal", std=0.2)
    codes = gaussian_codes(240, 3).float()
    return zs.record(model, from_arrays(decode(codes), grid(6, 8, 5)))


def recording_of_maps():
    pictures = power_law(64, 16, 1.0, colours=3)
    return zs.record(PatchPCA(pictures, 4, 3, std=0.1).model(), pictures)


VECTORS = {
    ("holes", "likeness.COPY_BYTES"): {},
    ("holes", "responses.mmd.BLOCK_BYTES"): {},
    ("structure_score", "responses.mmd.BLOCK_BYTES"): {},
    ("loss_decomposition", "alignment.loss_decomposition.DECODED_BYTES"): {},
    ("ima_curve", "alignment.marginal_likelihood.DECODED_BYTES"): {"samples": 3, "draws": 400},
    ("variable_nonlinearity", "responses.nonlinearity.BLOCK_BYTES"): {},
    ("rate_distortion", "regime.rate_distortion.CHUNK_BYTES"): {},
    ("sample_quality", "generation.extractors.LAYER_BYTES"): {},
    ("codes_against_pca", "alignment.codes_against_pca.COPY_BYTES"): {},
    ("codes_against_pca", "alignment.codes_against_pca.BLOCK_BYTES"): {},
}
MAPS = {
    ("reconstruction_quality", "diffusion.quality.PICTURE_BYTES"): {},
    ("noise_robustness", "pictures.RANGE_BYTES"): {},
    ("codes_against_pca", "alignment.codes_against_pca.COPY_BYTES"): {},
}


def check(name, constant, options, make, monkeypatch):
    whole = getattr(a, name)(make(), **options)
    monkeypatch.setattr(f"zscope.assays.{constant}", 1)
    parts = getattr(a, name)(make(), **options)
    scores = {each.name: each.value for each in whole.measures()}
    assert {each.name: each.value for each in parts.measures()} == pytest.approx(
        scores, rel=1e-5, abs=1e-7
    )
    assert scores
    assert all(math.isfinite(value) for value in scores.values())


@pytest.mark.parametrize(("name", "constant"), VECTORS)
def test_parts_of_vectors_change_nothing(name, constant, monkeypatch):
    check(name, constant, VECTORS[name, constant], curved_recording, monkeypatch)


@pytest.mark.parametrize(("name", "constant"), MAPS)
def test_parts_of_maps_change_nothing(name, constant, monkeypatch):
    check(name, constant, MAPS[name, constant], recording_of_maps, monkeypatch)


def test_random_features_are_those_of_each_observation(monkeypatch):
    pictures = torch.rand(7, 3, 12, 10, generator=seeded(0))
    rows = torch.rand(7, 30, generator=seeded(1))
    for x in (pictures, rows):
        whole = random_features(x)
        monkeypatch.setattr("zscope.assays.generation.extractors.LAYER_BYTES", 1)
        torch.testing.assert_close(random_features(x), whole)
        monkeypatch.undo()


def test_densities_in_parts_are_the_same(monkeypatch):
    posterior = zs.Posterior(gaussian_codes(100, 4), torch.full((100, 4), 0.3).double())
    whole = carried_information(posterior, generator=seeded(1))
    monkeypatch.setattr("zscope.assays.regime.rate_distortion.CHUNK_BYTES", 1)
    assert carried_information(posterior, generator=seeded(1)) == pytest.approx(whole)

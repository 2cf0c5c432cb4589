"""Summaries of maps: parts merge to the whole, and their means are those of the numbers."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from map_worlds import power_law

import zscope as zs
from zscope.errors import ConfigError, Undefined
from zscope.map_summary import (
    POWERS,
    MapSummary,
    all_axes,
    block_side,
    cosine_basis,
    spectral_axes,
)

LAYOUT = zs.Layout(2, (4, 8))
TENSORS = ("means", "place_sums", "products", "low", "high", "picture_means")


def posterior(pictures, layout=LAYOUT, seed=0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    mean, std = torch.randn(2, pictures, layout.latents, generator=generator, dtype=torch.float64)
    return zs.Posterior(mean + shift, std.abs(), layout=layout)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.floats(-1e3, 1e3))
def test_parts_of_any_size_merge_to_the_whole(sizes, shift):
    codes = posterior(sum(sizes), shift=shift)
    pictures = power_law(sum(sizes), 16, 1.0)[:, :, :8]
    ends = np.cumsum([0, *sizes])
    parts = [MapSummary.of(codes[a:b], pictures[a:b]) for a, b in pairwise(ends)]
    merged, whole = parts[0].merge(*parts[1:]), MapSummary.of(codes, pictures)
    again = whole._recentre(merged.centre)  # powers depend on the value they are taken from
    for name in TENSORS:
        one, two = getattr(again, name), getattr(merged, name)
        size = float(one.abs().max())
        assert torch.allclose(one, two, rtol=0, atol=1e-12 * max(1, size)), name
    for one, two in zip(again.spectra.values(), merged.spectra.values(), strict=True):
        assert torch.allclose(one, two, rtol=0, atol=1e-12 * max(1, float(one.abs().max())))


@pytest.mark.parametrize("at_once", [64, 3 * 64, 10**6])
def test_the_summary_is_the_same_however_many_pictures_are_taken_at_once(monkeypatch, at_once):
    codes, pictures = posterior(10, shift=5), power_law(10, 16, 1.0)[:, :, :8]
    whole = MapSummary.of(codes, pictures)
    monkeypatch.setattr("zscope.map_summary.AT_ONCE", at_once)
    parts = MapSummary.of(codes, pictures)
    for one, two in [
        *((getattr(whole, name), getattr(parts, name)) for name in TENSORS),
        *zip(whole.spectra.values(), parts.spectra.values(), strict=True),
        *zip(whole.picture_spectra.values(), parts.picture_spectra.values(), strict=True),
    ]:
        assert torch.allclose(one, two, rtol=0, atol=1e-12 * max(1, float(one.abs().max())))


def test_merging_leaves_the_parts_as_they_are():
    parts = [MapSummary.of(posterior(5, seed=seed)) for seed in range(3)]
    before = [part.place_sums.clone() for part in parts]
    first, second = (parts[0].merge(*parts[1:]) for _ in range(2))
    assert torch.equal(first.place_sums, second.place_sums)
    assert all(torch.equal(one, part.place_sums) for one, part in zip(before, parts, strict=True))


def test_no_pictures_have_no_summary():
    with pytest.raises(Undefined, match=r"0 pictures were given.*zs\.record"):
        MapSummary.of(posterior(3)[:0])


def test_means_are_those_of_the_numbers():
    codes = posterior(7, shift=3)
    summary = MapSummary.of(codes)
    m = codes.mean.reshape(7, 2, -1) - summary.centre[:, None]
    v = codes.variance.reshape(7, 2, -1)
    expected = {
        "m": m, "m2": m**2, "m3": m**3, "m4": m**4, "v": v, "mv": m * v, "m2v": m**2 * v,
        "v2": v**2, "log_v": v.log(),
    }  # fmt: skip
    assert tuple(expected) == POWERS
    for k, (name, values) in enumerate(expected.items()):
        assert torch.allclose(summary.means[:, :, k], values.mean(2)), name
        assert torch.allclose(summary.moments()[name], values.mean((0, 2))), name
    weights = torch.tensor([0.5, 0, 0, 0, 0, 0, 0.5])
    halves = summary.moments(weights)["m2"]
    assert torch.allclose(halves, (m**2)[[0, 6]].mean((0, 2)))


def test_the_basis_is_orthonormal_and_starts_with_a_constant():
    basis = cosine_basis(8)
    assert torch.allclose(basis @ basis.T, torch.eye(8, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(basis[0], torch.full((8,), 8**-0.5, dtype=torch.float64))


@pytest.mark.parametrize(
    ("lengths", "side"), [([64, 64], 8), ([9], 8), ([7, 30], 4), ([4], 4), ([3, 64], 0), ([1], 0)]
)
def test_blocks_are_as_large_as_they_fit(lengths, side):
    assert block_side(lengths) == side


def test_axes_that_belong_together():
    assert spectral_axes(zs.Layout(1, (16, 9))) == {"space": ((0, 1), 8)}
    assert spectral_axes(zs.Layout(1, (16,))) == {"time": ((0,), 8)}
    video = spectral_axes(zs.Layout(1, (5, 8, 8)))
    assert list(video.items()) == [("space", ((1, 2), 8)), ("time", ((0,), 4))]
    last = zs.Layout(1, (8, 8, 5), ("height", "width", "time"))
    assert spectral_axes(last) == {"space": ((0, 1), 8), "time": ((2,), 4)}
    assert all_axes(zs.Layout(1, (8, 8, 8), ("depth", "height", "width"))) == {
        "space": (1, 2), "depth": (0,),
    }  # fmt: skip
    assert spectral_axes(zs.Layout(1, (4, 4, 4, 4))) == {}


def test_pictures_are_averaged_down_to_the_places():
    x = power_law(5, 16, 1.0)
    summary = MapSummary.of(posterior(5, zs.Layout(1, (8, 8))), x)
    small = x.reshape(5, 1, 8, 2, 8, 2).mean((3, 5)).flatten(2).double()
    expected = torch.stack([small.mean(2), small.square().mean(2)], 2)
    assert torch.allclose(summary.picture_means, expected, atol=1e-6)
    rows = MapSummary.of(posterior(5, zs.Layout(1, (8, 8))), x.flatten(1))
    assert rows.picture_means is None
    larger = MapSummary.of(posterior(5, zs.Layout(1, (32, 32))), x)
    assert larger.picture_spectra == {}


def test_vectors_have_no_summary():
    with pytest.raises(ConfigError, match="no layout.*layout=zs.Layout"):
        MapSummary.of(zs.Posterior(torch.eye(5)))

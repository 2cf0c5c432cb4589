"""Alignment of data with their factors: closed forms on grids, and what is left out."""

import math

import numpy as np
import pytest
import torch

from zscope.assays.alignment.dataset_alignment import dataset_alignment
from zscope.assays.alignment.distance_to_orthogonality import distance_to_orthogonality
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined


class Wave(Autoencoder):
    """g(w) = (2 w1, w2, ε sin(k (w1 + w2))), decoded; the first two coordinates give w."""

    latents = 2
    prior = None

    def __init__(self, epsilon, k):
        super().__init__()
        self.epsilon, self.k = epsilon, k

    def decode(self, z):
        wave = self.epsilon * torch.sin(self.k * z.sum(1))
        return torch.stack([2 * z[:, 0], z[:, 1], wave], 1)

    def encode(self, x, auxiliary=None):
        return Posterior(torch.stack([x[:, 0] / 2, x[:, 1]], 1))


def grid(*sizes):
    axes = [np.arange(n) / (n - 1) for n in sizes]
    return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], 1)


def rotation(degrees):
    angle = math.radians(degrees)
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def align(x, w, **options):
    return dataset_alignment(x, w, kinds="continuous", **options)


TURNED = [(0, 0, 0), (20, 0.4912, 0.1045), (45, 1.0824, 0.2231)]


@pytest.mark.parametrize(("degrees", "distance", "gap"), TURNED)
def test_a_linear_generator_has_its_closed_form(degrees, distance, gap):
    w = grid(5, 4)
    w = (w - w.mean(0)) / w.std(0)
    result = align(w @ (np.diag([2, 1]) @ rotation(degrees)).T, w)
    assert result.distance == pytest.approx(distance, abs=1e-4)
    assert result.distance == pytest.approx(2 * math.sqrt(2) * math.sin(math.radians(degrees / 2)))
    assert result.gap == pytest.approx(gap, abs=1e-4)
    assert result.separation == pytest.approx(0.5)
    assert result.samples == 3 * 2  # the inner points
    assert result.chance == pytest.approx(0.5483, abs=1e-4)
    assert result.coarse == 0


def test_a_sheared_generator_has_the_cosine_of_its_columns():
    w = grid(4, 4)
    w = (w - w.mean(0)) / w.std(0)
    result = align(np.stack([w[:, 0] + w[:, 1], w[:, 1]], 1), w)
    assert result.cosines[0, 1] == pytest.approx(math.sqrt(0.5))
    assert result.gap == pytest.approx(math.log(math.sqrt(2)))  # lengths 1 and √2, volume 1
    assert result.lengths.tolist() == pytest.approx([1, math.sqrt(2)])


def test_units_of_factors_order_of_rows_and_rotations_of_observations_change_nothing():
    w = grid(5, 4)
    x = np.stack([2 * w[:, 0] + 0.3 * w[:, 1] ** 2, w[:, 1], w.prod(1)], 1)
    plain = align(x, w)
    shuffled = np.random.default_rng(0).permutation(len(w))
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    other = align((x @ turned + 5)[shuffled], (w * [10, 0.1] - 3)[shuffled])
    assert other.distance == pytest.approx(plain.distance)
    assert other.gap == pytest.approx(plain.gap)
    # What must not be invariant: stretching the observations along one direction.
    assert align(x * [1, 1, 9], w).distance > plain.distance + 0.1


# The mean distance at inner points of the grid, as the specification states it.
@pytest.mark.parametrize(
    ("k", "size", "distance"),
    [
        (10, 33, 0.211),
        (40, 33, 0.705),
        pytest.param(10, 129, 0.217, marks=pytest.mark.slow),
        pytest.param(40, 129, 0.790, marks=pytest.mark.slow),
    ],
)
def test_a_wave_turns_the_directions(k, size, distance):
    w, wave = grid(size, size), Wave(0.1, k)
    x = wave.decode(torch.from_numpy(w)).numpy()
    result = align(x, w, samples=size**2)
    assert result.distance == pytest.approx(distance, abs=5e-4)
    # Central differences: the exact derivative times sin(kh)/(kh).
    h = 1 / (size - 1)
    inner = torch.from_numpy(w.reshape(size, size, 2)[1:-1, 1:-1].reshape(-1, 2))
    scaled = Wave(0.1 * math.sin(k * h) / (k * h), k)
    exact = distance_to_orthogonality(scaled, inner, samples=len(inner), active=[0, 1])
    assert result.distance == pytest.approx(exact.distance, abs=1e-6)
    assert (result.coarse > result.checked / 2) == ((k, size) == (40, 33))


def test_the_ends_of_a_cycle_are_neighbours():
    w = grid(8, 5)
    angle = w[:, 0] * 2 * math.pi * 7 / 8
    x = np.stack([np.cos(angle), np.sin(angle), w[:, 1]], 1)
    open_ended = align(x, w, names=["angle", "height"])
    closed = align(x, w, names=["angle", "height"], cyclic=["angle"])
    assert (open_ended.samples, closed.samples) == (6 * 3, 8 * 3)
    assert closed.distance == pytest.approx(0, abs=1e-9)
    assert closed.lengths.tolist() == pytest.approx(open_ended.lengths.tolist())
    with pytest.raises(ConfigError, match="no factor. Did you mean angle"):
        align(x, w, names=["angle", "height"], cyclic=["angel"])


def test_categories_stay_fixed_and_bytes_count_from_0_to_1():
    w = np.stack([part.ravel() for part in np.indices((3, 2, 4, 4))], 1)
    x = np.zeros((len(w), 1, 2, 2), np.uint8)
    x[:, 0, 0, 0], x[:, 0, 1, 1] = 30 * w[:, 2] + 5 * w[:, 0], 10 * w[:, 3]
    kinds = ["categorical", "ordinal", "ordinal", "ordinal"]
    result = dataset_alignment(x, w, kinds=kinds, names=["shape", "side", "x", "y"])
    assert result.factors == ["x", "y"]
    assert result.samples == 3 * 2 * 2 * 2
    assert result.distance == pytest.approx(0, abs=1e-9)
    expected = np.array([30, 10]) / 255 * w[:, 2].std()
    assert result.lengths.tolist() == pytest.approx(expected.tolist())
    assert "Left out side" in result.flags[0]
    assert "too small to tell" in result.flags[1]


def test_points_without_directions_are_left_out_and_counted():
    w = grid(4, 4)
    x = np.stack([w[:, 0], np.where(w[:, 0] > 0.5, w[:, 1], 0)], 1)
    result = align(x, w)
    assert (result.samples, result.dependent) == (2, 2)
    assert "Left out 2 of 4 grid points" in " ".join(result.flags)
    with pytest.raises(Undefined, match="all 4 grid points.*linearly dependent"):
        align(w[:, :1] * [1, 2], w)


def test_what_is_no_grid_is_refused():
    random = np.random.default_rng(0)
    with pytest.raises(Undefined, match="none of 30 observations has a neighbour"):
        align(random.normal(size=(30, 3)), random.normal(size=(30, 2)))
    with pytest.raises(Undefined, match="none of 30 observations"):
        align(random.normal(size=(30, 3)), random.normal(size=(30, 20)))
    with pytest.raises(Undefined, match="0 of 1 factors.*Are these labels"):
        dataset_alignment(random.normal(size=(30, 3)), np.arange(30) % 5, kinds="categorical")

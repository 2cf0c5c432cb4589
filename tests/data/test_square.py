"""The linear and the nonlinear square: known covariance, and a screened random network."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import zscope as zs
from zscope.assays.alignment.dataset_alignment import dataset_alignment
from zscope.data import options_in_force
from zscope.data.square import SCREENED, network, rotation, wave, wave_jacobian, weights
from zscope.errors import ConfigError

WEIGHTS = [-0.20866365883297, -0.00982624157746]
POINT = [
    -0.2568324400974,
    -0.99756706869307,
    -0.41087690099724,
    0.47614520978945,
    0.81447588166324,
    0.96393879626297,
]


@pytest.mark.parametrize("rho", [1.0, 1.5, 2.0])
def test_the_covariance_of_the_linear_square_is_known(rho):
    data = zs.data.load("square-linear", rho=rho)
    eigenvalues = np.linalg.eigvalsh(np.cov(data.images.T.astype(np.float64)))
    assert len(data) == 50_000
    assert eigenvalues[::-1] == pytest.approx([rho**2 / 12, 1 / 12, 0], rel=0.02, abs=1e-9)


def test_the_first_principal_direction_is_the_first_factor():
    data = zs.data.load("square-linear")
    centred = data.images - data.images.mean(0)
    directions = np.linalg.svd(centred, full_matrices=False)[2]
    assert np.abs(directions[:2] @ rotation()[:, :2]) == pytest.approx(np.eye(2), abs=0.02)


def test_the_rotation_is_the_published_one():
    published = [[0.8047, -0.5059, -0.3106], [0.3106, 0.8047, -0.5059], [0.5059, 0.3106, 0.8047]]
    assert rotation() == pytest.approx(np.array(published), abs=5e-5)
    axis = np.array([1, -1, 1])
    assert rotation() @ axis == pytest.approx(axis)
    assert np.trace(rotation()) == pytest.approx(1 + 2 * np.cos(np.pi / 4))
    assert np.linalg.det(rotation()) == pytest.approx(1)


def test_the_factors_of_the_linear_square_can_be_read_off_exactly():
    data = zs.data.load("square-linear", samples=100, rho=1.2)
    assert (data.images @ rotation())[:, :2] / [1.2, 1] == pytest.approx(data.factors, abs=1e-6)
    assert data.factor_kinds == ("continuous", "continuous")


def screened(seed: int) -> bool:
    """The rule of the docstring, by automatic differentiation and linear assignment."""
    first, first_bias, second, second_bias = (torch.from_numpy(part) for part in weights(seed))

    def through(w):
        return torch.tanh(second @ torch.tanh(first @ w + first_bias) + second_bias)

    points = torch.from_numpy(np.random.RandomState(0).uniform(size=(500, 2)))
    _, lengths, directions = torch.linalg.svd(
        torch.func.vmap(torch.func.jacfwd(through))(points), full_matrices=False
    )
    distances = []
    for matrix in directions.numpy():
        rows, columns = linear_sum_assignment(-np.abs(matrix))
        nearest = np.zeros((2, 2))
        nearest[rows, columns] = np.sign(matrix[rows, columns])
        distances.append(np.linalg.norm(matrix - nearest))
    ratio = lengths[:, 0] / lengths[:, 1]
    return bool(
        np.mean(distances) < 0.15
        and ratio.quantile(0.05, interpolation="lower") > 2
        and lengths[:, 1].min() > 0.1
    )


def test_the_network_of_the_nonlinear_square_passes_the_screening():
    assert screened(SCREENED)


def test_no_earlier_network_passes_the_screening():
    assert not any(screened(seed) for seed in (*range(40), 237))


def test_the_network_never_changes():
    assert weights()[0][0] == pytest.approx(WEIGHTS, abs=1e-12)
    assert network(np.array([[0.25, 0.75]]))[0] == pytest.approx(POINT, abs=1e-12)


def test_the_nonlinear_square_is_the_network_of_its_factors():
    data = zs.data.load("square-nonlinear", samples=1000)
    assert data.shape == (6,)
    assert data.images == pytest.approx(network(data.factors), abs=1e-6)
    assert np.abs(data.images).max() <= 1


def test_a_seed_repeats_the_points_and_another_network_bends_them_otherwise():
    one, again = (zs.data.load("square-nonlinear", samples=50, seed=3) for _ in range(2))
    other = zs.data.load("square-nonlinear", samples=50, seed=3, network_seed=0)
    assert (one.images == again.images).all()
    assert (one.factors == other.factors).all()
    assert np.abs(one.images - other.images).max() > 0.1


def test_impossible_options_are_refused():
    with pytest.raises(ConfigError, match="rho=0"):
        zs.data.load("square-linear", rho=0.0)
    with pytest.raises(ConfigError, match="samples=0"):
        zs.data.load("square-nonlinear", samples=0)


def turned(w: np.ndarray, epsilon: float, k: float) -> np.ndarray:
    """Distance of the principal directions to the factors, for the angle of the docstring."""
    c = (epsilon * k * np.cos(k * w.sum(1))) ** 2
    return 2 * np.sqrt(2) * np.sin(np.arctan(2 * c / 3) / 4)


def test_the_jacobian_of_the_wave_is_its_derivative_and_turns_as_in_closed_form():
    w = np.random.default_rng(0).uniform(size=(200, 2))
    exact = wave_jacobian(w, epsilon=0.1, wave_number=40)
    through = torch.func.vmap(
        torch.func.jacfwd(lambda w: torch.stack([2 * w[0], w[1], 0.1 * torch.sin(40 * w.sum())]))
    )
    assert exact == pytest.approx(through(torch.from_numpy(w)).numpy(), abs=1e-12)
    first = np.linalg.svd(exact)[2][:, 0]  # the angle to w1, by another route
    angle = np.arctan2(np.abs(first[:, 1]), np.abs(first[:, 0]))
    assert 2 * np.sqrt(2) * np.sin(angle / 2) == pytest.approx(turned(w, 0.1, 40), abs=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "k", "distance", "added"),
    [(0.0, 10, 0.0, 0.0), (0.1, 10, 0.22, 0.012), (0.1, 40, 0.79, 0.012), (0.05, 80, 0.79, 0.003)],
)
def test_small_ripples_turn_the_directions_far(epsilon, k, distance, added):
    data = zs.data.load("square-wave", epsilon=epsilon, wave_number=k)
    assert turned(data.factors, epsilon, k).mean() == pytest.approx(distance, abs=0.006)
    variances = data.images.astype(np.float64).var(0)
    assert variances[2] / variances[:2].sum() == pytest.approx(added, rel=0.06)
    assert np.allclose(data.images, wave(data.factors, epsilon=epsilon, wave_number=k), atol=1e-6)


@pytest.mark.parametrize(
    ("k", "side", "distance"), [(10, 33, 0.211), (10, 129, 0.217), (40, 129, 0.790)]
)
def test_the_alignment_of_the_wave_on_a_grid_is_the_known_one(k, side, distance):
    data = zs.data.load("square-wave", wave_number=k, grid=side)
    assert len(data) == side**2
    result = dataset_alignment(data.images, data.factors_with_kinds, samples=10**6)
    assert result.samples == (side - 2) ** 2
    # central differences over steps h have the exact slope times sin(kh) / (kh)
    h = 1 / (side - 1)
    inner = data.factors[((data.factors > 0) & (data.factors < 1)).all(1)]
    expected = turned(inner, 0.1 * np.sin(k * h) / (k * h), k).mean()
    assert result.distance == pytest.approx(expected, abs=2e-4)
    # w of unit spread: both factors have the same, so the directions are those of w
    assert result.distance == pytest.approx(distance, abs=0.001)


def test_every_square_can_be_on_a_grid_and_is_random_without():
    for name in ("square-linear", "square-nonlinear", "square-wave"):
        data = zs.data.load(name, grid=5)
        assert sorted(set(data.factors[:, 0])) == [0, 0.25, 0.5, 0.75, 1]
        assert len(np.unique(data.factors, axis=0)) == 25
        with pytest.raises(ConfigError, match="samples=7 and grid=5, which has 25 points"):
            zs.data.load(name, grid=5, samples=7)
        assert options_in_force(name, {"grid": None, "samples": 50_000}) == {}
    aligned = zs.data.load("square-linear", grid=9)
    assert dataset_alignment(aligned.images, aligned.factors_with_kinds).distance < 1e-4


def test_a_wave_that_is_no_number_is_refused():
    with pytest.raises(ConfigError, match="expected finite numbers"):
        zs.data.load("square-wave", epsilon=float("nan"))

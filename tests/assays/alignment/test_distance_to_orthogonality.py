import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from worlds import World, gaussian_codes, identity, linear, permuted, random_rotation, seeded

import zscope as zs
from zscope.assays import distance_to_orthogonality
from zscope.assays.alignment.distance_to_orthogonality import (
    chance,
    distance_of,
    nearest_signed_permutation,
    random_orthogonal,
    relative_gaps,
)
from zscope.errors import ConfigError, Undefined

seeds = st.integers(0, 10_000)
M1 = torch.tensor([[4.0, 1], [-3, 1], [5, -1]], dtype=torch.float64)


def turn(degrees):
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def of_matrix(J, **options):
    """DtO of the linear decoder x = J z."""
    world = linear(J.T.contiguous())
    return distance_to_orthogonality(world, gaussian_codes(4, J.shape[1]), **options)


@pytest.mark.parametrize("degrees", [0, 1, 10, 30, 45, -45, -7])
def test_a_rotation_of_two_latents_by_t_has_distance_2_sqrt_2_sin_half_t(degrees):
    spectrum = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))
    expected = 2 * math.sqrt(2) * abs(math.sin(math.radians(degrees) / 2))
    found = of_matrix(spectrum @ turn(degrees).T)
    assert found.distance == pytest.approx(expected, abs=1e-7)
    torch.testing.assert_close(found.spectra, torch.tensor([3.0, 1]).double().expand(4, 2))
    assert found.standard_error == pytest.approx(0, abs=1e-9)


def test_signed_permutations_have_distance_zero():
    for seed in range(20):
        order = torch.randperm(5, generator=seeded(seed))
        signs = torch.randint(0, 2, (5,), generator=seeded(seed)) * 2.0 - 1
        P = (torch.eye(5) * signs)[order].double()
        assert distance_of(P[None])[0] == 0
        assert torch.equal(nearest_signed_permutation(P[None])[0], P)


def test_the_worked_example_and_its_rotation():
    # Columns (4, -3, 5) and (1, 1, -1) are at 4.83 degrees from their own singular directions.
    assert of_matrix(M1).distance == pytest.approx(0.1192, abs=5e-5)
    assert of_matrix(M1 @ turn(45).T).distance == pytest.approx(0.9713, abs=5e-5)


def test_sixty_degrees_about_a_diagonal():
    root = math.sqrt(6) / 4
    V = torch.tensor([[0.75, 0.25, root], [0.25, 0.75, -root], [-root, root, 0.5]]).double()
    torch.testing.assert_close(V @ V.T, torch.eye(3).double(), atol=1e-6, rtol=0)
    assert torch.linalg.det(V) == pytest.approx(1)
    assert distance_of(V[None])[0] == pytest.approx(math.sqrt(2), abs=1e-6)


def mixed_integer_program(V):
    """The nearest signed permutation in L1 as the source states it, by a MILP solver."""
    d = len(V)
    n = d * d
    eye = np.eye(n)
    flat = V.reshape(-1)
    rows = np.kron(np.eye(d), np.ones(d))
    columns = np.kron(np.ones(d), np.eye(d))
    constraints = [
        LinearConstraint(np.hstack([eye, -eye, -eye]), ub=flat),  # P - V <= D
        LinearConstraint(np.hstack([-eye, eye, -eye]), ub=-flat),  # V - P <= D
        LinearConstraint(np.hstack([rows, rows, np.zeros((d, n))]), 1, 1),
        LinearConstraint(np.hstack([columns, columns, np.zeros((d, n))]), 1, 1),
    ]
    cost = np.concatenate([np.zeros(2 * n), np.ones(n)])
    whole = np.concatenate([np.ones(2 * n), np.zeros(n)])
    top = np.concatenate([np.ones(2 * n), np.full(n, np.inf)])
    found = milp(cost, constraints=constraints, integrality=whole, bounds=Bounds(0, top))
    assert found.success
    return (found.x[:n] - found.x[n : 2 * n]).round().reshape(d, d)


@pytest.mark.parametrize("latents", [2, 3, 4])
def test_the_assignment_is_the_mixed_integer_program(latents):
    for seed in range(6):
        V = random_rotation(latents, seed)
        P = mixed_integer_program(V.numpy())
        np.testing.assert_array_equal(nearest_signed_permutation(V[None])[0].numpy(), P)
        assert float(distance_of(V[None])[0]) == pytest.approx(np.linalg.norm(V.numpy() - P))


def test_chance_is_the_mean_over_the_haar_measure():
    # For two latents V is a turn by a uniform angle (or its mirror image).
    angles = np.linspace(-np.pi / 4, np.pi / 4, 200_001)
    assert chance(2) == pytest.approx(
        np.mean(2 * np.sqrt(2) * np.abs(np.sin(angles / 2))), abs=1e-5
    )
    assert chance(2) == pytest.approx(0.5483, abs=5e-5)
    for latents, published in ((3, 0.97), (4, 1.33), (5, 1.635), (6, 1.91), (10, 2.85)):
        assert chance(latents) == pytest.approx(published, abs=0.015)
    # Another route to Haar: the eigenvectors of a symmetric Gaussian matrix.
    gaussian = torch.randn(1500, 6, 6, generator=seeded(5), dtype=torch.float64)
    _, V = torch.linalg.eigh(gaussian + gaussian.mT)
    assert float(distance_of(V).mean()) == pytest.approx(chance(6), abs=0.02)


@settings(max_examples=8)
@given(seed=seeds)
def test_permuting_and_flipping_latents_changes_nothing(seed):
    W = torch.randn(4, 9, generator=seeded(seed), dtype=torch.float64)
    curved = World(lambda z: torch.tanh(z @ W.to(z)), lambda x: x[:, :4], 4)
    codes = gaussian_codes(8, 4, seed)
    before = distance_to_orthogonality(curved, codes, active="all")
    order = torch.randperm(4, generator=seeded(seed)).tolist()
    moved = distance_to_orthogonality(permuted(curved, order), codes[:, order], active="all")
    torch.testing.assert_close(moved.per_sample, before.per_sample, atol=1e-6, rtol=1e-6)
    signs = torch.tensor([1.0, -1, -1, 1]).double()
    flipped = World(lambda z: curved.decoder(z * signs.to(z)), curved.encoder, 4)
    mirrored = distance_to_orthogonality(flipped, codes * signs, active="all")
    torch.testing.assert_close(mirrored.per_sample, before.per_sample, atol=1e-6, rtol=1e-6)


@settings(max_examples=8)
@given(seed=seeds)
def test_rotating_and_scaling_what_is_decoded_changes_nothing_but_rotating_latents_does(seed):
    W = torch.randn(3, 7, generator=seeded(seed), dtype=torch.float64) * torch.tensor(
        [[1.0], [2.0], [4.0]]
    )
    Q = random_rotation(7, seed)
    before = of_matrix(W.T).distance
    assert of_matrix(3.7 * Q @ W.T).distance == pytest.approx(before, abs=1e-9)
    aligned = torch.diag(torch.tensor([4.0, 2, 1]).double())
    assert of_matrix(aligned @ random_rotation(3, seed).T).distance > 0.01


def test_equal_singular_values_are_flagged_and_the_gap_stands_beside():
    found = of_matrix(random_rotation(3, 1))
    assert found.degenerate == 4
    assert "two singular values are equal" in found.flags[0]
    assert "V is arbitrary" in found.flags[0]
    assert found.alignment_gap == pytest.approx(0, abs=1e-9)
    distinct = of_matrix(random_rotation(3, 1) @ torch.diag(torch.tensor([3.0, 2, 1]).double()))
    assert (distinct.degenerate, distinct.flags) == (0, [])
    assert distinct.distance == pytest.approx(0, abs=1e-6)
    near = relative_gaps(torch.tensor([[2.0, 1.9, 0.1], [2.0, 1.0, 1.0]]))
    assert near.tolist() == pytest.approx([0.05, 0.0])


def test_a_passive_latent_would_look_aligned_and_is_left_out():
    J = torch.zeros(4, 3).double()
    J[:, :2] = torch.linalg.qr(gaussian_codes(4, 2)).Q @ torch.diag(torch.tensor([2.0, 1]).double())
    J[:, :2] = J[:, :2] @ turn(30).T
    world = World(lambda z: z @ J.T.to(z), lambda x: x[:, :3], 3, prior="normal")
    codes = gaussian_codes(200, 3, scale=[1.0, 1.0, 0.05])
    found = distance_to_orthogonality(world, codes)
    assert (found.active, found.passive) == ([0, 1], [2])
    assert found.distance == pytest.approx(2 * math.sqrt(2) * math.sin(math.pi / 12), abs=1e-6)
    assert found.chance == chance(2)
    assert found.relative == pytest.approx(found.distance / chance(2))
    every = distance_to_orthogonality(world, codes, active="all")
    assert "ignores latents 2" in " ".join(every.flags)
    # One of two latents collapsed: V is the identity however the other is mixed.
    spurious = distance_to_orthogonality(world, codes, active=[0, 2])
    assert spurious.distance == pytest.approx(0, abs=1e-6)


def test_the_rules_for_active_latents():
    world = identity(3, prior="normal", std=1.0)
    mean = gaussian_codes(300, 3, scale=[1.0, 0.2, 1.0])
    posterior = zs.Posterior(mean, torch.tensor([0.1, 0.5, 0.95]).double().expand(300, 3))
    J = torch.diag(torch.tensor([3.0, 2, 1]).double())
    world = World(lambda z: z @ J.to(z), lambda x: x, 3, prior="normal")
    assert distance_to_orthogonality(world, posterior).active == [0, 2]
    assert distance_to_orthogonality(world, posterior, active="variance").active == [0, 1]
    assert distance_to_orthogonality(world, posterior, active="all").active == [0, 1, 2]
    without_prior = World(lambda z: z @ J.to(z), lambda x: x, 3, prior=None)
    assert distance_to_orthogonality(without_prior, mean).active == [0, 1, 2]
    with pytest.raises(ConfigError, match="variances of the posterior"):
        distance_to_orthogonality(world, mean, active="variance")
    with pytest.raises(ConfigError, match="Did you mean mean"):
        distance_to_orthogonality(world, mean, active="means")
    with pytest.raises(ConfigError, match="from 0 to 2"):
        distance_to_orthogonality(world, mean, active=[0, 3])


def test_fewer_than_two_active_latents_have_no_angle():
    world = identity(2, prior="normal")
    mean = gaussian_codes(50, 2, scale=[1.0, 0.1])
    posterior = zs.Posterior(mean, torch.full_like(mean, 0.95))
    with pytest.raises(Undefined, match="1 of 2 latents are active.*collapsed"):
        distance_to_orthogonality(world, posterior)


def test_at_most_the_asked_number_of_codes_is_used_and_repeats():
    W = torch.randn(2, 5, generator=seeded(0), dtype=torch.float64)
    world = World(lambda z: torch.tanh(z @ W.to(z)), lambda x: x[:, :2], 2)
    codes = gaussian_codes(60, 2)
    first, second = (distance_to_orthogonality(world, codes, samples=9) for _ in range(2))
    assert len(first.per_sample) == 9
    assert torch.equal(first.per_sample, second.per_sample)
    other = distance_to_orthogonality(world, codes, samples=9, generator=seeded(1))
    assert not torch.equal(first.per_sample, other.per_sample)
    whole = distance_to_orthogonality(world, codes)
    assert whole.distance == pytest.approx(float(whole.per_sample.mean()))
    assert whole.standard_error == pytest.approx(float(whole.per_sample.std()) / math.sqrt(60))
    with pytest.raises(ConfigError, match="samples=0"):
        distance_to_orthogonality(world, codes, samples=0)


def test_the_distance_of_a_bent_square_by_hand():
    """g(w) = (2 w1, w2, e sin(k (w1 + w2))): a tiny third coordinate turns the directions."""
    w = torch.rand(1500, 2, generator=seeded(0), dtype=torch.float64)
    cases = [
        (0.0, 10, 0.0, 0.0),
        (0.1, 10, 0.22, 0.012),
        (0.1, 40, 0.79, 0.012),
        (0.05, 80, 0.79, 0.003),
    ]
    for epsilon, k, expected, added in cases:

        def generator(z, epsilon=epsilon, k=k):
            third = epsilon * torch.sin(k * z.sum(1))
            return torch.stack([2 * z[:, 0], z[:, 1], third], 1)

        found = distance_to_orthogonality(World(generator, lambda x: x[:, :2], 2), w, samples=1500)
        assert found.distance == pytest.approx(expected, abs=0.02)
        # In closed form: J^T J = diag(4, 1) + c 1 1^T turns the axis by atan(2c / 3) / 2.
        c = (epsilon * k * torch.cos(k * w.sum(1))).square()
        angle = torch.atan(2 * c / 3) / 2
        by_hand = 2 * math.sqrt(2) * torch.sin(angle / 2).abs()
        torch.testing.assert_close(found.per_sample, by_hand, atol=1e-6, rtol=1e-6)
        x = generator(w)
        share = float(x[:, 2].var() / x[:, :2].var(0).sum())
        assert share == pytest.approx(added, abs=0.001)


def test_results_can_be_saved_and_drawn():
    found = of_matrix(M1)
    content = found.to_dict()
    assert content["distance"] == found.distance
    assert found.score == found.distance
    assert found.overlap.sum(0).tolist() == pytest.approx([1, 1])
    assert "chance" in found.plot().get_title(loc="left")


@pytest.mark.parametrize(("latents", "at_once"), [(5, 32), (6, 8), (8, 2)])
def test_rotations_do_not_depend_on_how_many_are_drawn_at_once(latents, at_once, monkeypatch):
    [whole] = random_orthogonal(100, latents, seed=3)
    where = "zscope.assays.alignment.distance_to_orthogonality.DRAWN_BYTES"
    monkeypatch.setattr(where, at_once * 8 * latents**2)
    parts = list(random_orthogonal(100, latents, seed=3))
    assert {len(part) for part in parts[:-1]} == {at_once}
    assert torch.equal(torch.cat(parts), whole)

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, constant, grid, identity, permuted, rescaled, responding, seeded, turning

import zscope as zs
from zscope.assays import conditioned_response_matrix
from zscope.assays.responses.conditioned import FactorPairs
from zscope.data.dataset import from_arrays
from zscope.errors import ConfigError, DataError, Undefined

seeds = st.integers(0, 10_000)


def placed(factors, *, unit=1.0):
    """Observations that are the factors themselves, around 0 with spacing `unit`."""
    values = torch.from_numpy(factors).double()
    return unit * (values - values.mean(0))


def test_one_latent_for_each_factor_scores_one():
    factors = grid(5, 4, 3)
    found = conditioned_response_matrix(identity(3, prior="normal"), placed(factors), factors)
    assert found.disentanglement == pytest.approx(1)
    assert found.completeness == pytest.approx(1)
    assert (found.matrix - found.matrix.diagonal().diag()).abs().max() == 0
    # E (a - b)^2 over all pairs of 0..4, equal ones included, is 4.
    assert found.matrix[0, 0].item() == pytest.approx(2, rel=0.15)
    assert found.unusable == [0, 0, 0]


def test_factors_mixed_half_and_half_score_zero():
    half = torch.tensor([[1, -1], [1, 1]], dtype=torch.float64) / 2**0.5
    factors = grid(8, 8)
    x = placed(factors) @ half.T  # codes are turned by 45 degrees against the factors
    found = conditioned_response_matrix(identity(2, prior="normal"), x, factors)
    assert found.disentanglement == pytest.approx(0, abs=0.1)
    assert found.completeness == pytest.approx(0, abs=0.1)


def test_a_factor_in_two_latents_is_disentangled_and_not_complete():
    factors = grid(6, 6)
    doubled = placed(factors)[:, [0, 0, 1]]
    found = conditioned_response_matrix(identity(3, prior="normal"), doubled, factors)
    a, b = found.matrix[0, 0].item(), found.matrix[1, 2].item()
    share = (a + b) / (2 * a + b)
    assert found.disentanglement == pytest.approx(1)
    assert found.completeness == pytest.approx((share - 1 / 3) / (1 - 1 / 3))
    assert found.completeness == pytest.approx(0.5, abs=0.1)


@settings(max_examples=8)
@given(seed=seeds)
def test_agrees_with_a_loop_over_groups_and_averages_squares(seed):
    # The second factor stretches what the first one does: the mean of roots would differ.
    factors = grid(4, 3)
    values = torch.from_numpy(factors).double()
    x = torch.stack([values[:, 0] * (1 + 4 * values[:, 1]), values[:, 1] * 3], 1)
    world = identity(2, prior="normal")
    found = conditioned_response_matrix(world, x, factors, generator=seeded(seed))
    chosen = FactorPairs(factors, 0, 1024, seeded(seed), "test")  # the same draws come first
    squares = roots = 0.0
    for position, row in enumerate(chosen.rows):
        partner = chosen.rows[chosen.donor[position]]
        assert (partner == row) == chosen.own[position]
        assert factors[partner, 1] == factors[row, 1]
        squares += float((x[partner, 0] - x[row, 0]) ** 2) / len(chosen.rows)
        roots += float((x[partner, 0] - x[row, 0]).abs()) / len(chosen.rows)
    assert sorted(chosen.rows) == list(range(12))
    assert found.matrix[0, 0].item() == pytest.approx(squares**0.5)
    assert found.matrix[0, 0].item() > 1.05 * roots


@pytest.mark.parametrize("values", [2, 3, 8])
def test_partners_are_drawn_as_if_independently(values):
    """E (a - b)^2 = 2 for independent a and b of variance 1, however many values there are."""
    factors = np.tile(grid(values, 20), (2, 1))  # each observation twice
    x = placed(factors).numpy()
    x = x / x.std(0)

    def mean_square(factor, flavour):
        squares = []
        for seed in range(80):
            pairs = FactorPairs(factors, factor, 1024, seeded(seed), "test", flavour)
            change = x[pairs.rows[pairs.donor], factor] - x[pairs.rows, factor]
            squares.append(pairs.weights(0, seeded(0))[0].numpy() @ change**2)
        return np.mean(squares)

    for factor, size in enumerate((2 * values, 40)):
        assert mean_square(factor, "zscope") == pytest.approx(2, rel=0.02)
        # Always by another one of the observations of its group.
        assert mean_square(factor, "authors") == pytest.approx(2 * size / (size - 1), rel=0.02)


def test_a_binary_factor_is_inflated_by_root_two_only_in_the_flavour_of_the_authors():
    factors = grid(2, 30)
    model = identity(2, prior="normal")
    x = placed(factors)  # the first factor at -1/2 and 1/2: standard deviation 1/2
    ours = conditioned_response_matrix(model, x, factors)
    theirs = conditioned_response_matrix(model, x, factors, flavour="authors")
    assert ours.matrix[0, 0].item() == pytest.approx(2**0.5 / 2)
    assert theirs.matrix[0, 0].item() == pytest.approx(1)
    assert (ours.flavour, theirs.flavour) == ("zscope", "authors")
    with pytest.raises(ConfigError, match="flavour='paper'; expected zscope or authors"):
        conditioned_response_matrix(model, x, factors, flavour="paper")


def test_noise_of_the_posterior_is_measured_alike_for_any_number_of_values():
    """A latent that carries no factor: its own observation gives another draw, not the same."""
    factors = grid(2, 400)
    x = torch.zeros(800, 2, dtype=torch.float64)
    model = identity(2, prior="normal", std=torch.tensor([1.0, 1.0]))
    found = conditioned_response_matrix(model, x, factors, samples=800)
    assert found.matrix[0].mean().item() == pytest.approx(2**0.5, rel=0.05)


def test_a_part_of_a_large_group_rarely_replaces_by_itself():
    # 32 of 1,000 rows of each group are used; each was its own partner one time in 1,000.
    factors = grid(1000, 4)
    own = [FactorPairs(factors, 0, 128, seeded(seed), "test").own.sum() for seed in range(200)]
    assert np.mean(own) == pytest.approx(128 / 1000, abs=0.08)
    assert FactorPairs(factors, 0, 128, seeded(0), "test", "authors").own.sum() == 0


def test_groups_of_one_are_left_out_and_counted():
    factors = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [0, 2], [5, 7], [6, 8]])
    first = FactorPairs(factors, 0, 1024, seeded(0), "test")
    assert sorted(first.rows) == [0, 1, 2]  # those with the second factor at 0
    assert first.unusable == 4
    again = FactorPairs(np.repeat(factors, 2, axis=0), 0, 1024, seeded(0), "test")
    assert len(again.rows) == 6  # twins alone do not vary the factor


def test_an_incomplete_grid_gives_the_same_answer():
    generator = np.random.default_rng(0)
    factors = grid(10, 10, 4)
    kept = factors[np.sort(generator.choice(400, 250, replace=False))]
    x = placed(kept) @ torch.tensor([[1, 0, 0], [0.5, 1, 0], [0, 0, 1.0]]).double()
    whole = placed(factors) @ torch.tensor([[1, 0, 0], [0.5, 1, 0], [0, 0, 1.0]]).double()
    part = conditioned_response_matrix(identity(3, prior="normal"), x, kept)
    full = conditioned_response_matrix(identity(3, prior="normal"), whole, factors)
    assert part.disentanglement == pytest.approx(full.disentanglement, abs=0.05)
    assert sum(part.unusable) > 0


def test_large_groups_stand_for_all_their_observations():
    # One value of the second factor has 300 rows, the other 30; the rows count, not the groups.
    factors = np.concatenate(
        [np.stack([np.arange(300), np.zeros(300)], 1), np.stack([np.arange(30), np.ones(30)], 1)]
    ).astype(int)
    chosen = FactorPairs(factors, 0, 1024, seeded(0), "test")
    weights = chosen.weights(0, seeded(0))[0]
    assert len(chosen.rows) == 32 + 30
    assert weights.sum().item() == pytest.approx(1)
    assert weights[torch.from_numpy(chosen.rows) < 300].sum().item() == pytest.approx(300 / 330)


@settings(max_examples=8)
@given(seed=seeds)
def test_permuting_latents_or_factors_permutes_the_matrix(seed):
    order = torch.randperm(3, generator=seeded(seed)).tolist()
    factors = grid(4, 4, 4)
    mix = torch.randn(3, 3, generator=seeded(seed), dtype=torch.float64)
    world = responding(lambda z: torch.tanh(z @ mix) + z, 3, prior="normal")
    here = conditioned_response_matrix(world, placed(factors), factors, threshold=0)
    there = conditioned_response_matrix(
        permuted(world, order), placed(factors), factors, threshold=0
    )
    # The encoder's output is permuted, so that all that was drawn is the same.
    torch.testing.assert_close(there.matrix, here.matrix[:, order])
    assert there.disentanglement == pytest.approx(here.disentanglement)
    assert there.completeness == pytest.approx(here.completeness)


def test_only_causal_latents_enter_the_scores():
    # A third latent carries both factors, but the decoder ignores it.
    factors = grid(6, 6)
    x = torch.cat([placed(factors), placed(factors).sum(1, keepdim=True)], 1)
    keep = torch.tensor([1, 1, 0.0]).double()
    world = World(lambda z: z * keep, lambda x: x, 3, prior="normal")
    found = conditioned_response_matrix(world, x, factors)
    assert found.causal == [0, 1]
    assert found.disentanglement == pytest.approx(1)
    everything = conditioned_response_matrix(
        identity(3, prior="normal"), x, factors, causal=[0, 1, 2]
    )
    assert everything.disentanglement < 0.9


def test_scaling_makes_the_scores_independent_of_the_units_of_latents():
    factors = grid(6, 6)
    mix = torch.tensor([[1, 0.5], [0.1, 1]]).double()
    scale = torch.tensor([1, 30]).double()
    world = responding(lambda z: z, 2)
    x = placed(factors) @ mix

    def scores(scaled, model, codes):
        return conditioned_response_matrix(model, codes, factors, scaled=scaled, causal=[0, 1])

    larger = rescaled(world, scale)
    larger.encoder = lambda x: x * scale  # observations stay; the latents have other units
    larger.decoder = lambda z: z / scale
    assert scores(True, larger, x).disentanglement == pytest.approx(
        scores(True, world, x).disentanglement
    )
    assert scores(False, larger, x).disentanglement != pytest.approx(
        scores(False, world, x).disentanglement, abs=0.02
    )
    assert conditioned_response_matrix(world, x, factors).scaled  # by default without a prior
    assert not conditioned_response_matrix(identity(2, prior="normal"), x, factors).scaled


def test_groups_of_latents_are_columns():
    # Factor 1 is an angle in two latents; they are one variable.
    factors = grid(5, 8)
    angle = 2 * torch.pi * torch.from_numpy(factors[:, 1]).double() / 8
    x = torch.stack([placed(factors)[:, 0], angle.cos(), angle.sin()], 1)
    world = identity(3, prior="normal")
    apart = conditioned_response_matrix(world, x, factors)
    together = conditioned_response_matrix(world, x, factors, groups=[[0], [1, 2]])
    assert together.completeness == pytest.approx(1)
    assert apart.completeness < 0.9
    assert together.matrix.shape == (2, 2)


def test_a_dataset_arrays_and_a_known_posterior_give_the_same_answer():
    factors = grid(5, 5)
    x = placed(factors).float()
    data = from_arrays(x.numpy(), factors, factor_names=("width", "height"))
    world = identity(2, prior="normal", std=torch.tensor([0.1, 0.1]))
    from_data = conditioned_response_matrix(world, data)
    from_tensor = conditioned_response_matrix(world, x, factors)
    from_array = conditioned_response_matrix(world, x.numpy(), torch.from_numpy(factors))
    known = conditioned_response_matrix(world, data, posterior=zs.record(world, data).posterior)
    for other in (from_tensor, from_array, known):
        torch.testing.assert_close(other.matrix, from_data.matrix)
    assert from_data.factor_names == ["width", "height"]
    assert from_tensor.factor_names == ["factor0", "factor1"]


def test_intervals_surround_scores_and_entries():
    factors = grid(6, 6, 3)
    x = placed(factors) @ torch.tensor([[1, 0.3, 0], [0, 1, 0], [0.3, 0, 1]]).double()
    found = conditioned_response_matrix(
        identity(3, prior="normal"), x, factors, samples=60, resamples=100
    )
    low, high = found.disentanglement_interval
    assert low < found.disentanglement < high
    assert high - low < 0.5
    assert (found.interval[0] <= found.matrix + 1e-12).all()
    assert (found.matrix <= found.interval[1] + 1e-12).all()
    assert found.measures()[0].interval == (low, high)


def test_data_without_what_it_takes_are_refused():
    world, factors = identity(2, prior="normal"), grid(4, 4)
    with pytest.raises(DataError, match=r"without factors.*factors="):
        conditioned_response_matrix(world, placed(factors))
    with pytest.raises(DataError, match=r"\(3, 2\) for 16 observations"):
        conditioned_response_matrix(world, placed(factors), factors[:3])
    with pytest.raises(Undefined, match="1 factor; with a single one"):
        conditioned_response_matrix(world, placed(factors), factors[:, :1])
    continuous = np.random.default_rng(0).normal(size=(16, 2))
    with pytest.raises(Undefined, match=r"no two of the 16 observations agree.*continuous"):
        conditioned_response_matrix(world, placed(factors), continuous)
    with pytest.raises(DataError, match="3 posteriors for 16 observations"):
        conditioned_response_matrix(
            world, placed(factors), factors, posterior=zs.Posterior(torch.zeros(3, 2))
        )
    with pytest.raises(ConfigError, match=r"causal=\[0, 7\]"):
        conditioned_response_matrix(world, placed(factors), factors, causal=[0, 7])


def test_without_two_causal_latents_there_is_no_score():
    factors = grid(4, 4)
    with pytest.raises(Undefined, match=r"of 2 latents none is causal.*response-matrix"):
        conditioned_response_matrix(constant(2, prior="normal"), placed(factors), factors)
    with pytest.raises(Undefined, match="only latent 1 is causal"):
        conditioned_response_matrix(
            identity(2, prior="normal"), placed(factors), factors, causal=[1]
        )


def test_causal_latents_that_answer_to_no_factor_are_refused():
    # The codes vary from group to group of a third, hidden factor only.
    factors = grid(3, 3)
    with pytest.raises(Undefined, match="no causal latent responds to any of the 2 factors"):
        conditioned_response_matrix(
            turning(torch.eye(2).double(), prior="normal"),
            torch.ones(9, 2).double(),
            factors,
            causal=[0, 1],
        )


def test_nan_of_the_encoder_is_reported_with_its_row():
    factors = grid(4, 4)
    x = placed(factors)
    x[11] = torch.nan
    with pytest.raises(zs.errors.InterfaceError, match="1 of 16 observations, the first at row 11"):
        conditioned_response_matrix(identity(2, prior="normal"), x, factors)


def test_chance_is_the_score_of_as_many_pairs_that_differ_in_everything():
    samples, factors = 6, grid(6, 6, 6)
    codes = torch.randn(len(factors), 5, generator=seeded(0))
    rng = np.random.default_rng(0)
    expected = []
    for _ in range(400):
        rows = [rng.permutation(len(codes))[:samples] for _ in range(3)]
        z = np.stack([codes.numpy()[row] for row in rows])
        matrix = np.sqrt(np.square(z - np.roll(z, 1, axis=1)).mean(1))
        shares = [matrix.max(axis).sum() / matrix.sum() for axis in (0, 1)]
        expected.append([(s - 1 / d) / (1 - 1 / d) for s, d in zip(shares, (3, 5), strict=True)])
    model = identity(5, prior="normal")
    found = [
        conditioned_response_matrix(
            model, codes, factors, samples=samples, causal=range(5), generator=seeded(seed)
        ).chance
        for seed in range(24)
    ]
    measured = np.array([list(chance.values()) for chance in found])
    error = np.hypot(measured.std(0) / 24**0.5, np.std(expected, 0) / 400**0.5)
    assert (abs(measured.mean(0) - np.mean(expected, 0)) < 3 * error).all()
    assert (error < 0.1 * measured.mean(0)).all()  # the comparison is a sharp one


@pytest.mark.parametrize("groups", [4, 12])
def test_of_few_groups_observations_are_resampled_within_each(groups):
    """Means of resampled groups would stay within the smallest and the largest of them."""
    factors = np.stack([np.tile(np.arange(3), 20 * groups), np.repeat(np.arange(groups), 60)], 1)
    pairs = FactorPairs(factors, 0, 10_000, seeded(0), "test")
    weights = pairs.weights(50, seeded(1))
    assert weights.sum(1) == pytest.approx(np.ones(51))
    by_group = weights.unflatten(1, (groups, -1)).sum(2)
    assert bool((by_group[1:] - 1 / groups).abs().max() < 1e-12) == (groups == 4)
    assert (weights[1:].std(0) > 0).all()
    assert pairs.tail < 0.025

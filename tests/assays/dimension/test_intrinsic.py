"""Nearest neighbours and the intrinsic dimension that follows from them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripts import load_script

import zscope as zs
from zscope.assays.dimension.intrinsic import (
    intrinsic_dimension,
    local_dimensions,
    twonn_slope,
)
from zscope.assays.neighbours import nearest_neighbours
from zscope.errors import ConfigError, MissingExtra, Undefined

REFERENCE = Path(__file__).parents[2] / "reference"
PUBLISHED = json.loads((REFERENCE / "intrinsic_dimension.json").read_text())


def reference_samples(name: str) -> np.ndarray:
    return load_script(REFERENCE / "make_intrinsic_dimension.py").samples(name)


def gaussian(dimension: int, samples: int, columns: int = 0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randn(samples, dimension, generator=generator, dtype=torch.float64)
    if columns:
        codes = codes @ torch.randn(dimension, columns, generator=generator, dtype=torch.float64)
    return codes


def all_distances(x: torch.Tensor, k: int) -> torch.Tensor:
    """By differences, one row at a time."""
    gaps = torch.stack([(x - row).norm(dim=1) for row in x])
    return gaps.sort(dim=1).values[:, 1 : k + 1]


# Neighbours


@pytest.mark.parametrize("columns", [1, 3, 300])
def test_distances_are_those_of_the_differences(columns, monkeypatch):
    monkeypatch.setattr("zscope.assays.neighbours.BLOCK_ROWS", 64)
    x = gaussian(min(columns, 6), 333, columns)
    torch.testing.assert_close(
        nearest_neighbours(x, 7).distances, all_distances(x, 7), rtol=1e-12, atol=1e-12
    )


def test_tight_clusters_far_apart_do_not_drown_in_rounding():
    # Squared norms of 1e10 beside squared distances of 1e-2: float32 products see nothing.
    centres = gaussian(3, 3, 40, seed=1) * 1e5
    x = centres.repeat_interleave(50, 0) + 0.01 * gaussian(40, 150, seed=2)
    near = nearest_neighbours(x, 9, tolerance=1e-12)
    torch.testing.assert_close(near.distances, all_distances(x, 9), rtol=1e-9, atol=0)


def test_one_remote_outlier_changes_no_other_distance():
    x = gaussian(5, 200)
    plain = nearest_neighbours(x, 5).distances
    with_outlier = nearest_neighbours(torch.cat([x, torch.full((1, 5), 1e6)]), 5, tolerance=0.0)
    torch.testing.assert_close(with_outlier.distances[:-1], plain, rtol=1e-12, atol=0)


def test_equal_rows_count_once_and_are_counted():
    x = gaussian(4, 100)
    doubled = torch.cat([x, x[:30], -0.0 * x[:1], torch.zeros(1, 4)])
    near = nearest_neighbours(doubled, 5)
    assert near.duplicates == 31
    assert near.rows.tolist() == [*range(100), 130]
    assert (near.distances > 0).all()


def test_rows_that_differ_by_rounding_alone_count_once():
    x = gaussian(4, 100)
    near = nearest_neighbours(torch.cat([x, x * (1 + 1e-8), x + 1e-9]), 5)
    assert (len(near), near.duplicates) == (100, 200)
    torch.testing.assert_close(near.distances, nearest_neighbours(x, 5).distances)
    # and with the tolerance at zero they do not
    assert nearest_neighbours(torch.cat([x, x + 1e-9]), 5, tolerance=0.0).duplicates == 0


def test_pictures_and_float32_are_taken_as_they_are():
    x = gaussian(3, 80, 48).float()
    pictures = nearest_neighbours(x.reshape(80, 3, 4, 4), 4)
    torch.testing.assert_close(pictures.distances, all_distances(x.double(), 4))
    assert pictures.values.dtype == torch.float32


def test_too_few_distinct_samples_are_refused():
    with pytest.raises(Undefined, match=r"3 distinct samples \(of 30\) cannot have 5 neighbours"):
        nearest_neighbours(torch.eye(3).repeat(10, 1), 5)
    with pytest.raises(Undefined, match="NaN"):
        nearest_neighbours(torch.tensor([[1.0], [float("nan")]]), 1)


# Neighbours of some of the samples


@pytest.mark.parametrize("columns", [1, 3, 300])
def test_neighbours_of_some_are_those_among_all(columns):
    x = gaussian(min(columns, 6), 333, columns)
    every, some = nearest_neighbours(x, 7), nearest_neighbours(x, 7, most=50)
    assert (len(some), some.among, len(some.rows.unique())) == (50, 333, 50)
    assert torch.equal(some.values, x[some.rows])
    torch.testing.assert_close(some.distances, every.distances[some.rows], rtol=1e-12, atol=0)
    assert not torch.equal(some.rows, torch.arange(50))
    again = nearest_neighbours(x, 7, most=50, generator=torch.Generator().manual_seed(3))
    assert not torch.equal(again.rows, some.rows)


def test_as_many_as_there_are_change_nothing():
    x = gaussian(4, 200).float()
    every, limited = nearest_neighbours(x, 5), nearest_neighbours(x, 5, most=200)
    assert torch.equal(every.distances, limited.distances)
    assert torch.equal(every.rows, limited.rows)


def test_neighbours_of_some_where_float32_sees_nothing():
    centres = gaussian(3, 3, 40, seed=1) * 1e5
    x = centres.repeat_interleave(50, 0) + 0.01 * gaussian(40, 150, seed=2)
    near = nearest_neighbours(x, 9, tolerance=1e-12, most=60)
    torch.testing.assert_close(near.distances, all_distances(x, 9)[near.rows], rtol=1e-9, atol=0)


@pytest.mark.parametrize("lags", [0, 8])  # without looking along a line, when they are met
def test_rows_that_differ_by_rounding_alone_count_once_for_some_rows_too(lags, monkeypatch):
    monkeypatch.setattr("zscope.assays.neighbours.LAGS", lags)
    x = gaussian(4, 300)
    near = nearest_neighbours(torch.cat([x, x * (1 + 1e-8), x[:50], x + 1e-9]), 5, most=100)
    assert len(near) == 100
    plain = nearest_neighbours(x, 5)
    if lags:
        assert (near.among, near.duplicates) == (300, 650)
        torch.testing.assert_close(near.distances, plain.distances[near.rows])
    assert float(near.distances.min()) > 0.5 * float(plain.distances.min())


def surface(samples: int) -> torch.Tensor:
    """A curved surface of two dimensions in nine columns."""
    angles = 2 * torch.pi * torch.rand(samples, 2, generator=torch.Generator().manual_seed(0))
    return torch.cat([angles.sin(), angles.cos()], 1) @ gaussian(4, 4, 9).float()


@pytest.mark.parametrize("method", ["mle", "twonn"])
def test_the_dimension_of_20_000_samples_is_right_and_says_where_it_was_measured(method):
    result = intrinsic_dimension(surface(20_000), method=method)
    assert (result.samples, result.all_samples) == (10_000, 20_000)
    assert result.dimension == pytest.approx(2, abs=0.05)
    assert result.flags[-1] == (
        "Measured at 10,000 of 20,000 samples, drawn at random; their neighbours are those among "
        "all."
    )


@pytest.mark.parametrize("method", ["mle", "twonn"])
def test_half_of_the_samples_give_what_all_of_them_do(method):
    x = surface(6000)
    half, whole = (intrinsic_dimension(x, method=method, samples=n) for n in (3000, 6000))
    # Half of the samples are the same: the two differ by less than two standard errors.
    assert abs(half.dimension - whole.dimension) < 2 * half.standard_error
    assert half.standard_error == pytest.approx(2**0.5 * whole.standard_error, rel=0.05)
    assert not any(flag.startswith("Measured at") for flag in whole.flags)
    assert dict(half.summary())["all samples"] == "6000"
    assert "all samples" not in dict(whole.summary())


def test_the_bias_is_that_of_all_samples_not_of_those_drawn():
    """Fewer samples have neighbours farther away; 500 of 20,000 do not."""
    x = gaussian(10, 20_000).float()
    drawn, few = intrinsic_dimension(x, samples=500), intrinsic_dimension(x[:500])
    every = 9.70  # of 20,000
    assert drawn.dimension == pytest.approx(every, abs=3 * drawn.standard_error)
    assert few.dimension < every - 4 * drawn.standard_error
    assert "score of 20,000 samples" in drawn.flags[0]


def test_the_gap_of_many_samples_says_where_it_was_measured():
    """Two latents in use and two passive ones, which are noise."""
    means = torch.zeros(1200, 4)
    means[:, :2] = gaussian(2, 1200).float()
    posterior = zs.Posterior(means, torch.tensor([0.01, 0.01, 1.0, 1.0]).expand(1200, 4))
    all_of_them = zs.assays.dimension_gap(posterior)
    assert not all_of_them.flags
    some = zs.assays.dimension_gap(posterior, samples=400)
    assert some.flags == [
        "Measured at 400 of 1,200 samples, drawn at random; their neighbours are those among all."
    ]
    assert some.score == pytest.approx(all_of_them.score, abs=2 * some.standard_error)
    assert some.score == pytest.approx(2, abs=0.3)


def test_no_samples_are_refused():
    with pytest.raises(ConfigError, match="samples=0"):
        intrinsic_dimension(gaussian(3, 50), samples=0)


# Dimension


def test_the_worked_example():
    x = torch.tensor([[0.0, 0, 0], [0, 1, 0], [1, 0, 0], [2, 0, 0]])
    result = intrinsic_dimension(x, neighbours=3, normaliser="k-1")
    assert result.local[0].item() == pytest.approx(1.4427, abs=5e-5)
    assert intrinsic_dimension(x, neighbours=3).local[0].item() == pytest.approx(
        1.4427 / 2, abs=1e-4
    )


@pytest.mark.parametrize("d", [1, 2.5, 7])
def test_ratios_of_the_exact_law_give_the_exact_dimension(d):
    n = 500
    ratios = (1 - torch.arange(n, dtype=torch.float64) / n) ** (-1 / d)
    assert twonn_slope(ratios) == pytest.approx(d, rel=1e-12)
    assert twonn_slope(ratios.flip(0)) == pytest.approx(d, rel=1e-12)  # any order
    assert twonn_slope(ratios, first_rank=1) != pytest.approx(d, rel=1e-4)


@pytest.mark.parametrize("name", ["gauss2", "gauss5", "gauss10", "roll"])
def test_every_form_agrees_with_scikit_dimension(name):
    expected, near = PUBLISHED[name], nearest_neighbours(reference_samples(name), 20)
    for normaliser in ("k-1", "k-2"):
        for average in ("harmonic", "arithmetic"):
            ours = intrinsic_dimension(near, normaliser=normaliser, average=average)
            assert ours.dimension == pytest.approx(
                expected[f"mle {normaliser} {average}"], rel=1e-10
            )
    few = intrinsic_dimension(near, neighbours=5, normaliser="k-1", average="harmonic")
    assert few.dimension == pytest.approx(expected["mle k-1 harmonic 5"], rel=1e-10)
    ours = intrinsic_dimension(near, method="twonn", first_rank=1)
    assert ours.dimension == pytest.approx(expected["twonn"], rel=1e-10)


@pytest.mark.parametrize(
    ("d", "forms", "twonn"),
    [  # k-1 and k-2 averaged plainly, then harmonically
        (2, (2.14, 2.03, 2.02, 1.91), 1.99),
        (5, (5.36, 5.08, 5.05, 4.79), 5.26),
        (10, (9.88, 9.36, 9.35, 8.85), 9.80),
        (20, (16.9, 16.0, 16.0, 15.2), 17.3),
    ],
)
def test_5000_gaussian_samples_read_as_the_table_says(d, forms, twonn):
    # Columns that are rotated into more dimensions change no distance, so d columns do.
    near = nearest_neighbours(gaussian(d, 5000, seed=4), 20)
    kinds = [(n, a) for a in ("arithmetic", "harmonic") for n in ("k-1", "k-2")]
    for (normaliser, average), value in zip(kinds, forms, strict=True):
        ours = intrinsic_dimension(near, normaliser=normaliser, average=average).dimension
        assert ours == pytest.approx(value, rel=0.02)
    assert intrinsic_dimension(near, method="twonn").dimension == pytest.approx(twonn, rel=0.05)


@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3))
def test_rotation_shift_and_scale_change_nothing(seed, scale):
    x = gaussian(3, 120, 5, seed=seed)
    turn = torch.linalg.qr(gaussian(5, 5, seed=seed + 1)).Q
    moved = scale * x @ turn + 4
    for method in ("mle", "twonn"):
        assert intrinsic_dimension(moved, method=method).dimension == pytest.approx(
            intrinsic_dimension(x, method=method).dimension, rel=1e-5
        )


def test_stretching_one_direction_does_change_it():
    x = gaussian(2, 500)
    assert intrinsic_dimension(x * torch.tensor([1.0, 1e-4])).dimension < 1.2


def test_the_curve_ends_at_the_value_itself():
    result = intrinsic_dimension(gaussian(4, 300), neighbours=12)
    assert list(result.curve) == list(range(3, 13))
    assert result.curve[12] == result.dimension
    five = intrinsic_dimension(gaussian(4, 300), neighbours=5)
    assert result.curve[5] == pytest.approx(five.dimension)


def test_error_bars_are_of_the_size_of_the_scatter_over_draws():
    for method in ("mle", "twonn"):
        draws = [intrinsic_dimension(gaussian(4, 400, seed=s), method=method) for s in range(40)]
        scatter = np.std([draw.dimension for draw in draws], ddof=1)
        claimed = np.mean([draw.standard_error for draw in draws])
        assert 0.65 < scatter / claimed < 1.4  # the scatter of 40 draws is itself ±11 %
        low, high = draws[0].interval
        assert high - low == pytest.approx(3.92 * draws[0].standard_error)


def test_duplicates_change_nothing():
    x = gaussian(3, 300)
    for method in ("mle", "twonn"):
        plain = intrinsic_dimension(x, method=method)
        doubled = intrinsic_dimension(torch.cat([x, x]), method=method)
        assert (doubled.duplicates, doubled.samples) == (300, 300)
        assert doubled.dimension == pytest.approx(plain.dimension)


def test_a_grid_is_refused_rather_than_called_infinite():
    ring = torch.arange(12) * (2 * torch.pi / 12)
    circle = torch.stack([ring.cos(), ring.sin()], 1).double()
    # First and second neighbours of equal distance, up to rounding.
    near = nearest_neighbours(circle, 3)
    near.distances[:, :2] = near.distances[:, :1].round(decimals=6)
    with pytest.raises(Undefined, match="regular grid"):
        intrinsic_dimension(near, method="twonn")
    assert local_dimensions(torch.ones(1, 4)).isinf().all()
    near.distances[:] = 1.0
    with pytest.raises(Undefined, match="12 samples is equally far"):
        intrinsic_dimension(near, neighbours=3)


def test_unknown_methods_and_sizes_are_refused_with_a_way_forward():
    x = gaussian(2, 30)
    with pytest.raises(ConfigError, match="Did you mean twonn"):
        intrinsic_dimension(x, method="twonnn")
    with pytest.raises(ConfigError, match="at least 3"):
        intrinsic_dimension(x, neighbours=2)
    with pytest.raises(Undefined, match=r"nearest_neighbours\(codes, 20\)"):
        intrinsic_dimension(nearest_neighbours(x, 5))


def test_other_estimators_come_from_scikit_dimension():
    pytest.importorskip("skdim", reason="scikit-dimension is not installed")
    flat = torch.cat([gaussian(3, 50), torch.zeros(50, 3, dtype=torch.float64)], 1)
    result = intrinsic_dimension(torch.cat([flat, flat]), method="lpca")
    assert (result.dimension, result.method, result.samples) == (3.0, "lPCA", 50)
    assert result.standard_error is None
    assert result.interval is None
    with pytest.raises(Undefined, match="scikit-dimension .* 4 samples of 6 numbers"):
        intrinsic_dimension(flat[:4], method="knn")


def test_without_scikit_dimension_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "skdim", None)
    with pytest.raises(MissingExtra, match=r"zscope\[dimension\]"):
        intrinsic_dimension(gaussian(3, 50), method="lPCA")


# Observations


def test_the_dimension_of_observations_is_that_of_the_data_not_of_the_codes():
    x = gaussian(3, 500, columns=12).float()
    data = torch.cat([x, x[:200]])  # repeated rows say nothing new
    model = zs.wrap(lambda rows: rows[:, :1], lambda z: z.expand(-1, 12), example=x[:4])
    recording = zs.record(model, data)
    observed = zs.assays.intrinsic_dimension(recording, of="observations")
    alone = intrinsic_dimension(recording.observations)
    assert (observed.of, alone.of) == ("observations", "codes")
    assert observed.dimension == pytest.approx(alone.dimension)
    assert observed.dimension == pytest.approx(3, abs=0.3)
    assert (observed.duplicates, observed.samples, observed.columns) == (200, 500, 12)
    codes = zs.assays.intrinsic_dimension(recording)
    assert codes.dimension == pytest.approx(1, abs=0.15)
    options = {"intrinsic-dimension": {"of": "observations"}}
    report = zs.assay(recording, names=["intrinsic-dimension"], options=options)
    assert report.results["intrinsic-dimension"].dimension == pytest.approx(observed.dimension)


def test_pictures_are_flattened_and_codes_alone_have_no_observations():
    pictures = gaussian(2, 300, columns=16).reshape(-1, 1, 4, 4)
    direct = intrinsic_dimension(torch.zeros(5, 1), of="observations", observations=pictures)
    assert direct.dimension == pytest.approx(intrinsic_dimension(pictures.flatten(1)).dimension)
    bare = zs.Recording.from_arrays(gaussian(2, 100))
    with pytest.raises(Undefined, match="only codes were given.*recording of a model"):
        zs.assays.intrinsic_dimension(bare, of="observations")


def test_the_dimension_of_gaussian_data_hardly_depends_on_the_number_of_neighbours():
    x = gaussian(4, 2000, columns=20)
    ten, twenty = (intrinsic_dimension(x, neighbours=k).dimension for k in (10, 20))
    assert abs(ten / twenty - 1) < 0.15

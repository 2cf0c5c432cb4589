"""What a dataset is: layouts, batches, splits, refusals."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import zscope as zs
from zscope.data import Dataset, from_arrays, grid_factors
from zscope.errors import ConfigError, DataError

COLOURS = np.arange(5 * 3 * 9 * 8, dtype=np.uint8).reshape(5, 3, 9, 8)


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (COLOURS, (3, 9, 8)),
        (COLOURS.transpose(0, 2, 3, 1), (3, 9, 8)),
        (COLOURS[:, 0], (1, 9, 8)),
        (COLOURS.reshape(5, -1), (216,)),
        (torch.from_numpy(COLOURS), (3, 9, 8)),
    ],
    ids=["channels first", "channels last", "grey", "rows", "tensor"],
)
def test_usual_layouts_are_understood(array, shape):
    data = from_arrays(array)
    assert data.shape == shape
    assert len(data) == 5


def test_colour_pictures_keep_their_pixels_in_either_layout():
    first, last = from_arrays(COLOURS), from_arrays(COLOURS.transpose(0, 2, 3, 1))
    assert torch.equal(first.batch([0, 3]), last.batch([0, 3]))
    assert torch.allclose(first.batch([1])[0], torch.from_numpy(COLOURS[1]) / 255)
    assert first.batch([0, 1]).is_contiguous(memory_format=torch.channels_last)


def test_a_batch_is_in_the_order_asked_for_and_leaves_the_data_alone():
    x = np.arange(20, dtype=np.float32).reshape(10, 2)
    x.flags.writeable = False
    data = from_arrays(x)
    batch = data.batch([7, 2, 7])
    assert torch.equal(batch, torch.tensor([[14.0, 15], [4, 5], [14, 15]]))
    batch.zero_()
    assert x[7, 0] == 14


@given(
    samples=st.integers(10, 500),
    seed=st.integers(0, 99),
    fractions=st.sampled_from([(0.7, 0.1, 0.2), (0.9, 0.1), (0.5, 0.2)]),
)
def test_parts_of_a_split_are_disjoint_of_the_right_size_and_repeat(samples, seed, fractions):
    data = from_arrays(np.arange(samples, dtype=np.float32)[:, None], factors=np.arange(samples))
    parts = data.split(fractions, seed=seed)
    again = data.split(fractions, seed=seed)
    rows = [part.factors[:, 0] for part in parts]
    together = np.concatenate(rows)
    assert len(np.unique(together)) == len(together)
    assert len(together) == (samples if sum(fractions) > 0.99 else together.size)
    for part, same, fraction in zip(parts, again, fractions, strict=True):
        assert abs(len(part) - fraction * samples) <= len(fractions)
        assert np.array_equal(part.factors, same.factors)
        assert np.array_equal(part.images[:][:, 0], part.factors[:, 0])


def test_another_seed_splits_otherwise():
    data = from_arrays(np.zeros((100, 1), np.float32), factors=np.arange(100))
    one, two = (data.split(seed=seed)[0].factors for seed in (0, 1))
    assert not np.array_equal(one, two)


def test_a_split_of_a_named_dataset_can_be_made_again():
    data = zs.data.load("helix")
    part = data.split((0.8, 0.2), seed=3)[1]
    again = zs.data.from_recipe(part.recipe)
    assert np.array_equal(part.images[:], again.images[:])
    assert part.subset([0, 1]).recipe is None


def test_subsets_of_subsets_name_the_original_rows():
    data = from_arrays(np.arange(100, dtype=np.float32)[:, None])
    part = data.subset(np.arange(0, 100, 2)).subset([3, 1])
    assert part.images[:].ravel().tolist() == [6, 2]
    assert data.subset(np.arange(100) > 97).images[:].ravel().tolist() == [98, 99]


def test_factor_kinds_and_sizes_are_found():
    factors = np.column_stack([np.arange(6) % 3, np.linspace(0, 1, 6)])
    data = from_arrays(np.zeros((6, 1), np.float32), factors, factor_names=("a", "b"))
    assert data.factor_kinds == ("categorical", "continuous")
    assert data.factor_sizes == (3, 0)
    assert repr(data).splitlines() == [
        "Dataset array: 6 observations of 1",
        "factor  kind         values",
        "a       categorical       3",
        "b       continuous",
    ]


def test_features_keep_their_names_in_every_part():
    data = from_arrays(np.zeros((10, 2)), feature_names=["height", "width"])
    assert data.feature_names == ("height", "width")
    assert data.subset([1, 2]).feature_names == ("height", "width")
    assert all(part.feature_names == ("height", "width") for part in data.split((0.5, 0.5)))
    assert from_arrays(np.zeros((10, 2))).feature_names == ()


def test_the_last_factor_of_a_grid_runs_fastest():
    assert grid_factors([2, 3]).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


@pytest.mark.parametrize(
    ("images", "options", "match"),
    [
        (np.zeros(5), {}, "shape \\(5,\\).*reshape"),
        (np.zeros((2,) * 6), {}, "shape \\(2, 2, 2, 2, 2, 2\\)"),
        (np.array([["a"]]), {}, "not numbers"),
        (np.zeros((4, 2)), {"factors": np.zeros((3, 1))}, "\\(3, 1\\) for 4 samples"),
        (np.zeros((4, 2)), {"factors": np.full((4, 1), np.nan)}, "NaN or infinite"),
        (np.zeros((4, 2)), {"factors": np.zeros((4, 2)), "factor_names": ("a",)}, "1 names"),
        (np.zeros((4, 2)), {"factors": np.zeros(4), "factor_kinds": ("ordinal",) * 3}, "3 kinds"),
        (np.zeros((4, 2)), {"factors": [[1], [2, 3], [4], [5]]}, "factors given as a list"),
        (np.zeros((4, 3)), {"feature_names": ("a", "b")}, "2 feature names .*\\(3,\\)"),
        (np.zeros((4, 2)), {"feature_names": ("a", "a")}, "2 features, several .* 'a'"),
        (np.zeros((4, 8, 8)), {"feature_names": ("a",)}, "pictures have none"),
        (np.zeros((4, 0)), {}, "4 samples of shape \\(0,\\)"),
        (np.float64(1), {}, "shape \\(\\)"),
        ([[1, 2], [3]], {}, "list cannot be read as one array .*the same length"),
        (torch.zeros(4, 3).to_sparse(), {}, "Tensor cannot be read as one array"),
        (np.array([[0.0], [1e300]]), {}, "1e\\+300 in row 1"),
        (np.array([[0.0], [np.nan]], np.float32), {}, "nan in row 1"),
    ],
)
def test_unfit_arrays_are_refused(images, options, match):
    with pytest.raises(DataError, match=match):
        from_arrays(images, **options)


def test_unfit_splits_and_subsets_are_refused():
    data = from_arrays(np.zeros((5, 1), np.float32))
    with pytest.raises(DataError, match="add up to at most 1"):
        data.split((0.9, 0.9))
    with pytest.raises(DataError, match="5 samples split into .* without samples"):
        data.split((0.9, 0.1))
    with pytest.raises(DataError, match="rows 3 to 5, but there are 5"):
        data.subset([3, 5])
    for fractions in (np.array(["a"]), np.array(0.5), ()):
        with pytest.raises(DataError, match="fractions must be positive"):
            data.split(fractions)
    for rows in (np.ones(3, bool), np.ones((5, 1), bool), [[0, 1]], [0.5, 1.0], 3, ["a"]):
        with pytest.raises(DataError, match="subset by .*one entry for each of the 5 samples"):
            data.subset(np.array(rows))
    with pytest.raises(DataError, match="0 samples"):
        data.subset([])


def test_numbers_of_numpy_and_bfloat16_are_read_as_numbers():
    data = from_arrays(torch.arange(10, dtype=torch.bfloat16)[:, None], np.arange(10) % 2)
    assert data.batch([3]).item() == 3
    first, second = data.split(np.array([0.5, 0.5]), seed=np.int64(2**40))
    same, _ = data.split((0.5, 0.5), seed=2**40)
    assert torch.equal(first.batch(slice(None)), same.batch(slice(None)))
    assert len(second) == 5


def test_unknown_names_and_options_get_the_nearest_known_ones():
    with pytest.raises(DataError, match="'sprite'.*Did you mean sprites"):
        zs.data.load("sprite")
    with pytest.raises(ConfigError, match="helix has no option 'nois'.*Did you mean noise"):
        zs.data.load("helix", nois=1)


def test_every_name_has_a_source_that_describes_it():
    for name in zs.data.names():
        entry = zs.data.source(name)
        assert entry.name == name
        assert entry.title
        assert entry.summary
        assert entry.cite


def test_large_arrays_are_converted_row_by_row(monkeypatch):
    monkeypatch.setattr("zscope.data.own.LARGE", 1000)
    rows = np.arange(2000, dtype=np.float64).reshape(1000, 2)
    data = from_arrays(rows)
    assert not isinstance(data.images, np.ndarray)
    assert torch.equal(data.batch([999, 0]), torch.tensor([[1998.0, 1999], [0, 1]]))
    assert torch.equal(
        zs.record(zs.wrap(lambda x: x, lambda z: z), rows).codes[:, 0],
        data.batch(slice(None))[:, 0],
    )


def test_sound_has_channels_and_time_and_video_frames():
    sound = from_arrays(np.zeros((5, 2, 100)))
    assert sound.shape == (2, 100)
    assert sound.batch([0, 3]).shape == (2, 2, 100)
    bytes_of_video = np.full((5, 3, 6, 8, 8), 255, np.uint8)
    video = from_arrays(bytes_of_video)
    assert video.shape == (3, 6, 8, 8)
    assert float(video.batch(slice(0, 2)).max()) == 1
    # Three rows are a picture's, not channels of a sound.
    assert from_arrays(np.zeros((5, 3, 100))).shape == (1, 3, 100)
    with pytest.raises(DataError, match="sound of type uint8; expected float32"):
        Dataset("clips", np.zeros((5, 2, 100), np.uint8))

"""Recording a model over data."""

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.errors import DataError, InterfaceError

IDENTITY = zs.wrap(lambda x: x, lambda z: z)


def test_every_observation_is_encoded_in_order():
    x = torch.arange(3000.0).reshape(1500, 2)
    recording = zs.record(IDENTITY, x)
    assert torch.equal(recording.codes, x)
    assert torch.equal(recording.observations, x)
    assert recording.factors is None
    assert len(recording) == 1500


def test_a_sample_has_no_repeats_and_depends_on_the_seed_alone():
    x = np.arange(2000, dtype=np.float32).reshape(1000, 2)
    first, again, other = (zs.record(IDENTITY, x, samples=100, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.codes, again.codes)
    assert not torch.equal(first.codes, other.codes)
    assert len(set(first.rows.tolist())) == 100
    assert torch.equal(first.codes, torch.from_numpy(x)[first.rows])
    assert torch.equal(first.observations, first.codes)


def test_factors_follow_the_chosen_rows():
    x = np.arange(200, dtype=np.float32).reshape(100, 2)
    data = zs.data.from_arrays(x, factors=np.arange(100))
    recording = zs.record(IDENTITY, data, samples=10)
    assert recording.factors[:, 0].tolist() == recording.rows.tolist()


def test_bytes_become_numbers_from_zero_to_one():
    images = np.zeros((4, 9, 8), np.uint8)
    images[0] = 255
    encode = zs.wrap(lambda x: x.flatten(1), lambda z: z.reshape(-1, 1, 9, 8))
    recording = zs.record(encode, images)
    assert recording.codes[0].unique().item() == pytest.approx(1)
    assert recording.codes[1].unique().item() == 0


def test_a_model_that_gives_nan_is_refused_with_the_row():
    x = torch.ones(2000, 2)
    x[1500] = -1
    broken = zs.wrap(lambda x: x.sqrt(), lambda z: z)
    with pytest.raises(InterfaceError, match="NaN or infinite numbers for 1 of .* row 1500"):
        zs.record(broken, x)


def test_no_samples_and_no_data_are_refused():
    with pytest.raises(DataError, match="samples=0"):
        zs.record(IDENTITY, torch.ones(3, 2), samples=0)
    with pytest.raises(DataError, match="0 samples"):
        zs.record(IDENTITY, torch.ones(0, 2))
    with pytest.raises(DataError, match="type str"):
        zs.record(IDENTITY, "sprites")

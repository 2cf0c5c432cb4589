"""Settings that cannot be meant are refused by name, before anything is trained."""

import numpy as np
import pytest

import zscope as zs
from zscope.errors import ConfigError, DataError
from zscope.training.loop import configure

ROWS = np.zeros((20, 4), dtype="float32")


@pytest.mark.parametrize("epochs", [float("nan"), float("inf"), 0, -1])
def test_epochs_that_are_no_positive_number_are_refused(epochs):
    with pytest.raises(ConfigError, match="epochs"):
        zs.train(zs.models.build("vae", shape=(4,), latents=2), ROWS, epochs=epochs)


def test_an_empty_batch_is_refused_with_epochs_too():
    with pytest.raises(ConfigError, match="batch"):
        zs.train(zs.models.build("vae", shape=(4,), latents=2), ROWS, epochs=1, batch=0)


@pytest.mark.parametrize("step", [0, 3])
def test_a_snapshot_that_would_never_be_taken_is_refused(step):
    with pytest.raises(ConfigError, match=f"step {step} would never"):
        zs.train(zs.models.build("vae", shape=(4,), latents=2), ROWS, steps=2, snapshots=[step])


def test_a_split_by_nan_is_refused():
    with pytest.raises(DataError, match="fractions"):
        zs.data.from_arrays(ROWS).split((float("nan"),))


@pytest.mark.parametrize("name", ["sae-2", "vlae-2"])
@pytest.mark.parametrize("option", ["hidden", "decoder_hidden"])
def test_a_structural_decoder_without_hidden_layers_is_refused(name, option):
    with pytest.raises(ConfigError, match="hidden"):
        zs.models.build(name, shape=(4,), latents=2, **{option: []})


def test_a_batch_in_numbers_of_numpy_is_bounded_by_the_data_too():
    model = zs.models.build("vae", shape=(4,), latents=2)
    for batch in (np.int64(64), np.float32(64)):
        settings = configure(model, zs.data.from_arrays(ROWS), 2, None, batch, 1e-3, 0, {})
        assert settings.batch == 20
        settings = configure(model, zs.data.from_arrays(ROWS), None, np.float32(3), batch, 1, 0, {})
        assert settings.steps == 3


def test_a_setting_that_is_not_known_ends_in_one_full_stop():
    model = zs.models.build("vae", shape=(4,), latents=2)
    with pytest.raises(ConfigError, match=r"Did you mean batch\? Correct"):
        zs.train(model, ROWS, steps=2, bach=3)
    with pytest.raises(ConfigError, match=r"warmup\. Correct"):
        zs.train(model, ROWS, steps=2, zzzz=3)


def test_a_seed_that_would_stand_for_another_is_refused():
    with pytest.raises(ConfigError, match="seed"):
        zs.train(zs.models.build("vae", shape=(4,), latents=2), ROWS, steps=2, seed=2**64)

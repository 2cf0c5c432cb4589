"""Arrays and files that are not what they should be, and parts that hold too little."""

import numpy as np
import pytest

from zscope.assays.disentanglement.beta_vae import beta_vae_score
from zscope.assays.disentanglement.factor_vae import factor_vae_score
from zscope.assays.disentanglement.mig import mig
from zscope.assays.disentanglement.modularity import modularity_of_codes
from zscope.assays.disentanglement.sap import sap
from zscope.assays.disentanglement.udr import udr
from zscope.cli.score import _factor_values, _table
from zscope.errors import ConfigError, DataError, Undefined

RNG = np.random.default_rng(0)
CODES = RNG.standard_normal((20, 2))


@pytest.mark.parametrize("score", [factor_vae_score, beta_vae_score])
def test_halves_in_which_no_rows_share_a_value_do_not_stop_an_interval(score):
    once_twice = np.r_[np.arange(19), 0]
    found = score(CODES, once_twice, flavour="dlib", resamples=4)
    assert found.interval is not None
    assert np.isfinite(found.interval).all()


def test_a_factor_that_is_constant_among_the_training_rows_has_no_correlation():
    for row in range(20):  # whichever rows learn, some of these vary among the others only
        factor = np.zeros(20)
        factor[row] = 1
        assert np.isfinite(sap(CODES, factor, flavour="dlib", kinds="continuous").score)


def test_words_among_the_factors_are_refused():
    with pytest.raises(Undefined, match="Number them"):
        mig(CODES, np.array(["ball", "cube"] * 10))


@pytest.mark.parametrize("resamples", [-1, 1])
def test_udr_refuses_a_number_of_resamples_that_gives_no_interval(resamples):
    with pytest.raises(ConfigError, match="no interval"):
        udr([CODES, CODES], resamples=resamples)


def test_udr_refuses_variances_of_other_observations_and_two_sources_of_passivity():
    with pytest.raises(Undefined, match="same observations"):
        udr([CODES, CODES], variances=[np.full((5, 2), 0.1)] * 2)
    with pytest.raises(ConfigError, match="Give one"):
        udr([CODES, CODES], kl=[np.ones(2)] * 2, variances=[np.full((20, 2), 0.1)] * 2)


def test_files_that_hold_no_table_are_refused(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04garbage")
    np.save(tmp_path / "none.npy", np.zeros((20, 0)))
    np.save(tmp_path / "complex.npy", CODES * 1j)
    np.save(tmp_path / "named.npy", np.zeros(20, dtype=[("a", "f8")]))
    (tmp_path / "empty.csv").write_text("")
    for name in ("broken.npz", "none.npy", "complex.npy", "named.npy", "empty.csv"):
        with pytest.raises(DataError, match=name):
            _table(tmp_path / name, "factors")


def test_two_factors_of_one_name_are_not_taken_for_one(tmp_path):
    np.savez(tmp_path / "both.npz", factors=CODES, factor_names=np.array(["hue", "hue"]))
    with pytest.raises(DataError, match="twice"):
        _table(tmp_path / "both.npz", "factors")


def test_an_unknown_factor_value_is_named_with_its_row(tmp_path):
    with pytest.raises(DataError, match="nan for hue in row 2"):
        _factor_values({"hue": np.array([0.0, 1.0, np.nan])}, tmp_path)


def test_modularity_of_a_code_does_not_depend_on_the_size_of_its_information():
    shares = np.array([[1.0, 0.5]])
    for size in (1.0, 1e-7):
        assert modularity_of_codes(size * shares) == pytest.approx(0.75)

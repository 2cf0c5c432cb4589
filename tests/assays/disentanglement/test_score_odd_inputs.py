"""Arrays and files that are not what they should be, and parts that hold too little."""

import warnings

import numpy as np
import pytest
from known_codes import NAMES, drawn, normal, score

import zscope.assays as a
from zscope.assays.disentanglement.beta_vae import beta_vae_score
from zscope.assays.disentanglement.factor_vae import factor_vae_score
from zscope.assays.disentanglement.mig import mig
from zscope.assays.disentanglement.modularity import modularity_of_codes
from zscope.assays.disentanglement.sap import sap
from zscope.assays.disentanglement.udr import udr
from zscope.data.columns import read_columns
from zscope.errors import ConfigError, DataError, Undefined

RNG = np.random.default_rng(0)
CODES = RNG.standard_normal((20, 2))


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("score", [factor_vae_score, beta_vae_score])
def test_halves_in_which_no_rows_share_a_value_do_not_stop_an_interval(score):
    once_twice = np.r_[np.arange(19), 0]
    factors = np.column_stack([once_twice, np.roll(once_twice, 5)])
    found = score(CODES, factors, flavour="dlib", resamples=4)
    assert found.interval is not None
    assert np.isfinite(found.interval).all()


@pytest.mark.usefixtures("one_permutation")
def test_a_factor_that_is_constant_among_the_training_rows_has_no_correlation():
    for row in range(20):  # whichever rows learn, some of these vary among the others only
        factor = np.zeros(20)
        factor[row] = 1
        assert np.isfinite(sap(CODES, factor, flavour="dlib", kinds="continuous").score)


@pytest.mark.usefixtures("one_permutation")
@pytest.mark.parametrize("flavour", ["zscope", "dlib"])
def test_a_code_that_is_constant_among_the_training_rows_is_no_obstacle(flavour):
    for row in range(20):
        still = np.zeros(20)
        still[row] = 1
        found = a.explicitness(np.column_stack([CODES, still]), np.arange(20) % 2, flavour=flavour)
        assert np.isfinite(found.score)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1e300, -1e39, 1e-200])
def test_numbers_beyond_single_precision_are_refused_with_their_row(name, size):
    codes, factors = normal((60, 2)), drawn((3, 2), 60)
    codes[7] = 9
    with pytest.raises(Undefined, match=rf"{name}: the codes go up to 9e.*row 7.*scale"):
        score(name, codes * size, factors)
    with pytest.raises(Undefined, match=rf"{name}: the factors go up to 9e.*row 7"):
        score(name, normal((60, 2)), codes * size)


def test_udr_refuses_numbers_beyond_single_precision():
    with pytest.raises(Undefined, match="udr: model 1: the codes go up to"):
        udr([CODES, CODES * 1e300])


def test_of_many_factors_those_never_drawn_count_zero(monkeypatch):
    monkeypatch.setattr("zscope.assays.disentanglement.beta_vae.TRAIN", 30)
    monkeypatch.setattr("zscope.assays.disentanglement.beta_vae.TEST", 20)
    found = beta_vae_score(normal((60, 2)), drawn((2,) * 40, 60), flavour="dlib")
    assert np.isfinite(found.per_factor).all()
    assert np.isfinite(found.matrix).all()
    assert (found.per_factor == 0).sum() >= 20


def test_sap_of_one_latent_is_never_below_the_guess():
    labels = drawn((3,), 200)[:, 0]
    for seed in range(5):  # noise does worse than guessing about every other time
        found = sap(normal((200, 1), seed), labels, variances=np.full((200, 1), 0.01))
        assert min(found.score, *found.shuffled) >= 0


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sap", {"flavour": "dlib"}),
        ("explicitness", {}),
        ("explicitness", {"flavour": "dlib"}),
        ("dci", {"predictor": "linear"}),
        ("dci", {"flavour": "dlib"}),
    ],
)
def test_a_value_for_every_row_or_two_is_no_cause_for_a_warning(name, options):
    values = np.r_[0:20, 0:2]
    values = np.column_stack([values, np.roll(values, 7)])  # dci needs two factors
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = {"variances": np.full((22, 2), 0.01), "kinds": "categorical", **options}
        found = score(name, values.astype(float), values, **own)
    assert np.isfinite(found.score)


def test_dcimig_of_a_factor_without_a_code_does_not_depend_on_the_order_of_latents():
    # The second factor is told by neither code, and chance tells less to the code of few values.
    factors = drawn((3, 30), 400)
    codes = np.column_stack([factors[:, 0] > 0, factors[:, 0] + 0.1 * normal(400)])
    one_way, other_way = (a.dcimig(z, factors) for z in (codes, codes[:, ::-1]))
    assert one_way.active == [0, 1]
    assert one_way.score == pytest.approx(other_way.score, abs=1e-12)


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
            read_columns(tmp_path / name, "factors")


def test_two_factors_of_one_name_are_not_taken_for_one(tmp_path):
    np.savez(tmp_path / "both.npz", factors=CODES, factor_names=np.array(["hue", "hue"]))
    with pytest.raises(DataError, match="are equal"):
        read_columns(tmp_path / "both.npz", "factors")


def test_modularity_of_a_code_does_not_depend_on_the_size_of_its_information():
    shares = np.array([[1.0, 0.5]])
    for size in (1.0, 1e-7):
        assert modularity_of_codes(size * shares) == pytest.approx(0.75)

"""What the scores accept, what they guess, and what they refuse with a way forward."""

import numpy as np
import pytest
import torch
from known_codes import FLAVOURS, NAMES, PAIRS, aligned, drawn, grid, normal, score

import zscope.assays as a
from zscope.assays.arguments import choices
from zscope.assays.run import check_options, measure
from zscope.assays.sample import prepare
from zscope.errors import ConfigError, MissingExtra, Undefined
from zscope.factors import guess_kind
from zscope.recording import Recording


@pytest.mark.usefixtures("one_permutation")
@pytest.mark.parametrize("name", NAMES)
def test_tensors_arrays_and_single_precision_give_the_same(name):
    factors = grid(repeats=12)
    codes = aligned(factors)
    plain = score(name, codes, factors)
    tensors = score(name, torch.from_numpy(codes), torch.from_numpy(factors))
    assert tensors.score == plain.score
    rounded = score(name, codes.astype(np.float32), factors.astype(np.int32))
    assert rounded.score == pytest.approx(plain.score, abs=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_do_not_match_are_refused(name):
    with pytest.raises(Undefined, match=rf"{name}: 50 codes but 49 rows.*recording"):
        score(name, normal((50, 2)), grid()[:49])


@pytest.mark.parametrize("name", NAMES)
def test_nan_is_refused_with_its_row(name):
    codes = normal((50, 2))
    codes[7, 1] = np.nan
    with pytest.raises(Undefined, match=rf"{name}: 1 of 50.*row 7"):
        score(name, codes, grid()[:50])


@pytest.mark.parametrize("name", NAMES)
def test_too_few_samples_are_refused(name):
    with pytest.raises(Undefined, match=rf"{name}: got 1 samples"):
        score(name, normal((1, 2)), grid()[:1])
    with pytest.raises(Undefined, match=rf"{name}: only 12 samples.*transposed"):
        score(name, normal((12, 2)), grid()[:12])


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("name", NAMES)
def test_constant_factors_are_skipped_and_reported(name):
    factors = grid(repeats=12)
    codes = aligned(factors)
    factors[:, 1] = 4
    found = score(name, codes, factors)
    assert found.factors == [0, 2]
    assert len(found.per_factor) == 2
    assert any("Factor 1 is constant" in flag for flag in found.flags)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_constant_factors_is_refused(name):
    with pytest.raises(Undefined, match=rf"{name}: all 2 factors are constant over 30 samples"):
        score(name, normal((30, 2)), np.ones((30, 2)))


@pytest.mark.parametrize("name", NAMES)
def test_unknown_words_are_refused_with_the_known_ones(name):
    codes, factors = normal((60, 2)), grid()[:60]
    with pytest.raises(ConfigError, match=rf"{name}: flavour='odd'.*{FLAVOURS[name][0]}"):
        score(name, codes, factors, flavour="odd")
    with pytest.raises(ConfigError, match=rf"{name}: the kind of factor0 is 'metric'.*categorical"):
        score(name, codes, factors, kinds="metric")
    with pytest.raises(ConfigError, match=rf"{name}: 1 kinds for 3 factors"):
        score(name, codes, factors, kinds=["ordinal"])
    with pytest.raises(ConfigError, match=rf"{name}: resamples=1"):
        score(name, codes, factors, resamples=1)


def test_variances_of_other_latents_are_refused():
    with pytest.raises(
        Undefined, match=r"variances of shape \(60, 3\) for codes of shape \(60, 2\)"
    ):
        a.mig(normal((60, 2)), grid()[:60], variances=np.ones((60, 3)))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.arange(1000) % 7, "categorical"),
        (np.arange(1000) % 7 - 3.0, "categorical"),
        (np.arange(1000) % 2 == 0, "categorical"),
        (np.arange(1000) % 300, "ordinal"),
        (np.arange(1000) % 7 / 10, "ordinal"),
        (np.arange(1000) / 7, "continuous"),
        (np.arange(100) % 30 / 7, "continuous"),
    ],
)
def test_kinds_are_guessed(values, kind):
    assert guess_kind(np.asarray(values, dtype=np.float64)) == kind


def test_a_single_code_and_a_single_factor_may_be_vectors():
    factor = drawn((4,), 200)[:, 0]
    found = a.mig(factor.astype(float), factor)
    assert found.score == pytest.approx(1)
    assert found.active == found.factors == [0]


def test_continuous_factors_are_binned_and_discrete_ones_never():
    factors = np.column_stack([np.arange(2000) % 41, normal(2000)])
    sample, _ = prepare("test", normal((2000, 1)), factors, None)
    assert sample.labels.max(0).tolist() == [40, 19]


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(("name", "flavour"), PAIRS)
def test_constant_codes_among_others_never_give_nan(name, flavour):
    factors = grid((3, 2), repeats=12)
    codes = np.column_stack([aligned(factors), np.full(len(factors), 2.5)])
    found = score(name, codes, factors, flavour=flavour)
    assert np.isfinite([found.score, found.chance]).all()
    assert np.isfinite(found.matrix).all()
    found.to_dict()  # refuses NaN


COMPARES_FACTORS = {"dci", "modularity", "factor_vae_score", "beta_vae_score"}


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(("name", "flavour"), PAIRS)
def test_one_code_and_one_factor_have_a_value(name, flavour):
    factors = grid((3, 2), repeats=12)
    codes = aligned(factors)
    for part, known in ((codes[:, :1], factors), (codes, factors[:, :1])):
        if known.shape[1] == 1 and name in COMPARES_FACTORS:
            continue  # not measurable
        found = score(name, part, known, flavour=flavour)
        assert np.isfinite(found.score)
        assert np.isfinite(found.chance)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("name", NAMES)
def test_continuous_factors_are_measured(name):
    factors = np.random.default_rng(0).random((900, 2))
    found = score(name, factors + 0, factors)
    assert found.kinds == ["continuous", "continuous"]
    assert found.score > found.chance + 0.4


def test_boosting_without_its_package_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "lightgbm", None)
    factors = grid(repeats=8)
    with pytest.raises(MissingExtra, match=r"zscope\[boost\]"):
        a.dci(aligned(factors), factors)
    found = measure(Recording.from_arrays(aligned(factors), factors), ["disentanglement"])
    assert "boost" in found.missing["dci"]
    assert "mig" in found.results


@pytest.mark.parametrize("name", NAMES)
def test_the_type_of_an_option_names_its_choices(name):
    function = getattr(a, name)
    assert choices(function, "flavour") == FLAVOURS[name]
    assert choices(function, "resamples") == ()
    with pytest.raises(ConfigError, match="flavour='odd'; expected .* or "):
        check_options({name.replace("_", "-"): {"flavour": "odd"}})

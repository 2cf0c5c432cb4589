"""Factors as scores take them: of any type, with names and kinds."""

import numpy as np
import pytest
import torch
from worlds import grid, identity

import zscope as zs
from zscope import assays as a
from zscope.assays.run import measure
from zscope.data.dataset import from_arrays
from zscope.errors import ConfigError
from zscope.recording import Recording
from zscope.report.tables import flag_lines


def test_scores_call_factors_by_the_names_that_the_data_give_them():
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    factors = torch.stack([x[:, 0] > 0, torch.zeros(300), x[:, 1] > 0.5], 1).long().numpy()
    data = from_arrays(x, factors, factor_names=("left", "still", "right"))
    found = a.mig(zs.record(identity(2), data))
    assert found.factors == [0, 2]  # what does not vary is left out
    assert "Factor still is constant over these 300 samples and left out." in found.flags
    assert found.factor_names == ["left", "right"]
    drawn = found.plot().get_xticklabels()
    assert [label.get_text() for label in drawn] == ["left", "right"]
    assert zs.assays.mig(x, factors).factor_names is None


@pytest.mark.parametrize(
    "factors",
    [[["a"], ["b"]], [[1], [1, 2]], np.zeros((2, 2, 2)), np.zeros((2, 0)), [[1.0], [np.nan]]],
    ids=["words", "ragged", "cube", "empty", "nan"],
)
def test_factors_that_are_no_table_of_numbers_are_refused(factors):
    with pytest.raises(zs.errors.DataError, match="from_arrays: .*factors"):
        Recording.from_arrays(np.zeros((2, 2)), factors)


def test_factors_may_be_tensors_of_any_type_with_or_without_gradients():
    values = torch.tensor([[0.5], [1.5]], dtype=torch.bfloat16, requires_grad=True)
    assert Recording.from_arrays(np.eye(2), values).factors.values.tolist() == [[0.5], [1.5]]


@pytest.mark.parametrize("codes", [np.ones((4, 2)) * 1j, torch.ones(4, 2) * 1j, [[1j], [2j]]])
def test_complex_codes_are_refused(codes):
    with pytest.raises(zs.errors.DataError, match="complex.*codes.real, codes.imag"):
        Recording.from_arrays(codes)
    with pytest.raises(zs.errors.Undefined, match="complex"):
        zs.assays.effective_rank(codes if isinstance(codes, torch.Tensor) else np.array(codes))


@pytest.mark.parametrize(
    "about", [{"kinds": "ordinal"}, {"names": ["a", "b"]}, {"labels": {"a": ["x"]}}]
)
def test_what_describes_factors_needs_factors(about):
    with pytest.raises(ConfigError, match=f"{next(iter(about))}=.*no factors"):
        Recording.from_arrays(np.eye(2), **about)


@pytest.mark.parametrize(
    "kinds",
    [["continuous", None], {"dose": "continuous"}, "dose=continuous", ["dose=continuous"]],
)
def test_kinds_of_arrays_are_stated_as_those_of_files(kinds):
    table = Recording.from_arrays(
        np.eye(4), np.arange(8).reshape(4, 2), names=["dose", "plate"], kinds=kinds
    ).factors
    assert table.kinds == ("continuous", "categorical")
    assert table.guessed == ("plate",)


def test_data_frames_bring_the_names_of_their_columns():
    pd = pytest.importorskip("pandas")
    codes = pd.DataFrame(np.eye(4), columns=list("wxyz"))
    factors = pd.DataFrame({"dose": [0.5, 1.5, 2.5, 3.5], "plate": [0, 1, 0, 1]})
    recording = Recording.from_arrays(codes, factors)  # without a warning of torch
    assert recording.factors.names == ("dose", "plate")
    assert recording.factors.kinds == ("continuous", "categorical")
    assert torch.equal(recording.codes, torch.eye(4, dtype=torch.float64))
    assert Recording.from_arrays(codes, factors, names=["a", "b"]).factors.names == ("a", "b")
    plain = pd.DataFrame(np.eye(4))  # its columns are only numbered
    assert Recording.from_arrays(codes, plain).factors.names[0] == "factor0"


def test_flags_call_factors_by_name_and_count_latents_and_do_not_name_the_score():
    codes = np.column_stack([np.zeros(120), np.arange(120) % 6])
    factors = np.column_stack([np.arange(120) % 6, np.zeros(120)])
    names, variances = ["shape", "still"], np.full((120, 2), 99)
    recording = Recording.from_arrays(
        codes, factors, kinds="categorical", names=names, variances=variances
    )
    results = measure(recording, "disentanglement").results
    flags = {flag for result in results.values() for flag in result.flags}
    assert "Factor still is constant over these 120 samples and left out." in flags
    assert "Factor shape has 6 values: the gap can be at most about 0.83." in flags
    assert "Factor shape is categorical but treated as ordered." in flags
    assert "Latent 1 is passive (the posterior tells nothing) and left out." in flags
    definition = [line for line in flag_lines(results) if "0 by definition" in line]
    assert len(definition) == 1
    assert definition[0].endswith(" more: No latent is in use, so the score is 0 by definition.")
    unnamed = a.sap(codes, factors[:, :1], kinds="categorical").flags
    assert "Factor 0 has 6 values: the gap can be at most about 0.83." in unnamed


def test_factors_of_which_the_same_is_to_be_said_share_a_flag():
    factors = grid(2, 2, 3)
    rows = np.repeat(factors, 20, axis=0)
    found = a.sap(rows, rows, kinds="categorical")
    assert [flag for flag in found.flags if "values" in flag] == [
        "Factors 0, 1 have 2 values: the gap can be at most about 0.50.",
        "Factor 2 has 3 values: the gap can be at most about 0.67.",
    ]

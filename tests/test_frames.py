"""Results as frames, alone and in a report."""

import pytest
from worlds import gaussian_codes, grid, identity

import zscope as zs
from zscope.recording import Recording

a = zs.assays
RECORDING = Recording.from_arrays(gaussian_codes(600, 2), grid(3, 200))
CODES, FACTORS = RECORDING.codes, RECORDING.factors.values


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (a.mig(RECORDING), "mig"),
        (a.mig(CODES, FACTORS), "mig"),
        (a.irs(CODES, FACTORS), "irs"),
        (a.effective_rank(CODES), "effective-rank"),
        (a.cka(CODES, CODES), "cka"),
        (a.causal_structure_score(identity(2), CODES), "causal-structure-score"),
    ],
)
def test_a_single_result_names_its_assay(result, name):
    assert set(result.to_frame()["assay"]) == {name}
    assert set(result.to_frame("mine")["assay"]) == {"mine"}
    assert "assay" not in result.to_dict()

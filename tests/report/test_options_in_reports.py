"""Options of assays reach every part of a report."""

import pytest
import torch
from worlds import gaussian_codes

import zscope as zs


@pytest.mark.parametrize("alpha", [0.1, 0.4])
def test_the_table_of_latents_has_the_types_that_were_measured(alpha):
    variances = torch.full((200, 2), 0.01)
    variances[:, 1] = 0.3  # active if alpha is 0.4, mixed if it is 0.1
    recording = zs.Recording.from_arrays(gaussian_codes(200, 2), variances=variances)
    options = {"variable-types": {"alpha": alpha}}
    report = zs.assay(recording, names="variable-types", options=options)
    types = {row["latent"]: row["type"] for row in report.latents}
    assert types == dict(enumerate(report.results["variable-types"].labels))
    assert types[1] == ("active" if alpha == 0.4 else "mixed")

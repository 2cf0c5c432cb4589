"""A recording stands for its posterior wherever codes are drawn."""

import pytest
import torch
from worlds import gaussian_codes, seeded

import zscope as zs


@pytest.mark.parametrize("draw", [zs.sampling.posterior, zs.sampling.hybrid, zs.sampling.uniform])
@pytest.mark.parametrize("variances", [None, torch.full((40, 3), 0.2)])
def test_a_recording_gives_the_draws_of_its_posterior(draw, variances):
    recording = zs.Recording.from_arrays(gaussian_codes(40, 3), variances=variances)
    ours, theirs = (
        draw(each, 60, generator=seeded(1)) for each in (recording, recording.posterior)
    )
    assert ours.shape == (60, 3)
    assert ours.equal(theirs)

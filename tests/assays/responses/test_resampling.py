"""How often each sample counts in a resample."""

import pytest
import torch

from zscope.assays.responses.resampling import block_weights
from zscope.errors import ConfigError


@pytest.mark.parametrize("resamples", [-1, 1])
def test_a_number_of_resamples_that_gives_no_interval_is_refused(resamples):
    with pytest.raises(ConfigError, match="no interval"):
        block_weights(10, resamples, torch.Generator())
